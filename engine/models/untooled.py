"""`Untooled`: any model as one that calls tools, also a small local one that was never taught to.

agent = Agent("@agent", Untooled(open_model("smollm2", base_url=...), constrain="json_object"), tools=[search])

The tools are put into words and examples, and what the model says is read as a call or as an answer. A call that
comes of it takes the way of every call: checked again, approved where it must be, recorded. What could not be used is
told to the model, which may try again, `retries` times; each try is a completion of the usage that the log keeps.
"""

import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ...fsm.errors import Misuse
from ...fsm.picks import Answer, Gate, Offer, Pick, Unfit, read, thinking
from ...fsm.untooled import Failed, build, schema
from ...fsm.values import NO_USAGE, Usage
from ..proposals import parse
from .base import CallDelta, CallMade, Delta, Model, ModelCall, ModelError, ModelReply, ReasoningDelta, TextDelta

RETRIES = 2
# Not one of these finishes left the answer whole.
_CUT = frozenset({"length", "max_tokens", "content_filter", "error", "incomplete", "cancelled"})
_SHOWN = 500  # characters of an answer in an error

Constrain = Literal["json_object", "json_schema"] | Callable[[dict[str, Any]], dict[str, Any]]


def _settings(constrain: Constrain, wanted: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Model settings that hold the model to a schema; servers disagree about where it goes."""
    if callable(constrain):
        return given | constrain(wanted)
    if constrain == "json_object":  # llama-cpp-python
        form: dict[str, Any] = {"type": "json_object", "schema": wanted}
    else:  # llama-server, vLLM, Ollama, OpenAI
        form = {"type": "json_schema", "json_schema": {"name": "call", "schema": wanted, "strict": True}}
    return given | {"extra_body": {**(given.get("extra_body") or {}), "response_format": form}}


@dataclass
class _Tries:
    """What the tries of one completion came to."""

    usage: Usage = NO_USAGE
    reasoning: str = ""
    failed: list[Failed] = field(default_factory=list)

    def add(self, reply: ModelReply, thought: str) -> None:
        """Count a try."""
        used = reply.usage if reply.usage.completions else reply.usage.plus(Usage(completions=1))
        self.usage = self.usage.plus(used)
        self.reasoning += reply.reasoning + thought

    @property
    def extras(self) -> str:
        """The tries that came to nothing, as JSON text for the log; "" where the first one was good."""
        if not self.failed:
            return ""
        return json.dumps({"untooled": [one._asdict() for one in self.failed]}, ensure_ascii=False)


class Untooled:
    """A `Model` that calls tools, made of one that answers in texts.

    Args:
        model: what is asked, without tools.
        retries: how often it may try again after an answer that could not be used, in one completion.
        constrain: hold the model to a JSON Schema of the calls that are possible: "json_object" (llama-cpp-python)
            or "json_schema" (llama-server, vLLM, Ollama) put it into the request's `response_format`; a function from
            the schema to model settings may put it anywhere else. None leaves the model free.

    Raises:
        Misuse: the number of retries is negative, or the constraint unknown.
    """

    def __init__(self, model: Model, *, retries: int = RETRIES, constrain: Constrain | None = None) -> None:
        if retries < 0:
            raise Misuse(f"retries={retries}: give 0 or more")
        if constrain is not None and not callable(constrain) and constrain not in ("json_object", "json_schema"):
            raise Misuse(f"constrain={constrain!r}: give 'json_object', 'json_schema', a function or None")
        self.name = model.name
        self.model, self.retries, self.constrain = model, retries, constrain

    async def aclose(self) -> None:
        """Close the model."""
        if (aclose := getattr(self.model, "aclose", None)) is not None:
            await aclose()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Delta | ModelReply, None]:
        """Ask until there is an answer or a call that fits. Words are streamed once they can be nothing but words.

        Raises:
            ModelError: the model failed, or made no call that could be used in all its tries (unusable_call).
        """
        offer = Offer(tool.name for tool in call.tools)
        checks = {tool.name: tool.check for tool in call.tools}
        tries = _Tries()
        while True:
            gate = Gate(offer)
            reply: ModelReply | None = None
            deltas = self.model.stream(self._asked(call, offer, tries.failed))
            try:
                async for delta in deltas:
                    if isinstance(delta, ModelReply):
                        reply = delta
                        break
                    if (shown := _shown(delta, gate)) is not None:
                        yield shown
            finally:
                if (aclose := getattr(deltas, "aclose", None)) is not None:
                    await aclose()
            if reply is None:
                raise ModelError("incomplete", "the stream ended without a reply")
            thought, said = thinking(_text(reply))
            tries.add(reply, thought)
            if thought:
                yield ReasoningDelta(thought)
            found = read(said, offer, lambda name, text: _problem(checks[name], text), cut=reply.finish in _CUT)
            if gate.shown and not isinstance(found, Answer):
                found = Answer(gate.shown)  # somebody has read it, so it is an answer
            outcome = self._again(found, said, tries) if isinstance(found, Unfit) else found
            if outcome is not None:
                break
        if isinstance(outcome, Pick):
            made = CallMade(outcome.name, outcome.arguments)
            yield CallDelta(0, made.name, made.arguments)
            yield _whole(reply, tries, calls=(made,), finish="tool_calls")
            return
        if len(outcome.text) > len(gate.shown) and outcome.text.startswith(gate.shown):
            yield TextDelta(outcome.text[len(gate.shown) :])
        yield _whole(reply, tries, text=outcome.text)

    def _asked(self, call: ModelCall, offer: Offer, failed: list[Failed]) -> ModelCall:
        prompt = build(call.system, call.messages, call.tools, offer, failed)
        settings = call.settings
        if self.constrain is not None and call.tools:
            settings = _settings(self.constrain, schema(call.tools, offer), settings)
        attempt = call.attempt + len(failed)
        return replace(
            call, system=prompt.system, messages=prompt.messages, tools=(), attempt=attempt, settings=settings
        )

    def _again(self, unfit: Unfit, said: str, tries: _Tries) -> Answer | None:
        """None when the model may try again. What names no tool that is offered may be shown in the end."""
        if len(tries.failed) < self.retries:
            tries.failed.append(Failed(said, unfit.problem))
            return None
        if unfit.harmless and said.strip():
            return Answer(said)
        count = len(tries.failed) + 1
        raise ModelError(
            "unusable_call",
            f"The model made no call that could be used in {count} {'try' if count == 1 else 'tries'}; nothing ran. "
            f"The last: {unfit.problem}. It had said: {said[:_SHOWN]!r}. Retry, or ask in other words.",
            usage=tries.usage,
        )


def _shown(delta: Delta, gate: Gate) -> Delta | None:
    """What may be shown of a delta by now."""
    match delta:
        case ReasoningDelta():
            return delta
        case TextDelta():
            more = gate.feed(delta.text)
            return TextDelta(more) if more else None
        case _:
            return None


def _text(reply: ModelReply) -> str:
    """What was said; a call that a server made of it by itself is turned back into a text, to be read like any."""
    calls = (f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments or "{}"}}}' for call in reply.calls)
    return "\n".join(calls) if reply.calls else reply.text


def _problem(check: Callable[[str], str] | None, arguments: str) -> str:
    """The check that the call will meet again when it is recorded."""
    parsed, problem = parse(arguments)
    return problem if parsed is None or check is None else check(arguments)


def _whole(
    reply: ModelReply, tries: _Tries, *, text: str = "", calls: tuple[CallMade, ...] = (), finish: str = ""
) -> ModelReply:
    return ModelReply(
        text=text, calls=calls, reasoning=tries.reasoning, extras=tries.extras, usage=tries.usage, model=reply.model,
        finish=finish or reply.finish,
    )  # fmt: skip
