"""The MCP server of these tests as a program, and what it did."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from turnlog.engine.tools.mcp import McpServer

PROGRAM = Path(__file__).with_name("mcp_server.py")


class Shop:
    """The server's program, and what it did."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.refuse, self.bell = folder / "ledger.txt", folder / "refuse", folder / "bell"
        self.ledger.touch()
        os.mkfifo(self.bell)
        self.env = {"LEDGER": str(self.ledger), "REFUSE": str(self.refuse), "BELL": str(self.bell)}

    def server(self, **more: Any) -> McpServer:
        """The program as a source."""
        return McpServer("shop", command=[sys.executable, str(PROGRAM)], env=self.env, **more)

    @property
    def lines(self) -> list[str]:
        """What it wrote down."""
        return self.ledger.read_text().splitlines()

    @property
    def done(self) -> list[str]:
        """What its tools did."""
        return [line for line in self.lines if not line.startswith("started")]

    @property
    def started(self) -> list[int]:
        """Its processes, the ended ones too."""
        return [int(line.split()[1]) for line in self.lines if line.startswith("started")]

    async def rung(self) -> str:
        """Wait until a tool has something to tell."""
        return await asyncio.wait_for(asyncio.to_thread(self.bell.read_text), 30)
