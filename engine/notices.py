"""What subscribers of a session hear: rows that are durable, and pieces that are not."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..fsm.events import Row


class Rows(NamedTuple):
    """Rows that were just committed, in seq order."""

    session: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """More of a message that is being made. `offset` is where `text` starts, in characters of its `kind`.

    `kind` is text, reasoning, call (then `index` and `name` tell which call) or note (a tool's introspection, whose
    `message_id` is the call id).
    """

    session: str
    message_id: str
    kind: str
    offset: int
    text: str
    index: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that no row tells: the storage is full, a tool is missing, the session was lost to another owner."""

    session: str
    code: str
    message: str


Notice = Rows | Piece | Trouble
Listener = Callable[[Notice], None]
