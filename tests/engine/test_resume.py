"""Another life of the process: other tools, other agents, bad rows, a new owner. The log says what is owed."""

import asyncio
import logging
from typing import Any

import pytest

from tests.engine.support import World, kinds, of_kind, processed, reached, request, results, rows, slow_tool
from turnlog.engine import Agent, Conversation, Notice, Outcome, Tool, Trouble, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.engine.tools.ask import ask_user
from turnlog.fsm.errors import BadBody, Error, Fenced, Misuse, UnknownSession
from turnlog.fsm.events import Limits

PAY = ("pay", {"amount": 1, "to": "A"})


def noting(ledger: list[Any], **more: Any) -> Tool:
    """A tool "slow" that has an effect."""

    async def slow() -> str:
        """Have an effect."""
        ledger.append("slow")
        return "ran"

    return tool(name="slow", **more)(slow)


async def cut_off(world: World, **more: Any) -> None:
    """A session "s" whose tool "slow" was running when the process ended."""
    slow, running, _ = slow_tool(**more)
    async with world.engine(world.agent(call(("slow", {})), say("done"), tools=[slow])) as engine:
        c = await engine.create("s")
        await c.say("go")
        await running.wait()


@pytest.mark.parametrize(
    ("then", "now", "asked"), [(True, True, False), (True, False, True), (False, True, True), (False, False, True)]
)
async def test_only_a_tool_that_was_and_is_declared_idempotent_is_repeated_unasked(
    world: World, then: bool, now: bool, asked: bool
) -> None:
    await cut_off(world, idempotent=then)
    agent = world.agent(call(("slow", {})), say("done"), tools=[noting(world.ledger, idempotent=now)])
    async with world.engine(agent) as engine:
        c = await engine.open("s")
        await c.rest()
        assert world.ledger == ([] if asked else ["slow"])
        if asked:
            assert request(c).why == "outcome_unknown"
            assert request(c).tool == "slow"
        else:
            assert [e.attempt for e in of_kind(c, "tool_started")] == [1, 2]
            assert len({e.key for e in of_kind(c, "tool_started")}) == 1, "the tool can tell that it is the same call"


async def test_a_running_tool_that_is_gone_after_the_restart_is_asked_about_and_can_be_given_up(world: World) -> None:
    await cut_off(world)
    async with world.engine(world.agent(call(("slow", {})), say("done"), tools=[])) as engine:
        c = await engine.open("s")
        await c.rest()
        await c.decide(request(c), "denied", reason="it is gone")
        await c.rest()
        ((outcome, content),) = results(c)
        assert outcome == "outcome_unknown"
        assert "not known" in content
        assert of_kind(c, "message_added")[-1].text == "done"


async def test_an_idempotent_call_whose_tool_is_gone_after_the_restart_is_repeated_when_it_is_back(
    world: World,
) -> None:
    await cut_off(world, idempotent=True)
    async with world.engine(world.agent(tools=[])) as engine:
        c = await engine.open("s")
        await processed(c)
        assert results_so_far(c) == []
    tools = [noting(world.ledger, idempotent=True)]
    async with world.engine(world.agent(call(("slow", {})), say("done"), tools=tools)) as engine:
        c = await engine.open("s")
        await c.rest()
        assert (results(c), world.ledger) == ([("ok", "ran")], ["slow"])


def results_so_far(c: Conversation) -> list[str]:
    return [event.outcome for event in of_kind(c, "tool_returned")]


