"""Forks of sessions that ended, failed, ran late, are groups, are long, or are damaged."""

import sqlite3
from collections.abc import Callable

import pytest

from tests.engine.support import World, of_kind, reached
from tests.engine.test_forks import paid, parent_of, payer, place
from turnlog.engine import Agent
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, fail, say
from turnlog.fsm.errors import BadBody, Misuse
from turnlog.fsm.events import Channel, Limits
from turnlog.store import LogReader, verify


@pytest.mark.parametrize(
    ("script", "limits", "state"),
    [
        ([say("TERMINATE")], Limits(), "interrupt"),
        ([say("hello")], Limits(max_rounds=1), "interrupt"),
        ([fail()], Limits(), "error"),
    ],
)
async def test_a_fork_of_a_session_that_ended_waits_for_a_person(
    world: World, script: list[Step], limits: Limits, state: str
) -> None:
    async with world.engine(world.agent(*script, say("on we go")), limits=limits) as engine:
        c = await engine.create("s")
        await c.send("hi")
        if c.session.state != "terminated":
            await c.stop(session=True)
        assert c.session.state == "terminated"
        fork = await engine.fork("s", c.session.seq, "f")
        assert fork.session.state == state
        if state == "interrupt":
            assert (await fork.send("go on")).text == "on we go"
        else:
            assert (await fork.retry()).state == "error"


async def test_a_fork_that_would_end_at_once_is_refused(world: World) -> None:
    async with world.engine(world.agent(fail()), limits=Limits(on_error="terminate")) as engine:
        c = await engine.create("s")
        await c.send("hi")
        with pytest.raises(Misuse, match="would end at once"):
            await engine.fork("s", c.session.seq, "f")
        assert engine.log.head("f") is None
        fork = await engine.fork("s", place(c, "message_added"), "f")
        assert (await fork.rest()).state == "terminated"


async def test_a_fork_of_an_error_can_be_retried_with_the_count_that_it_had(world: World) -> None:
    agent = world.agent(attempts(fail(), fail(), say("third")))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("hi")
        await c.retry()
        fork = await engine.fork("s", c.session.seq, "f")
        assert (await fork.retry()).text == "third"
        assert c.session.state == "error"


async def test_the_deadline_of_a_turn_begins_anew_in_a_fork_and_old_ones_do_not_end_it(world: World) -> None:
    async with world.engine(payer(world), limits=Limits(turn_seconds=60, approval_seconds=None)) as engine:
        c = await engine.create("s")
        await c.send("pay A 5")
        at = c.session.seq
        world.clock.advance(61)
        await reached(c, lambda s: s.state == "interrupt")
        fork = await engine.fork("s", at, "f")
        assert fork.session.state == "awaiting_approval"
        assert fork.session.deadline == world.clock.now() + 60_000


async def test_a_group_goes_on_in_a_fork_with_the_speaker_that_was_chosen_and_without_who_left(world: World) -> None:
    agents = [Agent(name, ScriptedModel([say(f"{name} speaks"), say("TERMINATE")])) for name in ("a", "b", "c")]
    channel = Channel(name="#all", members=("a", "b", "c"))
    async with world.engine(*agents, channels=[channel], limits=Limits(max_rounds=3)) as engine:
        c = await engine.create("s", entry="#all")
        await c.remove_member("#all", "c")
        await c.send("hello")
        at = place(c, "speaker_selected")
        fork = await engine.fork("s", at, "f")
        await fork.rest()
        chosen = of_kind(fork, "speaker_selected")[0]
        assert chosen == of_kind(c, "speaker_selected")[0]
        assert of_kind(fork, "message_added")[1].sender == chosen.speaker
        assert ("#all", "c") in fork.session.left


async def test_a_damaged_row_stops_forks_after_it_and_none_before(world: World) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        at = place(c, "tool_returned")
    damage(world, "s", at + 1)
    async with world.engine(payer(world)) as engine:
        fork = await engine.fork("s", at, "f")
        await fork.rest()
        assert fork.session.state == "awaiting_approval"
        with pytest.raises(BadBody, match=f"seq {at + 1}"):
            await engine.fork("s", at + 2, "g")
        assert engine.log.head("g") is None


def damage(world: World, session: str, seq: int) -> None:
    """Overwrite the body of a row, as a bad disk would."""
    with sqlite3.connect(world.path) as db:
        db.execute("DROP TRIGGER events_no_update")
        db.execute("UPDATE events SET body = '{bad' WHERE session = ? AND seq = ?", (session, seq))
    db.close()


async def test_a_fork_of_a_long_session_serves_others_meanwhile_and_is_one_append(world: World) -> None:
    def on(_: ModelCall) -> Step:
        return say("and?")

    async with world.engine(
        Agent("@a", ScriptedModel(on)), Agent("@b", ScriptedModel(on)), limits=Limits(max_rounds=1500)
    ) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert c.session.seq > 1400
        appends = engine.log.stats.jobs
        fork = await engine.fork("s", c.session.seq - 1, "f")
        assert fork.session.seq == c.session.seq
        assert engine.log.stats.jobs - appends <= 3, "a lease, the rows, a snapshot"


@pytest.mark.field(102)
async def test_parents_that_lead_in_a_circle_or_nowhere_harm_nobody(world: World) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        await engine.fork("s", c.session.seq, "f")
    rewrite: Callable[[str, str], None] = lambda session, parent: _reparent(world, session, parent)  # noqa: E731 - short
    rewrite("f", "f")
    with LogReader(world.path) as reader:
        assert [(info.id, info.parent, info.broken) for info in reader.sessions(thorough=True)] == [
            ("f", "f", ""),
            ("s", "", ""),
        ]
    async with world.engine(payer(world)) as engine:
        fork = await engine.open("f")
        assert (await fork.send("hi")).state == "interrupt"
        again = await engine.fork("f", fork.session.seq, "g")
        assert parent_of(again) is not None
    assert not verify(world.path).ok, "a parent that was rewritten is a row that was changed"


def _reparent(world: World, session: str, parent: str) -> None:
    with sqlite3.connect(world.path) as db:
        db.execute("DROP TRIGGER events_no_update")
        db.execute(
            "UPDATE events SET body = json_set(body, '$.parent.session', ?) WHERE session = ? AND seq = 1",
            (parent, session),
        )
    db.close()
