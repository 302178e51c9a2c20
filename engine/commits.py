"""Between the sessions and the log: the appends of one round of the event loop share a commit."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial

from ..fsm.errors import Error
from ..fsm.events import Row
from ..store import SQLiteLog
from ..store.base import Command, Draft, Then

_log = logging.getLogger(__name__)


class Commits:
    """Appends for all sessions of an engine; every `then` is called in the event loop."""

    def __init__(self, log: SQLiteLog) -> None:
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flushing = False
        self._answers: deque[tuple[Then, tuple[Row, ...] | Error]] = deque()

    def start(self) -> None:
        """Take the log for this event loop.

        Raises:
            Misuse: another engine has it.
        """
        if self._loop is None:
            self._log.after_batch(self._wake)
            self._loop = asyncio.get_running_loop()

    def append(
        self, session: str, seq: int, epoch: int, drafts: Sequence[Draft], command: Command | None, then: Then
    ) -> None:
        """Append rows after `seq`; see `EventLog.append`."""
        if self._loop is None:
            self.start()
        self._log.append_then(session, seq, epoch, drafts, command, partial(self._heard, then))
        if not self._flushing:
            self._flushing = True
            assert self._loop is not None
            self._loop.call_soon(self._flush)

    def _heard(self, then: Then, answer: tuple[Row, ...] | Error) -> None:
        self._answers.append((then, answer))  # by whoever commits, in whatever thread

    def _flush(self) -> None:
        self._flushing = False
        self._log.flush()
        self._deliver()

    def _wake(self) -> None:
        """In the writer's thread, once for a batch; after the loop has ended there is nobody to tell."""
        if self._answers and self._loop is not None:
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        while self._answers:
            then, answer = self._answers.popleft()
            try:
                then(answer)
            except Exception:  # noqa: BLE001 - the other sessions hear theirs
                _log.exception("an answer of the log was not taken")
