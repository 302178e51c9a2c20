"""What a model is sent: a window of the history, kept up to date row by row, and its digests."""

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import overload

from ..fsm.events import ModelRequest, Row
from ..fsm.history import Exchange, Message, collect, in_history, view
from ..fsm.session import Session
from ..store.base import EventLog
from .agents import Agent
from .models.base import ModelCall, ToolDefinition
from .tools.registry import Registry

PAGE = 500


class Lazy(Sequence[Message]):
    """Messages that are built when somebody looks at them."""

    def __init__(self, build: Callable[[], list[Message]]) -> None:
        self._build: Callable[[], list[Message]] | None = build
        self._messages: list[Message] = []

    def _all(self) -> list[Message]:
        if self._build is not None:
            self._messages, self._build = self._build(), None
        return self._messages

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...
    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._all())


class History:
    """The newest exchanges of a session: as many as the widest window of its agents needs."""

    def __init__(self, width: int | None) -> None:
        self.width = width
        self._exchanges: deque[Exchange] = deque()
        self._size = 0

    def load(self, log: EventLog, session: str, head: int) -> None:
        """Read backwards, page by page, until the window is full."""
        rows: list[Row] = []
        upto = head
        while upto > 0:
            after = max(0, upto - PAGE)
            rows = [row for row in log.read(session, after, upto - after) if in_history(row)] + rows
            if self.width is not None and len(rows) > 2 * self.width + PAGE:
                break
            upto = after
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        """Take new rows in."""
        for row in rows:
            if not in_history(row):
                continue
            if row.event.kind == "tool_returned":
                if self._exchanges:
                    collect([self._exchanges[-1]], [row])
                continue
            fresh = collect([], [row])
            self._exchanges.extend(fresh)
            self._size += fresh[0].size
        while self.width is not None and self._size > self.width and len(self._exchanges) > 1:
            self._size -= self._exchanges.popleft().size

    def window(self, limit: int | None) -> list[Exchange]:
        """The newest whole exchanges of at most `limit` messages; never less than the newest one."""
        if limit is None or (self.width is not None and limit >= self.width):
            return list(self._exchanges)
        taken: list[Exchange] = []
        for exchange in reversed(self._exchanges):
            limit -= exchange.size
            if limit < 0 and taken:
                break
            taken.append(exchange)
        return taken[::-1]


def model_call(
    session: Session, history: History, agent: Agent, registry: Registry, *, offer_tools: bool, attempt: int
) -> tuple[ModelCall, ModelRequest]:
    """What `agent` is sent next, and the record of it for the log."""
    exchanges = history.window(agent.window)
    spec = session.agents[agent.name]
    tools = registry.named(spec.tools) if offer_tools else []
    group = session.channels.get(session.listener)
    speaker, listener, members = agent.name, session.listener, group.members if group else ()
    call = ModelCall(
        system=spec.role,
        messages=Lazy(lambda: view(exchanges, speaker, listener, members)),
        tools=tuple(tool.definition for tool in tools),
        index=session.completions.get(agent.name, 0),
        attempt=attempt,
        settings=agent.settings,
    )
    span = (exchanges[0].first, session.seq) if exchanges else (0, 0)
    return call, ModelRequest(
        system=text_digest(spec.role), tools=tuple(tool.definition_digest for tool in tools), history=span
    )


def rebuild(log: EventLog, session: Session, row: Row) -> ModelCall:
    """What the model was sent before it answered with `row`, from the log alone.

    Args:
        log: where the session is.
        session: its replay to any seq (agents and channels are taken from it).
        row: a message_added or tools_called row with a request.
    """
    event = row.event
    if event.kind == "message_added":
        speaker, listener = event.sender, event.recipient
    elif event.kind == "tools_called":
        speaker, listener = event.speaker, event.listener
    else:
        raise ValueError(f"seq {row.seq} is a {event.kind}: choose a message_added or tools_called row")
    if event.request is None:
        raise ValueError(f"seq {row.seq} was not made by a model: choose another row")
    first, last = event.request.history
    exchanges: list[Exchange] = []
    after = first - 1
    while first and after < last:
        page = log.read(row.session, after, min(PAGE, last - after))
        collect(exchanges, page)
        after = page[-1].seq
    group = session.channels.get(listener)
    tools = tuple(_definition(log.blob(one)) for one in event.request.tools)
    messages = view(exchanges, speaker, listener, group.members if group else ())
    return ModelCall(session.agents[speaker].role, messages, tools)


def _definition(data: bytes) -> ToolDefinition:
    shown = json.loads(data)
    return ToolDefinition(shown["name"], shown["description"], shown["parameters"])


def text_digest(text: str) -> str:
    """The sha256 of a text."""
    return sha256(text.encode()).hexdigest()
