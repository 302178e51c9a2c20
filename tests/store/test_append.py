"""What an append promises, seen through the log."""

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from turnlog.fsm.errors import CommandReused, Conflict, Error, Fenced, Misuse, StaleVersion
from turnlog.fsm.events import CallRecord, ToolReturned, ToolsCalled
from turnlog.fsm.states import State
from turnlog.store import Applied, Command, Draft, SQLiteLog
from turnlog.store.driver import sqlite3

from .support import conversation, draft, fill, message, requested, resolved, started, tool_started


def test_rows_come_back_as_they_were_appended(log: SQLiteLog) -> None:
    rows = fill(log, "s")
    assert [row.seq for row in rows] == list(range(1, 11))
    assert log.read("s") == rows
    head = log.head("s")
    assert head is not None
    assert (head.seq, head.hash, head.state, head.epoch, head.owner) == (10, rows[-1].hash, State.INTERRUPT, 1, "test")


def test_an_unknown_session_has_no_rows_and_no_head(log: SQLiteLog) -> None:
    log.lease("s", "a").result()
    assert log.read("s") == []
    assert log.head("s") is None


def test_sessions_do_not_see_each_other(log: SQLiteLog) -> None:
    one, two = fill(log, "one"), fill(log, "two")
    assert log.read("one") == one
    assert log.read("two") == two
    assert {row.hash for row in one}.isdisjoint(row.hash for row in two)


@pytest.mark.parametrize("name", ["\0", "a\0b", "\U0001f600", "'; DROP TABLE events; --", "x" * 5000, "%", "é"])
def test_any_text_may_name_a_session_an_actor_and_a_command(log: SQLiteLog, name: str) -> None:
    rows = fill(log, name, [draft(message().event, actor=name)], Command(name, name))
    assert log.read(name) == rows
    assert rows[0].actor == rows[0].command_id == name
    assert log.applied(name, name) == Applied(1, name)
    assert [info.id for info in log.sessions()] == [name]


@pytest.mark.field(20)
def test_a_body_of_a_mebibyte_comes_back(log: SQLiteLog) -> None:
    rows = fill(log, "s", [draft(ToolReturned(call_id="c", outcome="ok", content="\0\U0001f600x" * 2**18))])
    assert log.read("s") == rows


@pytest.mark.parametrize("expected", [0, 9, 11, -1])
def test_a_stale_append_names_both_seqs_and_writes_nothing(log: SQLiteLog, expected: int) -> None:
    rows = fill(log, "s")
    with pytest.raises(StaleVersion, match=f"session 's': expected seq {expected}, the head is 10"):
        log.append("s", expected, 1, [message()]).result()
    assert log.read("s") == rows


@pytest.mark.field(7)
def test_a_number_whose_insert_failed_is_used_again(log: SQLiteLog, path: Path) -> None:
    rows = fill(log, "s", conversation()[:6])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "CREATE TRIGGER once BEFORE INSERT ON events WHEN new.seq = 7 BEGIN SELECT RAISE(ABORT, 'no seven'); END"
    )
    refused = log.append("s", 6, 1, [tool_started()])
    with pytest.raises(Error, match="no seven"):
        refused.result()
    assert log.read("s") == rows
    conn.execute("DROP TRIGGER once")
    conn.close()
    again = log.append("s", 6, 1, [tool_started()]).result()
    assert again[0].seq == 7
    assert log.read("s") == [*rows, *again]


@pytest.mark.field(3)
def test_an_append_of_which_one_row_is_refused_leaves_no_row(log: SQLiteLog, path: Path) -> None:
    fill(log, "s", [started()])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("CREATE TRIGGER third BEFORE INSERT ON events WHEN new.seq = 3 BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(Error):
        log.append("s", 1, 1, [message(1), message(2)]).result()
    assert conn.execute("SELECT count(*) FROM events").fetchone() == (1,)
    conn.close()


def test_without_a_lease_nothing_is_appended(log: SQLiteLog) -> None:
    with pytest.raises(Fenced, match="has no lease: take one"):
        log.append("s", 0, 0, [started()]).result()
    assert log.sessions() == []


def test_a_newer_lease_fences_the_older_owner(log: SQLiteLog) -> None:
    first, second = log.lease("s", "one").result(), log.lease("s", "two").result()
    assert first < second
    with pytest.raises(Fenced, match=r"epoch 1 is not the newest, 'two' holds epoch 2"):
        log.append("s", 0, first, [started()]).result()
    assert log.append("s", 0, second, [started()]).result()[0].seq == 1


def test_a_lease_taken_in_the_same_batch_fences_what_is_queued_behind_it(log: SQLiteLog) -> None:
    first = log.lease("s", "one").result()
    queued: list[Future[Any]] = [log.append("s", 0, first, [started()]), log.lease("s", "two")]
    queued.append(log.append("s", 1, first, [message()]))
    assert [type(future.exception()) for future in queued] == [type(None), type(None), Fenced]


def test_a_lease_outlives_the_process_that_gave_it(path: Path) -> None:
    with SQLiteLog(path) as log:
        first = log.lease("s", "one").result()
    with SQLiteLog(path) as log:
        second = log.lease("s", "two").result()
        assert second > first
        with pytest.raises(Fenced):
            log.append("s", 0, first, [started()]).result()


@pytest.mark.field(5)
def test_what_another_connection_wrote_is_seen_before_the_next_append(log: SQLiteLog, path: Path) -> None:
    fill(log, "s", [started()])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "INSERT INTO events SELECT session, 2, state, kind, v, at, actor, command_id, command_digest, body, salt, "
        "body_hash, hash FROM events"
    )
    with pytest.raises(StaleVersion, match="expected seq 1, the head is 2"):
        log.append("s", 1, 1, [message()]).result()
    conn.execute("UPDATE leases SET epoch = 7, owner = 'other'")
    with pytest.raises(Fenced, match="'other' holds epoch 7"):
        log.append("s", 2, 1, [message()]).result()
    conn.close()


