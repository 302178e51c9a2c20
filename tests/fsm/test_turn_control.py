"""What ends a turn or a session from outside: words, the clock, and a budget of tokens."""

from collections.abc import Callable
from typing import Any

import pytest

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm.effects import CallModel, WaitUntil

from .talk import Talk, call, code, kinds, question

Place = Callable[..., Talk]
STOPS = ("stop", "/stop", "halt", "/halt")
EXITS = ("exit", "/exit", "/reset")


def at_rest(**more: Any) -> Talk:
    return Talk(**more)


def moving(**more: Any) -> Talk:
    talk = Talk(**more)
    talk.say()
    return talk


def awaiting(**more: Any) -> Talk:
    talk = moving(**more)
    talk.reply("", call("pay", amount=1), call("look", q="x"))
    return talk


def asking(**more: Any) -> Talk:
    talk = moving(**more)
    talk.reply("", question("which?"))
    return talk


def running(**more: Any) -> Talk:
    talk = moving(**more)
    talk.reply("", call("look", q="x"))
    talk.ready()
    return talk


def failed(**more: Any) -> Talk:
    talk = moving(**more)
    talk.fail()
    return talk


@pytest.mark.accept(15)
@pytest.mark.parametrize("place", [at_rest, moving, awaiting, asking, running, failed])
@pytest.mark.parametrize("word", EXITS)
def test_an_exit_word_ends_the_session_wherever_it_stands(place: Place, word: str) -> None:
    for said in (word, f"  {word.upper()}\n"):
        talk = place()
        before = len(talk.of(ev.MessageAdded))
        talk.say(said)
        assert talk.state is State.TERMINATED
        assert len(talk.of(ev.MessageAdded)) == before, "the word is no message"
        assert not talk.session.requests
        assert {one.call_id for one in talk.of(ev.ToolReturned)} == {
            record.id for called in talk.of(ev.ToolsCalled) for record in called.calls
        }


@pytest.mark.accept(15)
@pytest.mark.parametrize("place", [moving, awaiting, asking, running])
@pytest.mark.parametrize("word", STOPS)
def test_a_stop_word_ends_the_turn_and_the_session_lives(place: Place, word: str) -> None:
    for said in (word, f"\t{word.title()} "):
        talk = place()
        talk.say(said)
        assert talk.state is State.INTERRUPT
        assert talk.session.question is None
        assert talk.of(ev.TurnInterrupted)[-1].reason == "stopped"
        assert kinds(talk.say("go on")) == ["message_added"]


@pytest.mark.accept(15)
@pytest.mark.parametrize("place", [at_rest, failed])
def test_a_stop_word_where_nothing_runs_says_how_to_end_the_session(place: Place) -> None:
    talk = place()
    refusal = talk.say("stop").refusal
    assert code(refusal) == "conflict"
    assert refusal is not None
    assert "'exit' ends the session" in refusal.why


def test_a_sentence_with_such_a_word_is_a_message() -> None:
    talk = Talk()
    assert kinds(talk.say("stop worrying")) == ["message_added"]


def test_a_session_may_have_other_words_or_none() -> None:
    talk = Talk(limits=ev.Limits(stop_words=("basta",), exit_words=()))
    talk.say("exit")
    assert talk.texts == ["exit"]
    talk.say("BASTA")
    assert talk.state is State.INTERRUPT
    talk = Talk(limits=ev.Limits(stop_words=(" Halt ",), exit_words=("QUIT",)))
    talk.say()
    talk.say("halt")
    assert talk.of(ev.TurnInterrupted)[-1].reason == "stopped"
    talk.say("quit")
    assert talk.state is State.TERMINATED


def test_only_a_person_s_word_ends_anything() -> None:
    talk = moving()
    assert code(talk.say("/exit", by="agent:@agent").refusal) == "unauthorised"
    talk.reply("exit")
    assert talk.texts[-1] == "exit"


@pytest.mark.parametrize("place", [moving, awaiting, asking, running])
def test_a_turn_ends_when_its_time_is_over_whoever_is_waited_for(place: Place) -> None:
    limits = ev.Limits(turn_seconds=60, approval_seconds=None, question_seconds=None)
    talk = place(limits=limits)
    (timer,) = (one for one in talk.pending() if isinstance(one, WaitUntil))
    assert timer.at == talk.clock.now() + 60_000
    decision = talk.expire(timer.request_id)
    assert talk.state is State.INTERRUPT
    assert talk.of(ev.TurnInterrupted)[-1].reason == "time"
    assert set(decision.by[: len(decision.events)]) <= {"timer", "turnlog"}
    assert all(one.actor == one.via == "timer" for one in talk.of(ev.ApprovalResolved))
    assert all("time limit" in one.content or place is asking for one in talk.of(ev.ToolReturned))
    assert not talk.pending()
    assert code(talk.expire(timer.request_id).refusal) == "stale"


def test_retry_and_continue_have_the_whole_time_again() -> None:
    talk = Talk(limits=ev.Limits(turn_seconds=60))
    talk.say()
    talk.fail()
    assert not talk.pending()
    talk.clock.advance(100)
    talk.retry()
    (timer,) = (one for one in talk.pending() if isinstance(one, WaitUntil))
    assert timer.at == talk.clock.now() + 60_000
    talk.crash()
    assert timer in talk.pending(), "the deadline lies in the log"
    talk.reply("done")
    assert not talk.pending()


def test_an_answer_that_has_used_up_its_tokens_asks_no_model_again() -> None:
    talk = Talk(limits=ev.Limits(max_tokens=100))
    talk.say()
    talk.reply("", call("look", q="x"), usage=ev.Usage(input_tokens=60, output_tokens=39))
    talk.run_all()
    assert talk.owed(CallModel)
    talk.reply("", call("look", q="y"), usage=ev.Usage(input_tokens=1))
    talk.run_all()
    assert talk.state is State.INTERRUPT
    assert talk.of(ev.TurnInterrupted)[-1].reason == "limit"
    assert [one.outcome for one in talk.of(ev.ToolReturned)] == ["ok", "ok"], "what was called has its result"
    talk.say("go on")
    assert talk.owed(CallModel)
