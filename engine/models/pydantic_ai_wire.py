"""What the adapter does to pydantic-ai itself: clients without retries, tool-call fragments, errors."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDeltaToolCall, ChoiceDeltaToolCallFunction
from pydantic_ai import exceptions as ai
from pydantic_ai.messages import ModelResponseStreamEvent
from pydantic_ai.models import Model, create_async_httpx2_client
from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIChatModelSettings, OpenAIStreamedResponse
from pydantic_ai.profiles.anthropic import AnthropicModelProfile
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from ...fsm.errors import Misuse
from .base import ModelError
from .pydantic_ai_streams import AnthropicClient, OpenAIClient, call_begins_anew, whole

_SETTINGS = {
    "openai": OpenAIChatModelSettings.__annotations__,
    "anthropic": AnthropicModelSettings.__annotations__,
}
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
# A thinking block that no longer fits a changed prompt is dropped, in place of a refusal of the request.
_DROP_STALE_THINKING = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
# Most providers' messages are shorter; a page of HTML is not worth more.
_MESSAGE_LIMIT = 500


@dataclass(frozen=True, slots=True)
class Route:
    """A model of the library with the client that it uses and the settings that it always gets."""

    provider: str
    model: Model
    client: httpx2.AsyncClient
    url: str
    always: dict[str, Any] = field(default_factory=dict)

    def settings(self, chosen: dict[str, Any]) -> ModelSettings:
        """The settings of one request."""
        return cast("ModelSettings", self.always | chosen)


def check_settings(provider: str, settings: dict[str, Any]) -> None:
    """Refuse what the library would pass over in silence.

    Raises:
        Misuse: a setting is unknown, or would make retries that the log does not see.
    """
    if "max_retries" in settings:
        raise Misuse("max_retries cannot be set: a retry is an event of the session, the client makes none.")
    if unknown := sorted(settings.keys() - _SETTINGS[provider].keys()):
        known = ", ".join(sorted(_SETTINGS[provider]))
        raise Misuse(f"Unknown model settings {', '.join(unknown)}; there are: {known}.")


def open_route(provider: str, name: str, base_url: str | None, api_key: str, *, compatible: bool) -> Route:
    """The library's model for a provider, over a client that sends each request once."""
    host = urlsplit(base_url).hostname if base_url else None
    http = create_async_httpx2_client(transport=_direct() if host in _LOOPBACK else None)
    if provider == "anthropic":
        anthropic = AnthropicClient(api_key=api_key, base_url=base_url, max_retries=0, http_client=http)
        binds = AnthropicModel(name, provider=AnthropicProvider(anthropic_client=anthropic)).profile
        always = {"anthropic_thinking": _DROP_STALE_THINKING} if binds.get("anthropic_binds_thinking_blocks") else {}
        # With this flag the library would send a refused request a second time, unseen.
        once = AnthropicModelProfile(anthropic_binds_thinking_blocks=False)
        claude = AnthropicModel(name, provider=AnthropicProvider(anthropic_client=anthropic), profile=once)
        return Route(provider, claude, http, str(anthropic.base_url), always)
    openai = OpenAIClient(api_key=api_key, base_url=base_url, max_retries=0, http_client=http)
    if not compatible:
        return Route(
            provider,
            ChatModel(name, provider=OpenAIProvider(openai_client=openai)),
            http,
            str(openai.base_url),
        )
    # Several servers ignore max_completion_tokens and then never stop.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    service = OpenAICompatibleProvider(f"compatible/{host}", openai_client=openai)
    return Route(provider, ChatModel(name, provider=service, profile=profile), http, str(openai.base_url))


def _direct() -> httpx2.AsyncHTTPTransport:
    """To a server on this machine: past any proxy of the environment, which could not reach it.

    And each time anew: nothing is sent twice, so a kept connection that the server just dropped would fail.
    """
    return httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))


@dataclass
class _Call:
    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    again: str | None = None  # the id of a fragment with its name that came when it was whole


class Fragments:
    """Which call a fragment belongs to; servers disagree about index, id and name.

    A fragment goes to the call under its index, or without an index to the last one. It begins a new call
    when nothing is there, or when it has a name and `call_begins_anew`. Id and name are set once, since some
    servers repeat both in each fragment and some make up a new id for each. Where neither tells, the same name
    after a whole call begins a new one as soon as arguments follow.
    """

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._under: dict[int, _Call] = {}

    def place(self, fragment: ChoiceDeltaToolCall) -> None:
        """Rewrite the fragment in place: our index; id and name only where they are new."""
        function = fragment.function or ChoiceDeltaToolCallFunction()
        name, given = function.name or "", _text(function.arguments)
        telling = fragment.id or ""
        # Servers do leave the index out, whatever the type says.
        where = cast("int | None", fragment.index)
        call = self._under.get(where) if where is not None else self._without_index(telling, name)
        if call is not None and call.again is not None and not name and given.lstrip().startswith("{"):
            name, fragment.id = call.name, call.again
            call = None
        if call is None or (name and call_begins_anew(call.id, call.name, call.arguments, telling, name, given)):
            call = _Call(len(self._calls))
            self._calls.append(call)
            function.name = name
        else:
            if name == call.name != "" and whole(call.arguments):
                call.again = telling
            function.name = name if name and not call.name else None
        if where is not None:
            self._under[where] = call
        fragment.id = fragment.id if fragment.id and not call.id else None
        call.id = call.id or fragment.id or ""
        call.name = call.name or name
        call.arguments += given
        function.arguments = given if function.arguments is not None else None
        fragment.function, fragment.index = function, call.index

    def _without_index(self, telling: str, name: str) -> _Call | None:
        known = next((call for call in self._calls if telling and call.id == telling), None)
        if known is not None or name or not self._calls:
            return known
        return self._calls[-1]


