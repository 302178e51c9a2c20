"""A message that waits is said when its turn comes, or the end of the session says that it was dropped."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import Ids
from tests.properties.moves import any_input, start, walks
from turnlog.fsm import Session, State, decide
from turnlog.fsm import events as ev

from .talk import TWO, Talk, call

ROOM = ev.Channel(name="room", members=("human", "bot"))


def _waiting(talk: Talk) -> Talk:
    """Two messages wait behind a completion."""
    talk.say("one")
    talk.say("two", message_id="m-two")
    talk.say("three", message_id="m-three")
    return talk


def _terminate() -> Talk:
    talk = _waiting(Talk())
    talk.reply("TERMINATE")
    return talk


def _stopped() -> Talk:
    talk = _waiting(Talk())
    talk.stop(session=True)
    return talk


def _stopped_in_an_approval() -> Talk:
    talk = Talk()
    talk.say("one")
    talk.reply("", call("pay", amount=1))
    talk.say("two", message_id="m-two")
    talk.say("three", message_id="m-three")
    talk.stop(session=True)
    return talk


def _failed() -> Talk:
    talk = _waiting(Talk(limits=ev.Limits(on_error="terminate")))
    talk.fail()
    return talk


ENDS: dict[str, tuple[str, Callable[[], Talk]]] = {
    "TERMINATE": ("TERMINATE", _terminate),
    "stopped": ("stopped", _stopped),
    "stopped in an approval": ("stopped", _stopped_in_an_approval),
    "failed": ("failed", _failed),
}


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_a_session_names_the_messages_that_it_dropped(how: str) -> None:
    reason, lead_there = ENDS[how]
    talk = lead_there()
    assert talk.state is State.TERMINATED
    assert talk.of(ev.SessionTerminated) == [
        ev.SessionTerminated.model_validate({"reason": reason, "dropped": ["m-two", "m-three"]})
    ]
    assert talk.session.queue == ()
    assert talk.texts[0] == "one"
    assert not {"two", "three"} & set(talk.texts), "no model ever sees them"


def test_an_end_without_waiting_messages_drops_nothing() -> None:
    talk = Talk()
    talk.say("one")
    talk.reply("TERMINATE")
    assert talk.of(ev.SessionTerminated) == [ev.SessionTerminated(reason="TERMINATE")]


@pytest.mark.parametrize("limits", [ev.Limits(max_rounds=1), ev.Limits()])
def test_the_cap_of_rounds_drops_nobody_who_waits(limits: ev.Limits) -> None:
    """The message that waits is a new beginning."""
    talk = _waiting(Talk(*TWO, limits=limits))
    talk.reply("an answer")
    assert talk.texts == ["one", "an answer", "two"]
    assert talk.state is State.SUCCESS


def test_a_stopped_turn_drops_nothing() -> None:
    talk = _waiting(Talk())
    talk.stop()
    assert talk.texts == ["one", "two"]
    assert [one.message_id for one in talk.session.queue] == ["m-three"]


@given(st.integers(0, 2**32), walks)
def test_whatever_happens_a_message_that_waited_is_said_or_dropped_or_waits(first: int, walk: list[int]) -> None:
    new_id = Ids()
    events = list((decision := decide(Session(id="s"), start(first), 0, new_id)).events)
    for now, seed in enumerate(walk):
        decision = decide(decision.session, any_input(seed, decision.session), now, new_id)
        events += decision.events
    waited = [one.message_id for one in events if isinstance(one, ev.MessageQueued)]
    said = {one.message_id for one in events if isinstance(one, ev.MessageAdded)}
    dropped = [name for one in events if isinstance(one, ev.SessionTerminated) for name in one.dropped]
    waiting = [one.message_id for one in decision.session.queue]
    assert [name for name in waited if name not in said] == [*dropped, *waiting]
