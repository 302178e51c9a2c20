"""Sessions share commits, and a turn pays for as few as its promises need."""

import asyncio
import math
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, kinds, request
from turnlog.engine import Agent, Engine
from turnlog.engine.models.scripted import ScriptedModel, call, say

ROOT = Path(__file__).resolve().parents[2]
SESSIONS, TURNS = 64, 5


async def load(engine: Engine) -> None:
    """64 sessions at once, each with turns of one tool call."""
    conversations = await asyncio.gather(*(engine.create(f"s{n}") for n in range(SESSIONS)))

    async def talk(place: int) -> None:
        for _ in range(TURNS):
            await conversations[place].send("go")

    await asyncio.gather(*(talk(place) for place in range(SESSIONS)))


def looker(world: World) -> Agent:
    model = ScriptedModel(lambda c: call(("look", {"q": "a"})) if c.index % 2 == 0 else say("done"))
    return Agent("@agent", model, tools=[world.look])


def be_slow(engine: Engine) -> None:
    """Leave the commits to the thread, and make each last until the event loop has gone round."""
    loop, writer = asyncio.get_running_loop(), engine.log._writer
    commit = writer._commit

    def slowly(batch: list[Any], *, wait: bool) -> bool:
        gone_round = threading.Event()
        loop.call_soon_threadsafe(loop.call_soon, gone_round.set)
        assert gone_round.wait(30)
        return commit(batch, wait=wait)

    writer._commit, writer._quick_seconds = slowly, 0  # type: ignore[method-assign]  # a slow disk


def be_quick(engine: Engine) -> None:
    """Commit in the thread of the event loop, however slow the disk is."""
    engine.log._writer._quick_seconds = math.inf


@pytest.mark.parametrize("disk", [be_quick, be_slow])
async def test_64_sessions_share_their_commits(world: World, disk: Callable[[Engine], None]) -> None:
    async with world.engine(looker(world)) as engine:
        disk(engine)
        before = engine.log.stats.commits
        await load(engine)
        rows, commits = engine.log.stats.rows, engine.log.stats.commits - before
        assert rows == SESSIONS * (1 + 6 * TURNS)
        assert commits / rows <= 0.05, f"{commits} commits for {rows} rows"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts the fsyncs, and is not installed here")
def test_the_kernel_counts_no_more_fsyncs_than_that(tmp_path: Path) -> None:
    """On whatever disk this is, with whoever commits."""
    code = (
        "import asyncio\nfrom pathlib import Path\nfrom tests.engine.support import World\n"
        "from tests.engine.test_group_commit import load, looker\n"
        f"async def main():\n    world = World(Path({str(tmp_path)!r}))\n"
        "    async with world.engine(looker(world)) as engine:\n"
        "        await load(engine)\n"
        "        print(engine.log.stats.rows)\nasyncio.run(main())\n"
    )
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(trace), sys.executable, "-c", code]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0 and "ptrace" in done.stderr.lower():
        pytest.skip("strace may not trace processes here")
    assert done.returncode == 0, done.stderr
    rows = int(done.stdout)
    counts = [
        line.split() for line in trace.read_text().splitlines() if line.split()[-1:] in (["fsync"], ["fdatasync"])
    ]
    fsyncs = sum(int(line[3]) for line in counts)
    assert 0 < fsyncs <= 0.05 * rows, f"{fsyncs} fsyncs for {rows} rows"


async def test_a_turn_with_one_free_call_pays_four_commits(world: World) -> None:
    async with world.engine(looker(world)) as engine:
        c = await engine.create("s")
        await c.send("warm up")
        before, seq = engine.log.stats.commits, c.session.seq
        await c.send("go")
        assert kinds(c)[seq:] == [
            "message_added", "tools_called", "tool_started", "tool_returned", "message_added", "turn_interrupted"
        ]  # fmt: skip
        assert engine.log.stats.commits - before == 4


async def test_a_turn_without_calls_pays_two_and_an_approval_two_more(world: World) -> None:
    agent = world.agent(say("hello"), call(("pay", {"amount": 1, "to": "A"})), say("paid"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        before = engine.log.stats.commits
        await c.send("hi")
        assert engine.log.stats.commits - before == 2
        before = engine.log.stats.commits
        await c.send("pay")
        await c.decide(request(c), "approved")
        await c.rest()
        assert engine.log.stats.commits - before == 6, "the word alone, and the start alone"
