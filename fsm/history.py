"""What a model sees of the past: the rows that ended in `success`, of three kinds, in seq order.

`entries` turns rows into neutral messages once; `view` shows them from one speaker's side. A call and its results stay
together as one `Exchange`, so no window can split them.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from .canonical import canonical
from .events import Attachment, CallRecord, Event, MessageAdded, Row, ToolReturned, ToolsCalled
from .states import State

MODELS = frozenset({MessageAdded, ToolsCalled, ToolReturned})  # the type of a model is read faster than its `kind`
_BAD_NAME = re.compile(r"[^A-Za-z0-9_-]")
_NAME_LIMIT = 64
_HALF = re.compile(r"\\u[dD][89a-fA-F]")  # an escape of half a character, alone or in a pair


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message to the speaker; in a group, the transcript so far."""

    text: str
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class CallPart:
    """A call as a provider accepts it: `name` matches [A-Za-z0-9_-]{1,64}, `arguments` is the text of a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the speaker said before; with `calls`, one `ToolMessage` for each follows at once, in the same order."""

    text: str
    calls: tuple[CallPart, ...] = ()
    reasoning: str = ""
    extras: str = ""


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of a call."""

    call_id: str
    name: str
    content: str
    outcome: str = "ok"
    attachments: tuple[Attachment, ...] = ()


Message = UserMessage | AssistantMessage | ToolMessage


@dataclass(slots=True)
class Exchange:
    """One unit of history: a message, or a round of calls with its results. `first` and `last` are seqs."""

    first: int
    last: int
    speaker: str
    listener: str
    said: MessageAdded | ToolsCalled
    results: dict[str, ToolReturned]

    @property
    def complete(self) -> bool:
        """Whether each call has its result."""
        return isinstance(self.said, MessageAdded) or len(self.results) == len(self.said.calls)

    @property
    def size(self) -> int:
        """How many messages a provider sees."""
        return 1 if isinstance(self.said, MessageAdded) else 1 + len(self.said.calls)


def in_history(row: Row) -> bool:
    """Whether a row belongs to what models see."""
    return row.state is State.SUCCESS and type(row.event) in MODELS


def begun(seq: int, said: Event) -> Exchange:
    """The exchange that a message or a round of calls opens."""
    if isinstance(said, MessageAdded):
        return Exchange(seq, seq, said.sender, said.recipient, said, {})
    assert isinstance(said, ToolsCalled)
    return Exchange(seq, seq, said.speaker, said.listener, said, {})


def collect(exchanges: list[Exchange], rows: Iterable[Row]) -> list[Exchange]:
    """Add rows to a list of exchanges, in place; rows that do not belong to history are passed over."""
    for row in rows:
        if not in_history(row):
            continue
        event = row.event
        if not isinstance(event, ToolReturned):
            exchanges.append(begun(row.seq, event))
            continue
        for exchange in reversed(exchanges):
            if isinstance(exchange.said, ToolsCalled) and any(c.id == event.call_id for c in exchange.said.calls):
                exchange.results[event.call_id] = event
                exchange.last = row.seq
                break
    return exchanges


def between(exchanges: Iterable[Exchange], sender: str = "", recipient: str = "") -> list[Exchange]:
    """The messages of a pair, both ways; with one name left empty, all to or all from the other."""
    messages = [exchange for exchange in exchanges if isinstance(exchange.said, MessageAdded)]
    if sender and recipient:
        return [e for e in messages if {e.speaker, e.listener} == {sender, recipient}]
    return [e for e in messages if sender in ("", e.speaker) and recipient in ("", e.listener)]


def last_messages(exchanges: Sequence[Exchange], limit: int | None) -> list[Exchange]:
    """The newest exchanges that together hold at most `limit` messages (None: all), whole ones only."""
    if limit is None:
        return list(exchanges)
    taken: list[Exchange] = []
    room = limit
    for exchange in reversed(exchanges):
        room -= exchange.size
        if room < 0:
            break
        taken.append(exchange)
    return taken[::-1]


def view(exchanges: Iterable[Exchange], speaker: str, listener: str, members: Sequence[str] = ()) -> list[Message]:
    """The history as `speaker` sees it when it is to answer `listener` (a channel when `members` is given).

    Of a pair: their messages and the speaker's own calls. Of a group: one transcript, then the speaker's calls since.
    Neighbouring messages of one side are joined, control words and blank texts are left out.
    """
    if members:
        return _group(exchanges, speaker, listener)
    messages: list[Message] = []
    for exchange in exchanges:
        if {exchange.speaker, exchange.listener} == {speaker, listener}:
            extend(messages, shown(exchange, speaker))
    return messages


def shown(exchange: Exchange, speaker: str) -> list[Message]:
    """One exchange from a speaker's side; nothing while a result is missing, and of somebody else's calls."""
    said = exchange.said
    if isinstance(said, ToolsCalled):
        return _calls(said, exchange.results) if exchange.speaker == speaker and exchange.complete else []
    if exchange.speaker == speaker:
        return (
            []
            if said.control or not said.text.strip()
            else [AssistantMessage(said.text, (), said.reasoning, said.extras)]
        )
    return [UserMessage(said.text, said.attachments)] if said.text.strip() or said.attachments else []


def extend(messages: list[Message], more: list[Message]) -> bool:
    """Add messages in place; the first is joined with the last one of the same side, and then the answer is True."""
    joined = _joined(messages[-1], more[0]) if messages and more else None
    if joined is None:
        messages += more
        return False
    messages[-1] = joined
    messages += more[1:]
    return True


def _joined(last: Message, more: Message) -> Message | None:
    if isinstance(last, UserMessage) and isinstance(more, UserMessage):
        text = "\n\n".join(part for part in (last.text, more.text) if part.strip())
        return UserMessage(text, last.attachments + more.attachments)
    if isinstance(last, AssistantMessage) and isinstance(more, AssistantMessage) and not last.calls:
        text = "\n\n".join(part for part in (last.text, more.text) if part.strip())
        return AssistantMessage(text, more.calls, more.reasoning, more.extras)
    return None


def _group(exchanges: Iterable[Exchange], speaker: str, channel: str) -> list[Message]:
    lines: list[str] = []
    attachments: tuple[Attachment, ...] = ()
    tail: list[Message] = []
    for exchange in exchanges:
        if exchange.listener != channel or not exchange.complete:
            continue
        if isinstance(exchange.said, ToolsCalled):
            if exchange.speaker == speaker:
                tail += _calls(exchange.said, exchange.results)
            continue
        tail = []
        if not exchange.said.control and (exchange.said.text.strip() or exchange.said.attachments):
            text = exchange.said.text if exchange.said.text.strip() else "(attachments)"
            lines.append(f"{exchange.speaker}: {text}")
            attachments += exchange.said.attachments
    return [UserMessage("\n\n".join(lines), attachments), *tail] if lines else tail


def _calls(said: ToolsCalled, results: dict[str, ToolReturned]) -> list[Message]:
    parts = tuple(_part(call) for call in said.calls)
    messages: list[Message] = [
        AssistantMessage(said.text if said.text.strip() else "", parts, said.reasoning, said.extras)
    ]
    for part, call in zip(parts, said.calls, strict=True):
        result = results[call.id]
        content = result.content if result.content.strip() else "(no output)"
        if result.edited is not None:
            content = f"(A person changed the arguments to {canonical(result.edited)}.)\n{content}"
        messages.append(ToolMessage(call.id, part.name, content, result.outcome, result.attachments))
    return messages


def _part(call: CallRecord) -> CallPart:
    """The raw arguments where they are the text of an object that can be sent, else one that means the same."""
    arguments = call.arguments if call.parsed else "{}"
    if call.parsed and _HALF.search(arguments):
        arguments = canonical(call.parsed)
    return CallPart(call.id, provider_name(call.tool), arguments)


def provider_name(name: str) -> str:
    """A tool name that every provider accepts: unchanged where it already is, else made safe and kept distinct."""
    safe = _BAD_NAME.sub("_", name)
    if safe == name and 0 < len(name) <= _NAME_LIMIT:
        return name
    mark = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: _NAME_LIMIT - 9] or 'tool'}_{mark}"
