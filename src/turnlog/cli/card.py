"""The card of a request on a terminal, and a person's word on it."""

import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .text import arguments, say, visible

if TYPE_CHECKING:
    from ..fsm.events import ApprovalRequested

Ask = Callable[[str], str]
AskLater = Callable[[str], Awaitable[str]]

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
    lines.append(f"  request {visible(request.request_id)}")
    lines.append(f"  sha256 of the arguments {visible(request.digest)}")
    if left := remaining(request, now):
        lines.append(f"  {left}")
    return lines


def remaining(request: "ApprovalRequested", now: int | None = None) -> str:
    """How long a request waits, and what then; "" when it waits for ever. The time runs on while no program does."""
    if request.deadline is None:
        return ""
    left = (request.deadline - (time.time_ns() // 1_000_000 if now is None else now)) / 1000
    end = "it is given up and not run again" if request.why == "outcome_unknown" else "it is not allowed"
    return f"{max(0, round(left))} seconds left, then {end}"


def is_word(said: str) -> bool:
    """Whether a line is what a card asks for, and hardly anything else."""
    words = {**_GATED, **_UNKNOWN, **_SAID}
    return said.strip().lower() in {*words.keys(), *_GATED.values(), *_UNKNOWN.values()}


async def ask_word_async(request: "ApprovalRequested", ask: AskLater, default: Word | None = None) -> Word:
    """Ask until there is a usable word. An empty answer takes the default, if there is one."""
    choices = _UNKNOWN if request.why == "outcome_unknown" else _GATED
    menu = ", ".join(f"[{key}] {name}" for key, name in choices.items())
    hint = f" (Enter: {told(default)})" if default is not None else ""
    while True:
        said = (await ask(f"{menu}{hint}: ")).strip().lower()
        if not said and default is not None:
            return default
        match next((key for key, name in choices.items() if _SAID.get(said, said) in (key, name)), ""):
            case "a" | "r":
                return Word("approved")
            case "d" | "g":
                return Word("denied", reason=(await ask("reason (may be empty): ")).strip())
            case "c":
                return Word("committed", result=(await ask("its result, for the model: ")).strip())
            case "e":
                return Word("approved", await _edited(request, ask))
            case _:
                say(f"{visible(said) or 'nothing'} is none of them: type one of {', '.join(choices)}")


def ask_word(request: "ApprovalRequested", ask: Ask = input, default: Word | None = None) -> Word:
    """The same where nothing else goes on meanwhile."""

    async def now(prompt: str) -> str:
        return ask(prompt)

    try:
        ask_word_async(request, now, default).send(None)
    except StopIteration as done:
        word: Word = done.value
        return word
    raise AssertionError("nothing was awaited")


def told(word: Word) -> str:
    """A word as a sentence."""
    if word.arguments is not None:
        return f"approve {arguments(word.arguments)}"
    verb = {"approved": "approve", "denied": "deny", "committed": "it took effect"}[word.outcome]
    return f'{verb} because "{visible(word.reason)}"' if word.reason else verb


async def _edited(request: "ApprovalRequested", ask: AskLater) -> dict[str, Any]:
    say(f"now: {arguments(request.arguments)}")
    while True:
        try:
            value = json.loads(await ask("new arguments, a JSON object: "))
        except ValueError as error:
            say(f"that is no JSON ({visible(str(error))}): try again")
            continue
        if isinstance(value, dict):
            return value
        say("that is no JSON object: try again")
