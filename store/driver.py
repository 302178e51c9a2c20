"""The one SQLite library of this process.

sqlite-utils takes `pysqlite3` when it can be imported. Two SQLite libraries on one file drop each other's
locks, and their exceptions are not related: everything here takes the driver from where sqlite-utils has it.
"""

from pathlib import Path

from sqlite_utils.utils import sqlite3  # type: ignore[attr-defined]  # it is there, only not declared as exported

from ..fsm.errors import Error, Misuse, StorageError, StorageFailed, StorageFull

__all__ = ["CONSTRAINT", "READONLY", "code_of", "fatal", "sqlite3", "translate"]

# Primary result codes of https://sqlite.org/rescode.html
BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, CONSTRAINT, NOTADB = 5, 6, 8, 10, 11, 13, 14, 19, 26
# TOOBIG, MISMATCH, RANGE: it is the row that does not fit, at whatever time.
_UNFIT = (18, 20, 25)


def code_of(error: BaseException) -> int:
    """The primary SQLite result code of an exception, 0 when it has none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def fatal(error: BaseException) -> bool:
    """Whether the file can no longer be trusted to be what this process believes: reopen, do not retry."""
    return isinstance(error, StorageFailed) or code_of(error) in (IOERR, CORRUPT, CANTOPEN, NOTADB, READONLY)


def translate(error: BaseException, path: Path, doing: str) -> Error:
    """The typed error for a driver's exception, saying what to do next."""
    if isinstance(error, Error):
        return error
    code = code_of(error)
    head = f"{doing} {path}: {error}"
    if code in (BUSY, LOCKED):
        return StorageError(f"{head}; another process holds the write lock for too long: end it, then send again")
    if code == FULL:
        return StorageFull(f"{head}; make room on the disk, then send again (reads still work)")
    if code == READONLY:
        return StorageFailed(f"{head}; give write permission on the file and its folder, then reopen it")
    if code == CANTOPEN:
        return StorageFailed(f"{head}; check that the folder exists and may be written, then reopen it")
    if code in (CORRUPT, NOTADB):
        return StorageFailed(f"{head}; the file is damaged or no SQLite database: restore a backup")
    if code == IOERR:
        return StorageFailed(f"{head}; what was not acknowledged may be stored: check the disk, reopen, read the head")
    if code in _UNFIT or isinstance(error, sqlite3.DataError | OverflowError):
        return Misuse(f"{head}; nothing was written, and trying again will not help: make it smaller")
    return StorageError(f"{head} ({type(error).__name__}); nothing was written")
