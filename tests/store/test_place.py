"""A log whose files are taken away while it is open: nothing more is acknowledged."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog.fsm.errors import StorageFailed
from turnlog.store import SQLiteLog, verify

from .support import child, fill, message, started, tamper


def deleted(path: Path) -> None:
    path.unlink()


def renamed(path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").rename(path)


def without_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def without_lock(path: Path) -> None:
    """Now another process can write, and does."""
    Path(f"{path}.lock").unlink()
    with SQLiteLog(path) as other:
        other.put_blob(b"x").result()


def folder_renamed(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


@pytest.mark.parametrize("quick", [0, math.inf])
@pytest.mark.parametrize("happens", [deleted, renamed, replaced, without_wal, without_lock, folder_renamed])
def test_nothing_is_acknowledged_after_a_file_of_the_log_is_gone(
    tmp_path: Path, happens: Callable[[Path], None], quick: float
) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / "log.db"
    log = SQLiteLog(path, quick_seconds=quick)
    fill(log, "s", [started()])
    happens(path)
    heard: list[object] = []
    log.append_then("s", 1, 1, [message(1)], None, heard.append)
    log.flush()
    later = log.append("s", 2, 1, [message(2)])
    with pytest.raises(StorageFailed, match="deleted, renamed or replaced"):
        later.result(30)
    assert [type(one) for one in heard] == [StorageFailed]
    assert log.stats.redone == 0
    log.close()


def emptied(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def cut(path: Path) -> None:
    os.truncate(f"{path}-wal", 4096 + 32 + 24)


def copied_over(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"SQLite format 3\0" + b"\0" * 4080)


@pytest.mark.parametrize("quick", [0, math.inf])
@pytest.mark.parametrize("happens", [emptied, cut, copied_over])
def test_nothing_is_acknowledged_after_a_file_of_the_log_was_cut(
    path: Path, happens: Callable[[Path], None], quick: float
) -> None:
    with SQLiteLog(path) as first:
        fill(first, "old")
    before = path.read_bytes()
    log = SQLiteLog(path, quick_seconds=quick)
    fill(log, "s", [started()])
    happens(path)
    heard: list[object] = []
    log.append_then("s", 1, 1, [message(1)], None, heard.append)
    log.flush()
    later = log.append("s", 2, 1, [message(2)])
    with pytest.raises(StorageFailed, match="it was cut while the log was open"):
        later.result(30)
    assert [type(one) for one in heard] == [StorageFailed]
    log.close()
    if happens is not copied_over:
        assert path.read_bytes() == before, "nothing of a write-ahead log with holes gets into the database"


def test_a_commit_that_would_fold_a_write_ahead_log_with_holes_into_the_database_does_not(path: Path) -> None:
    log = SQLiteLog(path)
    log.put_blob(b"x" * 4096 * 900).result()
    before = path.read_bytes()
    emptied(path)
    with pytest.raises(StorageFailed, match="it was cut while the log was open"):
        log.put_blob(b"y" * 4096 * 200).result()
    log.close()
    assert path.read_bytes() == before


_CUT = """
import os, sys
from tests.store.support import fill, message, started
from turnlog.store import SQLiteLog
from turnlog.fsm.errors import StorageFailed
log = SQLiteLog(sys.argv[1])
fill(log, "s", [started()])
os.truncate(sys.argv[1] + "-wal", int(sys.argv[2]))
try:
    log.append("s", 1, 1, [message(1)]).result()
except StorageFailed:
    print("failed", flush=True)
if sys.argv[3] == "close":
    log.close()
"""


@pytest.mark.parametrize("size", ["0", "4152"])
@pytest.mark.parametrize("how", ["close", "forget"])
def test_a_log_whose_write_ahead_log_was_cut_can_be_read_up_to_what_was_folded_in(
    path: Path, size: str, how: str
) -> None:
    with SQLiteLog(path) as log:
        fill(log, "old")
    process = child(_CUT, str(path), size, how)
    assert process.communicate(timeout=30)[0] == "failed\n"
    assert process.returncode == 0
    with SQLiteLog(path) as log:
        assert len(log.read("old")) == 10
        assert verify(log.reader).ok


def test_a_checkpoint_by_another_program_is_no_fault(path: Path) -> None:
    with SQLiteLog(path) as log:
        for n in range(3):
            fill(log, f"s{n}")
            tamper(path, "PRAGMA wal_checkpoint(TRUNCATE)", keep_triggers=True)
            assert log.wal_bytes == 0
            log.put_blob(b"the same").result()
            log.put_blob(str(n).encode()).result()
            assert log._writer._db.conn.execute("PRAGMA wal_autocheckpoint").fetchone() == (1000,)
        assert verify(log.reader).ok


def test_a_vacuum_by_another_program_is_no_fault(path: Path) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s")
        log.put_blob(b"x" * 10**6).result()
        tamper(path, "DELETE FROM blobs")
        tamper(path, "PRAGMA wal_checkpoint(TRUNCATE)", keep_triggers=True)
        log.put_blob(b"y").result()
        size = path.stat().st_size
        tamper(path, "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)", keep_triggers=True)
        assert path.stat().st_size < size
        log.put_blob(b"z").result()
        assert verify(log.reader).ok


def test_what_was_acknowledged_before_is_in_the_file_that_was_moved(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    log = SQLiteLog(path)
    fill(log, "s")
    for name in ("log.db", "log.db-wal", "log.db-shm"):
        (tmp_path / name).rename(tmp_path / f"moved{name.removeprefix('log')}")
    with pytest.raises(StorageFailed):
        log.append("s", 10, 1, [message(1)]).result()
    log.close()
    with SQLiteLog(tmp_path / "moved.db") as moved:
        assert len(moved.read("s")) >= 10
        assert not verify(moved.reader).bad


def test_a_log_that_nobody_touches_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    for _ in range(3):  # the write-ahead log is another file each time
        with SQLiteLog(path) as log:
            log.lease("s", "o").result()
            log.put_blob(b"x").result()
