"""What an append costs: CPU per row and commits per row, beside plain sqlite3 with the same durability.

    python bench/store_append.py [folder] [rows]

The plain baseline writes the same bodies into a bare table, without hash, lease, version check, indexes, futures or
thread, in batches as large as those that the log made. Take the ratios more seriously than the microseconds.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from turnlog.fsm.events import MessageAdded
from turnlog.fsm.states import State
from turnlog.store import Draft, SQLiteLog
from turnlog.store.append import append_job
from turnlog.store.codec import encode
from turnlog.store.driver import sqlite3

TEXT = "x" * 300


def draft(number: int) -> Draft:
    """A row with a body of about 350 bytes."""
    event = MessageAdded(message_id=f"m{number}", sender="user", recipient="bot", text=TEXT, by="person")
    return Draft(State.SUCCESS, 1_700_000_000_000 + number, "person:ann", event)


def cpu(work: Callable[[], object], rows: int) -> float:
    """Microseconds of CPU per row, all threads."""
    before = time.process_time()
    work()
    return (time.process_time() - before) / rows * 1e6


def log_run(path: Path, sessions: int, rows: int) -> tuple[float, SQLiteLog]:
    """Each session appends one row after the other, all sessions at once, from one event loop."""
    log = SQLiteLog(path)

    async def talk(name: str) -> None:
        epoch = await asyncio.wrap_future(log.lease(name, "bench"))
        for seq in range(rows // sessions):
            await asyncio.wrap_future(log.append(name, seq, epoch, [draft(seq)]))

    async def everybody() -> None:
        await asyncio.gather(*(talk(f"session-{number}") for number in range(sessions)))

    return cpu(lambda: asyncio.run(everybody()), rows), log


def transaction_run(path: Path, sessions: int, rows: int) -> float:
    """The append alone: encode, check, hash, insert, commit, without thread and event loop."""
    log = SQLiteLog(path)
    for number in range(sessions):
        log.lease(f"session-{number}", "bench").result()
    writer = log._writer  # noqa: SLF001 - measured without its thread, which sleeps meanwhile

    def work() -> None:
        for seq in range(rows // sessions):
            jobs = [append_job(f"session-{number}", seq, 1, [draft(seq)], None) for number in range(sessions)]
            writer._attempt(jobs, one_by_one=False)  # noqa: SLF001 - as above

    spent = cpu(work, rows)
    log.close()
    return spent


def plain_run(path: Path, batch: int, rows: int) -> float:
    """The same bodies with plain sqlite3."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.execute("PRAGMA synchronous = FULL")
    conn.execute("CREATE TABLE events (session TEXT, seq INTEGER, body TEXT, PRIMARY KEY (session, seq)) STRICT")

    def work() -> None:
        for seq in range(rows // batch):
            records = [(f"session-{number}", seq, encode(draft(seq).event)) for number in range(batch)]
            conn.execute("BEGIN IMMEDIATE")
            conn.executemany("INSERT INTO events VALUES (?, ?, ?)", records)
            conn.execute("COMMIT")

    spent = cpu(work, rows)
    conn.close()
    return spent


def main() -> None:
    """Print the table."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 6400
    print(f"{'sessions':>8} {'what':28} {'CPU us/row':>10} {'x plain':>8} {'commits/row':>12}")
    for sessions in (1, 64):
        with tempfile.TemporaryDirectory(dir=parent) as folder:
            here = Path(folder)
            plain = min(plain_run(here / f"plain{turn}.db", sessions, rows) for turn in range(2))
            alone = min(transaction_run(here / f"alone{turn}.db", sessions, rows) for turn in range(2))
            whole, log = log_run(here / "log.db", sessions, rows)
            share = log.stats.commits / log.stats.rows
            log.close()
            size = (here / "log.db").stat().st_size / rows
        print(f"{sessions:8} {'plain sqlite3':28} {plain:10.1f} {1:8.1f} {1 / sessions:12.3f}")
        print(f"{sessions:8} {'append, without thread':28} {alone:10.1f} {alone / plain:8.1f} {1 / sessions:12.3f}")
        print(f"{sessions:8} {'append, awaited in asyncio':28} {whole:10.1f} {whole / plain:8.1f} {share:12.3f}")
        print(f"{sessions:8} {size:.0f} bytes a row in the file")


if __name__ == "__main__":
    main()
