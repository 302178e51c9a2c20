"""A process dies at every point between a model's words and their effects, and another one goes on from the log."""

import itertools
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.crash.child import Kill
from tests.crash.harness import KILLED, ROOT, Case, Nurseries, environment, kinds, of_kind, story
from turnlog.fsm.events import Row

WORDS = ("again", "committed", "give up", "timer")
NORMAL: dict[str, tuple[Case, list[Row]]] = {}


def undisturbed(folder: Path, nurseries: Nurseries, scene: str) -> tuple[Case, list[Row]]:
    """A run that nobody disturbs, made once per scene."""
    if scene not in NORMAL:
        case = Case(folder / "undisturbed", nurseries, scene)
        case.finished(kill=Kill("append", 10_000))
        case.sound()
        NORMAL[scene] = case, case.rows()
    return NORMAL[scene]


def appends(case: Case) -> int:
    """How many appends the undisturbed run made."""
    (line,) = (line for line in (case.folder / "out1").read_text().splitlines() if line.startswith("appends"))
    return int(line.split()[1])


class Death:
    """What a killed life left behind."""

    def __init__(self, case: Case) -> None:
        case.sound()
        self.rows = case.rows()
        self.counts = Counter(key for key, _, _ in case.effects())
        self.returned = {e.call_id for e in of_kind(self.rows, "tool_returned")}
        started = {e.call_id: e for e in of_kind(self.rows, "tool_started")}
        self.open = {call_id for call_id in started if call_id not in self.returned}
        self.unknown = {call_id for call_id in self.open if not started[call_id].idempotent}


def judge(case: Case, death: Death, normal: list[Row], word: str) -> None:
    """The life after the death went on as if nothing had been, but for the calls whose outcome nobody knows."""
    case.sound()
    case.sparing()
    rows = case.rows()
    assert rows[: len(death.rows)] == death.rows
    asked = {e.call_id: e.request_id for e in of_kind(rows, "approval_requested") if e.why == "outcome_unknown"}
    assert set(asked) == death.unknown, "a person is asked about exactly the calls that were cut off"
    hidden = set() if word == "again" else death.unknown
    assert story(rows, hidden) == story(normal, {_same(rows, normal, call_id) for call_id in hidden})
    counts = Counter(key.partition(":")[2] for key, _, _ in case.effects())
    for call in (call for event in of_kind(rows, "tools_called") for call in event.calls):
        before = death.counts[f"s0:{call.id}"]
        more = call.id not in death.returned and call.tool != "burn"
        if call.id in death.unknown:
            more = word == "again"
        assert counts[call.id] == before + more, f"{call.tool} took effect {counts[call.id]} times"
    for event in of_kind(rows, "approval_resolved"):
        if event.request_id in asked.values():
            _settled(rows, event, word)


def _settled(rows: list[Row], event: Any, word: str) -> None:
    (result,) = (e for e in of_kind(rows, "tool_returned") if e.call_id == event.call_id)
    outcome, actor, returned = {
        "again": ("approved", "person:ann", "ok"),
        "committed": ("committed", "person:ann", "ok"),
        "give up": ("denied", "person:ann", "outcome_unknown"),
        "timer": ("expired", "timer", "outcome_unknown"),
    }[word]
    assert (event.outcome, event.actor, result.outcome) == (outcome, actor, returned)
    if word == "committed":
        assert result.content == "a person saw that it happened"


def _same(rows: list[Row], normal: list[Row], call_id: str) -> str:
    mine, other = ([c.id for e in of_kind(one, "tools_called") for c in e.calls] for one in (rows, normal))
    return str(other[mine.index(call_id)])


def points(scene: str) -> dict[str, Kill]:
    """The five kill points of a scene with calls; a free tool is started in the commit of the reply."""
    tool = {"gated": "pay", "free": "look", "idempotent": "note", "round": "pay"}[scene]
    found = {
        "K1 model reply durable": Kill("append", 1, "after", "tools_called"),
        "K3 started, no effect": Kill("tool", 1, "before", tool),
        "K3 start durable": Kill("append", 1, "after", "tool_started"),
        "K4 effect, no result": Kill("tool", 1, "after", tool),
        "K4 result not committed": Kill("append", 1, "before", "tool_returned"),
        "K5 result durable": Kill("append", 1, "after", "tool_returned"),
        "K5 next model call": Kill("model", 2),
    }
    if scene in ("gated", "round"):
        found["K2 decision durable"] = Kill("append", 1 + (scene == "round"), "after", "approval_resolved")
        found["K2 start not committed"] = Kill("append", 1, "before", "tool_started")
    return found


