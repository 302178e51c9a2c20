"""Groups on a real log: the director is obeyed, garbage is not, and nobody is asked twice after a restart."""

import asyncio
import itertools
import re
from collections.abc import Callable
from random import Random

import pytest

from tests.engine.support import World, kinds, of_kind, reached
from tests.fakes import Seeds
from turnlog.engine import Agent, Engine, person
from turnlog.engine.models.base import ModelCall, ModelReply
from turnlog.engine.models.scripted import USAGE, ScriptedModel, Step, fail, say
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Channel, Limits, Usage
from turnlog.fsm.history import UserMessage

NAMES = ("Senior_Planner", "@coder", "critic", "Ada Lovelace")
ROOM = Channel(name="room", members=NAMES, director="d", max_rounds=6)
DECORATIONS = ("{}", "**{}**", "Role: {}", "{}.", "\x1b[32m{}\x1b[0m", "{}\nThe others have said enough.", "`{}`")
GARBAGE = ("", "TERMINATE", "USER", "stranger", "nobody", "---", "Senior_Planner or critic", "@coder, critic")


def allowed(call: ModelCall) -> list[str]:
    """Whom the director may choose, as it was told."""
    last = call.messages[-1]
    assert isinstance(last, UserMessage)
    names = re.search(r"Who of (.*) speaks next", last.text)
    assert names is not None
    return names[1].split(", ")


def director(step: Callable[[ModelCall], str]) -> ScriptedModel:
    """A director that answers with what `step` makes of its call, and keeps what it was asked."""
    model = ScriptedModel(lambda call: say(step(call)), "director")
    model.keep_calls = True
    return model


def members() -> list[Agent]:
    """A person, four members that never end it, and one that is no member."""
    return [
        person(),
        *(Agent(name, ScriptedModel(lambda call: say(f"word {call.index}"), name), role="Talk.") for name in NAMES),
        Agent("stranger", ScriptedModel([])),
    ]


@pytest.mark.accept(59)
async def test_in_two_hundred_runs_every_valid_choice_of_the_director_is_obeyed(world: World) -> None:
    rng = Random(59)
    meant: dict[str, str] = {}

    def choose(call: ModelCall) -> str:
        name = rng.choice(allowed(call))
        raw = rng.choice(DECORATIONS).format(name.replace("_", "\\_") if rng.random() < 0.3 else name)
        meant[raw] = name
        return raw

    limits = Limits(max_rounds=3)
    async with world.engine(*members(), channels=[ROOM], directors={"d": director(choose)}, limits=limits) as engine:
        runs = [await engine.create(f"run {run}", entry="room") for run in range(200)]
        await asyncio.gather(*(c.send("begin") for c in runs))
        for c in runs:
            picked = of_kind(c, "speaker_selected")
            assert [e.speaker for e in picked if e.raw] == [meant[e.raw] for e in picked if e.raw]
            assert {e.by for e in picked} <= {"director", "only_candidate"}
            assert [e.by for e in picked].count("director") >= 4
            fair([e.sender for e in of_kind(c, "message_added")], limits.max_rounds)
            assert c.session.state == "terminated"


def fair(senders: list[str], cap: int) -> None:
    """Only members spoke after the person, none twice running, none more often than the cap."""
    assert senders[0] == "USER"
    assert set(senders[1:]) <= set(NAMES)
    assert all(one != other for one, other in itertools.pairwise(senders))
    assert all(senders.count(name) <= cap for name in NAMES)
    assert len(senders) == 7


@pytest.mark.accept(60)
@pytest.mark.field(123)
async def test_what_is_no_valid_choice_falls_back_on_a_recorded_number_and_never_on_one_who_may_not_speak(
    world: World,
) -> None:
    rng = Random(60)
    told: list[list[str]] = []
    raws: list[str] = []

    def choose(call: ModelCall) -> str:
        told.append(allowed(call))
        barred = [name for name in NAMES if name not in told[-1]]  # spoke last, or is at its limit
        raws.append(rng.choice([*GARBAGE, *barred * 3]))
        if len([name for name in told[-1] if name in raws[-1]]) == 1:
            raws[-1] = "nobody"  # one of the two it names may not speak, which makes it a choice
        return raws[-1]

    engine = Engine(
        world.path, members(), channels=[ROOM], directors={"d": director(choose)}, clock=world.clock,
        new_id=world.ids, seed=Seeds(), limits=Limits(max_rounds=2), auto_approve=(),
    )  # fmt: skip
    async with engine:
        for run in range(40):
            told.clear()
            raws.clear()
            c = await engine.create(f"run {run}", entry="room")
            await c.send("begin")
            asked = [e for e in of_kind(c, "speaker_selected") if e.by != "only_candidate"]
            assert [(e.by, e.raw) for e in asked] == [("random", raw) for raw in raws]
            assert [e.speaker for e in asked] == [
                names[e.seed % len(names)] for e, names in zip(asked, told, strict=True)
            ]
            assert all(e.model == "director" for e in asked), "an empty answer is told from a group without a director"
            fair([e.sender for e in of_kind(c, "message_added")], 2)


