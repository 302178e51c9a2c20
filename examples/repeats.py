"""How often may a tool run? The same call runs once an answer; some tools rest in between, some run once a session."""

import asyncio

from turnlog import Agent, Engine, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.events import ToolReturned


@tool
async def search(query: str) -> str:
    """Search the web. The same search again would bring the same."""
    return f"three pages about {query}"


@tool(unique=True)
async def open_ticket(title: str) -> str:
    """Open a ticket for this conversation."""
    return f"ticket 17: {title}"


@tool(repeatable=True)
async def job_state(job: int) -> str:
    """Look how a job is getting on. It may be asked again and again."""
    return f"job {job} runs"


SCRIPT = [
    call(("search", {"query": "chairs"}), ("open_ticket", {"title": "A chair is missing"}), ("job_state", {"job": 7})),
    call(("search", {"query": "chairs"}), ("open_ticket", {"title": "Another one"}), ("job_state", {"job": 7})),
    say("I searched once, opened one ticket and asked for the job twice."),
]


async def main() -> None:
    """A model (scripted, not an LLM) that repeats itself."""
    agent = Agent("@agent", ScriptedModel(SCRIPT), tools=[search, open_ticket, job_state])
    async with Engine("repeats.db", [agent]) as engine:
        session = await engine.create()
        turn = await session.send("My chair is missing.")
        for row in session.rows():
            if isinstance(row.event, ToolReturned):
                print(row.event.outcome, "-", row.event.content)
        print(turn.text)


asyncio.run(main())
