"""Blocking tools: each runs in a thread of its own that never keeps the process from ending.

A pool would let a few tools that hang keep all others waiting, and Python waits for the threads of a pool at its end.
`Line` is for work that may as well be done one after the other.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .values import told_value

MOST = 256  # threads at once: that many tools at the same time are a fault, not a load


class TooMany(RuntimeError):
    """So many tools run in threads that no further one is started."""


class Threads:
    """The threads of an engine's tools."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    @property
    def running(self) -> dict[str, int]:
        """How many threads each tool has now; those of calls that were called off, but cannot be ended, too."""
        with self._lock:
            return dict(+self._running)

    def submit(
        self, name: str, function: Callable[..., Any], values: dict[str, Any]
    ) -> "Future[tuple[Any, BaseException | None]]":
        """Run a tool's function. The answer is what it gave, as text unless it is to be awaited, or what it raised.

        Raises:
            TooMany: it was not started.
        """
        with self._lock:
            if self._running.total() >= self.most:
                busy = ", ".join(f"{tool} ({count})" for tool, count in self._running.most_common(3))
                raise TooMany(f"nothing ran: {self.most} tools run in threads already, most of them {busy}; end those")
            self._running[name] += 1
        work: Future[tuple[Any, BaseException | None]] = Future()
        work.set_running_or_notify_cancel()
        thread = threading.Thread(
            target=self._run, args=(work, name, function, values), name=f"turnlog tool {name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system gives no further thread
            self._ended(name)
            raise
        return work

    def _run(self, work: "Future[Any]", name: str, function: Callable[..., Any], values: dict[str, Any]) -> None:
        outcome: tuple[Any, BaseException | None]
        try:
            value = function(**values)
            # An async function behind a plain wrapper: what the thread brought is still to be run, in the loop.
            outcome = value if hasattr(value, "__await__") else told_value(value), None
        except BaseException as error:  # noqa: BLE001 - some exceptions mean something to futures and event loops
            outcome = None, error
        self._ended(name)
        work.set_result(outcome)

    def _ended(self, name: str) -> None:
        with self._lock:
            self._running[name] -= 1


class Line:
    """Jobs that are done in order, by a thread that is there while there are any, and keeps no process from ending."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[tuple[Future[tuple[Any, BaseException | None]], Callable[[], Any]]] = deque()
        self._busy = False

    def submit(self, job: Callable[[], Any]) -> "Future[tuple[Any, BaseException | None]]":
        """Do this when those before are done, unless it is cancelled by then. The answer is what it gave, or raised."""
        work: Future[tuple[Any, BaseException | None]] = Future()
        with self._lock:
            if not self._busy:
                threading.Thread(target=self._run, name="turnlog line", daemon=True).start()
                self._busy = True
            self._jobs.append((work, job))
        return work

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy = False
                    return
                work, job = self._jobs.popleft()
            if not work.set_running_or_notify_cancel():
                continue
            try:
                outcome: tuple[Any, BaseException | None] = job(), None
            except BaseException as error:  # noqa: BLE001 - whoever waits is told
                outcome = None, error
            work.set_result(outcome)
