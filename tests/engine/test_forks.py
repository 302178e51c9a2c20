"""Forks: another way on from a row. The parent stays as it is, nothing is allowed in a fork that it did not ask for."""

from typing import Any

import pytest

from tests.engine.support import World, kinds, of_kind, reached, request, results, rows, sent, slow_tool, valid
from turnlog.engine import Agent, Conversation, Engine, tool
from turnlog.engine.context import rebuild
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import Step, call, say
from turnlog.engine.tools import ask_user
from turnlog.fsm.errors import Misuse, UnknownSession
from turnlog.fsm.events import Parent, SessionStarted
from turnlog.fsm.session import replay
from turnlog.store import LogReader, verify
from turnlog.store.audit import audit

PAY = ("pay", {"amount": 5, "to": "A"})


def place(c: Conversation, kind: str, nth: int = 0) -> int:
    """The seq of a row of some kind."""
    return [row.seq for row in rows(c) if row.event.kind == kind][nth]


def parent_of(c: Conversation) -> Parent | None:
    """Where a fork came from."""
    first = rows(c)[0].event
    assert isinstance(first, SessionStarted)
    return first.parent


async def paid(world: World, engine: Engine, name: str = "s") -> Conversation:
    """A session in which a look and a payment were made, and the payment was approved."""
    c = await engine.create(name, owner="ann")
    await c.send("pay A 5", by="ann")
    await c.decide(request(c), "approved", by="ann")
    await c.rest()
    assert world.ledger == [("look", "A"), ("pay", 5, "A")]
    return c


def payer(world: World, **more: Any) -> Agent:
    """@agent that looks, pays, and says so; then answers whatever it is asked."""
    return world.agent(call(("look", {"q": "A"})), call(PAY), say("paid"), say("more"), **more)


@pytest.mark.field(86)
@pytest.mark.parametrize("kind", ["tools_called", "approval_requested", "approval_resolved", "tool_started"])
async def test_a_fork_before_a_decided_payment_was_done_asks_again_and_pays_on_its_own(world: World, kind: str) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        before = rows(c)
        nth = 1 if kind in ("tools_called", "tool_started") else 0
        fork = await engine.fork("s", place(c, kind, nth), "f")
        assert fork.session.state == "awaiting_approval"
        asked = request(fork)
        assert (asked.tool, asked.arguments, asked.rule) == ("pay", PAY[1], "forked")
        assert asked.risk == ("spends money" if kind != "tools_called" else "")
        assert asked.request_id != of_kind(c, "approval_requested")[0].request_id
        assert world.ledger == [("look", "A"), ("pay", 5, "A")], "nothing runs because of copied rows"
        await fork.decide(asked, "denied", by="ann")
        await fork.rest()
        assert world.ledger == [("look", "A"), ("pay", 5, "A")]
        assert [outcome for outcome, _ in results(fork)] == ["ok", "denied"]
        assert rows(c) == before, "the parent is as it was"
        at = before[place(c, kind, nth) - 1]
        assert parent_of(fork) == Parent(session="s", seq=at.seq, hash=at.hash.hex())
        valid(sent_to(engine)[-1].messages)
    assert verify(world.path).ok


def sent_to(engine: Engine) -> list[ModelCall]:
    """What @agent's scripted model was sent."""
    agent = engine.agent("@agent")
    assert agent is not None
    return sent(agent)


@pytest.mark.field(86)
async def test_an_approved_payment_of_a_fork_has_a_key_of_its_own(world: World) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        fork = await engine.fork("s", place(c, "approval_requested"), "f")
        await fork.decide(request(fork), "approved", by="ann")
        await fork.rest()
        assert world.ledger == [("look", "A"), ("pay", 5, "A"), ("pay", 5, "A")]
        (mine,) = of_kind(fork, "tool_started")
        assert mine.key not in {started.key for started in of_kind(c, "tool_started")}
        assert mine.permit == of_kind(fork, "approval_requested")[0].request_id


