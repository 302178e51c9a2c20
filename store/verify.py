"""Proof that a log is what was written: hashes, order, the table, bodies, commands, and heads that were kept.

An edit of any column is named at its row. Whoever edits a row *and* computes its hash anew is found at the next
row. Whoever computes all later hashes anew, or cuts the tail, is found by heads kept elsewhere (`heads`).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..fsm.canonical import read_json
from ..fsm.errors import BadBody, CorruptLog
from ..fsm.session import Session, SnapshotOf, replay
from ..fsm.states import State
from ..fsm.table import NEXT
from .base import code_version
from .chain import body_hash, link, origin
from .codec import decode
from .reader import LogReader, RawRow
from .schema import INDEXES, TRIGGERS

Heads = Mapping[str, tuple[int, str]]
_HASH = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Problem:
    """The first bad row of a session, or what is wrong with the file (then the session is "")."""

    session: str
    seq: int
    what: str


@dataclass(slots=True)
class Report:
    """What was looked at, and what is wrong. `bad` has the first bad row of each broken session."""

    sessions: int = 0
    rows: int = 0
    blobs: int = 0
    bad: dict[str, Problem] = field(default_factory=dict)
    file: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return not self.bad and not self.file

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong, the file first."""
        return [*self.file, *self.bad.values()]


def heads(source: str | Path | LogReader) -> dict[str, tuple[int, str]]:
    """(seq, hash in hexadecimal) of every session: keep it where a writer of the database cannot reach."""
    if not isinstance(source, LogReader):
        with LogReader(source) as reader:
            return heads(reader)
    found = {}
    for session in source.session_ids():
        last = source.last(session)
        found[session] = last.seq, last.hash.hex()
    return found


def parse_heads(data: bytes) -> dict[str, tuple[int, str]]:
    """Heads that were kept as JSON, `{session: [seq, hash in hexadecimal]}`; there may be none.

    Raises:
        ValueError: it is something else; names what.
    """
    try:
        found = read_json(data)
    except ValueError as error:
        raise ValueError(f"it is no JSON ({error})") from error
    if isinstance(found, dict):
        return {session: _head(session, head) for session, head in found.items()}
    raise ValueError(f"it is {json.dumps(found):.40}, and not an object of sessions with their heads")


def _head(session: str, head: Any) -> tuple[int, str]:
    match head:
        case [int(seq), str(digest)] if not isinstance(seq, bool) and seq > 0 and _HASH.fullmatch(digest):
            return seq, digest
    raise ValueError(f"the head of session {session!r} is {json.dumps(head):.80}, and not [seq, hash]")


def verify(source: str | Path | LogReader, kept: Heads | None = None) -> Report:
    """Check every row of every session, in pages; another process may be writing meanwhile.

    `kept` is what `heads` gave earlier. A session that has grown since is fine, one that has shrunk is not.
    """
    if not isinstance(source, LogReader):
        with LogReader(source) as reader:
            return verify(reader, kept)
    report = Report(file=_file(source))
    seen = set()
    for session in source.session_ids():
        report.sessions += 1
        if kept and session in kept:
            seen.add(session)
        problem = _session(source, session, (kept or {}).get(session), report)
        if problem is not None:
            report.bad[session] = problem
    for session in sorted(set(kept or {}) - seen):
        report.bad[session] = Problem(session, 1, "every row of this session is missing, but its head was kept")
    for digest in source.blob_digests():
        report.blobs += 1
        try:
            source.blob(digest)
        except CorruptLog as error:
            report.file.append(Problem("", 0, str(error)))
    return report


def _file(source: LogReader) -> list[Problem]:
    there = {str(name) for (name,) in source.fetch("SELECT name FROM sqlite_master WHERE type IN ('trigger', 'index')")}
    missing = sorted({*TRIGGERS, *INDEXES} - there)
    return [Problem("", 0, f"{name} is missing: rows could be changed or doubled unseen") for name in missing]


def _session(source: LogReader, session: str, kept: tuple[int, str] | None, report: Report) -> Problem | None:
    previous, state, expected = origin(session), State.INTERRUPT, 1
    page = source.raw(session, -(2**63))
    while page:
        for row in page:
            what = _row(row, expected, previous, state)
            if what is None and kept and row.seq == kept[0] and row.hash.hex() != kept[1]:
                what = "the hash differs from the head that was kept: this row or one before it was written anew"
            if what is not None:
                return Problem(session, min(row.seq, expected), what)
            previous, state, expected = row.hash, State(row.state), expected + 1
            report.rows += 1
        page = source.raw(session, page[-1].seq)
    if kept and kept[0] >= expected:
        return Problem(session, expected, f"the tail is cut: seq {kept[0]} was kept, the last row is {expected - 1}")
    return _commands(source, session) or _snapshot(source, session)


def _snapshot(source: LogReader, session: str) -> Problem | None:
    """A snapshot is believed when a session is opened, so it must be what its rows come to."""
    found = source.snapshot(session, code_version())
    if found is None:
        return None
    seq, _, body = found
    folded = Session(id=session)
    try:
        claimed = SnapshotOf.validate_json(body)
        while folded.seq < seq:
            folded = replay(source.read(session, folded.seq), folded, seq)
    except ValidationError:
        return None  # nobody believes what is no session
    except BadBody:
        return None  # a body was erased: its rows can be folded no more
    if claimed == folded:
        return None
    return Problem(session, seq, "the snapshot here is not what the rows come to: grants and states in it are made up")


def _row(row: RawRow, expected: int, previous: bytes, state: State) -> str | None:
    if row.seq > expected:
        return f"this row is missing, seq {row.seq} follows"
    if row.seq < expected:
        return f"out of order: seq {expected} was to come"
    if row.body is None:
        if row.body_hash is None:
            return "body_hash: the body is missing and was not erased, because no hash of it is kept"
        if row.salt is not None:
            return "salt: it is kept although the body was erased"
        content = row.body_hash
    else:
        if row.body_hash is not None:
            return "body_hash: it is set although the body is there"
        if row.salt is None:
            return "salt: it is missing"
        content = body_hash(row.salt, row.body)
    if link(previous, row[:9], content) != row.hash:
        return "the hash does not fit: a column of this row was changed, or another row put in its place"
    if (row.command_id is None) != (row.command_digest is None):
        return "command_id and command_digest belong together, one is missing"
    return _meaning(row, state)


def _meaning(row: RawRow, state: State) -> str | None:
    target = NEXT.get((state, row.kind))
    try:
        decode(row.kind, row.v, row.body)
    except BadBody as error:
        if row.body is not None:
            return str(error)
    except CorruptLog as error:
        return str(error)
    if target is None:
        return f"illegal transition: the table has no row {state} --{row.kind}-->"
    if target != row.state:
        return f"state: {state} --{row.kind}--> leads to {target}, the row says {row.state!r}"
    return None


def _commands(source: LogReader, session: str) -> Problem | None:
    twice = source.fetch(
        "SELECT command_id, max(seq) FROM events WHERE session = ? AND command_id IS NOT NULL "
        "GROUP BY command_id HAVING count(*) > 1 ORDER BY 2 LIMIT 1",
        (session,),
    )
    return Problem(session, twice[0][1], f"command id {twice[0][0]!r} was used before") if twice else None
