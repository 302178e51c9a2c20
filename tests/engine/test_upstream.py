"""The sixteen cases of the engine that turnlog re-thinks, with its numbers, from outside: an engine, a log, a script.

An "entry" is what that engine keeps in its list of chats: a message, or the placeholder of an interrupt or an error at
its end. Where turnlog differs on purpose, the test says so.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.support import World, kinds, of_kind, results, rows, sent
from turnlog.engine import Agent, Conversation, Notice, Rows
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.engine.tools.function import tool
from turnlog.fsm import Row
from turnlog.fsm.events import Channel, Limits, MessageAdded
from turnlog.fsm.inputs import Preloaded

Script = Callable[[ModelCall], Step]


def never_ending(_: ModelCall) -> Step:
    """Go on and on."""
    return say("and then?")


def agent(name: str, script: Script | list[Step] = never_ending, **more: Any) -> Agent:
    """A node with a scripted model."""
    return Agent(name, ScriptedModel(script), **more)


ASKED: dict[str, Any] = {"interrupt": "always"}


def entries(c: Conversation) -> list[str]:
    """The entries that the other engine would hold."""
    texts = [event.text for event in of_kind(c, "message_added")]
    return texts + (["(placeholder)"] if c.session.state in ("interrupt", "error") else [])


@pytest.mark.accept(45)
async def test_case_1_terminate_ends_it_with_two_entries_although_the_human_is_always_asked(world: World) -> None:
    async with world.engine(agent("human", **ASKED), agent("bot", [say("TERMINATE")])) as engine:
        c = await engine.create("s")
        assert (await c.send("2 + 2?")).state == "terminated"
        assert entries(c) == ["2 + 2?", "TERMINATE"]
        last = [row for row in rows(c) if isinstance(row.event, MessageAdded)][-1]
        assert (last.event.kind, last.state) == ("message_added", "success")
        assert (of_kind(c, "message_added")[1].sender, of_kind(c, "message_added")[1].recipient) == ("bot", "human")


@pytest.mark.accept(53)
async def test_case_2_the_role_is_the_first_message_and_the_model_is_called_once(world: World) -> None:
    one = agent("bot", [say("TERMINATE")], role="You are a bot.")
    async with world.engine(agent("human", **ASKED), one) as engine:
        await (await engine.create("s")).send("hi")
        assert [made.system for made in sent(one)] == ["You are a bot."]


@pytest.mark.accept(43)
async def test_case_3_a_bot_that_ends_at_the_eleventh_reply_leaves_twelve_entries(world: World) -> None:
    replies = iter(range(1, 100))

    def either(_: ModelCall) -> Step:
        return say("TERMINATE" if next(replies) == 11 else "...")

    async with world.engine(agent("human", either), agent("bot", either)) as engine:
        c = await engine.create("s")
        await c.send("start")
        assert len(entries(c)) == 12
        assert c.session.state == "terminated"


@pytest.mark.accept(46)
async def test_case_4_four_rounds_are_exactly_three_model_calls(world: World) -> None:
    async with world.engine(agent("human"), agent("bot"), limits=Limits(max_rounds=4)) as engine:
        c = await engine.create("s")
        await c.send("start")
        assert sum(event.usage.completions for event in of_kind(c, "message_added") if event.usage) == 3


@pytest.mark.accept(46)
async def test_case_5_preset_history_is_kept_first_and_three_entries_come_of_one_round(world: World) -> None:
    async with world.engine(agent("human"), agent("bot"), limits=Limits(max_rounds=1)) as engine:
        c = await engine.create("s", history=[Preloaded("human", "bot", "from before")])
        await c.send("start")
        assert entries(c) == ["from before", "start", "and then?"]


@pytest.mark.accept(42)
async def test_case_6_a_listener_hears_the_question_and_the_answer(world: World) -> None:
    heard: list[Row] = []

    def listen(notice: Notice) -> None:
        if isinstance(notice, Rows):
            heard.extend(row for row in notice.rows if isinstance(row.event, MessageAdded))

    async with world.engine(agent("human", **ASKED), agent("bot", [say("4")])) as engine:
        c = await engine.create("s")
        c.subscribe(listen)
        await c.send("2 + 2?")
        assert [getattr(row.event, "text", "") for row in heard] == ["2 + 2?", "4"]


@pytest.mark.accept(47)
async def test_cases_7_and_8_each_reply_to_a_human_who_is_always_asked_interrupts_once(world: World) -> None:
    async with world.engine(agent("human", **ASKED), agent("bot")) as engine:
        c = await engine.create("s")
        await c.send("start")
        assert kinds(c).count("turn_interrupted") == 1
        assert len(entries(c)) == 3
        await c.send("more")
        assert kinds(c).count("turn_interrupted") == 2


@pytest.mark.accept(49)
@pytest.mark.accept(75)
async def test_case_9_a_continue_without_text_is_an_auto_reply_that_is_marked_and_five_entries_come(
    world: World,
) -> None:
    async with world.engine(agent("human", [say("auto")], **ASKED), agent("bot")) as engine:
        c = await engine.create("s")
        await c.send("start")
        await c.resume()
        assert entries(c) == ["start", "and then?", "auto", "and then?", "(placeholder)"]
        third = of_kind(c, "message_added")[2]
        assert (third.sender, third.synthetic, third.by) == ("human", True, "model")


@pytest.mark.accept(49)
async def test_case_10_a_continue_with_text_is_said_by_the_human_in_the_placeholder_s_place(world: World) -> None:
    async with world.engine(agent("human", **ASKED), agent("bot")) as engine:
        c = await engine.create("s")
        await c.send("start")
        await c.send("my feedback")
        third = of_kind(c, "message_added")[2]
        assert (third.sender, third.recipient, third.text) == ("human", "bot", "my feedback")


@pytest.mark.accept(61)
@pytest.mark.parametrize(("cap", "count"), [(10, 11), (4, 5)])
async def test_cases_11_and_12_a_group_of_three_leaves_its_cap_and_one_entries(
    world: World, cap: int, count: int
) -> None:
    members = [agent(name) for name in ("ada", "bea", "cyd")]
    room = Channel(name="room", members=("ada", "bea", "cyd"), max_rounds=cap)
    async with world.engine(Agent("USER", interrupt="always"), *members, channels=[room]) as engine:
        c = await engine.create("s", entry="room")
        await c.send("start")
        assert len(entries(c)) == count


async def test_case_13_an_exception_of_a_tool_is_a_result_and_ends_nothing(world: World) -> None:
    """It goes up to the caller there, and kills the process from the second turn on. Here the model is told."""

    @tool
    async def broken() -> None:
        """Break."""
        raise ZeroDivisionError("by zero")

    one = agent("bot", [call(("broken", {})), say("it broke")], tools=[broken])
    async with world.engine(agent("human", **ASKED), one) as engine:
        c = await engine.create("s")
        assert (await c.send("go")).text == "it broke"
        assert results(c) == [("error", "ZeroDivisionError: by zero")]


@pytest.mark.accept(3)
async def test_cases_14_and_15_an_error_of_the_provider_is_not_raised_leaves_two_entries_and_is_told_once(
    world: World,
) -> None:
    heard: list[str] = []

    def listen(notice: Notice) -> None:
        if isinstance(notice, Rows):
            heard.extend(row.event.message for row in notice.rows if row.event.kind == "turn_failed")

    async with world.engine(agent("human", **ASKED), agent("bot", [fail("rate_limit", "429: slow down")])) as engine:
        c = await engine.create("s")
        c.subscribe(listen)
        turn = await c.send("start")
        assert (turn.state, entries(c)) == ("error", ["start", "(placeholder)"])
        assert heard == ["429: slow down"]


@pytest.mark.accept(50)
async def test_case_16_a_retry_after_one_failure_is_two_calls_and_the_failed_one_stays_in_the_log(
    world: World,
) -> None:
    """Two entries, the last a success, as there; the failure, which is erased there, stays a row of its own."""
    bot = agent("bot", [attempts(fail(), say("TERMINATE"))])
    async with world.engine(agent("human", **ASKED), bot) as engine:
        c = await engine.create("s")
        await c.send("start")
        await c.retry()
        assert len(sent(bot)) == 2
        assert entries(c) == ["start", "TERMINATE"]
        assert kinds(c).count("turn_failed") == 1
