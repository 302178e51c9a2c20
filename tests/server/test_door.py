"""Who is let in: tokens, hello, Origin, Host, limits."""

import asyncio
import json
import logging
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.fakes import FakeClock
from tests.server.support import PEOPLE, PLENTY, Served, World, received, say_hello, token, until
from turnlog.engine import Engine
from turnlog.engine.models.scripted import say
from turnlog.fsm.errors import Misuse
from turnlog.server import Client, ClientError, Principal, Server, ServerLimits, Tokens, fresh_token
from turnlog.server.app import host_name, is_loopback, serve
from turnlog.server.connection import Bucket
from turnlog.server.frames import ErrorFrame, Welcome

SITE = "https://app.example"


async def knock(served: Served, **headers: str) -> int:
    """The HTTP status that a handshake with these headers gets: 101 for a socket, 0 when nothing was answered."""
    lines = {
        "Host": f"127.0.0.1:{served.server.port}", "Upgrade": "websocket", "Connection": "Upgrade",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13", **headers,
    }  # fmt: skip
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    writer.write(f"GET /ws HTTP/1.1\r\n{head}\r\n".encode())
    answer = (await reader.readline()).split()
    writer.close()
    await writer.wait_closed()
    return int(answer[1]) if answer else 0


@pytest.mark.field(126)
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("", 101),
        (SITE, 101),
        ("https://evil.example", 403),
        (f"{SITE}.evil.com", 403),
        (f"{SITE}:8443", 403),
        ("http://app.example", 403),
        ("https://APP.example", 403),
        ("https://sub.app.example", 403),
        (f"{SITE}/", 403),
        ("null", 403),
        ("*", 403),
    ],
)
async def test_a_page_may_connect_only_from_an_origin_on_the_list(world: World, origin: str, status: int) -> None:
    async with world.up(world.agent(), server={"origins": [SITE]}) as served:
        assert await knock(served, Origin=origin) == status


@pytest.mark.field(126)
async def test_without_a_list_no_page_may_connect_and_a_program_still_needs_a_token(world: World) -> None:
    async with world.up(world.agent()) as served:
        assert await knock(served, Origin=SITE) == 403
        assert await knock(served, Origin=f"http://127.0.0.1:{served.server.port}") == 403
        with pytest.raises(ClientError, match="unauthenticated"):
            await Client.connect(served.server.url, "x" * 32)


