"""How deep JSON may be does not depend on the interpreter."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.engine.proposals import parse
from turnlog.fsm.canonical import DEEPEST, check_depth, clean_json

TEXTS = st.text(alphabet='[]{}"\\,:a', max_size=8)
VALUES = st.recursive(TEXTS | st.none(), lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=2))


def depth(value: Any) -> int:
    """Levels of lists and objects."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inside is None else 1 + max(map(depth, inside), default=0)


@given(VALUES, st.integers(0, 6))
def test_a_text_is_refused_exactly_when_it_is_deeper_whatever_brackets_its_strings_hold(value: Any, room: int) -> None:
    text = json.dumps(value)
    if depth(value) <= room:
        check_depth(text, room)
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            check_depth(text, room)


@pytest.mark.parametrize("text", ["[" * 5000, '{"a":' * 5000, "[" * 1_000_000, '["a", ' * 65 + '"', "[[" * 40 + '"]]'])
def test_a_text_that_never_ends_is_too_deep_before_anything_reads_it(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        check_depth(text)


def test_a_long_string_is_passed_over_in_one_step() -> None:
    check_depth("[" + '"' + "[{" * 500_000 + '\\"')


def test_arguments_may_be_as_deep_as_values_and_one_level_more_is_refused() -> None:
    def nested(levels: int) -> str:
        return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"

    fits, found = nested(DEEPEST), parse(nested(DEEPEST))
    assert found == (json.loads(fits), "")
    assert clean_json(json.loads(fits)) == json.loads(fits)
    value, why = parse(nested(DEEPEST + 1))
    assert value is None
    assert f"nested too deeply, more than {DEEPEST} levels" in why
    with pytest.raises(ValueError, match="nested more than"):
        clean_json(json.loads(nested(DEEPEST + 1)))
