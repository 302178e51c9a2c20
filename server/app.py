"""The server: who is let in at the door, the rooms, start and stop."""

import asyncio
import contextlib
import http
import ipaddress
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from websockets.asyncio.server import Server as Listening
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as listen
from websockets.http11 import Request, Response

from ..engine import Engine
from ..engine.clock import Clock
from ..fsm.errors import Misuse
from ..fsm.events import SessionStarted
from .auth import Principal, Tokens, fresh_token
from .connection import UNAUTHENTICATED, Connection
from .room import Room, body_of

PATH = "/ws"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OWNERS = 10_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What one server takes: sizes in bytes, times in seconds.

    Of `connections` twice as many may be open while they have not shown that they speak WebSocket.
    A frame costs 1, a long one 1 for every `unit` bytes; a connection gets `rate` a second, `burst` at once.
    """

    max_frame: int = 256 * 1024
    max_body: int = 512 * 1024
    connections: int = 256
    views: int = 256
    replies: int = 256
    reply_bytes: int = 2**20
    rate: float = 50.0
    burst: int = 200
    unit: int = 16 * 1024
    handshake_seconds: float = 5.0
    hello_seconds: float = 5.0
    send_seconds: float = 20.0
    close_seconds: float = 5.0


class Server:
    """Lets people and programs in to the sessions of an engine. Use it as an async context manager.

    Args:
        engine: started already.
        host, port: where to listen; port 0 takes a free one.
        tokens: whose token is whose. Without any, on loopback, one is made for the principal "local": see `token`.
        origins: pages that may connect from a browser, as exact origins ("https://app.example").
        hosts: names under which this server is reached, beside loopback and `host`.
        limits: see `ServerLimits`.
        clock: the engine's where it is left out.

    Raises:
        Misuse: the address is not loopback and there are no tokens.
    """

    def __init__(
        self,
        engine: Engine,
        host: str = "127.0.0.1",
        port: int = 0,
        tokens: Tokens | Mapping[str, Principal] | None = None,
        *,
        origins: Sequence[str] = (),
        hosts: Sequence[str] = (),
        limits: ServerLimits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.engine = engine
        self.tokens = tokens if isinstance(tokens, Tokens) else Tokens(tokens)
        self.token = ""
        guard(host, self.tokens)
        if not self.tokens:
            self.token = fresh_token()
            self.tokens.add(self.token, Principal("local", all_sessions=True))
        self.limits = limits or ServerLimits()
        self.clock = clock or engine.clock
        self.rooms: dict[str, Room] = {}
        self.connections: set[Connection] = set()
        self.tcp: set[ServerConnection] = set()
        self._host, self._port = host, port
        self._origins = frozenset(origins)
        self._hosts = frozenset(one.lower() for one in (*LOOPBACK, host, *hosts))
        self._numbers: Counter[str] = Counter()
        self._owners: OrderedDict[str, str] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._large = ("", 0, "")
        self._there = 0
        self._listening: Listening | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen."""
        limits = self.limits
        for session in self.engine.in_memory:
            # What is in flight is heard from now on, so that viewers who come later get all of its text so far.
            async with self.using(session):
                pass
        server = self

        class Counted(ServerConnection):
            """A socket that counts from its first byte on: the library has no cap on connections that say nothing."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                server.tcp.add(self)
                if len(server.tcp) > 2 * limits.connections:
                    self.transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                server.tcp.discard(self)
                super().connection_lost(exc)

        self._listening = await listen(
            self._run, self._host, self._port, process_request=self._door, compression=None,
            max_size=limits.max_frame, open_timeout=limits.handshake_seconds, close_timeout=5, server_header=None,
            create_connection=Counted,
        )  # fmt: skip

    async def stop(self) -> None:
        """Close every connection with 1001, or at once where the client does not read. The engine's sessions go on."""
        if self._listening is not None:
            for socket in [one for one in self.tcp if one.transport.get_write_buffer_size()]:
                socket.transport.abort()
            self._listening.close(reason="the server stops")
            await self._listening.wait_closed()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for room in list(self.rooms.values()):
            room.detach()
        self.rooms.clear()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._listening is not None
        return int(self._listening.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        """Where clients connect; the token is never part of it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"ws://{host}:{self.port}{PATH}"

    def revoke(self, token: str) -> None:
        """Let a token in no longer, and close the connections that came with it."""
        mark = self.tokens.revoke(token)
        for connection in [one for one in self.connections if one.token == mark]:
            connection.end(UNAUTHENTICATED, "the token was revoked")

    # The door -------------------------------------------------------------------------------------

    def _door(self, socket: ServerConnection, request: Request) -> Response | None:
        if self._there >= self.limits.connections:
            return socket.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "Too many connections: try again later.\n")
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or host_name(hosts[0]) not in self._hosts:
            return socket.respond(http.HTTPStatus.FORBIDDEN, "This server is not known under that Host.\n")
        origins = request.headers.get_all("Origin")
        if len(origins) > 1 or any(origin not in self._origins for origin in origins):
            return socket.respond(http.HTTPStatus.FORBIDDEN, "Pages of that Origin may not connect.\n")
        if urlsplit(request.path).path != PATH:
            return socket.respond(http.HTTPStatus.NOT_FOUND, f"The socket is at {PATH}.\n")
        return None

    async def _run(self, socket: ServerConnection) -> None:
        self._there += 1
        try:
            await Connection(self, socket).run()
        finally:
            self._there -= 1

    # What connections need ------------------------------------------------------------------------

    def name_for(self, principal: Principal) -> str:
        """A name for a connection: the principal and a number."""
        self._numbers[principal.name] += 1
        return f"{principal.name}#{self._numbers[principal.name]}"

    def owner_of(self, session: str) -> str | None:
        """Whose a session is; None for an unknown one.

        Raises:
            CorruptLog: its first row cannot be read.
        """
        if (known := self._owners.get(session)) is not None:
            self._owners.move_to_end(session)
            return known
        rows = self.engine.log.read(session, 0, 1)
        if not rows or not isinstance(rows[0].event, SessionStarted):
            return None
        owner = self._owners[session] = rows[0].event.owner
        if len(self._owners) > _OWNERS:
            self._owners.popitem(last=False)
        return owner

    def body_text(self, session: str, seq: int) -> str | None:
        """The body of a row as JSON text; None when there is no such row. Its parts are fetched one after another."""
        if self._large[:2] != (session, seq):
            rows = self.engine.log.read(session, seq - 1, 1) if seq else []
            if not rows:
                return None
            self._large = session, seq, json.dumps(body_of(rows[0].event), ensure_ascii=False)
        return self._large[2]

    @contextlib.asynccontextmanager
    async def using(self, session: str) -> AsyncIterator[Room]:
        """The room of a session that exists, attached to its live session.

        Raises:
            UnknownSession, CorruptLog, Conflict, StorageError: there is none.
        """
        room = self.rooms.setdefault(session, Room(self, session))
        room.users += 1
        try:
            await room.attach()
            yield room
        finally:
            room.users -= 1
            room.release()

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a refused try could not be put on record: %s", error)


def guard(host: str, tokens: Tokens) -> None:
    """Without tokens, let in who is on this machine only.

    Raises:
        Misuse: others could come.
    """
    if not tokens and not is_loopback(host):
        raise Misuse(
            f"{host!r} can be reached from other machines: give tokens (`turnlog serve --token-file FILE`), "
            "or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without its port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


async def serve(
    engine: Engine, host: str = "127.0.0.1", port: int = 0, tokens: Tokens | Mapping[str, Principal] | None = None,
    **more: Any,
) -> None:  # fmt: skip
    """Serve until cancelled, or until the engine's log fails.

    Raises:
        Misuse: see `Server`. StorageFailed: the log failed; start the process again.
    """
    async with Server(engine, host, port, tokens, **more):
        await engine.failed.wait()
    if engine.failure is not None:
        raise engine.failure
