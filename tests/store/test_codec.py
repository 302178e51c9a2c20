import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm.canonical import digest
from turnlog.fsm.errors import BadBody, Misuse, UnknownKind
from turnlog.fsm.events import KINDS, ApprovalRequested, CallRecord, Event, MessageAdded, ToolReturned, ToolsCalled
from turnlog.store import codec
from turnlog.store.codec import Change, check_changes, decode, encode

from .support import ROOT, conversation

MESSAGE = MessageAdded(message_id="m", sender="a", recipient="b", text="t")


def called(parsed: dict[str, Any]) -> ToolsCalled:
    record = CallRecord(id="c", tool="t", arguments="{}", parsed=parsed)
    return ToolsCalled(message_id="m", speaker="a", listener="b", calls=(record,))


@pytest.mark.parametrize("event", [draft.event for draft in conversation()], ids=lambda event: event.kind)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert decode(event.kind, event.v, encode(event)) == event


def test_a_body_holds_neither_kind_nor_version_nor_defaults() -> None:
    assert json.loads(encode(MESSAGE)) == {"message_id": "m", "sender": "a", "recipient": "b", "text": "t"}


@pytest.mark.parametrize(
    "text", ["", "\0", "a\0b", "\U0001f600", "e\u0301", "\u2028", '"\\', "x" * 2**20, "\ufffd"], ids=range(9)
)
def test_texts_come_back_byte_for_byte(text: str) -> None:
    event = ToolReturned(call_id="c", outcome="ok", content=text)
    assert decode(event.kind, event.v, encode(event)) == event


@pytest.mark.parametrize("number", [2**53 + 1, 2**64, -(2**200), 10**400])
def test_big_integers_keep_every_digit(number: int) -> None:
    event = called({"n": number})
    assert decode(event.kind, event.v, encode(event)) == event


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4))
def test_any_arguments_come_back_as_they_were(parsed: dict[str, Any]) -> None:
    event = called(parsed)
    assert decode(event.kind, event.v, encode(event)) == event


@pytest.mark.field(13)
@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_without_a_json_form_is_refused_and_not_stored_as_null(number: float) -> None:
    with pytest.raises(Misuse, match="NaN and infinities"):
        encode(called({"a": [{"b": number}]}))


def test_null_itself_is_stored() -> None:
    event = called({"a": None})
    assert decode(event.kind, event.v, encode(event)) == event


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(UnknownKind, match="future_kind"):
        decode("future_kind", 1, "{}")


@pytest.mark.parametrize("version", [0, 2, -1])
def test_an_unknown_version_is_named_with_those_that_are_known(version: int) -> None:
    with pytest.raises(UnknownKind, match=f"message_added version {version} is unknown, this release knows 1 to 1"):
        decode("message_added", version, encode(MESSAGE))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("{bad", "JSON"),
        ("[]", "object"),
        ("null", "object"),
        ("", "JSON"),
        ("{}", "message_id"),
        ('{"message_id":"m","sender":"a","recipient":"b","text":"t","more":1}', "more"),
        ('{"message_id":1,"sender":"a","recipient":"b","text":"t"}', "message_id"),
        ('{"message_id":"m","sender":"a","recipient":"b","text":"t","kind":"message_added"}', "repeats kind or v"),
        ('{"message_id":"m","sender":"a","recipient":"b","text":"t","v":1}', "repeats kind or v"),
        ('{"message_id":"m","sender":"a","recipient":"b","text":"\udcff"}', "unicode"),
    ],
)
def test_a_body_that_does_not_fit_says_what_is_wrong(body: str, why: str) -> None:
    with pytest.raises(BadBody, match=why):
        decode("message_added", 1, body)


def test_a_text_is_not_taken_for_a_number() -> None:
    body = '{"call_id":"c","tool":"t","attempt":"1","key":"k","digest":"d","permit":"free"}'
    with pytest.raises(BadBody, match="attempt"):
        decode("tool_started", 1, body)


def test_an_erased_body_is_told_apart_from_a_bad_one() -> None:
    with pytest.raises(BadBody, match="erased"):
        decode("message_added", 1, None)


def test_a_kind_is_looked_up_and_never_imported() -> None:
    code = """
import sys
from turnlog.store.codec import decode
before = set(sys.modules)
try:
    decode("antigravity", 1, "{}")
except Exception as error:
    print(type(error).__name__)
print(sorted(set(sys.modules) - before))
"""
    env = {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split("\n")[:2] == ["UnknownKind", "[]"]


def _rename(body: dict[str, Any]) -> dict[str, Any]:
    return {("sender" if key == "from" else key): value for key, value in body.items()}


def _recipient(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "recipient": body.get("recipient", "all")}


@pytest.fixture
def third_version(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {
        ("message_added", 2): Change("`from` is named `sender`", _rename),
        ("message_added", 3): Change("every message has a recipient", _recipient),
    }
    monkeypatch.setattr(codec, "CHANGES", changes)
    monkeypatch.setitem(codec.VERSIONS, "message_added", 3)


@pytest.mark.usefixtures("third_version")
def test_old_versions_are_lifted_step_by_step() -> None:
    assert decode("message_added", 1, '{"message_id":"m","from":"a","text":"t"}') == MESSAGE.model_copy(
        update={"recipient": "all"}
    )
    assert decode("message_added", 2, '{"message_id":"m","sender":"a","text":"t","recipient":"b"}') == MESSAGE
    assert decode("message_added", 3, encode(MESSAGE)) == MESSAGE


@pytest.mark.usefixtures("third_version")
@pytest.mark.parametrize("body", ["{bad", "[1]", "null", '{"message_id":"m"}'])
def test_a_step_that_cannot_be_done_is_a_bad_body(body: str) -> None:
    with pytest.raises(BadBody, match="message_added version 1"):
        decode("message_added", 1, body)


@pytest.mark.parametrize(
    ("versions", "changes", "why"),
    [
        ({"a": 2}, {}, "a version 2: no Change leads to it"),
        ({"a": 1}, {("a", 2): Change("x", dict)}, "a version 2: no such version"),
        ({"a": 2}, {("a", 2): Change(" ", dict)}, "summary"),
        ({"a": 2}, {("a", 2): Change("x\ny", dict)}, "summary"),
    ],
)
def test_a_table_of_changes_that_does_not_fit_is_refused(
    versions: dict[str, int], changes: dict[tuple[str, int], Change], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        check_changes(versions, changes)


def test_the_changes_of_this_release_fit() -> None:
    check_changes(codec.VERSIONS, codec.CHANGES)
    assert codec.VERSIONS.keys() == KINDS.keys()


def test_arguments_that_do_not_have_their_digest_are_no_valid_body() -> None:
    """A changed log must not show a person other arguments than the ones that would run."""
    shown = ApprovalRequested(
        request_id="r1", call_id="c1", tool="pay", arguments={"amount": 5}, digest=digest({"amount": 5})
    )
    body = encode(shown)
    assert decode("approval_requested", 1, body) == shown
    with pytest.raises(BadBody, match="its digest is not that of its arguments"):
        decode("approval_requested", 1, body.replace('{"amount":5}', '{"amount":6}'))
