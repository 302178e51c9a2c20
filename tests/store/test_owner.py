import json
import os
import select
from pathlib import Path

import pytest

from turnlog.fsm.errors import DatabaseOwned, StorageError
from turnlog.store import LogReader, SQLiteLog
from turnlog.store.owner import OwnerLock

from .support import child, fill, kill

_HOLD = """
import sys
from turnlog.store import SQLiteLog
from tests.store.support import fill
log = SQLiteLog(sys.argv[1], hint="turnlog serve --port 8000")
fill(log, "s")
print("open", flush=True)
sys.stdin.readline()
"""


def test_a_second_process_is_told_who_owns_the_file(path: Path) -> None:
    holder = child(_HOLD, str(path))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(DatabaseOwned) as refused:
        SQLiteLog(path)
    kill(holder)
    said = str(refused.value)
    assert f"process {holder.pid} on " in said
    assert "(turnlog serve --port 8000) since 20" in said
    assert "stop that process, or open the file read-only" in said


def test_a_killed_owner_leaves_no_lock(path: Path) -> None:
    holder = child(_HOLD, str(path))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    kill(holder)
    with SQLiteLog(path) as log:
        assert len(log.read("s")) == 10


def test_readers_need_no_lock(path: Path) -> None:
    holder = child(_HOLD, str(path))
    assert holder.stdout is not None
    assert holder.stdout.readline() == "open\n"
    reader = LogReader(path)
    assert len(reader.read("s")) == 10
    reader.close()
    kill(holder)


def test_the_same_process_cannot_open_a_file_twice_under_any_name(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "other.db"
    with SQLiteLog(path):
        link.symlink_to(path)
        for name in (path, str(path), link, tmp_path / "x" / ".." / path.name):
            with pytest.raises(DatabaseOwned, match=f"process {os.getpid()} "):
                SQLiteLog(name)
    SQLiteLog(link).close()


def test_closing_releases_the_file_and_leaves_no_owner_behind(path: Path) -> None:
    SQLiteLog(path).close()
    assert (path.parent / "log.db.lock").read_bytes() == b""
    SQLiteLog(path).close()


def test_the_lock_file_tells_who_holds_it(path: Path) -> None:
    lock = OwnerLock(path, "a test")
    note = json.loads(lock.path.read_text())
    assert (note["pid"], note["hint"]) == (os.getpid(), "a test")
    lock.release()
    lock.release()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
def test_an_unreadable_note_does_not_hide_that_the_file_is_owned(path: Path, note: bytes) -> None:
    lock = OwnerLock(path)
    lock.path.write_bytes(note)
    with pytest.raises(DatabaseOwned, match="owned by another process; stop"):
        OwnerLock(path)
    lock.release()


_FORK = """
import os, sys
from pathlib import Path
from turnlog.store.owner import OwnerLock
lock = OwnerLock(Path(sys.argv[1]))
if os.fork() == 0:
    print("child", flush=True)
sys.stdin.readline()
"""


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_owner(path: Path) -> None:
    owner = child(_FORK, str(path))
    assert owner.stdout is not None
    assert owner.stdin is not None
    assert owner.stdout.readline() == "child\n"
    owner.kill()
    owner.wait()
    OwnerLock(path).release()
    assert not select.select([owner.stdout], [], [], 0)[0], "the child had ended, so this showed nothing"
    owner.communicate("end\n")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"missing/log\.db\.lock: No such file or directory; create its folder"):
        SQLiteLog(tmp_path / "missing" / "log.db")


def test_a_failed_open_releases_the_file(path: Path) -> None:
    path.write_bytes(b"hello " * 500)
    with pytest.raises(StorageError):
        SQLiteLog(path)
    path.unlink()
    with SQLiteLog(path) as log:
        assert len(fill(log, "s")) == 10
