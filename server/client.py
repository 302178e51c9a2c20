"""A client of `turnlog.v1`, for the command line, for tests and for programs."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from pydantic import JsonValue
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.exceptions import ConnectionClosed

from .frames import (
    PROTOCOL,
    AnyServerFrame,
    Delta,
    ErrorFrame,
    EventFrame,
    GrantLine,
    GrantsTold,
    Live,
    Part,
    Reply,
    ServerFrame,
    Sessions,
    TroubleFrame,
    Welcome,
)

SessionFrame = EventFrame | Delta | Live | TroubleFrame


class ClientError(Exception):
    """An error frame, or `disconnected`: the connection ended before the answer came. Send again under the same id."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message = code, message


class Feed(AsyncIterator[SessionFrame]):
    """The frames of one session. `seq` is the last row that came: after a lost connection, open again after it."""

    def __init__(self, client: "Client", session: str, after: int) -> None:
        self.session, self.seq = session, after
        self._client = client
        self._frames: asyncio.Queue[SessionFrame | None] = asyncio.Queue()

    def put(self, frame: SessionFrame | None) -> None:
        """Take a frame; None ends the feed."""
        self._frames.put_nowait(frame)

    async def __anext__(self) -> SessionFrame:
        frame = await self._frames.get()
        if frame is None:
            self._frames.put_nowait(None)
            raise self._client.lost()
        if isinstance(frame, EventFrame):
            self.seq = frame.seq
        return frame

    async def until(self, kind: str) -> EventFrame:
        """The next row of a kind; everything before it is passed over.

        Raises:
            ClientError: the connection ended.
        """
        async for frame in self:
            if isinstance(frame, EventFrame) and frame.kind == kind:
                return frame
        raise self._client.lost()

    async def live(self) -> list[EventFrame]:
        """The rows that come before `live`."""
        rows: list[EventFrame] = []
        async for frame in self:
            if isinstance(frame, Live):
                break
            if isinstance(frame, EventFrame):
                rows.append(frame)
        return rows

    async def close(self) -> None:
        """View the session no longer."""
        await self._client.close_view(self.session)


