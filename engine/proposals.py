"""From what a model said to what the machine is told: names resolved, arguments parsed and checked, never repaired."""

import json
from collections.abc import Iterable
from typing import Any, NoReturn

from pydantic import JsonValue

from ..fsm.canonical import canonical, check_depth, clean, clean_json, text_digest
from ..fsm.events import Question
from ..fsm.history import provider_name
from ..fsm.inputs import Edited, Proposed
from .models.base import CallMade
from .tools.function import Tool
from .tools.registry import Registry


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON: use a number, or leave the argument out")


_READ = json.JSONDecoder(parse_constant=_no_constant).decode


def parse(arguments: str) -> tuple[dict[str, JsonValue] | None, str]:
    """The JSON object that a text is, or None and why it is none. An empty text and `null` mean no arguments."""
    if arguments.strip() in ("", "null"):
        return {}, ""
    try:
        check_depth(arguments)
    except ValueError as error:
        return None, str(error)
    try:
        value = _READ(arguments)
    except ValueError as error:
        return None, f"no complete JSON object ({error}); nothing was repaired"
    if not isinstance(value, dict):
        return None, f"a JSON object is needed, this is a {type(value).__name__}"
    try:
        return clean_json(value), ""
    except ValueError as error:
        return None, str(error)


CUT = "the answer was cut off at the token limit, so nothing of it ran; make the calls again, with less text"


def propose(
    calls: Iterable[CallMade], names: Iterable[str], registry: Registry, *, cut: bool = False
) -> tuple[Proposed, ...]:
    """The calls with what the registry knows of them. Of an answer that was `cut` at a limit, no call may run."""
    known = {provider_name(name): name for name in names}
    found = tuple(_propose(call, registry.get(known.get(call.name, call.name)), registry) for call in calls)
    return tuple(one._replace(problem=one.problem or CUT) for one in found) if cut else found


def _propose(call: CallMade, tool: Tool | None, registry: Registry) -> Proposed:
    parsed, problem = parse(call.arguments)
    text = ""
    if parsed is not None:
        try:
            text = canonical(parsed)
            problem = tool.problem(text) if tool is not None else ""
        except ValueError as error:  # a number too large for any reader
            parsed, problem = None, str(error)
    return Proposed(
        tool=clean(tool.name if tool else call.name),
        arguments=clean(call.arguments),
        provider_id=clean(call.provider_id),
        parsed=parsed,
        digest="" if parsed is None else text_digest(text),
        problem=problem,
        facts=registry.facts(tool) if tool else None,
        questions=_questions(parsed) if tool and tool.asks and parsed and not problem else (),
    )


def _questions(parsed: dict[str, Any]) -> tuple[Question, ...]:
    return tuple(Question(text=one["text"], choices=tuple(one.get("choices") or ())) for one in parsed["questions"])


def edit(arguments: Any, tool: Tool | None) -> Edited:
    """Edited arguments, checked like a model's."""
    if not isinstance(arguments, dict):
        return Edited({}, "a JSON object is needed")
    try:
        arguments = clean_json(arguments)
        if tool is None:
            return Edited(arguments, "the tool is not there any more")
        return Edited(arguments, tool.problem(canonical(arguments)))
    except ValueError as error:
        return Edited({}, f"no JSON object: {error}")
