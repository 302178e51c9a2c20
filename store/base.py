"""What the engine asks of a log. SQLite is the embedded default; another store keeps the same promises."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, Protocol

from ..fsm.errors import Error
from ..fsm.events import Event, Row
from ..fsm.states import State


def code_version() -> str:
    """The version of turnlog that writes."""
    try:
        return version("turnlog")
    except PackageNotFoundError:
        return "unknown"


class Draft(NamedTuple):
    """A row to append; the log adds seq and hash. `at` is milliseconds since 1970 UTC."""

    state: State
    at: int
    actor: str
    event: Event


@dataclass(frozen=True, slots=True)
class Command:
    """The client's id of what caused an append; the digest of its content tells a resend from a reuse."""

    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Applied:
    """Where a command was applied: the last seq of its append."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class Head:
    """The last row of a session, and the newest lease."""

    seq: int
    hash: bytes
    state: State
    epoch: int
    owner: str


Then = Callable[[tuple[Row, ...] | Error], object]


class EventLog(Protocol):
    """An append-only log of sessions.

    Per session seq is contiguous from 1. An append is all or nothing, durable when its future is done, and
    refused when the expected seq is not the head, the epoch not the newest lease, or the command id was used.
    """

    def append(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None = None,
    ) -> "Future[tuple[Row, ...]]":
        """Append rows.

        Raises (in the future):
            StaleVersion, Fenced, CommandReused: nothing was written; read the head and decide again.
            StorageFull: no room now. StorageFailed: reopen the log.
        """
        ...

    def append_then(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None,
        then: Then,
    ) -> None:
        """Queue the append for the next `flush`; `then` gets the rows or the error, once, in any thread."""
        ...

    def flush(self) -> None:
        """See that everything queued is committed, here and now or soon and elsewhere."""
        ...

    def lease(self, session: str, owner: str) -> "Future[int]":
        """Take the session (it may be new) for a writer; the answer is its epoch, above every earlier one."""
        ...

    def read(self, session: str, after: int = 0, limit: int = 500) -> list[Row]:
        """A page of rows with seq > after, in order; bounded in time, no cursor stays open."""
        ...

    def head(self, session: str) -> Head | None:
        """The last row of a session, None for an unknown one."""
        ...

    def applied(self, session: str, command_id: str) -> Applied | None:
        """What became of a command."""
        ...

    def put_blob(self, data: bytes) -> "Future[str]":
        """Keep bytes under their sha256; the answer is the digest."""
        ...

    def blob(self, digest: str) -> bytes:
        """Bytes by digest, hashed again when read."""
        ...

    def close(self) -> None:
        """Commit what is queued and leave no thread or lock behind."""
        ...
