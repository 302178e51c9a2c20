"""The published schema, and what the parser takes for a frame."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.server import schema
from turnlog.server.frames import ClientFrame, Hello, ServerFrame
from turnlog.server.parse import BadFrame, parse

HELLO = {"type": "hello", "protocol": "turnlog.v1", "token": "t"}
SEND = {"type": "send", "id": "1", "session": "s", "text": "hi"}
DECIDE = {"type": "decide", "id": "1", "session": "s", "request": "r", "digest": "d", "outcome": "approved"}


@pytest.mark.accept(36)
def test_the_published_schema_is_that_of_the_code() -> None:
    same = schema.FILE.read_text(encoding="utf-8") == schema.text()
    assert same, f"the frames have changed; write the schema anew: {schema.COMMAND}"


def test_every_frame_of_both_sides_is_in_the_schema_under_its_type() -> None:
    published = json.loads(schema.FILE.read_text(encoding="utf-8"))
    for side, adapter in (("client", ClientFrame), ("server", ServerFrame)):
        types = published["properties"][side]["discriminator"]["mapping"]
        assert set(types) == set(adapter.json_schema()["discriminator"]["mapping"])
        for name in types.values():
            frame = published["$defs"][name.rsplit("/", 1)[1]]
            assert frame["additionalProperties"] is False
            assert "const" in frame["properties"]["type"]


def test_a_good_frame_is_read() -> None:
    assert parse(json.dumps(HELLO)) == Hello(type="hello", protocol="turnlog.v1", token="t")
    assert parse(json.dumps(DECIDE | {"arguments": {"n": 1.5, "deep": [{"a": None}]}})).type == "decide"


BAD: dict[str, tuple[str | bytes, str]] = {
    "no JSON": ("hello", "this is no JSON"),
    "an empty text": ("", "this is no JSON"),
    "a list": ("[]", "this is a list"),
    "a number": ("1", "this is a int"),
    "null": ("null", "this is a NoneType"),
    "an empty object": ("{}", "Unable to extract tag"),
    "binary": (b"{}", "binary"),
    "an unknown type": ('{"type":"shout"}', "does not match any of the expected tags"),
    "a type that is no text": ('{"type":1}', "does not match any of the expected tags"),
    "a missing field": ('{"type":"send","id":"1","session":"s"}', "send.text: Field required"),
    "an unknown field": (json.dumps(SEND | {"as": "root"}), "send.as: Extra inputs are not permitted"),
    "a number for a text": (json.dumps(SEND | {"session": 7}), "send.session: Input should be a valid string"),
    "a number for a request": (json.dumps(DECIDE | {"request": 7}), "decide.request: Input should be a valid string"),
    "a text for a number": ('{"type":"open","id":"1","session":"s","after":"5"}', "open.after"),
    "a fraction for a seq": ('{"type":"open","id":"1","session":"s","after":1.0}', "open.after"),
    "true for a seq": ('{"type":"open","id":"1","session":"s","after":true}', "open.after"),
    "a seq below zero": ('{"type":"open","id":"1","session":"s","after":-1}', "open.after"),
    "a seq of 65 bits": ('{"type":"open","id":"1","session":"s","after":18446744073709551616}', "open.after"),
    "a number of 5000 digits": ('{"type":"open","id":"1","session":"s","after":' + "9" * 5000 + "}", "no JSON"),
    "an empty id": (json.dumps(SEND | {"id": ""}), "send.id"),
    "an id of 129 characters": (json.dumps(SEND | {"id": "x" * 129}), "send.id"),
    "an outcome of its own": (json.dumps(DECIDE | {"outcome": "yes"}), "decide.outcome"),
    "arguments that are no object": (json.dumps(DECIDE | {"arguments": [1]}), "decide.arguments"),
    "a session id with a path": ('{"type":"create","id":"1","session":"../etc"}', "create.session"),
    "deep nesting": ("[" * 100_000, "nested too deeply"),
    "deep nesting inside": (
        '{"type":"decide","id":"1","arguments":' + '{"a":' * 20_000 + "1" + "}" * 20_001, "nested too deeply"
    ),
    "NaN": (json.dumps(DECIDE)[:-1] + ',"arguments":{"n":NaN}}', "NaN is not JSON"),
    "infinity": (json.dumps(DECIDE)[:-1] + ',"arguments":{"n":-Infinity}}', "-Infinity is not JSON"),
    "a number beyond all": (json.dumps(DECIDE)[:-1] + ',"arguments":{"n":1e999}}', "too large"),
    "half a surrogate pair": (json.dumps(SEND | {"text": "\ud83d"}), "surrogate"),
    "half a pair in a key": (json.dumps(DECIDE | {"arguments": {"\udc00": 1}}), "surrogate"),
    "a key twice": ('{"type":"send","id":"1","session":"s","session":"t","text":"hi"}', "'session' comes twice"),
    "a key twice inside": (json.dumps(DECIDE)[:-1] + ',"arguments":{"to":"A","to":"B"}}', "'to' comes twice"),
    "hello without a token": ('{"type":"hello","protocol":"turnlog.v1"}', "hello.token: Field required"),
}  # fmt: skip


@pytest.mark.field(92)
@pytest.mark.accept(71)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_frame_is_refused_and_the_error_names_what_was_wrong(name: str) -> None:
    message, told = BAD[name]
    with pytest.raises(BadFrame) as caught:
        parse(message)
    assert told in caught.value.message


def test_the_error_of_a_bad_frame_carries_its_id() -> None:
    for message in ('{"type":"shout","id":"my-1"}', '{"id":"my-1","type":"send",}', '{"id":"my-1","x":NaN}'):
        with pytest.raises(BadFrame) as caught:
            parse(message)
        assert caught.value.id == "my-1"


def test_a_whole_surrogate_pair_is_a_character() -> None:
    frame = parse(json.dumps(SEND | {"text": "\U0001f600"}))
    assert frame.type == "send"
    assert frame.text == "\U0001f600"


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(_json | st.dictionaries(st.sampled_from(["type", "id", "session", "after", "text"]), _json) | st.text())
def test_whatever_comes_is_a_frame_or_a_bad_frame(value: object) -> None:
    message = value if isinstance(value, str) else json.dumps(value)
    told = ""
    try:
        told += parse(message).type
    except BadFrame as error:
        told += error.message
    assert told
