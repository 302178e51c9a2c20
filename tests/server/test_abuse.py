"""Clients that send rubbish, read slowly or not at all."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from tests.server.support import World, body, card, received, rest, token, until
from tests.server.test_approvals import pay_each_time, say_word
from tests.server.test_frames import BAD
from tests.server.test_turns import opened
from turnlog.engine import Agent
from turnlog.engine.models.base import ModelCall, ModelReply, TextDelta
from turnlog.engine.models.scripted import USAGE, ScriptedModel, call, say
from turnlog.server.frames import Delta, ErrorFrame, EventFrame, Part

MIB = 2**20


@pytest.mark.field(92)
@pytest.mark.accept(71)
async def test_bad_frames_get_typed_errors_and_neither_the_connection_nor_a_session_suffers(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served)
        socket = await served.raw()
        for message, _ in BAD.values():
            await socket.send(message)
            frame = await received(socket)
            assert isinstance(frame, ErrorFrame), message[:100]
            assert frame.code in ("invalid_frame", "unknown_type")
            assert frame.message
        await socket.send('{"type":"list","id":"after all that"}')
        assert (await received(socket)).type == "sessions"
        assert served.kinds(session) == ["session_started"]
        await client.send(session, "hi")
        assert (await rest(feed))[-1].seq == 4


@pytest.mark.field(92)
async def test_a_text_frame_that_is_no_utf_8_closes_that_connection_with_1007(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        client, session, feed = await opened(served)
        socket = await served.raw()
        await socket.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1007
        await client.send(session, "hi")
        assert (await rest(feed))[-1].seq == 4


@pytest.mark.accept(71)
async def test_frames_with_random_damage_are_answered_one_by_one(world: World) -> None:
    async with world.up(world.agent()) as served:
        _, session, _ = await opened(served)
        socket = await served.raw()
        chance = random.Random(71)
        good = json.dumps({"type": "open", "id": "1", "session": "no such", "after": 3, "deltas": True})
        for _ in range(300):
            damaged = list(good)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chr(
                    chance.choice([0, 34, 44, 91, 92, 123, 125, 0x202E, 0x1F600])
                )
            await socket.send("".join(damaged))
            assert (await received(socket)).type == "error"
        assert served.kinds(session) == ["session_started"]


async def test_a_command_on_which_the_server_fails_is_an_error_and_the_next_one_works(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.up(world.agent()) as served:
        socket = await served.raw()

        def broken(*_: Any) -> None:
            raise RuntimeError("a fault of ours")

        with monkeypatch.context() as patch:
            patch.setattr(served.engine.log, "sessions", broken)
            await socket.send('{"type":"list","id":"1"}')
            frame = await received(socket)
        assert isinstance(frame, ErrorFrame)
        assert (frame.code, frame.id) == ("internal", "1")
        assert "a fault of ours" in caplog.text
        assert "a fault of ours" not in frame.message
        await socket.send('{"type":"list","id":"2"}')
        assert (await received(socket)).type == "sessions"


class Pouring:
    """A model that says so many pieces of 64 KiB, for those who can follow."""

    name = "pouring"

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces

    async def stream(self, model_call: ModelCall) -> AsyncIterator[TextDelta | ModelReply]:
        """Pour."""
        for number in range(self.pieces):
            await asyncio.sleep(0)
            yield TextDelta(f"{number:07} " * 8192)
        yield ModelReply("that was much", usage=USAGE)


async def follow(feed: Any, pouring: Pouring) -> int:
    """Read a poured answer to the end; the number of characters that came as pieces, which must join up."""
    length = 0
    async for frame in feed:
        if isinstance(frame, Delta):
            assert frame.offset == length
            length += len(frame.text)
        elif isinstance(frame, EventFrame) and frame.kind == "turn_interrupted":
            break
    return length


@pytest.mark.field(88)
async def test_a_client_that_never_reads_slows_nobody_and_is_cut_off(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "turnlog.server")
    pouring = Pouring(128)
    async with world.up(Agent("@agent", pouring)) as served:
        client, session, feed = await opened(served)
        deaf, end = await served.deaf()
        await deaf.send(json.dumps({"type": "open", "id": "1", "session": session}))
        await until(lambda: session in end.views)
        await client.send(session, "pour")
        assert 0 < await follow(feed, pouring) <= 8 * MIB
        assert served.kinds(session)[-1] == "turn_interrupted"
        # Nothing was kept for the one who does not read but what the socket held already.
        stuck = end.socket.transport
        assert stuck.get_write_buffer_size() < MIB
        assert not end._replies
        assert not stuck.is_closing()
        assert client.socket.state.name == "OPEN"
        world.clock.advance(21)
        await until(lambda: end not in served.server.connections)
        assert end.ended == "4408: nothing was read for 20 s"
        assert "4408" in caplog.text
        await client.send(session, "pour again")
        assert await follow(feed, pouring) > 0


@pytest.mark.field(88)
async def test_one_who_fell_behind_gets_every_row_in_order_when_they_read_again(world: World) -> None:
    async with world.up(world.playing(lambda _: say("x" * 100_000))) as served:
        client, session, _ = await opened(served)
        deaf, _ = await served.deaf()
        await deaf.send(json.dumps({"type": "open", "id": "1", "session": session}))
        conversation = await served.engine.open(session)
        for _ in range(120):
            await conversation.send("more", by="ann")
        head = conversation.session.seq
        assert served.server.rooms[session].entry(2) is None
        expected = 0
        while expected < head:
            frame = await received(deaf)
            if isinstance(frame, EventFrame):
                expected += 1
                assert frame.seq == expected
        assert (await client.list()).sessions[0].seq == head


@pytest.mark.field(97)
async def test_a_word_is_not_stuck_behind_a_long_stream_on_the_same_socket(world: World) -> None:
    pouring = Pouring(128)
    agents = [Agent("USER", interrupt="always"), world.playing(pay_each_time), Agent("@pouring", pouring)]
    async with world.up(*agents) as served:
        client, _, feed = await opened(served, session="careful")
        await client.send("careful", "pay", recipient="@agent")
        asked = await card(feed)
        await client.create("loud")
        loud = await client.open("loud")
        busy, end = await served.deaf()
        await busy.send(json.dumps({"type": "open", "id": "1", "session": "loud"}))
        await client.send("loud", "pour", recipient="@pouring")
        await follow(loud, pouring)
        # The socket is full: the server waits in the middle of a frame for this client to read.
        await until(lambda: end.socket.transport.get_write_buffer_size() > 0)
        word = {"session": "careful", "request": asked["request_id"], "digest": asked["digest"], "outcome": "approved"}
        await busy.send(json.dumps({"type": "decide", "id": "the word", **word}))
        row = await feed.until("approval_resolved")
        assert (body(row)["outcome"], row.actor) == ("approved", "person:ann")
        await rest(feed)
        assert world.ledger == [("pay", 5, "A")]
        # And the reply comes before the rest of the stream.
        behind = 0
        while True:
            frame = await received(busy)
            if frame.type == "reply" and frame.id == "the word":
                break
            behind += len(frame.text) if isinstance(frame, Delta) else 0
        assert behind < MIB
        later = [await received(busy) for _ in range(2)]
        assert {frame.type for frame in later} <= {"delta", "event"}


@pytest.mark.field(97)
async def test_a_reply_goes_before_the_rows_of_a_long_catch_up(world: World) -> None:
    async with world.up(world.playing(lambda _: say("x" * 100_000))) as served:
        _, session, _ = await opened(served)
        conversation = await served.engine.open(session)
        for _ in range(20):
            await conversation.send("more", by="ann")
        busy, end = await served.deaf()
        await busy.send(json.dumps({"type": "open", "id": "1", "session": session}))
        await until(lambda: end.socket.transport.get_write_buffer_size() > 0)
        await busy.send(json.dumps({"type": "list", "id": "2"}))
        await until(lambda: bool(end._replies))
        types: list[str] = []
        while "live" not in types:
            types.append((await received(busy)).type)
        before = types[: types.index("sessions")].count("event")
        assert types.count("event") == conversation.session.seq
        assert before <= 8, "only what the socket held already came first"


async def test_replies_that_nobody_reads_are_bounded_by_reading_no_more(world: World) -> None:
    async with world.up(world.agent()) as served:
        socket, end = await served.deaf()
        # Each question is answered with an error that is longer than itself.
        question = json.dumps({"type": "fetch", "id": "x" * 128, "session": "y" * 128, "seq": 1})

        async def ask() -> None:
            while True:
                await socket.send(question)

        asking = asyncio.get_running_loop().create_task(ask())
        limit = served.server.limits.replies
        await until(lambda: len(end._replies) >= limit)
        for _ in range(1000):
            await asyncio.sleep(0)
            assert len(end._replies) <= limit
        asking.cancel()
        # When the client is gone, what waited for it ends too.
        socket.transport.abort()
        await until(lambda: not served.server.connections)


async def test_replies_are_bounded_in_bytes_too(world: World) -> None:
    async with world.up(Agent("@agent", ScriptedModel([say("y" * 600_000)], stream=False))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "tell me all")
        await rest(feed)
        socket, end = await served.deaf()
        for number in range(60):
            await socket.send(json.dumps({"type": "fetch", "id": str(number), "session": session, "seq": 3}))
        await until(lambda: end._full)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert MIB <= end._reply_bytes < 2 * MIB
        answers = [await received(socket) for _ in range(60)]
        assert [frame.id for frame in answers if isinstance(frame, Part)] == [str(number) for number in range(60)]
        assert end._reply_bytes == 0


async def test_the_server_stops_though_a_client_does_not_read(world: World) -> None:
    async with world.up(world.playing(lambda _: say("x" * 100_000))) as served:
        _, session, _ = await opened(served)
        deaf, end = await served.deaf()
        await deaf.send(json.dumps({"type": "open", "id": "1", "session": session}))
        conversation = await served.engine.open(session)
        for _ in range(10):
            await conversation.send("more", by="ann")
        await until(lambda: end.socket.transport.get_write_buffer_size() > 0)
        await served.server.stop()
        assert not served.server.tcp


async def test_a_client_that_does_not_read_is_closed_all_the_same(world: World) -> None:
    async with world.up(world.playing(lambda _: say("x" * 100_000))) as served:
        _, session, _ = await opened(served)
        deaf, end = await served.deaf("root")
        await deaf.send(json.dumps({"type": "open", "id": "1", "session": session}))
        conversation = await served.engine.open(session)
        for _ in range(10):
            await conversation.send("more", by="ann")
        await until(lambda: end.socket.transport.get_write_buffer_size() > 0)
        served.server.revoke(token("root"))
        assert end in served.server.connections
        await until(lambda: len(world.clock.armed) >= 2)
        world.clock.advance(6)
        await until(lambda: end not in served.server.connections)


async def test_two_decisions_in_one_burst_are_taken_in_order(world: World) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"})), say("done"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        socket = await served.raw()
        word = {"type": "decide", "session": session, "request": asked["request_id"], "digest": asked["digest"]}
        await socket.send(json.dumps({**word, "id": "1", "outcome": "denied"}))
        await socket.send(json.dumps({**word, "id": "2", "outcome": "approved"}))
        first, second = await received(socket), await received(socket)
        assert first.type == second.type == "reply"
        assert (first.refused, bool(second.refused)) == (None, True)
        late = await say_word(client, session, asked, "approved")
        assert late.refused is not None
        assert world.ledger == []
