"""Tools for models that have none: what such a model is asked, in words, examples and a schema of what it may say.

Each tool is listed with its parameters, shown in use as a question and an answer that look like turns of the
conversation, and joined by the pseudo-tool `answer`. Calls and results of the past are turns too, so that a pick is
made with everything in sight. `picks.read` reads what comes back.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from .events import Attachment
from .history import AssistantMessage, CallPart, Message, UserMessage
from .picks import Offer

# Characters of a string, where a grammar holds a model to a schema. llama.cpp dies of a bound of 2,000.
STRING_LIMIT = 300
ANSWER_LIMIT = 600
_SAID_LIMIT = 2000  # characters of a bad answer that are shown to the model again
_DEEPEST_REF = 4
_LEFT_OUT = "(earlier messages are left out)"
_CONTINUE = "(Continue.)"
_WORDS = (("Hello!", "Hello! What can I do for you?"), ("Thank you!", "You are welcome."))
_RESULTS = (0, 2, 4)  # tools that are shown with a result: with more of them, words become too likely
_RULES = """You can use tools. Answer with one JSON object and nothing else:
{{"name": "TOOL", "arguments": {{...}}}}
To answer in words use the tool {answer}. The tools:"""

Json = dict[str, Any]


class Offered(Protocol):
    """A tool as it is offered; `examples` are pairs of a question and the arguments that it leads to."""

    @property
    def name(self) -> str:
        """As the model says it."""

    @property
    def description(self) -> str:
        """What it does, in words."""

    @property
    def parameters(self) -> Json:
        """The JSON Schema of its arguments."""

    @property
    def examples(self) -> Sequence[tuple[str, Json]]:
        """Questions, each with its arguments; may be empty."""


class Failed(NamedTuple):
    """A try that could not be used: what was said, and why it was no use."""

    said: str
    problem: str


class Prompt(NamedTuple):
    """Plain texts for a model without tools; the messages begin with a user's and alternate."""

    system: str
    messages: tuple[Message, ...]


def build(
    role: str, messages: Sequence[Message], tools: Sequence[Offered], offer: Offer, failed: Sequence[Failed] = ()
) -> Prompt:
    """What the model is sent: the role and the tools, examples as turns, the history, and what was wrong so far."""
    turns = _Turns()
    system = role
    if tools:
        listed = "\n".join(_described(tool) for tool in tools)
        rules = _RULES.format(answer=offer.answer)
        told = f"{rules}\n{listed}\n- {offer.answer}(text: string): Say something to the user."
        system = f"{told}\n\n{role}" if role.strip() else told
        _show_examples(turns, tools, offer)
    _show_history(turns, messages, offer if tools else None)
    for one in failed:
        turns.assistant(one.said[:_SAID_LIMIT].strip() or "(nothing)")
        turns.user(feedback(one.problem, offer))
    if not turns.messages or isinstance(turns.messages[-1], AssistantMessage):
        turns.user(_CONTINUE)
    return Prompt(system, tuple(turns.messages))


def feedback(problem: str, offer: Offer) -> str:
    """What the model is told of an answer that was no use."""
    if not offer.names:
        return f"That could not be used: {problem}. Answer in words."
    return (
        f"That was not run: {problem}. Answer again with one JSON object, "
        f'{{"name": ..., "arguments": {{...}}}}; to answer in words, with the tool {offer.answer}.'
    )


def spoken(name: str, arguments: Json) -> str:
    """A call as a text, in the form that is asked for."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


class _Turns:
    """Messages of two sides that alternate: neighbours of one side are joined."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def user(self, text: str, attachments: tuple[Attachment, ...] = ()) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, UserMessage):
            joined = "\n\n".join(part for part in (last.text, text) if part.strip())
            self.messages[-1] = UserMessage(joined, last.attachments + attachments)
        else:
            self.messages.append(UserMessage(text, attachments))

    def assistant(self, text: str) -> None:
        if not self.messages or isinstance(self.messages[-1], AssistantMessage):
            self.user(_LEFT_OUT if not self.messages else _CONTINUE)
        self.messages.append(AssistantMessage(text))


def _show_history(turns: _Turns, messages: Iterable[Message], offer: Offer | None) -> None:
    waiting: dict[str, CallPart] = {}
    for message in messages:
        match message:
            case UserMessage():
                turns.user(message.text, message.attachments)
            case AssistantMessage():
                if message.text.strip() and not message.calls:
                    text = message.text
                    turns.assistant(spoken(offer.answer, {"text": text}) if offer else text)
                waiting |= {call.id: call for call in message.calls}
            case _:
                # One by one, as they are asked for: a call, its result.
                if call := waiting.pop(message.call_id, None):
                    turns.assistant(f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}')
                told = "" if message.outcome == "ok" else f" ({message.outcome})"
                turns.user(f"Result of {message.name}{told}: {message.content}", message.attachments)


