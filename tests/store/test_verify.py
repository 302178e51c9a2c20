"""Whatever is done to the file behind the log's back is found, at the row where it was done."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.fsm.errors import StaleVersion
from turnlog.store import Command, LogReader, Problem, SQLiteLog, heads, verify
from turnlog.store.chain import body_hash, link
from turnlog.store.driver import sqlite3
from turnlog.store.schema import COLUMNS

from .support import child, conversation, fill, kill, message, started, tamper

HERE = "WHERE session = 'b' AND seq = {seq}"
EDITS = {
    "session": "'zz'",
    "seq": "seq + 100",
    "state": "'error'",
    "kind": "'input_refused'",
    "v": "v + 1",
    "at": "at + 1",
    "actor": "'eve'",
    "command_id": "'other'",
    "command_digest": "'other'",
    "body": "'{}'",
    "salt": "x'00'",
    "body_hash": "x'00'",
    "hash": "x'00'",
}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("pristine") / "log.db"
    with SQLiteLog(path) as log:
        for name in "abc":
            fill(log, name, conversation()[:5], Command("c1", "d1"))
            log.append(name, 5, 1, conversation()[5:], Command("c2", "d2")).result()
        log.put_blob(b"data").result()
    return path.read_bytes()


@pytest.fixture
def copy(path: Path, pristine: bytes) -> Path:
    path.write_bytes(pristine)
    return path


def test_a_log_that_nobody_touched_is_well(copy: Path) -> None:
    report = verify(copy, heads(copy))
    assert report.ok
    assert report.problems == []
    assert (report.sessions, report.rows, report.blobs) == (3, 30, 1)


def test_the_edits_cover_every_column() -> None:
    assert EDITS.keys() == set(COLUMNS)


@pytest.mark.field(131)
@pytest.mark.parametrize("seq", [1, 5, 10])
@pytest.mark.parametrize("column", EDITS)
def test_an_edit_of_any_column_is_named_at_its_row(copy: Path, column: str, seq: int) -> None:
    kept = heads(copy)
    tamper(copy, f"UPDATE events SET {column} = {EDITS[column]} {HERE.format(seq=seq)}")
    report = verify(copy, kept)
    # A row that was moved to another session is missing here and too much there.
    assert report.bad.keys() == ({"b", "zz"} if column == "session" else {"b"})
    assert report.bad["b"].seq == seq
    assert report.file == []


@pytest.mark.field(131)
@pytest.mark.parametrize("column", sorted(set(EDITS) - {"seq", "session"}))
def test_an_edit_of_any_column_is_found_without_kept_heads(copy: Path, column: str) -> None:
    tamper(copy, f"UPDATE events SET {column} = {EDITS[column]} {HERE.format(seq=10)}")
    assert verify(copy).bad["b"].seq == 10


_VALUE = st.one_of(st.text(max_size=5), st.integers(-5, 2**63 - 1), st.binary(max_size=33), st.none())


@pytest.mark.field(131)
@settings(max_examples=60)
@given(column=st.sampled_from(COLUMNS), seq=st.integers(1, 10), value=_VALUE)
def test_no_value_in_any_column_goes_unseen(
    tmp_path_factory: pytest.TempPathFactory, pristine: bytes, column: str, seq: int, value: object
) -> None:
    path = tmp_path_factory.mktemp("edit") / "log.db"
    path.write_bytes(pristine)
    kept = heads(path)
    reader = LogReader(path)
    before = reader.raw("b", seq - 1, 1)[0]._asdict()[column]
    reader.close()
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("DROP TRIGGER events_no_update")
    try:
        conn.execute(f"UPDATE events SET {column} = ? WHERE session = 'b' AND seq = ?", (value, seq))
    except (sqlite3.IntegrityError, sqlite3.OperationalError):
        value = before  # the table itself refuses such a value
    now = conn.execute(f"SELECT {column} FROM events WHERE session = 'b' AND seq = ?", (seq,)).fetchone()
    changed = now != (before,)
    conn.close()
    bad = verify(path, kept).bad
    if changed:
        assert bad["b"].seq <= seq if column == "seq" else bad["b"].seq == seq
    else:
        assert bad == {}


@pytest.mark.field(131)
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["DELETE FROM events " + HERE.format(seq=4)], (4, "this row is missing, seq 5 follows")),
        (["DELETE FROM events " + HERE.format(seq=1)], (1, "this row is missing, seq 2 follows")),
        (["DELETE FROM events WHERE session = 'b' AND seq > 7"], (8, "the tail is cut: seq 10 was kept")),
        (["DELETE FROM events WHERE session = 'b'"], (1, "every row of this session is missing")),
        (
            [
                "UPDATE events SET seq = -1 " + HERE.format(seq=3),
                "UPDATE events SET seq = 3 " + HERE.format(seq=6),
                "UPDATE events SET seq = 6 " + HERE.format(seq=-1),
            ],
            (3, "the hash does not fit"),
        ),
        (
            ["INSERT INTO events SELECT 'b', 11, state, kind, v, at, actor, NULL, NULL, body, salt, body_hash, hash "
             "FROM events " + HERE.format(seq=10)],
            (11, "the hash does not fit"),
        ),
        (
            ["INSERT INTO events SELECT 'b', 0, state, kind, v, at, actor, NULL, NULL, body, salt, body_hash, hash "
             "FROM events " + HERE.format(seq=1)],
            (0, "out of order: seq 1 was to come"),
        ),
        (
            ["UPDATE events SET seq = seq + 100 WHERE session = 'b' AND seq > 4",
             "INSERT INTO events SELECT 'b', 5, state, kind, v, at, actor, NULL, NULL, body, salt, body_hash, hash "
             "FROM events " + HERE.format(seq=2),
             "UPDATE events SET seq = seq - 99 WHERE session = 'b' AND seq > 100"],
            (5, "the hash does not fit"),
        ),
        (["UPDATE events SET body = NULL, salt = NULL " + HERE.format(seq=5)], (5, "body_hash: the body is missing")),
        (["UPDATE events SET body = NULL, body_hash = x'00' " + HERE.format(seq=5)], (5, "salt: it is kept")),
        (["UPDATE events SET salt = NULL " + HERE.format(seq=5)], (5, "salt: it is missing")),
        (["UPDATE events SET body_hash = x'00' " + HERE.format(seq=5)], (5, "body_hash: it is set although")),
        (["UPDATE events SET actor = CAST(x'ff' AS TEXT) " + HERE.format(seq=5)], (5, "the hash does not fit")),
    ],
)  # fmt: skip
def test_the_first_bad_row_is_named_with_what_is_wrong(
    copy: Path, changes: list[str], problem: tuple[int, str]
) -> None:
    kept = heads(copy)
    tamper(copy, *changes)
    report = verify(copy, kept)
    assert report.bad.keys() == {"b"}
    assert report.bad["b"].seq == problem[0]
    assert problem[1] in report.bad["b"].what


def rewrite(path: Path, seq: int, **columns: Any) -> None:
    """Change a row as somebody who knows the hashes would: with all later hashes computed anew."""
    reader = LogReader(path)
    rows = reader.raw("b", limit=100)
    reader.close()
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("DROP TRIGGER events_no_update")
    previous = rows[seq - 2].hash
    for row in rows[seq - 1 :]:
        row = row._replace(**columns) if row.seq == seq else row  # noqa: PLW2901 - the changed row
        assert row.body is not None
        assert row.salt is not None
        previous = link(previous, row[:9], body_hash(row.salt, row.body))
        row = row._replace(hash=previous)  # noqa: PLW2901 - with its new hash
        sets = ", ".join(f"{column} = ?" for column in COLUMNS)
        conn.execute(f"UPDATE events SET {sets} WHERE session = 'b' AND seq = ?", (*row, row.seq))
    conn.close()


@pytest.mark.field(131)
def test_a_history_written_anew_is_found_by_the_kept_head(copy: Path) -> None:
    kept = heads(copy)
    rewrite(copy, 5, actor="person:eve")
    assert verify(copy).bad == {}
    assert verify(copy, kept).bad["b"] == Problem(
        "b", 10, "the hash differs from the head that was kept: this row or one before it was written anew"
    )


@pytest.mark.parametrize(
    ("seq", "columns", "what"),
    [
        (6, {"state": "awaiting_approval"}, "state: awaiting_approval --approvals_settled--> leads to success"),
        (6, {"kind": "turn_retried"}, "illegal transition: the table has no row awaiting_approval --turn_retried-->"),
        (6, {"kind": "future_kind"}, "kind 'future_kind' is unknown"),
        (6, {"v": 2}, "approvals_settled version 2 is unknown"),
        (7, {"body": "{}"}, "the body is no valid tool_started"),
        (5, {"command_digest": None}, "command_id and command_digest belong together"),
    ],
)
def test_rows_that_hash_well_must_make_sense_too(copy: Path, seq: int, columns: dict[str, Any], what: str) -> None:
    rewrite(copy, seq, **columns)
    problem = verify(copy).bad["b"]
    assert problem.seq == seq
    assert what in problem.what


def test_a_command_that_was_applied_twice_is_found(copy: Path) -> None:
    tamper(copy, "DROP INDEX events_command")
    rewrite(copy, 10, command_id="c1")
    report = verify(copy)
    assert report.bad["b"] == Problem("b", 10, "command id 'c1' was used before")
    assert "events_command is missing" in report.file[0].what


def test_an_erased_body_leaves_the_chain_whole(copy: Path) -> None:
    reader = LogReader(copy)
    row = reader.raw("b", 4, 1)[0]
    reader.close()
    assert row.salt is not None
    assert row.body is not None
    kept = body_hash(row.salt, row.body).hex()
    tamper(copy, f"UPDATE events SET body = NULL, salt = NULL, body_hash = x'{kept}' {HERE.format(seq=5)}")
    assert verify(copy).ok


@pytest.mark.parametrize("name", ["events_no_update", "events_no_delete", "blobs_no_update", "blobs_no_delete"])
def test_a_missing_trigger_is_found(copy: Path, name: str) -> None:
    tamper(copy, f"DROP TRIGGER {name}", keep_triggers=True)
    report = verify(copy)
    assert not report.ok
    assert [name in problem.what for problem in report.file] == [True]


def test_a_changed_blob_is_found(copy: Path) -> None:
    tamper(copy, "UPDATE blobs SET data = x'00'")
    assert "was changed" in verify(copy).file[0].what


def test_kept_heads_survive_json_and_a_session_may_have_grown(path: Path) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s", [started()])
        kept = json.loads(json.dumps(heads(log.reader)))
        log.append("s", 1, 1, [message(1)]).result()
        assert verify(log.reader, kept).ok
        assert heads(log.reader)["s"][0] == 2


@pytest.mark.field(131)
def test_parallel_writers_do_not_fork_the_chain(path: Path) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s", [started()])

        def write(number: int) -> None:
            seq = 1
            while True:
                try:
                    log.append("s", seq, 1, [message(number)]).result()
                except StaleVersion:
                    head = log.head("s")
                    assert head is not None
                    seq = head.seq
                else:
                    return

        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        report = verify(log.reader)
        assert report.ok
        assert report.rows == 21


_WRITER = """
import sys
from turnlog.store import SQLiteLog
from tests.store.support import message, started
log = SQLiteLog(sys.argv[1])
epoch = log.lease("s", "o").result()
log.append("s", 0, epoch, [started()]).result()
seq = 1
while True:
    log.append("s", seq, epoch, [message(seq)]).result()
    seq += 1
    if seq == 50:
        print("writing", flush=True)
"""


def test_a_file_can_be_verified_while_another_process_writes_it(path: Path) -> None:
    writer = child(_WRITER, str(path))
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    for _ in range(5):
        kept = heads(path)
        report = verify(path, kept)
        assert report.ok
        assert report.rows >= kept["s"][0] >= 49
    assert writer.poll() is None
    kill(writer)
