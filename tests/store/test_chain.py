import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.store.chain import Header, body_hash, link, origin

HEADER: Header = ("s", 1, "success", "message_added", 1, 5, "ann", "c", "d")
BODY = body_hash(b"salt", "{}")
CHANGED: list[Header] = [
    ("t", 1, "success", "message_added", 1, 5, "ann", "c", "d"),
    ("s", 2, "success", "message_added", 1, 5, "ann", "c", "d"),
    ("s", 1, "error", "message_added", 1, 5, "ann", "c", "d"),
    ("s", 1, "success", "message_queued", 1, 5, "ann", "c", "d"),
    ("s", 1, "success", "message_added", 2, 5, "ann", "c", "d"),
    ("s", 1, "success", "message_added", 1, 6, "ann", "c", "d"),
    ("s", 1, "success", "message_added", 1, 5, "bob", "c", "d"),
    ("s", 1, "success", "message_added", 1, 5, "ann", None, "d"),
    ("s", 1, "success", "message_added", 1, 5, "ann", "", "d"),
    ("s", 1, "success", "message_added", 1, 5, "ann", "c", None),
    ("s", 1, "success", "message_added", 1, 5, 'ann","c', None, "d"),
]


@pytest.mark.parametrize("header", CHANGED, ids=range(len(CHANGED)))
def test_every_column_changes_the_hash(header: Header) -> None:
    assert link(origin("s"), header, BODY) != link(origin("s"), HEADER, BODY)


def test_the_hash_before_and_the_body_change_the_hash() -> None:
    assert (
        len({link(origin("s"), HEADER, BODY), link(origin("t"), HEADER, BODY), link(origin("s"), HEADER, BODY[::-1])})
        == 3
    )


def test_salt_and_body_change_the_body_hash() -> None:
    assert len({body_hash(b"a", "b"), body_hash(b"b", "b"), body_hash(b"a", "c")}) == 3


texts = st.text()
headers = st.tuples(
    texts, st.integers(), texts, texts, st.integers(), st.integers(), texts, st.none() | texts, st.none() | texts
)


@given(headers)
def test_the_header_is_a_json_array_that_another_program_can_write(header: Header) -> None:
    text = json.dumps(list(header), separators=(",", ":"))
    assert link(b"p" * 32, header, BODY) == sha256(b"p" * 32 + text.encode() + BODY).digest()


def test_bytes_that_are_no_text_can_be_hashed_too() -> None:
    assert body_hash(b"", "\udcff") == sha256(b"\xff").digest()
    assert origin("\udcff") == sha256(b"turnlog 1 \xff").digest()
