"""Forty tools, and an embedder that knows nothing but words."""

import re
import threading
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from tests.engine.support import World, rows, sent
from turnlog.engine import Agent, Conversation, Rerank, Tool, tool
from turnlog.fsm.values import ToolChoice

DOES = {
    "refund_order": "Pay money back to a customer whose order was lost or broken",
    "cancel_order": "Cancel an order before it is shipped",
    "track_parcel": "Where is a parcel now",
    "send_invoice": "Send an invoice by mail",
    "list_invoices": "List the invoices of a customer",
    "weather_forecast": "Tell the weather of the coming days in a city",
    "current_time": "Tell the time in a city",
    "translate_text": "Translate a text into another language",
    "summarise_page": "Summarise a web page",
    "search_web": "Search the web",
    "search_mail": "Search the mailbox",
    "write_mail": "Write a mail to somebody",
    "delete_mail": "Delete a mail",
    "calendarAdd": "Add an appointment to the calendar",
    "calendarList": "List the appointments of a day",
    "book_table": "Book a table in a restaurant",
    "book_flight": "Book a flight",
    "book_hotel": "Book a room in a hotel",
    "rent_car": "Rent a car",
    "exchange_rate": "The exchange rate of two currencies",
    "stock_price": "The price of a share",
    "draw_chart": "Draw a chart of numbers",
    "run_query": "Run a query on the database",
    "export_table": "Export a table of the database as a file",
    "read_file": "Read a file",
    "write_file": "Write a file",
    "rename_file": "Rename a file",
    "zip_folder": "Pack a folder",
    "resize_image": "Change the size of a picture",
    "describe_image": "Say what is on a picture",
    "play_music": "Play a song",
    "set_alarm": "Set an alarm clock",
    "dim_lights": "Dim the lights of a room",
    "lock_door": "Lock the front door",
    "count_words": "Count the words of a text",
    "check_spelling": "Check the spelling of a text",
    "roll_dice": "Roll dice",
    "convert_units": "Convert metres into feet, and the like",
    "open_ticket": "Open a ticket for the support team",
    "close_ticket": "Close a ticket of the support team",
}


NAMES = list(DOES)
BROKEN = "The chair of my order came broken, I want my money back."


def toolbox(count: int = 40, gated: Sequence[str] = ()) -> list[Tool]:
    """The first so many of them."""
    return [_tool(name, does, gated=name in gated) for name, does in list(DOES.items())[:count]]


def _tool(name: str, does: str, *, gated: bool) -> Tool:
    @tool(name=name, description=does, needs_approval=gated)
    async def run(about: str) -> str:
        return f"{name} did {about}"

    return run


class Words:
    """Each word is a direction of its own, more or less; what it was asked is kept."""

    def __init__(self, name: str = "words") -> None:
        self.name = name
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked.append(list(texts))
        return [self._one(text) for text in texts]

    def _one(self, text: str) -> list[float]:
        vector = [0.01] + [0.0] * 512
        for word in re.findall(r"[a-z]+", text.lower()):
            vector[1 + crc32(word.encode()) % 512] += 1
        return vector


class Hanging(Words):
    """One that does not answer before it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asks, self.may = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asks.set()
        assert self.may.wait(30)
        return super().embed(texts)


class Broken(Words):
    """One that brings what it was made with."""

    def __init__(self, *brings: object) -> None:
        super().__init__()
        self.brings = list(brings)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        given = self.brings.pop(0) if len(self.brings) > 1 else self.brings[0]
        if isinstance(given, Exception):
            raise given
        if given == "good":
            return super().embed(texts)
        assert callable(given)
        made: list[list[float]] = given(texts)
        return made


def offered(agent: Agent) -> list[list[str]]:
    """The names of the tools that the model was offered, call by call."""
    return [[one.name for one in given.tools] for given in sent(agent)]


def choices(c: Conversation) -> list[ToolChoice | None]:
    """What the log says of the choices."""
    return [e.request.choice for r in rows(c) if (e := r.event).kind in ("message_added", "tools_called") and e.request]


def many(world: World, *script: Any, rerank: Rerank | None, count: int = 40, gated: tuple[str, ...] = ()) -> Agent:
    """An agent with many tools."""
    return world.agent(*script, tools=toolbox(count, gated), rerank=rerank)
