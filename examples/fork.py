"""What if I had said no? A fork goes on from any row of a session; the session itself stays as it is."""

import asyncio

from turnlog import Agent, Engine, tool
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, say
from turnlog.fsm.events import SessionStarted
from turnlog.fsm.history import ToolMessage


@tool(needs_approval=True)
async def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    print(f"    (money moves: {amount} to {to})")
    return f"paid {amount} to {to}"


def accountant(asked: ModelCall) -> Step:
    """Pay, then tell how it went (scripted, not an LLM)."""
    last = asked.messages[-1]
    return (
        say(f"I was told: {last.content}") if isinstance(last, ToolMessage) else call(("pay", {"amount": 5, "to": "A"}))
    )


async def main() -> None:
    """Approve a payment, then find out what would have come of a refusal."""
    async with Engine("fork.db", [Agent("@agent", ScriptedModel(accountant), tools=[pay])]) as engine:
        session = await engine.create("first")
        turn = await session.send("Pay A 5.")
        at = turn.seq  # here the session waits for a word
        await session.decide(turn.requests[0], "approved", by="ann")
        await session.rest()

        fork = await engine.fork("first", at, "second")
        print("the fork asks again:", fork.session.requests[0].tool, fork.session.requests[0].arguments)
        await fork.decide(fork.session.requests[0], "denied", by="ann", reason="not today")
        await fork.rest()

        for one in (session, fork):
            rows = one.rows()
            first, answer = rows[0].event, rows[-2].event
            assert isinstance(first, SessionStarted)
            print(one.id, "from", first.parent and (first.parent.session, first.parent.seq), "->", answer.text)


asyncio.run(main())
