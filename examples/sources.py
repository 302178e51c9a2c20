"""Tools that name their sources and bring files: the answer has them, each once, and so has a turn that is stopped."""

import asyncio

from turnlog import Agent, Citation, Engine, ToolContext, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say

GUIDE = {"chairs": "Oak chairs are oiled once a year.", "tables": "Tables are waxed."}


@tool
async def look_up(topic: str, context: ToolContext) -> str:
    """Look something up in the guide."""
    context.cite(Citation(id=f"guide/{topic}", title=f"The guide to {topic}", excerpt=GUIDE[topic]))
    await context.attach(f"{topic}.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>")
    return GUIDE[topic]


@tool(needs_approval=True)
async def order(what: str) -> str:
    """Order something."""
    return f"{what} is ordered"


# Not an LLM.
SCRIPT = [
    call(("look_up", {"topic": "chairs"}), ("look_up", {"topic": "tables"})),
    say("Oil the chairs, wax the tables."),
    call(("look_up", {"topic": "chairs"})),
    call(("order", {"what": "oil"})),
]


async def main() -> None:
    """Two turns: one is answered, one is stopped while it waits for a word."""
    async with Engine("sources.db", [Agent("@agent", ScriptedModel(SCRIPT), tools=[look_up, order])]) as engine:
        session = await engine.create()
        await session.send("How do I care for my furniture?")
        await session.send("Order what I need for the chairs.")
        await session.stop()
        for row in session.rows():
            if row.event.kind in ("message_added", "turn_interrupted") and row.event.citations:
                sources = ", ".join(source.id for source in row.event.citations)
                files = ", ".join(file.name for file in row.event.attachments)
                print(f"{row.event.kind}: {sources} ({files})")


asyncio.run(main())
