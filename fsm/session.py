"""`Session`: where a conversation stands, folded from its events.

It is small and bounded by the open turn. There is no list of messages in it (history is read from the log), so a step
costs the same at event 10 and at event 1,000,000.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from . import events as ev
from .approval import Standing, use
from .choices import member_removed, offered, speaker_selected
from .dedupe import Run, forget, lasting, remember
from .errors import GapInLog, IllegalEvent
from .parts import Call, Fetched, Last, Settled
from .sources import attached, cited
from .states import State
from .table import NEXT
from .values import DEFAULT_LIMITS, NO_USAGE, ToolChoice

SETTLED_KEPT = 64  # how many past requests can still be answered with "already decided, by whom, when"


_NONE: dict[str, Any] = {}  # shared, and like every part of a session never changed in place


class Session(NamedTuple):
    """The fold of a session's events.

    `speaker` is the node that speaks next and `listener` whom it answers; while a channel has to choose, `speaker` is
    the channel. `step` counts completions and continues, `completions` is per speaker, `attempt` counts
    failures of the next one. `due` is set when a model has finished while a person's message waited. `left` are the
    channels and members that were removed, `used` the tools that were called, `choice` the tools offered in this turn.
    """

    id: str = ""
    seq: int = 0
    state: State = State.INTERRUPT
    owner: str = ""
    agents: dict[str, ev.AgentSpec] = _NONE
    channels: dict[str, ev.Channel] = _NONE
    limits: ev.Limits = DEFAULT_LIMITS
    epoch: int = 0
    speaker: str = ""
    listener: str = ""
    last: Last | None = None
    synthetic: bool = False
    rounds: dict[str, int] = _NONE
    turn: int = 0
    step: int = 0
    completions: dict[str, int] = _NONE
    attempt: int = 0
    calls: tuple[Call, ...] = ()
    tool_calls: int = 0
    over_cap: bool = False
    requests: tuple[ev.ApprovalRequested, ...] = ()
    shown: int = 0
    settled: tuple[Settled, ...] = ()
    question: ev.QuestionAsked | None = None
    queue: tuple[ev.MessageQueued, ...] = ()
    due: bool = False
    usage: ev.Usage = NO_USAGE
    citations: tuple[ev.Citation, ...] = ()
    attachments: tuple[ev.Attachment, ...] = ()
    grants: tuple[Standing, ...] = ()
    runs: tuple[Run, ...] = ()
    deadline: int | None = None
    left: tuple[tuple[str, str], ...] = ()
    fetched: dict[str, Fetched] = _NONE
    used: tuple[str, ...] = ()
    choice: ToolChoice | None = None

    @property
    def started(self) -> bool:
        """Whether the session exists."""
        return bool(self.agents)

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """Calls that have no result yet."""
        return tuple([call for call in self.calls if call.status != "returned"]) if self.calls else ()

    @property
    def spent(self) -> bool:
        """Whether the answer that is being made has used up its tokens."""
        most = self.limits.max_tokens
        return most is not None and self.usage.input_tokens + self.usage.output_tokens >= most

    def call(self, call_id: str) -> Call | None:
        """A call of the open round."""
        for call in self.calls:
            if call.id == call_id:
                return call
        return None

    def request(self, request_id: str) -> ev.ApprovalRequested | None:
        """An open request."""
        return next((one for one in self.requests if one.request_id == request_id), None)

    def seat(self) -> str:
        """The node that a person sits at: the first one without a model, else the first one."""
        names = [*(name for name, agent in self.agents.items() if not agent.model), *self.agents, "USER"]
        return names[0]


Changes = dict[str, Any]
_PLACE = {name: place for place, name in enumerate(Session._fields)}
SnapshotOf = TypeAdapter(Session)


def changed(session: Session, changes: Changes) -> Session:
    """The session with some of its fields changed: `_replace` in less time, since it has so many fields."""
    values: list[Any] = list(session)
    for name, value in changes.items():
        values[_PLACE[name]] = value
    return Session._make(values)


def evolve(session: Session, event: ev.Event) -> Session:
    """Fold one event. The only place that moves a state.

    Raises:
        IllegalEvent: the table has no such row.
    """
    kind = event.kind
    state = NEXT.get((session.state, kind))
    if state is None:
        raise IllegalEvent(
            f"session {session.id}, seq {session.seq + 1}: {kind} cannot happen in state {session.state}; "
            "see the table in fsm/table.py for what can"
        )
    return changed(session, {"state": state, "seq": session.seq + 1, **_FOLDS[kind](session, event)})


def replay(rows: Iterable[ev.Row], start: Session | None = None, to: int | None = None) -> Session:
    """The session after these rows (up to seq `to`). Makes no model call, no tool call, no timer and no row.

    Raises:
        GapInLog: a seq is missing. IllegalEvent: a row that the table does not allow.
    """
    session = start or Session()
    for row in rows:
        if to is not None and row.seq > to:
            break
        if row.seq != session.seq + 1:
            raise GapInLog(f"session {row.session}: after seq {session.seq} comes {row.seq}; run `turnlog verify`")
        if not session.id:
            session = session._replace(id=row.session)
        session = evolve(session, row.event)
    return session


def _with(session: Session, call_id: str, **changes: Any) -> tuple[Call, ...]:
    return tuple([call._replace(**changes) if call.id == call_id else call for call in session.calls])


def _session_started(_: Session, e: ev.SessionStarted) -> Changes:
    agents = {agent.name: agent for agent in e.agents}
    channels = {channel.name: channel for channel in e.channels}
    seat = next((agent.name for agent in e.agents if not agent.model), e.agents[0].name if e.agents else "")
    first = next((agent.name for agent in e.agents if agent.name != seat), seat)
    entry = e.entry or first
    return {
        "owner": e.owner, "agents": agents, "channels": channels, "limits": e.limits, "speaker": seat, "listener": entry
    }  # fmt: skip


def _message_added(s: Session, e: ev.MessageAdded) -> Changes:
    group = s.channels.get(e.recipient)
    person = e.by == "person"
    changes: Changes = {
        "last": Last(e.sender, e.recipient, e.by, e.control),
        "calls": (), "tool_calls": 0, "over_cap": False, "attempt": 0, "synthetic": False,
        "citations": (), "attachments": (), "usage": NO_USAGE,
        "speaker": e.recipient, "listener": "" if group else e.sender,
        "due": e.by == "model" and bool(s.queue), "runs": lasting(s.runs) if s.runs else (), "choice": None,
    }  # fmt: skip
    if e.by == "preload":
        return changes
    changes["rounds"] = {**s.rounds, **_rounds(s, e, group)}
    if person:
        changes["turn"], changes["deadline"], changes["fetched"] = s.turn + 1, e.deadline, _NONE
        changes["queue"] = tuple(one for one in s.queue if one.message_id != e.message_id)
    else:
        changes |= {"step": s.step + 1} if e.direct else _completion(s, e.sender)
    return changes


def _rounds(s: Session, e: ev.MessageAdded, group: ev.Channel | None) -> dict[str, int]:
    """What the counters become. A member's message to its group counts for the group and for the member."""
    mine = pair(e.sender, e.recipient)
    if group is None:
        return {mine: 1 if e.by == "person" else s.rounds.get(mine, 0) + 1}
    if e.by == "person":
        return dict.fromkeys([pair(e.recipient), *(pair(name, e.recipient) for name in group.members)], 0)
    counters = (pair(e.recipient), mine) if e.sender in group.members else ()
    return {counter: s.rounds.get(counter, 0) + 1 for counter in counters}


