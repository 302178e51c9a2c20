"""kill -9 in the middle of a fork: the whole fork is there, or nothing of it."""

from pathlib import Path

import pytest

from tests.store.support import child, integrity, kill
from turnlog.store import SQLiteLog, verify

_FORKS = """
import asyncio, os, signal, sys
from turnlog import Agent, Engine
from turnlog.engine.models.scripted import ScriptedModel, say
from turnlog.fsm.events import Limits

path, when, name = sys.argv[1:]
agents = [Agent(n, ScriptedModel(lambda _: say("and?"))) for n in ("@a", "@b")]


async def main():
    async with Engine(path, agents, limits=Limits(max_rounds=300)) as engine:
        if engine.log.head("s") is None:
            await (await engine.create("s")).send("go")
        head = engine.log.head("s").seq
        os.write(1, b"%d\\n" % head)
        if when == "any time":
            for n in range(10_000):
                os.write(1, b"%d\\n" % n)
                await engine.fork("s", head - 1, f"{name}{n}")
        writer = engine.log._writer
        commit = writer._commit

        def dying(batch, **how):
            if any(job.rows for job in batch):
                if when == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                commit(batch, **how)
                os.kill(os.getpid(), signal.SIGKILL)
            return commit(batch, **how)

        writer._commit = dying
        await engine.fork("s", head - 1, name)


asyncio.run(main())
"""


def forks(path: Path) -> dict[str, int]:
    """How many rows each session but the parent has."""
    with SQLiteLog(path) as log:
        found = {}
        for name in log.session_ids():
            head = log.head(name)
            assert head is not None
            if name != "s":
                found[name] = head.seq
        return found


@pytest.mark.field(86)
@pytest.mark.parametrize(("when", "there"), [("before", False), ("after", True)])
def test_a_kill_at_the_commit_leaves_all_of_a_fork_or_nothing(tmp_path: Path, when: str, there: bool) -> None:
    path = tmp_path / "log.db"
    process = child(_FORKS, str(path), when, "f")
    said, _ = process.communicate()
    assert process.returncode == -9
    assert forks(path) == ({"f": int(said)} if there else {})
    assert (integrity(path), verify(path).ok) == (["ok"], True)


@pytest.mark.field(86)
def test_kills_at_any_time_leave_whole_forks_only_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    made = 0
    for life in range(4):
        process = child(_FORKS, str(path), "any time", f"f{life}-")
        assert process.stdout is not None
        head = int(process.stdout.readline())
        for _ in range(2 + 3 * life):
            assert process.stdout.readline()
        kill(process)
        found = forks(path)
        assert set(found.values()) <= {head}
        made = len(found)
    assert made >= 10
    assert (integrity(path), verify(path).ok) == (["ok"], True)
