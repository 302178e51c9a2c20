"""The adapter against a scripted OpenAI-compatible server: what is told, how it fails, and that it asks once."""

import asyncio
import json
import socket
import subprocess
import sys
from contextlib import aclosing
from typing import Any

import pytest

from tests.engine.models.asking import hear
from tests.engine.models.stub_server import DONE, Script, chunk, fin, sse, stub_server, txt, usage
from turnlog.engine.models import pydantic_ai as adapter
from turnlog.engine.models.base import ModelCall, ModelError
from turnlog.engine.models.pydantic_ai import open_model
from turnlog.fsm.errors import Misuse
from turnlog.fsm.history import UserMessage

HELLO = (txt("Hel"), txt("lo"), fin("stop"), usage(3, 4), DONE)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.accept(4)
async def test_text_comes_in_pieces_and_then_once_whole() -> None:
    heard = await hear(*HELLO)
    assert len(heard.deltas) == 2
    reply = heard.reply
    assert (reply.text, reply.finish, reply.model, reply.calls) == ("Hello", "stop", "m-1", ())
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.completions) == (3, 4, 1)


async def test_a_finish_that_only_this_server_knows_is_passed_on() -> None:
    assert (await hear(txt("x"), fin("eos"), DONE)).reply.finish == "eos"


async def test_reasoning_is_told_apart_from_the_answer() -> None:
    heard = await hear(chunk({"reasoning_content": "Hm"}), chunk({"reasoning_content": "m."}), *HELLO)
    assert (heard.reply.reasoning, heard.reply.text) == ("Hmm.", "Hello")


def failing(status: int, body: object, **headers: str) -> Script:
    return Script([json.dumps(body).encode()], status, "application/json", headers)


@pytest.mark.parametrize(
    ("status", "error", "kind", "retryable"),
    [
        (400, {"message": "m", "code": "bad_value"}, "bad_request", False),
        (400, {"message": "m", "code": "context_length_exceeded"}, "bad_request", False),
        (401, {"message": "m", "code": "invalid_api_key"}, "authentication", False),
        (403, {"message": "m", "code": "region"}, "authentication", False),
        (404, {"message": "m", "code": "model_not_found"}, "not_found", False),
        (408, {"message": "m", "code": "slow"}, "timeout", True),
        (409, {"message": "m", "code": "conflict"}, "unknown", True),
        (429, {"message": "m", "code": "rate_limit_exceeded"}, "rate_limit", True),
        (429, {"message": "m", "code": "insufficient_quota"}, "rate_limit", False),
        (500, {"message": "m", "code": "oops"}, "server", True),
        (502, {"message": "m", "code": "gateway"}, "server", True),
        (503, {"message": "m", "code": "busy"}, "overloaded", True),
        (529, {"message": "m", "code": "overloaded"}, "overloaded", True),
    ],
)
async def test_a_refused_request_has_its_kind_and_is_sent_once(
    status: int, error: dict[str, str], kind: str, retryable: bool
) -> None:
    heard = await hear(script=failing(status, {"error": error}))
    assert (heard.error.kind, heard.error.retryable, heard.error.code) == (kind, retryable, error["code"])
    assert f"HTTP {status}: m" in heard.error.message
    # `hear` has asserted that the server was asked once.


async def test_the_wait_that_a_provider_asks_for_is_told() -> None:
    script = failing(429, {"error": {"message": "slow down"}}, **{"Retry-After": "7"})
    assert "asks to wait 7 s" in (await hear(script=script)).error.message


async def test_a_page_of_html_in_place_of_an_error_is_cut_short() -> None:
    error = (await hear(script=Script([b"<html>" + b"x" * 5000], 502, "text/html"))).error
    assert error.kind == "server"
    assert len(error.message) < 1000


@pytest.mark.parametrize(
    ("script", "kind", "retryable"),
    [
        (Script([]), "empty_reply", True),
        (Script([DONE]), "empty_reply", True),
        (Script([b"<html>hello</html>"], content_type="text/html"), "empty_reply", True),
        (Script([fin("stop"), DONE]), "empty_reply", True),
        (Script([txt(" \n"), fin("stop"), DONE]), "empty_reply", True),
        (Script([chunk({"reasoning_content": "Hm"}), fin("length"), DONE]), "empty_reply", True),
        (Script([b"data: {oops\n\n"]), "server", True),
        (Script([txt("a"), b"data: {oops\n\n"]), "server", True),
        (Script([txt("a")], end="cut"), "incomplete", True),
        (Script([], end="cut"), "connection", True),
        (Script([chunk({"refusal": "I will not."}), fin("stop"), DONE]), "refused", False),
        (Script([txt("half"), fin("content_filter"), DONE]), "refused", False),
        (Script([sse({"error": {"code": "server_is_overloaded", "message": "x"}})]), "overloaded", True),
        (Script([sse({"error": {"code": 429, "message": "x"}})]), "rate_limit", True),
    ],
)
async def test_a_stream_that_fails_has_its_kind(script: Script, kind: str, retryable: bool) -> None:
    error = (await hear(script=script)).error
    assert (error.kind, error.retryable) == (kind, retryable)


