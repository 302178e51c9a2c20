"""The bound of nested JSON is counted, so that each interpreter draws it at the same place."""

import json
import sys
from typing import Any

import pytest

from turnlog.fsm.canonical import DEEPEST, DEEPEST_WRITTEN, canonical, check_depth, read_json


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_a_text_is_read_up_to_the_bound_and_refused_one_level_above_it() -> None:
    assert read_json(nested(DEEPEST)) == json.loads(nested(DEEPEST))
    assert read_json(nested(DEEPEST).encode("utf-16")) == json.loads(nested(DEEPEST))
    with pytest.raises(ValueError, match="more than 64 levels deep"):
        read_json(nested(DEEPEST + 1))


@pytest.mark.parametrize("text", ["[" * 5_000, '{"a":' * 100_000, '[{"a":' * 40, '["' + '\\"[' * 10 + '", ' + "[" * 64])
def test_what_is_cut_off_is_called_too_deep_before_it_is_read(text: str) -> None:
    with pytest.raises(ValueError, match="levels deep"):
        check_depth(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",".join(["[]"] * 500) + "]",
        json.dumps(["[{" * 500]),
        json.dumps(['"' + "[" * 500, "\\"]),
        "[] " + "[" * 500,
    ],
)
def test_brackets_beside_each_other_in_texts_or_behind_the_value_do_not_count(text: str) -> None:
    check_depth(text)


def test_the_depth_begins_to_count_where_the_value_does() -> None:
    check_depth("[" * 500 + nested(3), at=500)


def test_a_value_that_is_written_has_a_bound_that_no_interpreter_moves() -> None:
    value: Any = json.loads(nested(DEEPEST_WRITTEN))
    assert canonical(value) == nested(DEEPEST_WRITTEN)
    with pytest.raises(ValueError, match="more than 128 levels deep"):
        canonical([value])
    for _ in range(sys.getrecursionlimit() * 200):
        value = [value]
    with pytest.raises(ValueError, match="more than 128 levels deep"):
        canonical(value)
    while value:  # taken apart by hand: to let go of it at once needs a deep stack, too
        value = value[0]
