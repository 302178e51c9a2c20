"""The embedded log: one SQLite file, one writer thread, one read-only connection."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from sqlite_utils import Database

from ..fsm.errors import Error, Misuse, StorageError
from ..fsm.events import Row
from .append import append_job
from .base import Applied, Command, Draft, Head, Then
from .driver import sqlite3, translate
from .jobs import Job, Stats, Transaction, settle
from .owner import OwnerLock
from .reader import LogReader, RawRow, SessionInfo, Unreadable
from .schema import migrate
from .writer import QUICK_SECONDS, Writer

# The write-ahead log is cut back to this size once no reader needs it any more; 16 MiB.
WAL_CAP = 16 * 2**20

_LEASE = """INSERT INTO leases (session, owner, epoch) VALUES (?, ?, 1)
    ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, epoch = epoch + 1 RETURNING epoch"""


class SQLiteLog:
    """An `EventLog` in one file. `busy_seconds` limits the wait for a lock that another process holds.

    While commits take less than `quick_seconds`, `flush` makes them in the caller's thread.

    Raises:
        DatabaseOwned: another process writes this file.
        StorageError: the file or its folder cannot be written, is no turnlog log, or is of a newer release.
    """

    def __init__(
        self, path: str | Path, *, busy_seconds: float = 10.0, quick_seconds: float = QUICK_SECONDS, hint: str = ""
    ) -> None:
        if str(path) == ":memory:" or not str(path):
            raise Misuse("a log needs a file: nothing in memory survives the process")
        self.path = Path(path).resolve()
        with contextlib.ExitStack() as undo:
            self._lock = OwnerLock(self.path, hint)
            undo.callback(self._lock.release)
            db = _open(self.path, busy_seconds)
            undo.callback(db.close)
            self._reader = LogReader(self.path)
            undo.callback(self._reader.close)
            self._writer = Writer(db, self.path, busy_seconds, quick_seconds)
            undo.pop_all()

    @property
    def stats(self) -> Stats:
        """Counters of the writer since it was opened."""
        return self._writer.stats

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log now; at most `WAL_CAP` soon after the last reader's page."""
        return self._reader.wal_bytes

    def after_batch(self, call: Callable[[], object] | None) -> None:
        """Have `call` run in the writer's thread whenever all jobs of a batch that it did are answered.

        An event loop that is woken once per batch, instead of once per answer, spends much less on waking.

        Raises:
            Misuse: somebody else hears of them.
        """
        if call is not None and self._writer.after_batch is not None:
            raise Misuse(f"{self.path} is open in another engine of this process: use that one, or close it first")
        self._writer.after_batch = call

    @property
    def reader(self) -> LogReader:
        """The read-only side, for listings and audits."""
        return self._reader

    def append(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None = None,
    ) -> "Future[tuple[Row, ...]]":
        """Append rows, all or none; done means committed with synchronous=FULL.

        Ask `applied` before sending a command again. In a race a command that is there already fails with
        StaleVersion (read again, then ask `applied`), and with CommandReused when its content was another.

        Raises (in the future):
            Misuse: nothing to append, or a draft without a stored form.
            StaleVersion, Fenced, CommandReused, Conflict, StorageError: see `EventLog`; nothing was written.
        """
        future: Future[tuple[Row, ...]] = Future()
        future.set_running_or_notify_cancel()  # an append cannot be cancelled
        self.append_then(session, expected_seq, epoch, drafts, command, partial(settle, future))
        self._writer.wake()
        return future

    def append_then(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None,
        then: Then,
    ) -> None:
        """The same at the next `flush`, with `then` called by whoever commits; it should be quick."""
        try:
            job = append_job(session, expected_seq, epoch, drafts, command, then)
        except Error as error:
            then(error)
            return
        self._writer.hand(job)

    def flush(self) -> None:
        """Commit what is queued: now while the disk is quick, else in the writer's thread."""
        self._writer.flush()

    def lease(self, session: str, owner: str) -> "Future[int]":
        """Take a session for a writer; the answer is its epoch."""

        def apply(tx: Transaction) -> int:
            ((epoch,),) = tx.db.conn.execute(_LEASE, (session, owner)).fetchall()
            tx.leased[session] = epoch, owner
            return int(epoch)

        return self._writer.submit(Job(apply))

    def put_blob(self, data: bytes) -> "Future[str]":
        """Keep bytes under their sha256; putting them again changes nothing."""
        digest = sha256(data).hexdigest()

        def apply(tx: Transaction) -> str:
            tx.db.conn.execute(
                "INSERT INTO blobs (digest, data) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING",
                (digest, data),
            )
            return digest

        return self._writer.submit(Job(apply))

    def put_snapshot(self, session: str, seq: int, digest: bytes, body: str, code_version: str = "") -> None:
        """Keep a folded session with the next commit. It is a cache: it may be lost."""
        self._writer.snapshot((session, seq, digest, body, code_version))

    def drop_snapshots(self) -> "Future[int]":
        """Forget every snapshot; the answer is how many there were."""

        def apply(tx: Transaction) -> int:
            return int(tx.db.conn.execute("DELETE FROM snapshots").rowcount)

        return self._writer.submit(Job(apply))

    def read(self, session: str, after: int = 0, limit: int = 500) -> list[Row]:
        """See `LogReader.read`."""
        return self._reader.read(session, after, limit)

    def read_lenient(self, session: str, after: int = 0, limit: int = 500) -> list[Row | Unreadable]:
        """See `LogReader.read_lenient`."""
        return self._reader.read_lenient(session, after, limit)

    def raw(self, session: str, after: int = 0, limit: int = 500) -> list[RawRow]:
        """See `LogReader.raw`."""
        return self._reader.raw(session, after, limit)

    def head(self, session: str) -> Head | None:
        """See `LogReader.head`."""
        return self._reader.head(session)

    def applied(self, session: str, command_id: str) -> Applied | None:
        """See `LogReader.applied`."""
        return self._reader.applied(session, command_id)

    def blob(self, digest: str) -> bytes:
        """See `LogReader.blob`."""
        return self._reader.blob(digest)

    def snapshot(self, session: str, code_version: str = "") -> tuple[int, bytes, str] | None:
        """See `LogReader.snapshot`."""
        return self._reader.snapshot(session, code_version)

    def sessions(self, after: str = "", limit: int = 100, *, thorough: bool = False) -> list[SessionInfo]:
        """See `LogReader.sessions`."""
        return self._reader.sessions(after, limit, thorough=thorough)

    def session_ids(self) -> Iterator[str]:
        """See `LogReader.session_ids`."""
        return self._reader.session_ids()

    def grants(self) -> list[Row]:
        """See `LogReader.grants`."""
        return self._reader.grants()

    def rows_of_kinds(
        self,
        kinds: Sequence[str],
        session: str | None = None,
        after: tuple[str, int] | None = None,
        limit: int = 500,
    ) -> list[Row]:
        """See `LogReader.rows_of_kinds`."""
        return self._reader.rows_of_kinds(kinds, session, after, limit)

    def close(self) -> None:
        """Commit what is queued, fold the write-ahead log into the file, leave no thread and lock behind."""
        self._reader.close()
        self._writer.close()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path, busy_seconds: float) -> Database:
    """The writing connection, with its schema brought up to date."""
    # SQLite would open it read-only without a word, and the first append would find out.
    if path.exists() and not os.access(path, os.W_OK):
        raise StorageError(f"cannot write {path}: give write permission on the file, or open the log read-only")
    try:
        # check_same_thread: opened here, so that errors reach the caller, then used by the writer's thread.
        conn = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise translate(error, path, "cannot open") from error
    try:
        db = Database(conn, execute_plugins=False)
        _pragma(db, path, "journal_mode", "WAL", "wal")
        _pragma(db, path, "synchronous", "FULL", 2)
        _pragma(db, path, "journal_size_limit", WAL_CAP, WAL_CAP)
        migrate(db, path)
    except sqlite3.Error as error:
        conn.close()
        raise translate(error, path, "cannot open") from error
    except BaseException:
        conn.close()
        raise
    return db


def _pragma(db: Database, path: Path, name: str, value: object, wanted: Any) -> None:
    db.execute(f"PRAGMA {name} = {value}").fetchall()
    (got,) = db.execute(f"PRAGMA {name}").fetchone()
    if got != wanted:
        raise StorageError(f"{path}: {name} is {got!r} where {wanted!r} is needed; put the file on a local disk")
