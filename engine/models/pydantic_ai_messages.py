"""Neutral messages as pydantic-ai's, and what a provider wants back byte for byte (`extras`)."""

import json
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition as LibraryTool

from ...fsm.canonical import DEEPEST_WRITTEN, clean, read_json
from ...fsm.errors import Error
from ...fsm.events import Attachment
from ...fsm.history import AssistantMessage, ToolMessage, UserMessage
from .base import ModelCall
from .pydantic_ai import Blobs

# Providers want a conversation to begin with a user and to end with something to answer.
_NOT_NOW = "Not available now."
_ANY: dict[str, Any] = {"type": "object", "properties": {}}
# What both providers take as a picture. One that is refused would be refused in every later turn.
_PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LARGEST = 5 * 2**20 * 3 // 4  # bytes; base64 makes 5 MiB of them
_BEGIN, _CONTINUE, _BLANK = "(The conversation begins.)", "(Continue.)", "(no text)"


def to_parameters(call: ModelCall, provider: str) -> ModelRequestParameters:
    """The tools, with their schemas as they are.

    Anthropic refuses a history with calls where no tool is defined (anthropics/anthropic-sdk-python#494). So the tools
    of the history are named once more where none is offered; the settings then say that none may be called.
    """
    tools = [
        LibraryTool(name=tool.name, description=tool.description, parameters_json_schema=tool.parameters, strict=False)
        for tool in call.tools
    ]
    if not tools and provider == "anthropic":
        called = {
            part.name: None for said in call.messages if isinstance(said, AssistantMessage) for part in said.calls
        }
        tools = [LibraryTool(name=name, description=_NOT_NOW, parameters_json_schema=_ANY) for name in called]
    return ModelRequestParameters(function_tools=tools, allow_text_output=True)


def to_settings(call: ModelCall, chosen: dict[str, Any], parameters: ModelRequestParameters) -> dict[str, Any]:
    """The settings. Where no tool is offered, none may be called, whatever was chosen for the rest of the turn."""
    if call.tools or ("tool_choice" not in chosen and not parameters.function_tools):
        return chosen
    return chosen | {"tool_choice": "none"}


def to_messages(call: ModelCall, system: str, provider: str, blobs: Blobs | None) -> list[ModelMessage]:
    """The messages of a call; `system` is the library's name of who is asked, it decides what extras fit."""
    out: list[ModelMessage] = []
    parts: list[ModelRequestPart] = [SystemPromptPart(call.system)] if call.system.strip() else []
    files: list[UserContent] = []
    if not call.messages or not isinstance(call.messages[0], UserMessage):
        parts.append(UserPromptPart(_BEGIN))
    for message in call.messages:
        match message:
            case UserMessage():
                files += _files(message.attachments, blobs)
                parts.append(_prompt(message.text if message.text.strip() else _BLANK, files))
                files = []
            case ToolMessage():
                parts.append(_result(message, provider))
                shown = _files(message.attachments, blobs)
                files += [f"From {message.name}:", *shown] if shown else []
            case AssistantMessage():
                if files:
                    parts.append(_prompt("", files))
                if parts:
                    out.append(ModelRequest(parts=parts))
                out.append(ModelResponse(parts=_said(message, system, provider), provider_name=system))
                parts, files = [], []
    if files:
        parts.append(_prompt("", files))
    if not parts:
        parts.append(UserPromptPart(_CONTINUE))
    return [*out, ModelRequest(parts=parts)]


def _result(message: ToolMessage, provider: str) -> ToolReturnPart:
    # Anthropic has a flag for a failure; for the others the library would wrap the text, which says so itself.
    failed = provider == "anthropic" and message.outcome != "ok"
    return ToolReturnPart(
        tool_name=message.name,
        content=message.content,
        tool_call_id=message.call_id,
        outcome="failed" if failed else "success",
    )


def _prompt(text: str, files: list[UserContent]) -> UserPromptPart:
    if not files:
        return UserPromptPart(text)
    return UserPromptPart([*([text] if text else []), *files])


