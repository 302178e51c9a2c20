"""From bytes on a socket to calls in the log, results, and the next request: the same shapes in both styles.

The adapter's own tests look at one answer; here an engine talks with the scripted server, and what counts is what
is recorded, what ran, and what the provider is sent next.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.engine.models.shapes import CUT, GRIN, STYLES, A, Anthropic, OpenAI, Steps, Style, whole
from tests.engine.models.stub_server import Script, StubServer, sse, stub_server
from tests.engine.support import World, kinds, of_kind, reached, results
from turnlog.engine import Agent, Conversation, tool
from turnlog.engine.models.pydantic_ai import open_model
from turnlog.engine.proposals import CUT as TOLD_CUT
from turnlog.store import verify

both = pytest.mark.parametrize("style", STYLES)


@asynccontextmanager
async def talk(world: World, style: Style, *answers: Steps | Script) -> AsyncIterator[tuple[Conversation, StubServer]]:
    """The session, new or as it was left, with a server for a model that gives these answers, then "done" for ever."""

    @tool(name="look")
    async def look(q: Any) -> str:
        """Look something up."""
        world.ledger.append(("look", q))
        return f"saw {q}"

    @tool(name="ping")
    async def ping() -> str:
        """Take no arguments."""
        world.ledger.append(("ping",))
        return "pong"

    async with stub_server() as stub:
        done = whole(style, *style.text("done"), *style.end("stop"))
        given = [one if isinstance(one, Script) else Script(whole(style, *one)) for one in answers]
        stub.scripts = [*given, Script(done)]
        url = stub.url if style is Anthropic else f"{stub.url}/v1"
        model = open_model(style.spec, base_url=url, api_key="k")
        async with world.engine(Agent("@agent", model, tools=[look, world.pay, ping])) as engine:
            yield await (engine.open("s") if engine.log.head("s") else engine.create("s")), stub
    assert verify(world.path).ok


def calls(c: Conversation) -> list[tuple[str, str, str]]:
    """Name, raw arguments and the provider's id of each recorded call."""
    return [(one.tool, one.arguments, one.provider_id) for e in of_kind(c, "tools_called") for one in e.calls]


def parsed(c: Conversation) -> list[Any]:
    """What the recorded arguments mean."""
    return [one.parsed for e in of_kind(c, "tools_called") for one in e.calls]


def sent_back(stub: StubServer, style: Style) -> list[tuple[str, Any]]:
    """The calls of the last request with the results that stand right after them; fails unless they are paired."""
    messages = stub.asked[-1].body["messages"]
    found: list[tuple[str, Any]] = []
    for place, message in enumerate(messages):
        if style is OpenAI:
            made = [one["id"] for one in message.get("tool_calls") or ()]
            told = (
                {m["tool_call_id"]: m["content"] for m in messages[place + 1 : place + 1 + len(made)]} if made else {}
            )
        else:
            blocks = message["content"] if isinstance(message["content"], list) else []
            made = [block["id"] for block in blocks if block["type"] == "tool_use"]
            after = messages[place + 1]["content"] if made else []
            told = {b["tool_use_id"]: b["content"][0]["text"] for b in after if b["type"] == "tool_result"}
        assert list(told) == made, "each call has its result right after it, in order"
        found += told.items()
    assert len({one for one, _ in found}) == len(found), "an id is sent twice"
    return found


@pytest.mark.field(55)
@pytest.mark.parametrize(("style", "steps"), [(style, steps) for style in STYLES for steps in style.one_index])
async def test_two_calls_under_one_index_both_run(world: World, style: Style, steps: Steps) -> None:
    async with talk(world, style, [*steps, *style.end()]) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert calls(c) == [("look", '{"q":1}', "a"), ("look", '{"q":2}', "b")]
        assert sorted(world.ledger) == [("look", 1), ("look", 2)]
        assert [content for _, content in sent_back(stub, style)] == ["saw 1", "saw 2"]


