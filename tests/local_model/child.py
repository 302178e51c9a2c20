"""One process of the live test: go on with session "live" on a real model, say what stdin says, tell what happens.

    python -m tests.local_model.child DATABASE BASE_URL SENT_FILE

Each line of stdin is a message. On stdout: `piece TEXT` for every delta, `turn STATE TEXT` when a turn rests.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.golden.recording import sent_digest
from turnlog.engine import Agent, Engine, Notice, Piece
from turnlog.engine.models.base import Delta, Model, ModelCall, ModelReply
from turnlog.engine.models.pydantic_ai import open_model

SETTINGS = {"temperature": 0.0, "max_tokens": 60, "timeout": 300}


class Watched:
    """A model that notes the digest of what it was sent for each completion that it brought."""

    def __init__(self, inner: Model, notes: Path) -> None:
        self.name, self._inner, self._notes = inner.name, inner, notes

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        """Pass everything on."""
        sent = sent_digest(call)
        async for delta in self._inner.stream(call):
            if isinstance(delta, ModelReply):
                with self._notes.open("a", encoding="utf-8") as notes:
                    notes.write(f"{sent}\n")
            yield delta


def tell(word: str, *more: object) -> None:
    """One line to the parent."""
    sys.stdout.write(" ".join((word, *(json.dumps(one) for one in more))) + "\n")
    sys.stdout.flush()


def hear(notice: Notice) -> None:
    """Tell the parent of deltas."""
    if isinstance(notice, Piece):
        tell("piece", notice.text)


async def main(database: str, base_url: str, notes: str) -> None:
    """Converse."""
    model = Watched(open_model("smollm2-135m", base_url=base_url, settings=SETTINGS), Path(notes))
    agent = Agent("@agent", model, role="You are a helpful assistant. Answer in one short sentence.", window=8)
    async with Engine(database, [agent]) as engine:
        known = engine.log.head("live") is not None
        talk = await (engine.open("live") if known else engine.create("live"))
        talk.subscribe(hear)
        if known:
            await talk.rest()
            tell("resumed", talk.session.state, talk.session.epoch)
        for line in iter(sys.stdin.readline, ""):
            turn = await talk.send(line.strip())
            tell("turn", turn.state, turn.text)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
