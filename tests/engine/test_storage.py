"""No room on the disk, a lock that another process holds, a disk that fails: nothing runs twice, nothing is lost."""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.engine.support import World, kinds, of_kind, processed, reached, request, results, rows, sent, slow_tool
from turnlog.engine import Asking, Conversation, Engine, Notice, Rows, Trouble, tool
from turnlog.engine.models.scripted import call, say
from turnlog.fsm.errors import Misuse, StorageError, StorageFailed, StorageFull
from turnlog.fsm.events import Limits
from turnlog.store import Command, Draft, SQLiteLog, verify
from turnlog.store.base import Then

PAY = ("pay", {"amount": 5, "to": "A"})
BULK = "x" * 60_000  # fits into a row, and into no page that has room left


def leave_room(engine: Engine, pages: int | None) -> None:
    """How many more pages the file may take."""
    db = engine.log._writer._db
    ((count,),) = db.execute("PRAGMA page_count").fetchall()
    db.execute(f"PRAGMA max_page_count = {1_000_000 if pages is None else count + pages}").fetchall()


class Troubles:
    """The troubles that a viewer is told of."""

    def __init__(self, c: Conversation) -> None:
        self.codes: asyncio.Queue[str] = asyncio.Queue()
        c.subscribe(self._hear)

    def _hear(self, notice: Notice) -> None:
        if isinstance(notice, Trouble):
            self.codes.put_nowait(notice.code)

    async def next(self) -> str:
        return await asyncio.wait_for(self.codes.get(), 10)


@pytest.mark.field(15)
async def test_documents_that_find_no_room_wait_for_it_and_are_fetched_once(world: World) -> None:
    asked: list[str] = []

    def source(asking: Asking) -> str:
        asked.append(asking.text)
        return BULK * 4

    agent = world.agent(say("done"), context=source)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        troubles = Troubles(c)
        leave_room(engine, 2)
        await c.say("hi")
        assert await troubles.next() == "storage_full"
        assert sent(agent) == []
        leave_room(engine, None)
        world.clock.advance(1)
        await c.rest()
        assert asked == ["hi"]
        assert kinds(c)[-3:] == ["context_fetched", "message_added", "turn_interrupted"]


@pytest.mark.field(15)
async def test_a_reply_that_finds_no_room_is_kept_and_runs_nothing_until_it_is_durable(world: World) -> None:
    async with world.engine(world.agent(call(("look", {"q": "a"}), text=BULK), say("done"))) as engine:
        c = await engine.create("s")
        troubles = Troubles(c)
        leave_room(engine, 2)
        await c.say("hi")
        assert await troubles.next() == "storage_full"
        assert world.ledger == []
        assert kinds(c)[-1] == "message_added", "reads go on"
        world.clock.advance(1)
        assert await troubles.next() == "storage_full", "it is tried again, and there is still no room"
        assert world.ledger == []
        leave_room(engine, None)
        world.clock.advance(1)
        await c.rest()
        assert world.ledger == [("look", "a")]
        assert of_kind(c, "message_added")[-1].text == "done"
    assert verify(world.path).ok


