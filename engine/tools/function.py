"""`@tool`: a typed function becomes a tool. Its signature is the JSON Schema that a model is shown.

@tool(needs_approval=True, risk="deletes a file")
def delete_file(path: str) -> str:
    "Delete one file."
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from ...fsm.canonical import canonical, clean, text_digest
from ...fsm.errors import Misuse
from ...fsm.events import Attachment, Citation
from ...fsm.history import provider_name
from ...fsm.inputs import Made
from ...fsm.values import ONCE_AN_ANSWER, Repeats
from ..models.base import ToolDefinition

Kind = TypeVar("Kind")


def _fit(kind: type[Kind], items: Sequence[Any]) -> list[Kind]:
    return [item for item in items if isinstance(item, kind)]


@dataclass(slots=True)
class ToolContext:
    """What a running tool may do besides returning. A parameter of this type is filled in and not shown to models."""

    session: str
    call_id: str
    idempotency_key: str
    note: Callable[[str], None]
    keep: Callable[[bytes], Awaitable[str]]
    notes: list[str] = field(default_factory=list)
    citations: list[Citation] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    _cancelled: bool = False

    def introspect(self, text: str) -> None:
        """Tell the viewers what is going on; kept with the result. Callable from any thread."""
        self.notes.append(clean(text))
        self.note(clean(text))

    def cite(self, *citations: Citation) -> None:
        """Add sources to the final answer, which shows each id once and 1,000 characters of an excerpt."""
        for one in citations:
            told = {name: clean(text) for name, text in one}
            self.citations.append(one if told == dict(one) else Citation(**told))

    async def attach(self, name: str, media_type: str, data: bytes) -> Attachment:
        """Keep bytes beside the result."""
        attachment = Attachment(name=name, media_type=media_type, digest=await self.keep(data), size=len(data))
        self.attachments.append(attachment)
        return attachment

    @property
    def made(self) -> Made:
        """What there is so far, as far as it can be stored."""
        return Made(
            tuple(_fit(Citation, self.citations)),
            tuple(_fit(Attachment, self.attachments)),
            tuple(_fit(str, self.notes)),
        )

    @property
    def cancelled(self) -> bool:
        """Whether the turn was stopped; a tool in a thread should look at it now and then."""
        return self._cancelled

    def cancel(self) -> None:
        """Make `cancelled` true."""
        self._cancelled = True


@dataclass(frozen=True)
class Tool:
    """A function with what the engine must know of it.

    `needs_approval`: every call waits for a word. `idempotent`: a second run with the same key does no harm, so a run
    cut off by a crash is repeated unasked. `repeats`: how often it may run (None: once per answer with the same
    arguments). `blocking`: a plain function, run in a thread. `examples`: questions, each with its arguments.
    `direct`: what it gives is the answer, no model is asked again, when it was called alone and ended well.
    """

    name: str
    description: str
    function: Callable[..., Any]
    arguments: type[BaseModel]
    needs_approval: bool = False
    idempotent: bool = False
    risk: str = ""
    context_parameter: str = ""
    asks: bool = False
    repeats: Repeats | None = None
    examples: tuple[tuple[str, dict[str, Any]], ...] = ()
    direct: bool = False

    @cached_property
    def definition(self) -> ToolDefinition:
        """What a model is shown."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.setdefault("properties", {})
        return ToolDefinition(provider_name(self.name), self.description, schema, self.examples, self.problem)

    @cached_property
    def definition_text(self) -> str:
        """The definition as canonical JSON."""
        shown = self.definition
        told: dict[str, Any] = {"name": shown.name, "description": shown.description, "parameters": shown.parameters}
        # Left out where there are none, so that the digest of such a tool is what it always was.
        return canonical(told | {"examples": shown.examples} if shown.examples else told)

    @cached_property
    def definition_digest(self) -> str:
        """The sha256 of the definition."""
        return text_digest(self.definition_text)

    @cached_property
    def blocking(self) -> bool:
        """Whether the function must run in a thread."""
        return not inspect.iscoroutinefunction(self.function)

    def problem(self, text: str) -> str:
        """What does not fit the schema, in words for a model; "" when the arguments (a JSON text) fit."""
        try:
            self.arguments.model_validate_json(text, strict=True)
        except ValidationError as error:
            return "; ".join(_told(one) for one in error.errors(include_url=False, include_context=False))
        return ""

    def values(self, text: str) -> dict[str, Any]:
        """The validated Python values of arguments (a JSON text), by parameter.

        Raises:
            pydantic.ValidationError: they do not fit.
        """
        valid = self.arguments.model_validate_json(text, strict=True)
        return {name: getattr(valid, name) for name in type(valid).model_fields}


