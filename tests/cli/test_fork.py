"""`turnlog fork`: a second way on, made without a model, a tool or a server."""

import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from turnlog.store import SQLiteLog, verify


@pytest.fixture
def db(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the recorded log, to be written."""
    return Path(shutil.copy(recorded, tmp_path / "log.db"))


def seq_of(run: Run, db: Path, kind: str) -> int:
    """The seq of the first row of a kind in the session "edited"."""
    rows = run("replay", "edited", "--db", db, "--json").json["rows"]
    return int(next(row["seq"] for row in rows if row["event"]["kind"] == kind))


@pytest.mark.field(86)
def test_a_fork_is_told_with_its_parent_and_what_it_waits_for(run: Run, db: Path) -> None:
    at = seq_of(run, db, "approval_resolved")
    parent = run("replay", "edited", "--db", db).out
    told = run("fork", "edited", "--at", at, "--new", "other", "--db", db, "--json")
    assert told.code == 0
    found = told.json
    assert (found["session"], found["state"], len(found["requests"])) == ("other", "awaiting_approval", 2)
    assert (found["parent"]["session"], found["parent"]["seq"]) == ("edited", at)
    assert run("replay", "edited", "--db", db).out == parent, "the parent is as it was"
    assert f"forked from edited at seq {at}" in run("replay", "other", "--db", db).out
    listed = {one["id"]: (one["parent"], one["parent_seq"]) for one in run("sessions", "--db", db, "--json").json}
    assert (listed["other"], listed["edited"]) == (("edited", at), ("", 0))
    (part,) = run("audit", "other", "--db", db, "--json").json
    assert [one["outcome"] for one in part["requests"]] == ["open", "open"]
    assert verify(db).ok


def test_a_fork_without_a_name_gets_one_and_the_next_step_is_told(run: Run, db: Path) -> None:
    told = run("fork", "edited", "--at", 1, "--db", db)
    assert told.code == 0
    name = told.out.split()[1].rstrip(",")
    assert f"turnlog chat --session {name} --db {db}" in told.out
    assert run("replay", name, "--db", db).code == 0


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("edited", "--at", 999), "rows 1 to "),
        (("nobody", "--at", 1), "no session has the id 'nobody'"),
        (("edited", "--at", 1, "--new", "expired"), "exists already"),
        (("edited", "--at", 0), "--at"),
    ],
)
def test_what_cannot_be_forked_is_told_and_leaves_the_log_as_it_was(
    run: Run, db: Path, argv: tuple[object, ...], says: str
) -> None:
    before = run("sessions", "--db", db, "--json").json
    told = run("fork", *argv, "--db", db)
    assert told.code in (1, 2)
    assert says in told.err
    assert run("sessions", "--db", db, "--json").json == before


def test_a_log_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    told = run("fork", "s", "--at", 1, "--db", tmp_path / "none.db")
    assert (told.code, (tmp_path / "none.db").exists()) == (1, False)
    assert "none.db" in told.err


def test_a_log_that_a_server_owns_is_forked_by_that_server(run: Run, db: Path) -> None:
    with SQLiteLog(db):
        told = run("fork", "edited", "--at", 1, "--db", db)
    assert told.code == 1
    assert "the command `fork`" in told.err
