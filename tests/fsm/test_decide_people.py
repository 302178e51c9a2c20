"""Speaking: who may, to whom, and what happens while the machine is busy."""

import pytest

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.effects import CallModel

from .talk import BOT, TWO, USER, Talk, call, code, kinds


@pytest.mark.accept(42)
def test_a_session_starts_in_interrupt_and_the_first_message_is_a_success() -> None:
    talk = Talk()
    assert [(row.event.kind, row.state) for row in talk.rows] == [("session_started", State.INTERRUPT)]
    talk.say("hello")
    assert (talk.rows[-1].event.kind, talk.rows[-1].state) == ("message_added", State.SUCCESS)
    assert talk.owed(CallModel).speaker == "@agent"


def test_a_session_is_started_once() -> None:
    talk = Talk()
    again = talk.put(inp.Start("bob", (USER, BOT)))
    assert code(again.refusal) == "conflict"
    assert talk.session.owner == "ann"


SPOILT = {
    "needs at least one agent": inp.Start("ann", ()),
    "empty name": inp.Start("ann", (ev.AgentSpec(name=""),)),
    "'USER' is used twice": inp.Start("ann", (USER, USER)),
    "'@agent' is used twice": inp.Start("ann", (USER, BOT), (ev.Channel(name="@agent", members=("USER",)),)),
    "'nobody' is no agent": inp.Start("ann", (USER, BOT), entry="nobody"),
    "'ghost' is no agent": inp.Start("ann", (USER, BOT), (ev.Channel(name="room", members=("ghost",)),)),
    "'room' has no members": inp.Start("ann", (USER, BOT), (ev.Channel(name="room", members=()),)),
    "'@agent' is alone": inp.Start("ann", (BOT,)),
    "'USER' is alone": inp.Start("ann", (USER,)),
    "'USER' leads back to 'USER', the seat": inp.Start("ann", (USER, BOT), entry="USER"),
    "'human' leads back to 'human', the seat": inp.Start("ann", TWO, entry="human"),
    "'@agent' leads back to '@agent', the seat": inp.Start("ann", (BOT,), entry="@agent"),
    "'room' leads back to 'USER', the seat": inp.Start(
        "ann", (USER, BOT), (ev.Channel(name="room", members=("USER",)),), entry="room"
    ),
    "preloaded message is blank": inp.Start("ann", (USER, BOT), history=(inp.Preloaded("USER", "@agent", " "),)),
    "'x' is no agent": inp.Start("ann", (USER, BOT), history=(inp.Preloaded("x", "@agent", "hi"),)),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_configuration_that_does_not_hold_together_starts_nothing(what: str) -> None:
    talk = Talk.__new__(Talk)
    talk.fresh()
    decision = talk.put(SPOILT[what])
    assert decision.refusal is not None
    assert decision.refusal.code == "invalid"
    assert what in decision.refusal.why
    assert not talk.rows


@pytest.mark.parametrize("entry", ["", "bot", "room"])
def test_a_seat_with_anybody_to_speak_to_is_enough(entry: str) -> None:
    room = ev.Channel(name="room", members=("human", "bot"))
    talk = Talk(*TWO, channels=(room,), entry=entry)
    assert talk.say("hello").refusal is None
    assert talk.of(ev.MessageAdded)[0].recipient == (entry or "bot")


@pytest.mark.accept(48)
@pytest.mark.accept(44)
def test_control_returns_to_the_person_after_each_answer() -> None:
    talk = Talk()
    for turn in range(3):
        talk.say(f"question {turn}")
        decision = talk.reply(f"answer {turn}")
        assert kinds(decision) == ["message_added", "turn_interrupted"]
        assert talk.of(ev.TurnInterrupted)[-1] == ev.TurnInterrupted(reason="user_turn", node="USER", peer="@agent")
    assert talk.texts == ["question 0", "answer 0", "question 1", "answer 1", "question 2", "answer 2"]


@pytest.mark.field(79)
@pytest.mark.parametrize("text", ["", " ", "\n", "\t \u2003"])
def test_a_blank_message_is_refused_and_recorded(text: str) -> None:
    talk = Talk()
    decision = talk.say(text)
    assert code(decision.refusal) == "invalid"
    assert "use continue" in decision.refusal.why if decision.refusal else False
    assert kinds(decision) == ["input_refused"]
    assert talk.state is State.INTERRUPT


def test_a_message_of_attachments_alone_is_taken() -> None:
    talk = Talk()
    picture = ev.Attachment(name="a.png", media_type="image/png", digest="d", size=3)
    assert talk.say("", attachments=(picture,)).refusal is None
    assert talk.of(ev.MessageAdded)[0].attachments == (picture,)


@pytest.mark.parametrize(
    ("sender", "recipient"), [("ghost", ""), ("", "ghost"), ("USER", "USER"), ("@agent", "@agent")]
)
def test_a_message_from_or_to_nobody_or_to_oneself_is_refused(sender: str, recipient: str) -> None:
    talk = Talk()
    assert code(talk.say("hi", sender=sender, recipient=recipient).refusal) == "invalid"
    assert talk.state is State.INTERRUPT


@pytest.mark.parametrize("actor", ["agent:@agent", "tool:pay", "timer", "env", "turnlog", "", "person:", "ann"])
def test_only_a_person_may_command(actor: str) -> None:
    talk = Talk()
    talk.say()
    commands = (
        inp.Say("hi", actor), inp.Continue(actor), inp.Retry(actor), inp.Stop(actor), inp.Stop(actor, session=True),
        inp.Answer("q", ("a",), actor), inp.Grant("pay", actor, "ann"), inp.Revoke("g", actor, "ann"),
    )  # fmt: skip
    for command in commands:
        decision = talk.put(command)
        assert code(decision.refusal) == "unauthorised"
        assert kinds(decision) == ["input_refused"]
        assert talk.rows[-1].actor == actor
    assert talk.state is State.SUCCESS


@pytest.mark.accept(45)
def test_an_ended_session_takes_no_input_but_keeps_the_refusals() -> None:
    talk = Talk()
    talk.stop(session=True)
    commands = (
        inp.Say("hi", "person:ann"), inp.Continue("person:ann"), inp.Retry("person:ann"), inp.Stop("person:ann"),
        inp.Stop("person:ann", session=True), inp.Decide("r", "d", "approved", "person:ann"),
        inp.Answer("q", None, "person:ann"), inp.Grant("pay", "person:ann", "ann"),
        inp.Revoke("g", "person:ann", "ann"),
    )  # fmt: skip
    for command in commands:
        decision = talk.put(command)
        assert code(decision.refusal) == "terminated"
        assert kinds(decision) == ["input_refused"]
    assert talk.state is State.TERMINATED
    assert talk.pending() == ()


# Busy ------------------------------------------------------------------------------------------


def test_messages_to_a_busy_session_wait_and_get_their_turns_in_order() -> None:
    talk = Talk()
    talk.say("one")
    assert kinds(talk.say("two")) == ["message_queued"]
    assert kinds(talk.say("three")) == ["message_queued"]
    assert kinds(talk.reply("answer one")) == ["message_added", "turn_interrupted", "message_added"]
    talk.reply("answer two")
    talk.reply("answer three")
    assert talk.texts == ["one", "answer one", "two", "answer two", "three", "answer three"]
    assert talk.state is State.INTERRUPT
    assert talk.session.queue == ()


def test_a_full_queue_is_said_to_be_full() -> None:
    talk = Talk(limits=ev.Limits(queue=1))
    talk.say("one")
    talk.say("two")
    decision = talk.say("three")
    assert code(decision.refusal) == "busy"
    assert len(talk.session.queue) == 1


def test_two_waiting_messages_of_one_id_are_not_taken_for_one() -> None:
    talk = Talk()
    talk.say("one")
    talk.say("two", message_id="m")
    assert code(talk.say("three", message_id="m").refusal) == "conflict"
    talk.reply("answer one")
    assert talk.texts == ["one", "answer one", "two"]


def test_a_session_may_refuse_while_it_is_busy() -> None:
    talk = Talk(limits=ev.Limits(busy="refuse"))
    talk.say("one")
    assert code(talk.say("two").refusal) == "busy"
    talk.reply("answer")
    assert talk.say("two").refusal is None


def test_a_message_may_interrupt_what_runs() -> None:
    talk = Talk(limits=ev.Limits(busy="interrupt"))
    talk.say("one")
    talk.reply("", call("look", q="x"), call("pay", amount=1))
    talk.say("stop that")
    assert talk.state is State.SUCCESS
    assert talk.session.requests == ()
    assert [one.outcome for one in talk.of(ev.ToolReturned)] == ["cancelled", "cancelled"]
    assert talk.of(ev.ApprovalResolved)[0].outcome == "cancelled"
    talk.reply("very well")
    assert talk.texts == ["one", "stop that", "very well"]


def test_a_message_to_a_session_in_error_starts_a_new_turn_behind_those_that_waited() -> None:
    talk = Talk()
    talk.say("one")
    talk.say("two")
    talk.fail()
    talk.say("three")
    assert talk.texts == ["one", "two", "three"]
    assert talk.state is State.SUCCESS


def test_an_unknown_grant_scope_is_refused_not_raised() -> None:
    talk = Talk()
    decision = talk.put(inp.Grant("pay", "person:ann", "ann", scope="everybody"))
    assert code(decision.refusal) == "invalid"
    assert "scope" in (decision.refusal.why if decision.refusal else "")


def test_a_text_that_is_no_unicode_is_refused_not_raised() -> None:
    talk = Talk()
    assert talk.put(inp.Start("bob\ud83d", (USER, BOT))).refusal is not None
    assert code(talk.put(inp.Decide("\ud83d", "d", "approved", "person:ann")).refusal) == "invalid"
    assert talk.state is State.INTERRUPT
