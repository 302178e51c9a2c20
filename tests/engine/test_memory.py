"""Sessions leave memory and come back, resume is bounded, and nothing about it shows."""

import tracemalloc

import pytest

from tests.engine.support import World, kinds, of_kind, processed, request, rows, sent
from turnlog.engine import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.events import Limits
from turnlog.fsm.history import ToolMessage
from turnlog.fsm.session import replay

MIB = 2**20
EVERY = 100  # rows between snapshots, in these tests


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnlog.engine.hub.SNAPSHOT_EVERY", EVERY)


async def test_idle_sessions_leave_memory_and_come_back_where_they_were(world: World) -> None:
    agent = Agent("@agent", ScriptedModel(lambda c: say(f"{len(c.messages)} messages")))
    async with world.engine(agent, max_live=3) as engine:
        conversations = [await engine.create(f"s{n}") for n in range(12)]
        for turn in range(3):
            for c in conversations:
                assert (await c.send("hi")).text == f"{2 * turn + 1} messages"
                assert len(engine._hubs) <= 3
        for c in conversations:
            assert len(rows(c)) == 10
            assert "session_resumed" not in kinds(c), "nothing was in flight"


async def test_a_session_in_which_something_waits_does_not_leave_memory(world: World) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"})), say("paid"))
    async with world.engine(agent, max_live=1, limits=Limits(approval_seconds=60)) as engine:
        waiting = await engine.create("waiting")
        await waiting.send("pay")
        for n in range(5):
            await engine.create(f"s{n}")
        assert engine.live("waiting") is not None
        world.clock.advance(60)
        await processed(waiting)
        await waiting.rest()
        assert of_kind(waiting, "approval_resolved")[0].actor == "timer"


@pytest.mark.field(20)
async def test_a_log_of_big_results_is_resumed_in_bounded_memory_and_asked_about_in_bounded_requests(
    world: World,
) -> None:
    turns = 60  # the field case has 200; the limits below do not depend on it

    @tool
    async def big() -> str:
        """Return a mebibyte."""
        return f"{len(sizes)} " + "eA==" * (MIB // 4)

    sizes: list[int] = []
    model = ScriptedModel(lambda c: call(("big", {})) if c.index % 2 == 0 else say("seen"))
    agent = Agent("@agent", model, tools=[big], window=40)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        for _ in range(turns):
            await c.send("go")
    last = world.agent(tools=[big], window=40)
    assert isinstance(last.model, ScriptedModel)
    last.model.script, last.model.keep_calls = (lambda _: say("here")), True
    tracemalloc.start()
    try:
        async with world.engine(last) as engine:
            c = await engine.open("s")
            assert (await c.send("and now?")).text == "here"
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * MIB, f"{peak / MIB:.0f} MiB to resume {turns} MiB of results"
    (asked,) = sent(last)
    size = sum(len(m.content) for m in asked.messages if isinstance(m, ToolMessage))
    assert size < 40 * 17_000
    async with world.engine(last) as engine:
        first = next(row.event for row in engine.log.read("s", 0, 50) if row.event.kind == "tool_returned")
        assert len(first.content) < 17_000
        assert len(engine.log.blob(first.attachments[0].digest)) == MIB + 2, "the whole can still be fetched"


async def test_a_long_log_is_loaded_from_a_snapshot_and_stands_where_its_rows_say(world: World) -> None:
    bots = [Agent(name, ScriptedModel(lambda c: say(f"word {c.index}"), name)) for name in ("left", "right")]
    async with world.engine(*bots, limits=Limits(max_rounds=5 * EVERY)) as engine:
        c = await engine.create("s")
        await c.send("begin")
        said = c.session
    async with world.engine(*bots) as engine:
        folded = engine.snapshot("s")
        assert folded is not None
        assert said.seq - folded.seq < EVERY
        c = await engine.open("s")
        assert c.session == said == replay(rows(c))
        engine.log.drop_snapshots().result()
    async with world.engine(*bots) as engine:
        assert (await engine.open("s")).session == said


async def test_snapshots_are_made_although_every_life_is_short(world: World) -> None:
    """A process that restarts every few hundred rows would otherwise fold an ever longer log."""
    bots = [Agent(name, ScriptedModel(lambda c: say(f"word {c.index}"), name)) for name in ("left", "right")]
    async with world.engine(*bots, limits=Limits(max_rounds=EVERY - 10)) as engine:
        await (await engine.create("s", limits=Limits(max_rounds=10**6))).say("begin")
        c = await engine.open("s")
        await c._hub.until(lambda s: s.seq > EVERY - 20)
    for _ in range(2):
        async with world.engine(*bots) as engine:
            c = await engine.open("s")
            seq = c.session.seq
            await c._hub.until(lambda s, seq=seq: s.seq > seq + 15)  # type: ignore[misc]  # a bound loop variable
    async with world.engine(*bots) as engine:
        assert engine.snapshot("s") is not None
        await (await engine.open("s")).stop(session=True)


async def test_an_approved_call_that_was_not_started_runs_after_a_restart_without_being_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"})), say("paid"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        hub = await engine.hub("s")
        monkeypatch.setattr(hub.missing, "ready", lambda _: None)  # the process gets no further
        await c.decide(request(c), "approved")
        assert world.ledger == []
    async with world.engine(agent) as engine:
        c = await engine.open("s")
        await c.rest()
        assert world.ledger == [("pay", 1, "A")]
        assert len(of_kind(c, "approval_requested")) == 1
