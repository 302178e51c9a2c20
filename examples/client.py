"""A server and a client of it in one process: the client asks, approves with other arguments, and sees every row."""

import asyncio

from support import agents

from turnlog import Engine
from turnlog.server import Client, Server
from turnlog.server.frames import EventFrame


async def main() -> None:
    """Talk to the agents of support.py over the WebSocket."""
    async with (
        Engine("client.db", agents()) as engine,
        Server(engine) as server,
        await Client.connect(server.url, server.token) as client,
    ):
        session = (await client.create()).session
        feed = await client.open(session)
        await client.send(session, "Where is my chair? The order is A2.")
        async for frame in feed:
            if not isinstance(frame, EventFrame):
                continue
            print(frame.seq, frame.state, frame.actor, frame.kind)
            if frame.kind == "approval_requested" and frame.body is not None:
                request, digest = str(frame.body["request_id"]), str(frame.body["digest"])
                await client.decide(session, request, digest, "approved", arguments={"order": "A2", "euros": 35})
            elif frame.kind == "turn_interrupted":
                return


asyncio.run(main())
