"""Recorded logs of every release fold, verify and rebuild as they did on the day they were made."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.golden.recording import read, recordings, sent_digest
from turnlog.engine.context import rebuild
from turnlog.fsm import Row, State, evolve, replay
from turnlog.fsm.session import Session
from turnlog.store.chain import body_hash, link, origin
from turnlog.store.codec import decode

ALL = pytest.mark.parametrize("path", recordings(), ids=lambda path: path.stem)


def rows_of(session: str, stored: list[dict[str, Any]]) -> list[Row]:
    return [
        Row(
            session, one["seq"], State(one["state"]), one["at"], one["actor"],
            decode(one["kind"], one["v"], one["body"]), one["command_id"], bytes.fromhex(one["hash"]),
        )
        for one in stored
    ]  # fmt: skip


class Recorded:
    """As much of a log as `rebuild` reads."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def read(self, session: str, after: int = 0, limit: int = 500) -> list[Row]:
        assert session == self._rows[0].session
        return self._rows[after : after + limit]


def test_there_is_a_recording_of_a_real_model() -> None:
    assert [path for path in recordings() if "smollm2" in path.stem]


@ALL
def test_a_recording_folds_to_the_state_it_was_left_in(path: Path) -> None:
    head, stored = read(path)
    session = Session(id=head["session"])
    for row in rows_of(head["session"], stored):
        session = evolve(session, row.event)
        assert (session.seq, session.state) == (row.seq, row.state)
    assert (session.seq, session.state) == (head["seq"], head["state"])


@ALL
def test_the_chain_of_a_recording_holds(path: Path) -> None:
    head, stored = read(path)
    name = head["session"]
    previous = origin(name)
    for one in stored:
        columns = (
            name, one["seq"], one["state"], one["kind"], one["v"], one["at"], one["actor"], one["command_id"],
            one["command_digest"],
        )  # fmt: skip
        previous = link(previous, columns, body_hash(bytes.fromhex(one["salt"]), one["body"]))
        assert previous.hex() == one["hash"], f"seq {one['seq']}"
    assert previous.hex() == head["hash"]


@ALL
def test_what_the_model_was_sent_is_rebuilt_from_the_recording_alone(path: Path) -> None:
    head, stored = read(path)
    rows = rows_of(head["session"], stored)
    made = [row for row in rows if row.event.kind in ("message_added", "tools_called") and row.event.request]
    log: Any = Recorded(rows)
    assert [sent_digest(rebuild(log, replay(rows), row)) for row in made] == head["sent"]


@ALL
def test_a_changed_recording_is_noticed(path: Path) -> None:
    """The checks above can fail: another body gives another hash."""
    head, stored = read(path)
    first = stored[0]
    salt = bytes.fromhex(first["salt"])
    assert body_hash(salt, first["body"] + " ") != body_hash(salt, first["body"])
    assert sha256(head["session"].encode()).digest() != origin(head["session"])
