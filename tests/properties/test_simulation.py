"""Conversations with crashes, resends, late results, clock jumps and replaced owners, in one process without IO.

After each step every invariant is checked. A failing run prints its steps and the seed of each.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from turnlog.fsm import inputs as inp
from turnlog.fsm.errors import Fenced

from . import moves
from .checks import INVARIANTS
from .world import World

seeds = st.integers(0, 2**32)
deaths = st.sampled_from(["", "", "", "before", "after"])


class Simulation(RuleBasedStateMachine):
    """One world and what may happen in it."""

    world: World

    @initialize(seed=seeds)
    def start(self, seed: int) -> None:
        self.world = World(seed)

    @rule(these=st.lists(seeds, min_size=1, max_size=6))
    def goes_on(self, these: list[int]) -> None:
        for seed in these:
            self.world.go_on(seed)

    @rule(these=st.lists(seeds, min_size=6, max_size=16))
    def goes_on_for_a_while(self, these: list[int]) -> None:
        self.goes_on(these)

    @rule(seed=seeds, die=deaths)
    def work(self, seed: int, die: str) -> None:
        self.world.work(seed, die)

    @rule(seed=seeds, die=deaths)
    def command(self, seed: int, die: str) -> None:
        self.world.command(moves.any_command(self.world.mix(seed), self.world.owner.session), die)

    @rule(seed=seeds)
    def false_result(self, seed: int) -> None:
        """A result that nobody may wait for, of an effect that was never performed."""
        result = moves.any_result(self.world.mix(seed), self.world.owner.session)
        if not isinstance(result, inp.Resume):  # takes a lease; a crash does that
            self.world.put(result)

    @rule(what=st.sampled_from(["resend", "late result", "clock", "crash", "replaced owner"]), seed=seeds)
    def disaster(self, what: str, seed: int) -> None:
        match what:
            case "resend":
                self.world.resend(seed)
            case "late result":
                self.world.late(seed)
            case "clock":
                self.world.clock.jump((-3600.0, -0.04, 0.0, 1.0, 121.0, 3600.0)[seed % 6])
            case "crash":
                self.world.crash()
            case _:
                before = len(self.world.log.rows)
                assert self.world.zombie(seed) is Fenced
                assert len(self.world.log.rows) == before

    @invariant()
    def hold(self) -> None:
        for check in INVARIANTS:
            check(self.world)


TestSimulation = Simulation.TestCase
# Making a failing run small takes minutes: set TURNLOG_SHRINK=1 for that.
PHASES = tuple(Phase) if os.environ.get("TURNLOG_SHRINK") else (Phase.generate,)
TestSimulation.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    phases=PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
