"""The invariants on the real engine and the real log, over random conversations that go on through four engines."""

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from tests.engine.support import World, hold_commits, sent
from turnlog.engine.models.scripted import say
from turnlog.fsm import Session, pending, replay
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.session import SnapshotOf
from turnlog.store import SQLiteLog
from turnlog.store.base import code_version
from turnlog.store.verify import verify

from .live import Story, Teller, told

STORIES = range(10)
V = TypeVar("V", bound=ev.EventBase)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> list[Story]:
    """The same ten stories for all tests of this file."""
    return asyncio.run(told(tmp_path_factory.mktemp("stories"), STORIES))


def of(story: Story, kind: type[V]) -> list[V]:
    """The events of one kind."""
    return [row.event for row in story.rows if isinstance(row.event, kind)]


def test_the_stories_hold_what_the_invariants_are_about(stories: list[Story]) -> None:
    kinds = {row.event.kind for story in stories for row in story.rows}
    outcomes = {one.outcome for story in stories for one in of(story, ev.ApprovalResolved)}
    assert kinds >= {"session_resumed", "tool_started", "tool_returned", "turn_failed", "input_refused"}
    assert outcomes >= {"approved", "denied"}
    assert sum(len(story.acts) for story in stories) > 50
    assert any(one.why == "outcome_unknown" for story in stories for one in of(story, ev.ApprovalRequested))


def test_invariant_01_a_session_is_the_fold_of_its_rows_with_a_snapshot_and_without(stories: list[Story]) -> None:
    for story in stories:
        folded = replay(story.rows)
        with SQLiteLog(story.path) as log:
            log.put_snapshot("s", 1, story.rows[0].hash, "not a session")
            assert log.drop_snapshots().result() >= 0
            assert replay(log.read("s", 0, 5000)) == folded
        assert story.live[max(story.live)] == replay(story.rows, to=max(story.live))


def test_invariant_02_what_is_heard_or_acted_on_is_durable(stories: list[Story]) -> None:
    for story in stories:
        assert story.unheard == []
        for act in story.acts:
            starts = [row for row in act.durable if isinstance(row.event, ev.ToolStarted)]
            assert act.call_id in {row.event.call_id for row in starts if isinstance(row.event, ev.ToolStarted)}
        for one in story.told:
            assert one.durable >= one.outcome.seq


