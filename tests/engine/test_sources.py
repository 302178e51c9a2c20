"""Sources and files that tools bring: where they wait, where they end up, and that none is lost with a turn."""

import asyncio
import sqlite3
from typing import Any

import pytest

from tests.engine.support import World, of_kind, reached, request, sent
from turnlog.engine import Agent, Tool, ToolContext, person, tool
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.fsm.events import Channel, Citation, Limits
from turnlog.fsm.history import ToolMessage, UserMessage
from turnlog.fsm.sources import cited

GUIDE = Citation(id="guide", title="The guide", url="http://docs/guide", excerpt="chairs")


def finder(**more: Any) -> Tool:
    """A tool that cites what it is told to and brings a picture."""

    @tool(name="find", repeatable=True, **more)
    async def find(ids: list[str], context: ToolContext) -> str:
        """Find something in the documents."""
        context.cite(*(Citation(id=one, title=f"About {one}", excerpt=one * 600) for one in ids))
        await context.attach(f"{ids[0]}.png", "image/png", ids[0].encode())
        return "found"

    return find


def find(*ids: str) -> Step:
    return call(("find", {"ids": list(ids)}))


def names(event: Any) -> tuple[list[str], list[str]]:
    """The sources and the files of an event."""
    return [one.id for one in event.citations], [one.name for one in event.attachments]


@pytest.mark.accept(20)
@pytest.mark.accept(21)
async def test_an_answer_has_each_source_once_and_cut_and_the_next_turn_starts_empty(world: World) -> None:
    script = [find("aa", "bb"), find("bb", "cc"), say("done"), find("bb"), say("again"), say("nothing")]
    async with world.engine(world.agent(*script, tools=[finder()])) as engine:
        c = await engine.create("s")
        for text in ("one", "two", "three"):
            await c.send(text)
        first, second, third = [one for one in of_kind(c, "message_added") if one.by == "model"]
    assert names(first) == (["aa", "bb", "cc"], ["aa.png", "bb.png"])
    assert [one.excerpt for one in first.citations] == ["a" * 1000, "b" * 1000, "c" * 1000]
    assert names(second) == (["bb"], ["bb.png"])
    assert names(third) == ([], [])
    async with world.engine() as again:  # and so it is in the file
        stored = [row.event for row in again.log.read("s") if row.event.kind == "message_added"]
        assert first in stored
        assert second in stored


def test_a_source_without_an_id_is_left_out_only_where_it_is_the_very_same() -> None:
    one, other = Citation(id="", title="one"), Citation(id="", title="other")
    assert cited((one,), (other, one, GUIDE, GUIDE.model_copy(update={"title": "later"}))) == (one, other, GUIDE)


async def test_a_source_with_half_a_character_is_kept_with_the_rest_of_it(world: World) -> None:
    @tool(name="odd")
    async def odd(context: ToolContext) -> str:
        """Cite something odd."""
        context.cite(Citation.model_construct(id="d", title="\ud83d half", url="", excerpt=""))
        return "ok"

    async with world.engine(world.agent(call(("odd", {})), say("done"), tools=[odd])) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert of_kind(c, "message_added")[-1].citations == (Citation(id="d", title="\ufffd half"),)


def stuck() -> tuple[Tool, asyncio.Event]:
    """A tool that cites, attaches, notes, and then never ends."""
    running = asyncio.Event()

    @tool(name="stuck")
    async def hang(context: ToolContext) -> str:
        """Never end."""
        context.cite(Citation(id="half", excerpt="h" * 2000))
        context.citations.append("nonsense")  # type: ignore[arg-type]  # what cannot be stored must not keep a turn from ending
        await context.attach("half.png", "image/png", b"half")
        context.introspect("half way")
        running.set()
        await asyncio.Event().wait()
        return "never"

    return hang, running


@pytest.mark.accept(33)
@pytest.mark.parametrize("how", ["stop", "word", "session", "exit", "interrupt", "time"])
async def test_what_was_brought_before_the_end_is_on_the_row_that_ends_the_turn(world: World, how: str) -> None:
    """By the tools that ended, and by the one that is stopped while it runs."""
    hang, running = stuck()
    script = [find("aa"), call(("find", {"ids": ["bb"]}), ("stuck", {})), say("later")]
    limits = Limits(busy="interrupt" if how == "interrupt" else "queue", turn_seconds=60)
    async with world.engine(world.agent(*script, tools=[finder(), hang]), limits=limits) as engine:
        c = await engine.create("s")
        await c.say("go")
        await running.wait()
        await reached(c, lambda session: len(session.open_calls) == 1)
        match how:
            case "time":
                world.clock.advance(60)
                await reached(c, lambda session: session.state == "interrupt")
            case "interrupt":
                await c.send("something else")
            case "word" | "exit":
                await c.say("stop" if how == "word" else "/exit")
            case _:
                await c.stop(session=how == "session")
        kind = "session_terminated" if how in ("session", "exit") else "turn_interrupted"
        end = of_kind(c, kind)[0]
        result = of_kind(c, "tool_returned")[-1]
        assert names(end) == (["aa", "bb", "half"], ["aa.png", "bb.png", "half.png"])
        assert names(result) == (["half"], ["half.png"])
        assert (result.notes, result.outcome) == (("half way",), "cancelled")
        assert end.citations[-1].excerpt == "h" * 1000
        assert (c.session.citations, c.session.attachments) == ((), ())
        if how == "interrupt":
            assert names(of_kind(c, "message_added")[-1]) == ([], [])