def _text(arguments: object) -> str:
    if arguments is None or isinstance(arguments, str):
        return arguments or ""
    return json.dumps(arguments, ensure_ascii=False)


class ChatModel(OpenAIChatModel):
    """Chat Completions with our own rule for which call a fragment belongs to."""

    @property
    def _streamed_response_cls(self) -> type[OpenAIStreamedResponse]:
        return ChatStream


@dataclass
class ChatStream(OpenAIStreamedResponse):
    """A stream whose tool-call fragments carry our index in place of the provider's."""

    _calls: Fragments = field(default_factory=Fragments, init=False)

    def _map_tool_call_delta(self, choice: Choice) -> Iterable[ModelResponseStreamEvent]:
        for fragment in choice.delta.tool_calls or ():
            self._calls.place(fragment)
        return super()._map_tool_call_delta(choice)


# The first class that fits decides: kind, retryable.
_KINDS: tuple[tuple[type[Exception], str, bool], ...] = (
    (ai.ModelRequestTimeout, "timeout", True),
    (ai.ModelTimeoutError, "timeout", True),
    (httpx2.TimeoutException, "timeout", True),
    (ai.ModelConnectionError, "connection", True),
    (httpx2.TransportError, "connection", True),
    (ai.ModelRateLimitError, "rate_limit", True),
    (ai.ModelQuotaExceededError, "rate_limit", False),
    (ai.ModelUnavailableError, "overloaded", True),
    (ai.ModelServerError, "server", True),
    (ai.ModelAuthenticationError, "authentication", False),
    (ai.ModelNotFoundError, "not_found", False),
    (ai.ModelRequestRejectedError, "bad_request", False),
    (ai.ContentFilterError, "refused", False),
    (ai.UserError, "bad_request", False),
    (Misuse, "bad_request", False),
)
_NEXT = {
    "connection": "Is the server up, and the base URL right?",
    "incomplete": "The connection broke off in the middle of the answer; nothing of it is kept.",
    "authentication": "Check the key.",
    "not_found": "Check the model's name and the base URL.",
    "rate_limit": "Wait, or raise the limit with the provider.",
}


def failure(error: Exception, route: Route, *, begun: bool) -> ModelError:
    """The neutral error for whatever the library raised; `begun` when some of the answer had come."""
    if isinstance(error, ModelError):
        return error
    kind, retryable = _kind(error)
    if kind == "connection" and begun:
        kind = "incomplete"
    code = ""
    if isinstance(error, ai.ModelAPIError):
        code = error.provider_error_code or error.provider_error_type or _code(error)
    status = f"HTTP {error.status_code}: " if isinstance(error, ai.ModelHTTPError) else ""
    parts = [f"{status}{_message(error)} ({route.model.model_name} at {route.url})", _NEXT.get(kind, "")]
    if isinstance(error, ai.ModelAPIError) and error.retry_after is not None:
        parts.append(f"The provider asks to wait {error.retry_after:g} s.")
    return ModelError(kind, " ".join(filter(None, parts)), retryable=retryable, code=code)


def _kind(error: Exception) -> tuple[str, bool]:
    if isinstance(error, ai.ModelHTTPError) and error.status_code == httpx2.codes.REQUEST_TIMEOUT:
        return "timeout", True
    for raised, kind, retryable in _KINDS:
        if isinstance(error, raised):
            return kind, retryable
    if isinstance(error.__cause__, json.JSONDecodeError | UnicodeDecodeError):
        return "server", True
    # The library says so of a stream without one event.
    if type(error) is ai.UnexpectedModelBehavior and "ended without content" in error.message:
        return "empty_reply", True
    return "unknown", True


def _inner(error: Exception) -> Any:
    body = getattr(error, "body", None)
    return body.get("error", body) if isinstance(body, dict) else None


def _code(error: Exception) -> str:
    """The code where the library looks for none: an error in the style of another provider."""
    inner = _inner(error)
    return str(inner.get("code") or inner.get("type") or "") if isinstance(inner, dict) else ""


def _message(error: Exception) -> str:
    inner = _inner(error)
    if inner is not None:
        said = inner.get("message") if isinstance(inner, dict) else inner
        if isinstance(said, str) and said:
            return said[:_MESSAGE_LIMIT]
    return (str(error) or type(error).__name__)[:_MESSAGE_LIMIT]
