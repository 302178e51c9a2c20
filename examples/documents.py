"""Documents and memories that an agent is told afresh each turn. The log's messages hold none of it."""

import asyncio
from pathlib import Path

from turnlog import Agent, Document, Engine
from turnlog.engine.models.base import ModelCall, ModelReply
from turnlog.engine.models.scripted import ScriptedModel, say

FILES = Path("files")
MEMORIES = ["The customer is called Ann."]


def add_file(name: str, text: str) -> None:
    """What somebody else does meanwhile."""
    FILES.mkdir(exist_ok=True)
    (FILES / name).write_text(text)


def read_files() -> list[Document]:
    """Called once a turn, in a thread. It may be async, and may take an `Asking`, which tells what was said."""
    return [Document(path.name, path.read_text()) for path in sorted(FILES.iterdir())]


async def remember() -> str:
    """One more part of the system prompt."""
    return " ".join(MEMORIES)


def answer(call: ModelCall) -> ModelReply:
    """A script, not an LLM: it tells what it was sent."""
    return say(f"I was told {call.system!r} and asked {call.messages[-1]!r}")


async def main() -> None:
    """A file and a memory are added between two turns."""
    add_file("lamps.txt", "A lamp costs 5.")
    agent = Agent(
        "@agent", ScriptedModel(answer), role="You sell furniture.", parts=["Be brief.", remember], context=read_files
    )
    async with Engine("documents.db", [agent]) as engine:
        session = await engine.create()
        print((await session.send("What does a lamp cost?")).text)
        add_file("chairs.txt", "A chair costs 9.")
        MEMORIES.append("She likes chairs.")
        print((await session.send("And a chair?")).text)
        for row in session.rows():
            if row.event.kind == "message_added" and row.event.by == "person":
                print("In the log:", row.event.text)


asyncio.run(main())
