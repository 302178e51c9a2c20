"""What waits for somebody survives every death, and what was being done is not done twice."""

from pathlib import Path

import pytest

from tests.crash.child import Kill
from tests.crash.harness import Case, Nurseries, kinds, of_kind
from tests.engine.support import valid
from turnlog.fsm.history import collect, view


@pytest.mark.accept(31)
@pytest.mark.field(38)
def test_a_pending_request_survives_kills_and_can_be_answered(tmp_path: Path, nurseries: Nurseries) -> None:
    case = Case(tmp_path, nurseries, "gated")
    case.killed(Kill("end"), stop=True)
    (asked,) = of_kind(case.rows(), "approval_requested")
    for zone in ("Asia/Kolkata", "America/St_Johns", "UTC"):
        case.killed(Kill("end"), stop=True, zone=zone)
        assert of_kind(case.rows(), "approval_requested") == [asked], "asked once, with the same words and deadline"
        assert case.rows()[-1].state == "awaiting_approval"
    case.finished()
    case.sound()
    (resolved,) = of_kind(case.rows(), "approval_resolved")
    assert (resolved.request_id, resolved.actor, resolved.digest) == (asked.request_id, "person:ann", asked.digest)
    assert [name for _, name, _ in case.effects()] == ["pay"]


@pytest.mark.field(109)
def test_a_request_that_ran_out_while_nothing_ran_is_denied_by_the_timer_at_the_next_start(
    tmp_path: Path, nurseries: Nurseries
) -> None:
    case = Case(tmp_path, nurseries, "gated")
    case.killed(Kill("end"), stop=True)
    (asked,) = of_kind(case.rows(), "approval_requested")
    case.killed(Kill("end"), stop=True, ahead=3500)
    assert case.rows()[-1].state == "awaiting_approval", "the time is not over yet"
    case.finished(ahead=7200)
    case.sound()
    (resolved,) = of_kind(case.rows(), "approval_resolved")
    assert (resolved.outcome, resolved.via, resolved.actor) == ("expired", "timer", "timer")
    assert asked.deadline is not None
    assert resolved.decided_at > asked.deadline
    assert case.effects() == []
    (result,) = of_kind(case.rows(), "tool_returned")
    assert result.outcome == "expired"
    assert "Nobody answered in time" in result.content


@pytest.mark.field(76)
def test_a_call_without_a_result_gets_one_and_only_one_however_often_the_process_dies(
    tmp_path: Path, nurseries: Nurseries
) -> None:
    case = Case(tmp_path, nurseries, "two")
    case.killed(Kill("append", 1, "after", "tool_returned"))
    rows = case.rows()
    assert len(of_kind(rows, "tool_started")) == 2
    assert len(of_kind(rows, "tool_returned")) == 1
    for _ in range(5):
        case.killed(Kill("end"), stop=True, chatty=True)  # says "hi" as well, which waits
        valid(view(collect([], case.rows()), "@agent", "USER"))
    rows = case.rows()
    assert kinds(rows).count("approval_requested") == 1
    assert kinds(rows).count("message_queued") == 1
    case.finished(word="give up")
    case.sound()
    rows = case.rows()
    assert sorted(e.outcome for e in of_kind(rows, "tool_returned")) == ["ok", "outcome_unknown"]
    history = view(collect([], rows), "@agent", "USER")
    valid(history)
    assert [type(message).__name__ for message in history][:4] == [
        "UserMessage", "AssistantMessage", "ToolMessage", "ToolMessage"
    ]  # fmt: skip


@pytest.mark.field(110)
def test_of_a_round_that_was_cut_off_only_what_was_cut_off_is_asked_about(tmp_path: Path, nurseries: Nurseries) -> None:
    case = Case(tmp_path, nurseries, "batch")
    case.killed(Kill("append", 2, "after", "tool_returned"))
    assert sorted(name for _, name, _ in case.effects()) == ["look", "look"]
    case.finished(word="again")
    case.sound()
    assert sorted(name for _, name, _ in case.effects()) == ["look", "look", "slow"]
    (asked,) = of_kind(case.rows(), "approval_requested")
    assert (asked.tool, asked.why) == ("slow", "outcome_unknown")
    (called, *_) = of_kind(case.rows(), "tools_called")
    assert {e.call_id: e.outcome for e in of_kind(case.rows(), "tool_returned")} == {c.id: "ok" for c in called.calls}
