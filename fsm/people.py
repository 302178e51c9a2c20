"""What a person's input leads to: events, or a refusal that says what was wrong and what to do next."""

from collections.abc import Callable
from typing import Any

from . import events as ev
from . import inputs as inp
from .approval import Standing, find_grant, is_person
from .canonical import digest, utc
from .follow import UNANSWERED, deadline, ended, over, returned, said
from .parts import Settled
from .session import Session
from .sources import cut
from .states import State

NewId = Callable[[str], str]
Reaction = list[ev.Event] | inp.Refusal
PAST = {
    "approved": "approved",
    "denied": "denied",
    "expired": "expired",
    "cancelled": "cancelled",
    "committed": "settled as done",
    "answered": "answered",
    "skipped": "skipped",
}


def _start(s: Session, i: inp.Start, _now: int, new_id: NewId) -> Reaction:
    if s.started:
        return inp.Refusal("conflict", f"session {s.id} exists already: choose another id, or open this one")
    if problem := spec_problem(i):
        return inp.Refusal("invalid", problem)
    begun = ev.SessionStarted(
        owner=i.owner, agents=i.agents, channels=i.channels, entry=i.entry, limits=i.limits,
        code_version=i.code_version, parent=i.parent,
    )  # fmt: skip
    old = (
        ev.MessageAdded(message_id=new_id("m"), sender=m.sender, recipient=m.recipient, text=m.text, by="preload")
        for m in i.history
    )
    events: list[ev.Event] = [begun, *old]
    if i.history:
        seat, entry = _ends(i)
        events.append(ev.TurnInterrupted(reason="preloaded", node=seat, peer=entry))
    return events


def _ends(i: inp.Start) -> tuple[str, str]:
    """The seat that a person speaks from, and the node that their first message goes to ("" there is no other)."""
    seat = next((agent.name for agent in i.agents if not agent.model), i.agents[0].name)
    return seat, i.entry or next((agent.name for agent in i.agents if agent.name != seat), "")


def spec_problem(i: inp.Start) -> str:
    """What is wrong with a configuration, or ""."""
    names = [agent.name for agent in i.agents] + [channel.name for channel in i.channels]
    if not i.agents:
        return "a session needs at least one agent: pass agents=[...]"
    if "" in names:
        return "an agent or channel has an empty name: name it"
    if twice := {name for name in names if names.count(name) > 1}:
        return f"the name {min(twice)!r} is used twice: names of agents and channels must differ"
    used = [i.entry] if i.entry else []
    used += [name for channel in i.channels for name in channel.members]
    used += [name for old in i.history for name in (old.sender, old.recipient)]
    if missing := [name for name in used if name not in names]:
        return f"{missing[0]!r} is no agent or channel of this session: use one of {', '.join(names)}"
    if empty := [channel.name for channel in i.channels if not channel.members]:
        return f"channel {empty[0]!r} has no members: give it some"
    if any(not old.text.strip() for old in i.history):
        return "a preloaded message is blank: leave it out"
    seat, entry = _ends(i)
    others = next((channel.members for channel in i.channels if channel.name == entry), (entry,))
    if not entry:
        return f"{seat!r} is alone: add a seat for a person (an agent without a model) or another agent"
    if set(others) == {seat}:
        return f"{entry!r} leads back to {seat!r}, the seat that a person speaks from: choose another entry"
    return ""