async def test_a_refusal_is_told_in_the_models_words() -> None:
    script = Script([chunk({"refusal": "I will"}), chunk({"refusal": " not."}), fin("stop")])
    assert "I will not." in (await hear(script=script)).error.message


async def test_a_server_that_says_nothing_ends_in_a_timeout() -> None:
    heard = await hear(script=Script([txt("a")], end="hang"), settings={"timeout": 0.05})
    assert (heard.error.kind, heard.error.retryable) == ("timeout", True)


async def test_a_server_that_is_not_there_is_a_connection_error_with_advice() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else can answer here
        model = open_model("m", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(ModelError) as caught:
            async with aclosing(model.stream(ModelCall("", [UserMessage("hi")]))) as stream:
                await anext(stream)
        await model.aclose()
    assert (caught.value.kind, caught.value.retryable) == ("connection", True)
    assert "Is the server up" in caught.value.message


@pytest.mark.parametrize("how", ["task is cancelled", "iteration is closed"])
async def test_who_stops_listening_closes_the_connection(how: str) -> None:
    async with stub_server() as stub:
        stub.scripts = [Script([txt("a")], end="hang")]
        model = open_model("m", base_url=f"{stub.url}/v1")
        begun = asyncio.Event()

        async def listen() -> None:
            async with aclosing(model.stream(ModelCall("", [UserMessage("hi")]))) as stream:
                async for _ in stream:
                    begun.set()
                    if how == "iteration is closed":
                        return

        task = asyncio.create_task(listen())
        await begun.wait()
        assert not stub.left.is_set()
        if how == "task is cancelled":
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await stub.left.wait()
        await task if not task.cancelled() else None
        await model.aclose()


@pytest.mark.parametrize(
    ("spec", "more", "says"),
    [
        ("openai:gpt-x", {}, "OPENAI_API_KEY"),
        ("anthropic:claude-x", {}, "ANTHROPIC_API_KEY"),
        ("gpt-x", {}, "openai:NAME"),
        ("mistral:x", {}, "openai:NAME"),
        ("openai:", {}, "openai:NAME"),
        ("openai:x", {"base_url": "localhost:8000/v1"}, "no base URL"),
        ("openai:x", {"base_url": "http://h:99999/v1"}, "no base URL"),
        ("openai:x", {"api_key": "k", "settings": {"temprature": 1}}, "temprature"),
        ("openai:x", {"api_key": "k", "settings": {"max_retries": 2}}, "retry is an event"),
    ],
)
def test_a_model_that_cannot_be_opened_says_what_to_do(spec: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(Misuse, match=says):
        open_model(spec, **more)


@pytest.mark.parametrize("spec", ["openai:gpt-x", "anthropic:claude-x"])
def test_a_missing_key_points_to_the_demo(spec: str) -> None:
    with pytest.raises(Misuse, match="turnlog demo"):
        open_model(spec)


async def test_a_setting_of_one_call_is_checked_too() -> None:
    model = open_model("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ModelError, match="temprature") as caught:
        await anext(model.stream(ModelCall("", [UserMessage("hi")], settings={"temprature": 1})))
    assert (caught.value.kind, caught.value.retryable) == ("bad_request", False)
    await model.aclose()


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_the_extra_the_error_names_it() -> None:
    code = """
import sys
sys.modules["pydantic_ai"] = None
from turnlog.engine.models.pydantic_ai import open_model
try:
    open_model("m", base_url="http://127.0.0.1:9/v1")
except Exception as error:
    print(type(error).__name__, error)
"""
    told = run(code)
    assert told.startswith("Misuse")
    assert "pip install 'turnlog[models]'" in told
    assert "turnlog demo" in told


def test_importing_turnlog_imports_no_provider() -> None:
    code = """
import sys, turnlog, turnlog.engine.models.pydantic_ai
print(sorted({"pydantic_ai", "openai", "anthropic", "httpx2"} & sys.modules.keys()))
"""
    assert run(code) == "[]"


async def test_a_key_of_the_environment_is_not_sent_to_a_server_named_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    for spec in ("openai:m", "anthropic:m"):
        heard = await hear(script=Script([b"{}"], 500, "application/json"), spec=spec)
        assert "sk-secret" not in str(heard.asked[0].headers)
    heard = await hear(*HELLO, api_key="sk-given")
    assert heard.asked[0].headers["authorization"] == "Bearer sk-given"


async def test_a_server_named_by_the_environment_gets_the_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stub_server() as stub:
        stub.scripts = [Script(HELLO)]
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        monkeypatch.setenv("OPENAI_BASE_URL", f"{stub.url}/v1")
        model = open_model("openai:m")
        async for _ in model.stream(ModelCall("", [UserMessage("hi")])):
            pass
        await model.aclose()
        assert stub.asked[0].headers["authorization"] == "Bearer sk-mine"


async def test_a_compatible_server_is_told_max_tokens_and_openai_its_own_name_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compatible = await hear(*HELLO, settings={"max_tokens": 9})
    assert (compatible.body["max_tokens"], "max_completion_tokens" in compatible.body) == (9, False)
    monkeypatch.setattr(adapter, "_OFFICIAL", frozenset({"127.0.0.1"}))
    official = await hear(*HELLO, settings={"max_tokens": 9})
    assert (official.body["max_completion_tokens"], "max_tokens" in official.body) == (9, False)
