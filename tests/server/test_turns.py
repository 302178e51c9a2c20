"""Turns over the wire: streaming, errors, topologies, messages while busy."""

import json
from typing import Any

import pytest

from tests.server.support import Gated, Served, World, body, card, received, rest, streamed
from turnlog.engine import Agent
from turnlog.engine.models.scripted import ScriptedModel, attempts, call, fail, say
from turnlog.engine.tools.ask import ask_user
from turnlog.fsm.events import Channel
from turnlog.fsm.history import ToolMessage
from turnlog.server.client import Feed
from turnlog.server.frames import Delta, EventFrame


async def opened(served: Served, who: str = "ann", **more: Any) -> tuple[Any, str, Feed]:
    """A client, its new session and a live view of it."""
    client = await served.client(who)
    session = (await client.create(**more)).session
    feed = await client.open(session)
    await feed.live()
    return client, session, feed


@pytest.mark.accept(39)
@pytest.mark.accept(48)
async def test_hello_world_needs_no_configuration_and_control_returns_to_user_after_each_answer(world: World) -> None:
    async with world.up(Agent("@agent", ScriptedModel([say("hello"), say("again")]))) as served:
        client, session, feed = await opened(served)
        for text, answer in (("hi", "hello"), ("and now?", "again")):
            reply = await client.send(session, text)
            assert reply.refused is None
            asked, answered, over = await rest(feed)
            assert reply.seq == asked.seq
            assert (body(asked)["sender"], body(asked)["recipient"], asked.actor) == ("USER", "@agent", "person:ann")
            assert (body(answered)["sender"], body(answered)["text"]) == ("@agent", answer)
            assert (body(over)["reason"], body(over)["node"], body(over)["peer"]) == ("user_turn", "USER", "@agent")
            assert over.state == "interrupt"


@pytest.mark.accept(1)
@pytest.mark.accept(36)
async def test_every_frame_of_a_session_has_type_session_and_seq_and_keeps_to_the_schema(world: World) -> None:
    async with world.up(world.agent(say("one two"), call(("pay", {"amount": 1, "to": "A"})), say("done"))) as served:
        socket = await served.raw()
        seen: list[Any] = []

        async def until(kind: str) -> Any:
            while True:
                frame = await received(socket)  # validates it strictly
                seen.append(frame)
                if getattr(frame, "kind", frame.type) == kind:
                    return frame

        async def tell(**frame: Any) -> None:
            await socket.send(json.dumps({"id": str(len(seen)), "session": "s", **frame}))

        await tell(type="create")
        await tell(type="open")
        await tell(type="send", text="hi")
        await until("turn_interrupted")
        await tell(type="send", text="pay")
        asked = await until("approval_requested")
        word = {"request": asked.body["request_id"], "digest": asked.body["digest"], "outcome": "approved"}
        await tell(type="decide", **word)
        await until("turn_interrupted")
        await tell(type="decide", **word)
        await until("reply")
        await tell(type="grants")
        await until("grants")
        await tell(type="stop")
        await until("reply")
    assert {"reply", "event", "live", "delta", "grants"} == {frame.type for frame in seen}
    assert {(frame.session, frame.seq > 0) for frame in seen} == {("s", True)}


@pytest.mark.accept(4)
async def test_the_chunks_of_a_reply_join_to_the_stored_text_under_one_message_id(world: World) -> None:
    model = Gated("one ", "two ", "three ", "four ", "five")
    async with world.up(Agent("@agent", model)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "count")
        deltas: list[Delta] = []
        for piece in model.pieces:
            model.allow(1)
            async for frame in feed:
                if isinstance(frame, Delta):
                    deltas.append(frame)
                    break
            assert deltas[-1].text == piece
        model.allow()
        more, stored = await streamed(feed, "message_added")
    assert not more
    assert "".join(delta.text for delta in deltas) == body(stored)["text"] == "one two three four five"
    assert {delta.message_id for delta in deltas} == {body(stored)["message_id"]}
    assert [delta.offset for delta in deltas] == [0, 4, 8, 14, 19]


