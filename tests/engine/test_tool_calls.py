"""Rounds of calls: caps, order, and tools that raise whatever they like."""

import asyncio

import pytest

from tests.engine.support import World, of_kind, reached, results, sent, valid
from turnlog.engine import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.events import Limits
from turnlog.fsm.history import ToolMessage


@pytest.mark.accept(58)
async def test_tools_are_chained_up_to_the_cap_exactly_and_none_runs_after_it(world: World) -> None:
    greedy = Agent("@agent", ScriptedModel(lambda c: call(("look", {"q": str(c.index)}))), tools=[world.look])
    async with world.engine(greedy, limits=Limits(max_tool_calls=10)) as engine:
        c = await engine.create("s")
        turn = await c.send("look for ever")
        assert world.ledger == [("look", str(n)) for n in range(10)]
        assert results(c)[-1][0] == "limit"
        assert (turn.state, of_kind(c, "turn_interrupted")[-1].reason) == ("interrupt", "limit")
        await c.send("again")
        assert len(world.ledger) == 20, "a new turn has its own ten"


@pytest.mark.accept(58)
async def test_a_chain_of_three_tools_ends_in_an_answer_that_saw_them_all(world: World) -> None:
    agent = world.agent(*[call(("look", {"q": q})) for q in "abc"], say("a, b and c"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        assert (await c.send("look")).text == "a, b and c"
        last = sent(agent)[-1].messages
        valid(last)
        assert [m.content for m in last if isinstance(m, ToolMessage)] == ["saw a", "saw b", "saw c"]


@pytest.mark.accept(58)
async def test_a_model_is_offered_no_tools_once_the_cap_is_reached(world: World) -> None:
    agent = world.agent(call(("look", {"q": "a"}), ("look", {"q": "b"})), say("done"))
    async with world.engine(agent, limits=Limits(max_tool_calls=2)) as engine:
        await (await engine.create("s")).send("look")
    assert [[t.name for t in one.tools] for one in sent(agent)] == [["look", "pay"], []]


@pytest.mark.accept(69)
async def test_results_of_parallel_calls_keep_the_order_of_the_calls_whatever_ends_first(world: World) -> None:
    gates = {q: asyncio.Event() for q in "abc"}

    @tool(name="wait")
    async def wait_for(q: str) -> str:
        """Wait for a gate."""
        await gates[q].wait()
        return f"{q} is open"

    agent = world.agent(call(*[("wait", {"q": q}) for q in "abc"]), say("done"), tools=[wait_for])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await reached(c, lambda s: sum(one.status == "started" for one in s.calls) == 3)
        for count, q in enumerate("cab", 1):
            gates[q].set()
            await reached(c, lambda s, n=count: n == 3 or sum(one.status == "returned" for one in s.calls) == n)  # type: ignore[misc]  # a bound loop variable
        await c.rest()
        returned = [e.content for e in of_kind(c, "tool_returned")]
        assert returned == ["c is open", "a is open", "b is open"]
        assert [content for _, content in results(c)] == ["a is open", "b is open", "c is open"]
        valid(sent(agent)[1].messages)


@pytest.mark.accept(70)
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), asyncio.CancelledError(), KeyError()])
async def test_whatever_a_tool_raises_becomes_its_result_in_every_turn(
    world: World, thread: bool, error: BaseException
) -> None:
    def raising() -> str:
        """Raise."""
        raise error

    async def raising_too() -> str:
        """Raise."""
        raise error

    made = tool(name="boom")(raising if thread else raising_too)
    async with world.engine(world.agent(*[call(("boom", {})), say("ok")] * 2, tools=[made])) as engine:
        c = await engine.create("s")
        for _ in range(2):
            assert (await asyncio.wait_for(c.send("go"), 10)).text == "ok"
        assert [outcome for outcome, _ in results(c)] == ["error", "error"]
        assert type(error).__name__ in results(c)[0][1]


@pytest.mark.accept(70)
async def test_an_exception_that_cannot_even_be_printed_is_a_result_too(world: World) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    @tool
    async def boom() -> str:
        """Raise."""
        raise Mute

    async with world.engine(world.agent(call(("boom", {})), say("ok"), tools=[boom])) as engine:
        c = await engine.create("s")
        assert (await asyncio.wait_for(c.send("go"), 10)).text == "ok"
        assert results(c) == [("error", "Mute")]


@pytest.mark.accept(76)
async def test_a_later_turn_sees_the_tool_results_of_the_earlier_ones(world: World) -> None:
    agent = world.agent(call(("look", {"q": "a"})), say("done"), say("as I saw"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("look")
        await c.send("what was it?")
        assert [type(m).__name__ for m in sent(agent)[-1].messages] == [
            "UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "UserMessage"
        ]  # fmt: skip
        shown = sent(agent)[-1].messages[2]
        assert isinstance(shown, ToolMessage)
        assert shown.content == "saw a"
