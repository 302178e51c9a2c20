"""What the result of an effect leads to. A result that nobody waits for any more is refused, and kept as a refusal."""

import re
from collections.abc import Callable
from typing import Any

from . import events as ev
from . import inputs as inp
from .approval import Standing, find_grant, in_time, use
from .dedupe import fingerprint, repeated
from .director import candidates, choose
from .follow import TOLD, ask, brought, over
from .parts import Call
from .people import close_round
from .session import Session, turn_key, word_key
from .sources import cut
from .states import State

NewId = Callable[[str], str]
Reaction = list[ev.Event] | inp.Refusal
LIMIT: tuple[ev.ToolOutcome, str] = ("limit", TOLD["limit"])
_CONTROL = re.compile(r"\s*(TERMINATE|INTERRUPT)\s*")


def _resume(s: Session, i: inp.Resume, _now: int, _new_id: NewId) -> Reaction:
    in_flight = s.state in (State.SUCCESS, State.AWAITING_APPROVAL) or s.question is not None
    if not in_flight:
        return inp.Refusal("stale", "nothing is in flight")
    return [ev.SessionResumed(epoch=i.epoch, owner=i.owner, code_version=i.code_version, tools=i.tools)]


def _expected(s: Session, key: str) -> bool:
    return s.state is State.SUCCESS and not s.open_calls and key == word_key(s)


def _context_came(s: Session, i: inp.ContextCame, _now: int, _new_id: NewId) -> Reaction:
    if s.speaker != i.speaker or not _expected(s, i.key) or i.speaker in s.fetched:
        return inp.Refusal("stale", f"what was fetched for {i.key} came when nobody waited for it any more")
    return [
        ev.ContextFetched(
            speaker=i.speaker, context=i.context, parts=i.parts, documents=i.documents, problems=i.problems
        )
    ]


def _model_replied(s: Session, i: inp.ModelReplied, now: int, new_id: NewId) -> Reaction:
    if s.speaker in s.channels or not _expected(s, i.key):
        return inp.Refusal("stale", f"the completion {i.key} came when nobody waited for it any more")
    if i.calls:
        return _round(s, i, now, new_id)
    if not i.text.strip() and not s.calls:
        return [_failed(s, "model", inp.ModelFailed(i.key, "empty_reply", "the model answered with nothing"))]
    word = _CONTROL.fullmatch(i.text)
    return [
        ev.MessageAdded.model_validate({
            "message_id": i.message_id, "sender": s.speaker, "recipient": s.listener, "text": i.text,
            "control": word[1] if word else "", "synthetic": s.synthetic, "citations": s.citations,
            "attachments": s.attachments,
            "model": i.model, "finish": i.finish, "usage": i.usage, "turn_usage": s.usage.plus(i.usage),
            "reasoning": i.reasoning, "extras": i.extras, "request": i.request,
        })
    ]  # fmt: skip


def _round(s: Session, i: inp.ModelReplied, now: int, new_id: NewId) -> Reaction:
    granted = s.agents[s.speaker].tools
    room = s.limits.max_tool_calls - s.tool_calls
    records: list[ev.CallRecord] = []
    taken: set[str] = set()  # tools of calls that are not refused at once
    results: list[ev.Event] = []
    gated: list[tuple[ev.CallRecord, inp.Proposed]] = []
    for place, call in enumerate(i.calls):
        problem = LIMIT if place >= room else _problem(call, granted, i.available) or _repeat(s, call, taken, now)
        record = ev.CallRecord(
            id=new_id("call"), provider_id=call.provider_id, tool=call.tool, arguments=call.arguments,
            parsed=call.parsed, digest=call.digest,
            gated=problem is not None or call.facts is None or call.facts.gated,
            idempotent=call.facts is not None and call.facts.idempotent,
            questions=() if problem else call.questions,
            repeats=call.facts.repeats if call.facts is not None else None,
            direct=len(i.calls) == 1 and call.facts is not None and call.facts.direct,
        )  # fmt: skip
        records.append(record)
        if problem is not None:
            outcome, content = problem
            results.append(ev.ToolReturned(call_id=record.id, outcome=outcome, content=content))
            continue
        taken.add(record.tool)
        if record.gated and not record.questions:
            gated.append((record, call))
    called = ev.ToolsCalled(
        message_id=i.message_id, speaker=s.speaker, listener=s.listener, calls=tuple(records), text=i.text,
        model=i.model, finish=i.finish, usage=i.usage, reasoning=i.reasoning, extras=i.extras, request=i.request,
    )  # fmt: skip
    return [called, *results, *_words(s, i, gated, now, new_id)]


