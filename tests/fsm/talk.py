"""A conversation driven through `decide` alone: given a session, when something comes in, then these events."""

import json
from collections.abc import Iterable
from typing import Any, TypeVar

from pydantic import JsonValue

from tests.fakes import FakeClock, Ids
from turnlog.fsm import Decision, Refusal, Row, Session, decide, evolve, pending, replay
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.approval import Standing
from turnlog.fsm.canonical import digest
from turnlog.fsm.effects import CallModel, ChooseSpeaker, Effect, RunTool, StartTools, WaitUntil
from turnlog.fsm.history import Exchange, Message, collect, view
from turnlog.fsm.states import State

E = TypeVar("E", CallModel, ChooseSpeaker, StartTools, RunTool, WaitUntil)
V = TypeVar("V", bound=ev.EventBase)

FACTS: dict[str, inp.ToolFacts] = {
    "look": inp.ToolFacts(description="Look something up", definition="look@1"),
    "pay": inp.ToolFacts(gated=True, description="Pay somebody", risk="money", definition="pay@1"),
    "put": inp.ToolFacts(idempotent=True, description="Put a value", definition="put@1"),
    "send": inp.ToolFacts(gated=True, idempotent=True, description="Send once", definition="send@1"),
    "ask": inp.ToolFacts(description="Ask the person", definition="ask@1"),
    "once": inp.ToolFacts(description="Run once", definition="once@1", repeats=ev.Repeats(unique=True)),
    "rest": inp.ToolFacts(description="Needs a pause", definition="rest@1", repeats=ev.Repeats(cooldown_seconds=30)),
    "poll": inp.ToolFacts(description="May be repeated", definition="poll@1", repeats=ev.Repeats(exact=False)),
}
USER = ev.AgentSpec(name="USER", interrupt="always")
BOT = ev.AgentSpec(name="@agent", model="scripted", tools=tuple(FACTS))
TWO = (ev.AgentSpec(name="human", model="m"), ev.AgentSpec(name="bot", model="m"))


def call(tool: str, problem: str = "", auto: str = "", **arguments: JsonValue) -> inp.Proposed:
    """A call that a model makes, with what the shell knows of the tool."""
    facts = FACTS.get(tool)
    if facts is not None and auto:
        facts = facts._replace(auto=auto)
    return inp.Proposed(
        tool=tool, arguments=json.dumps(arguments), provider_id="c1", parsed=arguments, digest=digest(arguments),
        problem=problem, facts=facts,
    )  # fmt: skip


def question(*texts: str) -> inp.Proposed:
    """A call that asks a person."""
    asked = tuple(ev.Question(text=text) for text in texts)
    return inp.Proposed("ask", "{}", parsed={}, digest=digest({}), facts=FACTS["ask"], questions=asked)


