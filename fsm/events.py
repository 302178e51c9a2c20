"""What happened: one frozen model per kind, with a stored literal `kind` and a version `v`.

A kind is snake_case and past tense and is never derived from a class name. A default never changes within a version,
because a field that equals its default is not stored. Texts are Unicode, times are integer milliseconds since 1970 UTC.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from .states import State


class Value(BaseModel):
    """Base of everything that is stored: frozen, and no field that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AgentSpec(Value):
    """A node of the conversation. An agent without a model is a seat for a person."""

    name: str
    role: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    interrupt: Literal["always", "never"] = "never"


class Channel(Value):
    """A group: `director` names the model that picks the next speaker ("" picks at random)."""

    name: str
    members: tuple[str, ...]
    role: str = ""
    director: str = ""
    max_rounds: int = 10


class Limits(Value):
    """Caps of a session.

    `max_rounds` counts the messages of a pair since a person last spoke (that message included, preloaded history
    not); `max_tool_calls` counts the calls of a turn; times are seconds, None never runs out.
    """

    max_rounds: int = 100
    max_tool_calls: int = 10
    approval_seconds: float | None = 120.0
    question_seconds: float | None = 120.0
    queue: int = 100
    busy: Literal["queue", "refuse", "interrupt"] = "queue"
    on_error: Literal["wait", "terminate"] = "wait"


class Parent(Value):
    """Where a fork left its parent."""

    session: str
    seq: int
    hash: str


class Usage(Value):
    """Tokens of one or more completions."""

    input_tokens: int = 0
    output_tokens: int = 0
    completions: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """The sum."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            completions=self.completions + other.completions,
        )


class Attachment(Value):
    """A blob that goes with a message; `digest` is the sha256 under which the store keeps the bytes."""

    name: str
    media_type: str
    digest: str
    size: int


class Citation(Value):
    """A source that a tool used."""

    id: str
    title: str = ""
    url: str = ""
    excerpt: str = ""


class ModelRequest(Value):
    """What a model was sent, as digests into the log's blobs and a window of seqs of the history."""

    system: str
    tools: tuple[str, ...] = ()
    history: tuple[int, int] = (0, 0)
    context: str = ""


class Question(Value):
    """One question to a person; with `choices` the answer should be one of them."""

    text: str
    choices: tuple[str, ...] = ()


class CallRecord(Value):
    """A tool call as the model made it: `arguments` is the raw text, `parsed` what it means (None: no JSON object).

    A `gated` call runs only when a row allows it. `questions` are for a person: such a call runs nothing.
    """

    id: str
    provider_id: str = ""
    tool: str
    arguments: str
    parsed: dict[str, JsonValue] | None = None
    digest: str = ""
    gated: bool = True
    idempotent: bool = False
    questions: tuple[Question, ...] = ()


class EventBase(Value):
    """Base of the kinds below."""

    v: Literal[1] = 1


class SessionStarted(EventBase):
    kind: Literal["session_started"] = "session_started"
    owner: str
    agents: tuple[AgentSpec, ...]
    channels: tuple[Channel, ...] = ()
    entry: str = ""
    limits: Limits = Limits()
    code_version: str = ""
    parent: Parent | None = None


class MessageAdded(EventBase):
    """`by` is who made the text: a person, a model, or a preloaded history. `control` is TERMINATE or INTERRUPT."""

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


class MessageQueued(EventBase):
    kind: Literal["message_queued"] = "message_queued"
    message_id: str
    sender: str
    recipient: str
    text: str
    attachments: tuple[Attachment, ...] = ()


class SessionResumed(EventBase):
    kind: Literal["session_resumed"] = "session_resumed"
    epoch: int
    owner: str
    code_version: str = ""
    tools: dict[str, str] = {}


class SpeakerSelected(EventBase):
    kind: Literal["speaker_selected"] = "speaker_selected"
    channel: str
    speaker: str
    by: Literal["director", "random", "only_candidate"]
    raw: str = ""
    seed: int | None = None


class ToolsCalled(EventBase):
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
    kind: Literal["approvals_settled"] = "approvals_settled"


class QuestionAsked(EventBase):
    kind: Literal["question_asked"] = "question_asked"
    request_id: str
    call_id: str
    questions: tuple[Question, ...]
    deadline: int | None = None


class QuestionAnswered(EventBase):
    kind: Literal["question_answered"] = "question_answered"
    request_id: str
    outcome: Literal["answered", "skipped", "expired", "cancelled"]
    answers: tuple[str, ...] = ()


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


ToolOutcome = Literal[
    "ok",
    "error",
    "denied",
    "expired",
    "duplicate",
    "unknown_tool",
    "invalid_arguments",
    "cancelled",
    "outcome_unknown",
    "limit",
]


class ToolReturned(EventBase):
    kind: Literal["tool_returned"] = "tool_returned"
    call_id: str
    outcome: ToolOutcome
    content: str
    citations: tuple[Citation, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    duration_ms: int = 0


class TurnInterrupted(EventBase):
    """`node` is who is to speak next, `peer` whom they answer."""

    kind: Literal["turn_interrupted"] = "turn_interrupted"
    reason: Literal["user_turn", "requested", "stopped", "limit", "preloaded"]
    node: str
    peer: str


class TurnContinued(EventBase):
    """A person asked a model to speak for the awaited node; its message will be marked synthetic."""

    kind: Literal["turn_continued"] = "turn_continued"


class TurnFailed(EventBase):
    kind: Literal["turn_failed"] = "turn_failed"
    where: Literal["model", "director"]
    error: str
    message: str
    retryable: bool = True
    attempt: int = 1
    code: str = ""


class TurnRetried(EventBase):
    kind: Literal["turn_retried"] = "turn_retried"


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
    kind: Literal["grant_revoked"] = "grant_revoked"
    grant_id: str
    subject: str
    reason: str = ""


Code = Literal["conflict", "stale", "expired", "invalid", "unauthorised", "busy", "terminated"]


class InputRefused(EventBase):
    kind: Literal["input_refused"] = "input_refused"
    code: Code
    input: str
    why: str
    about: str = ""


class SessionTerminated(EventBase):
    kind: Literal["session_terminated"] = "session_terminated"
    reason: Literal["TERMINATE", "max_rounds", "stopped", "no_speaker", "failed"]


Event = (
    SessionStarted
    | MessageAdded
    | MessageQueued
    | SessionResumed
    | SpeakerSelected
    | ToolsCalled
    | ApprovalRequested
    | ApprovalShown
    | ApprovalResolved
    | ApprovalsSettled
    | QuestionAsked
    | QuestionAnswered
    | ToolStarted
    | ToolReturned
    | TurnInterrupted
    | TurnContinued
    | TurnFailed
    | TurnRetried
    | GrantRecorded
    | GrantRevoked
    | InputRefused
    | SessionTerminated
)
AnyEvent: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])
KINDS: dict[str, type[Event]] = {kind.model_fields["kind"].default: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True)
class Row:
    """One stored event with its envelope. `hash` is the 32-byte link of the chain; `state` is the state after it."""

    session: str
    seq: int
    state: State
    at: int
    actor: str
    event: Event
    command_id: str | None = None
    hash: bytes = b""
