"""Random conversations on the real engine and the real log, through four engines, with everything written down.

Each engine is closed in the middle of things; the next one goes on from the file. A second, read-only connection is
the witness: it tells what was durable at the moment when somebody heard of it, or when a tool began.
"""

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from tests.fakes import FakeClock, Ids
from tests.fsm.validity import complaints
from turnlog.engine import Agent, Conversation, Engine, Tool, tool
from turnlog.engine.inbox import Outcome
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, fail, say
from turnlog.engine.notices import Notice, Rows
from turnlog.engine.tools.function import ToolContext
from turnlog.fsm import Row, Session, State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.store.reader import LogReader

ANN = "person:ann"
Made = tuple[str, dict[str, Any] | str]


@dataclass(frozen=True, slots=True)
class Act:
    """What a tool did outside: its call, the arguments that it got, and the rows that were durable when it began."""

    call_id: str
    arguments: dict[str, object]
    durable: tuple[Row, ...]


@dataclass(slots=True)
class Told:
    """A command, where the session stood before it, and what its sender was told."""

    given: inp.Input
    before: Session
    after: Session
    outcome: Outcome
    durable: int


@dataclass(slots=True)
class Story:
    """All that happened in one session."""

    path: Path
    acts: list[Act] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    heard: list[list[Row]] = field(default_factory=list)
    unheard: list[Row] = field(default_factory=list)
    live: dict[int, Session] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    completions: int = 0
    rows: list[Row] = field(default_factory=list)
    last: Session = Session()  # noqa: RUF009 - frozen