class Talk:
    """One session in memory. Each step checks that the decision, the fold of its rows and the table agree."""

    def __init__(
        self,
        *agents: ev.AgentSpec,
        channels: tuple[ev.Channel, ...] = (),
        limits: ev.Limits | None = None,
        history: tuple[inp.Preloaded, ...] = (),
        entry: str = "",
        owner: str = "ann",
    ) -> None:
        self.fresh()
        agents = agents or (USER, BOT)
        self.put(inp.Start(owner, agents, channels, entry, limits or ev.Limits(), "test", None, history))

    def fresh(self) -> None:
        """A session that nobody has started."""
        self.clock = FakeClock()
        self.ids = Ids()
        self.session = Session(id="s")
        self.rows: list[Row] = []
        self.walked: list[tuple[State, str]] = []
        self.epoch = 1
        self.standing: tuple[Standing, ...] = ()  # grants of scope "user", as the book has them

    def put(self, given: inp.Input) -> Decision:
        """Let one input in and keep what it leads to."""
        decision = decide(self.session, given, self.clock.now(), self.ids)
        before = self.session
        for event, actor, state in zip(decision.events, decision.by, decision.states, strict=True):
            self.walked.append((self.session.state, event.kind))
            self.session = evolve(self.session, event)
            assert self.session.state is state
            self.rows.append(Row("s", self.session.seq, state, self.clock.now(), actor, event))
            if isinstance(event, ev.GrantRecorded) and event.scope == "user":
                self.standing += (Standing(event),)
        assert self.session == decision.session == replay(decided(self.rows, before.seq), before)
        return decision

    # People ---------------------------------------------------------------------------------------

    def say(self, text: str = "hi", by: str = "person:ann", **more: Any) -> Decision:
        """A person speaks."""
        return self.put(inp.Say(text, by, **more))

    def decide(self, place: int = 0, outcome: str = "approved", by: str = "person:ann", **more: Any) -> Decision:
        """A person's word on the open request at a place."""
        request = self.session.requests[place]
        return self.put(inp.Decide(request.request_id, more.pop("digest", request.digest), outcome, by, **more))

    def edit(self, place: int, problem: str = "", **arguments: JsonValue) -> Decision:
        """Approve with other arguments."""
        return self.decide(place, edited=inp.Edited(arguments, problem))

    def stop(self, by: str = "person:ann", *, session: bool = False) -> Decision:
        """End the turn or the session."""
        return self.put(inp.Stop(by, session))

    def retry(self) -> Decision:
        """Try the failed turn again."""
        return self.put(inp.Retry("person:ann"))

    def go_on(self) -> Decision:
        """Let a model speak for the awaited node."""
        return self.put(inp.Continue("person:ann"))

    def remove(self, member: str, channel: str = "room", by: str = "person:ann") -> Decision:
        """Take a member out of a channel."""
        return self.put(inp.RemoveMember(channel, member, by))

    def answer(self, *answers: str, skip: bool = False) -> Decision:
        """Answer the open question."""
        asked = self.session.question
        assert asked is not None
        return self.put(inp.Answer(asked.request_id, None if skip else answers, "person:ann"))

    # Results --------------------------------------------------------------------------------------

    def reply(self, text: str = "", *calls: inp.Proposed, **more: Any) -> Decision:
        """The owed completion comes."""
        owed = self.owed(CallModel)
        self.standing = more.get("grants", self.standing)
        return self.put(
            inp.ModelReplied(owed.key, self.ids("m"), text, calls, available=tuple(FACTS),
                             actor=f"agent:{owed.speaker}", **more)
        )  # fmt: skip

    def fetch(self, **gave: Any) -> Decision:
        """The sources of whoever speaks next have answered."""
        owed = self.owed(CallModel)
        return self.put(inp.ContextCame(owed.key, owed.speaker, **gave))

    def fail(self, message: str = "boom", **more: Any) -> Decision:
        """The owed completion, or choice of a speaker, fails."""
        owed = [one for one in self.pending() if isinstance(one, CallModel | ChooseSpeaker)]
        return self.put(inp.ModelFailed(owed[0].key, "server", message, **more))

    def choose(self, raw: str, seed: int = 0) -> Decision:
        """The director answers."""
        return self.put(inp.SpeakerChosen(self.owed(ChooseSpeaker).key, raw, seed))

    def ready(self, **other: inp.ToolFacts | None) -> Decision:
        """The shell looks the tools up."""
        calls = self.owed(StartTools).calls
        facts = {call_id: other.get(tool, FACTS.get(tool)) for call_id, tool in calls.items()}
        there = {call_id: one for call_id, one in facts.items() if one is not None}
        return self.put(inp.ToolsReady(there, self.standing))

    def finish(self, place: int = 0, content: str = "fine", outcome: ev.ToolOutcome = "ok") -> Decision:
        """The running call at a place ends."""
        run = self.running()[place]
        return self.put(inp.ToolFinished(run.key, run.call_id, outcome, content, actor=f"tool:{run.tool}"))

    def run_all(self) -> None:
        """Start what may start and let it end, in call order."""
        if any(isinstance(one, StartTools) for one in self.pending()):
            self.ready()
        while self.running():
            self.finish()

    def expire(self, request_id: str = "") -> Decision:
        """The timer of the first open request, or question, fires."""
        waits = [one for one in self.pending() if isinstance(one, WaitUntil)]
        return self.put(inp.TimerFired(request_id or waits[0].request_id))

    def crash(self) -> Decision:
        """The process dies and another one takes the session."""
        self.session = replay(self.rows, Session(id="s"))
        self.epoch += 1
        return self.put(inp.Resume(self.epoch, f"process {self.epoch}"))

    # Views ----------------------------------------------------------------------------------------

    def pending(self) -> tuple[Effect, ...]:
        """What the shell owes."""
        return pending(self.session)

    def running(self) -> list[RunTool]:
        """The calls that run."""
        return [one for one in self.pending() if isinstance(one, RunTool)]

    def owed(self, kind: type[E]) -> E:
        """The one effect of a kind that is owed."""
        (found,) = (one for one in self.pending() if isinstance(one, kind))
        return found

    def of(self, kind: type[V]) -> list[V]:
        """The events of one kind so far."""
        return [row.event for row in self.rows if isinstance(row.event, kind)]

    @property
    def texts(self) -> list[str]:
        """What was said, in order."""
        return [one.text for one in self.of(ev.MessageAdded)]

    @property
    def state(self) -> State:
        """Where it stands."""
        return self.session.state

    def kinds(self, after: int = 0) -> list[str]:
        """The kinds of the rows after a seq."""
        return [row.event.kind for row in self.rows[after:]]

    def history(self) -> list[Exchange]:
        """What belongs to history."""
        return collect([], self.rows)

    def seen(self, speaker: str = "@agent", listener: str = "USER") -> list[Message]:
        """What a speaker's model sees."""
        channel = self.session.channels.get(listener)
        return view(self.history(), speaker, listener, channel.members if channel else ())


def decided(rows: list[Row], after: int) -> Iterable[Row]:
    """The rows after a seq."""
    return rows[after:]


def kinds(decision: Decision) -> list[str]:
    """The kinds of a decision's events."""
    return [event.kind for event in decision.events]


def code(refusal: Refusal | None) -> str:
    """The code of a refusal, "" for none."""
    return refusal.code if refusal else ""
