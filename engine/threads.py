"""Blocking tools: each runs in a thread of its own that never keeps the process from ending.

A pool would let a few tools that hang keep all others waiting, and Python waits for the threads of a pool at its end.
`Line` is for work that may as well be done one after the other.
"""

import asyncio
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from .clock import Clock, SystemClock
from .values import told_value

MOST = 256  # threads at once; more calls than that wait for one
WAIT_SECONDS = 30.0  # for a thread, when all are taken
STUCK = 64  # runs of one tool that go on although they were called off; then it is started no more


Outcome = tuple[Any, BaseException | None]  # what a function gave, as text unless it is to be awaited; what it raised


class TooMany(RuntimeError):
    """No thread was to be had; nothing ran."""


class Work:
    """A call of a function."""

    __slots__ = ("called_off", "done", "function", "name", "values", "waits")

    def __init__(self, name: str, function: Callable[..., Any], values: dict[str, Any]) -> None:
        self.name, self.function, self.values = name, function, values
        self.done: Future[Outcome] = Future()
        self.waits = self.called_off = False

    def outcome(self) -> Outcome:
        """Call the function; some exceptions mean something to futures and event loops, so they are values."""
        try:
            value = self.function(**self.values)
            # An async function behind a plain wrapper: what the thread brought is still to be run, in the loop.
            return value if hasattr(value, "__await__") else told_value(value), None
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything
            return None, error


class Threads:
    """The threads of an engine's tools. Methods may be called from any thread."""

    def __init__(self, most: int = MOST, stuck: int = STUCK, clock: Clock | None = None) -> None:
        self.most, self.stuck = most, stuck
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._running: set[Work] = set()
        self._waiting: deque[Work] = deque()

    @property
    def running(self) -> dict[str, int]:
        """How many threads each tool has now; those of calls that were called off, but cannot be ended, too."""
        with self._lock:
            return dict(Counter(work.name for work in self._running))

    @property
    def called_off(self) -> dict[str, int]:
        """How many of them nobody waits for any more."""
        with self._lock:
            return dict(self._called_off())

    def _called_off(self) -> Counter[str]:
        return Counter(work.name for work in self._running if work.called_off)

    async def run(
        self,
        name: str,
        function: Callable[..., Any],
        values: dict[str, Any],
        late: Callable[[Outcome], object] | None = None,
    ) -> Outcome:
        """Run a function, wait for what it gives. What it gives after a cancellation, `late` hears in the event loop.

        Raises:
            TooMany: no thread was free within `WAIT_SECONDS`, or too many earlier runs of this name hang.
        """
        work, clock = self.submit(name, function, values), self._clock
        timer = clock.call_at(clock.monotonic() + WAIT_SECONDS, partial(self.give_up, work)) if work.waits else None
        try:
            return await asyncio.shield(asyncio.wrap_future(work.done))
        except asyncio.CancelledError:
            if not self.call_off(work) and late is not None:
                loop = asyncio.get_running_loop()
                work.done.add_done_callback(lambda done: call_in(loop, late, done.result()))
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def submit(self, name: str, function: Callable[..., Any], values: dict[str, Any]) -> Work:
        """Run a tool's function, now or (`waits`) when a thread is free.

        Raises:
            TooMany: too many earlier runs of this tool hang.
        """
        work = Work(name, function, values)
        with self._lock:
            if len(self._running) >= self.stuck and (stuck := self._called_off()[name]) >= self.stuck:
                raise TooMany(
                    f"nothing ran: {stuck} earlier runs of {name!r} were stopped and still run. Give the tool a time "
                    "limit of its own, or make it async; a restart ends them"
                )
            if len(self._running) >= self.most:
                work.waits = True
                self._waiting.append(work)
                return work
            self._begin(work)
        try:
            threading.Thread(target=self._run, args=(work,), name=f"turnlog tool {name}", daemon=True).start()
        except RuntimeError:  # the system gives no further thread
            with self._lock:
                self._running.discard(work)
            raise
        return work

    def _run(self, work: Work | None) -> None:
        while work is not None:
            outcome, done = work.outcome(), work.done
            work = self._next(work)
            done.set_result(outcome)

    def _begin(self, work: Work) -> None:
        work.waits = False
        work.done.set_running_or_notify_cancel()
        self._running.add(work)

    def _next(self, ended: Work) -> Work | None:
        with self._lock:
            self._running.discard(ended)
            if not self._waiting or len(self._running) >= self.most:
                return None
            work = self._waiting.popleft()
            self._begin(work)
        threading.current_thread().name = f"turnlog tool {work.name}"
        return work

    def give_up(self, work: Work) -> None:
        """End a call that has waited long enough: its error says what holds the threads."""
        if self._taken_out(work):
            work.done.set_exception(TooMany(self._told()))

    def call_off(self, work: Work) -> bool:
        """Nobody waits for it any more. True: it never begins. A function that runs cannot be ended: it is marked."""
        if self._taken_out(work):
            return work.done.cancel()
        work.called_off = True
        return False

    def _taken_out(self, work: Work) -> bool:
        with self._lock:
            if work.waits:
                self._waiting.remove(work)
                work.waits = False
                return True
            return False

    def _told(self) -> str:
        running, off = Counter(self.running), self.called_off
        busy = ", ".join(
            f"{name!r} {count}" + (f" ({off[name]} of them stopped, but they still run)" if name in off else "")
            for name, count in running.most_common(3)
        )
        return (
            f"nothing ran: no thread was free in time, tools have all {self.most}: {busy}. Give these tools a time "
            "limit of their own, or make them async; a restart ends them"
        )


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *given: object) -> None:
    """From a thread into the loop; after the loop has ended there is nobody to tell."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *given)


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
