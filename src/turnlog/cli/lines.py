"""Lines from standard input without a thread, so that Ctrl-C ends the process at once."""

import asyncio
import os
import termios
from collections import deque

from .text import say, visible


class Lines:
    """Reads a file descriptor in the event loop. `close` when done."""

    def __init__(self, file: int = 0) -> None:
        self._file = file
        self._typed = os.isatty(file)
        self._rest = b""
        self._lines: deque[str] = deque()
        self._ended = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(file, self._read)
            self._watched = True
        except PermissionError:
            # A file on a disk cannot be waited for, and never makes anybody wait.
            self._watched = False

    def _read(self) -> None:
        data = os.read(self._file, 65536)
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(line.decode("utf-8", "replace") for line in whole)
        if not data:
            self._ended = True
            if self._rest:
                self._lines.append(self._rest.decode("utf-8", "replace"))
            self.close()
        self._news.set()

    async def next(self, prompt: str = "") -> str:
        """The next line.

        Raises:
            EOFError: there is none.
        """
        say(prompt, end="")
        while not self._lines:
            if self._ended:
                say()
                raise EOFError
            if self._watched:
                self._news.clear()
                await self._news.wait()
            else:
                self._read()
        line = self._lines.popleft()
        if not self._typed:
            # A terminal shows what is typed; elsewhere nobody would see where an answer ends.
            say(visible(line))
        return line

    def drop(self) -> list[str]:
        """Forget what a person typed ahead, so that it answers no question that they have not seen.

        The answer is the whole lines among it. Input that is no terminal was written as answers, and stays.
        """
        if not self._typed:
            return []
        termios.tcflush(self._file, termios.TCIFLUSH)
        dropped = [*self._lines]
        self._lines.clear()
        self._rest = b""
        return dropped

    def close(self) -> None:
        """Look no longer."""
        if self._watched:
            self._loop.remove_reader(self._file)


def ask_line(prompt: str) -> str:
    """Ask at a terminal, where nothing else goes on. Unlike `input`, it never misses a Ctrl-C.

    Raises:
        EOFError: the input has ended.
    """

    async def ask() -> str:
        lines = Lines()
        try:
            return await lines.next(prompt)
        finally:
            lines.close()

    return asyncio.run(ask())
