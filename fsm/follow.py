"""What follows from where a session stands. `decide` calls `follow` until it answers None."""

from collections.abc import Callable, Iterable
from typing import Any

from . import events as ev
from .director import candidates
from .inputs import ToolFacts
from .parts import Call
from .session import Session, pair
from .sources import attached, cited
from .states import State
from .values import LONGEST

TOLD = {
    "ok": "A person reports that this call took effect before the interruption.",
    "denied": "A person refused this call. It did not run.",
    "expired": "Nobody answered in time, so this call was not allowed. It did not run.",
    "cancelled": "This call was stopped before it ended. It may not have taken effect.",
    "outcome_unknown": "This call was cut off while it ran. Whether it took effect is not known; it was not run again.",
    "limit": "Not run: the limit of tool calls for this answer is reached. Answer with what you know.",
}
# The same of a call that only asks a person something.
UNANSWERED = {
    "skipped": "The person skipped the question. Use your own judgement.",
    "expired": "Nobody answered the question in time. Use your own judgement, or ask again.",
    "cancelled": "The turn was stopped before anybody answered the question.",
}


def follow(session: Session, now: int, new_id: Callable[[str], str]) -> ev.Event | None:
    """The next event that needs nobody, or None."""
    match session.state:
        case State.AWAITING_APPROVAL:
            return None if session.requests else ev.ApprovalsSettled()
        case State.INTERRUPT:
            return _from_queue(session, now)
        case State.ERROR:
            return ended(session, "failed") if session.limits.on_error == "terminate" else None
        case State.SUCCESS:
            if session.calls:
                return _round(session, now, new_id)
            return _after_message(session, now)
    return None


def _from_queue(session: Session, now: int) -> ev.Event | None:
    if session.question is not None or not session.queue:
        return None
    return said(session.queue[0], session.limits, now)


def ended(session: Session, reason: str, closing: Iterable[ev.Event] = ()) -> ev.SessionTerminated:
    """The end of the session. Whoever's message still waits can read here that it comes to nobody."""
    dropped = [queued.message_id for queued in session.queue]
    return ev.SessionTerminated.model_validate({"reason": reason, "dropped": dropped, **brought(session, closing)})


def brought(session: Session, closing: Iterable[ev.Event] = ()) -> dict[str, Any]:
    """What the tools of an answer brought that ends without a message, for the row that ends it.

    `closing` are the results that come before that row. After a failure, the row of the failure has it already.
    """
    citations, attachments = session.citations, session.attachments
    for event in closing:
        if isinstance(event, ev.ToolReturned):
            citations = cited(citations, event.citations)
            attachments = attached(attachments, event.attachments)
    if session.state is State.ERROR or not (citations or attachments):
        return {}
    return {"citations": citations, "attachments": attachments}


def said(queued: ev.MessageQueued, limits: ev.Limits, now: int) -> ev.MessageAdded:
    """A queued message whose turn has come."""
    return ev.MessageAdded(
        message_id=queued.message_id, sender=queued.sender, recipient=queued.recipient,
        text=queued.text, by="person", attachments=queued.attachments, deadline=deadline(limits.turn_seconds, now),
    )  # fmt: skip


def _round(session: Session, now: int, new_id: Callable[[str], str]) -> ev.Event | None:
    for call in session.calls:
        if call.status == "closed":
            return returned(call, now)
        if call.status == "unknown" and not call.idempotent:
            return ask(session, call, "outcome_unknown", now, new_id)
    waiting = session.open_calls
    if not waiting:
        return over(session, "limit") if session.over_cap or session.spent else None
    if all(call.status == "question" for call in waiting):
        return ev.QuestionAsked(
            request_id=new_id("q"), call_id=waiting[0].id, questions=waiting[0].questions,
            deadline=deadline(session.limits.question_seconds, now),
        )  # fmt: skip
    return None


def returned(call: Call, now: int = 0) -> ev.ToolReturned:
    """The result of a call that does not run (any more)."""
    outcome = "cancelled" if call.verdict == "skipped" else call.verdict
    told = UNANSWERED[call.verdict] if call.questions and call.verdict in UNANSWERED else TOLD[call.verdict]
    if call.verdict == "ok":
        told = call.note or told
    elif call.note:
        told = f"{told} Reason: {call.note}"
    return ev.ToolReturned.model_validate({
        "call_id": call.id, "outcome": outcome, "content": told,
        # Of a call that a person says took effect, the pause begins with that word.
        "ended_at": now if call.verdict == "ok" and call.repeats is not None and call.repeats.cooldown_seconds else 0,
    })  # fmt: skip


def ask(
    session: Session, call: Call, why: ev.Why, now: int, new_id: Callable[[str], str], facts: ToolFacts | None = None
) -> ev.ApprovalRequested:
    """A request for a person's word on a call."""
    return ev.ApprovalRequested(
        request_id=new_id("r"), call_id=call.id, tool=call.tool, arguments=call.arguments, digest=call.digest,
        why=why, deadline=deadline(session.limits.approval_seconds, now),
        description=facts.description if facts else "", risk=facts.risk if facts else "",
        rule="needs_approval" if why == "gated" else "started_before_a_crash",
    )  # fmt: skip


def deadline(seconds: float | None, now: int) -> int | None:
    """When something that waits `seconds` from `now` runs out; older logs may hold limits without bounds."""
    return None if seconds is None else now + round(min(seconds, LONGEST) * 1000)


def over(session: Session, reason: str, closing: Iterable[ev.Event] = ()) -> ev.TurnInterrupted:
    """The end of a turn: whoever was to be answered speaks next."""
    node, peer = session.listener, session.speaker
    if session.speaker in session.channels or session.listener in session.channels:
        node, peer = session.seat(), session.listener or session.speaker
    return ev.TurnInterrupted.model_validate({
        "reason": reason, "node": node, "peer": peer, **brought(session, closing),
    })  # fmt: skip


def _after_message(session: Session, now: int) -> ev.Event | None:
    last = session.last
    if last is None or session.synthetic:
        return None
    group = session.channels.get(last.recipient)
    waiting: ev.Event | None = None
    if last.by == "model" and session.listener != last.recipient:
        if last.control == "TERMINATE":
            return ended(session, "TERMINATE")
        # Among models that talk to each other, a person's message comes as soon as one has finished.
        waiting = said(session.queue[0], session.limits, now) if session.due else None
        limit = group.max_rounds if group else session.limits.max_rounds
        counter = pair(last.recipient) if group else pair(last.sender, last.recipient)
        if session.rounds.get(counter, 0) >= limit:
            return waiting or ended(session, "max_rounds")
        if last.control == "INTERRUPT":
            return over_by(session, "requested")
    if session.speaker in session.channels:
        return waiting or (None if candidates(session, session.speaker) else ended(session, "no_speaker"))
    return _person_next(session, last.by) or waiting


def over_by(session: Session, reason: str) -> ev.TurnInterrupted:
    """The end of a turn in which the next speaker is already known."""
    if session.speaker in session.channels:
        return over(session, reason)
    return ev.TurnInterrupted.model_validate({"reason": reason, "node": session.speaker, "peer": session.listener})


def _person_next(session: Session, by: str) -> ev.Event | None:
    agent = session.agents[session.speaker]
    in_group = session.listener in session.channels
    if not agent.model or (agent.interrupt == "always" and (by != "person" or in_group)):
        return over_by(session, "user_turn")
    return None
