"""MCP servers, real ones: a program over stdin and stdout, and one over HTTP."""

import asyncio
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.engine.sources.shop import Shop
from tests.engine.support import World, of_kind, processed, reached, request, results, sent
from turnlog.engine import Agent
from turnlog.engine.models.scripted import call, say
from turnlog.engine.tools import mcp
from turnlog.engine.tools.mcp import McpServer
from turnlog.fsm.errors import Misuse
from turnlog.fsm.history import ToolMessage, provider_name
from turnlog.fsm.states import State
from turnlog.fsm.values import Repeats


def buyer(world: World, *script: Any, tools: Any = ("shop",)) -> Agent:
    return world.agent(*script, say("done"), tools=tools)


async def test_a_tool_of_a_server_is_asked_about_and_runs_like_any_other(world: World, shop: Shop) -> None:
    shown = provider_name("shop#order")
    agent = buyer(world, call((shown, {"item": "chair", "count": 2})))
    async with world.engine(agent, sources=[shop.server()]) as engine:
        assert engine.sources.problems == ()
        c = await engine.create("s", owner="ann")
        assert (await c.send("two chairs")).state is State.AWAITING_APPROVAL
        assert (request(c).tool, request(c).arguments) == ("shop#order", {"item": "chair", "count": 2})
        assert (request(c).description, request(c).risk) == ("Order something.", "runs on the MCP server shop")
        assert shop.done == []
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert shop.done == ["order 2 chair"]
        outcome, content = results(c)[0]
        assert (outcome, '"chair": 2' in content) == ("ok", True)
        assert shown in [tool.name for tool in sent(agent)[0].tools]


