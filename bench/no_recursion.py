"""A conversation of many steps costs at its end what it cost at its beginning: in time, in stack, in memory.

    python bench/no_recursion.py [steps]

Two scripted agents talk to each other; `decide` alone is measured, without a log. Prints CPU microseconds per step for
each tenth, the ratio of the last tenth to the first, and for the last step of each tenth the number of Python calls,
their depth and the size of the session in bytes.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from turnlog.fsm import inputs as inp
from turnlog.fsm.decide import decide, pending
from turnlog.fsm.events import AgentSpec, Limits
from turnlog.fsm.session import Session, SnapshotOf


@dataclass
class Measured:
    """What a run of decisions cost: CPU seconds of each tenth, then Python calls, depth and size of its last step."""

    steps: int
    tenths: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The last tenth as a multiple of the first."""
        return self.tenths[-1] / self.tenths[0]


def begin(steps: int) -> tuple[Session, "itertools.count[int]"]:
    """A session in which a person has just opened the talk of two agents."""
    count = itertools.count()
    session = Session(id="s")
    start = inp.Start(
        "ann",
        (AgentSpec(name="left", model="m"), AgentSpec(name="right", model="m")),
        limits=Limits(max_rounds=steps + 10),
    )
    for given in (start, inp.Say("begin", "person:ann")):
        decision = decide(session, given, 0, lambda prefix: f"{prefix}{next(count)}")
        session = decision.session
    return session, count


def talk(steps: int) -> Measured:
    """Let the two agents answer each other `steps` times."""
    measured = Measured(steps)
    session, count = begin(steps)

    def step() -> None:
        nonlocal session
        (effect,) = pending(session)
        reply = inp.ModelReplied(effect.key, f"m{next(count)}", "word", actor="agent:left")
        session = decide(session, reply, 0, lambda prefix: f"{prefix}{next(count)}").session

    for _ in range(10):
        began = time.process_time()
        for _ in range(steps // 10 - 1):
            step()
        measured.tenths.append(time.process_time() - began)
        calls, depth = traced(step)
        measured.calls.append(calls)
        measured.depths.append(depth)
        measured.sizes.append(len(SnapshotOf.dump_json(session)))
    assert session.step == steps // 10 * 10
    return measured


def traced(step: Callable[[], None]) -> tuple[int, int]:
    """How many Python calls a step makes, and how deep they are nested."""
    calls = depth = deepest = 0

    def watch(_frame: FrameType, event: str, _given: object) -> None:
        nonlocal calls, depth, deepest
        if event == "call":
            calls, depth = calls + 1, depth + 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls, deepest


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    args = parser.parse_args()
    measured = talk(args.steps)
    each = [round(tenth / (args.steps // 10) * 1e6, 2) for tenth in measured.tenths]
    if args.json:
        print(json.dumps({
            "steps": args.steps, "us_per_step": each, "ratio": round(measured.ratio, 3), "calls": measured.calls,
            "depth": measured.depths, "session_bytes": measured.sizes,
        }))  # fmt: skip
        return
    print(f"{args.steps} steps of two agents, decide alone")
    print("tenth   us/step   calls   depth   session bytes")
    for place, row in enumerate(zip(each, measured.calls, measured.depths, measured.sizes, strict=True), 1):
        print(f"{place:5}  {row[0]:8.2f}  {row[1]:6}  {row[2]:6}  {row[3]:14}")
    print(f"last tenth / first tenth = {measured.ratio:.3f} (at most 1.2)")


if __name__ == "__main__":
    main()
