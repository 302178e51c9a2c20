"""Where tools come from: functions of the application, flows, plugins, MCP servers; one registry lists them all.

A source is opened when the engine starts and closed when it stops. One that fails is told as a problem and tried again
in a while; meanwhile its tools are not offered, and a call of one that was allowed before waits.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, Protocol

from ...fsm.canonical import canonical, clean
from ...fsm.errors import Misuse
from ..clock import Clock, Timer
from ..threads import Threads
from ..values import told, told_value
from .function import Tool, ToolContext
from .registry import CHILD, CUSTOM, Registry

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
OPEN_SECONDS = 60.0  # that a source may take; the engine does not start before
AGAIN_SECONDS = 30.0  # between two tries to open a source that failed
Kind = Literal["flow", "mcp", "plugin"]


@dataclass(frozen=True, slots=True)
class Host:
    """What a source may use of the engine that opens it."""

    clock: Clock
    registry: Registry
    threads: Threads

    async def perform(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> str:
        """Check arguments and run a tool as a part of another one.

        Raises:
            Misuse: the arguments do not fit; nothing ran.
        """
        text = canonical(arguments)
        if problem := tool.problem(text):
            raise Misuse(f"the arguments of {tool.name!r} do not fit: {problem}")
        values = tool.values(text)
        if tool.context_parameter:
            values[tool.context_parameter] = context
        if not tool.blocking:
            return told_value(await tool.function(**values))
        value, failed = await self.threads.run(tool.name, tool.function, values)
        if failed is not None:
            raise failed if isinstance(failed, Exception) else RuntimeError(told(failed))
        return value if isinstance(value, str) else told_value(await value)

    async def within(self, seconds: float | None, work: Coroutine[Any, Any, Any], what: str) -> Any:
        """The result of `work`, by the engine's clock.

        Raises:
            TimeoutError: it took longer; it was cancelled, and has ended.
        """
        task = asyncio.get_running_loop().create_task(work)
        late: list[bool] = []

        def give_up() -> None:
            late.append(True)
            task.cancel()

        timer = None if seconds is None else self.clock.call_at(self.clock.monotonic() + seconds, give_up)
        try:
            return await task
        except asyncio.CancelledError:
            mine = asyncio.current_task()
            if not late or (mine is not None and mine.cancelling()):
                raise
            raise TimeoutError(f"{what} took longer than {seconds:g} s") from None
        finally:
            if timer is not None:
                timer.cancel()


class ToolSource(Protocol):
    """Something that brings tools. An agent names it `name` (all of it), `name#child`, or `@@custom`."""

    name: str
    kind: Kind
    left_out: Sequence[str]  # what `open` could not use, and why

    async def open(self, host: Host) -> Sequence[Tool]:
        """The tools, named `name#child` or, of a source with one tool only, as the source likes.

        May raise anything: the source is then left out, and tried again.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. Called after a failed `open`, too."""
        ...


class Problem(NamedTuple):
    """What is wrong with a source, in words that say what to do."""

    source: str
    kind: str
    why: str


def checked_name(kind: str, name: str) -> str:
    """A source's name, if it is one.

    Raises:
        Misuse: it is not.
    """
    if not _NAME.fullmatch(name):
        raise Misuse(
            f"the {kind} cannot be named {name!r}: use letters, digits, '_', '-' and '.', 64 at most, a letter or a "
            "digit first"
        )
    return name


def fits(patterns: Collection[str], child: str) -> bool:
    """Whether one of the names or patterns is this child."""
    return any(fnmatchcase(child, pattern) for pattern in patterns)


def custom(source: ToolSource) -> str:
    """The name of a source after `@@`."""
    return source.name if source.kind == "plugin" else f"{source.kind}_{source.name}"


class Sources:
    """The sources of an engine.

    Raises:
        Misuse: two have one name, or one has the name of a tool.
    """

    def __init__(self, sources: Iterable[ToolSource], host: Host) -> None:
        self._host, self._registry = host, host.registry
        self._sources = tuple(sources)
        self._problems: dict[str, list[str]] = {}
        self._timer: Timer | None = None
        self._retrying: asyncio.Task[None] | None = None
        self.came: Callable[[], object] | None = None  # hears that a source opened after the start
        self.closed = False
        for source in self._sources:
            self._registry.add_source(checked_name(source.kind, source.name), source.kind, f"{CUSTOM}{custom(source)}")

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong now."""
        kinds = {source.name: source.kind for source in self._sources}
        return tuple(Problem(name, kinds[name], why) for name, told in self._problems.items() for why in told)

    def missing(self, tool: str) -> str:
        """Why a tool is not there only because its source is not open now; "" when that is not the reason."""
        if not self._registry.awaits(tool):
            return ""
        source = tool.partition(CHILD)[0]
        why = "; ".join(self._problems.get(source, ())) or f"{source!r} is not open"
        return f"the call of {tool!r} waits, and is tried again every {AGAIN_SECONDS:g} s: {why}"

    async def open(self) -> None:
        """Open all together, flows last: they are made of the tools of the others."""
        await self._open(self._sources)

    async def _open(self, sources: Iterable[ToolSource]) -> None:
        waiting = list(sources)
        for flows in (False, True):
            some = [source for source in waiting if (source.kind == "flow") is flows]
            opened = await asyncio.gather(*map(self._one, some), return_exceptions=True)
            for source, found in zip(some, opened, strict=True):
                self._take(source, found)
        if self._registry.absent and not self.closed:
            clock = self._host.clock
            self._timer = clock.call_at(clock.monotonic() + AGAIN_SECONDS, self._again)

    async def _one(self, source: ToolSource) -> Sequence[Tool]:
        try:
            work = source.open(self._host)
            return tuple(await self._host.within(OPEN_SECONDS, work, f"opening {source.kind} {source.name!r}"))
        except BaseException:
            await asyncio.gather(source.close(), return_exceptions=True)
            raise

    def _take(self, source: ToolSource, found: Sequence[Tool] | BaseException) -> None:
        if isinstance(found, BaseException):
            why = str(found) if isinstance(found, Misuse) else told(found)
            self._tell(source, [f"{source.kind} {source.name!r} is left out: {clean(why)}"])
            return
        self._registry.opened(source.name)
        wrong = [f"{source.kind} {source.name!r}: {clean(why)}" for why in source.left_out]
        for tool in found:
            try:
                self._registry.add(tool, source.name)
            except Misuse as error:
                wrong.append(f"{source.kind} {source.name!r}: {error}")
        self._tell(source, wrong)

    def _tell(self, source: ToolSource, wrong: list[str]) -> None:
        if wrong != self._problems.pop(source.name, []):  # else it was said before
            for why in wrong:
                _log.warning("%s", why)
        if wrong:
            self._problems[source.name] = wrong

    def _again(self) -> None:
        if not self.closed:
            self._retrying = asyncio.get_running_loop().create_task(self._retry())

    async def _retry(self) -> None:
        missing = self._registry.absent
        await self._open([source for source in self._sources if source.name in missing])
        if self.came is not None and missing != self._registry.absent:
            self.came()

    async def tried(self) -> None:
        """Wait for the try that is going on, if there is one."""
        if self._retrying is not None:
            await asyncio.shield(self._retrying)

    async def close(self) -> None:
        """Close all, whatever each of them does."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
        ended = await asyncio.gather(*(source.close() for source in self._sources), return_exceptions=True)
        for source, error in zip(self._sources, ended, strict=True):
            if error is not None:
                _log.warning("%s %r did not close: %s", source.kind, source.name, told(error))
