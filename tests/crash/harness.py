"""Starts lives, kills them, and judges what they left behind."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from tests.crash.child import Job, Kill
from turnlog.fsm.events import Row
from turnlog.store import LogReader, verify

ROOT = Path(__file__).resolve().parents[2]
KILLED = -9
T = TypeVar("T")
R = TypeVar("R")


def environment() -> dict[str, str]:
    """What a child needs to find the packages."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


class Nursery:
    """One process that forks lives, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.nursery"],
            cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def start(self, job: Job, out: Path) -> int:
        """Begin a life; the answer is its pid."""
        assert self._process.stdin is not None
        order = {"job": json.dumps(asdict(job)), "out": str(out)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._answer()["pid"])

    def wait(self) -> int:
        """The exit code of the life; -9 when it was killed."""
        return int(self._answer()["code"])

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Nurseries:
    """Two nurseries, so that two lives run at a time."""

    def __init__(self, count: int = 2) -> None:
        self._all = [Nursery() for _ in range(count)]
        self._free: SimpleQueue[Nursery] = SimpleQueue()
        for one in self._all:
            self._free.put(one)
        self._pool = ThreadPoolExecutor(count)

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Do this for every item, two at a time; the first failure is raised."""
        return list(self._pool.map(work, items))

    def live(self, job: Job, out: Path) -> int:
        """One life from start to end."""
        nursery = self._free.get()
        try:
            nursery.start(job, out)
            return nursery.wait()
        finally:
            self._free.put(nursery)

    def hunted(self, job: Job, out: Path, kill: Callable[[int], None]) -> int:
        """One life with somebody after it: `kill` gets the pid."""
        nursery = self._free.get()
        try:
            hunter = threading.Thread(target=kill, args=(nursery.start(job, out),))
            hunter.start()
            code = nursery.wait()
            hunter.join()
            return code
        finally:
            self._free.put(nursery)

    def close(self) -> None:
        """End everything."""
        self._pool.shutdown()
        for one in self._all:
            one.close()


@dataclass
class Case:
    """One database, its ledger, and the output of all lives that worked on it."""

    folder: Path
    nurseries: Nurseries
    scene: str
    lives: int = 0

    @property
    def db(self) -> Path:
        return self.folder / "log.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def job(self, **more: Any) -> Job:
        """A job on this database."""
        self.folder.mkdir(parents=True, exist_ok=True)
        return Job(str(self.db), str(self.ledger), self.scene, **more)

    def out(self) -> Path:
        """Where the next life writes."""
        self.lives += 1
        return self.folder / f"out{self.lives}"

    def killed(self, kill: Kill, **more: Any) -> None:
        """A life that must end by its kill."""
        out = self.out()
        code = self.nurseries.live(self.job(kill=kill, **more), out)
        assert code == KILLED, f"{kill} was never reached: {out.read_text()}"

    def finished(self, **more: Any) -> None:
        """A life that must reach the end."""
        out = self.out()
        code = self.nurseries.live(self.job(**more), out)
        assert code == 0, out.read_text()
        assert out.read_text().endswith("end\n"), out.read_text()

    def rows(self, session: str = "s0") -> list[Row]:
        """Every row of a session."""
        reader = LogReader(self.db)
        try:
            found: list[Row] = []
            while page := reader.read(session, len(found)):
                found += page
            return found
        finally:
            reader.close()

    def effects(self) -> list[tuple[str, str, str]]:
        """Key, tool and arguments of every true effect, in order."""
        if not self.ledger.exists():
            return []
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        return [(key, name, json.dumps(arguments, sort_keys=True)) for key, name, arguments in lines]

    def told(self) -> list[list[str]]:
        """Every acknowledgement of every life."""
        lines = [
            line.split() for n in range(self.lives) for line in (self.folder / f"out{n + 1}").read_text().splitlines()
        ]
        return [line for line in lines if line[0] in ("row", "done")]

    def sound(self) -> None:
        """Nothing acknowledged is lost, and the file is whole."""
        db = sqlite3.connect(self.db)
        try:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("SELECT count(*) FROM events WHERE NOT json_valid(body)").fetchall() == [(0,)]
            gaps = "SELECT session FROM events GROUP BY session HAVING min(seq) <> 1 OR max(seq) <> count(*)"
            assert db.execute(gaps).fetchall() == []
            stored = {(s, n): h.hex() for s, n, h in db.execute("SELECT session, seq, hash FROM events")}
        finally:
            db.close()
        report = verify(self.db)
        assert report.ok, report.problems
        for kind, session, seq, what in self.told():
            assert (session, int(seq)) in stored, f"acknowledged and lost: {kind} {session} {seq} {what}"
            if kind == "row":
                assert stored[session, int(seq)] == what, f"acknowledged and another: {session} {seq}"

    def sparing(self, session: str = "s0") -> None:
        """No call took effect more often than was allowed: once, and once more for each time a person said so.

        A call of an idempotent tool is not counted.
        """
        rows = self.rows(session)
        asked = {e.request_id: e.call_id for e in of_kind(rows, "approval_requested") if e.why == "outcome_unknown"}
        again = Counter(
            asked[e.request_id]
            for e in of_kind(rows, "approval_resolved")
            if e.request_id in asked and e.outcome == "approved" and e.via == "person"
        )
        counted = Counter(key for key, name, _ in self.effects() if name != "note" and key.startswith(f"{session}:"))
        for key, count in counted.items():
            assert count <= 1 + again[key.partition(":")[2]], f"{key} took effect {count} times: {self.effects()}"


