"""The fold that makes an audit of rows."""

import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from turnlog.fsm import events as ev
from turnlog.fsm.canonical import digest
from turnlog.fsm.events import Row
from turnlog.fsm.states import State
from turnlog.store import Draft, LogReader, SQLiteLog
from turnlog.store.audit import Audit, Entry, audit, audit_session

PAY = {"to": "Ann"}
BOB = {"to": "Bob"}


def rows(*events: tuple[str, ev.Event]) -> list[Row]:
    """Rows with seq from 1, at 1000 ms, 2000 ms, ..."""
    number = itertools.count(1)
    return [Row("s", (n := next(number)), State.SUCCESS, n * 1000, actor, event) for actor, event in events]


def called(*calls: ev.CallRecord) -> tuple[str, ev.Event]:
    """A round."""
    return "agent:@agent", ev.ToolsCalled(message_id="m1", speaker="@agent", listener="USER", calls=calls)


def pay(call: str, arguments: dict[str, Any] | None = None) -> ev.CallRecord:
    """A call of pay."""
    given: dict[str, Any] = dict(PAY) if arguments is None else arguments
    return ev.CallRecord(id=call, tool="pay", arguments="{}", parsed=given, digest=digest(given))


def asked(request: str, call: str, **more: Any) -> tuple[str, ev.Event]:
    """A request for pay."""
    fields = {"request_id": request, "call_id": call, "tool": "pay", "arguments": PAY, "digest": digest(PAY), **more}
    return "agent:@agent", ev.ApprovalRequested.model_validate(fields)


def resolved(request: str, call: str, outcome: str, via: str, actor: str, **more: Any) -> tuple[str, ev.Event]:
    """A word."""
    fields = {
        "request_id": request, "call_id": call, "tool": "pay", "outcome": outcome, "via": via, "actor": actor,
        "decided_at": 5, "digest": digest(PAY), **more,
    }  # fmt: skip
    return actor, ev.ApprovalResolved.model_validate(fields)


def started(call: str, permit: str, attempt: int = 1, arguments: dict[str, Any] | None = None) -> tuple[str, ev.Event]:
    """A start of pay."""
    return "turnlog", ev.ToolStarted(
        call_id=call, tool="pay", attempt=attempt, key=f"s:{call}", permit=permit,
        digest=digest(PAY if arguments is None else arguments),
    )  # fmt: skip


def returned(call: str, outcome: ev.ToolOutcome = "ok") -> tuple[str, ev.Event]:
    """A result."""
    return "tool:pay", ev.ToolReturned(call_id=call, outcome=outcome, content=f"it was {outcome}")


def only(entries: list[Entry]) -> Entry:
    """The one entry."""
    (entry,) = entries
    return entry


def test_a_request_that_nobody_answered_yet_is_open_and_keeps_its_deadline() -> None:
    entry = only(audit(rows(called(pay("c1")), asked("r1", "c1", deadline=99))))
    assert (entry.outcome, entry.deadline, entry.via, entry.runs, entry.result) == ("open", 99, "", (), "")
    assert (entry.asked_at, entry.seq) == (2000, 2)


@pytest.mark.accept(66)
def test_an_edited_call_has_the_digest_that_was_shown_and_the_digest_that_ran() -> None:
    edited = resolved("r1", "c1", "approved", "person", "person:ann", arguments=BOB, digest=digest(BOB))
    entry = only(audit(rows(called(pay("c1")), asked("r1", "c1"), edited, started("c1", "r1", 1, BOB), returned("c1"))))
    assert (entry.arguments, entry.edited) == (PAY, BOB)
    assert (entry.digest, entry.approved_digest, entry.ran_digest) == (digest(PAY), digest(BOB), digest(BOB))
    assert (entry.result, entry.content, entry.returned_at) == ("ok", "it was ok", 5000)


@pytest.mark.accept(66)
def test_a_call_that_a_list_allowed_unasked_has_an_entry_with_its_rule_and_arguments() -> None:
    word = resolved("r1", "c1", "approved", "env", "env", rule="pay*")
    entry = only(audit(rows(called(pay("c1")), word, started("c1", "r1"), returned("c1"))))
    assert (entry.via, entry.rule, entry.arguments, entry.ran_digest) == ("env", "pay*", PAY, digest(PAY))
    assert (entry.asked_at, entry.resolved_at) == (1000, 5)