@pytest.mark.field(86)
async def test_a_fork_of_a_fork_works_and_each_names_its_parent(world: World) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        one = await engine.fork("s", place(c, "approval_requested"), "one")
        await one.decide(request(one), "approved", by="ann")
        await one.rest()
        two = await engine.fork("one", place(one, "approval_resolved"), "two")
        await two.decide(request(two), "denied", by="ann")
        await two.rest()
        assert [outcome for outcome, _ in results(two)] == ["ok", "denied"]
        assert len([entry for entry in world.ledger if entry[0] == "pay"]) == 2
        found = [parent_of(one), parent_of(two)]
        assert [(p.session, p.seq) for p in found if p] == [
            ("s", place(c, "approval_requested")),
            ("one", place(one, "approval_resolved")),
        ]
    with LogReader(world.path) as reader:
        assert [(info.id, info.parent) for info in reader.sessions()] == [("one", "s"), ("s", ""), ("two", "one")]
    assert verify(world.path).ok


@pytest.mark.field(86)
async def test_what_the_model_sees_in_a_fork_is_what_it_saw_in_the_parent_up_to_there(world: World) -> None:
    async with world.engine(world.agent(*(say(f"answer {n}") for n in range(9)))) as engine:
        c = await engine.create("s")
        for n in range(4):
            await c.send(f"question {n}")
        first = next(row.seq for row in rows(c) if getattr(row.event, "text", "") == "answer 1")
        fork = await engine.fork("s", first, "f")
        await fork.send("another way")
        await c.send("question 4")
        mine, theirs = sent_to(engine)[-2].messages, sent_to(engine)[-1].messages
        assert [m.text for m in mine] == ["question 0", "answer 0", "question 1", "answer 1", "another way"]  # type: ignore[union-attr]  # no calls here
        assert mine[:4] == theirs[:4]


@pytest.mark.field(86)
async def test_the_forks_own_rows_rebuild_every_request_of_its_past_and_its_present(world: World) -> None:
    script: list[Step] = [
        say("hello"),
        call(("look", {"q": "1"}), PAY),
        call(("look", {"q": "2"})),
        say("done"),
        say("x"),
    ]
    async with world.engine(world.agent(*script, window=5)) as engine:
        c = await engine.create("s")
        await c.grant("look")
        await c.send("hi")
        await c.send("go")
        await c.decide(request(c), "denied")
        await c.rest()
        fork = await engine.fork("s", rows(c)[-1].seq, "f")
        await fork.send("more")
        theirs = [row for row in rows(c) if getattr(row.event, "request", None) is not None]
        mine = [row for row in rows(fork) if getattr(row.event, "request", None) is not None]
        assert len(mine) == len(theirs) + 1 == 5
        log = engine.log
        for copied, original in zip(mine, theirs, strict=False):
            assert rebuild(log, fork.session, copied) == rebuild(log, c.session, original)
        assert list(rebuild(log, fork.session, mine[-1]).messages)[-5:] == list(sent_to(engine)[-1].messages)
        assert replay(rows(fork)) == fork.session
        assert audit(rows(fork)) == [], "the parent's decisions are its own"


async def test_ids_of_calls_are_unique_in_a_fork_that_goes_on(world: World) -> None:
    script: list[Step] = [call(("look", {"q": "1"})), say("a"), call(("look", {"q": "2"})), say("b")]
    async with world.engine(world.agent(*script)) as engine:
        c = await engine.create("s")
        await c.send("one")
        fork = await engine.fork("s", c.session.seq, "f")
        await fork.send("two")
        assert results(fork) == [("ok", "saw 1"), ("ok", "saw 2")]
        ids = [one.id for e in of_kind(fork, "tools_called") for one in e.calls]
        assert len(set(ids)) == 2
        valid(sent_to(engine)[-1].messages)


@pytest.mark.parametrize("seq", [0, -1, 99])
async def test_a_seq_that_is_not_there_is_refused_and_makes_no_session(world: World, seq: int) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        with pytest.raises(Misuse, match=f"rows 1 to {c.session.seq}, none is {seq}"):
            await engine.fork("s", seq, "f")
        with pytest.raises(UnknownSession, match="'nobody'"):
            await engine.fork("nobody", 1, "f")
        with pytest.raises(Misuse, match="exists already"):
            await engine.fork("s", 1, "s")
        assert engine.log.head("f") is None


