"""What each role may do, and whose sessions they may touch."""

import json
from typing import Any

import pytest

from tests.server.support import Served, World, body, card, received, rest, token
from tests.server.test_approvals import pay_each_time, say_word
from tests.server.test_turns import opened
from turnlog.server import Client, ClientError
from turnlog.server.client import Feed
from turnlog.server.commands import TRIES
from turnlog.server.frames import ErrorFrame

CHANGES: dict[str, dict[str, Any]] = {
    "send": {"text": "hi"},
    "decide": {"request": "r", "digest": "d", "outcome": "approved"},
    "answer": {"request": "q", "answers": None},
    "stop": {},
    "retry": {},
    "continue": {},
    "grant": {"tool": "pay"},
    "revoke": {"grant": "g"},
}
LOOKS: dict[str, dict[str, Any]] = {"open": {}, "grants": {}, "fetch": {"seq": 1}}


async def told(served: Served, who: str, verb: str, session: str, fields: dict[str, Any]) -> ErrorFrame | str:
    """The answer to a command: the error, or the type of another frame."""
    socket = await served.raw(who)
    await socket.send(json.dumps({"type": verb, "id": "1", "session": session, **fields}))
    frame = await received(socket)
    await socket.close()
    return frame if isinstance(frame, ErrorFrame) else frame.type


@pytest.mark.field(127)
@pytest.mark.parametrize("verb", [*CHANGES, *LOOKS])
async def test_a_foreign_session_is_as_unknown_as_one_that_does_not_exist(world: World, verb: str) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served, "ann", session="s-ann-1")
        await ann.send(session, "pay")
        asked = await card(feed)
        await feed.until("approval_shown")
        fields = {**CHANGES, **LOOKS}[verb]
        if verb == "decide":
            fields = {"request": asked["request_id"], "digest": asked["digest"], "outcome": "approved"}
        before = served.kinds(session)
        foreign = await told(served, "bob", verb, "s-ann-1", fields)
        guessed = await told(served, "bob", verb, "s-ann-2", fields)
        assert isinstance(foreign, ErrorFrame)
        assert isinstance(guessed, ErrorFrame)
        assert guessed.code == "unknown_session"
        assert foreign.model_dump_json().replace("s-ann-1", "s-ann-2") == guessed.model_dump_json()
        # Of the try nothing is left but, for one that would have changed something, a row that says who it was.
        if verb in CHANGES:
            row = await feed.until("input_refused")
            assert (row.actor, row.state) == ("person:bob", "awaiting_approval")
            assert body(row)["code"] == "unauthorised"
            assert (body(row)["input"], body(row)["about"]) == (verb, fields.get("request", fields.get("grant", "")))
            before.append("input_refused")
        await ann.stop(session)
        await rest(feed)
        assert served.kinds(session)[: len(before) + 1] == [*before, "approval_resolved"]
        assert world.ledger == []


