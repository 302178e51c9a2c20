"""The fold: small, pure, and the same however often and however far it is played."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties.moves import any_input, start, walks
from turnlog.fsm import Row, Session, State, replay
from turnlog.fsm import events as ev
from turnlog.fsm.errors import GapInLog, IllegalEvent
from turnlog.fsm.session import SnapshotOf

from .conversations import CONVERSATIONS, approvals
from .talk import Talk, call


@pytest.mark.accept(67)
@pytest.mark.parametrize("tell", CONVERSATIONS, ids=lambda tell: tell.__name__)
def test_replay_to_any_seq_is_the_session_as_it_was_then(tell: object) -> None:
    assert callable(tell)
    talk = tell()
    session = Session(id="s")
    for row in talk.rows:
        session = replay([row], session)
        assert replay(talk.rows, to=row.seq) == session
        assert session.state is row.state
        assert session.seq == row.seq
    assert session == talk.session == replay(talk.rows)
    assert replay(talk.rows, to=0) == Session()


def test_a_missing_row_is_named() -> None:
    rows = approvals().rows
    with pytest.raises(GapInLog, match="session s: after seq 3 comes 5"):
        replay([*rows[:3], *rows[4:]])
    with pytest.raises(GapInLog, match="after seq 3 comes 3"):
        replay([*rows[:3], rows[2]])
    with pytest.raises(GapInLog, match="after seq 0 comes 2"):
        replay(rows[1:])


def test_a_row_that_the_table_does_not_allow_is_named() -> None:
    rows = approvals().rows
    planted = Row("s", 2, State.SUCCESS, 0, "turnlog", ev.ApprovalsSettled())
    with pytest.raises(IllegalEvent, match="session s, seq 2: approvals_settled cannot happen in state interrupt"):
        replay([rows[0], planted])


@given(st.integers(0, 2**32), walks, st.integers(0, 60))
def test_a_snapshot_at_any_seq_and_the_rows_behind_it_lead_to_the_same_session(
    first: int, walk: list[int], place: int
) -> None:
    talk = Talk.__new__(Talk)
    talk.fresh()
    talk.put(start(first))
    for seed in walk:
        talk.put(any_input(seed, talk.session))
    kept = replay(talk.rows, Session(id="s"), to=place)
    again = SnapshotOf.validate_json(SnapshotOf.dump_json(kept))
    assert again == kept
    assert replay(talk.rows[again.seq :], again) == talk.session


def test_a_session_is_bounded_by_its_open_turn() -> None:
    talk = Talk()
    sizes = []
    for _ in range(200):
        talk.say("x" * 500)
        talk.reply("", call("pay", amount=1))
        talk.decide()
        talk.run_all()
        talk.reply("y" * 500)
        sizes.append(len(SnapshotOf.dump_json(talk.session)))
    assert max(sizes[100:]) - min(sizes[100:]) < 200
