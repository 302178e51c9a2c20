"""What the viewers of one session share: the newest rows as frames, and the text of what is being made.

A room listens to the session's hub. It never waits: it keeps, and wakes the viewers, who take what they have not sent
yet. So a slow viewer costs nothing, and the engine never meets a socket.
"""

import json
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.hub import Hub
from ..engine.notices import Notice, Piece, Rows, Trouble
from ..fsm import inputs as inp
from ..fsm.decide import pending
from ..fsm.events import ApprovalRequested, Event, MessageAdded, Row, ToolReturned, ToolsCalled
from .frames import Delta, EventFrame, TroubleFrame, encoded

if TYPE_CHECKING:
    from .app import Server
    from .view import View

RING_ROWS = 512
RING_BYTES = 4 * 2**20
PAGE = 50
# The longest text of one delta frame, in characters.
DELTA = 65_536
_ENVELOPE = {"kind", "v"}
_RESULT = {*_ENVELOPE, "citations"}


@dataclass(slots=True)
class Making:
    """What was made so far of one text, of one call's arguments or of the reasoning of a message."""

    message_id: str
    kind: str
    index: int = 0
    name: str = ""
    start: int = 0
    length: int = 0
    _parts: list[str] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    def add(self, piece: Piece) -> None:
        """Take more of it in."""
        if not self._parts:
            self.start = self.length = piece.offset
        self.name = piece.name or self.name
        self._starts.append(self.length)
        self._parts.append(piece.text)
        self.length += len(piece.text)

    def since(self, offset: int) -> str:
        """What follows `offset`, at most `DELTA` characters of it."""
        taken: list[str] = []
        size = 0
        for at in range(self._part(offset), len(self._parts)):
            text = self._parts[at]
            if self._starts[at] < offset:
                text = text[offset - self._starts[at] :]
            taken.append(text)
            size += len(text)
            if size >= DELTA:
                break
        return "".join(taken)[:DELTA]

    def _part(self, offset: int) -> int:
        # A viewer is nearly always at the end, so this looks from there.
        at = len(self._parts)
        while at > 0 and self._starts[at - 1] + len(self._parts[at - 1]) > offset:
            at -= 1
        return at


@dataclass(frozen=True, slots=True)
class Entry:
    """A row as a frame. `request` is that of an approval card; `made` is what the viewers saw being made of it."""

    seq: int
    data: bytes
    request: tuple[str, str] | None = None
    made: tuple[Making, ...] = ()


def body_of(event: Event) -> dict[str, object]:
    """The body of an event frame. The sources of a result are left out: they come with what ends the answer."""
    return event.model_dump(mode="json", exclude=_RESULT if isinstance(event, ToolReturned) else _ENVELOPE)


def entry_of(row: Row, max_body: int, made: tuple[Making, ...] = ()) -> Entry:
    """A row as a frame; a body above `max_body` bytes is left out and named by its size."""
    event = row.event
    body = body_of(event)
    frame = EventFrame.model_validate({
        "session": row.session, "seq": row.seq, "state": row.state.value, "kind": event.kind, "v": event.v,
        "at": row.at, "actor": row.actor, "hash": row.hash.hex(), "body": body,
    })  # fmt: skip
    data = encoded(frame)
    if len(data) > max_body:
        size = len(json.dumps(body, ensure_ascii=False).encode())
        data = encoded(frame.model_copy(update={"body": None, "large": True, "size": size}))
    request = (event.request_id, event.digest) if isinstance(event, ApprovalRequested) else None
    return Entry(row.seq, data, request, made)


