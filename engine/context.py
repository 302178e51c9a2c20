"""What a model is sent: a window of the history, kept up to date row by row, and its digests."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from ..fsm.events import MessageAdded, ModelRequest, Row, ToolReturned
from ..fsm.history import Exchange, UserMessage, begun, collect, in_history, view
from ..fsm.session import Session
from ..store.base import EventLog
from .agents import Agent
from .models.base import ModelCall, ToolDefinition
from .prompt import Blob, Told, joined, role_digest, told_to, with_documents
from .tools.registry import Registry
from .window import Seen, Side, Window, seen_in_group

PAGE = 500
Key = tuple[str, str, Window]


class Backwards:
    """The exchanges of a log from the newest to the oldest, a page of rows at a time."""

    def __init__(self, log: EventLog, session: str, head: int) -> None:
        self._log, self._session, self._upto = log, session, head
        self._results: list[Row] = []  # of calls that stand before them, on the next page

    def __iter__(self) -> Iterator[list[Exchange]]:
        while self._upto > 0:
            after = max(0, self._upto - PAGE)
            page = self._log.read(self._session, after, self._upto - after)
            rows = [*(row for row in page if in_history(row)), *self._results]
            said = next((n for n, row in enumerate(rows) if not isinstance(row.event, ToolReturned)), len(rows))
            self._results, self._upto = rows[:said], after
            yield collect([], rows[said:])


class History:
    """The newest exchanges of a session: as many as the widest window of its agents needs.

    All that is kept is a matter of the log alone: after a restart a model sees what it would have seen without one.
    """

    def __init__(self, width: int | None) -> None:
        self.width = width
        self.exchanges: deque[Exchange] = deque()
        self._size = 0
        self._sides: dict[Key, Side] = {}
        self._whole = True  # the exchanges begin where the log does
        self._read: Callable[[], Backwards] | None = None
        self._head = 0

    def load(self, log: EventLog, session: str, head: int) -> None:
        """Read backwards, page by page, until the window is full."""
        self._read, self._head = lambda: Backwards(log, session, self._head), head
        for page in self._read():
            self.exchanges.extendleft(reversed(page))
            self._size += sum(one.size for one in page)
            if self.width is not None and self._size > self.width:
                self._whole = False
                break
        self._trim()

    def add(self, rows: Sequence[Row]) -> None:
        """Take new rows in."""
        if rows:
            self._head = rows[-1].seq
        for row in rows:
            if not in_history(row):
                continue
            event = row.event
            if not isinstance(event, ToolReturned):
                self.exchanges.append(begun(row.seq, event))
                self._size += self.exchanges[-1].size
            elif self.exchanges:
                collect([self.exchanges[-1]], (row,))
            else:
                continue
            newest = self.exchanges[-1]
            if newest.complete:
                for side in self._sides.values():
                    side.add(newest)
        if self.width is not None and self._size > self.width:
            self._trim()

    def _trim(self) -> None:
        while self.width is not None and self._size > self.width and len(self.exchanges) > 1:
            self._size -= self.exchanges.popleft().size
            self._whole = False

    def side(self, speaker: str, listener: str, window: Window) -> Side:
        """What `speaker` sees of its conversation with `listener`."""
        key = (speaker, listener, window)
        if key not in self._sides:
            self._sides[key] = self._filled(key)
        return self._sides[key]

    def since_message(self, channel: str) -> list[Exchange]:
        """All exchanges since the newest message to a group, which may be longer ago than the window."""
        found: list[Exchange] = []
        for page in self._read() if self._read is not None and not self._whole else ():
            found = page + found
            if any(one.listener == channel and isinstance(one.said, MessageAdded) for one in page):
                break
        return found or list(self.exchanges)

    def _filled(self, key: Key) -> Side:
        """The window of a pair. Where others have talked since, the log is read back until it is full."""
        side = _side(key, self.exchanges)
        if side.full or self._whole or self._read is None:
            return side
        found: list[Exchange] = []
        for page in self._read():
            if mine := [one for one in page if one.speaker in side.pair and one.listener in side.pair]:
                found = mine + found
                side = _side(key, found)
                if side.full:
                    break
        return side


def _side(key: Key, exchanges: Iterable[Exchange]) -> Side:
    side = Side(*key)
    for exchange in exchanges:
        if exchange.complete:
            side.add(exchange)
    return side


def seen(session: Session, history: History, agent: Agent) -> Seen:
    """The messages as `agent` sees them now."""
    window = Window(agent.window, agent.window_tokens, agent.estimate)
    group = session.channels.get(session.listener)
    if group is None:
        return history.side(agent.name, session.listener, window).seen()
    found = seen_in_group(history.exchanges, agent.name, group.name, window)
    if found.messages and isinstance(found.messages[0], UserMessage):
        return found
    return seen_in_group(history.since_message(group.name), agent.name, group.name, window)


def model_call(
    session: Session, history: History, agent: Agent, registry: Registry, *, offer_tools: bool, attempt: int, blob: Blob
) -> tuple[ModelCall, ModelRequest]:
    """What `agent` is sent next but for the documents, and the record of it for the log."""
    spec = session.agents[agent.name]
    tools = registry.named(spec.tools) if offer_tools else []
    messages, first, asked = seen(session, history, agent)
    if session.fetched or agent.parts:
        told = told_to(session, agent, spec.role, blob)
    else:
        told = Told(spec.role, role_digest(spec.role))
    call = ModelCall(
        system=told.system,
        messages=messages,
        tools=tuple([tool.definition for tool in tools]),
        index=session.completions.get(agent.name, 0),
        attempt=attempt,
        settings=agent.settings,
        blob=blob,
    )
    record = ModelRequest(
        system=told.digest,
        tools=tuple([tool.definition_digest for tool in tools]),
        history=(first, session.seq if first else 0),
        asked=asked,
        context=told.context,
        parts=told.parts,
    )
    return call, record


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
    exchanges: list[Exchange] = []
    for first, last in (event.request.asked, event.request.history):
        after = first - 1
        while first and after < last:
            page = log.read(row.session, after, min(PAGE, last - after))
            collect(exchanges, page)
            after = page[-1].seq
    group = session.channels.get(listener)
    tools = tuple(_definition(log.blob(one)) for one in event.request.tools)
    messages = view(exchanges, speaker, listener, group.members if group else ())
    system = joined(session.agents[speaker].role, [log.blob(one).decode() for one in event.request.parts])
    call = ModelCall(system, messages, tools)
    return with_documents(call, log.blob(event.request.context).decode()) if event.request.context else call


def _definition(data: bytes) -> ToolDefinition:
    shown = json.loads(data)
    examples = tuple((question, arguments) for question, arguments in shown.get("examples", ()))
    return ToolDefinition(shown["name"], shown["description"], shown["parameters"], examples)
