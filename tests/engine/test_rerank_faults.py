"""Whatever goes wrong while tools are chosen, all of them are offered."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, in_thread
from tests.engine.toolbox import BROKEN, NAMES, Broken, Hanging, Words, choices, many, offered, toolbox
from turnlog.engine import Rerank
from turnlog.engine.models.scripted import say
from turnlog.engine.offer import LONGEST
from turnlog.engine.threads import Line
from turnlog.engine.tools import rerank as module
from turnlog.fsm.errors import Misuse

# When it goes wrong ----------------------------------------------------------------------------


def _nothing(texts: Any) -> list[list[float]]:
    return [[0.0] * 3 for _ in texts]


@pytest.mark.accept(55)
@pytest.mark.parametrize(
    ("embedder", "told"),
    [
        (Broken(RuntimeError("no such device")), "RuntimeError: no such device"),
        (Broken(Misuse("onnxruntime is not there: install turnlog[rerank]")), "install turnlog[rerank]"),
        (Broken("good", RuntimeError("the question is too much")), "the question is too much"),
        (Broken(lambda texts: [[1.0]] * (len(texts) - 1)), "ValueError"),
        (Broken("good", lambda texts: [[1.0] * 513] * (len(texts) + 1)), "made 2 vectors of 1 texts"),
        (Broken("good", lambda texts: [[1.0]] * len(texts)), "of 513 and of 1 numbers"),
        (Broken(lambda texts: [[float("nan")]] * len(texts)), "without a direction"),
        (Broken(_nothing), "without a direction"),
        (Broken(lambda texts: None), "TypeError"),
        (Broken(lambda texts: next(iter(()))), "StopIteration"),
        (Broken(lambda texts: sys.exit("no")), "SystemExit: no"),
        (Broken(lambda texts: [["x"]] * len(texts)), "ValueError: could not convert"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)  # fmt: skip
async def test_whatever_goes_wrong_all_tools_are_offered_and_the_log_says_what_it_was(
    world: World, embedder: Words, told: str
) -> None:
    agent = many(world, say("done"), rerank=Rerank(embedder))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        assert (await c.send(BROKEN)).text == "done"
        assert offered(agent) == [NAMES]
        (choice,) = choices(c)
        assert choice is not None
        assert (choice.by, choice.granted, choice.tools) == ("all", 40, ())
        assert told in choice.problem


@pytest.mark.accept(55)
async def test_a_text_index_that_fails_or_a_cache_that_cannot_be_opened_leaves_all_tools(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_index(*_: object) -> list[str]:
        raise OSError("no such module: fts5")

    damaged = tmp_path / "damaged"
    damaged.write_text("this is no database" * 100)
    monkeypatch.setattr(module, "by_words", no_index)
    for place, (rerank, told) in enumerate((
        (Rerank(), "no such module: fts5"),
        (Rerank(Words(), cache=tmp_path / "no" / "folder"), "unable to open"),
        (Rerank(Words(), cache=damaged), "not a database"),
    )):  # fmt: skip
        world.path = tmp_path / f"{place}.db"
        agent = many(world, say("done"), rerank=rerank)
        async with world.engine(agent) as engine:
            c = await engine.create("s")
            await c.send(BROKEN)
            (choice,) = choices(c)
            assert choice is not None
            assert choice.by == "all"
            assert told in choice.problem
            assert offered(agent) == [NAMES]


async def test_an_embedder_that_hangs_is_waited_for_ten_seconds_and_then_all_tools_are_offered(world: World) -> None:
    embedder = Hanging()
    agent = many(world, say("done"), rerank=Rerank(embedder))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say(BROKEN)
        await in_thread(embedder.asks)
        world.clock.advance(LONGEST)
        await c.rest()
        (choice,) = choices(c)
        assert choice is not None
        assert choice.problem == "TimeoutError: no choice within 10 s"
        assert offered(agent) == [NAMES]
        assert world.clock.armed == []
    embedder.may.set()


async def test_a_stop_does_not_wait_for_the_embedder(world: World) -> None:
    embedder = Hanging()
    agent = many(world, rerank=Rerank(embedder))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say(BROKEN)
        await in_thread(embedder.asks)
        await c.stop()
        assert (await c.rest()).state == "interrupt"
        assert offered(agent) == []
    assert world.clock.armed == []
    embedder.may.set()


def test_an_embedder_that_hangs_does_not_keep_the_process_from_ending() -> None:
    script = (
        "import threading\n"
        "from turnlog.engine.threads import Line\n"
        "asked = threading.Event()\n"
        "Line().submit(lambda: (asked.set(), threading.Event().wait()))\n"
        "print(asked.wait(30))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
    )  # fmt: skip
    assert done.stdout == "True\n"


async def test_after_one_that_hung_the_next_is_done_and_what_was_given_up_is_not(world: World) -> None:
    line, may, done = Line(), threading.Event(), []
    hung = line.submit(lambda: may.wait(30))
    given_up = line.submit(lambda: done.append("given up"))
    given_up.cancel()
    last = line.submit(lambda: done.append("last"))
    may.set()
    assert await asyncio.wrap_future(hung) == (True, None)
    assert await asyncio.wrap_future(last) == (None, None)
    assert done == ["last"]


async def test_where_nothing_was_said_all_tools_are_offered(world: World) -> None:
    agent = world.agent(say("done"), tools=toolbox(), rerank=Rerank(Words()), window=1)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("!")
        assert [getattr(one, "by", "") for one in choices(c)] == ["embeddings"], "a mark is a text, too"
    assert Rerank(Words()).choose(toolbox(), ["", "  "]).problem == "nothing was said that could be compared"


@pytest.mark.parametrize("wrong", [{"keep": 0}, {"keep": 21}, {"messages": 0}, {"pinned": "roll_dice"}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        Rerank(**wrong)


def test_a_pinned_tool_that_the_agent_has_not_is_refused(world: World) -> None:
    with pytest.raises(Misuse, match="pins 'ghost', which is none of its tools"):
        many(world, rerank=Rerank(pinned=["roll_dice", "ghost"]))
