"""What the tests of the log share: a conversation as drafts, child processes, raw changes of the file."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnlog.fsm.canonical import digest
from turnlog.fsm.events import (
    AgentSpec,
    ApprovalRequested,
    ApprovalResolved,
    ApprovalsSettled,
    CallRecord,
    Event,
    MessageAdded,
    Row,
    SessionStarted,
    ToolReturned,
    ToolsCalled,
    ToolStarted,
    TurnInterrupted,
)
from turnlog.fsm.states import State
from turnlog.store import Command, Draft, SQLiteLog
from turnlog.store.driver import sqlite3

ROOT = Path(__file__).resolve().parents[2]
NOW = 1_700_000_000_000
DIGEST = digest({"amount": 5})


def draft(event: Event, state: State = State.SUCCESS, actor: str = "agent:bot", at: int = NOW) -> Draft:
    return Draft(state, at, actor, event)


def started(owner: str = "ann") -> Draft:
    agents = (AgentSpec(name="user", interrupt="always"), AgentSpec(name="bot", model="m", tools=("pay",)))
    return draft(SessionStarted(owner=owner, agents=agents), State.INTERRUPT, f"person:{owner}")


def message(number: int = 0, text: str = "hello", sender: str = "user") -> Draft:
    return draft(MessageAdded(message_id=f"m{number}", sender=sender, recipient="bot", text=text, by="person"))


def requested(request: str = "r1", call: str = "c1") -> Draft:
    event = ApprovalRequested(request_id=request, call_id=call, tool="pay", arguments={"amount": 5}, digest=DIGEST)
    return draft(event, State.AWAITING_APPROVAL)


def resolved(
    request: str = "r1", call: str = "c1", via: Any = "person", state: State = State.AWAITING_APPROVAL
) -> Draft:
    event = ApprovalResolved(
        request_id=request,
        call_id=call,
        tool="pay",
        outcome="approved",
        via=via,
        actor="person:ann",
        decided_at=NOW,
        digest=DIGEST,
        rule="g1" if via == "grant" else "",
    )
    return draft(event, state, "person:ann")


def tool_started(call: str = "c1", attempt: int = 1) -> Draft:
    return draft(ToolStarted(call_id=call, tool="pay", attempt=attempt, key="k", digest=DIGEST, permit="r1"))


def conversation() -> list[Draft]:
    """Ten legal rows: a message, a call that is approved and run, an answer, the person's turn."""
    call = CallRecord(id="c1", tool="pay", arguments='{"amount":5}', parsed={"amount": 5}, digest=DIGEST)
    return [
        started(),
        message(1, "pay five"),
        draft(ToolsCalled(message_id="m2", speaker="bot", listener="user", calls=(call,))),
        requested(),
        resolved(),
        draft(ApprovalsSettled(), State.SUCCESS, "engine"),
        tool_started(),
        draft(ToolReturned(call_id="c1", outcome="ok", content="paid")),
        message(3, "done", "bot"),
        draft(TurnInterrupted(reason="user_turn", node="user", peer="bot"), State.INTERRUPT, "engine"),
    ]


def fill(
    log: SQLiteLog, session: str, drafts: Sequence[Draft] | None = None, command: Command | None = None
) -> list[Row]:
    """Append to a session in one go, under a lease of its own."""
    epoch = log.lease(session, "test").result()
    head = log.head(session)
    rows = log.append(session, head.seq if head else 0, epoch, drafts or conversation(), command).result()
    return list(rows)


def tamper(path: Path, *statements: str, keep_triggers: bool = False) -> None:
    """Change the file behind the log's back, as somebody with an SQLite shell would."""
    conn = sqlite3.connect(path, isolation_level=None)
    try:
        triggers = [] if keep_triggers else _triggers(conn)
        for name, _ in triggers:
            conn.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            conn.execute(statement)
        for _, sql in triggers:
            conn.execute(sql)
    finally:
        conn.close()


def _triggers(conn: Any) -> list[tuple[str, str]]:
    return list(conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())


def child(code: str, *arguments: str, wrapper: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """A Python process that runs `code` with turnlog importable; it speaks through pipes."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    return subprocess.Popen(
        [*wrapper, sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )


def kill(process: "subprocess.Popen[str]") -> None:
    """SIGKILL, and wait until it is gone."""
    process.send_signal(signal.SIGKILL)
    process.communicate()


def integrity(path: Path) -> list[Any]:
    """What SQLite itself finds wrong with the file: ['ok'] when nothing."""
    conn = sqlite3.connect(path)
    try:
        return [row[0] for row in conn.execute("PRAGMA integrity_check").fetchall()]
    finally:
        conn.close()
