"""What may run without asking: the configured list, and grants of a session's owner, each named in the log."""

import asyncio
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request
from turnlog.engine import Tool, tool
from turnlog.engine.models.scripted import call, say
from turnlog.engine.tools.registry import AUTO_APPROVE

PAY = ("pay", {"amount": 5, "to": "A"})


def pay(amount: int, to: str = "A") -> tuple[str, dict[str, Any]]:
    return ("pay", {"amount": amount, "to": to})


@pytest.mark.accept(8)
@pytest.mark.parametrize(("value", "rule"), [("look, pay", "pay"), ("all", "all"), (" p*y ", "p*y")])
async def test_the_list_of_the_environment_lets_a_tool_run_unasked_and_the_log_says_by_which_rule(
    world: World, value: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTO_APPROVE, value)
    async with world.engine(world.agent(call(PAY), say("done")), auto_approve=None) as engine:
        c = await engine.create("s")
        assert (await c.send("pay")).text == "done"
        (resolved,) = of_kind(c, "approval_resolved")
        assert (resolved.via, resolved.rule, resolved.actor) == ("env", rule, "env")
        assert of_kind(c, "approval_requested") == []
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.accept(8)
@pytest.mark.parametrize("value", ["", "payer, look", "PAY"])
async def test_a_list_that_does_not_name_the_tool_lets_nothing_through(
    world: World, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTO_APPROVE, value)
    async with world.engine(world.agent(call(PAY)), auto_approve=None) as engine:
        c = await engine.create("s")
        assert (await c.send("pay")).state == "awaiting_approval"
        assert world.ledger == []


@pytest.mark.accept(9)
async def test_a_users_grant_holds_in_all_their_sessions_and_in_nobody_elses_until_it_is_revoked(world: World) -> None:
    script = [call(PAY), say("done"), call(pay(6)), say("done")]
    async with world.engine(world.agent(*script)) as engine:
        first = await engine.create("a1", owner="ann")
        await first.grant("pay", by="ann")
        (grant,) = engine.grants.of("ann")
        assert (grant.grant.tool, grant.grant.subject, engine.grants.of("bob")) == ("pay", "ann", ())
        second = await engine.create("a2", owner="ann")
        assert (await second.send("pay")).text == "done"
        (resolved,) = of_kind(second, "approval_resolved")
        assert (resolved.via, resolved.rule) == ("grant", grant.grant.grant_id)
        bobs = await engine.create("b1", owner="bob")
        assert (await bobs.send("pay")).state == "awaiting_approval"
    async with world.engine(world.agent(*script)) as engine:
        second = await engine.open("a2")
        assert engine.grants.of("ann")[0].used == 1, "grants and their uses are read from the log"
        await second.revoke(grant.grant.grant_id, by="ann")
        assert engine.grants.of("ann") == ()
        assert (await second.send("pay again")).state == "awaiting_approval"
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.accept(9)
async def test_a_grant_ends_with_its_uses_even_when_two_sessions_want_the_last_one_at_once(world: World) -> None:
    async with world.engine(world.agent(call(PAY), say("done"))) as engine:
        several = [await engine.create(f"s{n}", owner="ann") for n in range(6)]
        await several[0].grant("pay", by="ann", max_uses=2)
        turns = await asyncio.gather(*(c.send("pay") for c in several))
        assert sorted(turn.state for turn in turns) == ["awaiting_approval"] * 4 + ["interrupt"] * 2
        assert len(world.ledger) == 2
        assert [one.used for one in engine.grants.of("ann")] == [2]


@pytest.mark.accept(9)
async def test_a_grant_ends_with_its_time_and_its_exact_arguments(world: World) -> None:
    script = [call(PAY), say("one"), call(pay(6)), say("two"), call(PAY), say("three")]
    async with world.engine(world.agent(*script)) as engine:
        c = await engine.create("s", owner="ann")
        await c.send("pay")
        await c.grant("pay", by="ann", match=request(c).digest, expires_at=world.clock.now() + 60_000)
        await c.decide(request(c), "denied", by="ann")
        await c.rest()
        assert (await c.send("other arguments")).state == "awaiting_approval"
        await c.decide(request(c), "denied", by="ann")
        await c.rest()
        world.clock.advance(61)
        assert (await c.send("too late")).state == "awaiting_approval"
        assert world.ledger == []


