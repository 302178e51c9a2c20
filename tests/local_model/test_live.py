"""A real model drives turnlog: SmolLM2-135M streams a conversation, is killed in the middle of a reply, and goes on.

TURNLOG_RECORD=tests/golden/NAME.jsonl keeps the log of the run as a recording.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.golden.recording import write
from tests.local_model.server import local_server
from turnlog.fsm import State, replay
from turnlog.fsm.history import collect, view
from turnlog.store import LogReader
from turnlog.store.verify import verify

pytestmark = [pytest.mark.local_model, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
MESSAGES = ("Hello! My name is Ada.", "What is the capital of France?", "Tell me a story about a lighthouse.")
LAST = "Thank you. Say goodbye."


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.local_model.child", *map(str, arguments)]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def until(process: subprocess.Popen[str], word: str, times: int = 1) -> list[str]:
    """Lines up to the n-th that begins with `word`."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if sum(one.startswith(f"{word} ") for one in lines) == times:
            return lines
    raise AssertionError(f"the child ended before its {times}. {word}: {lines[-5:]}")


def test_a_streamed_conversation_is_killed_in_mid_reply_and_goes_on(tmp_path: Path) -> None:
    database, notes = tmp_path / "live.db", tmp_path / "sent"
    with local_server(context=2048) as server:
        with child(database, server.url, notes) as first:
            for message in MESSAGES[:2]:
                ask(first, message)
                assert sum(line.startswith("piece ") for line in until(first, "turn")) > 1, "the reply was not streamed"
            ask(first, MESSAGES[2])
            until(first, "piece", times=3)
            first.send_signal(signal.SIGKILL)
            assert first.wait() == -signal.SIGKILL
        with child(database, server.url, notes) as second:
            until(second, "resumed")
            ask(second, LAST)
            until(second, "turn")
            assert second.stdin is not None
            second.stdin.close()
            assert second.wait() == 0
    check(database, notes)


def check(database: Path, notes: Path) -> None:
    reader = LogReader(database)
    rows = reader.read("live")
    session = replay(rows)
    spoken = [row.event for row in rows if row.event.kind == "message_added"]
    assert [one.text for one in spoken if one.by == "person"] == [*MESSAGES, LAST]
    assert len([one for one in spoken if one.by == "model"]) == len(MESSAGES) + 1
    assert [row.event.kind for row in rows].count("session_resumed") == 1
    assert session.state is State.INTERRUPT
    assert len(view(collect([], rows), "@agent", "USER")) == 2 * (len(MESSAGES) + 1)
    assert verify(database).ok
    sent = notes.read_text(encoding="utf-8").splitlines()
    assert len(sent) == len(MESSAGES) + 1
    if target := os.environ.get("TURNLOG_RECORD"):
        write(ROOT / target, reader, "live", "SmolLM2-135M, killed in its third reply", sent)
    reader.close()
