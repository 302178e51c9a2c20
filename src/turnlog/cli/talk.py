"""The terminal side of a chat: what is said, what runs, what is asked."""

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..engine import Conversation, Engine, Notice, Piece, Rows
from ..fsm.errors import Misuse
from ..fsm.events import ApprovalRequested, MessageAdded, QuestionAsked, Row, TurnFailed
from ..fsm.session import Session
from ..fsm.states import State
from .card import ask_word_async, card, is_word, remaining
from .lines import Lines
from .options import command
from .rows import told_of
from .text import counted, plain, say, short, visible

_T = TypeVar("_T")
_PAGE = 100
HELP = "Write a message, or: /stop ends the session for good, /quit leaves it (it can be resumed), /help."
MORE = """/say TEXT sends what looks like a command or like a word on a call.
/rerun TOOL lets a tool run again that runs once a session or needs a pause.
/remove MEMBER [CHANNEL] takes a member out of its group."""
_TOLD = frozenset({"tool_started", "tool_returned", "approval_resolved", "grant_recorded", "session_terminated"})


class Screen:
    """Prints what a session tells: pieces as they come, then whatever the pieces did not hold."""

    def __init__(self) -> None:
        self._open = ""

    def hear(self, notice: Notice) -> None:
        """Take a notice of the engine."""
        match notice:
            case Piece(kind="text"):
                if self._open != notice.message_id:
                    self._end()
                    self._open = notice.message_id
                say(plain(notice.text), end="")
            case Piece(kind="note"):
                self._line(f"  {visible(notice.text)}")
            case Rows():
                for row in notice.rows:
                    self._row(row)
            case _:
                pass

    def _row(self, row: Row) -> None:
        event = row.event
        if isinstance(event, MessageAdded) and event.by == "model":
            if self._open != event.message_id:
                self._line(plain(event.text))
            self._end()
        elif event.kind == "tools_called":
            if self._open != event.message_id and event.text.strip():
                self._line(plain(event.text))
            self._end()
        elif isinstance(event, TurnFailed):
            self._end()
        elif event.kind in _TOLD:
            self._line(f"  {event.kind.replace('_', ' ')}: {told_of(event)}", "cyan")

    def _line(self, text: str, colour: str | None = None) -> None:
        self._end()
        say(text, colour=colour, flush=True)

    def _end(self) -> None:
        if self._open:
            say(flush=True)
        self._open = ""


