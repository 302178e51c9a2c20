"""The oracle V on what goes over the wire. Written from the providers' rules, not from the code that it checks."""

import json
import re
from collections.abc import Iterator
from typing import Any

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
DATA = re.compile(r"data:(image/[a-z]+);base64,[A-Za-z0-9+/]+=*")

Body = dict[str, Any]


def blank(text: Any) -> bool:
    """Whether a text says nothing."""
    return not isinstance(text, str) or not text.strip()


def of_openai(body: Body) -> list[str]:
    """What Chat Completions, or a strict server that speaks it, would refuse."""
    messages = body["messages"]
    if messages and messages[0]["role"] in ("system", "developer"):
        messages = messages[1:]
    found: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    before = ""
    for place, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if not waiting or message["tool_call_id"] != waiting.pop(0):
                found.append(f"{place}: not the result that is due")
            if blank(message["content"]):
                found.append(f"{place}: a blank result")
            before = role
            continue
        if waiting:
            found.append(f"{place}: results are missing before it")
        waiting = []
        if role == "assistant":
            found += [f"{place}: {what}" for what in _openai_said(message, seen)]
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
        elif role == "user":
            found += [f"{place}: {what}" for what in _openai_asked(message["content"])]
        else:
            found.append(f"{place}: the role {role}")
        if role == before:
            found.append(f"{place}: two messages of the {role} in a row")
        before = role
    return found + _ends(messages, before, waiting)


def _ends(messages: list[Body], last: str, waiting: list[str]) -> list[str]:
    found = [] if messages and messages[0]["role"] == "user" else ["it does not begin with the user"]
    found += [] if last in ("user", "tool") else ["it ends with the assistant"]
    return found + (["results are missing"] if waiting else [])


def _openai_said(message: Body, seen: set[str]) -> Iterator[str]:
    calls = message.get("tool_calls") or ()
    content = message.get("content")
    if content is not None and blank(content):
        yield "a blank text"
    if content is None and not calls:
        yield "an empty message"
    for call in calls:
        yield from _call(call["id"], call["function"]["name"], seen)
        try:
            if not isinstance(json.loads(call["function"]["arguments"]), dict):
                yield "arguments that are no object"
        except ValueError:
            yield "arguments that do not parse"


def _call(call_id: str, name: str, seen: set[str]) -> Iterator[str]:
    if ID.fullmatch(call_id) is None:
        yield f"id {call_id!r}"
    if call_id in seen:
        yield f"call id {call_id!r} comes twice"
    seen.add(call_id)
    if NAME.fullmatch(name) is None:
        yield f"name {name!r}"


def _openai_asked(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        if blank(content):
            yield "a blank message"
        return
    if not content:
        yield "an empty message"
    for part in content:
        if part["type"] == "text" and blank(part["text"]):
            yield "a blank text"
        if part["type"] == "image_url":
            found = DATA.fullmatch(part["image_url"]["url"])
            if found is None or found[1] not in PICTURES:
                yield "a picture that is none"


def of_anthropic(body: Body) -> list[str]:
    """What the Messages API would refuse."""
    messages = body["messages"]
    found: list[str] = []
    waiting: list[str] = []
    seen: set[str] = set()
    before = ""
    for place, message in enumerate(messages):
        role = message["role"]
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if role == before:
            found.append(f"{place}: two messages of the {role} in a row")
        if not blocks:
            found.append(f"{place}: an empty message")
        given = [block["tool_use_id"] for block in blocks[: len(waiting)] if block["type"] == "tool_result"]
        if given != waiting:
            found.append(f"{place}: {len(waiting)} results are due first, and in order")
        if any(block["type"] == "tool_result" for block in blocks[len(waiting) :]):
            found.append(f"{place}: a result that is not due")
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for block in blocks:
            found += [f"{place}: {what}" for what in _block(block, role, seen)]
        before = role
    tools = [tool["name"] for tool in body.get("tools") or ()]
    if seen and not tools:
        found.append("calls in the history, and no tool is defined")
    if len(set(tools)) != len(tools) or not all(map(NAME.fullmatch, tools)):
        found.append("tools with bad names")
    if any(blank(part["text"]) for part in _system(body)):
        found.append("a blank system text")
    return found + _ends(messages, before, waiting)


def _system(body: Body) -> list[Body]:
    system = body.get("system") or []
    return [{"text": system}] if isinstance(system, str) else system


def _block(block: Body, role: str, seen: set[str]) -> Iterator[str]:
    kind = block["type"]
    allowed = {"assistant": {"text", "thinking", "tool_use"}, "user": {"text", "image", "tool_result"}}[role]
    if kind not in allowed:
        yield f"{kind} of the {role}"
    if kind == "text" and blank(block["text"]):
        yield "a blank text"
    if kind == "thinking" and blank(block.get("signature")):
        yield "thinking without a signature"
    if kind == "tool_use":
        yield from _call(block["id"], block["name"], seen)
        if not isinstance(block["input"], dict):
            yield "an input that is no object"
    if kind == "tool_result":
        content = block.get("content")
        texts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
        if not texts or any(blank(text) for text in texts):
            yield "a blank result"
    if kind == "image" and (block["source"]["media_type"] not in PICTURES or not block["source"]["data"]):
        yield "a picture that is none"
