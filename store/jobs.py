"""What the writer is given to do, and what it may use for it inside a transaction."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sqlite_utils import Database

from ..fsm.errors import Error
from .chain import origin
from .schema import COLUMNS

T = TypeVar("T")
Record = tuple[Any, ...]
Lease = tuple[int, str]


def _insert(*left_out: str) -> str:
    """What is NULL in a new row is not bound: the driver looks for an adapter for each None."""
    columns = [name for name in COLUMNS if name not in left_out]
    return f"INSERT INTO events ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - own names


_INSERT = _insert("command_id", "command_digest", "body_hash")
_INSERT_COMMANDED = _insert("body_hash")


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


def settle(future: "Future[T]", answer: T | Error) -> None:
    """Give a future its result or its error."""
    if isinstance(answer, Error):
        future.set_exception(answer)
    else:
        future.set_result(answer)