@pytest.mark.field(127)
async def test_anothers_request_is_not_open_in_ones_own_session(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, hers, feed = await opened(served, "ann")
        bob, his, _ = await opened(served, "bob")
        await ann.send(hers, "pay")
        asked = await card(feed)
        reply = await say_word(bob, his, asked, "approved")
        assert reply.refused is not None
        assert "no request" in reply.refused.why
        assert (await bob.list()).sessions[0].session == his
        assert len((await bob.list()).sessions) == 1
        assert len((await (await served.client("eve")).list()).sessions) == 2
        assert world.ledger == []


async def test_a_name_that_is_taken_by_another_is_a_conflict_and_leaves_no_row(world: World) -> None:
    async with world.up(world.agent()) as served:
        await opened(served, "ann", session="taken")
        bob = await served.client("bob")
        with pytest.raises(ClientError, match="conflict: the id 'taken' is taken"):
            await bob.create("taken")
        assert served.kinds("taken") == ["session_started"]


@pytest.mark.parametrize("verb", CHANGES)
async def test_an_observer_changes_nothing_and_the_try_is_on_record(world: World, verb: str) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        _, session, feed = await opened(served)
        error = await told(served, "eve", verb, session, CHANGES[verb])
        assert isinstance(error, ErrorFrame)
        assert (error.code, error.session) == ("unauthorised", session)
        row = await feed.until("input_refused")
        assert (row.actor, body(row)["code"], body(row)["input"]) == ("person:eve", "unauthorised", verb)
        assert served.kinds(session) == ["session_started", "input_refused"]


@pytest.mark.parametrize("who", ["eve", "max"])
async def test_only_a_controller_creates_sessions(world: World, who: str) -> None:
    async with world.up(world.agent()) as served:
        client = await served.client(who)
        with pytest.raises(ClientError, match="unauthorised"):
            await client.create("mine")
        assert (await client.list()).sessions == ()


async def test_an_observer_sees_what_an_approver_decides(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, _ = await opened(served)
        watching = await (await served.client("eve")).open(session)
        approver = await served.client("max")
        await ann.send(session, "pay")
        asked = await card(watching)
        for verb in ("send", "stop", "grant", "revoke", "retry", "continue"):
            error = await told(served, "max", verb, session, CHANGES[verb])
            assert isinstance(error, ErrorFrame)
            assert error.code == "unauthorised"
        await say_word(approver, session, asked, "approved")
        word = await watching.until("approval_resolved")
        assert (word.actor, body(word)["actor"]) == ("person:max", "person:max")
        await rest(watching)
        assert world.ledger == [("pay", 5, "A")]


async def test_tries_fill_no_log_however_many_connections_they_come_over(world: World) -> None:
    """So many of one person in one session are on record, the last of them says so; others are not hidden by them."""
    async with world.up(world.agent()) as served:
        ann, session, feed = await opened(served)
        _, other, _ = await opened(served)
        for _ in range(4):
            async with await Client.connect(served.server.url, token("bob")) as bob:
                for _ in range(15):
                    with pytest.raises(ClientError, match="unknown_session"):
                        await bob.stop(session)
        with pytest.raises(ClientError, match="unknown_session"):
            await (await served.client("bob")).stop(other)
        with pytest.raises(ClientError, match="unauthorised"):
            await (await served.client("eve")).stop(session)
        await ann.grant(session, "pay")
        await feed.until("grant_recorded")
        actors = [row.actor for row in served.rows(session) if row.event.kind == "input_refused"]
        assert actors == ["person:bob"] * TRIES + ["person:eve"]
        told = [one.why for one in served.of_kind(session, "input_refused")]
        assert [why.endswith("further tries are not recorded") for why in told] == [False] * (TRIES - 1) + [True, False]
        assert [one.input for one in served.of_kind(other, "input_refused")] == ["stop"]


@pytest.mark.parametrize("scope", ["session", "user"])
async def test_an_approver_cannot_make_a_grant_of_a_decision(world: World, scope: str) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        approver = await served.client("max")
        await ann.send(session, "pay")
        asked = await card(feed)
        word = (session, asked["request_id"], asked["digest"], "approved")
        with pytest.raises(ClientError, match="unauthorised: the role approver may not grant: leave out `remember`"):
            await approver.decide(*word, remember=scope)
        row = await feed.until("input_refused")
        assert (row.actor, row.state, body(row)["about"]) == ("person:max", "awaiting_approval", asked["request_id"])
        assert body(row)["why"] == "max (approver) may not grant in this session"
        assert served.of_kind(session, "grant_recorded") == []
        assert (world.ledger, served.engine.grants.of("ann")) == ([], ())
        assert (await approver.decide(*word)).refused is None
        await rest(feed)
        assert world.ledger == [("pay", 5, "A")]
        await ann.send(session, "pay")
        assert (await ann.decide(session, *(await again_asked(feed)), "approved", remember=scope)).refused is None
        await feed.until("grant_recorded")


async def again_asked(feed: Feed) -> tuple[str, str]:
    """The next request and its digest."""
    asked = await card(feed)
    return asked["request_id"], asked["digest"]


# Resends ------------------------------------------------------------------------------------------


async def again(client: Client, **frame: Any) -> Any:
    """Send a command twice; the second answer."""
    first = await client.command(**frame)
    second = await client.command(**frame)
    assert getattr(first, "repeated", None) is False
    return second


async def test_a_command_sent_again_after_a_lost_connection_has_no_second_effect(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        first = await ann.send(session, "pay", id="c-1")
        asked = await card(feed)
        ann.socket.transport.abort()

        back = await served.client()
        second = await back.send(session, "pay", id="c-1")
        assert (second.repeated, second.seq, second.refused) == (True, first.seq, None)
        feed = await back.open(session, after=feed.seq)
        word = await say_word(back, session, asked, "approved", id="c-2")
        await rest(feed)
        repeated = await say_word(back, session, asked, "approved", id="c-2")
        assert (repeated.repeated, repeated.seq, repeated.refused) == (True, word.seq, None)
        assert world.ledger == [("pay", 5, "A")]
        assert len([event for event in served.of_kind(session, "message_added") if event.by == "person"]) == 1


async def test_another_content_under_the_same_id_is_a_conflict(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        await ann.send(session, "pay", id="c-1")
        await card(feed)
        await feed.until("approval_shown")
        rows = served.kinds(session)
        with pytest.raises(ClientError, match="conflict: command 'ann/c-1' was used before"):
            await ann.send(session, "pay me", id="c-1")
        with pytest.raises(ClientError, match="conflict"):
            await ann.stop(session, id="c-1")
        assert served.kinds(session) == rows


async def test_two_principals_may_use_the_same_id(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        root = await served.client("root")
        await ann.send(session, "pay", id="1")
        await card(feed)
        reply = await root.send(session, "and me", id="1")
        assert (reply.repeated, reply.refused) == (False, None)


async def test_a_refused_command_sent_again_is_refused_again_without_another_row(world: World) -> None:
    async with world.up(world.agent()) as served:
        ann, session, _ = await opened(served)
        second = await again(ann, type="retry", id="1", session=session)
        assert (second.repeated, second.refused.code) == (True, "conflict")
        assert served.kinds(session) == ["session_started", "input_refused"]


async def test_creating_again_finds_the_session_that_the_first_one_made(world: World) -> None:
    async with world.up(world.agent()) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        unnamed = await again(ann, type="create", id="1")
        named = await again(ann, type="create", id="2", session="mine", limits={"max_rounds": 7})
        assert (unnamed.repeated, named.repeated, named.session) == (True, True, "mine")
        his = await bob.create(id="1")
        assert his.session != unnamed.session
        with pytest.raises(ClientError, match="conflict: the id 'mine' is taken"):
            await ann.create("mine")
        assert len((await ann.list()).sessions) == 2
