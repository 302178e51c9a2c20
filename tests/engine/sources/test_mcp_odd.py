"""MCP servers that say odd things: nothing of it hurts the session or the engine."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, of_kind, results
from turnlog.engine.models.scripted import call, say
from turnlog.engine.tools.mcp import McpServer

PROGRAM = Path(__file__).with_name("raw_server.py")
pytestmark = pytest.mark.usefixtures("shop")  # which skips where the package is not there
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def raw(tools: list[dict[str, Any]], *answers: dict[str, Any], **methods: list[dict[str, Any]]) -> McpServer:
    said = {"tools/list": [{"result": {"tools": tools}}], "tools/call": list(answers), **methods}
    return McpServer("raw", command=[sys.executable, str(PROGRAM), json.dumps(said)], free=["*"])


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "d", "inputSchema": NUMBER, **more}


def content(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"result": {"content": list(blocks), **more}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


async def called(world: World, server: McpServer, times: int = 1) -> list[tuple[str, str]]:
    script = [call((f"raw#do{number}", {"n": 1})) for number in range(times)]
    agent = world.agent(*script, say("done"), tools=["raw"])
    async with world.engine(agent, sources=[server]) as engine:
        c = await engine.create("s", owner="ann")
        assert (await c.send("go")).text == "done"
        world.ledger += [file for event in of_kind(c, "tool_returned") for file in event.attachments]
        return results(c)


async def test_tools_that_cannot_be_used_are_left_out_and_told_and_the_others_are_there(world: World) -> None:
    odd = {"type": "object", "properties": {"n": {"type": "intger"}}}
    tools = [
        named("good"), named("a#b"), named(" "), named("odd", inputSchema=odd),
        named("far", inputSchema={"type": "object", "allOf": [{"$ref": "http://127.0.0.1:9/x.json"}]}), named("good"),
    ]  # fmt: skip
    async with world.engine(world.agent(), sources=[raw(tools)]) as engine:
        assert [one.name for one in engine.registry.listing() if one.source] == ["raw#good"]
        told = [problem.why for problem in engine.sources.problems]
        assert told[-1] == "mcp 'raw': two tools are named 'raw#good': rename one"
        for name, why in (("a#b", "has a '#'"), (" ", "blank"), ("odd", "its schema is wrong"), ("far", "its schema")):
            assert any(f"the tool {name!r} is left out" in one and why in one for one in told)


async def test_names_of_any_length_and_letters_are_shown_to_models_as_names_that_providers_take(world: World) -> None:
    tools = [named("x" * 100), named("x" * 101), named("a.b/c"), named("a.b:c"), named("naïve tool")]
    async with world.engine(world.agent(), sources=[raw(tools)]) as engine:
        shown = [one.shown for one in engine.registry.listing() if one.source]
        assert len(set(shown)) == 5
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in shown)


async def test_pages_of_a_listing_are_all_read_and_one_that_never_ends_is_cut_off(world: World) -> None:
    pages: list[dict[str, Any]] = [
        {"result": {"tools": [named("a")], "nextCursor": "1"}},
        {"result": {"tools": [named("b")]}},
    ]
    async with world.engine(world.agent(), sources=[raw([], **{"tools/list": pages})]) as engine:
        assert [one.name for one in engine.registry.listing() if one.source] == ["raw#a", "raw#b"]
    endless: list[dict[str, Any]] = [{"result": {"tools": [], "nextCursor": "more"}}]
    async with world.engine(world.agent(), sources=[raw([], **{"tools/list": endless})]) as engine:
        assert engine.sources.problems[0].why == "mcp 'raw' is left out: Lost: its listing has more than 100 pages"


async def test_lines_that_are_no_messages_are_passed_over(world: World) -> None:
    server = raw([named("do0")], {"noise": "Listening...\n{]", **content(text("fine"))})
    assert await called(world, server) == [("ok", "fine")]


async def test_what_a_result_may_hold_is_told_or_attached(world: World) -> None:
    blocks = (
        text("first"),
        {"type": "resource_link", "name": "guide", "uri": "file:///guide"},
        {"type": "resource", "resource": {"uri": "mem://notes", "text": "noted"}},
        {"type": "resource", "resource": {"uri": "mem://raw/data.bin", "blob": "AAE="}},
        {"type": "audio", "mimeType": "audio/wav", "data": "AA=="},
        {"type": "image", "mimeType": "image/png", "data": "!!"},
    )
    server = raw([named("do0")], content(*blocks, structuredContent={"a": 1}))
    ((outcome, told),) = await called(world, server)
    assert outcome == "ok"
    assert told.split("\n\n") == [
        "first", "[guide: file:///guide]", "[mem://notes]\nnoted", "[image-6 (image/png) came damaged]", '{"a": 1}',
    ]  # fmt: skip
    assert [(file.name, file.media_type, file.size) for file in world.ledger] == [
        ("data.bin", "application/octet-stream", 2), ("audio-5", "audio/wav", 1),
    ]  # fmt: skip


async def test_an_error_of_the_protocol_is_a_result_and_one_that_says_nothing_has_words(world: World) -> None:
    server = raw(
        [named("do0"), named("do1")],
        {"error": {"code": -32602, "message": "no such item"}}, content(isError=True),
    )  # fmt: skip
    first, second = await called(world, server, times=2)
    assert first == ("error", "MCPError: no such item")
    assert second == ("error", "ToolFailed: raw#do1 failed and said nothing")


async def test_a_result_that_is_not_what_was_promised_is_no_failure_that_might_be_repeated(world: World) -> None:
    promise = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    server = raw([named("do0", outputSchema=promise)], content(text("x"), structuredContent={"a": 1}))
    ((outcome, told),) = await called(world, server)
    assert (outcome, told.startswith("(The tool ran. Its result is not what the server promised: ")) == ("ok", True)


async def test_a_program_that_is_no_server_is_told_with_its_last_words(world: World) -> None:
    program = "import sys; print('key missing', file=sys.stderr)"
    for command, why in (([sys.executable, "-c", program], "key missing"), (["/no/such/program"], "No such file")):
        async with world.engine(world.agent(), sources=[McpServer("raw", command=command)]) as engine:
            assert why in engine.sources.problems[0].why
