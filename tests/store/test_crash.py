"""Real processes that are killed or whose disk fails: what was acknowledged is there, and nothing is half there."""

import shutil
import subprocess
from pathlib import Path

import pytest

from turnlog.store import SQLiteLog, verify
from turnlog.store.sqlite import WAL_CAP

from .support import child, fill, integrity, kill, message, started

_ACK = """
import os, sys
from turnlog.store import SQLiteLog
from tests.store.support import message
log = SQLiteLog(sys.argv[1])
epoch = log.lease("s", "o").result()
head = log.head("s")
seq = head.seq if head else 0
for _ in range(int(sys.argv[2])):
    rows = log.append("s", seq, epoch, [message(seq), message(seq + 1)]).result()
    seq = rows[-1].seq
    os.write(1, b"%d\\n" % seq)
os.kill(os.getpid(), 9)
"""


@pytest.mark.field(4)
def test_what_was_acknowledged_survives_a_kill_right_after_it(path: Path) -> None:
    acked = 0
    for appends in range(1, 8):
        process = child(_ACK, str(path), str(appends))
        said, _ = process.communicate()
        assert process.returncode == -9
        assert int(said.split()[-1]) == acked + 2 * appends
        acked += 2 * appends
        with SQLiteLog(path) as log:
            assert [row.seq for row in log.read("s")] == list(range(1, acked + 1))
    assert integrity(path) == ["ok"]


_FLOOD = """
import asyncio, os, sys
from turnlog.store import SQLiteLog
from tests.store.support import message
log = SQLiteLog(sys.argv[1])

async def talk(name):
    epoch = await asyncio.wrap_future(log.lease(name, "o"))
    head = log.head(name)
    seq = head.seq if head else 0
    while True:
        await asyncio.wrap_future(log.append(name, seq, epoch, [message(seq, "x" * 300), message(seq + 1)]))
        seq += 2
        os.write(1, f"{name} {seq}\\n".encode())

async def main():
    await asyncio.gather(*(talk(f"s{n}") for n in range(8)))

asyncio.run(main())
"""


@pytest.mark.field(4)
def test_a_kill_in_the_middle_of_many_appends_loses_nothing_that_was_acknowledged(path: Path) -> None:
    seen: dict[str, int] = {}
    for lines in (1, 7, 40, 200, 700):
        process = child(_FLOOD, str(path))
        assert process.stdout is not None
        for _ in range(lines):
            name, seq = process.stdout.readline().split()
            seen[name] = int(seq)
        process.kill()
        # What was acknowledged before the kill arrived counts too.
        for line in process.communicate()[0].split("\n")[:-1]:
            name, seq = line.split()
            seen[name] = int(seq)
        with SQLiteLog(path) as log:
            for name, last in seen.items():
                rows = log.read(name, limit=100_000)
                assert len(rows) >= last
                assert len(rows) % 2 == 0, "an append is all or nothing"
    assert integrity(path) == ["ok"]


_ONE_BY_ONE = """
import sys
from turnlog.fsm.errors import Error
from turnlog.store import SQLiteLog
from tests.store.support import message
log = SQLiteLog(sys.argv[1])
try:
    epoch = log.lease("s", "o").result()
    for seq in range(1, 30):
        log.append("s", seq, epoch, [message(seq)]).result()
        print("ok", flush=True)
except Error as error:
    print(type(error).__name__, flush=True)
log.close()
"""


def under_strace(path: Path, inject: str) -> "subprocess.Popen[str]":
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed, so no system call can be made to fail")
    if subprocess.run([strace, "-o", "/dev/null", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("strace may not trace processes here")
    with SQLiteLog(path) as log:
        fill(log, "s", [started()])
    return child(_ONE_BY_ONE, str(path), wrapper=(strace, "-f", "-o", "/dev/null", "-e", f"inject={inject}"))


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("fdatasync:error=EIO:when=6", "StorageFailed"),
        ("pwrite64:error=EIO:when=20", "StorageFailed"),
        ("pwrite64:error=ENOSPC:when=20", "StorageFull"),
    ],
)
def test_a_fault_of_the_disk_is_typed_and_what_was_acknowledged_is_there(path: Path, fault: str, error: str) -> None:
    process = under_strace(path, fault)
    *acks, last = process.communicate()[0].split()
    assert set(acks) == {"ok"}
    assert last == error
    with SQLiteLog(path) as log:
        # The commit whose fsync failed may have reached the disk: it was never acknowledged.
        assert 1 + len(acks) <= len(log.read("s")) <= 2 + len(acks)
    assert verify(path).ok
    assert integrity(path) == ["ok"]


@pytest.mark.parametrize("call", [1, 2, 3, 4, 6, 9, 13, 18, 24, 31])
def test_a_kill_at_any_system_call_that_writes_loses_nothing_that_was_acknowledged(path: Path, call: int) -> None:
    process = under_strace(path, f"pwrite64,fdatasync,ftruncate:signal=KILL:when={call}")
    acks = process.communicate()[0].split()
    assert process.returncode != 0
    assert set(acks) <= {"ok"}
    with SQLiteLog(path) as log:
        assert 1 + len(acks) <= len(log.read("s")) <= 2 + len(acks)
    assert verify(path).ok
    assert integrity(path) == ["ok"]


_READER = """
import sys
from turnlog.store.driver import sqlite3
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
cursor = conn.execute("SELECT * FROM events")
cursor.fetchone()
print("reading", flush=True)
sys.stdin.readline()
"""


@pytest.mark.field(14)
def test_after_a_long_reader_the_write_ahead_log_goes_back_under_its_cap(path: Path) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s", [started(), *(message(number) for number in range(500))])
        reader = child(_READER, str(path))
        assert reader.stdout is not None
        assert reader.stdout.readline() == "reading\n"
        seq, big = 501, "x" * 100_000
        while log.wal_bytes < 2 * WAL_CAP:
            rows = log.append("s", seq, 1, [message(number, big) for number in range(20)]).result()
            seq = rows[-1].seq
        kill(reader)
        # The next checkpoint copies everything, the write after it begins the file anew and cuts it.
        for _ in range(3):
            rows = log.append("s", seq, 1, [message(number, big) for number in range(50)]).result()
            seq = rows[-1].seq
        assert log.wal_bytes <= WAL_CAP
        assert [row.seq for row in log.read("s", after=seq - 1)] == [seq]
    assert not path.with_name("log.db-wal").exists(), "closing leaves one file"


@pytest.mark.field(14)
def test_our_own_pages_never_hold_the_write_ahead_log(log: SQLiteLog) -> None:
    fill(log, "s", [started(), *(message(number) for number in range(500))])
    seq, after, big = 501, 0, "x" * 100_000
    for _ in range(60):
        rows = log.append("s", seq, 1, [message(number, big) for number in range(20)]).result()
        seq, after = rows[-1].seq, log.read("s", after, 5)[-1].seq
    assert log.wal_bytes <= WAL_CAP
