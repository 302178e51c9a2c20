"""What a model was sent can be rebuilt from the log alone, and is always what every provider would take."""

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request, rows, sent, valid
from turnlog.engine import Agent, Conversation, Engine, person
from turnlog.engine.context import rebuild
from turnlog.engine.models.base import CallMade, Delta, ModelCall, ModelReply
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.fsm.events import Channel, Limits
from turnlog.fsm.history import AssistantMessage, ToolMessage, UserMessage
from turnlog.fsm.session import replay


class Recorder(ScriptedModel):
    """A scripted model that keeps a copy of what it was sent, by how often it had answered before."""

    def __init__(self, script: Any, name: str = "recorder") -> None:
        super().__init__(script, name)
        self.sent: dict[int, ModelCall] = {}

    async def stream(self, call: ModelCall) -> AsyncIterator[Delta | ModelReply]:
        self.sent[call.index] = replace(call, messages=list(call.messages))
        async for delta in super().stream(call):
            yield delta


def faithful(engine: Engine, c: Conversation, models: dict[str, Recorder]) -> int:
    """Every completion that is in the log: what was sent is what the log says. The answer is how many there were."""
    said = rows(c)
    counts = dict.fromkeys(models, 0)
    session = replay(said)
    for row in said:
        if getattr(row.event, "request", None) is None:
            continue
        speaker = row.event.sender if row.event.kind == "message_added" else row.event.speaker  # type: ignore[union-attr]  # two kinds have requests
        was = models[speaker].sent[counts[speaker]]
        counts[speaker] += 1
        again = rebuild(engine.log, session, row)
        assert (again.system, again.tools) == (was.system, was.tools)
        assert list(again.messages) == was.messages, f"seq {row.seq}"
        valid(was.messages)
    return sum(counts.values())


WILD: list[tuple[str, Any]] = [
    ("look", {"q": "rates"}),
    ("pay", {"amount": 5, "to": "A"}),
    ("look", '{"q":"cut'),
    ("no.such tool", {"a": 1}),
    ("look", {"wrong": None}),
    ("", "null"),
]


def wild(seed: int, names: tuple[str, ...]) -> Any:
    """A script without end, drawn from a seed and the number of the step: texts, rounds, bad calls, failures."""

    def step(given: ModelCall) -> Step:
        chance = random.Random(f"{seed} {names[0]} {given.index}")
        kind = chance.random()
        if kind < 0.15 and given.attempt == 1:
            return fail()
        if kind < 0.55 and given.tools:
            calls: list[tuple[str, Any]] = [chance.choice(WILD) for _ in range(chance.randint(1, 3))]
            return call(*calls, text=chance.choice(["", "  ", "let me see"]))
        if kind < 0.6:
            return say("INTERRUPT")
        return say(f"{names[0]} says {given.index} " + "é\u0301\U0001f600" * chance.randint(0, 3))

    return step


async def wander(c: Conversation, chance: random.Random, steps: int) -> None:
    """A person who says, decides, edits, stops and retries at random."""
    for place in range(steps):
        session = await c.rest()
        if session.requests:
            asked = request(c)
            if chance.random() < 0.15:
                await c.stop()
            elif chance.random() < 0.3:
                await c.decide(asked, "approved", arguments={"amount": 77, "to": "B"})
            else:
                await c.decide(asked, chance.choice(["approved", "denied"]), reason=chance.choice(["", "because"]))
        elif session.state == "error":
            await c.retry()
        elif session.state == "terminated":
            return
        else:
            await c.say(f"person says {place}")
            if chance.random() < 0.3:
                await c.say("and more")
    await c.rest()


@pytest.mark.accept(67)
@pytest.mark.parametrize(
    ("window", "tokens"), [(1, None), (2, None), (3, None), (7, None), (None, None), (None, 25), (9, 60)]
)
@pytest.mark.parametrize("seed", range(3))
async def test_a_wild_conversation_was_sent_what_the_log_says(
    world: World, seed: int, window: int | None, tokens: int | None
) -> None:
    """Also after restarts, when the window is read from the log instead of kept up to date."""
    chance = random.Random(seed)
    model = Recorder(wild(seed, ("@agent",)))
    tools = [world.look, world.pay]
    agent = Agent("@agent", model, role="Be wild.", tools=tools, window=window, window_tokens=tokens)
    async with world.engine(agent) as engine:
        await engine.create("s", limits=Limits(max_tool_calls=6))
    count = 0
    for _ in range(4):
        async with world.engine(agent) as engine:
            c = await engine.open("s")
            await wander(c, chance, 12)
            count = faithful(engine, c, {"@agent": model})
    assert count > 15