def _completion(s: Session, speaker: str) -> Changes:
    completions = {**s.completions, speaker: s.completions.get(speaker, 0) + 1}
    return {"step": s.step + 1, "completions": completions, "attempt": 0}


def pair(one: str, other: str = "") -> str:
    """The counter of two nodes, the same both ways; with one name, that of a group. No names share one by accident."""
    first, second = sorted((one, other))
    return f"{len(first)}:{first}|{second}"


def turn_key(s: Session) -> str:
    """The key of the open turn, for the timer that ends it."""
    return f"turn:{s.turn}"


def word_key(s: Session) -> str:
    """The key of the completion, or of the choice of a speaker, that the session waits for: never used twice."""
    kind = "choose" if s.speaker in s.channels else "model"
    return f"{kind}:{s.turn}:{s.step}:{s.attempt + 1}"


def _message_queued(s: Session, e: ev.MessageQueued) -> Changes:
    return {"queue": (*s.queue, e)}


def _context_fetched(s: Session, e: ev.ContextFetched) -> Changes:
    return {"fetched": {**s.fetched, e.speaker: Fetched(e.context, e.parts)}}


def _session_resumed(s: Session, e: ev.SessionResumed) -> Changes:
    calls = tuple(
        call._replace(status="unknown") if call.status == "started" and call.epoch < e.epoch else call
        for call in s.calls
    )
    return {"epoch": e.epoch, "calls": calls}


