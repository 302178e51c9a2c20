"""Whether a log's files are still where they were opened."""

from pathlib import Path

from ..fsm.errors import StorageFailed

Mark = tuple[int, int]


class Place:
    """The database file, its write-ahead log and its lock, by device and inode.

    Who deletes, renames or replaces one of them while the log is open sends later rows into a file that nobody will
    find again, and SQLite does not say so.
    """

    def __init__(self, database: Path) -> None:
        self._files = (database, Path(f"{database}.lock"), Path(f"{database}-wal"))
        self._marks: dict[Path, Mark] = {}
        for file in self._files[:2]:  # the write-ahead log comes with the first commit
            self._look(file)

    def check(self) -> None:
        """Look again.

        Raises:
            StorageFailed: names the file that is gone or another one.
        """
        for file in self._files:
            self._look(file)

    def _look(self, file: Path) -> None:
        try:
            found = file.stat()
        except OSError as error:
            raise _gone(file, "gone") from error
        mark = found.st_dev, found.st_ino
        if self._marks.setdefault(file, mark) != mark:
            raise _gone(file, "another file now")


def _gone(file: Path, how: str) -> StorageFailed:
    return StorageFailed(
        f"{file} is {how}: it was deleted, renamed or replaced while the log was open. What was sent last is not "
        "acknowledged. Stop this process, put the file back or restore a backup, and start again"
    )
