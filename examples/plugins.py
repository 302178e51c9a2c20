"""A folder with a plugin.json brings tools. Agents name tools `plain`, `parent#child`, `parent` or `@@imported`."""

import asyncio
from pathlib import Path

from turnlog import Agent, Engine, Plugin, person, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say

MANIFEST = """
{"id": "weather", "version": "1.0", "active": true, "tools": [
    {"name": "now", "entry": "handler:now"},
    {"name": "alarm", "entry": "handler:alarm", "description": "Ring when it rains.",
     "schema": {"properties": {"city": {"type": "string"}}, "required": ["city"]}}]}
"""
HANDLER = '''
def now(city: str) -> str:
    """The weather of a city."""
    return f"dry in {city}"


def alarm(city):
    return f"will ring in {city}"
'''


@tool
def clock() -> str:
    """The time."""
    return "noon"


# Not an LLM.
SCRIPT = [
    call(("weather#now", {"city": "Lima"}), ("weather#alarm", {"city": "Lima"})),
    say("Dry, and the alarm is set."),
]


def written() -> Path:
    """The plugin, as somebody else would have made it."""
    folder = Path("weather")
    folder.mkdir(exist_ok=True)
    (folder / "plugin.json").write_text(MANIFEST)
    (folder / "handler.py").write_text(HANDLER)
    return folder


async def main() -> None:
    """Two agents: one may use all of the plugin, one a single tool of it. What runs unasked, the application says."""
    folder = written()
    agent = Agent("@agent", ScriptedModel(SCRIPT), tools=[clock, "@@weather"])
    other = Agent("@other", ScriptedModel([say("Yes?")]), tools=["clock", "weather#now"])
    async with Engine("plugins.db", [person(), agent, other], sources=[Plugin(folder, free=["now"])]) as engine:
        for one in engine.registry.listing():
            print(f"{one.name} ({one.kind}), models see {one.shown}{', asks first' if one.gated else ''}")
        session = await engine.create(entry="@agent")
        print({name: spec.tools for name, spec in session.session.agents.items()})
        turn = await session.send("Is it dry in Lima? Tell me when it is not.")
        for request in turn.requests:
            print(f"asks: {request.tool} {request.arguments}, {request.risk}")
            await session.decide(request, "approved")
        await session.rest()
        print([row.event.content for row in session.rows() if row.event.kind == "tool_returned"])


asyncio.run(main())
