"""Whether a log's files are still where they were opened."""

import os
from pathlib import Path

from ..fsm.errors import StorageFailed


class Place:
    """The database file, its write-ahead log and its lock, by device and inode.

    Who deletes, renames or replaces one of the first two while the log is open sends later rows into a file that nobody
    will find again, and SQLite does not say so. Who removes the lock lets another process write beside this one.
    """

    def __init__(self, database: Path) -> None:
        self._known = [_look(str(database))]
        self._lock = _look(f"{database}.lock")
        self._log = f"{database}-wal"  # comes with the first commit

    def check(self) -> None:
        """Look again, after a commit.

        Raises:
            StorageFailed: names the file that is gone or another one.
        """
        if len(self._known) == 1:
            self._known.append(_look(self._log))
        for known in self._known:
            _same(*known)

    def check_lock(self) -> None:
        """Look after the lock, when somebody else has written.

        Raises:
            StorageFailed: it is gone, or another one.
        """
        _same(*self._lock)


def _same(name: str, device: int, inode: int) -> None:
    try:
        found = os.stat(name)  # noqa: PTH116 - by each commit, and a text is looked up in half the time
    except OSError as error:
        raise _gone(name, "gone") from error
    if found.st_ino != inode or found.st_dev != device:
        raise _gone(name, "another file now")


def _look(name: str) -> tuple[str, int, int]:
    try:
        found = Path(name).stat()
    except OSError as error:
        raise _gone(name, "gone") from error
    return name, found.st_dev, found.st_ino


def _gone(name: str, how: str) -> StorageFailed:
    return StorageFailed(
        f"{name} is {how}: it was deleted, renamed or replaced while the log was open. What was sent last is not "
        "acknowledged. Stop this process, put the file back or restore a backup, and start again"
    )
