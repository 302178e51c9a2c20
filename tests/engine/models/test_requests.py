"""What goes out: the neutral messages in the server's form, and opaque details byte for byte as they came."""

import base64
import json

import pytest

from tests.engine.models.asking import hear
from tests.engine.models.stub_server import DONE, chunk, fin, fragment, oc, txt
from turnlog.fsm.events import Attachment
from turnlog.fsm.history import AssistantMessage, CallPart, Message, ToolMessage, UserMessage

HELLO = (txt("Hello"), fin("stop"), DONE)
# Characters that normalising, escaping or trimming would change.
ODD = 'e\u0301 \u212b\u200b "\\n\n\t\U0001f600 '


def called(extras: str = "", text: str = "", reasoning: str = "") -> list[Message]:
    return [
        UserMessage("hi"),
        AssistantMessage(text, (CallPart("c1", "look", '{"q":1}'),), reasoning, extras),
        ToolMessage("c1", "look", "seen"),
    ]


async def test_system_text_and_tools_go_out_as_they_are() -> None:
    body = (await hear(*HELLO)).body
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    parameters = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}
    assert body["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": parameters}}
    ]
    assert (body["model"], body["stream"]) == ("m", True)


async def test_without_a_system_text_there_is_no_system_message() -> None:
    assert [m["role"] for m in (await hear(*HELLO, system="")).body["messages"]] == ["user"]


async def test_calls_and_their_results_go_out_together_under_our_ids() -> None:
    messages: list[Message] = [
        UserMessage("hi"),
        AssistantMessage("Look.", (CallPart("c1", "look", '{"q":1}'), CallPart("c2", "look", "{}"))),
        ToolMessage("c1", "look", "seen"),
        ToolMessage("c2", "look", "no such thing", "error"),
        UserMessage("and?"),
    ]
    sent = (await hear(*HELLO, messages=messages)).body["messages"]
    assert sent[2:] == [
        {
            "role": "assistant",
            "content": "Look.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "seen"},
        {"role": "tool", "tool_call_id": "c2", "content": "no such thing"},
        {"role": "user", "content": "and?"},
    ]


@pytest.mark.parametrize(
    ("messages", "roles"),
    [
        ([], ["user"]),
        ([AssistantMessage("I begin.")], ["user", "assistant", "user"]),
        ([UserMessage("hi"), AssistantMessage("hello")], ["user", "assistant", "user"]),
        ([UserMessage(" ")], ["user"]),
    ],
)
async def test_a_conversation_begins_and_ends_with_a_user_who_says_something(
    messages: list[Message], roles: list[str]
) -> None:
    sent = (await hear(*HELLO, messages=messages, system="")).body["messages"]
    assert [message["role"] for message in sent] == roles
    assert all(message["content"].strip() for message in sent)


@pytest.mark.field(82)
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_with_its_calls_byte_for_byte(name: str) -> None:
    first = await hear(chunk({name: ODD}), oc(0, "a", "look", '{"q":1}'), fin("tool_calls"), DONE)
    assert first.reply.reasoning == ODD
    second = await hear(*HELLO, messages=called(first.reply.extras, reasoning=ODD))
    assert second.body["messages"][2][name] == ODD


async def test_reasoning_of_an_answer_without_calls_stays_here() -> None:
    first = await hear(chunk({"reasoning_content": ODD}), txt("Hello"), fin("stop"), DONE)
    history: list[Message] = [
        UserMessage("hi"),
        AssistantMessage("Hello", reasoning=ODD, extras=first.reply.extras),
        UserMessage("and?"),
    ]
    sent = (await hear(*HELLO, messages=history)).body["messages"]
    assert sent[2] == {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize("extras", ["", "{}", "not json", '[{"kind":"thinking","by":"anthropic","content":"secret"}]'])
async def test_extras_of_another_provider_are_not_sent(extras: str) -> None:
    sent = (await hear(*HELLO, messages=called(extras, reasoning="secret"))).body["messages"]
    assert "secret" not in json.dumps(sent)
    assert sent[2]["tool_calls"][0]["id"] == "c1"


@pytest.mark.field(82)
async def test_the_signature_of_a_call_goes_back_with_that_call() -> None:
    signed = fragment(0, "a", "look", '{"q":1}') | {"extra_content": {"google": {"thought_signature": ODD}}}
    first = await hear(chunk({"tool_calls": [signed]}), fin("tool_calls"), DONE)
    sent = (await hear(*HELLO, messages=called(first.reply.extras))).body["messages"]
    assert sent[2]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": ODD}}


async def test_an_answer_without_details_has_no_extras() -> None:
    assert (await hear(txt("x"), oc(0, "a", "look", "{}"), fin("tool_calls"), DONE)).reply.extras == ""


PICTURE = Attachment(name="cat.png", media_type="image/png", digest="d1", size=3)
PAPER = Attachment(name="paper.pdf", media_type="application/pdf", digest="d2", size=9)


@pytest.mark.accept(22)
async def test_pictures_go_out_as_pictures_and_other_files_by_name() -> None:
    blobs = {"d1": b"png"}
    messages: list[Message] = [UserMessage("what is it?", (PICTURE, PAPER))]
    sent = (await hear(*HELLO, messages=messages, blobs=blobs.__getitem__)).body["messages"][-1]
    text, picture, paper = sent["content"]
    assert text == {"type": "text", "text": "what is it?"}
    assert picture["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(b"png").decode()
    assert "paper.pdf" in paper["text"]


async def test_without_bytes_a_picture_goes_out_by_name() -> None:
    sent = (await hear(*HELLO, messages=[UserMessage("?", (PICTURE,))])).body["messages"][-1]
    assert "cat.png" in json.dumps(sent)


@pytest.mark.accept(22)
async def test_a_tools_picture_follows_all_results_of_its_round() -> None:
    messages: list[Message] = [
        UserMessage("hi"),
        AssistantMessage("", (CallPart("c1", "look", "{}"), CallPart("c2", "look", "{}"))),
        ToolMessage("c1", "look", "seen", attachments=(PICTURE,)),
        ToolMessage("c2", "look", "seen"),
    ]
    sent = (await hear(*HELLO, messages=messages, blobs=lambda _: b"png")).body["messages"]
    assert [message["role"] for message in sent[3:]] == ["tool", "tool", "user"]
    assert [part["type"] for part in sent[-1]["content"]] == ["text", "image_url"]
