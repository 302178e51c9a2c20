"""`turnlog demo`, as a process of its own."""

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import Terminal, turnlog
from turnlog.demo import story
from turnlog.fsm.session import replay
from turnlog.store import LogReader

CLAIMS = 12


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo prints when nobody sits at a terminal, and the folder that it made."""
    folder = tmp_path_factory.mktemp("demo")
    done = turnlog("demo", "--folder", folder / "kept", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout, folder / "kept"


def test_the_demo_holds_every_claim_that_it_makes(told: tuple[str, Path]) -> None:
    out, _ = told
    assert out.count("[ok]") == CLAIMS
    assert "FAILED" not in out
    assert "scripted, not an LLM" in out
    assert "Nobody sits at a terminal, so the demo decides by itself" in out


@pytest.mark.accept(65)
def test_the_requests_of_the_killed_server_are_open_in_the_next_one_under_the_same_ids(
    told: tuple[str, Path],
) -> None:
    before, after = told[0].split("== kill -9 ")
    asked = re.findall(r"^  request (r_\w+)$", before, re.MULTILINE)
    assert len(asked) == 2
    assert re.findall(r"^  request (r_\w+)$", after.split("== Nobody")[0], re.MULTILINE) == asked


@pytest.mark.accept(65)
def test_after_the_kill_the_log_holds_one_run_of_the_edited_call_and_none_of_the_denied_one(
    told: tuple[str, Path],
) -> None:
    reader = LogReader(told[1] / "turnlog.db")
    rows = reader.read("demo")
    reader.close()
    assert replay(rows).state == rows[-1].state == "interrupt"
    started = [row.event.permit for row in rows if row.event.kind == "tool_started" and row.event.tool == "delete_file"]
    resolved = {row.event.request_id: row.event for row in rows if row.event.kind == "approval_resolved"}
    assert [resolved[one].arguments for one in started] == [{"path": "app-1.log"}]
    assert sorted(one.outcome for one in resolved.values()) == ["approved", "denied"]
    assert [row.event.kind for row in rows].count("session_resumed") == 1
    files = {one.name for one in (told[1] / "turnlog.db.files").iterdir()}
    assert files == {"app.log", "debug.log", "notes.txt"}


def test_the_log_of_the_demo_can_be_looked_at_afterwards(told: tuple[str, Path], run: Run) -> None:
    db = told[1] / "turnlog.db"
    assert "`turnlog sessions --db" in told[0]
    assert run("verify", "--db", db).code == 0
    assert run("sessions", "--db", db, "--json").json[0]["id"] == "demo"
    assert "app-1.log" in run("audit", "--db", db).out


def test_a_person_at_a_terminal_is_asked_and_what_they_say_is_done(tmp_path: Path) -> None:
    demo = Terminal("demo", "--folder", "kept", folder=tmp_path)
    demo.answer([
        ("[d] deny (Enter: approve", "what?"),
        ("what? is none of them", "e"),
        ("new arguments, a JSON object: ", "app.log"),
        ("that is no JSON", '{"file": "app.log"}'),
        ("refused: ", "e"),
        ("new arguments, a JSON object: ", '{"path": "notes.txt"}'),
        ("[d] deny (Enter: deny", "n"),
        ("reason (may be empty): ", "not that one"),
        ("Enter tries the failed completion again: ", ""),
    ])  # fmt: skip
    assert demo.end() == 0
    assert demo.told.count("[ok]") == CLAIMS
    assert 'denied via person because "not that one"' in demo.told
    assert {one.name for one in (tmp_path / "kept/turnlog.db.files").iterdir()} == {
        "app.log", "app-1.log", "debug.log",
    }  # fmt: skip


def test_a_setting_that_would_decide_for_the_person_is_left_out_of_the_demo_and_it_is_said(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNLOG_AUTO_APPROVE", "all")
    told = run("demo", "--yes", "--folder", tmp_path / "kept")
    assert told.code == 0
    assert told.out.startswith("TURNLOG_AUTO_APPROVE is set, and is left out here: in the demo nothing runs unasked\n")
    assert told.out.count("[ok]") == CLAIMS


def test_ctrl_c_ends_the_demo_and_its_server_and_leaves_nothing_behind(tmp_path: Path) -> None:
    demo = Terminal("demo", folder=tmp_path, TMPDIR=str(tmp_path))
    demo.until("(Enter: approve")
    assert len(list(tmp_path.iterdir())) == 1
    demo.interrupt()
    assert demo.end() == 130
    assert "Traceback" not in demo.told
    pids = re.findall(r"^server (\d+) listens", demo.told, re.MULTILINE)
    assert len(pids) == 2
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert list(tmp_path.iterdir()) == []


def test_a_claim_that_does_not_hold_fails_the_demo(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A witness that counts one deletion more than was allowed.
    witness = tmp_path / "witness"
    witness.write_text("app-1.log\napp-1.log\n")
    monkeypatch.setattr(story, "ledger", lambda _: witness)
    told = run("demo", "--yes", "--folder", tmp_path / "kept")
    assert told.code == 1
    assert "[FAILED] what was allowed ran once: app-1.log, app-1.log" in told.out
    assert "the demo's claims did not hold: what was allowed ran once" in told.err


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path, run: Run) -> None:
    (tmp_path / "mine").write_text("x")
    told = run("demo", "--folder", tmp_path)
    assert told.code == 2
    assert "is not empty: name a new folder" in told.err
    assert [one.name for one in tmp_path.iterdir()] == ["mine"]