def _described(tool: Offered) -> str:
    needed = set(tool.parameters.get("required", ()))
    listed = ", ".join(
        f"{name}: {_type(schema)}{'' if name in needed else ', optional'}"
        for name, schema in tool.parameters.get("properties", {}).items()
    )
    description = " ".join(tool.description.split())
    return f"- {tool.name}({listed}): {description}"


def _type(schema: Json) -> str:
    if "const" in schema or "enum" in schema:
        return " or ".join(json.dumps(one) for one in schema.get("enum", [schema.get("const")]))
    if some := schema.get("anyOf"):
        return " or ".join(_type(one) for one in some)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    return str(schema.get("type", "object"))


def _show_examples(turns: _Turns, tools: Sequence[Offered], offer: Offer) -> None:
    # Words first and the tools in rounds, since a weak model prefers what it saw last, twice the more so.
    for question, text in _WORDS:
        turns.user(question)
        turns.assistant(spoken(offer.answer, {"text": text}))
    each = [tuple(tool.examples) or (_example(tool),) for tool in tools]
    for turn in range(max(map(len, each))):
        for place, (tool, examples) in enumerate(zip(tools, each, strict=True)):
            if turn >= len(examples):
                continue
            question, arguments = examples[turn]
            turns.user(question)
            turns.assistant(spoken(tool.name, arguments))
            if not turn and place in _RESULTS:
                # That a result leads to words, and not to the same call again.
                turns.user(f"Result of {tool.name}: done")
                turns.assistant(spoken(offer.answer, {"text": "It is done."}))


def _example(tool: Offered) -> tuple[str, Json]:
    """A question and arguments made from the schema, for a tool that came without examples."""
    schema = tool.parameters
    needed = schema.get("required", ())
    arguments = {
        name: sample(one, schema.get("$defs", {}))
        for name, one in schema.get("properties", {}).items()
        if name in needed
    }
    told = ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value)}" for name, value in arguments.items()
    )
    description = " ".join(tool.description.split()).rstrip(".") or tool.name
    return f"{description}: {told}" if told else f"{description}.", arguments


def sample(schema: Json, defs: Json, depth: int = 0) -> Any:
    """A value that a schema allows, as far as it is a plain one."""
    if ref := schema.get("$ref"):
        return sample(defs.get(str(ref).rsplit("/", 1)[-1], {}), defs, depth + 1) if depth < _DEEPEST_REF else {}
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if some := schema.get("anyOf") or schema.get("oneOf"):
        return sample(some[0], defs, depth)
    match schema.get("type"):
        case "string":
            return "x" * max(schema.get("minLength", 0), 0) or "something"
        case "integer" | "number":
            low, above = schema.get("minimum"), schema.get("exclusiveMinimum")
            return low if low is not None else (above + 1 if above is not None else min(3, schema.get("maximum", 3)))
        case "boolean":
            return True
        case "array":
            return [sample(schema.get("items") or {}, defs, depth)] * max(schema.get("minItems", 1), 1)
        case "null":
            return None
        case _:
            needed = schema.get("required", ())
            inner = schema.get("properties", {})
            return {name: sample(inner[name], defs, depth) for name in needed if name in inner}


def schema(tools: Sequence[Offered], offer: Offer, limit: int = STRING_LIMIT) -> Json:
    """The JSON Schema of what may be said: one object per tool, with its name as a constant, and the answer.

    Strings are bounded, since a weak model that has begun one may never end it; references are written out.
    """
    words = {
        "type": "object",
        "properties": {"text": {"type": "string", "maxLength": ANSWER_LIMIT}},
        "required": ["text"],
    }
    some = [_object(tool.name, bounded(tool.parameters, tool.parameters.get("$defs", {}), limit)) for tool in tools]
    return {"anyOf": [*some, _object(offer.answer, words)]}


def _object(name: str, arguments: Json) -> Json:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": {"additionalProperties": False, **arguments}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


_TOLD_ONLY = frozenset({"$defs", "title", "description", "default", "examples", "discriminator"})


def bounded(part: Any, defs: Json, limit: int, depth: int = 0) -> Any:
    """The schema with every string bounded, references written out, and without what only tells."""
    if isinstance(part, list):
        return [bounded(one, defs, limit, depth) for one in part]
    if not isinstance(part, dict):
        return part
    if ref := part.get("$ref"):
        # One that holds itself has no end; the check of the arguments decides.
        target = defs.get(str(ref).rsplit("/", 1)[-1], {})
        return bounded(target, defs, limit, depth + 1) if depth < _DEEPEST_REF else {"type": "object"}
    kept: Json = {}
    for key, value in part.items():
        if key == "properties":
            kept[key] = {name: bounded(one, defs, limit, depth) for name, one in value.items()}
        elif key in ("enum", "const", "required"):
            kept[key] = value
        elif key not in _TOLD_ONLY:
            kept[key] = bounded(value, defs, limit, depth)
    if kept.get("type") == "string" and "enum" not in kept and "const" not in kept:
        kept["maxLength"] = min(kept.get("maxLength", limit), limit)
    return kept