async def test_a_server_over_http_gives_the_same(
    world: World, shop: Shop, web: tuple[str, "subprocess.Popen[str]"]
) -> None:
    url, _ = web
    agent = buyer(world, call(("shop#price", {"item": "oak"}), ("shop#order", {"item": "oak"})))
    async with world.engine(agent, sources=[McpServer("shop", url=url, free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("oak")).text == "done"
        assert [outcome for outcome, _ in results(c)] == ["ok", "ok"]
        assert sorted(shop.done) == ["order 1 oak", "price oak"]


async def test_a_server_over_http_that_is_gone_leaves_the_outcome_unknown_and_then_cannot_be_reached(
    world: World, web: tuple[str, "subprocess.Popen[str]"]
) -> None:
    url, process = web
    agent = buyer(world, call(("shop#order", {"item": "oak"})), call(("shop#order", {"item": "elm"})))
    async with world.engine(agent, sources=[McpServer("shop", url=url, free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        process.kill()
        process.wait()
        await c.send("oak")
        assert [outcome for outcome, _ in results(c)] == ["outcome_unknown", "error"]
        assert "it did not start as an MCP server" in results(c)[1][1]


async def test_arguments_that_do_not_fit_the_server_s_schema_are_refused_before_anybody_is_asked(
    world: World, shop: Shop
) -> None:
    agent = buyer(world, call(("shop#order", {"item": 3, "count": "many"})))
    async with world.engine(agent, sources=[shop.server()]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        outcome, content = results(c)[0]
        assert outcome == "invalid_arguments"
        assert "count: 'many' is not of type 'integer'; item: 3 is not of type 'string'" in content
        assert (of_kind(c, "approval_requested"), shop.done) == ([], [])


async def test_what_a_server_claims_of_its_tools_is_shown_and_lowers_nothing(world: World, shop: Shop) -> None:
    agent = buyer(world, call(("shop#price", {"item": "oak"})))
    async with world.engine(agent, sources=[shop.server()]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert c.session.state is State.AWAITING_APPROVAL
        assert "the server claims: destructive_hint false, read_only_hint true" in request(c).risk
        assert not engine.registry.facts(engine.registry.named(["shop#price"])[0]).idempotent


async def test_pictures_are_attachments_and_a_failure_of_the_tool_is_told(world: World, shop: Shop) -> None:
    agent = buyer(world, call(("shop#picture", {}), ("shop#broken", {})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert results(c)[0] == ("ok", "here it is")
        assert results(c)[1][0] == "error"
        assert "out of stock" in results(c)[1][1]
        (picture,) = next(event.attachments for event in of_kind(c, "tool_returned") if event.attachments)
        assert (picture.media_type, engine.log.blob(picture.digest)[:4]) == ("image/png", b"\x89PNG")
        assert any(isinstance(one, ToolMessage) and one.attachments for one in sent(agent)[1].messages)


@pytest.mark.field(100)
async def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_is_opened_for_the_next(
    world: World, shop: Shop
) -> None:
    agent = buyer(world, call(("shop#die", {"item": "x"})), call(("shop#price", {"item": "oak"})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        (unknown, why), priced = results(c)
        assert (unknown, "Whether the call took effect is not known" in why) == ("outcome_unknown", True)
        assert priced == ("ok", "oak costs 9")
        assert (shop.done, len(shop.started)) == (["die x", "price oak"], 2)


async def test_a_connection_on_which_a_call_was_lost_is_not_used_again(
    world: World, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnlog.engine.tools.mcp_client import Connection

    kept = Connection.call

    async def forgotten(_self: Connection, _name: str, _arguments: dict[str, Any]) -> Any:
        monkeypatch.setattr(Connection, "call", kept)
        raise mcp.Lost("the server knows nothing of us any more")

    monkeypatch.setattr(Connection, "call", forgotten)
    agent = buyer(world, call(("shop#price", {"item": "a"})), call(("shop#order", {"item": "b"})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert [outcome for outcome, _ in results(c)] == ["outcome_unknown", "ok"]
        assert len(shop.started) == 2


async def test_a_call_that_may_be_repeated_is_an_error_the_model_may_try_again(world: World, shop: Shop) -> None:
    agent = buyer(world, call(("shop#die", {"item": "x"})))
    async with world.engine(agent, sources=[shop.server(free=["*"], idempotent=["die"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        outcome, why = results(c)[0]
        assert (outcome, "It may be called again" in why) == ("error", True)


async def test_a_server_that_died_between_calls_is_opened_before_the_next_and_nothing_is_in_doubt(
    world: World, shop: Shop
) -> None:
    agent = buyer(world, call(("shop#price", {"item": "a"})), say("one"), call(("shop#price", {"item": "b"})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        connection = engine.sources._sources[0]._connection  # type: ignore[attr-defined]  # the source is an McpServer
        ended = connection.ended
        os.kill(shop.started[0], signal.SIGKILL)
        await asyncio.wait_for(ended.wait(), 30)
        world.clock.advance(31)
        await c.send("go on")
        assert [outcome for outcome, _ in results(c)] == ["ok", "ok"]
        assert len(shop.started) == 2


async def test_a_server_that_is_lost_again_and_again_rests_for_a_minute(world: World, shop: Shop) -> None:
    dying = [call(("shop#die", {"item": str(number)})) for number in range(3)]
    agent = buyer(world, *dying, say("enough"), call(("shop#die", {"item": "last"})))
    async with world.engine(agent, sources=[shop.server(free=["*"], cooldown=0, reopen=1)]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert [outcome for outcome, _ in results(c)] == ["outcome_unknown", "outcome_unknown", "error"]
        assert "lost 2 times in a row. It is tried again in 60 s" in results(c)[2][1]
        assert len(shop.started) == 2
        world.clock.advance(60)
        await c.send("once more")
        assert len(shop.started) == 3


async def test_a_call_has_its_time_by_the_engine_s_clock(world: World, shop: Shop) -> None:
    agent = buyer(world, call(("shop#slow", {})))
    async with world.engine(agent, sources=[shop.server(free=["*"], timeout=5)]) as engine:
        c = await engine.create("s", owner="ann")
        await c.say("go", by="ann")
        assert await shop.rung() == "slow began"
        world.clock.advance(5)
        assert await shop.rung() == "slow was cancelled"
        await reached(c, lambda session: session.state is State.INTERRUPT)
        outcome, why = results(c)[0]
        assert (outcome, why.startswith("shop#slow took longer than 5 s")) == ("outcome_unknown", True)


@pytest.mark.field(104)
async def test_a_stop_cancels_the_call_at_the_server_which_can_be_used_afterwards(world: World, shop: Shop) -> None:
    agent = buyer(world, call(("shop#slow", {})), call(("shop#price", {"item": "oak"})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.say("go", by="ann")
        assert await shop.rung() == "slow began"
        await c.stop(by="ann")
        assert await shop.rung() == "slow was cancelled"
        await c.send("and now?")
        assert [outcome for outcome, _ in results(c)] == ["cancelled", "ok"]
        assert len(shop.started) == 1


async def test_a_server_that_does_not_start_is_told_and_comes_later_for_the_call_that_waits(
    world: World, shop: Shop
) -> None:
    agent = buyer(world, call(("shop#order", {"item": "oak"})), tools=["shop#order"])
    async with world.engine(agent, sources=[shop.server()]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
    shop.refuse.touch()
    async with world.engine(agent, sources=[shop.server()]) as engine:
        (problem,) = engine.sources.problems
        assert (problem.source, problem.kind, "no room for a server here" in problem.why) == ("shop", "mcp", True)
        c = await engine.open("s")
        await c.decide(request(c), "approved", by="ann")
        await processed(c)
        assert (c.session.calls[0].status, of_kind(c, "tool_returned"), shop.done) == ("approved", [], [])
        shop.refuse.unlink()
        world.clock.advance(30)
        await reached(c, lambda session: session.state is State.INTERRUPT)
        assert (results(c)[0][0], shop.done, engine.sources.problems) == ("ok", ["order 1 oak"], ())


# Pauses -------------------------------------------------------------------------------------------


@pytest.mark.accept(29)
async def test_tools_of_servers_have_a_pause_of_30_seconds(world: World, shop: Shop) -> None:
    agent = buyer(
        world, call(("shop#price", {"item": "a"})), call(("shop#price", {"item": "b"})), say("wait"),
        call(("shop#price", {"item": "c"})),
    )  # fmt: skip
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        world.clock.advance(31)
        await c.send("go on")
        assert [outcome for outcome, _ in results(c)] == ["ok", "duplicate", "ok"]
        assert "needs a pause of 30 s" in results(c)[1][1]
        assert shop.done == ["price a", "price c"]


@pytest.mark.accept(29)
@pytest.mark.parametrize("off", ["false", "0", "no", "off", " False "])
async def test_the_pause_is_switched_off_by_a_word_that_means_so(
    world: World, shop: Shop, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setenv("TURNLOG_MCP_COOLDOWN", off)
    agent = buyer(world, call(("shop#price", {"item": "a"})), call(("shop#price", {"item": "b"})))
    async with world.engine(agent, sources=[shop.server(free=["*"])]) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("go")
        assert shop.done == ["price a", "price b"]


@pytest.mark.accept(29)
def test_the_pause_of_a_tool_may_be_its_own_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def pauses() -> list[Repeats | None]:
        server = McpServer("shop", command=["x"], cooldown={"price": 0, "order": 5, "p*": 7})
        return [server._repeats(name) for name in ("price", "order", "picture", "slow")]

    five, seven = Repeats(cooldown_seconds=5), Repeats(cooldown_seconds=7)
    for word in ("true", "1", "yes", "on", ""):
        monkeypatch.setenv("TURNLOG_MCP_COOLDOWN", word)
        assert pauses() == [None, five, seven, Repeats(cooldown_seconds=30)]
    monkeypatch.setenv("TURNLOG_MCP_COOLDOWN", "false")
    assert pauses() == [None, five, seven, None]


# What makes no sense ------------------------------------------------------------------------------


def test_a_word_that_means_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNLOG_MCP_COOLDOWN", "fasle")
    with pytest.raises(Misuse, match=r"TURNLOG_MCP_COOLDOWN='fasle' is neither: use true or false"):
        McpServer("shop", command=["x"])


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"name": "my shop", "command": ["x"]}, "cannot be named 'my shop'"),
        ({"name": "shop"}, "needs a command"),
        ({"name": "shop", "command": ["x"], "url": "http://127.0.0.1/"}, "and not both"),
        ({"name": "shop", "command": "x -y"}, "a list of texts"),
        ({"name": "shop", "command": ["x"], "free": "price"}, "give a list of names"),
        ({"name": "shop", "command": ["x"], "cooldown": {"price": -1}}, "is no number of seconds"),
    ],
)
def test_a_server_that_makes_no_sense_is_refused_at_once(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse, match=why):
        McpServer(**given)


async def test_without_the_package_the_engine_starts_and_says_what_to_install(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "find_spec", lambda _: None)
    async with world.engine(buyer(world), sources=[McpServer("shop", command=["x"])]) as engine:
        assert "pip install 'turnlog[mcp]'" in engine.sources.problems[0].why
        c = await engine.create("s", owner="ann")
        assert (await c.send("hello")).text == "done"


SCHEMAS: dict[str, tuple[dict[str, Any], str]] = {
    "no schema": ({"type": "strange"}, "its schema is wrong"),
    "no object": ({"type": "string"}, "describes no object"),
    "nowhere": ({"type": "object", "allOf": [{"$ref": "#/$defs/none"}]}, "its schema is wrong"),
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.usefixtures("shop")
def test_a_schema_that_is_none_is_found_when_tools_are_listed(name: str) -> None:
    from turnlog.engine.tools.mcp_client import checker

    schema, why = SCHEMAS[name]
    fault, wrong = checker(schema)
    assert why in wrong
    assert fault({}) != ""


@pytest.mark.usefixtures("shop")
def test_what_a_schema_refers_to_elsewhere_is_not_fetched() -> None:
    from turnlog.engine.tools.mcp_client import checker

    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that the library calls
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as elsewhere:
        thread = threading.Thread(target=elsewhere.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{elsewhere.server_port}/schema.json"
            _, wrong = checker({"type": "object", "allOf": [{"$ref": place}]})
        finally:
            elsewhere.shutdown()
            thread.join()
    assert (asked, "its schema is wrong" in wrong) == ([], True)
