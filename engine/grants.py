"""The book of standing grants: a fold of grant rows over all sessions, rebuilt from the log at start."""

from collections import Counter
from collections.abc import Iterable

from ..fsm.approval import Standing
from ..fsm.events import ApprovalResolved, GrantRecorded, GrantRevoked, Row
from ..store.base import Draft

_COUNTED = frozenset({GrantRecorded, GrantRevoked, ApprovalResolved})


class GrantBook:
    """Grants of scope "user", by subject."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._grants: dict[str, GrantRecorded] = {}
        self._used: dict[str, int] = {}
        self._revoked: set[tuple[str, str]] = set()  # grant and subject: nobody revokes what is another's
        self._held: Counter[str] = Counter()
        self.observe(rows)

    def observe(self, rows: Iterable[Row]) -> None:
        """Take committed rows in; their order over sessions does not matter."""
        for row in rows:
            event = row.event
            if type(event) not in _COUNTED:
                continue
            if isinstance(event, GrantRecorded):
                if event.scope == "user":
                    self._grants[event.grant_id] = event
            elif isinstance(event, GrantRevoked):
                self._revoked.add((event.grant_id, event.subject))
            elif isinstance(event, ApprovalResolved) and event.via == "grant":
                self._used[event.rule] = self._used.get(event.rule, 0) + 1

    def hold(self, used: Iterable[str]) -> None:
        """Count the uses in an append that is under way, so that another session cannot use a grant up as well."""
        self._held.update(used)

    def release(self, used: Iterable[str]) -> None:
        """The append has ended; if it was committed, `observe` counts its uses."""
        self._held.subtract(used)

    def of(self, subject: str) -> tuple[Standing, ...]:
        """What a user has allowed and not taken back, with how often it was used."""
        return tuple(
            Standing(grant, self._used.get(grant.grant_id, 0) + self._held[grant.grant_id])
            for grant in self._grants.values()
            if grant.subject == subject and (grant.grant_id, subject) not in self._revoked
        )


def uses(drafts: Iterable[Draft]) -> list[str]:
    """The grants that these rows use, each as often as it is used."""
    return [
        draft.event.rule for draft in drafts if isinstance(draft.event, ApprovalResolved) and draft.event.via == "grant"
    ]