@pytest.mark.accept(67)
@pytest.mark.parametrize(("window", "weight"), [(2, None), (5, None), (None, None), (None, 30)])
@pytest.mark.parametrize("seed", range(2))
async def test_two_agents_and_a_group_were_sent_what_the_log_says(
    world: World, seed: int, window: int | None, weight: int | None
) -> None:
    chance = random.Random(seed)
    models = {name: Recorder(wild(seed, (name,)), name) for name in ("left", "right", "third")}
    tools = [world.look, world.pay]
    agents = [
        Agent(n, m, role=f"You are {n}.", tools=tools, window=window, window_tokens=weight) for n, m in models.items()
    ]
    group = Channel(name="room", members=tuple(models), max_rounds=8)
    for entry in ("left", "room"):
        world.path = world.path.with_name(f"{entry}.db")
        for model in models.values():
            model.sent.clear()
        async with world.engine(person(), *agents, channels=[group]) as engine:
            c = await engine.create("s", entry=entry, limits=Limits(max_rounds=8))
            for _ in range(3):
                await wander(c, chance, 8)
                if c.session.state == "interrupt" and entry == "left":
                    await c.send("you two talk", sender="left", recipient="right")
            assert faithful(engine, c, models) > 5


def exchange_script(size: int) -> list[Step]:
    """Turns of one, two and three calls, and plain ones."""
    script: list[Step] = []
    for turn in range(size):
        count = turn % 4
        if count:
            script.append(call(*[("look", {"q": f"{turn}.{n}"}) for n in range(count)]))
        script.append(say(f"answer {turn}"))
    return script


@pytest.mark.field(74)
async def test_no_window_splits_a_call_from_its_result(world: World) -> None:
    turns = 12
    async with world.engine(world.agent(*exchange_script(turns))) as engine:
        c = await engine.create("s")
        for turn in range(turns):
            await c.send(f"question {turn}")
    for window in range(1, 41):
        model = Recorder(lambda given: say(f"more {given.index}"))
        agent = Agent("@agent", model, tools=[world.look, world.pay], window=window)
        async with world.engine(agent) as engine:
            c = await engine.open("s")
            await c.send(f"window {window}")
            (got,) = model.sent.values()
            messages = list(got.messages)
            valid(messages)
            assert 1 <= len(messages) <= window
            assert messages[-1] == UserMessage(f"window {window}")


@pytest.mark.field(74)
@pytest.mark.parametrize("window", [1, 2, 3])
async def test_a_round_larger_than_the_window_is_still_seen_whole(world: World, window: int) -> None:
    agent = world.agent(call(*[("look", {"q": q}) for q in "abc"]), say("done"), window=window)
    async with world.engine(agent) as engine:
        await (await engine.create("s")).send("look")
    last = sent(agent)[-1].messages
    valid(last)
    assert last[0] == UserMessage("look"), "and so is the question"
    assert [m.content for m in last if isinstance(m, ToolMessage)] == ["saw a", "saw b", "saw c"]


@pytest.mark.field(82)
async def test_reasoning_and_signatures_come_back_byte_for_byte_after_a_restart(world: World) -> None:
    reasoning = "thi\u0301nk \u212b \x00 \U0001f600 \n\t end"
    extras = '{"signature":"EqQB\\u0000+/=","z":[1.0,1,1e3],"a":"\u212b\u0301"}'
    made = ModelReply(
        "let me look",
        (CallMade("look", '{"q": "a"}', "id 1"),),
        reasoning=reasoning,
        extras=extras,
        finish="tool_calls",
    )
    script: list[Step] = [made, attempts(fail(), say("done"))]
    first = world.agent(*script)
    async with world.engine(first) as engine:
        c = await engine.create("s")
        assert (await c.send("look")).state == "error"
    again = world.agent(*script)
    async with world.engine(again) as engine:
        c = await engine.open("s")
        await c.retry()
    (call_,) = sent(again)
    said = call_.messages[1]
    assert isinstance(said, AssistantMessage)
    assert (said.reasoning, said.extras, said.calls[0].arguments) == (reasoning, extras, '{"q": "a"}')
    assert list(call_.messages) == list(sent(first)[1].messages)


async def test_what_was_edited_is_what_the_model_reads_of_its_own_call_in_every_later_request(world: World) -> None:
    agent = world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"), say("bye"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        await c.decide(request(c), "approved", arguments={"amount": 7, "to": "B"})
        await c.rest()
        await c.send("thanks")
        first, second = sent(agent)[1].messages, sent(agent)[2].messages
        assert list(second)[: len(first)] == list(first)
        assert of_kind(c, "approval_resolved")[0].arguments == {"amount": 7, "to": "B"}


async def test_a_window_stays_a_window_as_the_history_grows_whatever_the_others_see(world: World) -> None:
    sizes: dict[str, list[int]] = {"short": [], "long": []}

    def speak(name: str) -> Any:
        def step(given: ModelCall) -> Step:
            sizes[name].append(len(given.messages))
            return say(f"{name} {given.index}")

        return step

    agents = [
        Agent(name, ScriptedModel(speak(name), name), window=window) for name, window in (("short", 4), ("long", 40))
    ]
    async with world.engine(*agents, limits=Limits(max_rounds=60)) as engine:
        await (await engine.create("s")).send("begin")
    assert (max(sizes["short"]), sizes["short"][-1]) == (4, 4)
    assert (max(sizes["long"]), sizes["long"][-1]) == (40, 40)
