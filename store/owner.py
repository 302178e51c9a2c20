"""One process owns a database file for writing: a kernel lock on a file beside it.

The kernel drops the lock when the process dies, however it dies, so there is nothing stale to clean up. The
lock file itself stays: removing it would let two processes lock two different files of one name.
"""

import fcntl
import json
import os
import socket
import time
import weakref
from pathlib import Path

from ..fsm.errors import DatabaseOwned, StorageError

_held: "weakref.WeakSet[OwnerLock]" = weakref.WeakSet()


class OwnerLock:
    """Held from construction to `release`. The file tells who holds it: pid, host, start time (ms), hint."""

    def __init__(self, database: Path, hint: str = "") -> None:
        self.path = database.with_name(database.name + ".lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"cannot write {self.path}: {error.strerror}; create its folder, make it writable, "
                "or open the log read-only"
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _describe(os.pread(self._file, 4096, 0))
            os.close(self._file)
            raise DatabaseOwned(
                f"{database} is owned by {owner}; stop that process, or open the file read-only"
            ) from error
        _held.add(self)
        note = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started": time.time_ns() // 1_000_000,
            "hint": hint,
        }
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(note).encode(), 0)

    def forget(self) -> None:
        """Close the file only; what a forked child does, which would keep the lock alive after its parent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def release(self) -> None:
        """Let another process own the file."""
        if self._file >= 0:
            os.ftruncate(self._file, 0)
            self.forget()


def _describe(note: bytes) -> str:
    try:
        who = json.loads(note)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(who["started"] / 1000))
        hint = f" ({who['hint']})" if who["hint"] else ""
        return f"process {who['pid']} on {who['host']}{hint} since {started}"
    except (ValueError, TypeError, KeyError):
        return "another process"


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)
