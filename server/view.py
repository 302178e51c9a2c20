"""One connection's view of one session: catch up from a seq, then live, without a gap and without a double.

The only cursor is the seq of the last row that was sent. The next row comes from the room's memory if it is there, else
from the log: so there is no queue that could overflow, and a viewer that fell behind reads the log.
"""

from collections import deque
from typing import TYPE_CHECKING

from ..fsm.errors import Error
from .frames import Delta, Live, TroubleFrame, encoded
from .room import DELTA, Entry, Making, Room

if TYPE_CHECKING:
    from .connection import Connection

TOLD = 64  # notes and troubles that wait for one viewer; the oldest are dropped


class View:
    """A subscription of a session."""

    def __init__(
        self, connection: "Connection", room: Room, after: int, *, deltas: bool = True, notes: bool = True
    ) -> None:
        self.connection = connection
        self.room = room
        self.sent = after
        self.deltas = deltas
        self.notes = notes
        self.live = False
        self.broken = False
        self._trouble = ""
        self._page: deque[Entry] = deque()
        self._told: deque[bytes] = deque(maxlen=TOLD)
        self._offsets: dict[tuple[str, str, int], int] = {}

    def tell(self, data: bytes) -> None:
        """Send a frame that is no row when its turn comes."""
        self._told.append(data)

    def next_row(self) -> tuple[bytes, tuple[str, str] | None] | None:
        """The next row as a frame, with the request if it is a card; then once `live`; None when there is nothing."""
        if self.broken:
            return None
        if self.sent < self.room.head:
            entry = self._next_entry()
            if entry is None:
                return self._stuck()
            if (rest := self._rest(entry)) is not None:
                return rest, None
            self._page_done(entry)
            self.sent = entry.seq
            return entry.data, entry.request
        if not self.live:
            self.live = True
            return encoded(Live(session=self.room.session, seq=self.sent)), None
        return None

    def next_told(self) -> bytes | None:
        """The next note or trouble."""
        return self._told.popleft() if self._told else None

    def next_delta(self) -> bytes | None:
        """More of what is being made; for a viewer that came late, all of it so far."""
        if not self.live or not self.deltas or self.sent < self.room.head:
            return None
        if not self.room.making:
            self._offsets.clear()
            return None
        for made in self.room.making.values():
            if (data := self._delta(made)) is not None:
                return data
        return None

    def _next_entry(self) -> Entry | None:
        if self._page and self._page[0].seq == self.sent + 1:
            return self._page[0]
        self._page.clear()
        if (entry := self.room.entry(self.sent + 1)) is not None:
            return entry
        try:
            self._page.extend(self.room.page(self.sent))
        except Error as error:
            self._trouble = str(error)
            return None
        self._trouble = f"seq {self.sent + 1} is not in the log"
        return self._page[0] if self._page else None

    def _page_done(self, entry: Entry) -> None:
        if self._page and self._page[0] is entry:
            self._page.popleft()

    def _stuck(self) -> tuple[bytes, None]:
        self.broken = True
        frame = TroubleFrame(session=self.room.session, seq=self.sent, code="corrupt", message=self._trouble)
        return encoded(frame), None

    def _rest(self, entry: Entry) -> bytes | None:
        """What a live viewer still lacks of the pieces before the row that holds the whole, if it is not much."""
        if not self.live or not self.deltas:
            return None
        for made in entry.made:
            if made.length - self._offset(made) <= DELTA and (data := self._delta(made)) is not None:
                return data
        return None

    def _offset(self, made: Making) -> int:
        return self._offsets.get((made.message_id, made.kind, made.index), made.start)

    def _delta(self, made: Making) -> bytes | None:
        offset = self._offset(made)
        text = made.since(offset)
        key = (made.message_id, made.kind, made.index)
        if not text and (made.kind != "call" or key in self._offsets):
            return None
        self._offsets[key] = offset + len(text)
        frame = Delta.model_validate({
            "session": self.room.session, "seq": self.sent, "message_id": made.message_id, "kind": made.kind,
            "offset": offset, "text": text, "index": made.index, "name": made.name,
        })  # fmt: skip
        return encoded(frame)
