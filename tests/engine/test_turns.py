"""Turns from outside: who speaks, when it ends, what the log says of it."""

import itertools

import pytest

from tests.engine.support import (
    World,
    kinds,
    of_kind,
    processed,
    request,
    results,
    rows,
    sent,
    slow_tool,
    valid,
)
from turnlog.engine import Agent, Engine, Rows, person
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Channel, Limits, Usage
from turnlog.fsm.history import AssistantMessage, UserMessage
from turnlog.fsm.inputs import Preloaded


def never_ending(name: str = "endless") -> ScriptedModel:
    return ScriptedModel(lambda call: say(f"word {call.index}"), name)


@pytest.mark.accept(39)
async def test_an_agent_and_a_person_need_no_further_configuration(world: World) -> None:
    async with world.engine(Agent("@agent", ScriptedModel([say("hello")]))) as engine:
        c = await engine.create()
        turn = await c.send("hi")
        assert (turn.text, turn.state) == ("hello", "interrupt")
        assert [(e.sender, e.recipient) for e in of_kind(c, "message_added")] == [
            ("USER", "@agent"),
            ("@agent", "USER"),
        ]


@pytest.mark.accept(42)
@pytest.mark.accept(44)
async def test_a_conversation_begins_with_its_start_and_has_one_reply_per_turn(world: World) -> None:
    async with world.engine(world.agent(say("one"), say("two"))) as engine:
        c = await engine.create("s")
        await c.send("first")
        await c.send("second")
        assert kinds(c) == ["session_started"] + ["message_added", "message_added", "turn_interrupted"] * 2
        assert [row.state for row in rows(c)][:3] == ["interrupt", "success", "success"]


@pytest.mark.accept(53)
async def test_the_role_of_the_agent_comes_before_all_messages(world: World) -> None:
    agent = world.agent(say("one"), role="You are brief.")
    async with world.engine(agent) as engine:
        await (await engine.create("s")).send("hi")
    (first,) = sent(agent)
    assert first.system == "You are brief."
    assert list(first.messages) == [UserMessage("hi")]


@pytest.mark.accept(37)
async def test_a_person_may_talk_to_an_agent_and_an_agent_to_a_person_and_a_group_among_itself(world: World) -> None:
    writer = Agent("writer", ScriptedModel([say("draft"), say("TERMINATE")]), role="Write.")
    critic = Agent("critic", ScriptedModel([say("too long"), say("better")]), role="Judge.")
    group = Channel(name="room", members=("writer", "critic"))
    async with world.engine(world.agent(say("hello"), say("as you like"))) as engine:
        c = await engine.create("to an agent")
        assert (await c.send("hi")).text == "hello"
        # The other way round: what the agent says first comes from the application, and the person answers.
        c = await engine.create("to a person")
        turn = await c.send("How can I help?", sender="@agent", recipient="USER")
        assert (turn.state, c.session.speaker) == ("interrupt", "USER")
        assert (await c.send("with a poem")).text == "hello"
        talk = [(e.sender, e.text) for e in of_kind(c, "message_added")]
        assert talk == [("@agent", "How can I help?"), ("USER", "with a poem"), ("@agent", "hello")]
    world.path = world.path.with_name("group.db")
    async with world.engine(person(), writer, critic, channels=[group]) as engine:
        c = await engine.create("g", entry="room")
        assert (await c.send("write a poem")).state == "terminated"
        senders = [e.sender for e in of_kind(c, "message_added")]
        assert senders[0] == "USER"
        assert set(senders[1:]) <= {"writer", "critic"}
        assert all(one != other for one, other in itertools.pairwise(senders))
        assert {e.recipient for e in of_kind(c, "message_added")} == {"room"}


@pytest.mark.accept(38)
async def test_agents_channels_tools_and_messages_can_be_looked_at(world: World) -> None:
    group = Channel(name="room", members=("@agent", "other"))
    other = Agent("other", never_ending())
    async with world.engine(person(), world.agent(say("hello"), role="Help."), other, channels=[group]) as engine:
        c = await engine.create("s")
        await c.send("hi", recipient="@agent")
        session = c.session
        assert {name: (a.model, a.tools) for name, a in session.agents.items()} == {
            "USER": ("", ()), "@agent": ("scripted", ("look", "pay")), "other": ("endless", ())
        }  # fmt: skip
        assert session.channels == {"room": group}
        assert {t.name: t.needs_approval for t in engine.registry} == {"look": False, "pay": True}
        assert [e.text for e in of_kind(c, "message_added")] == ["hi", "hello"]


@pytest.mark.accept(43)
async def test_two_agents_alternate_until_one_ends_it(world: World) -> None:
    """Eleven replies, the last of them TERMINATE: twelve messages."""
    human = Agent("human", never_ending())
    bot = Agent("bot", ScriptedModel([say(f"answer {n}") for n in range(5)] + [say("\nTERMINATE \n")]))
    async with world.engine(human, bot) as engine:
        c = await engine.create("s")
        turn = await c.send("begin")
        messages = of_kind(c, "message_added")
        assert len(messages) == 12
        assert [e.sender for e in messages] == ["human", "bot"] * 6
        assert turn.state == "terminated"


