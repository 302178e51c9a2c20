"""Conversations that together walk every row of the table. Each is driven from outside, none makes an event by hand."""

from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.states import State

from .talk import BOT, TWO, USER, Talk, call, question


def a_plain_answer() -> Talk:
    """Question, answer, end of the session."""
    talk = Talk()
    talk.say()
    talk.reply("hello")
    talk.stop(session=True)
    talk.say("anybody there?")
    return talk


def two_models() -> Talk:
    """Two models talk until one says the word; a third joins by continue."""
    talk = Talk(*TWO)
    talk.say()
    talk.reply("on the one hand")
    talk.reply("INTERRUPT")
    talk.go_on()
    talk.reply("on the other hand")
    talk.reply("TERMINATE")
    return talk


def approvals() -> Talk:
    """Two gated calls and a free one, while people talk, look and give grants."""
    talk = Talk()
    talk.say()
    talk.reply("", call("pay", amount=1), call("pay", amount=2), call("look", q="x"))
    first = talk.session.requests[0]
    talk.put(inp.Show(first.request_id, first.digest, "tab 1", "person:ann"))
    talk.say("what is this?")
    talk.decide(digest="another")
    talk.crash()
    talk.put(inp.Grant("look", "person:ann", "ann"))
    talk.put(inp.Revoke("none", "person:ann", "ann"))
    talk.decide(1, "denied")
    talk.decide(0)
    talk.run_all()
    talk.reply("done")
    return talk


def a_grant() -> Talk:
    """A tool allowed in advance, used, and taken back while the machine works."""
    talk = Talk()
    talk.put(inp.Grant("pay", "person:ann", "ann", scope="session"))
    talk.say()
    talk.reply("", call("pay", amount=1))
    talk.put(inp.Grant("look", "person:ann", "ann", scope="session"))
    talk.put(inp.Revoke(talk.session.grants[0].grant.grant_id, "person:ann", "ann"))
    talk.retry()
    talk.crash()
    talk.ready()
    talk.decide()
    talk.run_all()
    talk.reply("paid")
    talk.put(inp.Revoke("none", "person:ann", "ann"))
    talk.retry()
    return talk


def a_tool_that_runs_once() -> Talk:
    """It runs, and is allowed to run again in each state."""
    talk = Talk()

    def again() -> None:
        talk.reply("", call("once"))
        talk.run_all()

    def allow() -> None:
        talk.put(inp.AllowRerun("once", "person:ann"))

    talk.say()
    again()
    allow()
    again()
    talk.reply("", call("pay", amount=1))
    allow()
    talk.decide()
    talk.run_all()
    again()
    talk.fail()
    allow()
    talk.retry()
    again()
    talk.reply("done")
    allow()
    return talk


def a_failure() -> Talk:
    """A provider fails; people retry, then say something else, then end it."""
    talk = Talk()
    talk.say()
    talk.fail()
    talk.put(inp.Grant("look", "person:ann", "ann"))
    talk.put(inp.Revoke("none", "person:ann", "ann"))
    talk.go_on()
    talk.retry()
    talk.fail()
    talk.say("leave it")
    talk.say("and another thing")
    talk.fail()
    talk.stop(session=True)
    return talk


def questions() -> Talk:
    """The agent asks; meanwhile people speak and the process dies."""
    talk = Talk()
    talk.say()
    talk.reply("", question("which?"))
    talk.say("one moment")
    talk.crash()
    talk.answer("the red one")
    talk.reply("the red one it is")
    talk.reply("and now your second message")
    return talk


def a_group() -> Talk:
    """A director chooses among three."""
    members = tuple(ev.AgentSpec(name=name, model="m") for name in ("ada", "bea", "cyd"))
    room = ev.Channel(name="room", members=("ada", "bea", "cyd"), director="d", max_rounds=2)
    talk = Talk(USER, *members, channels=(room,), entry="room")
    talk.say()
    talk.choose("ada")
    talk.reply("I say")
    talk.choose("nobody", seed=1)
    talk.reply("so do I")
    return talk


def a_group_that_is_left() -> Talk:
    """One after the other is taken out: while it is to speak, after it failed, and while a person is awaited."""
    members = tuple(ev.AgentSpec(name=name, model="m") for name in ("ada", "bea", "cyd"))
    talk = Talk(USER, *members, channels=(ev.Channel(name="room", members=("ada", "bea", "cyd")),), entry="room")
    talk.say()
    talk.choose("ada")
    talk.remove("ada")
    talk.choose("bea")
    talk.fail()
    talk.remove("bea")
    talk.retry()
    talk.stop()
    talk.remove("cyd")
    talk.say("is anybody there?")
    return talk


def a_crash_while_a_tool_runs() -> Talk:
    """A tool was started and nobody knows how it ended."""
    talk = Talk(USER, BOT)
    talk.say()
    talk.reply("", call("look", q="x"))
    talk.ready()
    talk.crash()
    talk.decide(0, "committed", result="seen")
    talk.reply("seen")
    return talk


def documents_that_are_fetched() -> Talk:
    """What an agent's sources gave comes before its answer, once a turn."""
    talk = Talk()
    talk.say()
    talk.fetch(context="d1", parts=("p1",))
    talk.fetch(context="d2")
    talk.reply("as the documents say")
    return talk


CONVERSATIONS = (
    a_plain_answer,
    two_models,
    approvals,
    a_grant,
    a_tool_that_runs_once,
    a_failure,
    questions,
    a_group,
    a_group_that_is_left,
    a_crash_while_a_tool_runs,
    documents_that_are_fetched,
)


def walked() -> set[tuple[State, str]]:
    """The rows of the table that they walk, as (state, kind)."""
    return {(state, kind) for tell in CONVERSATIONS for state, kind in tell().walked}
