"""Forks over the wire."""

from typing import Any

import pytest

from tests.server.support import World, body, card, rest
from tests.server.test_approvals import pay_each_time, say_word
from tests.server.test_turns import opened
from turnlog.server import ClientError


@pytest.mark.field(86)
async def test_a_fork_at_a_card_shows_a_card_of_its_own_and_leaves_the_parents_alone(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        await ann.send(session, "pay")
        asked = await card(feed)
        await say_word(ann, session, asked, "approved")
        await rest(feed)
        assert len(world.ledger) == 1
        before = served.kinds(session)
        at = before.index("approval_resolved") + 1
        reply = await ann.fork(session, at, id="once")
        fork = await ann.open(reply.session)
        mine = await card(fork)
        assert (mine["arguments"], mine["request_id"] == asked["request_id"]) == (asked["arguments"], False)
        first = (await (await served.client("ann")).open(reply.session)).live()
        assert body((await first)[0])["parent"]["session"] == session
        await say_word(ann, reply.session, mine, "denied")
        await rest(fork)
        assert len(world.ledger) == 1
        assert served.kinds(session) == before
        lines = {line.session: (line.parent, line.parent_seq) for line in (await ann.list()).sessions}
        assert lines == {session: ("", 0), reply.session: (session, at)}


async def test_a_fork_that_is_sent_again_is_made_once(world: World) -> None:
    async with world.up(world.agent()) as served:
        ann, session, _ = await opened(served)
        first = await ann.fork(session, 1, id="once")
        again = await ann.fork(session, 1, id="once")
        assert (again.session, first.repeated, again.repeated) == (first.session, False, True)
        named = await ann.fork(session, 1, "mine")
        assert named.session == "mine"
        assert (await ann.fork(session, 1, "mine")).repeated
        with pytest.raises(ClientError, match="conflict: the id 'mine' is taken"):
            await ann.fork("mine", 1, "mine")
        assert len((await ann.list()).sessions) == 3


@pytest.mark.field(127)
async def test_only_who_may_see_a_session_and_is_a_controller_forks_it(world: World) -> None:
    async with world.up(world.agent()) as served:
        _, session, _ = await opened(served)
        refusals: dict[str, Any] = {"bob": "unknown_session", "eve": "unauthorised", "max": "unauthorised"}
        for who, code in refusals.items():
            with pytest.raises(ClientError, match=code):
                await (await served.client(who)).fork(session, 1)
        assert len((await (await served.client("eve")).list()).sessions) == 1


@pytest.mark.parametrize("seq", [2, 2**62])
async def test_a_row_that_is_not_there_is_named(world: World, seq: int) -> None:
    async with world.up(world.agent()) as served:
        ann, session, _ = await opened(served)
        with pytest.raises(ClientError, match=f"rows 1 to 1, none is {seq}"):
            await ann.fork(session, seq)
        with pytest.raises(ClientError, match="unknown_session"):
            await ann.fork("nobody", 1)
        assert len((await ann.list()).sessions) == 1
