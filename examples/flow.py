"""A flow: one tool that is data, a fixed sequence of steps. One word allows all of it; its result is the reply."""

import asyncio

from turnlog import Agent, Engine, Flow, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say


@tool
def look_up(item: str) -> dict[str, int]:
    """The price and the stock of an item."""
    return {"price": 9, "stock": 2} if item == "chair" else {}


@tool(needs_approval=True, risk="spends money")
def order(item: str, count: int) -> str:
    """Order an item."""
    return f"{count} x {item} ordered"


FLOW = {
    "id": "restock",
    "description": "Buy as many of an item as there are.",
    "direct": True,
    "variables": {"item": {"type": "string"}},
    "steps": [
        {"tool": "look_up", "arguments": {"item": "{{item}}"}, "into": "found"},
        {"tool": "order", "arguments": {"item": "{{item}}", "count": "{{found.stock}}"}, "into": "done"},
        {"instruction": "Thank the customer for {{done}}, in three words.", "into": "thanks"},
    ],
    "result": "{{done}} at {{found.price}} each. {{thanks}}",
}
# Not LLMs.
SCRIPT = [call(("restock", {"item": "chair"}))]
WRITER = [say("Thank you kindly!")]


async def main() -> None:
    """The flow has a step that needs a word, so it needs one, and says what it is about to do."""
    agent = Agent("@agent", ScriptedModel(SCRIPT), tools=["@@flow_restock"])
    flow = Flow(FLOW, model=ScriptedModel(WRITER))
    async with Engine("flow.db", [agent], tools=[look_up, order], sources=[flow]) as engine:
        session = await engine.create()
        turn = await session.send("Chairs, please.")
        print(turn.requests[0].description)
        await session.decide(turn.requests[0], "approved")
        await session.rest()
        (reply,) = [row.event for row in session.rows() if row.event.kind == "message_added" and row.event.direct]
        print(f"{reply.sender}: {reply.text}")


asyncio.run(main())
