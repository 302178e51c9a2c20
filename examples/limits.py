"""What ends a turn: a word, the clock, a budget of tokens. Nothing of the session is lost by it."""

import asyncio

from turnlog import Agent, Engine, Limits, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say


@tool
async def search(query: str) -> str:
    """Search the web."""
    return f"a page about {query}"


# Each completion of the scripted model (not an LLM) counts 15 tokens.
SCRIPT = [call(("search", {"query": "chairs"})), call(("search", {"query": "tables"})), say("Here you are.")]


async def main() -> None:
    """Thirty tokens are spent after two completions, so the third waits until the person says so."""
    limits = Limits(max_tokens=30, turn_seconds=600, approval_seconds=None)
    agent = Agent("@agent", ScriptedModel(SCRIPT), tools=[search])
    async with Engine("limits.db", [agent], limits=limits) as engine:
        session = await engine.create()
        for text in ("Find me some furniture.", "Go on.", "/exit"):
            turn = await session.send(text)
            last = session.rows()[-1].event
            print(f"{text:24} {turn.state}: {turn.text or getattr(last, 'reason', '')}")


asyncio.run(main())
