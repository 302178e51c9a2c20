"""The oracle V: what every provider asks of a history. Written from the rules, not from the code that it checks."""

import json
import re

from turnlog.fsm.history import AssistantMessage, Message, ToolMessage, UserMessage

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def complaints(messages: list[Message]) -> list[str]:
    """What is wrong with a history, in order."""
    found: list[str] = []
    waiting: list[tuple[str, str]] = []
    seen: set[str] = set()
    last: Message | None = None
    for place, message in enumerate(messages):
        at = f"message {place}"
        if isinstance(message, ToolMessage):
            if not waiting:
                found.append(f"{at}: a result without its call")
            elif (message.call_id, message.name) != waiting.pop(0):
                found.append(f"{at}: not the result that is due")
            if not message.content.strip():
                found.append(f"{at}: a blank result")
            last = message
            continue
        if waiting:
            found.append(f"{at}: {len(waiting)} results are missing before it")
            waiting = []
        if isinstance(message, UserMessage):
            if not message.text.strip() and not message.attachments:
                found.append(f"{at}: a blank message of the user")
            if isinstance(last, UserMessage):
                found.append(f"{at}: two messages of the user in a row")
        else:
            found += [f"{at}: {what}" for what in _of_assistant(message, last, seen)]
            waiting = [(call.id, call.name) for call in message.calls]
        last = message
    return found + [f"at the end: {len(waiting)} results are missing" for _ in waiting[:1]]


def _of_assistant(message: AssistantMessage, last: Message | None, seen: set[str]) -> list[str]:
    found: list[str] = []
    if message.text and not message.text.strip():
        found.append("a blank text")
    if not message.text and not message.calls:
        found.append("an empty message of the assistant")
    if isinstance(last, AssistantMessage):
        found.append("two messages of the assistant in a row")
    for call in message.calls:
        if call.id in seen:
            found.append(f"call id {call.id!r} comes twice")
        seen.add(call.id)
        if NAME.fullmatch(call.name) is None:
            found.append(f"name {call.name!r}")
        try:
            if not isinstance(json.loads(call.arguments), dict):
                found.append("arguments that are no object")
        except ValueError:
            found.append("arguments that do not parse")
    return found
