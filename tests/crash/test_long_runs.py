"""Many deaths on one file."""

import itertools
import os
import random
import signal
from pathlib import Path

import pytest

from tests.crash.child import Kill
from tests.crash.harness import KILLED, Case, Nurseries, of_kind
from turnlog.fsm.session import pair, replay

# The full number of the field case takes a minute or two; a run of every day takes fewer.
KILLS = int(os.environ.get("TURNLOG_CRASH_KILLS", "15"))


def lines_of(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


@pytest.mark.field(106)
def test_killed_at_random_under_load_no_acknowledged_row_is_lost(tmp_path: Path, nurseries: Nurseries) -> None:
    case = Case(tmp_path, nurseries, "load")
    chance = random.Random(106)
    for _ in range(KILLS):
        out, wanted = case.out(), chance.randint(1, 12)

        def hunt(pid: int, out: Path = out, wanted: int = wanted) -> None:
            """Kill once so much was told; where the four sessions then stand is up to the machine."""
            while lines_of(out) < wanted:
                os.sched_yield()
            os.kill(pid, signal.SIGKILL)

        assert nurseries.hunted(case.job(sessions=4), out, hunt) == KILLED
        case.sound()
    case.finished(sessions=4)
    case.sound()
    for session in ("s0", "s1", "s2", "s3"):
        case.sparing(session)
        rows = case.rows(session)
        assert rows[-1].state == "interrupt"
        answers = [e.text for e in of_kind(rows, "message_added") if e.by == "model"]
        assert answers == [f"answer {n}" for n in range(60)]


@pytest.mark.field(4)
def test_what_was_acknowledged_a_moment_before_the_end_is_there(tmp_path: Path, nurseries: Nurseries) -> None:
    """The process leaves in the very instruction after its acknowledgement, a hundred times."""

    def tried(place: int) -> None:
        case = Case(tmp_path / str(place), nurseries, "load")
        for nth in range(50):
            code = nurseries.live(case.job(kill=Kill("ack", 1 + nth % 3)), case.out())
            assert code == 137
            case.sound()
        assert len(case.told()) >= 50

    nurseries.each(tried, range(2))


@pytest.mark.field(30)
def test_two_agents_that_talk_for_thousands_of_rounds_are_killed_and_keep_count(
    tmp_path: Path, nurseries: Nurseries
) -> None:
    case = Case(tmp_path, nurseries, "pair")
    chance = random.Random(30)
    for _ in range(3):
        case.killed(Kill("append", chance.randint(500, 1500)))
        rows = case.rows()
        said = len(of_kind(rows, "message_added"))
        assert replay(rows).rounds == {pair("left", "right"): said}
    case.finished()
    case.sound()
    rows = case.rows()
    assert (rows[-1].event.kind, rows[-1].state) == ("session_terminated", "terminated")
    assert of_kind(rows, "session_terminated")[0].reason == "max_rounds"
    assert len(of_kind(rows, "message_added")) == 5000
    speakers = [e.sender for e in of_kind(rows, "message_added")]
    assert all(one != other for one, other in itertools.pairwise(speakers))
