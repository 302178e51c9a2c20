"""Real models (OpenAI, Anthropic, compatible servers) through pydantic-ai's direct API (extra `models`).

Only that library's request and stream are used; its message format is never stored. It is imported when a
model is opened, since its providers take seconds to import and are no dependency of the core.
"""

import json
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...fsm.canonical import clean
from ...fsm.errors import Misuse
from ...fsm.events import Usage
from .base import CallDelta, CallMade, Delta, ModelCall, ModelError, ModelReply, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent, ToolCallPart

    from .pydantic_ai_wire import Route

KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_BASE_URLS = {"openai": "OPENAI_BASE_URL", "anthropic": "ANTHROPIC_BASE_URL"}
# Clients refuse to start without a key, local servers ignore it.
_NO_KEY = "not-set"
_DEMO = "`turnlog demo` runs without a key or an extra."
_OFFICIAL = frozenset({"api.openai.com", "api.anthropic.com"})
# The library makes up an id with this prefix where the provider sent none.
_MADE_UP_ID = "pyd_ai_"

Blobs = Callable[[str], bytes]


def open_model(
    spec: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    settings: dict[str, Any] | None = None,
    blobs: Blobs | None = None,
) -> "PydanticAIModel":
    """Open a model by name.

    `spec` is `openai:NAME` or `anthropic:NAME`; with `base_url` also a bare NAME, asked of an
    OpenAI-compatible server. Without `base_url` it and the key may come from OPENAI_BASE_URL and OPENAI_API_KEY
    or ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY; with it only `api_key` is sent, so that no key reaches a server
    that it was not made for. `settings` are pydantic-ai's model settings (max_tokens, temperature, timeout in
    seconds, extra_body, ...). `blobs` gives the bytes of an attachment by its digest,
    where not the engine's own log holds them.

    Raises:
        Misuse: the name, a setting, the key or the extra is missing or wrong; the message says what to do.
    """
    provider, name = _split(spec, base_url)
    url = base_url if base_url is not None else os.environ.get(_BASE_URLS[provider]) or None
    host = _host(url) if url is not None else None
    key = api_key or (os.environ.get(KEYS[provider]) if base_url is None else None)
    if not key and url is None:
        raise Misuse(f"No key for {spec}: set {KEYS[provider]} or pass api_key. {_DEMO}")
    try:
        from . import pydantic_ai_wire as wire
    except ImportError as error:
        raise Misuse(f"Real models need an extra ({error}): pip install 'turnlog[models]'. {_DEMO}") from error
    settings = dict(settings or {})
    wire.check_settings(provider, settings)
    compatible = host is not None and host not in _OFFICIAL
    route = wire.open_route(provider, name, url, key or _NO_KEY, compatible=compatible)
    return PydanticAIModel(name, route, settings, blobs)


def _split(spec: str, base_url: str | None) -> tuple[str, str]:
    provider, colon, name = spec.partition(":")
    if provider not in KEYS or not colon:
        # A local model's own name may hold a colon, as in qwen3:0.6b.
        provider, name = ("openai", spec) if base_url is not None else ("", spec)
    if not provider or not name.strip():
        raise Misuse(
            f"{spec!r} names no model: write openai:NAME or anthropic:NAME, or give the base URL of an "
            f"OpenAI-compatible server. {_DEMO}"
        )
    return provider, name


def _host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.scheme in ("http", "https") and parts.port != 0 else None
    except ValueError:
        host = None
    if host is None:
        raise Misuse(f"{url!r} is no base URL; write one such as http://127.0.0.1:11434/v1.")
    return host


class PydanticAIModel:
    """A `Model` over pydantic-ai, made by `open_model`, for one event loop; `aclose` ends its connections."""

    def __init__(self, name: str, route: "Route", settings: dict[str, Any], blobs: Blobs | None = None) -> None:
        self.name = name
        self._route, self._settings, self._blobs = route, settings, blobs

    async def aclose(self) -> None:
        """Close the connections."""
        await self._route.client.aclose()

    async def stream(self, call: ModelCall) -> AsyncGenerator[Delta | ModelReply, None]:
        """Send one request, never a second one; closing or cancelling the iteration closes the connection.

        Raises:
            ModelError: the completion failed; nothing of it counts.
        """
        from pydantic_ai.direct import model_request_stream

        from . import pydantic_ai_messages as mapping
        from . import pydantic_ai_wire as wire

        reader = _Reader()
        try:
            wire.check_settings(self._route.provider, call.settings)
            blobs = self._blobs or call.blob
            messages = mapping.to_messages(call, self._route.model.system, self._route.provider, blobs)
            parameters = mapping.to_parameters(call, self._route.provider)
            settings = mapping.to_settings(call, self._settings | call.settings, parameters)
            async with model_request_stream(
                self._route.model,
                messages,
                model_request_parameters=parameters,
                model_settings=self._route.settings(settings),
            ) as response:
                async for event in response:
                    for delta in reader.read(event):
                        yield delta
                for delta in reader.rest():
                    yield delta
                reply = _reply(response.get(), mapping.to_extras)
        except Exception as error:
            raise wire.failure(error, self._route, begun=reader.begun) from error
        yield reply


