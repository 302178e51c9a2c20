"""Random inputs: some that the session waits for, some that come late, some that are nonsense.

A walk is a list of integers, each the seed of one input, so that hypothesis can leave steps out of a failing walk.
"""

import json
from collections.abc import Callable
from random import Random

from hypothesis import strategies as st
from pydantic import JsonValue

from turnlog.fsm import Session, State, pending
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.effects import CallModel, ChooseSpeaker, RunTool, StartTools

USER = ev.AgentSpec(name="USER", interrupt="always")
TOOLS = ("look", "pay", "put", "send", "ask", "a.b")
BOT = ev.AgentSpec(name="@agent", model="m", tools=TOOLS)
PAIR = (
    ev.AgentSpec(name="ada", model="m", tools=TOOLS),
    ev.AgentSpec(name="bea", model="m", tools=TOOLS, interrupt="always"),
)
ROOM = ev.Channel(name="room", members=("ada", "bea", "USER"), director="d", max_rounds=4)
OLD = (inp.Preloaded("@agent", "USER", "welcome"), inp.Preloaded("USER", "@agent", "thanks"))

WORDS = ("", " ", "\n", "hello", "yes", "TERMINATE", " INTERRUPT\n", "ключ", "a\x00b", "\U0001f600", "ada", "@bea")
ACTORS = ("person:ann", "person:ann", "person:ann", "person:bob", "agent:@agent", "tool:pay", "timer", "person:", "")

walks = st.lists(st.integers(0, 2**32), max_size=40)


def start(seed: int) -> inp.Start:
    """A session of one of four shapes, with some limits."""
    rng = Random(seed)
    limits = ev.Limits(
        max_rounds=rng.choice([2, 100, 100]),
        max_tool_calls=rng.choice([0, 2, 10, 10, 10, 10]),
        approval_seconds=rng.choice([None, 120.0]),
        queue=rng.choice([0, 2]),
        busy=rng.choice(["queue", "queue", "refuse", "interrupt"]),
        on_error=rng.choice(["wait", "wait", "wait", "terminate"]),
    )
    shapes = (
        inp.Start("ann", (USER, BOT), limits=limits),
        inp.Start("ann", PAIR, limits=limits),
        inp.Start("ann", (USER, *PAIR), (ROOM,), "room", limits),
        inp.Start("ann", (USER, BOT), limits=limits, history=OLD),
    )
    return rng.choice(shapes)


def any_input(seed: int, session: Session) -> inp.Input:
    """An input of any kind, with ids and keys that mostly mean something to the session."""
    rng = Random(seed)
    if _flip(rng, one_in=2):
        return _fitting(rng, session)(rng, session)
    return rng.choice(_OBSERVED if rng.random() < 0.6 else _COMMANDED)(rng, session)


def _fitting(rng: Random, s: Session) -> "Make":
    """What the session waits for: walks of nothing else but chance hardly get anywhere."""
    if s.runs and _flip(rng, one_in=6):
        return _allow_rerun
    if s.channels and _flip(rng, one_in=4 if s.state is State.ERROR else 40):
        return _remove
    if s.state is State.SUCCESS:
        if _flip(rng, one_in=6):
            return _aloud
        owed = pending(s)[-1]
        if isinstance(owed, StartTools):
            return ready
        if isinstance(owed, RunTool):
            return _finished
        if isinstance(owed, CallModel):
            return _failed if _flip(rng, one_in=8) else _replied
        return _chosen
    if s.state is State.AWAITING_APPROVAL:
        return _decide
    if s.state is State.ERROR:
        return lambda _rng, _s: inp.Retry("person:ann")
    return _answer if s.question is not None else _aloud


def _aloud(rng: Random, _: Session) -> inp.Input:
    return inp.Say(rng.choice(WORDS[3:]), "person:ann")


def _failed(rng: Random, s: Session) -> inp.Input:
    return inp.ModelFailed(_key(rng, s), "server", rng.choice(WORDS))


