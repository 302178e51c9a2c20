"""A connection to an MCP server, in words of our own. The only module that imports the package `mcp`."""

import asyncio
import base64
import binascii
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from ...fsm.canonical import DEEPEST_WRITTEN, read_json
from ..values import told
from .mcp import Lost

PAGES = 100  # of a listing; a server that never ends it is no good
WORDS = 2000  # characters of what a program says on stderr, kept for the report of a start that failed
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_FORGOTTEN = "Session terminated"  # what the client makes of a 404: the server knows the session no more


class Found(NamedTuple):
    """A tool as a server lists it. `fault` tells what is wrong with arguments; `wrong` why it cannot be used."""

    name: str
    description: str
    schema: dict[str, Any]
    claims: str
    fault: Callable[[Any], str]
    wrong: str


class Result(NamedTuple):
    """What a call brought: text, files (name, media type, bytes), and whether the server calls it a failure."""

    text: str
    files: tuple[tuple[str, str, bytes], ...]
    failed: bool


class Connection:
    """One connection. It lives in a task of its own, because the library's scopes end where they began."""

    def __init__(
        self,
        command: Sequence[str],
        url: str,
        env: Mapping[str, str],
        cwd: str | Path | None,
        headers: Mapping[str, str],
    ) -> None:
        self.gone = False
        self.ended = asyncio.Event()  # the other side is gone
        self._command, self._url, self._env, self._cwd, self._headers = command, url, env, cwd, headers
        self._client: Client | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._words = Words()

    async def open(self) -> None:
        """Start or reach the server.

        Raises:
            Lost: it did not answer as an MCP server; with the end of what it said on stderr.
        """
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        self._task = loop.create_task(self._live(ready))
        try:
            await asyncio.shield(ready)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            raise
        except Exception as error:
            said = f", after it said: {self._words.text}" if self._words.text else ""
            raise Lost(f"it did not start as an MCP server: {told(plain(error))}{said}") from error

    async def _live(self, ready: "asyncio.Future[None]") -> None:
        try:
            async with Client(self._transport(), cache=None) as client:
                self._client = client
                if not ready.done():
                    ready.set_result(None)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits is told; later nobody does
            if not ready.done():
                ready.set_exception(error)
        finally:
            self.gone = True
            if not ready.done():
                ready.cancel()

    async def close(self) -> None:
        """Leave; a program is ended."""
        self.gone = True
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncGenerator[TransportStreams, None]:
        async with contextlib.AsyncExitStack() as stack:
            if self._url:
                # A proxy of the environment is not for this machine.
                direct = urlsplit(self._url).hostname in _LOOPBACK
                limits = httpx2.Timeout(30.0, read=None)  # a call has its own limit, by the engine's clock
                http = httpx2.AsyncClient(headers=dict(self._headers), timeout=limits, trust_env=not direct)
                await stack.enter_async_context(http)
                read, write = await stack.enter_async_context(streamable_http_client(self._url, http_client=http))
            else:
                program = StdioServerParameters(
                    command=self._command[0], args=list(self._command[1:]), env=dict(self._env), cwd=self._cwd
                )
                errlog = stack.enter_context(self._words)
                read, write = await stack.enter_async_context(stdio_client(program, errlog=errlog))
            yield Watched(read, self._ended), write

    def _ended(self) -> None:
        self.gone = True
        self.ended.set()

    # Requests -------------------------------------------------------------------------------------

    async def tools(self) -> list[Found]:
        """What the server lists, all pages.

        Raises:
            Lost: it went away, or does not come to an end.
        """
        client, found, cursor = self._open_client(), [], None
        for _ in range(PAGES):
            try:
                page = await client.list_tools(cursor=cursor)
            except _GONE as error:
                raise Lost(told(error)) from error
            found += [_found(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise Lost(f"its listing has more than {PAGES} pages")

    async def call(self, name: str, arguments: dict[str, Any]) -> Result:
        """Call a tool.

        Raises:
            Lost: the connection ended meanwhile. MCPError: the server refused the request.
        """
        try:
            return _result(await self._open_client().call_tool(name, arguments))
        except MCPError as error:
            if error.code == types.CONNECTION_CLOSED or _FORGOTTEN in error.message:
                raise Lost(error.message) from error
            raise
        except _GONE as error:
            raise Lost(told(error)) from error
        except (RuntimeError, ValidationError) as error:  # the library's words for an answer that it cannot accept
            return Result(f"(The tool ran. Its result is not what the server promised: {error})", (), failed=False)

    def _open_client(self) -> Client:
        if self._client is None:
            raise Lost("it is not open")
        return self._client


_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, httpx2.HTTPError, OSError)


class Watched:
    """A stream of messages that says when it has ended."""

    def __init__(self, stream: "ReadStream[SessionMessage | Exception]", ended: Callable[[], None]) -> None:
        self._stream, self._ended = stream, ended

    async def receive(self) -> "SessionMessage | Exception":
        """The next message."""
        try:
            return await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._ended()
            raise

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()

    def __aiter__(self) -> "Watched":
        return self

    async def __anext__(self) -> "SessionMessage | Exception":
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._stream.__aexit__(*error)  # type: ignore[arg-type]  # passed on as they came

    @property
    def last_context(self) -> Any:
        """What the library keeps beside the newest message."""
        return getattr(self._stream, "last_context", None)


class Words:
    """The end of what a program says on stderr. A context manager that gives the file to write to."""

    def __init__(self) -> None:
        self.text = ""
        self._read = -1

    def __enter__(self) -> Any:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        asyncio.get_running_loop().add_reader(self._read, self._more)
        self._file = os.fdopen(write, "w")
        return self._file

    def _more(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read, 65_536)
            self.text = (self.text + data.decode(errors="replace"))[-WORDS:]
            if not data:
                asyncio.get_running_loop().remove_reader(self._read)

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._more()  # what came last
        asyncio.get_running_loop().remove_reader(self._read)
        os.close(self._read)
        self.text = self.text.strip()


def plain(error: BaseException) -> BaseException:
    """The error that a group of one holds."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _found(tool: types.Tool) -> Found:
    hints = tool.annotations.model_dump(exclude_none=True, exclude={"title"}) if tool.annotations is not None else {}
    claims = ", ".join(f"{name} {str(value).lower()}" for name, value in sorted(hints.items()))
    schema = tool.input_schema
    fault, wrong = checker(schema)
    if "#" in tool.name or not tool.name.strip():
        wrong = "its name is blank, or has a '#'"
    return Found(tool.name, tool.description or tool.title or "", schema, claims, fault, wrong)


def checker(schema: dict[str, Any]) -> tuple[Callable[[Any], str], str]:
    """What tells the faults of arguments by a JSON Schema; and why there is none, if the schema is none.

    Nothing is fetched: a reference to another document is a fault of the schema.
    """
    validators, registry = import_module("jsonschema.validators"), import_module("referencing").Registry()
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
        if schema.get("type", "object") != "object":
            raise ValueError("it describes no object")  # noqa: TRY301 - told like the library's own
        validator = kind(schema, registry=registry)
        next(validator.iter_errors({}), None)  # a reference that leads nowhere is found now
    except Exception as error:  # noqa: BLE001 - a server may list anything
        return (lambda _: "the schema is wrong"), f"its schema is wrong: {str(error).splitlines()[0]}"

    def fault(value: Any) -> str:
        try:
            wrong = sorted(validator.iter_errors(value), key=lambda one: list(map(str, one.absolute_path)))
        except Exception as error:  # noqa: BLE001 - as above; a part of a schema may be looked at only now
            return f"they cannot be checked: {str(error).splitlines()[0]}"
        where = [(".".join(map(str, one.absolute_path)) or "arguments", one.message) for one in wrong]
        return "; ".join(f"{path}: {message[:500]}" for path, message in where[:20])

    return fault, ""


def _result(result: types.CallToolResult) -> Result:
    texts: list[str] = []
    files: list[tuple[str, str, bytes]] = []
    for place, block in enumerate(result.content, 1):
        match block:
            case types.TextContent():
                texts.append(block.text)
            case types.ImageContent() | types.AudioContent():
                _file(texts, files, f"{block.type}-{place}", block.mime_type, block.data)
            case types.ResourceLink():
                texts.append(f"[{block.name}: {block.uri}]")
            case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
                texts.append(f"[{inner.uri}]\n{inner.text}")
            case types.EmbeddedResource(resource=types.BlobResourceContents() as inner):
                _file(texts, files, inner.uri.rsplit("/", 1)[-1] or "file", inner.mime_type or _BYTES, inner.blob)
    if result.structured_content is not None and not any(_same(text, result.structured_content) for text in texts):
        texts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return Result("\n\n".join(texts), tuple(files), result.is_error)


_BYTES = "application/octet-stream"


def _file(texts: list[str], files: list[tuple[str, str, bytes]], name: str, media_type: str, data: str) -> None:
    try:
        files.append((name, media_type, base64.b64decode(data, validate=True)))
    except (binascii.Error, ValueError):
        texts.append(f"[{name} ({media_type}) came damaged]")


def _same(text: str, value: Any) -> bool:
    """Whether the structured content only says the same again; servers wrap a plain text as {"result": text}."""
    if value in (text, {"result": text}):
        return True
    try:
        return bool(read_json(text, DEEPEST_WRITTEN) == value)
    except ValueError:
        return False