@pytest.mark.field(8)
def test_a_command_is_applied_once_and_its_seq_can_be_asked(log: SQLiteLog) -> None:
    rows = fill(log, "s", [started(), message()], Command("c1", "A"))
    assert [row.command_id for row in rows] == [None, "c1"]
    assert log.applied("s", "c1") == Applied(2, "A")
    assert log.applied("s", "c2") is None
    assert log.applied("t", "c1") is None
    with pytest.raises(StaleVersion):
        log.append("s", 0, 1, [started(), message()], Command("c1", "A")).result()
    with pytest.raises(StaleVersion):
        log.append("s", 2, 1, [message()], Command("c1", "A")).result()
    for expected in (0, 2):
        with pytest.raises(CommandReused, match="'c1' was used with other content"):
            log.append("s", expected, 1, [message()], Command("c1", "B")).result()
    assert log.read("s") == rows


def test_the_same_command_twice_in_one_batch_is_applied_once(log: SQLiteLog) -> None:
    log.lease("s", "a").result()
    twice = [log.append("s", seq, 1, [message(seq)], Command("c", "A")) for seq in (0, 1)]
    other = log.append("s", 1, 1, [message(2)])
    assert [type(future.exception()) for future in (*twice, other)] == [type(None), StaleVersion, type(None)]
    assert [row.command_id for row in log.read("s")] == ["c", None]


def test_the_same_command_id_may_be_used_in_another_session(log: SQLiteLog) -> None:
    fill(log, "s", [started()], Command("c", "A"))
    fill(log, "t", [started()], Command("c", "B"))
    assert log.applied("t", "c") == Applied(1, "B")


def test_a_request_is_resolved_once(log: SQLiteLog) -> None:
    fill(log, "s", [started(), message(), requested(), resolved()])
    with pytest.raises(Conflict, match="this request is resolved already"):
        log.append("s", 4, 1, [resolved()]).result()
    assert log.append("s", 4, 1, [resolved("r2")]).result()[0].seq == 5
    fill(log, "t", [started(), message(), requested(), resolved()])


def test_an_attempt_of_a_call_is_started_once(log: SQLiteLog) -> None:
    fill(log, "s", [started(), message(), tool_started()])
    with pytest.raises(Conflict, match="this attempt of the call is started already"):
        log.append("s", 3, 1, [tool_started()]).result()
    assert len(log.append("s", 3, 1, [tool_started(attempt=2), tool_started("c2")]).result()) == 2


def nan() -> Draft:
    record = CallRecord(id="c", tool="t", arguments="{}", parsed={"a": float("nan")})
    return draft(ToolsCalled(message_id="m", speaker="a", listener="b", calls=(record,)))


@pytest.mark.parametrize(
    ("session", "drafts", "command", "why"),
    [
        ("s", [], None, "nothing to append"),
        ("", [started()], None, "id that is not empty"),
        ("s", [draft(message().event, at=-1)], None, "at -1 is no time"),
        ("s", [draft(message().event, at=2**63)], None, "is no time"),
        ("s", [draft(message().event, actor="\ud800")], None, "no Unicode text"),
        ("\udcff", [started()], None, "no Unicode text"),
        ("s", [started()], Command("\ud800", "d"), "no Unicode text"),
        ("s", [nan()], None, "NaN"),
    ],
)
def test_what_cannot_be_stored_is_refused_and_named(
    log: SQLiteLog, session: str, drafts: list[Draft], command: Command | None, why: str
) -> None:
    refused = log.append(session, 0, 1, drafts, command)
    with pytest.raises(Misuse, match=why):
        refused.result()
    assert log.sessions() == []


def test_an_append_cannot_be_cancelled(log: SQLiteLog) -> None:
    log.lease("s", "a").result()
    future = log.append("s", 0, 1, [started()])
    assert not future.cancel()
    assert future.result()[0].seq == 1


def test_a_closed_log_says_so(path: Path) -> None:
    log = SQLiteLog(path)
    log.close()
    log.close()
    for future in (log.lease("s", "a"), log.append("s", 0, 1, [started()]), log.put_blob(b"")):
        with pytest.raises(Misuse, match="is closed: open it again"):
            future.result()


def test_what_is_queued_at_the_close_is_committed(path: Path) -> None:
    log = SQLiteLog(path)
    log.lease("s", "a").result()
    futures = [log.append("s", seq, 1, [message(seq)]) for seq in range(500)]
    log.close()
    assert [future.result()[0].seq for future in futures] == list(range(1, 501))
    with SQLiteLog(path) as again:
        assert len(again.read("s", limit=1000)) == 500
