"""The engine: all live sessions of a process, their agents, tools and clock."""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError

from ..fsm import inputs as inp
from ..fsm.canonical import clean
from ..fsm.errors import CorruptLog, Error, IllegalEvent, Misuse, StorageError, StorageFailed, UnknownSession
from ..fsm.events import Channel, Limits, Row
from ..fsm.session import Session, SnapshotOf
from ..fsm.states import State
from ..store import SessionInfo, SQLiteLog, code_version
from .agents import Agent, person
from .clock import Clock, SystemClock
from .commits import Commits
from .conversation import Conversation
from .forks import read_parent
from .grants import GrantBook
from .hub import Hub
from .ids import fresh_id, fresh_owner
from .models.base import Model
from .notices import Trouble
from .prompt import static_parts
from .runner import PROBE_SECONDS
from .threads import Threads
from .tools.function import Tool
from .tools.registry import Registry
from .tools.source import Host, Sources, ToolSource

_log = logging.getLogger(__name__)
LOOKED_BACK = 50  # rows in which the last move of a resting session is looked for
MOVING = (State.SUCCESS, State.AWAITING_APPROVAL)


class Engine:
    """Runs conversations on one log. Use it as an async context manager.

    Args:
        log: an open log, or the path of an SQLite file (made where it is missing).
        agents: who can take part; a seat "USER" is added when no agent is one.
        channels: groups of agents.
        tools: tools beside those that agents bring.
        sources: flows, plugins and MCP servers; `engine.sources.problems` tells what is wrong with them.
        directors: models that choose speakers, by the name a channel gives.
        limits: caps of new sessions.
        auto_approve: tool names or patterns that run unasked; None reads TURNLOG_AUTO_APPROVE.
        clock, new_id, seed: time, ids and random numbers, to be replaced in tests.
        max_live: how many idle sessions stay in memory.
        idle_seconds: how long an idle session stays there (None: for ever); it comes back when somebody wants it.
    """

    def __init__(
        self,
        log: SQLiteLog | str | Path,
        agents: Sequence[Agent] = (),
        *,
        channels: Sequence[Channel] = (),
        tools: Iterable[Tool] = (),
        sources: Iterable[ToolSource] = (),
        directors: Mapping[str, Model] | None = None,
        limits: Limits | None = None,
        auto_approve: Sequence[str] | None = None,
        clock: Clock | None = None,
        new_id: Callable[[str], str] = fresh_id,
        seed: Callable[[], int] | None = None,
        max_live: int = 1000,
        idle_seconds: float | None = 300.0,
    ) -> None:
        if max_live < 1 or not (idle_seconds is None or idle_seconds > 0):
            raise Misuse(
                f"max_live={max_live}, idle_seconds={idle_seconds}: give numbers above 0 (idle: None for ever)"
            )
        self.directors = dict(directors or {})
        for channel in channels:
            if channel.director and channel.director not in self.directors:
                raise Misuse(f"channel {channel.name!r} has no director {channel.director!r}: pass directors={{...}}")
        seats = [agent for agent in agents if agent.model is None]
        self.agents = tuple(agents) if seats or len(agents) > 1 else (person(), *agents)
        self.channels = tuple(channels)
        brought = [tool for agent in agents for tool in agent.tools if isinstance(tool, Tool)]
        self.registry = Registry([*tools, *brought], auto_approve)
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        self.new_id = new_id
        self.seed = seed or (lambda: random.getrandbits(32))
        self.max_live = max_live
        self.idle_seconds = idle_seconds
        self.code_version = code_version()
        self.owner = fresh_owner()
        self.threads = Threads(clock=self.clock)
        self.sources = Sources(sources, Host(self.clock, self.registry, self.threads))
        for agent in agents:
            self.registry.check(agent.name, agent.tools)
        # After all that may be refused: who is refused has no engine to close.
        self.log = log if not isinstance(log, str | Path) else SQLiteLog(log)
        self.commits = Commits(self.log)
        self.grants = GrantBook()
        self.definitions: set[str] = set()  # digests of those that are durable
        self.failure: Error | None = None
        self.failed = asyncio.Event()
        self._hubs: dict[str, Hub] = {}
        self._resting: dict[str, tuple[int, float]] = {}  # the seq of an idle session, and since when it is known
        self._opening: dict[str, asyncio.Task[Hub]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = False

    async def __aenter__(self) -> Self:
        self.commits.start()  # who is refused here must not close the log of another engine
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Open the sources, read the grants, keep what models are shown, go on with all that was in flight."""
        self.commits.start()
        await self.sources.open()
        self.sources.came = self._look_again
        self.grants = GrantBook(self.log.grants())
        after = ""
        while page := self.log.sessions(after):
            after = page[-1].id
            # Together, so that their leases and first rows share commits.
            await asyncio.gather(*(self._go_on(info.id) for info in page if self._in_flight(info)))
        await self._keep_definitions()
        self._suspend_idle()

    def _look_again(self) -> None:
        for hub in list(self._hubs.values()):
            hub.look_again()

    def _suspend_idle(self) -> None:
        """Let sessions leave memory in which nothing has happened for a while, and look again in a while."""
        if self.closed or self.idle_seconds is None:
            return
        now = self.clock.monotonic()
        resting = {name: hub.session.seq for name, hub in self._hubs.items() if hub.idle}
        self._resting = {
            name: self._resting[name] if self._resting.get(name, (0, 0.0))[0] == seq else (seq, now)
            for name, seq in resting.items()
        }
        for name in [name for name, (_, since) in self._resting.items() if now - since >= self.idle_seconds]:
            hub = self._hubs.pop(name)
            hub.closed = True  # from here on whoever speaks gets its successor
            self._spawn(hub.close())
        self.clock.call_at(now + self.idle_seconds / 2, self._suspend_idle)

    def _in_flight(self, info: SessionInfo) -> bool:
        return info.state in MOVING or (info.state == State.INTERRUPT and self._asks(info))

    def _asks(self, info: SessionInfo) -> bool:
        """Whether the session waits for the answer to a question, which may have a deadline."""
        with contextlib.suppress(CorruptLog):
            for row in reversed(self.log.read(info.id, max(0, info.seq - LOOKED_BACK))):
                if row.event.kind in ("question_asked", "turn_interrupted", "session_started"):
                    return row.event.kind == "question_asked"
            return True
        return False

    async def _go_on(self, name: str) -> None:
        """Open a session that was in flight. One that cannot be read stays listed and marked; the others go on."""
        try:
            await self.hub(name)
        except StorageFailed:
            raise
        except StorageError:
            self._later(lambda: self._go_on(name))
        except (CorruptLog, IllegalEvent) as error:
            _log.warning("a session that was in flight cannot go on: %s", error)

    async def _keep_definitions(self) -> None:
        """Keep what models are shown, so that a request can be rebuilt from the log alone: now, and of later tools."""
        self.registry.added = self._keep_later
        try:
            for text in (*(tool.definition_text for tool in self.registry), *static_parts(self.agents)):
                self.definitions.add(await self.keep(text.encode()))
        except StorageFailed:
            raise
        except StorageError:
            self._later(self._keep_definitions)

    def _keep_later(self, tool: Tool) -> None:
        if not self.closed:
            self._spawn(self._keep_one(tool))

    async def _keep_one(self, tool: Tool) -> None:
        with contextlib.suppress(StorageFailed):  # the next append says it
            try:
                self.definitions.add(await self.keep(tool.definition_text.encode()))
            except StorageError:
                self._later(lambda: self._keep_one(tool))

    def _later(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """The storage has no room now: try again in a moment."""

        def again() -> None:
            if not self.closed:
                self._spawn(work())

        self.clock.call_at(self.clock.monotonic() + PROBE_SECONDS, again)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Leave memory. Sessions in flight go on at the next start."""
        self.closed = True
        await asyncio.gather(*self._opening.values(), *self._tasks, return_exceptions=True)
        await asyncio.gather(*(hub.close() for hub in list(self._hubs.values())))
        self._hubs.clear()
        await self.sources.close()
        for model in {id(one): one for one in (*(one.model for one in self.agents), *self.directors.values())}.values():
            if (aclose := getattr(model, "aclose", None)) is not None:
                await aclose()
        self.log.close()

    # Sessions -------------------------------------------------------------------------------------

    async def create(
        self,
        session_id: str = "",
        *,
        owner: str = "local",
        entry: str = "",
        limits: Limits | None = None,
        history: Sequence[inp.Preloaded] = (),
        actor: str = "",
    ) -> Conversation:
        """Start a session.

        Raises:
            Misuse: the id is taken, or the configuration does not hold together.
        """
        agents = tuple(agent.spec(self.registry) for agent in self.agents)
        start = inp.Start(
            owner, agents, self.channels, entry, limits or self.limits, self.code_version, None, tuple(history),
            actor or f"person:{owner}",
        )  # fmt: skip
        return await self._begin(session_id, start)

    async def fork(
        self, session_id: str, seq: int, new_session_id: str = "", *, owner: str = "", actor: str = ""
    ) -> Conversation:
        """Start a session that begins where another one stood after its row `seq`; that one stays as it is.

        What models see of the past is copied; permissions, decisions and waiting messages are not. Calls without a
        result are asked about anew, whatever had been decided on them. If a model was to speak, it is asked at once.
        A session that had ended waits for a person in its fork.

        Raises:
            UnknownSession: there is no such session. Misuse: it has no such row, or the new id is taken.
            CorruptLog: a row up to `seq` cannot be read.
        """
        parent = await read_parent(self.log, session_id, seq)
        return await self._begin(new_session_id, parent.fork(owner, self.code_version, actor))

    async def _begin(self, session_id: str, start: inp.Start | inp.Fork) -> Conversation:
        name = session_id or self.new_id("s")
        if clean(name) != name:
            raise Misuse(f"{name!r} is no text: choose another id")
        hub = await self._live(name)
        outcome = await hub.submit(start)
        if outcome.refusal is not None:
            if not hub.session.started:
                self._hubs.pop(name, None)
                await hub.close()
            raise Misuse(outcome.refusal.why)
        return Conversation(self, hub)

    async def open(self, session_id: str) -> Conversation:
        """A session that exists.

        Raises:
            UnknownSession: it does not. CorruptLog: its rows cannot be folded.
        """
        return Conversation(self, await self.hub(session_id))

    async def hub(self, session_id: str) -> Hub:
        """The live session.

        Raises:
            UnknownSession: no session has this id.
        """
        live = self._hubs.get(session_id)
        if live is not None and not live.closed and live.session.started:
            return live
        if clean(session_id) != session_id or self.log.head(session_id) is None:
            raise UnknownSession(f"no session has the id {session_id!r}: `turnlog sessions` lists those there are")
        return await self._live(session_id)

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The ids of the live sessions."""
        return tuple(self._hubs)

    def live(self, session_id: str) -> Hub | None:
        """The hub of a session that is in memory."""
        hub = self._hubs.get(session_id)
        return None if hub is None or hub.closed else hub

    async def _live(self, name: str) -> Hub:
        if self.failure is not None:
            raise self.failure
        if self.closed:
            raise Error(f"the engine is closed: session {name!r} goes on when it is started again")
        live = self._hubs.get(name)
        if live is not None and not live.closed:
            return live
        if name not in self._opening:
            self._opening[name] = asyncio.get_running_loop().create_task(self._open(name))
        return await asyncio.shield(self._opening[name])

    async def _open(self, name: str) -> Hub:
        try:
            await self._make_room()
            hub = Hub(self, name)
            await hub.open()
            self._hubs[name] = hub
        except StorageError as error:
            raise type(error)(f"session {name!r} cannot be opened now: {error}") from error
        finally:
            del self._opening[name]
        return hub

    async def _make_room(self) -> None:
        if len(self._hubs) < self.max_live:
            return
        for name, hub in list(self._hubs.items()):
            if hub.idle:
                del self._hubs[name]
                await hub.close()
                if len(self._hubs) < self.max_live:
                    return

    # What hubs and runners need -------------------------------------------------------------------

    @property
    def width(self) -> int | None:
        """The widest window of history that an agent wants."""
        windows = [
            # A number of tokens is enough for a pair, whose window is read from the log; a group's is not.
            0 if agent.window is None and agent.window_tokens is not None and not self.channels else agent.window
            for agent in self.agents
            if agent.model is not None
        ]
        return None if None in windows else max((one for one in windows if one is not None), default=0)

    def agent(self, name: str) -> Agent | None:
        """A configured agent."""
        return next((agent for agent in self.agents if agent.name == name), None)

    async def keep(self, data: bytes) -> str:
        """Store bytes by digest."""
        return await asyncio.wrap_future(self.log.put_blob(data))

    def snapshot(self, name: str) -> Session | None:
        """The newest usable snapshot. One that this release cannot read is passed over: it is only a cache."""
        found = self.log.snapshot(name, self.code_version)
        if found is None:
            return None
        try:
            return SnapshotOf.validate_json(found[2])
        except ValidationError:
            return None

    def keep_snapshot(self, session: Session, row_hash: bytes) -> None:
        """Keep a snapshot; it rides in a later commit."""
        body = SnapshotOf.dump_json(session).decode()
        self.log.put_snapshot(session.id, session.seq, row_hash, body, self.code_version)

    def observe(self, _hub: Hub, rows: tuple[Row, ...]) -> None:
        """See committed rows of any session."""
        self.grants.observe(rows)

    def lost(self, hub: Hub, error: Error) -> None:
        """A session cannot go on here: another owner has it, or the log failed (then nothing can)."""
        hub.publish(Trouble(hub.session.id, type(error).__name__, str(error)))
        if self._hubs.get(hub.session.id) is hub:
            del self._hubs[hub.session.id]
        if isinstance(error, StorageFailed):
            self.failure = error
            self.failed.set()
        self._spawn(hub.close())
