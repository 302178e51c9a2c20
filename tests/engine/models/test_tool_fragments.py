"""How tool calls are put together from what servers stream, and that nothing broken is ever mended."""

import pytest

from tests.engine.models.asking import hear
from tests.engine.models.stub_server import ABSENT, DONE, chunk, fin, fragment, oc, sse, txt, usage

END = (fin("tool_calls"), DONE)


async def test_a_call_is_assembled_from_its_fragments() -> None:
    heard = await hear(
        txt("Let me look."), oc(0, "a", "look", ""), oc(0, ABSENT, ABSENT, '{"q"'), oc(0, ABSENT, ABSENT, ": 1}"), *END
    )
    assert heard.said == [("look", '{"q": 1}')]
    assert (heard.reply.text, heard.reply.finish) == ("Let me look.", "tool_call")
    assert heard.reply.calls[0].provider_id == "a"


@pytest.mark.field(55)
async def test_two_calls_under_one_index_are_two_calls() -> None:
    heard = await hear(oc(0, "a", "look", '{"q":1}'), oc(0, "b", "look", '{"q":2}'), *END)
    assert heard.said == [("look", '{"q":1}'), ("look", '{"q":2}')]
    assert [call.provider_id for call in heard.reply.calls] == ["a", "b"]


@pytest.mark.field(55)
async def test_two_fragmented_calls_under_one_index_are_two_calls() -> None:
    heard = await hear(
        oc(0, "a", "look", ""),
        oc(0, ABSENT, ABSENT, '{"q":1}'),
        oc(0, "b", "look", ""),
        oc(0, ABSENT, ABSENT, '{"q":2}'),
        *END,
    )
    assert heard.said == [("look", '{"q":1}'), ("look", '{"q":2}')]


@pytest.mark.field(57)
async def test_interleaved_fragments_go_to_the_call_of_their_index() -> None:
    heard = await hear(
        oc(0, "a", "look", ""),
        oc(1, "b", "look", ""),
        oc(0, ABSENT, ABSENT, '{"q":'),
        oc(1, ABSENT, ABSENT, '{"q":2'),
        oc(0, ABSENT, ABSENT, "1}"),
        oc(1, ABSENT, ABSENT, "}"),
        *END,
    )
    assert heard.said == [("look", '{"q":1}'), ("look", '{"q":2}')]


@pytest.mark.field(59)
async def test_two_entries_of_one_index_in_one_chunk_are_one_call() -> None:
    entries = [fragment(0, "a", "look", ABSENT), fragment(0, ABSENT, ABSENT, '{"q":')]
    heard = await hear(chunk({"tool_calls": entries}), oc(0, ABSENT, ABSENT, "1}"), *END)
    assert heard.said == [("look", '{"q":1}')]


@pytest.mark.field(60)
@pytest.mark.parametrize(
    "rest",
    [
        [oc(0, "", "", '{"q":'), oc(0, "", ABSENT, "1}"), oc(0, "", "", "")],
        [oc(0, None, None, '{"q":'), oc(0, None, None, "1}")],
        [oc(0, "a", "look", '{"q":'), oc(0, "a", "look", "1}")],
        [oc(0, "new-1", ABSENT, '{"q":'), oc(0, "new-2", ABSENT, "1}")],
        [oc(None, ABSENT, ABSENT, '{"q":'), oc(None, ABSENT, ABSENT, "1}")],
    ],
    ids=["blank", "null", "repeated", "made up anew", "no index"],
)
async def test_id_and_name_are_set_once_whatever_continuations_carry(rest: list[bytes]) -> None:
    heard = await hear(oc(0, "a", "look", ""), *rest, *END)
    assert heard.said == [("look", '{"q":1}')]
    assert heard.reply.calls[0].provider_id == "a"


@pytest.mark.field(60)
async def test_an_id_and_a_name_that_come_last_are_taken() -> None:
    heard = await hear(oc(0, "", ABSENT, '{"q":'), oc(0, "", ABSENT, "1}"), oc(0, "a", "look", ""), *END)
    assert heard.said == [("look", '{"q":1}')]
    assert heard.reply.calls[0].provider_id == "a"


@pytest.mark.field(61)
@pytest.mark.parametrize(
    ("steps", "raw"),
    [
        ([oc(0, "a", "look", "")], ""),
        ([oc(0, "a", "look", None)], ""),
        ([oc(0, "a", "look", ABSENT)], ""),
        ([oc(0, "a", "look", "{}")], "{}"),
        ([oc(0, "a", "look", ""), oc(0, ABSENT, ABSENT, "{}")], "{}"),
    ],
    ids=["blank", "null", "none", "braces", "blank then braces"],
)
async def test_a_call_without_arguments_is_a_call(steps: list[bytes], raw: str) -> None:
    assert (await hear(*steps, *END)).said == [("look", raw)]


