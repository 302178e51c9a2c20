"""Taking grants back: only such as hold, and only one's own."""

import pytest

from turnlog.fsm import events as ev
from turnlog.fsm import inputs as inp
from turnlog.fsm.approval import Standing

from .talk import Talk, call, code, kinds

ANN = "person:ann"


def standing(grant_id: str, subject: str = "ann") -> Standing:
    """A grant of scope "user"."""
    return Standing(ev.GrantRecorded(grant_id=grant_id, subject=subject, tool="pay", scope="user"))


@pytest.mark.parametrize("grants", [(), (standing("g1"),), (standing("g2", "bob"),)])
def test_a_grant_that_does_not_hold_for_the_owner_is_not_revoked(grants: tuple[Standing, ...]) -> None:
    talk = Talk()
    decision = talk.put(inp.Revoke("g2", ANN, "ann", grants=grants))
    assert code(decision.refusal) == "invalid"
    assert kinds(decision) == ["input_refused"]
    assert "no grant 'g2' holds for 'ann'" in (decision.refusal.why if decision.refusal else "")
    assert talk.of(ev.InputRefused)[0].about == "g2"


@pytest.mark.parametrize("grants", [None, (standing("g2"),)])
def test_nobody_revokes_for_somebody_else_than_the_owner(grants: tuple[Standing, ...] | None) -> None:
    talk = Talk()
    decision = talk.put(inp.Revoke("g2", "person:bob", "bob", grants=grants))
    assert code(decision.refusal) == "unauthorised"
    assert "'ann'" in (decision.refusal.why if decision.refusal else "")
    assert talk.of(ev.GrantRevoked) == []


def test_a_standing_grant_of_the_owner_is_revoked() -> None:
    talk = Talk()
    assert kinds(talk.put(inp.Revoke("g1", ANN, "ann", grants=(standing("g1"),)))) == ["grant_revoked"]


def test_a_grant_of_the_session_is_revoked_once() -> None:
    talk = Talk()
    talk.say()
    talk.reply("", call("pay", amount=1))
    talk.decide(remember="session")
    (grant,) = talk.of(ev.GrantRecorded)
    assert talk.put(inp.Revoke(grant.grant_id, ANN, "ann", grants=())).refusal is None
    assert talk.session.grants == ()
    again = talk.put(inp.Revoke(grant.grant_id, ANN, "ann", grants=()))
    assert code(again.refusal) == "invalid"
    assert len(talk.of(ev.GrantRevoked)) == 1