def _chosen(rng: Random, s: Session) -> inp.Input:
    return inp.SpeakerChosen(_key(rng, s), rng.choice(WORDS), rng.randrange(99))


def _flip(rng: Random, *, one_in: int) -> bool:
    return rng.randrange(one_in) == 0


def _object(rng: Random) -> dict[str, JsonValue]:
    return {key: rng.choice([0, 1, "x", None]) for key in rng.sample(["a", "b", "ключ"], rng.randrange(3))}


def any_command(seed: int, session: Session) -> inp.Input:
    """A command, mostly of somebody who may give it."""
    rng = Random(seed)
    return rng.choice(_COMMANDED)(rng, session)


def any_result(seed: int, session: Session) -> inp.Input:
    """What an effect may bring."""
    rng = Random(seed)
    return rng.choice(_OBSERVED)(rng, session)


def _facts(rng: Random) -> inp.ToolFacts:
    repeats = ev.Repeats(exact=_flip(rng, one_in=2), cooldown_seconds=rng.choice([0, 9]), unique=_flip(rng, one_in=2))
    return inp.ToolFacts(
        _flip(rng, one_in=2), _flip(rng, one_in=2), auto="all" if _flip(rng, one_in=4) else "",
        repeats=repeats if _flip(rng, one_in=2) else None,
    )  # fmt: skip


def _proposed(rng: Random) -> inp.Proposed:
    if _flip(rng, one_in=12):
        return inp.Proposed(rng.choice(TOOLS), '{"a":', problem="no JSON", facts=_facts(rng))
    if _flip(rng, one_in=8):
        asked = tuple(ev.Question(text=rng.choice(WORDS)) for _ in range(1 + rng.randrange(2)))
        return inp.Proposed("ask", "{}", "", {}, digest({}), facts=inp.ToolFacts(), questions=asked)
    value = _object(rng)
    return inp.Proposed(
        rng.choice([*TOOLS * 3, "nothing", ""]), json.dumps(value), rng.choice(["", "c1"]), value, digest(value),
        "a: too big" if _flip(rng, one_in=12) else "", None if _flip(rng, one_in=12) else _facts(rng),
    )  # fmt: skip


def _id(rng: Random, s: Session) -> str:
    known = [one.request_id for one in s.requests] * 3 + [one.request_id for one in s.settled]
    known += [s.question.request_id] * 3 if s.question else []
    return rng.choice([*known, *(one.id for one in s.calls), "r1", "nonsense"])


def _mark(rng: Random, s: Session) -> str:
    return rng.choice([*(one.digest for one in s.requests), *(one.digest for one in s.requests), digest({}), ""])


def _name(rng: Random, s: Session) -> str:
    return rng.choice(["", "", "", *s.agents, *s.channels, "ghost"])


def _key(rng: Random, s: Session) -> str:
    keys = [one.key for one in pending(s) if isinstance(one, CallModel | ChooseSpeaker)]
    return rng.choice([*keys * 5, "model:1:0:1", "choose:1:0:1"])


def _decide(rng: Random, s: Session) -> inp.Input:
    edited = inp.Edited(_object(rng), "a: too big" if _flip(rng, one_in=3) else "") if _flip(rng, one_in=4) else None
    outcome = rng.choice(["approved", "approved", "denied", "committed", "expired", "whatever"])
    remember = rng.choice(["", "", "", "session", "user", "whatever"])
    if s.requests and not _flip(rng, one_in=3):
        one = rng.choice(s.requests)
        return inp.Decide(one.request_id, one.digest, outcome, "person:ann", "because", edited, "seen", remember)
    return inp.Decide(
        _id(rng, s), _mark(rng, s), outcome, rng.choice(ACTORS), "", edited, "", remember, _flip(rng, one_in=2)
    )


def _allow_rerun(rng: Random, s: Session) -> inp.Input:
    tools = [run.tool for run in s.runs] or ["look"]
    return inp.AllowRerun(rng.choice(tools), "person:ann" if _flip(rng, one_in=2) else rng.choice(ACTORS))


