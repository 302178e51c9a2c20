"""A pure world around `decide`: a log in memory, an owner who performs effects, crashes, and owners who were replaced.

It keeps the promises that the store and the engine keep, in the plainest way, so that what fails here is the machine.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from random import Random

from tests.fakes import FakeClock, Ids
from turnlog.fsm import Decision, Row, Session, State, decide, pending, replay
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.effects import CallModel, ChooseSpeaker, RunTool, StartTools, WaitUntil
from turnlog.fsm.errors import CommandReused, Fenced, StaleVersion

from . import moves


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that a tool did in the world outside, with the head of the log at that moment."""

    call_id: str
    attempt: int
    mark: str
    head: int


@dataclass(slots=True)
class Sent:
    """A command as a client sent it, and the rows that it led to (None: it never reached the log)."""

    id: str
    given: inp.Input
    rows: tuple[Row, ...] | None = None
    refusal: inp.Refusal | None = None


class MemoryLog:
    """An `EventLog` for one session in a list."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.epoch = 0
        self.commands: dict[str, str] = {}

    def lease(self) -> int:
        """A new owner; every earlier one is fenced."""
        self.epoch += 1
        return self.epoch

    def append(
        self, expected: int, epoch: int, decision: Decision, at: int, command: tuple[str, str] | None
    ) -> tuple[Row, ...]:
        """All rows of a decision, or none."""
        if epoch != self.epoch:
            raise Fenced(f"epoch {epoch} is not {self.epoch}")
        if expected != len(self.rows):
            raise StaleVersion(f"expected seq {expected} is not {len(self.rows)}")
        if command is not None:
            if self.commands.get(command[0], command[1]) != command[1]:
                raise CommandReused(command[0])
            self.commands[command[0]] = command[1]
        added: list[Row] = []
        mark = self.rows[-1].hash if self.rows else b""
        for event, actor, state in zip(decision.events, decision.by, decision.states, strict=True):
            seq = expected + len(added) + 1
            mark = sha256(mark + f"{seq}|{state}|{at}|{actor}|{event.model_dump_json()}".encode()).digest()
            added.append(Row("s", seq, state, at, actor, event, command[0] if command else None, mark))
        self.rows += added
        return tuple(added)


@dataclass(slots=True)
class Owner:
    """A process that drives the session: what it believes, and which tools it has running."""

    session: Session
    epoch: int
    running: dict[str, RunTool] = field(default_factory=dict)


class World:
    """The session, its log, its owner, and all that happened."""

    def __init__(self, seed: int) -> None:
        self.clock = FakeClock()
        self.ids = Ids()
        self.steps = 0
        self.log = MemoryLog()
        self.ledger: list[Effect] = []
        self.heard: list[Row] = []
        self.live: dict[int, Session] = {}
        self.sent: list[Sent] = []
        self.results: list[inp.Input] = []
        self.replaced: list[Owner] = []
        self.refusals: list[tuple[Session, Session]] = []
        self.owner = Owner(Session(id="s"), self.log.lease())
        self.put(moves.start(seed))

    def mix(self, seed: int) -> int:
        """Another number for each step, since hypothesis likes to draw the same small seeds again."""
        self.steps += 1
        return seed * 1_000_003 + self.steps

    # In -------------------------------------------------------------------------------------------

    def command(self, given: inp.Input, die: str = "") -> None:
        """A client sends a command under a new id."""
        self.sent.append(Sent(self.ids("command"), given))
        self._send(self.sent[-1], die)

    def resend(self, place: int) -> None:
        """A client that had no answer, or that is impatient, sends a command again under its old id."""
        if self.sent:
            self._send(self.sent[place % len(self.sent)], "")

    def _send(self, sent: Sent, die: str) -> None:
        if sent.id in self.log.commands:
            return  # applied before: the client is told where, and nothing happens
        self.put(sent.given, die, sent)

    def put(self, given: inp.Input, die: str = "", sent: Sent | None = None) -> None:
        """Decide, append, publish; `die` says where the process is killed: "", "before" or "after" the append."""
        owner = self.owner
        decision = decide(owner.session, given, self.clock.now(), self.ids)
        if die == "before":
            self.crash()
            return
        rows: tuple[Row, ...] = ()
        if decision.events:
            key = (sent.id, digest(repr(sent.given))) if sent else None
            rows = self.log.append(owner.session.seq, owner.epoch, decision, self.clock.now(), key)
        if decision.refusal is not None:
            self.refusals.append((owner.session, decision.session))
        if sent is not None:
            sent.rows, sent.refusal = rows, decision.refusal
        self._remember(owner.session, rows)
        if die == "after":
            self.crash()
            return
        owner.session = decision.session
        self.heard += rows
        owed = {one.key for one in pending(owner.session)}
        owner.running = {key: run for key, run in owner.running.items() if key in owed}

    def _remember(self, session: Session, rows: tuple[Row, ...]) -> None:
        """What the fold was at each seq, as it went."""
        for row in rows:
            session = replay([row], session)
            self.live[row.seq] = session

    def late(self, place: int) -> None:
        """A result, or a timer, comes a second time."""
        if self.results:
            self.put(self.results[place % len(self.results)])

    def go_on(self, seed: int) -> None:
        """Whoever is waited for does what is waited for; one time in eight the process dies of it."""
        rng = Random(self.mix(seed))
        session, ann = self.owner.session, "person:ann"
        die = rng.choice(["", "", "", "", "", "", "before", "after"])
        if session.requests:
            one = rng.choice(session.requests)
            words = (
                ["approved", "approved", "denied", "committed"] if one.why == "outcome_unknown" else ["approved"] * 3
            )
            edited = inp.Edited({"a": 7}) if one.why == "gated" and rng.randrange(4) == 0 else None
            remember = rng.choice(["", "", "", "session"]) if one.why == "gated" else ""
            word = inp.Decide(
                one.request_id, one.digest, rng.choice([*words, "denied"]), ann, "", edited, "seen", remember
            )
            self.command(word, die)
        elif session.question is not None:
            asked = session.question
            self.command(inp.Answer(asked.request_id, ("yes",) * len(asked.questions), ann), die)
        elif session.state is State.ERROR:
            self.command(inp.Retry(ann), die)
        elif session.state is State.INTERRUPT:
            self.command(inp.Say("go on", ann), die)
        else:
            self.work(rng.randrange(2**32), die)

    # Effects --------------------------------------------------------------------------------------

    def work(self, seed: int, die: str = "") -> None:
        """One of the owed effects goes on: a tool begins or ends, a model answers, a timer fires."""
        rng = Random(self.mix(seed))
        owed = [one for one in pending(self.owner.session) if not isinstance(one, WaitUntil) or rng.randrange(4) == 0]
        if not owed:
            return
        effect = rng.choice(owed)
        if isinstance(effect, RunTool) and effect.key not in self.owner.running:
            self._begin(effect)
            return
        result = self._result(rng, effect)
        self.results.append(result)
        self.put(result, die)

    def _result(self, rng: Random, effect: CallModel | ChooseSpeaker | StartTools | RunTool | WaitUntil) -> inp.Input:
        session = self.owner.session
        match effect:
            case CallModel() if rng.randrange(6) == 0:
                return inp.ModelFailed(effect.key, "server", "boom")
            case CallModel():
                return moves.replied(rng, effect.key)
            case ChooseSpeaker():
                return inp.SpeakerChosen(effect.key, rng.choice(moves.WORDS), rng.randrange(99))
            case StartTools():
                return moves.ready(rng, session)
            case RunTool():
                run = self.owner.running.pop(effect.key)
                return inp.ToolFinished(run.key, run.call_id, rng.choice(["ok", "error"]), rng.choice(moves.WORDS))
            case WaitUntil():
                return inp.TimerFired(effect.request_id)

    def _begin(self, run: RunTool) -> None:
        """The arguments are read back from the log, as the engine does, and the tool acts."""
        source = self.log.rows[run.source - 1].event
        stored = (
            next((one.parsed for one in source.calls if one.id == run.call_id), None)
            if isinstance(source, ev.ToolsCalled)
            else source.arguments if isinstance(source, ev.ApprovalResolved) else None
        )  # fmt: skip
        assert stored is not None
        assert digest(stored) == run.digest
        self.owner.running[run.key] = run
        self.ledger.append(Effect(run.call_id, run.attempt, digest(stored), len(self.log.rows)))

    # Disasters ------------------------------------------------------------------------------------

    def crash(self) -> None:
        """The owner is gone with all that it had in memory; another one folds the log and goes on."""
        self.replaced.append(self.owner)
        self.owner = Owner(replay(self.log.rows, Session(id="s")), self.log.lease())
        self.put(inp.Resume(self.owner.epoch, f"owner {self.owner.epoch}"))

    def zombie(self, seed: int) -> type[Exception] | None:
        """An owner that was replaced wakes up and goes on as if nothing had happened; the answer is what stops it."""
        if not self.replaced:
            return Fenced
        old = self.replaced[seed % len(self.replaced)]
        decision = decide(old.session, moves.any_input(self.mix(seed), old.session), self.clock.now(), self.ids)
        if not decision.events:
            return Fenced
        try:
            self.log.append(old.session.seq, old.epoch, decision, self.clock.now(), None)
        except Fenced as error:
            return type(error)
        return None