@pytest.mark.parametrize("early", [True, False], ids=["approved_before", "approved_without_it"])
async def test_a_call_whose_tool_is_gone_waits_says_so_and_runs_when_the_tool_is_back(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    agent = world.agent(call(("look", {"q": "x"}), PAY), say("done"))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("pay")
        if early:  # the process ends before the calls start
            hub = await engine.hub("s")
            monkeypatch.setattr(hub.missing, "ready", lambda _: None)  # what a crash at this moment comes to
            await c.decide(request(c), "approved")
    why = "the call of 'pay' waits: start the engine with this tool, or stop the turn"
    async with world.engine(world.agent(tools=[world.look])) as engine:
        c = await engine.open("s")
        if not early:
            await c.decide(request(c), "approved")
        await reached(c, lambda session: [one.tool for one in session.open_calls] == ["pay"])
        heard: list[Notice] = []
        c.subscribe(heard.append)  # who comes later is told as well
        assert Trouble("s", "tool_missing", why) in heard
        assert (results_so_far(c), c.session.state) == (["ok"], "success")
        assert caplog.text.count(why) == 1
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.open("s")
        await c.rest()
        heard.clear()
        c.subscribe(heard.append)
        assert heard == [], "nothing is missing any more"
        assert [outcome for outcome, _ in results(c)] == ["ok", "ok"]
        assert of_kind(c, "message_added")[-1].text == "done"
    assert world.ledger == [("look", "x"), ("pay", 1, "A")]


async def test_a_call_that_waits_for_its_tool_can_be_stopped(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        await (await engine.create("s")).send("pay")
    async with world.engine(world.agent(tools=[])) as engine:
        c = await engine.open("s")
        await c.decide(request(c), "approved")
        await c.stop()
        assert results_so_far(c) == ["cancelled"]
        assert [one.code for one in (await engine.hub("s")).missing.troubles] == ["agents_differ"]


async def test_who_opens_a_session_with_other_agents_is_told_what_differs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with world.engine(world.agent(call(PAY), say("done"), role="Pay.")) as engine:
        await (await engine.create("s")).send("pay")
    async with world.engine(Agent("other", ScriptedModel(())), tools=[world.look]) as engine:
        heard: list[Notice] = []
        (await engine.open("s")).subscribe(heard.append)
    assert [one.message for one in heard if isinstance(one, Trouble)] == [
        "'@agent' has no model here: start the engine with this agent",
        "'@agent' was granted 'pay', which this engine does not have: start it with what is missing",
    ]
    async with world.engine(world.agent(role="Refund.")) as engine:
        heard.clear()
        (await engine.open("s")).subscribe(heard.append)
    (notice,) = heard
    assert isinstance(notice, Trouble)
    assert (notice.code, "'@agent' had another role" in notice.message) == ("agents_differ", True)
    assert all(one.message in caplog.text for one in heard if isinstance(one, Trouble))


async def test_a_model_that_is_not_configured_any_more_is_an_error_that_can_be_retried(world: World) -> None:
    slow, running, _ = slow_tool()
    agent = world.agent(call(("slow", {})), say("done"), tools=[slow])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("go")
        await running.wait()
        await c.stop()
    async with world.engine(Agent("somebody else", ScriptedModel([]))) as engine:
        c = await engine.open("s")
        turn = await c.send("go on")
        assert turn.state == "error"
        assert "start the engine with this agent" in of_kind(c, "turn_failed")[0].message
    async with world.engine(agent) as engine:
        c = await engine.open("s")
        assert (await c.retry()).text == "done"


@pytest.mark.field(105)
@pytest.mark.field(18)
async def test_a_session_with_a_bad_row_is_refused_by_name_and_the_others_go_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    agent = world.agent(call(PAY), say("done"))
    async with world.engine(agent) as engine:
        for name in ("bad", "good"):
            await (await engine.create(name)).send("pay")
        db = engine.log._writer._db
        db.execute("DROP TRIGGER events_no_update")
        db.execute("UPDATE events SET body = '{bad' WHERE session = 'bad' AND seq = 3")
    with caplog.at_level(logging.WARNING):
        async with world.engine(agent) as engine:
            with pytest.raises(BadBody, match="session 'bad' seq 3"):
                await engine.open("bad")
            with pytest.raises(BadBody, match="session 'bad' seq 3"):
                await engine.create("bad")
            with pytest.raises(UnknownSession, match="'nobody knows'"):
                await engine.open("nobody knows")
            good = await engine.open("good")
            await good.decide(request(good), "approved")
            await good.rest()
            assert world.ledger == [("pay", 1, "A")]
            assert [info.id for info in engine.log.sessions()] == ["bad", "good"]
    assert "'bad' seq 3" in caplog.text


async def test_a_session_that_another_owner_took_is_lost_with_a_reason_and_can_be_taken_back(world: World) -> None:
    async with world.engine(world.agent(say("one"), say("two"))) as engine:
        c = await engine.create("s")
        await c.send("first")
        engine.log.lease("s", "somebody else").result()
        with pytest.raises(Fenced, match="somebody else"):
            await c.say("second")
        assert engine.live("s") is None
        assert (await c.send("second")).text == "two"
        assert [e.text for e in of_kind(c, "message_added")] == ["first", "one", "second", "two"]


async def test_a_question_that_ran_out_while_nothing_ran_is_answered_by_the_timer_at_the_next_start(
    world: World,
) -> None:
    asking = call(("ask_user", {"questions": [{"text": "Which?"}]}))
    agent = world.agent(asking, say("never mind"), tools=[ask_user])
    async with world.engine(agent, limits=Limits(question_seconds=60)) as engine:
        c = await engine.create("s")
        turn = await c.send("go")
        assert turn.question is not None
    world.clock.jump(3600)
    async with world.engine(agent) as engine:
        live = engine.live("s")
        assert live is not None, "its timer is armed although nobody opened it"
        c = await engine.open("s")
        await reached(c, lambda s: s.question is None and s.state == "interrupt")
        assert [e.outcome for e in of_kind(c, "question_answered")] == ["expired"]
        assert of_kind(c, "message_added")[-1].text == "never mind"


async def test_a_question_survives_a_restart_and_takes_its_answer(world: World) -> None:
    asking = call(("ask_user", {"questions": [{"text": "Which?", "choices": ["a", "b"]}]}))
    agent = world.agent(asking, say("b it is"), tools=[ask_user])
    async with world.engine(agent) as engine:
        turn = await (await engine.create("s")).send("go")
    assert turn.question is not None
    async with world.engine(agent) as engine:
        c = await engine.open("s")
        assert c.session.question == turn.question
        await c.answer(turn.question.request_id, ("b",), by="ann")
        await c.rest()
        assert "b" in results(c)[0][1]
        with pytest.raises(Misuse, match="already answered by person:ann at"):
            await c.answer(turn.question.request_id, ("a",), by="ann")


@pytest.mark.field(22)
async def test_of_a_hundred_equal_inputs_at_once_one_is_taken_and_the_others_are_refused_each_for_itself(
    world: World,
) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        c = await engine.create("s")
        asked = (await c.send("pay")).requests[0]
        tried = await asyncio.gather(
            *(c.decide(asked, "approved", by=f"person {n}") for n in range(100)), return_exceptions=True
        )
        taken = [n for n, one in enumerate(tried) if isinstance(one, Outcome)]
        refused = [one for one in tried if isinstance(one, Misuse)]
        assert (taken, len(refused)) == ([0], 99)
        assert all("already approved by person:person 0" in str(one) for one in refused)
        await c.rest()
        assert world.ledger == [("pay", 1, "A")]
        said = [row for row in rows(c) if row.event.kind == "input_refused"]
        assert [row.actor for row in said] == [f"person:person {n}" for n in range(1, 100)]


async def test_resuming_twice_in_one_process_does_not_repeat_what_runs(world: World) -> None:
    """Opening a session that is live is no resume."""
    slow, running, go = slow_tool()
    async with world.engine(world.agent(call(("slow", {})), say("done"), tools=[slow])) as engine:
        c = await engine.create("s")
        await c.say("go")
        await running.wait()
        again = await engine.open("s")
        go.set()
        await again.rest()
        assert kinds(c).count("session_resumed") == 0
        assert kinds(c).count("tool_started") == 1


async def test_an_engine_that_cannot_start_gives_the_file_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = world.engine(world.agent())

    async def broken() -> None:
        raise Error("no start today")

    monkeypatch.setattr(engine, "start", broken)
    with pytest.raises(Error, match="no start today"):
        async with engine:
            raise AssertionError
    async with world.engine(world.agent(say("hello"))) as again:
        c = await again.create("s")
        assert (await c.send("hi")).text == "hello"
        await processed(c)