class Client:
    """One connection. Frames that are waited for are buffered without a limit: keep reading the feeds you open.

    Every command returns the `Reply` (look at `refused`) and raises `ClientError` for an error frame. `id` names the
    command; give your own to send a command again after a lost connection.
    """

    def __init__(self, socket: ClientConnection, welcome: Welcome) -> None:
        self.socket = socket
        self.welcome = welcome
        self.errors: list[ErrorFrame] = []
        self._waiting: dict[str, asyncio.Future[Any]] = {}
        self._feeds: dict[str, Feed] = {}
        self._reader = asyncio.get_running_loop().create_task(self._read())

    @classmethod
    async def connect(cls, url: str, token: str, **more: Any) -> Self:
        """Connect and say hello.

        Raises:
            ClientError: the server did not let us in. OSError: nobody listens there.
        """
        socket = await dial(url, **{"proxy": None, "compression": None, "max_size": 2**20, **more})
        try:
            await socket.send(json.dumps({"type": "hello", "protocol": PROTOCOL, "token": token}))
            frame = ServerFrame.validate_json(await socket.recv())
        except ConnectionClosed as error:
            raise ClientError("disconnected", str(error)) from error
        if isinstance(frame, ErrorFrame):
            await socket.close()
            raise ClientError(frame.code, frame.message)
        assert isinstance(frame, Welcome), f"the server began with {frame.type}"
        return cls(socket, frame)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Sessions go on."""
        await self.socket.close()
        await asyncio.gather(self._reader, return_exceptions=True)

    def lost(self) -> ClientError:
        """What is told to everybody who still waits."""
        return ClientError("disconnected", f"{self.socket.close_code} {self.socket.close_reason or ''}".strip())

    # Commands -------------------------------------------------------------------------------------

    async def create(
        self, session: str | None = None, *, entry: str = "", limits: dict[str, Any] | None = None, id: str = ""  # noqa: A002 - the field's name
    ) -> Reply:  # fmt: skip
        """Start a session; its id is `reply.session`."""
        return await self._reply("create", id, session=session, entry=entry, limits=limits)

    async def fork(self, session: str, seq: int, new: str | None = None, *, id: str = "") -> Reply:  # noqa: A002 - the field's name
        """Start a session where another one stood after its row `seq`; its id is `reply.session`."""
        return await self._reply("fork", id, session=session, seq=seq, new=new)

    async def open(self, session: str, after: int = 0, *, deltas: bool = True, notes: bool = True) -> Feed:
        """View a session: rows with seq > after, then `live`, then what happens."""
        if session in self._feeds:
            raise ClientError("conflict", "this connection views the session already: close that feed first")
        feed = self._feeds[session] = Feed(self, session, after)
        try:
            await self._reply("open", "", session=session, after=after, deltas=deltas, notes=notes)
        except ClientError:
            del self._feeds[session]
            raise
        return feed

    async def close_view(self, session: str) -> Reply:
        """View a session no longer."""
        self._feeds.pop(session, None)
        return await self._reply("close", "", session=session)

    async def send(
        self, session: str, text: str, *, sender: str = "", recipient: str = "", id: str = ""  # noqa: A002 - the field's name
    ) -> Reply:  # fmt: skip
        """Say something."""
        return await self._reply("send", id, session=session, text=text, sender=sender, recipient=recipient)

    async def decide(
        self,
        session: str,
        request: str,
        digest: str,
        outcome: str,
        *,
        reason: str = "",
        arguments: dict[str, JsonValue] | None = None,
        result: str = "",
        remember: str = "",
        exact: bool = False,
        id: str = "",  # noqa: A002 - the field's name
    ) -> Reply:
        """Give a word on a request: approved, denied, or (for an unknown outcome) committed."""
        return await self._reply(
            "decide", id, session=session, request=request, digest=digest, outcome=outcome, reason=reason,
            arguments=arguments, result=result, remember=remember, exact=exact,
        )  # fmt: skip

    async def answer(self, session: str, request: str, answers: list[str] | None, *, id: str = "") -> Reply:  # noqa: A002 - the field's name
        """Answer an open question; None skips it."""
        return await self._reply("answer", id, session=session, request=request, answers=answers)

    async def stop(self, session: str, scope: str = "turn", *, id: str = "") -> Reply:  # noqa: A002 - the field's name
        """End the open turn, or the session for good."""
        return await self._reply("stop", id, session=session, scope=scope)

    async def retry(self, session: str, *, id: str = "") -> Reply:  # noqa: A002 - the field's name
        """Try the failed turn again."""
        return await self._reply("retry", id, session=session)

    async def resume(self, session: str, *, id: str = "") -> Reply:  # noqa: A002 - the field's name
        """Let a model speak for the awaited node (`continue` on the wire)."""
        return await self._reply("continue", id, session=session)

    async def grant(self, session: str, tool: str, *, id: str = "", **more: Any) -> Reply:  # noqa: A002 - the field's name; fields of the frame
        """Allow a tool in advance."""
        return await self._reply("grant", id, session=session, tool=tool, **more)

    async def revoke(self, session: str, grant: str, *, reason: str = "", id: str = "") -> Reply:  # noqa: A002 - the field's name
        """Take a grant back."""
        return await self._reply("revoke", id, session=session, grant=grant, reason=reason)

    async def grants(self, session: str) -> tuple[GrantLine, ...]:
        """The grants that hold in a session."""
        told = await self.command("grants", session=session)
        assert isinstance(told, GrantsTold)
        return told.grants

    async def list(self, after: str = "", limit: int = 100) -> Sessions:
        """A page of sessions."""
        page = await self.command("list", after=after, limit=limit)
        assert isinstance(page, Sessions)
        return page

    async def fetch(self, session: str, seq: int) -> dict[str, JsonValue]:
        """The body of a large row, part by part."""
        texts: list[str] = []
        parts = 1
        while len(texts) < parts:
            part = await self.command("fetch", session=session, seq=seq, part=len(texts))
            assert isinstance(part, Part)
            parts = part.parts
            texts.append(part.text)
        body: dict[str, JsonValue] = json.loads("".join(texts))
        return body

    async def command(self, type: str, id: str = "", **fields: Any) -> AnyServerFrame:  # noqa: A002 - the fields' names; any JSON values
        """Send a command and wait for its answer.

        Raises:
            ClientError: an error frame, or the connection ended.
        """
        mark = id or secrets.token_hex(12)
        answer: asyncio.Future[AnyServerFrame] = asyncio.get_running_loop().create_future()
        self._waiting[mark] = answer
        try:
            await self.socket.send(json.dumps({"type": type, "id": mark, **fields}))
            if self._reader.done():
                raise self.lost()
            return await answer
        except ConnectionClosed as error:
            raise self.lost() from error
        finally:
            self._waiting.pop(mark, None)

    async def _reply(self, type: str, id: str, **fields: Any) -> Reply:  # noqa: A002 - as in `command`
        reply = await self.command(type, id, **fields)
        assert isinstance(reply, Reply), f"{type} was answered with {reply.type}"
        return reply

    # In -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        try:
            with contextlib.suppress(ConnectionClosed):
                async for message in self.socket:
                    self._take(ServerFrame.validate_json(message))
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(self.lost())
            for feed in self._feeds.values():
                feed.put(None)

    def _take(self, frame: AnyServerFrame) -> None:
        match frame:
            case EventFrame() | Delta() | Live() | TroubleFrame():
                if (feed := self._feeds.get(frame.session)) is not None:
                    feed.put(frame)
            case ErrorFrame():
                waiting = self._waiting.get(frame.id or "")
                if waiting is None:
                    self.errors.append(frame)
                elif not waiting.done():
                    waiting.set_exception(ClientError(frame.code, frame.message))
            case Reply() | Sessions() | GrantsTold() | Part():
                waiting = self._waiting.get(frame.id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
            case Welcome():
                pass
