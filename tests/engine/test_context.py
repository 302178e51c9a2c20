"""Documents and parts of the system prompt: fresh each turn, never in the log's text, rebuilt byte for byte."""

import asyncio
import threading
from typing import Any

import pytest

from tests.engine.support import World, hold_commits, in_thread, kinds, of_kind, rows, sent, valid
from turnlog.engine import Agent, Asking, Conversation, Document, Engine, person
from turnlog.engine.context import rebuild
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Channel
from turnlog.fsm.history import AssistantMessage, UserMessage
from turnlog.fsm.session import replay


def last_said(given: ModelCall) -> str:
    """The newest message of the user, as the model is sent it."""
    return [one.text for one in given.messages if isinstance(one, UserMessage)][-1]


def rebuilt(engine: Engine, c: Conversation, agent: Agent) -> int:
    """Each completion in the log was sent what the log says. The answer is how many there are."""
    said = rows(c)
    made = [row for row in said if getattr(row.event, "request", None) is not None]
    was = {given.index: given for given in sent(agent)}
    for index, row in enumerate(made):
        again = rebuild(engine.log, replay(said), row)
        assert (again.system, list(again.messages)) == (was[index].system, list(was[index].messages))
        valid(again.messages)
    return len(made)


@pytest.mark.accept(52)
@pytest.mark.parametrize("kind", ["async", "sync", "wrapped"])
async def test_a_file_added_between_turns_is_in_the_newest_message_and_not_in_the_log(world: World, kind: str) -> None:
    folder = world.path.parent / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("lamps cost 5")

    def read(asked: Asking) -> list[Document]:
        assert (asked.session, asked.owner, asked.agent) == ("s", "local", "@agent")
        return [Document(path.name, path.read_text()) for path in sorted(folder.iterdir())]

    async def read_async(asked: Asking) -> list[Document]:
        return read(asked)

    def wrapped(asked: Asking) -> Any:
        return read_async(asked)

    source: Any = {"sync": read, "async": read_async, "wrapped": wrapped}[kind]
    agent = world.agent(call(("look", {"q": "x"})), say("5"), say("5 and 9"), context=source)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("what does a lamp cost?")
        (folder / "b.txt").write_text("chairs cost 9")
        await c.send("and a chair?")
        first, second, third = map(last_said, sent(agent))
        assert first == second == "what does a lamp cost?\n\nDocuments, as they are now:\n\n[a.txt]\nlamps cost 5"
        assert third == (
            "and a chair?\n\nDocuments, as they are now:\n\n[a.txt]\nlamps cost 5\n\n[b.txt]\nchairs cost 9"
        )
        assert [one.text for one in of_kind(c, "message_added") if one.by == "person"] == [
            "what does a lamp cost?", "and a chair?"
        ]  # fmt: skip
        assert [one.documents for one in of_kind(c, "context_fetched")] == [("a.txt",), ("a.txt", "b.txt")]
        assert "lamps" not in "".join(row.event.model_dump_json() for row in rows(c))
        assert rebuilt(engine, c, agent) == 3


async def test_a_source_is_asked_with_the_newest_message_once_a_turn_whatever_fails(world: World) -> None:
    asked: list[str] = []

    async def source(one: Asking) -> str:
        asked.append(one.text)
        return f"fetched {len(asked)}"

    script: list[Step] = [call(("look", {"q": "x"})), attempts(fail(), fail(), say("done")), say("bye")]
    agent = world.agent(*script, context=source)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("one")
        await c.retry()
        await c.retry()
        await c.send("two")
        assert asked == ["one", "two"]
        assert [last_said(given)[-9:] for given in sent(agent)] == ["fetched 1"] * 4 + ["fetched 2"]
        assert rebuilt(engine, c, agent) == 3


