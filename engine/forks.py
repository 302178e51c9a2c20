"""What a fork takes from its parent's rows."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from ..fsm.canonical import clean
from ..fsm.decide import decide
from ..fsm.errors import CorruptLog, IllegalEvent, Misuse, UnknownSession
from ..fsm.events import ApprovalRequested, Parent, Row, SessionStarted
from ..fsm.fork import COPIED, belongs
from ..fsm.inputs import Fork
from ..fsm.session import Session, evolve
from ..store import SQLiteLog
from ..store.base import Draft, EventLog

PAGE = 500


class Reading:
    """The parent up to a seq: read its `pages`, then ask for the `fork`.

    A round of calls and what the machine itself answered to it at once count as one: a fork lands after both.
    """

    def __init__(self, log: SQLiteLog, session: str, seq: int) -> None:
        head = log.head(session) if clean(session) == session else None
        if head is None:
            raise UnknownSession(f"no session has the id {session!r}: `turnlog sessions` lists those there are")
        if not 1 <= seq <= head.seq:
            raise Misuse(f"session {session!r} has rows 1 to {head.seq}, none is {seq}: fork it at one of them")
        self._log, self._session, self._seq = log, session, seq
        self._state = Session(id=session)
        self._rows: list[Row] = []
        self._asked: dict[str, ApprovalRequested] = {}
        self._begun: SessionStarted | None = None
        self._last: Row | None = None

    def pages(self) -> Iterator[None]:
        """Read, and let others work between two pages."""
        while self._state.seq < self._seq:
            after = self._state.seq
            for row in self._log.read(self._session, after, min(PAGE, self._seq - after)):
                self._take(row)
            yield

    def _take(self, row: Row) -> None:
        try:
            self._state = evolve(self._state, row.event)
        except IllegalEvent as error:
            raise Misuse(f"session {self._session!r} cannot be forked there: {error}") from error
        self._last = row
        if row.event.kind in COPIED:
            self._rows.append(row)
        elif isinstance(row.event, ApprovalRequested):
            self._asked[row.event.call_id] = row.event
        elif isinstance(row.event, SessionStarted):
            self._begun = row.event

    def fork(self, owner: str, code_version: str, actor: str) -> Fork:
        """The input that makes the fork."""
        with contextlib.suppress(CorruptLog):  # what comes after may be damaged
            while self._state.open_calls:
                (row,) = self._log.read(self._session, self._state.seq, 1) or (None,)
                if row is None or not belongs(row):
                    break
                self._take(row)
        assert self._last is not None, "no page was read"
        assert self._begun is not None
        parent = Parent(session=self._session, seq=self._last.seq, hash=self._last.hash.hex())
        owner = owner or self._begun.owner
        return Fork(
            parent, self._begun, tuple(self._rows), self._asked, owner, code_version, actor or f"person:{owner}"
        )  # fmt: skip


def lands(log: EventLog, session: str, seq: int, at: int) -> bool:
    """Whether a fork of `session` at `seq` leaves it at `at`.

    Raises:
        CorruptLog: a row between them cannot be read.
    """
    return seq <= at and all(belongs(row) for row in (log.read(session, seq, at - seq) if seq < at else ()))


async def read_parent(log: SQLiteLog, session: str, seq: int) -> Reading:
    """The parent, read so that other sessions are served in between.

    Raises:
        UnknownSession, Misuse: there is no such row. CorruptLog: a row up to it cannot be read.
    """
    reading = Reading(log, session, seq)
    for _ in reading.pages():
        await asyncio.sleep(0)
    return reading


def fork_log(
    log: SQLiteLog, session: str, seq: int, name: str, *, owner: str, actor: str, writer: str, code_version: str,
    now: int, new_id: Callable[[str], str],
) -> Session:  # fmt: skip
    """Fork a session of a log without an engine; what the fork owes is done when an engine opens it.

    Raises:
        UnknownSession, Misuse: there is no such row, or the new id is taken. CorruptLog: a row cannot be read.
        StorageError: nothing was written.
    """
    reading = Reading(log, session, seq)
    for _ in reading.pages():
        pass
    head = log.head(name)
    if head is not None:
        raise Misuse(f"session {name!r} exists already: choose another id")
    decision = decide(Session(id=name), reading.fork(owner, code_version, actor), now, new_id)
    if decision.refusal is not None:
        raise Misuse(decision.refusal.why)
    drafts = [
        Draft(state, now, by, event)
        for event, by, state in zip(decision.events, decision.by, decision.states, strict=True)
    ]
    log.append(name, 0, log.lease(name, writer).result(), drafts).result()
    return decision.session