def _problem(
    call: inp.Proposed, granted: tuple[str, ...], available: tuple[str, ...]
) -> tuple[ev.ToolOutcome, str] | None:
    if call.facts is None or call.tool not in granted:
        there = ", ".join(available) or "none"
        return "unknown_tool", f"There is no tool {call.tool!r}. There are: {there}."
    if call.problem or call.parsed is None:
        return (
            "invalid_arguments",
            f"The arguments were refused, nothing ran: {call.problem or 'no JSON object'}",
        )
    return None


def _repeat(s: Session, call: inp.Proposed, before: set[str], now: int) -> tuple[ev.ToolOutcome, str] | None:
    rule = call.facts.repeats if call.facts is not None else None
    if not s.runs and rule is None:
        return None
    mark = fingerprint(call.parsed, call.digest)
    why = repeated(s.runs, before, call.tool, mark, rule, now)
    return ("duplicate", f"Not run: {why}") if why else None


def _words(
    s: Session, i: inp.ModelReplied, gated: list[tuple[ev.CallRecord, inp.Proposed]], now: int, new_id: NewId
) -> list[ev.Event]:
    """Layer by layer: what the configuration or a grant allows at once, then requests for the rest."""
    allowed: list[ev.Event] = []
    asked: list[ev.Event] = []
    standing: tuple[Standing, ...] = (*s.grants, *i.grants)
    for record, call in gated:
        assert call.facts is not None
        grant = find_grant(standing, s.owner, call.tool, record.digest, now)
        if call.facts.auto:
            allowed.append(_allow(record, "env", call.facts.auto, "env", now, new_id))
        elif grant is not None:
            standing = use(standing, grant.grant.grant_id)
            allowed.append(_allow(record, "grant", grant.grant.grant_id, grant.grant.subject, now, new_id))
        else:
            mine = Call(record.id, record.tool, record.parsed or {}, record.digest, "gated", 0)
            asked.append(ask(s, mine, "gated", now, new_id, call.facts))
    return [*allowed, *asked]


def _allow(record: ev.CallRecord, via: ev.Via, rule: str, actor: str, now: int, new_id: NewId) -> ev.Event:
    return ev.ApprovalResolved(
        request_id=new_id("r"), call_id=record.id, tool=record.tool, outcome="approved", via=via, rule=rule,
        actor=actor, decided_at=now, digest=record.digest,
    )  # fmt: skip


def _model_failed(s: Session, i: inp.ModelFailed, _now: int, _new_id: NewId) -> Reaction:
    if not _expected(s, i.key):
        return inp.Refusal("stale", f"the failure of {i.key} came when nobody waited for it any more")
    return [_failed(s, "director" if s.speaker in s.channels else "model", i)]


def _failed(s: Session, where: str, i: inp.ModelFailed) -> ev.Event:
    return ev.TurnFailed.model_validate({
        "where": where, "error": i.error, "message": i.message, "retryable": i.retryable, "attempt": s.attempt + 1,
        "code": i.code, "usage": i.usage, **brought(s),
    })  # fmt: skip


def _speaker_chosen(s: Session, i: inp.SpeakerChosen, _now: int, _new_id: NewId) -> Reaction:
    if s.speaker not in s.channels or not _expected(s, i.key):
        return inp.Refusal("stale", f"the choice {i.key} came when nobody waited for it any more")
    allowed = candidates(s, s.speaker)
    speaker, by = choose(i.raw, allowed, i.seed, s.agents)
    return [
        ev.SpeakerSelected.model_validate({
            "channel": s.speaker, "speaker": speaker, "by": by, "raw": i.raw,
            "seed": i.seed if by == "random" else None, "model": i.model, "usage": i.usage,
        })
    ]  # fmt: skip


