"""What must hold of a fork at every row of random conversations."""

import asyncio
from collections.abc import Callable

import pytest

from tests.fakes import START, Ids
from tests.fsm.validity import complaints
from turnlog.engine.context import rebuild
from turnlog.engine.forks import fork_log
from turnlog.fsm import Session, pending, replay
from turnlog.fsm import events as ev
from turnlog.fsm.effects import RunTool, StartTools
from turnlog.fsm.errors import Misuse
from turnlog.fsm.fork import COPIED
from turnlog.fsm.history import Message, collect, view
from turnlog.store import SQLiteLog, verify
from turnlog.store.audit import audit

from .live import Story, told

STORIES = range(20, 26)


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> list[Story]:
    """Some stories, which the tests do not change but for the forks beside them."""
    return asyncio.run(told(tmp_path_factory.mktemp("stories"), STORIES))


def seen(rows: list[ev.Row]) -> list[Message]:
    """The history as @agent sees it."""
    return view(collect([], rows), "@agent", "USER")


def new_ids() -> Callable[[str], str]:
    """Ids that no story has."""
    ids = Ids()
    return lambda prefix: ids(f"fork_{prefix}")


def forked(log: SQLiteLog, seq: int, ids: Callable[[str], str]) -> tuple[Session, list[ev.Row]] | None:
    """The fork of "s" at a row, and its rows; None where there can be none."""
    name = f"f{seq}"
    try:
        made = fork_log(
            log, "s", seq, name, owner="", actor="", writer="w", code_version="t", now=START, new_id=ids
        )  # fmt: skip
    except Misuse:
        return None
    return made, log.read(name, 0, 5000)


@pytest.mark.field(86)
def test_a_fork_at_any_row_shares_the_history_up_to_there_and_runs_nothing_unasked(stories: list[Story]) -> None:
    made = 0
    for story in stories:
        ids = new_ids()
        with SQLiteLog(story.path) as log:
            before = log.read("s", 0, 5000)
            for seq in range(1, len(before) + 1):
                found = forked(log, seq, ids)
                assert found is not None, "these sessions can be forked anywhere"
                session, rows = found
                made += 1
                assert replay(rows) == session
                first = rows[0].event
                assert isinstance(first, ev.SessionStarted)
                assert first.parent is not None
                at = first.parent.seq
                assert (first.parent.session, first.parent.hash) == ("s", before[at - 1].hash.hex())
                assert all(row.event.kind == "tool_returned" for row in before[seq:at])
                assert seen(rows) == seen(before[:at])
                assert complaints(seen(rows)) == []
                owed = pending(session)
                assert not [effect for effect in owed if isinstance(effect, RunTool | StartTools)]
                asked = {row.event.call_id for row in rows if isinstance(row.event, ev.ApprovalRequested)}
                assert asked == {call.id for call in session.open_calls}
                assert audit(rows) == audit([row for row in rows if row.event.kind == "approval_requested"])
            assert log.read("s", 0, 5000) == before, "the parent is as it was"
        assert verify(story.path).ok
    assert made > 200


@pytest.mark.field(86)
def test_each_copied_request_is_rebuilt_from_the_fork_as_from_the_parent(stories: list[Story]) -> None:
    rebuilt = 0
    for story in stories:
        with SQLiteLog(story.path) as log:
            theirs = [row for row in log.read("s", 0, 5000) if row.event.kind in COPIED]
            name, head = "rebuilt", theirs[-1].seq
            session = fork_log(
                log, "s", head, name, owner="", actor="", writer="w", code_version="t", now=START, new_id=new_ids()
            )  # fmt: skip
            mine = [row for row in log.read(name, 0, 5000) if row.event.kind in COPIED]
            for copied, original in zip(mine, theirs, strict=False):
                if isinstance(copied.event, ev.MessageAdded | ev.ToolsCalled) and copied.event.request is not None:
                    assert rebuild(log, session, copied) == rebuild(log, session, original)
                    rebuilt += 1
    assert rebuilt > 20
