"""A long conversation is a loop over data: flat in stack, in memory, and in work per step."""

import gc
import sys
import tracemalloc

import pytest
from bench.no_recursion import talk

from tests.engine.support import World
from turnlog.engine import Agent
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, say
from turnlog.fsm.events import Limits

MIB = 2**20


@pytest.mark.accept(62)
def test_a_hundred_thousand_steps_need_no_more_stack_memory_or_calls_at_the_end_than_at_the_start() -> None:
    """Time is measured by bench/no_recursion.py; calls are counted here, since a count is the same on every machine."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth_here() + 60)
    try:
        measured = talk(100_000)
    finally:
        sys.setrecursionlimit(limit)
    assert len(set(measured.calls)) == 1
    assert len(set(measured.depths)) == 1
    assert max(measured.sizes) < 1_000


@pytest.mark.accept(62)
def test_the_steps_leave_nothing_behind_in_memory() -> None:
    tracemalloc.start()
    try:
        talk(2_000)
        before, _ = tracemalloc.get_traced_memory()
        talk(10_000)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000
    assert peak < MIB


@pytest.mark.accept(62)
@pytest.mark.accept(43)
async def test_two_agents_talk_through_the_engine_at_one_depth_and_in_one_size(world: World) -> None:
    rounds = 2_000
    depths: set[int] = set()
    blocks: list[int] = []

    def step(call: ModelCall) -> Step:
        depths.add(depth_here())
        assert len(call.messages) <= 20
        if call.index % 250 == 249:
            gc.collect()
            blocks.append(sys.getallocatedblocks())
        return say("word")

    bots = [Agent(name, ScriptedModel(step, name), window=20) for name in ("left", "right")]
    async with world.engine(*bots, limits=Limits(max_rounds=rounds)) as engine:
        c = await engine.create("s")
        turn = await c.send("begin")
        assert (turn.state, c.session.step) == ("terminated", rounds - 1)
    assert len(depths) == 1
    # One object left behind at each of the 1,500 steps between would show.
    assert max(blocks[1:]) - blocks[1] < 1_000, blocks


def depth_here() -> int:
    """How many frames are below."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
