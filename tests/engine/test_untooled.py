"""Models without native tool calls work as agents: asked in words, read with care, tried again with a reason."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from tests.engine.support import World, kinds, of_kind, request, results, rows
from turnlog.engine import Agent, Notice, Piece, Tool, ToolContext, tool
from turnlog.engine.context import rebuild
from turnlog.engine.models.base import Delta, ModelCall, ModelError, ModelReply, ReasoningDelta, TextDelta
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.engine.models.untooled import Untooled
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Citation, Limits, Usage
from turnlog.fsm.history import AssistantMessage, UserMessage

LOOK = '{"name": "look", "arguments": {"q": "1"}}'
PAY = '{"name": "pay", "arguments": {"amount": 5, "to": "A"}}'
WORDS = '{"name": "answer", "arguments": {"text": "It is 7."}}'


class Weak:
    """An agent whose scripted model answers in texts only."""

    def __init__(self, world: World, *script: Step, tools: Sequence[Tool] | None = None, **more: Any) -> None:
        self.inner = ScriptedModel(script, stream=more.pop("stream", True))
        self.model = Untooled(self.inner, **more)
        self.agent = Agent(
            "@agent", self.model, role="Be brief.", tools=(world.look, world.pay) if tools is None else tools
        )

    def prompt(self, place: int) -> list[str]:
        """The texts of what the model was sent, the newest last."""
        asked = self.inner.calls[place]
        assert asked.tools == (), "a model without tools was sent some"
        return [asked.system, *(m.text for m in asked.messages if isinstance(m, UserMessage | AssistantMessage))]


def pieces(heard: list[Notice]) -> str:
    return "".join(one.text for one in heard if isinstance(one, Piece) and one.kind == "text")


@pytest.mark.accept(34)
async def test_a_model_that_only_writes_text_calls_a_tool_and_answers_from_its_result(world: World) -> None:
    weak = Weak(world, say(LOOK), say(WORDS))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        turn = await c.send("What is 1?")
        assert (turn.text, world.ledger) == ("It is 7.", [("look", "1")])
        assert results(c) == [("ok", "saw 1")]
    first, second = weak.prompt(0), weak.prompt(1)
    assert "Be brief." in first[0]
    assert "look(q: string)" in first[0]
    assert first[-1] == "What is 1?"
    assert second[-3:] == ["What is 1?", LOOK, "Result of look: saw 1"]
    assert "Be brief." in second[0]


@pytest.mark.accept(34)
async def test_the_result_of_one_tool_becomes_the_argument_of_the_next(world: World) -> None:
    def chained(asked: ModelCall) -> ModelReply:
        newest = asked.messages[-1]
        assert isinstance(newest, UserMessage)
        if not newest.text.startswith("Result of look: "):
            return say(LOOK)
        found = newest.text.removeprefix("Result of look: ")
        if found == "saw 1":
            return say(json.dumps({"name": "look", "arguments": {"q": found}}))
        return say(f"In the end: {found}")

    agent = Agent("@agent", Untooled(ScriptedModel(chained)), tools=[world.look])
    async with world.engine(agent) as engine:
        turn = await (await engine.create("s")).send("look")
    assert world.ledger == [("look", "1"), ("look", "saw 1")]
    assert turn.text == "In the end: saw saw 1"


@pytest.mark.accept(34)
async def test_a_bad_call_is_tried_again_with_the_reason_in_the_prompt_and_every_try_is_counted(world: World) -> None:
    steps = attempts(say('{"name": "look", "arguments": {"q": 1}}'), say('{"name": "look", "argum'), say(LOOK))
    weak = Weak(world, steps, say("done"))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert world.ledger == [("look", "1")]
        called = of_kind(c, "tools_called")[0]
        assert called.usage == Usage(input_tokens=30, output_tokens=15, completions=3)
        kept = json.loads(called.extras)["untooled"]
        assert [one["said"] for one in kept] == ['{"name": "look", "arguments": {"q": 1}}', '{"name": "look", "argum']
    assert "q: Input should be a valid string" in weak.prompt(1)[-1]
    assert weak.prompt(1)[-2] == '{"name": "look", "arguments": {"q": 1}}'
    assert "no complete JSON object" in weak.prompt(2)[-1]
    assert "valid string" in weak.prompt(2)[-3], "the first reason is still there"
    assert weak.prompt(3)[-3:] == ["go", LOOK, "Result of look: saw 1"], "bad tries are no part of the history"


@pytest.mark.accept(34)
@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_tries_end_at_the_cap_with_an_error_that_names_the_reason_and_the_session_lives(
    world: World, retries: int
) -> None:
    bad = say('{"name": "pay", "arguments": {"amount": "much"}}')
    weak = Weak(world, bad, retries=retries)
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        assert (turn.state, len(weak.inner.calls), world.ledger) == ("error", retries + 1, [])
        failed = of_kind(c, "turn_failed")[0]
        assert failed.error == "unusable_call"
        assert "the arguments of pay do not fit: amount" in failed.message
        assert failed.usage is not None
        assert failed.usage.completions == c.session.usage.completions == retries + 1
        assert "approval_requested" not in kinds(c)
        weak.inner.script = [say("I cannot.")]
        assert (await c.send("again")).text == "I cannot."


@pytest.mark.field(111)
@pytest.mark.accept(34)
async def test_a_gated_tool_still_asks_and_runs_only_after_a_word(world: World) -> None:
    weak = Weak(world, say(f"```json\n{PAY}\n```"), say("paid"))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s", owner="ann")
        turn = await c.send("pay")
        assert (turn.state, world.ledger) == ("awaiting_approval", [])
        assert turn.requests[0].arguments == {"amount": 5, "to": "A"}
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.accept(34)
async def test_a_refusal_is_told_to_the_next_pick(world: World) -> None:
    weak = Weak(world, say(PAY), say("understood"))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("pay")
        await c.decide(request(c), "denied", by="ann", reason="too much")
        await c.rest()
    assert world.ledger == []
    assert weak.prompt(1)[-1].startswith("Result of pay (denied): ")
    assert "too much" in weak.prompt(1)[-1]


@pytest.mark.field(111)
@pytest.mark.parametrize("text", [LOOK, LOOK.replace("arguments", "parameters"), f"```\n{LOOK}\n```", f"call: {LOOK}"])
async def test_a_call_written_as_text_in_any_of_the_known_ways_runs_once(world: World, text: str) -> None:
    weak = Weak(world, say(text), say("done"))
    async with world.engine(weak.agent) as engine:
        await (await engine.create("s")).send("go")
    assert world.ledger == [("look", "1")]


@pytest.mark.field(111)
@pytest.mark.parametrize("text", [f"To look, I would write {LOOK}", f"Use this:\n```json\n{PAY}\n```\nIt pays A."])
async def test_an_explanation_of_a_call_is_shown_to_the_user_and_not_run(world: World, text: str) -> None:
    weak = Weak(world, say(text))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        turn = await c.send("How do you call a tool?")
        assert (turn.text, turn.state, world.ledger) == (text, "interrupt", [])
        assert "approval_requested" not in kinds(c)
    assert len(weak.inner.calls) == 1


async def test_a_tool_that_was_not_granted_never_runs_whatever_name_is_said(world: World) -> None:
    weak = Weak(world, attempts(say(PAY), say(WORDS)), tools=[world.look])
    async with world.engine(weak.agent, tools=[world.pay]) as engine:
        c = await engine.create("s")
        assert (await c.send("pay")).text == "It is 7."
        assert world.ledger == []
        assert "approval_requested" not in kinds(c)
    assert "there is no tool 'pay'; there are: look, answer" in weak.prompt(1)[-1]


async def test_an_agent_without_tools_is_asked_plainly_and_a_call_that_it_insists_on_is_a_text(world: World) -> None:
    weak = Weak(world, say("hello"), say(PAY), tools=())
    async with world.engine(weak.agent, tools=[world.pay]) as engine:
        c = await engine.create("s")
        assert (await c.send("hi")).text == "hello"
        assert weak.prompt(0) == ["Be brief.", "hi"]
        assert (await c.send("pay")).text == PAY
        assert world.ledger == []
    assert len(weak.inner.calls) == 1 + 3


async def test_an_answer_that_was_cut_off_is_never_a_call_and_the_model_is_told(world: World) -> None:
    weak = Weak(world, attempts(say(PAY, finish="length"), say(LOOK)), say("It is so lo", finish="length"))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        assert world.ledger == [("look", "1")]
        assert turn.text == "It is so lo", "words that were cut are words"
    assert "cut off at the token limit" in weak.prompt(1)[-1]


@pytest.mark.parametrize("text", [f"{LOOK}\n{PAY}", f"[{LOOK}, {LOOK}]", f"{LOOK}{LOOK}"])
async def test_of_two_calls_in_one_answer_none_runs(world: World, text: str) -> None:
    weak = Weak(world, attempts(say(text), say(WORDS)))
    async with world.engine(weak.agent) as engine:
        await (await engine.create("s")).send("go")
    assert world.ledger == []
    assert "make one call at a time" in weak.prompt(1)[-1]


@pytest.mark.parametrize("text", ["42", '"quoted"', "[1, 2]", "null", '{"name": "Ann", "age": 7}'])
async def test_bare_numbers_quoted_texts_and_other_json_are_answers_at_the_first_try(world: World, text: str) -> None:
    weak = Weak(world, say(text))
    async with world.engine(weak.agent) as engine:
        assert (await (await engine.create("s")).send("go")).text == text
    assert len(weak.inner.calls) == 1


async def test_the_cap_on_calls_of_a_turn_holds_and_the_last_prompt_offers_no_tool(world: World) -> None:
    weak = Weak(world, say(LOOK), say(LOOK.replace("1", "2")), say("enough"))
    async with world.engine(weak.agent, limits=Limits(max_tool_calls=2)) as engine:
        turn = await (await engine.create("s")).send("go")
    assert (turn.text, len(world.ledger)) == ("enough", 2)
    assert weak.prompt(2)[0] == "Be brief."


@pytest.mark.parametrize("text", ["A plain answer {1}.", WORDS])
async def test_words_are_streamed_as_they_come_and_a_call_is_never_shown_as_text(world: World, text: str) -> None:
    weak = Weak(world, say(LOOK), say(text))
    heard: list[Notice] = []
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        c.subscribe(heard.append)
        turn = await c.send("go")
        said = of_kind(c, "message_added")[-1]
    shown = [one for one in heard if isinstance(one, Piece) and one.kind == "text"]
    assert pieces(heard) == turn.text
    assert len(shown) > 1
    assert {one.message_id for one in shown} == {said.message_id}


async def test_nothing_of_a_bad_try_is_shown(world: World) -> None:
    weak = Weak(world, attempts(say('{"name": "fly", "arguments": {}}'), say("I cannot fly.")))
    heard: list[Notice] = []
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        c.subscribe(heard.append)
        await c.send("fly")
    assert pieces(heard) == "I cannot fly."


async def test_a_failure_of_the_wrapped_model_is_a_failure_and_can_be_retried(world: World) -> None:
    weak = Weak(world, attempts(fail("connection"), say(LOOK)), say("done"))
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        assert (await c.send("go")).state == "error"
        assert len(weak.inner.calls) == 1
        await c.retry()
        await c.rest()
        assert world.ledger == [("look", "1")]


async def test_the_prompt_can_be_built_again_from_the_log_alone(world: World) -> None:
    @tool(name="look", examples=[("Find the red one.", {"q": "red"})])
    async def look(q: str) -> str:
        """Look something up."""
        return q

    weak = Weak(world, say(LOOK), say("done"), tools=[look])
    async with world.engine(weak.agent) as engine:
        c = await engine.create("s")
        await c.send("go")
        again = ScriptedModel([say("done")])
        row = next(row for row in reversed(rows(c)) if row.event.kind == "message_added")
        await anext(Untooled(again).stream(rebuild(engine.log, c.session, row)))
    first, second = weak.inner.calls[-1], again.calls[0]
    assert (first.system, first.messages) == (second.system, second.messages)
    assert "Find the red one." in weak.prompt(0)


def test_an_example_that_does_not_fit_its_tool_is_refused() -> None:
    with pytest.raises(Misuse, match=r"'How\?' of tool 'look' does not fit: q: "):

        @tool(name="look", examples=[("How?", {"q": 1})])
        async def look(q: str) -> str:
            """Look."""
            return q


async def test_a_schema_is_sent_only_where_it_was_asked_for_and_keeps_other_settings(world: World) -> None:
    given = {"max_tokens": 9, "extra_body": {"seed": 1}}
    asked = ModelCall("", [UserMessage("hi")], (world.look.definition,), settings=given)
    sent_settings = {}
    for constrain in (None, "json_object", "json_schema", lambda schema: {"grammar": len(schema["anyOf"])}):
        inner = ScriptedModel([say("hi")])
        async for _ in Untooled(inner, constrain=constrain).stream(asked):
            pass
        sent_settings[str(constrain)[:11]] = inner.calls[0].settings
    free, json_object, json_schema, own = sent_settings.values()
    assert free == given
    form = json_object["extra_body"]["response_format"]
    assert form["type"] == "json_object"
    assert [one["properties"]["name"]["const"] for one in form["schema"]["anyOf"]] == ["look", "answer"]
    assert json_object["extra_body"]["seed"] == json_schema["extra_body"]["seed"] == 1
    assert json_schema["extra_body"]["response_format"]["json_schema"]["schema"] == form["schema"]
    assert own == given | {"grammar": 2}
    assert given == {"max_tokens": 9, "extra_body": {"seed": 1}}


def test_bad_options_are_refused_with_what_to_give() -> None:
    with pytest.raises(Misuse, match="give 0 or more"):
        Untooled(ScriptedModel([]), retries=-1)
    with pytest.raises(Misuse, match="'json_object', 'json_schema'"):
        Untooled(ScriptedModel([]), constrain="xml")  # type: ignore[arg-type]  # that is the point


class Odd:
    """A model that does whatever it was given."""

    name = "odd"

    def __init__(self, *deltas: Delta | ModelReply) -> None:
        self.deltas = deltas

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        for one in self.deltas:
            yield one


async def whole(model: Untooled, *tools: Tool) -> tuple[list[Delta], ModelReply]:
    asked = ModelCall("", [UserMessage("hi")], tuple(one.definition for one in tools))
    found = [one async for one in model.stream(asked)]
    assert isinstance(found[-1], ModelReply)
    return [one for one in found[:-1] if not isinstance(one, ModelReply)], found[-1]


async def test_thinking_that_comes_as_text_is_reasoning_and_no_answer(world: World) -> None:
    deltas, reply = await whole(Untooled(Odd(ReasoningDelta("a"), ModelReply("<think>b</think>hi", reasoning="a"))))
    assert (reply.text, reply.reasoning) == ("hi", "ab")
    assert deltas == [ReasoningDelta("a"), ReasoningDelta("b"), TextDelta("hi")]


async def test_a_call_that_the_server_made_of_the_text_is_read_like_the_text(world: World) -> None:
    native = call(("look", {"q": "1"}))
    _, reply = await whole(Untooled(Odd(native)), world.look)
    assert [(one.name, one.arguments) for one in reply.calls] == [("look", '{"q": "1"}')]
    with pytest.raises(ModelError, match="nothing ran"):
        await whole(Untooled(Odd(call(("look", {"q": "1"}), ("look", {"q": "2"})))), world.look)


async def test_what_was_shown_is_an_answer_even_if_the_model_then_says_otherwise(world: World) -> None:
    _, reply = await whole(Untooled(Odd(TextDelta("Hello"), ModelReply(LOOK))), world.look)
    assert (reply.text, reply.calls) == ("Hello", ())


async def test_a_stream_without_a_reply_is_a_failure(world: World) -> None:
    with pytest.raises(ModelError, match="without a reply"):
        await whole(Untooled(Odd(TextDelta("Hel"))))


@pytest.mark.accept(19)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("native", [True, False])
async def test_citations_come_once_with_the_reply_streaming_or_not_native_or_simulated(
    world: World, stream: bool, native: bool
) -> None:
    @tool(name="look")
    async def look(q: str, context: ToolContext) -> str:
        """Look something up."""
        context.cite(Citation(id=q, title=f"about {q}"))
        return f"saw {q}"

    script = [call(("look", {"q": "1"})) if native else say(LOOK), say("It is 7.")]
    inner = ScriptedModel(script, stream=stream)
    agent = Agent("@agent", inner if native else Untooled(inner), tools=[look])
    heard: list[Notice] = []
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        c.subscribe(heard.append)
        await c.send("go")
        said = [event for event in of_kind(c, "message_added") if event.citations]
    assert [(one.text, [cited.id for cited in one.citations]) for one in said] == [("It is 7.", ["1"])]
    shown = {one.message_id for one in heard if isinstance(one, Piece) and one.kind == "text"}
    assert shown == ({said[0].message_id} if stream or not native else set())
