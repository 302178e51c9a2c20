"""The parts that events are made of."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationInfo

LONGEST = 100 * 365 * 86_400  # seconds; what is meant to last longer has no end
MOST = 1_000_000_000  # of anything that is counted


def _seconds(value: float, info: ValidationInfo) -> float:
    """Bounds hold where a value is made. A stored one is read as it is: its log must stay readable."""
    if info.mode == "python" and value > LONGEST:
        raise ValueError(f"{value:g} s is more than {LONGEST} s, a hundred years: use less, or None for no end at all")
    return value


def _times(value: int, info: ValidationInfo) -> int:
    least = 1 if info.field_name == "max_rounds" else 0
    if info.mode == "python" and not least <= value <= MOST:
        raise ValueError(f"use a number from {least} to {MOST}")
    return value


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), AfterValidator(_seconds)]
Times = Annotated[int, AfterValidator(_times)]


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
    max_rounds: Times = 10


class Limits(Value):
    """Caps of a session.

    `max_rounds` counts the messages of a pair since a person last spoke (that message included, preloaded history
    not); `max_tool_calls` counts the calls of an answer, `max_tokens` the tokens of all its completions; `turn_seconds`
    runs from a person's message, whoever is waited for. Times are seconds, a hundred years at most, None never runs
    out. A message that is nothing but one of `stop_words` ends the open turn, one of `exit_words` the session, in
    whatever case.
    """

    max_rounds: Times = 100
    max_tool_calls: Times = 10
    approval_seconds: Seconds | None = 120.0
    question_seconds: Seconds | None = 120.0
    turn_seconds: Seconds | None = None
    max_tokens: Times | None = None
    stop_words: tuple[str, ...] = ("stop", "/stop", "halt", "/halt")
    exit_words: tuple[str, ...] = ("exit", "/exit", "/reset")
    queue: Times = 100
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
        if self is NO_USAGE:
            return other
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            completions=self.completions + other.completions,
        )


class Attachment(Value):
    """A blob that goes with a message; `digest` is the sha256 under which the store keeps the bytes.

    `whole`: no file of its own, but the full text of a result that was cut.
    """

    name: str
    media_type: str
    digest: str
    size: int
    whole: bool = False


class Citation(Value):
    """A source that a tool used. An answer holds each `id` once; of the excerpt 1,000 characters are kept."""

    id: str
    title: str = ""
    url: str = ""
    excerpt: str = ""


class ToolChoice(Value):
    """Why a model with many tools was offered these, in this order.

    `by`: "text" only put them in order; "embeddings" left out all but the best, and `always` the pinned and the used
    ones; "all" chose nothing, `problem` says why, and `tools` is empty since none of the `granted` was left out.
    """

    by: Literal["text", "embeddings", "all"]
    granted: int
    tools: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    model: str = ""
    problem: str = ""


class ModelRequest(Value):
    """What a model was sent, as digests into the log's blobs and a window of seqs of the history.

    `asked` are the seqs of the newest message to the speaker where it stands before that window, and not in it.
    `system` is the digest of the whole system text, `parts` are those of what follows the role in it. `context` is
    what was added to the newest message.
    `choice` is there where the tools were chosen, or put in order.
    """

    system: str
    tools: tuple[str, ...] = ()
    history: tuple[int, int] = (0, 0)
    asked: tuple[int, int] = (0, 0)
    context: str = ""
    parts: tuple[str, ...] = ()
    choice: ToolChoice | None = None


ToolOutcome = Literal[
    "ok", "error", "denied", "expired", "duplicate", "unknown_tool", "invalid_arguments", "cancelled",
    "outcome_unknown", "limit",
]  # fmt: skip


class Question(Value):
    """One question to a person; with `choices` the answer should be one of them."""

    text: str
    choices: tuple[str, ...] = ()


class Repeats(Value):
    """How often a tool may run: `exact` once per answer with the same arguments, a pause, `unique` once per session."""

    exact: bool = True
    cooldown_seconds: Seconds = 0.0
    unique: bool = False


class CallRecord(Value):
    """A tool call as the model made it: `arguments` is the raw text, `parsed` what it means (None: no JSON object).

    A `gated` call runs only when a row allows it. `questions` are for a person: such a call runs nothing.
    `repeats` is None for the rule that most tools have. The result of a `direct` call is the answer.
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
    repeats: Repeats | None = None
    direct: bool = False


NO_USAGE = Usage()
DEFAULT_LIMITS = Limits()
ONCE_AN_ANSWER = Repeats()
COOLDOWN_SECONDS = 30.0  # the pause of a tool that has one, where none is given
