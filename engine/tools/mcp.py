"""`McpServer`: the tools of a server that speaks the Model Context Protocol (extra `mcp`).

McpServer("files", command=["npx", "-y", "@modelcontextprotocol/server-filesystem", "."], free=["read_*", "list_*"])
McpServer("search", url="http://127.0.0.1:8080/mcp")

Every call asks for a word unless the application says otherwise with `free`: what a server says of its tools
(readOnlyHint and its like) is shown as what it claims, and decides nothing.
"""

import asyncio
import math
import os
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ...fsm.canonical import clean
from ...fsm.errors import Error, Misuse, OutcomeUnknown
from ...fsm.values import COOLDOWN_SECONDS, Repeats
from .function import Tool, ToolContext
from .registry import CHILD
from .schema import CONTEXT, AnyArguments, SchemaTool
from .source import Host, Kind, checked_name, fits

if TYPE_CHECKING:
    from .mcp_client import Connection, Found, Result

COOLDOWN = "TURNLOG_MCP_COOLDOWN"
_ON, _OFF = ("", "true", "1", "yes", "on"), ("false", "0", "no", "off")
REST_SECONDS = 60.0  # before a server that was lost too often is tried again
INSTALL = "pip install 'turnlog[mcp]'"


class Lost(Error):
    """The connection ended while something was under way."""


class ToolFailed(Error):
    """A server says that its tool failed."""


def cools_down() -> bool:
    """Whether tools of MCP servers have a pause where nothing else is said.

    Raises:
        Misuse: the variable has a value that means neither.
    """
    value = os.environ.get(COOLDOWN, "").strip().lower()
    if value not in (*_ON, *_OFF):
        raise Misuse(f"{COOLDOWN}={value!r} is neither: use true or false")
    return value not in _OFF