class _Reader:
    """The library's stream events as deltas. The halves of a character that came in two events are joined."""

    def __init__(self) -> None:
        self._calls: dict[int, CallDelta] = {}
        self._held: dict[str | int, str] = {}
        self.begun = False

    def read(self, event: "ModelResponseStreamEvent") -> Iterator[Delta]:
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
            ToolCallPart,
            ToolCallPartDelta,
        )

        self.begun = True
        if isinstance(event, PartStartEvent):
            match event.part:
                case TextPart() as part:
                    yield from self._text(part.content)
                case ThinkingPart() as part:
                    yield from self._reasoning(part.content)
                case ToolCallPart() as part:
                    yield self._call(event.index, part.tool_name, _arguments(part))
                case _:  # parts of the provider's own tools, which are never asked for
                    pass
        elif isinstance(event, PartDeltaEvent):
            match event.delta:
                case TextPartDelta() as delta:
                    yield from self._text(delta.content_delta)
                case ThinkingPartDelta() as delta:
                    yield from self._reasoning(delta.content_delta or "")
                case ToolCallPartDelta() as delta:
                    piece = delta.args_delta if isinstance(delta.args_delta, str) else ""
                    yield self._call(event.index, delta.tool_name_delta or "", piece)
                case _:
                    pass

    def rest(self) -> Iterator[Delta]:
        """What was held back for a second half that never came."""
        if half := self._held.pop("text", ""):
            yield TextDelta(clean(half))
        if half := self._held.pop("reasoning", ""):
            yield ReasoningDelta(clean(half))
        for delta in self._calls.values():
            if half := self._held.pop(delta.index, ""):
                yield CallDelta(delta.index, delta.name, clean(half))

    def _text(self, piece: str) -> Iterator[Delta]:
        if text := self._whole("text", piece):
            yield TextDelta(text)

    def _reasoning(self, piece: str) -> Iterator[Delta]:
        if text := self._whole("reasoning", piece):
            yield ReasoningDelta(text)

    def _call(self, part: int, name: str, piece: str) -> CallDelta:
        known = self._calls.get(part, CallDelta(len(self._calls), "", ""))
        delta = CallDelta(known.index, known.name + name, self._whole(known.index, piece))
        self._calls[part] = delta
        return delta

    def _whole(self, channel: str | int, piece: str) -> str:
        text = self._held.pop(channel, "") + piece
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[channel], text = text[-1], text[:-1]
        return clean(text)


def _reply(response: "ModelResponse", to_extras: Callable[["ModelResponse"], str]) -> ModelReply:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    details = response.provider_details or {}
    raw_finish = str(details.get("finish_reason") or "")
    text = clean("".join(part.content for part in response.parts if isinstance(part, TextPart)))
    made = [part for part in response.parts if isinstance(part, ToolCallPart)]
    if response.finish_reason == "content_filter":
        why = str(details.get("refusal") or text or "no reason was given")
        raise ModelError("refused", f"The model refused: {why[:500]}", retryable=False, code=raw_finish)
    if raw_finish == "error":
        raise ModelError(
            "server", "The provider broke the answer off with an error; nothing of it is kept.", code="error"
        )
    if not raw_finish:
        raise ModelError("incomplete", "The stream ended before the model had finished; nothing of it is kept.")
    if not text.strip() and not made:
        raise ModelError("empty_reply", f"The model answered nothing (finish reason {raw_finish}).", code=raw_finish)
    return ModelReply(
        text=text,
        calls=tuple(_made(part) for part in made),
        reasoning=clean("".join(part.content for part in response.parts if isinstance(part, ThinkingPart))),
        extras=to_extras(response),
        usage=Usage(
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            completions=1,
        ),
        model=response.model_name or "",
        finish=response.finish_reason or raw_finish,
    )


def _made(part: "ToolCallPart") -> CallMade:
    provider_id = "" if part.tool_call_id.startswith(_MADE_UP_ID) else part.tool_call_id
    return CallMade(clean(part.tool_name), clean(_arguments(part)), clean(provider_id))


def _arguments(part: "ToolCallPart") -> str:
    """The arguments as text. Some servers send them as JSON instead of as text."""
    if part.args is None:
        return ""
    return part.args if isinstance(part.args, str) else json.dumps(part.args, ensure_ascii=False)
