"""Views of a session: catch up then live, several viewers, late viewers, lost connections, large bodies."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, cast

import pytest

from tests.server.support import Gated, Served, World, body, received, rest, until
from tests.server.test_turns import opened
from turnlog.engine import Agent, ToolContext, tool
from turnlog.engine.models.base import ModelCall, ModelReply, ReasoningDelta, TextDelta
from turnlog.engine.models.scripted import USAGE, ScriptedModel, call, fail, say
from turnlog.fsm.errors import Fenced
from turnlog.fsm.events import Limits
from turnlog.server import ClientError
from turnlog.server.client import Feed
from turnlog.server.frames import AnyServerFrame, Delta, EventFrame, Live, ServerFrame, TroubleFrame
from turnlog.server.room import Entry
from turnlog.server.view import View

if TYPE_CHECKING:
    from turnlog.server.connection import Connection


async def talk(served: Served, session: str, turns: int) -> None:
    """Fill a session with rows."""
    conversation = await served.engine.open(session)
    for _ in range(turns):
        await conversation.send("hi", by="ann")


async def next_row(feed: Feed) -> EventFrame:
    """The next row."""
    while True:
        frame = await feed.__anext__()
        if isinstance(frame, EventFrame):
            return frame


async def some_deltas(feed: Feed, count: int) -> list[Delta]:
    """The next deltas."""
    found: list[Delta] = []
    while len(found) < count:
        frame = await feed.__anext__()
        if isinstance(frame, Delta):
            found.append(frame)
    return found


@pytest.mark.field(93)
async def test_after_a_lost_connection_exactly_the_missing_rows_come(world: World) -> None:
    async with world.up(world.playing(lambda _: say("ok"))) as served:
        client, session, feed = await opened(served)
        await talk(served, session, 200)
        seqs = [(await next_row(feed)).seq for _ in range(500)]
        assert seqs == list(range(2, 502))
        client.socket.transport.abort()
        back = await served.client()
        rows = await (await back.open(session, after=500)).live()
        assert [row.seq for row in rows] == list(range(501, 602))


@pytest.mark.field(95)
async def test_a_view_opened_at_any_moment_has_no_gap_and_no_double(world: World) -> None:
    nodes = [Agent(name, ScriptedModel(lambda _: say("x"))) for name in "ab"]
    async with world.up(*nodes, limits=Limits(max_rounds=1_000_000)) as served:
        client = await served.client()
        await client.create("s")
        await client.send("s", "go")
        chance = random.Random(95)
        head = 1
        for _ in range(200):
            after = chance.randint(max(0, head - 100), head)
            feed = await client.open("s", after=after)
            expected, live_at = after, 0
            while not live_at or expected < live_at + 5:
                frame = await feed.__anext__()
                if isinstance(frame, Live):
                    live_at = frame.seq
                    assert frame.seq == expected
                elif isinstance(frame, EventFrame):
                    expected += 1
                    assert frame.seq == expected
            head = expected
            await feed.close()
        await client.stop("s", "session")
        assert head > 400


@pytest.mark.accept(73)
async def test_a_second_tab_and_a_reconnect_in_the_middle_see_the_same_and_the_model_runs_once(world: World) -> None:
    model = Gated(*"abcdefgh")
    async with world.up(Agent("@agent", model)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        model.allow(3)
        first = await some_deltas(feed, 1)
        while sum(len(one.text) for one in first) < 3:
            first += await some_deltas(feed, 1)
        client.socket.transport.abort()

        back, tab = await served.client(), await served.client()
        again, second = await back.open(session, after=feed.seq), await tab.open(session)
        for view in (again, second):
            rows = await view.live()
            assert [row.seq for row in rows] == ([] if view is again else [1, 2])
            (soon,) = await some_deltas(view, 1)
            assert (soon.offset, soon.text, soon.message_id) == (0, "abc", first[0].message_id)
        model.allow()
        ends = [await rest(view) for view in (again, second)]
        assert ends[0] == ends[1]
        assert body(ends[0][0])["text"] == "abcdefgh"
        assert model.calls == 1


async def test_who_joins_after_a_restart_gets_all_of_the_text_so_far(world: World) -> None:
    async with world.up(Agent("@agent", Gated("never heard"))) as served:
        client, session, _ = await opened(served)
        await client.send(session, "go")
    model = Gated("a", "b", "c")
    async with world.up(Agent("@agent", model)) as served:
        model.allow(2)
        await until(lambda: served.server.rooms[session].making != {})
        await until(lambda: [one.length for one in served.server.rooms[session].making.values()] == [2])
        feed = await (await served.client()).open(session)
        await feed.live()
        (soon,) = await some_deltas(feed, 1)
        assert (soon.offset, soon.text) == (0, "ab")
        model.allow()
        assert body((await rest(feed))[0])["text"] == "abc"


async def test_a_disconnect_ends_no_turn_and_decides_nothing(world: World) -> None:
    model = Gated("late")
    async with world.up(Agent("@agent", model)) as served:
        client, session, _ = await opened(served)
        await client.send(session, "go")
        await client.close()
        model.allow()
        conversation = await served.engine.open(session)
        await conversation.rest()
        assert served.kinds(session) == ["session_started", "message_added", "message_added", "turn_interrupted"]


async def test_a_view_opened_after_rows_that_do_not_exist_is_told_where_the_session_ends(world: World) -> None:
    async with world.up(world.agent()) as served:
        client, session, _ = await opened(served)
        other = await served.client()
        with pytest.raises(ClientError, match="ahead: after is 7, but the session ends at seq 1"):
            await other.open(session, after=7)
        with pytest.raises(ClientError, match="conflict: this connection views the session already"):
            await client.open(session)
        with pytest.raises(ClientError, match="conflict: this connection views the session already: close it first"):
            await client.command("open", session=session)


async def test_a_closed_view_gets_nothing_more_and_may_be_opened_again(world: World) -> None:
    async with world.up(world.agent(say("one"), say("two"))) as served:
        client, session, feed = await opened(served)
        await feed.close()
        await client.send(session, "hi")
        await (await served.engine.open(session)).rest()
        again = await client.open(session, after=1)
        assert [row.seq for row in await again.live()] == [2, 3, 4]
        with pytest.raises(ClientError, match="does not view 'nothing'"):
            await client.close_view("nothing")


@pytest.mark.accept(2)
async def test_pieces_and_notes_are_left_out_for_who_does_not_want_them(world: World) -> None:
    @tool
    async def noisy(context: ToolContext) -> str:
        """Tell much."""
        context.introspect("half way")
        await asyncio.sleep(0)
        return "done"

    async with world.up(world.agent(call(("noisy", {})), say("a b"), tools=[noisy])) as served:
        client, session, feed = await opened(served)
        quiet = await (await served.client()).open(session, deltas=False, notes=False)
        await client.send(session, "go")

        async def ephemeral(view: Feed) -> set[str]:
            kinds: set[str] = set()
            async for frame in view:
                if isinstance(frame, Delta):
                    kinds.add(frame.kind)
                elif isinstance(frame, EventFrame) and frame.kind == "turn_interrupted":
                    break
            return kinds

        assert await ephemeral(feed) == {"call", "text", "note"}
        assert await ephemeral(quiet) == set()


class Elsewhere:
    """A connection that takes nothing by itself."""

    def wake(self) -> None:
        """Not now."""


async def viewing(served: Served, session: str) -> View:
    """A live view whose frames a test takes one by one."""
    room = served.server.rooms[session]
    view = View(cast("Connection", Elsewhere()), room, room.head)
    room.views.add(view)
    found = view.next_row()
    assert found is not None
    assert ServerFrame.validate_json(found[0]).type == "live"
    return view


def taken(view: View) -> Iterator[AnyServerFrame]:
    """What the view would send now, in order."""
    while (found := view.next_row()) is not None:
        yield ServerFrame.validate_json(found[0])
    while (data := view.next_told() or view.next_delta()) is not None:
        yield ServerFrame.validate_json(data)


async def test_a_sender_that_comes_late_still_sends_the_pieces_before_their_row(world: World) -> None:
    async with world.up(world.agent(say("one two three"))) as served:
        _, session, _ = await opened(served)
        view = await viewing(served, session)
        await (await served.engine.open(session)).send("hi", by="ann")
        frames = list(taken(view))
        assert [getattr(frame, "kind", "") for frame in frames] == [
            "message_added", "text", "message_added", "turn_interrupted"
        ]  # fmt: skip
        assert isinstance(frames[1], Delta)
        assert isinstance(frames[2], EventFrame)
        assert frames[1].text == body(frames[2])["text"] == "one two three"
        assert list(taken(view)) == []
        view.room.views.discard(view)


async def test_pieces_of_an_attempt_that_failed_are_seen_by_no_later_viewer(world: World) -> None:
    class Breaking:
        name = "breaking"

        async def stream(self, model_call: ModelCall) -> AsyncIterator[TextDelta | ModelReply]:
            yield TextDelta("half a ")
            if model_call.attempt == 1:
                raise fail()
            await go.wait()
            yield ModelReply("half a loaf", usage=USAGE)

    go = asyncio.Event()
    async with world.up(Agent("@agent", Breaking())) as served:
        client, session, feed = await opened(served)
        await client.send(session, "hi")
        await rest(feed)
        room = served.server.rooms[session]
        assert room.making == {}
        await client.retry(session)
        (first,) = await some_deltas(feed, 1)
        late = await (await served.client()).open(session)
        await late.live()
        (soon,) = await some_deltas(late, 1)
        assert (soon.message_id, soon.text) == (first.message_id, "half a ")
        assert len(room.making) == 1
        go.set()
        await rest(feed)
        assert room.making == {}


async def test_reasoning_is_streamed_apart_from_the_text(world: World) -> None:
    class Thinking:
        name = "thinking"

        async def stream(self, _call: ModelCall) -> AsyncIterator[ReasoningDelta | TextDelta | ModelReply]:
            yield ReasoningDelta("hm ")
            yield TextDelta("yes")
            yield ReasoningDelta("hm")
            yield ModelReply("yes", reasoning="hm hm")

    async with world.up(Agent("@agent", Thinking())) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        pieces: dict[str, str] = {}
        async for frame in feed:
            if isinstance(frame, Delta):
                assert len(pieces.get(frame.kind, "")) == frame.offset
                pieces[frame.kind] = pieces.get(frame.kind, "") + frame.text
            elif isinstance(frame, EventFrame) and frame.kind == "turn_interrupted":
                break
        assert pieces == {"reasoning": "hm hm", "text": "yes"}


async def test_trouble_is_told_and_the_next_command_takes_the_session_up_again(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served)
        hub = served.engine.live(session)
        assert hub is not None
        hub.closed = True
        served.engine.lost(hub, Fenced("another process took it"))
        trouble = await feed.__anext__()
        assert isinstance(trouble, TroubleFrame)
        assert (trouble.code, trouble.message, trouble.seq) == ("fenced", "another process took it", 1)
        await client.send(session, "hi")
        assert [row.seq for row in await rest(feed)] == [2, 3, 4]


async def test_a_viewer_that_comes_later_is_told_which_tool_is_missing(world: World) -> None:
    async with world.up(world.agent(call(("pay", {"amount": 1, "to": "A"})))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        await feed.until("approval_requested")
    async with world.up(world.agent(tools=[])) as served:
        for _ in range(2):  # the first viewer and the second
            feed = await (await served.client()).open(session)
            trouble = await anext(frame async for frame in feed if isinstance(frame, TroubleFrame))
            assert trouble.code == "agents_differ"
            assert "'@agent' was granted" in trouble.message
            assert "pay" in trouble.message


async def test_a_session_that_nobody_views_may_leave_memory(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served)
        hub = served.engine.live(session)
        assert hub is not None
        idle = [hub.idle]
        await client.send(session, "hi")
        await rest(feed)
        await feed.close()
        assert [*idle, hub.idle] == [False, True]
        assert served.server.rooms == {}


async def test_a_view_waits_for_news_without_reading_the_log_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        socket = await served.raw()
        await socket.send(json.dumps({"type": "create", "id": "1", "session": "s"}))
        await socket.send(json.dumps({"type": "open", "id": "2", "session": "s"}))
        types = [(await received(socket)).type for _ in range(4)]
        assert types == ["reply", "reply", "event", "live"]
        reads: list[int] = []

        def page(after: int) -> list[Entry]:
            reads.append(after)
            return []

        monkeypatch.setattr(served.server.rooms["s"], "page", page)
        await socket.send(json.dumps({"type": "send", "id": "3", "session": "s", "text": "hi"}))
        while getattr(await received(socket), "kind", "") != "turn_interrupted":
            pass
        assert reads == []
