"""A model server on loopback that plays scripted HTTP answers and keeps what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Script:
    """One answer. Each step is sent as one HTTP chunk, so the client reads exactly these pieces.

    Then `end`: "close" ends the body well, "cut" drops the connection, "hang" waits for the client to go.
    """

    steps: Sequence[bytes] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict)
    end: str = "close"


@dataclass
class Asked:
    """One request that came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class StubServer:
    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.asked: list[Asked] = []
        self.port = 0
        # Set when a client went away from an answer that hangs.
        self.left = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.asked.append(await read_request(reader))
            await self.play(self.scripts[min(len(self.asked), len(self.scripts)) - 1], reader, writer)
        except (ConnectionError, EOFError):
            self.left.set()
        finally:
            writer.close()

    async def play(self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = {"Content-Type": script.content_type, "Connection": "close", "Transfer-Encoding": "chunked"}
        lines = [f"{name}: {value}" for name, value in (head | script.headers).items()]
        writer.write("\r\n".join([f"HTTP/1.1 {script.status} Scripted", *lines, "", ""]).encode())
        for step in script.steps:
            writer.write(f"{len(step):x}\r\n".encode() + step + b"\r\n")
            await writer.drain()
        if script.end == "close":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if script.end == "hang":
            await reader.read()
            self.left.set()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(head[0].split(" ")[1], headers, json.loads(body or b"{}"))


@asynccontextmanager
async def stub_server() -> AsyncIterator[StubServer]:
    stub = StubServer()
    server = await asyncio.start_server(stub.handle, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    async with server:
        yield stub


ABSENT = "absent"
_CHUNK = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}


def sse(data: dict[str, Any], event: str = "") -> bytes:
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(data)}\n\n".encode()


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """A chunk in OpenAI's style."""
    return sse(_CHUNK | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def txt(text: str) -> bytes:
    return chunk({"content": text})


def fragment(index: int | None, call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A piece of a tool call; what is ABSENT has no key at all."""
    function = {"name": name, "arguments": arguments}
    item: dict[str, Any] = {"index": index, "id": call_id}
    item = {key: value for key, value in item.items() if value != ABSENT}
    return item | {"function": {key: value for key, value in function.items() if value != ABSENT}}


def oc(index: int | None, call_id: Any, name: Any, arguments: Any) -> bytes:
    return chunk({"tool_calls": [fragment(index, call_id, name, arguments)]})


def fin(reason: str) -> bytes:
    return chunk({}, reason)


def usage(prompt: int, completion: int) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return sse(_CHUNK | {"choices": [], "usage": counts})


DONE = b"data: [DONE]\n\n"


def an_start() -> bytes:
    """The opening event in Anthropic's style."""
    counts = {"input_tokens": 7, "output_tokens": 1}
    message = {"id": "msg", "type": "message", "role": "assistant", "model": "claude-x", "content": []}
    return sse({"type": "message_start", "message": message | {"usage": counts}}, "message_start")


def an_block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        sse({"type": "content_block_start", "index": index, "content_block": block}, "content_block_start"),
        *(an_delta(index, delta) for delta in deltas),
        sse({"type": "content_block_stop", "index": index}, "content_block_stop"),
    ]


def an_delta(index: int, delta: dict[str, Any]) -> bytes:
    return sse({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")


def an_end(reason: str) -> list[bytes]:
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}
    return [sse(delta, "message_delta"), sse({"type": "message_stop"}, "message_stop")]
