"""Approvals: who may decide, what is bound to what, and what becomes of late, losing and wrong words."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.approval import Standing
from turnlog.fsm.canonical import digest
from turnlog.fsm.effects import CallModel, RunTool, StartTools, WaitUntil

from .talk import Talk, call, code, kinds


def waiting(*calls: inp.Proposed, limits: ev.Limits | None = None) -> Talk:
    """A session that waits for a word on these calls."""
    talk = Talk(limits=limits)
    talk.say()
    talk.reply("", *(calls or (call("pay", amount=5, to="A"),)))
    return talk


def outcomes(talk: Talk) -> list[str]:
    """How the calls of the session ended, in call order."""
    by_id = {one.call_id: one.outcome for one in talk.of(ev.ToolReturned)}
    return [by_id[one.id] for called in talk.of(ev.ToolsCalled) for one in called.calls if one.id in by_id]


def ran(talk: Talk) -> list[dict[str, object]]:
    """The arguments of the calls that run, in call order."""
    return [dict(one.arguments) for one in talk.running()]


def test_a_gated_call_waits_with_all_that_a_person_needs_to_know() -> None:
    talk = waiting()
    (request,) = talk.session.requests
    assert talk.state is State.AWAITING_APPROVAL
    assert (request.tool, request.arguments) == ("pay", {"amount": 5, "to": "A"})
    assert (request.description, request.risk, request.rule) == ("Pay somebody", "money", "needs_approval")
    assert request.deadline == talk.clock.now() + 120_000
    assert request.digest == digest({"amount": 5, "to": "A"})
    assert [type(one) for one in talk.pending()] == [WaitUntil]


def test_an_approved_call_runs_after_its_decision_and_only_once() -> None:
    talk = waiting()
    talk.decide()
    (resolved,) = talk.of(ev.ApprovalResolved)
    assert (resolved.outcome, resolved.via, resolved.actor) == ("approved", "person", "person:ann")
    assert resolved.decided_at == talk.clock.now()
    assert talk.running() == []
    talk.ready()
    (started,) = talk.of(ev.ToolStarted)
    assert (started.permit, started.digest, started.attempt) == (resolved.request_id, resolved.digest, 1)
    assert ran(talk) == [{"amount": 5, "to": "A"}]
    talk.finish()
    assert talk.running() == []
    assert not [one for one in talk.pending() if isinstance(one, StartTools)]


def test_a_denied_call_never_runs_and_the_model_is_told_why() -> None:
    talk = waiting()
    talk.decide(0, "denied", reason="too dear")
    (result,) = talk.of(ev.ToolReturned)
    assert result.outcome == "denied"
    assert "refused" in result.content
    assert "too dear" in result.content
    assert not talk.of(ev.ToolStarted)
    assert talk.owed(CallModel).speaker == "@agent"


@pytest.mark.field(35)
def test_a_request_that_ran_out_is_denied_by_the_timer_and_a_late_word_is_told_so() -> None:
    talk = waiting()
    request = talk.session.requests[0]
    talk.clock.advance(120)
    talk.expire()
    (resolved,) = talk.of(ev.ApprovalResolved)
    assert (resolved.outcome, resolved.via, resolved.actor) == ("expired", "timer", "timer")
    assert talk.rows[-3].actor == "timer"
    (result,) = talk.of(ev.ToolReturned)
    assert "Nobody answered" in result.content
    assert "did not run" in result.content
    late = talk.put(inp.Decide(request.request_id, request.digest, "approved", "person:ann"))
    assert code(late.refusal) == "expired"
    assert kinds(late) == ["input_refused"]
    assert not talk.of(ev.ToolStarted)


def test_a_timer_that_lost_leaves_no_row() -> None:
    talk = waiting()
    request = talk.session.requests[0]
    talk.decide()
    decision = talk.put(inp.TimerFired(request.request_id))
    assert code(decision.refusal) == "stale"
    assert decision.events == ()


def test_the_second_word_on_a_request_hears_who_was_first_and_when() -> None:
    talk = waiting()
    request = talk.session.requests[0]
    talk.decide()
    talk.clock.advance(5)
    late = talk.put(inp.Decide(request.request_id, request.digest, "denied", "person:bob"))
    told = "already approved by person:ann at 2030-01-01 00:00:00 UTC: nothing was changed"
    assert late.refusal == inp.Refusal("conflict", told)
    assert talk.of(ev.InputRefused)[-1].about == request.request_id
    assert talk.rows[-1].actor == "person:bob"
    assert len(talk.of(ev.ApprovalResolved)) == 1


@pytest.mark.parametrize("outcome", ["committed", "expired", "cancelled", "yes", ""])
def test_a_word_that_is_no_answer_to_the_request_changes_nothing(outcome: str) -> None:
    talk = waiting()
    assert code(talk.decide(0, outcome).refusal) == "invalid"
    assert talk.state is State.AWAITING_APPROVAL


def test_a_word_on_other_arguments_than_those_shown_changes_nothing() -> None:
    talk = waiting()
    assert code(talk.decide(digest=digest({"amount": 50, "to": "A"})).refusal) == "conflict"
    assert code(talk.decide(digest="").refusal) == "conflict"
    assert len(talk.session.requests) == 1


@pytest.mark.parametrize("actor", ["agent:@agent", "tool:pay", "timer", "env", "turnlog", "user:ann", "", "person:"])
def test_nobody_but_a_person_decides(actor: str) -> None:
    talk = waiting()
    assert code(talk.decide(by=actor).refusal) == "unauthorised"
    assert talk.state is State.AWAITING_APPROVAL
    assert talk.rows[-1].actor == actor


@pytest.mark.field(40)
def test_what_is_said_while_a_request_waits_never_decides_it() -> None:
    talk = waiting()
    for text in ("wait, do NOT run that", "yes", "ok go", "approved"):
        assert kinds(talk.say(text)) == ["message_queued"]
    assert len(talk.session.requests) == 1
    assert talk.running() == []
    talk.decide(0, "denied")
    talk.reply("as you wish")
    assert talk.texts == ["hi", "as you wish", "wait, do NOT run that"]


@pytest.mark.accept(68)
@pytest.mark.field(48)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_requests_are_answered_in_any_order_and_nothing_runs_before_the_last_word(order: tuple[int, ...]) -> None:
    talk = waiting(*(call("pay", amount=amount) for amount in (1, 2, 3)))
    requests = talk.session.requests
    for place in order:
        assert not [one for one in talk.pending() if isinstance(one, StartTools | RunTool | CallModel)]
        request = requests[place]
        word = "denied" if place == 1 else "approved"
        talk.put(inp.Decide(request.request_id, request.digest, word, "person:ann"))
    talk.ready()
    assert ran(talk) == [{"amount": 1}, {"amount": 3}]
    talk.finish(1)
    talk.finish(0)
    assert outcomes(talk) == ["ok", "denied", "ok"]
    assert talk.owed(CallModel).speaker == "@agent"


@pytest.mark.accept(69)
def test_three_free_calls_run_at_once_and_one_completion_sees_all_results() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", *(call("look", q=q) for q in "abc"))
    talk.ready()
    assert len(talk.running()) == 3
    for place in (2, 0, 0):
        assert not [one for one in talk.pending() if isinstance(one, CallModel)]
        talk.finish(place)
    assert talk.owed(CallModel).speaker == "@agent"
    assert outcomes(talk) == ["ok", "ok", "ok"]


def test_nothing_of_a_round_runs_before_every_call_of_it_is_decided() -> None:
    talk = waiting(call("look", q="x"), call("pay", amount=1))
    assert talk.running() == []
    assert not [one for one in talk.pending() if isinstance(one, StartTools)]
    talk.decide(0, "denied")
    assert list(talk.owed(StartTools).calls.values()) == ["look"]


# Edits -----------------------------------------------------------------------------------------


@pytest.mark.field(45)
def test_an_edited_call_runs_with_the_edit_and_the_log_keeps_both() -> None:
    talk = waiting()
    talk.edit(0, amount=5, to="B")
    talk.ready()
    assert ran(talk) == [{"amount": 5, "to": "B"}]
    run = talk.running()[0]
    assert run.digest == digest({"amount": 5, "to": "B"}) == talk.of(ev.ToolStarted)[0].digest
    source = talk.rows[run.source - 1].event
    assert isinstance(source, ev.ApprovalResolved)
    assert source.arguments == {"amount": 5, "to": "B"}
    assert talk.of(ev.ToolsCalled)[0].calls[0].parsed == {"amount": 5, "to": "A"}


@pytest.mark.field(45)
def test_a_bad_edit_is_refused_and_the_request_still_waits() -> None:
    talk = waiting()
    decision = talk.edit(0, problem="amount: a number is needed", amount="x")
    assert code(decision.refusal) == "invalid"
    assert "amount: a number is needed" in (decision.refusal.why if decision.refusal else "")
    assert code(talk.edit(0, amount=float("nan")).refusal) == "invalid"
    assert code(talk.decide(0, "denied", edited=inp.Edited({"amount": 1})).refusal) == "invalid"
    assert len(talk.session.requests) == 1
    talk.decide()
    talk.ready()
    assert ran(talk) == [{"amount": 5, "to": "A"}]


# Remembered ------------------------------------------------------------------------------------


@pytest.mark.field(47)
@pytest.mark.parametrize("scope", ["session", "user"])
def test_always_on_the_first_of_three_covers_the_others_each_with_a_row_of_its_own(scope: str) -> None:
    talk = waiting(*(call("pay", amount=amount) for amount in (1, 2, 3)))
    decision = talk.decide(0, remember=scope)
    assert kinds(decision)[:4] == ["approval_resolved", "grant_recorded", "approval_resolved", "approval_resolved"]
    grant = talk.of(ev.GrantRecorded)[0]
    assert (grant.tool, grant.scope, grant.subject, grant.match) == ("pay", scope, "ann", "")
    first, *others = talk.of(ev.ApprovalResolved)
    assert (first.via, first.remembered) == ("person", scope)
    assert {(one.via, one.rule, one.actor) for one in others} == {("grant", grant.grant_id, "person:ann")}
    talk.ready()
    assert len(talk.running()) == 3


def test_a_remembered_approval_holds_for_later_calls_of_the_tool_in_the_session() -> None:
    talk = waiting()
    talk.decide(remember="session")
    talk.run_all()
    talk.reply("", call("pay", amount=999))
    assert talk.state is State.SUCCESS
    assert talk.of(ev.ApprovalResolved)[-1].via == "grant"
    talk.run_all()
    talk.put(inp.Revoke(talk.session.grants[0].grant.grant_id, "person:ann", "ann"))
    talk.reply("", call("pay", amount=1))
    assert len(talk.session.requests) == 1


@pytest.mark.field(43)
def test_an_exact_grant_covers_the_same_arguments_and_no_others() -> None:
    talk = waiting(call("pay", amount=5), call("pay", amount=5), call("pay", amount=999))
    talk.decide(0, remember="session", exact=True)
    assert [one.arguments for one in talk.session.requests] == [{"amount": 999}]
    talk.decide(0, "denied")
    talk.run_all()
    talk.reply("", call("pay", amount=5))
    assert talk.state is State.SUCCESS
    talk.run_all()
    talk.reply("", call("pay", amount=6))
    assert len(talk.session.requests) == 1


def test_an_exact_grant_with_an_edit_covers_what_was_approved_and_not_what_was_proposed() -> None:
    talk = waiting(call("pay", amount=999), call("pay", amount=999), call("pay", amount=5))
    talk.decide(0, edited=inp.Edited({"amount": 5}), remember="session", exact=True)
    assert [one.arguments for one in talk.session.requests] == [{"amount": 999}]


def test_only_an_approval_can_be_remembered() -> None:
    talk = waiting()
    assert code(talk.decide(0, "denied", remember="session").refusal) == "invalid"
    assert code(talk.decide(0, remember="everybody").refusal) == "invalid"
    assert len(talk.session.requests) == 1


@pytest.mark.field(43)
def test_a_yes_to_one_call_says_nothing_about_the_next_one_of_the_same_provider_id() -> None:
    talk = waiting(call("pay", amount=5))
    talk.decide()
    talk.run_all()
    talk.reply("paid")
    talk.say("more")
    talk.reply("", call("pay", amount=999))
    assert talk.state is State.AWAITING_APPROVAL
    ids = [one.id for called in talk.of(ev.ToolsCalled) for one in called.calls]
    assert len(set(ids)) == 2
    assert {one.provider_id for called in talk.of(ev.ToolsCalled) for one in called.calls} == {"c1"}


def grant(**more: object) -> Standing:
    """A grant of the owner for pay."""
    fields = {"grant_id": "g", "subject": "ann", "tool": "pay", "scope": "user", **more}
    return Standing(ev.GrantRecorded.model_validate(fields))


@pytest.mark.parametrize(
    ("standing", "asked"),
    [
        (grant(), False),
        (grant(match=digest({"amount": 1})), False),
        (grant(match=digest({"amount": 2})), True),
        (grant(subject="bob"), True),
        (grant(tool="look"), True),
        (grant(expires_at=1), True),
        (grant(max_uses=0), True),
        (Standing(grant(max_uses=2).grant, 1), False),
        (Standing(grant(max_uses=2).grant, 2), True),
    ],
)
def test_a_standing_grant_of_the_owner_covers_what_it_says(standing: Standing, asked: bool) -> None:
    talk = Talk()
    talk.say()
    talk.reply("", call("pay", amount=1), grants=(standing,))
    assert (talk.state is State.AWAITING_APPROVAL) == asked


def test_uses_of_a_grant_are_counted_within_one_round() -> None:
    talk = Talk()
    talk.put(inp.Grant("pay", "person:ann", "ann", scope="session", max_uses=2))
    talk.say()
    talk.reply("", *(call("pay", amount=amount) for amount in (1, 2, 3)))
    assert [one.arguments for one in talk.session.requests] == [{"amount": 3}]
    assert talk.session.grants[0].used == 2


def test_the_configured_list_allows_a_call_with_a_row_that_names_the_rule() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", call("pay", auto="pa*", amount=1))
    (resolved,) = talk.of(ev.ApprovalResolved)
    assert (resolved.via, resolved.rule, resolved.actor, resolved.outcome) == ("env", "pa*", "env", "approved")
    talk.ready(pay=inp.ToolFacts(gated=True, auto="p*"))
    assert talk.of(ev.ToolStarted)[0].permit == resolved.request_id


@pytest.mark.field(54)
def test_a_call_that_needed_no_word_is_asked_about_when_its_tool_has_become_gated() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", call("look", q="x"), call("put", k="v"))
    talk.crash()
    talk.ready(look=inp.ToolFacts(gated=True))
    assert talk.state is State.AWAITING_APPROVAL
    assert not talk.of(ev.ToolStarted)
    talk.decide()
    talk.ready(look=inp.ToolFacts(gated=True))
    assert [one.tool for one in talk.running()] == ["look", "put"]


@pytest.mark.field(54)
def test_a_request_stays_open_when_its_tool_is_switched_to_run_unasked() -> None:
    talk = waiting()
    talk.crash()
    assert len(talk.session.requests) == 1
    talk.decide()
    talk.ready(pay=inp.ToolFacts(gated=True, auto="all"))
    assert len(talk.running()) == 1


def test_a_call_whose_tool_is_gone_when_it_may_start_is_still_owed() -> None:
    talk = waiting()
    talk.decide()
    talk.ready(pay=None)
    assert outcomes(talk) == []
    assert list(talk.owed(StartTools).calls.values()) == ["pay"]
    talk.ready()
    assert len(talk.running()) == 1


@given(st.text(), st.text(), st.text(), st.sampled_from(["person:ann", "person:bob", "tool:x", "agent:y", "timer"]))
def test_no_word_but_the_right_one_moves_a_waiting_session(request: str, mark: str, word: str, actor: str) -> None:
    talk = waiting()
    open_one = talk.session.requests[0]
    right = request == open_one.request_id and mark == open_one.digest
    talk.put(inp.Decide(request, mark, word, actor))
    talk.put(inp.Decide(open_one.request_id, mark, "approved", "person:ann"))
    talk.put(inp.Decide(open_one.request_id, open_one.digest, "approved", "tool:pay"))
    assert right or talk.session.requests == (open_one,)
    assert talk.running() == []


def test_a_card_is_recorded_as_shown_while_its_request_is_open() -> None:
    talk = waiting()
    request = talk.session.requests[0]
    talk.put(inp.Show(request.request_id, request.digest, "tab 1", "person:ann"))
    assert talk.of(ev.ApprovalShown)[0].connection == "tab 1"
    assert code(talk.put(inp.Show(request.request_id, "another", "tab 1", "person:ann")).refusal) == "stale"
    for _ in range(200):
        talk.put(inp.Show(request.request_id, request.digest, "a loop", "person:ann"))
    assert len(talk.of(ev.ApprovalShown)) == 100
    assert talk.decide().refusal is None
