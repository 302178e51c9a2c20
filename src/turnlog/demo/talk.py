"""What the demo does over the socket. Each step has a connection of its own: a disconnect decides nothing."""

from collections.abc import Callable, Sequence
from typing import Any

from ..cli.card import Word
from ..fsm.errors import Error
from ..fsm.events import AnyEvent, ApprovalRequested, Row
from ..fsm.states import State
from ..server import Client
from ..server.client import Feed
from ..server.frames import EventFrame

SESSION = "demo"
WISH = "Please clean up the logs."
APPROVAL_SECONDS = 3600.0

See = Callable[[Row], None]


def row_of(frame: EventFrame) -> Row:
    """The row that a frame carries."""
    event: Any = AnyEvent.validate_python({"kind": frame.kind, "v": frame.v, **(frame.body or {})})
    return Row(
        frame.session, frame.seq, State(frame.state), frame.at, frame.actor, event, None, bytes.fromhex(frame.hash)
    )  # fmt: skip


async def begin(url: str, token: str, see: See) -> list[ApprovalRequested]:
    """Start the session, say what is wanted, and see rows until two calls wait for a word."""
    async with await Client.connect(url, token) as client:
        await client.create(SESSION, limits={"approval_seconds": APPROVAL_SECONDS})
        feed = await client.open(SESSION)
        await client.send(SESSION, WISH)
        rows = await _until(feed, see, lambda rows: len(_asked(rows)) == 2)
        return _asked(rows)


async def look(url: str, token: str) -> list[ApprovalRequested]:
    """Which requests are open, for a client that knows nothing yet."""
    async with await Client.connect(url, token) as client:
        rows = [row_of(frame) for frame in await (await client.open(SESSION)).live()]
    settled = {row.event.request_id for row in rows if row.event.kind == "approval_resolved"}
    return [one for one in _asked(rows) if one.request_id not in settled]


async def decide(url: str, token: str, request: ApprovalRequested, word: Word) -> str:
    """Give a word on a request; the answer is why it was refused, or "".

    Raises:
        Error: it was refused for a reason that no other word could help.
    """
    async with await Client.connect(url, token) as client:
        reply = await client.decide(
            SESSION, request.request_id, request.digest, word.outcome, reason=word.reason, arguments=word.arguments
        )  # fmt: skip
    if reply.refused is None:
        return ""
    if reply.refused.code != "invalid":
        raise Error(f"the word on {request.request_id} came to nothing: {reply.refused.why}; run the demo again")
    return reply.refused.why


async def follow(url: str, token: str, after: int, see: See, until: State) -> None:
    """See the rows after a seq until the session is in a state."""
    async with await Client.connect(url, token) as client:
        await _until(await client.open(SESSION, after), see, lambda rows: rows[-1].state is until)


async def retry(url: str, token: str, after: int, see: See) -> None:
    """Try again, then see rows until the turn is over."""
    async with await Client.connect(url, token) as client:
        feed = await client.open(SESSION, after)
        await client.retry(SESSION)
        await _until(feed, see, lambda rows: rows[-1].state is State.INTERRUPT)


async def _until(feed: Feed, see: See, enough: Callable[[list[Row]], bool]) -> list[Row]:
    rows: list[Row] = []
    async for frame in feed:
        if isinstance(frame, EventFrame):
            rows.append(row_of(frame))
            see(rows[-1])
            if enough(rows):
                break
    return rows


def _asked(rows: Sequence[Row]) -> list[ApprovalRequested]:
    return [row.event for row in rows if isinstance(row.event, ApprovalRequested)]