@pytest.mark.accept(52)
async def test_a_resumed_session_uses_what_was_recorded_for_the_open_turn(world: World) -> None:
    count = 0

    def source(_: Asking) -> str:
        nonlocal count
        count += 1
        return f"fetched {count}"

    def agent() -> Agent:
        script = [call(("pay", {"amount": 1, "to": "A"})), say("paid"), say("bye")]
        return world.agent(*script, context=source, parts=["The shop is closed.", source])

    first = agent()
    async with world.engine(first) as engine:
        await (await engine.create("s")).send("pay")
    assert count == 2
    second = agent()
    async with world.engine(second) as engine:
        c = await engine.open("s")
        await c.decide(c.session.requests[0], "approved")
        await c.rest()
        assert count == 2
        assert sent(second)[0].system == sent(first)[0].system
        assert "fetched" in last_said(sent(first)[0])
        assert last_said(sent(second)[0]) == last_said(sent(first)[0])
        await c.send("thanks")
        assert count == 4
        assert [row.event.kind for row in rows(c) if row.event.kind == "context_fetched"] == ["context_fetched"] * 2


async def test_what_was_fetched_is_durable_before_the_model_is_asked(world: World) -> None:
    asked = asyncio.Event()
    fetched = asyncio.Event()

    def step(_: ModelCall) -> Any:
        asked.set()
        return say("hi")

    async def source(_: Asking) -> str:
        fetched.set()
        await go.wait()
        return "text"

    go = asyncio.Event()
    async with world.engine(Agent("@agent", ScriptedModel(step), context=source)) as engine:
        c = await engine.create("s")
        await c.say("hello")
        await fetched.wait()
        standing, release = hold_commits(engine)
        go.set()
        await standing.wait()
        assert not asked.is_set()
        release()
        await c.rest()
        assert kinds(c)[-4:] == ["message_added", "context_fetched", "message_added", "turn_interrupted"]


def broken(_: Asking) -> str:
    raise OSError("the disk is gone")


async def cancelled(_: Asking) -> str:
    raise asyncio.CancelledError("gave up")


def nonsense(_: Asking) -> Any:
    return {"a": 1}


def odd_items(_: Asking) -> Any:
    return ["fine", 5]


@pytest.mark.accept(52)
@pytest.mark.parametrize(
    ("source", "why"),
    [
        (broken, "OSError: the disk is gone"),
        (cancelled, "CancelledError: gave up"),
        (nonsense, "TypeError: a source must return texts or Documents, this is a dict"),
        (odd_items, "TypeError: a source must return texts or Documents, one is a int"),
    ],
)
async def test_a_source_that_fails_is_a_note_for_the_model_and_a_row_and_no_error(
    world: World, source: Any, why: str
) -> None:
    agent = world.agent(say("I cannot look"), context=source, parts=["First.", source, "Last."], role="Help.")
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        turn = await c.send("hello")
        assert (turn.state, turn.text) == ("interrupt", "I cannot look")
        (given,) = sent(agent)
        name = source.__name__
        assert last_said(given) == f"hello\n\n(The documents could not be fetched: {why})"
        assert given.system == (
            f"Help.\n\nFirst.\n\n(A part of these instructions, {name}, could not be fetched: {why})\n\nLast."
        )
        (row,) = of_kind(c, "context_fetched")
        assert row.problems == (f"context {name}: {why}", f"part {name}: {why}")
        assert rebuilt(engine, c, agent) == 1


async def test_odd_texts_of_a_source_are_cleaned_and_empty_ones_left_out(world: World) -> None:
    agent = world.agent(
        say("a"), say("b"), role="Help.", parts=["", "half \ud83d"],
        context=lambda asked: None if asked.text == "one" else iter([" ", Document("n", ""), "half \ud83d"]),
    )  # fmt: skip
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("one")
        await c.send("two")
        head = "Documents, as they are now:"
        assert [last_said(given) for given in sent(agent)] == ["one", f"two\n\n{head}\n\nhalf \ufffd"]
        assert {given.system for given in sent(agent)} == {"Help.\n\nhalf \ufffd"}
        assert rebuilt(engine, c, agent) == 2


