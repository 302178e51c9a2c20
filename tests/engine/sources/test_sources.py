"""One registry for tools from everywhere: how they are named, what is left out, and what is told of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine.sources.shop import Shop
from tests.engine.support import World, of_kind, processed, reached, request, results, sent
from turnlog.engine import Flow, Plugin, Tool, tool
from turnlog.engine.models.scripted import call, say
from turnlog.engine.notices import Notice, Trouble
from turnlog.engine.tools.source import Host, Kind
from turnlog.fsm.errors import Misuse
from turnlog.fsm.history import provider_name
from turnlog.fsm.states import State

HANDLER = '''
def now(city: str) -> str:
    """The weather of a city."""
    return f"{city} is dry"


def alarm(city, context):
    context.introspect("ringing")
    return f"alarm in {city}"
'''
MANIFEST = """
{"id": "weather", "version": "1.0", "active": true, "hub": "extra fields are let be", "tools": [
    {"name": "now", "entry": "handler:now"},
    {"name": "alarm", "entry": "handler:alarm", "description": "Ring.",
     "schema": {"properties": {"city": {"type": "string"}}, "required": ["city"]}}]}
"""


def plugin(folder: Path, manifest: str = MANIFEST, handler: str = HANDLER, **more: Any) -> Plugin:
    home = folder / "weather"
    home.mkdir(exist_ok=True)
    (home / "plugin.json").write_text(manifest)
    (home / "handler.py").write_text(handler)
    return Plugin(home, **more)


def flow(**more: Any) -> Flow:
    steps = [{"tool": "look", "arguments": {"q": "{{topic}}"}, "into": "seen"}, {"set": "I {{seen}}", "into": "text"}]
    return Flow({
        "id": "report", "description": "Report on a topic.", "variables": {"topic": {"type": "string"}},
        "steps": steps, **more,
    })  # fmt: skip


class Fake:
    """A source under a test's control."""

    left_out: Sequence[str] = ()

    def __init__(self, name: str, *tools: Tool, kind: Kind = "mcp", error: BaseException | None = None) -> None:
        self.name, self.kind, self.tools, self.error = name, kind, tools, error
        self.closed = 0

    async def open(self, _host: Host) -> Sequence[Tool]:
        if self.error is not None:
            raise self.error
        return self.tools

    async def close(self) -> None:
        self.closed += 1
        if self.name == "stubborn":
            raise OSError("will not close")


def named(name: str, **more: Any) -> Tool:
    @tool(name=name, **more)
    async def any_tool(q: str = "") -> str:
        """Any."""
        return f"{name} ran"

    return any_tool


# One of each --------------------------------------------------------------------------------------


@pytest.mark.accept(35)
async def test_tools_of_every_kind_are_in_one_list_and_asked_about_the_same_way(
    world: World, shop: Shop, tmp_path: Path
) -> None:
    calls: list[tuple[str, dict[str, Any] | str]] = [
        ("pay", {"amount": 1, "to": "A"}), ("report", {"topic": "oak"}), ("weather#now", {"city": "Lima"}),
        ("shop#order", {"item": "oak"}),
    ]  # fmt: skip
    agent = world.agent(call(*calls), say("done"), tools=[world.look, world.pay, "report", "weather", "shop"])
    steps = [{"tool": "pay", "arguments": {"amount": 2, "to": "{{topic}}"}}]
    sources = [shop.server(only=["order"]), flow(steps=steps), plugin(tmp_path)]
    async with world.engine(agent, sources=sources) as engine:
        assert engine.sources.problems == ()
        assert [(one.name, one.source, one.kind, one.gated) for one in engine.registry.listing()] == [
            ("look", "", "builtin", False), ("pay", "", "builtin", True), ("shop#order", "shop", "mcp", True),
            ("weather#now", "weather", "plugin", True), ("weather#alarm", "weather", "plugin", True),
            ("report", "report", "flow", True),
        ]  # fmt: skip
        c = await engine.create("s", owner="ann")
        await c.send("go")
        asked = c.session.requests
        assert [one.tool for one in asked] == ["pay", "report", "weather#now", "shop#order"]
        assert (world.ledger, shop.done) == ([], [])
        for one in asked:
            await c.decide(one, "approved", by="ann")
        await c.rest()
        assert [outcome for outcome, _ in results(c)] == ["ok"] * 4
        assert sorted(world.ledger) == [("pay", 1, "A"), ("pay", 2, "oak")]
        assert shop.done == ["order 1 oak"]