@both
@pytest.mark.field(57)
async def test_interleaved_pieces_go_to_the_call_of_their_index(world: World, style: Style) -> None:
    async with talk(world, style, [*style.interleaved, *style.end()]) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert calls(c) == [("look", '{"q":1}', "a"), ("look", '{"q":2}', "b")]
        assert results(c) == [("ok", "saw 1"), ("ok", "saw 2")]
        assert [content for _, content in sent_back(stub, style)] == ["saw 1", "saw 2"]


@pytest.mark.field(59)
@pytest.mark.parametrize(("style", "steps"), [(style, steps) for style in STYLES for steps in style.two_beginnings])
async def test_a_call_that_begins_twice_is_one_call(world: World, style: Style, steps: Steps) -> None:
    async with talk(world, style, [*steps, *style.end()]) as (c, _):
        assert (await c.send("go")).text == "done"
        assert [(name, call_id) for name, _, call_id in calls(c)] == [("look", "a")]
        assert parsed(c) == [{"q": 1}]
        assert world.ledger == [("look", 1)]


@pytest.mark.field(60)
@pytest.mark.parametrize(("style", "shape"), [(style, shape) for style in STYLES for shape in style.odd_ids])
async def test_id_and_name_are_set_once(world: World, style: Style, shape: str) -> None:
    async with talk(world, style, [*style.odd_ids[shape], *style.end()]) as (c, _):
        assert (await c.send("go")).text == "done"
        assert calls(c) == [("look", '{"q":1}', "a")]
        assert world.ledger == [("look", 1)]


@both
@pytest.mark.field(61)
@pytest.mark.parametrize("shape", list(OpenAI.without_arguments(0, "ping")))
async def test_a_call_without_arguments_runs_where_none_are_needed(world: World, style: Style, shape: str) -> None:
    made = [*style.without_arguments(0, "ping")[shape], *style.without_arguments(1, "pay")[shape], *style.end()]
    async with talk(world, style, made) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert [name for name, _, _ in calls(c)] == ["ping", "pay"]
        (ran, missing) = results(c)
        assert ran == ("ok", "pong")
        assert missing[0] == "invalid_arguments"
        assert "amount: Field required" in missing[1]
        assert world.ledger == [("ping",)]
        assert of_kind(c, "approval_requested") == [], "nobody is asked about a call that cannot run"
        assert len(sent_back(stub, style)) == 2


@both
@pytest.mark.field(63)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(CUT, "length"), (CUT, "calls"), ('{"amount":5}', "length"), ('{"amount":5,"to":"A"}', "length")],
)
async def test_a_call_that_was_cut_off_never_runs_and_the_model_is_told_why(
    world: World, style: Style, arguments: str, reason: str
) -> None:
    async with talk(world, style, [*style.call(0, "a", "pay", arguments), *style.end(reason)]) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert calls(c) == [("pay", arguments, "a")]
        assert (world.ledger, of_kind(c, "approval_requested")) == ([], [])
        ((outcome, told),) = results(c)
        assert outcome == "invalid_arguments"
        whole_and_cut = reason == "length" and arguments.endswith("}") and "to" in arguments
        assert (TOLD_CUT if whole_and_cut else "nothing ran") in told
        assert [content for _, content in sent_back(stub, style)] == [told]
        assert (await c.send("and now?")).text == "done"
        assert [content for _, content in sent_back(stub, style)] == [told], "the history is valid in later turns, too"


@both
@pytest.mark.field(64)
async def test_a_second_end_mark_runs_nothing_twice(world: World, style: Style) -> None:
    async with talk(world, style, [*style.call(0, "a", "look", A), *style.twice()]) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert calls(c) == [("look", '{"q":1}', "a")]
        assert world.ledger == [("look", 1)]
        assert len(stub.asked) == 2