class McpServer:
    """A server as a source of tools; `name#tool` is how one of them is called. What it lists when it is opened counts.

    Args:
        name: what agents and the log call it.
        command: a program with its arguments, started at once and spoken to over stdin and stdout.
        url: of a server that runs, over streamable HTTP.
        env, cwd: for `command`; of this process's environment the program gets PATH, HOME and a few more only.
        headers: for `url`.
        only: the tools that are used, by name or pattern; None uses all.
        free: tools that run without a word, by name or pattern.
        idempotent: tools that may be repeated without harm, by name or pattern.
        cooldown: seconds that must pass between two runs of a tool: a number for all, or one for each name or pattern.
            What it does not name has 30, or 0 where TURNLOG_MCP_COOLDOWN is false.
        timeout: seconds that a call may take, None for any number.
        open_timeout: seconds to start and to list the tools.
        reopen: how many times in a row a lost server is opened again.

    Raises:
        Misuse: something of that makes no sense.
    """

    kind: Kind = "mcp"

    def __init__(
        self,
        name: str,
        *,
        command: Sequence[str] = (),
        url: str = "",
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        only: Collection[str] | None = None,
        free: Collection[str] = (),
        idempotent: Collection[str] = (),
        cooldown: float | Mapping[str, float] | None = None,
        timeout: float | None = 60.0,
        open_timeout: float = 30.0,
        reopen: int = 3,
    ) -> None:
        self.name = checked_name("mcp server", name)
        if bool(command) is bool(url) or isinstance(command, str):
            raise Misuse(f"MCP server {name!r} needs a command (a list of texts) or a url, and not both")
        for label, given in (("only", only), ("free", free), ("idempotent", idempotent)):
            if isinstance(given, str):
                raise Misuse(f"{label} of MCP server {name!r} is the text {given!r}: give a list of names")
        self.command, self.url = tuple(command), url
        self.env, self.cwd, self.headers = dict(env or {}), cwd, dict(headers or {})
        self.only, self.free, self.idempotent = only, tuple(free), tuple(idempotent)
        self.cooldown = {"*": cooldown} if isinstance(cooldown, int | float) else dict(cooldown or {})
        self.timeout, self.open_timeout, self.reopen = timeout, open_timeout, reopen
        self._pause = COOLDOWN_SECONDS if cools_down() else 0.0
        for child in ("", *self.cooldown):
            self._repeats(child)
        self._host: Host | None = None
        self._connection: Connection | None = None
        self._openings = 0  # since a call ended well
        self._resting_until = 0.0
        self._opening = asyncio.Lock()
        self.left_out: tuple[str, ...] = ()

    # Tools ----------------------------------------------------------------------------------------

    async def open(self, host: Host) -> Sequence[Tool]:
        """Start or reach the server, and list its tools. One with a schema that is none is left out, with a note.

        Raises:
            Misuse: the extra is not installed. Exception: the server did not answer as one.
        """
        if find_spec("mcp") is None:
            raise Misuse(f"MCP servers need the package mcp: {INSTALL}")
        self._host, self._openings = host, 0
        connection = await self._connected()
        listed: list[Found] = await host.within(
            self.open_timeout, connection.tools(), f"listing the tools of {self.name}"
        )
        wanted = [one for one in listed if self.only is None or fits(self.only, one.name)]
        self.left_out = tuple(f"the tool {one.name!r} is left out: {one.wrong}" for one in wanted if one.wrong)
        return [self._tool(one) for one in wanted if not one.wrong]

    async def close(self) -> None:
        """End the server."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _tool(self, found: "Found") -> Tool:
        async def call(arguments: dict[str, Any], context: ToolContext) -> str:
            return await self._call(found, arguments, context)

        claims = f" (the server claims: {found.claims})" if found.claims else ""
        return SchemaTool(
            f"{self.name}{CHILD}{found.name}", clean(found.description), call, AnyArguments,
            needs_approval=not fits(self.free, found.name), idempotent=fits(self.idempotent, found.name),
            risk=f"runs on the MCP server {self.name}{claims}", context_parameter=CONTEXT,
            repeats=self._repeats(found.name), schema=found.schema, fault=found.fault,
        )  # fmt: skip

    def _repeats(self, child: str) -> Repeats | None:
        pause = next((value for name, value in self.cooldown.items() if fits((name,), child)), self._pause)
        try:
            return Repeats(cooldown_seconds=pause) if pause else None
        except ValidationError as error:
            raise Misuse(
                f"cooldown {pause!r} of MCP server {self.name!r} is no number of seconds: give 0 or more"
            ) from error

    # Calls ----------------------------------------------------------------------------------------

    async def _call(self, found: "Found", arguments: dict[str, Any], context: ToolContext) -> str:
        host, connection = self._opened_by(), await self._connected()
        label = f"{self.name}{CHILD}{found.name}"
        try:
            result: Result = await host.within(self.timeout, connection.call(found.name, arguments), label)
        except TimeoutError as error:
            raise self._unclear(found, str(error)) from error
        except Lost as error:
            connection.gone = True
            raise self._unclear(found, f"the connection to the MCP server {self.name} was lost: {error}") from error
        self._openings = 1
        for name, media_type, data in result.files:
            await context.attach(name, media_type, data)
        if result.failed:
            raise ToolFailed(result.text or f"{label} failed and said nothing")
        return result.text

    def _unclear(self, found: "Found", why: str) -> Error:
        if fits(self.idempotent, found.name):
            return ToolFailed(f"{why}. It may be called again")
        return OutcomeUnknown(f"{why}. Whether the call took effect is not known; it was not run again.")

    def _opened_by(self) -> Host:
        if self._host is None:
            raise Misuse(f"MCP server {self.name!r} is not open: pass it to Engine(sources=[...])")
        return self._host

    async def _connected(self) -> "Connection":
        """The connection; a lost one is opened anew.

        Raises:
            ToolFailed: it was lost too often. Exception: the server could not be reached; nothing ran.
        """
        from .mcp_client import Connection  # noqa: PLC0415 - needs the extra, which `open` has looked for

        async with self._opening:
            if self._connection is not None and not self._connection.gone:
                return self._connection
            await self.close()
            host = self._opened_by()
            now = host.clock.monotonic()
            if self._openings > self.reopen:
                if now < self._resting_until:
                    raise ToolFailed(
                        f"nothing ran: the MCP server {self.name} was lost {self._openings} times in a row. It is "
                        f"tried again in {math.ceil(self._resting_until - now)} s"
                    )
                self._openings = 0
            self._openings += 1
            self._resting_until = now + REST_SECONDS
            connection = Connection(self.command, self.url, self.env, self.cwd, self.headers)
            await host.within(self.open_timeout, connection.open(), f"nothing ran: opening the MCP server {self.name}")
            self._connection = connection
            return connection
