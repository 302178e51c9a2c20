"""Stopping: wherever a turn stands, nothing stays open."""

import pytest

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.effects import CallModel

from .talk import Talk, call, code, kinds, question


def stops() -> dict[str, Talk]:
    """A session in each place where a turn can be stopped."""
    model, tool, approval, asked = Talk(), Talk(), Talk(), Talk()
    for talk in (model, tool, approval, asked):
        talk.say()
    tool.reply("", call("look", q="x"), call("look", q="y"))
    tool.ready()
    tool.finish(1)
    approval.reply("", call("pay", amount=1), call("look", q="x"))
    asked.reply("", question("which?"))
    return {"model": model, "tool": tool, "approval": approval, "question": asked}


@pytest.mark.parametrize("place", ["model", "tool", "approval", "question"])
def test_a_stopped_turn_leaves_nothing_open_and_the_person_speaks_next(place: str) -> None:
    talk = stops()[place]
    talk.stop()
    assert talk.state is State.INTERRUPT
    assert talk.of(ev.TurnInterrupted)[-1] == ev.TurnInterrupted(reason="stopped", node="USER", peer="@agent")
    assert talk.pending() == ()
    assert talk.session.requests == ()
    assert talk.session.question is None
    calls = [one.id for called in talk.of(ev.ToolsCalled) for one in called.calls]
    assert sorted(one.call_id for one in talk.of(ev.ToolReturned)) == sorted(calls)
    talk.say("again")
    talk.reply("yes")
    assert talk.texts[-2:] == ["again", "yes"]


@pytest.mark.parametrize("place", ["model", "tool", "approval", "question"])
def test_a_stopped_session_ends_with_nothing_open(place: str) -> None:
    talk = stops()[place]
    talk.stop(session=True)
    assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="stopped")]
    assert talk.state is State.TERMINATED
    assert talk.pending() == ()


def test_what_stop_tells_of_a_call_says_whether_it_may_have_run() -> None:
    talk = stops()["tool"]
    talk.stop()
    done, cut = talk.of(ev.ToolReturned)
    assert done.outcome == "ok"
    assert cut.outcome == "cancelled"
    assert "may have taken effect" in cut.content
    waiting = stops()["approval"]
    waiting.stop()
    assert {one.content for one in waiting.of(ev.ToolReturned)} == {"Stopped by a person before it ran."}


@pytest.mark.field(25)
def test_a_refused_decision_in_front_of_a_stop_does_not_swallow_it() -> None:
    talk = stops()["approval"]
    assert code(talk.put(inp.Decide("unknown", "d", "approved", "person:ann")).refusal) == "invalid"
    talk.stop(session=True)
    assert talk.kinds()[-6:] == [
        "input_refused", "approval_resolved", "approvals_settled", "tool_returned", "tool_returned",
        "session_terminated",
    ]  # fmt: skip
    assert talk.state is State.TERMINATED


@pytest.mark.parametrize("place", ["model", "tool"])
def test_a_result_that_comes_after_the_stop_is_refused_and_kept(place: str) -> None:
    talk = stops()[place]
    late: inp.Input
    if place == "model":
        late = inp.ModelReplied(talk.owed(CallModel).key, "m", "too late")
    else:
        late = inp.ToolFinished(talk.running()[0].key, talk.running()[0].call_id, "ok", "too late")
    talk.stop()
    decision = talk.put(late)
    assert code(decision.refusal) == "stale"
    assert kinds(decision) == ["input_refused"]
    assert talk.state is State.INTERRUPT


def test_there_is_nothing_to_stop_where_no_turn_runs() -> None:
    talk = Talk()
    assert code(talk.stop().refusal) == "conflict"
    talk.say()
    talk.fail()
    assert code(talk.stop().refusal) == "conflict"
    assert talk.stop(session=True).refusal is None


def test_a_call_that_ran_before_a_crash_is_never_told_as_one_that_did_not_run() -> None:
    """Two calls were cut off; one is to run again, the other is still asked about when the turn is stopped."""
    talk = Talk()
    talk.say("pay twice")
    talk.reply("", call("pay", amount=1), call("pay", amount=2))
    talk.decide()
    talk.decide()
    talk.ready()
    talk.crash()
    talk.decide()  # run it again; then the other is asked about
    talk.stop()
    assert [one.outcome for one in talk.of(ev.ToolReturned)] == ["outcome_unknown", "outcome_unknown"]


def test_a_denial_is_told_as_a_denial_when_the_round_is_stopped() -> None:
    talk = Talk()
    talk.say("pay twice")
    talk.reply("", call("pay", amount=1), call("pay", amount=2))
    talk.decide(outcome="denied", reason="too much")
    talk.stop()
    first, second = talk.of(ev.ToolReturned)
    assert (first.outcome, second.outcome) == ("denied", "cancelled")
    assert "too much" in first.content
