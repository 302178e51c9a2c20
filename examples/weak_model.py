"""A model that was never taught to call tools works as an agent: `Untooled` asks it in words and reads what it says."""

import asyncio

from turnlog import Agent, Engine, tool
from turnlog.engine.models.scripted import ScriptedModel, attempts, say
from turnlog.engine.models.untooled import Untooled
from turnlog.fsm.events import ToolsCalled


# Small models learn by examples more than by descriptions: pairs of a question and the arguments that it leads to.
@tool(examples=[("Is it cold in Oslo?", {"city": "Oslo"}), ("Weather in Cairo?", {"city": "Cairo"})])
async def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"{city}: 12 degrees and rain"


# A script in place of a small model; it writes texts only, and its first one is no good. With a real one it is
#   Untooled(open_model("smollm2", base_url="http://127.0.0.1:8000/v1"), constrain="json_object")
# where `constrain` lets a server that can do so hold the model to the calls that are possible.
SCRIPT = [
    attempts(
        say('{"name": "weather", "arguments": {"place": "Lima"}}'),
        say('Tool: {"name": "weather", "parameters": {"city": "Lima"}}'),
    ),
    say('{"name": "answer", "arguments": {"text": "Take an umbrella to Lima."}}'),
]


async def main() -> None:
    """Ask it."""
    agent = Agent("@agent", Untooled(ScriptedModel(SCRIPT)), tools=[weather])
    async with Engine("weak.db", [agent]) as engine:
        session = await engine.create()
        turn = await session.send("Do I need an umbrella in Lima?")
        for row in session.rows():
            if isinstance(row.event, ToolsCalled):
                print(
                    row.event.calls[0].tool, row.event.calls[0].arguments, f"after {row.event.usage.completions} tries"
                )
        print(turn.text)


asyncio.run(main())
