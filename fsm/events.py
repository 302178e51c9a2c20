"""What happened: one frozen model per kind, with a stored literal `kind` and a version `v`.

A kind is snake_case and past tense and is never derived from a class name. A default never changes within a version,
because a field that equals its default is not stored. Texts are Unicode, times are integer milliseconds since 1970 UTC.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, JsonValue, TypeAdapter

from .states import State
from .values import (
    DEFAULT_LIMITS,
    AgentSpec,
    Attachment,
    CallRecord,
    Channel,
    Citation,
    Limits,
    ModelRequest,
    Parent,
    Question,
    Repeats,
    ToolOutcome,
    Usage,
    Value,
)

__all__ = [  # the parts of events are imported from here, too
    "KINDS", "AgentSpec", "AnyEvent", "ApprovalRequested", "ApprovalResolved", "ApprovalShown", "ApprovalsSettled",
    "Attachment", "CallRecord", "Channel", "Citation", "Code", "ContextFetched", "Event", "EventBase",
    "GrantRecorded", "GrantRevoked", "InputRefused", "Limits", "MemberRemoved", "MessageAdded", "MessageQueued",
    "ModelRequest", "Outcome", "Parent", "Question", "QuestionAnswered", "QuestionAsked", "Repeats", "RerunAllowed",
    "Row", "SessionResumed", "SessionStarted", "SessionTerminated", "SpeakerSelected", "ToolOutcome",
    "ToolReturned", "ToolStarted", "ToolsCalled", "TurnContinued", "TurnFailed", "TurnInterrupted", "TurnRetried",
    "Usage", "Value", "Via", "Why",
]  # fmt: skip


class EventBase(Value):
    """Base of the kinds below."""

    v: Literal[1] = 1


class Ending(EventBase):
    """Base of what ends an answer without its message: what its tools had brought by then."""

    citations: tuple[Citation, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class SessionStarted(EventBase):
    """The session exists. `entry` is the node that a person's first message goes to."""

    kind: Literal["session_started"] = "session_started"
    owner: str
    agents: tuple[AgentSpec, ...]
    channels: tuple[Channel, ...] = ()
    entry: str = ""
    limits: Limits = DEFAULT_LIMITS
    code_version: str = ""
    parent: Parent | None = None


class MessageAdded(EventBase):
    """`by` is who made the text: a person, a model, or a preloaded history. `control` is TERMINATE or INTERRUPT.

    An answer has the `citations` and the files that its tools brought.
    `deadline` is when the turn that a person's message begins runs out. `direct` is the call whose result this is: no
    model was asked for the answer.
    """

    kind: Literal["message_added"] = "message_added"
    message_id: str
    sender: str
    recipient: str
    text: str
    by: Literal["person", "model", "preload"] = "model"
    control: Literal["", "TERMINATE", "INTERRUPT"] = ""
    synthetic: bool = False
    attachments: tuple[Attachment, ...] = ()
    citations: tuple[Citation, ...] = ()
    model: str = ""
    finish: str = ""
    usage: Usage | None = None
    turn_usage: Usage | None = None
    reasoning: str = ""
    extras: str = ""
    request: ModelRequest | None = None
    deadline: int | None = None
    direct: str = ""


class MessageQueued(EventBase):
    """A person spoke while the machine was busy; becomes a message_added when their turn comes.

    If the session ends before that, session_terminated names it as dropped.
    """

    kind: Literal["message_queued"] = "message_queued"
    message_id: str
    sender: str
    recipient: str
    text: str
    attachments: tuple[Attachment, ...] = ()


class SessionResumed(EventBase):
    """A new owner took a session that had something in flight. `tools` maps a tool to its definition's digest."""

    kind: Literal["session_resumed"] = "session_resumed"
    epoch: int
    owner: str
    code_version: str = ""
    tools: dict[str, str] = Field(default_factory=dict)


class SpeakerSelected(EventBase):
    """A channel's next speaker. `raw` is the director's answer, `seed` what a random choice used.

    `model` and `usage` are those of the director, where one was asked.
    """

    kind: Literal["speaker_selected"] = "speaker_selected"
    channel: str
    speaker: str
    by: Literal["director", "random", "only_candidate"]
    raw: str = ""
    seed: int | None = None
    model: str = ""
    usage: Usage | None = None


class MemberRemoved(EventBase):
    """A member of a channel speaks there no more."""

    kind: Literal["member_removed"] = "member_removed"
    channel: str
    member: str


class ContextFetched(EventBase):
    """What the sources of an agent gave for this turn, as digests of blobs; it holds for every completion of the turn.

    `context` is added to the newest message, `parts` follow the role. `problems` says which sources failed.
    """

    kind: Literal["context_fetched"] = "context_fetched"
    speaker: str
    context: str = ""
    parts: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class ToolsCalled(EventBase):
    """A model asked for a round of calls."""

    kind: Literal["tools_called"] = "tools_called"
    message_id: str
    speaker: str
    listener: str
    calls: tuple[CallRecord, ...]
    text: str = ""
    model: str = ""
    finish: str = ""
    usage: Usage | None = None
    reasoning: str = ""
    extras: str = ""
    request: ModelRequest | None = None


Why = Literal["gated", "outcome_unknown"]


class ApprovalRequested(EventBase):
    """`why`: the tool needs a word before it runs, or it was started before a crash and nobody knows how it ended."""

    kind: Literal["approval_requested"] = "approval_requested"
    request_id: str
    call_id: str
    tool: str
    arguments: dict[str, JsonValue]
    digest: str
    why: Why = "gated"
    description: str = ""
    risk: str = ""
    rule: str = ""
    deadline: int | None = None


