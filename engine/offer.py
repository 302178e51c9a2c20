"""Which tools of an agent with many are offered: chosen once a turn, and from then on read from the log."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..fsm.canonical import clean
from ..fsm.events import ModelRequest
from ..fsm.history import Message, UserMessage
from ..fsm.values import ToolChoice
from .models.base import ModelCall
from .tools.function import Tool
from .tools.rerank import TEXT_LIMIT, Rerank
from .values import told

if TYPE_CHECKING:
    from .hub import Hub

LONGEST = 10.0  # seconds; after that all tools are offered


async def offered(
    hub: "Hub", rerank: Rerank, speaker: str, call: ModelCall, record: ModelRequest
) -> tuple[ModelCall, ModelRequest]:
    """The call with the tools that fit best, and its record with the choice. Whatever goes wrong: with all of them.

    In the same turn a recorded choice holds, so that a model does not lose tools between two of its steps, a provider
    can reuse what it has read, and a resumed session chooses nothing anew.
    """
    session = hub.session
    tools = hub.engine.registry.named(session.agents[speaker].tools)
    choice = session.choice
    if choice is None:
        try:
            choice = await _chosen(hub, rerank, tools, recent(call.messages, rerank.messages))
        except Exception as error:  # noqa: BLE001 - an embedder may raise anything, and a turn must not fail by it
            choice = ToolChoice(by="all", granted=len(tools), problem=clean(told(error))[:500])
    if choice.tools:
        named = {tool.name: tool for tool in tools}
        tools = [named[name] for name in choice.tools if name in named]
    call = replace(call, tools=tuple([tool.definition for tool in tools]))
    digests = tuple([tool.definition_digest for tool in tools])
    return call, record.model_copy(update={"tools": digests, "choice": choice})


async def _chosen(hub: "Hub", rerank: Rerank, tools: Sequence[Tool], texts: Sequence[str]) -> ToolChoice:
    work = asyncio.wrap_future(rerank.line.submit(partial(rerank.choose, tools, texts, hub.session.used)))
    late: list[bool] = []

    def give_up() -> None:
        late.append(True)
        work.cancel()

    clock = hub.engine.clock
    timer = clock.call_at(clock.monotonic() + LONGEST, give_up)
    try:
        choice, failed = await work
    except asyncio.CancelledError:
        if not late:
            raise
        raise TimeoutError(f"no choice within {LONGEST:g} s") from None
    finally:
        timer.cancel()
    if failed is not None:
        raise failed if isinstance(failed, Exception) else RuntimeError(told(failed))
    made: ToolChoice = choice
    return made


def recent(messages: Sequence[Message], count: int) -> list[str]:
    """The texts of the newest messages to the agent, the newest first; of a long one its end."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, UserMessage) and message.text.strip():
            texts.append(message.text[-TEXT_LIMIT:])
            if len(texts) == count:
                break
    return texts