async def test_the_chunks_are_complete_when_the_row_comes_before_the_sender_got_round_to_them(world: World) -> None:
    async with world.up(world.agent(say("a b c d e f g"))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        await feed.until("message_added")
        deltas, stored = await streamed(feed, "message_added")
    assert "".join(delta.text for delta in deltas if delta.kind == "text") == body(stored)["text"]


@pytest.mark.accept(5)
async def test_the_arguments_of_a_call_are_streamed_before_its_row(world: World) -> None:
    async with world.up(world.agent(call(("look", {"q": "x"})), say("ok"))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "look")
        deltas, row = await streamed(feed, "tools_called")
    (made,) = [delta for delta in deltas if delta.kind == "call"]
    record = body(row)["calls"][0]
    assert (made.name, made.text, made.index) == (record["tool"], record["arguments"], 0)
    assert record["id"]
    assert made.message_id == body(row)["message_id"]


@pytest.mark.accept(3)
async def test_a_provider_that_fails_is_a_frame_and_the_state_error_until_somebody_retries(world: World) -> None:
    script = [attempts(fail("rate_limit", "slow down"), say("better"))]
    async with world.up(world.agent(*script)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "hi")
        failed = (await rest(feed))[-1]
        assert (failed.kind, failed.state) == ("turn_failed", "error")
        assert (body(failed)["error"], body(failed)["message"], body(failed)["retryable"]) == (
            "rate_limit", "slow down", True
        )  # fmt: skip
        assert served.rows(session)[-1].state == "error"
        await client.retry(session)
        assert [body(row).get("text") for row in await rest(feed)] == [None, "better", None]
        assert {row.state for row in served.rows(session)} >= {"success", "interrupt", "error"}


@pytest.mark.accept(3)
async def test_by_policy_a_provider_that_fails_ends_the_session(world: World) -> None:
    async with world.up(world.agent(fail())) as served:
        client, session, feed = await opened(served, limits={"on_error": "terminate"})
        await client.send(session, "hi")
        await rest(feed)
        ended = await feed.until("session_terminated")
        assert (ended.state, body(ended)["reason"]) == ("terminated", "failed")
        late = await client.send(session, "still there?")
        assert late.refused is not None
        assert late.refused.code == "terminated"


@pytest.mark.accept(70)
async def test_a_tool_that_raises_gives_an_error_result_and_the_session_goes_on(world: World) -> None:
    from turnlog.engine import tool

    @tool
    async def broken(q: str) -> str:
        """Break."""
        raise RuntimeError(f"no {q}")

    agent = world.agent(call(("broken", {"q": "luck"})), say("sorry"), say("fine"), tools=[broken])
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "one")
        result = body(next(row for row in await rest(feed) if row.kind == "tool_returned"))
        assert (result["outcome"], result["content"]) == ("error", "RuntimeError: no luck")
        await client.send(session, "two")
        assert body((await rest(feed))[1])["text"] == "fine"


