"""The window of a pair is a matter of the log: a restart changes nothing of what a model sees."""

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import cast

import pytest

from tests.engine.support import World, sent
from turnlog.engine import Agent, context
from turnlog.engine.context import History, Side
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm.canonical import digest
from turnlog.fsm.events import CallRecord, Event, Limits, MessageAdded, MessageQueued, Row, ToolReturned, ToolsCalled
from turnlog.fsm.history import Message
from turnlog.fsm.states import State
from turnlog.store.base import EventLog

PAIRS = list(combinations(("USER", "@a", "@b", "@c"), 2))
LIMITS = (0, 1, 2, 3, 7, 12)
WIDTH = max(LIMITS)


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


def seen(history: History, key: tuple[str, str, int | None]) -> tuple[int, list[Message]]:
    side = history.side(*key)
    return side.first, side.messages.copy()


def all_of(log: Listed, key: tuple[str, str, int | None]) -> tuple[int, list[Message]]:
    """What a side is that has heard everything from the beginning."""
    whole, side = History(None), Side(*key)
    whole.add(log.rows)
    for exchange in whole.exchanges:
        side.add(exchange)
    return side.first, side.messages


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
            seen(live, (*some.choice(sides), some.choice(LIMITS)))
    after = loaded(log)
    for pair, limit in product(sides, LIMITS):
        assert seen(live, (*pair, limit)) == seen(after, (*pair, limit)) == all_of(log, (*pair, limit)), (pair, limit)
    assert list(live.exchanges) == list(after.exchanges)
    assert sum(one.size for one in after.exchanges) <= WIDTH + 3, "memory is bounded by the window"


def test_a_pair_that_talks_is_loaded_without_reading_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "PAGE", 7)
    log = Listed()
    for n in range(500):
        sender, recipient = ("USER", "@a") if n % 2 else ("@a", "USER")
        log.add(MessageAdded(message_id=str(n), sender=sender, recipient=recipient, text=str(n), by="model"))
    assert len(loaded(log).side("@a", "USER", 12).messages) == 12
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
