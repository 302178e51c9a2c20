"""MCP servers from a file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.sources.shop import PROGRAM, Shop
from tests.engine.support import World
from turnlog.engine.tools.mcp_file import mcp_servers
from turnlog.fsm.errors import Misuse


def written(folder: Path, servers: Any) -> Path:
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": servers, "theme": "dark"}))
    return path


def test_the_file_of_other_programs_is_read_with_what_we_add(tmp_path: Path) -> None:
    path = written(tmp_path, {
        "files": {"command": "npx", "args": ["-y", "server"], "env": {"KEY": "x"}, "autoApprove": ["delete"]},
        "search": {"type": "http", "url": "http://127.0.0.1:1/mcp", "headers": {"A": "b"}, "free": ["find"]},
        "old": {"command": "x", "disabled": True},
    })  # fmt: skip
    files, search = mcp_servers(path)
    # What another program lets run unasked says nothing here.
    assert (files.name, files.command, files.env, files.free) == ("files", ("npx", "-y", "server"), {"KEY": "x"}, ())
    assert (search.url, search.headers, search.free) == ("http://127.0.0.1:1/mcp", {"A": "b"}, ("find",))


async def test_a_server_of_the_file_is_started(world: World, shop: Shop, tmp_path: Path) -> None:
    path = written(tmp_path, {"shop": {"command": sys.executable, "args": [str(PROGRAM)], "env": shop.env}})
    async with world.engine(world.agent(tools=["@@mcp_shop"]), sources=mcp_servers(path)) as engine:
        assert engine.registry.get("shop#order") is not None


@pytest.mark.parametrize(
    ("servers", "why"),
    [
        ({"a": {"type": "sse", "url": "http://x"}}, r"mcp.json: mcpServers.a.type: Input should be .*'http'"),
        ({"a": {}}, r"mcp.json: MCP server 'a' needs a command"),
        ({"a b": {"command": "x"}}, "cannot be named 'a b'"),
        ([], "mcpServers: Input should be a valid dictionary"),
    ],
)
def test_an_entry_that_makes_no_sense_is_named(tmp_path: Path, servers: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        mcp_servers(written(tmp_path, servers))


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"none.json cannot be read: No such file"):
        mcp_servers(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(Misuse, match=r"bad.json is no JSON"):
        mcp_servers(tmp_path / "bad.json")
