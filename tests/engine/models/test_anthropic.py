"""The adapter against a scripted server in Anthropic's style."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from tests.engine.models.asking import Heard, hear
from tests.engine.models.stub_server import Script, an_block, an_delta, an_end, an_start, sse, stub_server
from turnlog.engine.models.base import ModelCall, ModelError
from turnlog.engine.models.pydantic_ai import open_model
from turnlog.fsm.history import AssistantMessage, CallPart, Message, ToolMessage, UserMessage

ODD = 'e\u0301 \u212b\u200b "\\n\n\t\U0001f600 '
# A made-up name: the SDK warns of real models by the date of their end.
SPEC = "anthropic:claude-x"


def text(index: int, *pieces: str) -> list[bytes]:
    return an_block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(index: int, thought: str, signature: str) -> list[bytes]:
    return an_block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": thought},
        {"type": "signature_delta", "signature": signature},
    )


def use(index: int, call_id: str, *pieces: str) -> list[bytes]:
    block: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
    return an_block(index, block, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


async def answer(*steps: bytes, spec: str = SPEC, **more: Any) -> Heard:
    return await hear(an_start(), *steps, spec=spec, api_key="k", **more)


HELLO = (*text(0, "Hel", "lo"), *an_end("end_turn"))


async def test_text_usage_and_finish_are_told() -> None:
    reply = (await answer(*HELLO)).reply
    assert (reply.text, reply.finish, reply.calls) == ("Hello", "stop", ())
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (7, 5)


async def test_two_calls_are_assembled_from_their_fragments() -> None:
    heard = await answer(*use(0, "t1", '{"q"', ": 1}"), *use(1, "t2", '{"q":2}'), *an_end("tool_use"))
    assert heard.said == [("look", '{"q": 1}'), ("look", '{"q":2}')]
    assert [call.provider_id for call in heard.reply.calls] == ["t1", "t2"]
    assert heard.reply.finish == "tool_call"


@pytest.mark.field(61)
@pytest.mark.parametrize("pieces", [(), ("",)])
async def test_a_call_without_arguments_is_a_call(pieces: tuple[str, ...]) -> None:
    assert (await answer(*use(0, "t1", *pieces), *an_end("tool_use"))).said == [("look", "")]


@pytest.mark.accept(74)
@pytest.mark.field(63)
async def test_arguments_cut_by_the_token_limit_are_told_as_they_came() -> None:
    heard = await answer(*use(0, "t1", '{"q":'), *an_end("max_tokens"))
    assert (heard.said, heard.reply.finish) == ([("look", '{"q":')], "length")


@pytest.mark.field(65)
@pytest.mark.parametrize("steps", [text(0, "The ans"), use(0, "t1", '{"q":1}'), thinking(0, "Hm", "s")])
async def test_a_stream_without_a_finish_is_no_reply(steps: list[bytes]) -> None:
    error = (await answer(*steps)).error
    assert (error.kind, error.retryable) == ("incomplete", True)


async def test_a_refusal_is_no_reply() -> None:
    error = (await answer(*text(0, "I"), *an_end("refusal"))).error
    assert (error.kind, error.retryable, error.code) == ("refused", False, "refusal")


@pytest.mark.field(71)
async def test_an_error_in_the_middle_of_a_stream_has_its_kind_and_code() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    error = (await answer(an_delta(0, {"type": "text_delta", "text": "Hel"}), sse(body, "error"))).error
    assert (error.kind, error.code, error.retryable) == ("overloaded", "overloaded_error", True)


@pytest.mark.parametrize(
    ("status", "name", "kind"),
    [
        (400, "invalid_request_error", "bad_request"),
        (401, "authentication_error", "authentication"),
        (404, "not_found_error", "not_found"),
        (429, "rate_limit_error", "rate_limit"),
        (500, "api_error", "server"),
        (529, "overloaded_error", "overloaded"),
    ],
)
async def test_a_refused_request_has_its_kind_and_is_sent_once(status: int, name: str, kind: str) -> None:
    body = json.dumps({"type": "error", "error": {"type": name, "message": "m"}}).encode()
    error = (await answer(script=Script([body], status, "application/json"))).error
    assert (error.kind, error.code) == (kind, name)
    assert f"HTTP {status}: m" in error.message


def history(reply_text: str, extras: str, *ids: str) -> list[Message]:
    calls = tuple(CallPart(call_id, "look", '{"q":1}') for call_id in ids)
    results = [ToolMessage(call_id, "look", f"seen {call_id}") for call_id in ids]
    return [UserMessage("hi"), AssistantMessage(reply_text, calls, "", extras), *results]


@pytest.mark.field(82)
async def test_thinking_goes_back_in_its_place_with_its_signature_byte_for_byte() -> None:
    first = await answer(
        *thinking(0, ODD, "c2ln/+=="),
        *text(1, "Let me ", "look."),
        *use(2, "t1", '{"q":1}'),
        *thinking(3, "again", "c2ln2"),
        *an_block(4, {"type": "redacted_thinking", "data": "aGlkZGVu"}),
        *use(5, "t2", '{"q":1}'),
        *an_end("tool_use"),
    )
    assert first.reply.reasoning == ODD + "again"
    second = await answer(*HELLO, messages=history("Let me look.", first.reply.extras, "c1", "c2"))
    assert second.body["messages"][1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": ODD, "signature": "c2ln/+=="},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}},
            {"type": "thinking", "thinking": "again", "signature": "c2ln2"},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
            {"type": "tool_use", "id": "c2", "name": "look", "input": {"q": 1}},
        ],
    }


async def test_thinking_of_a_message_that_was_joined_to_another_goes_before_the_text() -> None:
    first = await answer(*thinking(0, "Hm", "sig"), *text(1, "Hello"), *an_end("end_turn"))
    joined: list[Message] = [
        UserMessage("hi"),
        AssistantMessage("Before.\n\nHello", (), "Hm", first.reply.extras),
        UserMessage("and?"),
    ]
    sent = (await answer(*HELLO, messages=joined)).body["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "Hm", "signature": "sig"},
        {"type": "text", "text": "Before.\n\nHello"},
    ]


async def test_a_failed_tool_is_marked_as_failed_and_says_what_it_said() -> None:
    messages: list[Message] = [
        UserMessage("hi"),
        AssistantMessage("", (CallPart("c1", "look", "{}"), CallPart("c2", "look", "{}"))),
        ToolMessage("c1", "look", "seen"),
        ToolMessage("c2", "look", "no such thing", "denied"),
    ]
    first, second = (await answer(*HELLO, messages=messages)).body["messages"][-1]["content"]
    assert (first["tool_use_id"], first["content"][0]["text"], first["is_error"]) == ("c1", "seen", False)
    assert (second["tool_use_id"], second["content"][0]["text"], second["is_error"]) == ("c2", "no such thing", True)


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
        ({"anthropic_thinking": {"type": "adaptive"}}, {"type": "adaptive"}),
    ],
)
async def test_a_thinking_block_that_no_longer_fits_is_never_dropped_by_a_second_request(
    settings: dict[str, Any], sent: dict[str, Any]
) -> None:
    said = "messages.1.content.0: The block is bound to a different conversation"
    body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": said}}).encode()
    refusal = Script([body], 400, "application/json")
    # `hear` asserts one request; the library alone would send two.
    heard = await answer(script=refusal, spec="anthropic:claude-opus-5-5", settings=settings)
    assert heard.error.kind == "bad_request"
    assert heard.body["thinking"] == sent


async def test_who_stops_listening_closes_the_connection() -> None:
    async with stub_server() as stub:
        stub.scripts = [Script([an_start(), *text(0, "Hel")], end="hang")]
        model = open_model(SPEC, base_url=stub.url, api_key="k")
        async with aclosing(model.stream(ModelCall("", [UserMessage("hi")]))) as stream:
            await anext(stream)
        await asyncio.wait_for(stub.left.wait(), 30)
        await model.aclose()
        assert len(stub.asked) == 1


async def test_a_missing_server_is_a_connection_error() -> None:
    model = open_model(SPEC, base_url="http://127.0.0.1:9", api_key="k")
    with pytest.raises(ModelError) as caught:
        await anext(model.stream(ModelCall("", [UserMessage("hi")])))
    assert caught.value.kind == "connection"
    await model.aclose()