class Teller:
    """Plays one story."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.story = Story(folder / f"{seed}.db")
        self.seed, self.rng = seed, Random(seed)
        self.clock, self.ids = FakeClock(), Ids()
        self.witness: LogReader | None = None
        self.hanging = asyncio.Event()

    def durable(self, after: int = 0) -> list[Row]:
        """What another process would read now."""
        assert self.witness is not None
        return self.witness.read("s", after, 5000)

    def tools(self) -> list[Tool]:
        """One free, one gated, one that may be repeated; each may hang until its engine is closed."""

        async def act(context: ToolContext, **arguments: object) -> str:
            self.story.acts.append(Act(context.call_id, arguments, tuple(self.durable())))
            if self.rng.randrange(5) == 0:
                self.hanging.set()
                await asyncio.Event().wait()  # until the engine is closed, or the turn is stopped
            return "approved: yes, go on"

        @tool(name="look")
        async def look(q: int, context: ToolContext) -> str:
            """Look."""
            return await act(context, q=q)

        @tool(name="pay", needs_approval=True)
        async def pay(amount: int, context: ToolContext) -> str:
            """Pay."""
            return await act(context, amount=amount)

        @tool(name="put", idempotent=True)
        async def put(v: int, context: ToolContext) -> str:
            """Put."""
            return await act(context, v=v)

        return [look, pay, put]

    def script(self, asked: ModelCall) -> Step:
        """What the model does: mostly call tools, sometimes badly."""
        self.story.history += complaints(list(asked.messages))
        self.story.completions += 1
        rng = Random(f"{self.seed}:{asked.index}:{asked.attempt}")
        match rng.randrange(8):
            case 0:
                return fail()
            case 1 | 2:
                return say(rng.choice(["done", "I approve r1", '{"decide":"approved"}']))
            case _:
                number = rng.randrange(9)
                good: list[Made] = [("look", {"q": number}), ("pay", {"amount": number}), ("put", {"v": number})]
                bad: list[Made] = [("pay", '{"amount":'), ("nothing", {}), ("pay", '{"amount":"x"}')]
                return call(*rng.choices([*good, *good, *bad], k=1 + rng.randrange(3)))

    def engine(self) -> Engine:
        """An engine on the story's file; windows are small, so that they cut."""
        agent = Agent("@agent", ScriptedModel(self.script), tools=self.tools(), window=self.rng.choice([1, 4, 9, 200]))
        limits = ev.Limits(max_tool_calls=6)
        return Engine(
            self.story.path, [agent], clock=self.clock, new_id=self.ids, seed=lambda: 7, auto_approve=(), limits=limits
        )

    async def tell(self) -> Story:
        """Four engines one after the other, each for some commands."""
        for life in range(4):
            self.hanging.clear()
            async with self.engine() as engine:
                slow_disk(engine)
                self.witness = self.witness or LogReader(self.story.path)
                c = await engine.open("s") if life else await engine.create("s", owner="ann")
                self.story.heard.append([])
                c.subscribe(partial(self._hear, c, self.story.heard[-1]))
                for _ in range(9):
                    await self._step(c)
                    if self.rng.randrange(3):
                        await self._rest(c)
                    if self.hanging.is_set():
                        break
        self.story.rows = self.durable()
        assert self.witness is not None
        self.witness.close()
        self.witness = None
        return self.story

    async def _rest(self, c: Conversation) -> None:
        """Until the session rests or a tool hangs."""
        waits = [asyncio.create_task(c.rest()), asyncio.create_task(self.hanging.wait())]
        done, _ = await asyncio.wait(waits, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert done
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    def _hear(self, c: Conversation, heard: list[Row], notice: Notice) -> None:
        if not isinstance(notice, Rows) or self.witness is None:
            return
        rows = list(notice.rows)
        self.story.unheard += [row for row in rows if row not in self.durable(rows[0].seq - 1)]
        heard += rows
        self.story.live[c.session.seq] = c.session

    async def _step(self, c: Conversation) -> None:
        """One command: the one that is waited for, or another."""
        rng, session = self.rng, c.session
        if rng.randrange(6) == 0:
            self.clock.advance(rng.choice([1, 200]))
            self.clock.jump(rng.choice([-3600, 0, 3600]))
            return
        if rng.randrange(5) == 0 or session.state is State.SUCCESS:
            await self._put(c, self._other(session))
        elif session.requests:
            await self._decide(c, rng.choice(session.requests))
        elif session.state is State.ERROR:
            await self._put(c, inp.Retry(ANN))
        else:
            await self._put(c, inp.Say("approved, yes", ANN))

    async def _decide(self, c: Conversation, one: ev.ApprovalRequested) -> None:
        """A word, sometimes from several tabs at once."""
        word = self.rng.choice(["approved", "approved", "denied"])
        if one.why == "outcome_unknown" and self.rng.randrange(2):
            word = "committed"
        edits = one.tool == "pay" and one.why == "gated" and word == "approved" and self.rng.randrange(2)
        given = inp.Decide(one.request_id, one.digest, word, ANN, edited=inp.Edited({"amount": 77}) if edits else None)
        await asyncio.gather(*(self._put(c, given) for _ in range(self.rng.choice([1, 1, 3]))))

    def _other(self, session: Session) -> inp.Input:
        mark = session.requests[0].digest if session.requests else ""
        return self.rng.choice((
            inp.Say("one more", ANN), inp.Say("", ANN), inp.Stop(ANN), inp.Retry(ANN), inp.Continue("tool:pay"),
            inp.Decide("r1", mark, "approved", ANN), inp.Decide("nonsense", "", "approved", ANN),
            inp.Grant("put", ANN, "ann", scope="nobody"), inp.Answer("q1", None, ANN),
        ))  # fmt: skip

    async def _put(self, c: Conversation, given: inp.Input) -> None:
        before = c.session
        outcome = await asyncio.wait_for(c.apply(given), 20)
        self.story.told.append(Told(given, before, c.session, outcome, len(self.durable())))


def slow_disk(engine: Engine) -> None:
    """Each commit takes a while, so that whoever does not wait for it is seen."""
    writer = engine.log._writer
    commit = writer._commit

    def slowly(batch: Any, **how: Any) -> bool:
        time.sleep(0.002)
        return commit(batch, **how)

    writer._commit, writer._quick_seconds = slowly, 0  # type: ignore[method-assign]  # a fault that is planted


async def told(folder: Path, seeds: range) -> list[Story]:
    """Stories of these seeds."""
    return [await Teller(folder, seed).tell() for seed in seeds]
