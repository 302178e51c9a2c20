"""An agent with forty tools. Its model is offered the five that fit what was said, and the log says why."""

import asyncio
import re
from collections.abc import Sequence
from zlib import crc32

from turnlog import Agent, Engine, Rerank, tool
from turnlog.engine import Tool
from turnlog.engine.models.scripted import ScriptedModel, call, say

THINGS = ("order", "parcel", "invoice", "mail", "ticket", "room", "flight", "table", "file", "picture")
DEEDS = ("find", "make", "cancel", "send")


class Words:
    """An embedder that only knows which words are the same. With turnlog[rerank] installed, take MiniLM() of
    turnlog.engine.tools.minilm instead: it knows what words mean. Without any embedder all tools are offered,
    those that fit best first.
    """

    name = "words"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One number for each word, more or less."""
        return [[0.01, *self._counts(text)] for text in texts]

    def _counts(self, text: str) -> list[float]:
        words = [crc32(word.encode()) % 256 for word in re.findall(r"[a-z]+", text.lower())]
        return [float(words.count(place)) for place in range(256)]


def tools() -> list[Tool]:
    """Forty of them."""

    async def run(what: str) -> str:
        return f"done: {what}"

    return [
        tool(name=f"{deed}_{thing}", description=f"{deed} a {thing}")(run) for thing in THINGS for deed in DEEDS
    ]  # fmt: skip


async def main() -> None:
    """Two turns; the second says nothing about what it means."""
    rerank = Rerank(Words(), keep=5, pinned=["find_mail"])
    script = [say("Which one? A17?"), call(("cancel_flight", {"what": "A17"})), say("It is cancelled.")]
    model = ScriptedModel(script)  # not an LLM
    async with Engine("rerank.db", [Agent("@agent", model, tools=tools(), rerank=rerank)]) as engine:
        session = await engine.create()
        await session.send("Please cancel my flight to Rome.")
        await session.send("yes, that one")
        for row in session.rows():
            request = getattr(row.event, "request", None)
            if request is not None and request.choice is not None:
                choice = request.choice
                print(
                    f"{row.event.kind}: {len(choice.tools)} of {choice.granted} by {choice.by}, always {choice.always}"
                )
                print("   ", ", ".join(choice.tools))


asyncio.run(main())
