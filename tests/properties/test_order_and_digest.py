"""Invariants that live in the log and at its edge: order and fencing, arguments read back, losing words."""

import asyncio
import json
import sqlite3
from concurrent.futures import Future
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.support import World, of_kind, rows
from turnlog.engine import Conversation
from turnlog.engine.models.scripted import call, say
from turnlog.engine.notices import Notice, Rows
from turnlog.fsm import Row, State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.effects import RunTool
from turnlog.fsm.errors import CommandReused, CorruptLog, Fenced, StaleVersion
from turnlog.store import Command, Draft, SQLiteLog

KEPT = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
DRAFT = Draft(State.INTERRUPT, 0, "turnlog", ev.InputRefused(code="busy", input="say", why="a row like any other"))


def error_of(answer: "Future[tuple[Row, ...]]") -> type[BaseException] | None:
    """How an append ended."""
    failed = answer.exception(20)
    return None if failed is None else type(failed)


@KEPT
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 1), st.integers(1, 3), st.booleans()), max_size=25))
def test_invariant_03_only_the_newest_owner_appends_and_only_at_the_head(
    tmp_path: Path, steps: list[tuple[int, int, int, bool]]
) -> None:
    name = f"s{Random(str(steps)).getrandbits(64)}"
    with SQLiteLog(tmp_path / "log.db") as log:
        epochs = [log.lease(name, "owner 0").result()]
        count = 0
        for owner, off, width, takes_over in steps:
            if takes_over:
                epochs.append(log.lease(name, f"owner {len(epochs)}").result())
                assert epochs[-1] > epochs[-2]
            epoch = epochs[owner % len(epochs)]
            failed = error_of(log.append(name, max(0, count + off), epoch, [DRAFT] * width))
            if epoch != epochs[-1]:
                assert failed is Fenced
            elif max(0, count + off) != count:
                assert failed is StaleVersion
            else:
                assert failed is None
                count += width
            assert [row.seq for row in log.read(name)] == list(range(1, count + 1))


def test_invariant_03_of_many_appends_at_one_head_one_is_taken(tmp_path: Path) -> None:
    with SQLiteLog(tmp_path / "log.db") as log:
        epoch = log.lease("s", "owner").result()
        answers = [log.append("s", 0, epoch, [DRAFT]) for _ in range(50)]
        assert [error_of(one) for one in answers] == [None, *[StaleVersion] * 49]
        assert len(log.read("s")) == 1


def test_invariant_08_a_command_id_is_used_once_and_never_for_another_content(tmp_path: Path) -> None:
    with SQLiteLog(tmp_path / "log.db") as log:
        epoch = log.lease("s", "owner").result()
        assert error_of(log.append("s", 0, epoch, [DRAFT, DRAFT], Command("c", "x"))) is None
        assert error_of(log.append("s", 2, epoch, [DRAFT], Command("c", "x"))) is not None
        assert error_of(log.append("s", 2, epoch, [DRAFT], Command("c", "y"))) is CommandReused
        assert [row.command_id for row in log.read("s")] == [None, "c"]
        applied = log.applied("s", "c")
        assert applied is not None
        assert applied.seq == 2


# Arguments read back ---------------------------------------------------------------------------


async def asked(world: World, c: Conversation) -> ev.ApprovalRequested:
    """Say something and wait for the first request."""
    turn = await c.send("go on")
    return turn.requests[0]


def tamper(path: Path, kind: str, old: str, new: str) -> int:
    """Change what is stored, as somebody with the file in hands could."""
    with sqlite3.connect(path) as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {name}")
        done = db.execute("UPDATE events SET body = replace(body, ?, ?) WHERE kind = ?", (old, new, kind))
    db.close()
    return done.rowcount


def outcomes(log: SQLiteLog) -> list[str]:
    """How calls ended, as far as the rows can be read."""
    found = [row.event for row in log.read_lenient("s") if isinstance(row, Row)]
    return [event.outcome for event in found if isinstance(event, ev.ToolReturned)]


async def test_invariant_06_arguments_changed_in_the_file_never_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        request = await asked(world, c)
        assert tamper(world.path, "tools_called", ":5", ":500") == 1
        await c.decide(request, "approved")
        await asyncio.wait_for(c.rest(), 20)
        assert world.ledger == []
        assert outcomes(engine.log) == ["error"]


