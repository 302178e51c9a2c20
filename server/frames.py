"""Every frame of the protocol `turnlog.v1`, as a pydantic model with a literal `type`.

What a client sends is validated strictly: no coercion, no unknown field. Each command but `hello` carries an `id` of
the client's choice and is answered exactly once: by a `reply`, by the frame that it asks for, or by an `error` with
that id.
Texts are Unicode, times are integer milliseconds since 1970 UTC.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

PROTOCOL = "turnlog.v1"

# Integers of the log have 64 bits.
Seq = Annotated[int, Field(ge=0, le=2**63 - 1)]
Name = Annotated[str, Field(min_length=1, max_length=128)]
# The id of a new session ends up in lists, links and file names of exports.
NewSession = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}$")]


class FromClient(BaseModel):
    """Base of what a client sends."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Hello(FromClient):
    """The first frame of a connection, and the only place for the token."""

    type: Literal["hello"]
    protocol: str
    token: Annotated[str, Field(max_length=4096)]


class Command(FromClient):
    """Base of what comes after `hello`. An `id` names one command for ever: sending it again has no second effect."""

    id: Name


class LimitsGiven(FromClient):
    """Caps of a new session; what is left out is as the engine is configured. See `Limits`."""

    max_rounds: Annotated[int, Field(ge=1, le=100_000)] | None = None
    max_tool_calls: Annotated[int, Field(ge=0, le=10_000)] | None = None
    approval_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    question_seconds: Annotated[float, Field(gt=0, le=31_536_000)] | None = None
    queue: Annotated[int, Field(ge=0, le=10_000)] | None = None
    busy: Literal["queue", "refuse", "interrupt"] | None = None
    on_error: Literal["wait", "terminate"] | None = None


class Create(Command):
    """Start a session that the principal owns. Without `session` the server chooses the id.

    A session of that id which they own already, with the same entry and limits, is the answer too (`repeated`).
    """

    type: Literal["create"]
    session: NewSession | None = None
    entry: Annotated[str, Field(max_length=128)] = ""
    limits: LimitsGiven | None = None


class Fork(Command):
    """Start a session that the principal owns, where `session` stood after its row `seq`; that one stays as it is.

    What was allowed there is asked about again. Without `new` the server chooses the id; the fork of that id, if it
    left the same parent at the same seq, is the answer too (`repeated`).
    """

    type: Literal["fork"]
    session: Name
    seq: Annotated[int, Field(ge=1, le=2**63 - 1)]
    new: NewSession | None = None


class Open(Command):
    """View a session: rows with seq > after, then `live`, then what happens. `deltas`, `notes`: what is not in rows."""

    type: Literal["open"]
    session: Name
    after: Seq = 0
    deltas: bool = True
    notes: bool = True


class Close(Command):
    """View a session no longer. It goes on."""

    type: Literal["close"]
    session: Name


class Send(Command):
    """Say something; while the session is busy it is queued or refused, as its limits say."""

    type: Literal["send"]
    session: Name
    text: str
    sender: Annotated[str, Field(max_length=128)] = ""
    recipient: Annotated[str, Field(max_length=128)] = ""


class Decide(Command):
    """A word on one request. `digest` is that of the arguments as shown; `arguments` replaces them."""

    type: Literal["decide"]
    session: Name
    request: Name
    digest: Annotated[str, Field(max_length=128)]
    outcome: Literal["approved", "denied", "committed"]
    reason: str = ""
    arguments: dict[str, JsonValue] | None = None
    result: str = ""
    remember: Literal["", "session", "user"] = ""
    exact: bool = False


class Answer(Command):
    """Answers to an open question, in order; null skips it."""

    type: Literal["answer"]
    session: Name
    request: Name
    answers: list[str] | None


class Stop(Command):
    """End the open turn, or the session for good."""

    type: Literal["stop"]
    session: Name
    scope: Literal["turn", "session"] = "turn"


class Retry(Command):
    """Try the failed turn again."""

    type: Literal["retry"]
    session: Name


class Continue(Command):
    """Let a model speak for the awaited node; its message is marked synthetic."""

    type: Literal["continue"]
    session: Name


class Grant(Command):
    """Allow a tool in advance, for the session or for its owner in every session."""

    type: Literal["grant"]
    session: Name
    tool: Name
    scope: Literal["session", "user"] = "user"
    match: Annotated[str, Field(max_length=128)] = ""
    expires_at: Seq | None = None
    max_uses: Annotated[int, Field(ge=1, le=2**31)] | None = None


class Revoke(Command):
    """Take a grant back."""

    type: Literal["revoke"]
    session: Name
    grant: Name
    reason: str = ""


class Grants(Command):
    """Ask which grants hold in a session; answered by `grants`."""

    type: Literal["grants"]
    session: Name


