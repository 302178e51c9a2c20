"""The append of rows as a job of the writer: checks, chain, records."""

import os
from collections.abc import Sequence

from ..fsm.errors import CommandReused, Conflict, Error, Fenced, Misuse, StaleVersion
from ..fsm.events import Row
from ..fsm.states import State
from .base import Command, Draft, Then
from .chain import body_hash, link
from .codec import encode
from .driver import CONSTRAINT, code_of
from .jobs import Job, Tip, Transaction

# Integers of SQLite have 64 bits.
_LARGEST = 2**63 - 1
# A dict is looked up faster than `value` of an enum.
_TEXT = {state: state.value for state in State}


def append_job(
    session: str,
    expected_seq: int,
    epoch: int,
    drafts: Sequence[Draft],
    command: Command | None,
    then: Then | None = None,
) -> Job[tuple[Row, ...]]:
    """The job that appends these rows; bodies are encoded here, in the caller's thread.

    Raises:
        Misuse: there is nothing to append, or a draft has no stored form.
    """
    _check(session, drafts, command)
    bodies = [encode(draft.event) for draft in drafts]
    names = (command.id, command.digest) if command else (None, None)

    def apply(tx: Transaction) -> tuple[Row, ...]:
        newest = tx.lease(session)
        if newest is None or newest[0] != epoch:
            raise _fenced(session, epoch, newest)
        tip = tx.tip(session)
        if tip.seq != expected_seq:
            raise _stale(tx, session, expected_seq, tip.seq, command)
        return _rows(tx, tip, session, drafts, bodies, *names)

    def explain(tx: Transaction, error: BaseException) -> Error | None:
        if code_of(error) != CONSTRAINT:
            return None
        seq = tx.tip(session).seq
        if seq != expected_seq or (command and _digest_of(tx, session, command.id) is not None):
            return _stale(tx, session, expected_seq, seq, command)
        if "events_resolution" in str(error) or "events_start" in str(error):
            what = "this request is resolved" if "resolution" in str(error) else "this attempt of the call is started"
            return Conflict(f"session {session!r}: {what} already; read the log and decide again")
        return None

    return Job(apply, explain, len(drafts), then)


def _check(session: str, drafts: Sequence[Draft], command: Command | None) -> None:
    if not drafts:
        raise Misuse(f"nothing to append to session {session!r}: give at least one draft")
    if not session:
        raise Misuse("a session needs an id that is not empty")
    texts = session + "".join([draft.actor for draft in drafts])
    if command is not None:
        texts += command.id + command.digest
    if not texts.isascii():
        try:
            texts.encode()
        except UnicodeEncodeError as error:
            raise Misuse(f"session {session!r}: an id or actor is no Unicode text ({error}); clean it first") from error
    for draft in drafts:
        if not 0 <= draft.at <= _LARGEST:
            raise Misuse(f"at {draft.at} is no time: give milliseconds since 1970 UTC")


def _rows(
    tx: Transaction,
    tip: Tip,
    session: str,
    drafts: Sequence[Draft],
    bodies: Sequence[str],
    *names: str | None,
) -> tuple[Row, ...]:
    seq, digest = tip.seq, tip.hash
    last = seq + len(drafts)
    # The driver takes a bytearray as it is, but looks for an adapter for bytes, which costs more than the rest.
    salts = bytearray(os.urandom(16 * len(drafts)))
    rows: list[Row] = []
    for (state, at, actor, event), body in zip(drafts, bodies, strict=True):
        seq += 1
        salt, kind, v = salts[16 * len(rows) : 16 * len(rows) + 16], event.kind, event.v
        # The command stands on the last row of its append: one row per command, and `applied` finds that seq.
        name, content = names if seq == last else (None, None)
        header = (session, seq, _TEXT[state], kind, v, at, actor, name, content)
        digest = link(digest, header, body_hash(salt, body))
        if name is None:
            tx.records.append((*header[:7], body, salt, bytearray(digest)))
        else:
            tx.commanded.append((*header, body, salt, bytearray(digest)))
        rows.append(Row(session, seq, state, at, actor, event, name, digest))
    tx.moved[session] = Tip(seq, digest)
    return tuple(rows)


def _digest_of(tx: Transaction, session: str, command_id: str) -> str | None:
    row = tx.db.conn.execute(
        "SELECT command_digest FROM events WHERE session = ? AND command_id = ?", (session, command_id)
    ).fetchone()
    return None if row is None else str(row[0])


def _fenced(session: str, epoch: int, newest: tuple[int, str] | None) -> Fenced:
    if newest is None:
        return Fenced(f"session {session!r} has no lease: take one before the first append")
    return Fenced(
        f"session {session!r}: epoch {epoch} is not the newest, {newest[1]!r} holds epoch {newest[0]}; "
        f"drop the session, or take a new lease and read it again"
    )


def _stale(tx: Transaction, session: str, expected: int, seq: int, command: Command | None) -> Conflict:
    if command is not None:
        there = _digest_of(tx, session, command.id)
        if there is not None and there != command.digest:
            return CommandReused(
                f"session {session!r}: command id {command.id!r} was used with other content: use a new id"
            )
    return StaleVersion(
        f"session {session!r}: expected seq {expected}, the head is {seq}; read the head and decide again"
    )
