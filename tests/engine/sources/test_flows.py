"""Flows: data that becomes one tool, and no way round an approval."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request, results, sent
from turnlog.engine import Agent, Flow, Tool, ToolContext, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.errors import Misuse, OutcomeUnknown
from turnlog.fsm.events import Citation
from turnlog.fsm.states import State

CITY = {"city": {"type": "string", "description": "Where."}}


def flow(*steps: dict[str, Any], variables: Any = CITY, model: Any = None, **more: Any) -> Flow:
    return Flow(
        {"id": "trip", "description": "Plan a trip.", "variables": variables, "steps": steps, **more}, model=model
    )


@tool
async def weather(city: str, context: ToolContext) -> dict[str, Any]:
    """The weather."""
    context.cite(Citation(id="w", title=f"Weather of {city}"))
    return {"city": city, "days": [{"sky": "clear", "max": 21}]}


@tool
def note(number: int, text: str) -> str:
    """Note something down."""
    return f"{number}: {text}"


def planner(world: World, *tools: Tool | str, given: Any = None) -> Agent:
    return world.agent(
        call(("trip", {"city": "Lima"} if given is None else given)), say("done"), tools=tools or ["trip"]
    )


async def test_steps_run_in_order_and_see_what_came_before(world: World) -> None:
    model = ScriptedModel([say("Take a hat.")])
    steps = (
        {"tool": "weather", "arguments": {"city": "{{city}}"}, "into": "found"},
        {"instruction": "What for {{found.days[0].sky}} in {{ city }}?", "into": "advice"},
        {"tool": "note", "arguments": {"number": "{{found.days[0].max}}", "text": "{{city}}: {{advice}}"}, "into": "n"},
        {"set": {"plan": "{{n}}", "raw": ["{{found.days}}", 1]}, "into": "all"},
    )
    async with world.engine(planner(world), tools=[weather, note], sources=[flow(*steps, model=model)]) as engine:
        assert engine.sources.problems == ()
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "done"
        (outcome, content) = results(c)[0]
        assert outcome == "ok"
        assert json.loads(content) == {"plan": "21: Lima: Take a hat.", "raw": [[{"sky": "clear", "max": 21}], 1]}
        assert model.calls[0].messages[0].text == "What for clear in Lima?"  # type: ignore[union-attr]  # a question
        # What the tools of the steps bring is the flow's, and so the answer's.
        (returned,) = of_kind(c, "tool_returned")
        assert [one.id for one in returned.citations] == ["w"]
        assert returned.notes == ("trip: weather", "trip: scripted, 10 + 5 tokens", "trip: note")


async def test_a_flow_with_a_step_that_needs_a_word_needs_one_and_says_what_it_would_do(world: World) -> None:
    steps = (
        {"tool": "look", "arguments": {"q": "{{city}}"}},
        {"tool": "pay", "arguments": {"amount": 5, "to": "{{city}}"}},
    )
    async with world.engine(planner(world), tools=[world.look, world.pay], sources=[flow(*steps)]) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).state is State.AWAITING_APPROVAL
        assert request(c).tool == "trip"
        assert request(c).description.splitlines() == [
            "Plan a trip.", "Runs these steps:", '1. look {"q":"{{city}}"}', '2. pay {"amount":5,"to":"{{city}}"}',
        ]  # fmt: skip
        assert (request(c).risk, world.ledger) == ("pay: spends money", [])
        await c.decide(request(c), "denied", by="ann")
        await c.rest()
        assert (results(c)[0][0], world.ledger) == ("denied", [])


async def test_a_flow_of_free_tools_runs_unasked_unless_the_application_wants_a_word(world: World) -> None:
    steps = [{"tool": "look", "arguments": {"q": "{{city}}"}}]
    data = {"id": "trip", "description": "d", "variables": CITY, "steps": steps}
    for asked in (False, True):
        async with world.engine(
            planner(world), tools=[world.look], sources=[Flow(data, needs_approval=asked)]
        ) as engine:
            c = await engine.create(owner="ann")
            await c.send("go")
            assert bool(c.session.requests) is asked
    assert world.ledger == [("look", "Lima")]


async def test_a_step_that_fails_ends_the_flow_and_is_named(world: World) -> None:
    @tool
    async def odd(city: str) -> str:
        """Odd."""
        raise RuntimeError(f"no way to {city}")

    steps = ({"tool": "look", "arguments": {"q": "a"}}, {"tool": "odd", "arguments": {"city": "{{city}}"}},
             {"tool": "look", "arguments": {"q": "b"}})  # fmt: skip
    async with world.engine(planner(world), tools=[world.look, odd], sources=[flow(*steps)]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        outcome, why = results(c)[0]
        assert outcome == "error"
        assert 'step 2 (odd {"city":"{{city}}"}) failed, those before it ran: RuntimeError: no way to Lima' in why
        assert world.ledger == [("look", "a")]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"q": "{{seen.deep}}"}, "{{seen.deep}} leads nowhere: there is no 'deep' in saw a"),
        ({"q": ["{{city}}"]}, "the arguments of 'look' do not fit: q: Input should be a valid string"),
        ({"other": "{{city}}"}, "the arguments of 'look' do not fit: q: Field required"),
    ],
)
async def test_arguments_of_a_step_that_do_not_fit_run_nothing(world: World, arguments: Any, why: str) -> None:
    steps = ({"tool": "look", "arguments": {"q": "a"}, "into": "seen"}, {"tool": "look", "arguments": arguments})
    async with world.engine(planner(world), tools=[world.look], sources=[flow(*steps)]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert why in results(c)[0][1]
        assert world.ledger == [("look", "a")]


async def test_a_step_whose_outcome_is_unknown_makes_that_of_the_flow_unknown(world: World) -> None:
    @tool
    def ship(city: str) -> str:
        """Ship."""
        raise OutcomeUnknown("the line was cut")

    async with world.engine(
        planner(world), tools=[ship], sources=[flow({"tool": "ship", "arguments": {"city": "{{city}}"}})]
    ) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert results(c) == [("outcome_unknown", "step 1 (ship) of 1: the line was cut")]


async def test_each_step_has_an_idempotency_key_of_its_own(world: World) -> None:
    keys: list[str] = []

    @tool
    async def put(context: ToolContext) -> str:
        """Put."""
        keys.append(context.idempotency_key)
        return "put"

    async with world.engine(planner(world), tools=[put], sources=[flow({"tool": "put"}, {"tool": "put"})]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        started = of_kind(c, "tool_started")[0].key
        assert keys == [f"{started}:1", f"{started}:2"]


async def test_values_for_the_variables_are_checked_like_any_arguments(world: World) -> None:
    variables = {**CITY, "days": {"type": "integer", "default": 2}, "how": {"enum": ["bus", "train"], "default": "bus"}}
    shown = {"set": "{{city}} {{days}} {{how}}", "into": "x"}
    for given, outcome in (
        ({"city": "Lima"}, ("ok", "Lima 2 bus")),
        ({"city": "Lima", "days": 3, "how": "train"}, ("ok", "Lima 3 train")),
        ({"city": "Lima", "days": "3"}, ("invalid_arguments", "days: Input should be a valid integer")),
        ({"city": "Lima", "how": "car"}, ("invalid_arguments", "how: Input should be 'bus' or 'train'")),
        ({}, ("invalid_arguments", "city: Field required")),
    ):
        async with world.engine(planner(world, given=given), sources=[flow(shown, variables=variables)]) as engine:
            c = await engine.create(owner="ann")
            await c.send("go")
            assert results(c)[0][0] == outcome[0]
            assert outcome[1] in results(c)[0][1]


# Direct output ------------------------------------------------------------------------------------


async def test_the_result_of_a_direct_flow_is_the_reply_and_no_model_is_asked_again(world: World) -> None:
    steps = (
        {"tool": "weather", "arguments": {"city": "{{city}}"}, "into": "w"},
        {"set": "{{w.days[0].sky}}", "into": "x"},
    )
    agent = planner(world)
    async with world.engine(agent, tools=[weather], sources=[flow(*steps, direct=True)]) as engine:
        c = await engine.create("s", owner="ann")
        turn = await c.send("go")
        assert (turn.state, turn.text, len(sent(agent))) == (State.INTERRUPT, "clear", 1)
        answer = of_kind(c, "message_added")[-1]
        assert (answer.sender, answer.direct, [one.id for one in answer.citations]) == (
            "@agent", of_kind(c, "tool_returned")[0].call_id, ["w"],
        )  # fmt: skip
        # The next turn goes on with the script's next step, and sees the reply.
        assert (await c.send("and then?")).text == "done"
        assert [getattr(one, "text", "") for one in sent(agent)[1].messages][-2:] == ["clear", "and then?"]


# Data that is no flow -----------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no steps": ({"steps": []}, "steps: Tuple should have at least 1 item"),
    "two in one": ({"steps": [{"tool": "look", "instruction": "x"}]}, "a step needs one of: tool, instruction, set"),
    "unknown key": ({"steps": [{"tool": "look", "loop": 3}]}, "steps.0.loop: Extra inputs are not permitted"),
    "later": ({"steps": [{"tool": "look", "arguments": {"q": "{{x}}"}, "into": "x"}]}, "there is no 'x' yet: city"),
    "result": ({"steps": [{"tool": "look"}], "result": "{{y}}"}, "the result of flow 'trip' uses {{y}}"),
    "no model": ({"steps": [{"instruction": "x"}]}, r"step 1 of flow 'trip' asks a model: pass Flow\(..., model=...\)"),
    "type": ({"steps": [{"tool": "look"}], "variables": {"x": {"type": "date"}}}, "the type 'date' is none of"),
    "id": ({"steps": [{"tool": "look"}], "id": "my flow"}, "the flow cannot be named 'my flow'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_that_is_no_flow_is_refused_with_its_place(name: str) -> None:
    changed, why = WRONG[name]
    with pytest.raises(Misuse, match=why):
        Flow({"id": "trip", "description": "d", "variables": CITY, **changed})


def test_a_flow_may_be_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trip.json"
    path.write_text(json.dumps({"id": "trip", "description": "d", "steps": [{"set": 1, "into": "x"}]}))
    assert Flow(path).name == "trip"
    with pytest.raises(Misuse, match="cannot be read: No such file"):
        Flow(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({"tool": "nothing"}, "it calls 'nothing', which is not there"),
        ({"tool": "ask_user"}, "which asks a person or is a flow itself"),
        ({"tool": "other"}, "which"),
    ],
)
async def test_a_flow_with_a_step_that_cannot_be_is_named_and_left_out(world: World, step: Any, why: str) -> None:
    from turnlog.engine.tools import ask_user

    other = Flow({"id": "other", "description": "d", "steps": [{"set": 1, "into": "x"}]})
    async with world.engine(world.agent(say("done")), tools=[ask_user], sources=[other, flow(step)]) as engine:
        assert [problem.source for problem in engine.sources.problems] == ["trip"]
        assert why in engine.sources.problems[0].why
