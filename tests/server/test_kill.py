"""A real server process is killed with SIGKILL and started again on the same file."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.server.support import body, card, rest, token
from turnlog.server import Client, ClientError
from turnlog.server.client import Feed

ROOT = Path(__file__).parents[2]


@dataclass
class Process:
    """A running server."""

    url: str
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        await self.process.wait()

    async def client(self) -> Client:
        """Ann's client."""
        return await Client.connect(self.url, token("ann"))


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Process]:
    """Start the server on the file in a folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.server.child", str(folder / "log.db"), str(folder / "ledger"),
        stdout=asyncio.subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield Process((await process.stdout.readline()).decode().strip(), process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def ledger(folder: Path) -> list[str]:
    """What took effect outside."""
    path = folder / "ledger"
    return path.read_text().splitlines() if path.exists() else []


async def last_seq(feed: Feed) -> int:
    """The last row of a session at rest: nothing comes after it."""
    await feed.until("approval_shown")
    return feed.seq


@pytest.mark.accept(31)
async def test_a_request_survives_the_kill_and_is_answered_after_the_reconnect(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        client = await server.client()
        session = (await client.create()).session
        feed = await client.open(session)
        await client.send(session, "pay")
        asked = await card(feed)
        seen = await last_seq(feed)
        await server.kill()
        with pytest.raises(ClientError, match="disconnected"):
            await feed.until("approval_resolved")
        await client.close()

    async with running(tmp_path) as server:
        client = await server.client()
        feed = await client.open(session, after=seen)
        rows = await feed.live()
        assert [row.seq for row in rows] == list(range(seen + 1, seen + 1 + len(rows)))
        assert [row.kind for row in rows] == ["session_resumed"]
        assert rows[-1].state == "awaiting_approval"
        whole = await (await server.client()).open(session)
        (again,) = [body(row) for row in await whole.live() if row.kind == "approval_requested"]
        assert again == asked, "the same id, the same digest, the same deadline"
        assert ledger(tmp_path) == []
        reply = await client.decide(session, asked["request_id"], asked["digest"], "approved")
        assert reply.refused is None
        assert [row.kind for row in await rest(feed)][-2:] == ["message_added", "turn_interrupted"]
        assert ledger(tmp_path) == ["5 A"]
        late = await client.decide(session, asked["request_id"], asked["digest"], "approved")
        assert late.refused is not None
        assert "already approved by person:ann" in late.refused.why
        await client.close()


async def test_a_command_that_the_kill_cut_off_is_sent_again_and_takes_effect_once(tmp_path: Path) -> None:
    session, seen = "s", 0
    for turn in range(3):
        async with running(tmp_path) as server:
            client = await server.client()
            if not turn:
                await client.create(session)
            sending = asyncio.get_running_loop().create_task(client.send(session, f"message {turn}", id=f"c{turn}"))
            # Killed somewhere between the frame and its reply.
            for _ in range(2 * turn):
                await asyncio.sleep(0)
            await server.kill()
            await asyncio.gather(sending, return_exceptions=True)
            await client.close()
        async with running(tmp_path) as server:
            client = await server.client()
            await client.send(session, f"message {turn}", id=f"c{turn}")
            feed = await client.open(session, after=seen)
            # The first message leads to a request that nobody answers; so the others wait in the queue.
            said = await feed.until("message_queued" if turn else "message_added")
            assert body(said)["text"] == f"message {turn}"
            seen = feed.seq
            await client.close()
    async with running(tmp_path) as server:
        client = await server.client()
        await client.send(session, "the last", id="last")
        rows = await (await client.open(session)).live()
        texts = [body(row)["text"] for row in rows if row.kind in ("message_added", "message_queued")]
        assert texts == [f"message {turn}" for turn in range(3)] + ["the last"]
        await client.close()
