"""Repeats: the same call, a pause, once per session; told to the model, and never in the way of a fair retry."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm import State, replay
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.canonical import digest
from turnlog.fsm.dedupe import fingerprint
from turnlog.fsm.history import ToolMessage

from .talk import TWO, Talk, call, code


def spoken() -> Talk:
    talk = Talk()
    talk.say()
    return talk


def run(talk: Talk, tool: str, **arguments: Any) -> ev.ToolReturned:
    """The model calls, and whatever may run ends well; the answer is the call's result."""
    talk.reply("", call(tool, **arguments))
    talk.run_all()
    return talk.of(ev.ToolReturned)[-1]


def answered(talk: Talk) -> None:
    """The model answers, and the person speaks again."""
    talk.reply("done")
    talk.say("next")


@pytest.mark.accept(23)
def test_the_same_call_in_any_order_of_keys_runs_once_an_answer_and_says_why() -> None:
    talk = spoken()
    assert run(talk, "look", a=1, b=2).outcome == "ok"
    again = run(talk, "look", b=2, a=1)
    assert again.outcome == "duplicate"
    assert "same arguments" in again.content
    assert run(talk, "look", a=1, b=3).outcome == "ok"
    assert len(talk.of(ev.ToolStarted)) == 2


@pytest.mark.accept(24)
def test_a_tool_with_a_pause_is_blocked_inside_it_with_new_arguments_too_and_allowed_after_it() -> None:
    talk = spoken()
    assert run(talk, "rest", q="a").outcome == "ok"
    for seconds, outcome in ((0, "duplicate"), (30, "duplicate"), (0.001, "ok"), (29, "duplicate")):
        talk.clock.advance(seconds)
        assert run(talk, "rest", q=f"{len(talk.rows)}").outcome == outcome
    assert "30 s" in talk.of(ev.ToolReturned)[-1].content
    talk.clock.advance(31)
    answered(talk)
    assert run(talk, "rest", q="a").outcome == "ok"
    answered(talk)
    assert run(talk, "rest", q="b").outcome == "duplicate", "a pause outlives the answer"


@pytest.mark.accept(25)
def test_a_unique_tool_runs_once_a_session_until_a_person_lets_it_run_again() -> None:
    talk = spoken()
    assert run(talk, "once", q="a").outcome == "ok"
    answered(talk)
    assert run(talk, "once", q="b").outcome == "duplicate"
    assert code(talk.put(inp.AllowRerun("look", "person:ann")).refusal) == "conflict"
    assert code(talk.put(inp.AllowRerun("once", "tool:once")).refusal) == "unauthorised"
    assert talk.put(inp.AllowRerun("once", "person:ann")).refusal is None
    assert run(talk, "once", q="b").outcome == "ok"


@pytest.mark.accept(26)
def test_the_reasons_come_in_the_order_exact_pause_unique() -> None:
    rule = ev.Repeats(cooldown_seconds=30, unique=True)
    talk = spoken()

    def go(q: str) -> str:
        made = call("once", q=q)
        assert made.facts is not None
        talk.reply("", made._replace(facts=made.facts._replace(repeats=rule)))
        talk.run_all()
        return talk.of(ev.ToolReturned)[-1].content

    assert go("a") == "fine"
    assert "same arguments" in go("a")
    assert "pause of 30 s" in go("b")
    talk.clock.advance(31)
    assert "once per session" in go("b")


@pytest.mark.accept(27)
def test_the_model_is_told_in_its_next_prompt_why_a_call_was_dropped() -> None:
    talk = spoken()
    run(talk, "look", q="x")
    run(talk, "look", q="x")
    told = talk.seen()[-1]
    assert isinstance(told, ToolMessage)
    assert told.outcome == "duplicate"
    assert "its result stands above" in told.content


@pytest.mark.accept(28)
@pytest.mark.field(118)
def test_what_failed_or_was_refused_may_be_called_again() -> None:
    talk = spoken()
    talk.reply("", call("once", q="x"))
    talk.ready()
    talk.finish(outcome="error", content="no network")
    assert run(talk, "once", q="x").outcome == "ok"
    talk.reply("", call("look", problem="q: too long", q="y"))
    assert talk.of(ev.ToolReturned)[-1].outcome == "invalid_arguments"
    assert run(talk, "look", q="y").outcome == "ok"


@pytest.mark.accept(28)
@pytest.mark.field(120)
def test_a_call_that_a_person_refused_may_be_made_again_in_the_same_answer() -> None:
    talk = spoken()
    for outcome in ("denied", "approved"):
        talk.reply("", call("pay", amount=5))
        talk.decide(0, outcome)
        talk.run_all()
    assert [one.outcome for one in talk.of(ev.ToolReturned)] == ["denied", "ok"]
    talk.reply("", call("pay", amount=5))
    assert talk.of(ev.ToolReturned)[-1].outcome == "duplicate", "nobody is asked for what would not run"
    assert not talk.session.requests


