"""A session that begins where another one stood: the rows that make its history are appended to its own log.

What is copied moves the conversation: messages, rounds of calls with their results, choices of speakers, ends and
beginnings of turns. What is left behind is about permission and performance: requests and decisions, grants, starts of
tools, owners, waiting messages, refusals. So nothing that was allowed in the parent is allowed in the fork, and each
call that had no result yet is asked about anew, whatever it needed and whatever had been decided. No tool ever runs
because of a copied row.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from . import events as ev
from . import inputs as inp
from .follow import ask, deadline, follow, over_by
from .session import Session, fold
from .states import State

COPIED = frozenset({
    "message_added", "tools_called", "tool_returned", "speaker_selected", "member_removed", "context_fetched",
    "turn_interrupted", "turn_continued", "turn_failed", "turn_retried", "rerun_allowed",
})  # fmt: skip
LEFT = frozenset({
    "session_started", "session_resumed", "session_terminated", "message_queued", "approval_requested",
    "approval_shown", "approval_resolved", "approvals_settled", "question_asked", "question_answered", "tool_started",
    "grant_recorded", "grant_revoked", "input_refused",
})  # fmt: skip
assert {*COPIED, *LEFT} == set(ev.KINDS), "a kind of event of which a fork does not know whether to copy it"

# What the machine answers to a call by itself, in the commit of the call.
AT_ONCE = frozenset({"unknown_tool", "invalid_arguments", "duplicate", "limit"})


def belongs(row: ev.Row) -> bool:
    """Whether a row after the one at which a session is forked still belongs to that one: they were never apart."""
    return isinstance(row.event, ev.ToolReturned) and row.event.outcome in AT_ONCE


def fork(s: Session, i: inp.Fork, now: int, new_id: Callable[[str], str]) -> list[ev.Event] | inp.Refusal:
    """The rows of the new session, or why there can be none."""
    if s.started:
        return inp.Refusal("conflict", f"session {s.id} exists already: choose another id")
    begun = i.begun.model_copy(
        update={"parent": i.parent, "owner": i.owner or i.begun.owner, "code_version": i.code_version}
    )
    events: list[ev.Event] = [begun, *_copies(i.rows, begun.limits, now)]
    session = fold(Session(id=s.id), events)
    for call in session.open_calls:
        if call.status != "question":
            asked = i.asked.get(call.id)
            facts = inp.ToolFacts(description=asked.description, risk=asked.risk) if asked else None
            events.append(ask(session, call, "gated", now, new_id, facts).model_copy(update={"rule": "forked"}))
    after = follow(session, now, new_id)
    if after is not None and after.kind == "session_terminated":
        if session.state is not State.SUCCESS:
            return inp.Refusal("invalid", f"the fork would end at once ({after.reason}): fork at an earlier seq")
        events.append(over_by(session, "preloaded"))
    return events


def _copies(rows: Sequence[ev.Row], limits: ev.Limits, now: int) -> Iterable[ev.Event]:
    """The events as they were, but for what names rows and times of the parent's.

    The windows of requests are told in the new seqs. What the deadline of a turn was is over; the last turn gets its
    time anew.
    """
    seqs = [row.seq for row in rows]
    last = max((place for place, row in enumerate(rows) if _begins_turn(row.event)), default=-1)
    for place, row in enumerate(rows):
        event, changes = row.event, dict[str, Any]()
        if _begins_turn(event):
            changes["deadline"] = deadline(limits.turn_seconds, now) if place == last else None
        elif isinstance(event, ev.MessageAdded | ev.ToolsCalled) and event.request is not None:
            request = event.request
            windows = {"history": _places(seqs, request.history), "asked": _places(seqs, request.asked)}
            changes["request"] = request.model_copy(update=windows)
        yield event.model_copy(update=changes) if changes else event


def _begins_turn(event: ev.Event) -> bool:
    if isinstance(event, ev.MessageAdded):
        return event.by == "person"
    return isinstance(event, ev.TurnContinued | ev.TurnRetried)


def _places(seqs: Sequence[int], window: tuple[int, int]) -> tuple[int, int]:
    """A window of the parent's in the fork's seqs: each end is the last row copied up to it, the first of all is 2."""
    first, end = (bisect_right(seqs, seq) + 1 if seq else 0 for seq in window)
    return first, end
