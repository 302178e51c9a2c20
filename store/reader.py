"""Reading a log: rows, heads, blobs, and what the command line and the audit list."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from ..fsm.errors import BadBody, CorruptLog, GapInLog, Misuse
from ..fsm.events import KINDS, Parent, Row, SessionStarted
from ..fsm.states import State
from .base import Applied, Head
from .codec import decode, known
from .pages import Pages
from .schema import COLUMNS, GRANT_USES

_COLUMNS = ", ".join(COLUMNS)
_PAGE = 500
# A session whose id was changed to bytes that are no UTF-8 must be listed too; such an id is bound as bytes.
_ID = "CAST(? AS TEXT)"
_log = logging.getLogger(__name__)


class RawRow(NamedTuple):
    """A row as it is stored; a text that is no UTF-8 carries its bytes as surrogate escapes."""

    session: str
    seq: int
    state: str
    kind: str
    v: int
    at: int
    actor: str
    command_id: str | None
    command_digest: str | None
    body: str | None
    salt: bytes | None
    body_hash: bytes | None
    hash: bytes


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that cannot be decoded, and why."""

    session: str
    seq: int
    kind: str
    why: str


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A line of the list of sessions. Times are milliseconds; `broken` says why it cannot be read, or "".

    A fork names the session and the seq that it left.
    """

    id: str
    first_at: int
    last_at: int
    seq: int
    state: str
    owner: str
    broken: str = ""
    parent: str = ""
    parent_seq: int = 0


def decode_row(raw: RawRow) -> Row:
    """The row with its event.

    Raises:
        BadBody, UnknownKind: names session and seq.
    """
    try:
        event, state = decode(raw.kind, raw.v, raw.body), State(raw.state)
    except CorruptLog as error:
        raise type(error)(f"session {raw.session!r} seq {raw.seq}: {error}") from error
    except ValueError as error:
        raise _no_state(raw.session, raw.seq, raw.state) from error
    return Row(raw.session, raw.seq, state, raw.at, raw.actor, event, raw.command_id, raw.hash)


class LogReader(Pages):
    """Everything that can be read from a log."""

    def raw(self, session: str, after: int = 0, limit: int = _PAGE) -> list[RawRow]:
        """A page of rows as stored, whatever is wrong with them; seqs are > after, in order."""
        return self._rows(
            f"FROM events WHERE session = {_ID} AND seq > ? ORDER BY seq LIMIT ?", (_id(session), after, limit)
        )

    def _rows(self, source: str, args: Sequence[Any]) -> list[RawRow]:
        return [RawRow._make(row) for row in self.fetch(f"SELECT {_COLUMNS} {source}", args)]

    def read(self, session: str, after: int = 0, limit: int = _PAGE) -> list[Row]:
        """A page of rows with seq > after.

        Raises:
            GapInLog, BadBody, UnknownKind: names session and seq; `read_lenient` shows the other rows.
        """
        raw = self.raw(session, after, limit)
        _refuse_gap(session, after, raw)
        return [decode_row(row) for row in raw]

    def read_lenient(self, session: str, after: int = 0, limit: int = _PAGE) -> list[Row | Unreadable]:
        """The same page, but a row that cannot be decoded is an `Unreadable`, and a gap is passed over."""
        page: list[Row | Unreadable] = []
        for raw in self.raw(session, after, limit):
            try:
                page.append(decode_row(raw))
            except CorruptLog as error:
                page.append(Unreadable(session, raw.seq, raw.kind, str(error)))
        return page

    def head(self, session: str) -> Head | None:
        """The last row of a session; None for one without rows."""
        found = self.fetch(
            "SELECT e.seq, e.hash, e.state, coalesce(l.epoch, 0), coalesce(l.owner, '') "
            "FROM events e LEFT JOIN leases l ON l.session = e.session "
            "WHERE e.session = ? ORDER BY e.seq DESC LIMIT 1",
            (session,),
        )
        if not found:
            return None
        seq, digest, state, epoch, owner = found[0]
        try:
            return Head(seq, digest, State(state), epoch, owner)
        except ValueError as error:
            raise _no_state(session, seq, state) from error

    def applied(self, session: str, command_id: str) -> Applied | None:
        """Where a command was applied: the last seq of its append."""
        sql = "SELECT seq, command_digest FROM events WHERE session = ? AND command_id = ?"
        found = self.fetch(sql, (session, command_id))
        return Applied(*found[0]) if found else None

    def blob(self, digest: str) -> bytes:
        """Bytes by digest.

        Raises:
            CorruptLog: they are missing or not those that were put.
        """
        found = self.fetch("SELECT data FROM blobs WHERE digest = ?", (digest,))
        if not found:
            raise CorruptLog(f"blob {digest} is not in {self.path}: check the digest, or restore a backup")
        data = bytes(found[0][0])
        if sha256(data).hexdigest() != digest:
            raise CorruptLog(f"blob {digest} in {self.path} was changed, its hash differs: restore a backup")
        return data

    def snapshot(self, session: str, code_version: str = "") -> tuple[int, bytes, str] | None:
        """(seq, hash, body) of the snapshot, if its row still has that hash and the same code made it."""
        found = self.fetch(
            "SELECT s.seq, s.hash, s.body FROM snapshots s "
            "JOIN events e ON e.session = s.session AND e.seq = s.seq AND e.hash = s.hash "
            "WHERE s.session = ? AND s.code_version = ?",
            (session, code_version),
        )
        if not found:
            return None
        seq, digest, body = found[0]
        return seq, digest, body

    def rows_of_kinds(
        self,
        kinds: Sequence[str],
        session: str | None = None,
        after: tuple[str, int] | None = None,
        limit: int = _PAGE,
    ) -> list[Row]:
        """A page of rows of some kinds, ordered by (session, seq), after a (session, seq).

        Over all sessions an index serves approvals and grants; other kinds are found by reading every row.

        Raises:
            Misuse: no such kind.
            BadBody, UnknownKind: names session and seq.
        """
        for kind in kinds:
            if kind not in KINDS:
                raise Misuse(f"no kind {kind!r}: use names such as {', '.join(list(KINDS)[:3])}")
        scope, args = "", []  # type: str, list[Any]
        if session is not None:
            scope, args = " AND session = ?", [session]
        if after is not None:
            scope += " AND (session, seq) > (?, ?)"
            args += after
        # One select per kind, with the kind as a literal: only so SQLite sees that the partial index serves.
        found = [
            row
            for kind in kinds
            for row in self._rows(
                f"FROM events WHERE kind = '{kind}'{scope} ORDER BY session, seq LIMIT ?", (*args, limit)
            )
        ]
        return [decode_row(row) for row in sorted(found, key=_place)[:limit]]

    def grants(self) -> list[Row]:
        """Every grant recorded or revoked and every approval that a grant resolved, by (session, seq).

        When one of these rows cannot be read, it may be a revocation or the last allowed use of any grant. Then
        no grant is given out (people are asked instead), and a warning names the row.
        """
        granted = [f"events WHERE kind = '{kind}'" for kind in ("grant_recorded", "grant_revoked")]
        raw: list[RawRow] = []
        for source in (*granted, GRANT_USES):
            page = f"FROM {source} AND (session, seq) > (?, ?) ORDER BY session, seq LIMIT {_PAGE}"
            place = ("", 0)
            while rows := self._rows(page, place):
                raw += rows
                place = _place(rows[-1])
        try:
            return [decode_row(row) for row in sorted(raw, key=_place)]
        except CorruptLog as error:
            _log.warning("standing grants are not used until this is repaired: %s", error)
            return []

    def session_ids(self, after: str = "") -> Iterator[str]:
        """Every session with an id > after that has rows, in order; each is one step of the key."""
        while found := self._ids(after, _PAGE):
            yield from found
            after = found[-1]

    def last(self, session: str) -> RawRow:
        """The last row of a session that has rows, as stored."""
        return self._rows(f"FROM events WHERE session = {_ID} ORDER BY seq DESC LIMIT 1", (_id(session),))[0]

    def blob_digests(self, after: str = "") -> Iterator[str]:
        """The digest of every blob, in order."""
        while page := self.fetch("SELECT digest FROM blobs WHERE digest > ? ORDER BY digest LIMIT 500", (after,)):
            for (after,) in page:  # noqa: PLR1704 - the last one is where the next page begins
                yield after

    def _ids(self, after: str, limit: int) -> list[str]:
        sql = """WITH RECURSIVE s(id) AS (
            SELECT min(session) FROM events WHERE session > CAST(? AS TEXT)
            UNION ALL
            SELECT (SELECT min(session) FROM events WHERE session > s.id) FROM s
            WHERE s.id IS NOT NULL LIMIT ?
        ) SELECT id FROM s WHERE id IS NOT NULL"""
        return [str(row[0]) for row in self.fetch(sql, (_id(after), limit))]

    def sessions(self, after: str = "", limit: int = 100, *, thorough: bool = False) -> list[SessionInfo]:
        """A page of sessions with id > after, in order of id.

        What is `broken` is found by decoding the first and the last row. With `thorough` a missing row and
        unknown kinds between them are found too, at the price of a step over every row.
        """
        return [self._info(session, thorough=thorough) for session in self._ids(after, limit)]

    def _info(self, session: str, *, thorough: bool) -> SessionInfo:
        first = self.raw(session, after=-(2**63), limit=1)
        last = self.last(session)
        owner = broken = ""
        parent: Parent | None = None
        try:
            event = decode_row(first[0]).event
            if isinstance(event, SessionStarted):
                owner, parent = event.owner, event.parent
            _refuse_gap(session, 0, first)
            decode_row(last)
            if thorough:
                self._refuse_broken(session, last.seq)
        except CorruptLog as error:
            broken = str(error)
        whence = (parent.session, parent.seq) if parent is not None else ("", 0)
        return SessionInfo(session, first[0].at, last.at, last.seq, last.state, owner, broken, *whence)

    def _refuse_broken(self, session: str, head: int) -> None:
        if self.fetch("SELECT count(*) FROM events WHERE session = ?", (session,)) != [(head,)]:
            after = 0
            while page := self.raw(session, after):
                _refuse_gap(session, after, page)
                after = page[-1].seq
        each = "SELECT kind, v, min(seq) FROM events WHERE session = ? GROUP BY kind, v"
        for kind, v, seq in self.fetch(each, (session,)):
            try:
                known(kind, v)
            except CorruptLog as error:
                raise type(error)(f"session {session!r} seq {seq}: {error}") from error


def _id(session: str) -> str | bytes:
    return session if session.isascii() else session.encode("utf-8", "surrogateescape")


def _place(row: RawRow) -> tuple[str, int]:
    return row.session, row.seq


def _no_state(session: str, seq: int, state: str) -> BadBody:
    return BadBody(f"session {session!r} seq {seq}: {state!r} is no state; run verify, restore a backup")


def _refuse_gap(session: str, after: int, page: Sequence[RawRow]) -> None:
    for expected, row in enumerate(page, after + 1):
        if row.seq != expected:
            raise GapInLog(
                f"session {session!r} seq {expected} is missing, seq {row.seq} follows: run verify, restore a backup"
            )
