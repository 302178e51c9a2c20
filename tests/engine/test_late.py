"""What a tool brings after it was called off: no model is told, but whoever audits the log can read it."""

import asyncio
from hashlib import sha256
from typing import Any

import pytest

from tests.engine.support import World, blocking_tool, in_thread, of_kind, processed, reached, results, sent
from turnlog.engine import Conversation, Tool, ToolContext, runner, tool
from turnlog.engine.models.scripted import call, say
from turnlog.engine.running import CONTENT_LIMIT

LONG = "y" * (CONTENT_LIMIT + 1)


def stubborn(text: str) -> tuple[Tool, asyncio.Event]:
    """A tool that will not be cancelled: it pays all the same, and says so."""
    running = asyncio.Event()

    @tool(name="stubborn")
    async def pays(context: ToolContext) -> str:
        """Pay."""
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await context.attach("receipt.txt", "text/plain", b"receipt 7")
        return text

    return pays, running


async def refused(c: Conversation) -> Any:
    """The refusal that keeps the late result."""
    await reached(c, lambda s: s.seq >= 7)
    await processed(c)
    (late,) = of_kind(c, "input_refused")
    assert late.about == of_kind(c, "tools_called")[0].calls[0].id
    assert [outcome for outcome, _ in results(c)] == ["cancelled"]
    return late


@pytest.mark.parametrize("text", ["paid 5", LONG])
async def test_what_an_async_tool_brings_after_a_stop_is_kept(world: World, text: str) -> None:
    pays, running = stubborn(text)
    agent = world.agent(call(("stubborn", {})), say("next"), tools=[pays])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        await c.stop()
        late = await refused(c)
        assert "ended with ok after its result was settled: " in late.why
        assert text[:16_000] in late.why
        assert engine.log.blob(sha256(b"receipt 7").hexdigest()) == b"receipt 7"
        assert f"[receipt.txt: blob {sha256(b'receipt 7').hexdigest()}]" in late.why
        if text is LONG:
            mark = sha256(LONG.encode()).hexdigest()
            assert f"kept as blob {mark}" in late.why
            assert engine.log.blob(mark) == LONG.encode()
        assert (await c.send("go on")).text == "next"
        assert "receipt" not in str(sent(agent)[-1])
        assert text[:16_000] not in str(sent(agent)[-1])


async def test_what_a_thread_brings_after_a_stop_is_kept(world: World) -> None:
    block, running, go = blocking_tool()
    async with world.engine(world.agent(call(("block", {})), tools=[block])) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await c.stop(session=True)
        go.set()
        late = await refused(c)
        assert late.why.endswith("ended with ok after its result was settled: block is done")


async def test_how_a_tool_failed_after_a_stop_is_kept(world: World) -> None:
    running = asyncio.Event()

    @tool
    async def breaks() -> str:
        """Break."""
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise RuntimeError("half of it is paid") from error
        return ""

    async with world.engine(world.agent(call(("breaks", {})), tools=[breaks])) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await running.wait()
        await c.stop()
        late = await refused(c)
        assert late.why.endswith("with error after its result was settled: RuntimeError: half of it is paid")


async def test_a_stop_while_a_long_result_is_being_kept_loses_nothing_of_it(world: World) -> None:
    @tool
    async def long() -> str:
        """Return much."""
        return LONG

    keeping = asyncio.Event()
    async with world.engine(world.agent(call(("long", {})), tools=[long])) as engine:
        keep = engine.keep

        async def held(data: bytes) -> str:
            if data == LONG.encode():
                keeping.set()
                await asyncio.Event().wait()
            return await keep(data)

        engine.keep = held  # type: ignore[method-assign]  # a disk that takes its time
        c = await engine.create("s")
        await c.say("hi")
        await keeping.wait()
        await c.stop()
        late = await refused(c)
        mark = sha256(LONG.encode()).hexdigest()
        assert f"kept as blob {mark}" in late.why
        assert engine.log.blob(mark) == LONG.encode()


async def test_what_comes_when_its_session_has_left_memory_is_told_to_the_logger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    block, running, go = blocking_tool()
    agent = world.agent(call(("block", {})), tools=[block])
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.say("hi")
        await in_thread(running)
        await c.stop()
        await c._hub.close()
        told = asyncio.Queue[str]()
        monkeypatch.setattr(runner._log, "warning", lambda text, *given: told.put_nowait(text % given))
        go.set()
        assert "ended with ok when nobody waited for it any more: block is done" in await told.get()


async def test_two_results_of_a_call_are_one_result_and_one_refusal_with_its_text(world: World) -> None:
    """The result and the stop wait in one inbox; whichever is second is refused."""
    async with world.engine(world.agent(call(("look", {"q": "a"})), say("done"))) as engine:
        c = await engine.create("s")
        finished = asyncio.Queue[Any]()
        hand_in = c._hub.runner._hand_in
        c._hub.runner._hand_in = lambda *given: finished.put_nowait(given)  # type: ignore[method-assign]  # held
        await c.say("hi")
        given = await finished.get()
        stopping = asyncio.ensure_future(c.stop())
        await asyncio.sleep(0)
        hand_in(*given)
        await stopping
        assert (await refused(c)).why.endswith("its result was settled: saw a")
