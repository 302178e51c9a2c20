"""A stop ends what runs, every call keeps exactly one result, and what comes late changes nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from tests.engine.support import (
    World,
    blocking_tool,
    in_thread,
    kinds,
    of_kind,
    processed,
    reached,
    request,
    results,
    sent,
    valid,
)
from turnlog.engine import Agent, ToolContext, tool
from turnlog.engine.models.base import Delta, ModelCall, ModelReply, TextDelta
from turnlog.engine.models.scripted import ScriptedModel, Step, call, say
from turnlog.fsm.events import Limits


@pytest.mark.field(104)
async def test_a_stop_during_an_async_tool_cancels_it_and_leaves_one_result(world: World) -> None:
    ended: list[str] = []

    @tool
    async def slow() -> str:
        """Take for ever."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return ""

    running = asyncio.Event()
    agent = world.agent(call(("slow", {})), say("next"), tools=[slow])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        await c.stop(by="ann")
        assert c.session.state == "interrupt"
        assert (await c.send("go on")).text == "next"
        assert ended == ["cancelled"]
        ((outcome, content),) = results(c)
        assert outcome == "cancelled"
        assert "may have taken effect in part" in content
        valid(sent(agent)[-1].messages)
        assert of_kind(c, "turn_interrupted")[0].reason == "stopped"


@pytest.mark.field(104)
async def test_a_thread_that_ends_after_the_stop_does_not_enter_the_next_turn(world: World) -> None:
    block, running, go = blocking_tool()
    agent = world.agent(
        call(("block", {})), say("next"), call(("look", {"q": "a"})), say("last"), tools=[block, world.look]
    )
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await c.stop()
        assert (await c.send("go on")).text == "next"
        go.set()
        await reached(c, lambda s: s.seq >= 10)
        await c.send("look")
        assert [outcome for outcome, _ in results(c)] == ["cancelled", "ok"]
        (late,) = of_kind(c, "input_refused")
        assert (late.code, late.about) == ("stale", of_kind(c, "tools_called")[0].calls[0].id)
        for one in sent(agent):
            valid(one.messages)
            assert "block is done" not in str(list(one.messages))


async def test_a_tool_in_a_thread_can_see_that_it_was_called_off(world: World) -> None:
    seen, running = threading.Event(), threading.Event()

    @tool
    def patient(context: ToolContext) -> str:
        """Look at the flag."""
        running.set()
        while not context.cancelled:
            threading.Event().wait(0.005)
        seen.set()
        return "stopped"

    async with world.engine(world.agent(call(("patient", {})), say("next"), tools=[patient])) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await c.stop()
        await in_thread(seen)


async def test_a_blocking_tool_does_not_stop_the_other_sessions(world: World) -> None:
    block, running, go = blocking_tool()

    def step(given: ModelCall) -> Step:
        return call(("block", {})) if "block" in str(given.messages[-1]) else say("quick")

    agent = Agent("@agent", ScriptedModel(step), tools=[block])
    async with world.engine(agent) as engine:
        busy, other = await engine.create("a"), await engine.create("b")
        await busy.say("block")
        await in_thread(running)
        assert (await other.send("hi")).text == "quick"
        await busy.stop()
        go.set()


async def test_a_stop_during_a_model_call_ends_the_generation_and_its_late_words_are_nothing(world: World) -> None:
    closed, started = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
            try:
                yield TextDelta("The ans")
                started.set()
                await asyncio.Event().wait()
            finally:
                closed.set()

    async with world.engine(Agent("@agent", Slow([]))) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await started.wait()
        await c.stop()
        await asyncio.wait_for(closed.wait(), 5)
        assert kinds(c) == ["session_started", "message_added", "turn_interrupted"]


async def test_a_tool_that_swallows_its_cancellation_neither_returns_a_result_nor_holds_up_the_end(
    world: World,
) -> None:
    running, go = asyncio.Event(), asyncio.Event()

    @tool
    async def stubborn() -> str:
        """Ignore a cancellation."""
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
        return "I went on"

    async with world.engine(world.agent(call(("stubborn", {})), say("next"), tools=[stubborn])) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        await c.stop()
        assert (await c.send("go on")).text == "next"
        go.set()
        await processed(c)
        assert [outcome for outcome, _ in results(c)] == ["cancelled"]


@pytest.mark.parametrize("session", [False, True])
async def test_a_stop_while_requests_are_open_cancels_them_and_gives_each_call_a_result(
    world: World, session: bool
) -> None:
    pays = [("pay", {"amount": n, "to": "A"}) for n in range(2)]
    agent = world.agent(call(*pays, ("look", {"q": "a"})), say("next"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        asked = (await c.send("go")).requests
        await c.stop(by="bob", session=session)
        assert c.session.state == ("terminated" if session else "interrupt")
        assert [(e.outcome, e.actor) for e in of_kind(c, "approval_resolved")] == [("cancelled", "person:bob")] * 2
        assert [outcome for outcome, _ in results(c)] == ["cancelled"] * 3
        assert world.ledger == []
        with pytest.raises(Exception, match="already cancelled by person:bob"):
            await c.decide(asked[0], "approved")
        assert world.ledger == []
        if not session:
            await c.send("go on")
            valid(sent(agent)[-1].messages)
        assert world.clock.armed == []


async def test_a_late_timer_of_a_request_that_was_answered_does_nothing(world: World) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"})), say("paid"))
    async with world.engine(agent, limits=Limits(approval_seconds=60)) as engine:
        c = await engine.create("s")
        await c.send("go")
        await c.decide(request(c), "approved")
        await c.rest()
        before = c.session.seq
        world.clock.advance(120)
        await processed(c)
        assert c.session.seq == before


async def test_a_stream_that_is_always_ready_can_be_stopped(world: World) -> None:
    class Endless:
        name = "endless"

        async def stream(self, _call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
            for _ in range(1_000_000):
                yield TextDelta("x")
            yield ModelReply("never stopped")

    async with world.engine(Agent("@agent", Endless())) as engine:
        c = await engine.create("s")
        await c.say("go")
        await c.stop()
        assert of_kind(c, "turn_interrupted")[-1].reason == "stopped"
        assert [one.text for one in of_kind(c, "message_added")] == ["go"]