class ApprovalShown(EventBase):
    """A card with this digest was sent to a connection."""

    kind: Literal["approval_shown"] = "approval_shown"
    request_id: str
    digest: str
    connection: str


Outcome = Literal["approved", "denied", "expired", "cancelled", "committed"]
Via = Literal["env", "policy", "grant", "person", "timer"]


class ApprovalResolved(EventBase):
    """`committed` answers an unknown outcome: it did happen, with this `result`. `arguments` only when edited."""

    kind: Literal["approval_resolved"] = "approval_resolved"
    request_id: str
    call_id: str
    tool: str
    outcome: Outcome
    via: Via
    actor: str
    decided_at: int
    digest: str
    rule: str = ""
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None
    result: str = ""
    remembered: str = ""


class ApprovalsSettled(EventBase):
    """No request is open any more."""

    kind: Literal["approvals_settled"] = "approvals_settled"


class QuestionAsked(EventBase):
    """A call asks a person; the session waits in `interrupt`."""

    kind: Literal["question_asked"] = "question_asked"
    request_id: str
    call_id: str
    questions: tuple[Question, ...]
    deadline: int | None = None


class QuestionAnswered(EventBase):
    """The question is closed; a skipped answer is ""."""

    kind: Literal["question_answered"] = "question_answered"
    request_id: str
    outcome: Literal["answered", "skipped", "expired", "cancelled"]
    answers: tuple[str, ...] = ()
    actor: str = ""
    answered_at: int = 0


class ToolStarted(EventBase):
    """`permit` is the request id that allowed it, or "free" for a tool that needs no approval."""

    kind: Literal["tool_started"] = "tool_started"
    call_id: str
    tool: str
    attempt: int
    key: str
    digest: str
    permit: str
    definition: str = ""
    idempotent: bool = False


class ToolReturned(EventBase):
    """The one result of a call. `edited` are the arguments that ran, where a person changed them.

    `duration_ms` is for people, nothing is decided by it; `ended_at` is told of tools that need a pause.
    """

    kind: Literal["tool_returned"] = "tool_returned"
    call_id: str
    outcome: ToolOutcome
    content: str
    citations: tuple[Citation, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    duration_ms: int = 0
    ended_at: int = 0
    edited: dict[str, JsonValue] | None = None


class TurnInterrupted(Ending):
    """`node` is who is to speak next, `peer` whom they answer."""

    kind: Literal["turn_interrupted"] = "turn_interrupted"
    reason: Literal["user_turn", "requested", "stopped", "limit", "time", "preloaded"]
    node: str
    peer: str


class TurnContinued(EventBase):
    """A person asked a model to speak for the awaited node; its message will be marked synthetic. `deadline`: as of
    a message.
    """

    kind: Literal["turn_continued"] = "turn_continued"
    deadline: int | None = None


class TurnFailed(Ending):
    """A completion or a director's choice did not come, but may have cost `usage`. `attempt` counts from 1."""

    kind: Literal["turn_failed"] = "turn_failed"
    where: Literal["model", "director"]
    error: str
    message: str
    retryable: bool = True
    attempt: int = 1
    code: str = ""
    usage: Usage | None = None


class TurnRetried(EventBase):
    """A person wants the failed turn tried again, up to `deadline`."""

    kind: Literal["turn_retried"] = "turn_retried"
    deadline: int | None = None


class GrantRecorded(EventBase):
    """A standing permission. `match` is a digest of exact arguments, "" matches any."""

    kind: Literal["grant_recorded"] = "grant_recorded"
    grant_id: str
    subject: str
    tool: str
    scope: Literal["session", "user"]
    match: str = ""
    expires_at: int | None = None
    max_uses: int | None = None


class GrantRevoked(EventBase):
    """A standing permission ends."""

    kind: Literal["grant_revoked"] = "grant_revoked"
    grant_id: str
    subject: str
    reason: str = ""


class RerunAllowed(EventBase):
    """A tool may run again, whatever ran before in this session."""

    kind: Literal["rerun_allowed"] = "rerun_allowed"
    tool: str


Code = Literal["conflict", "stale", "expired", "invalid", "unauthorised", "busy", "terminated"]


class InputRefused(EventBase):
    """An input changed nothing. `about` is the request, call or grant that it named."""

    kind: Literal["input_refused"] = "input_refused"
    code: Code
    input: str
    why: str
    about: str = ""


class SessionTerminated(Ending):
    """The end. `dropped` are the ids of messages that still waited: nobody will answer them."""

    kind: Literal["session_terminated"] = "session_terminated"
    reason: Literal["TERMINATE", "max_rounds", "stopped", "no_speaker", "failed"]
    dropped: tuple[str, ...] = ()


Event = (
    SessionStarted | MessageAdded | MessageQueued | SessionResumed | SpeakerSelected | MemberRemoved
    | ContextFetched | ToolsCalled | ApprovalRequested | ApprovalShown | ApprovalResolved | ApprovalsSettled
    | QuestionAsked | QuestionAnswered | ToolStarted | ToolReturned | TurnInterrupted | TurnContinued | TurnFailed
    | TurnRetried | GrantRecorded | GrantRevoked | RerunAllowed | InputRefused | SessionTerminated
)  # fmt: skip
AnyEvent: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
KINDS: dict[str, type[Event]] = {kind.model_fields["kind"].default: kind for kind in Event.__args__}


class Row(NamedTuple):
    """One stored event with its envelope. `hash` is the 32-byte link of the chain; `state` is the state after it."""

    session: str
    seq: int
    state: State
    at: int
    actor: str
    event: Event
    command_id: str | None = None
    hash: bytes = b""