class Talk:
    """One chat: says what is typed, and asks for whatever the session waits for."""

    def __init__(self, engine: Engine, db: Path, again: Sequence[str] = ()) -> None:
        self.engine, self.db, self.again = engine, db, again
        self.screen = Screen()
        self.lines = Lines()
        self._wary = False

    async def run(self, session: str = "") -> None:
        """Talk until the session or the input ends."""
        conversation = await (self.engine.open(session) if session else self.engine.create())
        stop = conversation.subscribe(self.screen.hear)
        say(f"session {visible(conversation.id)} in {self.db}. {HELP}", bold=True)
        try:
            while await self._step(conversation):
                pass
        except EOFError:
            self._leave(conversation.session)
        except asyncio.CancelledError:
            # Ctrl-C: the line that was being typed ends here.
            say()
            self._leave(conversation.session)
            raise
        finally:
            stop()
            self.lines.close()

    def _leave(self, session: Session) -> None:
        """Tell what waits in the session, and the command that goes on with it."""
        if session.state is State.TERMINATED:
            return
        if session.requests:
            told = counted(len(session.requests), "call")
            say(f"{told} without a word. {remaining(session.requests[0], self.engine.clock.now())}".strip())
        if session.state is State.ERROR:
            say("Its last turn failed: go on and press Enter to try it again.")
        say("The session goes on with:")
        say(command("chat", "--session", session.id, "--db", self.db, *self.again))

    async def _step(self, c: Conversation) -> bool:
        """Deal with what the session waits for; False ends the chat."""
        session = await c.rest()
        try:
            match session.state:
                case State.TERMINATED:
                    say("The session has ended.")
                    return False
                case State.AWAITING_APPROVAL:
                    await self._approve(c, session.requests[0])
                case State.ERROR:
                    await self._failed(c)
                case _ if session.question is not None:
                    await self._answer(c, session.question)
                case _:
                    await self._say(c, await self.lines.next("> "))
        except Misuse as error:
            say(visible(str(error)))
        return True

    async def _say(self, c: Conversation, text: str) -> None:
        match text.strip():
            case "":
                pass
            case said if said.startswith("/"):
                await self._command(c, said)
            case said if self._wary and is_word(said):
                say(f"{visible(said)!r} was not sent: no call waits for a word now. `/say {visible(said)}` sends it.")
            case _:
                self._wary = False
                await c.say(text)

    async def _command(self, c: Conversation, said: str) -> None:
        match said.split():
            case ["/quit"]:
                raise EOFError
            case ["/help"]:
                say(f"{HELP}\n{MORE}")
            case ["/stop"]:
                await c.stop(session=True)
            case ["/say", _, *_]:
                self._wary = False
                await c.say(said.removeprefix("/say").strip())
            case ["/rerun", tool]:
                await c.allow_rerun(tool)
                say(f"{visible(tool)} may run again.")
            case ["/remove", _, *_]:
                channel, member = _member(c.session, said.removeprefix("/remove").strip())
                await c.remove_member(channel, member)
                say(f"{visible(member)} has left {visible(channel)}.")
            case _:
                say(f"{visible(said)} is no command. {HELP}\n{MORE}")

    async def _approve(self, c: Conversation, request: ApprovalRequested) -> None:
        for one in self.lines.drop():
            say(f"not sent, typed before this: {short(one)}")
        for line in card(request, self.engine.clock.now()):
            say(line)
        word = await self._while_open(c, request.request_id, ask_word_async(request, self._ask))
        if word is None:
            return
        try:
            await c.decide(
                request, word.outcome, reason=word.reason, arguments=word.arguments, result=word.result
            )  # fmt: skip
        except Misuse:
            # Another word may be on its way: the person sees too late that this one was.
            self._wary = c.session.request(request.request_id) is None
            raise

    async def _while_open(self, c: Conversation, request_id: str, asking: Coroutine[Any, Any, _T]) -> _T | None:
        """What a person says about a request; None when it was settled before they had said it."""
        over = asyncio.Event()

        def look(_: Notice | None = None) -> None:
            s = c.session
            if s.request(request_id) is None and (s.question is None or s.question.request_id != request_id):
                over.set()

        stop = c.subscribe(look)
        look()
        asked, ended = asyncio.ensure_future(asking), asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait((asked, ended), return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
        finally:
            stop()
            ended.cancel()
            asked.cancel()
        # The line that is being typed was meant for the request: a model must not get it as a message.
        self._wary = True
        await c.rest()
        said = await self.lines.next("It is too late for a word on that. Press Enter to go on: ")
        if said.strip():
            say(f"not sent: {short(said)}")
        return None

    async def _ask(self, prompt: str) -> str:
        """A line about a request or a question, which may also leave the chat."""
        said = await self.lines.next(prompt)
        if said.strip() == "/quit":
            raise EOFError
        return said

    async def _failed(self, c: Conversation) -> None:
        say(_failure(c), colour="red")
        said = await self.lines.next("Enter tries again, or write another message: ")
        if said.strip():
            await self._say(c, said)
        else:
            await c.retry()

    async def _answer(self, c: Conversation, asked: QuestionAsked) -> None:
        answers = await self._while_open(c, asked.request_id, self._answers(asked))
        if answers is not None:
            await c.answer(asked.request_id, answers)

    async def _answers(self, asked: QuestionAsked) -> tuple[str, ...]:
        answers = []
        for question in asked.questions:
            choices = f" ({', '.join(visible(one) for one in question.choices)})" if question.choices else ""
            answers.append(await self._ask(f"{visible(question.text)}{choices}: "))
        return tuple(answers)


def _failure(c: Conversation) -> str:
    """Why the last turn failed, from the log: it may have failed before this chat began."""
    end = c.session.seq
    while end > 0:
        start = max(0, end - _PAGE)
        for row in reversed(c.rows(start, end - start)):
            if isinstance(row.event, TurnFailed):
                return f"The {row.event.where} failed. {visible(f'{row.event.error}: {row.event.message}')}"
        end = start
    return "The turn failed."


def _member(session: Session, said: str) -> tuple[str, str]:
    """The channel and the member that are meant by a member's name, which may hold spaces, and maybe a channel's.

    Raises:
        Misuse: nobody is, or several are.
    """
    there = [(one.name, member) for one in session.channels.values() for member in one.members]
    pairs = [pair for pair in there if pair not in session.left]
    found = [(channel, member) for channel, member in pairs if said in (member, f"{member} {channel}")]
    if len(found) != 1:
        could = ", ".join(f"/remove {member} {channel}" for channel, member in found or pairs)
        what = "is in several groups" if found else "is in no group of this session"
        raise Misuse(f"{said!r} {what}" + (f": write one of {could}" if could else ""))
    return found[0]