def _remove(rng: Random, s: Session) -> inp.Input:
    members = [*ROOM.members, s.speaker, "ghost"]
    return inp.RemoveMember(rng.choice(["room", "room", "hall"]), rng.choice(members), rng.choice(ACTORS))


def _answer(rng: Random, s: Session) -> inp.Input:
    answers = tuple(rng.choice(WORDS) for _ in range(rng.randrange(3)))
    return inp.Answer(_id(rng, s), None if _flip(rng, one_in=4) else answers, rng.choice(ACTORS))


def _grant(rng: Random, s: Session) -> inp.Input:
    scope = rng.choice(["session", "user", "whatever"])
    ends, uses = rng.choice([None, 0, 10**15]), rng.choice([None, 0, 1])
    return inp.Grant(rng.choice(TOOLS), rng.choice(ACTORS), "ann", scope, rng.choice(["", _mark(rng, s)]), ends, uses)


def _say(rng: Random, s: Session) -> inp.Input:
    names = (_name(rng, s), _name(rng, s)) if _flip(rng, one_in=3) else ("", "")
    return inp.Say(rng.choice(WORDS), rng.choice(ACTORS), *names, rng.choice(["", "", "m0"]))


def replied(rng: Random, key: str) -> inp.Input:
    """A completion, with calls or without."""
    calls = tuple(_proposed(rng) for _ in range(rng.choice([0, 1, 1, 2, 4])))
    return inp.ModelReplied(key, "m", rng.choice(WORDS), calls)


def _replied(rng: Random, s: Session) -> inp.Input:
    return replied(rng, _key(rng, s))


def ready(rng: Random, s: Session) -> inp.Input:
    """What the registry knows now of the tools that may start."""
    waiting = [call_id for one in pending(s) if isinstance(one, StartTools) for call_id in one.calls]
    return inp.ToolsReady({one: _facts(rng) for one in waiting if not _flip(rng, one_in=6)})


def _finished(rng: Random, s: Session) -> inp.Input:
    runs = [(one.key, one.call_id) for one in pending(s) if isinstance(one, RunTool)]
    key, call_id = rng.choice([*runs * 5, ("tool:call1:1", "call1")])
    return inp.ToolFinished(key, call_id, rng.choice(["ok", "ok", "error"]), rng.choice(WORDS))


Make = Callable[[Random, Session], inp.Input]
_COMMANDED: tuple[Make, ...] = (
    _say,
    _say,
    _decide,
    _decide,
    _decide,
    _answer,
    _grant,
    lambda rng, _: inp.Continue(rng.choice(ACTORS)),
    lambda rng, _: inp.Retry(rng.choice(ACTORS)),
    lambda rng, _: inp.Stop(rng.choice(ACTORS), _flip(rng, one_in=6)),
    lambda rng, s: inp.Show(_id(rng, s), _mark(rng, s), "tab", rng.choice(ACTORS)),
    lambda rng, s: inp.Revoke(rng.choice([*(one.grant.grant_id for one in s.grants), "g"]), rng.choice(ACTORS), "ann"),
    _allow_rerun,
    _remove,
    lambda rng, _: inp.Start(rng.choice(WORDS), (), actor=rng.choice(ACTORS)),
    lambda rng, _: inp.Refuse(ev.InputRefused(code="invalid", input="frame", why="no JSON"), rng.choice(ACTORS)),
)
_OBSERVED: tuple[Make, ...] = (
    _replied,
    _replied,
    _replied,
    ready,
    ready,
    _finished,
    _finished,
    _failed,
    _chosen,
    lambda rng, s: inp.TimerFired(_id(rng, s)),
    lambda rng, s: inp.ContextCame(_key(rng, s), s.speaker, rng.choice(["", "d1"]), rng.choice([(), ("p1", "p2")])),
    lambda rng, s: inp.Resume(s.epoch + 1, rng.choice(WORDS)),
)