async def test_a_turn_that_is_stopped_waits_for_no_source(world: World) -> None:
    running, go = threading.Event(), threading.Event()

    def hang(_: Asking) -> str:
        running.set()
        go.wait(30)
        return "late"

    async with world.engine(world.agent(say("never"), context=hang)) as engine:
        c = await engine.create("s")
        await c.say("hello")
        await in_thread(running)
        await c.stop()
        assert (await c.rest()).state == "interrupt"
        go.set()
        assert "context_fetched" not in kinds(c)


@pytest.mark.accept(53)
async def test_the_system_text_is_the_role_and_the_parts_in_order_and_can_be_rebuilt(world: World) -> None:
    memories = ["Ann likes tea."]

    async def remembered() -> list[str]:
        return memories

    agent = world.agent(say("hi"), say("again"), role="You help.", parts=["The shop is called Lamp.", remembered])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("hello")
        memories.append("Ann lives in Rome.")
        await c.send("and?")
        assert [given.system for given in sent(agent)] == [
            "You help.\n\nThe shop is called Lamp.\n\nAnn likes tea.",
            "You help.\n\nThe shop is called Lamp.\n\nAnn likes tea.\n\nAnn lives in Rome.",
        ]
        assert rebuilt(engine, c, agent) == 2
        made = of_kind(c, "message_added")[-1].request
        assert engine.log.blob(made.parts[0]).decode() == "The shop is called Lamp."


@pytest.mark.accept(53)
async def test_plain_parts_cost_no_row_and_follow_the_application_as_it_is_now(world: World) -> None:
    agents = [world.agent(say("hi"), say("again"), role="You help.", parts=[text]) for text in ("Old rules.", "New.")]
    for agent in agents:
        async with world.engine(agent) as engine:
            c = await (engine.create("s") if agent is agents[0] else engine.open("s"))
            await c.send("hello")
            assert "context_fetched" not in kinds(c)
            said = [row for row in rows(c) if getattr(row.event, "request", None) is not None]
            assert rebuild(engine.log, c.session, said[-1]).system == sent(agent)[0].system
    assert [sent(agent)[0].system for agent in agents] == ["You help.\n\nOld rules.", "You help.\n\nNew."]


async def test_members_of_a_group_have_their_own_documents_with_the_transcript(world: World) -> None:
    seen: dict[str, str] = {}

    def step(name: str) -> Any:
        def answer(given: ModelCall) -> Any:
            seen.setdefault(name, last_said(given))
            return say(f"{name} has spoken")

        return answer

    agents = [
        Agent(name, ScriptedModel(step(name), name), context=lambda asked: f"for {asked.agent}: {asked.text}")
        for name in ("ada", "bea")
    ]
    room = Channel(name="room", members=("ada", "bea"), max_rounds=2)
    async with world.engine(person(), *agents, channels=[room]) as engine:
        await (await engine.create("s", entry="room")).send("begin")
    first, second = seen
    assert seen[first].endswith(f"for {first}: USER: begin")
    assert f"for {first}" not in seen[second]
    assert f"for {second}" in seen[second]


async def test_without_any_message_of_a_user_the_documents_are_one(world: World) -> None:
    agent = world.agent(
        call(("look", {"q": "a"}), ("look", {"q": "b"})), say("done"), context=lambda _: "text", window=1
    )
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send("look")
        assert rebuilt(engine, c, agent) == 2
        assert [type(one) for one in sent(agent)[-1].messages][:2] == [UserMessage, AssistantMessage]


@pytest.mark.parametrize("wrong", [{"parts": "text"}, {"parts": [5]}, {"context": "text"}])
def test_what_is_no_source_is_refused_when_the_agent_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="of agent '@agent' must be"):
        Agent("@agent", **wrong)
