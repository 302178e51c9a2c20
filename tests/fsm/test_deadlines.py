"""Deadlines are wall time: a word that comes after one is late, whether or not the timer has said so by then."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import utc
from turnlog.fsm.effects import CallModel, WaitUntil

from .talk import Talk, call, code, kinds, question

HOURS = 8 * 3600


def waiting(*calls: inp.Proposed, limits: ev.Limits | None = None) -> Talk:
    """A session that waits for a person."""
    talk = Talk(limits=limits)
    talk.say()
    talk.reply("", *calls)
    return talk


@pytest.mark.field(35)
@pytest.mark.parametrize("outcome", ["approved", "denied", "committed"])
def test_a_word_after_the_deadline_is_refused_although_no_timer_has_fired(outcome: str) -> None:
    talk = waiting(call("pay", amount=1))
    request = talk.session.requests[0]
    talk.clock.jump(HOURS)
    late = talk.decide(0, outcome)
    assert code(late.refusal) == "expired"
    assert "already expired by timer at 2030-01-01 08:00:00 UTC" in (late.refusal.why if late.refusal else "")
    assert kinds(late) == ["approval_resolved", "approvals_settled", "tool_returned", "input_refused"]
    assert late.by == ("timer", "turnlog", "turnlog", "person:ann")
    assert talk.of(ev.InputRefused)[-1].about == request.request_id
    assert [(one.outcome, one.via, one.actor) for one in talk.of(ev.ApprovalResolved)] == [
        ("expired", "timer", "timer")
    ]
    assert talk.of(ev.ToolReturned)[0].outcome == "expired"
    assert talk.of(ev.ToolStarted) == []
    assert talk.owed(CallModel).speaker == "@agent"


@pytest.mark.parametrize(("early", "refused"), [(1, ""), (0, "expired")])
def test_the_deadline_itself_is_too_late_and_the_millisecond_before_is_not(early: int, refused: str) -> None:
    talk = waiting(call("pay", amount=1))
    deadline = talk.session.requests[0].deadline
    assert deadline is not None
    talk.clock.jump((deadline - early - talk.clock.now()) / 1000)
    assert code(talk.decide().refusal) == refused


def test_a_clock_set_back_leaves_the_request_open() -> None:
    talk = waiting(call("pay", amount=1))
    talk.clock.jump(-HOURS)
    assert talk.decide().refusal is None


def test_a_request_without_a_deadline_is_never_late() -> None:
    talk = waiting(call("pay", amount=1), limits=ev.Limits(approval_seconds=None))
    talk.clock.jump(1000 * HOURS)
    assert talk.decide().refusal is None


def test_a_remembered_approval_never_covers_a_request_whose_time_is_over() -> None:
    talk = waiting(call("send", to="a"), call("pay", amount=1))
    talk.clock.jump(HOURS)
    first, second = talk.session.requests
    late = talk.decide(0, remember="user")
    assert code(late.refusal) == "expired"
    assert [(one.request_id, one.outcome) for one in talk.of(ev.ApprovalResolved)] == [
        (first.request_id, "expired"), (second.request_id, "expired")
    ]  # fmt: skip
    assert talk.of(ev.GrantRecorded) == []
    assert not [one for one in talk.pending() if isinstance(one, WaitUntil)]


def test_a_guess_at_a_request_settles_those_whose_time_is_over_and_nothing_else() -> None:
    talk = waiting(call("pay", amount=1))
    talk.clock.jump(HOURS)
    decision = talk.put(inp.Decide("guessed", "", "approved", "agent:@agent"))
    assert code(decision.refusal) == "invalid"
    assert decision.by[0] == "timer"
    assert talk.of(ev.ApprovalResolved)[0].outcome == "expired"


@pytest.mark.parametrize("skip", [True, False])
def test_an_answer_after_the_deadline_is_refused_and_the_model_hears_that_nobody_answered(skip: bool) -> None:
    talk = waiting(question("which?"))
    talk.clock.jump(HOURS)
    late = talk.answer("red", skip=skip)
    assert code(late.refusal) == "expired"
    assert "already expired by timer at 2030-01-01 08:00:00 UTC" in (late.refusal.why if late.refusal else "")
    assert kinds(late) == ["question_answered", "tool_returned", "input_refused"]
    (result,) = talk.of(ev.ToolReturned)
    assert result.outcome == "expired"
    assert result.content == "Nobody answered the question in time. Use your own judgement, or ask again."
    assert talk.state is State.SUCCESS


def test_a_question_that_is_withdrawn_is_not_told_as_a_call_that_did_not_run() -> None:
    talk = waiting(question("which?"))
    talk.stop()
    assert talk.of(ev.ToolReturned)[0].content == "The turn was stopped before anybody answered the question."


def test_the_second_answer_to_a_question_hears_who_was_first_and_when() -> None:
    talk = waiting(question("which?"))
    asked = talk.session.question
    assert asked is not None
    talk.answer("red")
    talk.clock.advance(5)
    late = talk.put(inp.Answer(asked.request_id, ("blue",), "person:bob"))
    assert code(late.refusal) == "stale"
    assert late.refusal is not None
    assert late.refusal.why == "already answered by person:ann at 2030-01-01 00:00:00 UTC: nothing was changed"
    assert code(talk.put(inp.Decide(asked.request_id, "", "approved", "person:bob")).refusal) == "conflict"


def test_a_question_that_was_closed_by_an_older_release_is_told_as_closed() -> None:
    talk = waiting(question("which?"))
    asked = talk.session.question
    assert asked is not None
    talk.answer("red")
    settled = tuple(one.__class__(one.request_id, one.outcome, "", 0) for one in talk.session.settled)
    talk.session = talk.session._replace(settled=settled)
    late = talk.put(inp.Answer(asked.request_id, ("blue",), "person:bob"))
    assert late.refusal is not None
    assert late.refusal.why == "already answered: nothing was changed"


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
@example(datetime(2000, 2, 29, 23, 59, 59, tzinfo=UTC))
@example(datetime(1900, 3, 1, tzinfo=UTC))
@example(datetime(2100, 2, 28, tzinfo=UTC))
def test_a_time_is_told_as_the_calendar_has_it(when: datetime) -> None:
    assert utc((when - EPOCH) // timedelta(milliseconds=1)) == f"{when.year:04}-{when:%m-%d %H:%M:%S} UTC"


@given(st.integers())
def test_any_integer_is_told_as_some_time(ms: int) -> None:
    assert utc(ms).endswith(" UTC")