def _say(s: Session, i: inp.Say, now: int, new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    word = i.text.strip().casefold()
    if (ends := _is_one(word, s.limits.exit_words)) or _is_one(word, s.limits.stop_words):
        return _stop(s, inp.Stop(i.actor, session=ends, made=i.made), now, new_id)
    if not word and not i.attachments:
        return inp.Refusal("invalid", "the message is blank: write something, or use continue to let a model speak")
    resting = s.state in (State.INTERRUPT, State.ERROR) and s.question is None
    mine = s.speaker if resting and s.state is State.INTERRUPT else s.seat()
    sender = i.sender or mine
    group = next((name for name in (s.speaker, s.listener) if name in s.channels), "")
    recipient = i.recipient or group or (s.listener if sender == s.speaker else s.speaker)
    for name in (sender, recipient):
        if name not in s.agents and name not in s.channels:
            known = ", ".join([*s.agents, *s.channels])
            return inp.Refusal("invalid", f"{name!r} is no agent or channel of this session: use one of {known}")
    if sender in s.channels or sender == recipient:
        return inp.Refusal("invalid", f"{sender!r} cannot speak to {recipient!r}: choose an agent as sender")
    message_id = i.message_id or new_id("m")
    if s.queue and any(one.message_id == message_id for one in s.queue):
        return inp.Refusal("conflict", f"message {message_id!r} waits already: choose another id")
    interrupts = s.limits.busy == "interrupt" and s.question is None
    if resting or interrupts:
        added = ev.MessageAdded(
            message_id=message_id, sender=sender, recipient=recipient, text=i.text, by="person",
            attachments=i.attachments, deadline=deadline(s.limits.turn_seconds, now),
        )  # fmt: skip
        closing = [] if resting else _stopped(s, i.actor, now, i.made)
        return [*closing, *(said(one, s.limits, now) for one in s.queue), added]
    if s.limits.busy == "refuse":
        return inp.Refusal("busy", "the session is busy: wait for its turn to end, or stop it")
    if len(s.queue) >= s.limits.queue:
        return inp.Refusal("busy", f"{len(s.queue)} messages wait already: wait for the turn to end, or stop it")
    queued = ev.MessageQueued(
        message_id=message_id, sender=sender, recipient=recipient, text=i.text, attachments=i.attachments
    )
    return [queued]


def _is_one(word: str, words: tuple[str, ...]) -> bool:
    return any(word == one.strip().casefold() for one in words)


def _closed(s: Session, actor: str) -> inp.Refusal | None:
    if not s.started:
        return inp.Refusal("invalid", f"there is no session {s.id!r}: create it first")
    if s.state is State.TERMINATED:
        return inp.Refusal("terminated", f"session {s.id} has ended: create a new one")
    if not is_person(actor):
        return inp.Refusal("unauthorised", f"{actor!r} is no person: only an authenticated person may do this")
    return None


def _continue(s: Session, i: inp.Continue, now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if s.state is not State.INTERRUPT or s.question is not None or s.last is None:
        return inp.Refusal("conflict", f"nothing is to be continued in state {s.state}: continue works in interrupt")
    agent = s.agents.get(s.speaker)
    if agent is None or not agent.model:
        return inp.Refusal("invalid", f"{s.speaker!r} has no model that could speak for it: send a message instead")
    return [ev.TurnContinued(deadline=deadline(s.limits.turn_seconds, now))]


def _retry(s: Session, i: inp.Retry, now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if s.state is not State.ERROR:
        return inp.Refusal("conflict", f"nothing failed: the session is in state {s.state}")
    return [ev.TurnRetried(deadline=deadline(s.limits.turn_seconds, now))]


def _stop(s: Session, i: inp.Stop, now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if i.session:
        closing = close_round(s, i.actor, now, i.made)
        return [*closing, ended(s, "stopped", closing)]
    if s.state is State.ERROR or (s.state is State.INTERRUPT and s.question is None):
        end = f"; {s.limits.exit_words[0]!r} ends the session" if s.limits.exit_words else ""
        return inp.Refusal("conflict", f"no turn is running: the session is in state {s.state}{end}")
    return _stopped(s, i.actor, now, i.made)


def _stopped(s: Session, actor: str, now: int, made: inp.MadeBy) -> list[ev.Event]:
    closing = close_round(s, actor, now, made)
    return [*closing, over(s, "stopped", closing)]


def close_round(s: Session, actor: str, now: int, made: inp.MadeBy = inp.NOTHING) -> list[ev.Event]:
    """Resolve what is open and give each call its one result, so that the turn may end here."""
    via: ev.Via = "person" if is_person(actor) else "timer"
    by, why = ("by a person", "the turn was stopped") if via == "person" else ("at the time limit", "no time was left")
    events: list[ev.Event] = [
        ev.ApprovalResolved(
            request_id=one.request_id, call_id=one.call_id, tool=one.tool, outcome="cancelled", via=via,
            actor=actor, decided_at=now, digest=one.digest, reason=why,
        )
        for one in s.requests
    ]  # fmt: skip
    if s.state is State.AWAITING_APPROVAL:
        events.append(ev.ApprovalsSettled())
    if s.question is not None:
        asked = s.question.request_id
        events.append(ev.QuestionAnswered(request_id=asked, outcome="cancelled", actor=actor, answered_at=now))
    unknown = {one.call_id for one in s.requests if one.why == "outcome_unknown"}
    for call in s.open_calls:
        if call.status == "closed":
            events.append(returned(call))
            continue
        again = call.status == "approved" and call.attempt > 0  # cut off before, to be run again
        lost = call.status == "unknown" or call.id in unknown or again
        ran = call.status == "started"
        content = (
            "Cut off by an interruption, then stopped: whether it took effect is not known." if lost
            else f"Stopped {by} while it ran: it may have taken effect in part." if ran
            else UNANSWERED["cancelled"] if call.questions
            else f"Stopped {by} before it ran."
        )  # fmt: skip
        outcome: ev.ToolOutcome = "outcome_unknown" if lost else "cancelled"
        has = made.get(call.id, inp.Made())
        events.append(
            ev.ToolReturned(
                call_id=call.id, outcome=outcome, content=content, citations=cut(has.citations),
                attachments=has.attachments, notes=has.notes,
            )
        )  # fmt: skip
    return events


def _decide(s: Session, i: inp.Decide, now: int, new_id: NewId) -> Reaction:
    request = s.request(i.request_id)
    if request is None:
        return _no_request(s, i)
    if refusal := _closed(s, i.actor) or _wrong(request, i):
        return refusal
    arguments = i.edited.arguments if i.edited is not None else None
    resolved = ev.ApprovalResolved.model_validate({
        "request_id": request.request_id, "call_id": request.call_id, "tool": request.tool, "outcome": i.outcome,
        "via": "person", "actor": i.actor, "decided_at": now, "reason": i.reason, "result": i.result,
        "digest": request.digest if arguments is None else digest(arguments),
        "arguments": arguments, "remembered": i.remember,
    })  # fmt: skip
    if not i.remember:
        return [resolved]
    grant = ev.GrantRecorded.model_validate({
        "grant_id": new_id("g"), "subject": s.owner, "tool": request.tool, "scope": i.remember,
        "match": resolved.digest if i.exact else "",
    })  # fmt: skip
    return [resolved, grant, *_covered(s, request, grant, i.actor, now)]


def _no_request(s: Session, i: inp.Decide) -> inp.Refusal:
    past = _past(s, i.request_id)
    if past is not None:
        return inp.Refusal("expired" if past.outcome == "expired" else "conflict", _too_late(past))
    if s.state is State.TERMINATED:
        return inp.Refusal("terminated", f"session {s.id} has ended: create a new one")
    return inp.Refusal(
        "invalid", f"no request {i.request_id!r} is open in session {s.id}: open the session to see which"
    )


def _past(s: Session, request_id: str) -> Settled | None:
    return next((one for one in s.settled if one.request_id == request_id), None)


def _too_late(past: Settled) -> str:
    by = f" by {past.actor}" if past.actor else ""
    at = f" at {utc(past.at)}" if past.at else ""
    return f"already {PAST[past.outcome]}{by}{at}: nothing was changed"


def _wrong(request: ev.ApprovalRequested, i: inp.Decide) -> inp.Refusal | None:
    unknown = request.why == "outcome_unknown"
    choices = ("approved", "denied", "committed") if unknown else ("approved", "denied")
    if i.outcome not in choices:
        return inp.Refusal("invalid", f"{i.outcome!r} is no answer to this request: use one of {', '.join(choices)}")
    if i.digest != request.digest:
        return inp.Refusal("conflict", "the digest is not that of this request's arguments: look at them again")
    if i.edited is not None and (unknown or i.outcome != "approved"):
        return inp.Refusal("invalid", "arguments can only be edited when a call is approved that has not run yet")
    if i.edited is not None and i.edited.problem:
        return inp.Refusal("invalid", f"the edited arguments do not fit {request.tool}: {i.edited.problem}")
    if i.edited is not None:
        try:
            digest(i.edited.arguments)
        except ValueError as error:
            return inp.Refusal("invalid", f"the edited arguments are no JSON: {error}")
    if i.remember and (unknown or i.outcome != "approved" or i.remember not in ("session", "user")):
        return inp.Refusal("invalid", "only an approval can be remembered, for the session or for the user")
    return None


def _covered(
    s: Session, decided: ev.ApprovalRequested, grant: ev.GrantRecorded, actor: str, now: int
) -> list[ev.Event]:
    """A remembered approval settles at once the other open requests that it covers, each with a row of its own."""
    standing = [Standing(grant)]
    return [
        ev.ApprovalResolved(
            request_id=one.request_id, call_id=one.call_id, tool=one.tool, outcome="approved", via="grant",
            actor=actor, decided_at=now, digest=one.digest, rule=grant.grant_id,
        )
        for one in s.requests
        if one is not decided and one.why == "gated"
        and find_grant(standing, s.owner, one.tool, one.digest, now) is not None
    ]  # fmt: skip


def _answer(s: Session, i: inp.Answer, now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if s.question is None or s.question.request_id != i.request_id:
        past = _past(s, i.request_id)
        if past is not None:
            return inp.Refusal("expired" if past.outcome == "expired" else "stale", _too_late(past))
        return inp.Refusal("stale", f"no question {i.request_id!r} is open in session {s.id}: open the session to see")
    if i.answers is None:
        return [ev.QuestionAnswered(request_id=i.request_id, outcome="skipped", actor=i.actor, answered_at=now)]
    if len(i.answers) != len(s.question.questions):
        return inp.Refusal("invalid", f"{len(s.question.questions)} answers are needed, {len(i.answers)} came")
    return [
        ev.QuestionAnswered(
            request_id=i.request_id, outcome="answered", answers=i.answers, actor=i.actor, answered_at=now
        )
    ]  # fmt: skip


def _show(s: Session, i: inp.Show, _now: int, _new_id: NewId) -> Reaction:
    request = s.request(i.request_id)
    if request is None or request.digest != i.digest or s.shown >= 100:
        return inp.Refusal("stale", "the request is not open")
    return [ev.ApprovalShown(request_id=i.request_id, digest=i.digest, connection=i.connection)]


def _grant(s: Session, i: inp.Grant, now: int, new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if i.subject != s.owner:
        return inp.Refusal("unauthorised", f"a grant here is for {s.owner!r}, the owner of the session, nobody else")
    if (i.max_uses is not None and i.max_uses < 1) or (i.expires_at is not None and i.expires_at <= now):
        return inp.Refusal("invalid", "the grant could never be used: give at least one use and a time to come")
    return [
        ev.GrantRecorded.model_validate({
            "grant_id": new_id("g"), "subject": i.subject, "tool": i.tool, "scope": i.scope, "match": i.match,
            "expires_at": i.expires_at, "max_uses": i.max_uses,
        })
    ]  # fmt: skip


def _revoke(s: Session, i: inp.Revoke, _now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if i.subject != s.owner:
        return inp.Refusal("unauthorised", f"only grants for {s.owner!r}, the owner of the session, are revoked here")
    known = {one.grant.grant_id for one in (*s.grants, *(i.grants or ())) if one.grant.subject == s.owner}
    if i.grants is not None and i.grant_id not in known:
        return inp.Refusal(
            "invalid", f"no grant {i.grant_id!r} holds for {s.owner!r}: it is another's, was revoked, or never was"
        )
    return [ev.GrantRevoked(grant_id=i.grant_id, subject=i.subject, reason=i.reason)]


def _allow_rerun(s: Session, i: inp.AllowRerun, _now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    if all(run.tool != i.tool for run in s.runs):
        return inp.Refusal("conflict", f"nothing keeps {i.tool!r} from running: it has not run in this session")
    return [ev.RerunAllowed(tool=i.tool)]


def _remove_member(s: Session, i: inp.RemoveMember, _now: int, _new_id: NewId) -> Reaction:
    if refusal := _closed(s, i.actor):
        return refusal
    group = s.channels.get(i.channel)
    if group is None or i.member not in group.members or (i.channel, i.member) in s.left:
        return inp.Refusal("invalid", f"{i.member!r} is no member of a channel {i.channel!r}: nobody was removed")
    busy = s.question is not None or s.open_calls or s.state is State.AWAITING_APPROVAL
    if busy and (s.speaker, s.listener) == (i.member, i.channel):
        return inp.Refusal("conflict", f"{i.member!r} waits for its tools: stop the turn first")
    if s.state is State.AWAITING_APPROVAL:
        return inp.Refusal("conflict", "a request is open: decide it, or stop the turn first")
    return [ev.MemberRemoved(channel=i.channel, member=i.member)]


def _refuse(s: Session, i: inp.Refuse, _now: int, _new_id: NewId) -> Reaction:
    if not s.started:
        return inp.Refusal("invalid", f"there is no session {s.id!r} to refuse in")
    return [i.refusal]


ON_COMMAND: dict[type, Callable[[Session, Any, int, NewId], Reaction]] = {
    inp.Start: _start,
    inp.Say: _say,
    inp.Continue: _continue,
    inp.Retry: _retry,
    inp.Stop: _stop,
    inp.Decide: _decide,
    inp.Answer: _answer,
    inp.Show: _show,
    inp.Grant: _grant,
    inp.Revoke: _revoke,
    inp.AllowRerun: _allow_rerun,
    inp.RemoveMember: _remove_member,
    inp.Refuse: _refuse,
}
