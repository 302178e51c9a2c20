"""One inbox, one writer: nothing that is handed in is lost or left without an answer, whatever happens meanwhile."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.support import (
    World,
    blocking_tool,
    hold_commits,
    in_thread,
    kinds,
    of_kind,
    processed,
    reached,
    request,
    rows,
    slow_tool,
)
from turnlog.engine import Notice, Outcome
from turnlog.engine.models.scripted import call, say
from turnlog.engine.tools.function import ToolContext, tool
from turnlog.fsm.errors import Error, Misuse, UnknownSession
from turnlog.fsm.events import Citation


async def test_a_command_that_is_being_committed_while_the_hub_closes_gets_its_answer(world: World) -> None:
    async with world.engine(world.agent(say("hello"))) as engine:
        c = await engine.create("s")
        there, go = hold_commits(engine)
        saying = asyncio.create_task(c.say("hi"))
        await there.wait()
        closing = asyncio.create_task((await engine.hub("s")).close())
        await asyncio.sleep(0)
        go()
        await closing
        outcome = await asyncio.wait_for(saying, 10)
        assert outcome.seq == 2
        assert rows(c)[1].event.kind == "message_added"


async def test_a_session_with_a_command_being_committed_does_not_leave_memory(world: World) -> None:
    async with world.engine(world.agent(say("hello")), max_live=1) as engine:
        c = await engine.create("s")
        there, go = hold_commits(engine)
        saying = asyncio.create_task(c.say("hi"))
        await there.wait()
        assert not (await engine.hub("s")).idle
        go()
        await saying


async def test_a_closing_hub_starts_no_effect(world: World) -> None:
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        there, go = hold_commits(engine)
        deciding = asyncio.create_task(c.decide(request(c), "approved"))
        await there.wait()
        closing = asyncio.create_task((await engine.hub("s")).close())
        await asyncio.sleep(0)
        go()
        await closing
        await deciding
        assert world.ledger == []
        assert "tool_started" not in kinds(c), "a start that nobody acts on would be of unknown outcome"
        again = await engine.open("s")
        await again.rest()
        assert world.ledger == [("pay", 5, "A")]


async def test_whoever_waits_for_a_closed_session_is_told(world: World) -> None:
    slow, running, _ = slow_tool()
    async with world.engine(world.agent(call(("slow", {})), tools=[slow])) as engine:
        c = await engine.create("s")
        sending = asyncio.create_task(c.send("hi"))
        await running.wait()
        hub = await engine.hub("s")
        await hub.close()
        with pytest.raises(Error, match="open it again"):
            await sending
        with pytest.raises(Error, match="open it again"):
            await asyncio.wait_for(hub.until(lambda session: session.seq > 100), 5)


async def test_a_conversation_follows_its_session_in_and_out_of_memory(world: World) -> None:
    async with world.engine(world.agent(say("one"), say("two")), max_live=1) as engine:
        first = await engine.create("a")
        await engine.create("b")  # a leaves memory
        second = await engine.open("a")
        await second.send("hi")
        assert first.session == second.session
        heard: list[Notice] = []
        stop = first.subscribe(heard.append)
        await second.send("again")
        stop()
        assert heard


async def test_input_that_has_no_stored_form_is_refused_and_the_session_lives(world: World) -> None:
    bad = "\ud800"
    async with world.engine(world.agent(say("hello"), say("again"))) as engine:
        c = await engine.create("s")

        async def tried(send: Callable[[], Any]) -> None:
            with pytest.raises(Misuse):
                await asyncio.wait_for(send(), 10)

        await tried(lambda: c.say("hi", by=bad))
        await tried(lambda: c.say("hi", recipient=bad))
        await tried(lambda: c.say("hi", command=bad))
        await tried(lambda: c.grant("look", scope="everywhere"))
        await tried(lambda: c.grant("look", max_uses="many"))
        await tried(lambda: c.grant(bad))
        await tried(lambda: c.revoke(bad))
        await tried(lambda: c.answer(bad, ("a",)))
        turn = await asyncio.wait_for(c.send("hi"), 10)
        assert turn.text == "hello"


async def test_a_decision_in_a_form_that_cannot_be_stored_is_refused_and_the_request_stays_open(world: World) -> None:
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        for outcome, remember in (("perhaps", ""), ("approved", "for ever")):
            with pytest.raises(Misuse):
                await asyncio.wait_for(c.decide(request(c), outcome, remember=remember), 10)
        with pytest.raises(Misuse):
            await asyncio.wait_for(c.decide(request(c), "approved", arguments={"amount": float("nan"), "to": "B"}), 10)
        await c.decide(request(c), "approved")
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]


async def test_a_tool_that_cites_nonsense_gives_an_error_result_and_the_turn_goes_on(world: World) -> None:
    @tool
    async def odd(context: ToolContext) -> str:
        """Cite what is no citation."""
        context.citations.append("nonsense")  # type: ignore[arg-type]  # that is the point
        return "fine"

    @tool
    async def torn(context: ToolContext) -> str:
        """Cite a text with half a character."""
        context.cite(Citation(id="a", title="\ud83d"))
        return "fine"

    async with world.engine(world.agent(call(("odd", {}), ("torn", {})), say("done"), tools=[odd, torn])) as engine:
        c = await engine.create("s")
        turn = await asyncio.wait_for(c.send("hi"), 10)
        assert turn.text == "done"
        outcomes = [event.outcome for event in of_kind(c, "tool_returned")]
        assert outcomes[0] == "error"
        assert len(outcomes) == 2


async def test_a_listener_that_raises_does_not_stop_the_session(world: World) -> None:
    def broken(_: Notice) -> None:
        raise RuntimeError("a viewer's fault")

    heard: list[Notice] = []
    async with world.engine(world.agent(say("hello"))) as engine:
        c = await engine.create("s")
        c.subscribe(broken)
        c.subscribe(heard.append)
        turn = await asyncio.wait_for(c.send("hi"), 10)
        assert turn.text == "hello"
        assert heard


@pytest.mark.field(105)
async def test_a_create_that_was_refused_leaves_no_session_behind(world: World) -> None:
    async with world.engine(world.agent(say("hello"))) as engine:
        with pytest.raises(Misuse, match="nobody"):
            await engine.create("s", entry="nobody")
        with pytest.raises(UnknownSession, match="'s'"):
            await engine.open("s")
        c = await engine.create("s")
        assert (await c.send("hi")).text == "hello"


async def test_opening_one_session_many_times_at_once_gives_one_hub(world: World) -> None:
    async with world.engine(world.agent(say("hello"))) as engine:
        await engine.create("s")
    async with world.engine(world.agent(say("hello"))) as engine:
        hubs = await asyncio.gather(*(engine.hub("s") for _ in range(20)))
        assert len({id(hub) for hub in hubs}) == 1
        head = engine.log.head("s")
        assert head is not None
        assert head.epoch == 2


@pytest.mark.field(25)
async def test_an_input_that_is_refused_does_not_take_the_ones_behind_it_along(world: World) -> None:
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        ghost = request(c).model_copy(update={"request_id": "r_999"})
        refused, stopped = await asyncio.gather(
            c.decide(ghost, "approved"), c.stop(session=True), return_exceptions=True
        )
        assert isinstance(refused, Misuse)
        assert "no request 'r_999' is open" in str(refused)
        assert isinstance(stopped, Outcome)
        assert c.session.state == "terminated"
        assert [event.about for event in of_kind(c, "input_refused")] == ["r_999"]
        assert world.ledger == []


@pytest.mark.field(24)
async def test_an_approval_that_comes_while_results_are_handled_cancels_nothing(world: World) -> None:
    """The answers to one round arrive from a person and from tools in the same tick."""
    slow, running, go = slow_tool()
    agent = world.agent(
        call(("slow", {})), call(("pay", {"amount": 1, "to": "A"})), say("done"), tools=[world.pay, slow]
    )
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        go.set()
        queued = await c.say("also")
        await reached(c, lambda s: bool(s.requests))
        await asyncio.gather(c.decide(request(c), "approved"), c.say("and more"))
        await c.rest()
        assert queued.refusal is None
        assert world.ledger == [("pay", 1, "A")]
        assert [event.outcome for event in of_kind(c, "tool_returned")] == ["ok", "ok"]


async def test_a_late_thread_of_a_stopped_turn_is_kept_as_a_refusal(world: World) -> None:
    block, running, go = blocking_tool()
    async with world.engine(world.agent(call(("block", {})), say("next"), tools=[block])) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await c.stop()
        go.set()
        await reached(c, lambda s: s.seq >= 7)
        await processed(c)
        (late,) = of_kind(c, "input_refused")
        assert "ended with ok after its result was settled" in late.why
        assert (await c.send("go on")).text == "next"
