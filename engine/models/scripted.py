"""A model that plays a script. It is no language model; it says so in its name."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...fsm.events import Usage
from .base import CallDelta, CallMade, Delta, ModelCall, ModelError, ModelReply, TextDelta

USAGE = Usage(input_tokens=10, output_tokens=5, completions=1)


@dataclass(frozen=True, slots=True)
class Attempts:
    """What happens at the first, second, ... attempt of one completion; the last one stays."""

    each: tuple["Step", ...]


Step = ModelReply | ModelError | Attempts
Script = Sequence[Step] | Callable[[ModelCall], Step]


def say(text: str, **more: Any) -> ModelReply:
    """Answer with a text."""
    return ModelReply(text, usage=USAGE, **more)


def call(*calls: tuple[str, dict[str, Any] | str], text: str = "", finish: str = "tool_calls") -> ModelReply:
    """Call tools: pairs of a name and arguments (a dict, or the raw text)."""
    made = tuple(
        CallMade(name, arguments if isinstance(arguments, str) else json.dumps(arguments), f"call_{place}")
        for place, (name, arguments) in enumerate(calls)
    )
    return ModelReply(text, made, usage=USAGE, finish=finish)


def fail(kind: str = "server", message: str = "the provider failed", *, retryable: bool = True) -> ModelError:
    """Fail."""
    return ModelError(kind, message, retryable=retryable)


def attempts(*each: Step) -> Attempts:
    """One step per attempt."""
    return Attempts(each)


class ScriptedModel:
    """Plays step `index` of a script, which is how often the speaker has answered before: so it goes on after a crash.

    With `stream` the text comes word by word, without it in one piece.
    """

    def __init__(self, script: Script, name: str = "scripted", *, stream: bool = True) -> None:
        self.name = name
        self.script = script
        self.streams = stream
        self.calls: list[ModelCall] = []
        self.keep_calls = not callable(script)

    def _step(self, call: ModelCall) -> ModelReply | ModelError:
        if callable(self.script):
            step = self.script(call)
        elif call.index < len(self.script):
            step = self.script[call.index]
        else:
            step = ModelError("script_over", "the script has no further step", retryable=False)
        while isinstance(step, Attempts):
            step = step.each[min(call.attempt, len(step.each)) - 1]
        return step

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        """Play one step."""
        if self.keep_calls:
            self.calls.append(call)
        step = self._step(call)
        if isinstance(step, ModelError):
            raise step
        if self.streams:
            for word in re.findall(r"\S+\s*|\s+", step.text):
                yield TextDelta(word)
            for place, made in enumerate(step.calls):
                yield CallDelta(place, made.name, made.arguments)
        yield step
