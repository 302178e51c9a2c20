"""A recorded log with one session for each way in which a request can be settled. Times, ids and digests never vary."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.fakes import FakeClock, Ids
from turnlog import Agent, Conversation, Engine, State, tool
from turnlog.engine.models.base import ModelReply
from turnlog.engine.models.scripted import ScriptedModel, call, fail, say
from turnlog.fsm import inputs as inp
from turnlog.fsm.session import Session

# A right-to-left override, a zero-width space, an escape code and a run of blanks that hides the end of the line.
HIDDEN = "Ann\u202e\u200b\x1b[2K" + " " * 10_000 + "Bob"


@tool
async def balance(account: str) -> str:
    """Tell the balance of an account."""
    return f"{account}: 100"


@tool(needs_approval=True, risk="spends money")
async def pay(amount: int, to: str) -> str:
    """Pay somebody."""
    if amount > 1000:
        raise ValueError("there is not enough money")
    return f"paid {amount} to {to}"


@tool(needs_approval=True)
async def remind(to: str) -> str:
    """Send a reminder."""
    return f"reminded {to}"


def pays(*amounts: int, to: str = "Ann") -> ModelReply:
    """A round of payments."""
    return call(*(("pay", {"amount": amount, "to": to}) for amount in amounts))


class Recorder:
    """Makes sessions in one file, with a clock that goes on by one second for each command."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = FakeClock()
        self.ids = Ids()

    async def session(
        self, name: str, script: Sequence[Any], act: "Callable[[Recorder, Conversation], Any]", **more: Any
    ) -> None:
        """Run one conversation from `create` on."""
        agent = Agent("@agent", ScriptedModel(script), role="You keep the books.", tools=[balance, pay, remind])
        more.setdefault("auto_approve", ())
        async with Engine(self.path, [agent], clock=self.clock, new_id=self.ids, seed=lambda: 7, **more) as engine:
            conversation = await engine.create(name, owner="ann")
            self.tick()
            await act(self, conversation)
            hub = await engine.hub(name)
            await asyncio.wait_for(hub.until(_rests), 30)

    def tick(self) -> None:
        """Let a second pass."""
        self.clock.advance(1)


def _rests(session: Session) -> bool:
    return session.state in (State.INTERRUPT, State.ERROR, State.TERMINATED)


async def _edited_and_denied(r: Recorder, c: Conversation) -> None:
    turn = await c.send("Pay them", by="ann")
    first, second = turn.requests
    r.tick()
    await c.decide(first, "approved", by="ann", arguments={"amount": 4, "to": "Ann"})
    await c.apply(inp.Decide(first.request_id, first.digest, "denied", "person:eve"))
    r.tick()
    await c.apply(inp.Decide(second.request_id, "0" * 64, "approved", "person:eve"))
    await c.decide(second, "denied", by="ann", reason="too much")
    await c.apply(inp.Decide("r_guessed", second.digest, "approved", "person:eve"))


async def _expired(r: Recorder, c: Conversation) -> None:
    turn = await c.send("Pay", by="ann")
    r.clock.advance(121)
    await (await c._engine.hub(c.id)).until(_rests)
    given = inp.Decide(turn.requests[0].request_id, turn.requests[0].digest, "approved", "person:ann")
    await c.apply(given)


async def _stopped(r: Recorder, c: Conversation) -> None:
    await c.send("Pay", by="ann")
    r.tick()
    await c.stop(by="ann")


async def _granted(r: Recorder, c: Conversation) -> None:
    await c.grant("pay", by="ann")
    await c.send("Pay", by="ann")


async def _remembered(r: Recorder, c: Conversation) -> None:
    turn = await c.send("Pay twice", by="ann")
    await c.decide(turn.requests[0], "approved", by="ann", remember="session")


async def _sent(r: Recorder, c: Conversation) -> None:
    await c.send("Go", by="ann")


async def _approved(r: Recorder, c: Conversation) -> None:
    turn = await c.send("Go", by="ann")
    r.tick()
    await c.decide(turn.requests[0], "approved", by="ann")


async def _retried(r: Recorder, c: Conversation) -> None:
    await c.send("What is there?", by="ann")


async def record(path: Path) -> None:
    """Write the log."""
    r = Recorder(path)
    check = call(("balance", {"account": "main"}))
    await r.session("edited", [check, pays(5, 900), say("Ann has 4.")], _edited_and_denied)
    await r.session("expired", [pays(5), say("Nothing was paid.")], _expired)
    await r.session("stopped", [pays(5), say("never said")], _stopped)
    await r.session("configured", [call(("remind", {"to": "Ann"})), say("Done.")], _sent, auto_approve=["rem*"])
    await r.session("hidden", [pays(5, to=HIDDEN), say(f"Paid to {HIDDEN}.")], _approved)
    await r.session("failing", [pays(5000), say("It failed.")], _approved)
    await r.session("granted", [pays(6), say("Paid.")], _granted)
    await r.session("remembered", [call(("remind", {"to": "A"}), ("remind", {"to": "B"})), say("Done.")], _remembered)
    await r.session("broken", [fail(message="the provider is away")], _retried)
