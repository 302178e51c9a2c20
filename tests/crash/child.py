"""One life of a process that runs conversations, and that is killed with SIGKILL at a stated point.

Everything that kills is in here: production code has no hook for it. Each durable row and each command's answer is
acknowledged on standard output; each true effect of a tool is a synced line of a ledger file outside the database.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tests.crash.scenes import SCENES, Scene
from tests.fakes import FakeClock
from turnlog.engine import (
    Agent,
    Clock,
    Conversation,
    Engine,
    Notice,
    Outcome,
    Rows,
    SystemClock,
    Tool,
    ToolContext,
    person,
    tool,
)
from turnlog.engine.models.base import Delta, ModelCall, ModelReply
from turnlog.engine.models.scripted import ScriptedModel, say
from turnlog.fsm.errors import UnknownSession
from turnlog.fsm.events import ApprovalRequested, Channel, Limits
from turnlog.fsm.history import UserMessage
from turnlog.store import Command, Draft, SQLiteLog
from turnlog.store.base import Then


@dataclass(frozen=True)
class Kill:
    """When to die.

    what=append: at the nth append, or at the nth that holds a row of `kind`; `when` is "before" its commit, with the
    rows already inserted, or "after" it and before anybody hears of it. what=tool: at the nth run of tool `kind`,
    before or after its effect. what=model: when a model is called the nth time. what=ack: once the nth row is
    acknowledged. what=end: when the conversation rests.
    """

    what: str = ""
    nth: int = 1
    when: str = "after"
    kind: str = ""


@dataclass(frozen=True)
class Job:
    """What one process does. `word` answers a call whose outcome is unknown: again, committed, give up or timer."""

    db: str
    ledger: str
    scene: str
    kill: Kill = Kill()
    word: str = "again"
    zone: str = "UTC"
    sessions: int = 1
    stop: bool = False  # leave as soon as a person is asked, or a turn failed
    chatty: bool = False  # say the rest first
    ahead: int = 0  # seconds by which the clock is ahead


def die() -> NoReturn:
    """As a power cut would: no handler, no flush, no goodbye."""
    os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()


def say_out(*words: object) -> None:
    """One line of acknowledgement."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class KillingLog(SQLiteLog):
    """A log that dies around one of its commits."""

    def __init__(self, path: str, kill: Kill) -> None:
        super().__init__(path)
        self._kill, self._seen = kill, 0

    def append_then(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None,
        then: Then,
    ) -> None:
        kill = self._kill
        counts = kill.what == "append" and (not kill.kind or any(d.event.kind == kill.kind for d in drafts))
        self._seen += counts
        if not counts or self._seen != kill.nth:
            super().append_then(session, expected_seq, epoch, drafts, command, then)
            return
        if kill.when == "before":
            # Called with each statement when it begins: the rows are inserted, their COMMIT is not done.
            self._writer._db.conn.set_trace_callback(lambda sql: die() if sql == "COMMIT" else None)
        super().append_then(session, expected_seq, epoch, drafts, command, lambda _: die())


class KillingModel(ScriptedModel):
    """A model that dies when it is called the nth time."""

    def __init__(self, scene: Scene, kill: Kill) -> None:
        super().__init__(scene.script)
        self._kill, self._count = kill, 0

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        self._count += 1
        if self._kill.what == "model" and self._count == self._kill.nth:
            die()
        async for delta in super().stream(call):
            yield delta


NAMES = ("ada", "bea", "cyd")


class Director(ScriptedModel):
    """Chooses by the number of the step, and keeps a synced line of each time that it was asked."""

    def __init__(self, job: Job) -> None:
        super().__init__(lambda call: say(f"**{self.choice(call)}**"), "director")
        self.ledger = job.ledger

    def choice(self, call: ModelCall) -> str:
        last = call.messages[-1]
        assert isinstance(last, UserMessage)
        allowed = last.text.removeprefix("Who of ").partition(" speaks")[0].split(", ")
        return allowed[call.index % len(allowed)]

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        keep(self.ledger, ["director", "director", {"step": call.index}])
        async for delta in super().stream(call):
            yield delta


def keep(path: str, effect: list[Any]) -> None:
    """Add a line to the ledger, for good."""
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, (json.dumps(effect, sort_keys=True) + "\n").encode())
    os.fsync(ledger)
    os.close(ledger)


