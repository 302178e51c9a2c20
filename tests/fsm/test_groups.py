"""Who speaks next in a group: what a director may say, what is done when it says nothing useful, and who is left."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.director import choose
from turnlog.fsm.effects import CallModel, ChooseSpeaker

from .talk import USER, Talk, call, code

NAMES = ("Senior_Planner", "Planner", "Ada Lovelace", "@agent", "foo__bar", "_private", "x.y-z")
DECORATIONS = (
    "{}", " {} \n", "**{}**", "__{}__", "_{}_", "`{}`", "```\n{}\n```", '"{}"', "“{}”", "{}.", "{}!", "- {}", "1. {}",
    "Role: {}", "Next speaker: **{}**", "> {}", "<b>{}</b>", '{{"speaker": "{}"}}', "@{}", "{}\nbecause it knows",
    "{}: it knows best", "**{}** - it knows best", "I would say that it is the turn of\n\n**{}**", "\ufeff{}",
    "\x1b[1;32m{}\x1b[0m", "[32m{}[0m", "\x1b]8;;http://x\x07{}\x1b]8;;\x07", "\u200b{}\r\n",
)  # fmt: skip


def room(*names: str, limits: ev.Limits | None = None, **more: object) -> Talk:
    """A person and a group, which the person has spoken to."""
    members = tuple(ev.AgentSpec(name=name, model="m", tools=("look",)) for name in names)
    group = ev.Channel.model_validate({"name": "room", "members": names, "director": "d", "max_rounds": 1000} | more)
    talk = Talk(USER, *members, channels=(group,), entry="room", limits=limits)
    talk.say("start")
    return talk


def ended(talk: Talk) -> list[str]:
    """Why the session ended."""
    return [one.reason for one in talk.of(ev.SessionTerminated)]


# What a director says --------------------------------------------------------------------------


@pytest.mark.accept(59)
@pytest.mark.field(121)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("decoration", DECORATIONS)
def test_a_name_is_obeyed_whatever_hangs_on_it(decoration: str, name: str) -> None:
    for written in (name, name.replace("_", "\\_"), name.replace("_", "\\\\_"), name.upper()):
        assert choose(decoration.format(written), NAMES, 0) == (name, "director")


@pytest.mark.field(121)
@pytest.mark.parametrize(
    "raw",
    [
        "Role: Senior\\_Planner",
        "**Senior_Planner**",
        "senior_planner.",
        "Senior_Planner\nPlanner and Ada Lovelace have spoken already.",
        "\x1b[31mSenior_Planner\x1b[0m",
        "Senior_Planner, because Planner is tired",
        "Senior_Planner (asked by Planner)",
        "Planner or Ada Lovelace? No:\nSenior_Planner",
        "<think>Planner has spoken, Ada Lovelace has not.</think>\nSenior_Planner",
    ],
)
def test_a_reason_beside_a_name_may_hold_other_names(raw: str) -> None:
    assert choose(raw, NAMES, 0) == ("Senior_Planner", "director")


@pytest.mark.accept(60)
@pytest.mark.field(123)
@pytest.mark.parametrize(
    "raw",
    [
        "", " \n\t", "TERMINATE", "**TERMINATE**", "terminate.", "INTERRUPT", "---", "\x1b[0m", "nobody", "Planner-3",
        "Senior_Planners", "the senior one", "Planner or Senior_Planner", "Planner, Senior_Planner", "Planner & x.y-z",
        "Planner\nSenior_Planner", "It may be Planner, and Senior_Planner may be it as well", "a" * 10_000,
    ],
)  # fmt: skip
def test_what_names_nobody_or_several_is_no_choice_and_the_seed_decides(raw: str) -> None:
    for seed in range(10):
        assert choose(raw, NAMES, seed) == (NAMES[seed % len(NAMES)], "random")


@pytest.mark.accept(60)
@pytest.mark.parametrize("raw", ["Cyd", "Cyd: she should answer Ada", "Cyd\nAda would be next after her", "Cyd, then?"])
def test_one_who_may_not_speak_is_no_choice_although_another_is_named_as_a_reason(raw: str) -> None:
    assert choose(raw, ("Ada", "Bea"), 1, ("Cyd", "Ada", "USER")) == ("Bea", "random")


def test_names_that_differ_in_decoration_only_are_told_apart_when_written_exactly() -> None:
    names = ("ada", "Ada", "*ada*", "_ada", "***")
    for name in names:
        assert choose(f" {name}\n", names, 2) == (name, "director")
    assert choose("ADA", names, 2) == ("*ada*", "random")
    assert choose("~~~", names, 0) == ("ada", "random")


@given(st.text(), st.lists(st.text(min_size=1), min_size=2, max_size=5, unique=True), st.integers(0, 2**32))
def test_any_text_and_any_names_give_one_of_the_allowed_and_an_exact_name_itself(
    raw: str, names: list[str], seed: int
) -> None:
    allowed = tuple(names)
    assert choose(raw, allowed, seed, ("x", "y"))[0] in allowed
    for name in allowed:
        if name == name.strip():
            assert choose(f"\n{name} ", allowed, seed) == (name, "director")


@pytest.mark.parametrize("piece", ["_", "\x1b]", "[0;", " ", "ada ", "\\_*", "\n"])
def test_a_huge_answer_takes_time_in_proportion_to_its_length(piece: str) -> None:
    """CPU time against itself, so no machine is too slow: eight times the length, at most thirty times the work."""

    def cost(size: int) -> int:
        begun = time.process_time_ns()
        choose("ada" + piece * size + "x bea", ("ada", "bea", "cyd"), 0)
        return time.process_time_ns() - begun

    small = max(min(cost(20_000) for _ in range(3)), 1_000_000)
    assert cost(160_000) < 30 * small


# Who is left -----------------------------------------------------------------------------------


@pytest.mark.accept(59)
@pytest.mark.field(124)
def test_two_members_that_are_both_at_their_limit_end_the_session_with_a_reason() -> None:
    talk = room("ada", "bea", limits=ev.Limits(max_rounds=2))
    spoken = 0
    while talk.state is State.SUCCESS:
        talk.choose("ada")
        talk.reply("I say")
        spoken += 1
    assert (spoken, ended(talk)) == (4, ["no_speaker"])
    # Two may speak once; after that only the one that did not speak last may, whatever the director says.
    assert [one.by for one in talk.of(ev.SpeakerSelected)] == ["director"] + ["only_candidate"] * 3


@pytest.mark.field(124)
def test_one_member_that_spoke_last_ends_the_session_with_a_reason() -> None:
    talk = room("ada")
    assert talk.owed(ChooseSpeaker).candidates == ("ada",)
    talk.choose("")
    talk.reply("I say")
    assert ended(talk) == ["no_speaker"]
    assert talk.pending() == ()


@pytest.mark.field(124)
def test_a_member_that_is_removed_while_it_is_selected_speaks_no_more_and_another_is_chosen() -> None:
    talk = room("ada", "bea", "cyd")
    first = talk.owed(ChooseSpeaker).key
    talk.choose("ada")
    late = talk.owed(CallModel).key
    talk.remove("ada")
    owed = talk.owed(ChooseSpeaker)
    assert owed.candidates == ("bea", "cyd")
    assert owed.key not in (first, late)
    for key in (first, late):
        assert code(talk.put(inp.ModelReplied(key, "m9", "too late")).refusal) == "stale"
    assert code(talk.put(inp.SpeakerChosen(first, "ada", 0)).refusal) == "stale"
    talk.choose("ada", seed=1)
    assert (talk.of(ev.SpeakerSelected)[-1].speaker, talk.of(ev.SpeakerSelected)[-1].by) == ("cyd", "random")


@pytest.mark.field(124)
def test_the_last_member_that_is_removed_while_it_is_selected_ends_the_session_with_a_reason() -> None:
    talk = room("ada", "bea")
    talk.choose("ada")
    talk.reply("I say")
    talk.choose("bea")
    talk.remove("bea")
    assert ended(talk) == ["no_speaker"], "ada spoke last"
    assert talk.pending() == ()
    assert talk.of(ev.MemberRemoved) == [ev.MemberRemoved(channel="room", member="bea")]


def test_a_member_is_removed_while_the_director_thinks_and_its_answer_counts_for_those_left() -> None:
    talk = room("ada", "bea", "cyd")
    asked = talk.owed(ChooseSpeaker)
    talk.remove("ada")
    assert talk.owed(ChooseSpeaker).key == asked.key
    talk.put(inp.SpeakerChosen(asked.key, "ada", 1))
    assert talk.owed(CallModel).speaker == "cyd"


def test_a_member_that_failed_is_removed_and_the_retry_asks_another() -> None:
    talk = room("ada", "bea")
    talk.choose("ada")
    talk.fail()
    talk.remove("ada")
    assert talk.state is State.ERROR
    talk.retry()
    assert talk.owed(ChooseSpeaker).candidates == ("bea",)


def test_a_member_that_a_person_was_to_speak_for_is_removed_and_the_person_speaks_for_themselves() -> None:
    talk = room("ada", "bea", "cyd")
    talk.choose("ada")
    talk.reply("INTERRUPT")
    talk.remove("bea")
    talk.say("go on")
    assert talk.of(ev.MessageAdded)[-1].sender == "USER"
    assert talk.owed(ChooseSpeaker).candidates == ("ada", "cyd")


def test_a_member_in_the_middle_of_its_calls_is_not_removed_before_the_turn_is_stopped() -> None:
    talk = room("ada", "bea")
    talk.choose("ada")
    talk.reply("", call("look", q="x"))
    refused = talk.remove("ada").refusal
    assert code(refused) == "conflict"
    assert "stop the turn first" in getattr(refused, "why", "")
    talk.run_all()
    assert talk.owed(CallModel).speaker == "ada", "it speaks on"
    talk.remove("bea")
    talk.remove("ada")
    assert ended(talk) == ["no_speaker"], "between two rounds it may go"


@pytest.mark.parametrize(("channel", "member"), [("hall", "ada"), ("room", "USER"), ("room", "ghost"), ("ada", "ada")])
def test_who_is_no_member_cannot_be_removed(channel: str, member: str) -> None:
    assert code(room("ada", "bea").remove(member, channel).refusal) == "invalid"


def test_a_member_is_removed_once_and_by_a_person_only() -> None:
    talk = room("ada", "bea")
    assert code(talk.remove("ada", by="agent:bea").refusal) == "unauthorised"
    talk.remove("ada")
    assert code(talk.remove("ada").refusal) == "invalid"
    talk.crash()
    assert talk.owed(ChooseSpeaker).candidates == ("bea",), "it stays removed"


# What a choice costs ---------------------------------------------------------------------------


@pytest.mark.accept(59)
def test_the_tokens_of_a_director_count_for_the_turn_of_the_one_it_chose() -> None:
    talk = room("ada", "bea", "cyd")
    cost = ev.Usage(input_tokens=100, output_tokens=2, completions=1)
    talk.put(inp.SpeakerChosen(talk.owed(ChooseSpeaker).key, "ada", 0, model="small", usage=cost))
    (picked,) = talk.of(ev.SpeakerSelected)
    assert (picked.model, picked.usage) == ("small", cost)
    talk.reply("I say", usage=ev.Usage(input_tokens=10, output_tokens=5, completions=1))
    said = talk.of(ev.MessageAdded)[-1]
    assert said.usage == ev.Usage(input_tokens=10, output_tokens=5, completions=1)
    assert said.turn_usage == ev.Usage(input_tokens=110, output_tokens=7, completions=2)
    talk.put(inp.SpeakerChosen(talk.owed(ChooseSpeaker).key, "bea", 0))
    talk.reply("so do I", usage=cost)
    assert talk.of(ev.MessageAdded)[-1].turn_usage == cost, "each turn counts its own"


def test_speakers_alternate_whatever_the_director_wants() -> None:
    talk = room("ada", "bea", "cyd")
    for _ in range(20):
        talk.choose("ada", seed=3)
        talk.reply("I say")
    speakers = [one.speaker for one in talk.of(ev.SpeakerSelected)]
    assert all(one != other for one, other in itertools.pairwise(speakers))
    assert speakers[::2] == ["ada"] * 10