def of_kind(rows: Sequence[Row], kind: str) -> list[Any]:
    """The events of one kind."""
    return [row.event for row in rows if row.event.kind == kind]


def kinds(rows: Sequence[Row]) -> list[str]:
    """The kinds, in order."""
    return [row.event.kind for row in rows]


def story(rows: Sequence[Row], hidden: Collection[str] = ()) -> list[tuple[Any, ...]]:
    """What was said and done, without what may differ between a run that was cut off and one that was not.

    Left out: ids, times, digests of requests with their seqs, session_resumed, everything about an unknown outcome,
    and the content of results of `hidden` calls. Calls are named by their place. Starts and results of one round are
    put in the order of its calls.
    """
    unknown = {e.request_id for e in of_kind(rows, "approval_requested") if e.why == "outcome_unknown"}
    place = {call.id: f"call {n}" for n, call in enumerate(c for e in of_kind(rows, "tools_called") for c in e.calls)}
    told: list[tuple[Any, ...]] = []
    skip_settled = False
    for row in rows:
        event = row.event
        if getattr(event, "request_id", None) in unknown or event.kind == "session_resumed":
            skip_settled = skip_settled or event.kind == "approval_requested"
            continue
        if event.kind == "approvals_settled" and skip_settled:
            skip_settled = False
            continue
        if event.kind == "tool_started" and event.attempt > 1:
            continue
        plain = event.model_dump(
            mode="json",
            exclude={
                "message_id",
                "request_id",
                "call_id",
                "key",
                "request",
                "decided_at",
                "deadline",
                "duration_ms",
                "calls",
            },
        )
        if event.kind == "tool_started" and event.permit != "free":
            plain["permit"] = "a request"
        if event.kind == "tool_returned" and event.call_id in hidden:
            plain = {"kind": "tool_returned"}
        told.append((event.kind, place.get(getattr(event, "call_id", ""), ""), json.dumps(plain, sort_keys=True)))
    return _ordered(told)


def _ordered(told: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    ordered: list[tuple[Any, ...]] = []
    run: list[tuple[Any, ...]] = []
    for one in told:
        if one[0] in ("tool_started", "tool_returned"):
            run.append(one)
            continue
        ordered += [*sorted(run, key=lambda r: (r[0] == "tool_returned", r[1])), one]
        run = []
    return ordered + run
