"""Tools and models that raise or return what nobody expects: the model is told, the session lives."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, of_kind, slow_tool
from turnlog.engine import Agent, tool
from turnlog.engine.models.base import Delta, ModelCall, ModelError, ModelReply, TextDelta
from turnlog.engine.models.scripted import call, say
from turnlog.engine.notices import Notice, Piece


class OwnError(BaseException):
    """Not an Exception."""


RAISED = [OwnError("odd"), StopIteration("odd"), GeneratorExit("odd"), KeyboardInterrupt("odd"), SystemExit("odd")]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("blocking", [True, False])
async def test_whatever_a_tool_raises_is_an_error_result(world: World, error: BaseException, *, blocking: bool) -> None:
    def plain(q: str) -> str:
        raise error

    async def awaited(q: str) -> str:
        raise error

    odd = tool(name="odd")(plain if blocking else awaited)
    agent = world.agent(call(("odd", {"q": "x"})), say("done"), tools=[odd])
    async with world.engine(agent) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "done"
        assert of_kind(c, "tool_returned")[0].outcome == "error"


async def test_an_async_function_behind_a_plain_wrapper_is_run(world: World) -> None:
    def logged(inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def outer(*args: Any, **kwargs: Any) -> Any:
            return inner(*args, **kwargs)

        return outer

    async def paid(amount: int) -> str:
        world.ledger.append(("paid", amount))
        return f"paid {amount}"

    agent = world.agent(call(("paid", {"amount": 3})), say("done"), tools=[tool(name="paid")(logged(paid))])
    async with world.engine(agent) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert world.ledger == [("paid", 3)]
        assert of_kind(c, "tool_returned")[0].content == "paid 3"


async def test_a_result_that_has_no_text_is_told_as_a_run(world: World) -> None:
    @tool
    async def look(q: str) -> Any:
        """Look."""
        return {(1, 2): [3]}

    agent = world.agent(call(("look", {"q": "x"})), say("done"), tools=[look])
    async with world.engine(agent) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        result = of_kind(c, "tool_returned")[0]
        assert result.outcome == "ok"
        assert "The tool ran" in result.content


class Odd:
    """A model that fails in an odd form, or sends half a character."""

    name = "odd"

    def __init__(self, *, error: ModelError | None = None) -> None:
        self.error = error

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        yield TextDelta("a\ud83d")
        if self.error is not None:
            raise self.error
        yield ModelReply("a\ud83d")


@pytest.mark.parametrize("kind", ["\udc81", None, 429])
async def test_a_failure_of_an_odd_kind_leaves_the_session_in_error(world: World, kind: Any) -> None:
    error = ModelError(kind, "no", retryable=None)  # type: ignore[arg-type]  # what a careless adapter does
    async with world.engine(Agent("@agent", Odd(error=error))) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).state == "error"


async def test_half_a_character_in_a_piece_is_replaced_before_viewers_hear_of_it(world: World) -> None:
    heard: list[str] = []

    def listen(notice: Notice) -> None:
        if isinstance(notice, Piece):
            heard.append(notice.text)

    async with world.engine(Agent("@agent", Odd())) as engine:
        c = await engine.create("s", owner="ann")
        c.subscribe(listen)
        await c.send("go")
        assert heard == ["a\ufffd"]


def test_who_ends_the_event_loop_does_not_decide_how_a_running_tool_ended(tmp_path: Path) -> None:
    """A Ctrl-C cancels every task. The tool may have taken effect, so the next process asks a person."""
    world = World(tmp_path)

    async def first() -> None:
        pay, running, _ = slow_tool("pay")

        async def service() -> None:
            async with world.engine(world.agent(call(("pay", {})), tools=[pay])) as engine:
                await (await engine.create("s")).say("go")
                await asyncio.Event().wait()

        task = asyncio.create_task(service())
        await running.wait()
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def second() -> list[str]:
        pay, *_ = slow_tool("pay")
        async with world.engine(world.agent(call(("pay", {})), tools=[pay])) as engine:
            return [one.why for one in (await engine.open("s")).session.requests]

    asyncio.run(first())
    assert asyncio.run(second()) == ["outcome_unknown"]
