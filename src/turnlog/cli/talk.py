"""The terminal side of a chat: what is said, what runs, what is asked."""

from pathlib import Path

from ..engine import Conversation, Engine, Notice, Piece, Rows
from ..fsm.errors import Misuse
from ..fsm.events import ApprovalRequested, MessageAdded, QuestionAsked, Row, TurnFailed
from ..fsm.states import State
from .card import ask_word_async, card
from .lines import Lines
from .rows import told_of
from .text import plain, styled, visible

HELP = "Write a message, or: /stop ends the session for good, /quit leaves it (it can be resumed), /help."
_TOLD = frozenset({"tool_started", "tool_returned", "approval_resolved", "grant_recorded", "session_terminated"})


class Screen:
    """Prints what a session tells: pieces as they come, then whatever the pieces did not hold."""

    def __init__(self) -> None:
        self._open = ""
        self.failure = ""

    def hear(self, notice: Notice) -> None:
        """Take a notice of the engine."""
        match notice:
            case Piece(kind="text"):
                if self._open != notice.message_id:
                    self._end()
                    self._open = notice.message_id
                print(plain(notice.text), end="", flush=True)
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
            self.failure = f"{event.error}: {event.message}"
            self._end()
        elif event.kind in _TOLD:
            self._line(styled(f"  {event.kind.replace('_', ' ')}: {told_of(event)}", "cyan"))

    def _line(self, text: str) -> None:
        self._end()
        print(text, flush=True)

    def _end(self) -> None:
        if self._open:
            print(flush=True)
        self._open = ""


class Talk:
    """One chat: says what is typed, and asks for whatever the session waits for."""

    def __init__(self, engine: Engine, db: Path) -> None:
        self.engine, self.db = engine, db
        self.screen = Screen()
        self.lines = Lines()

    async def run(self, session: str = "") -> None:
        """Talk until the session or the input ends."""
        conversation = await (self.engine.open(session) if session else self.engine.create())
        stop = conversation.subscribe(self.screen.hear)
        print(styled(f"session {visible(conversation.id)} in {self.db}. {HELP}", bold=True))
        try:
            while await self._step(conversation):
                pass
        except EOFError:
            pass
        finally:
            stop()
            self.lines.close()
        if conversation.session.state is not State.TERMINATED:
            where = f"--session {visible(conversation.id)} --db {self.db}"
            print(f"The session goes on with `turnlog chat {where}` and the same model.")

    async def _step(self, c: Conversation) -> bool:
        """Deal with what the session waits for; False ends the chat."""
        session = await c.rest()
        try:
            match session.state:
                case State.TERMINATED:
                    print("The session has ended.")
                    return False
                case State.AWAITING_APPROVAL:
                    await self._approve(c, session.requests[0])
                case State.ERROR:
                    return await self._failed(c)
                case _ if session.question is not None:
                    await self._answer(c, session.question)
                case _:
                    return await self._say(c, await self.lines.next("> "))
        except Misuse as error:
            print(visible(str(error)))
        return True

    async def _say(self, c: Conversation, text: str) -> bool:
        match text.strip():
            case "":
                return True
            case "/quit":
                return False
            case "/help":
                print(HELP)
            case "/stop":
                await c.stop(session=True)
            case said if said.startswith("/"):
                print(f"{visible(said)} is no command. {HELP}")
            case _:
                await c.say(text)
        return True

    async def _approve(self, c: Conversation, request: ApprovalRequested) -> None:
        for line in card(request, self.engine.clock.now()):
            print(line)
        word = await ask_word_async(request, self.lines.next)
        await c.decide(
            request, word.outcome, reason=word.reason, arguments=word.arguments, result=word.result
        )  # fmt: skip

    async def _failed(self, c: Conversation) -> bool:
        print(styled(f"The model failed. {visible(self.screen.failure)}".rstrip(), "red"))
        said = await self.lines.next("Enter tries again, or write another message: ")
        if not said.strip():
            await c.retry()
            return True
        return await self._say(c, said)

    async def _answer(self, c: Conversation, asked: QuestionAsked) -> None:
        answers = []
        for question in asked.questions:
            choices = f" ({', '.join(visible(one) for one in question.choices)})" if question.choices else ""
            answers.append(await self.lines.next(f"{visible(question.text)}{choices}: "))
        await c.answer(asked.request_id, tuple(answers))
