"""The command as a whole: its errors, its exit codes, what it imports."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import environment
from turnlog import __version__
from turnlog.fsm.table import NEXT
from turnlog.store import SQLiteLog

# Slow to import, and of no use to commands that only read.
HEAVY = ("pydantic_ai", "openai", "anthropic", "websockets", "hypothesis", "rich")


def imported(*argv: object) -> set[str]:
    """The top names of all modules that a command imports, in a process of its own."""
    code = (
        "import sys\nfrom turnlog.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(*sorted({n.split('.')[0] for n in sys.modules}), file=sys.stderr)"
    )
    argv_all = [sys.executable, "-c", code, *map(str, argv)]
    done = subprocess.run(argv_all, check=True, capture_output=True, text=True, timeout=60)
    return set(done.stderr.split())


def test_reading_commands_import_no_provider_and_no_socket(recorded: Path) -> None:
    for argv in (("sessions",), ("audit",), ("replay", "edited"), ("verify",)):
        names = imported(*argv, "--db", recorded)
        assert "pydantic" in names
        assert not names & set(HEAVY), argv


def test_help_imports_nothing_of_the_machine() -> None:
    names = imported("--help")
    assert "typer" in names
    assert not names & {*HEAVY, "pydantic", "sqlite_utils", "transitions"}


def test_help_names_every_command(run: Run) -> None:
    told = run("--help")
    assert told.code == 0
    for name in ("demo", "serve", "chat", "sessions", "replay", "fork", "audit", "verify", "diagram"):
        assert re.search(rf"^  {name} +\S", told.out, re.MULTILINE), name
        assert run(name, "--help").code == 0


def test_no_command_prints_the_help_and_is_a_usage_error(run: Run) -> None:
    told = run()
    assert told.code == 2
    assert "Commands:" in told.out


def test_the_version_is_printed(run: Run) -> None:
    assert run("--version").out == f"turnlog {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "wrong", "next_step"),
    [
        (("frob",), "No such command 'frob'", "See `turnlog --help`."),
        (("sessions", "--frob"), "No such option: --frob", "See `turnlog sessions --help`."),
        (("replay",), "Missing argument 'session'", "See `turnlog replay --help`."),
        (("replay", "x", "--to", "0"), "Invalid value for '--to'", "See `turnlog replay --help`."),
        (("diagram", "--format", "gif"), "'gif'", "See `turnlog diagram --help`."),
        (("diagram", "--write", "no/such"), "there is no folder no/such", "See `turnlog diagram --help`."),
    ],
)
def test_a_usage_error_is_two_lines_and_exit_code_2(
    run: Run, argv: tuple[str, ...], wrong: str, next_step: str
) -> None:
    told = run(*argv)
    assert (told.code, told.out) == (2, "")
    first, second = told.err.splitlines()
    assert wrong in first
    assert second == next_step


def test_a_log_that_is_not_there_is_one_line_and_exit_code_1(run: Run, tmp_path: Path) -> None:
    for argv in (("sessions",), ("audit",), ("replay", "s"), ("verify",)):
        told = run(*argv, "--db", tmp_path / "no.db")
        assert (told.code, told.out) == (1, "")
        assert told.err == f"turnlog: there is no log at {tmp_path / 'no.db'}: check the path\n"


def test_a_file_that_is_no_log_is_an_error_without_a_traceback(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello " * 1000)
    told = run("sessions", "--db", tmp_path / "x.db")
    assert told.code == 1
    assert "x.db" in told.err
    assert len(told.err.splitlines()) <= 2


def test_an_empty_log_says_so(run: Run, tmp_path: Path) -> None:
    SQLiteLog(tmp_path / "x.db").close()
    assert run("sessions", "--db", tmp_path / "x.db").out == "No session yet.\n"
    assert run("sessions", "--db", tmp_path / "x.db", "--json").json == []


def test_the_log_can_be_named_by_the_environment(run: Run, recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_DB", str(recorded))
    assert len(run("sessions", "--json").json) == 9


def test_reading_works_while_another_process_owns_the_file(run: Run, recorded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.db"
    shutil.copy(recorded, copy)
    with SQLiteLog(copy):
        assert len(run("sessions", "--db", copy, "--json").json) == 9
        assert run("verify", "--db", copy).code == 0


def test_a_command_that_only_reads_leaves_nothing_beside_the_log(run: Run, recorded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.db"
    shutil.copy(recorded, copy)
    for argv in (("sessions",), ("audit",), ("replay", "edited"), ("verify",), ("replay", "nope")):
        run(*argv, "--db", copy)
        assert [one.name for one in tmp_path.iterdir()] == ["log.db"], argv
    assert copy.read_bytes() == recorded.read_bytes()


def test_python_m_turnlog_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "turnlog", "--version"], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == f"turnlog {__version__}\n"


@pytest.mark.parametrize("argv", [("sessions",), ("replay", "hidden", "--json")])
def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word(recorded: Path, argv: tuple[str, ...]) -> None:
    # What fits into a buffer fails when it is flushed, the long session while it is printed.
    far, near = os.pipe()
    os.close(far)
    command = [sys.executable, "-m", "turnlog", *argv, "--db", str(recorded)]
    done = subprocess.run(
        command, check=False, stdout=near, stderr=subprocess.PIPE, text=True, timeout=60, env=environment()
    )  # fmt: skip
    os.close(near)
    assert (done.returncode, done.stderr) == (1, "")


def test_verify_says_that_all_is_well(run: Run, recorded: Path) -> None:
    told = run("verify", "--db", recorded)
    assert told.code == 0
    assert told.out.startswith("9 sessions, ")
    assert told.out.endswith("nothing was changed\n")


def test_verify_names_the_row_that_was_changed_and_fails(run: Run, recorded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.db"
    shutil.copy(recorded, copy)
    change(copy, "UPDATE events SET actor = 'person:eve' WHERE session = 'edited' AND seq = 9")
    told = run("verify", "--db", copy)
    assert told.code == 1
    assert "session edited seq 9: the hash does not fit" in told.out
    problems = run("verify", "--db", copy, "--json").json["problems"]
    assert ("edited", 9) in [(one["session"], one["seq"]) for one in problems]


def test_an_audit_with_a_row_that_cannot_be_read_names_it_tells_the_rest_and_fails(
    run: Run, recorded: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "log.db"
    shutil.copy(recorded, copy)
    change(copy, "UPDATE events SET body = '{' WHERE session = 'edited' AND seq = 9")
    told = run("audit", "--db", copy)
    assert told.code == 1
    assert "not readable: session 'edited' seq 9" in told.out
    assert "denied via person by person:ann" in told.out
    (edited,) = [part for part in run("audit", "--db", copy, "--json").json if part["session"] == "edited"]
    assert [one["seq"] for one in edited["unreadable"]] == [9]
    assert run("replay", "edited", "--to", 8, "--db", copy).code == 0
    assert "seq 9" in run("replay", "edited", "--db", copy).err


def test_kept_heads_find_a_tail_that_was_cut(run: Run, recorded: Path, tmp_path: Path) -> None:
    copy, heads = tmp_path / "log.db", tmp_path / "heads.json"
    shutil.copy(recorded, copy)
    assert run("verify", "--db", copy, "--keep", heads).code == 0
    assert json.loads(heads.read_text())["broken"][0] == 3
    assert run("verify", "--db", copy, "--heads", heads).code == 0
    change(copy, "DELETE FROM events WHERE session = 'broken' AND seq = 3")
    assert "the tail is cut" in run("verify", "--db", copy, "--heads", heads).out
    assert "the tail is cut" not in run("verify", "--db", copy).out


def test_a_file_without_heads_is_an_error_with_the_next_step(run: Run, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "heads.json").write_text("[1]")
    told = run("verify", "--db", recorded, "--heads", tmp_path / "heads.json")
    assert told.code == 1
    assert "holds no heads: it is [1], and not an object of sessions" in told.err
    assert "name a file that `turnlog verify --keep FILE` wrote" in told.err


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"a": 1}', "the head of session 'a' is 1, and not [seq, hash]"),
        ('{"a": [0, "' + "0" * 64 + '"]}', "and not [seq, hash]"),
        ('{"a": [1, "short"]}', "and not [seq, hash]"),
        ("{", "it is no JSON"),
        ("null", "it is null"),
    ],
)
def test_heads_that_are_none_are_told_in_one_line(
    run: Run, recorded: Path, tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "heads.json").write_text(text)
    told = run("verify", "--db", recorded, "--heads", tmp_path / "heads.json")
    assert told.code == 1
    assert why in told.err
    assert len(told.err.splitlines()) == 1


def test_a_file_with_no_head_proves_nothing_and_says_so(run: Run, recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "heads.json").write_text("{}")
    told = run("verify", "--db", recorded, "--heads", tmp_path / "heads.json")
    assert told.code == 2
    assert "no head was given" in told.err


@pytest.mark.parametrize("more", [("--json",), ("--keep", "kept.json")])
def test_without_a_head_nothing_is_told_and_nothing_is_kept(
    run: Run, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("heads.json").write_text("{}")
    told = run("verify", "--db", recorded, "--heads", "heads.json", *more)
    assert (told.code, told.out) == (2, "")
    assert not Path("kept.json").exists()


def test_the_heads_of_a_log_without_sessions_are_none_and_are_replaced(run: Run, tmp_path: Path) -> None:
    SQLiteLog(tmp_path / "x.db").close()
    for _ in range(2):
        assert run("verify", "--db", tmp_path / "x.db", "--keep", tmp_path / "heads.json").code == 0
        assert (tmp_path / "heads.json").read_text() == "{}\n"


def test_verify_as_json_tells_what_was_looked_at_and_with_which_heads_it_was_compared(
    run: Run, recorded: Path, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.json"
    assert run("verify", "--db", recorded, "--keep", heads, "--json").json["kept_heads"] is None
    told = run("verify", "--db", recorded, "--heads", heads, "--json").json
    assert told["kept_heads"] == json.loads(heads.read_text())
    assert told["blobs"] > 0
    said = run("verify", "--db", recorded, "--heads", heads).out
    assert said.startswith(f"9 sessions, {told['rows']} rows, {told['blobs']} blobs, 9 kept heads: ")


def test_heads_to_compare_with_do_not_spare_the_older_ones_that_are_to_be_replaced(
    run: Run, recorded: Path, tmp_path: Path
) -> None:
    copy, heads, newer = tmp_path / "copy.db", tmp_path / "heads.json", tmp_path / "newer.json"
    shutil.copy(recorded, copy)
    assert run("verify", "--db", copy, "--keep", heads).code == 0
    kept = json.dumps({"edited": [99, "0" * 64]})
    newer.write_text(kept)
    told = run("verify", "--db", copy, "--heads", heads, "--keep", newer)
    assert told.code == 1
    assert "the tail is cut" in told.out
    assert newer.read_text() == kept
    before = copy.read_bytes()
    assert run("verify", "--db", copy, "--heads", heads, "--keep", copy).code == 1
    assert copy.read_bytes() == before


def test_heads_are_never_written_over_anything_but_older_heads_that_agree(
    run: Run, recorded: Path, tmp_path: Path
) -> None:
    copy, heads = tmp_path / "copy.db", tmp_path / "heads.json"
    shutil.copy(recorded, copy)
    before = copy.read_bytes()
    told = run("verify", "--db", copy, "--keep", copy)
    assert told.code == 1
    assert "holds no heads" in told.err
    assert copy.read_bytes() == before
    assert run("verify", "--db", copy, "--keep", heads).code == 0
    kept = heads.read_text()
    change(copy, "DELETE FROM events WHERE session = 'edited' AND seq > 3")
    assert run("verify", "--db", copy, "--keep", heads).code == 1
    assert heads.read_text() == kept


def change(path: Path, statement: str) -> None:
    """Do to a log what only somebody with the file can do."""
    import sqlite3

    connection = sqlite3.connect(path)
    connection.executescript(f"DROP TRIGGER events_no_update; DROP TRIGGER events_no_delete; {statement};")
    connection.close()


def test_the_diagram_is_drawn_from_the_table(run: Run, tmp_path: Path) -> None:
    arrows = run("diagram", "--json").json
    assert {(one["from"], one["kind"]): one["to"] for one in arrows} == NEXT
    assert run("diagram").out.startswith("stateDiagram-v2")
    assert run("diagram", "--format", "table").out.startswith("| event kind |")
    assert run("diagram", "--write", tmp_path).code == 0
    assert (tmp_path / "session.svg").read_text() == run("diagram", "--format", "svg").out
