"""The window of a pair is a matter of the log: a restart changes nothing of what a model sees."""

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any, cast

import pytest

from tests.engine.support import World, of_kind, request, rows, sent
from tests.fsm.validity import complaints
from turnlog.engine import Agent, context, person
from turnlog.engine.context import History, rebuild
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.engine.window import Seen, Side, Window
from turnlog.fsm.canonical import digest
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import (
    CallRecord,
    Channel,
    Event,
    Limits,
    MessageAdded,
    MessageQueued,
    Row,
    ToolReturned,
    ToolsCalled,
)
from turnlog.fsm.history import Message, ToolMessage, UserMessage
from turnlog.fsm.states import State
from turnlog.store.base import EventLog

PAIRS = list(combinations(("USER", "@a", "@b", "@c"), 2))
LIMITS = (0, 1, 2, 3, 7, 12)
WIDTH = max(LIMITS)
WINDOWS = [
    *map(Window, LIMITS),
    *(Window(None, tokens, len) for tokens in (1, 5, 20, 60, 200)),
    Window(7, 20, len),
]
Key = tuple[str, str, Window]


class Listed:
    """A log that is a list. It counts the rows that were read."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.read_rows = 0

    def add(self, event: Event) -> Row:
        row = Row("s", len(self.rows) + 1, State.SUCCESS, 0, "a", event, None, b"")
        self.rows.append(row)
        return row

    def read(self, _: str, after: int = 0, limit: int = 500) -> list[Row]:
        self.read_rows += len(self.rows[after : after + limit])
        return self.rows[after : after + limit]


def happens(log: Listed, some: random.Random) -> list[Row]:
    """A message, a round of calls, or a row that no model sees. A pair speaks for a while; some speak seldom."""
    pair = some.choices(PAIRS, weights=(1, 30, 1, 8, 2, 1))[0]
    sender, recipient = pair if some.random() < 0.6 else pair[::-1]
    number = str(len(log.rows))
    match some.randrange(5):
        case 0:
            queued = MessageQueued(message_id=number, sender=sender, recipient=recipient, text=number)
            return [log.add(queued)]
        case 1:
            ids = [f"{number}.{n}" for n in range(some.randrange(1, 4))]
            made = [
                CallRecord(id=one, tool="t", arguments='{"a":1}', parsed={"a": 1}, digest=digest({})) for one in ids
            ]
            said = ToolsCalled(message_id=number, speaker=sender, listener=recipient, calls=tuple(made), text=number)
            return [log.add(said), *(log.add(ToolReturned(call_id=one, outcome="ok", content=one)) for one in ids)]
        case _:
            by = "person" if sender == "USER" else "model"
            text = " " if some.random() < 0.1 else number
            added = {"message_id": number, "sender": sender, "recipient": recipient, "text": text, "by": by}
            return [log.add(MessageAdded.model_validate(added))]


def loaded(log: Listed) -> History:
    history = History(WIDTH)
    history.load(cast("EventLog", log), "s", len(log.rows))
    return history


def seen(history: History, key: Key) -> Seen:
    return history.side(*key).seen()


def all_of(log: Listed, key: Key) -> Seen:
    """What a side is that has heard everything from the beginning."""
    whole, side = History(None), Side(*key)
    whole.add(log.rows)
    for exchange in whole.exchanges:
        side.add(exchange)
    return side.seen()


@pytest.mark.parametrize("seed", range(12))
def test_a_window_after_a_restart_is_the_one_before_it_for_every_pair_and_limit(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "PAGE", 7)
    some, log = random.Random(seed), Listed()
    live = loaded(log)
    sides = [*PAIRS, *(pair[::-1] for pair in PAIRS)]
    for _ in range(120):
        live.add(happens(log, some))
        if some.random() < 0.1:  # a model is asked, for the first time at any moment
            seen(live, (*some.choice(sides), some.choice(WINDOWS)))
    after = loaded(log)
    for pair, window in product(sides, WINDOWS):
        key = (*pair, window)
        assert seen(live, key) == seen(after, key) == all_of(log, key), key
    assert list(live.exchanges) == list(after.exchanges)
    assert sum(one.size for one in after.exchanges) <= WIDTH + 3, "memory is bounded by the window"


def test_a_pair_that_talks_is_loaded_without_reading_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "PAGE", 7)
    log = Listed()
    for n in range(500):
        sender, recipient = ("USER", "@a") if n % 2 else ("@a", "USER")
        log.add(MessageAdded(message_id=str(n), sender=sender, recipient=recipient, text=str(n), by="model"))
    assert len(loaded(log).side("@a", "USER", Window(12)).messages) == 12
    assert log.read_rows <= 4 * WIDTH


async def spoken(world: World, *, restarts: bool, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[Message]]:
    monkeypatch.setattr(context, "PAGE", 5)

    def bot(name: str, window: int) -> Agent:
        model = ScriptedModel(lambda c: call(("look", {"q": str(c.index)})) if c.index % 3 == 0 else say(f"{c.index}"))
        model.keep_calls = True
        return Agent(name, model, tools=[world.look], window=window)

    asked: list[Sequence[Message]] = []
    agents = [bot("@a", 4), bot("@b", 9), bot("@c", 2)]
    order = [*"abacbb", *"a" * 12, *"bca", *"c" * 9, *"abcab"]
    left = order
    while left:
        async with world.engine(Agent("USER", interrupt="always"), *agents, limits=Limits(max_rounds=100)) as engine:
            c = await (engine.create("s") if left is order else engine.open("s"))
            now, left = (left[:1], left[1:]) if restarts else (left, [])
            for name in now:
                await c.send(f"to {name}", recipient=f"@{name}")
        asked += [one.messages for agent in agents for one in sent(agent)]
        for agent in agents:
            sent(agent).clear()
    return sorted(asked, key=str)


async def test_models_are_sent_the_same_by_an_engine_that_restarts_before_every_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = await spoken(world, restarts=False, monkeypatch=monkeypatch)
    other = World(world.path.parent / "other")
    other.path.parent.mkdir()
    assert await spoken(other, restarts=True, monkeypatch=monkeypatch) == once
    assert max(len(one) for one in once) == 9, "a window was full"


def rounds(agent: Agent) -> list[list[str]]:
    """What the agent was sent each time: texts of users, and results."""
    return [
        [one.text if isinstance(one, UserMessage) else one.content for one in call_.messages
         if isinstance(one, UserMessage | ToolMessage)]
        for call_ in sent(agent)
    ]  # fmt: skip


@pytest.mark.field(74)
async def test_the_question_stays_however_long_the_answer_takes_and_so_it_does_after_a_restart(world: World) -> None:
    """And `rebuild` knows of it."""
    script = [*(call(("look", {"q": str(n)})) for n in range(6)), call(("pay", {"amount": 1, "to": "A"})), say("done")]
    first = world.agent(say("hello"), *script, window=4)
    async with world.engine(first) as engine:
        c = await engine.create("s")
        await c.send("hi")
        await c.send("look it up")
    assert rounds(first)[4:] == [["look it up", f"saw {n - 1}", f"saw {n}"] for n in (2, 3, 4, 5)]
    again = world.agent(say("hello"), *script, window=4)
    async with world.engine(again) as engine:
        c = await engine.open("s")
        await c.decide(request(c), "approved")
        await c.rest()
        assert rounds(again) == [["look it up", "saw 5", "paid 1 to A"]]
        answer = [row for row in rows(c) if row.event.kind == "message_added"][-1]
        made = of_kind(c, "message_added")[-1].request
        assert list(rebuild(engine.log, c.session, answer).messages) == list(sent(again)[0].messages)
        assert 0 < made.asked[0] == made.asked[1] < made.history[0]


@pytest.mark.field(74)
async def test_a_window_of_tokens_holds_what_fits_and_each_call_with_its_result(world: World) -> None:
    counted: list[str] = []

    def words(text: str) -> int:
        counted.append(text)
        return len(text.split())

    script = [say("a b c"), call(("look", {"q": "x"})), say("d"), say("e")]
    agent = world.agent(*script, window=None, window_tokens=8, estimate=words)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        for text in ("one two", "three four five", "six"):
            await c.send(text)
    assert rounds(agent) == [
        ["one two"],
        ["one two", "three four five"],  # 2 + 3 + 3
        ["three four five", "saw x"],  # 3 + 3 (look {"q": "x"}) + 2
        ["saw x", "six"],  # 3 + 2 + 1 + 1, the question would be too much
    ]
    assert "saw x" in counted


@pytest.mark.parametrize("estimate", [lambda _: 1 // 0, lambda _: "many", lambda _: -(10**9)])
async def test_an_estimate_that_is_none_keeps_nobody_from_answering(world: World, estimate: Any) -> None:
    agent = world.agent(*map(say, "abcdef"), window=None, window_tokens=10, estimate=estimate)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        for number in range(6):
            assert (await c.send(f"question {number}")).text == "abcdef"[number]


async def test_a_member_of_a_group_sees_its_window_of_it_with_the_newest_message(world: World) -> None:
    script = [*(call(("look", {"q": str(n)})) for n in range(3)), say("that is all")]
    ada = Agent("ada", ScriptedModel(script, "ada"), tools=[world.look], window=3)
    bea = Agent("bea", ScriptedModel(lambda given: say(f"bea {given.index}"), "bea"), window=2)
    room = Channel(name="room", members=("ada", "bea"), max_rounds=6)
    async with world.engine(person(), ada, bea, channels=[room]) as engine:
        c = await engine.create("s", entry="room")
        await c.send("begin")
        for row in rows(c):
            if getattr(row.event, "request", None) is None:
                continue
            speaker = row.actor.removeprefix("agent:")
            asked = rebuild(engine.log, c.session, row).messages
            assert complaints(list(asked)) == []
            assert isinstance(asked[0], UserMessage)
            assert len(asked[0].text.split("\n\n")) <= (3 if speaker == "ada" else 2)
    assert [texts[1:] for texts in rounds(ada)][:4] == [[], ["saw 0"], ["saw 1"], ["saw 2"]]
    assert len({texts[0] for texts in rounds(ada)[:4]}) <= 2


@pytest.mark.parametrize("wrong", [{"window": -1}, {"window_tokens": -5}])
def test_a_window_of_less_than_nothing_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(Misuse, match="use 0 or more, or None for no limit"):
        Agent("@agent", **wrong)  # type: ignore[arg-type]  # fields by name
