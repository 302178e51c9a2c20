"""Group commit: whatever is queued is committed in one transaction, then everybody is answered.

One fsync so serves many sessions. Where the disk is quick, whoever flushes the queue commits it on the spot, which
costs less than two switches of threads; where it is slow, or locked, a thread does. A job that fails does not take
its neighbours with it: the batch is rolled back and done again with a savepoint around each job. The error of a
failed commit says what became of it:

    StorageFailed   an I/O error: the thread takes no further job, reopen the file
    StorageFull     nothing of the batch was written; later jobs are tried again
    StorageError    the lock was not to be had within the limit; nothing was written
"""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from sqlite_utils import Database

from ..fsm.errors import Error, Misuse, StorageFailed
from .driver import BUSY, code_of, fatal, sqlite3, translate
from .jobs import Job, Known, Record, Stats, Transaction, settle
from .place import Place

_log = logging.getLogger(__name__)
T = TypeVar("T")

# Jobs of one transaction. A longer queue takes another commit: the first in it do not wait for the last.
BATCH_JOBS = 1024
# Tips kept in memory; about 200 bytes each.
TIPS = 65536
# A commit that takes longer than this is made in the thread; a shorter one may hold up the caller's event loop.
QUICK_SECONDS = 0.005
# How much of the pace a quicker commit leaves: after one of a second it takes thirty to trust the disk again.
_MEMORY = 0.8


# Pages in the write-ahead log from which on a commit folds it into the file; SQLite's own default.
_CHECKPOINT_PAGES = 1000
_SNAPSHOT = "INSERT OR REPLACE INTO snapshots (session, seq, hash, body, code_version) VALUES (?, ?, ?, ?, ?)"

# BUSY, LOCKED, NOMEM, FULL: doing the jobs one by one would not help.
_PER_BATCH = (5, 6, 7, 13)


class Writer:
    """Owns the writing connection and its thread. `busy_seconds` limits the thread's wait for a lock.

    `quick_seconds` is the commit that `flush` may make in the caller's thread; 0 leaves every one to the thread.
    """

    def __init__(
        self,
        db: Database,
        path: Path,
        busy_seconds: float,
        quick_seconds: float = QUICK_SECONDS,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.stats = Stats()
        self.after_batch: Callable[[], object] | None = None
        self._db = db
        self._path = path
        self._place = Place(path)
        self._busy_seconds = busy_seconds
        self._quick_seconds = quick_seconds
        self._timer = timer
        self._pace = math.inf  # seconds of a commit: of the slowest lately
        self._known = Known()
        self._jobs: deque[Job[Any]] = deque()
        self._snapshots: SimpleQueue[Record] = SimpleQueue()
        self._gate = threading.Lock()  # nothing is queued after the close
        self._connection = threading.Lock()  # held by whoever commits
        self._signals: SimpleQueue[bool] = SimpleQueue()  # to the thread: there is work, or (False) the end
        self._closed = False
        self._failure: StorageFailed | None = None
        db.conn.execute("PRAGMA busy_timeout = 0")
        self._thread = threading.Thread(target=self._run, name=f"turnlog writer {path.name}", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> "Future[T]":
        """Queue a job and have the thread do it. It runs whatever happens to its future: it cannot be cancelled."""
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()
        job.then = partial(settle, future)
        self.hand(job)
        self.wake()
        return future

    def hand(self, job: Job[Any]) -> None:
        """Queue a job that has its `then`, for the next `flush`."""
        with self._gate:
            if not self._closed:
                self._jobs.append(job)
                return
        _answer([job], [Misuse(f"the log {self._path} is closed: open it again")])

    def flush(self) -> None:
        """Commit what is queued, or see that the thread does."""
        if self._pace <= self._quick_seconds and self._connection.acquire(blocking=False):
            try:
                batch = self._take()
                done = not batch or self._commit(batch, wait=False)
            finally:
                self._connection.release()
            if done and not self._jobs:
                return
        self.wake()

    def wake(self) -> None:
        """Have the thread commit what is queued."""
        self._signals.put(True)

    def snapshot(self, record: Record) -> None:
        """Write a snapshot with the next commit; it is a cache, so losing it costs only time."""
        self._snapshots.put(record)

    def close(self) -> None:
        """Commit what is queued, fold the write-ahead log into the file, end the thread."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._signals.put(False)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            more = self._signals.get()
            with self._connection:
                self._drain()
        with self._connection:
            self._finish()

    def _drain(self) -> None:
        while batch := self._take():
            self._commit(batch, wait=True)
            if self.after_batch is not None:
                with contextlib.suppress(Exception):  # a listener's fault, such as an event loop that is closed
                    self.after_batch()

    def _take(self) -> list[Job[Any]]:
        batch: list[Job[Any]] = []
        while self._jobs and len(batch) < BATCH_JOBS:  # only whoever holds the connection takes from it
            batch.append(self._jobs.popleft())
        return batch

    def _commit(self, batch: list[Job[Any]], *, wait: bool) -> bool:
        """Do a batch and answer its jobs, each exactly once. False: the file is locked, all wait as before."""
        if self._failure is not None:
            _answer(batch, _each(self._failure, batch))
            return True
        try:
            answers = self._attempt(batch, wait=wait, one_by_one=False)
        except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits for an answer
            if not wait and code_of(error) == BUSY:
                self._jobs.extendleft(reversed(batch))
                return False
            answers = self._after_failure(batch, error)
        _answer(batch, answers)
        return True

    def _after_failure(self, batch: list[Job[Any]], error: Exception) -> list[Any]:
        self._roll_back()
        if self._failure is None and not fatal(error) and code_of(error) not in _PER_BATCH:
            self.stats.redone += 1
            try:
                return self._attempt(batch, wait=True, one_by_one=True)
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

    def _begin(self, *, wait: bool) -> None:
        """Only here can the file be locked: by another program, or a backup."""
        conn = self._db.conn
        try:
            conn.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not wait or code_of(error) != BUSY:
                raise
            conn.execute(f"PRAGMA busy_timeout = {int(self._busy_seconds * 1000)}")
            try:
                conn.execute("BEGIN IMMEDIATE")
            finally:
                conn.execute("PRAGMA busy_timeout = 0")

    def _attempt(self, batch: list[Job[Any]], *, wait: bool, one_by_one: bool) -> list[Any]:
        """One transaction. The answers are results, or errors of jobs that wrote nothing."""
        conn = self._db.conn
        tx = Transaction(self._db, self._known)
        self._begin(wait=wait)
        # One question instead of one per job: has another connection changed the file since the transaction
        # before? If not, the tips and leases in memory are what a SELECT would find here.
        (version,) = conn.execute("PRAGMA data_version").fetchone()
        if version != self._known.version:
            self._place.check_lock()
            self._known.clear()
            self._known.version = version
        if emptied := self._place.before():
            conn.execute("PRAGMA wal_autocheckpoint = 0")  # until it is known what that log holds
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
        begun = self._timer()
        conn.execute("COMMIT")
        took = self._timer() - begun
        self._pace = took if self._pace == math.inf else max(took, _MEMORY * self._pace + (1 - _MEMORY) * took)
        self._place.check(version)  # before anybody hears that it is durable
        if emptied:
            conn.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
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
            self._place.close()
            if self._place.hollow:
                _keep_open(conn)
            else:
                conn.close()


def _keep_open(conn: Any) -> None:
    """To close it would fold the write-ahead log into the file. Nobody ends the frame of a daemon thread."""

    def hold(_: Any) -> None:
        threading.Event().wait()

    threading.Thread(target=hold, args=(conn,), name="turnlog holds a log that was cut", daemon=True).start()


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
