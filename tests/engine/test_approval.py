"""Nothing gated runs before a word in the log, and only a person, a grant, the configuration or the timer has one."""

import asyncio
from typing import Any

import pytest

from tests.engine.support import World, of_kind, processed, reached, request, results, rows, sent, valid
from turnlog.engine import Outcome
from turnlog.engine.models.scripted import call, say
from turnlog.fsm import inputs as inp
from turnlog.fsm.errors import CommandReused, Misuse
from turnlog.fsm.events import Limits
from turnlog.fsm.history import ToolMessage, UserMessage

PAY = ("pay", {"amount": 5, "to": "A"})


def pay(amount: int, to: str = "A") -> tuple[str, dict[str, Any]]:
    return ("pay", {"amount": amount, "to": to})


@pytest.mark.accept(7)
@pytest.mark.field(54)
async def test_a_gated_tool_has_no_effect_before_its_approval_is_in_the_log(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s", owner="ann")
        turn = await c.send("pay")
        assert (turn.state, world.ledger) == ("awaiting_approval", [])
        assert turn.requests[0].arguments == {"amount": 5, "to": "A"}
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]
        order = [row.event.kind for row in rows(c)]
        assert order.index("approval_resolved") < order.index("tool_started") < order.index("tool_returned")


@pytest.mark.accept(12)
async def test_the_model_is_told_of_a_rejection_and_nothing_runs(world: World) -> None:
    agent = world.agent(call(PAY), say("understood"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        await c.decide(request(c), "denied", by="ann", reason="too much money")
        await c.rest()
        told = sent(agent)[1].messages[-1]
        assert isinstance(told, ToolMessage)
        assert (told.outcome, world.ledger) == ("denied", [])
        assert "refused" in told.content
        assert "too much money" in told.content


@pytest.mark.accept(13)
@pytest.mark.field(35)
async def test_the_timer_denies_and_a_late_answer_is_told_that_it_is_late(world: World) -> None:
    agent = world.agent(call(PAY), say("I see"))
    async with world.engine(agent, limits=Limits(approval_seconds=2)) as engine:
        c = await engine.create("s")
        await c.send("pay")
        late = request(c)
        world.clock.advance(1.999)
        await processed(c)
        assert c.session.state == "awaiting_approval"
        world.clock.advance(0.001)
        await reached(c, lambda s: s.state == "interrupt")
        world.clock.advance(0.5)
        with pytest.raises(Misuse, match="already expired by timer at"):
            await c.decide(late, "approved", by="ann")
        (resolved,) = of_kind(c, "approval_resolved")
        assert (resolved.outcome, resolved.via, resolved.actor, resolved.reason) == ("expired", "timer", "timer", "")
        (refused,) = of_kind(c, "input_refused")
        assert (refused.code, refused.about) == ("expired", late.request_id)
        told = sent(agent)[1].messages[-1]
        assert isinstance(told, ToolMessage)
        assert "Nobody answered in time" in told.content
        assert "did not run" in told.content
        assert world.ledger == []


@pytest.mark.field(109)
@pytest.mark.parametrize("first", ["timer", "person"])
async def test_a_request_that_ran_out_while_nobody_was_there_has_one_decision(world: World, first: str) -> None:
    async with world.engine(world.agent(call(PAY), say("ok")), limits=Limits(approval_seconds=60)) as engine:
        c = await engine.create("s")
        await c.send("pay")
        asked = request(c)
    # Time passes without the process: on the wall, not on a monotonic clock that started anew.
    world.clock.jump(61 if first == "timer" else 59.999)
    async with world.engine(world.agent(call(PAY), say("ok"))) as engine:
        c = await engine.open("s")
        try:
            await c.decide(asked, "approved", by="ann")
            told = ""
        except Misuse as error:
            told = str(error)
        world.clock.advance(1)
        await reached(c, lambda s: s.state == "interrupt")
        (resolved,) = of_kind(c, "approval_resolved")
        assert ("already expired" in told) == (first == "timer")
        assert resolved.actor == ("timer" if first == "timer" else "person:ann")
        assert (resolved.decided_at > asked.deadline) == (first == "timer")
        assert world.ledger == ([] if first == "timer" else [("pay", 5, "A")])


@pytest.mark.field(37)
@pytest.mark.parametrize("hours", [1, -1])
async def test_a_wall_clock_that_is_set_while_somebody_thinks_does_not_move_the_deadline(
    world: World, hours: int
) -> None:
    async with world.engine(world.agent(call(PAY), say("ok")), limits=Limits(approval_seconds=120)) as engine:
        c = await engine.create("s")
        await c.send("pay")
        world.clock.advance(60)
        world.clock.jump(3600 * hours)
        world.clock.advance(59)
        await processed(c)
        assert c.session.state == "awaiting_approval"
        world.clock.advance(1)
        await reached(c, lambda s: s.state == "interrupt")
        assert of_kind(c, "approval_resolved")[0].actor == "timer"
        assert len(world.clock.armed) == 0


async def test_a_machine_that_slept_over_the_deadline_takes_no_word_for_it_however_often_it_is_sent(
    world: World,
) -> None:
    """The wall clock went on, the clock that timers wait on did not."""
    async with world.engine(world.agent(call(PAY), say("ok"))) as engine:
        c = await engine.create("s")
        asked = (await c.send("pay")).requests[0]
        world.clock.jump(8 * 3600)
        for _ in range(2):
            with pytest.raises(Misuse, match="already expired by timer at 2030-01-01 08:00:00 UTC"):
                await c.decide(asked, "approved", by="ann", command="c1")
        await c.rest()
        assert [(e.outcome, e.actor) for e in of_kind(c, "approval_resolved")] == [("expired", "timer")]
        assert [row.command_id for row in rows(c) if row.event.kind == "input_refused"] == ["c1"]
        assert (world.ledger, world.clock.armed) == ([], [])


@pytest.mark.accept(68)
@pytest.mark.field(48)
async def test_three_requests_are_answered_each_for_itself_in_any_order(world: World) -> None:
    agent = world.agent(call(pay(1), pay(2), pay(3)), say("done"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        one, two, three = (await c.send("pay")).requests
        await c.decide(three, "approved", by="ann")
        await c.decide(one, "approved", by="ann")
        await processed(c)
        assert (world.ledger, len(sent(agent))) == ([], 1), "nothing of a round runs until every call is decided"
        await c.decide(two, "denied", by="ann")
        await c.rest()
        assert sorted(world.ledger) == [("pay", 1, "A"), ("pay", 3, "A")]
        assert [outcome for outcome, _ in results(c)] == ["ok", "denied", "ok"]
        assert len(sent(agent)) == 2, "one model call after all are decided"
        valid(sent(agent)[1].messages)


@pytest.mark.field(32)
async def test_two_people_who_approve_at_once_cause_one_effect_and_the_loser_is_told_who_won(world: World) -> None:
    async with world.engine(world.agent(*[step for n in range(100) for step in (call(pay(n)), say("ok"))])) as engine:
        c = await engine.create("s")
        for n in range(100):
            (asked,) = (await c.send("pay")).requests
            outcomes = await asyncio.gather(
                *(c.decide(asked, "approved", by=name) for name in ("ann", "bob")), return_exceptions=True
            )
            assert isinstance(outcomes[0], Outcome)
            assert isinstance(outcomes[1], Misuse)
            assert "already approved by person:ann at" in str(outcomes[1])
            await c.rest()
            world.clock.advance(5)
            with pytest.raises(Misuse, match="already approved by person:ann at"):
                await c.decide(asked, "approved", by="cid")
            assert world.ledger == [("pay", k, "A") for k in range(n + 1)]
        assert [e.code for e in of_kind(c, "input_refused")] == ["conflict"] * 200


@pytest.mark.field(34)
@pytest.mark.parametrize("order", [("approved", "denied"), ("denied", "approved")])
async def test_of_a_yes_and_a_no_at_once_the_first_durable_one_counts(world: World, order: tuple[str, str]) -> None:
    async with world.engine(world.agent(call(PAY), say("ok"))) as engine:
        c = await engine.create("s")
        (asked,) = (await c.send("pay")).requests
        first, second = await asyncio.gather(
            c.decide(asked, order[0], by="ann"), c.decide(asked, order[1], by="bob"), return_exceptions=True
        )
        assert isinstance(first, Outcome)
        assert f"already {order[0]} by person:ann" in str(second)
        await c.rest()
        assert world.ledger == ([("pay", 5, "A")] if order[0] == "approved" else [])
        assert c.session.requests == ()


@pytest.mark.field(43)
async def test_a_provider_that_reuses_its_call_ids_does_not_carry_an_approval_over(world: World) -> None:
    async with world.engine(world.agent(call(pay(5)), say("one"), call(pay(999)))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        first = request(c)
        await c.decide(first, "approved")
        await c.rest()
        second = (await c.send("more")).requests[0]
        assert second.request_id != first.request_id
        assert second.digest != first.digest
        calls = [one for e in of_kind(c, "tools_called") for one in e.calls]
        assert [one.provider_id for one in calls] == ["call_0", "call_0"]
        assert calls[0].id != calls[1].id
        swapped = second.model_copy(update={"digest": first.digest})
        with pytest.raises(Misuse, match="digest is not that of this request"):
            await c.decide(swapped, "approved")
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.field(45)
async def test_an_approval_with_edits_runs_the_edited_call_and_a_bad_edit_leaves_it_waiting(world: World) -> None:
    agent = world.agent(call(pay(5, "A")), say("done"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        edits: list[dict[str, Any]] = [{"amount": "x", "to": "B"}, {"amount": 5}, {"amount": 5, "to": "B", "more": 1}]
        for bad in edits:
            with pytest.raises(Misuse, match="edited arguments do not fit pay"):
                await c.decide(request(c), "approved", arguments=bad)
        assert c.session.state == "awaiting_approval"
        with pytest.raises(Misuse, match="only be edited when a call is approved"):
            await c.decide(request(c), "denied", arguments={"amount": 5, "to": "B"})
        await c.decide(request(c), "approved", arguments={"amount": 5, "to": "B"})
        await c.rest()
        assert world.ledger == [("pay", 5, "B")]
        (called,) = of_kind(c, "tools_called")
        (resolved,) = of_kind(c, "approval_resolved")
        (started,) = of_kind(c, "tool_started")
        assert '"A"' in called.calls[0].arguments, "what was proposed stays"
        assert resolved.arguments == {"amount": 5, "to": "B"}
        assert started.digest == resolved.digest != called.calls[0].digest


@pytest.mark.field(51)
async def test_a_model_that_asks_for_the_same_again_and_again_is_ended_by_the_cap_of_the_turn(world: World) -> None:
    agent = world.agent(*[call(PAY)] * 20)
    async with world.engine(agent, limits=Limits(max_tool_calls=5)) as engine:
        c = await engine.create("s")
        turn = await c.send("pay")
        asked = 0
        while turn.requests:
            asked += 1
            await c.decide(turn.requests[0], "denied")
            await c.rest()
            turn = c.turn()
        assert asked <= 5
        assert (turn.state, world.ledger) == ("interrupt", [])
        assert [outcome for outcome, _ in results(c)][:asked] == ["denied"] * asked
        assert of_kind(c, "turn_interrupted")[-1].reason == "limit"


@pytest.mark.field(54)
async def test_a_tool_that_becomes_free_while_it_waits_runs_once_and_only_by_the_persons_word(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        engine.registry.auto_approve = ("all",)
        await processed(c)
        assert (world.ledger, c.session.state) == ([], "awaiting_approval")
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]
        (resolved,) = of_kind(c, "approval_resolved")
        assert resolved.actor == "person:ann"


@pytest.mark.field(120)
async def test_a_refusal_is_no_ban(world: World) -> None:
    agent = world.agent(call(PAY), say("fine"), call(PAY), say("paid"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        first = request(c)
        await c.decide(first, "denied")
        await c.rest()
        again = (await c.send("ok, do it now")).requests[0]
        assert again.request_id != first.request_id
        await c.decide(again, "approved")
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]
        messages = sent(agent)[-1].messages
        valid(messages)
        assert [m.text for m in messages if isinstance(m, UserMessage)] == ["pay", "ok, do it now"]


async def test_arguments_that_were_changed_in_the_log_after_the_approval_do_not_run(world: World) -> None:
    """The runner reads what it runs from the log and compares it with the digest that was approved."""
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        db = engine.log._writer._db
        db.execute("DROP TRIGGER events_no_update")
        db.execute("UPDATE events SET body = replace(body, '5', '999') WHERE kind = 'tools_called'")
        await c.decide(request(c), "approved")
        await reached(c, lambda s: s.state == "interrupt")
        assert world.ledger == []
        ((outcome, content),) = results(c)
        assert outcome == "error"
        assert "nothing ran" in content


async def test_a_refused_command_that_comes_again_is_refused_again_and_nobody_else_can_use_its_id(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s", owner="ann")
        open_one = (await c.send("pay")).requests[0]
        no = inp.Decide(open_one.request_id, open_one.digest, "denied", "person:ann")
        yes = inp.Decide(open_one.request_id, open_one.digest, "approved", "person:bob")
        await c.apply(no, "k1", "deny")
        first = await c.apply(yes, "k2", "approve")
        again = await c.apply(yes, "k2", "approve")
        assert first.refusal is not None
        assert (again.refusal, again.repeated) == (first.refusal, True)
        with pytest.raises(CommandReused):
            await c.apply(yes, "k1", "deny")


async def test_arguments_too_deep_for_a_reader_are_refused_and_the_session_stays_readable(world: World) -> None:
    deep = '{"amount": 5, "to": ' + "[" * 200 + "]" * 200 + "}"
    async with world.engine(world.agent(call(("pay", deep)), say("done"))) as engine:
        c = await engine.create("s", owner="ann")
        turn = await c.send("pay")
        assert (turn.state, world.ledger) == ("interrupt", [])
        refused = of_kind(c, "tool_returned")[0]
        assert refused.outcome == "invalid_arguments"
        assert "levels deep" in refused.content