def _tools_ready(s: Session, i: inp.ToolsReady, now: int, new_id: NewId) -> Reaction:
    if s.state is not State.SUCCESS:
        return inp.Refusal("stale", f"no tool may start in state {s.state}")
    started: list[ev.Event] = []
    asked: list[ev.Event] = []
    for call in s.calls:
        again = call.status == "unknown" and call.idempotent
        facts = i.facts.get(call.id)
        if facts is None or (call.status != "approved" and not again):
            continue  # a call whose tool is not there now is still owed
        if again and not facts.idempotent:
            asked.append(ask(s, call, "outcome_unknown", now, new_id, facts))
            continue
        if facts.gated and not facts.auto and not _allowed(s, i, call, now):
            asked.append(ask(s, call, "outcome_unknown" if call.attempt else "gated", now, new_id, facts))
            continue
        started.append(
            ev.ToolStarted(
                call_id=call.id, tool=call.tool, attempt=call.attempt + 1, key=f"{s.id}:{call.id}",
                digest=call.digest, permit=call.permit, definition=facts.definition,
                idempotent=call.idempotent and facts.idempotent,
            )
        )  # fmt: skip
    # What must be asked is decided first; the others start when the round is.
    return asked or started or inp.Refusal("stale", "no call waits to be started")


def _allowed(s: Session, i: inp.ToolsReady, call: Call, now: int) -> bool:
    """Whether what let a gated call run still holds: it may have waited since, for others of its round or a tool.

    A person's word does. A call that needed no word when it was made has none, and the configured list is another.
    """
    if call.via == "grant":
        return any(one.grant.grant_id == call.rule and in_time(one, now) for one in (*s.grants, *i.grants))
    return call.permit != "free" and call.via != "env"


def _tool_finished(s: Session, i: inp.ToolFinished, now: int, new_id: NewId) -> Reaction:
    call = s.call(i.call_id)
    if s.state is not State.SUCCESS or call is None or call.status != "started":
        return _late(i, f"call {i.call_id} ended with {i.outcome} after its result was settled")
    if i.key != f"tool:{call.id}:{call.attempt}":
        return _late(i, f"{i.key} is not the attempt that runs, it ended with {i.outcome}")
    result = ev.ToolReturned(
        call_id=i.call_id, outcome=i.outcome, content=i.content, citations=cut(i.citations),
        attachments=i.attachments, notes=i.notes, duration_ms=i.duration_ms,
        ended_at=now if call.repeats is not None and call.repeats.cooldown_seconds else 0,
        edited=call.arguments if call.edited else None,
    )  # fmt: skip
    answers = call.direct and i.outcome == "ok" and i.content.strip()
    return [result, _direct(s, result, new_id)] if answers else [result]


def _direct(s: Session, result: ev.ToolReturned, new_id: NewId) -> ev.Event:
    """A result as the answer, with all that the tools of the turn have brought."""
    return ev.MessageAdded.model_validate({
        "message_id": new_id("m"), "sender": s.speaker, "recipient": s.listener, "text": result.content,
        "synthetic": s.synthetic, "turn_usage": s.usage, "direct": result.call_id, **brought(s, [result]),
    })  # fmt: skip


def _late(i: inp.ToolFinished, why: str) -> inp.Refusal:
    """What no model is told any more, an auditor still needs: the call did something."""
    items: tuple[object, ...] = i.attachments  # a tool may have put anything there
    kept = "".join(f"\n[{one.name}: blob {one.digest}]" for one in items if isinstance(one, ev.Attachment))
    return inp.Refusal("stale", f"{why}: {i.content or '(no output)'}{kept}")


def _timer_fired(s: Session, i: inp.TimerFired, now: int, _new_id: NewId) -> Reaction:
    request = s.request(i.request_id)
    if request is not None:
        return [
            ev.ApprovalResolved(
                request_id=request.request_id, call_id=request.call_id, tool=request.tool, outcome="expired",
                via="timer", actor="timer", decided_at=now, digest=request.digest,
            )
        ]  # fmt: skip
    moving = s.state in (State.SUCCESS, State.AWAITING_APPROVAL) or s.question is not None
    if i.request_id == turn_key(s) and s.deadline is not None and moving:
        closing = close_round(s, i.actor, now, i.made)
        return [*closing, over(s, "time", closing)]
    if s.question is not None and s.question.request_id == i.request_id:
        return [ev.QuestionAnswered(request_id=i.request_id, outcome="expired", actor="timer", answered_at=now)]
    return inp.Refusal("stale", f"{i.request_id} was settled before its deadline")


ON_RESULT: dict[type, Callable[[Session, Any, int, NewId], Reaction]] = {
    inp.Resume: _resume,
    inp.ContextCame: _context_came,
    inp.ModelReplied: _model_replied,
    inp.ModelFailed: _model_failed,
    inp.SpeakerChosen: _speaker_chosen,
    inp.ToolsReady: _tools_ready,
    inp.ToolFinished: _tool_finished,
    inp.TimerFired: _timer_fired,
}
