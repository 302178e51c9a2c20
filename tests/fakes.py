"""What tests put in the place of time, random ids and chance."""

import heapq
import itertools
from collections.abc import Callable

NOON = 1_700_000_000_000  # some moment, in milliseconds since 1970 UTC


class FakeTimer:
    """An armed callback."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A clock that moves only when it is told to: `advance` both times, `step` the wall clock alone."""

    def __init__(self, now: int = NOON) -> None:
        self._now = now
        self._monotonic = 1000.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def call_at(self, when: float, callback: Callable[[], None]) -> FakeTimer:
        timer = FakeTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        """Let time pass and run, in order, what was armed for it."""
        end = self._monotonic + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._pass(max(when, self._monotonic))
            if timer.callback is not None:
                timer.callback()
        self._pass(end)

    def step(self, seconds: float) -> None:
        """Somebody sets the wall clock; no time passes."""
        self._now += round(seconds * 1000)

    @property
    def armed(self) -> int:
        """How many timers would still fire."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    def _pass(self, to: float) -> None:
        self._now += round((to - self._monotonic) * 1000)
        self._monotonic = to


class CountingIds:
    """Ids that count up for each prefix: m_1, m_2, r_1, ..."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, prefix: str) -> str:
        self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}_{self._counts[prefix]}"
