"""What a durable turn costs: a person's message, one tool call, its result, the reply.

    python bench/turn.py [turns] [folder]

Three conversations are played in turns about, block by block, so that a busy machine slows all of them alike, and the
CPU time of all threads is compared: one on a hand-written log of plain sqlite3 (six rows and four commits a turn as
well, but no machine, no hash chain, no lease, no thread), a young one on the engine, from turn 100 on, and an old one
on the same engine, in its last tenth.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from turnlog.engine import Agent, Engine
from turnlog.engine.models.base import CallMade, ModelCall, ModelReply
from turnlog.engine.models.scripted import ScriptedModel
from turnlog.engine.tools import tool
from turnlog.store.driver import sqlite3

ASKED, ANSWER = "u" * 200, "r" * 400
WARM, BLOCK = 100, 20  # turns

Turn = Callable[[], Awaitable[object]]


@tool
async def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


def step(call: ModelCall) -> ModelReply:
    """Call the tool first, then answer; there is no latency to wait for."""
    if call.index % 2 == 0:
        return ModelReply("", (CallMade("look", '{"q": "x"}'),))
    return ModelReply(ANSWER)


class HandWritten:
    """What one would write on an afternoon: rows of JSON, synced with each commit."""

    def __init__(self, path: Path) -> None:
        self.conn = sqlite3.connect(path, isolation_level=None)
        self.conn.execute("PRAGMA journal_mode = WAL")
        self.conn.execute("PRAGMA synchronous = FULL")
        self.conn.execute("CREATE TABLE log (session TEXT, seq INTEGER, body TEXT, PRIMARY KEY (session, seq)) STRICT")
        self.seq = 0

    def append(self, *events: dict[str, object]) -> None:
        """Rows in one transaction."""
        self.conn.execute("BEGIN IMMEDIATE")
        for event in events:
            self.seq += 1
            self.conn.execute("INSERT INTO log VALUES (?, ?, ?)", ("s", self.seq, json.dumps(event)))
        self.conn.execute("COMMIT")

    async def turn(self) -> None:
        """One turn, row by row as the engine has it."""
        self.append({"kind": "message", "by": "person", "text": ASKED})
        self.append({"kind": "call", "tool": "look", "arguments": {"q": "x"}}, {"kind": "started", "tool": "look"})
        self.append({"kind": "result", "text": await look.function("x")})
        self.append({"kind": "message", "by": "model", "text": ANSWER}, {"kind": "rest"})


async def cpu(turn: Turn, turns: int) -> float:
    """Milliseconds of CPU a turn."""
    before = time.process_time()
    for _ in range(turns):
        await turn()
    return (time.process_time() - before) / turns * 1e3


async def measure(folder: Path, turns: int) -> None:
    """Print the ratios."""
    by_hand = HandWritten(folder / "hand.db")
    async with Engine(folder / "log.db", [Agent("@agent", ScriptedModel(step, stream=False), tools=[look])]) as engine:
        young, old = await engine.create("young"), await engine.create("old")
        ways: dict[str, Turn] = {
            "by hand": by_hand.turn,
            "young": lambda: young.send(ASKED),
            "old": lambda: old.send(ASKED),
        }
        last_tenth = turns // 10
        await cpu(ways["old"], turns - last_tenth)
        await cpu(ways["young"], WARM)
        await cpu(ways["by hand"], WARM)
        before = engine.log.stats.commits
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(last_tenth // BLOCK):
            for name, turn in ways.items():
                spent[name].append(await cpu(turn, BLOCK))
        commits = (engine.log.stats.commits - before) / (2 * BLOCK * (last_tenth // BLOCK))
    by_hand.conn.close()
    print(f"{median(spent['young']):.2f} ms CPU a turn, {median(spent['by hand']):.2f} ms by hand")
    print(f"engine / by hand: {ratio(spent['young'], spent['by hand']):.1f} ({commits:.2f} commits a turn)")
    print(f"turn {turns} / turn {WARM}: {ratio(spent['old'], spent['young']):.2f}")


def ratio(these: list[float], those: list[float]) -> float:
    """The median of the ratios of blocks that were played next to each other."""
    return median(one / other for one, other in zip(these, those, strict=True))


def main() -> None:
    """Measure in a folder that goes away."""
    turns = max(400, int(sys.argv[1])) if len(sys.argv) > 1 else 3000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as folder:
        asyncio.run(measure(Path(folder), turns))


if __name__ == "__main__":
    main()
