"""What may reach a session: what people want (imperative) and what effects brought (observed).

Everything that the machine may not find out for itself (a tool's definition, the configured policy, a user's standing
grants, whether arguments fit a schema) comes in with the input as a fact.

What each turn makes is a named tuple, because a frozen dataclass takes several times longer to make.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import JsonValue

from .approval import Standing
from .events import (
    AgentSpec,
    ApprovalRequested,
    Attachment,
    Channel,
    Citation,
    Code,
    InputRefused,
    Limits,
    ModelRequest,
    Parent,
    Question,
    Repeats,
    Row,
    SessionStarted,
    ToolOutcome,
    Usage,
)
from .values import DEFAULT_LIMITS, NO_USAGE


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an input changed nothing. `code` is for programs, `why` for people."""

    code: Code
    why: str


# What people want ------------------------------------------------------------------------------


class Made(NamedTuple):
    """What a tool that still runs has brought so far; it stays when the tool is stopped."""

    citations: tuple[Citation, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()


MadeBy = dict[str, Made]  # by call id
NOTHING: MadeBy = {}


@dataclass(frozen=True, slots=True)
class Preloaded:
    """A message from before the session."""

    sender: str
    recipient: str
    text: str


@dataclass(frozen=True, slots=True)
class Start:
    """Create the session. `entry` is the node that a person's first message goes to ("" the first agent)."""

    owner: str
    agents: tuple[AgentSpec, ...]
    channels: tuple[Channel, ...] = ()
    entry: str = ""
    limits: Limits = DEFAULT_LIMITS
    code_version: str = ""
    parent: Parent | None = None
    history: tuple[Preloaded, ...] = ()
    actor: str = "turnlog"


@dataclass(frozen=True, slots=True)
class Fork:
    """Create the session as a fork. Without `owner` it is the parent's.

    `begun` is the first event of the parent, `rows` are those up to the fork that are copied (see `fork.COPIED`), and
    `asked` is what people were shown of its calls.
    """

    parent: Parent
    begun: SessionStarted
    rows: tuple[Row, ...]
    asked: dict[str, ApprovalRequested]
    owner: str = ""
    code_version: str = ""
    actor: str = "turnlog"


class Say(NamedTuple):
    """A person speaks. Without `sender` and `recipient` they speak for the awaited node, to its peer.

    `made` is what running tools have brought, in case that this stops them; so with `Stop` and `TimerFired`.
    """

    text: str
    actor: str
    sender: str = ""
    recipient: str = ""
    message_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    made: MadeBy = NOTHING


@dataclass(frozen=True, slots=True)
class Continue:
    """Let a model speak for the awaited node."""

    actor: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Try the failed turn again."""

    actor: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the open turn, or the whole session."""

    actor: str
    session: bool = False
    made: MadeBy = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edited:
    """Other arguments than those proposed, checked against the tool's schema: `problem` says what does not fit."""

    arguments: dict[str, JsonValue]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Decide:
    """A person's word on one request. `committed` (only for an unknown outcome): it did happen, with `result`."""

    request_id: str
    digest: str
    outcome: str
    actor: str
    reason: str = ""
    edited: Edited | None = None
    result: str = ""
    remember: str = ""
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers to an open question, in order; None skips it."""

    request_id: str
    answers: tuple[str, ...] | None
    actor: str


@dataclass(frozen=True, slots=True)
class Show:
    """A connection was sent the card of a request."""

    request_id: str
    digest: str
    connection: str
    actor: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A person allows a tool in advance."""

    tool: str
    actor: str
    subject: str
    scope: str = "user"
    match: str = ""
    expires_at: int | None = None
    max_uses: int | None = None


@dataclass(frozen=True, slots=True)
class Revoke:
    """A person takes a grant back. `grants` are the owner's standing grants (None: nobody has looked)."""

    grant_id: str
    actor: str
    subject: str
    reason: str = ""
    grants: tuple[Standing, ...] | None = None


@dataclass(frozen=True, slots=True)
class AllowRerun:
    """A person lets a tool run again that has run before."""

    tool: str
    actor: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """A person takes a member out of a channel."""

    channel: str
    member: str
    actor: str


# What the shell observed -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resume:
    """A new owner took the session."""

    epoch: int
    owner: str
    code_version: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    actor: str = "turnlog"


class ToolFacts(NamedTuple):
    """What the registry knows of a tool at this moment. `auto` is the configured rule that allows it unasked."""

    gated: bool = False
    idempotent: bool = False
    description: str = ""
    risk: str = ""
    definition: str = ""
    auto: str = ""
    repeats: Repeats | None = None
    direct: bool = False


class Proposed(NamedTuple):
    """A call that a model made, with facts. `problem` says why the arguments cannot be used ("" they can)."""

    tool: str
    arguments: str
    provider_id: str = ""
    parsed: dict[str, JsonValue] | None = None
    digest: str = ""
    problem: str = ""
    facts: ToolFacts | None = None
    questions: tuple[Question, ...] = ()


class ContextCame(NamedTuple):
    """What the sources of a speaker gave, as digests, before the completion `key`."""

    key: str
    speaker: str
    context: str = ""
    parts: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    actor: str = "turnlog"


class ModelReplied(NamedTuple):
    """A completion. `key` is that of the effect; `grants` are the owner's standing grants that still hold."""

    key: str
    message_id: str
    text: str
    calls: tuple[Proposed, ...] = ()
    reasoning: str = ""
    extras: str = ""
    usage: Usage = NO_USAGE
    model: str = ""
    finish: str = ""
    request: ModelRequest | None = None
    grants: tuple[Standing, ...] = ()
    available: tuple[str, ...] = ()
    actor: str = "model"


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """A completion or a director's choice that did not come."""

    key: str
    error: str
    message: str
    retryable: bool = True
    code: str = ""
    actor: str = "model"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class SpeakerChosen:
    """The director's raw answer ("" there is no director, or it was not asked), and a number to fall back on."""

    key: str
    raw: str
    seed: int
    actor: str = "director"
    model: str = ""
    usage: Usage | None = None


class ToolsReady(NamedTuple):
    """The shell is about to run these calls; `facts` per call id. A call without them waits for its tool.

    `grants` are the owner's standing grants that still hold.
    """

    facts: dict[str, ToolFacts]
    grants: tuple[Standing, ...] = ()
    actor: str = "turnlog"


class ToolFinished(NamedTuple):
    """How a run ended: ok or error."""

    key: str
    call_id: str
    outcome: ToolOutcome
    content: str
    citations: tuple[Citation, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    notes: tuple[str, ...] = ()
    duration_ms: int = 0
    actor: str = "tool"


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The deadline of a request or a question passed."""

    request_id: str
    actor: str = "timer"
    made: MadeBy = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refuse:
    """The shell refused an input before it reached the machine; keep that as a row."""

    refusal: InputRefused
    actor: str


Input = (
    Start
    | Fork
    | Say
    | Continue
    | Retry
    | Stop
    | Decide
    | Answer
    | Show
    | Grant
    | Revoke
    | AllowRerun
    | RemoveMember
    | Resume
    | ContextCame
    | ModelReplied
    | ModelFailed
    | SpeakerChosen
    | ToolsReady
    | ToolFinished
    | TimerFired
    | Refuse
)
