"""Folds of what was chosen: who speaks, and which tools a model is offered."""

from typing import TYPE_CHECKING, Any

from . import events as ev
from .states import State

if TYPE_CHECKING:
    from .session import Session

Changes = dict[str, Any]


def speaker_selected(s: "Session", e: ev.SpeakerSelected) -> Changes:
    """The chosen one answers the channel; what the choice cost counts for its turn."""
    changes: Changes = {"speaker": e.speaker, "listener": e.channel, "attempt": 0}
    return changes if e.usage is None else {**changes, "usage": s.usage.plus(e.usage)}


def member_removed(s: "Session", e: ev.MemberRemoved) -> Changes:
    """It speaks no more. If it was to, somebody else is to be chosen, or a person awaited in its place."""
    changes: Changes = {"left": (*s.left, (e.channel, e.member))}
    if (s.speaker, s.listener) != (e.member, e.channel):
        return changes
    if s.state is State.INTERRUPT:
        return {**changes, "speaker": s.seat()}
    # A new step, so that no key of the choice before is owed again.
    ended: Changes = {"calls": (), "tool_calls": 0, "over_cap": False, "synthetic": False, "attempt": 0, "choice": None}
    return {**changes, **ended, "speaker": e.channel, "listener": "", "step": s.step + 1}


def offered(s: "Session", e: ev.ToolsCalled) -> Changes:
    """The choice of tools stands until the answer is there; what was called is never left out again."""
    changes: Changes = {}
    if e.request is not None and e.request.choice is not None:
        changes["choice"] = e.request.choice
    if new := [call.tool for call in e.calls if call.tool not in s.used]:
        granted = s.agents[e.speaker].tools if e.speaker in s.agents else ()
        changes["used"] = (*s.used, *(name for name in dict.fromkeys(new) if name in granted))
    return changes