def test_a_call_of_a_tool_that_needs_no_word_is_told_apart() -> None:
    entry = only(audit(rows(called(pay("c1")), started("c1", "free"), returned("c1", "error"))))
    assert (entry.request_id, entry.via, entry.result) == ("", "free", "error")


def test_a_run_that_a_crash_cut_off_and_the_second_one_are_two_requests_with_one_run_each() -> None:
    first, second = audit(
        rows(
            called(pay("c1")),
            asked("r1", "c1"),
            resolved("r1", "c1", "approved", "person", "person:ann"),
            started("c1", "r1"),
            asked("r2", "c1", why="outcome_unknown"),
            resolved("r2", "c1", "approved", "person", "person:bob"),
            started("c1", "r2", 2),
            returned("c1"),
        )
    )
    assert (first.result, [run.attempt for run in first.runs], first.actor) == ("outcome_unknown", [1], "person:ann")
    assert (second.result, [run.attempt for run in second.runs], second.actor) == ("ok", [2], "person:bob")
    assert second.why == "outcome_unknown"


def test_an_idempotent_run_that_was_repeated_unasked_counts_both_runs() -> None:
    entry = only(
        audit(
            rows(
                called(pay("c1")), asked("r1", "c1"), resolved("r1", "c1", "approved", "person", "person:ann"),
                started("c1", "r1"), started("c1", "r1", 2), returned("c1"),
            )
        )
    )  # fmt: skip
    assert [run.attempt for run in entry.runs] == [1, 2]


@pytest.mark.field(133)
def test_every_further_word_on_a_request_is_kept_with_it_and_one_on_nothing_is_kept_apart() -> None:
    def refused(about: str, given: str = "decide") -> tuple[str, ev.Event]:
        return "person:eve", ev.InputRefused(code="conflict", input=given, why="no", about=about)

    fold = Audit()
    for row in rows(
        called(pay("c1")), asked("r1", "c1"), refused("r1"), resolved("r1", "c1", "expired", "timer", "timer"),
        refused("r1"), returned("c1", "expired"), refused("c1", "toolfinished"), refused("guessed"), refused("", "say"),
    ):  # fmt: skip
        fold.add(row)
    entry = only(fold.entries)
    assert (entry.outcome, entry.via, entry.result) == ("expired", "timer", "expired")
    assert [(one.seq, one.actor, one.about) for one in entry.tries] == [
        (3, "person:eve", "r1"), (5, "person:eve", "r1"), (7, "person:eve", "c1"),
    ]  # fmt: skip
    assert [one.about for one in fold.strays] == ["guessed"]


def test_who_was_sent_the_card_is_kept() -> None:
    shown = "person:ann", ev.ApprovalShown(request_id="r1", digest=digest(PAY), connection="ann#1")
    entry = only(audit(rows(called(pay("c1")), asked("r1", "c1"), shown)))
    assert [(one.at, one.connection) for one in entry.shown] == [(3000, "ann#1")]


def test_a_row_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with SQLiteLog(path) as log:
        epoch = log.lease("s", "me").result()
        start = ev.SessionStarted(owner="ann", agents=(ev.AgentSpec(name="USER"),))
        events = [("turnlog", start), *[(r.actor, r.event) for r in rows(called(pay("c1")), asked("r1", "c1"))]]
        drafts = [Draft(State.SUCCESS, 1, actor, event) for actor, event in events]
        log.append("s", 0, epoch, drafts).result()
    connection = sqlite3.connect(path)
    connection.executescript("DROP TRIGGER events_no_update; UPDATE events SET body = '{' WHERE seq = 2")
    connection.close()
    reader = LogReader(path)
    fold, unreadable = audit_session(reader, "s")
    reader.close()
    assert [entry.request_id for entry in fold.entries] == ["r1"]
    assert [(one.session, one.seq) for one in unreadable] == [("s", 2)]