@pytest.mark.accept(45)
async def test_after_the_end_no_input_is_taken_and_each_try_is_in_the_log(world: World) -> None:
    async with world.engine(world.agent(say("TERMINATE"))) as engine:
        c = await engine.create("s")
        assert (await c.send("hi")).state == "terminated"
        for tried in (c.say("more"), c.retry(), c.resume(), c.stop(), c.grant("look"), c.answer("q", None)):
            with pytest.raises(Misuse, match="has ended: create a new one"):
                await tried
        assert [e.code for e in of_kind(c, "input_refused")] == ["terminated"] * 6
        assert c.session.state == "terminated"


@pytest.mark.accept(46)
async def test_max_rounds_counts_the_messages_of_a_pair_since_a_person_spoke(world: World) -> None:
    bots = [Agent(name, never_ending(name)) for name in ("left", "right")]
    async with world.engine(*bots, limits=Limits(max_rounds=4)) as engine:
        c = await engine.create("s")
        assert (await c.send("begin")).state == "terminated"
        assert len(of_kind(c, "message_added")) == 4, "the person's message and three of models"
        assert of_kind(c, "session_terminated")[0].reason == "max_rounds"


@pytest.mark.accept(46)
async def test_preloaded_messages_do_not_count_as_rounds(world: World) -> None:
    bots = [Agent(name, never_ending(name)) for name in ("left", "right")]
    async with world.engine(*bots, limits=Limits(max_rounds=1)) as engine:
        c = await engine.create("s", history=[Preloaded("left", "right", "from before")])
        assert (await c.send("begin")).state == "terminated"
        assert [e.text for e in of_kind(c, "message_added")] == ["from before", "begin", "word 0"]


@pytest.mark.accept(47)
async def test_interrupt_as_a_reply_or_as_a_rule_of_the_node_hands_over_to_a_person(world: World) -> None:
    shy = Agent("shy", ScriptedModel([say("INTERRUPT"), say("thanks"), say("more")]))
    bold = Agent("bold", never_ending(), interrupt="always")
    async with world.engine(bold, shy) as engine:
        c = await engine.create("s")
        turn = await c.send("begin")
        assert (turn.state, c.session.speaker, c.session.listener) == ("interrupt", "bold", "shy")
        (interrupted,) = of_kind(c, "turn_interrupted")
        assert (interrupted.reason, interrupted.node, interrupted.peer) == ("requested", "bold", "shy")
        for text in ("one", "two"):
            await c.send(text)
        assert [e.reason for e in of_kind(c, "turn_interrupted")] == ["requested", "user_turn", "user_turn"]
        assert all(isinstance(m, UserMessage) and "INTERRUPT" not in m.text for m in sent(shy)[1].messages[:1])
        assert not any("INTERRUPT" in getattr(m, "text", "") for m in sent(shy)[-1].messages)


@pytest.mark.accept(3)
@pytest.mark.parametrize("policy", ["wait", "terminate"])
async def test_a_model_that_fails_leaves_an_error_that_can_be_retried_or_ends_the_session(
    world: World, policy: str
) -> None:
    agent = world.agent(attempts(fail("rate_limit", "slow down"), say("hello")))
    limits = Limits.model_validate({"on_error": policy})
    async with world.engine(agent, limits=limits) as engine:
        c = await engine.create("s")
        turn = await c.send("hi")
        (failed,) = of_kind(c, "turn_failed")
        assert (failed.error, failed.message, failed.retryable, failed.attempt) == ("rate_limit", "slow down", True, 1)
        if policy == "wait":
            assert turn.state == "error"
            assert (await c.retry()).text == "hello"
        else:
            assert turn.state == "terminated"
            assert of_kind(c, "session_terminated")[0].reason == "failed"


@pytest.mark.accept(50)
@pytest.mark.field(31)
async def test_after_retries_the_good_turn_is_in_history_and_the_failed_ones_stay_in_the_log(world: World) -> None:
    script: list[Step] = [attempts(fail(), fail(), fail(), say("at last")), say("and on")]
    first = world.agent(*script)
    async with world.engine(first) as engine:
        c = await engine.create("s")
        assert (await c.send("hi")).state == "error"
        assert (await c.retry()).state == "error"
    again = world.agent(*script)
    async with world.engine(again) as engine:
        c = await engine.open("s")
        assert c.session.attempt == 2, "the count of tries is kept over a restart"
        assert (await c.retry()).state == "error"
        assert (await c.retry()).text == "at last"
        await c.send("next")
        assert [e.attempt for e in of_kind(c, "turn_failed")] == [1, 2, 3]
        assert [one.attempt for one in sent(again)] == [3, 4, 1]
        assert list(sent(again)[-1].messages) == [UserMessage("hi"), AssistantMessage("at last"), UserMessage("next")]
        assert len(of_kind(c, "turn_retried")) == 3


