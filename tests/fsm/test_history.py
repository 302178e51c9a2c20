"""What models see of the past: the good turns, in order, valid for every provider."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.moves import any_input, start, walks
from turnlog.fsm import Row, State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.history import (
    AssistantMessage,
    CallPart,
    Message,
    ToolMessage,
    UserMessage,
    between,
    collect,
    last_messages,
    provider_name,
    view,
)

from .talk import TWO, USER, Talk, call
from .validity import complaints

C, R = CallPart("1", "look", "{}"), ToolMessage("1", "look", "seen")
INVALID: dict[str, list[Message]] = {
    "a result without its call": [UserMessage("hi"), R],
    "not the result that is due": [AssistantMessage("", (C,)), ToolMessage("2", "look", "seen")],
    "results are missing before it": [AssistantMessage("", (C,)), UserMessage("hi"), R],
    "results are missing": [AssistantMessage("", (C,))],
    "comes twice": [AssistantMessage("", (C, C)), R, R],
    "name ''": [AssistantMessage("", (CallPart("1", "", "{}"),)), ToolMessage("1", "", "x")],
    "name 'a.b'": [AssistantMessage("", (CallPart("1", "a.b", "{}"),)), ToolMessage("1", "a.b", "x")],
    "no object": [AssistantMessage("", (CallPart("1", "look", "[]"),)), R],
    "do not parse": [AssistantMessage("", (CallPart("1", "look", '{"a":'),)), R],
    "a blank text": [AssistantMessage(" ", (C,)), R],
    "an empty message": [AssistantMessage("")],
    "a blank message of the user": [UserMessage("\n")],
    "a blank result": [AssistantMessage("", (C,)), ToolMessage("1", "look", "")],
    "two messages of the user": [UserMessage("a"), UserMessage("b")],
    "two messages of the assistant": [AssistantMessage("a"), AssistantMessage("b")],
}


@pytest.mark.parametrize("what", INVALID)
def test_the_oracle_finds_what_a_provider_would_refuse(what: str) -> None:
    assert any(what in one for one in complaints(INVALID[what]))


def test_the_oracle_accepts_what_a_provider_accepts() -> None:
    assert complaints([UserMessage("a"), AssistantMessage("", (C,)), R, AssistantMessage("b"), UserMessage("c")]) == []


def texts(talk: Talk, speaker: str = "@agent", listener: str = "USER") -> list[str]:
    """What a speaker sees, as texts; a result with its outcome."""
    seen = talk.seen(speaker, listener)
    assert complaints(seen) == []
    return [f"{one.outcome}: {one.content}" if isinstance(one, ToolMessage) else one.text for one in seen]


@pytest.mark.accept(40)
@pytest.mark.field(78)
def test_only_good_turns_are_history_and_nothing_of_errors_interrupts_and_waiting_approvals() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("answer one")
    talk.say("two")
    talk.fail("the provider's own words")
    talk.retry()
    talk.reply("answer two")
    talk.say("three")
    talk.reply("", call("pay", amount=1))
    assert texts(talk) == ["one", "answer one", "two", "answer two", "three"]
    talk.stop()
    talk.say("four")
    talk.reply("answer four")
    assert texts(talk)[:5] == ["one", "answer one", "two", "answer two", "three"]
    assert texts(talk)[-2:] == ["four", "answer four"]
    assert {row.state for row in talk.rows if row.event.kind in ("message_added", "tools_called", "tool_returned")} == {
        State.SUCCESS
    }


@pytest.mark.accept(49)
@pytest.mark.field(78)
def test_the_word_that_interrupts_is_in_the_log_and_not_in_the_history() -> None:
    talk = Talk(*TWO)
    talk.say("start")
    talk.reply("INTERRUPT")
    talk.say("go on")
    assert [one.text for one in talk.of(ev.MessageAdded)] == ["start", "INTERRUPT", "go on"]
    assert texts(talk, "bot", "human") == ["start\n\ngo on"]


@pytest.mark.accept(41)
def test_messages_are_found_by_pair_both_ways_and_by_one_side() -> None:
    talk = Talk(USER, *TWO)
    talk.say("u to human", recipient="human")
    talk.reply("human to u")
    talk.say("human to bot", sender="human", recipient="bot")
    talk.reply("bot to human")
    talk.fail()
    history = talk.history()

    def said(sender: str = "", recipient: str = "") -> list[str]:
        return [one.said.text for one in between(history, sender, recipient)]

    assert said("human", "bot") == said("bot", "human") == ["human to bot", "bot to human"]
    assert said("USER", "human") == ["u to human", "human to u"]
    assert said(sender="human") == ["human to u", "human to bot"]
    assert said(recipient="human") == ["u to human", "bot to human"]
    assert len(said()) == 4


@pytest.mark.accept(51)
def test_the_same_messages_have_the_roles_of_whoever_looks() -> None:
    talk = Talk(*TWO)
    talk.say("from human")
    talk.reply("from bot")
    assert [type(one) for one in talk.seen("bot", "human")] == [UserMessage, AssistantMessage]
    assert [type(one) for one in talk.seen("human", "bot")] == [AssistantMessage, UserMessage]


@pytest.mark.accept(51)
def test_attachments_stay_with_their_message_in_pairs_and_in_groups() -> None:
    picture = ev.Attachment(name="a.png", media_type="image/png", digest="d", size=3)
    talk = Talk()
    talk.say("look at this", attachments=(picture,))
    assert talk.seen() == [UserMessage("look at this", (picture,))]
    room = ev.Channel(name="room", members=("human", "bot"))
    talk = Talk(USER, *TWO, channels=(room,), entry="room")
    talk.say("", attachments=(picture,))
    (seen,) = talk.seen("bot", "room")
    assert seen == UserMessage("USER: (attachments)", (picture,))


@pytest.mark.accept(76)
def test_results_of_tools_are_seen_in_later_turns() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("let me see", call("look", q="x"))
    talk.run_all()
    talk.reply("answer one")
    talk.say("two")
    assert texts(talk) == ["one", "let me see", "ok: fine", "answer one", "two"]


@pytest.mark.field(84)
def test_a_message_that_comes_while_a_tool_runs_stands_behind_the_result() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("", call("look", q="x"))
    talk.ready()
    talk.say("and?")
    talk.finish()
    talk.reply("answer one")
    assert texts(talk) == ["one", "", "ok: fine", "answer one", "and?"]


@pytest.mark.field(79)
def test_blank_texts_never_reach_a_model() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply(" ", call("look", q="x"))
    talk.ready()
    talk.finish(content="")
    talk.reply("")
    talk.say("\n")
    talk.say("two")
    talk.reply(" \n")
    talk.retry()
    talk.reply("answer two")
    assert texts(talk) == ["one", "", "ok: (no output)", "two", "answer two"]


@pytest.mark.field(80)
@pytest.mark.parametrize("name", ["browser.tabs.open", "", 'look(q="1")', "x" * 80, "поиск"])
def test_a_tool_name_that_no_provider_takes_is_shown_in_a_form_that_each_does(name: str) -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("", call(name, q="1"))
    talk.reply("answer one")
    assert complaints(talk.seen()) == []
    assert talk.of(ev.ToolsCalled)[0].calls[0].tool == name


@given(st.text(max_size=90), st.text(max_size=90))
def test_names_shown_to_providers_fit_and_stay_distinct(one: str, other: str) -> None:
    assert complaints([AssistantMessage("", (CallPart("1", provider_name(one), "{}"),)),
                       ToolMessage("1", provider_name(one), "x")]) == []  # fmt: skip
    assert (provider_name(one) == provider_name(other)) == (one == other)


@pytest.mark.parametrize("raw", ["", "null", "{}", " { } ", '{"a": 1}', '{"q":"\\ud83d"}', "[1]", '{"a":', "NaN"])
def test_arguments_are_shown_as_an_object_whatever_the_model_wrote(raw: str) -> None:
    try:
        parsed = json.loads(raw) if raw else {}
    except ValueError:
        parsed = 0
    parsed = {} if parsed is None else parsed if isinstance(parsed, dict) else None
    if raw == '{"q":"\\ud83d"}':
        parsed = {"q": "\ufffd"}  # as the shell cleans it
    talk = Talk()
    talk.say()
    talk.reply("", inp.Proposed("look", raw, parsed=parsed, problem="" if parsed is not None else "no object"))
    (_, asked, _) = talk.seen()
    assert complaints(talk.seen()) == []
    assert isinstance(asked, AssistantMessage)
    json.dumps(json.loads(asked.calls[0].arguments), ensure_ascii=False).encode()
    if raw == '{"a": 1}':
        assert asked.calls[0].arguments == raw
    assert talk.of(ev.ToolsCalled)[0].calls[0].arguments == raw


@pytest.mark.field(74)
def test_no_window_splits_a_call_from_its_result() -> None:
    talk = Talk()
    for turn in range(9):
        talk.say(f"question {turn}")
        talk.reply("", *(call("look", q=str(place)) for place in range(turn % 3 + 1)))
        talk.run_all()
        talk.reply(f"answer {turn}")
    history = talk.history()
    assert sum(one.size for one in history) >= 40
    for limit in range(1, 41):
        window = last_messages(history, limit)
        assert sum(one.size for one in window) <= limit
        assert complaints(view(window, "@agent", "USER")) == []
        assert window == history[len(history) - len(window) :]
    assert last_messages(history, None) == history


@pytest.mark.field(76)
def test_a_call_cut_off_five_times_has_one_result_and_the_history_is_valid_each_time() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("", call("pay", amount=1), call("look", q="x"))
    talk.decide()
    talk.ready()
    talk.finish(1)
    talk.say("hi")
    for _ in range(5):
        talk.crash()
        assert texts(talk) == ["one"]
    talk.expire()
    assert len(talk.of(ev.ToolReturned)) == 2
    talk.crash()
    talk.reply("I do not know")
    assert texts(talk)[-2:] == ["I do not know", "hi"]
    outcomes = [one.outcome for one in talk.seen() if isinstance(one, ToolMessage)]
    assert outcomes == ["outcome_unknown", "ok"]


@settings(max_examples=300)
@given(st.integers(0, 2**32), walks)
def test_whatever_happens_the_history_of_every_speaker_is_valid_and_only_grows(first: int, walk: list[int]) -> None:
    talk = Talk.__new__(Talk)
    talk.fresh()
    talk.put(start(first))
    grown = collect([], talk.rows)
    for seed in walk:
        at = len(talk.rows)
        talk.put(any_input(seed, talk.session))
        collect(grown, talk.rows[at:])
        assert grown == talk.history()
        for speaker in talk.session.agents:
            for listener in (*talk.session.agents, *talk.session.channels):
                if speaker != listener:
                    assert complaints(talk.seen(speaker, listener)) == []
        for limit in (1, 3, 8):
            assert complaints(view(last_messages(grown, limit), "@agent", "USER")) == []


def test_the_model_is_told_that_a_person_changed_the_arguments() -> None:
    record = ev.CallRecord(id="c1", tool="pay", arguments='{"amount":5}', parsed={"amount": 5})
    said = ev.ToolsCalled(message_id="m", speaker="@agent", listener="USER", calls=(record,))
    result = ev.ToolReturned(call_id="c1", outcome="ok", content="paid", edited={"amount": 4})
    events: tuple[ev.Event, ...] = (said, result)
    rows = [Row("s", seq, State.SUCCESS, 0, "x", event) for seq, event in enumerate(events, 1)]
    told = view(collect([], rows), "@agent", "USER")[-1]
    assert isinstance(told, ToolMessage)
    assert told.content == '(A person changed the arguments to {"amount":4}.)\npaid'
