"""The table: total, checked when it is compiled, the same as the machine of `transitions`, and walked in full."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transitions import MachineError

from turnlog.fsm import NEXT, ROWS, Session, State, evolve
from turnlog.fsm import events as ev
from turnlog.fsm.errors import IllegalEvent
from turnlog.fsm.table import Arrow, build, compile_rows, machine

from .conversations import walked

KINDS = sorted(ev.KINDS)
HISTORY = ("message_added", "tools_called", "tool_returned")


@pytest.mark.accept(63)
def test_there_are_five_states_and_no_sixth() -> None:
    assert [str(state) for state in State] == ["success", "interrupt", "error", "awaiting_approval", "terminated"]


def test_every_row_is_in_next_once_and_nothing_else_is() -> None:
    assert {(source, kind): target for source, kind, target in ROWS} == NEXT
    assert len(ROWS) == len(NEXT)


def test_the_table_and_the_events_name_the_same_kinds() -> None:
    assert {kind for _, kind in NEXT} == set(ev.KINDS)


def test_only_terminated_is_final_and_it_takes_nothing_but_refusals() -> None:
    final = {state for state in State if all(end is state for (start, _), end in NEXT.items() if start is state)}
    assert final == {State.TERMINATED}
    assert [kind for start, kind in NEXT if start is State.TERMINATED] == ["input_refused"]


def test_every_state_leads_to_terminated() -> None:
    leads = {State.TERMINATED}
    for _ in State:
        leads |= {start for (start, _), end in NEXT.items() if end in leads}
    assert leads == set(State)


@pytest.mark.accept(40)
@pytest.mark.field(78)
def test_what_models_see_of_the_past_has_no_row_that_ends_elsewhere_than_in_success() -> None:
    assert {NEXT[state, kind] for state, kind in NEXT if kind in HISTORY} == {State.SUCCESS}


def test_a_duplicate_row_does_not_compile() -> None:
    twice: Arrow = (State.SUCCESS, "turn_failed", State.INTERRUPT)
    with pytest.raises(ValueError, match=r"success --turn_failed--> is there twice"):
        compile_rows(build([*ROWS, twice]))


def test_the_same_row_twice_does_not_compile() -> None:
    with pytest.raises(ValueError, match="is there twice"):
        compile_rows(build([*ROWS, ROWS[0]]))


def test_a_row_to_a_name_that_is_no_state_does_not_compile() -> None:
    with pytest.raises(ValueError, match="names 'paused', which is no state: use one of success"):
        compile_rows(build([*ROWS, (State.SUCCESS, "turn_paused", "paused")]))  # type: ignore[list-item]  # planted


def test_a_row_from_a_name_that_is_no_state_does_not_compile() -> None:
    with pytest.raises(ValueError, match="names 'paused', which is no state"):
        compile_rows(build([*ROWS, ("paused", "turn_paused", State.SUCCESS)]))  # type: ignore[list-item]  # planted


@pytest.mark.parametrize("state", [state for state in State if state is not State.INTERRUPT])
def test_a_state_that_nothing_leads_to_does_not_compile(state: State) -> None:
    rows = [row for row in ROWS if row[2] is not state or row[0] is state]
    with pytest.raises(ValueError, match=f"nothing leads to .*{state}"):
        compile_rows(build(rows))


def same(rows: dict[tuple[State, str], State], walk: list[str]) -> bool:
    """Whether a walk through the machine of `transitions` and one through a table end alike at every step."""
    model, here = SimpleNamespace(state=str(State.INTERRUPT)), State.INTERRUPT
    machine.add_model(model, initial=str(State.INTERRUPT))
    try:
        for kind in walk:
            there = rows.get((here, kind))
            try:
                machine.events[kind].trigger(model)
            except MachineError:
                if there is not None:
                    return False
            else:
                if there is None or model.state != str(there):
                    return False
                here = there
    finally:
        machine.remove_model(model)
    return True


@given(st.lists(st.sampled_from(KINDS), max_size=40))
def test_random_walks_through_transitions_and_next_agree_in_states_and_refusals(walk: list[str]) -> None:
    assert same(NEXT, walk)


def test_a_wrong_row_planted_in_next_is_found_by_a_walk() -> None:
    wrong = {**NEXT, (State.SUCCESS, "turn_failed"): State.INTERRUPT}
    assert not same(wrong, ["message_added", "turn_failed"])
    assert not same(
        {**NEXT, (State.ERROR, "tool_started"): State.ERROR}, ["message_added", "turn_failed", "tool_started"]
    )
    missing = {key: value for key, value in NEXT.items() if key != (State.SUCCESS, "turn_failed")}
    assert not same(missing, ["message_added", "turn_failed"])


def test_every_pair_of_state_and_kind_that_next_lacks_is_refused_by_the_fold() -> None:
    illegal = [(state, kind) for state in State for kind in KINDS if (state, kind) not in NEXT]
    assert illegal
    for state, kind in illegal:
        event = ev.KINDS[kind].model_construct()
        with pytest.raises(IllegalEvent, match=f"session s, seq 8: {kind} cannot happen in state {state}"):
            evolve(Session(id="s", seq=7, state=state), event)


@pytest.mark.accept(63)
def test_the_conversations_of_the_tests_walk_every_row() -> None:
    never = sorted(f"{state} --{kind}--> {NEXT[state, kind]}" for state, kind in set(NEXT) - walked())
    assert not never, "no conversation of tests/fsm/conversations.py walks: " + "; ".join(never)
