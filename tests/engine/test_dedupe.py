"""Repeats from outside: what the ledger outside the database holds, what the model is told, and what a crash keeps."""

import pytest

from tests.engine.support import World, results, sent
from turnlog.engine import tool
from turnlog.engine.models.scripted import call, say
from turnlog.fsm.errors import Misuse
from turnlog.fsm.history import ToolMessage

LOOK = ("look", {"q": "a"})


@pytest.mark.accept(23)
@pytest.mark.accept(27)
@pytest.mark.field(116)
async def test_a_repeated_call_runs_once_and_the_model_reads_why(world: World) -> None:
    agent = world.agent(call(LOOK), call(LOOK), say("done"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("look")
        assert world.ledger == [("look", "a")]
        assert [outcome for outcome, _ in results(c)] == ["ok", "duplicate"]
        told = sent(agent)[-1].messages[-1]
        assert isinstance(told, ToolMessage)
        assert "ran before with the same arguments" in told.content


@pytest.mark.accept(30)
async def test_the_same_call_is_allowed_in_the_next_turn(world: World) -> None:
    agent = world.agent(call(LOOK), say("done"), call(LOOK), say("done again"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("look")
        await c.send("look again")
        assert world.ledger == [("look", "a")] * 2


@pytest.mark.accept(25)
async def test_once_per_session_holds_over_a_restart_until_a_person_says_otherwise(world: World) -> None:
    @tool(unique=True)
    async def chart(title: str) -> str:
        """Draw a chart."""
        world.ledger.append(("chart", title))
        return "drawn"

    script = [call(("chart", {"title": "a"})), say("one"), call(("chart", {"title": "b"})), say("none"),
              call(("chart", {"title": "c"})), say("two")]  # fmt: skip
    async with world.engine(world.agent(*script, tools=[chart])) as engine:
        await (await engine.create("s")).send("draw")
    async with world.engine(world.agent(*script, tools=[chart])) as engine:
        c = await engine.open("s")
        assert (await c.send("draw")).text == "none"
        assert world.ledger == [("chart", "a")]
        await c.allow_rerun("chart", by="ann")
        await c.send("draw")
        assert world.ledger == [("chart", "a"), ("chart", "c")]
        with pytest.raises(Misuse, match="nothing keeps 'look'"):
            await c.allow_rerun("look")


@pytest.mark.accept(24)
async def test_a_pause_of_a_tool_holds_by_the_clock(world: World) -> None:
    @tool(cooldown=30)
    async def ticket(title: str) -> str:
        """Open a ticket."""
        world.ledger.append(("ticket", title))
        return "opened"

    script = [step for n in range(3) for step in (call(("ticket", {"title": f"t{n}"})), say("ok"))]
    async with world.engine(world.agent(*script, tools=[ticket])) as engine:
        c = await engine.create("s")
        await c.send("one")
        await c.send("two")
        world.clock.advance(30.001)
        await c.send("three")
        assert world.ledger == [("ticket", "t0"), ("ticket", "t2")]


def test_a_pause_that_is_none_is_refused_where_the_tool_is_made() -> None:
    with pytest.raises(Misuse, match="cooldown"):

        @tool(cooldown=-1)
        async def bad() -> None: ...