@pytest.mark.accept(33)
@pytest.mark.parametrize("limits", [Limits(max_tool_calls=1), Limits(max_tokens=20)])
async def test_a_limit_that_ends_the_turn_leaves_what_was_brought_on_its_row(world: World, limits: Limits) -> None:
    script = [find("aa"), find("bb"), find("cc"), say("never")]
    async with world.engine(world.agent(*script, tools=[finder()]), limits=limits) as engine:
        c = await engine.create("s")
        await c.send("go")
        (end,) = of_kind(c, "turn_interrupted")
    assert end.reason == "limit"
    assert names(end)[0][0] == "aa"
    assert names(end)[1][0] == "aa.png"


@pytest.mark.accept(33)
async def test_a_failure_has_what_was_brought_and_so_has_the_answer_of_a_retry(world: World) -> None:
    script = [find("aa"), attempts(fail(), fail(), say("at last"))]
    async with world.engine(world.agent(*script, tools=[finder()])) as engine:
        c = await engine.create("s")
        await c.send("go")
    async with world.engine(world.agent(*script, tools=[finder()])) as engine:  # and after a restart
        c = await engine.open("s")
        await c.retry()
        await c.retry()
        failures, answer = of_kind(c, "turn_failed"), of_kind(c, "message_added")[-1]
    assert [names(one) for one in (*failures, answer)] == [(["aa"], ["aa.png"])] * 3


@pytest.mark.accept(33)
async def test_a_failure_that_ends_the_session_says_it_once(world: World) -> None:
    script = [find("aa"), fail()]
    async with world.engine(world.agent(*script, tools=[finder()]), limits=Limits(on_error="terminate")) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert names(of_kind(c, "turn_failed")[0]) == (["aa"], ["aa.png"])
        assert names(of_kind(c, "session_terminated")[0]) == ([], [])


@pytest.mark.accept(33)
async def test_a_process_that_dies_before_the_answer_loses_nothing_that_a_tool_brought(world: World) -> None:
    script = [find("aa"), call(("pay", {"amount": 1, "to": "A"})), say("paid")]
    tools = [finder(), world.pay]
    async with world.engine(world.agent(*script, tools=tools)) as engine:
        c = await engine.create("s")
        await c.send("go")
    async with world.engine(world.agent(*script, tools=tools)) as engine:
        c = await engine.open("s")
        await c.decide(request(c), "approved")
        await c.rest()
        assert names(of_kind(c, "message_added")[-1]) == (["aa"], ["aa.png"])


async def test_rows_that_end_a_turn_without_sources_are_stored_as_before(world: World) -> None:
    async with world.engine(world.agent(say("hi"))) as engine:
        c = await engine.create("s")
        await c.send("go")
    bodies = _bodies(world)
    assert bodies
    assert not [body for body in bodies if "citations" in body or "attachments" in body]


def _bodies(world: World) -> list[str]:
    with sqlite3.connect(world.path) as connection:
        found = [body for (body,) in connection.execute("SELECT body FROM events")]
    connection.close()
    return found


@pytest.mark.accept(22)
async def test_a_tools_picture_is_in_the_next_request_and_with_the_answer(world: World) -> None:
    agent = world.agent(find("aa"), say("look"), say("bye"), tools=[finder()])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("go")
        await c.send("thanks")
        second, third = sent(agent)[1], sent(agent)[2]
        result = second.messages[-1]
        assert isinstance(result, ToolMessage)
        assert [one.name for one in result.attachments] == ["aa.png"]
        assert second.blob is not None
        assert second.blob(result.attachments[0].digest) == b"aa"
        assert [one.attachments for one in third.messages if isinstance(one, UserMessage)] == [(), ()]
        assert [one.name for one in of_kind(c, "message_added")[1].attachments] == ["aa.png"]


@pytest.mark.accept(22)
async def test_another_agent_sees_the_picture_with_the_words_of_the_one_whose_tool_made_it(world: World) -> None:
    seen: list[UserMessage] = []

    def listen(given: ModelCall) -> Step:
        newest = given.messages[-1]
        if not isinstance(newest, UserMessage) or "here" not in newest.text:
            return say("go on")
        seen.append(newest)
        return say("TERMINATE")

    maker = Agent(
        "maker", ScriptedModel(lambda given: say("here") if given.index % 2 else find("aa")), tools=[finder()]
    )
    critic = Agent("critic", ScriptedModel(listen))
    room = Channel(name="room", members=("maker", "critic"))
    async with world.engine(person(), maker, critic, channels=[room]) as engine:
        pair = await engine.create("pair", entry="maker")
        await pair.send("draw", sender="critic", recipient="maker")
        group = await engine.create("group", entry="room")
        await group.send("draw")
    assert [[one.name for one in said.attachments] for said in seen] == [["aa.png"], ["aa.png"]]


async def test_the_full_text_of_a_cut_result_is_no_file_of_the_answer(world: World) -> None:
    @tool(name="long")
    async def long() -> str:
        """Say a lot."""
        return "x" * 100_000

    async with world.engine(world.agent(call(("long", {})), say("done"), tools=[long])) as engine:
        c = await engine.create("s")
        await c.send("go")
        (result,) = of_kind(c, "tool_returned")
        assert [(one.name, one.whole) for one in result.attachments] == [("result.txt", True)]
        assert of_kind(c, "message_added")[-1].attachments == ()