def tools(job: Job) -> list[Tool]:
    """look and pay have an effect that must not come twice; note may be repeated; burn is what people refuse."""
    runs: dict[str, int] = {}

    def effect(name: str, context: ToolContext, **arguments: Any) -> str:
        runs[name] = runs.get(name, 0) + 1
        mine = job.kill.what == "tool" and job.kill.kind == name and job.kill.nth == runs[name]
        if mine and job.kill.when == "before":
            die()
        keep(job.ledger, [context.idempotency_key, name, arguments])
        if mine:
            die()
        return f"{name} done with {json.dumps(arguments, sort_keys=True)}"

    @tool
    async def look(q: str, context: ToolContext) -> str:
        """Free, and not to be repeated."""
        return effect("look", context, q=q)

    @tool(needs_approval=True)
    def pay(amount: int, to: str, context: ToolContext) -> str:
        """Gated, in a thread, and not to be repeated."""
        return effect("pay", context, amount=amount, to=to)

    @tool(idempotent=True)
    async def note(text: str, context: ToolContext) -> str:
        """Free, and harmless to repeat."""
        return effect("note", context, text=text)

    @tool
    async def slow(what: str, context: ToolContext) -> str:
        """Free, and never done in a life that is to be killed."""
        if job.kill.what:
            await asyncio.Event().wait()
        return effect("slow", context, what=what)

    @tool(needs_approval=True)
    async def burn(what: str, context: ToolContext) -> str:
        """Gated, and never allowed."""
        return effect("burn", context, what=what)

    return [look, pay, note, slow, burn]


class Life:
    """A client and the engine in one process."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.scene = SCENES[job.scene]
        now = time.time_ns() // 1_000_000 + job.ahead * 1000
        self.clock: Clock = FakeClock(now) if job.word == "timer" or job.ahead else SystemClock()
        self.acknowledged = 0

    async def run(self) -> None:
        model = KillingModel(self.scene, self.job.kill)
        agents = [Agent("@agent", model, role="Be brief.", tools=tools(self.job))]
        if self.scene.rounds:
            agents = [Agent(name, model, role="Go on for ever.") for name in ("left", "right")]
        group: tuple[Channel, ...] = ()
        if self.scene.group:
            shared = agents[0].tools
            agents = [person(), *(Agent(name, model, role="Talk.", tools=shared) for name in NAMES)]
            group = (Channel(name="room", members=NAMES, director="d", max_rounds=self.scene.group),)
        log = KillingLog(self.job.db, self.job.kill)
        limits = Limits(approval_seconds=3600, max_rounds=self.scene.rounds or 100)
        async with Engine(
            log, agents, limits=limits, clock=self.clock, auto_approve=(), channels=group,
            directors={"d": Director(self.job)},
        ) as engine:  # fmt: skip
            names = [f"s{n}" for n in range(self.job.sessions)]
            await asyncio.gather(*(self.converse(engine, name) for name in names))
            if self.job.kill.what == "end":
                die()
            say_out("appends", log._seen if self.job.kill.what == "append" else 0)
        say_out("end")

    async def converse(self, engine: Engine, name: str) -> None:
        """Say everything again, as a client would that does not know what arrived; a command id has one effect."""
        try:
            c = await engine.open(name)
        except UnknownSession:
            c = await engine.create(name, owner="ann", entry="room" if self.scene.group else "")
        c.subscribe(self.heard)
        await self.settle(c)
        for place, text in enumerate(self.scene.says):
            if c.session.state == "terminated":
                return
            command = f"say-{place}"
            done(name, command, await c.say(text, by="ann", command=command))
            if not await self.settle(c) and not self.job.chatty:
                return

    def heard(self, notice: Notice) -> None:
        """Acknowledge rows."""
        if not isinstance(notice, Rows):
            return
        for row in notice.rows:
            say_out("row", row.session, row.seq, row.hash.hex())
            self.acknowledged += 1
            if self.job.kill.what == "ack" and self.acknowledged == self.job.kill.nth:
                os._exit(137)

    async def settle(self, c: Conversation) -> bool:
        """Answer whatever a person is asked, until the session rests. False: leave it as it is."""
        while True:
            session = await c.rest()
            if session.requests:
                if self.job.stop:
                    return False
                await self.answer(c, session.requests[0])
            elif session.state == "error":
                if self.job.stop:
                    return False
                await c.retry(by="ann", command=f"retry-{session.seq}")
            else:
                return True

    async def answer(self, c: Conversation, asked: ApprovalRequested) -> None:
        word, result = "denied" if asked.tool == "burn" else "approved", ""
        if asked.why == "outcome_unknown":
            if self.job.word == "timer":
                assert isinstance(self.clock, FakeClock)
                self.clock.advance(3601)
                await (await c._engine.hub(c.id)).until(lambda s: s.request(asked.request_id) is None)
                return
            word = {"again": "approved", "committed": "committed", "give up": "denied"}[self.job.word]
            result = "a person saw that it happened" if word == "committed" else ""
        command = f"word-{asked.request_id}"
        done(c.id, command, await c.decide(asked, word, by="ann", command=command, result=result))


def done(session: str, command: str, outcome: Outcome) -> None:
    say_out("done", session, outcome.seq, command)


def live(job: Job) -> None:
    """Run one job to its end, or to its death."""
    os.environ["TZ"] = job.zone
    time.tzset()
    asyncio.run(Life(job).run())


def job_of(text: str) -> Job:
    """A job from JSON."""
    fields = json.loads(text)
    return Job(**{**fields, "kill": Kill(**fields.get("kill", {}))})


if __name__ == "__main__":
    live(job_of(sys.argv[1]))