@pytest.mark.accept(6)
async def test_the_reply_carries_the_usage_of_all_completions_of_its_turn(world: World) -> None:
    look = ("look", {"q": "a"})
    async with world.engine(world.agent(call(look), call(look), say("done"), say("next"))) as engine:
        c = await engine.create("s")
        await c.send("hi")
        await c.send("more")
        replies = [e for e in of_kind(c, "message_added") if e.by == "model"]
        assert replies[0].usage == Usage(input_tokens=10, output_tokens=5, completions=1)
        assert replies[0].turn_usage == Usage(input_tokens=30, output_tokens=15, completions=3)
        assert replies[1].turn_usage == Usage(input_tokens=10, output_tokens=5, completions=1)


@pytest.mark.accept(57)
async def test_streaming_or_not_the_log_is_the_same(world: World) -> None:
    logs = []
    for stream in (True, False):
        alone = World(world.path.parent / str(stream))
        alone.path.parent.mkdir()
        script = [call(("look", {"q": "a"}), text="let me see"), say("three words more"), say("TERMINATE")]
        agent = Agent("@agent", ScriptedModel(script, stream=stream), tools=[alone.look])
        async with alone.engine(agent) as engine:
            c = await engine.create("s")
            await c.send("hi")
            await c.send("end")
            logs.append([(row.seq, row.state, row.at, row.actor, row.event) for row in rows(c)])
    for one in logs:
        for place, row in enumerate(one):
            if row[4].kind == "tool_returned":
                one[place] = (*row[:4], row[4].model_copy(update={"duration_ms": 0}))
    assert logs[0] == logs[1]


@pytest.mark.accept(72)
@pytest.mark.field(84)
async def test_a_message_while_a_tool_runs_comes_after_its_result(world: World) -> None:
    slow, running, go = slow_tool()
    agent = world.agent(call(("slow", {})), say("done"), say("and then"), tools=[slow])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        outcome = await c.say("and?")
        assert rows(c)[outcome.seq - 1].event.kind == "message_queued"
        go.set()
        await c.rest()
        assert [e.text for e in of_kind(c, "message_added")] == ["hi", "done", "and?", "and then"]
        for one in sent(agent):
            valid(one.messages)
        last = [type(m).__name__ for m in sent(agent)[-1].messages]
        assert last == ["UserMessage", "AssistantMessage", "ToolMessage", "AssistantMessage", "UserMessage"]


@pytest.mark.accept(72)
@pytest.mark.parametrize("busy", ["queue", "refuse", "interrupt"])
async def test_a_message_while_busy_is_queued_refused_or_interrupts_and_is_never_silent(
    world: World, busy: str
) -> None:
    slow, running, _ = slow_tool()
    agent = world.agent(call(("slow", {})), say("answer"), tools=[slow])
    limits = Limits.model_validate({"busy": busy, "queue": 1})
    async with world.engine(agent, limits=limits) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        if busy == "queue":
            await c.say("one")
            with pytest.raises(Misuse, match="1 messages wait already"):
                await c.say("two")
        elif busy == "refuse":
            with pytest.raises(Misuse, match="the session is busy"):
                await c.say("one")
        else:
            assert (await c.send("one")).text == "answer"
            assert results(c)[0][0] == "cancelled"
            valid(sent(agent)[-1].messages)
        refused = [e.code for e in of_kind(c, "input_refused")]
        assert refused == ([] if busy == "interrupt" else ["busy"])


async def test_a_command_sent_twice_under_one_id_has_one_effect(world: World) -> None:
    async with world.engine(world.agent(say("hello"), say("again"))) as engine:
        c = await engine.create("s")
        first = await c.say("hi", command="c1")
        await c.rest()
        second = await c.say("hi", command="c1")
        assert (second.seq, second.repeated) == (first.seq, True)
        with pytest.raises(Exception, match="used before with another content"):
            await c.say("something else", command="c1")
        assert len(of_kind(c, "message_added")) == 2


async def test_subscribers_hear_every_row_once_in_order_and_only_when_it_is_stored(world: World) -> None:
    async with world.engine(world.agent(call(("pay", {"amount": 1, "to": "A"})), say("done"))) as engine:
        c = await engine.create("s")
        heard: list[int] = []
        c.subscribe(
            lambda notice: (
                heard.extend(row.seq for row in notice.rows if row == engine.log.read("s", row.seq - 1, 1)[0])
                if isinstance(notice, Rows)
                else None
            )
        )
        await c.send("pay")
        await c.decide(request(c), "approved")
        await c.rest()
        await processed(c)
        assert heard == list(range(2, c.session.seq + 1))


async def test_a_closed_engine_leaves_no_thread_and_no_lock_behind(world: World) -> None:
    import threading

    before = set(threading.enumerate())
    async with world.engine(world.agent(say("hello"))) as engine:
        await (await engine.create("s")).send("hi")
    assert {t for t in set(threading.enumerate()) - before if "turnlog writer" in t.name} == set()
    again = Engine(world.path)
    await again.close()
