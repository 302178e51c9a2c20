"""From a model's calls to what runs: nothing is guessed, repaired or lost, and the model is told what was wrong."""

import json
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request, results, rows, sent, valid
from turnlog.engine import Agent, tool
from turnlog.engine.models.base import CallMade, ModelReply
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.events import Limits
from turnlog.fsm.history import AssistantMessage, ToolMessage
from turnlog.store import verify

DEEP = '{"q":' * 5_000 + "1" + "}" * 5_000


@tool
async def ping() -> str:
    """Take no arguments."""
    return "pong"


async def outcome_of(world: World, *calls: tuple[str, Any], finish: str = "tool_calls") -> list[tuple[str, str]]:
    """The results of one round; what is asked of a person is refused."""
    agent = world.agent(call(*calls, finish=finish), say("ok"), say("later"), tools=[world.look, world.pay, ping])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("go")
        while c.session.requests:
            await c.decide(request(c), "denied")
            await c.rest()
        await c.send("and now?")
        assert c.session.state == "interrupt"
        for one in sent(agent):
            valid(one.messages)
            for part in (p for m in one.messages if isinstance(m, AssistantMessage) for p in m.calls):
                assert isinstance(json.loads(part.arguments), dict), "arguments of history are JSON objects"
        return results(c)


@pytest.mark.field(61)
@pytest.mark.parametrize("arguments", ["", "null", "{}", " ", "\n{}\n"])
async def test_a_call_without_arguments_runs_where_none_are_needed_and_is_told_what_misses_elsewhere(
    world: World, arguments: str
) -> None:
    ran, missing = await outcome_of(world, ("ping", arguments), ("pay", arguments))
    assert ran == ("ok", "pong")
    assert missing[0] == "invalid_arguments"
    assert "amount: Field required" in missing[1]
    assert "to: Field required" in missing[1]
    assert world.ledger == []


@pytest.mark.accept(74)
@pytest.mark.field(63)
@pytest.mark.parametrize(
    ("arguments", "finish"),
    [
        ('{"amount":5,"to":"A', "length"),
        ('{"amount":5,"to":"A', "tool_calls"),
        ('{"amount":5}', "length"),
        ('{"amount":5,"to":"A"}', "length"),
    ],
)
async def test_a_call_that_was_cut_off_never_runs_and_is_never_shown_for_approval(
    world: World, arguments: str, finish: str
) -> None:
    """The stated rule: of an answer that ended at the token limit no call runs, complete or not."""
    ((outcome, told),) = await outcome_of(world, ("pay", arguments), finish=finish)
    assert outcome == "invalid_arguments"
    assert "refused" in told
    assert world.ledger == []


@pytest.mark.field(13)
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_no_json_are_refused_as_arguments(world: World, number: str) -> None:
    ((outcome, told),) = await outcome_of(world, ("pay", f'{{"amount":{number},"to":"A"}}'))
    assert outcome == "invalid_arguments"
    assert told
    assert world.ledger == []


@pytest.mark.parametrize(
    "arguments",
    ["[]", '"look"', "5", "true", "[" * 100_000, DEEP, "{'q': 1}", '{"q":"a"} x'],
)
async def test_what_is_no_json_object_is_refused_and_named(world: World, arguments: str) -> None:
    ((outcome, told),) = await outcome_of(world, ("look", arguments))
    assert outcome == "invalid_arguments"
    assert len(told) < 2_000
    assert ("levels deep" in told) == (len(arguments) > 1_000)
    assert world.ledger == []


@pytest.mark.parametrize("arguments", ['{"q":1}', '{"q":null}', '{"q":"a","x":1}', '{"Q":"a"}', '{"q":["a"]}'])
async def test_arguments_that_do_not_fit_the_schema_are_refused_before_anybody_is_asked(
    world: World, arguments: str
) -> None:
    ((outcome, told),) = await outcome_of(world, ("look", arguments))
    assert outcome == "invalid_arguments"
    assert "q" in told.lower() or "x" in told
    assert world.ledger == []