def _tools_called(s: Session, e: ev.ToolsCalled) -> Changes:
    calls = tuple(
        Call(
            record.id, record.tool, record.parsed or {}, record.digest,
            "question" if record.questions else "gated" if record.gated else "approved",
            s.seq + 1, "" if record.gated else "free", record.idempotent, questions=record.questions,
            repeats=record.repeats, direct=record.direct,
        )
        for record in e.calls
    )  # fmt: skip
    over = s.tool_calls >= s.limits.max_tool_calls
    return {
        **_completion(s, e.speaker), **offered(s, e),
        "usage": s.usage.plus(e.usage or NO_USAGE),
        "calls": calls, "tool_calls": s.tool_calls + len(calls), "over_cap": over,
    }  # fmt: skip


def _approval_requested(s: Session, e: ev.ApprovalRequested) -> Changes:
    return {"requests": (*s.requests, e), "calls": _with(s, e.call_id, status="waiting"), "shown": 0}


def _approval_shown(s: Session, _: ev.ApprovalShown) -> Changes:
    return {"shown": s.shown + 1}


def _approval_resolved(s: Session, e: ev.ApprovalResolved) -> Changes:
    request = s.request(e.request_id)
    unknown = request is not None and request.why == "outcome_unknown"
    if e.outcome == "approved":
        edit: Changes = {}
        if e.arguments is not None:
            edit = {"arguments": e.arguments, "source": s.seq + 1, "edited": True}
        calls = _with(
            s, e.call_id, status="approved", permit=e.request_id, digest=e.digest, via=e.via, rule=e.rule, **edit
        )
    elif e.outcome == "committed":
        calls = _with(s, e.call_id, status="closed", verdict="ok", note=e.result)
    else:
        calls = _with(s, e.call_id, status="closed", verdict="outcome_unknown" if unknown else e.outcome, note=e.reason)
    return {
        "calls": calls,
        "requests": tuple(one for one in s.requests if one.request_id != e.request_id),
        "settled": _settled(s, e.request_id, e.outcome, e.actor, e.decided_at),
        "grants": use(s.grants, e.rule) if e.via == "grant" else s.grants,
    }


def _settled(s: Session, request_id: str, outcome: str, actor: str, at: int) -> tuple[Settled, ...]:
    return (*s.settled, Settled(request_id, outcome, actor, at))[-SETTLED_KEPT:]


def _question_asked(_: Session, e: ev.QuestionAsked) -> Changes:
    return {"question": e}


def _question_answered(s: Session, e: ev.QuestionAnswered) -> Changes:
    assert s.question is not None
    calls = s.calls
    if e.outcome == "answered":
        pairs = zip(s.question.questions, e.answers, strict=False)
        note = "\n".join(f"{question.text}\n{answer or '(skipped)'}" for question, answer in pairs)
        calls = _with(s, s.question.call_id, status="closed", verdict="ok", note=note)
    else:
        calls = _with(s, s.question.call_id, status="closed", verdict=e.outcome)
    return {"question": None, "calls": calls, "settled": _settled(s, e.request_id, e.outcome, e.actor, e.answered_at)}


