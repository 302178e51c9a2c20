"""Whoever flushes the queue commits it while the disk is quick; else the thread does, and nobody waits for it."""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnlog.fsm.errors import Error
from turnlog.fsm.events import Row
from turnlog.store import SQLiteLog
from turnlog.store.driver import sqlite3
from turnlog.store.jobs import Job
from turnlog.store.writer import BATCH_JOBS

from .support import message

Answer = tuple[Row, ...] | Error


@pytest.fixture
def quick(path: Path) -> Iterator[SQLiteLog]:
    """A log whose disk is quick enough for any caller."""
    with SQLiteLog(path, quick_seconds=math.inf) as log:
        log.lease("s", "o").result()
        yield log


class Heard:
    """What came of appends, and in which threads it was told."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.threads: list[threading.Thread] = []
        self.one = threading.Semaphore(0)

    def __call__(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.threads.append(threading.current_thread())
        self.one.release()


def say(log: SQLiteLog, heard: Callable[[Answer], object], seq: int = 0, session: str = "s") -> None:
    log.append_then(session, seq, 1, [message(seq)], None, heard)


def test_a_quick_disk_is_written_by_whoever_flushes(quick: SQLiteLog) -> None:
    heard = Heard()
    say(quick, heard)
    assert not heard.answers, "queued, and nothing else"
    quick.flush()
    assert heard.threads == [threading.current_thread()]
    assert [row.seq for row in quick.read("s")] == [1]


def test_a_log_that_may_never_hold_up_its_caller_leaves_all_to_the_thread(path: Path) -> None:
    with SQLiteLog(path, quick_seconds=0) as log:
        log.lease("s", "o").result()
        heard = Heard()
        say(log, heard)
        log.flush()
        assert heard.one.acquire(timeout=30)
        assert heard.threads != [threading.current_thread()]


def test_one_slow_commit_sends_the_next_ones_to_the_thread_until_the_disk_is_trusted_again(path: Path) -> None:
    with SQLiteLog(path, quick_seconds=1) as log:
        took = itertools.chain([0.1, 5.0], itertools.repeat(0.1))
        clock = iter(list(itertools.accumulate(x for t in itertools.islice(took, 40) for x in (0, t))))
        log._writer._timer = lambda: next(clock)
        log.lease("s", "o").result()
        here: list[bool] = []
        for seq in range(14):
            heard = Heard()
            say(log, heard, seq)
            log.flush()
            assert heard.one.acquire(timeout=30)
            here.append(heard.threads == [threading.current_thread()])
    # The lease takes 0.1, the first append 5. The pace falls by a fifth of the way to 0.1 with each one after it.
    slow = [5.0]
    while slow[-1] > 1:
        slow.append(0.8 * slow[-1] + 0.2 * 0.1)
    assert here == [True, *[False] * (len(slow) - 1), *[True] * (14 - len(slow))]


def test_while_another_program_holds_the_file_the_caller_is_not_held_up(quick: SQLiteLog) -> None:
    heard = Heard()
    other = sqlite3.connect(quick.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    say(quick, heard)
    quick.flush()
    assert not heard.answers
    other.execute("COMMIT")
    assert heard.one.acquire(timeout=30)
    other.close()
    assert heard.threads != [threading.current_thread()]
    assert [row.seq for row in quick.read("s")] == [1]


def test_what_is_more_than_a_batch_is_committed_too(quick: SQLiteLog) -> None:
    heard = Heard()
    for seq in range(BATCH_JOBS + 1):
        say(quick, heard, seq)
    quick.flush()
    for _ in range(BATCH_JOBS + 1):
        assert heard.one.acquire(timeout=30)
    assert heard.threads[0] is threading.current_thread()
    assert heard.threads[-1] is not threading.current_thread()
    assert len(quick.read("s", 0, 5000)) == BATCH_JOBS + 1


def test_the_thread_and_the_caller_never_write_at_once(quick: SQLiteLog) -> None:
    entered, leave, heard = threading.Event(), threading.Event(), Heard()

    def hold(_: Any) -> None:
        entered.set()
        leave.wait()

    held = quick._writer.submit(Job(hold))
    assert entered.wait(30)
    say(quick, heard)
    quick.flush()
    assert not heard.answers, "the thread is in the middle of a transaction"
    leave.set()
    held.result()
    assert heard.one.acquire(timeout=30)


def test_a_flush_after_the_close_does_nothing_and_an_append_is_told(path: Path) -> None:
    log = SQLiteLog(path, quick_seconds=math.inf)
    log.lease("s", "o").result()
    log.close()
    heard = Heard()
    say(log, heard)
    log.flush()
    assert isinstance(heard.answers[0], Error)
    assert "closed" in str(heard.answers[0])