@pytest.mark.field(15)
async def test_a_decision_that_finds_no_room_is_refused_to_the_person_and_runs_nothing(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s")
        await c.send("pay")
        leave_room(engine, 2)
        with pytest.raises(StorageFull, match="make room on the disk, then send again"):
            await c.decide(request(c), "approved", reason=BULK)
        assert (world.ledger, c.session.state) == ([], "awaiting_approval")
        leave_room(engine, None)
        await c.decide(request(c), "approved", reason=BULK)
        await c.rest()
        assert world.ledger == [("pay", 5, "A")]
    assert verify(world.path).ok


@pytest.mark.field(15)
@pytest.mark.parametrize("size", [60_000, 200_000])
async def test_a_result_that_finds_no_room_is_kept_and_its_tool_does_not_run_again(world: World, size: int) -> None:
    """The longer result goes into a blob first, which finds no room either."""

    @tool
    async def big() -> str:
        """Return much."""
        world.ledger.append("big")
        leave_room(engine, 2)
        return "y" * size

    async with world.engine(world.agent(call(("big", {})), say("done"), tools=[big])) as engine:
        c = await engine.create("s")
        troubles = Troubles(c)
        await c.say("hi")
        for _ in range(3):
            assert await troubles.next() == "storage_full"
            assert kinds(c)[-1] == "tool_started"
            world.clock.advance(1)
        assert await troubles.next() == "storage_full"
        leave_room(engine, None)
        world.clock.advance(1)
        await c.rest()
        assert world.ledger == ["big"]
        ((outcome, content),) = results(c)
        assert outcome == "ok"
        assert content.startswith("yyy")
    assert verify(world.path).ok


class MoodyLog(SQLiteLog):
    """A log that refuses its nth append a few times, as `error` says."""

    def __init__(self, path: Any, nth: int, error: StorageError, times: int = 2) -> None:
        super().__init__(path)
        self.nth, self.error, self.times = nth, error, times
        self.tries = 0

    def append_then(
        self,
        session: str,
        expected_seq: int,
        epoch: int,
        drafts: Sequence[Draft],
        command: Command | None,
        then: Then,
    ) -> None:
        self.tries += 1
        if self.nth <= self.tries < self.nth + self.times:
            then(self.error)
        else:
            super().append_then(session, expected_seq, epoch, drafts, command, then)


def moody(world: World, log: MoodyLog) -> Engine:
    """An engine on such a log, with a script of two turns."""
    agent = world.agent(call(("look", {"q": "a"})), say("one"), call(PAY, ("look", {"q": "b"})), say("two"))
    return Engine(log, [agent], auto_approve=(), clock=world.clock, new_id=world.ids)


async def insist(send: Callable[[], Any]) -> Any:
    """Send again until it is taken, as a person would."""
    while True:
        try:
            return await send()
        except (StorageFull, StorageError):
            continue


@pytest.mark.field(5)
@pytest.mark.field(15)
@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("error", [StorageFull("no room"), StorageError("the lock is held")])
async def test_whichever_append_is_refused_the_conversation_ends_the_same(
    world: World, nth: int, error: StorageError
) -> None:
    log = MoodyLog(world.path, nth, error)
    async with moody(world, log) as engine:
        c = await insist(lambda: engine.create("s"))

        def hear(notice: Notice) -> None:
            if isinstance(notice, Trouble):  # a second later it is tried again
                asyncio.get_running_loop().call_soon(world.clock.advance, 1)

        c.subscribe(hear)
        await insist(lambda: c.say("first", command="1"))
        await c.rest()
        await insist(lambda: c.say("second", command="2"))
        await c.rest()
        await insist(lambda: c.decide(request(c), "approved", command="3"))
        await c.rest()
        assert world.ledger[0] == ("look", "a")
        assert sorted(world.ledger[1:]) == [("look", "b"), ("pay", 5, "A")]
        assert [e.text for e in of_kind(c, "message_added")] == ["first", "one", "second", "two"]
        assert c.session.state == "interrupt", "never in error for a lock or a full disk"
        assert log.tries >= nth + 2, "the refusals were reached"


async def test_a_deadline_that_cannot_be_written_down_is_tried_once_a_second(world: World) -> None:
    log = MoodyLog(world.path, 0, StorageFull("no room"), 0)
    async with moody(world, log) as engine:
        c = await engine.create("s", limits=Limits(approval_seconds=60))
        await c.send("first")
        await c.send("second")
        troubles = Troubles(c)
        log.nth, log.times = log.tries + 1, 3
        before = log.tries
        world.clock.advance(60)
        for tries in range(1, 4):
            assert await troubles.next() == "storage_full"
            await processed(c)
            assert log.tries == before + tries
            world.clock.advance(1)
        await reached(c, lambda s: s.state == "interrupt")
        (resolved,) = of_kind(c, "approval_resolved")
        assert (resolved.outcome, resolved.actor) == ("expired", "timer")
        assert ("pay", 5, "A") not in world.ledger


@pytest.mark.field(15)
async def test_without_room_at_start_the_others_go_on_and_what_was_cut_off_does_not_run_again(world: World) -> None:
    slow, running, _ = slow_tool()
    count: list[str] = []

    @tool(name="slow")
    async def counted() -> str:
        """Take long."""
        count.append("ran")
        return "again"

    agent = world.agent(call(("slow", {})), say("done"), tools=[slow])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
    log = MoodyLog(world.path, 1, StorageFull("no room"), 3)
    again = world.agent(call(("slow", {})), say("done"), tools=[counted])
    async with Engine(log, [again], auto_approve=(), clock=world.clock, new_id=world.ids) as engine:
        for _ in range(2):
            with pytest.raises(StorageFull, match="'s' cannot be opened now"):
                await engine.open("s")
        assert log.read("s")[-1].event.kind == "tool_started"
        other = await engine.create("other", owner="bob")
        assert other.session.started
        c = await engine.open("s")
        await c.rest()
        assert count == []
        assert request(c).why == "outcome_unknown"


async def test_a_failed_disk_ends_every_session_with_a_typed_error_and_the_next_start_goes_on(world: World) -> None:
    heard: list[Notice] = []
    async with moody(world, MoodyLog(world.path, 3, StorageFailed("the disk is gone"), 99)) as engine:
        c = await engine.create("s")
        c.subscribe(heard.append)
        with pytest.raises(Exception, match=r"the disk is gone|was closed"):
            await asyncio.wait_for(c.send("first"), 10)
        assert engine.failed.is_set()
        with pytest.raises(StorageFailed, match="the disk is gone"):
            await engine.create("t")
        with pytest.raises(StorageFailed, match="the disk is gone"):
            await c.say("more")
        assert [notice.code for notice in heard if isinstance(notice, Trouble)] == ["StorageFailed"]
    async with moody(world, MoodyLog(world.path, 0, StorageFull("no room"), 0)) as engine:
        c = await engine.open("s")
        await c.rest()
        assert of_kind(c, "message_added")[-1].text == "one"
        assert world.ledger == [("look", "a")]


@pytest.mark.field(7)
async def test_nobody_hears_of_a_row_that_an_insert_refused(world: World) -> None:
    async with world.engine(world.agent(say("hello"))) as engine:
        c = await engine.create("s")
        told: list[int] = []

        def hear(notice: Notice) -> None:
            if isinstance(notice, Rows):
                told.extend(row.seq for row in notice.rows)
                stored = [row.seq for row in rows(c)]
                assert notice.rows[-1].seq in stored
            elif isinstance(notice, Trouble):
                engine.log._writer._db.execute("DROP TRIGGER IF EXISTS once")
                asyncio.get_running_loop().call_soon(world.clock.advance, 1)

        c.subscribe(hear)
        engine.log._writer._db.execute(
            "CREATE TRIGGER once BEFORE INSERT ON events WHEN new.seq = 3 BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        await c.send("hi")
        assert told == [2, 3, 4]
        assert [row.seq for row in rows(c)] == [1, 2, 3, 4]


@pytest.mark.field(105)
async def test_a_session_that_cannot_be_opened_now_is_named_and_opens_later(world: World) -> None:
    import sqlite3

    async with world.engine(world.agent(say("hello"))) as engine:
        await engine.create("precious")
    log = SQLiteLog(world.path, busy_seconds=0.2)
    async with Engine(log, [world.agent(say("hello"))], clock=world.clock, new_id=world.ids) as engine:
        other = sqlite3.connect(world.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match=r"'precious' cannot be opened now.*another process"):
            await engine.open("precious")
        other.execute("ROLLBACK")
        other.close()
        assert [info.id for info in engine.log.sessions()] == ["precious"]
        c = await engine.open("precious")
        assert (await c.send("hi")).text == "hello"


async def test_without_room_a_person_can_still_stop_what_waits_once_there_is_room_again(world: World) -> None:
    """A reply that is held back and then called off is refused, not run."""
    async with world.engine(world.agent(call(("look", {"q": "a"}), text=BULK), say("next"))) as engine:
        c = await engine.create("s")
        troubles = Troubles(c)
        leave_room(engine, 3)
        await c.say("hi")
        assert await troubles.next() == "storage_full"
        await c.stop()
        leave_room(engine, None)
        world.clock.advance(1)
        await processed(c)
        assert world.ledger == []
        (late,) = of_kind(c, "input_refused")
        assert "nobody waited for it" in late.why
        await reached(c, lambda s: s.state == "interrupt")


async def test_a_row_that_can_never_fit_is_refused_at_once_and_the_session_lives(world: World) -> None:
    @tool(name="long")
    async def long() -> str:
        """Too much."""
        return BULK

    agent = world.agent(call(("long", {})), say("done"), say("still here"), tools=[long])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        engine.log._writer._db.conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
        assert (await asyncio.wait_for(c.send("go"), 10)).text == "done"
        ((outcome, content),) = results(c)
        assert (outcome, "trying again will not help" in content) == ("error", True)
        with pytest.raises(Misuse, match="make it smaller"):
            await c.send(BULK)
        assert (await c.send("and now?")).text == "still here"
