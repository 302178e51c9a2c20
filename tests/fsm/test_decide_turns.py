"""Retry, continue and questions."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.effects import CallModel

from .talk import TWO, Talk, call, code, kinds, question


@pytest.mark.accept(50)
def test_one_failure_and_a_retry_give_two_messages_and_keep_the_failed_attempt() -> None:
    talk = Talk()
    talk.say()
    first = talk.owed(CallModel)
    talk.fail("500")
    assert talk.state is State.ERROR
    talk.retry()
    again = talk.owed(CallModel)
    talk.reply("there")
    assert (first.attempt, again.attempt) == (1, 2)
    assert first.key != again.key
    assert talk.texts == ["hi", "there"]
    assert [one.message for one in talk.of(ev.TurnFailed)] == ["500"]
    assert talk.rows[-2].state is State.SUCCESS


@pytest.mark.field(31)
def test_attempts_are_counted_over_retries_and_crashes_and_start_anew_with_the_next_answer() -> None:
    talk = Talk()
    talk.say()
    for _ in range(3):
        talk.fail()
        talk.retry()
        talk.crash()
    assert [one.attempt for one in talk.of(ev.TurnFailed)] == [1, 2, 3]
    assert talk.owed(CallModel).attempt == 4
    talk.reply("there")
    talk.say()
    assert talk.owed(CallModel).attempt == 1
    assert [getattr(one, "text", "") for one in talk.seen()] == ["hi", "there", "hi"]


def test_nothing_is_retried_that_did_not_fail() -> None:
    talk = Talk()
    assert code(talk.retry().refusal) == "conflict"
    talk.say()
    assert code(talk.retry().refusal) == "conflict"


def test_a_session_may_end_at_its_first_failure() -> None:
    talk = Talk(limits=ev.Limits(on_error="terminate"))
    talk.say()
    assert kinds(talk.fail()) == ["turn_failed", "session_terminated"]
    assert talk.of(ev.SessionTerminated)[0].reason == "failed"


@pytest.mark.accept(75)
@pytest.mark.accept(49)
def test_continue_lets_a_model_speak_for_the_awaited_node_and_marks_its_words() -> None:
    talk = Talk(ev.AgentSpec(name="human", model="m", interrupt="always"), TWO[1])
    talk.say("start")
    talk.reply("first answer")
    assert talk.state is State.INTERRUPT
    talk.go_on()
    assert talk.owed(CallModel).speaker == "human"
    talk.reply("said for the human")
    talk.reply("second answer")
    said = talk.of(ev.MessageAdded)
    assert [one.text for one in said] == ["start", "first answer", "said for the human", "second answer"]
    assert [one.synthetic for one in said] == [False, False, True, False]
    assert said[2].by == "model"
    assert (said[2].sender, said[2].recipient) == ("human", "bot")
    assert talk.rows[-1].state is State.INTERRUPT
    assert len(said) + 1 == 5  # upstream 9 counts the last interrupt


@pytest.mark.accept(75)
def test_a_seat_without_a_model_is_never_spoken_for() -> None:
    talk = Talk()
    talk.say()
    talk.reply("your turn")
    decision = talk.go_on()
    assert code(decision.refusal) == "invalid"
    assert talk.state is State.INTERRUPT
    assert talk.session.speaker == "USER"


@pytest.mark.accept(49)
def test_a_continue_with_text_is_a_message_of_the_awaited_node() -> None:
    talk = Talk(ev.AgentSpec(name="human", model="m", interrupt="always"), TWO[1])
    talk.say("start")
    talk.reply("which?")
    talk.say("the red one")
    added = talk.of(ev.MessageAdded)[2]
    assert (added.sender, added.recipient, added.text, added.synthetic) == ("human", "bot", "the red one", False)


def test_continue_is_refused_before_anybody_spoke_and_while_the_machine_works() -> None:
    talk = Talk(*TWO)
    assert code(talk.go_on().refusal) == "conflict"
    talk.say()
    assert code(talk.go_on().refusal) == "conflict"


def test_a_completion_of_before_a_stop_is_not_taken_for_the_one_of_a_continue() -> None:
    talk = Talk(*TWO)
    talk.say()
    late = talk.owed(CallModel).key
    talk.stop()
    talk.go_on()
    assert talk.owed(CallModel).key != late
    assert code(talk.put(inp.ModelReplied(late, "m", "too late")).refusal) == "stale"


Step = Callable[[Talk], object]
STEPS: dict[str, Step] = {
    "say": lambda talk: talk.say(),
    "stop": lambda talk: talk.stop(),
    "retry": lambda talk: talk.retry(),
    "go on": lambda talk: talk.go_on(),
    "reply": lambda talk: talk.reply("x"),
    "call": lambda talk: talk.reply("", call("nothing")),
    "fail": lambda talk: talk.fail(),
}


def owed_key(talk: Talk) -> str:
    """The key of the completion that is owed, "" for none."""
    return next((one.key for one in talk.pending() if isinstance(one, CallModel)), "")


@settings(max_examples=200)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=8, max_size=40))
def test_no_completion_is_ever_owed_under_a_key_that_was_used(steps: list[str]) -> None:
    talk = Talk(*TWO)
    used: set[str] = set()
    for step in steps:
        before = owed_key(talk)
        if before or step not in ("reply", "call", "fail"):
            STEPS[step](talk)
        if owed_key(talk) != before:
            used.add(before)
        assert not owed_key(talk) or owed_key(talk) not in used


def test_a_session_without_a_seat_takes_messages_while_it_is_busy() -> None:
    talk = Talk(*TWO)
    talk.say("one")
    decision = talk.say("two")
    assert kinds(decision) == ["message_queued"]
    assert (talk.session.queue[0].sender, talk.session.queue[0].recipient) == ("human", "bot")


def test_a_question_is_answered_into_the_result_of_its_call() -> None:
    talk = Talk()
    talk.say()
    assert kinds(talk.reply("", question("which?", "how many?"))) == ["tools_called", "question_asked"]
    assert talk.state is State.INTERRUPT
    assert kinds(talk.answer("red", "")) == ["question_answered", "tool_returned"]
    assert talk.of(ev.ToolReturned)[0].content == "which?\nred\nhow many?\n(skipped)"
    assert talk.owed(CallModel).speaker == "@agent"


@pytest.mark.parametrize("way", ["skip", "expire"])
def test_a_question_that_nobody_answers_tells_the_model_so(way: str) -> None:
    talk = Talk()
    talk.say()
    talk.reply("", question("which?"))
    if way == "skip":
        talk.answer(skip=True)
    else:
        talk.expire()
    (result,) = talk.of(ev.ToolReturned)
    assert result.outcome == ("cancelled" if way == "skip" else "expired")
    assert ("skipped" in result.content) == (way == "skip")
    assert talk.state is State.SUCCESS


def test_a_wrong_answer_changes_nothing() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", question("which?", "how many?"))
    asked = talk.session.question
    assert asked is not None
    assert code(talk.answer("red").refusal) == "invalid"
    assert code(talk.put(inp.Answer("another", ("a", "b"), "person:ann")).refusal) == "stale"
    assert talk.session.question == asked
    talk.answer("red", "2")
    assert code(talk.put(inp.Answer(asked.request_id, ("a", "b"), "person:ann")).refusal) == "stale"


def test_a_message_is_no_answer_and_waits_for_its_turn() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", question("which?"))
    assert kinds(talk.say("the red one")) == ["message_queued"]
    assert talk.session.question is not None
    talk.answer("blue")
    talk.reply("blue it is")
    assert talk.texts == ["hi", "blue it is", "the red one"]


def test_questions_come_after_the_tools_of_their_round_and_one_by_one() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", question("a?"), call("look", q="x"), question("b?"))
    assert talk.of(ev.QuestionAsked) == []
    talk.run_all()
    talk.answer("1")
    talk.answer("2")
    assert [one.questions[0].text for one in talk.of(ev.QuestionAsked)] == ["a?", "b?"]
    assert [one.content for one in talk.of(ev.ToolReturned)] == ["fine", "a?\n1", "b?\n2"]
    assert talk.owed(CallModel).speaker == "@agent"
