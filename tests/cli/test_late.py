"""What a person types too late, or too early, for what a chat asks: no word on it, and no message to the model."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.fakes import FakeClock
from turnlog import Agent, Conversation, Engine, State, tool
from turnlog.cli.talk import Talk
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, say
from turnlog.fsm.session import Session

EARLY = """
from turnlog import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say


@tool
def wait() -> str:
    "Wait until somebody writes into the pipe."
    with open("pipe") as lines:
        return lines.read()


@tool(needs_approval=True)
def pay(to: str) -> str:
    "Pay somebody."
    return f"paid {to}"


def agents():
    script = [call(("wait", {})), call(("pay", {"to": "Ann"})), say("All is done.")]
    return [Agent("@agent", ScriptedModel(script), tools=[wait, pay])]
"""


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def step(given: ModelCall) -> Step:
    """Two calls, then answers."""
    return call(("pay", {"to": "Ann"}), ("pay", {"to": "Bob"})) if given.index == 0 else say(f"answer {given.index}")


def rests(session: Session) -> bool:
    """Whether the turn is over."""
    return session.state is State.INTERRUPT


class Person:
    """Types one line after another, each when the prompt for it stands there."""

    def __init__(self) -> None:
        self._prompts: asyncio.Queue[str] = asyncio.Queue()
        self._typed: asyncio.Queue[str] = asyncio.Queue()

    async def next(self, prompt: str = "") -> str:
        """What the chat calls."""
        self._prompts.put_nowait(prompt)
        return await self._typed.get()

    def drop(self) -> list[str]:
        """Nothing was typed ahead."""
        return []

    def close(self) -> None:
        """Nothing to close."""

    async def prompted(self, part: str) -> None:
        """Wait for the next prompt, which must have this in it."""
        found = await asyncio.wait_for(self._prompts.get(), 30)
        assert part in found

    def leaves(self) -> None:
        """Type the last line."""
        self._typed.put_nowait("/quit")

    async def types(self, line: str, then: str) -> None:
        """Type a line and wait for the prompt after it."""
        self._typed.put_nowait(line)
        await self.prompted(then)


class Chat:
    """A chat in this process, with a clock and a person that the test rules."""

    def __init__(self, engine: Engine, clock: FakeClock) -> None:
        self.clock, self.person = clock, Person()
        self.talk = Talk(engine, Path("log.db"))
        self.talk.lines.close()
        self.talk.lines = self.person  # type: ignore[assignment]  # a stand-in for standard input

    async def expire(self, engine: Engine) -> None:
        """Let the time of every open request pass."""
        self.clock.advance(121)
        await (await engine.hub("s")).until(rests)

    async def messages(self, engine: Engine) -> list[str]:
        """What was said to the model."""
        c: Conversation = await engine.open("s")
        return [row.event.text for row in c.rows() if row.event.kind == "message_added" and row.event.by == "person"]


@asynccontextmanager
async def chatting(tmp_path: Path) -> "AsyncIterator[tuple[Chat, Engine]]":
    """A chat in which both calls wait for a word."""
    clock = FakeClock()
    async with Engine(
        tmp_path / "log.db", [Agent("@agent", ScriptedModel(step), tools=[pay])], clock=clock, auto_approve=()
    ) as engine:
        await engine.create("s")
        chat = Chat(engine, clock)
        running = asyncio.ensure_future(chat.talk.run("s"))
        try:
            await chat.person.prompted("> ")
            await chat.person.types("Pay them", "[d] deny")
            yield chat, engine
            chat.person.leaves()
            await running
        finally:
            running.cancel()


@pytest.mark.parametrize("line", ["y", "deny", "a whole sentence", '{"to": "Eve"}'])
async def test_what_was_being_typed_for_a_request_when_it_expired_is_not_sent(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with chatting(tmp_path) as (chat, engine):
        await chat.expire(engine)
        await chat.person.prompted("It is too late for a word on that. Press Enter to go on")
        await chat.person.types(line, "> ")
        assert f"not sent: {line}" in capsys.readouterr().out
        await chat.person.types("Never mind", "> ")
        assert await chat.messages(engine) == ["Pay them", "Never mind"]


@pytest.mark.parametrize("begun", [["d"], ["e", "no JSON"]])
async def test_a_reason_or_arguments_that_come_too_late_are_not_sent_either(tmp_path: Path, begun: list[str]) -> None:
    async with chatting(tmp_path) as (chat, engine):
        for line in begun:
            await chat.person.types(line, "reason" if line == "d" else "new arguments")
        await chat.expire(engine)
        await chat.person.prompted("It is too late")
        await chat.person.types("much too expensive", "> ")
        assert await chat.messages(engine) == ["Pay them"]


async def test_a_second_word_after_requests_expired_is_no_message_and_can_be_made_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with chatting(tmp_path) as (chat, engine):
        await chat.expire(engine)
        await chat.person.prompted("It is too late")
        await chat.person.types("", "> ")
        for word in ("y", "No", "approve"):
            await chat.person.types(word, "> ")
            assert f"`/say {word}` sends it" in capsys.readouterr().out
        assert await chat.messages(engine) == ["Pay them"]
        await chat.person.types("/say y", "> ")
        await chat.person.types("no", "> ")
        assert await chat.messages(engine) == ["Pay them", "y", "no"]


async def test_a_word_that_was_on_its_way_when_the_request_expired_makes_the_next_one_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with chatting(tmp_path) as (chat, engine):
        decide = Conversation.decide

        async def late(self: Conversation, *given: object, **more: object) -> object:
            chat.clock.advance(121)
            await (await engine.hub("s")).until(rests)
            return await decide(self, *given, **more)  # type: ignore[arg-type]  # handed on as they came

        monkeypatch.setattr(Conversation, "decide", late)
        await chat.person.types("y", "> ")
        assert "already expired by timer" in capsys.readouterr().out
        await chat.person.types("y", "> ")
        assert await chat.messages(engine) == ["Pay them"]


def test_what_was_typed_before_a_card_was_shown_is_no_word_on_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "early.py").write_text(EARLY)
    chat = Terminal("chat", "--app", "early:agents", "--db", "log.db", folder=tmp_path)
    chat.answer([("> ", "Go"), ("tool started: wait", "y")])
    # The line stands in the terminal; now the tool goes on, and the card comes.
    (tmp_path / "pipe").write_text("go on")
    chat.answer([("[d] deny: ", "n"), ("reason", "not yet"), ("All is done.", "/quit")])
    assert chat.end() == 0
    assert "not sent, typed before this: y" in chat.told
    assert 'denied via person because "not yet"' in chat.told