async def test_invariant_02_a_model_is_not_asked_before_the_message_is_durable(tmp_path: Path) -> None:
    world = World(tmp_path)
    agent = world.agent(say("hello"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        there, go = hold_commits(engine)
        saying = asyncio.create_task(c.send("hi"))
        await there.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert sent(agent) == []
        go()
        assert (await saying).text == "hello"


def test_invariant_02_a_commit_reaches_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    with SQLiteLog(tmp_path / "log.db") as log:
        mode = log._writer._db.execute("PRAGMA journal_mode").fetchone()
        sync = log._writer._db.execute("PRAGMA synchronous").fetchone()
    assert (mode, sync) == (("wal",), (2,))  # 2 is FULL


def test_invariant_03_seq_is_contiguous_and_rows_are_heard_in_order(stories: list[Story]) -> None:
    for story in stories:
        assert [row.seq for row in story.rows] == list(range(1, len(story.rows) + 1))
        for heard in filter(None, story.heard):
            assert heard == story.rows[heard[0].seq - 1 : heard[0].seq - 1 + len(heard)]


def test_invariant_04_every_history_that_a_model_was_sent_is_valid(stories: list[Story]) -> None:
    assert sum(story.completions for story in stories) > 50
    assert [what for story in stories for what in story.history] == []


def test_invariant_05_no_call_acts_twice_without_a_word_unless_its_tool_may_be_repeated(stories: list[Story]) -> None:
    for story in stories:
        calls = {call.id: call for called in of(story, ev.ToolsCalled) for call in called.calls}
        unknown = {one.request_id for one in of(story, ev.ApprovalRequested) if one.why == "outcome_unknown"}
        words = [one.call_id for one in of(story, ev.ApprovalResolved)
                 if one.request_id in unknown and one.outcome == "approved"]  # fmt: skip
        acts = [act.call_id for act in story.acts]
        for call_id in set(acts):
            assert calls[call_id].tool == "put" or acts.count(call_id) <= 1 + words.count(call_id)


def test_invariant_06_a_tool_gets_the_arguments_that_were_approved(stories: list[Story]) -> None:
    for story in stories:
        approved = {call.id: call.digest for called in of(story, ev.ToolsCalled) for call in called.calls}
        approved |= {one.call_id: one.digest for one in of(story, ev.ApprovalResolved) if one.outcome == "approved"}
        for act in story.acts:
            assert digest(act.arguments) == approved[act.call_id]


def test_invariant_07_nothing_that_was_said_decided_anything(stories: list[Story]) -> None:
    for story in stories:
        words = [one.given for one in story.told if isinstance(one.given, inp.Decide) and one.outcome.refusal is None]
        for one in of(story, ev.ApprovalResolved):
            if one.via == "person" and one.outcome != "cancelled":
                assert one.request_id in {word.request_id for word in words}
            else:
                assert (one.via, one.outcome) in {("timer", "expired"), ("person", "cancelled")}
        permits = {one.request_id for one in of(story, ev.ApprovalResolved) if one.outcome == "approved"}
        tools = {call.id: call.tool for called in of(story, ev.ToolsCalled) for call in called.calls}
        for start in of(story, ev.ToolStarted):
            assert start.permit in permits or (start.permit == "free" and tools[start.call_id] != "pay")


def test_invariant_08_each_word_is_a_row_whether_it_won_or_lost(stories: list[Story]) -> None:
    for story in stories:
        sent = [one for one in story.told if isinstance(one.given, inp.Decide)]
        refused = [one for one in of(story, ev.InputRefused) if one.input == "decide"]
        accepted = [one for one in of(story, ev.ApprovalResolved) if one.via == "person" and one.outcome != "cancelled"]
        assert len(sent) == len(refused) + len(accepted)
        assert len(refused) == len([one for one in sent if one.outcome.refusal is not None])


def test_invariant_09_a_refusal_moves_nothing_and_says_why(stories: list[Story]) -> None:
    refused = [(story, one) for story in stories for one in story.told if one.outcome.refusal is not None]
    assert len(refused) > 30
    for story, one in refused:
        assert one.outcome.refusal is not None
        assert one.outcome.refusal.why
        row = story.rows[one.outcome.seq - 1]
        assert row.event.kind == "input_refused"
        before, after = replay(story.rows, to=row.seq - 1), replay(story.rows, to=row.seq)
        assert after._replace(seq=before.seq) == before
        assert pending(after) == pending(before)


def test_invariant_10_replay_makes_nothing_happen_and_ends_in_the_live_state_and_hash(stories: list[Story]) -> None:
    for story in stories:
        acts, completions = len(story.acts), story.completions
        for seq in range(len(story.rows) + 1):
            session = replay(story.rows, Session(id="s"), to=seq)
            assert seq == 0 or session.state is story.rows[seq - 1].state
            if seq in story.live:
                assert session == story.live[seq]
        report = verify(story.path, {"s": (len(story.rows), story.rows[-1].hash.hex())})
        assert report.ok
        with SQLiteLog(story.path) as log:
            assert log.read("s", 0, 5000) == story.rows
        assert (len(story.acts), story.completions) == (acts, completions)


@pytest.mark.parametrize("kept", ["none", "good", "of another row", "no session"])
async def test_invariant_01_a_snapshot_is_only_a_cache(tmp_path: Path, kept: str) -> None:
    teller = Teller(tmp_path, 3)
    story = await teller.tell()
    half = len(story.rows) // 2
    good = replay(story.rows, to=half)
    body = SnapshotOf.dump_json(good if kept == "good" else good._replace(owner="mallory")).decode()
    with SQLiteLog(story.path) as log:
        await asyncio.wrap_future(log.drop_snapshots())
        if kept != "none":
            mark = story.rows[half - (kept != "of another row")].hash
            log.put_snapshot("s", half, mark, "{}" if kept == "no session" else body, code_version())
            await asyncio.wrap_future(log.put_blob(b"snapshots ride in the next commit"))
    async with teller.engine() as engine:
        session = (await engine.hub("s")).session
        assert session == replay(engine.log.read("s", 0, 5000))
        assert session.seq >= len(story.rows)


@pytest.mark.parametrize("forged", [False, True])
async def test_a_snapshot_that_says_more_than_its_rows_is_named(tmp_path: Path, forged: bool) -> None:
    story = await Teller(tmp_path, 3).tell()
    half = len(story.rows) // 2
    good = replay(story.rows, to=half)
    claim = good._replace(owner="mallory") if forged else good
    with SQLiteLog(story.path) as log:
        await asyncio.wrap_future(log.drop_snapshots())
        mark = story.rows[half - 1].hash
        log.put_snapshot("s", half, mark, SnapshotOf.dump_json(claim).decode(), code_version())
        await asyncio.wrap_future(log.put_blob(b"snapshots ride in the next commit"))
    told = [(one.session, one.seq, "snapshot" in one.what) for one in verify(story.path).problems]
    assert told == ([("s", half, True)] if forged else [])
