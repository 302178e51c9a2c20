"""The world that engine tests run in: one file, a clock that stands still, ids that count, tools that keep a ledger."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fakes import FakeClock, Ids
from turnlog.engine import Agent, Conversation, Engine, Tool, tool
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step
from turnlog.fsm import inputs as inp
from turnlog.fsm.events import ApprovalRequested, Event, Row
from turnlog.fsm.history import AssistantMessage, Message, ToolMessage
from turnlog.fsm.session import Session


class World:
    """What stays when an engine goes: the file, the clock, the ids, and what the tools did outside."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "log.db"
        self.clock = FakeClock()
        self.ids = Ids()
        self.ledger: list[Any] = []
        self.look, self.pay = _look(self.ledger), _pay(self.ledger)

    def engine(self, *agents: Agent, **more: Any) -> Engine:
        """An engine on the file, to be used as an async context manager."""
        more.setdefault("auto_approve", ())
        more.setdefault("idle_seconds", None)  # no timer that a test has not asked for
        return Engine(self.path, agents, clock=self.clock, new_id=self.ids, seed=lambda: 7, **more)

    def agent(self, *script: Step, tools: Sequence[Tool | str] | None = None, **more: Any) -> Agent:
        """@agent with a script, and look and pay."""
        return Agent("@agent", ScriptedModel(script), tools=(self.look, self.pay) if tools is None else tools, **more)


def _look(ledger: list[Any]) -> Tool:
    @tool(name="look")
    async def look(q: str) -> str:
        """Look something up."""
        ledger.append(("look", q))
        return f"saw {q}"

    return look


def _pay(ledger: list[Any]) -> Tool:
    @tool(name="pay", needs_approval=True, risk="spends money")
    async def pay(amount: int, to: str) -> str:
        """Pay somebody."""
        ledger.append(("pay", amount, to))
        return f"paid {amount} to {to}"

    return pay


def slow_tool(name: str = "slow", **more: Any) -> tuple[Tool, asyncio.Event, asyncio.Event]:
    """An async tool, the event that says it runs, and the event that lets it end."""
    running, go = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        """Take long."""
        running.set()
        await go.wait()
        return "slow is done"

    return tool(name=name, **more)(slow), running, go


def blocking_tool(name: str = "block", **more: Any) -> tuple[Tool, threading.Event, threading.Event]:
    """A tool in a thread, the event that says it runs, and the event that lets it end."""
    running, go = threading.Event(), threading.Event()

    def block() -> str:
        """Block a thread."""
        running.set()
        assert go.wait(30)
        return "block is done"

    return tool(name=name, **more)(block), running, go


async def in_thread(event: threading.Event) -> None:
    """Wait for a thread's event without stopping the loop."""
    assert await asyncio.to_thread(event.wait, 30)


async def processed(c: Conversation) -> None:
    """Return when everything that was in the inbox, and every timer that is due, has been dealt with."""
    await c.apply(inp.Show("no such request", "", "", "person:nobody"))


async def reached(c: Conversation, fits: Callable[[Session], bool]) -> Session:
    """Wait until the durable session fits."""
    hub = await c._engine.hub(c.id)
    return await asyncio.wait_for(hub.until(fits), 30)


def rows(c: Conversation) -> list[Row]:
    """Every row of the session."""
    found: list[Row] = []
    while page := c.rows(len(found)):
        found += page
    return found


def kinds(c: Conversation) -> list[str]:
    """The kinds of the session's rows, in order."""
    return [row.event.kind for row in rows(c)]


def of_kind(c: Conversation, kind: str) -> list[Any]:
    """The events of one kind."""
    return [row.event for row in rows(c) if row.event.kind == kind]


def results(c: Conversation) -> list[tuple[str, str]]:
    """Outcome and content of each tool result, in the order of the calls."""
    found = {event.call_id: (event.outcome, event.content) for event in of_kind(c, "tool_returned")}
    return [found[call.id] for event in of_kind(c, "tools_called") for call in event.calls]


def sent(agent: Agent) -> list[ModelCall]:
    """What the agent's scripted model was sent."""
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.calls


def valid(messages: Sequence[Message]) -> None:
    """Fail unless every provider would take this history."""
    waiting: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert waiting, f"a result without its call: {message}"
            assert waiting.pop(0) == message.call_id, "results are not in call order"
            assert message.content.strip(), "a blank result"
            continue
        assert not waiting, f"calls without a result before {message}"
        if isinstance(message, AssistantMessage):
            ids = [call.id for call in message.calls]
            assert not seen & set(ids), "an id is used twice"
            assert len(set(ids)) == len(ids), "an id is used twice"
            seen |= set(ids)
            waiting = ids
            assert message.calls or message.text.strip(), "a blank answer"
        else:
            assert message.text.strip() or message.attachments, "a blank message"
    assert not waiting, "the last calls have no result"


def event_of(row: Row) -> Event:
    """The event of a row."""
    return row.event


def request(c: Conversation, place: int = 0) -> ApprovalRequested:
    """An open request."""
    return c.session.requests[place]


def hold_commits(engine: Any) -> tuple[asyncio.Event, Callable[[], None]]:
    """Stop the log's writer before its next commit: the event says that it stands there, the call lets it go on."""
    loop, there, go = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    writer = engine.log._writer
    commit = writer._commit

    def held(batch: Any, **how: Any) -> Any:
        loop.call_soon_threadsafe(there.set)
        assert go.wait(30)
        return commit(batch, **how)

    writer._commit, writer._quick_seconds = held, 0
    return there, go.set
