"""What lies in the inbox of a session, and what becomes of it."""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import NamedTuple

from ..fsm import inputs as inp
from ..fsm.canonical import clean
from ..fsm.effects import Effect
from ..fsm.errors import Error
from ..fsm.events import InputRefused
from ..fsm.session import Session
from ..store.base import Command, Draft, EventLog

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """What became of a command: the seq it was applied at, and why it was refused if it was."""

    seq: int
    refusal: inp.Refusal | None = None
    repeated: bool = False


@dataclass(slots=True)
class Item:
    """Something in the inbox."""

    given: inp.Input
    command: Command | None = None
    done: "asyncio.Future[Outcome] | None" = None
    replaced: bool = False  # stands in for a result that could not be taken


@dataclass(slots=True)
class Batch:
    """What an input leads to, on its way into the log."""

    session: Session
    item: Item
    drafts: list[Draft] = field(default_factory=list)
    refusal: inp.Refusal | None = None
    effects: tuple[Effect, ...] = ()
    uses: list[str] | None = None  # of grants


def repeated(log: EventLog, session: str, seq: int) -> Outcome:
    """What a command that comes again is told: where it was applied, and the refusal if it was refused."""
    rows = log.read(session, seq - 1, 1)
    event = rows[0].event if rows else None
    refusal = inp.Refusal(event.code, event.why) if isinstance(event, InputRefused) else None
    return Outcome(seq, refusal, repeated=True)


def failure(given: inp.Input, error: Error) -> inp.Input | None:
    """What stands in for a result that could not be taken."""
    why = clean(str(error))
    match given:
        case inp.ModelReplied() | inp.SpeakerChosen():
            return inp.ModelFailed(given.key, "unknown", why, actor=given.actor)
        case inp.ToolFinished():
            told = f"The tool ran, but its result could not be kept: {why}"
            return given._replace(outcome="error", content=told, citations=(), attachments=(), notes=())
    _log.error("an input of kind %s was dropped: %s", type(given).__name__, why)
    return None