@pytest.mark.accept(56)
async def test_tools_are_named_plain_by_parent_and_child_and_as_imported(world: World, tmp_path: Path) -> None:
    files = Fake("files", named("files#read"), named("files#write"))
    sources = [files, flow(), plugin(tmp_path)]

    async def granted(*names: str | Tool) -> tuple[str, ...]:
        agent = world.agent(say("done"), tools=names)
        async with world.engine(agent, sources=sources, tools=[world.look]) as engine:
            assert engine.sources.problems == ()
            c = await engine.create(owner="ann")
            await c.send("hello")
            tools = c.session.agents["@agent"].tools
            # What a model is shown is a name that any provider takes, and leads back to the clear one in the log.
            assert [one.name for one in sent(agent)[0].tools] == [provider_name(name) for name in tools]
            return tools

    assert await granted("look") == ("look",)
    assert await granted("files#read") == ("files#read",)
    assert await granted("files") == ("files#read", "files#write")
    assert await granted("@@mcp_files") == ("files#read", "files#write")
    assert await granted("@@mcp_files#write", "files#read") == ("files#write", "files#read")
    assert await granted("@@flow_report", "report") == ("report",)
    assert await granted("@@weather", world.look) == ("weather#now", "weather#alarm", "look")


@pytest.mark.accept(56)
async def test_a_call_by_the_shown_name_is_in_the_log_under_the_clear_one(world: World) -> None:
    shown = provider_name("files#read")
    assert shown != "files#read"
    agent = world.agent(call((shown, {})), say("done"), tools=["files"])
    async with world.engine(agent, sources=[Fake("files", named("files#read"))]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        (called,) = of_kind(c, "tools_called")
        assert (called.calls[0].tool, results(c)) == ("files#read", [("ok", "files#read ran")])


@pytest.mark.accept(54)
async def test_a_child_that_was_not_granted_does_not_run(world: World) -> None:
    agent = world.agent(call((provider_name("files#write"), {})), say("done"), tools=["files#read"])
    async with world.engine(agent, sources=[Fake("files", named("files#read"), named("files#write"))]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert results(c)[0][0] == "unknown_tool"


# Names that cannot be -----------------------------------------------------------------------------


async def test_names_that_collide_are_told_and_the_others_are_there(world: World) -> None:
    mask = provider_name("files#b")
    source = Fake("files", named("look"), named("files#a"), named("files#a"), named("files#b"))
    async with world.engine(world.agent(), sources=[source], tools=[named(mask)]) as engine:
        assert [one.why for one in engine.sources.problems] == [
            "mcp 'files': two tools are named 'look': rename one",
            "mcp 'files': two tools are named 'files#a': rename one",
            f"mcp 'files': models would see '{mask}' for both '{mask}' and 'files#b': rename one",
        ]
        assert [one.name for one in engine.registry.listing() if one.source] == ["files#a"]


@pytest.mark.parametrize(
    ("sources", "why"),
    [
        ((Fake("a"), Fake("a", kind="plugin")), "two sources are named 'a'"),
        ((Fake("look"),), "'look' is a mcp and a tool"),
        ((Fake("no#hash"),), "cannot be named 'no#hash'"),
        ((Fake("@@x"),), "cannot be named '@@x'"),
        ((Fake("n" * 65),), "64 at most"),
    ],
)
def test_sources_whose_names_cannot_be_are_refused_at_once(world: World, sources: Any, why: str) -> None:
    with pytest.raises(Misuse, match=why):
        world.engine(world.agent(), sources=sources)
    assert not world.path.exists()  # and nobody owns it


@pytest.mark.parametrize("name", ["webb", "@@mcp_other", "@@files", "other#read", "@@", "#", ""])
def test_an_agent_that_names_what_is_not_there_is_told_what_is(world: World, name: str) -> None:
    with pytest.raises(Misuse, match=r"names the tool .* which is not there. There are: @@mcp_files, files, look"):
        world.engine(world.agent(tools=[world.look, name]), sources=[Fake("files")])


# Sources that fail --------------------------------------------------------------------------------


async def test_a_source_that_fails_is_told_and_closed_and_the_engine_goes_on(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Fake("bad", error=OSError("no such program")), Fake("good", named("good#a"))
    agent = world.agent(say("done"), tools=["bad", "bad#a", "good"])
    async with world.engine(agent, sources=[bad, good]) as engine:
        (problem,) = engine.sources.problems
        assert problem == ("bad", "mcp", "mcp 'bad' is left out: OSError: no such program")
        assert problem.why in caplog.text
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "done"
        # One tool of it may be granted by name; what the whole of it would be is not known.
        assert c.session.agents["@agent"].tools == ("bad#a", "good#a")
        assert [one.name for one in sent(agent)[0].tools] == [provider_name("good#a")]
    assert (bad.closed, good.closed) == (2, 1)


async def test_a_failed_source_is_tried_again_and_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    bad = Fake("bad", named("bad#a"), error=OSError("not yet"))
    agent = world.agent(call(("bad#a", {})), say("done"), tools=["bad#a"])
    async with world.engine(agent, sources=[bad]) as engine:
        world.clock.advance(30)
        await engine.sources.tried()
        assert caplog.text.count("not yet") == 1
        bad.error = None
        world.clock.advance(30)
        await engine.sources.tried()
        assert engine.sources.problems == ()
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert results(c) == [("ok", "bad#a ran")]


async def test_a_call_that_was_allowed_waits_for_its_source_while_the_others_of_its_round_run(world: World) -> None:
    files = Fake("files", named("files#a", needs_approval=True))
    agent = world.agent(
        call(("files#a", {}), ("pay", {"amount": 1, "to": "A"})), say("done"), tools=["files", world.pay]
    )
    async with world.engine(agent, sources=[files]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
    files.error = OSError("away")
    async with world.engine(agent, sources=[files]) as engine:
        c = await engine.open("s")
        heard: list[Notice] = []
        c.subscribe(heard.append)
        first, second = c.session.requests
        await c.decide(first, "approved", by="ann")
        await c.decide(second, "approved", by="ann")
        await reached(c, lambda session: len(session.open_calls) == 1)
        await processed(c)
        assert world.ledger == [("pay", 1, "A")]
        assert (c.session.state, c.session.open_calls[0].tool) == (State.SUCCESS, "files#a")
        why = "the call of 'files#a' waits, and is tried again every 30 s: mcp 'files' is left out: OSError: away"
        assert [one for one in heard if isinstance(one, Trouble)] == [Trouble("s", "source_missing", why)]
        await c.stop(by="ann")  # whoever does not want to wait
        assert results(c)[0][0] == "cancelled"


async def test_a_source_that_does_not_close_keeps_no_other_from_closing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn, good = Fake("stubborn"), Fake("good")
    async with world.engine(world.agent(), sources=[stubborn, good]):
        pass
    assert (stubborn.closed, good.closed) == (1, 1)
    assert "'stubborn' did not close: OSError: will not close" in caplog.text


# Plugins ------------------------------------------------------------------------------------------


async def test_a_plugin_s_functions_are_tools_with_its_own_schema_or_that_of_the_signature(
    world: World, tmp_path: Path
) -> None:
    agent = world.agent(
        call(("weather#now", {"city": "Lima"}), ("weather#alarm", {"city": "Lima"}), ("weather#alarm", {"town": "X"})),
        say("done"), tools=["@@weather"],
    )  # fmt: skip
    async with world.engine(agent, sources=[plugin(tmp_path, free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert results(c)[:2] == [("ok", "Lima is dry"), ("ok", "alarm in Lima")]
        assert results(c)[2][0] == "invalid_arguments"
        assert of_kind(c, "tool_returned")[-1].notes == ("ringing",)


async def test_a_plugin_with_one_tool_is_called_by_its_id(world: World, tmp_path: Path) -> None:
    alone = '{"id": "weather", "active": true, "entry": "handler:now", "description": "Is it dry?"}'
    agent = world.agent(call(("weather", {"city": "Lima"})), say("done"), tools=["@@weather"])
    async with world.engine(agent, sources=[plugin(tmp_path, alone)]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert (request(c).tool, request(c).description) == ("weather", "Is it dry?")


BROKEN = {
    "inactive": (MANIFEST.replace("true", "false"), HANDLER, 'it is not active: look at it, then set "active": true'),
    "no json": ("{", HANDLER, "plugin.json: the file: Invalid JSON"),
    "another id": (MANIFEST.replace('"weather"', '"pay"'), HANDLER, "has the id 'pay', not 'weather'"),
    "no entry": ('{"id": "weather", "active": true}', HANDLER, 'needs "entry" (of its one tool) or "tools"'),
    "entry": (MANIFEST.replace("handler:now", "../x:now"), HANDLER, "tools.0.entry: String should match"),
    "no file": (MANIFEST.replace("handler:now", "other:now"), HANDLER, "there is no other.py in"),
    "no function": (MANIFEST, "", "the tool 'now' is left out: AttributeError"),
    "code": (MANIFEST, "raise SystemExit(1)", "the tool 'now' is left out: SystemExit: 1"),
    "no types": (MANIFEST, HANDLER.replace("city: str", "city"), "parameter 'city' of tool 'now' has no type"),
    "schema": (MANIFEST.replace('"string"', '"sting"'), HANDLER, "the type 'sting' is none of string, integer"),
    "keyword": (MANIFEST.replace('"type": "string"', '"pattern": "x"'), HANDLER, "'pattern' is not understood here"),
    "not taken": (MANIFEST.replace('"city"', '"town"'), HANDLER, "alarm takes no 'town', which its schema describes"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_plugin_is_named_and_left_out(world: World, tmp_path: Path, name: str) -> None:
    manifest, handler, why = BROKEN[name]
    agent = world.agent(say("done"), tools=["weather"])
    async with world.engine(agent, sources=[plugin(tmp_path, manifest, handler)]) as engine:
        told = engine.sources.problems[0]
        assert (told.source, told.kind) == ("weather", "plugin")
        assert why in told.why
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "done"


def test_names_given_as_a_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="give a list of names"):
        Plugin(tmp_path / "weather", free="now")


async def test_a_source_that_cancels_itself_is_a_failed_one(world: World) -> None:
    bad, good = Fake("bad", error=asyncio.CancelledError()), Fake("good", named("good#a"))
    async with world.engine(world.agent(), sources=[bad, good]) as engine:
        assert [problem.source for problem in engine.sources.problems] == ["bad"]
        assert engine.registry.get("good#a") is not None


async def test_a_source_that_does_not_come_holds_up_the_start_for_a_minute_and_no_longer(world: World) -> None:
    opening = asyncio.Event()

    class Slow(Fake):
        async def open(self, host: Host) -> Sequence[Tool]:
            opening.set()
            await asyncio.Event().wait()
            return await super().open(host)

    engine = world.engine(world.agent(say("here")), sources=[Slow("slow")])
    start = asyncio.create_task(engine.start())
    await opening.wait()
    world.clock.advance(60)
    await start
    assert engine.sources.problems[0].why.endswith("opening mcp 'slow' took longer than 60 s")
    await engine.close()