@pytest.mark.field(47)
@pytest.mark.parametrize("scope", ["session", "user"])
async def test_always_on_one_of_three_settles_the_others_each_with_a_row_that_names_the_grant(
    world: World, scope: str
) -> None:
    script = [call(pay(1), pay(2), pay(3)), say("done"), call(pay(4)), say("done")]
    async with world.engine(world.agent(*script)) as engine:
        c = await engine.create("s", owner="ann")
        one, *_ = (await c.send("pay")).requests
        await c.decide(one, "approved", by="ann", remember=scope)
        await c.rest()
        assert sorted(world.ledger) == [("pay", 1, "A"), ("pay", 2, "A"), ("pay", 3, "A")]
        (grant,) = of_kind(c, "grant_recorded")
        assert [(e.via, e.rule) for e in of_kind(c, "approval_resolved")] == [
            ("person", ""), ("grant", grant.grant_id), ("grant", grant.grant_id)
        ]  # fmt: skip
        await c.send("another")
        assert world.ledger[-1] == ("pay", 4, "A")
        assert of_kind(c, "approval_resolved")[-1].rule == grant.grant_id
        other = await engine.create("t", owner="ann")
        turn = await other.send("pay")
        assert (turn.state == "interrupt") == (scope == "user")


@pytest.mark.accept(9)
@pytest.mark.parametrize("how", ["revoked", "revoked elsewhere", "expired", "still holds"])
@pytest.mark.parametrize("scope", ["session", "user"])
async def test_a_call_that_a_grant_allowed_is_asked_about_when_the_grant_ends_before_the_round_runs(
    world: World, how: str, scope: str
) -> None:
    """The round waits for a person's word on another call of it."""
    script = [call(PAY, ("drop", {"name": "x"})), say("done")]
    async with world.engine(world.agent(*script, tools=[world.pay, dropper(world)])) as engine:
        c, other = await engine.create("s", owner="ann"), await engine.create("t", owner="ann")
        giver = c if scope == "session" else other
        end = world.clock.now() + 60_000 if how == "expired" else None
        await giver.grant("pay", by="ann", scope=scope, expires_at=end)
        (grant,) = of_kind(giver, "grant_recorded")
        assert [one.tool for one in (await c.send("pay")).requests] == ["drop"]
        match how:
            case "revoked":
                await c.revoke(grant.grant_id, by="ann")
            case "revoked elsewhere":
                await (other if scope == "user" else c).revoke(grant.grant_id, by="ann")
            case "expired":
                world.clock.advance(61)
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        if how == "still holds":
            assert (world.ledger, c.session.requests) == ([("pay", 5, "A"), ("drop", "x")], ())
            return
        assert [(one.tool, one.why) for one in c.session.requests] == [("pay", "gated")]
        assert world.ledger == [], "what must be asked is decided first"
        await c.decide(request(c), "approved", by="ann")
        await c.rest()
        assert world.ledger == [("pay", 5, "A"), ("drop", "x")]


async def test_a_call_that_the_configured_list_allowed_is_asked_about_when_another_list_stands_there(
    world: World,
) -> None:
    script, tools = [call(PAY, ("drop", {"name": "x"})), say("done")], [world.pay, dropper(world)]
    async with world.engine(world.agent(*script, tools=tools), auto_approve=["pay"]) as engine:
        await (await engine.create("s")).send("pay")
    async with world.engine(world.agent(*script, tools=tools), auto_approve=["drop"]) as engine:
        c = await engine.open("s")
        await c.decide(request(c), "approved")
        await c.rest()
        assert ([one.tool for one in c.session.requests], world.ledger) == (["pay"], [])


def dropper(world: World) -> Tool:
    @tool(name="drop", needs_approval=True)
    async def drop(name: str) -> str:
        """Drop something."""
        world.ledger.append(("drop", name))
        return "dropped"

    return drop
