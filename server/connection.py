"""One connection: hello, then a reader that carries out commands in order, and a sender that is never waited for.

The sender takes, in this order: replies, rows, notes, pieces of what is being made. Only replies are queued, and while
too many of them wait nothing more is read; everything else is looked up when its turn comes.
"""

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from ..fsm.errors import Error
from .auth import Principal
from .commands import Denied, code_of, handle
from .frames import PROTOCOL, ClientCommand, ErrorFrame, FromServer, Hello, LimitsTold, Welcome, encoded
from .parse import BadFrame, find_id, parse
from .view import View

if TYPE_CHECKING:
    from .app import Server

# Close codes of the private range.
UNAUTHENTICATED = 4401
WRONG_PROTOCOL = 4406
TOO_SLOW = 4408
# A socket that takes everything never makes the sender wait: after so many bytes it gives way by itself.
BEFORE_YIELD = 64 * 1024
FRAME_COST = 4 * 1024
_log = logging.getLogger(__name__)


class Bucket:
    """So many units a second, and `burst` at once."""

    def __init__(self, rate: float, burst: int, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._level, self._at = float(burst), now

    def take(self, cost: float, now: float) -> bool:
        """Whether `cost` units are there; then they are gone."""
        self._level = min(float(self.burst), self._level + (now - self._at) * self.rate)
        self._at = now
        if self._level < min(cost, self.burst):
            return False
        self._level -= min(cost, self.burst)
        return True


class Connection:
    """A client's socket."""

    def __init__(self, server: "Server", socket: ServerConnection) -> None:
        self.server = server
        self.socket = socket
        self.principal = Principal("nobody")
        self.token = b""
        self.name = ""
        self.views: dict[str, View] = {}
        self.ended = ""
        self._over = False
        self._unyielded = 0
        self._shown: set[tuple[str, str]] = set()
        self._replies: deque[bytes] = deque()
        self._reply_bytes = 0
        self._awake = asyncio.Event()
        self._drained = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """From hello to the end. Nothing of a session ends with it."""
        with contextlib.suppress(ConnectionClosed):
            if not await self._hello():
                return
            self.server.connections.add(self)
            sender = asyncio.get_running_loop().create_task(self._send_all(), name=f"turnlog to {self.name}")
            try:
                await self._read()
            finally:
                self.server.connections.discard(self)
                for view in list(self.views.values()):
                    self.leave(view)
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)

    def end(self, code: int, reason: str) -> None:
        """Close with a code and a reason."""
        self.ended = self.ended or reason
        if self._closing is None:
            _log.info("connection %s is closed: %s", self.name or "before hello", reason)
            self._closing = asyncio.get_running_loop().create_task(self._close(code, reason))

    async def _close(self, code: int, reason: str) -> None:
        # A close frame waits behind what the client has not read yet, and without a limit.
        clock = self.server.clock
        late = clock.call_at(clock.monotonic() + self.server.limits.close_seconds, self.socket.transport.abort)
        try:
            await self.socket.close(code, reason)
        finally:
            late.cancel()

    def leave(self, view: View) -> None:
        """View a session no longer."""
        self.views.pop(view.room.session, None)
        view.room.views.discard(view)
        view.room.release()

    # In -------------------------------------------------------------------------------------------

    async def _hello(self) -> bool:
        limits, clock = self.server.limits, self.server.clock
        late = clock.call_at(
            clock.monotonic() + limits.hello_seconds, lambda: self.end(UNAUTHENTICATED, "no hello came in time")
        )
        try:
            message = await self.socket.recv()
        finally:
            late.cancel()
        try:
            frame = parse(message)
        except BadFrame as error:
            return await self._refuse(
                UNAUTHENTICATED, "unauthenticated", f"the first frame must be hello: {error.message}"
            )
        if not isinstance(frame, Hello):
            return await self._refuse(UNAUTHENTICATED, "unauthenticated", "the first frame must be hello, with a token")
        if frame.protocol != PROTOCOL:
            return await self._refuse(WRONG_PROTOCOL, "protocol", f"this server speaks {PROTOCOL} only")
        found = self.server.tokens.find(frame.token)
        if found is None:
            return await self._refuse(UNAUTHENTICATED, "unauthenticated", "the token is not known: ask for a new one")
        self.token, self.principal = found
        self.name = self.server.name_for(self.principal)
        told = LimitsTold(max_frame=limits.max_frame, max_body=limits.max_body, rate=limits.rate, burst=limits.burst)
        self.reply(
            Welcome(
                protocol=PROTOCOL, principal=self.principal.name, role=self.principal.role.value,
                connection=self.name, limits=told, version=self.server.engine.code_version,
            )
        )  # fmt: skip
        return True

    async def _refuse(self, close: int, code: str, message: str) -> bool:
        await self.socket.send(encoded(ErrorFrame(code=code, message=message)), text=True)
        self.end(close, message[:100])
        assert self._closing is not None
        await self._closing
        return False

    async def _read(self) -> None:
        limits, clock = self.server.limits, self.server.clock
        bucket = Bucket(limits.rate, limits.burst, clock.monotonic())
        async for message in self.socket:
            while self._full and not self._over:
                self._drained.clear()
                await self._drained.wait()
            if not bucket.take(max(1.0, len(message) / limits.unit), clock.monotonic()):
                told = f"more than {limits.rate:g} frames a second: wait, then send this one again"
                self.reply(ErrorFrame(code="rate_limited", message=told, id=find_id(message)))
                continue
            try:
                frame = parse(message)
            except BadFrame as error:
                self.reply(ErrorFrame(code=error.code, message=error.message, id=error.id))
                continue
            if isinstance(frame, Hello):
                self.reply(ErrorFrame(code="conflict", message="hello was said already"))
                continue
            await self._carry_out(frame)

    @property
    def _full(self) -> bool:
        limits = self.server.limits
        return len(self._replies) >= limits.replies or self._reply_bytes >= limits.reply_bytes

    async def _carry_out(self, frame: ClientCommand) -> None:
        try:
            await handle(self, frame)
        except Denied as error:
            self.reply(
                ErrorFrame(code=error.code, message=error.message, id=frame.id, session=error.session, seq=error.seq)
            )
        except Error as error:
            self.reply(ErrorFrame(code=code_of(error), message=str(error), id=frame.id))
        except Exception:  # noqa: BLE001 - one command must not end the connection
            _log.exception("command %s of %s failed", frame.type, self.name)
            told = "the server failed on this command: see its log; other commands still work"
            self.reply(ErrorFrame(code="internal", message=told, id=frame.id))

    # Out ------------------------------------------------------------------------------------------

    def reply(self, frame: FromServer) -> None:
        """Send a frame before anything else."""
        data = encoded(frame)
        self._replies.append(data)
        self._reply_bytes += len(data)
        self.wake()

    def wake(self) -> None:
        """Let the sender look."""
        self._awake.set()

    async def _send_all(self) -> None:
        try:
            while True:
                await self._awake.wait()
                self._awake.clear()
                while await self._send_next():
                    pass
        except ConnectionClosed:
            pass
        except Exception:  # noqa: BLE001 - the reader must not go on without a sender
            _log.exception("the sender of %s failed", self.name)
            self.end(1011, "the server failed: see its log")
        finally:
            # The reader may be waiting for replies to go out; none will any more.
            self._over = True
            self._drained.set()

    async def _send_next(self) -> bool:
        if self._replies:
            reply = self._replies.popleft()
            self._reply_bytes -= len(reply)
            await self._send(reply)
            self._drained.set()
            return True
        views = list(self.views.values())
        for view in views:
            if (found := view.next_row()) is not None:
                data, request = found
                await self._send(data)
                if request is not None:
                    self._card(view, *request)
                # The next round starts with another view, and other connections get their turn.
                self._rotate(view)
                return True
        for view in views:
            if (more := view.next_told() or view.next_delta()) is not None:
                await self._send(more)
                self._rotate(view)
                return True
        return False

    def _rotate(self, view: View) -> None:
        if len(self.views) > 1 and self.views.get(view.room.session) is view:
            self.views[view.room.session] = self.views.pop(view.room.session)

    async def _send(self, data: bytes) -> None:
        clock = self.server.clock
        late = clock.call_at(clock.monotonic() + self.server.limits.send_seconds, self._too_slow)
        try:
            await self.socket.send(data, text=True)
        finally:
            late.cancel()
        self._unyielded += FRAME_COST + len(data)
        if self._unyielded > BEFORE_YIELD:
            self._unyielded = 0
            await asyncio.sleep(0)

    def _too_slow(self) -> None:
        """The client reads nothing: a close frame would wait behind what it does not read, so cut the connection."""
        self.ended = f"{TOO_SLOW}: nothing was read for {self.server.limits.send_seconds:g} s"
        _log.warning("connection %s is cut: %s", self.name, self.ended)
        self.socket.transport.abort()

    def _card(self, view: View, request_id: str, digest: str) -> None:
        """The card of a request was sent: put that on record, once for this connection, if they may decide."""
        key = (view.room.session, request_id)
        if key in self._shown or not self.principal.may("decide"):
            return
        if view.room.shown(request_id, digest, self.name, self.principal.actor):
            self._shown.add(key)
