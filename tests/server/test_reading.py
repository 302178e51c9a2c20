"""Reading what there is: large rows, limits of frames, the list of sessions, a session that cannot be read."""

import json
import sqlite3

import pytest

from tests.server.support import World, body, rest
from tests.server.test_turns import opened
from turnlog.engine import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.server import ClientError
from turnlog.server.frames import SessionLine


@pytest.mark.field(90)
async def test_a_row_above_the_limit_comes_as_a_reference_and_can_be_fetched_in_parts(world: World) -> None:
    huge = "".join(f"{number} \u20ac\n" for number in range(300_000))
    async with world.up(Agent("@agent", ScriptedModel([say(huge)], stream=False))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "tell me all")
        row = (await rest(feed))[1]
        assert (row.large, row.body) == (True, None)
        assert row.size is not None
        assert row.size > 2**20
        fetched = await client.fetch(session, row.seq)
        assert fetched["text"] == huge
        assert len(json.dumps(fetched, ensure_ascii=False).encode()) == row.size
        with pytest.raises(ClientError, match="has no row 99"):
            await client.fetch(session, 99)


@pytest.mark.field(90)
async def test_a_tool_result_of_five_mebibytes_reaches_a_client_with_default_limits(world: World) -> None:
    @tool
    async def big(n: int) -> str:
        """Return much."""
        return "x" * n

    async with world.up(world.agent(call(("big", {"n": 5 * 2**20})), say("ok"), tools=[big])) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        (result,) = [body(row) for row in await rest(feed) if row.kind == "tool_returned"]
        assert result["attachments"][0]["size"] == 5 * 2**20


@pytest.mark.field(90)
async def test_a_frame_above_the_limit_closes_that_connection_alone_with_1009(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served)
        other = await served.raw()
        await other.send(json.dumps({"type": "send", "id": "1", "session": session, "text": "x" * 2**20}))
        await other.wait_closed()
        assert other.close_code == 1009
        assert served.kinds(session) == ["session_started"]
        await client.send(session, "hi")
        assert (await rest(feed))[-1].seq == 4


async def test_the_list_shows_where_each_session_stands_page_by_page(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served, session="s3")
        await client.send(session, "hi")
        await rest(feed)
        for name in ("s1", "s2", "s4"):
            await client.create(name)
        first = await client.list(limit=3)
        assert [line.session for line in first.sessions] == ["s1", "s2", "s3"]
        now = world.clock.now()
        assert first.sessions[2] == SessionLine(
            session="s3", seq=4, state="interrupt", owner="ann", first_at=now, last_at=now
        )  # fmt: skip
        assert first.next == "s3"
        rest_of = await client.list(after=first.next, limit=3)
        assert ([line.session for line in rest_of.sessions], rest_of.next) == (["s4"], None)


async def test_a_session_that_cannot_be_read_is_an_error_and_hides_no_other(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, _, _ = await opened(served, session="good")
        await client.create("bad")
    db = sqlite3.connect(world.path)
    with db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE events SET body = '{' WHERE session = 'bad'")
    db.close()
    async with world.up(world.agent(say("hello"))) as served:
        root, ann = await served.client("root"), await served.client("ann")
        with pytest.raises(ClientError, match="corrupt: session 'bad' seq 1"):
            await root.open("bad")
        with pytest.raises(ClientError, match="unknown_session: no session has the id 'bad'"):
            await ann.open("bad")
        broken = {line.session: bool(line.broken) for line in (await root.list()).sessions}
        assert broken == {"good": False, "bad": True}
        assert [row.seq for row in await (await ann.open("good")).live()] == [1]
