"""Reading a log: one read-only connection, pages, no cursor that stays open.

A page is fetched whole inside one call, so a slow consumer never holds a read transaction and never keeps the
write-ahead log from being folded into the file. A reader works on a file that another process is writing.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sqlite_utils import Database

from ..fsm.errors import BadBody, CorruptLog, GapInLog, Misuse, StorageError
from ..fsm.events import KINDS, Row, SessionStarted
from ..fsm.states import State
from .base import Applied, Head
from .codec import decode
from .driver import CANTOPEN, code_of, sqlite3, translate
from .schema import COLUMNS, GRANT_USE, MIGRATIONS, check

_COLUMNS = ", ".join(COLUMNS)
# Reads wait for the rare moment in which SQLite recovers a file; 5 seconds.
_BUSY = 5.0


class RawRow(NamedTuple):
    """A row as it is stored; texts that are no UTF-8 carry their bytes as surrogate escapes."""

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
    """A line of the list of sessions. Times are milliseconds; `broken` says why it cannot be read whole, or is ""."""

    id: str
    first_at: int
    last_at: int
    seq: int
    state: str
    owner: str
    broken: str = ""


def rows_from(raw: Sequence[RawRow]) -> list[Row]:
    """Decode rows.

    Raises:
        BadBody, UnknownKind: names session and seq.
    """
    return [_row(row) for row in raw]


def _row(raw: RawRow) -> Row:
    try:
        event = decode(raw.kind, raw.v, raw.body)
        state = State(raw.state)
    except CorruptLog as error:
        raise type(error)(f"session {raw.session!r} seq {raw.seq}: {error}") from error
    except ValueError as error:
        raise BadBody(
            f"session {raw.session!r} seq {raw.seq}: {error}; run verify, restore a backup"
        ) from error
    return Row(raw.session, raw.seq, state, raw.at, raw.actor, event, raw.command_id, raw.hash)


class LogReader:
    """Reads one database file; may be used from any thread, one call at a time.

    Raises:
        StorageError: there is no such file, it is no turnlog log, or another release must open it first.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        if not self.path.is_file():
            raise StorageError(f"there is no log at {self.path}: check the path")
        self._lock = threading.Lock()
        try:
            self._db = self._open()
        except sqlite3.Error as error:
            raise translate(error, self.path, "cannot read") from error
        try:
            check(self._db, self.path)
            if MIGRATIONS.pending(self._db):
                raise StorageError(
                    f"{self.path} is empty or of an older release: open it once for writing, then read it"
                )
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> Database:
        for options in ("mode=ro", "immutable=1"):
            conn = sqlite3.connect(
                f"{self.path.as_uri()}?{options}",
                uri=True,
                timeout=_BUSY,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                conn.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
                return Database(conn, execute_plugins=False, recursive_triggers=False)
            except sqlite3.Error as error:
                conn.close()
                # In a folder that cannot be written there is no place for the shared memory of a write-ahead log.
                # Without such a log the file holds everything, and nobody can be writing it there.
                if code_of(error) != CANTOPEN or self._wal().exists() or options != "mode=ro":
                    raise
        raise AssertionError("unreachable: the second way returned or raised")

    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log now."""
        try:
            return self._wal().stat().st_size
        except FileNotFoundError:
            return 0

    def _fetch(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._db.conn.execute(sql, args).fetchall()
            except sqlite3.Error as error:
                raise translate(error, self.path, "cannot read") from error

    def raw(self, session: str, after: int = 0, limit: int = 500) -> list[RawRow]:
        """A page of rows as stored, whatever is wrong with them; seqs are > after, in order."""
        sql = f"SELECT {_COLUMNS} FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"  # noqa: S608 - own names
        return [RawRow(*row) for row in self._lenient(sql, (session, after, limit))]

    def _lenient(self, sql: str, args: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            conn = self._db.conn
            with contextlib.suppress(sqlite3.OperationalError):
                return conn.execute(sql, args).fetchall()
            # A text that is no UTF-8, or a failure that will be seen again.
            conn.text_factory = _escape
            try:
                return conn.execute(sql, args).fetchall()
            except sqlite3.Error as error:
                raise translate(error, self.path, "cannot read") from error
            finally:
                conn.text_factory = str

    def read(self, session: str, after: int = 0, limit: int = 500) -> list[Row]:
        """A page of rows with seq > after.

        Raises:
            GapInLog, BadBody, UnknownKind: names session and seq.
        """
        raw = self.raw(session, after, limit)
        _no_gap(session, after, raw)
        return rows_from(raw)

    def read_lenient(self, session: str, after: int = 0, limit: int = 500) -> list[Row | Unreadable]:
        """The same page, but a row that cannot be decoded is an `Unreadable`, and a gap is not refused."""
        page: list[Row | Unreadable] = []
        for raw in self.raw(session, after, limit):
            try:
                page.append(_row(raw))
            except CorruptLog as error:
                page.append(Unreadable(session, raw.seq, raw.kind, str(error)))
        return page

    def head(self, session: str) -> Head | None:
        """The last row of a session; None for one without rows."""
        found = self._fetch(
            "SELECT e.seq, e.hash, e.state, l.epoch, l.owner FROM events e LEFT JOIN leases l ON l.session = e.session "
            "WHERE e.session = ? ORDER BY e.seq DESC LIMIT 1",
            (session,),
        )
        if not found:
            return None
        seq, digest, state, epoch, owner = found[0]
        try:
            return Head(seq, digest, State(state), epoch or 0, owner or "")
        except ValueError as error:
            raise BadBody(f"session {session!r} seq {seq}: {error}; run verify, restore a backup") from error

    def applied(self, session: str, command_id: str) -> Applied | None:
        """Where a command was applied: the last seq of its append."""
        found = self._fetch(
            "SELECT seq, command_digest FROM events WHERE session = ? AND command_id = ?",
            (session, command_id),
        )
        return Applied(*found[0]) if found else None

    def blob(self, digest: str) -> bytes:
        """Bytes by digest.

        Raises:
            CorruptLog: they are missing or not those that were put.
        """
        found = self._fetch("SELECT data FROM blobs WHERE digest = ?", (digest,))
        if not found:
            raise CorruptLog(f"blob {digest} is not in {self.path}: check the digest, or restore a backup")
        data = bytes(found[0][0])
        if sha256(data).hexdigest() != digest:
            raise CorruptLog(f"blob {digest} in {self.path} was changed: its hash differs; restore a backup")
        return data

    def snapshot(self, session: str, code_version: str = "") -> tuple[int, bytes, str] | None:
        """(seq, hash, body) of the snapshot, if its row still has that hash and the same code made it."""
        found = self._fetch(
            "SELECT s.seq, s.hash, s.body FROM snapshots s JOIN events e "
            "ON e.session = s.session AND e.seq = s.seq AND e.hash = s.hash "
            "WHERE s.session = ? AND s.code_version = ?",
            (session, code_version),
        )
        return found[0] if found else None  # type: ignore[return-value]  # a row of three columns

    def rows_of_kinds(
        self,
        kinds: Sequence[str],
        session: str | None = None,
        after: tuple[str, int] | None = None,
        limit: int = 500,
    ) -> list[Row]:
        """A page of rows of some kinds, ordered by (session, seq), after a (session, seq).

        Over all sessions an index serves the approvals and the grants; other kinds are found by reading every row.

        Raises:
            Misuse: no such kind.
            BadBody: names session and seq.
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
        # One select per kind, with the kind as a literal: only so SQLite can prove that the partial index serves.
        each = (
            f"SELECT {_COLUMNS} FROM events WHERE kind = '%s'{scope} ORDER BY session, seq LIMIT {int(limit)}"  # noqa: S608 - own names
        )
        found = [RawRow(*row) for kind in kinds for row in self._lenient(each % kind, args)]
        return rows_from(sorted(found, key=lambda row: (row.session, row.seq))[:limit])

    def grants(self) -> list[Row]:
        """Every grant_recorded and grant_revoked, and every approval_resolved by a grant, by (session, seq)."""
        found = self._all_of_kinds(("grant_recorded", "grant_revoked"))
        sql = f"SELECT {_COLUMNS} FROM events WHERE {GRANT_USE} AND (session, seq) > (?, ?) ORDER BY session, seq LIMIT 500"  # noqa: S608 - own names
        after: tuple[str, int] = ("", 0)
        while page := [RawRow(*row) for row in self._lenient(sql, after)]:
            found += rows_from(page)
            after = page[-1].session, page[-1].seq
        return sorted(found, key=lambda row: (row.session, row.seq))

    def _all_of_kinds(self, kinds: Sequence[str]) -> list[Row]:
        found: list[Row] = []
        page = self.rows_of_kinds(kinds)
        while page:
            found += page
            page = self.rows_of_kinds(kinds, after=(page[-1].session, page[-1].seq))
        return found

    def session_ids(self) -> Iterator[str]:
        """Every session that has rows, in order; each is found by one step of the primary key."""
        after = ""
        while found := self._ids(after, 500):
            yield from found
            after = found[-1]

    def _ids(self, after: str, limit: int) -> list[str]:
        sql = (
            "WITH RECURSIVE s(id) AS (SELECT min(session) FROM events WHERE session > ? UNION ALL "
            "SELECT (SELECT min(session) FROM events WHERE session > s.id) FROM s WHERE s.id IS NOT NULL LIMIT ?) "
            "SELECT id FROM s WHERE id IS NOT NULL"
        )
        return [str(row[0]) for row in self._fetch(sql, (after, limit))]

    def sessions(self, after: str = "", limit: int = 100, *, thorough: bool = False) -> list[SessionInfo]:
        """A page of sessions with id > after, in order of id.

        `broken` is found by decoding the first and the last row; `thorough` also looks for a missing row and for
        unknown kinds between them, at the price of stepping over every row.
        """
        return [self._info(session, thorough=thorough) for session in self._ids(after, limit)]

    def _info(self, session: str, *, thorough: bool) -> SessionInfo:
        first = self.raw(session, limit=1)[0]
        sql = f"SELECT {_COLUMNS} FROM events WHERE session = ? ORDER BY seq DESC LIMIT 1"  # noqa: S608 - own names
        last = RawRow(*self._lenient(sql, (session,))[0])
        owner = broken = ""
        try:
            _no_gap(session, 0, [first])
            event = _row(first).event
            owner = event.owner if isinstance(event, SessionStarted) else ""
            _row(last)
            if thorough:
                self._thorough(session, last.seq)
        except CorruptLog as error:
            broken = str(error)
        return SessionInfo(session, first.at, last.at, last.seq, last.state, owner, broken)

    def _thorough(self, session: str, head: int) -> None:
        if self._fetch("SELECT count(*) FROM events WHERE session = ?", (session,))[0][0] != head:
            after = 0
            while page := self.raw(session, after):
                _no_gap(session, after, page)
                after = page[-1].seq
        for kind, v, seq in self._fetch(
            "SELECT kind, v, min(seq) FROM events WHERE session = ? GROUP BY kind, v", (session,)
        ):
            with contextlib.suppress(BadBody):
                _known(session, kind, v, seq)

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._db.close()


def _known(session: str, kind: str, v: int, seq: int) -> None:
    try:
        decode(kind, v, None)
    except BadBody:
        return
    except CorruptLog as error:
        raise type(error)(f"session {session!r} seq {seq}: {error}") from error


def _no_gap(session: str, after: int, page: Sequence[RawRow]) -> None:
    for expected, row in enumerate(page, after + 1):
        if row.seq != expected:
            raise GapInLog(
                f"session {session!r} seq {expected} is missing, seq {row.seq} follows; run verify, restore a backup"
            )


def _escape(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
