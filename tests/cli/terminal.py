"""A command in a process of its own, with a pseudo terminal for a person who types what the prompts ask for."""

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# A command that says nothing for so long hangs; it is killed, and the test fails on what is missing.
PATIENCE = 60.0


def environment(**more: str) -> dict[str, str]:
    """No key and no setting of whoever runs the tests; output is buffered as it usually is."""
    own = ("TURNLOG_", "OPENAI_", "ANTHROPIC_", "PYTHONUNBUFFERED")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    return {**kept, "NO_COLOR": "1", **more}


def turnlog(*argv: object, folder: Path, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command without a terminal and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "turnlog", *map(str, argv)],
        input=given, capture_output=True, text=True, check=False, cwd=folder, env=environment(), timeout=PATIENCE,
    )  # fmt: skip


# Whoever starts the tests in the background may have told them to ignore Ctrl-C; a terminal never does.
_HEEDING_CTRL_C = """
import signal
from turnlog.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""


class Terminal:
    """A command whose standard streams are a pseudo terminal."""

    def __init__(self, *argv: object, folder: Path, **more: str) -> None:
        self._main, far = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-c", _HEEDING_CTRL_C, *map(str, argv)],
            stdin=far, stdout=far, stderr=far, cwd=folder, env=environment(**more), start_new_session=True,
        )  # fmt: skip
        os.close(far)
        self.told = ""

    def answer(self, script: Sequence[tuple[str, str]]) -> "Terminal":
        """Wait for each prompt in turn, and type the answer to it."""
        for prompt, text in script:
            self.until(prompt)
            os.write(self._main, f"{text}\n".encode())
        return self

    def until(self, prompt: str) -> None:
        """Read until a prompt stands there; what comes before it is not looked at again."""
        seen = len(self.told)
        while prompt not in self.told[seen:]:
            if not self._read():
                raise AssertionError(f"no {prompt!r} in what was printed:\n{self.told}")

    def _read(self) -> bool:
        ready, _, _ = select.select([self._main], [], [], PATIENCE)
        if not ready:
            self.child.kill()
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:
            # the other side was closed
            return False
        self.told += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def end(self) -> int:
        """Read to the end; the answer is the exit code."""
        while self._read():
            pass
        os.close(self._main)
        return self.child.wait(PATIENCE)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.child.send_signal(signal.SIGINT)
