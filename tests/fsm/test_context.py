"""What was fetched for a turn holds for that turn: once for each speaker, and for nobody else's word."""

import pytest

from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.parts import Fetched

from .talk import TWO, USER, Talk, call, code


def test_what_was_fetched_holds_until_the_turn_is_over() -> None:
    talk = Talk()
    talk.say()
    talk.fetch(context="d1", parts=("p1", "p2"), documents=("a.txt",), problems=("none",))
    assert talk.session.fetched == {"@agent": Fetched("d1", ("p1", "p2"))}
    talk.reply("", call("look", q="x"))
    talk.run_all()
    talk.fail()
    talk.crash()
    talk.retry()
    assert talk.session.fetched == {"@agent": Fetched("d1", ("p1", "p2"))}
    talk.reply("done")
    assert talk.session.fetched == {}


@pytest.mark.parametrize("end", ["stop", "fail and say", "interrupt"])
def test_no_turn_sees_what_was_fetched_for_another(end: str) -> None:
    talk = Talk(limits=ev.Limits(busy="interrupt"))
    talk.say()
    talk.fetch(context="d1")
    if end == "stop":
        talk.stop()
        assert talk.session.fetched == {}, "nor does a model that is to go on"
    if end == "fail and say":
        talk.fail()
    talk.say("another")
    assert talk.session.fetched == {}


def test_each_speaker_has_its_own() -> None:
    talk = Talk(USER, *TWO)
    talk.say("talk", sender="human", recipient="bot")
    talk.fetch(context="d1")
    talk.reply("your turn")
    talk.fetch(context="d2")
    talk.reply("and yours")
    assert talk.session.fetched == {"bot": Fetched("d1", ()), "human": Fetched("d2", ())}
    assert code(talk.fetch(context="d3").refusal) == "stale"


def test_what_comes_twice_or_too_late_leaves_no_row() -> None:
    talk = Talk()
    talk.say()
    key = talk.pending()[-1].key
    talk.fetch(context="d1")
    count = len(talk.rows)
    for speaker in ("@agent", "USER"):
        assert code(talk.put(inp.ContextCame(key, speaker, "d2")).refusal) == "stale"
    talk.reply("done")
    assert code(talk.put(inp.ContextCame(key, "@agent", "d2")).refusal) == "stale"
    assert [kind for kind in talk.kinds(count) if kind in ("context_fetched", "input_refused")] == []


def test_a_completion_is_still_owed_under_its_key() -> None:
    talk = Talk()
    talk.say()
    before = talk.pending()
    talk.fetch(context="d1")
    assert talk.pending() == before
