"""Several people, tools and threads at once, while hubs close and sessions leave memory: nothing hangs or doubles."""

import asyncio
import random
from collections import Counter
from typing import Any

import pytest

from tests.engine.support import World, of_kind, rows, valid
from turnlog.engine import Agent, Conversation, Engine, ToolContext, tool
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, fail, say
from turnlog.fsm.errors import Conflict, Error, Misuse
from turnlog.fsm.events import ApprovalRequested
from turnlog.fsm.history import collect, view
from turnlog.fsm.session import replay
from turnlog.store import verify

SESSIONS = 4


class Crowd:
    """People who do whatever comes to mind to a few sessions."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.chance = world, random.Random(seed)
        self.effects: Counter[str] = Counter()
        self.allowed: Counter[str] = Counter()
        self.agent = Agent("@agent", ScriptedModel(self.step), tools=self.tools())

    def step(self, given: ModelCall) -> Step:
        kind = self.chance.random()
        if kind < 0.1 and given.attempt < 3:
            return fail()
        if kind < 0.6 and given.tools:
            names = self.chance.choices(["free", "gated", "thread"], k=self.chance.randint(1, 3))
            return call(*((name, {"n": self.chance.randint(0, 99)}) for name in names))
        return say("INTERRUPT" if kind < 0.65 else "a word")

    def tools(self) -> list[Any]:
        async def pause() -> None:
            for _ in range(self.chance.randint(0, 6)):
                await asyncio.sleep(0)

        @tool
        async def free(n: int, context: ToolContext) -> str:
            """Free."""
            self.effects[context.idempotency_key] += 1
            await pause()
            return f"free {n}"

        @tool(needs_approval=True)
        async def gated(n: int, context: ToolContext) -> str:
            """Gated."""
            self.effects[context.idempotency_key] += 1
            await pause()
            if n % 7 == 0:
                raise ValueError("seven")
            return f"gated {n}"

        @tool
        def thread(n: int, context: ToolContext) -> str:
            """In a thread."""
            self.effects[context.idempotency_key] += 1
            return f"thread {n}"

        return [free, gated, thread]

    async def act(self, engine: Engine) -> None:
        """One person's next whim."""
        name = f"s{self.chance.randrange(SESSIONS)}"
        c = await engine.open(name)
        session, whim = c.session, self.chance.random()
        try:
            if session.requests and whim < 0.6:
                await self.decide(c, session.requests)
            elif session.state == "error":
                await c.apply(self.retry())
            elif whim < 0.7:
                await c.say("a word", by=self.chance.choice(["ann", "bob"]))
            elif whim < 0.76:
                await c.stop()
            elif whim < 0.85 and (hub := engine.live(name)) is not None:
                await hub.close()
            else:
                self.world.clock.advance(self.chance.choice([0.1, 1, 200]))
        except (Misuse, Conflict):
            pass
        except Error as error:
            if "open it again" not in str(error):
                raise

    async def decide(self, c: Conversation, requests: tuple[ApprovalRequested, ...]) -> None:
        asked = self.chance.choice(requests)
        word = self.chance.choice(["approved", "denied"])
        outcome = await c.decide(asked, word, by=self.chance.choice(["ann", "bob"]))
        again = asked.why == "outcome_unknown" and word == "approved"
        self.allowed[f"{c.id}:{asked.call_id}"] += again and outcome.refusal is None

    @staticmethod
    def retry() -> Any:
        from turnlog.fsm.inputs import Retry

        return Retry("person:ann")


@pytest.mark.parametrize("seed", range(4))
async def test_a_crowd_cannot_make_a_session_hang_or_a_call_run_twice(world: World, seed: int) -> None:
    crowd = Crowd(world, seed)
    for _ in range(3):
        async with world.engine(crowd.agent, max_live=2) as engine:
            for n in range(SESSIONS):
                if engine.log.head(f"s{n}") is None:
                    await engine.create(f"s{n}")
            for _ in range(12):
                await asyncio.wait_for(asyncio.gather(*(crowd.act(engine) for _ in range(8))), 30)
    async with world.engine(crowd.agent) as engine:
        for n in range(SESSIONS):
            c = await engine.open(f"s{n}")
            await asyncio.wait_for(calm(c), 30)
            assert replay(rows(c)) == c.session
            valid(view(collect([], rows(c)), "@agent", "USER"))
            calls = {one.id for e in of_kind(c, "tools_called") for one in e.calls}
            assert {e.call_id for e in of_kind(c, "tool_returned")} == calls
            assert len(of_kind(c, "tool_returned")) == len(calls)
            assert not any("cannot be" in e.why for e in of_kind(c, "input_refused"))
    assert verify(world.path).ok
    for key, count in crowd.effects.items():
        assert count <= 1 + crowd.allowed[key], f"{key} ran {count} times"
    assert len(crowd.effects) > 20


async def calm(c: Conversation) -> None:
    """Answer and retry until nothing is open."""
    while True:
        session = await c.rest()
        if session.requests:
            await c.decide(session.requests[0], "denied")
        elif session.state == "error":
            await c.retry()
        else:
            return
