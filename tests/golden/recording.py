"""Recorded logs, kept for ever: one JSON object a line, the first says what the recording must come to.

    {"recorded": "...", "session": "...", "seq": 27, "state": "interrupt", "hash": "...", "sent": ["...", ...]}
    {"seq": 1, "state": ..., "kind": ..., "v": 1, "at": ..., "actor": ..., "command_id": ..., "command_digest": ...,
     "body": ..., "salt": "...", "hash": "..."}

`sent` are digests of what the model was sent before each of its completions, taken while it ran.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnlog.engine.models.base import ModelCall
from turnlog.fsm.canonical import digest
from turnlog.store import LogReader

HERE = Path(__file__).resolve().parent
COLUMNS = ("seq", "state", "kind", "v", "at", "actor", "command_id", "command_digest", "body", "salt", "hash")


def recordings() -> list[Path]:
    """All recordings."""
    return sorted(HERE.glob("*.jsonl"))


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The promise of a recording, and its rows."""
    head, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return head, rows


def sent_digest(call: ModelCall) -> str:
    """The digest of the system prompt and messages that a model was sent."""
    messages = [{"kind": type(message).__name__, **asdict(message)} for message in call.messages]
    return digest({"system": call.system, "messages": messages})


def write(path: Path, log: LogReader, session: str, recorded: str, sent: list[str]) -> None:
    """Record a session."""
    rows = list(_rows(log, session))
    head = {"recorded": recorded, "session": session, "sent": sent}
    head |= {key: rows[-1][key] for key in ("seq", "state", "hash")}
    path.write_text("".join(f"{json.dumps(one)}\n" for one in (head, *rows)), encoding="utf-8")


def _rows(log: LogReader, session: str) -> Iterator[dict[str, Any]]:
    after = 0
    while page := log.raw(session, after):
        after = page[-1].seq
        for raw in page:
            values = {name: getattr(raw, name) for name in COLUMNS}
            yield {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}