@pytest.mark.accept(65)
@pytest.mark.field(100)
@pytest.mark.parametrize("scene", ["gated", "free", "idempotent", "round"])
def test_killed_at_each_point_a_session_goes_on_and_repeats_nothing_unasked(
    scene: str, tmp_path: Path, nurseries: Nurseries
) -> None:
    _, normal = undisturbed(tmp_path, nurseries, scene)

    def tried(given: tuple[tuple[str, Kill], str]) -> int:
        (point, kill), word = given
        case = Case(tmp_path / f"{point} {word}".replace(" ", "_"), nurseries, scene)
        case.killed(kill)
        death = Death(case)
        case.finished(word=word, zone="Asia/Kolkata")
        judge(case, death, normal, word)
        if point.startswith("K2"):
            assert not death.unknown, "a decision is durable alone, before anything starts by it"
            gated = [e for e in of_kind(case.rows(), "approval_requested") if e.why == "gated"]
            assert len(gated) == len(of_kind(normal, "approval_requested")), "an approved call was asked about again"
        return len(death.unknown)

    unknown = nurseries.each(tried, itertools.product(points(scene).items(), WORDS))
    assert (max(unknown) > 0) == (scene != "idempotent"), "the kills did not reach what they are for"


@pytest.mark.accept(65)
@pytest.mark.field(4)
@pytest.mark.field(50)
@pytest.mark.field(52)
@pytest.mark.parametrize("scene", ["whole", "failing", "round"])
def test_killed_around_each_commit_of_a_conversation_the_log_ends_the_same(
    scene: str, tmp_path: Path, nurseries: Nurseries
) -> None:
    first, normal = undisturbed(tmp_path, nurseries, scene)

    def tried(given: tuple[int, str]) -> None:
        nth, when = given
        case = Case(tmp_path / f"{nth}{when}", nurseries, scene)
        case.killed(Kill("append", nth, when))
        death = Death(case) if case.rows() else None
        case.finished(zone="America/St_Johns")
        if death is None:
            assert (nth, when) == (1, "before")
            case.sound()
            assert story(case.rows()) == story(normal)
        else:
            judge(case, death, normal, "again")

    nurseries.each(tried, itertools.product(range(1, appends(first) + 1), ("before", "after")))


@pytest.mark.accept(65)
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_again_while_it_recovers_a_session_still_goes_on(
    when: str, tmp_path: Path, nurseries: Nurseries
) -> None:
    """Each life dies at its first commit after the restart, three times over, before one is left alone."""
    first, normal = undisturbed(tmp_path, nurseries, "whole")

    def tried(nth: int) -> None:
        case = Case(tmp_path / str(nth), nurseries, "whole")
        case.killed(Kill("append", nth, "after"))
        for _ in range(3):
            if case.rows()[-1].state == "terminated":
                break
            case.killed(Kill("append", 1, when))
            case.sound()
        death = Death(case)
        case.finished()
        case.sound()
        case.sparing()
        assert story(case.rows()) == story(normal)
        assert len(of_kind(case.rows(), "session_terminated")) == 1
        assert all(e.attempt <= 5 for e in of_kind(case.rows(), "tool_started"))
        assert death.rows == case.rows()[: len(death.rows)]

    nurseries.each(tried, range(1, appends(first) + 1))


@pytest.mark.accept(65)
@pytest.mark.field(37)
def test_a_new_interpreter_in_another_time_zone_goes_on_too(tmp_path: Path, nurseries: Nurseries) -> None:
    """The other tests fork their lives from a warm process; this one pays for real starts."""
    import json

    _, normal = undisturbed(tmp_path, nurseries, "gated")
    case = Case(tmp_path / "case", nurseries, "gated")

    def life(**more: Any) -> int:
        job = json.dumps(asdict(case.job(**more)))
        with case.out().open("w") as out:
            command = [sys.executable, "-m", "tests.crash.child", job]
            return subprocess.run(command, cwd=ROOT, env=environment(), stdout=out, check=False).returncode

    assert life(kill=Kill("tool", 1, "after", "pay")) == KILLED
    death = Death(case)
    assert life(word="committed", zone="Pacific/Auckland") == 0
    judge(case, death, normal, "committed")
    assert len(case.effects()) == 1


@pytest.mark.accept(65)
@pytest.mark.parametrize(
    ("state", "scene", "kill", "stop"),
    [
        ("interrupt", "gated", Kill("end"), False),
        ("success", "gated", Kill("model", 1), False),
        ("error", "broken", Kill("end"), True),
        ("awaiting_approval", "gated", Kill("end"), True),
        ("terminated", "whole", Kill("end"), False),
    ],
)
def test_killed_in_each_of_the_five_states_a_session_stands_where_it_stood(
    state: str, scene: str, kill: Kill, stop: bool, tmp_path: Path, nurseries: Nurseries
) -> None:
    _, normal = undisturbed(tmp_path, nurseries, scene)
    case = Case(tmp_path / "case", nurseries, scene)
    case.killed(kill, stop=stop)
    death = Death(case)
    assert death.rows[-1].state == state
    if state == "success":
        case.finished()
    else:
        case.finished(stop=True)
        fresh = case.rows()[len(death.rows) :]
        assert kinds(fresh) == (["session_resumed"] if state == "awaiting_approval" else [])
        case.finished()
    judge(case, death, normal, "again")