def _files(attachments: tuple[Attachment, ...], blobs: Blobs | None) -> list[UserContent]:
    """Images as they are; of anything else the model learns that it is there."""
    content: list[UserContent] = []
    for file in attachments:
        data = _picture(file, blobs)
        if data:
            content.append(BinaryContent(data, media_type=file.media_type))
        else:
            content.append(f"[attached: {file.name}, {file.media_type}, {file.size} bytes, not shown]")
    return content


def _picture(file: Attachment, blobs: Blobs | None) -> bytes:
    """The bytes of a picture that a provider takes, else none."""
    if blobs is None or file.media_type not in _PICTURES or file.size > _LARGEST:
        return b""
    try:
        data = blobs(file.digest)
    except (Error, LookupError):  # a blob that is gone must not keep the session from every later answer
        return b""
    return data if len(data) <= _LARGEST else b""


def to_extras(response: ModelResponse) -> str:
    """The order of the parts and all that must go back unchanged, as JSON text; "" for a plain answer."""
    layout: list[dict[str, Any]] = []
    needed = False
    for part in response.parts:
        match part:
            case ThinkingPart():
                layout.append(
                    {
                        "kind": "thinking",
                        "by": part.provider_name,
                        "content": part.content,
                        "id": part.id,
                        "signature": part.signature,
                        "details": part.provider_details,
                    }
                )
                needed = True
            case TextPart():
                layout.append({"kind": "text", "length": len(clean(part.content))})
            case ToolCallPart():
                layout.append({"kind": "call", "by": part.provider_name, "details": part.provider_details})
                needed = needed or part.provider_details is not None
            case _:
                pass
    # Fields that are null are left out; ASCII keeps any character, a lone surrogate too, exactly as it came.
    slim = [{key: value for key, value in item.items() if value is not None} for item in layout]
    return json.dumps(slim, separators=(",", ":"), default=str) if needed else ""


def _said(message: AssistantMessage, system: str, provider: str) -> list[ModelResponsePart]:
    calls = [ToolCallPart(call.name, call.arguments, call.id) for call in message.calls]
    layout = [item for item in _layout(message.extras) if item["kind"] == "text" or item.get("by") in (None, system)]
    if provider == "anthropic":
        # Thinking that is not signed would be refused, and the library would make a message of the user of it.
        layout = [item for item in layout if item["kind"] != "thinking" or item.get("signature")]
    elif not calls:
        # Chat Completions servers want reasoning back with the calls it led to; some refuse it elsewhere.
        layout = []
    thinking = [item for item in layout if item["kind"] == "thinking"]
    sizes = [item["length"] for item in layout if item["kind"] == "text"]
    details = [item.get("details") for item in layout if item["kind"] == "call"]
    if sum(sizes) != len(message.text) or len(details) != len(calls):
        # Not the message that the layout was made for, such as two joined into one.
        text = [TextPart(message.text)] if message.text.strip() else []
        return [*map(_thinking, thinking), *text, *calls]
    parts: list[ModelResponsePart] = []
    at, rest = 0, iter(calls)
    for item in layout:
        if item["kind"] == "thinking":
            parts.append(_thinking(item))
        elif item["kind"] == "text":
            piece, at = message.text[at : at + item["length"]], at + item["length"]
            parts += [TextPart(piece)] if piece.strip() else []
        else:
            call = next(rest)
            call.provider_details, call.provider_name = item.get("details"), item.get("by")
            parts.append(call)
    return parts


def _thinking(item: dict[str, Any]) -> ThinkingPart:
    return ThinkingPart(
        item.get("content", ""),
        id=item.get("id"),
        signature=item.get("signature"),
        provider_name=item.get("by"),
        provider_details=item.get("details"),
    )


def _layout(extras: str) -> list[dict[str, Any]]:
    """The items of extras that this adapter wrote; another adapter's are none of its business."""
    try:
        items = read_json(extras, DEEPEST_WRITTEN) if extras else []
    except ValueError:
        return []
    fits = isinstance(items, list) and all(
        isinstance(item, dict)
        and item.get("kind") in ("thinking", "text", "call")
        and (item["kind"] != "text" or isinstance(item.get("length"), int))
        for item in items
    )
    return items if fits else []