def _told(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"]) or "arguments"
    return f"{where}: {error['msg']}"


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str = "",
    description: str = "",
    needs_approval: bool = False,
    idempotent: bool = False,
    risk: str = "",
    repeatable: bool = False,
    cooldown: float = 0,
    unique: bool = False,
    examples: Sequence[tuple[str, dict[str, Any]]] = (),
    direct: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    needs_approval: bool = False,
    idempotent: bool = False,
    risk: str = "",
    repeatable: bool = False,
    cooldown: float = 0,
    unique: bool = False,
    examples: Sequence[tuple[str, dict[str, Any]]] = (),
    direct: bool = False,
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool of a function with typed parameters.

    Args:
        function: sync (runs in a thread) or async.
        name: the function's name where it is left out.
        description: the docstring where it is left out.
        needs_approval: ask before each call.
        idempotent: repeating a call with the same arguments does no harm.
        risk: what can go wrong, in a few words, shown on the approval card.
        repeatable: the same arguments may run again and again, as when something is polled.
        cooldown: seconds that must pass between two runs, whatever the arguments.
        unique: it runs once per session.
        examples: pairs of a question and its arguments; models without native tool calls learn by them.
        direct: what it gives is the answer to the person, when it was called alone and ended well.

    Raises:
        Misuse: a parameter has no type, or cannot be given by name; the cooldown is no number of seconds; the
            arguments of an example do not fit.
    """
    repeats = _repeats(repeatable=repeatable, cooldown=cooldown, unique=unique)

    def wrap(inner: Callable[..., Any]) -> Tool:
        arguments, context = _arguments(inner)
        made = Tool(
            name or inner.__name__, description or inspect.getdoc(inner) or "", inner, arguments,
            needs_approval, idempotent, risk, context, repeats=repeats, examples=tuple(examples), direct=direct,
        )  # fmt: skip
        for question, shown in made.examples:
            if problem := made.problem(canonical(shown)):
                raise Misuse(f"the example {question!r} of tool {made.name!r} does not fit: {problem}")
        return made

    return wrap if function is None else wrap(function)


def _repeats(*, repeatable: bool, cooldown: float, unique: bool) -> Repeats | None:
    try:
        rule = Repeats(exact=not repeatable, cooldown_seconds=cooldown, unique=unique)
    except ValidationError as error:
        raise Misuse(f"cooldown {cooldown!r} is no number of seconds: give 0 or more") from error
    return None if rule == ONCE_AN_ANSWER else rule


def _arguments(function: Callable[..., Any]) -> tuple[type[BaseModel], str]:
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    context = ""
    for name, parameter in inspect.signature(function).parameters.items():
        label = f"parameter {name!r} of tool {function.__name__!r}"
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Misuse(f"{label} cannot be given by name: use plain parameters")
        if name not in hints:
            raise Misuse(f"{label} has no type: annotate it")
        if hints[name] is ToolContext:
            context = name
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints[name], default if default is ... else Field(default))
    return create_model(f"{function.__name__}_arguments", __config__=ConfigDict(extra="forbid"), **fields), context
