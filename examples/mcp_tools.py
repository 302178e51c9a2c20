"""Tools of an MCP server: `pip install 'turnlog[mcp]'`. What may run unasked, the application says, not the server."""

import asyncio
import sys

from turnlog import Agent, Engine, McpServer
from turnlog.engine.models.scripted import ScriptedModel, call, say

# The server: a program that speaks MCP over stdin and stdout, in whatever language.
SERVER = '''
import os
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop", log_level="ERROR")


@server.tool()
def price(item: str) -> str:
    """What an item costs."""
    return f"a {item} costs 9"


@server.tool()
def order(item: str) -> str:
    """Order an item."""
    os._exit(1)  # the server dies in the middle of it


server.run("stdio")
'''
# Not an LLM.
SCRIPT = [
    call(("shop#price", {"item": "chair"})),
    call(("shop#price", {"item": "desk"})),
    call(("shop#order", {"item": 3})),
    call(("shop#order", {"item": "chair"})),
    say("I do not know whether it is ordered."),
]


async def main() -> None:
    """A price, a second one too soon, an order that does not fit, and one of which nobody knows how it ended."""
    shop = McpServer("shop", command=[sys.executable, "-c", SERVER], free=["price"])
    agent = Agent("@agent", ScriptedModel(SCRIPT), tools=["@@mcp_shop"])
    async with Engine("mcp_tools.db", [agent], sources=[shop]) as engine:
        session = await engine.create()
        turn = await session.send("A chair, please.")
        print(f"asks: {turn.requests[0].tool} {turn.requests[0].arguments}, {turn.requests[0].risk}")
        await session.decide(turn.requests[0], "approved")
        await session.rest()
        for row in session.rows():
            if row.event.kind == "tool_returned":
                print(f"{row.event.outcome}: {row.event.content}")


asyncio.run(main())
