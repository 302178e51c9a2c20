"""The engine: all live sessions of a process, their agents, tools and clock."""

import asyncio
import contextlib
import os
import random
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from ..fsm import inputs as inp
from ..fsm.errors import CorruptLog, Error, Misuse, StorageFailed, UnknownSession
from ..fsm.events import Channel, Limits, Row
from ..fsm.session import Session, SnapshotOf
from ..fsm.states import State
from ..store import SQLiteLog
from .agents import Agent, person
from .clock import Clock, SystemClock
from .conversation import Conversation
from .grants import GrantBook
from .hub import Hub
from .models.base import Model
from .notices import Trouble
from .tools.function import Tool
from .tools.registry import Registry

THREADS = 32
MOVING = (State.SUCCESS, State.AWAITING_APPROVAL)


def code_version() -> str:
    """The version of turnlog that writes."""
    try:
        return version("turnlog")
    except PackageNotFoundError:
        return "unknown"


def fresh_id(prefix: str) -> str:
    """An id that was never used: the prefix and 96 random bits."""
    return f"{prefix}_{secrets.token_hex(12)}"


class Engine:
    """Runs conversations on one log. Use it as an async context manager.

    Args:
        log: an open log, or the path of an SQLite file (made where it is missing).
        agents: who can take part; a seat "USER" is added when no agent is one.
        channels: groups of agents.
        tools: tools beside those that agents bring.
        directors: models that choose speakers, by the name a channel gives.
        limits: caps of new sessions.
        auto_approve: tool names or patterns that run unasked; None reads TURNLOG_AUTO_APPROVE.
        clock, new_id, seed: time, ids and random numbers, to be replaced in tests.
        max_live: how many idle sessions stay in memory.
    """

    def __init__(
        self,
        log: SQLiteLog | str | Path,
        agents: Sequence[Agent] = (),
        *,
        channels: Sequence[Channel] = (),
        tools: Iterable[Tool] = (),
        directors: Mapping[str, Model] | None = None,
        limits: Limits | None = None,
        auto_approve: Sequence[str] | None = None,
        clock: Clock | None = None,
        new_id: Callable[[str], str] = fresh_id,
        seed: Callable[[], int] | None = None,
        max_live: int = 1000,
    ) -> None:
        self.log = log if not isinstance(log, str | Path) else SQLiteLog(log)
        seats = [agent for agent in agents if agent.model is None]
        self.agents = tuple(agents) if seats or len(agents) > 1 else (person(), *agents)
        self.channels = tuple(channels)
        self.registry = Registry(_unique([*tools, *(tool for agent in agents for tool in agent.tools)]), auto_approve)
        self.directors = dict(directors or {})
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        self.new_id = new_id
        self.seed = seed or (lambda: random.getrandbits(32))
        self.max_live = max_live
        self.code_version = code_version()
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="turnlog-tool")
        self.grants = GrantBook()
        self.failure: Error | None = None
        self.failed = asyncio.Event()
        self._hubs: dict[str, Hub] = {}
        self._opening: dict[str, asyncio.Task[Hub]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Read the grants, keep what models are shown, and go on with every session that was in flight."""
        self.grants = GrantBook(self.log.grants())
        for tool in self.registry:
            self.log.put_blob(tool.definition_text.encode())
        after = ""
        while page := self.log.sessions(after):
            after = page[-1].id
            for info in page:
                if info.state in MOVING:
                    with contextlib.suppress(CorruptLog):  # that session stays listed and marked; the others go on
                        await self.hub(info.id)

    async def close(self) -> None:
        """Leave memory. Sessions in flight go on at the next start."""
        await asyncio.gather(*(hub.close() for hub in list(self._hubs.values())), *self._closing)
        self._hubs.clear()
        self.threads.shutdown(wait=False, cancel_futures=True)
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
        name = session_id or self.new_id("s")
        hub = await self._live(name)
        start = inp.Start(
            owner, tuple(agent.spec for agent in self.agents), self.channels, entry, limits or self.limits,
            self.code_version, None, tuple(history), actor or f"person:{owner}",
        )  # fmt: skip
        outcome = await hub.submit(start)
        if outcome.refusal is not None:
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
        if live is not None and not live.closed:
            return live
        if self.log.head(session_id) is None:
            raise UnknownSession(f"no session has the id {session_id!r}: `turnlog sessions` lists those there are")
        return await self._live(session_id)

    async def _live(self, name: str) -> Hub:
        if self.failure is not None:
            raise self.failure
        live = self._hubs.get(name)
        if live is not None and not live.closed:
            return live
        if name not in self._opening:
            self._opening[name] = asyncio.get_running_loop().create_task(self._open(name))
        try:
            return await asyncio.shield(self._opening[name])
        finally:
            self._opening.pop(name, None)

    async def _open(self, name: str) -> Hub:
        await self._make_room()
        hub = Hub(self, name)
        await hub.open()
        self._hubs[name] = hub
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
        windows = [agent.window for agent in self.agents if agent.model is not None]
        return None if None in windows else max((one for one in windows if one is not None), default=0)

    def agent(self, name: str) -> Agent | None:
        """A configured agent."""
        return next((agent for agent in self.agents if agent.name == name), None)

    def director(self, name: str) -> Model | None:
        """A configured director."""
        return self.directors.get(name)

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
        closing = asyncio.get_running_loop().create_task(hub.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _unique(tools: Iterable[Tool]) -> list[Tool]:
    return list({id(tool): tool for tool in tools}.values())