async def test_a_fork_at_a_persons_message_asks_the_model_anew(world: World) -> None:
    async with world.engine(payer(world)) as engine:
        c = await paid(world, engine)
        fork = await engine.fork("s", place(c, "message_added"), "f")
        await fork.rest()
        assert kinds(fork)[:3] == ["session_started", "message_added", "tools_called"]
        assert world.ledger[2:] == [("look", "A")]
        assert sent_to(engine)[0].messages == sent_to(engine)[-2].messages


async def test_a_fork_lands_after_what_the_machine_answered_at_once_to_a_round(world: World) -> None:
    script: list[Step] = [call(("nosuch", {}), ("pay", {"amount": "x"}), PAY), say("ok")]
    async with world.engine(world.agent(*script)) as engine:
        c = await engine.create("s")
        await c.send("go")
        called = place(c, "tools_called")
        for seq in (called, called + 1, called + 2, called + 3):
            fork = await engine.fork("s", seq, f"f{seq}")
            assert [one.tool for one in fork.session.open_calls] == ["pay"]
            assert [one.arguments for one in fork.session.requests] == [PAY[1]]
            assert parent_of(fork) is not None
        at = [parent.seq for seq in (called, called + 1) if (parent := parent_of(await engine.open(f"f{seq}")))]
        assert at == [called + 2, called + 2]


async def test_a_call_that_needs_no_word_and_was_cut_off_is_asked_about_in_the_fork(world: World) -> None:
    slow, running, go = slow_tool()
    async with world.engine(
        world.agent(call(("slow", {}), ("look", {"q": "a"})), say("ok"), tools=[slow, world.look])
    ) as engine:
        c = await engine.create("s")
        await c.say("go")
        await running.wait()
        await reached(c, lambda s: len(s.open_calls) == 1)
        running.clear()
        fork = await engine.fork("s", c.session.seq, "f")
        assert [one.tool for one in fork.session.requests] == ["slow"]
        assert not running.is_set(), "it does not run a second time unasked"
        go.set()
        assert (await c.rest()).state == "interrupt"
        await fork.decide(request(fork), "denied")
        await fork.rest()
        assert [outcome for outcome, _ in results(fork)] == ["denied", "ok"]
        assert world.ledger == [("look", "a")]


async def test_an_open_question_is_asked_anew_in_a_fork(world: World) -> None:
    async with world.engine(
        world.agent(call(("ask_user", {"questions": [{"text": "which?"}]})), say("ok"), tools=[ask_user])
    ) as engine:
        c = await engine.create("s")
        await c.send("go")
        assert c.session.question is not None
        fork = await engine.fork("s", c.session.seq, "f")
        assert fork.session.question is not None
        assert fork.session.question.request_id != c.session.question.request_id
        await fork.answer(fork.session.question.request_id, ("this",))
        assert (await fork.rest()).state == "interrupt"
        assert c.session.question is not None
        assert results(fork)[0][1].endswith("this")


async def test_what_was_allowed_for_the_session_is_not_allowed_in_its_fork(world: World) -> None:
    async with world.engine(
        world.agent(call(PAY), say("paid"), call(("pay", {"amount": 6, "to": "B"})), say("x"))
    ) as engine:
        c = await engine.create("s")
        await c.send("pay")
        await c.decide(request(c), "approved", remember="session")
        await c.rest()
        fork = await engine.fork("s", c.session.seq, "f")
        turn = await fork.send("pay B 6")
        assert turn.state == "awaiting_approval"
        assert (await c.send("pay B 6")).text == "x"


async def test_dedupe_edits_and_cooldowns_are_remembered_in_a_fork(world: World) -> None:
    @tool(needs_approval=True, unique=True)
    async def once(n: int) -> str:
        """Run once."""
        return f"did {n}"

    script: list[Step] = [call(("once", {"n": 1})), say("a"), call(("once", {"n": 2})), say("b")]
    async with world.engine(world.agent(*script, tools=[once])) as engine:
        c = await engine.create("s")
        await c.send("go")
        await c.decide(request(c), "approved", arguments={"n": 7})
        await c.rest()
        fork = await engine.fork("s", c.session.seq, "f")
        assert fork.session.runs == c.session.runs
        await fork.send("again")
        assert results(fork)[1][0] == "duplicate"
