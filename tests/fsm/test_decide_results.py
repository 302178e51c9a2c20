"""What effects bring: completions, calls that cannot run, caps, failures, crashes while a tool runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.fsm import State
from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.effects import CallModel, RunTool, StartTools

from .talk import BOT, FACTS, TWO, USER, Talk, call, code, kinds, question


def spoken(*agents: ev.AgentSpec, limits: ev.Limits | None = None) -> Talk:
    """A session in which somebody spoke."""
    talk = Talk(*agents, limits=limits)
    talk.say()
    return talk


def outcomes(talk: Talk) -> list[str]:
    """The outcomes of all results, in the order of their rows."""
    return [one.outcome for one in talk.of(ev.ToolReturned)]


# Calls that cannot run -------------------------------------------------------------------------


@pytest.mark.accept(54)
def test_a_tool_that_the_agent_was_not_granted_never_runs_though_it_exists() -> None:
    talk = spoken(USER, BOT.model_copy(update={"tools": ("look",)}))
    talk.reply("", call("pay", amount=5), call("look", q="x"))
    assert outcomes(talk) == ["unknown_tool"]
    assert "There is no tool 'pay'" in talk.of(ev.ToolReturned)[0].content
    talk.ready()
    assert [one.tool for one in talk.running()] == ["look"]


@pytest.mark.field(80)
@pytest.mark.parametrize("name", ["browser.tabs.open", "", 'look(q="1")', "x" * 80, "поиск"])
def test_a_tool_that_the_model_invented_gives_a_result_and_the_log_keeps_its_name(name: str) -> None:
    talk = spoken()
    talk.reply("", call(name, q="1"))
    assert outcomes(talk) == ["unknown_tool"]
    assert talk.of(ev.ToolsCalled)[0].calls[0].tool == name
    assert talk.owed(CallModel).speaker == "@agent"


@pytest.mark.field(113)
def test_a_tool_that_does_not_exist_is_named_as_such_without_a_card_until_the_cap_ends_it() -> None:
    talk = spoken(limits=ev.Limits(max_tool_calls=5))
    for _ in range(5):
        talk.reply("", call("add", a=1))
    assert {one.content for one in talk.of(ev.ToolReturned)} == {
        f"There is no tool 'add'. There are: {', '.join(FACTS)}."
    }
    talk.reply("", call("add", a=1))
    assert talk.of(ev.ApprovalRequested) == []
    assert outcomes(talk) == [*["unknown_tool"] * 5, "limit"]
    assert talk.of(ev.TurnInterrupted)[-1].reason == "limit"


@pytest.mark.accept(74)
def test_cut_arguments_are_reported_to_the_model_and_never_run() -> None:
    talk = spoken()
    cut = inp.Proposed("look", '{"q":"x', problem="no complete JSON object", facts=FACTS["look"])
    talk.reply("", cut, call("look", q="y"))
    assert outcomes(talk) == ["invalid_arguments"]
    assert "no complete JSON object" in talk.of(ev.ToolReturned)[0].content
    assert talk.of(ev.ToolsCalled)[0].calls[0].arguments == '{"q":"x'
    talk.ready()
    assert [one.arguments for one in talk.running()] == [{"q": "y"}]


def test_arguments_that_do_not_fit_are_refused_before_anybody_is_asked() -> None:
    talk = spoken()
    talk.reply("", call("pay", problem="amount: a number is needed", amount="x"))
    assert talk.of(ev.ApprovalRequested) == []
    assert outcomes(talk) == ["invalid_arguments"]


# Caps ------------------------------------------------------------------------------------------


@pytest.mark.accept(58)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 11])
def test_exactly_as_many_calls_run_as_the_cap_says_however_they_are_spread(width: int) -> None:
    talk = spoken()
    completions = 0
    while talk.state is State.SUCCESS:
        completions += 1
        offered = talk.owed(CallModel).offer_tools
        assert offered == (len(talk.of(ev.ToolStarted)) < 10)
        talk.reply("", *(call("look", q=f"{completions}.{place}") for place in range(width)))
        talk.run_all()
    assert len(talk.of(ev.ToolStarted)) == 10
    assert set(outcomes(talk)) == {"ok", "limit"}
    assert len(talk.of(ev.ToolReturned)) == width * completions
    assert talk.of(ev.TurnInterrupted)[-1].reason == "limit"


@pytest.mark.accept(58)
def test_a_chain_of_three_tools_ends_with_an_answer() -> None:
    talk = spoken()
    for place in range(3):
        talk.reply("", call("look", q=str(place)))
        talk.run_all()
    talk.reply("done")
    assert outcomes(talk) == ["ok", "ok", "ok"]
    assert talk.texts == ["hi", "done"]


@pytest.mark.parametrize("cap", [0, 1, 2])
def test_a_cap_of_few_calls_is_kept(cap: int) -> None:
    talk = spoken(limits=ev.Limits(max_tool_calls=cap))
    while talk.state is State.SUCCESS:
        talk.reply("", call("look", q=str(len(talk.rows))))
        talk.run_all()
    assert len(talk.of(ev.ToolStarted)) == cap


def test_the_calls_of_a_turn_are_counted_anew_in_the_next() -> None:
    talk = spoken(*TWO[:1], BOT, limits=ev.Limits(max_tool_calls=1))
    talk.reply("", call("look", q="x"))
    talk.run_all()
    assert not talk.owed(CallModel).offer_tools
    talk.stop()
    talk.go_on()
    assert talk.owed(CallModel).offer_tools


@pytest.mark.field(51)
def test_a_call_that_is_denied_again_and_again_is_asked_no_oftener_than_the_cap() -> None:
    talk = spoken()
    asked = 0
    for _ in range(20):
        if talk.state is not State.SUCCESS:
            break
        talk.reply("", call("pay", amount=5, to="A"))
        while talk.session.requests:
            asked += 1
            talk.decide(0, "denied")
    assert asked == 10
    assert talk.of(ev.TurnInterrupted)[-1].reason == "limit"
    assert talk.of(ev.ToolStarted) == []
    assert len(talk.of(ev.ToolReturned)) == 11


# Failures --------------------------------------------------------------------------------------


def test_an_empty_completion_is_a_failure_and_no_message() -> None:
    talk = spoken()
    assert kinds(talk.reply(" \n")) == ["turn_failed"]
    assert talk.state is State.ERROR
    assert talk.texts == ["hi"]


@pytest.mark.field(52)
def test_a_failure_after_a_tool_ran_goes_on_from_its_result() -> None:
    talk = spoken()
    talk.reply("", call("pay", amount=5))
    talk.decide()
    talk.run_all()
    talk.fail("500")
    talk.retry()
    assert not [one for one in talk.pending() if isinstance(one, RunTool | StartTools)]
    talk.reply("paid")
    assert len(talk.of(ev.ToolStarted)) == 1
    assert outcomes(talk) == ["ok"]


def test_a_completion_that_nobody_waits_for_is_refused_and_kept() -> None:
    talk = spoken()
    key = talk.owed(CallModel).key
    talk.reply("first")
    late = talk.put(inp.ModelReplied(key, "m", "second"))
    assert code(late.refusal) == "stale"
    assert kinds(late) == ["input_refused"]
    assert code(talk.put(inp.ModelFailed(key, "server", "boom")).refusal) == "stale"
    assert talk.texts == ["hi", "first"]


@pytest.mark.field(22)
def test_of_a_hundred_equal_results_one_is_taken_and_each_other_is_refused_by_itself() -> None:
    talk = spoken()
    talk.reply("", call("look", q="x"))
    talk.ready()
    run = talk.running()[0]
    decisions = [talk.put(inp.ToolFinished(run.key, run.call_id, "ok", f"copy {n}")) for n in range(100)]
    assert [code(one.refusal) for one in decisions] == ["", *["stale"] * 99]
    assert len(talk.of(ev.ToolReturned)) == 1
    assert len(talk.of(ev.InputRefused)) == 99


def test_usage_and_citations_of_a_turn_are_on_its_answer_and_gone_after_it() -> None:
    talk = spoken()
    use = ev.Usage(input_tokens=10, output_tokens=5, completions=1)
    talk.reply("", call("look", q="x"), usage=use)
    talk.ready()
    run = talk.running()[0]
    cited = (ev.Citation(id="a", title="A"),)
    talk.put(inp.ToolFinished(run.key, run.call_id, "ok", "seen", cited))
    talk.reply("done", usage=use)
    answer = talk.of(ev.MessageAdded)[-1]
    assert answer.citations == cited
    assert answer.usage == use
    assert answer.turn_usage == ev.Usage(input_tokens=20, output_tokens=10, completions=2)
    talk.say()
    talk.reply("again", usage=use)
    assert talk.of(ev.MessageAdded)[-1].citations == ()
    assert talk.of(ev.MessageAdded)[-1].turn_usage == use


# Crashes ---------------------------------------------------------------------------------------


def cut_off(tool: str = "pay", *more: inp.Proposed) -> Talk:
    """A session whose process died while a tool ran."""
    talk = spoken()
    talk.reply("", call(tool, amount=5), *more)
    while talk.session.requests:
        talk.decide()
    talk.ready()
    talk.crash()
    return talk


def test_a_call_cut_off_by_a_crash_is_asked_about_and_never_run_again_unasked() -> None:
    talk = cut_off()
    (request,) = talk.session.requests
    assert request.why == "outcome_unknown"
    assert talk.running() == []
    talk.crash()
    talk.crash()
    assert talk.session.requests == (request,)
    assert talk.kinds()[-2:] == ["session_resumed", "session_resumed"]


@pytest.mark.parametrize(
    ("word", "outcome", "content"),
    [
        ("committed", "ok", "paid, I saw it"),
        ("denied", "outcome_unknown", "not known"),
        ("timer", "outcome_unknown", ""),
    ],
)
def test_a_call_of_unknown_outcome_ends_as_a_person_says(word: str, outcome: str, content: str) -> None:
    talk = cut_off()
    if word == "timer":
        talk.expire()
    else:
        talk.decide(0, word, result=content)
    assert outcomes(talk) == [outcome]
    assert content in talk.of(ev.ToolReturned)[0].content
    assert len(talk.of(ev.ToolStarted)) == 1
    assert talk.owed(CallModel).speaker == "@agent"


def test_a_call_of_unknown_outcome_runs_again_at_a_persons_word_with_the_same_key() -> None:
    talk = cut_off()
    talk.decide()
    talk.ready()
    first, second = talk.of(ev.ToolStarted)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.key == second.key
    assert first.digest == second.digest
    assert second.permit == talk.of(ev.ApprovalResolved)[-1].request_id
    talk.finish()
    assert outcomes(talk) == ["ok"]


def test_a_rerun_whose_tool_is_gone_waits_for_it() -> None:
    talk = cut_off()
    talk.decide()
    talk.ready(pay=None)
    assert outcomes(talk) == []
    assert list(talk.owed(StartTools).calls.values()) == ["pay"]


def test_arguments_of_a_call_that_may_have_run_cannot_be_edited() -> None:
    talk = cut_off()
    assert code(talk.edit(0, amount=6).refusal) == "invalid"
    assert code(talk.decide(remember="session").refusal) == "invalid"


def test_an_idempotent_call_goes_on_unasked_under_its_old_key() -> None:
    talk = cut_off("put")
    assert talk.session.requests == ()
    talk.ready()
    first, second = talk.of(ev.ToolStarted)
    assert (first.key, first.attempt) == (second.key, second.attempt - 1)


def test_a_call_is_asked_about_when_its_tool_is_idempotent_no_more() -> None:
    talk = cut_off("put")
    talk.ready(put=inp.ToolFacts())
    assert [one.why for one in talk.session.requests] == ["outcome_unknown"]
    assert len(talk.of(ev.ToolStarted)) == 1


def test_a_call_that_may_have_run_is_said_to_have_when_its_tool_became_gated() -> None:
    talk = cut_off("put")
    talk.ready(put=inp.ToolFacts(gated=True, idempotent=True))
    assert [one.why for one in talk.session.requests] == ["outcome_unknown"]


def test_a_call_is_asked_about_when_its_tool_became_idempotent_only_later() -> None:
    talk = spoken()
    talk.reply("", call("look", q="x"))
    talk.ready(look=inp.ToolFacts(idempotent=True))
    talk.crash()
    assert [one.why for one in talk.session.requests] == ["outcome_unknown"]


def test_nothing_starts_beside_a_call_that_must_be_asked_about_first() -> None:
    talk = cut_off("put", call("put", amount=6))
    assert talk.session.requests == ()
    decision = talk.put(inp.ToolsReady({one.id: FACTS["put"] if n else inp.ToolFacts()
                                        for n, one in enumerate(talk.session.calls)}))  # fmt: skip
    assert kinds(decision) == ["approval_requested"]
    talk.decide()
    assert sorted(talk.owed(StartTools).calls.values()) == ["put", "put"]


def test_a_result_of_the_lost_process_is_refused() -> None:
    talk = spoken()
    talk.reply("", call("pay", amount=5))
    talk.decide()
    talk.ready()
    run = talk.running()[0]
    talk.crash()
    talk.decide()
    talk.ready()
    late = talk.put(inp.ToolFinished(run.key, run.call_id, "ok", "from before"))
    assert code(late.refusal) == "stale"
    assert len(talk.running()) == 1


@pytest.mark.field(27)
@pytest.mark.parametrize("place", ["interrupt", "success", "error", "awaiting_approval", "terminated", "question"])
def test_a_session_folded_anew_takes_every_input_as_the_one_that_never_stopped(place: str) -> None:
    def there() -> Talk:
        talk = spoken()
        match place:
            case "interrupt":
                talk.reply("your turn")
            case "error":
                talk.fail()
            case "awaiting_approval":
                talk.reply("", call("pay", amount=1))
            case "question":
                talk.reply("", question("which?"))
            case "terminated":
                talk.stop(session=True)
        return talk

    inputs = (
        lambda talk: talk.say("more"), lambda talk: talk.stop(), lambda talk: talk.stop(session=True), Talk.retry,
        Talk.go_on, lambda talk: talk.put(inp.Decide("r2", "d", "approved", "person:ann")),
        lambda talk: talk.put(inp.TimerFired("r2")), lambda talk: talk.put(inp.ModelReplied("model:1:0:1", "m", "x")),
        lambda talk: talk.put(inp.ToolFinished("tool:call1:1", "call1", "ok", "x")),
    )  # fmt: skip
    for act in inputs:
        never_stopped, folded = there(), there()
        before = folded.pending()
        folded.crash()
        wanted, got = act(never_stopped), act(folded)
        assert (kinds(got), got.refusal, got.states) == (kinds(wanted), wanted.refusal, wanted.states)
        assert there().pending() == before


def test_nothing_in_flight_needs_no_row_to_be_resumed() -> None:
    talk = spoken()
    talk.reply("your turn")
    rows = len(talk.rows)
    talk.crash()
    assert len(talk.rows) == rows


@given(st.text(max_size=200))
def test_a_result_that_cannot_be_kept_ends_its_call_as_an_error(text: str) -> None:
    talk = spoken()
    talk.reply("", call("look", q="x"))
    talk.ready()
    run = talk.running()[0]
    talk.put(inp.ToolFinished(run.key, run.call_id, text, text))  # type: ignore[arg-type]  # planted
    assert len(talk.of(ev.ToolReturned)) == 1
    assert talk.running() == []
