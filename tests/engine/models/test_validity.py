"""V, down to the bytes on the wire: whatever happened and however small the window, each provider takes the history."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from random import Random
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.models.payloads import Body, of_anthropic, of_openai
from tests.engine.models.stub_server import DONE, an_block, an_end, an_start, fin, txt
from tests.fsm.talk import Talk, call
from tests.fsm.validity import complaints
from tests.properties.moves import any_input, start, walks
from turnlog.engine import Agent
from turnlog.engine.context import History, seen
from turnlog.engine.models import pydantic_ai_wire as wire
from turnlog.engine.models.base import ModelCall, ModelReply, ToolDefinition
from turnlog.engine.models.pydantic_ai import PydanticAIModel, open_model
from turnlog.engine.prompt import with_documents
from turnlog.fsm import Row
from turnlog.fsm import events as ev
from turnlog.fsm.errors import CorruptLog
from turnlog.fsm.history import AssistantMessage, CallPart, Message, ToolMessage, UserMessage

SPECS = {"openai:m": of_openai, "anthropic:claude-x": of_anthropic}
LOOK = ToolDefinition("look", "Looks.", {"type": "object", "properties": {}})
SAID = {
    "openai": b"".join([txt("ok"), fin("stop"), DONE]),
    "anthropic": b"".join([an_start(), *an_block(0, {"type": "text", "text": "ok"}), *an_end("end_turn")]),
}


class Wire:
    """A transport that keeps the requests and answers all of them."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        kind = "anthropic" if request.url.path.endswith("/messages") else "openai"
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=SAID[kind])


@pytest.fixture(scope="module")
def tapped() -> Iterator[Wire]:
    """What models of loopback servers send."""
    tap = Wire()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_direct", lambda: httpx2.MockTransport(tap))
        yield tap


async def _send(model: PydanticAIModel, call_: ModelCall) -> None:
    async with aclosing(model.stream(call_)) as stream:
        assert isinstance([item async for item in stream][-1], ModelReply)


def sent(tap: Wire, spec: str, calls: list[ModelCall]) -> list[Body]:
    """What goes over the wire for these calls."""

    async def run() -> list[Body]:
        model = open_model(spec, base_url="http://127.0.0.1:9/v1", settings={"max_tokens": 9})
        tap.bodies.clear()
        for one in calls:
            await _send(model, one)
        await model.aclose()
        return list(tap.bodies)

    return asyncio.run(run())


def blobs(digest: str) -> bytes:
    """Pictures of which some are empty, too large or gone."""
    if digest == "gone":
        raise CorruptLog("the blob is gone")
    return {"empty": b"", "large": b"x" * (4 * 2**20)}.get(digest, b"png")


FILES = [
    ev.Attachment(name=f"{digest}.{end}", media_type=media, digest=digest, size=3)
    for digest in ("fine", "empty", "gone")
    for end, media in (("png", "image/png"), ("svg", "image/svg+xml"), ("pdf", "application/pdf"))
] + [ev.Attachment(name="large.png", media_type="image/png", digest="large", size=4 * 2**20)]
NAMES = ["browser.tabs.open", "", 'look(q="1")', "x" * 80, "поиск", "look", "a b"]
RAW = ["", "null", "[1]", '{"a":', "NaN", '{"a": NaN}', '{"q":"\\ud83d"}', '{"a":1}{"b":2}', '{"a":1, "a":2}']
EXTRAS = [
    "",
    "not json",
    '[{"kind":"thinking","by":"anthropic","content":"hm","signature":"s"},{"kind":"text","length":2},{"kind":"call"}]',
    '[{"kind":"thinking","by":"anthropic","content":"unsigned"}]',
    '[{"kind":"thinking","by":"openai","content":"hm","id":"reasoning_content"},{"kind":"call"}]',
    '[{"kind":"text","length":0},{"kind":"call","by":"anthropic"}]',
]


def nasty(rng: Random, row: Row) -> Row:
    """The row with what models, tools and people have made of it in real life."""
    event = row.event
    match event:
        case ev.MessageAdded():
            event = event.model_copy(
                update={
                    "attachments": tuple(rng.sample(FILES, rng.randrange(3))),
                    "extras": rng.choice(EXTRAS),
                    "reasoning": rng.choice(["", "hm"]),
                }
            )
        case ev.ToolsCalled():
            calls = tuple(_nasty_call(rng, one) for one in event.calls)
            event = event.model_copy(update={"calls": calls, "extras": rng.choice(EXTRAS)})
        case ev.ToolReturned():
            content = rng.choice([event.content, "", " \n", "x" * 400, '{"a": 1}'])
            event = event.model_copy(
                update={"content": content, "attachments": tuple(rng.sample(FILES, rng.randrange(3)))}
            )
    return row._replace(event=event)


