"""A reader leaves no files beside a log, and takes none from a writer."""

import shutil
from pathlib import Path

import pytest

from turnlog.store import LogReader, SQLiteLog, heads, verify
from turnlog.store.driver import sqlite3

from .support import child, fill, kill, message

_WRITER = """
import sys
from turnlog.store import SQLiteLog
from tests.store.support import message
log = SQLiteLog(sys.argv[1])
print(log.wal_bytes, flush=True)
sys.stdin.readline()
epoch = log.lease("s", "o").result()
log.append("s", 10, epoch, [message(9)]).result()
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def closed(path: Path) -> Path:
    """A log that nobody has open."""
    with SQLiteLog(path) as log:
        fill(log, "s")
    assert beside(path) == []
    return path


def beside(path: Path) -> list[str]:
    """What SQLite put beside a log."""
    return sorted(one.name for one in path.parent.iterdir() if one.name.endswith(("-wal", "-shm", "-journal")))


def test_a_reader_leaves_nothing_beside_a_log_that_had_nothing_there(closed: Path) -> None:
    before = closed.read_bytes(), closed.stat().st_mtime_ns
    with LogReader(closed) as reader:
        assert len(reader.read("s")) == 10
        assert beside(closed) != []
    assert beside(closed) == []
    heads(closed)
    verify(closed)
    assert beside(closed) == []
    assert (closed.read_bytes(), closed.stat().st_mtime_ns) == before


def test_what_a_killed_reader_left_is_taken_away_by_the_next_one(closed: Path) -> None:
    reads = "import sys; from turnlog.store import LogReader; r = LogReader(sys.argv[1]); print(1, flush=True); input()"
    reader = child(reads, str(closed))
    assert reader.stdout is not None
    assert reader.stdout.readline() == "1\n"
    kill(reader)
    assert beside(closed) != []
    LogReader(closed).close()
    assert beside(closed) == []


def test_of_two_readers_the_last_one_takes_the_files_away(closed: Path) -> None:
    first, second = LogReader(closed), LogReader(closed)
    first.close()
    assert len(second.read("s")) == 10
    second.close()
    second.close()
    assert beside(closed) == []


def test_a_writer_in_another_process_that_has_written_nothing_yet_keeps_its_files_and_what_it_writes(
    closed: Path,
) -> None:
    writer = child(_WRITER, str(closed))
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stdout.readline() == "0\n"
    files = beside(closed)
    nodes = {name: closed.with_name(name).stat().st_ino for name in files}
    for _ in range(3):
        with LogReader(closed) as reader:
            assert len(reader.read("s")) == 10
    assert {name: closed.with_name(name).stat().st_ino for name in beside(closed)} == nodes
    assert files != []
    with LogReader(closed) as early:
        writer.stdin.write("\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "written\n"
        assert early.read("s", 10)[0].seq == 11
    with LogReader(closed) as reader:
        assert reader.read("s", 10)[0].seq == 11
    kill(writer)
    with LogReader(closed) as late:
        assert [row.seq for row in late.read("s", 10)] == [11]


def test_a_writer_that_begins_while_somebody_reads_loses_nothing(closed: Path) -> None:
    reader = LogReader(closed)
    with SQLiteLog(closed) as log:
        reader.close()
        epoch = log.lease("s", "o").result()
        log.append("s", 10, epoch, [message(9)]).result()
        with LogReader(closed) as other:
            assert other.read("s", 10)[0].seq == 11
        log.append("s", 11, epoch, [message(10)]).result()
    with LogReader(closed) as late:
        assert len(late.read("s")) == 12


def test_a_write_ahead_log_that_holds_rows_is_left_as_it_is(closed: Path, tmp_path: Path) -> None:
    # What a writer leaves that was killed: the newest row is in the write-ahead log only.
    copy = tmp_path / "killed.db"
    with SQLiteLog(closed) as log:
        epoch = log.lease("s", "o").result()
        log.append("s", 10, epoch, [message(9)]).result()
        for end in ("", "-wal"):
            shutil.copy(f"{closed}{end}", f"{copy}{end}")
    before = copy.read_bytes(), Path(f"{copy}-wal").read_bytes()
    assert before[1] != b""
    for _ in range(2):
        with LogReader(copy) as reader:
            assert reader.read("s", 10)[0].seq == 11
    assert (copy.read_bytes(), Path(f"{copy}-wal").read_bytes()) == before


def test_a_file_that_cannot_be_tidied_up_is_read_all_the_same(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = LogReader._connect

    def refuses(self: LogReader, options: str) -> object:
        if options == "mode=rw":
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(self, options)

    monkeypatch.setattr(LogReader, "_connect", refuses)
    with LogReader(closed) as reader:
        assert len(reader.read("s")) == 10
