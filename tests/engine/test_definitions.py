"""What a model was shown of its tools is in the log before it answers, whenever a tool came, also on a full disk."""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from tests.engine.support import World, of_kind, rows, sent
from turnlog.engine import Engine, Tool, Trouble, tool
from turnlog.engine.context import rebuild
from turnlog.engine.models.scripted import call, say
from turnlog.fsm.errors import StorageFull
from turnlog.store import SQLiteLog


class Full(SQLiteLog):
    """A log that has no room for blobs, until it has."""

    room = False

    def put_blob(self, data: bytes) -> "Future[str]":
        if self.room:
            return super().put_blob(data)
        future: Future[str] = Future()
        future.set_exception(StorageFull("make room on the disk"))
        return future


def _later() -> Tool:
    @tool(name="look")
    async def other(where: str) -> str:
        """Look elsewhere."""
        return where

    return other


@pytest.mark.parametrize("when", ["before the start", "after the start"])
async def test_a_model_is_not_asked_before_what_it_is_shown_is_durable(world: World, when: str) -> None:
    script = (call(("look", {"where": "x"})), say("done"))
    async with world.engine(world.agent(tools=[world.look])) as engine:
        await engine.create("s")
    log, agent = Full(world.path), world.agent(*script, tools=[])
    engine = Engine(log, [agent], tools=[_later()] if when == "before the start" else [], clock=world.clock, seed=int)
    async with engine:
        if when == "after the start":
            engine.registry.add(_later())
        c = await engine.open("s")
        troubles: asyncio.Queue[Any] = asyncio.Queue()
        c.subscribe(lambda notice: troubles.put_nowait(notice) if isinstance(notice, Trouble) else None)
        await c.say("go")
        for _ in range(2):
            assert (await asyncio.wait_for(troubles.get(), 10)).code == "storage_full"
            assert sent(agent) == []
            world.clock.advance(1)
        log.room = True
        world.clock.advance(1)
        await c.rest()
        assert of_kind(c, "message_added")[-1].text == "done"
        (said,) = [row for row in rows(c) if row.event.kind == "tools_called"]
        shown = rebuild(log, c.session, said)
        assert (shown.tools, list(shown.messages)) == (sent(agent)[0].tools, list(sent(agent)[0].messages))
        assert shown.tools[0].description == "Look elsewhere."
        assert of_kind(c, "tool_started")[0].definition == _later().definition_digest
        assert log.blob(_later().definition_digest)
