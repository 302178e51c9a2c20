"""An MCP server as a program: over stdin and stdout, or (with --http) over HTTP on a free port, which it prints.

What its tools do outside goes into the file that LEDGER names, so that a test sees what really ran;
BELL names a pipe at which a test waits.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

import uvicorn
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("shop", log_level="ERROR")
# One pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc330000"
    "000049454e44ae426082"
)


def _done(what: str) -> None:
    with Path(os.environ["LEDGER"]).open("a") as file:
        file.write(f"{what}\n")


def _ring(what: str) -> None:
    """Tell a test that waits at the named pipe; returns when it has taken notice."""
    Path(os.environ["BELL"]).write_text(what)


@server.tool(annotations=ToolAnnotations(read_only_hint=True, destructive_hint=False))
def price(item: str) -> str:
    """What something costs."""
    _done(f"price {item}")
    return f"{item} costs 9"


@server.tool()
def order(item: str, count: int = 1) -> dict[str, int]:
    """Order something."""
    _done(f"order {count} {item}")
    return {item: count}


@server.tool()
def picture() -> list[Image | str]:
    """A picture."""
    return ["here it is", Image(data=PNG, format="png")]


@server.tool()
def broken() -> str:
    """Fails."""
    raise ToolError("out of stock")


@server.tool()
def die(item: str) -> str:
    """Ends the server in the middle of its work."""
    _done(f"die {item}")
    os._exit(3)


@server.tool()
async def slow() -> str:
    """Takes for ever."""
    _ring("slow began")
    try:
        await asyncio.Event().wait()
    except BaseException:
        _ring("slow was cancelled")
        raise
    return "never"


def main() -> None:
    """Serve until the other side is gone."""
    if Path(os.environ["REFUSE"]).exists():
        sys.exit("no room for a server here")
    _done(f"started {os.getpid()}")
    if "--http" not in sys.argv:
        server.run("stdio")
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        app = server.streamable_http_app()
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listening])


if __name__ == "__main__":
    main()
