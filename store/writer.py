"""Group commit: one thread takes whatever is queued, commits it in one transaction, then answers everybody.

One fsync so serves many sessions. A job that fails does not take its neighbours with it: the batch is rolled
back and done again with a savepoint around each job. The error of a failed commit says what became of it:

    StorageFailed   an I/O error: the thread takes no further job, reopen the file
    StorageFull     nothing of the batch was written; later jobs are tried again
    StorageError    the lock was not to be had within the limit; nothing was written
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from sqlite_utils import Database

from ..fsm.errors import Error, Misuse, StorageFailed
from .chain import origin
from .driver import code_of, fatal, translate
from .schema import COLUMNS

_log = logging.getLogger(__name__)
T = TypeVar("T")
Record = tuple[Any, ...]
Lease = tuple[int, str]

# Jobs of one transaction. A longer queue takes another commit: the first in it do not wait for the last.
BATCH_JOBS = 1024
# Tips kept in memory; about 200 bytes each.
TIPS = 65536


def _insert(*left_out: str) -> str:
    """What is NULL in a new row is not bound: the driver looks for an adapter for each None."""
    columns = [name for name in COLUMNS if name not in left_out]
    return f"INSERT INTO events ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - own names


_INSERT = _insert("command_id", "command_digest", "body_hash")
_INSERT_COMMANDED = _insert("body_hash")
_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (session, seq, hash, body, code_version) VALUES (?, ?, ?, ?, ?)"

# BUSY, LOCKED, NOMEM, FULL: doing the jobs one by one would not help.
_PER_BATCH = (5, 6, 7, 13)


@dataclass(slots=True)
class Stats:
    """Counters since the log was opened. `commits` is the number of fsyncs asked for, checkpoints apart."""

    commits: int = 0
    rows: int = 0
    jobs: int = 0
    largest: int = 0
    redone: int = 0


@dataclass(slots=True)
class Tip:
    """The last row of a session as the writer knows it."""

    seq: int
    hash: bytes


@dataclass(slots=True)
class Known:
    """What the writer remembers of the file; true as long as no other connection has changed it."""

    tips: dict[str, Tip] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    version: int = -1

    def clear(self) -> None:
        """Read everything again when it is asked for."""
        self.tips.clear()
        self.leases.clear()


@dataclass(slots=True)
class Transaction:
    """What a job may use: the connection, tips and leases after the jobs before it, a place for its rows."""

    db: Database
    known: Known
    moved: dict[str, Tip] = field(default_factory=dict)
    leased: dict[str, Lease] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    commanded: list[Record] = field(default_factory=list)

    def lease(self, session: str) -> Lease | None:
        """The newest lease of a session: epoch and owner."""
        found = self.leased.get(session) or self.known.leases.get(session)
        if found is None:
            found = self.db.execute("SELECT epoch, owner FROM leases WHERE session = ?", (session,)).fetchone()
            if found is not None:
                self.known.leases[session] = found
        return found

    def tip(self, session: str) -> Tip:
        """The last row of a session; before its first it is seq 0 and the chain's origin."""
        found = self.moved.get(session) or self.known.tips.get(session)
        if found is None:
            row = self.db.execute(
                "SELECT seq, hash FROM events WHERE session = ? ORDER BY seq DESC LIMIT 1", (session,)
            ).fetchone()
            found = self.known.tips[session] = Tip(*row) if row else Tip(0, origin(session))
        return found

    def flush(self) -> None:
        """Insert the rows so far."""
        if self.records:
            self.db.conn.executemany(_INSERT, self.records)
            self.records = []
        if self.commanded:
            self.db.conn.executemany(_INSERT_COMMANDED, self.commanded)
            self.commanded = []


@dataclass(slots=True)
class Job(Generic[T]):
    """`apply` runs in the writer's thread, maybe twice. `explain` makes a conflict of a broken constraint.

    `then` hears there, once, what came of it: the answer, or why nothing was written.
    """

    apply: Callable[[Transaction], T]
    explain: Callable[[Transaction, BaseException], Error | None] | None = None
    rows: int = 0
    then: Callable[[T | Error], object] | None = None


