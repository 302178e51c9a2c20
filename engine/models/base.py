"""The narrow protocol between the engine and any model: a request goes in, deltas come out, then one reply."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...fsm.history import Message
from ...fsm.values import NO_USAGE, Usage


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is shown it. `parameters` is a JSON Schema object; `name` is provider-safe.

    For models without tools of their own: `examples` are pairs of a question and the arguments that it leads to, and
    `check` tells what is wrong with arguments (a JSON text), "" when they fit; the machine checks again.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    examples: tuple[tuple[str, dict[str, Any]], ...] = ()
    check: Callable[[str], str] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ModelCall:
    """All that a model is sent. `index` counts this speaker's earlier completions, `attempt` its failures.

    `blob` gives the bytes of an attachment by its digest.
    """

    system: str
    messages: Sequence[Message]
    tools: tuple[ToolDefinition, ...] = ()
    index: int = 0
    attempt: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    blob: Callable[[str], bytes] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of a tool call: `index` tells the calls of one completion apart, `arguments` is the new piece of text."""

    index: int
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """A whole tool call. `arguments` is the raw text as the provider sent it, never repaired."""

    name: str
    arguments: str
    provider_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The assembled completion, always last. `extras` is opaque provider detail (JSON text), sent back as it is."""

    text: str
    calls: tuple[CallMade, ...] = ()
    reasoning: str = ""
    extras: str = ""
    usage: Usage = NO_USAGE
    model: str = ""
    finish: str = "stop"


_ONE = Usage(completions=1)


def counted(usage: Usage) -> Usage:
    """A completion is one, also where the provider did not count it."""
    return usage if usage.completions else usage.plus(_ONE)


Delta = TextDelta | ReasoningDelta | CallDelta


class ModelError(Exception):
    """A completion that did not come.

    `kind` is one of connection, timeout, rate_limit, authentication, not_found, refused, overloaded, server,
    incomplete, empty_reply, unusable_call, bad_request, unknown. `code` is the provider's own word for it, `usage` what
    it cost all the same.
    """

    def __init__(
        self, kind: str, message: str, *, retryable: bool = True, code: str = "", usage: Usage | None = None
    ) -> None:
        super().__init__(message)
        self.kind, self.message, self.retryable, self.code, self.usage = kind, message, retryable, code, usage


class Model(Protocol):
    """Something that answers. It makes no retries of its own: a retry is an event."""

    name: str

    def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        """Yield deltas, then exactly one `ModelReply`; cancelling the iteration stops the generation.

        Raises:
            ModelError: the completion failed; nothing of it counts.
        """
        ...
