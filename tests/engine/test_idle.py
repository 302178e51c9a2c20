"""A session in which nothing happens leaves memory, loses nothing, and comes back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.engine.support import World, reached, request
from turnlog.engine import Agent, Engine
from turnlog.engine.models.base import Delta, ModelCall, ModelReply
from turnlog.engine.models.scripted import call, say
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Limits
from turnlog.store import SQLiteLog


@pytest.mark.accept(32)
async def test_an_idle_session_is_suspended_and_goes_on_when_somebody_speaks(world: World) -> None:
    async with world.engine(world.agent(say("one"), say("two")), idle_seconds=300) as engine:
        c = await engine.create("s")
        assert (await c.send("hi")).text == "one"
        world.clock.advance(299)
        assert list(engine.in_memory) == ["s"]
        world.clock.advance(301)
        await asyncio.sleep(0)
        assert not engine.in_memory
        assert c.session.state == "interrupt", "suspended is not lost"
        assert (await c.send("hello again")).text == "two"


async def test_a_word_in_the_moment_of_the_suspension_is_answered(world: World) -> None:
    async with world.engine(world.agent(say("one"), say("two")), idle_seconds=300) as engine:
        c = await engine.create("s")
        await c.send("hi")
        world.clock.advance(150)
        world.clock.advance(301)  # the session is let go; its hub has not had a round of the loop to end in
        assert not engine.in_memory
        assert (await c.send("hello again")).text == "two"
        assert c.session.state == "interrupt"


@pytest.mark.accept(32)
async def test_a_watched_session_stays_and_one_that_waits_for_a_person_for_ever_comes_back_with_the_word(
    world: World,
) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"})), say("paid"))
    async with world.engine(agent, idle_seconds=5, limits=Limits(approval_seconds=None)) as engine:
        waiting, watched = await engine.create("waiting"), await engine.create("watched")
        watched.subscribe(lambda _: None)
        await waiting.send("pay")
        for _ in range(5):
            world.clock.advance(5)
            await asyncio.sleep(0)
        assert engine.in_memory == ("watched",)
        await waiting.decide(request(waiting), "approved")
        await waiting.rest()
        assert world.ledger == [("pay", 1, "A")]


class Silent:
    """A model that never says anything."""

    name = "silent"

    async def stream(self, _: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        await asyncio.Event().wait()
        yield say("never")


async def test_the_time_limit_of_a_turn_ends_a_model_that_says_nothing(world: World) -> None:
    async with world.engine(Agent("@agent", Silent()), limits=Limits(turn_seconds=60)) as engine:
        c = await engine.create("s")
        await c.say("hi")
        world.clock.advance(60)
        await reached(c, lambda s: s.state == "interrupt")
        assert [row.event.kind for row in c.rows()][-1] == "turn_interrupted"
        assert c.rows()[-1].actor == "timer"


@pytest.mark.parametrize(
    "more", [{"idle_seconds": 0}, {"idle_seconds": -1.0}, {"idle_seconds": float("nan")}, {"max_live": 0}]
)
def test_numbers_that_nothing_can_be_meant_by_are_refused_before_a_log_is_opened(world: World, more: Any) -> None:
    with pytest.raises(Misuse, match="give numbers above 0"):
        world.engine(world.agent(), **more)
    assert not world.path.exists()


async def test_a_log_that_an_engine_has_is_refused_to_a_second_one_and_the_first_goes_on(world: World) -> None:
    log = SQLiteLog(world.path, quick_seconds=0)  # its thread commits, so that the engine must be woken
    first, second = Engine(log, [world.agent(say("one"))]), Engine(log, [world.agent(say("two"))])
    await first.start()
    with pytest.raises(Misuse, match="open in another engine"):
        async with second:
            pass
    assert (await (await first.create("s")).send("hi")).text == "one"
    await first.close()
