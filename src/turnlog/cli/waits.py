"""What a server waits for."""

import asyncio
import signal


def stopped() -> asyncio.Event:
    """Set at SIGINT or SIGTERM."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


async def first(*events: asyncio.Event) -> None:
    """Return when one of them is set."""
    waits = [asyncio.ensure_future(one.wait()) for one in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
