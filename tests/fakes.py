"""Stand-ins for what a test must rule itself: time, ids and random numbers."""

import heapq
import itertools
from collections.abc import Callable

# 2030-01-01 00:00 UTC in milliseconds: a time that no real clock shows while these tests run.
START = 1_893_456_000_000


class FakeTimer:
    """A callback that waits for its time."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Never fire."""
        self.cancelled = True


class FakeClock:
    """A clock that moves when it is told to. `now()` is in milliseconds since 1970 UTC, `monotonic()` in seconds."""

    def __init__(self, now: int = START) -> None:
        self._wall = now
        self._elapsed = 0.0
        self._order = itertools.count()
        self._timers: list[tuple[float, int, FakeTimer]] = []

    def now(self) -> int:
        """Wall time."""
        return self._wall

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        """Arm a timer; `advance` fires it, never this call."""
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def armed(self) -> list[float]:
        """When the waiting timers fire, in order."""
        return sorted(when for when, _, timer in self._timers if not timer.cancelled)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks; timers fire in order, at their times, in the caller's thread."""
        end = self._elapsed + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            if not timer.cancelled:
                self._move(max(when, self._elapsed))
                timer.callback()
        self._move(end)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does. No timer fires by that."""
        self._wall += round(seconds * 1000)

    def _move(self, to: float) -> None:
        self._wall += round(to * 1000) - round(self._elapsed * 1000)
        self._elapsed = to


class Ids:
    """Ids that count: `r1`, `r2`, `m3`. Keep one for all engines of a test, so that none comes twice."""

    def __init__(self) -> None:
        self._count = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}{next(self._count)}"


class Seeds:
    """Random numbers that are no surprise: 0, 1, 2, ..."""

    def __init__(self) -> None:
        self._count = itertools.count()

    def __call__(self) -> int:
        return next(self._count)
