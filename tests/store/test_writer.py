"""Group commit, and what becomes of a batch when the database says no."""

import asyncio
import contextlib
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import pytest

from turnlog.fsm.errors import Error, Fenced, StaleVersion, StorageError, StorageFailed, StorageFull
from turnlog.store import SQLiteLog, verify
from turnlog.store.driver import sqlite3
from turnlog.store.jobs import Job, Transaction

from .support import child, fill, integrity, kill, message, started


@contextlib.contextmanager
def one_batch(log: SQLiteLog) -> Iterator[None]:
    """What is sent inside is taken by the writer as one batch."""
    entered, leave = threading.Event(), threading.Event()

    def hold(_: Transaction) -> None:
        entered.set()
        leave.wait()

    held = log._writer.submit(Job(hold))
    entered.wait()
    try:
        yield
    finally:
        leave.set()
        held.result()


def pragma(log: SQLiteLog, text: str) -> Any:
    """Set something on the writing connection."""
    return log._writer.submit(Job(lambda tx: tx.db.conn.execute(f"PRAGMA {text}").fetchall())).result()


def test_what_is_queued_together_is_committed_together(log: SQLiteLog) -> None:
    for name in "abc":
        log.lease(name, "o").result()
    with one_batch(log):
        futures = [log.append(name, seq, 1, [message(seq)]) for seq in range(3) for name in "abc"]
    assert [future.result()[0].seq for future in futures] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert (log.stats.commits, log.stats.rows, log.stats.largest) == (5, 9, 9)


async def test_sixty_four_busy_sessions_share_their_commits(log: SQLiteLog) -> None:
    async def talk(name: str) -> None:
        epoch = await asyncio.wrap_future(log.lease(name, "o"))
        for seq in range(25):
            await asyncio.wrap_future(log.append(name, seq, epoch, [message(seq)]))

    await asyncio.gather(*(talk(f"s{number}") for number in range(64)))
    assert log.stats.rows == 64 * 25
    assert log.stats.commits <= 0.05 * log.stats.rows
    for number in range(64):
        assert [row.seq for row in log.read(f"s{number}")] == list(range(1, 26))


_BUSY = """
import asyncio, sys
from turnlog.store import SQLiteLog, verify
from tests.store.support import message

async def talk(log, name):
    epoch = await asyncio.wrap_future(log.lease(name, "o"))
    for seq in range(25):
        await asyncio.wrap_future(log.append(name, seq, epoch, [message(seq)]))

async def main(log):
    await asyncio.gather(*(talk(log, f"s{n}") for n in range(64)))

log = SQLiteLog(sys.argv[1])
asyncio.run(main(log))
print(log.stats.commits, log.stats.rows, flush=True)
log.close()
"""


def test_sixty_four_busy_sessions_share_their_fsyncs(path: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed, so the fsyncs cannot be counted from outside")
    trace = tmp_path / "trace"
    process = child(_BUSY, str(path), wrapper=(strace, "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync"))
    said, _ = process.communicate()
    if process.returncode != 0 and not said:
        pytest.skip("strace may not trace here")
    commits, rows = map(int, said.split())
    calls = len(re.findall(r"(?:fsync|fdatasync)\(", trace.read_text()))
    assert rows == 64 * 25
    # Beside one fsync a commit: setting up the file, and checkpoints.
    assert commits - 5 <= calls <= commits + 20
    assert calls <= 0.05 * rows


def test_whoever_waits_for_batches_is_called_once_for_each_when_its_futures_are_done(log: SQLiteLog) -> None:
    log.lease("s", "o").result()
    seen: list[list[bool]] = []
    futures: list[Future[Any]] = []
    called = threading.Semaphore(0)

    def batch_is_done() -> None:
        seen.append([future.done() for future in futures])
        called.release()
        raise RuntimeError("the listener's own fault")

    with one_batch(log):
        futures += [log.append("s", 0, 1, [message(1)]), log.append("s", 9, 1, [message(1)])]
        log.after_batch(batch_is_done)
    called.acquire()  # the batch of `one_batch` itself
    called.acquire()
    assert seen[-1] == [True, True]
    assert len(seen) == 2
    log.after_batch(None)
    assert log.append("s", 1, 1, [message(2)]).result()[0].seq == 2
    assert len(seen) == 2


def test_an_append_that_is_refused_leaves_its_neighbours(log: SQLiteLog) -> None:
    for name in ("a", "b", "c"):
        fill(log, name, [started()])
    with one_batch(log):
        futures = [
            log.append("a", 1, 1, [message(1)]),
            log.append("b", 9, 1, [message(1)]),
            log.append("b", 1, 7, [message(1)]),
            log.append("c", 1, 1, [message(1)]),
            log.append("c", 2, 1, [message(2)]),
        ]
    assert [type(future.exception()) for future in futures] == [
        type(None),
        StaleVersion,
        Fenced,
        type(None),
        type(None),
    ]
    assert [len(log.read(name)) for name in "abc"] == [2, 1, 3]
    assert log.stats.redone == 0


def test_an_append_that_the_database_refuses_leaves_its_neighbours(log: SQLiteLog, path: Path) -> None:
    for name in ("a", "b", "c"):
        fill(log, name, [started()])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "CREATE TRIGGER no_b BEFORE INSERT ON events WHEN new.session = 'b' BEGIN SELECT RAISE(ABORT, 'no b'); END"
    )
    with one_batch(log):
        bad = log.append("b", 1, 1, [message(1), message(2)])
        after = [
            log.append("a", 1, 1, [message(1)]),
            log.append("c", 1, 1, [message(1)]),
            log.append("a", 2, 1, [message(2)]),
        ]
        behind = log.append("b", 3, 1, [message(3)])
    with pytest.raises(StorageError, match="no b"):
        bad.result()
    assert isinstance(behind.exception(), StaleVersion)
    assert [future.result()[0].seq for future in after] == [2, 2, 3]
    conn.execute("DROP TRIGGER no_b")
    conn.close()
    assert log.append("b", 1, 1, [message(1)]).result()[0].seq == 2
    assert log.stats.redone == 1


