"""Approvals over the wire: the card, the word on it, grants, deadlines, races, and what is no word."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.server.support import World, body, card, rest
from tests.server.test_turns import opened
from turnlog.engine import tool
from turnlog.engine.models.base import ModelCall
from turnlog.engine.models.scripted import ScriptedModel, Step, call, say
from turnlog.engine.tools.ask import ask_user
from turnlog.fsm.history import ToolMessage
from turnlog.server import Client
from turnlog.server.frames import Reply

PAY = {"amount": 5, "to": "A"}


def pay_each_time(model_call: ModelCall) -> Step:
    """Asks to pay, then says done; for ever."""
    return say("done") if model_call.index % 2 else call(("pay", PAY))


async def say_word(client: Client, session: str, asked: dict[str, Any], outcome: str, **more: Any) -> Reply:
    """Decide on a card."""
    return await client.decide(session, asked["request_id"], asked["digest"], outcome, **more)


@pytest.mark.accept(7)
async def test_nothing_happens_outside_before_the_word(world: World, tmp_path: Path) -> None:
    target = tmp_path / "written"

    @tool(needs_approval=True)
    def write(text: str) -> str:
        """Write a file."""
        target.write_text(text)
        return "written"

    async with world.up(world.agent(call(("write", {"text": "x"})), say("done"), tools=[write])) as served:
        client, session, feed = await opened(served)
        await client.send(session, "write")
        asked = await card(feed)
        assert not target.exists()
        await say_word(client, session, asked, "approved")
        await rest(feed)
        assert target.read_text() == "x"


@pytest.mark.accept(10)
async def test_the_card_tells_all_that_a_person_needs_to_know(world: World) -> None:
    async with world.up(world.agent(call(("pay", PAY)))) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        row = await feed.until("approval_requested")
        asked = body(row)
        assert row.state == "awaiting_approval"
        assert asked["request_id"]
        assert (asked["tool"], asked["arguments"]) == ("pay", PAY)
        assert (asked["description"], asked["risk"]) == ("Pay somebody.", "spends money")
        assert asked["deadline"] == world.clock.now() + 120_000
        assert len(asked["digest"]) == 64
        shown = await feed.until("approval_shown")
        assert body(shown) == {
            "request_id": asked["request_id"], "digest": asked["digest"], "connection": "ann#1"
        }  # fmt: skip
        assert shown.actor == "person:ann"


async def test_a_card_is_put_on_record_once_for_each_connection_that_may_decide(world: World) -> None:
    async with world.up(world.agent(call(("pay", PAY)))) as served:
        client, session, feed = await opened(served)
        watching = await (await served.client("eve")).open(session)
        deciding = await (await served.client("max")).open(session)
        await client.send(session, "pay")
        await card(watching)
        await card(deciding)
        await feed.close()
        again = await client.open(session)
        await card(again)
        await client.stop(session)
        await rest(again)
        shown = [event.connection for event in served.of_kind(session, "approval_shown")]
        assert sorted(shown) == ["ann#1", "max#1"]


@pytest.mark.accept(8)
@pytest.mark.parametrize("allowed", ["pay", "look, p*", "all"])
async def test_what_the_environment_allows_runs_unasked_and_that_is_on_record(
    world: World, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    monkeypatch.setenv("TURNLOG_AUTO_APPROVE", allowed)
    async with world.up(world.agent(call(("pay", PAY)), say("done")), auto_approve=None) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        rows = await rest(feed)
        assert "approval_requested" not in [row.kind for row in rows]
        (word,) = [body(row) for row in rows if row.kind == "approval_resolved"]
        assert (word["outcome"], word["via"]) == ("approved", "env")
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.accept(9)
async def test_a_grant_holds_for_its_user_alone_is_listed_and_can_be_taken_back(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, hers, ann_feed = await opened(served, "ann")
        bob, his, bob_feed = await opened(served, "bob")
        await ann.grant(hers, "pay")
        (line,) = await ann.grants(hers)
        assert (line.tool, line.subject, line.scope, line.used) == ("pay", "ann", "user", 0)
        assert await bob.grants(his) == ()

        await ann.send(hers, "pay")
        (word,) = [body(row) for row in await rest(ann_feed) if row.kind == "approval_resolved"]
        assert (word["via"], word["rule"]) == ("grant", line.grant)
        await bob.send(his, "pay")
        await card(bob_feed)

        assert (await bob.command("grants", session=his)).type == "grants"
        foreign = (await bob.revoke(his, line.grant)).refused
        assert foreign is not None
        assert (foreign.code, foreign.why) == (
            "invalid", f"no grant '{line.grant}' holds for 'bob': it is another's, was revoked, or never was"
        )  # fmt: skip
        assert served.of_kind(his, "grant_revoked") == []
        assert (await ann.revoke(hers, line.grant, id="r")).refused is None
        assert (await ann.revoke(hers, line.grant, id="r")).repeated
        assert (await ann.revoke(hers, line.grant)).refused is not None
        assert await ann.grants(hers) == ()
        await ann.send(hers, "pay")
        await card(ann_feed)


@pytest.mark.accept(11)
async def test_a_word_for_an_unknown_id_or_other_arguments_changes_nothing_and_says_so(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        await feed.until("approval_shown")
        bogus = await client.decide(session, "r-bogus", asked["digest"], "approved")
        assert bogus.refused is not None
        assert (bogus.refused.code, "'r-bogus'" in bogus.refused.why) == ("invalid", True)
        other = await client.decide(session, asked["request_id"], "0" * 64, "approved")
        assert other.refused is not None
        assert other.refused.code == "conflict"
        assert [row.kind for row in (await feed.until("input_refused"), await feed.until("input_refused"))]
        conversation = await served.engine.open(session)
        assert [one.request_id for one in conversation.session.requests] == [asked["request_id"]]
        assert world.ledger == []


@pytest.mark.accept(12)
async def test_an_approved_call_runs_once_and_a_denied_one_never_and_the_model_is_told(world: World) -> None:
    agent = world.playing(pay_each_time)
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        told: list[str] = []
        assert isinstance(agent.model, ScriptedModel)
        agent.model.keep_calls = True
        for outcome in ("approved", "denied"):
            await client.send(session, "pay")
            await say_word(client, session, await card(feed), outcome, reason="too much")
            await rest(feed)
            results = [one for one in agent.model.calls[-1].messages if isinstance(one, ToolMessage)]
            told.append(results[-1].content)
        assert world.ledger == [("pay", 5, "A")]
        assert told[0] == "paid 5 to A"
        assert "refused" in told[1]
        assert "too much" in told[1]


async def test_edited_arguments_run_in_place_of_those_proposed_if_they_fit(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        wrong = await say_word(client, session, asked, "approved", arguments={"amount": "lots", "to": "A"})
        assert wrong.refused is not None
        assert "amount" in wrong.refused.why
        await say_word(client, session, asked, "approved", arguments={"amount": 1, "to": "B"})
        await rest(feed)
        assert world.ledger == [("pay", 1, "B")]


@pytest.mark.accept(13)
async def test_when_nobody_answers_in_time_the_call_is_denied_and_a_late_word_is_told_so(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        world.clock.advance(120)
        word = await feed.until("approval_resolved")
        assert (body(word)["outcome"], body(word)["via"], word.actor) == ("expired", "timer", "timer")
        late = await say_word(client, session, asked, "approved")
        assert late.refused is not None
        assert late.refused.code == "expired"
        assert "timer" in late.refused.why
        await rest(feed)
        assert world.ledger == []


@pytest.mark.accept(14)
async def test_an_approval_a_question_and_feedback_wait_at_once_and_each_gets_its_own_answer(world: World) -> None:
    def play(model_call: ModelCall) -> Step:
        if model_call.index:
            return say("done")
        text = str(getattr(model_call.messages[-1], "text", ""))
        if "pay" in text:
            return call(("pay", PAY))
        if "ask" in text:
            return call(("ask_user", {"questions": [{"text": "Which one?", "choices": ["red", "blue"]}]}))
        return say("INTERRUPT")

    async with world.up(world.playing(play, [world.pay, ask_user])) as served:
        client = await served.client("ann")
        feeds = {}
        for name in ("pay", "ask", "plan"):
            await client.create(name)
            feeds[name] = await client.open(name)
            await client.send(name, name)
        asked = await card(feeds["pay"])
        question = body(await feeds["ask"].until("question_asked"))
        assert question["questions"] == [{"text": "Which one?", "choices": ["red", "blue"]}]
        assert body(await feeds["plan"].until("turn_interrupted"))["reason"] == "requested"

        # An answer of the wrong kind or for another session reaches nobody.
        wrong = [
            await client.answer("pay", asked["request_id"], ["yes"]),
            await client.answer("plan", question["request_id"], ["red"]),
            await client.decide("ask", question["request_id"], asked["digest"], "approved"),
            await client.decide("plan", asked["request_id"], asked["digest"], "approved"),
        ]
        assert all(reply.refused is not None for reply in wrong)
        queued = await client.send("pay", "yes")
        assert body(await feeds["pay"].until("message_queued"))["text"] == "yes"
        assert queued.refused is None
        assert world.ledger == []

        await client.answer("ask", question["request_id"], ["blue"])
        await client.send("plan", "go on")
        await say_word(client, "pay", asked, "approved")
        result = body(await feeds["ask"].until("tool_returned"))
        assert result["content"] == "Which one?\nblue"
        assert body(await feeds["plan"].until("message_added"))["text"] == "go on"
        assert body(await feeds["pay"].until("tool_returned"))["content"] == "paid 5 to A"
        assert world.ledger == [("pay", 5, "A")]


@pytest.mark.accept(68)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_two_requests_at_once_are_each_answered_alone_in_any_order(world: World, order: tuple[int, int]) -> None:
    agent = world.agent(call(("pay", {"amount": 1, "to": "A"}), ("pay", {"amount": 2, "to": "B"})), say("done"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay both")
        cards = [await card(feed), await card(feed)]
        await say_word(client, session, cards[order[0]], "denied")
        assert (await feed.until("approval_resolved")).state == "awaiting_approval"
        assert world.ledger == []
        await say_word(client, session, cards[order[1]], "approved")
        await rest(feed)
        assert world.ledger == [("pay", order[1] + 1, "AB"[order[1]])]


@pytest.mark.field(32)
async def test_when_two_tabs_approve_at_once_one_is_taken_and_the_other_told_by_whom(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        client, session, feed = await opened(served, "ann")
        tabs = [client, await served.client("max")]
        for turn in range(1, 201):
            await client.send(session, "pay")
            asked = await card(feed)
            replies = await asyncio.gather(*(say_word(tab, session, asked, "approved") for tab in tabs))
            await rest(feed)
            third = await say_word(tabs[turn % 2], session, asked, "approved")
            won = [reply for reply in replies if reply.refused is None]
            lost = [reply.refused for reply in (*replies, third) if reply.refused is not None]
            assert len(won) == 1
            assert [refused.code for refused in lost] == ["conflict", "conflict"]
            assert all("already approved by person:" in refused.why for refused in lost)
            assert len(world.ledger) == turn
            await feed.until("input_refused")
        assert len(served.of_kind(session, "input_refused")) == 400


@pytest.mark.field(34)
async def test_when_two_tabs_disagree_the_first_durable_word_wins_and_no_card_comes_back(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        ann, session, feed = await opened(served)
        other = await served.client("max")
        tab = await other.open(session)
        ran = 0
        for turn in range(100):
            await ann.send(session, "pay")
            asked = await card(feed)
            both = [(ann, "approved"), (other, "denied")]
            first, second = both if turn % 2 else both[::-1]
            replies = dict(
                zip(
                    ("first", "second"),
                    await asyncio.gather(
                        say_word(first[0], session, asked, first[1]), say_word(second[0], session, asked, second[1])
                    ),
                    strict=True,
                )
            )
            outcome = first[1] if replies["first"].refused is None else second[1]
            assert sum(reply.refused is None for reply in replies.values()) == 1
            ran += outcome == "approved"
            await rest(feed)
            assert len(world.ledger) == ran
            assert body(await tab.until("approval_resolved"))["outcome"] == outcome
            await tab.until("turn_interrupted")
        await tab.close()
        rows = await (await other.open(session)).live()
        asked_for = {body(row)["request_id"] for row in rows if row.kind == "approval_requested"}
        settled = {body(row)["request_id"] for row in rows if row.kind == "approval_resolved"}
        assert asked_for == settled
        assert rows[-1].state == "interrupt"


@pytest.mark.field(40)
@pytest.mark.field(41)
@pytest.mark.parametrize("word", ["approved", "denied"])
async def test_no_message_is_a_word_on_a_request_and_it_is_heard_after_the_calls_result(
    world: World, word: str
) -> None:
    agent = world.agent(call(("pay", PAY)), say("as you wish"), say("noted"), say("noted"), say("noted"))
    async with world.up(agent) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        asked = await card(feed)
        said = ["wait, do NOT run that", "yes", "ok go"]
        for text in said:
            assert (await client.send(session, text)).refused is None
            row = await feed.until("message_queued")
            assert row.state == "awaiting_approval"
        assert world.ledger == []
        await say_word(client, session, asked, word)
        rows = [await rest(feed) for _ in range(4)]
        assert len(world.ledger) == (word == "approved")
        told = [body(row).get("text") for row in rows[-1] if row.kind == "message_added"]
        assert told[-1] == "noted"
        kinds = [row.kind for row in rows[0]]
        assert kinds.index("tool_returned") < kinds.index("message_added")
        assert isinstance(agent.model, ScriptedModel)
        texts = [getattr(message, "text", "") for message in agent.model.calls[-1].messages]
        assert [text for text in texts if text in said] == said


async def test_a_word_is_durable_when_its_reply_comes(world: World) -> None:
    async with world.up(world.playing(pay_each_time)) as served:
        client, session, feed = await opened(served)
        await client.send(session, "pay")
        reply = await say_word(client, session, await card(feed), "denied")
        rows = served.engine.log.read(session, 0, 100)
        assert any(row.event.kind == "approval_resolved" and row.seq <= reply.seq for row in rows)
