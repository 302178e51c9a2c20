"""The card of a request on a terminal, and a person's word on it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .text import arguments, plain, visible

if TYPE_CHECKING:
    from ..fsm.events import ApprovalRequested

Ask = Callable[[str], str]

_GATED = {"a": "approve", "e": "edit", "d": "deny"}
_UNKNOWN = {"r": "run again", "c": "it took effect", "g": "give up"}
_SAID = {"y": "a", "yes": "a", "n": "d", "no": "d"}


@dataclass(frozen=True, slots=True)
class Word:
    """What a person decided: approved, denied, or (of an unknown outcome) committed with a result."""

    outcome: str
    arguments: dict[str, Any] | None = None
    reason: str = ""
    result: str = ""


def card(request: "ApprovalRequested", now: int | None = None) -> list[str]:
    """All that a person needs to decide: nothing is shortened. `now` is milliseconds since 1970."""
    lines = [f"{visible(request.tool)} {arguments(request.arguments)}"]
    if request.why == "outcome_unknown":
        lines.append("  It was started and cut off: whether it took effect is not known.")
    if request.description:
        lines.append(f"  {visible(request.description)}")
    if request.risk:
        lines.append(f"  risk: {visible(request.risk)}")
    lines.append(f"  request {request.request_id}")
    lines.append(f"  sha256 of the arguments {request.digest}")
    if request.deadline is not None:
        left = (request.deadline - (time.time_ns() // 1_000_000 if now is None else now)) / 1000
        lines.append(f"  {max(0, round(left))} seconds left, then it is not allowed")
    return lines


def ask_word(request: "ApprovalRequested", ask: Ask = input, default: Word | None = None) -> Word:
    """Ask until there is a usable word. An empty answer takes the default, if there is one."""
    choices = _UNKNOWN if request.why == "outcome_unknown" else _GATED
    menu = ", ".join(f"[{key}] {name}" for key, name in choices.items())
    hint = f" (Enter: {told(default)})" if default is not None else ""
    while True:
        said = ask(f"{menu}{hint}: ").strip().lower()
        if not said and default is not None:
            return default
        key = _SAID.get(said, said)[:1] if said in _SAID or said in choices.values() else said
        match key:
            case "a" | "r" if key in choices:
                return Word("approved")
            case "d" | "g" if key in choices:
                return Word("denied", reason=ask("reason (may be empty): ").strip())
            case "c" if key in choices:
                return Word("committed", result=ask("its result, for the model: ").strip())
            case "e" if key in choices:
                return Word("approved", _edited(request, ask))
        print(f"{visible(said)!r} is none of them: type one of {', '.join(choices)}")


def told(word: Word) -> str:
    """A word as a sentence."""
    if word.arguments is not None:
        return f"approve {arguments(word.arguments)}"
    verb = {"approved": "approve", "denied": "deny", "committed": "it took effect"}[word.outcome]
    return f'{verb} because "{plain(word.reason)}"' if word.reason else verb


def _edited(request: "ApprovalRequested", ask: Ask) -> dict[str, Any]:
    print(f"now: {arguments(request.arguments)}")
    while True:
        try:
            value = json.loads(ask("new arguments, a JSON object: "))
        except ValueError as error:
            print(f"that is no JSON ({error}): try again")
            continue
        if isinstance(value, dict):
            return value
        print("that is no JSON object: write for example " + json.dumps(dict(request.arguments)))
