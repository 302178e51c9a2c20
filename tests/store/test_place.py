"""A log whose files are taken away while it is open: nothing more is acknowledged."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from turnlog.fsm.errors import StorageFailed
from turnlog.store import SQLiteLog, verify

from .support import fill, message, started


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