@pytest.mark.accept(69)
async def test_three_parallel_calls_each_get_their_own_result(world: World) -> None:
    agent = world.agent(call(("look", {"q": "a"}), ("look", {"q": "b"}), ("look", {"q": "c"})), say("done"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "look")
        rows = await rest(feed)
        calls = body(next(row for row in rows if row.kind == "tools_called"))["calls"]
        results = {body(row)["call_id"]: body(row)["content"] for row in rows if row.kind == "tool_returned"}
        assert [results[one["id"]] for one in calls] == ["saw a", "saw b", "saw c"]
        assert isinstance(agent.model, ScriptedModel)
        told = [message for message in agent.model.calls[-1].messages if isinstance(message, ToolMessage)]
        assert [message.content for message in told] == ["saw a", "saw b", "saw c"]


@pytest.mark.accept(17)
async def test_feedback_goes_on_with_the_same_session(world: World) -> None:
    agent = world.agent(say("INTERRUPT"), say("thank you"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "plan it")
        assert body((await rest(feed))[-1])["reason"] == "requested"
        await client.send(session, "yes, go on")
        rows = await rest(feed)
        assert [body(row)["text"] for row in rows if row.kind == "message_added"] == ["yes, go on", "thank you"]
        assert rows[0].seq == 5
        assert [line.session for line in (await client.list()).sessions] == [session]


@pytest.mark.accept(72)
async def test_a_message_while_busy_is_queued_and_everybody_is_told(world: World) -> None:
    model = Gated("first")
    async with world.up(Agent("@agent", model)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "one")
        await feed.until("message_added")
        reply = await client.send(session, "two")
        queued = await feed.until("message_queued")
        assert (reply.refused, reply.seq, body(queued)["text"]) == (None, queued.seq, "two")
        model.allow()
        await feed.until("turn_interrupted")
        said = await feed.until("message_added")
        assert body(said)["message_id"] == body(queued)["message_id"]
        model.allow()
        assert body(await feed.until("message_added"))["text"] == "first"


@pytest.mark.accept(72)
async def test_where_the_limits_say_so_a_message_while_busy_is_refused_in_the_reply(world: World) -> None:
    model = Gated("first")
    async with world.up(Agent("@agent", model)) as served:
        client, session, feed = await opened(served, limits={"busy": "refuse"})
        await client.send(session, "one")
        reply = await client.send(session, "two")
        assert reply.refused is not None
        assert reply.refused.code == "busy"
        assert body(await feed.until("input_refused"))["code"] == "busy"
        model.allow()
        await feed.until("turn_interrupted")


@pytest.mark.accept(75)
async def test_an_empty_message_is_refused_and_continue_makes_no_model_speak_for_a_person(world: World) -> None:
    agent = world.agent(say("hello"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "hi")
        await rest(feed)
        for text in ("", "  \n\t"):
            reply = await client.send(session, text)
            assert reply.refused is not None
            assert reply.refused.code == "invalid"
        reply = await client.resume(session)
        assert reply.refused is not None
        assert "no model" in reply.refused.why
        assert isinstance(agent.model, ScriptedModel)
        assert len(agent.model.calls) == 1


@pytest.mark.accept(75)
async def test_where_a_model_may_speak_for_the_awaited_node_its_message_is_marked(world: World) -> None:
    nodes = [
        Agent("@human", ScriptedModel([say("I suppose so")]), interrupt="always"),
        Agent("@agent", ScriptedModel([say("shall I?"), say("done")])),
    ]
    async with world.up(*nodes) as served:
        client, session, feed = await opened(served)
        await client.send(session, "hello", sender="@human", recipient="@agent")
        await rest(feed)
        assert (await client.resume(session)).refused is None
        rows = [row for row in await rest(feed) if row.kind == "message_added"]
        assert [(body(row)["sender"], body(row)["synthetic"]) for row in rows] == [("@human", True), ("@agent", False)]


@pytest.mark.accept(37)
async def test_a_person_may_speak_to_an_agent_an_agent_to_a_person_and_anybody_to_a_group(world: World) -> None:
    agents = [
        Agent("USER", interrupt="always"),
        Agent("a", ScriptedModel([say("from a"), say("a in the group")])),
        Agent("b", ScriptedModel([say("b in the group")])),
    ]
    team = Channel(name="team", members=("a", "b"), max_rounds=2)
    async with world.up(*agents, channels=[team]) as served:
        client, session, feed = await opened(served)

        async def spoken(*, sender: str, recipient: str) -> list[EventFrame]:
            await client.send(session, "hi", sender=sender, recipient=recipient)
            return await rest(feed)

        direct = await spoken(sender="USER", recipient="a")
        assert [body(row)["sender"] for row in direct if row.kind == "message_added"] == ["USER", "a"]
        handed = await spoken(sender="a", recipient="USER")
        assert [row.kind for row in handed] == ["message_added", "turn_interrupted"]
        assert body(handed[-1])["node"] == "USER"
        group = await spoken(sender="USER", recipient="team")
        assert {body(row)["sender"] for row in group if row.kind == "message_added"} == {"USER", "a", "b"}
        assert all(body(row)["recipient"] == "team" for row in group if row.kind == "message_added")
        assert body(group[-1])["reason"] == "max_rounds"


@pytest.mark.accept(16)
@pytest.mark.parametrize("way", ["answered", "skipped", "expired"])
async def test_a_question_goes_out_and_the_answer_a_skip_or_the_time_limit_comes_back(world: World, way: str) -> None:
    asks = call(("ask_user", {"questions": [{"text": "Which?", "choices": ["a", "b"]}, {"text": "Why?"}]}))
    async with world.up(world.agent(asks, say("done"), tools=[ask_user])) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        row = await feed.until("question_asked")
        asked = body(row)
        assert row.state == "interrupt"
        assert [one["text"] for one in asked["questions"]] == ["Which?", "Why?"]
        short = await client.answer(session, asked["request_id"], ["a"])
        assert short.refused is not None
        if way == "expired":
            assert asked["deadline"] == world.clock.now() + 120_000
            world.clock.advance(120)
        else:
            await client.answer(session, asked["request_id"], ["a", "so"] if way == "answered" else None)
        answered = await feed.until("question_answered")
        assert body(answered)["outcome"] == way
        result = body(await feed.until("tool_returned"))
        assert (result["content"] == "Which?\na\nWhy?\nso") is (way == "answered")
        late = await client.answer(session, asked["request_id"], None)
        assert late.refused is not None
        assert body(await feed.until("message_added"))["text"] == "done"


async def test_stop_ends_the_turn_and_the_session_only_when_that_is_said(world: World) -> None:
    model = Gated("never said")
    async with world.up(Agent("@agent", model)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "go")
        await client.stop(session)
        assert body((await rest(feed))[-1])["reason"] == "stopped"
        await client.stop(session, "session")
        assert body(await feed.until("session_terminated"))["reason"] == "stopped"


async def test_the_person_who_speaks_is_the_one_whose_token_it_is(world: World) -> None:
    async with world.up(world.agent(say("hello"))) as served:
        _, session, feed = await opened(served)
        root = await served.client("root")
        await root.send(session, "I am ann, honestly")
        assert (await rest(feed))[0].actor == "person:root"


async def test_a_card_is_read_from_a_feed_that_was_opened_late(world: World) -> None:
    async with world.up(world.agent(call(("pay", {"amount": 1, "to": "A"})))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        other = await served.client("root")
        rows = await (await other.open(session)).live()
        assert any(row.kind == "approval_requested" and body(row) == asked for row in rows)
