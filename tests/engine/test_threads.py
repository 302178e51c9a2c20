"""Blocking tools that hang: they keep nobody waiting, least of all the end of the process."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, blocking_tool, in_thread, of_kind, processed, reached, results, sent
from turnlog.engine import Agent, Notice, Tool, ToolContext, tool
from turnlog.engine.models.base import ModelCall, ModelReply, TextDelta
from turnlog.engine.models.scripted import call, say
from turnlog.engine.notices import Piece
from turnlog.engine.threads import Threads
from turnlog.engine.values import as_text, told_value
from turnlog.fsm.events import Limits

ROOT = Path(__file__).resolve().parents[2]


async def test_tools_that_hang_keep_no_other_tool_waiting(world: World) -> None:
    block, running, go = blocking_tool()

    @tool
    def quick() -> str:
        """Be quick."""
        return "quick is done"

    hanging = call(*[("block", {})] * 40)
    agent = world.agent(hanging, call(("quick", {})), say("done"), tools=[block, quick])
    async with world.engine(agent) as engine:
        c = await engine.create("hangs", limits=Limits(max_tool_calls=100))
        await c.say("hang")
        await in_thread(running)
        await reached(c, lambda s: sum(one.status == "started" for one in s.calls) == 40)
        await c.stop()
        assert (await c.send("go on")).text == "done"
        assert results(c)[-1] == ("ok", "quick is done")
        assert engine.threads.running["block"] == 40
        go.set()


def counted(ledger: list[str]) -> Tool:
    """A blocking tool that leaves a mark."""

    @tool(name="counted")
    def marks() -> str:
        """Leave a mark."""
        ledger.append("counted")
        return "counted"

    return marks


async def test_a_call_that_finds_no_thread_waits_and_then_ends_with_the_names_of_those_that_hang(world: World) -> None:
    block, running, go = blocking_tool()
    marks = counted(world.ledger)
    agent = world.agent(call(("block", {})), call(("counted", {})), say("none"), call(("counted", {})), say("done"),
                        tools=[block, marks])  # fmt: skip
    async with world.engine(agent) as engine:
        engine.threads = Threads(1, clock=world.clock)
        c = await engine.create("s")
        await c.say("hang")
        await in_thread(running)
        await c.stop()
        await until(lambda: engine.threads.called_off == {"block": 1})
        await c.say("go on")
        await reached(c, lambda s: any(one.status == "started" for one in s.calls))
        await until(lambda: bool(engine.threads._waiting))
        world.clock.advance(29)
        await processed(c)
        assert len(of_kind(c, "tool_returned")) == 1
        world.clock.advance(1)
        await c.rest()
        outcome, content = results(c)[-1]
        assert outcome == "error"
        assert "nothing ran: no thread was free in time" in content
        assert "all 1: 'block' 1 (1 of them stopped, but they still run)" in content
        assert world.ledger == []
        await c.say("again")
        await until(lambda: bool(engine.threads._waiting))
        go.set()
        await c.rest()
        assert results(c)[-1] == ("ok", "counted")
        assert engine.threads.running == engine.threads.called_off == {}


async def until(fits: Callable[[], bool]) -> None:
    """Return when it does, some rounds of the event loop later."""
    async with asyncio.timeout(30):
        while not fits():  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0)


async def test_a_call_that_waits_for_a_thread_never_begins_after_a_stop(world: World) -> None:
    block, running, go = blocking_tool()
    agent = world.agent(call(("block", {}), ("counted", {})), say("next"), tools=[block, counted(world.ledger)])
    async with world.engine(agent) as engine:
        engine.threads = Threads(1, clock=world.clock)
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await until(lambda: bool(engine.threads._waiting))
        await c.stop()
        go.set()
        await reached(c, lambda s: s.seq >= 9)
        assert (await c.send("go on")).text == "next"
        assert engine.threads.running == {}
        assert world.ledger == [], "it was told to the model that it was stopped"
        assert world.clock.armed == [], "nothing waits for it any more"


async def test_a_tool_whose_stopped_runs_hang_is_not_started_again_while_others_are(world: World) -> None:
    block, running, go = blocking_tool()
    script = [call(("block", {})), call(("block", {})), call(("counted", {})), say("done")]
    agent = world.agent(*script, tools=[block, counted(world.ledger)])
    async with world.engine(agent) as engine:
        engine.threads = Threads(8, stuck=1)
        c = await engine.create("s")
        await c.say("hang")
        await in_thread(running)
        await c.stop()
        await until(lambda: bool(engine.threads.called_off))
        assert (await c.send("go on")).text == "done"
        _, (outcome, content), last = results(c)
        assert outcome == "error"
        assert "nothing ran: 1 earlier runs of 'block' were stopped and still run" in content
        assert last == ("ok", "counted")
        go.set()


def test_more_calls_than_threads_all_run() -> None:
    threads, gate = Threads(3), threading.Event()
    works = [threads.submit("wait", lambda n: (gate.wait(30), n)[1], {"n": n}) for n in range(40)]
    assert threads.running == {"wait": 3}
    gate.set()
    assert [work.done.result(30) for work in works] == [(str(n), None) for n in range(40)]
    assert threads.running == {}


async def test_what_a_thread_says_after_it_was_called_off_is_not_heard(world: World) -> None:
    running, go, heard = threading.Event(), threading.Event(), []

    @tool
    def talks(context: ToolContext) -> str:
        """Talk."""
        context.introspect("before")
        running.set()
        assert go.wait(30)
        context.introspect("after")
        return "done"

    async with world.engine(world.agent(call(("talks", {})), tools=[talks])) as engine:
        c = await engine.create("s")
        c.subscribe(lambda notice: heard.append(notice.text) if isinstance(notice, Piece) else None)
        await c.say("hi")
        await in_thread(running)
        await c.stop()
        go.set()
        await reached(c, lambda s: s.seq >= 7)
        assert [text for text in heard if text in ("before", "after")] == ["before"]


def test_a_tool_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    code = (
        "import asyncio\nfrom pathlib import Path\n"
        "from tests.engine.support import World, blocking_tool, in_thread\n"
        "from turnlog.engine.models.scripted import call\n"
        "async def main():\n"
        f"    world = World(Path({str(tmp_path)!r}))\n"
        "    block, running, _ = blocking_tool()\n"
        "    async with world.engine(world.agent(call(('block', {})), tools=[block])) as engine:\n"
        "        c = await engine.create('s')\n        await c.say('hang')\n        await in_thread(running)\n"
        "    print('closed')\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True, timeout=25,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("closed\n", 0), done.stderr


@pytest.mark.parametrize("value", [itertools.count(), (n for n in itertools.count()), [iter(["x"])], {"a": iter([1])}])
def test_a_generator_is_not_walked_and_the_model_hears_that_the_tool_ran(value: Any) -> None:
    assert "The tool ran" in told_value(value)
    assert "return a list" in told_value(value)


def test_a_list_a_set_and_a_range_are_values() -> None:
    assert (as_text([1, {"a": "b"}]), as_text({3}), as_text(range(2))) == ('[1,{"a":"b"}]', "[3]", '"range(0, 2)"')


class Deaf:
    """A model that goes on after it was called off."""

    name = "deaf"

    def __init__(self) -> None:
        self.go, self.done = asyncio.Event(), asyncio.Event()

    async def stream(self, _: ModelCall) -> AsyncIterator[TextDelta | ModelReply]:
        yield TextDelta("before ")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            yield TextDelta("after")
            self.done.set()
            raise
        yield say("never")


async def test_what_a_model_says_after_it_was_called_off_is_not_heard(world: World) -> None:
    deaf, heard, first = Deaf(), [], asyncio.Event()

    def listen(notice: Notice) -> None:
        if isinstance(notice, Piece):
            heard.append(notice.text)
            first.set()

    async with world.engine(Agent("@agent", deaf)) as engine:
        c = await engine.create("s")
        c.subscribe(listen)
        await c.say("hi")
        await first.wait()
        await c.stop()
        await deaf.done.wait()
        assert heard == ["before "]


async def test_a_tool_that_is_registered_later_can_be_rebuilt_from_the_log(world: World) -> None:
    @tool
    async def later() -> str:
        """Come later."""
        return ""

    agent = world.agent(say("hello"))
    async with world.engine(agent) as engine:
        engine.registry.add(later)
        while engine._tasks:
            await asyncio.gather(*engine._tasks)
        assert engine.log.blob(later.definition_digest) == later.definition_text.encode()
        assert sent(agent) == []


def test_threads_are_counted_until_they_end() -> None:
    threads, go = Threads(), threading.Event()
    works = [threads.submit("wait", go.wait, {}) for _ in range(3)]
    assert threads.running == {"wait": 3}
    go.set()
    assert [work.done.result(30) for work in works] == [("true", None)] * 3
    assert threads.running == {}
