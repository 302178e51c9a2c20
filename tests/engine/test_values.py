"""A value of a tool has bounds while it is made a text: the event loop goes on, and the model is told."""

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from tests.engine.support import World, of_kind
from turnlog.engine import tool
from turnlog.engine.models.scripted import call, say
from turnlog.engine.values import BITS, CHARACTERS, VALUES, as_text, told, told_value


class EndlessDict(dict[int, int]):
    """Says that it holds every number."""

    def items(self) -> Any:
        return ((n, n) for n in itertools.count())


class EndlessList(list[int]):
    """The same."""

    def __iter__(self) -> Iterator[int]:
        return itertools.count()


class Walks(BaseModel):
    """A model that holds something without an end."""

    numbers: Any


@dataclass
class Held:
    """A value beside one that has no end."""

    name: str
    of: Any


MANY = f"more than {VALUES} values: return less"
LONG = f"more than {CHARACTERS} characters: return less"
TOO_MUCH = [
    (EndlessDict(), MANY),
    (EndlessList(), MANY),
    ({"a": [EndlessList()]}, MANY),
    ([0] * VALUES, MANY),
    (deque(range(VALUES)), MANY),
    (set(range(VALUES)), MANY),
    ({"a": "x" * CHARACTERS, "b": "y"}, LONG),
    ([b"x" * (CHARACTERS + 1)], LONG),
    ([1 << BITS], "return it as a text"),
    (Held("a", itertools.count()), "return a list"),
    (Walks(numbers=itertools.count()), "return a list"),
    (Walks(numbers=(n for n in itertools.count())), "return a list"),
]


@pytest.mark.parametrize(("value", "why"), TOO_MUCH, ids=lambda one: type(one).__name__)
def test_too_much_is_told_instead_of_walked(value: Any, why: str) -> None:
    said = told_value(value)
    assert said.startswith(f"(The tool ran. Its result, a {type(value).__name__}, cannot be shown: ")
    assert why in said


def test_what_is_just_not_too_much_is_shown_whole() -> None:
    assert as_text([0] * (VALUES - 1)) == "[" + ",".join("0" * (VALUES - 1)) + "]"
    assert told_value("x" * CHARACTERS) == "x" * CHARACTERS


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    said = told_value("x" * (CHARACTERS + 7))
    head = f"[The tool returned {CHARACTERS + 7} characters. Only the first {CHARACTERS} are kept.]\n"
    assert said == head + "x" * CHARACTERS


def test_a_nested_result_has_a_bound_that_no_interpreter_moves() -> None:
    value: Any = []
    for _ in range(128):
        value = [value]
    assert as_text(value) == "[" * 129 + "]" * 129
    assert "nested more than 128 levels deep" in told_value([value])


def test_a_list_without_end_inside_itself_is_told() -> None:
    inside: list[Any] = []
    inside.append(inside)
    assert "levels deep" in told_value(inside)


def test_values_of_the_usual_sorts_are_json() -> None:
    class Point(BaseModel):
        """A model."""

        x: float
        of: Held

    shown = as_text(
        {"p": Point(x=float("nan"), of=Held("a\ud800", b"\xff")), "d": deque([1]), "n": None, "t": (True, 2)}
    )
    assert shown == '{"p":{"x":"NaN","of":{"name":"a\ufffd","of":"_w=="}},"d":[1],"n":null,"t":[true,2]}'


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_tool_that_returns_something_without_an_end_has_run_and_the_session_goes_on(
    world: World, *, blocking: bool
) -> None:
    def plain() -> Any:
        """Return too much."""
        return EndlessList()

    async def awaited() -> Any:
        """Return too much."""
        return EndlessList()

    endless = tool(name="endless")(plain if blocking else awaited)
    async with world.engine(world.agent(call(("endless", {})), say("done"), tools=[endless])) as engine:
        c = await engine.create("s")
        assert (await c.send("go")).text == "done"
        (result,) = of_kind(c, "tool_returned")
        assert result.outcome == "ok"
        assert MANY in result.content


@pytest.mark.parametrize("raised", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_exception_that_cannot_say_what_it_is_is_named(raised: type[BaseException]) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise raised

    assert told(Mute()) == "Mute"
