"""A session in the hands of an application."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ..fsm import inputs as inp
from ..fsm.canonical import canonical, clean, clean_json, digest
from ..fsm.errors import Misuse
from ..fsm.events import ApprovalRequested, MessageAdded, QuestionAsked, Row
from ..fsm.session import Session
from ..fsm.states import State
from ..store.base import Command
from .hub import Hub, settled
from .inbox import Outcome
from .notices import Listener, Notice, Rows
from .proposals import edit

if TYPE_CHECKING:
    from .engine import Engine


@dataclass(frozen=True, slots=True)
class Turn:
    """How a turn came to rest: `text` is the newest answer ("" there was none), `requests` wait for a word."""

    state: State
    text: str
    requests: tuple[ApprovalRequested, ...]
    question: QuestionAsked | None
    seq: int


class Conversation:
    """Commands for one session. Each is durable when its call returns; a refused one raises `Misuse`.

    `command` is an id of the caller's choice: sending the same command again under it has no second effect.
    """

    def __init__(self, engine: "Engine", hub: Hub) -> None:
        self._engine = engine
        self._hub = hub
        self._id = hub.session.id

    @property
    def id(self) -> str:
        """The session's id."""
        return self._id

    @property
    def session(self) -> Session:
        """Where the session stands, as of the last durable row."""
        hub = self._newest()
        if hub.closed and not self._engine.closed:
            hub.refresh()
        return hub.session

    def _newest(self) -> Hub:
        """The hub, or its successor: a session may have left memory and come back since."""
        if self._hub.closed:
            self._hub = self._engine.live(self.id) or self._hub
        return self._hub

    async def _ready(self) -> Hub:
        if self._newest().closed:
            self._hub = await self._engine.hub(self.id)
        return self._hub

    async def apply(self, given: inp.Input, command: str = "", content: Any = None) -> Outcome:
        """Submit an input as it is; a refusal is part of the answer, not an exception."""
        try:
            key = Command(command, digest(clean_json([given.actor, content]))) if command else None
        except ValueError as error:
            raise Misuse(f"command {command!r} has a content that is no JSON: {error}") from error
        return await (await self._ready()).submit(given, key)

    async def _do(self, given: inp.Input, command: str, *content: Any) -> Outcome:
        outcome = await self.apply(given, command, [type(given).__name__, *content])
        if outcome.refusal is not None:
            raise Misuse(outcome.refusal.why)
        return outcome

    async def send(
        self, text: str, *, by: str = "local", sender: str = "", recipient: str = "", command: str = ""
    ) -> Turn:
        """Say something and wait until the session rests again."""
        return await self._resting(inp.Say(clean(text), f"person:{by}", sender, recipient), command, text)

    async def say(
        self, text: str, *, by: str = "local", sender: str = "", recipient: str = "", command: str = ""
    ) -> Outcome:
        """Say something and return as soon as it is durable; while the session is busy it is queued."""
        return await self._do(inp.Say(clean(text), f"person:{by}", sender, recipient), command, text)

    async def decide(
        self,
        request: ApprovalRequested,
        outcome: str,
        *,
        by: str = "local",
        reason: str = "",
        arguments: dict[str, JsonValue] | None = None,
        result: str = "",
        remember: str = "",
        command: str = "",
    ) -> Outcome:
        """Give a word on a request: approved, denied, or (for an unknown outcome) committed with a result."""
        tool = self._engine.registry.get(request.tool)
        edited = None if arguments is None else edit(arguments, tool)
        given = inp.Decide(
            request.request_id,
            request.digest,
            outcome,
            f"person:{by}",
            clean(reason),
            edited,
            clean(result),
            remember,
        )
        return await self._do(given, command, request.request_id, outcome, reason, arguments, result, remember)

    async def answer(
        self, request_id: str, answers: tuple[str, ...] | None, *, by: str = "local", command: str = ""
    ) -> Outcome:
        """Answer an open question; None skips it."""
        cleaned = None if answers is None else tuple(clean(one) for one in answers)
        return await self._do(inp.Answer(request_id, cleaned, f"person:{by}"), command, request_id, answers)

    async def retry(self, *, by: str = "local", command: str = "") -> Turn:
        """Try the failed turn again and wait until the session rests."""
        return await self._resting(inp.Retry(f"person:{by}"), command)

    async def resume(self, *, by: str = "local", command: str = "") -> Turn:
        """Let a model speak for the awaited node (its message is marked synthetic), and wait."""
        return await self._resting(inp.Continue(f"person:{by}"), command)

    async def stop(self, *, by: str = "local", session: bool = False, command: str = "") -> Outcome:
        """End the open turn, or the whole session."""
        return await self._do(inp.Stop(f"person:{by}", session), command, session)

    async def grant(self, tool: str, *, by: str = "local", command: str = "", **more: Any) -> Outcome:
        """Allow a tool in advance for the session's owner."""
        subject = self.session.owner
        return await self._do(inp.Grant(tool, f"person:{by}", subject, **more), command, tool, canonical(more))

    async def revoke(self, grant_id: str, *, by: str = "local", command: str = "") -> Outcome:
        """Take a grant back."""
        return await self._do(inp.Revoke(grant_id, f"person:{by}", self.session.owner), command, grant_id)

    async def allow_rerun(self, tool: str, *, by: str = "local", command: str = "") -> Outcome:
        """Let a tool run again that runs once per session, or needs a pause."""
        return await self._do(inp.AllowRerun(tool, f"person:{by}"), command, tool)

    async def remove_member(self, channel: str, member: str, *, by: str = "local", command: str = "") -> Outcome:
        """Take a member out of a channel. One that was to speak is replaced by another choice, if anybody is left."""
        return await self._do(inp.RemoveMember(channel, member, f"person:{by}"), command, channel, member)

    async def _resting(self, given: inp.Input, command: str, *content: Any) -> Turn:
        answers: list[str] = []

        def listen(notice: Notice) -> None:
            if isinstance(notice, Rows):
                answers.extend([
                    row.event.text for row in notice.rows
                    if isinstance(row.event, MessageAdded) and row.event.by == "model"
                ])  # fmt: skip

        stop = (await self._ready()).subscribe(listen)
        try:
            await self._do(given, command, *content)
            await self.rest()
        finally:
            stop()
        return self.turn(answers[-1] if answers else "")

    async def rest(self) -> Session:
        """Wait until the session is with a person, or has ended.

        Raises:
            Error: it was closed meanwhile.
        """
        return await (await self._ready()).until(settled)

    def turn(self, text: str = "") -> Turn:
        """Where the session rests."""
        session = self.session
        return Turn(session.state, text, session.requests, session.question, session.seq)

    def rows(self, after: int = 0, limit: int = 500) -> list[Row]:
        """A page of the session's rows."""
        return self._engine.log.read(self.id, after, limit)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear rows once they are durable, and pieces of what is being made; the answer ends it.

        Raises:
            Error: the session has left memory; open it again.
        """
        return self._newest().subscribe(listener)
