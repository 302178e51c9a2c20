"""The book of grants: whose they are, and who takes them back."""

import itertools

import pytest

from turnlog.engine.grants import GrantBook
from turnlog.fsm import Row, State
from turnlog.fsm.events import Event, GrantRecorded, GrantRevoked

HERS = GrantRecorded(grant_id="g1", subject="ann", tool="pay", scope="user")


def rows(*events: Event) -> list[Row]:
    """The events as rows, each of a session of its own."""
    return [Row(f"s{n}", 1, State.INTERRUPT, 0, "person:x", event) for n, event in enumerate(events)]


@pytest.mark.parametrize("subject", ["bob", ""])
def test_a_revocation_by_another_person_than_the_subject_takes_nothing_back(subject: str) -> None:
    for order in itertools.permutations(rows(HERS, GrantRevoked(grant_id="g1", subject=subject))):
        assert [one.grant for one in GrantBook(order).of("ann")] == [HERS]


def test_a_revocation_for_the_subject_takes_the_grant_back_in_whatever_order_the_rows_come() -> None:
    events = rows(HERS, GrantRevoked(grant_id="g1", subject="bob"), GrantRevoked(grant_id="g1", subject="ann"))
    for order in itertools.permutations(events):
        assert GrantBook(order).of("ann") == ()
