"""What a text is taken for: an answer, a call, or something that must not run."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm.picks import CUT, Answer, Gate, Offer, Pick, Unfit, read, thinking

OFFER = Offer(("look", "pay"))
CALL = '{"name": "look", "arguments": {"q": 1}}'
PAY = '{"name": "pay", "arguments": {"to": "A"}}'
LOOKED = Pick("look", '{"q": 1}')


def fits(name: str, arguments: str) -> str:
    """look wants q, a whole number; pay wants to, a text; neither wants more."""
    wanted: dict[str, type] = {"look": {"q": int}, "pay": {"to": str}}[name]  # type: ignore[assignment]  # two shapes
    found = json.loads(arguments)
    same = found.keys() == wanted.keys() and all(type(found[key]) is one for key, one in wanted.items())
    return "" if same else f"{name} needs {', '.join(wanted)}"


def taken(text: str, *, cut: bool = False) -> Answer | Pick | Unfit:
    return read(thinking(text)[1], OFFER, fits, cut=cut)


@pytest.mark.field(111)
@pytest.mark.parametrize(
    "text",
    [
        CALL,
        CALL.replace("arguments", "parameters"),
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"tool_call: {CALL}",
        f"look {CALL}",
        f"**Action:** {CALL}",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"[TOOL_CALLS] [{CALL}]",
        f"<|python_tag|>{CALL}",
        f"<think>I could {PAY} or not.</think>\n{CALL}",
        '{"type": "function", "function": {"name": "look", "arguments": "{\\"q\\": 1}"}}',
        '{"arguments": {"q": 1}, "name": "look", "id": "7"}',
    ],
)
def test_a_call_is_read_in_every_wrapping_that_says_nothing_else(text: str) -> None:
    assert taken(text) == LOOKED


@pytest.mark.field(111)
@pytest.mark.parametrize(
    "text",
    [
        f"To look something up I write {CALL}",
        f"Sure! {CALL}",
        f"Example: {CALL}",
        f"{CALL} is how look is called.",
        f"Here it is:\n```json\n{CALL}\n```\nIt looks for 1.",
        f"```json\n{CALL}\n```\nThis would call look.",
        f'The user said "{CALL}".',
        f"1. {CALL}\n2. {PAY}",
    ],
)
def test_a_call_that_stands_in_prose_is_shown_and_not_run(text: str) -> None:
    assert taken(text) == Answer(text)


@pytest.mark.parametrize(
    "text",
    ["42", '"a quoted text"', "null", "[1, 2]", "{x | x > 0}", '{"a": {"name": 1}}', '{"name": "Ann", "age": 7}',
     "I called look.", '{"colours": ["red"]}', "{", "look", "tool_call:"],
)  # fmt: skip
def test_a_number_a_quoted_text_and_json_that_is_no_call_are_answers(text: str) -> None:
    assert taken(text) == Answer(text)


def test_line_breaks_inside_of_a_string_are_kept() -> None:
    assert taken('{"name": "pay", "arguments": {"to": "A\nB"}}') == Pick("pay", '{"to": "A\\nB"}')


@pytest.mark.parametrize("end", range(10, len(CALL)))
def test_a_call_that_breaks_off_never_runs(end: int) -> None:
    assert isinstance(taken(CALL[:end]), Unfit)
    assert taken(CALL[:end], cut=True) == Unfit(CUT)


@pytest.mark.parametrize("text", [CALL, f"```json\n{CALL}\n```", f"[{CALL}, {PAY}]"])
def test_an_answer_that_was_cut_at_a_limit_is_never_a_call_even_if_it_looks_whole(text: str) -> None:
    assert taken(text, cut=True) == Unfit(CUT)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{CALL}\n{PAY}", "2 JSON objects"),
        (f"[{CALL}, {CALL}]", "2 JSON objects"),
        (f"<tool_call>{CALL}</tool_call><tool_call>{PAY}</tool_call>", "2 JSON objects"),
        (f"{CALL} {{", "no complete JSON"),
        ('{"name": "look", "name": "pay", "arguments": {"to": "A"}}', "a key is there twice"),
        ('{"name": "pay", "arguments": {"to": "A", "to": "B"}}', "a key is there twice"),
        ('{"name": "look", "arguments": {"q": 1}, "parameters": {"q": 2}}', '"arguments" and "parameters"'),
        (f"pay: {CALL}", "name pay, the JSON names look"),
        ('{"name": "look", "arguments": [1]}', "must be a JSON object, not a list"),
        ('{"name": "look", "arguments": "q=1"}', "must be a JSON object"),
        ('{"name": "look", "arguments": null}', "look needs q"),
        ('{"name": "look"}', "look needs q"),
        ('{"name": "look", "arguments": {"q": "one"}}', "look needs q"),
        ('{"name": "look", "arguments": {"q": NaN}}', "NaN is not JSON"),
        ('{"name": "look", "arguments": {"q": 1e999}}', "cannot be used"),
        ('{"name": "look", "arguments": {"q": 1}, "why": "because"}', "without why"),
        ("{'name': 'look', 'arguments': {'q': 1}}", "no complete JSON"),
        ('{"name": "look", "arguments": ' + "[" * 5000, "nested more than 64 levels deep"),
        ('{"name": "Look", "arguments": {"q": 1}}', "there is no tool 'Look'; there are: look, pay, answer"),
        ('{"name": "answer", "arguments": {"a": 1, "b": "y"}}', '{"text": ...}'),
        ('{"name": "answer", "arguments": {"text": " "}}', "empty"),
        (" \n", "empty"),
    ],
)
def test_what_is_ambiguous_or_does_not_fit_is_named_and_never_runs(text: str, why: str) -> None:
    found = taken(text)
    assert isinstance(found, Unfit)
    assert why in found.problem


def test_no_tool_can_be_picked_where_none_is_offered() -> None:
    found = read(CALL, Offer(()), fits)
    assert isinstance(found, Unfit)
    assert "no tool may be used now" in found.problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "answer", "arguments": {"text": "It is 7."}}', "It is 7."),
        ('{"name": "answer", "parameters": {"message": "It is 7."}}', "It is 7."),
        ('{"arguments": {"text": "It is 7."}, "name": "answer"}', "It is 7."),
        ('{"name": "answer", "arguments": "It is 7."}', "It is 7."),
        ('{"name":"answer","arguments":{"text":"a\\"b\\\\c\\n\\u00e9\\ud83d\\ude00\\_\nd"}}', 'a"b\\c\né😀_\nd'),
        ('{"name":"answer","arguments":{"text":"It is cut o', "It is cut o"),
        (f'{{"name":"answer","arguments":{{"text":"I pay."}}}}\n{PAY}', "I pay."),
    ],
)
def test_the_words_of_the_pseudo_tool_are_the_answer_and_nothing_after_them_runs(text: str, words: str) -> None:
    assert taken(text) == Answer(words)


def test_a_tool_that_is_named_answer_keeps_its_name() -> None:
    offer = Offer(("answer",))
    text = '{"name": "answer", "arguments": {"text": "hi"}}'
    assert read(text, offer, lambda name, arguments: "") == Pick("answer", '{"text": "hi"}')
    assert read(text.replace("answer", offer.answer), offer, lambda name, arguments: "") == Answer("hi")


FRAGMENTS = [
    CALL, PAY, CALL[:20], CALL[20:], PAY[:-1], "{", "}", "[", "]", '"', ",", ":", "```", "```json\n", "\n", " ", "name",
    '"name"', '"arguments"', '"parameters"', '"look"', '"pay"', "look", "pay", "answer", "tool_call:", "<tool_call>",
    "</tool_call>", "<think>", "</think>", "1", "null", '{"q": 1}', '{"to": "A"}', '{"name": "look", "arguments": ',
    '{"name": "answer", "arguments": {"text": "', "\\", "\\u00e9", "\\ud83d", "\\ude00", "Sure!", "é", "😀", "\ud800",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=4), max_size=9).map("".join)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["look", "pay"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "parameters", "q", "to", "function", "type"]), inner)
    ),
    max_leaves=8,
)

CALLS = st.tuples(
    st.sampled_from(["", "", "", "```json\n", "tool_call: ", "Sure! ", "look ", "[", "<think>x</think>", CALL]),
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["look", "look", "pay", "pay", "fly", "answer", 1]),
            "arguments": st.sampled_from(
                [
                    {"q": 1},
                    {"q": 1},
                    {"to": "A"},
                    {"to": "A\nB"},
                    {"to": "long " * 60},
                    {"q": "1"},
                    {},
                    None,
                    '{"q": 1}',
                ]
            ),
        },
        optional={"parameters": st.just({"q": 2}), "why": st.just("so"), "id": st.just("7")},
    ).map(json.dumps),
    st.sampled_from([0, 0, 0, 1, 5, 20]),
    st.sampled_from(["", "", "", "\n```", "]", " as you wished", CALL, "}"]),
).map(lambda parts: parts[0] + parts[1][: len(parts[1]) - parts[2]] + parts[3])


def check(text: str, cut: bool) -> None:
    found = taken(text, cut=cut)
    if isinstance(found, Pick):
        assert not cut
        assert found.name in OFFER.names
        assert fits(found.name, found.arguments) == ""
        # It can be found in what was said: nothing was made up, and there was one name only.
        said = thinking(text)[1]
        assert len(re.findall(r'"name":', said)) == 1
        assert f'"{found.name}"' in said
    else:
        assert isinstance(found, Answer | Unfit)


@given(TEXTS | JSON.map(json.dumps), st.booleans())
def test_no_random_text_ever_leads_to_a_call_that_is_not_well_formed_and_fitting(text: str, cut: bool) -> None:
    check(text, cut)


@given(CALLS, st.sampled_from([False, False, True]))
def test_no_damaged_call_ever_leads_to_one_that_is_not_well_formed_and_fitting(text: str, cut: bool) -> None:
    check(text, cut)


@given(CALLS | TEXTS, st.integers(1, 5), st.booleans())
def test_what_is_shown_while_a_text_comes_is_the_beginning_of_its_answer_and_never_of_a_call(
    text: str, size: int, cut: bool
) -> None:
    gate = Gate(OFFER)
    shown = "".join(gate.feed(text[at : at + size]) for at in range(0, len(text), size))
    assert shown == gate.shown
    found = taken(text, cut=cut)
    if shown.strip():
        assert isinstance(found, Answer)
        assert found.text.startswith(shown)


def test_prose_is_shown_at_once_and_words_of_the_pseudo_tool_as_they_come() -> None:
    prose, spoken = Gate(OFFER), Gate(OFFER)
    assert [prose.feed(piece) for piece in ("The ", "answer", " is 7.")] == ["The ", "answer", " is 7."]
    pieces = ('{"name": "answer", "argum', 'ents": {"text": "It', " is\\", 'n7."', "}}")
    assert [spoken.feed(piece) for piece in pieces] == ["", "It", " is", "\n7.", ""]


def test_nothing_of_what_may_become_a_call_is_shown() -> None:
    for text in (f"tool_call: {CALL}", PAY.replace("A", "A, " * 200)):
        gate = Gate(OFFER)
        assert "".join(gate.feed(piece) for piece in text) == ""