class Writer:
    """Owns the writing connection and its thread."""

    def __init__(self, db: Database, path: Path) -> None:
        self.stats = Stats()
        self.after_batch: Callable[[], object] | None = None
        self._db = db
        self._path = path
        self._known = Known()
        self._queue: SimpleQueue[Job[Any] | None] = SimpleQueue()
        self._snapshots: SimpleQueue[Record] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._failure: StorageFailed | None = None
        self._thread = threading.Thread(target=self._run, name=f"turnlog writer {path.name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> "Future[T]":
        """Queue a job. From here on it runs whatever happens to its future: it cannot be cancelled."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        job.then = partial(settle, future)
        self.hand(job)
        return future

    def hand(self, job: Job[Any]) -> None:
        """Queue a job that has its `then`."""
        with self._gate:
            if not self._closed:
                self._queue.put(job)
                return
        _answer([job], [Misuse(f"the log {self._path} is closed: open it again")])

    def snapshot(self, record: Record) -> None:
        """Write a snapshot with the next commit; it is a cache, so losing it costs only time."""
        self._snapshots.put(record)

    def close(self) -> None:
        """Commit what is queued, fold the write-ahead log into the file, end the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (batch := self._take()) is not None:
                self._commit(batch)
                if self.after_batch is not None:
                    with contextlib.suppress(Exception):  # a listener's fault, such as an event loop that is closed
                        self.after_batch()
        finally:
            self._finish()

    def _take(self) -> list[Job[Any]] | None:
        first = self._queue.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < BATCH_JOBS and not self._queue.empty():  # nobody else takes from it
            job = self._queue.get_nowait()
            if job is None:
                self._queue.put(None)  # nothing can follow it: the gate is closed
                break
            batch.append(job)
        return batch

    def _commit(self, batch: list[Job[Any]]) -> None:
        """Do a batch and answer its jobs, each exactly once."""
        if self._failure is not None:
            _answer(batch, _each(self._failure, batch))
            return
        try:
            answers = self._attempt(batch, one_by_one=False)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits for an answer
            answers = self._after_failure(batch, error)
        _answer(batch, answers)

    def _after_failure(self, batch: list[Job[Any]], error: Exception) -> list[Any]:
        self._roll_back()
        if self._failure is None and not fatal(error) and code_of(error) not in _PER_BATCH:
            self.stats.redone += 1
            try:
                return self._attempt(batch, one_by_one=True)
            except Exception as second:  # noqa: BLE001 - as above
                self._roll_back()
                error = second
        answer = self._failure or translate(error, self._path, "cannot append to")
        if isinstance(answer, StorageFailed):
            self._failure = answer
        return _each(answer, batch)

    def _roll_back(self) -> None:
        self._known.clear()
        try:
            if self._db.conn.in_transaction:
                self._db.conn.execute("ROLLBACK")
        except Exception as error:  # noqa: BLE001 - a rollback that fails leaves the connection unusable
            self._failure = StorageFailed(f"cannot roll back {self._path}: {error}; reopen it")

    def _attempt(self, batch: list[Job[Any]], *, one_by_one: bool) -> list[Any]:
        """One transaction. The answers are results, or errors of jobs that wrote nothing."""
        conn = self._db.conn
        tx = Transaction(self._db, self._known, {}, {}, [], [])
        conn.execute("BEGIN IMMEDIATE")
        # One question instead of one per job: has another connection changed the file since the transaction
        # before? If not, the tips and leases in memory are what a SELECT would find here.
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._known.version:
            self._known.clear()
            self._known.version = version
        do = self._guarded if one_by_one else _apply
        answers: list[Any] = []
        done = rows = 0
        for job in batch:
            answer = do(tx, job)
            answers.append(answer)
            if not isinstance(answer, Error):
                done += 1
                rows += job.rows
        tx.flush()
        if not done:
            conn.execute("ROLLBACK")
            return answers
        if not self._snapshots.empty():
            conn.executemany(_SNAPSHOT, self._waiting_snapshots())
        conn.execute("COMMIT")
        if len(self._known.tips) > TIPS:
            self._known.clear()
        self._known.tips.update(tx.moved)
        self._known.leases.update(tx.leased)
        stats = self.stats
        stats.commits += 1
        stats.jobs += done
        stats.rows += rows
        stats.largest = max(stats.largest, done)
        return answers

    def _guarded(self, tx: Transaction, job: Job[Any]) -> Any:
        before = dict(tx.moved), dict(tx.leased)
        self._db.conn.execute("SAVEPOINT job")
        try:
            answer = _apply(tx, job)
            tx.flush()
        except Exception as error:
            if fatal(error) or code_of(error) in _PER_BATCH:
                raise
            self._db.conn.execute("ROLLBACK TO job")
            tx.records, tx.commanded, (tx.moved, tx.leased) = [], [], before
            answer = (job.explain(tx, error) if job.explain else None) or translate(
                error, self._path, "cannot append to"
            )
        self._db.conn.execute("RELEASE job")
        return answer

    def _waiting_snapshots(self) -> list[Record]:
        newest: dict[Any, Record] = {}
        while not self._snapshots.empty():  # nobody else takes from it
            record = self._snapshots.get_nowait()
            newest[record[0]] = record
        return list(newest.values())

    def _finish(self) -> None:
        conn = self._db.conn
        try:
            if self._failure is None:
                records = self._waiting_snapshots()
                conn.execute("BEGIN IMMEDIATE")
                conn.executemany(_SNAPSHOT, records)
                conn.execute("COMMIT")
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except Exception:  # noqa: BLE001, S110 - every append was answered; the rest is a cache and a tidy file
            pass
        finally:
            conn.close()


def _apply(tx: Transaction, job: Job[Any]) -> Any:
    try:
        return job.apply(tx)
    except Error as error:  # a conflict, found before anything was written
        return error


def _each(error: Error, batch: list[Job[Any]]) -> list[Error]:
    # One object a future: raising an exception again and again makes its traceback grow.
    return [type(error)(*error.args) for _ in batch]


def _answer(batch: list[Job[Any]], answers: list[Any]) -> None:
    for job, answer in zip(batch, answers, strict=True):
        if job.then is not None:
            try:
                job.then(answer)
            except Exception:  # noqa: BLE001 - whoever listens must not stop the writer
                _log.exception("an answer of the log was not heard")


def settle(future: "Future[T]", answer: T | Error) -> None:
    """Give a future its result or its error."""
    if isinstance(answer, Error):
        future.set_exception(answer)
    else:
        future.set_result(answer)