def _tool_started(s: Session, e: ev.ToolStarted) -> Changes:
    return {"calls": _with(s, e.call_id, status="started", attempt=e.attempt, epoch=s.epoch, idempotent=e.idempotent)}


def _tool_returned(s: Session, e: ev.ToolReturned) -> Changes:
    call = s.call(e.call_id)
    if call is not None and e.edited is not None and not call.edited:
        call = call._replace(arguments=e.edited, digest="")  # in a fork, where nobody's edit came before
    return {
        "runs": s.runs if call is None or e.outcome != "ok" else remember(s.runs, call, e.ended_at),
        "calls": _with(s, e.call_id, status="returned", verdict=e.outcome),
        "citations": cited(s.citations, e.citations) if e.citations else s.citations,
        "attachments": attached(s.attachments, e.attachments) if e.attachments else s.attachments,
    }


def _turn_interrupted(_: Session, e: ev.TurnInterrupted) -> Changes:
    return {
        "speaker": e.node, "listener": e.peer, "calls": (), "synthetic": False, "attempt": 0, "tool_calls": 0,
        "over_cap": False, "citations": (), "attachments": (), "fetched": _NONE, "choice": None,
    }  # fmt: skip


def _turn_continued(s: Session, e: ev.TurnContinued) -> Changes:
    # The step, so that no key of before the interruption is owed again.
    return {"synthetic": True, "deadline": e.deadline, "step": s.step + 1, "usage": NO_USAGE}


def _turn_failed(s: Session, e: ev.TurnFailed) -> Changes:
    return {"attempt": e.attempt, "usage": s.usage.plus(e.usage) if e.usage is not None else s.usage}


def _turn_retried(_: Session, e: ev.TurnRetried) -> Changes:
    return {"deadline": e.deadline}


def _grant_recorded(s: Session, e: ev.GrantRecorded) -> Changes:
    return {"grants": (*s.grants, Standing(e))} if e.scope == "session" else {}


def _grant_revoked(s: Session, e: ev.GrantRevoked) -> Changes:
    return {"grants": tuple(one for one in s.grants if one.grant.grant_id != e.grant_id)}


def _rerun_allowed(s: Session, e: ev.RerunAllowed) -> Changes:
    return {"runs": forget(s.runs, e.tool)}


def _nothing(_s: Session, _e: object) -> Changes:
    return {}


def _session_terminated(_s: Session, _e: ev.SessionTerminated) -> Changes:
    return {"calls": (), "queue": (), "synthetic": False, "citations": (), "attachments": ()}


_FOLDS: dict[str, Callable[[Session, Any], Changes]] = {
    "session_started": _session_started,
    "message_added": _message_added,
    "message_queued": _message_queued,
    "session_resumed": _session_resumed,
    "speaker_selected": speaker_selected,
    "member_removed": member_removed,
    "context_fetched": _context_fetched,
    "tools_called": _tools_called,
    "approval_requested": _approval_requested,
    "approval_shown": _approval_shown,
    "approval_resolved": _approval_resolved,
    "approvals_settled": _nothing,
    "question_asked": _question_asked,
    "question_answered": _question_answered,
    "tool_started": _tool_started,
    "tool_returned": _tool_returned,
    "turn_interrupted": _turn_interrupted,
    "turn_continued": _turn_continued,
    "turn_failed": _turn_failed,
    "turn_retried": _turn_retried,
    "grant_recorded": _grant_recorded,
    "grant_revoked": _grant_revoked,
    "rerun_allowed": _rerun_allowed,
    "input_refused": _nothing,
    "session_terminated": _session_terminated,
}
assert set(_FOLDS) == set(ev.KINDS), "an event without a fold"
assert {kind for _, kind in NEXT} == set(ev.KINDS), "the table and the events name different kinds"


def fold(session: Session, events: Iterable[ev.Event]) -> Session:
    """Fold several events."""
    return reduce(evolve, events, session)
