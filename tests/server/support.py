"""The world of the server's tests: a file, a clock that stands still, tools that keep a ledger, real sockets."""

import asyncio
import contextlib
import json
import socket as sockets
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial

from tests.fakes import FakeClock, Ids
from turnlog.engine import Agent, Engine, Tool, tool
from turnlog.engine.models.base import Delta as ModelDelta
from turnlog.engine.models.base import ModelCall, ModelReply, TextDelta
from turnlog.engine.models.scripted import USAGE, ScriptedModel, Step
from turnlog.fsm.events import Row
from turnlog.server import Client, Principal, Role, Server, ServerLimits
from turnlog.server.client import Feed
from turnlog.server.connection import Connection
from turnlog.server.frames import PROTOCOL, AnyServerFrame, Delta, EventFrame, ServerFrame

PEOPLE = {
    "ann": Principal("ann"),
    "bob": Principal("bob"),
    "eve": Principal("eve", Role.OBSERVER, all_sessions=True),
    "max": Principal("max", Role.APPROVER, all_sessions=True),
    "root": Principal("root", all_sessions=True),
}

# The clock stands still, so what a second gives is all that a test has.
PLENTY = ServerLimits(rate=1e6, burst=1_000_000)


def token(name: str) -> str:
    """Somebody's token."""
    return f"the-secret-of-{name}-0123456789"


@dataclass
class Served:
    """A running engine with its server."""

    engine: Engine
    server: Server
    stack: contextlib.AsyncExitStack

    async def client(self, name: str = "ann", **more: Any) -> Client:
        """A client that is closed with the server."""
        return await self.stack.enter_async_context(await Client.connect(self.server.url, token(name), **more))

    async def socket(self, **more: Any) -> ClientConnection:
        """A bare socket, before hello."""
        return await self.stack.enter_async_context(
            dial(self.server.url, **{"proxy": None, "compression": None, **more})
        )

    async def raw(self, name: str = "ann", **more: Any) -> ClientConnection:
        """A bare socket after hello."""
        socket = await self.socket(**more)
        await say_hello(socket, token(name))
        assert (await received(socket)).type == "welcome"
        return socket

    async def deaf(self, name: str = "ann") -> tuple[ClientConnection, Connection]:
        """A bare socket that reads nothing by itself, with little room on the way to it, and the server's end of it."""
        small = sockets.socket()
        small.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        small.setblocking(False)
        await asyncio.get_running_loop().sock_connect(small, ("127.0.0.1", self.server.port))
        socket = await self.raw(name, sock=small, max_queue=1, close_timeout=0.1)
        end = next(one for one in self.server.connections if one.socket.remote_address[1] == socket.local_address[1])
        end.socket.transport.get_extra_info("socket").setsockopt(sockets.SOL_SOCKET, sockets.SO_SNDBUF, 4096)
        return socket, end

    def rows(self, session: str) -> list[Row]:
        """Every row of a session."""
        found: list[Row] = []
        while page := self.engine.log.read(session, len(found)):
            found += page
        return found

    def kinds(self, session: str) -> list[str]:
        """The kinds of its rows."""
        return [row.event.kind for row in self.rows(session)]

    def of_kind(self, session: str, kind: str) -> list[Any]:
        """The events of one kind."""
        return [row.event for row in self.rows(session) if row.event.kind == kind]


@dataclass
class World:
    """What stays when a process goes: the file, the clock, the ids, and what the tools did outside."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    ids: Ids = field(default_factory=Ids)
    ledger: list[Any] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """The log."""
        return self.folder / "log.db"

    @property
    def look(self) -> Tool:
        """A tool that runs unasked."""

        @tool(name="look")
        async def look(q: str) -> str:
            """Look something up."""
            self.ledger.append(("look", q))
            return f"saw {q}"

        return look

    @property
    def pay(self) -> Tool:
        """A tool that waits for a word."""

        @tool(name="pay", needs_approval=True, risk="spends money")
        async def pay(amount: int, to: str) -> str:
            """Pay somebody."""
            self.ledger.append(("pay", amount, to))
            return f"paid {amount} to {to}"

        return pay

    def agent(self, *script: Step, tools: Sequence[Tool] | None = None, **more: Any) -> Agent:
        """@agent with a script."""
        return self.playing(script, tools, **more)

    def playing(self, script: Any, tools: Sequence[Tool] | None = None, **more: Any) -> Agent:
        """@agent with a script or a function."""
        return Agent("@agent", ScriptedModel(script), tools=(self.look, self.pay) if tools is None else tools, **more)

    @contextlib.asynccontextmanager
    async def up(self, *agents: Agent, server: dict[str, Any] | None = None, **more: Any) -> AsyncIterator[Served]:
        """Start an engine and a server on the file."""
        more.setdefault("auto_approve", ())
        engine = Engine(self.path, agents, clock=self.clock, new_id=self.ids, seed=lambda: 7, **more)
        settings = {"tokens": {token(name): one for name, one in PEOPLE.items()}, "limits": PLENTY, **(server or {})}
        async with engine, Server(engine, **settings) as listening, contextlib.AsyncExitStack() as stack:
            yield Served(engine, listening, stack)


class Gated:
    """A model that streams pieces, one each time it is allowed to."""

    name = "gated"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.calls = 0
        self.allowed = asyncio.Semaphore(0)

    def allow(self, pieces: int = 1_000_000) -> None:
        """Let it say so many more pieces; once all were allowed, it ends."""
        for _ in range(min(pieces, len(self.pieces) + 1)):
            self.allowed.release()

    async def stream(self, call: ModelCall) -> AsyncIterator[ModelDelta | ModelReply]:
        """Say the pieces."""
        self.calls += 1
        for piece in self.pieces:
            await self.allowed.acquire()
            yield TextDelta(piece)
        await self.allowed.acquire()
        yield ModelReply("".join(self.pieces), usage=USAGE)


async def say_hello(socket: ClientConnection, secret: str, protocol: str = PROTOCOL) -> None:
    """Send hello."""
    await socket.send(json.dumps({"type": "hello", "protocol": protocol, "token": secret}))


async def received(socket: ClientConnection) -> AnyServerFrame:
    """The next frame, which must be one of the protocol."""
    return ServerFrame.validate_json(await socket.recv())


async def until(fits: Callable[[], bool]) -> None:
    """Let everybody else work until something is so; the test's time limit ends it."""
    while not fits():  # noqa: ASYNC110 - what is waited for has no event of its own; this gives way, it does not sleep
        await asyncio.sleep(0)


def body(frame: EventFrame) -> dict[str, Any]:
    """The body of an event that was sent whole."""
    assert frame.body is not None
    return frame.body


async def rest(feed: Feed) -> list[EventFrame]:
    """The rows up to the next one after which the session is with a person, or has ended."""
    rows: list[EventFrame] = []
    async for frame in feed:
        if not isinstance(frame, EventFrame):
            continue
        rows.append(frame)
        if frame.kind in ("turn_interrupted", "question_asked", "turn_failed", "session_terminated"):
            break
    return rows


async def card(feed: Feed) -> dict[str, Any]:
    """The next approval request."""
    return body(await feed.until("approval_requested"))


async def streamed(feed: Feed, kind: str) -> tuple[list[Delta], EventFrame]:
    """What was streamed before the next row of a kind."""
    deltas: list[Delta] = []
    async for frame in feed:
        if isinstance(frame, Delta):
            deltas.append(frame)
        elif isinstance(frame, EventFrame) and frame.kind == kind:
            return deltas, frame
    raise AssertionError("the feed ended")