class Room:
    """One live session and those who look at it here."""

    def __init__(self, server: "Server", session: str) -> None:
        self.server = server
        self.session = session
        self.views: set[View] = set()
        self.users = 0
        self.head = 0
        self.making: dict[tuple[str, str, int], Making] = {}
        self.hub: Hub | None = None
        self._ring: deque[Entry] = deque()
        self._bytes = 0
        self._stop: Callable[[], None] | None = None

    @property
    def live(self) -> Hub:
        """The live session, after `attach`."""
        assert self.hub is not None
        return self.hub

    async def attach(self) -> Hub:
        """Listen to the live session; again, if it left memory or was lost meanwhile.

        Raises:
            UnknownSession, CorruptLog, Conflict, StorageError: it cannot be brought to life.
        """
        hub = await self.server.engine.hub(self.session)
        if hub is not self.hub or self._stop is None:
            self.detach()
            self.hub, self._stop = hub, hub.subscribe(self.hear)
            self.head = max(self.head, hub.session.seq)
            self.wake()
        return hub

    def detach(self) -> None:
        """Listen no longer."""
        if self._stop is not None:
            self._stop()
        self._stop = None
        self._ring.clear()
        self._bytes = 0
        self.making.clear()

    def release(self) -> None:
        """Let the session leave memory when nobody looks and nothing is in flight."""
        if self.views or self.users or (self.hub is not None and not self.hub.closed and pending(self.hub.session)):
            return
        self.detach()
        if self.server.rooms.get(self.session) is self:
            del self.server.rooms[self.session]

    def wake(self) -> None:
        """Let every viewer look."""
        for view in self.views:
            view.connection.wake()

    def hear(self, notice: Notice) -> None:
        """Keep what the hub tells."""
        match notice:
            case Rows():
                self._rows(notice.rows)
            case Piece(kind="note"):
                self._note(notice)
            case Piece():
                key = (notice.message_id, notice.kind, notice.index)
                if key not in self.making:
                    self.making[key] = Making(notice.message_id, notice.kind, notice.index)
                self.making[key].add(notice)
            case Trouble():
                for view in self.views:
                    self._trouble(view, notice)
        self.wake()
        if not self.views:
            self.release()

    def join(self, view: "View") -> None:
        """Let a viewer look, and tell it what is missing now."""
        self.views.add(view)
        for trouble in self.live.missing.troubles:
            self._trouble(view, trouble)

    def _trouble(self, view: "View", notice: Trouble) -> None:
        frame = TroubleFrame(session=self.session, seq=self.head, code=_code(notice.code), message=notice.message)
        view.tell(encoded(frame))

    def _note(self, piece: Piece) -> None:
        frame = Delta(
            session=self.session, seq=self.head, message_id=piece.message_id, kind="note", offset=piece.offset,
            text=piece.text, index=piece.index, name=piece.name,
        )  # fmt: skip
        data = encoded(frame)
        for view in self.views:
            if view.notes:
                view.tell(data)

    def _rows(self, rows: tuple[Row, ...]) -> None:
        for row in rows:
            made: tuple[Making, ...] = ()
            if _ends(row.event):
                # Whatever else was being made was given up: a message is made by one model at a time.
                made = tuple(
                    one for one in self.making.values() if one.message_id == getattr(row.event, "message_id", "")
                )
                self.making.clear()
            if self.views:
                self._keep(entry_of(row, self.server.limits.max_body, made))
            self.head = row.seq
        if not self.views:
            self._ring.clear()
            self._bytes = 0

    def _keep(self, entry: Entry) -> None:
        if self._ring and self._ring[-1].seq != entry.seq - 1:
            self._ring.clear()
            self._bytes = 0
        self._ring.append(entry)
        self._bytes += len(entry.data)
        while len(self._ring) > RING_ROWS or self._bytes > RING_BYTES:
            self._bytes -= len(self._ring.popleft().data)

    def entry(self, seq: int) -> Entry | None:
        """A row that is still in memory."""
        at = seq - self._ring[0].seq if self._ring else -1
        return self._ring[at] if 0 <= at < len(self._ring) else None

    def page(self, after: int) -> list[Entry]:
        """The next rows of the log.

        Raises:
            CorruptLog: they cannot be read.
        """
        rows = self.server.engine.log.read(self.session, after, PAGE)
        return [entry_of(row, self.server.limits.max_body) for row in rows]

    def shown(self, request_id: str, digest: str, connection: str, actor: str) -> bool:
        """Put on record that a connection was sent the card of a request that is still open."""
        if self.hub is None or self.hub.closed or self.hub.session.request(request_id) is None:
            return False
        self.hub.put(inp.Show(request_id, digest, connection, actor))
        return True


def _ends(event: Event) -> bool:
    """Whether nothing more is being made once this row is there."""
    if isinstance(event, MessageAdded):
        return event.by == "model"
    return isinstance(event, ToolsCalled) or event.kind in (
        "turn_failed", "turn_interrupted", "session_terminated",
    )  # fmt: skip


def _code(name: str) -> str:
    """The name of an error as a code: StorageFull becomes storage_full."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