def _nasty_call(rng: Random, one: ev.CallRecord) -> ev.CallRecord:
    if rng.randrange(3):
        return one
    more: dict[str, Any] = {"tool": rng.choice(NAMES)}
    if rng.randrange(2):
        more |= {"arguments": rng.choice(RAW), "parsed": None}
    return one.model_copy(update=more)


def windows(rows: list[Row], talk: Talk) -> Iterator[list[Message]]:
    """What every speaker sees of its pairs and groups, through each window: of messages, of tokens, of both."""
    history = History(None)
    history.add(rows)
    count = sum(one.size for one in history.exchanges)
    sizes = [(size, None) for size in (*range(min(count, 25) + 1), None)]
    tokens = [(None, size) for size in (*range(0, 40, 3), *range(40, 400, 40), 1000)]
    for speaker in talk.session.agents:
        for listener in (*talk.session.agents, *talk.session.channels):
            if speaker == listener:
                continue
            session = talk.session._replace(speaker=speaker, listener=listener)
            for messages, weight in (*sizes, *tokens, (4, 30), (9, 100)):
                agent = Agent(speaker, window=messages, window_tokens=weight)
                yield seen(session, history, agent).messages


def distinct(lists: Iterator[list[Message]]) -> list[list[Message]]:
    """Each once."""
    return list({repr(one): one for one in lists}.values())


def calls_for(rng: Random, lists: list[list[Message]]) -> list[ModelCall]:
    """Calls with and without tools, a system text and documents."""
    made: list[ModelCall] = []
    for messages in lists:
        one = ModelCall(rng.choice(["", " ", "Help."]), messages, rng.choice([(), (LOOK,)]), blob=blobs)
        made.append(with_documents(one, "Documents") if rng.randrange(2) else one)
    return made