class ListSessions(Command):
    """Ask for a page of the sessions that the principal may see; answered by `sessions`."""

    type: Literal["list"]
    after: Annotated[str, Field(max_length=128)] = ""
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class Fetch(Command):
    """Ask for a part of a body that was too large for its `event` frame; answered by `part`."""

    type: Literal["fetch"]
    session: Name
    seq: Seq
    part: Annotated[int, Field(ge=0, le=1_000_000)] = 0


ClientCommand = (
    Create
    | Fork
    | Open
    | Close
    | Send
    | Decide
    | Answer
    | Stop
    | Retry
    | Continue
    | Grant
    | Revoke
    | Grants
    | ListSessions
    | Fetch
)
ClientFrame: TypeAdapter[Hello | ClientCommand] = TypeAdapter(
    Annotated[Hello | ClientCommand, Field(discriminator="type")]
)


class FromServer(BaseModel):
    """Base of what the server sends."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitsTold(FromServer):
    """What the server takes and gives: sizes in bytes, `rate` in frames a second."""

    max_frame: int
    max_body: int
    rate: float
    burst: int


class Welcome(FromServer):
    """The answer to a good `hello`. `connection` is how `approval_shown` rows name this connection."""

    type: Literal["welcome"] = "welcome"
    protocol: str
    principal: str
    role: str
    connection: str
    limits: LimitsTold
    version: str


class Refused(FromServer):
    """Why a command changed nothing: a code for programs, a text for people."""

    code: str
    why: str


class Reply(FromServer):
    """What became of a command: durable at `seq`, and if `refused` is set it changed nothing.

    `repeated`: a command with this id had been applied before, at `seq`; this time nothing happened.
    """

    type: Literal["reply"] = "reply"
    id: str
    session: str
    seq: int
    refused: Refused | None = None
    repeated: bool = False


class ErrorFrame(FromServer):
    """A frame that could not be carried out; nothing was changed.

    `session` and `seq` are set when it is about a session that the principal may see.
    """

    type: Literal["error"] = "error"
    code: str
    message: str
    id: str | None = None
    session: str | None = None
    seq: int | None = None


class EventFrame(FromServer):
    """One row of the log. `body` is the event without `kind` and `v`; a `large` one is left out, see `fetch`."""

    type: Literal["event"] = "event"
    session: str
    seq: int
    state: str
    kind: str
    v: int
    at: int
    actor: str
    hash: str
    body: dict[str, JsonValue] | None
    large: bool = False
    size: int | None = None


class Delta(FromServer):
    """More of a message that is being made; not a row, and not sent again. `offset` is in characters of this kind.

    `kind` is text, reasoning, call (`index` and `name` tell which one, `text` is more of its arguments) or note (what a
    running tool tells; `message_id` is its call id). `seq` is the last row before it.
    """

    type: Literal["delta"] = "delta"
    session: str
    seq: int
    message_id: str
    kind: Literal["text", "reasoning", "call", "note"]
    offset: int
    text: str
    index: int = 0
    name: str = ""


class Live(FromServer):
    """All rows up to `seq` were sent; what follows is news."""

    type: Literal["live"] = "live"
    session: str
    seq: int


class TroubleFrame(FromServer):
    """Something that no row tells: the storage is full, another process took the session."""

    type: Literal["trouble"] = "trouble"
    session: str
    seq: int
    code: str
    message: str


class SessionLine(FromServer):
    """A session in a list. `broken` says why it cannot be read, or "". A fork names its parent."""

    session: str
    seq: int
    state: str
    owner: str
    first_at: int
    last_at: int
    broken: str = ""
    parent: str = ""
    parent_seq: int = 0


class Sessions(FromServer):
    """A page of sessions in order of id. `next`: ask again with `after` = this, null at the end."""

    type: Literal["sessions"] = "sessions"
    id: str
    sessions: tuple[SessionLine, ...]
    next: str | None = None


class GrantLine(FromServer):
    """A grant that holds, and how often it was used."""

    grant: str
    subject: str
    tool: str
    scope: Literal["session", "user"]
    match: str = ""
    expires_at: int | None = None
    max_uses: int | None = None
    used: int = 0


class GrantsTold(FromServer):
    """The grants of a session: its own and its owner's."""

    type: Literal["grants"] = "grants"
    id: str
    session: str
    seq: int
    grants: tuple[GrantLine, ...]


class Part(FromServer):
    """Part `part` of `parts` of a row's body: `text` joined over all parts is the body as JSON."""

    type: Literal["part"] = "part"
    id: str
    session: str
    seq: int
    part: int
    parts: int
    text: str


AnyServerFrame = Welcome | Reply | ErrorFrame | EventFrame | Delta | Live | TroubleFrame | Sessions | GrantsTold | Part
ServerFrame: TypeAdapter[AnyServerFrame] = TypeAdapter(Annotated[AnyServerFrame, Field(discriminator="type")])


def encoded(frame: FromServer) -> bytes:
    """The frame as UTF-8 JSON."""
    return frame.model_dump_json().encode()