async def test_a_choice_is_counted_and_the_director_is_told_who_there_is_and_what_was_said(world: World) -> None:
    model = director(lambda call: allowed(call)[0])
    room = ROOM.model_copy(update={"max_rounds": 2, "role": "You lead the talk."})
    async with world.engine(*members(), channels=[room], directors={"d": model}) as engine:
        c = await engine.create("s", entry="room")
        await c.send("begin")
        first, second = of_kind(c, "speaker_selected")
        assert first.usage == second.usage == USAGE
        assert [e.turn_usage for e in of_kind(c, "message_added")][1:] == [USAGE.plus(USAGE)] * 2
    ask, again = model.calls
    assert ask.system.splitlines()[:3] == ["You lead the talk.", "The members are:", "Senior_Planner: Talk."]
    assert allowed(ask) == list(NAMES)
    assert allowed(again) == list(NAMES[1:])
    assert again.messages[0] == UserMessage("USER: begin\n\nSenior_Planner: word 0")


async def test_a_completion_of_a_director_that_counts_nothing_is_still_one(world: World) -> None:
    model = ScriptedModel(lambda call: ModelReply("critic"), "silent")
    room = ROOM.model_copy(update={"max_rounds": 1})
    async with world.engine(*members(), channels=[room], directors={"d": model}) as engine:
        c = await engine.create("s", entry="room")
        await c.send("begin")
        assert [e.usage for e in of_kind(c, "speaker_selected")] == [Usage(completions=1)]


async def test_a_group_whose_director_is_missing_is_refused_and_one_that_lost_it_says_so(world: World) -> None:
    with pytest.raises(Misuse, match="channel 'room' has no director 'd'"):
        world.engine(*members(), channels=[ROOM])
    broken: list[Step] = [fail()]
    async with world.engine(*members(), channels=[ROOM], directors={"d": ScriptedModel(broken)}) as engine:
        c = await engine.create("s", entry="room")
        assert (await c.send("begin")).state == "error"
    async with world.engine(*members()) as engine:  # the group is in the log, its director is not here
        c = await engine.open("s")
        assert (await c.retry()).state == "error"
        failure = of_kind(c, "turn_failed")[-1]
        assert (failure.where, failure.error) == ("director", "not_found")
        assert "no director 'd' is configured: start the engine with it" in failure.message


@pytest.mark.field(124)
async def test_a_member_that_is_removed_while_its_model_answers_is_cut_off_and_the_last_one_ends_it(
    world: World,
) -> None:
    stuck = Agent("stuck", Stuck())
    room = Channel(name="room", members=("stuck", "critic"), director="d")
    model = director(lambda call: "stuck")
    async with world.engine(*members(), stuck, channels=[room], directors={"d": model}) as engine:
        c = await engine.create("s", entry="room")
        await c.say("begin")
        await reached(c, lambda s: s.speaker == "stuck")
        await c.remove_member("room", "critic", by="ann")
        await c.remove_member("room", "stuck", by="ann")
        assert (await c.rest()).state == "terminated"
        assert kinds(c)[-3:] == ["member_removed", "member_removed", "session_terminated"]
        assert of_kind(c, "session_terminated")[0].reason == "no_speaker"
        with pytest.raises(Misuse, match="has ended"):
            await c.remove_member("room", "stuck")
    assert len(model.calls) == 1


class Stuck(ScriptedModel):
    """A model that never answers."""

    def __init__(self) -> None:
        super().__init__([], "stuck")

    async def stream(self, call: ModelCall):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as the one it replaces
        await asyncio.Event().wait()
        yield say("never")


async def test_a_chosen_speaker_is_kept_over_a_restart_and_the_director_is_not_asked_again(world: World) -> None:
    stuck = Agent("critic", Stuck())
    asked = director(lambda call: "critic")
    others = [agent for agent in members() if agent.name != "critic"]
    room = ROOM.model_copy(update={"max_rounds": 1})
    async with world.engine(*others, stuck, channels=[room], directors={"d": asked}) as engine:
        c = await engine.create("s", entry="room")
        await c.say("begin")
        await reached(c, lambda s: s.speaker == "critic")
    again = director(lambda call: "@coder")
    async with world.engine(*members(), channels=[room], directors={"d": again}) as engine:
        c = await engine.open("s")
        await c.rest()
        assert [e.sender for e in of_kind(c, "message_added")] == ["USER", "critic"]
    assert (len(asked.calls), len(again.calls)) == (1, 0)