@pytest.mark.field(74)
@pytest.mark.field(79)
@pytest.mark.field(80)
@settings(max_examples=(settings.default or settings()).max_examples // 4)
@given(first=st.integers(0, 2**32), walk=walks, seed=st.integers(0, 2**32))
def test_every_window_of_every_log_is_a_request_that_each_provider_takes(
    tapped: Wire, first: int, walk: list[int], seed: int
) -> None:
    rng = Random(seed)
    talk = Talk.__new__(Talk)
    talk.fresh()
    talk.put(start(first))
    for step in walk:
        talk.put(any_input(step, talk.session))
    lists = distinct(windows([nasty(rng, row) for row in talk.rows], talk))
    for messages in lists:
        assert complaints(messages) == []
    for spec, refused in SPECS.items():
        calls = calls_for(rng, lists)
        for one, body in zip(calls, sent(tapped, spec, calls), strict=True):
            assert refused(body) == [], (spec, one.messages, body)


def long_talk(turns: int = 12) -> Talk:
    """Turns of none to three calls, the words of a person in between, a failure and a stop."""
    talk = Talk()
    for turn in range(turns):
        talk.say(f"question {turn}")
        if turn % 4:
            talk.reply("let me see" * (turn % 2), *(call("look", q=f"{turn}.{place}") for place in range(turn % 4)))
            talk.ready()
            talk.say(f"and {turn}?")
            while talk.running():
                talk.finish(content=f"saw {turn}" * turn)
        if turn == 5:
            talk.fail()
            talk.retry()
        talk.reply(f"answer {turn}")
        if turn % 4:
            if turn == 7:
                talk.stop()
            else:
                talk.reply(f"answer to and {turn}")
    return talk


@pytest.mark.field(74)
@pytest.mark.field(84)
@pytest.mark.parametrize("spec", SPECS)
def test_a_long_talk_is_taken_through_each_window_and_has_the_question_in_it(tapped: Wire, spec: str) -> None:
    talk = long_talk()
    rows = talk.rows
    cut = 0
    for upto in range(len(rows) - 60, len(rows), 7):
        lists = distinct(windows(rows[:upto], talk))
        calls = [ModelCall("Help.", messages, (LOOK,)) for messages in lists]
        for one, body in zip(calls, sent(tapped, spec, calls), strict=True):
            assert SPECS[spec](body) == [], one.messages
        asked = [messages for messages in lists if any(isinstance(said, UserMessage) for said in messages)]
        assert len(asked) >= len(lists) - 1, "all but the empty history of nobody's pair"
        cut += len(lists)
    assert cut > 100, "windows that differ"


# The oracle can see -------------------------------------------------------------------------------


C, R = CallPart("c1", "look", "{}"), ToolMessage("c1", "look", "seen")
GOOD: list[Message] = [UserMessage("a"), AssistantMessage("", (C,)), R, AssistantMessage("b"), UserMessage("c")]


def broken(change: Callable[[Body], None], body: Body) -> Body:
    """The body with one thing wrong."""
    again: Body = json.loads(json.dumps(body))
    change(again)
    return again


def drop(place: int) -> Callable[[Body], None]:
    """Leave a message out."""
    return lambda body: body["messages"].pop(place)


def set_in(*path: Any) -> Callable[[Body], None]:
    """Set the last of a path that leads from the messages."""

    def change(body: Body) -> None:
        *way, last, value = path
        at: Any = body["messages"]
        for step in way:
            at = at[step]
        at[last] = value

    return change


WRONG: dict[str, list[tuple[str, Callable[[Body], None]]]] = {
    "openai:m": [
        ("begin", drop(1)),
        ("results are missing before", drop(3)),
        ("not the result that is due", drop(2)),
        ("ends with the assistant", drop(-1)),
        ("in a row", set_in(4, "role", "user")),
        ("a blank result", set_in(3, "content", " ")),
        ("a blank message", set_in(1, "content", "")),
        ("a blank text", set_in(4, "content", "\n")),
        ("an empty message", set_in(4, "content", None)),
        ("name 'a.b'", set_in(2, "tool_calls", 0, "function", "name", "a.b")),
        ("no object", set_in(2, "tool_calls", 0, "function", "arguments", "[]")),
        ("do not parse", set_in(2, "tool_calls", 0, "function", "arguments", "{")),
        ("id ''", set_in(2, "tool_calls", 0, "id", "")),
        ("a picture", set_in(1, "content", [{"type": "image_url", "image_url": {"url": "data:image/svg;base64,e"}}])),
    ],
    "anthropic:claude-x": [
        ("begin", drop(0)),
        ("results are due", drop(2)),
        ("not due", drop(1)),
        ("ends with the assistant", drop(-1)),
        ("in a row", drop(3)),
        ("a blank result", set_in(2, "content", 0, "content", "")),
        ("a blank text", set_in(0, "content", 0, "text", " ")),
        ("an empty message", set_in(0, "content", [])),
        ("name ''", set_in(1, "content", 0, "name", "")),
        ("no object", set_in(1, "content", 0, "input", [])),
        ("id 'a b'", set_in(1, "content", 0, "id", "a b")),
        ("no tool is defined", lambda body: body.pop("tools")),
        ("thinking without", set_in(3, "content", [{"type": "thinking", "thinking": "hm", "signature": ""}])),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("spec", "what"), [(spec, what) for spec, wrong in WRONG.items() for what, _ in wrong])
def test_the_oracle_finds_what_a_provider_would_refuse(tapped: Wire, spec: str, what: str) -> None:
    (body,) = sent(tapped, spec, [ModelCall("Help.", GOOD, (LOOK,))])
    assert SPECS[spec](body) == []
    change = dict(WRONG[spec])[what]
    assert any(what in one for one in SPECS[spec](broken(change, body))), SPECS[spec](broken(change, body))


# What was learnt ----------------------------------------------------------------------------------


@pytest.mark.accept(58)
def test_where_no_tool_is_offered_any_more_the_calls_of_before_are_still_taken(tapped: Wire) -> None:
    """Anthropic wants the tools of a history to be defined, also after the limit of calls."""
    one = ModelCall("Help.", GOOD, (), settings={"tool_choice": "required"})
    (openai,) = sent(tapped, "openai:m", [one])
    (anthropic,) = sent(tapped, "anthropic:claude-x", [one])
    assert [tool["name"] for tool in anthropic["tools"]] == ["look"]
    assert anthropic["tool_choice"] == {"type": "none"}
    assert "tools" not in openai or not openai["tools"]
    (plain,) = sent(tapped, "anthropic:claude-x", [replace(one, messages=GOOD[:1], settings={})])
    assert "tools" not in plain


@pytest.mark.accept(22)
@pytest.mark.parametrize("file", FILES, ids=lambda one: one.name)
@pytest.mark.parametrize("spec", SPECS)
def test_a_file_that_no_provider_takes_is_told_by_name_and_keeps_nobody_from_answering(
    tapped: Wire, spec: str, file: ev.Attachment
) -> None:
    result = ToolMessage("c1", "look", "seen", attachments=(file,))
    messages: list[Message] = [UserMessage("a"), AssistantMessage("", (C,)), result]
    (body,) = sent(tapped, spec, [ModelCall("Help.", messages, (LOOK,), blob=blobs)])
    assert SPECS[spec](body) == []
    shown = json.dumps(body["messages"])
    assert ("base64" in shown) == (file.name == "fine.png")
    assert (file.name in shown) == (file.name != "fine.png")
