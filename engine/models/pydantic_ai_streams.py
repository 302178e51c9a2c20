"""What servers stream is set right here, event by event, where the SDKs or the library would take it wrongly.

In Anthropic's style the library keeps one block per index for ever, and would glue a second call under one index to
the first one; and the SDK passes over events without a name, also when they are errors. In OpenAI's style an error
that is not under the key `error` would look like an answer that was cut off, or even like a whole one.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
from anthropic import _streaming as anthropic_events
from openai import _streaming as openai_events

from ...fsm.canonical import DEEPEST_WRITTEN, read_json
from .base import ModelError

# Pieces of other kinds are news of a later release of the API, and nothing that a session keeps.
_DELTAS = frozenset(
    {
        "text_delta",
        "input_json_delta",
        "thinking_delta",
        "signature_delta",
        "citations_delta",
        "compaction_delta",
    }
)


class AnthropicClient(anthropic.AsyncAnthropic):
    """The SDK's client with our reading of a stream."""

    def _make_sse_decoder(self) -> anthropic_events.SSEDecoder:
        return _AnthropicEvents()


class _AnthropicEvents(anthropic_events.SSEDecoder):
    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[anthropic_events.ServerSentEvent]:
        blocks = Blocks()
        async for event in super().aiter_bytes(iterator):
            data = _object(event.data)
            if data is None:
                yield event
                continue
            name = event.event or data.get("type") or ("error" if "error" in data else None)
            for one in blocks.read(data):
                # A piece that `blocks` adds has the name of its own type.
                named = name if one.get("type") == data.get("type") else one["type"]
                yield anthropic_events.ServerSentEvent(event=named, data=json.dumps(one))


class OpenAIClient(openai.AsyncOpenAI):
    """The SDK's client with our reading of a stream."""

    def _make_sse_decoder(self) -> openai_events.SSEDecoder:
        return _OpenAIEvents()


class _OpenAIEvents(openai_events.SSEDecoder):
    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[openai_events.ServerSentEvent]:
        async for event in super().aiter_bytes(iterator):
            data = _object(event.data)
            error = None if data is None else error_in(data, named=event.event == "error")
            if error is None:
                yield event
            else:
                yield openai_events.ServerSentEvent(data=json.dumps({"error": error}))


def error_in(data: dict[str, Any], *, named: bool = False) -> dict[str, Any] | None:
    """The error that an event in OpenAI's style holds: under `error`, in a choice, or as the event itself.

    `named`: the event is called an error.
    """
    choices = data.get("choices") or ()
    found = data.get("error") or next((c["error"] for c in choices if isinstance(c, dict) and c.get("error")), None)
    if found is None and (named or data.get("object") == "error") and not choices:
        found = data
    return found if isinstance(found, dict) or found is None else {"message": str(found)}


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = read_json(text, DEEPEST_WRITTEN)
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


def call_begins_anew(known_id: str, known_name: str, arguments: str, new_id: str, name: str, given: str) -> bool:
    """Whether a piece with a name begins another call than the one that is open under its index.

    It does when it bears another id; without ids that tell (blank, or equal to the name), when it has another name,
    or begins one more JSON object while the open one is whole.
    """
    if not known_name:
        return False
    known = known_id if known_id != known_name else ""
    if new_id and known:
        return new_id != known
    return name != known_name or (given.lstrip().startswith("{") and whole(arguments))


def whole(arguments: str) -> bool:
    """Whether the text is a JSON object, so that no more of it can follow."""
    try:
        return isinstance(read_json(arguments, DEEPEST_WRITTEN), dict)
    except ValueError:
        return False


@dataclass
class _Block:
    index: int
    type: str
    id: str = ""
    name: str = ""
    given: Any = None  # arguments that came with the beginning; pieces take their place
    arguments: str = ""
    open: bool = True


class Blocks:
    """Gives each block an index of its own.

    A block begins under an index when nothing is open there; a second beginning goes on with what is open when it
    is the same call, told apart as for `call_begins_anew`. Arguments that come with the beginning count when no
    pieces follow.
    """

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._under: dict[Any, _Block] = {}

    def read(self, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """What the library is given in place of an event."""
        match data.get("type"):
            case "content_block_start":
                yield from self._start(data)
            case "content_block_delta":
                yield from self._piece(data)
            case "content_block_stop":
                block = self._under.get(data.get("index"))
                if block is not None:
                    yield from _held(block)
                    block.open = False
                    yield {**data, "index": block.index}
            case "message_delta":
                for block in self._blocks:
                    yield from _held(block)
                yield data
            case _:
                yield data

    def _start(self, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        content = data.get("content_block")
        if not isinstance(content, dict):
            return
        under, kind = data.get("index"), str(content.get("type"))
        before = self._under.get(under)
        call_id, name = str(content.get("id") or ""), str(content.get("name") or "")
        if (
            before is not None
            and before.open
            and before.type == kind == "tool_use"
            and not call_begins_anew(before.id, before.name, before.arguments, call_id, name, "{")
        ):
            return
        block = self._under[under] = self._new(kind, call_id, name)
        if kind != "tool_use":
            yield {**data, "index": block.index}
            return
        given = content.get("input")
        yield {**data, "index": block.index, "content_block": {**content, "id": call_id, "name": name, "input": {}}}
        if isinstance(given, str):
            yield from _text(block, given)
        else:
            block.given = given

    def _new(self, kind: str, call_id: str = "", name: str = "") -> _Block:
        self._blocks.append(_Block(len(self._blocks), kind, call_id, name))
        return self._blocks[-1]

    def _piece(self, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        delta = data.get("delta")
        if not isinstance(delta, dict) or delta.get("type") not in _DELTAS:
            return
        block = self._under.get(data.get("index"))
        if block is None and delta["type"] != "input_json_delta":
            block = self._under[data.get("index")] = self._new("text")
        if block is None:
            raise ModelError(
                "server",
                f"The stream holds a piece of block {data.get('index')}, a call that never began; nothing is kept.",
            )
        if delta["type"] != "input_json_delta":
            yield {**data, "index": block.index}
        elif piece := delta.get("partial_json"):
            yield from _text(block, str(piece))


def _held(block: _Block) -> Iterator[dict[str, Any]]:
    if block.given:
        yield from _text(block, json.dumps(block.given, ensure_ascii=False))


def _text(block: _Block, piece: str) -> Iterator[dict[str, Any]]:
    block.given = None
    block.arguments += piece
    if piece:
        delta = {"type": "input_json_delta", "partial_json": piece}
        yield {"type": "content_block_delta", "index": block.index, "delta": delta}
