"""Limits have bounds where they are made, and a log that holds others is read all the same."""

from typing import Any

import pytest
from pydantic import ValidationError

from turnlog.fsm import Session, State, evolve
from turnlog.fsm import events as ev
from turnlog.fsm.effects import WaitUntil
from turnlog.fsm.values import LONGEST, MOST

from .talk import Talk, call, question

FIELDS = {"max_rounds": 1, "max_tool_calls": 0, "queue": 0}


@pytest.mark.parametrize("field", ["approval_seconds", "question_seconds"])
@pytest.mark.parametrize("value", [LONGEST + 1, 1e18, 1e300, 1e307, -1, float("inf"), float("nan")])
def test_a_time_without_sense_is_refused_where_the_limits_are_made(field: str, value: float) -> None:
    with pytest.raises(ValidationError, match=field):
        ev.Limits.model_validate({field: value})


def test_the_refusal_of_a_time_that_is_too_long_says_what_to_do() -> None:
    with pytest.raises(ValidationError, match=r"1e\+307 s is more than 3153600000 s, a hundred years: use less, or"):
        ev.Limits(approval_seconds=1e307)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("beyond", ["below", "above"])
def test_a_count_without_sense_is_refused_where_the_limits_are_made(field: str, beyond: str) -> None:
    value = FIELDS[field] - 1 if beyond == "below" else MOST + 1
    with pytest.raises(ValidationError, match=rf"{field}\n.*use a number from {FIELDS[field]} to 1000000000"):
        ev.Limits.model_validate({field: value})


@pytest.mark.parametrize("value", [0, MOST + 1])
def test_the_rounds_of_a_group_have_the_same_bounds(value: int) -> None:
    with pytest.raises(ValidationError, match="use a number from 1 to"):
        ev.Channel(name="room", members=("a",), max_rounds=value)


def test_a_pause_of_a_tool_has_the_same_bound() -> None:
    with pytest.raises(ValidationError, match="a hundred years"):
        ev.Repeats(cooldown_seconds=1e300)


@pytest.mark.parametrize(
    "limits",
    [
        {"approval_seconds": 0, "question_seconds": LONGEST, "max_rounds": 1, "max_tool_calls": 0, "queue": 0},
        {"approval_seconds": None, "question_seconds": None, "max_rounds": MOST, "max_tool_calls": MOST, "queue": MOST},
    ],
)
def test_the_bounds_themselves_are_limits(limits: dict[str, Any]) -> None:
    assert ev.Limits.model_validate(limits).model_dump(include=set(limits)) == limits


@pytest.mark.parametrize("asks", [call("pay", amount=1), question("which?")], ids=["approval", "question"])
def test_a_log_with_limits_of_before_the_bounds_is_read_and_waits_for_a_hundred_years(asks: Any) -> None:
    stored = '{"approval_seconds":1e307,"question_seconds":1e307,"max_rounds":4000000000}'
    limits = ev.Limits.model_validate_json(stored, strict=True)
    assert (limits.approval_seconds, limits.max_rounds) == (1e307, 4_000_000_000)
    talk = Talk(limits=limits)
    talk.say()
    assert talk.reply("", asks).refusal is None
    assert talk.owed(WaitUntil).at == talk.clock.now() + LONGEST * 1000


def test_a_continued_turn_begins_with_no_tokens_used() -> None:
    """What the limit was reached with is not charged again."""
    stopped = Session(state=State.INTERRUPT, usage=ev.Usage(input_tokens=5, output_tokens=5, completions=1))
    limited = stopped._replace(limits=ev.Limits(max_tokens=10))
    assert limited.spent
    going = evolve(limited, ev.TurnContinued())
    assert (going.usage, going.spent) == (ev.Usage(), False)