async def test_invariant_06_edited_arguments_changed_in_the_file_never_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        request = await asked(world, c)

        def changes(notice: Notice) -> None:  # as soon as the word is durable, and so before the run
            if isinstance(notice, Rows) and any(row.event.kind == "approval_resolved" for row in notice.rows):
                assert tamper(world.path, "approval_resolved", ":7", ":700") == 1

        c.subscribe(changes)
        await c.decide(request, "approved", arguments={"amount": 7, "to": "A"})
        await asyncio.wait_for(c.rest(), 20)
        assert world.ledger == []
        assert outcomes(engine.log) == ["error"]


async def test_invariant_06_what_runs_is_read_from_the_row_that_allowed_it_and_checked(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        request = await asked(world, c)
        await c.decide(request, "approved", arguments={"amount": 7, "to": "A"})
        await asyncio.wait_for(c.rest(), 20)
        word = next(row for row in rows(c) if isinstance(row.event, ev.ApprovalResolved))
        mark, other = digest({"amount": 7, "to": "A"}), digest({"amount": 9, "to": "A"})
        runner = (await engine.hub("s")).runner

        def run(call_id: str, mark: str) -> RunTool:
            return RunTool("tool:x:1", call_id, "pay", "@agent", 1, "k", {"amount": 9, "to": "A"}, mark, word.seq)

        assert json.loads(runner._allowed(run(request.call_id, mark), None)[1]) == {"amount": 7, "to": "A"}
        for call_id, wanted in ((request.call_id, other), ("another call", mark)):
            with pytest.raises(CorruptLog, match="nothing ran"):
                runner._allowed(run(call_id, wanted), None)


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-(2**70), 2**70), st.text(max_size=20), st.one_of(st.none(), st.integers(0, 2**64)))
def test_invariant_06_what_runs_is_what_was_approved_to_the_last_character(
    tmp_path_factory: pytest.TempPathFactory, amount: int, to: str, edited: int | None
) -> None:
    world = World(tmp_path_factory.mktemp("run"))

    async def pay() -> None:
        async with world.engine(world.agent(call(("pay", {"amount": amount, "to": to})), say("done"))) as engine:
            c = await engine.create("s")
            request = await asked(world, c)
            await c.decide(request, "approved", arguments=None if edited is None else {"amount": edited, "to": to})
            await asyncio.wait_for(c.rest(), 20)

    asyncio.run(pay())
    assert world.ledger == [("pay", amount if edited is None else edited, request_text(to))]


def request_text(text: str) -> str:
    """The text as it enters the log: a lone surrogate is no character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# Senders ---------------------------------------------------------------------------------------


@pytest.mark.field(21)
async def test_a_sender_that_is_cancelled_leaves_its_row_and_an_inbox_that_goes_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.engine(world.agent(say("one done"), say("two done"))) as engine:
        c = await engine.create("s")
        gone = asyncio.create_task(c.say("one"))
        await asyncio.sleep(0)
        gone.cancel()
        turn = await asyncio.wait_for(c.send("two"), 20)
        assert turn.text == "two done"
        assert gone.cancelled()
        said = [row.event.text for row in rows(c) if isinstance(row.event, ev.MessageAdded)]
        assert said == ["one", "one done", "two", "two done"]


# Losing words ----------------------------------------------------------------------------------


@KEPT
@given(st.lists(st.tuples(st.sampled_from(["approved", "denied"]), st.sampled_from("ab")), min_size=2, max_size=12))
def test_invariant_08_of_words_at_the_same_moment_the_first_wins_and_each_loser_is_a_row(
    tmp_path_factory: pytest.TempPathFactory, words: list[tuple[str, str]]
) -> None:
    world = World(tmp_path_factory.mktemp("race"))

    async def race() -> None:
        async with world.engine(world.agent(call(("pay", {"amount": 5, "to": "A"})), say("done"))) as engine:
            c = await engine.create("s")
            one = await asked(world, c)
            outcomes = await asyncio.gather(
                *(c.apply(inp.Decide(one.request_id, one.digest, word, f"person:{who}")) for word, who in words)
            )
            await asyncio.wait_for(c.rest(), 20)
            (resolved,) = of_kind(c, "approval_resolved")
            assert (resolved.outcome, resolved.actor) == (words[0][0], f"person:{words[0][1]}")
            assert [one.refusal is None for one in outcomes] == [True, *[False] * (len(words) - 1)]
            losers = [row for row in rows(c) if row.event.kind == "input_refused"]
            assert [row.actor for row in losers] == [f"person:{who}" for _, who in words[1:]]
            assert [row.seq for row in losers] == [one.seq for one in outcomes[1:]]
            assert len(world.ledger) == (words[0][0] == "approved")

    asyncio.run(race())
