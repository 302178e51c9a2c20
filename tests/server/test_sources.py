"""Sources over the wire: nothing of them before the answer, then all of them once, under the answer's id."""

import json
from typing import Any

import pytest

from tests.server.support import World, body, rest
from turnlog.engine import Agent, ToolContext, tool
from turnlog.engine.models.base import Model, ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, say
from turnlog.engine.models.untooled import Untooled
from turnlog.fsm.events import Citation
from turnlog.server.frames import Delta, EventFrame

SECRET = "what the guide says"


@tool(name="find")
async def find(q: str, context: ToolContext) -> str:
    """Find something in the documents."""
    context.cite(Citation(id=q, title="The guide", excerpt=SECRET), Citation(id="both", excerpt=SECRET))
    return "found"


def native(*, stream: bool) -> Model:
    """A model that calls tools by itself."""
    script = [call(("find", {"q": "a"})), call(("find", {"q": "b"})), say("so it is said")]
    return ScriptedModel(script, "native", stream=stream)


def simulated(*, stream: bool) -> Model:
    """A model that has only words, made to call tools."""
    calls = [json.dumps({"name": "find", "arguments": {"q": q}}) for q in ("a", "b")]
    return Untooled(ScriptedModel([*map(say, calls), say("so it is said")], "words", stream=stream))


MODELS = {"native": native, "simulated": simulated}


@pytest.mark.accept(18)
@pytest.mark.accept(19)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", MODELS)
async def test_sources_come_once_with_the_answer_and_under_its_id(world: World, kind: str, stream: bool) -> None:
    model = MODELS[kind](stream=stream)
    async with world.up(Agent("@agent", model, tools=[find])) as served:
        client = await served.client()
        session = (await client.create()).session
        feed = await client.open(session)
        await feed.live()
        await client.send(session, "what does the guide say?")
        frames: list[Any] = []
        async for frame in feed:
            frames.append(frame)
            if isinstance(frame, EventFrame) and frame.kind == "turn_interrupted":
                break
        events = [frame for frame in frames if isinstance(frame, EventFrame)]
        answer = next(one for one in events if one.kind == "message_added" and body(one)["by"] == "model")
        assert [one.kind for one in events].count("tool_returned") == 2
        assert [one for one in frames if SECRET in one.model_dump_json()] == [answer]
        assert [one["id"] for one in body(answer)["citations"]] == ["a", "both", "b"]
        assert body(answer)["text"] == "so it is said"
        streamed = {one.message_id for one in frames if isinstance(one, Delta) and one.kind == "text" and one.text}
        assert streamed <= {body(answer)["message_id"]}
        assert streamed or not stream
        (stored,) = [one for one in served.of_kind(session, "message_added") if one.by == "model"]
        assert [one.model_dump() for one in stored.citations] == body(answer)["citations"]


@pytest.mark.accept(18)
@pytest.mark.accept(33)
async def test_who_stops_a_turn_is_shown_its_sources_with_the_row_that_ends_it(world: World) -> None:
    async with world.up(world.agent(call(("find", {"q": "a"})), call(("pay", {"amount": 1, "to": "A"})),
                                    tools=[find, world.pay])) as served:  # fmt: skip
        client = await served.client()
        session = (await client.create()).session
        feed = await client.open(session)
        await client.send(session, "pay")
        before = await feed.until("approval_requested")
        assert before is not None
        await client.stop(session)
        *_, end = await rest(feed)
        assert [one["id"] for one in body(end)["citations"]] == ["a", "both"]


@pytest.mark.accept(21)
async def test_a_later_viewer_sees_the_same_and_the_next_turn_starts_empty(world: World) -> None:
    def step(given: ModelCall) -> Step:
        return [call(("find", {"q": "a"})), say("one"), say("two")][given.index]

    async with world.up(world.playing(step, tools=[find])) as served:
        client = await served.client()
        session = (await client.create()).session
        for text in ("first", "second"):
            feed = await client.open(session)
            await feed.live()
            await client.send(session, text)
            await rest(feed)
            await feed.close()
        again = await client.open(session)
        seen = [*await rest(again), *await rest(again)]
        answers = [body(one) for one in seen if one.kind == "message_added" and body(one)["by"] == "model"]
        assert [[source["id"] for source in one["citations"]] for one in answers] == [["a", "both"], []]
        assert all("citations" not in body(one) for one in seen if one.kind == "tool_returned")