@both
@pytest.mark.field(65)
@pytest.mark.parametrize("shape", ["half a sentence", "a whole call", "only thinking"])
async def test_a_stream_without_an_end_mark_is_an_error_that_runs_nothing_and_is_asked_again_only_by_a_person(
    world: World, style: Style, shape: str
) -> None:
    steps = {
        "half a sentence": style.text("The ans"),
        "a whole call": style.call(0, "a", "look", A),
        "only thinking": style.reasoning("Hm"),
    }[shape]
    async with talk(world, style, steps, steps) as (c, stub):
        assert (await c.send("go")).state == "error"
        assert (await c.retry()).state == "error"
        assert [(e.error, e.attempt) for e in of_kind(c, "turn_failed")] == [("incomplete", 1), ("incomplete", 2)]
        assert len(stub.asked) == 2, "one request for each time that a person asked"
        assert (await c.retry()).text == "done"
        assert world.ledger == []
        assert [e.text for e in of_kind(c, "message_added")] == ["go", "done"]
        assert stub.asked[2].body["messages"] == stub.asked[0].body["messages"], "nothing of the failures is sent"


@both
@pytest.mark.field(67)
@pytest.mark.parametrize("given", ["", "look"])
@pytest.mark.parametrize("indexes", [(0, 1, 2), (0, 0, 0)])
async def test_ids_that_tell_nothing_mix_no_results_in_this_turn_or_the_next(
    world: World, style: Style, given: str, indexes: tuple[int, ...]
) -> None:
    rounds = [
        [s for n, index in enumerate(indexes) for s in style.call(index, given, "look", f'{{"q":{turn}{n}}}')]
        for turn in (1, 2)
    ]
    done = [*style.text("done"), *style.end("stop")]
    async with talk(world, style, [*rounds[0], *style.end()], done, [*rounds[1], *style.end()]) as (c, stub):
        await c.send("go")
        await c.send("again")
        assert [content for _, content in results(c)] == [f"saw {q}" for q in (10, 11, 12, 20, 21, 22)]
        assert {call_id for _, _, call_id in calls(c)} == {given}
        assert [content for _, content in sent_back(stub, style)] == [f"saw {q}" for q in (10, 11, 12, 20, 21, 22)]


@both
@pytest.mark.field(68)
async def test_two_calls_of_one_tool_both_run_and_are_both_answered(world: World, style: Style) -> None:
    made = [*style.call(0, "a", "look", '{"q":"X"}'), *style.call(1, "b", "look", '{"q":"Y"}'), *style.end()]
    async with talk(world, style, made) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert sorted(world.ledger) == [("look", "X"), ("look", "Y")]
        assert [content for _, content in sent_back(stub, style)] == ["saw X", "saw Y"]


@both
@pytest.mark.field(70)
async def test_the_halves_of_a_character_become_one_in_the_log_and_in_the_next_request(
    world: World, style: Style
) -> None:
    made = [*style.text("a\ud83d", "\ude00b"), *style.call(1, "a", "look", '{"q":"\ud83d', '\ude00"}'), *style.end()]
    async with talk(world, style, made) as (c, stub):
        assert (await c.send("go")).text == "done"
        assert of_kind(c, "tools_called")[0].text == f"a{GRIN}b"
        assert (parsed(c), world.ledger) == ([{"q": GRIN}], [("look", GRIN)])
        assert [content for _, content in sent_back(stub, style)] == [f"saw {GRIN}"]


@both
@pytest.mark.field(70)
@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_bytes_cut_inside_a_character_are_joined_in_text_and_in_arguments(
    world: World, style: Style, cut: int
) -> None:
    made = [*style.text("XX"), *style.call(1, "a", "look", '{"q":"XX"}')]
    raw = b"".join(made).replace(b"XX", GRIN.encode())
    places = [at for at in range(len(raw)) if raw.startswith(GRIN.encode(), at)]
    assert len(places) == 2
    first, second = (at + cut for at in places)
    async with talk(world, style, [raw[:first], raw[first:second], raw[second:], *style.end()]) as (c, _):
        assert (await c.send("go")).text == "done"
        assert of_kind(c, "tools_called")[0].text == GRIN
        assert world.ledger == [("look", GRIN)]


