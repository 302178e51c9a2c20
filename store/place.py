"""Whether a log's files are still where, and what, they were when it was opened.

Who deletes, renames, replaces or empties one of them while the log is open sends later rows into a file that nobody
will find again, and SQLite does not say so. Who removes the lock lets another process write beside this one.
What is looked at is cheap: two `stat` and a `seek` for a commit.
"""

import os
from pathlib import Path

from ..fsm.errors import StorageFailed

_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")  # https://sqlite.org/fileformat2.html#walformat


class Place:
    """The database file, its lock and its write-ahead log, by device and inode."""

    def __init__(self, database: Path) -> None:
        self.hollow = False  # the write-ahead log lacks what it should hold: nothing of it may get into the database
        self._database, self._lock, self._wal = str(database), f"{database}.lock", f"{database}-wal"
        found = _stat(self._database)
        self._device, self._inode, self._size = found.st_dev, found.st_ino, 0
        self._lock_mark = _mark(_stat(self._lock))
        self._open = -1  # the write-ahead log, which comes with the first commit
        self._wal_inode = self._wal_size = 0
        self._emptied = False  # the write-ahead log, by a checkpoint or by somebody; the next commit will tell
        self._version: int | None = None
        self._vacuumed = False  # maybe; only then may the database shrink

    def before(self) -> bool:
        """Look before a commit. True: no checkpoint may follow it, since the write-ahead log was emptied.

        Raises:
            StorageFailed: it was cut.
        """
        if self._open >= 0 and (size := os.lseek(self._open, 0, os.SEEK_END)) < self._wal_size:
            if size:
                self.hollow = True
                raise _gone(self._wal, "shorter than it was", "cut")
            self._emptied = True
        return self._emptied

    def check(self, version: int) -> None:
        """Look after a commit, before anybody hears of it. `version` is the `data_version` that it saw.

        Raises:
            StorageFailed: names the file that is gone, or another one, or not what it was.
        """
        try:
            found, log = os.stat(self._database), os.stat(self._wal)  # noqa: PTH116 - by each commit: twice as quick
        except OSError as error:
            raise _gone(str(error.filename), f"gone ({error.strerror})") from error
        if found.st_ino != self._inode or found.st_dev != self._device:
            raise _gone(self._database, "another file now")
        if found.st_size != self._size or version != self._version:
            self._resized(found.st_size, version)
        if log.st_ino != self._wal_inode:
            if self._open >= 0:
                raise _gone(self._wal, "another file now")
            self._open, self._wal_inode = _opened(self._wal), log.st_ino
        self._wal_size = log.st_size
        if self._emptied and self._wal_size:
            self._begun()

    def check_lock(self) -> None:
        """Look after the lock, when somebody else has written.

        Raises:
            StorageFailed: it is gone, or another one.
        """
        if _mark(_stat(self._lock)) != self._lock_mark:
            raise _gone(self._lock, "another file now")

    def _begun(self) -> None:
        """After a checkpoint the write-ahead log begins anew; where somebody emptied it, it goes on after a hole."""
        if os.pread(self._open, 4, 0) not in _MAGIC:
            self.hollow = True
            raise _gone(self._wal, "empty where it held rows", "cut")
        self._emptied = False

    def close(self) -> None:
        """Look no more."""
        if self._open >= 0:
            os.close(self._open)
            self._open = -1

    def _resized(self, size: int, version: int) -> None:
        # Only a VACUUM makes a database smaller, and only other connections do that, which changes the version.
        self._vacuumed = self._vacuumed or (self._version is not None and version != self._version)
        if size < self._size and not self._vacuumed:
            raise _gone(self._database, "shorter than it was", "cut")
        self._version, self._size = version, size


def _stat(file: str) -> os.stat_result:
    try:
        return Path(file).stat()
    except OSError as error:
        raise _gone(file, f"gone ({error.strerror})") from error


def _opened(file: str) -> int:
    """For reading. SQLite has no locks on this file that would go when another descriptor is closed."""
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _gone(file, f"gone ({error.strerror})") from error


def _mark(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _gone(file: str, how: str, done: str = "deleted, renamed or replaced") -> StorageFailed:
    what = "Stop this process, put the file back or restore a backup, and start again"
    if file.endswith(".lock"):
        what = "Another process may write the log by now. Stop this one, see that no other runs, and start again"
    return StorageFailed(
        f"{file} is {how}: it was {done} while the log was open. What was sent last is not acknowledged. {what}"
    )
