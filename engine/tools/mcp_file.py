"""MCP servers from the JSON file that other programs keep them in.

{"mcpServers": {"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "."]},
                "search": {"type": "http", "url": "http://127.0.0.1:8080/mcp", "free": ["find"]}}}
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...fsm.canonical import read_json
from ...fsm.errors import Misuse
from .mcp import McpServer


class _Entry(BaseModel):
    """What an entry may say; keys of other programs are let be. The last line is our own."""

    model_config = ConfigDict(extra="ignore")

    command: str = ""
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    type: Literal["", "stdio", "http", "streamable", "streamable-http", "streamableHttp"] = ""
    url: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    disabled: bool = False
    only: list[str] | None = None
    free: list[str] = Field(default_factory=list)
    idempotent: list[str] = Field(default_factory=list)
    cooldown: float | dict[str, float] | None = None
    timeout: float | None = 60.0


class _File(BaseModel):
    servers: dict[str, _Entry] = Field(alias="mcpServers")


def mcp_servers(path: str | Path) -> list[McpServer]:
    """The servers of a file, without those that are disabled: `Engine(sources=mcp_servers("mcp.json"))`.

    Raises:
        Misuse: it cannot be read, or an entry makes no sense; names the place.
    """
    try:
        given: Any = read_json(Path(path).read_bytes())
        entries = _File.model_validate(given).servers
    except OSError as error:
        raise Misuse(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Misuse(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except ValueError as error:
        raise Misuse(f"{path} is no JSON: {error}") from error
    try:
        return [_server(name, one) for name, one in entries.items() if not one.disabled]
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from error


def _server(name: str, one: _Entry) -> McpServer:
    return McpServer(
        name, command=[one.command, *one.args] if one.command else (), url=one.url, env=one.env, cwd=one.cwd,
        headers=one.headers, only=one.only, free=one.free, idempotent=one.idempotent, cooldown=one.cooldown,
        timeout=one.timeout,
    )  # fmt: skip
