"""Who speaks to whom, and when it ends. "Upstream" are the numbers of the engine that turnlog re-thinks."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.director import choose
from turnlog.fsm.effects import CallModel, ChooseSpeaker

from .talk import BOT, TWO, USER, Talk, call, code

ALWAYS = ev.AgentSpec(name="human", model="m", interrupt="always")
BOT_2 = TWO[1]
MEMBERS = tuple(ev.AgentSpec(name=name, model="m") for name in ("ada", "bea", "cyd"))
NAMES = ("ada", "bea", "cyd")


def endless(talk: Talk, text: str = "and then?") -> int:
    """Let models answer until the machine stops by itself; the answer is how many completions there were."""
    for count in itertools.count():
        if talk.state is not State.SUCCESS:
            return count
        if any(isinstance(one, ChooseSpeaker) for one in talk.pending()):
            talk.choose("", seed=count)
        talk.reply(text)
    raise AssertionError


# Pairs -----------------------------------------------------------------------------------------


@pytest.mark.accept(45)
@pytest.mark.field(28)
def test_upstream_1_terminate_ends_it_although_the_human_is_always_asked() -> None:
    talk = Talk(ALWAYS, BOT_2)
    talk.say("start")
    talk.reply("TERMINATE")
    assert talk.texts == ["start", "TERMINATE"]
    assert talk.state is State.TERMINATED
    assert talk.of(ev.TurnInterrupted) == []
    assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="TERMINATE")]


@pytest.mark.accept(43)
def test_upstream_3_two_models_alternate_until_the_eleventh_reply_ends_it() -> None:
    talk = Talk(*TWO)
    talk.say("start")
    for place in range(11):
        assert talk.owed(CallModel).speaker == ("bot", "human")[place % 2]
        talk.reply("TERMINATE" if place == 10 else f"reply {place}")
    assert len(talk.texts) == 12
    assert talk.state is State.TERMINATED
    senders = [one.sender for one in talk.of(ev.MessageAdded)]
    assert senders == ["human", "bot"] * 6


@pytest.mark.accept(46)
def test_upstream_4_four_rounds_are_the_first_message_and_three_completions() -> None:
    talk = Talk(*TWO, limits=ev.Limits(max_rounds=4))
    talk.say("start")
    assert endless(talk) == 3
    assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="max_rounds")]


@pytest.mark.accept(46)
def test_upstream_5_preloaded_history_stays_first_and_counts_for_no_round() -> None:
    old = (inp.Preloaded("human", "bot", "from yesterday"),)
    talk = Talk(*TWO, limits=ev.Limits(max_rounds=1), history=old)
    talk.say("start")
    talk.reply("last")
    assert talk.texts == ["from yesterday", "start", "last"]
    assert talk.state is State.TERMINATED


@pytest.mark.accept(46)
def test_rounds_are_counted_since_a_person_last_spoke_so_a_long_chat_goes_on() -> None:
    talk = Talk(limits=ev.Limits(max_rounds=3))
    for turn in range(50):
        talk.say(f"question {turn}")
        talk.reply(f"answer {turn}")
        assert talk.state is State.INTERRUPT


@pytest.mark.accept(47)
def test_upstream_7_a_node_that_always_interrupts_is_waited_for_at_each_reply() -> None:
    talk = Talk(ALWAYS, BOT_2)
    for turn in range(3):
        talk.say("go on")
        talk.reply("a reply")
        assert len(talk.of(ev.TurnInterrupted)) == turn + 1
    assert {(one.node, one.peer) for one in talk.of(ev.TurnInterrupted)} == {("human", "bot")}


@pytest.mark.accept(47)
@pytest.mark.parametrize("word", ["INTERRUPT", "INTERRUPT\n", "  INTERRUPT "])
def test_upstream_8_the_word_interrupt_waits_for_the_peer(word: str) -> None:
    talk = Talk(*TWO)
    talk.say("start")
    talk.reply(word)
    assert talk.state is State.INTERRUPT
    assert talk.of(ev.TurnInterrupted) == [ev.TurnInterrupted(reason="requested", node="human", peer="bot")]
    assert len(talk.texts) + 1 == 3  # upstream counts the interrupt as an entry
    assert talk.of(ev.MessageAdded)[-1].control == "INTERRUPT"


@pytest.mark.accept(45)
@pytest.mark.parametrize("word", ["TERMINATE", "TERMINATE\n", "\n TERMINATE  "])
def test_the_word_terminate_is_trimmed(word: str) -> None:
    talk = Talk(*TWO)
    talk.say()
    talk.reply(word)
    assert talk.state is State.TERMINATED


@pytest.mark.parametrize("text", ["TERMINATE.", "please TERMINATE", "terminate", "TERMINATE INTERRUPT"])
def test_a_text_that_only_holds_the_word_is_a_text(text: str) -> None:
    talk = Talk(*TWO)
    talk.say()
    talk.reply(text)
    assert talk.state is State.SUCCESS


def test_a_person_who_says_the_word_ends_nothing() -> None:
    talk = Talk()
    talk.say("TERMINATE")
    assert talk.state is State.SUCCESS
    assert talk.of(ev.MessageAdded)[0].control == ""


@pytest.mark.accept(49)
def test_upstream_9_a_continue_without_text_gives_five_entries_and_a_marked_third() -> None:
    talk = Talk(ALWAYS, BOT_2)
    talk.say("start")
    talk.reply("which?")
    talk.go_on()
    talk.reply("the model's choice")
    talk.reply("very well")
    entries = [row for row in talk.rows if row.event.kind == "message_added"]
    assert len(entries) + (talk.state is State.INTERRUPT) == 5
    third = talk.of(ev.MessageAdded)[2]
    assert third.synthetic
    assert entries[2].state is State.SUCCESS


@pytest.mark.accept(49)
def test_upstream_10_a_continue_with_text_is_said_from_human_to_bot() -> None:
    talk = Talk(ALWAYS, BOT_2)
    talk.say("start")
    talk.reply("which?")
    talk.say("the red one")
    third = talk.of(ev.MessageAdded)[2]
    assert (third.sender, third.recipient, third.text) == ("human", "bot", "the red one")


@pytest.mark.accept(49)
def test_a_refused_continue_changes_nothing() -> None:
    talk = Talk()
    talk.say()
    talk.reply("your turn")
    before = talk.session
    talk.go_on()
    assert talk.session._replace(seq=before.seq) == before


@pytest.mark.field(30)
def test_five_thousand_rounds_end_by_the_cap_with_a_session_no_bigger_than_at_the_start() -> None:
    talk = Talk(*TWO, limits=ev.Limits(max_rounds=5000))
    talk.say("start")
    talk.reply("one")
    small = len(repr(talk.session))
    assert endless(talk) == 4998
    assert talk.state is State.TERMINATED
    assert len(repr(talk.session)) < small + 100


# Groups ----------------------------------------------------------------------------------------


def group(max_rounds: int = 10, limits: ev.Limits | None = None, *, always: str = "") -> Talk:
    """A person and three members, with a director."""
    members = tuple(one.model_copy(update={"interrupt": "always"}) if one.name == always else one for one in MEMBERS)
    room = ev.Channel(name="room", members=NAMES, director="d", max_rounds=max_rounds)
    talk = Talk(USER, *members, channels=(room,), entry="room", limits=limits)
    talk.say("start")
    return talk


@pytest.mark.accept(37)
@pytest.mark.accept(61)
def test_upstream_11_and_12_a_group_ends_with_the_first_message_and_its_cap_of_entries() -> None:
    for cap, entries in ((10, 11), (4, 5)):
        talk = group(cap)
        endless(talk)
        assert len(talk.texts) == entries
        assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="max_rounds")]


@pytest.mark.accept(37)
def test_person_to_agent_agent_to_person_and_agent_to_agent_reach_each_other() -> None:
    talk = Talk(USER, BOT, *TWO)
    talk.say("hi", recipient="@agent")
    talk.reply("hello")
    talk.say("hi bot", recipient="bot")
    assert talk.owed(CallModel).speaker == "bot"
    talk.reply("hello")
    talk.say("you two, talk", sender="human", recipient="bot")
    talk.reply("yes")
    assert talk.owed(CallModel).speaker == "human"
    pairs = [(one.sender, one.recipient) for one in talk.of(ev.MessageAdded)]
    assert pairs == [
        ("USER", "@agent"), ("@agent", "USER"), ("USER", "bot"), ("bot", "USER"), ("human", "bot"), ("bot", "human")
    ]  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([*NAMES, "USER", "room", "", "ada or bea", "ADA", "@bea", "nobody"]),
                          st.integers(0, 99)), max_size=12))  # fmt: skip
def test_the_next_speaker_is_always_a_member_and_never_the_last_one(choices: list[tuple[str, int]]) -> None:
    talk = group(1000)
    last = ""
    for raw, seed in choices:
        allowed = talk.owed(ChooseSpeaker).candidates
        assert last not in allowed
        talk.choose(raw, seed)
        picked = talk.of(ev.SpeakerSelected)[-1]
        assert picked.speaker in allowed
        if raw in allowed:
            assert (picked.speaker, picked.by) == (raw, "director")
        assert picked.raw == raw
        last = picked.speaker
        talk.reply("I say")


def test_a_member_that_reached_its_cap_is_no_candidate_until_a_person_speaks_again() -> None:
    talk = group(1000, ev.Limits(max_rounds=1))
    talk.choose("ada")
    talk.reply("once")
    talk.choose("bea")
    talk.reply("once")
    assert talk.owed(ChooseSpeaker).candidates == ("cyd",)
    talk.choose("")
    assert talk.of(ev.SpeakerSelected)[-1].by == "only_candidate"
    talk.say("and again")
    talk.reply("once")
    assert talk.texts[-2:] == ["once", "and again"]
    assert set(talk.owed(ChooseSpeaker).candidates) == {"ada", "bea", "cyd"}


def test_a_group_in_which_nobody_may_speak_ends() -> None:
    talk = group(1000, ev.Limits(max_rounds=1))
    endless(talk)
    assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="no_speaker")]
    assert len(talk.texts) == 4


def test_a_choice_without_a_valid_answer_is_random_with_its_seed_in_the_log() -> None:
    talk = group()
    talk.choose("somebody else", seed=4)
    assert talk.of(ev.SpeakerSelected) == [
        ev.SpeakerSelected(channel="room", speaker="bea", by="random", raw="somebody else", seed=4)
    ]


@pytest.mark.parametrize(
    "raw",
    ["bea", "bea\n", "**bea**", "@bea", "Bea.", "\x1b[1mbea\x1b[0m", "bea: because it knows", "Next: bea", "`bea`"],
)
def test_a_name_is_found_under_what_models_hang_on_it(raw: str) -> None:
    assert choose(raw, NAMES, 0) == ("bea", "director")


@given(st.text(), st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True), st.integers(0, 2**32))
def test_a_choice_is_always_one_of_those_allowed(raw: str, allowed: list[str], seed: int) -> None:
    assert choose(raw, tuple(allowed), seed)[0] in allowed


def test_a_directors_failure_is_an_error_that_can_be_retried() -> None:
    talk = group()
    talk.fail()
    assert talk.state is State.ERROR
    assert talk.of(ev.TurnFailed)[0].where == "director"
    talk.retry()
    talk.choose("ada")
    assert talk.owed(CallModel).speaker == "ada"


def test_a_member_that_always_interrupts_is_spoken_for_by_a_person() -> None:
    talk = group(always="bea")
    talk.choose("bea")
    assert talk.of(ev.TurnInterrupted) == [ev.TurnInterrupted(reason="user_turn", node="bea", peer="room")]
    talk.say("as bea")
    said = talk.of(ev.MessageAdded)[-1]
    assert (said.sender, said.recipient) == ("bea", "room")
    assert "bea" not in talk.owed(ChooseSpeaker).candidates


@pytest.mark.parametrize("moment", ["choosing", "speaking", "member failed", "director failed", "stopped"])
def test_a_person_who_speaks_up_in_a_group_speaks_to_the_group(moment: str) -> None:
    talk = group()
    if moment in ("speaking", "member failed"):
        talk.choose("ada")
    if moment.endswith("failed"):
        talk.fail()
    if moment == "stopped":
        talk.stop()
    talk.say("one more thing")
    message = talk.rows[-1].event
    assert isinstance(message, ev.MessageQueued | ev.MessageAdded)
    assert (message.sender, message.recipient) == ("USER", "room")


@pytest.mark.accept(72)
def test_a_message_to_models_that_talk_to_each_other_comes_when_one_has_finished_and_not_at_the_end() -> None:
    talk = Talk(*TWO, limits=ev.Limits(max_rounds=3))
    talk.say("start")
    talk.say("wait, one more thing")
    talk.reply("one hand")
    assert talk.texts == ["start", "one hand", "wait, one more thing"]
    assert talk.owed(CallModel).speaker == "bot"
    talk.reply("other hand")
    talk.say("and this")
    talk.reply("the cap is reached here")
    assert talk.texts[-1] == "and this"
    assert talk.state is State.SUCCESS


def test_a_retry_is_tried_before_a_message_that_waits() -> None:
    talk = Talk(*TWO)
    talk.say("start")
    talk.reply("one hand")
    talk.say("wait")
    talk.fail()
    talk.retry()
    assert talk.owed(CallModel).speaker == "human"
    talk.reply("other hand")
    assert talk.texts == ["start", "one hand", "other hand", "wait"]


@pytest.mark.accept(51)
def test_a_member_sees_the_groups_transcript_as_one_message() -> None:
    talk = group()
    talk.choose("ada")
    talk.reply("I say")
    talk.choose("bea")
    (seen,) = talk.seen("bea", "room")
    assert getattr(seen, "text", "") == "USER: start\n\nada: I say"
    talk.reply("", call("nothing"))
    assert [type(one).__name__ for one in talk.seen("bea", "room")] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
    ]


def test_a_member_that_says_the_word_ends_the_session() -> None:
    talk = group()
    talk.choose("ada")
    talk.reply("TERMINATE")
    assert talk.state is State.TERMINATED


def test_a_member_that_asks_for_an_interruption_waits_for_the_person() -> None:
    talk = group()
    talk.choose("ada")
    talk.reply("INTERRUPT")
    assert talk.of(ev.TurnInterrupted) == [ev.TurnInterrupted(reason="requested", node="USER", peer="room")]
    assert code(talk.go_on().refusal) == "invalid"
