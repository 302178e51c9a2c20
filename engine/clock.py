"""Time comes from here and nowhere else: wall time for what is stored, monotonic time for what is waited for."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """Something armed that can be called off."""

    def cancel(self) -> None:
        """Never fire."""
        ...


class Clock(Protocol):
    """Wall time in integer milliseconds since 1970 UTC, monotonic time in seconds."""

    def now(self) -> int:
        """Wall time, for rows."""
        ...

    def monotonic(self) -> float:
        """A time that never steps back, for waits."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` in the event loop once `monotonic() >= when`."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Wall time."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """The event loop's time."""
        return asyncio.get_running_loop().time()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Arm a timer of the event loop."""
        return asyncio.get_running_loop().call_at(when, callback)
