"""What reaches a terminal."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Run
from turnlog.cli.text import arguments, moment, plain, short, visible


@pytest.mark.field(129)
@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("Ann\u202eBob", "Ann\\u{202e}Bob"),
        ("a\u200bb\ufeffc", "a\\u{200b}b\\u{feff}c"),
        ("\x1b[2K\x07\x9b\x7f", "\\u{1b}[2K\\u{7}\\u{9b}\\u{7f}"),
        ("a\nb\tc\r", "a\\u{a}b\\u{9}c\\u{d}"),
        ("to" + " " * 10_000 + "Bob", "to\\u{20*10000}Bob"),
        ("a\xa0b\u3000c", "a\\u{a0}b\\u{3000}c"),
        ("\u3164\u2800\u115f", "\\u{3164}\\u{2800}\\u{115f}"),
        ("\U000e0041\ufe0f\u2066", "\\u{e0041}\\u{fe0f}\\u{2066}"),
        ("\ud800", "\\u{d800}"),
        ("\\u{202e}", "\\u{5c}u{202e}"),
        ("naïve 日本語 Ω 🙂 C:\\users", "naïve 日本語 Ω 🙂 C:\\users"),
    ],
)
def test_what_hides_or_moves_text_is_written_as_its_code_point(text: str, seen: str) -> None:
    assert visible(text) == seen


@given(st.text())
def test_no_text_leaves_anything_unseen_on_a_line(text: str) -> None:
    hidden = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert not [char for char in visible(text) if unicodedata.category(char) in hidden]


@given(st.text(alphabet="\\u{} 5c20e*\u202e\u200b"), st.text(alphabet="\\u{} 5c20e*\u202e\u200b"))
def test_two_different_texts_never_look_the_same(one: str, other: str) -> None:
    assert (visible(one) == visible(other)) == (one == other)


def test_a_text_of_several_lines_keeps_its_lines_and_nothing_else() -> None:
    assert plain("a\x1b[1m\nb\u200b") == "a\\u{1b}[1m\nb\\u{200b}"


def test_arguments_read_the_same_in_whatever_order_they_came() -> None:
    assert arguments({"b": 1, "a": "x\ny"}) == arguments({"a": "x\ny", "b": 1}) == '{"a": "x\\ny", "b": 1}'


def test_a_long_text_says_how_much_is_left_out_and_cuts_no_escape_in_two() -> None:
    assert short("abcdef", 4) == "abcd... [2 more characters]"
    assert short("ab\u202e" * 2, 4) == "ab... [18 more characters]"


def test_a_time_that_no_calendar_has_is_still_printed() -> None:
    assert moment(1_893_456_000_001) == "2030-01-01T00:00:00.001Z"
    assert moment(10**30) == f"{10**30} ms"


@pytest.mark.field(129)
@pytest.mark.parametrize("command", ["audit", "replay"])
def test_hidden_characters_of_a_log_never_reach_the_terminal_raw(run: Run, recorded: str, command: str) -> None:
    told = run(command, "hidden", "--db", recorded)
    assert "Ann\\u{202e}\\u{200b}\\u001b[2K" in told.out
    assert not set("\u202e\u200b\x1b") & set(told.out)
    assert " " * 40 not in told.out
    assert "Bob" in told.out


@pytest.mark.field(129)
def test_json_of_hidden_characters_is_ascii_and_complete(run: Run, recorded: str) -> None:
    told = run("audit", "hidden", "--db", recorded, "--json")
    assert told.out.isascii()
    shown = told.json[0]["requests"][0]["arguments"]["to"]
    assert shown == "Ann\u202e\u200b\x1b[2K" + " " * 10_000 + "Bob"
    assert json.loads(json.dumps(shown)) == shown
