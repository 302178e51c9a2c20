"""`decide` takes anything in any state: it never raises, and what it refuses changes nothing."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import Ids
from tests.properties.moves import any_input, start, walks
from turnlog.fsm import NEXT, Session, State, decide, evolve, pending

seeds = st.integers(0, 2**32)


@settings(max_examples=400)
@given(seeds, walks)
def test_whatever_comes_in_any_state_gives_rows_of_the_table_or_a_refusal_that_changes_nothing(
    first: int, walk: list[int]
) -> None:
    new_id = Ids()
    session = decide(Session(id="s"), start(first), 0, new_id).session
    for now, seed in enumerate(walk):
        decision = decide(session, any_input(seed, session), now, new_id)
        folded = session
        for event, state in zip(decision.events, decision.states, strict=True):
            folded = evolve(folded, event)
            assert folded.state is state
        assert folded == decision.session
        if decision.refusal is not None:
            assert [event.kind for event in decision.events] in ([], ["input_refused"])
            assert decision.session._replace(seq=session.seq) == session
            assert pending(decision.session) == pending(session)
            assert decision.refusal.why
        else:
            assert decision.events
        session = decision.session


@given(seeds, seeds)
def test_an_input_to_a_session_that_is_not_there_is_refused_without_a_row(first: int, seed: int) -> None:
    known = decide(Session(id="s"), start(first), 0, Ids()).session
    decision = decide(Session(id="t"), any_input(seed, known), 0, Ids())
    assert decision.refusal is not None
    assert decision.events == ()
    assert decision.session == Session(id="t")


@given(seeds, walks)
def test_the_same_inputs_give_the_same_rows(first: int, walk: list[int]) -> None:
    def rows() -> list[object]:
        new_id = Ids()
        decisions = [decide(Session(id="s"), start(first), 0, new_id)]
        for seed in walk:
            session = decisions[-1].session
            decisions.append(decide(session, any_input(seed, session), 0, new_id))
        return list(decisions)

    assert rows() == rows()


@given(seeds, walks)
def test_a_session_at_rest_owes_nothing_but_timers_and_a_moving_one_owes_work(first: int, walk: list[int]) -> None:
    new_id = Ids()
    session = decide(Session(id="s"), start(first), 0, new_id).session
    for seed in walk:
        owed = [one.key for one in pending(session)]
        assert len(set(owed)) == len(owed)
        assert any(not key.startswith("wait:") for key in owed) == (session.state is State.SUCCESS)
        session = decide(session, any_input(seed, session), 0, new_id).session


def test_the_random_walks_come_to_every_row_of_the_table() -> None:
    seen: Counter[tuple[State, str]] = Counter()
    for first in range(500):
        new_id = Ids()
        session = decide(Session(id="s"), start(first), 0, new_id).session
        for step in range(60):
            before = session
            decision = decide(session, any_input(first * 1000 + step, session), 0, new_id)
            for event in decision.events:
                seen[before.state, event.kind] += 1
                before = evolve(before, event)
            session = decision.session
        if len(seen) == len(NEXT) - 1:
            break
    assert {(str(state), kind) for state, kind in set(NEXT) - set(seen)} == {("interrupt", "session_started")}
