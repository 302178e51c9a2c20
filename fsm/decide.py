"""`decide`: the machine's one step, total and without recursion. `pending`: what the shell owes now.

`pending` is also the whole of crash recovery: after a restart the engine folds the log, asks `pending`, and goes on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from pydantic import ValidationError

from . import inputs as inp
from .canonical import clean
from .director import candidates
from .effects import CallModel, ChooseSpeaker, Effect, RunTool, StartTools, WaitUntil
from .events import Event, InputRefused
from .follow import follow
from .fork import fork
from .people import ON_COMMAND
from .results import ON_RESULT
from .session import Session, evolve, turn_key, word_key
from .states import State

NewId = Callable[[str], str]
Reaction = list[Event] | inp.Refusal
REACT: dict[type, Callable[[Session, Any, int, NewId], Reaction]] = {**ON_COMMAND, **ON_RESULT, inp.Fork: fork}

MACHINE = "turnlog"  # the actor of events that follow from where the session stands

# Refusals of these are the shell's own echo (a timer that lost, a card drawn too late), not somebody's decision.
_MOVING = (State.SUCCESS, State.AWAITING_APPROVAL)
_UNRECORDED = (inp.TimerFired, inp.Show, inp.ToolsReady, inp.Resume, inp.ContextCame)
_WORDS = (inp.Decide, inp.Answer)  # on something that may have a deadline


class Decision(NamedTuple):
    """What an input leads to. `by` and `states` say for each event whose doing it was and where it left the session.

    `refusal` is set when the input changed nothing; a row that says so may be the last of the events.
    """

    events: tuple[Event, ...]
    by: tuple[str, ...]
    states: tuple[State, ...]
    session: Session
    refusal: inp.Refusal | None = None


def decide(session: Session, given: inp.Input, now: int, new_id: NewId) -> Decision:
    """Let one input in, then follow to a fixed point. Total: bad input gives a refusal, never an exception.

    Args:
        session: where the session stands.
        given: the input.
        now: milliseconds since 1970 UTC.
        new_id: makes an id that was never used, from a prefix.
    """
    # A timer may be late (a machine slept, a clock was set); a word that comes after the deadline is late all the same.
    late = overdue(session, now) if isinstance(given, _WORDS) else []
    if not late:
        return _step(session, given, now, new_id)
    done = Decision((), (), (), session)
    for one in (*late, given):
        step = _step(done.session, one, now, new_id)
        done = Decision(
            done.events + step.events, done.by + step.by, done.states + step.states, step.session, step.refusal
        )
    return done


def overdue(session: Session, now: int) -> list[inp.TimerFired]:
    """What the timer would have said by now of the requests and the question that are open."""
    ends = [(one.request_id, one.deadline) for one in session.requests]
    if session.question is not None:
        ends.append((session.question.request_id, session.question.deadline))
    return [inp.TimerFired(request_id) for request_id, end in ends if end is not None and end <= now]


def _step(session: Session, given: inp.Input, now: int, new_id: NewId) -> Decision:
    try:
        reaction = REACT[type(given)](session, given, now, new_id)
    except ValidationError as error:
        reaction = _unfit(session, given, now, new_id, _misfit(error))
    if isinstance(reaction, inp.Refusal):
        return _refused(session, given, reaction)
    events = list(reaction)
    by = [given.actor] * len(events)
    states: list[State] = []
    for event in events:
        session = evolve(session, event)
        states.append(session.state)
    while (following := follow(session, now, new_id)) is not None:
        events.append(following)
        by.append(MACHINE)
        session = evolve(session, following)
        states.append(session.state)
    return Decision(tuple(events), tuple(by), tuple(states), session)


def _misfit(error: ValidationError) -> str:
    """What did not fit, without the value: it may be anything."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or error.title
    return f"{where}: {first['msg']}"


def _unfit(session: Session, given: inp.Input, now: int, new_id: NewId, why: str) -> Reaction:
    """A command without a stored form is refused; a result without one is a failed result, since an effect must end."""
    match given:
        case inp.ToolFinished(key=key, call_id=call_id, actor=actor):
            given = inp.ToolFinished(key, call_id, "error", f"The result could not be kept: {why}", actor=actor)
        case inp.ModelReplied(key=key, actor=actor):
            given = inp.ModelFailed(key, "unfit_reply", why, actor=actor)
        case inp.SpeakerChosen(key=key, seed=seed, actor=actor):
            given = inp.SpeakerChosen(key, "", seed, actor, given.model, given.usage)
        case _:
            return inp.Refusal("invalid", why)
    return REACT[type(given)](session, given, now, new_id)


def _refused(session: Session, given: inp.Input, refusal: inp.Refusal) -> Decision:
    if isinstance(given, _UNRECORDED) or not session.started:
        return Decision((), (), (), session, refusal)
    about = getattr(given, "request_id", "") or getattr(given, "call_id", "") or getattr(given, "grant_id", "")
    kind = type(given).__name__.lower()
    event = InputRefused(code=refusal.code, input=kind, why=clean(refusal.why), about=clean(about))
    return Decision((event,), (given.actor,), (session.state,), evolve(session, event), refusal)


def pending(session: Session) -> tuple[Effect, ...]:
    """The effects that the shell owes this session now. Each has a key: start what is new, cancel what is gone."""
    effects: list[Effect] = [
        WaitUntil(f"wait:{one.request_id}", one.request_id, one.deadline)
        for one in session.requests
        if one.deadline is not None
    ]
    if session.question is not None and session.question.deadline is not None:
        asked = session.question
        effects.append(WaitUntil(f"wait:{asked.request_id}", asked.request_id, session.question.deadline))
    if session.deadline is not None and (session.state in _MOVING or session.question is not None):
        effects.append(WaitUntil(f"wait:{turn_key(session)}", turn_key(session), session.deadline))
    if session.state is State.SUCCESS:
        effects += _calls(session) if session.open_calls else [_next_word(session)]
    return tuple(effects)


def _next_word(session: Session) -> Effect:
    attempt = session.attempt + 1
    if session.speaker in session.channels:
        allowed = candidates(session, session.speaker)
        return ChooseSpeaker(word_key(session), session.speaker, allowed, attempt)
    offer_tools = session.tool_calls < session.limits.max_tool_calls
    return CallModel(word_key(session), session.speaker, session.listener, attempt, offer_tools)


def _calls(session: Session) -> list[Effect]:
    effects: list[Effect] = []
    ready = {c.id: c.tool for c in session.calls if c.status == "approved" or (c.status == "unknown" and c.idempotent)}
    if ready:
        effects.append(StartTools(f"start:{','.join(ready)}", ready))
    effects += (
        RunTool(
            f"tool:{call.id}:{call.attempt}", call.id, call.tool, session.speaker, call.attempt,
            f"{session.id}:{call.id}", call.arguments, call.digest, call.source,
        )
        for call in session.calls
        if call.status == "started" and call.epoch == session.epoch
    )  # fmt: skip
    return effects
