"""How much of the history a model sees: so many messages, so many tokens, always whole, and always with the question.

What may only leave a window as a whole is a unit: messages that are joined, or a round of calls with its results. The
newest unit stays whatever its size. If the newest message to the agent had to leave (a round was long), it stays in
front of the window all the same, so that a model never answers without knowing what it was asked.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..fsm.events import Attachment, ToolsCalled
from ..fsm.history import AssistantMessage, Exchange, Message, ToolMessage, UserMessage, extend, shown, view

IMAGE = 1000  # tokens of a picture, about
FILE = 20  # of another file, which a model is only told of


def quarter(text: str) -> int:
    """About how many tokens a text has: one for four characters."""
    return (len(text) + 3) // 4


class Window(NamedTuple):
    """At most so many messages and about so many tokens of history; None is all. `estimate` counts those of a text."""

    messages: int | None = None
    tokens: int | None = None
    estimate: Callable[[str], int] = quarter

    def weigh(self, messages: Sequence[Message]) -> int:
        """About how many tokens some messages have; 0 where nobody asks."""
        return 0 if self.tokens is None else sum(map(self._weight, messages))

    def over(self, messages: int, tokens: int) -> bool:
        """Whether that is too much."""
        return (self.messages is not None and messages > self.messages) or (
            self.tokens is not None and tokens > self.tokens
        )

    def _weight(self, message: Message) -> int:
        match message:
            case UserMessage():
                return self._count(message.text) + _files(message.attachments)
            case ToolMessage():
                return self._count(message.content) + _files(message.attachments)
            case AssistantMessage():
                calls = sum(self._count(f"{call.name} {call.arguments}") for call in message.calls)
                return self._count(message.text) + self._count(message.reasoning) + calls

    def _count(self, text: str) -> int:
        if not text:
            return 0
        try:
            return max(0, int(self.estimate(text)))
        except Exception:  # noqa: BLE001 - it is anybody's code, and a turn must not fail by it
            return quarter(text)


def _files(attachments: tuple[Attachment, ...]) -> int:
    return sum(IMAGE if one.media_type.startswith("image/") else FILE for one in attachments)


class Unit(NamedTuple):
    """What leaves a window as a whole. `first` and `last` are seqs, `size` is in messages."""

    first: int
    last: int
    size: int
    weight: int
    asks: bool


class Seen(NamedTuple):
    """What a model sees: `messages` in a list of its own; `first` is the seq that the window begins with (0: none).

    `asked` are the seqs of the message that stands before the window, (0, 0) if none does.
    """

    messages: list[Message]
    first: int
    asked: tuple[int, int] = (0, 0)


class Side:
    """The newest messages of a pair as one of the two sees them, kept as the history grows."""

    def __init__(self, speaker: str, listener: str, window: Window) -> None:
        self.speaker, self.window = speaker, window
        self.pair = {speaker, listener}
        self.messages: list[Message] = []
        self._units: deque[Unit] = deque()
        self._weight = 0
        self._asking = 0  # how many units are messages to the speaker
        self._left = 0  # how many units have left
        self._asked: tuple[Unit, Message, int] | None = None  # the newest of those that asked, and how many left before

    @property
    def full(self) -> bool:
        """Whether older rows would change nothing.

        What has left must be more than the first unit with what the newest question was joined to.
        """
        return self._left > 0 and (self._asking > 0 or (self._asked is not None and self._asked[2] > 0))

    def seen(self) -> Seen:
        """What the speaker sees now."""
        first = self._units[0].first if self._units else 0
        if self._asking or self._asked is None:
            return Seen(self.messages.copy(), first)
        unit, message, _ = self._asked
        return Seen([message, *self.messages], first, (unit.first, unit.last))

    def add(self, exchange: Exchange) -> None:
        """Take in an exchange that is complete."""
        if exchange.speaker not in self.pair or exchange.listener not in self.pair:
            return
        more = shown(exchange, self.speaker)
        if not more:
            return
        before, asks = len(self.messages), isinstance(more[0], UserMessage)
        weight = self.window.weigh(more)
        self._weight += weight
        if extend(self.messages, more):
            old = self._units.pop()
            size = old.size + len(self.messages) - before
            self._units.append(Unit(old.first, exchange.last, size, old.weight + weight, old.asks))
        else:
            self._asking += asks
            self._units.append(Unit(exchange.first, exchange.last, len(more), weight, asks))
        while len(self._units) > 1 and self.window.over(len(self.messages), self._weight):
            self._drop()

    def _drop(self) -> None:
        unit = self._units.popleft()
        if unit.asks:
            self._asking -= 1
            self._asked = unit, self.messages[0], self._left
        del self.messages[: unit.size]
        self._weight -= unit.weight
        self._left += 1


def seen_in_group(exchanges: Sequence[Exchange], speaker: str, channel: str, window: Window) -> Seen:
    """What a member sees of its group: a transcript of the newest messages, then its own calls since.

    Only what it sees counts, and the newest message is always there.
    """
    taken: deque[Exchange] = deque()
    size = weight = 0
    full = asked = False
    for exchange in reversed(exchanges):
        calls = isinstance(exchange.said, ToolsCalled)
        if exchange.listener != channel or not exchange.complete:
            continue
        if calls and (asked or full or exchange.speaker != speaker):
            continue
        size += exchange.size
        weight += window.weigh(shown(exchange, speaker if calls else ""))
        over = bool(taken) and window.over(size, weight)
        if over and asked:
            break
        if over and calls:
            full = True
            continue
        if full:
            messages = view([exchange, *taken], speaker, channel, (speaker,))
            return Seen(messages, taken[0].first, (exchange.first, exchange.last))
        asked = asked or not calls
        taken.appendleft(exchange)
    return Seen(view(taken, speaker, channel, (speaker,)), taken[0].first if taken else 0)