@pytest.mark.accept(30)
def test_at_the_end_of_an_answer_runs_are_forgotten_and_uniques_kept() -> None:
    talk = spoken()
    run(talk, "look", q="x")
    run(talk, "once", q="x")
    answered(talk)
    assert run(talk, "look", q="x").outcome == "ok"
    assert run(talk, "once", q="x").outcome == "duplicate"


def test_between_two_models_each_answer_starts_anew() -> None:
    bots = [agent.model_copy(update={"tools": ("look",)}) for agent in TWO]
    talk = Talk(*bots)
    talk.say()
    assert run(talk, "look", q="x").outcome == "ok"
    talk.reply("your turn")
    assert run(talk, "look", q="x").outcome == "ok"


@pytest.mark.field(116)
def test_a_model_that_repeats_itself_for_ever_runs_once_and_ends_by_the_cap() -> None:
    talk = spoken()
    while talk.state is State.SUCCESS:
        run(talk, "look", q=1)
    assert len(talk.of(ev.ToolStarted)) == 1
    outcomes = [one.outcome for one in talk.of(ev.ToolReturned)]
    assert outcomes == ["ok", *["duplicate"] * 9, "limit"]
    assert talk.of(ev.TurnInterrupted)[-1].reason == "limit"


def test_a_tool_that_is_polled_may_be_called_with_the_same_arguments() -> None:
    talk = spoken()
    assert [run(talk, "poll", job="7").outcome for _ in range(3)] == ["ok", "ok", "ok"]
    assert talk.session.runs == ()


def test_of_two_calls_in_one_round_a_unique_tool_runs_one_and_another_runs_both() -> None:
    talk = spoken()
    talk.reply("", call("once", q="a"), call("once", q="b"), call("look", q="c"), call("look", q="c"))
    talk.run_all()
    by_id = {one.call_id: one.outcome for one in talk.of(ev.ToolReturned)}
    assert [by_id[record.id] for record in talk.of(ev.ToolsCalled)[0].calls] == ["ok", "duplicate", "ok", "ok"]


def test_arguments_that_a_person_changed_are_those_that_count() -> None:
    talk = spoken()
    talk.reply("", call("pay", amount=5))
    talk.edit(0, amount=7)
    talk.run_all()
    talk.reply("", call("pay", amount=7))
    assert talk.of(ev.ToolReturned)[-1].outcome == "duplicate"
    talk.reply("", call("pay", amount=5))
    assert talk.session.requests


def test_a_call_that_a_person_says_took_effect_has_its_pause_too() -> None:
    talk = spoken()
    talk.reply("", call("rest", q="a"))
    talk.ready()
    talk.crash()
    talk.decide(0, "committed", result="done")
    assert run(talk, "rest", q="b").outcome == "duplicate"
    talk.clock.advance(30.001)
    assert run(talk, "rest", q="c").outcome == "ok"


def test_the_memory_is_a_fold_of_the_log() -> None:
    talk = spoken()
    run(talk, "look", q="x")
    run(talk, "rest", q="x")
    talk.crash()
    assert talk.session.runs == replay(talk.rows).runs != ()
    assert run(talk, "look", q="x").outcome == "duplicate"
    assert run(talk, "rest", q="y").outcome == "duplicate"


@pytest.mark.field(115)
def test_key_order_and_whole_floats_do_not_matter_list_order_and_null_do() -> None:
    one = fingerprint({"a": 1, "b": {"c": [1, 2.0]}})
    for same in ({"b": {"c": [1, 2]}, "a": 1.0}, {"a": 1, "b": {"c": [1.0, 2]}}):
        assert fingerprint(same) == one
    for other in ({"a": 1, "b": {"c": [2, 1]}}, {"a": "1", "b": {"c": [1, 2]}}, {"a": True, "b": {"c": [1, 2]}}):
        assert fingerprint(other) != one
    assert fingerprint({"a": 1, "b": None}) != fingerprint({"a": 1})
    talk = spoken()
    assert run(talk, "look", a=1, b=2).outcome == "ok"
    assert run(talk, "look", a=1.0, b=2).outcome == "duplicate"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_a_known_digest_is_used_only_where_it_says_the_same(arguments: dict[str, object]) -> None:
    assert fingerprint(arguments, digest(arguments)) == fingerprint(arguments)


def test_a_call_that_was_refused_at_once_does_not_keep_a_later_one_of_its_round_from_running() -> None:
    talk = Talk()
    talk.say()
    bad = call("once", q="x")._replace(problem="q is no number")
    talk.reply("", bad, call("once", q=1), call("once", q=2))
    assert [one.outcome for one in talk.of(ev.ToolReturned)] == ["invalid_arguments", "duplicate"]
