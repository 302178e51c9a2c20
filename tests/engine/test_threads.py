"""Blocking tools that hang: they keep nobody waiting, least of all the end of the process."""

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, blocking_tool, in_thread, reached, results, sent
from turnlog.engine import Agent, Notice, tool
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


async def test_beyond_the_most_threads_a_call_ends_with_the_names_of_those_that_run(world: World) -> None:
    block, running, go = blocking_tool()
    agent = world.agent(call(("block", {})), say("stopped"), call(("block", {})), say("done"), tools=[block])
    async with world.engine(agent) as engine:
        engine.threads = Threads(1)
        c = await engine.create("s")
        await c.say("hang")
        await in_thread(running)
        await c.stop()
        await c.send("go on")
        await c.send("again")
        outcome, content = results(c)[-1]
        assert outcome == "error"
        assert "nothing ran: 1 tools run in threads already, most of them block (1)" in content
        go.set()


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
    assert [work.result(30) for work in works] == [("true", None)] * 3
    assert threads.running == {}
