"""What the shell owes a session. An effect is data; its `key` names it, so that it starts once."""

from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue


class CallModel(NamedTuple):
    """Ask the model of `speaker` for its answer to `listener`. `attempt` counts from 1 and grows with each failure."""

    key: str
    speaker: str
    listener: str
    attempt: int
    offer_tools: bool


@dataclass(frozen=True, slots=True)
class ChooseSpeaker:
    """Ask the director of `channel` which of `candidates` (never empty) speaks next."""

    key: str
    channel: str
    candidates: tuple[str, ...]
    attempt: int


class StartTools(NamedTuple):
    """Look the tools of these calls up and say `ToolsReady`. `calls` maps call id to tool name."""

    key: str
    calls: dict[str, str]


class RunTool(NamedTuple):
    """Run one call. `source` is the seq of the row that holds the allowed arguments; their digest must be `digest`."""

    key: str
    call_id: str
    tool: str
    speaker: str
    attempt: int
    idempotency_key: str
    arguments: dict[str, JsonValue]
    digest: str
    source: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Say `TimerFired(request_id)` when `at` (milliseconds since 1970 UTC) has come."""

    key: str
    request_id: str
    at: int


Effect = CallModel | ChooseSpeaker | StartTools | RunTool | WaitUntil
