"""A server in a process of its own, to be killed: python -m tests.server.child LOG LEDGER."""

import asyncio
import os
import sys
from pathlib import Path

from tests.server.support import PEOPLE, token
from tests.server.test_approvals import pay_each_time
from turnlog.engine import Agent, Engine, tool
from turnlog.engine.models.scripted import ScriptedModel
from turnlog.fsm.events import Limits
from turnlog.server import Server


async def main(log: str, ledger: str) -> None:
    """Serve until killed."""

    @tool(needs_approval=True)
    def pay(amount: int, to: str) -> str:
        """Pay somebody."""
        with Path(ledger).open("a", encoding="utf-8") as lines:
            lines.write(f"{amount} {to}\n")
            lines.flush()
            os.fsync(lines.fileno())
        return "paid"

    agent = Agent("@agent", ScriptedModel(pay_each_time), tools=[pay])
    tokens = {token(name): one for name, one in PEOPLE.items()}
    engine = Engine(log, [agent], limits=Limits(approval_seconds=3600), auto_approve=())
    async with engine, Server(engine, tokens=tokens) as server:
        print(server.url, flush=True)
        await engine.failed.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
