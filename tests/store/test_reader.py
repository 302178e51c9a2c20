"""Reading: pages, lists, and what a damaged row does to the others (nothing)."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.fsm.errors import BadBody, CorruptLog, GapInLog, Misuse, StorageError, UnknownKind
from turnlog.fsm.events import GrantRecorded, GrantRevoked, Row
from turnlog.store import Draft, LogReader, SQLiteLog, Unreadable
from turnlog.store.driver import sqlite3

from .support import NOW, conversation, draft, fill, message, requested, resolved, started, tamper


@pytest.fixture
def reader(log: SQLiteLog, path: Path) -> Iterator[LogReader]:
    fill(log, "a")
    fill(log, "b")
    reader = LogReader(path)
    yield reader
    reader.close()


def test_pages_join_without_gap_or_double(reader: LogReader) -> None:
    rows: list[Row] = []
    while page := reader.read("a", rows[-1].seq if rows else 0, 3):
        assert len(page) <= 3
        rows += page
    assert rows == reader.read("a")


def test_a_reader_sees_what_another_process_wrote_meanwhile(log: SQLiteLog, reader: LogReader) -> None:
    assert len(reader.read("a")) == 10
    log.append("a", 10, 1, [message(9)]).result()
    assert reader.read("a", 10)[0].seq == 11


def test_a_reader_leaves_no_read_transaction_open(log: SQLiteLog, reader: LogReader, path: Path) -> None:
    reader.read("a", limit=1)
    reader.sessions()
    conn = sqlite3.connect(path, isolation_level=None)
    (busy, frames, moved) = conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    conn.close()
    assert (busy, frames, moved) == (0, 0, 0)


def test_a_reader_cannot_write(reader: LogReader) -> None:
    with pytest.raises(StorageError, match="readonly"):
        reader.fetch("DELETE FROM leases")


def test_a_closed_reader_says_so(reader: LogReader) -> None:
    reader.close()
    reader.close()
    with pytest.raises(Misuse, match="is closed: open it again"):
        reader.read("a")


def test_a_reader_needs_a_log(path: Path) -> None:
    with pytest.raises(StorageError, match="there is no log at"):
        LogReader(path)
    path.touch()
    with pytest.raises(StorageError, match="open it once for writing"):
        LogReader(path)
    assert path.read_bytes() == b""


@pytest.mark.field(18)
@pytest.mark.parametrize("seq", [1, 5, 10])
def test_a_bad_record_is_named_and_hides_nothing_else(log: SQLiteLog, path: Path, seq: int) -> None:
    rows, other = fill(log, "a"), fill(log, "b")
    tamper(path, f"UPDATE events SET body = '{{bad' WHERE session = 'a' AND seq = {seq}")
    with pytest.raises(BadBody, match=f"session 'a' seq {seq}: the body is no valid {rows[seq - 1].event.kind}"):
        log.read("a")
    lenient = log.read_lenient("a")
    assert [row for row in lenient if isinstance(row, Row)] == [row for row in rows if row.seq != seq]
    (bad,) = [row for row in lenient if isinstance(row, Unreadable)]
    assert (bad.session, bad.seq, bad.kind) == ("a", seq, rows[seq - 1].event.kind)
    assert log.raw("a")[seq - 1].body == "{bad"
    assert log.read("b") == other
    log.append("b", 10, 1, [message(9)]).result()


@pytest.mark.field(102)
def test_an_unknown_kind_is_named_and_the_session_stays_in_the_list(log: SQLiteLog, path: Path) -> None:
    fill(log, "a")
    other = fill(log, "b")
    tamper(path, "UPDATE events SET kind = 'future_kind' WHERE session = 'a' AND seq = 5")
    with pytest.raises(UnknownKind, match="session 'a' seq 5: kind 'future_kind' is unknown"):
        log.read("a")
    a, b = log.sessions(thorough=True)
    assert "session 'a' seq 5: kind 'future_kind' is unknown" in a.broken
    assert (a.id, a.owner, a.seq, b.broken) == ("a", "ann", 10, "")
    assert len(log.read_lenient("a")) == 10
    assert log.read("b") == other


@pytest.mark.field(102)
def test_a_missing_row_is_named_and_the_session_stays_in_the_list(log: SQLiteLog, path: Path) -> None:
    rows = fill(log, "a")
    fill(log, "b")
    tamper(path, "DELETE FROM events WHERE session = 'a' AND seq = 5")
    with pytest.raises(GapInLog, match="session 'a' seq 5 is missing, seq 6 follows"):
        log.read("a")
    with pytest.raises(GapInLog, match="seq 5 is missing"):
        log.read("a", 4)
    assert log.read("a", 5) == rows[5:]
    assert "seq 5 is missing" in log.sessions(thorough=True)[0].broken
    assert log.sessions(thorough=True)[1].broken == ""
    assert len(log.read_lenient("a")) == 9


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("UPDATE events SET body = '{}' WHERE session = 'a' AND seq = 1", "seq 1: the body is no valid"),
        ("UPDATE events SET state = 'dreaming' WHERE session = 'a' AND seq = 10", "seq 10: 'dreaming' is no state"),
        ("DELETE FROM events WHERE session = 'a' AND seq = 1", "seq 1 is missing, seq 2 follows"),
        ("UPDATE events SET v = 9 WHERE session = 'a' AND seq = 10", "version 9 is unknown"),
        ("UPDATE events SET seq = -4 WHERE session = 'a' AND seq = 1", "seq 1 is missing"),
        ("UPDATE events SET actor = CAST(x'ff' AS TEXT), body = CAST(x'ff' AS TEXT) WHERE session = 'a'", "unicode"),
    ],
)
def test_a_session_whose_ends_are_broken_is_listed_with_the_reason(
    log: SQLiteLog, path: Path, change: str, why: str
) -> None:
    fill(log, "a")
    fill(log, "b")
    tamper(path, change)
    a, b = log.sessions()
    assert (a.id, b.id) == ("a", "b")
    assert why in a.broken
    assert b.broken == ""


def test_a_session_whose_name_is_no_text_is_listed_too(log: SQLiteLog, path: Path) -> None:
    for name in "abc":
        fill(log, name)
    tamper(path, "UPDATE events SET session = CAST(x'62ff' AS TEXT) WHERE session = 'b'")
    names = [info.id for info in log.sessions()]
    assert names == ["a", "b\udcff", "c"]
    assert [info.id for info in log.sessions("b\udcff")] == ["c"]
    assert list(log.session_ids()) == names


def test_an_erased_body_is_named(log: SQLiteLog, path: Path) -> None:
    fill(log, "a")
    tamper(path, "UPDATE events SET body = NULL, salt = NULL, body_hash = x'00' WHERE seq = 5")
    with pytest.raises(BadBody, match="session 'a' seq 5: the body of this approval_resolved was erased"):
        log.read("a")


def test_a_head_with_an_unknown_state_is_named(log: SQLiteLog, path: Path) -> None:
    fill(log, "a")
    tamper(path, "UPDATE events SET state = 'x' WHERE seq = 10")
    with pytest.raises(BadBody, match="session 'a' seq 10: 'x' is no state"):
        log.head("a")


def test_sessions_are_listed_in_pages(log: SQLiteLog) -> None:
    for number in range(12):
        fill(log, f"s{number:02}", [draft(started(f"u{number}").event, at=NOW + number), message(1)])
    page = log.sessions(limit=5)
    while more := log.sessions(page[-1].id, 5):
        page += more
    assert [info.id for info in page] == [f"s{number:02}" for number in range(12)] == list(log.session_ids())
    last = page[-1]
    assert (last.first_at, last.last_at, last.seq, last.state, last.owner) == (NOW + 11, NOW, 2, "success", "u11")
    assert log.reader.last("s11").hash == log.read("s11")[-1].hash


def test_rows_of_kinds_are_paged_over_sessions(log: SQLiteLog) -> None:
    for name in "abc":
        fill(log, name)
    kinds = ("approval_requested", "approval_resolved")
    rows: list[Row] = []
    while page := log.rows_of_kinds(kinds, after=(rows[-1].session, rows[-1].seq) if rows else None, limit=2):
        rows += page
    assert [(row.session, row.seq) for row in rows] == [(name, seq) for name in "abc" for seq in (4, 5)]
    assert [(row.session, row.seq) for row in log.rows_of_kinds(kinds, "b")] == [("b", 4), ("b", 5)]
    assert [row.seq for row in log.rows_of_kinds(("message_added",), "b", ("b", 2))] == [9]
    assert log.rows_of_kinds((), "b") == []
    with pytest.raises(Misuse, match="no kind 'x'"):
        log.rows_of_kinds(("x",))


def granted(grant: str) -> Draft:
    return draft(GrantRecorded(grant_id=grant, subject="ann", tool="pay", scope="user"), started().state)


def revoked(grant: str) -> Draft:
    return draft(GrantRevoked(grant_id=grant, subject="ann"), started().state)


def test_grants_and_their_uses_are_found_over_all_sessions(log: SQLiteLog) -> None:
    fill(log, "a", [started(), granted("g1"), revoked("g1"), granted("g2")])
    fill(log, "b", [started(), message(), requested(), resolved(via="grant"), requested("r2"), resolved("r2")])
    fill(log, "c", conversation())
    assert [(row.session, row.seq) for row in log.grants()] == [("a", 2), ("a", 3), ("a", 4), ("b", 4)]


def test_more_grants_than_a_page_are_all_found(log: SQLiteLog) -> None:
    fill(log, "a", [started(), *(granted(f"g{number}") for number in range(1203))])
    assert len(log.grants()) == 1203


@pytest.mark.parametrize("kind", ["grant_revoked", "approval_resolved"])
def test_when_a_revocation_or_a_use_cannot_be_read_no_grant_is_given_out(
    log: SQLiteLog, path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(log, "a", [started(), granted("g1"), revoked("g1")])
    fill(log, "b", [started(), message(), requested(), resolved(via="grant")])
    assert len(log.grants()) == 3
    tamper(path, f"UPDATE events SET body = '{{bad' WHERE kind = '{kind}'")
    with caplog.at_level(logging.WARNING):
        assert log.grants() == []
    assert f"the body is no valid {kind}" in caplog.text


def test_blobs_are_kept_by_their_digest(log: SQLiteLog) -> None:
    digest = log.put_blob(b"data").result()
    assert log.put_blob(b"data").result() == digest
    assert log.blob(digest) == b"data"
    assert log.blob(log.put_blob(b"").result()) == b""
    assert len(list(log.reader.blob_digests())) == 2
    with pytest.raises(CorruptLog, match="blob 00 is not in"):
        log.blob("00")


def test_a_changed_blob_is_found_when_it_is_read(log: SQLiteLog, path: Path) -> None:
    digest = log.put_blob(b"data").result()
    tamper(path, "UPDATE blobs SET data = x'00'")
    with pytest.raises(CorruptLog, match=f"blob {digest} in .* was changed"):
        log.blob(digest)


def test_a_snapshot_holds_only_while_its_row_has_its_hash(log: SQLiteLog, path: Path) -> None:
    rows = fill(log, "a")
    log.put_snapshot("a", 5, rows[4].hash, "{}", "1.0")
    log.lease("x", "o").result()
    assert log.snapshot("a", "1.0") == (5, rows[4].hash, "{}")
    assert log.snapshot("a", "1.1") is None
    assert log.snapshot("b", "1.0") is None
    tamper(path, "UPDATE events SET hash = x'00' WHERE seq = 5")
    assert log.snapshot("a", "1.0") is None


def test_snapshots_can_be_dropped(log: SQLiteLog) -> None:
    rows = fill(log, "a")
    log.put_snapshot("a", 10, rows[-1].hash, "{}")
    log.lease("x", "o").result()
    assert log.drop_snapshots().result() == 1
    assert log.snapshot("a") is None
    assert log.read("a") == rows