@pytest.mark.field(67)
@pytest.mark.parametrize("ids", [("", "", ""), ("look", "look", "look"), ("a", "a", "b")])
async def test_call_ids_that_are_missing_or_doubled_do_not_mix_the_results(
    world: World, ids: tuple[str, str, str]
) -> None:
    made = [
        ModelReply("", tuple(CallMade("look", f'{{"q":"{turn}{n}"}}', one) for n, one in enumerate(ids)))
        for turn in range(2)
    ]
    agent = world.agent(made[0], say("one"), made[1], say("two"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("go")
        await c.send("again")
        expected = [f"saw {turn}{n}" for turn in range(2) for n in range(3)]
        assert [content for _, content in results(c)] == expected
        calls = [one for e in of_kind(c, "tools_called") for one in e.calls]
        assert len({one.id for one in calls}) == 6
        assert [one.provider_id for one in calls] == [*ids, *ids], "the log keeps what the provider said"
        messages = sent(agent)[-1].messages
        valid(messages)
        assert [m.content for m in messages if isinstance(m, ToolMessage)] == expected


@pytest.mark.field(68)
async def test_two_calls_of_one_tool_both_run_and_are_both_answered(world: World) -> None:
    found = await outcome_of(world, ("look", {"q": "X"}), ("look", {"q": "Y"}))
    assert found == [("ok", "saw X"), ("ok", "saw Y")]
    assert sorted(world.ledger) == [("look", "X"), ("look", "Y")]


@pytest.mark.field(65)
async def test_a_stream_that_ends_without_a_reply_is_no_answer_and_runs_nothing(world: World) -> None:
    class Cut(ScriptedModel):
        async def stream(self, call: Any) -> Any:
            async for delta in super().stream(call):
                if isinstance(delta, ModelReply) and call.attempt == 1:
                    return
                yield delta

    agent = Agent("@agent", Cut([call(("look", {"q": "a"})), say("The answer")]), tools=[world.look])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        assert (turn.state, world.ledger) == ("error", [])
        assert of_kind(c, "turn_failed")[0].error == "incomplete"
        await c.retry()
        turn = await c.retry()
        assert turn.text == "The answer"
        assert world.ledger == [("look", "a")]
        assert [e.text for e in of_kind(c, "message_added")] == ["go", "The answer"]


@pytest.mark.accept(54)
async def test_a_tool_that_exists_but_was_not_granted_to_the_agent_is_neither_offered_nor_run(world: World) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"}), ("ping", {})), say("ok"), tools=[world.look])
    async with world.engine(agent, tools=[world.pay, ping], auto_approve=["all"]) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert [t.name for t in sent(agent)[0].tools] == ["look"]
        assert [outcome for outcome, _ in results(c)] == ["unknown_tool", "unknown_tool"]
        assert "There are: look" in results(c)[0][1]
        assert world.ledger == []


@pytest.mark.field(113)
async def test_a_tool_that_does_not_exist_is_named_five_times_without_a_card_and_then_the_turn_ends(
    world: World,
) -> None:
    agent = Agent("@agent", ScriptedModel(lambda _: call(("add", {"a": 1}))), tools=[world.look, world.pay])
    async with world.engine(agent, limits=Limits(max_tool_calls=5)) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        told = results(c)
        assert told[:5] == [("unknown_tool", "There is no tool 'add'. There are: look, pay.")] * 5
        assert of_kind(c, "approval_requested") == []
        assert turn.state == "interrupt"
        assert of_kind(c, "turn_interrupted")[-1].reason == "limit"


@pytest.mark.field(116)
async def test_a_call_repeated_for_ever_is_ended_by_the_cap_and_the_log_says_why(world: World) -> None:
    agent = Agent("@agent", ScriptedModel(lambda _: call(("look", {"q": "1"}))), tools=[world.look])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        assert turn.state == "interrupt"
        assert len(world.ledger) <= Limits().max_tool_calls
        assert of_kind(c, "turn_interrupted")[-1].reason == "limit"
        assert "the limit of tool calls" in results(c)[-1][1]


@pytest.mark.field(80)
@pytest.mark.parametrize("name", ["browser.tabs.open", "", 'look(q="1")', "x" * 80, "поиск", "\ud800", "a\x00b"])
async def test_an_odd_name_gets_a_result_stays_in_the_log_and_is_made_harmless_for_later_turns(
    world: World, name: str
) -> None:
    ((outcome, told),) = await outcome_of(world, (name, {}))
    assert outcome == "unknown_tool"
    assert "There are: look, pay, ping" in told


HALF = "\ud83d"


@pytest.mark.field(11)
async def test_half_characters_from_tools_models_and_people_are_stored_and_later_turns_work(world: World) -> None:
    @tool
    async def torn(q: str) -> str:
        """Return what is no text."""
        return "ok \udc81 end"

    @tool
    async def torn_value(q: str) -> dict[str, Any]:
        """Return a value with such a text in it."""
        return {"key \udc81": ["\ud800"]}

    made = call(("torn", f'{{"q":"{HALF}"}}'), ("torn_value", '{"q":"\\ud83d"}'), text=HALF)
    agent = world.agent(made, ModelReply(HALF, reasoning=HALF, extras=HALF), say("fine"), tools=[torn, torn_value])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send(f"look {HALF}")
        assert (await c.send("and now?")).text == "fine"
        assert results(c)[0] == ("ok", "ok \ufffd end")
        outcome, content = results(c)[1]
        assert outcome == "ok"
        assert "\ufffd" in content
        assert [e.text for e in of_kind(c, "message_added")] == ["look \ufffd", "\ufffd", "and now?", "fine"]
        for row in rows(c):
            row.event.model_dump_json().encode()
        valid(sent(agent)[-1].messages)
    assert verify(world.path).ok


@pytest.mark.field(13)
async def test_a_tool_that_returns_what_json_cannot_say_gives_a_strict_json_text(world: World) -> None:
    @tool
    async def odd() -> dict[str, Any]:
        """Return numbers that are none."""
        return {"x": float("nan"), "y": float("inf"), "z": -float("inf"), "n": 10**40, "b": b"\xff\x00", "o": object}

    def refused(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    agent = world.agent(call(("odd", {})), say("ok"), tools=[odd])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        assert (await c.send("go")).text == "ok"
        ((outcome, content),) = results(c)
        assert outcome == "ok"
        value = json.loads(content, parse_constant=refused)
        assert (value["x"], value["y"], value["z"], value["n"]) == ("NaN", "Infinity", "-Infinity", 10**40)


async def test_a_value_that_refers_to_itself_is_told_as_a_run_whose_result_cannot_be_shown(world: World) -> None:
    @tool
    async def loop() -> list[Any]:
        """Return a list that holds itself."""
        circle: list[Any] = []
        circle.append(circle)
        return circle

    async with world.engine(world.agent(call(("loop", {})), say("ok"), tools=[loop])) as engine:
        c = await engine.create("s")
        assert (await c.send("go")).text == "ok"
        assert results(c)[0][0] == "ok"
        assert results(c)[0][1].startswith("(The tool ran. Its result, a list, cannot be shown")
