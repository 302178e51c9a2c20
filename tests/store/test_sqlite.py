"""Opening and closing the file, and the settings that durability rests on."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.fsm.errors import DatabaseOwned, Misuse, StorageError
from turnlog.store import EventLog, LogReader, SQLiteLog
from turnlog.store import sqlite as sqlite_module
from turnlog.store.jobs import Job

from .support import ROOT, fill, started


def test_the_log_is_what_the_engine_asks_for(log: SQLiteLog) -> None:
    asked: EventLog = log  # a type checker proves it; the names are proved here
    names = {name for name in vars(EventLog) if not name.startswith("_")}
    writing = {"append", "append_then", "flush", "lease", "put_blob", "close"}
    assert names == writing | {"read", "head", "applied", "blob"}
    assert all(callable(getattr(asked, name)) for name in names)


@pytest.mark.parametrize(("name", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("recursive_triggers", 1)])
def test_durability_is_switched_on(log: SQLiteLog, name: str, value: object) -> None:
    job = Job(lambda tx: tx.db.conn.execute(f"PRAGMA {name}").fetchone()[0])
    assert log._writer.submit(job).result() == value


def test_a_file_system_that_cannot_keep_a_write_ahead_log_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sqlite_module._pragma

    def elsewhere(db: object, file: Path, name: str, value: object, wanted: object) -> None:
        # What SQLite does where shared memory is impossible: it keeps the old journal without an error.
        real(db, file, name, "DELETE" if name == "journal_mode" else value, wanted)  # type: ignore[arg-type]  # a Database

    monkeypatch.setattr(sqlite_module, "_pragma", elsewhere)
    with pytest.raises(StorageError, match=r"journal_mode is 'delete' where 'wal' is needed; put the file on"):
        SQLiteLog(path)
    monkeypatch.undo()
    SQLiteLog(path).close()


@pytest.mark.field(17)
@pytest.mark.parametrize("name", [":memory:", ""])
def test_a_log_in_memory_is_refused(name: str) -> None:
    with pytest.raises(Misuse, match="a log needs a file"):
        SQLiteLog(name)


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    for opener in (SQLiteLog, LogReader):
        with pytest.raises(StorageError):
            opener(tmp_path)
    assert not list(tmp_path.iterdir())


# Root may write everywhere, so the permission is tried by a process of nobody.
_AS_NOBODY = """
import os, sys, tempfile
from turnlog.fsm.errors import Error
from turnlog.store import LogReader, SQLiteLog
import turnlog.store.verify
with tempfile.TemporaryDirectory() as folder:  # imports what is imported late: nobody may not read root's interpreter
    SQLiteLog(folder + "/warm.db").close()
    LogReader(folder + "/warm.db").close()
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for opener in (SQLiteLog, LogReader):
    try:
        log = opener(sys.argv[1])
        print(opener.__name__, len(log.read("s")), flush=True)
        log.close()
    except Error as error:
        print(type(error).__name__, error, flush=True)
"""


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A database in a folder that everybody may enter; pytest closes its own to others at any time."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "log.db")
        Path(folder).chmod(0o755)


def as_nobody(path: Path) -> list[str]:
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": os.environ["PATH"]}
    code = [sys.executable, "-c", _AS_NOBODY, str(path)]
    done = subprocess.run(code, capture_output=True, text=True, check=True, env=env)
    return done.stdout.splitlines()


@pytest.mark.field(17)
def test_a_read_only_file_is_a_clear_error_and_can_be_read(open_path: Path) -> None:
    path = open_path
    with SQLiteLog(path) as log:
        fill(log, "s")
    path.chmod(0o444)
    path.parent.chmod(0o777)
    Path(f"{path}.lock").chmod(0o666)
    before = path.read_bytes()
    refused, read = as_nobody(path)
    assert refused.startswith("StorageError cannot write ")
    assert "give write permission on the file, or open the log read-only" in refused
    assert read == "LogReader 10"
    assert path.read_bytes() == before


@pytest.mark.field(17)
def test_a_read_only_folder_is_a_clear_error_and_can_be_read(open_path: Path) -> None:
    path = open_path
    with SQLiteLog(path) as log:
        fill(log, "s")
    Path(f"{path}.lock").unlink()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    refused, read = as_nobody(path)
    assert refused.startswith("StorageError cannot write ")
    assert "Permission denied; create its folder, make it writable, or open the log read-only" in refused
    assert read == "LogReader 10"
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["log.db"]


def test_a_path_with_characters_of_an_address_is_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=memory#x%20 é.db"
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
        assert log.read("s") == rows
    assert path.is_file()


def test_an_error_while_opening_leaves_no_lock_and_no_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> LogReader:
        raise StorageError("no reader")

    monkeypatch.setattr(sqlite_module, "LogReader", broken)
    with pytest.raises(StorageError, match="no reader"):
        SQLiteLog(path)
    monkeypatch.undo()
    SQLiteLog(path).close()


def test_the_with_block_closes_the_log(path: Path) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s", [started()])
        with pytest.raises(DatabaseOwned):
            SQLiteLog(path)
        assert log.wal_bytes > 0
        assert log.path == path
    assert log.wal_bytes == 0
    assert not Path(f"{path}-wal").exists()
    SQLiteLog(path).close()


def test_a_log_can_be_moved_when_it_is_closed(path: Path, tmp_path: Path) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
    moved = path.rename(tmp_path / "moved.db")
    with SQLiteLog(moved) as log:
        assert log.read("s") == rows


def test_closing_folds_the_write_ahead_log_into_the_file_even_while_a_reader_has_it_open(path: Path) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
        reader = LogReader(path)
        assert reader.wal_bytes > 0
    assert reader.wal_bytes == 0
    assert reader.read("s") == rows
    reader.close()
