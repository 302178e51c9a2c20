"""Counters of rounds: one for each pair and each group, whatever the names are."""

from hypothesis import example, given
from hypothesis import strategies as st

from turnlog.fsm import events as ev
from turnlog.fsm.session import pair

from .talk import Talk

NAMES = st.text(st.sampled_from("ab|:1"), min_size=1, max_size=4)
TWO = st.tuples(NAMES, NAMES)


@given(TWO, TWO)
@example(("a|b", "c"), ("a", "b|c"))
def test_two_pairs_share_a_counter_only_when_they_are_the_same_pair(one: tuple[str, str], two: tuple[str, str]) -> None:
    assert (pair(*one) == pair(*two)) == (sorted(one) == sorted(two))


@given(NAMES, TWO)
@example("a|b", ("a", "b"))
@example("1:a|b", ("a", "b"))
def test_a_group_has_a_counter_of_its_own(group: str, two: tuple[str, str]) -> None:
    assert pair(group) != pair(*two)


def test_what_one_pair_says_does_not_use_up_the_rounds_of_another_with_a_bar_in_its_names() -> None:
    agents = [ev.AgentSpec(name=name, model="m") for name in ("a|b", "c", "a", "b|c")]
    talk = Talk(*agents, limits=ev.Limits(max_rounds=3))
    talk.say("one", sender="a|b", recipient="c")
    talk.reply("two")
    talk.stop()
    talk.say("other", sender="a", recipient="b|c")
    assert sorted(talk.session.rounds.values()) == [1, 2]
