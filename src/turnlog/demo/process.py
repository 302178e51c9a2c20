"""The demo's server: a process of its own, so that it can be killed."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from ..fsm.errors import Error

START_SECONDS = 30.0


class ServerProcess:
    """`turnlog serve` over one log. Start it, kill it, start another one: the log is all that stays.

    Raises:
        Error: it did not come up; the message has what it printed.
    """

    def __init__(self, db: Path, token_file: Path) -> None:
        options = ["--db", str(db), "--port", "0", "--token-file", str(token_file)]
        # The demo's approvals are not to be decided by what happens to be configured here.
        environment = {name: value for name, value in os.environ.items() if name != "TURNLOG_AUTO_APPROVE"}
        self._child = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "turnlog", "serve", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )  # fmt: skip
        self.pid = self._child.pid
        try:
            self.url = self._ready()
        except BaseException:
            self.kill()
            raise
        self.token = token_file.read_text(encoding="ascii").strip()

    def _ready(self) -> str:
        told: list[str] = []
        late = threading.Timer(START_SECONDS, self._child.kill)
        late.start()
        try:
            assert self._child.stdout is not None
            for line in self._child.stdout:
                told.append(line)
                if line.startswith("turnlog serves ") and line.rstrip().endswith("/ws"):
                    return line.split()[-1]
        finally:
            late.cancel()
        raise Error(f"the demo's server did not start: {''.join(told).strip() or 'it said nothing'}")

    def kill(self) -> int:
        """Kill it at once, as a power cut would; the answer is how it ended (-9)."""
        if self._child.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        return self._end()

    def stop(self) -> int:
        """Ask it to stop; the answer is its exit code."""
        self._child.terminate()
        return self._end()

    def _end(self) -> int:
        code = self._child.wait(START_SECONDS)
        if self._child.stdout is not None:
            self._child.stdout.close()
        return code
