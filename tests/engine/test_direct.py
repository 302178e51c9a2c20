"""A tool whose result is the answer."""

import pytest

from tests.engine.support import World, kinds, of_kind, request, results, rows, sent
from turnlog.engine import ToolContext, tool
from turnlog.engine.models.scripted import call, say
from turnlog.fsm.events import Citation
from turnlog.fsm.session import replay
from turnlog.fsm.states import State


@tool(direct=True)
async def report(q: str, context: ToolContext) -> str:
    """Report."""
    context.cite(Citation(id="r", title="The report"))
    await context.attach("r.txt", "text/plain", b"r")
    if q == "fail":
        raise ValueError("no report")
    return "" if q == "blank" else f"Report on {q}."


@pytest.mark.accept(19)
async def test_the_result_is_the_reply_with_all_sources_of_the_turn_and_ends_it(world: World) -> None:
    agent = world.agent(
        call(("look", {"q": "x"})), call(("report", {"q": "oak"})), say("later"), tools=[world.look, report]
    )
    async with world.engine(agent) as engine:
        c = await engine.create("s", owner="ann")
        turn = await c.send("go")
        assert (turn.state, turn.text, len(sent(agent))) == (State.INTERRUPT, "Report on oak.", 2)
        assert kinds(c)[-3:] == ["tool_returned", "message_added", "turn_interrupted"]
        answer = of_kind(c, "message_added")[-1]
        assert (answer.by, answer.sender, answer.recipient) == ("model", "@agent", "USER")
        assert [one.id for one in answer.citations] == ["r"]
        assert [one.name for one in answer.attachments] == ["r.txt"]
        assert (answer.usage, answer.turn_usage.completions) == (None, 2)
        assert replay(rows(c)) == c.session
        assert (await c.send("and?")).text == "later"


async def test_beside_other_calls_or_without_a_good_result_the_model_is_asked(world: World) -> None:
    for calls in (
        (("report", {"q": "a"}), ("look", {"q": "b"})),
        (("report", {"q": "fail"}),),
        (("report", {"q": "blank"}),),
    ):
        agent = world.agent(call(*calls), say("told by the model"), tools=[world.look, report])
        async with world.engine(agent) as engine:
            c = await engine.create(owner="ann")
            assert (await c.send("go")).text == "told by the model"


async def test_a_direct_tool_that_needs_a_word_gives_the_reply_after_it(world: World) -> None:
    @tool(direct=True, needs_approval=True)
    def send(to: str) -> str:
        """Send."""
        return f"TERMINATE {to}"

    agent = world.agent(call(("send", {"to": "A"})), call(("send", {"to": "B"})), say("refused"), tools=[send])
    async with world.engine(agent) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert of_kind(c, "message_added")[-1].text == "TERMINATE A"
        await c.send("again")
        await c.decide(request(c), "denied", by="ann")
        await c.rest()
        assert of_kind(c, "message_added")[-1].text == "refused"
        assert [outcome for outcome, _ in results(c)] == ["ok", "denied"]


async def test_a_tool_cannot_end_the_session_with_a_word(world: World) -> None:
    @tool(direct=True)
    def word() -> str:
        """Say a word that means something when a model says it."""
        return "TERMINATE"

    async with world.engine(world.agent(call(("word", {})), say("still here"), tools=[word])) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "TERMINATE"
        assert c.session.state is State.INTERRUPT
        assert (await c.send("and?")).text == "still here"