def test_a_job_that_breaks_the_transaction_fails_the_batch_and_nothing_after_it(log: SQLiteLog, path: Path) -> None:
    fill(log, "a", [started()])
    fill(log, "b", [started()])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "CREATE TRIGGER no_b BEFORE INSERT ON events WHEN new.session = 'b' BEGIN SELECT RAISE(ROLLBACK, 'x'); END"
    )
    with one_batch(log):
        futures = [log.append("a", 1, 1, [message(1)]), log.append("b", 1, 1, [message(1)])]
    assert all(isinstance(future.exception(), StorageError) for future in futures)
    assert [len(log.read(name)) for name in "ab"] == [1, 1]
    assert log.append("a", 1, 1, [message(1)]).result()[0].seq == 2
    conn.close()


def test_a_job_with_a_bug_fails_alone(log: SQLiteLog) -> None:
    fill(log, "a", [started()])

    def bug(tx: Transaction) -> None:
        tx.records.append(("too", "short"))

    with one_batch(log):
        bad, good = log._writer.submit(Job(bug)), log.append("a", 1, 1, [message()])
    assert isinstance(bad.exception(), Error)
    assert good.result()[0].seq == 2


@pytest.mark.field(15)
def test_a_full_disk_refuses_and_reads_go_on_and_room_heals_it(log: SQLiteLog, path: Path) -> None:
    rows = fill(log, "s")
    pages = pragma(log, "page_count")[0][0]
    pragma(log, f"max_page_count = {pages + 2}")
    big = message(1, "x" * 100_000)
    with one_batch(log):
        futures: list[Future[Any]] = [log.append("s", 10, 1, [big]), log.lease("t", "o")]
    for future in futures:
        with pytest.raises(StorageFull, match="make room on the disk, then send again"):
            future.result()
    assert log.read("s") == rows
    assert log.append("s", 10, 1, [message(2)]).result()[0].seq == 11, "a small one still fits"
    pragma(log, "max_page_count = 1073741823")
    assert log.append("s", 11, 1, [big]).result()[0].seq == 12
    log.close()
    assert integrity(path) == ["ok"]


class Broken:
    """A connection of which one statement fails."""

    def __init__(self, conn: Any, when: str, error: BaseException) -> None:
        self.conn, self.when, self.error = conn, when, error

    def execute(self, sql: str, *arguments: Any) -> Any:
        if sql.startswith(self.when):
            raise self.error
        return self.conn.execute(sql, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.conn, name)


def failure(code: int, text: str = "disk I/O error") -> BaseException:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


IOERR_FSYNC, CORRUPT, READONLY_DBMOVED = 1034, 11, 1032


@pytest.mark.parametrize("code", [IOERR_FSYNC, CORRUPT, READONLY_DBMOVED])
@pytest.mark.parametrize("when", ["COMMIT", "BEGIN"])
def test_after_an_io_error_nothing_is_taken_until_the_log_is_opened_again(path: Path, code: int, when: str) -> None:
    log = SQLiteLog(path)
    rows = fill(log, "s")
    good: Any = log._writer._db.conn
    log._writer._db.conn = cast("Any", Broken(good, when, failure(code)))
    first = log.append("s", 10, 1, [message(1)])
    with pytest.raises(StorageFailed, match=r"reopen|restore"):
        first.result()
    log._writer._db.conn = good  # the disk seems to be well again, which proves nothing
    for future in (log.append("s", 10, 1, [message(1)]), log.lease("s", "o"), log.put_blob(b"")):
        with pytest.raises(StorageFailed) as again:
            future.result()
        assert again.value is not first.exception()
    assert log.read("s") == rows
    log.close()
    with SQLiteLog(path) as log:
        assert log.read("s") == rows
        assert log.append("s", 10, 1, [message(1)]).result()[0].seq == 11


