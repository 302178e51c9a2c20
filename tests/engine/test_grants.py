"""What may run without asking: the configured list, and grants of a session's owner, each named in the log."""

import asyncio
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request
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