@pytest.mark.field(126)
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 101),
        ("localhost:{port}", 101),
        ("LOCALHOST", 101),
        ("[::1]:{port}", 101),
        ("lan.example:{port}", 101),
        ("evil.example:{port}", 403),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("192.168.1.7:{port}", 403),
        ("user@evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
async def test_a_name_that_is_not_this_servers_is_refused(world: World, host: str, status: int) -> None:
    async with world.up(world.agent(), server={"hosts": ["lan.example"]}) as served:
        assert await knock(served, Host=host.format(port=served.server.port)) == status


async def test_other_paths_say_where_the_socket_is(world: World) -> None:
    async with world.up(world.agent()) as served:
        with pytest.raises(InvalidStatus) as caught:
            await Client.connect(served.server.url.replace("/ws", "/elsewhere"), token("ann"))
        assert caught.value.response.status_code == 404
        assert caught.value.response.body == b"The socket is at /ws.\n"


async def refused(served: Served, *messages: str | bytes) -> tuple[ErrorFrame, int | None]:
    """What a first message gets."""
    socket = await served.socket()
    for message in messages:
        await socket.send(message)
    frame = await received(socket)
    assert isinstance(frame, ErrorFrame)
    with pytest.raises(ConnectionClosed):
        await socket.recv()
    return frame, socket.close_code


@pytest.mark.parametrize(
    ("message", "code", "close"),
    [
        ({"type": "hello", "protocol": "turnlog.v1", "token": ""}, "unauthenticated", 4401),
        ({"type": "hello", "protocol": "turnlog.v1", "token": token("ann") + "x"}, "unauthenticated", 4401),
        ({"type": "hello", "protocol": "turnlog.v1", "token": token("ann")[:-1]}, "unauthenticated", 4401),
        ({"type": "hello", "protocol": "turnlog.v1", "token": "' OR 1=1 --"}, "unauthenticated", 4401),
        ({"type": "hello", "protocol": "turnlog.v2", "token": token("ann")}, "protocol", 4406),
        ({"type": "list", "id": "1"}, "unauthenticated", 4401),
        ({"type": "open", "id": "1", "session": "s"}, "unauthenticated", 4401),
        ([], "unauthenticated", 4401),
    ],
)
async def test_the_first_frame_must_be_hello_with_a_good_token(
    world: World, message: Any, code: str, close: int
) -> None:
    async with world.up(world.agent()) as served:
        frame, closed = await refused(served, json.dumps(message))
        assert (frame.code, closed) == (code, close)


async def test_a_token_in_the_address_is_not_looked_at(world: World) -> None:
    async with world.up(world.agent()) as served:
        with pytest.raises(ClientError, match="unauthenticated"):
            await Client.connect(f"{served.server.url}?token={token('ann')}", "nothing")


async def test_who_says_no_hello_in_time_is_closed_with_4401(world: World) -> None:
    async with world.up(world.agent()) as served:
        silent = [await served.socket() for _ in range(20)]
        talking = await served.client("ann")
        await until(lambda: len(world.clock.armed) >= len(silent))
        world.clock.advance(4.9)
        assert not [one for one in silent if one.close_code]
        world.clock.advance(0.2)
        for one in silent:
            with pytest.raises(ConnectionClosed):
                await one.recv()
            assert (one.close_code, one.close_reason) == (4401, "no hello came in time")
        assert (await talking.list()).sessions == ()


async def test_who_does_not_finish_the_handshake_is_cut_off(world: World) -> None:
    limits = ServerLimits(handshake_seconds=0.05)
    async with world.up(world.agent(), server={"limits": limits}) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
        writer.write(b"GET /ws HTTP/1.1\r\nHost: local")
        assert await reader.read() == b""
        writer.close()


async def test_above_the_cap_of_connections_a_newcomer_is_told_to_come_later(world: World) -> None:
    limits = ServerLimits(connections=2)
    async with world.up(world.agent(), server={"limits": limits}) as served:
        first, _ = await served.client("ann"), await served.client("bob")
        assert await knock(served) == 503
        await first.close()
        await until(lambda: len(served.server.connections) == 1)
        assert (await (await served.client("eve")).list()).sessions == ()


async def test_silent_tcp_connections_are_capped_too(world: World) -> None:
    limits = ServerLimits(connections=4)
    async with world.up(world.agent(), server={"limits": limits}) as served:
        silent = [await asyncio.open_connection("127.0.0.1", served.server.port) for _ in range(8)]
        assert await knock(served) == 0
        for _, writer in silent:
            writer.close()
            await writer.wait_closed()
        await until(lambda: not served.server.tcp)
        assert await knock(served) == 101


def test_an_address_that_others_can_reach_needs_tokens(world: World) -> None:
    engine = Engine(world.path, [world.agent()], clock=world.clock)
    try:
        for host in ("0.0.0.0", "::", "192.168.1.7", "example.org", ""):
            with pytest.raises(Misuse, match=r"--token-file FILE`\), or listen on 127\.0\.0\.1"):
                Server(engine, host)
        assert Server(engine, "0.0.0.0", tokens={token("ann"): PEOPLE["ann"]}).token == ""
        assert len(Server(engine, "localhost").token) > 40
    finally:
        engine.log.close()


async def test_without_tokens_on_loopback_one_is_made_that_opens_everything(world: World) -> None:
    async with world.up(world.agent(), server={"tokens": None}) as served:
        async with await Client.connect(served.server.url, served.server.token) as client:
            assert (client.welcome.principal, client.welcome.role) == ("local", "controller")
        assert served.server.token not in served.server.url


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LocalHost"])
def test_loopback_is_known(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    ("header", "name"),
    [("a:1", "a"), ("[::1]:80", "::1"), ("A.B", "a.b"), ("x@y", "y"), ("[", ""), ("", "")],
)
def test_the_name_of_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


def test_tokens_are_kept_as_marks_and_must_be_long_and_ones_own() -> None:
    tokens = Tokens({token("ann"): PEOPLE["ann"]})
    assert token("ann") not in repr(vars(tokens))
    found = tokens.find(token("ann"))
    assert found is not None
    assert found[1] is PEOPLE["ann"]
    assert tokens.find("\ud800") is None
    with pytest.raises(Misuse, match="shorter than 16"):
        tokens.add("short", PEOPLE["bob"])
    with pytest.raises(Misuse, match="another's too"):
        tokens.add(token("ann"), PEOPLE["bob"])
    assert (len(tokens), list(tokens)) == (1, [PEOPLE["ann"]])
    assert tokens.revoke("nobody has this one") is None
    assert len({fresh_token() for _ in range(100)}) == 100


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a:b", "x" * 65, "\u00e9"])
def test_a_principal_has_a_plain_name(name: str) -> None:
    with pytest.raises(Misuse, match="is no name of a principal"):
        Principal(name)


async def test_a_revoked_token_closes_its_connections_and_opens_no_more(world: World) -> None:
    async with world.up(world.agent()) as served:
        ann, bob = await served.client("ann"), await served.client("bob")
        served.server.revoke(token("ann"))
        await ann.socket.wait_closed()
        assert (ann.socket.close_code, ann.socket.close_reason) == (4401, "the token was revoked")
        with pytest.raises(ClientError, match="unauthenticated"):
            await served.client("ann")
        assert (await bob.list()).sessions == ()


async def test_welcome_tells_who_one_is_and_what_is_allowed(world: World) -> None:
    async with world.up(world.agent(), server={"limits": ServerLimits()}) as served:
        welcome = (await served.client("max")).welcome
        assert isinstance(welcome, Welcome)
        assert (welcome.principal, welcome.role, welcome.connection) == ("max", "approver", "max#1")
        assert welcome.protocol == "turnlog.v1"
        assert welcome.limits.max_frame == 262_144
        assert (await served.client("max")).welcome.connection == "max#2"


async def test_the_end_of_the_server_is_told_with_1001(world: World) -> None:
    async with world.up(world.agent()) as served:
        client = await Client.connect(served.server.url, token("ann"))
        await served.server.stop()
        await client.socket.wait_closed()
        assert (client.socket.close_code, client.socket.close_reason) == (1001, "the server stops")
        with pytest.raises(ClientError, match="disconnected: 1001"):
            await client.list()


async def test_serve_ends_with_the_error_when_the_log_fails(world: World) -> None:
    async with world.up(world.agent()) as served:
        task = asyncio.get_running_loop().create_task(serve(served.engine))
        await asyncio.sleep(0)
        served.engine.failure = Misuse("the disk is gone")
        served.engine.failed.set()
        with pytest.raises(Misuse, match="the disk is gone"):
            await task


async def test_frames_above_the_rate_get_an_error_with_their_id_and_are_not_carried_out(world: World) -> None:
    limits = ServerLimits(rate=2, burst=3)
    async with world.up(world.agent(say("hello")), server={"limits": limits}) as served:
        client = await served.client()
        await client.create("s")
        await client.list()
        await client.list()
        with pytest.raises(ClientError, match="rate_limited: more than 2 frames a second"):
            await client.send("s", "too much", id="mine")
        assert served.kinds("s") == ["session_started"]
        world.clock.advance(0.5)
        assert (await client.send("s", "now", id="mine")).refused is None


def test_a_bucket_fills_with_time_and_never_above_its_rim() -> None:
    clock = FakeClock()
    bucket = Bucket(10, 5, clock.monotonic())
    assert [bucket.take(1, clock.monotonic()) for _ in range(6)] == [True] * 5 + [False]
    clock.advance(0.1)
    assert [bucket.take(1, clock.monotonic()) for _ in range(2)] == [True, False]
    clock.advance(1000)
    assert [bucket.take(1, clock.monotonic()) for _ in range(6)] == [True] * 5 + [False]
    clock.advance(1000)
    assert bucket.take(99, clock.monotonic())
    assert not bucket.take(1, clock.monotonic())


async def test_hello_is_said_once(world: World) -> None:
    async with world.up(world.agent()) as served:
        socket = await served.raw()
        await say_hello(socket, token("root"))
        frame = await received(socket)
        assert isinstance(frame, ErrorFrame)
        assert frame.code == "conflict"


async def test_the_server_logs_no_token(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "turnlog")
    async with world.up(world.agent(), server={"limits": PLENTY}) as served:
        await served.client("ann")
        await refused(served, json.dumps({"type": "hello", "protocol": "turnlog.v1", "token": token("nobody")}))
    assert caplog.records
    assert "the-secret-of" not in caplog.text
