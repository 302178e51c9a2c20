"""A read-only connection that hands out whole pages.

A page is fetched inside one call and no cursor stays open, so a slow consumer never holds a read transaction
and never keeps the write-ahead log from being folded into the file. It works on a file that another process
is writing.
"""

import contextlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from sqlite_utils import Database

from ..fsm.errors import Misuse, StorageError
from .driver import CANTOPEN, READONLY, code_of, sqlite3, translate
from .schema import MIGRATIONS, check

# Seconds to wait while SQLite recovers a file; other than that readers never wait.
_BUSY = 5.0


class Pages:
    """One database file, read-only; may be used from any thread, one call at a time.

    Raises:
        StorageError: there is no such file, it is no turnlog log, or it must be opened for writing first.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_file():
            raise StorageError(f"there is no log at {self.path}: check the path")
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._db = self._open()
        except sqlite3.Error as error:
            raise translate(error, self.path, "cannot read") from error
        with contextlib.ExitStack() as undo:
            undo.callback(self._db.close)
            check(self._db, self.path)
            if MIGRATIONS.pending(self._db):
                raise StorageError(f"{self.path} is empty or of an older release: open it once for writing")
            undo.pop_all()

    def _open(self) -> Database:
        try:
            return self._connect("mode=ro")
        except sqlite3.Error as error:
            # In a folder that cannot be written there is no place for the shared memory of a write-ahead log.
            # Without such a log the file holds everything, and nobody can be writing it there.
            if code_of(error) not in (CANTOPEN, READONLY) or self._wal().exists():
                raise
            return self._connect("immutable=1")

    def _connect(self, options: str) -> Database:
        conn = sqlite3.connect(
            f"{self.path.as_uri()}?{options}",
            uri=True,
            timeout=_BUSY,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except BaseException:
            conn.close()
            raise
        return Database(conn, execute_plugins=False, recursive_triggers=False)

    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log now."""
        try:
            return self._wal().stat().st_size
        except FileNotFoundError:
            return 0

    def fetch(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query.

        A text that is no UTF-8 (somebody changed the file) carries its bytes as surrogate escapes: it hides
        no other row.
        """
        with self._lock:
            if self._closed:
                raise Misuse(f"the log {self.path} is closed: open it again")
            try:
                return self._all(sql, args)
            except sqlite3.Error as error:
                raise translate(error, self.path, "cannot read") from error

    def _all(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        conn = self._db.conn
        try:
            return list(conn.execute(sql, args).fetchall())
        except sqlite3.OperationalError:
            conn.text_factory = _escape
        try:
            return list(conn.execute(sql, args).fetchall())
        finally:
            conn.text_factory = str

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()
                self._tidy()

    def _tidy(self) -> None:
        """Remove the empty files that reading made beside the log.

        A read-only connection leaves them. One that may write takes them away when it closes as the last one: SQLite
        looks under its own locks whether another process has the file, so nothing is lost to a writer that began
        meanwhile. A write-ahead log that holds something stays as it is: folding it in is up to whoever writes.
        """
        if not self._wal().exists() or self.wal_bytes:
            return
        with contextlib.suppress(sqlite3.Error):
            self._connect("mode=rw").close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _escape(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