@both
@pytest.mark.field(71)
async def test_an_error_in_the_middle_of_a_stream_is_recorded_with_the_providers_code(
    world: World, style: Style
) -> None:
    broken = [*style.text("Let me"), *style.call(1, "a", "look", A), *style.error("tool_use_failed")]
    async with talk(world, style, broken) as (c, stub):
        turn = await c.send("go")
        assert (turn.state, turn.text, world.ledger) == ("error", "", [])
        (failed,) = of_kind(c, "turn_failed")
        assert (failed.code, failed.retryable) == ("tool_use_failed", True)
        assert "bad call" in failed.message
        assert "tools_called" not in kinds(c)
        assert (await c.retry()).text == "done"
        assert stub.asked[1].body["messages"] == stub.asked[0].body["messages"], "nothing of the failure is sent"
        assert [e.text for e in of_kind(c, "message_added")] == ["go", "done"]


MISPLACED: dict[str, tuple[Style, dict[str, Any], str, str]] = {
    "error event in OpenAI's form": (Anthropic, {"error": {"code": "c", "message": "m"}}, "error", "c"),
    "error without a name": (Anthropic, {"type": "error", "error": {"type": "c", "message": "m"}}, "", "c"),
    "error without a name or type": (Anthropic, {"error": {"code": "c", "message": "m"}}, "", "c"),
    "the object is the error": (OpenAI, {"object": "error", "message": "m", "type": "T", "code": "c"}, "", "c"),
    "the event is called error": (OpenAI, {"message": "m", "code": "c"}, "error", "c"),
    "error inside of a choice": (
        OpenAI,
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": "c"}}]},
        "",
        "c",
    ),
    "no more than a finish": (
        OpenAI,
        {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]},
        "",
        "error",
    ),
    "error as a text": (OpenAI, {"error": "m"}, "", ""),
}


@pytest.mark.field(71)
@pytest.mark.parametrize("shape", MISPLACED)
async def test_an_error_in_an_unusual_place_is_never_taken_for_an_answer(world: World, shape: str) -> None:
    style, body, name, code = MISPLACED[shape]
    async with talk(world, style, [*style.text("Let me"), sse(body, name)]) as (c, _):
        assert (await c.send("go")).state == "error"
        (failed,) = of_kind(c, "turn_failed")
        assert (failed.code, failed.error != "incomplete") == (code, True)
        assert [e.text for e in of_kind(c, "message_added")] == ["go"]


async def test_what_a_later_release_of_the_api_adds_is_passed_over(world: World) -> None:
    news = [
        sse({"type": "weather"}, "weather"),
        sse({"type": "content_block_start", "index": 7, "content_block": {"type": "mood"}}, "content_block_start"),
        sse({"type": "content_block_delta", "index": 7, "delta": {"type": "mood_delta"}}, "content_block_delta"),
        sse({"type": "content_block_stop", "index": 9}, "content_block_stop"),
    ]
    async with talk(world, Anthropic, [*news, *Anthropic.text("hello"), *Anthropic.end("stop")]) as (c, _):
        assert (await c.send("go")).text == "hello"


async def test_arguments_of_a_call_that_never_began_are_an_error(world: World) -> None:
    lost = [sse({"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": A}})]
    async with talk(world, Anthropic, [*lost, *Anthropic.end()]) as (c, _):
        assert (await c.send("go")).state == "error"
        assert "block 3" in of_kind(c, "turn_failed")[0].message
        assert world.ledger == []


ODD = 'e\u0301 \u212b\u200b "\\n\n\t\U0001f600 '


@both
@pytest.mark.field(82)
async def test_thinking_and_signature_go_back_byte_for_byte_after_a_restart(world: World, style: Style) -> None:
    """The engine ends when the result is durable and the provider has not answered to it (kill point K5)."""
    made = [*style.reasoning(ODD, "c2ln/+=="), *style.call(1, "a", "look", A), *style.end()]
    async with talk(world, style, made, Script([], end="hang")) as (c, _):
        await c.say("go")
        await reached(c, lambda s: bool(s.calls) and not s.open_calls)
    async with talk(world, style) as (c, stub):
        await c.rest()
        assert world.ledger == [("look", 1)], "what was done is not done again"
        said = stub.asked[0].body["messages"][1]
        if style is Anthropic:
            assert said["content"][0] == {"type": "thinking", "thinking": ODD, "signature": "c2ln/+=="}
        else:
            assert said["reasoning_content"] == ODD
        assert [content for _, content in sent_back(stub, style)] == ["saw 1"]