@pytest.mark.accept(74)
@pytest.mark.field(63)
@pytest.mark.parametrize(
    ("arguments", "reason", "finish"),
    [
        ('{"amount":5,"to":"A', "length", "length"),
        ('{"amount":5,"to":"A', "tool_calls", "tool_call"),
        ('{"amount":5}', "length", "length"),
        ('{"amount":5,"to":"A"}', "length", "length"),
    ],
)
async def test_arguments_that_were_cut_off_are_told_as_they_came(arguments: str, reason: str, finish: str) -> None:
    heard = await hear(oc(0, "a", "pay", arguments), fin(reason), DONE)
    assert heard.said == [("pay", arguments)]
    assert heard.reply.finish == finish


@pytest.mark.field(64)
async def test_a_second_finish_makes_no_second_call() -> None:
    last = sse({"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1", "choices": []})
    heard = await hear(oc(0, "a", "look", '{"q":1}'), fin("tool_calls"), fin("tool_calls"), usage(3, 4), last, DONE)
    assert heard.said == [("look", '{"q":1}')]
    assert (heard.reply.usage.input_tokens, heard.reply.usage.output_tokens) == (3, 4)


@pytest.mark.accept(74)
@pytest.mark.field(65)
@pytest.mark.parametrize(
    "steps",
    [[txt("The ans")], [oc(0, "a", "look", '{"q":1}')], [chunk({"reasoning_content": "Hm"})], [txt("x"), DONE]],
    ids=["half a sentence", "a whole call", "only reasoning", "done without a finish"],
)
async def test_a_stream_without_a_finish_is_no_reply(steps: list[bytes]) -> None:
    error = (await hear(*steps)).error
    assert (error.kind, error.retryable) == ("incomplete", True)


@pytest.mark.field(67)
@pytest.mark.parametrize("given", ["", "look"])
@pytest.mark.parametrize("indexes", [(0, 1, 2), (0, 0, 0), (None, None, None)])
async def test_ids_that_tell_nothing_leave_three_calls_apart(given: str, indexes: tuple[int | None, ...]) -> None:
    calls = [oc(index, given, "look", f'{{"q":{q}}}') for q, index in enumerate(indexes)]
    heard = await hear(*calls, *END)
    assert heard.said == [("look", '{"q":0}'), ("look", '{"q":1}'), ("look", '{"q":2}')]
    assert {call.provider_id for call in heard.reply.calls} == {given}


@pytest.mark.field(68)
async def test_two_calls_of_one_tool_are_both_told() -> None:
    heard = await hear(oc(0, "a", "look", '{"q":"X"}'), oc(1, "b", "look", '{"q":"Y"}'), *END)
    assert heard.said == [("look", '{"q":"X"}'), ("look", '{"q":"Y"}')]


async def test_a_call_whose_name_never_comes_is_still_told() -> None:
    heard = await hear(oc(0, "a", ABSENT, '{"q":1}'), *END)
    assert heard.said == [("", '{"q":1}')]


async def test_arguments_sent_as_json_become_text() -> None:
    heard = await hear(oc(0, "a", "look", {"q": "é"}), *END)
    assert heard.said == [("look", '{"q": "é"}')]


@pytest.mark.field(70)
async def test_a_character_cut_into_two_escapes_is_joined() -> None:
    heard = await hear(
        txt("a\ud83d"),
        txt("\ude00b"),
        chunk({"reasoning_content": "\ud83d"}),
        chunk({"reasoning_content": "\ude00"}),
        oc(0, "a", "look", '{"q":"\ud83d'),
        oc(0, ABSENT, ABSENT, '\ude00"}'),
        *END,
    )
    assert (heard.reply.text, heard.reply.reasoning) == ("a\U0001f600b", "\U0001f600")
    assert heard.said == [("look", '{"q":"\U0001f600"}')]
    for delta in heard.deltas:
        (getattr(delta, "text", "") + getattr(delta, "arguments", "")).encode()


@pytest.mark.field(70)
async def test_half_a_character_at_the_end_becomes_a_replacement_character() -> None:
    heard = await hear(txt("a\ud83d"), chunk({"reasoning_content": "\ud83d"}), oc(0, "a", "look", '{"q":"\ud83d'), *END)
    assert (heard.reply.text, heard.reply.reasoning) == ("a\ufffd", "\ufffd")
    assert heard.said == [("look", '{"q":"\ufffd')]


@pytest.mark.field(70)
@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_bytes_cut_inside_a_character_are_joined(cut: int) -> None:
    raw = txt("X").replace(b"X", "\U0001f600".encode())
    at = raw.index("\U0001f600".encode()) + cut
    heard = await hear(raw[:at], raw[at:], fin("stop"), DONE)
    assert heard.reply.text == "\U0001f600"


@pytest.mark.field(71)
async def test_an_error_in_the_middle_of_a_stream_is_told_with_the_providers_code() -> None:
    body = {"error": {"code": "tool_use_failed", "message": "bad call", "failed_generation": "{..}"}}
    error = (await hear(txt("Let me"), sse(body))).error
    assert (error.kind, error.code, error.retryable) == ("unknown", "tool_use_failed", True)
    assert "bad call" in error.message