def test_a_rollback_that_fails_is_fatal(path: Path) -> None:
    log = SQLiteLog(path)
    fill(log, "s", [started()])
    broken = Broken(log._writer._db.conn, "ROLLBACK", failure(1, "cannot rollback"))
    log._writer._db.conn = cast("Any", Broken(broken, "PRAGMA data_version", failure(1, "x")))
    with pytest.raises(StorageFailed, match="cannot roll back"):
        log.append("s", 1, 1, [message(1)]).result()
    with pytest.raises(StorageFailed):
        log.append("s", 1, 1, [message(1)]).result()
    assert log.stats.redone == 0
    log._writer._db.conn = broken.conn
    log.close()


_HOLD = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
conn.execute("ROLLBACK")
print("free", flush=True)
sys.stdin.readline()
"""


@pytest.mark.field(1)
@pytest.mark.field(5)
def test_an_append_waits_for_a_lock_that_another_process_holds(log: SQLiteLog, path: Path) -> None:
    fill(log, "s", [started()])
    holder = child(_HOLD, str(path))
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    futures = [log.append("s", seq, 1, [message(seq)]) for seq in range(1, 20)]
    assert not any(future.done() for future in futures)
    assert len(log.read("s")) == 1, "readers do not wait"
    holder.stdin.write("free\n")
    holder.stdin.flush()
    assert [future.result()[0].seq for future in futures] == list(range(2, 21))
    kill(holder)


@pytest.mark.field(5)
def test_a_lock_that_is_held_for_too_long_is_a_typed_error_and_nothing_is_lost(path: Path) -> None:
    log = SQLiteLog(path, busy_seconds=0.05)
    rows = fill(log, "s", [started()])
    holder = child(_HOLD, str(path))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(StorageError, match="another process holds the write lock for too long") as refused:
        log.append("s", 1, 1, [message(1)]).result()
    assert not isinstance(refused.value, StorageFailed | StorageFull)
    assert log.read("s") == rows
    kill(holder)
    assert log.append("s", 1, 1, [message(1)]).result()[0].seq == 2
    log.close()


def test_a_snapshot_costs_no_commit_of_its_own(log: SQLiteLog) -> None:
    rows = fill(log, "s")
    before = log.stats.commits
    log.put_snapshot("s", 10, rows[-1].hash, "old")
    log.put_snapshot("s", 10, rows[-1].hash, "{}")
    assert log.stats.commits == before
    log.append("s", 10, 1, [message(1)]).result()
    assert log.stats.commits == before + 1
    assert log.snapshot("s") == (10, rows[-1].hash, "{}")


def test_a_snapshot_that_found_no_commit_is_written_at_the_close(path: Path) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
        log.put_snapshot("s", 10, rows[-1].hash, "{}")
    with SQLiteLog(path) as log:
        assert log.snapshot("s") == (10, rows[-1].hash, "{}")


def test_a_commit_with_nothing_but_refusals_is_none(log: SQLiteLog) -> None:
    before = log.stats.commits
    with contextlib.suppress(Error):
        log.append("s", 5, 1, [message(1)]).result()
    assert log.stats.commits == before


def test_the_memory_of_heads_is_bounded(log: SQLiteLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.store.writer.TIPS", 3)
    for number in range(8):
        fill(log, f"s{number}", [started()])
    assert len(log._writer._known.tips) <= 4
    assert log.append("s0", 1, 1, [message(1)]).result()[0].seq == 2


def test_no_thread_is_left_after_the_close(path: Path) -> None:
    before = set(threading.enumerate())
    SQLiteLog(path).close()
    assert set(threading.enumerate()) == before


def test_after_a_failed_batch_the_heads_are_read_from_the_file_again(log: SQLiteLog, path: Path) -> None:
    fill(log, "a", [started()])
    fill(log, "b", [started()])
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "CREATE TRIGGER no_b BEFORE INSERT ON events WHEN new.session = 'b' BEGIN SELECT RAISE(ROLLBACK, 'x'); END"
    )
    conn.close()
    log.append("a", 1, 1, [message(1)]).result()  # the writer has seen the change of the file
    log._writer._known.tips["a"].hash = b"wrong"  # nothing can make it so; reading it again would heal even that
    log.append("b", 1, 1, [message(1)]).exception()
    log.append("a", 2, 1, [message(2)]).result()
    assert verify(log.reader).ok


@pytest.mark.field(15)
def test_a_disk_that_fills_up_while_a_batch_is_done_one_by_one_fails_the_batch(log: SQLiteLog, path: Path) -> None:
    rows = {name: fill(log, name, [started()]) for name in "abc"}
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(
        "CREATE TRIGGER no_b BEFORE INSERT ON events WHEN new.session = 'b' BEGIN SELECT RAISE(ABORT, 'x'); END"
    )
    pragma(log, f"max_page_count = {pragma(log, 'page_count')[0][0] + 2}")
    with one_batch(log):
        futures = [
            log.append(name, 1, 1, [message(1, "x" * size)]) for name, size in (("b", 1), ("a", 1), ("c", 10**5))
        ]
    assert [type(future.exception()) for future in futures] == [StorageFull] * 3
    assert {name: log.read(name) for name in "abc"} == rows
    conn.close()
    assert log.append("a", 1, 1, [message(1)]).result()[0].seq == 2
