"""Who allowed what: one entry for every request, folded from the rows of a session.

An entry answers: what was asked for, when and why; who or what resolved it, through which layer, when and with which
reason; which arguments were shown and which ones ran, each with its digest; how the run ended; and every other word on
the request (late, second, unauthorised) that changed nothing. Calls that a configured list or a grant allowed unasked
have an entry too; calls of tools that need no word have one, too, with `via` free.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ..fsm import events as ev
from ..fsm.events import Row

if TYPE_CHECKING:
    from .reader import LogReader, Unreadable

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of the tool. `digest` is that of the arguments it was started with; `key` its idempotency key."""

    seq: int
    at: int
    attempt: int
    digest: str
    key: str


@dataclass(frozen=True, slots=True)
class Try:
    """A word or a result that changed nothing: late, a second one, not allowed, or it did not fit. `about` names it."""

    seq: int
    at: int
    actor: str
    code: str
    why: str
    about: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The card was sent to a connection."""

    seq: int
    at: int
    connection: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One request and all that became of it. Times are milliseconds since 1970 UTC, 0 and "" mean: not yet, or never.

    `via` is the layer that resolved it: env (the configured list), policy, grant, person, timer; free for a tool that
    needs no word. `outcome` is open until then. `edited` are the arguments a person put in place of `arguments`; then
    `ran_digest` differs from `digest`. `result` is how the call ended (ok, error, denied, expired, ...).
    """

    session: str
    seq: int
    request_id: str
    call_id: str
    tool: str
    arguments: dict[str, JsonValue]
    digest: str
    asked_at: int
    why: str = "gated"
    description: str = ""
    risk: str = ""
    deadline: int | None = None
    shown: tuple[Shown, ...] = ()
    outcome: str = "open"
    via: str = ""
    actor: str = ""
    rule: str = ""
    reason: str = ""
    remembered: str = ""
    resolved_seq: int = 0
    resolved_at: int = 0
    edited: dict[str, JsonValue] | None = None
    approved_digest: str = ""
    runs: tuple[Attempt, ...] = ()
    result: str = ""
    content: str = ""
    returned_seq: int = 0
    returned_at: int = 0
    tries: tuple[Try, ...] = ()

    @property
    def ran_digest(self) -> str:
        """The digest of the arguments that the newest run was started with, "" when nothing ran."""
        return self.runs[-1].digest if self.runs else ""


@dataclass(slots=True)
class Audit:
    """The fold: feed it rows in seq order, then read `entries`. `strays` are decisions on no request of the session."""

    strays: list[Try] = field(default_factory=list)
    _entries: dict[str, Entry] = field(default_factory=dict)
    _calls: dict[str, tuple[ev.CallRecord, Row]] = field(default_factory=dict)
    _newest: dict[str, str] = field(default_factory=dict)  # call id -> key of its newest entry

    @property
    def entries(self) -> list[Entry]:
        """Every request so far, in the order in which they were made."""
        return sorted(self._entries.values(), key=lambda entry: entry.seq)

    def add(self, row: Row) -> None:
        """Fold one row; those of other kinds change nothing."""
        event = row.event
        match event:
            case ev.ToolsCalled():
                self._calls.update((call.id, (call, row)) for call in event.calls)
            case ev.ApprovalRequested():
                self._asked(event, row)
            case ev.ApprovalShown():
                entry = self._entries.get(event.request_id)
                if entry is not None:
                    shown = (*entry.shown, Shown(row.seq, row.at, event.connection))
                    self._change(event.request_id, shown=shown)
            case ev.ApprovalResolved():
                self._resolved(event, row)
            case ev.ToolStarted():
                self._started(event, row)
            case ev.ToolReturned():
                self._returned(event, row)
            case ev.InputRefused():
                self._refused(event, row)
            case _:
                pass

    def _change(self, key: str, **changes: Any) -> None:
        self._entries[key] = replace(self._entries[key], **changes)

    def _open(self, key: str, entry: Entry) -> None:
        self._entries[key] = entry
        self._newest[entry.call_id] = key

    def _asked(self, event: ev.ApprovalRequested, row: Row) -> None:
        before = self._newest.get(event.call_id)
        if before is not None and event.why == "outcome_unknown":
            self._change(before, result="outcome_unknown")
        entry = Entry(
            row.session, row.seq, event.request_id, event.call_id, event.tool, event.arguments, event.digest, row.at,
            event.why, event.description, event.risk, event.deadline,
        )  # fmt: skip
        self._open(event.request_id, entry)

    def _unasked(self, request_id: str, call_id: str, tool: str, digest: str, row: Row) -> Entry:
        """An entry for a call that nobody was asked about: its arguments stand in the row of the call."""
        call, at = self._calls.get(call_id, (None, row))
        proposed = (call.parsed or {}) if call is not None else {}
        return Entry(row.session, at.seq, request_id, call_id, tool, proposed, digest, at.at)

    def _resolved(self, event: ev.ApprovalResolved, row: Row) -> None:
        if event.request_id not in self._entries:
            entry = self._unasked(event.request_id, event.call_id, event.tool, event.digest, row)
            self._open(event.request_id, entry)
        self._change(
            event.request_id, outcome=event.outcome, via=event.via, actor=event.actor, rule=event.rule,
            reason=event.reason, remembered=event.remembered, resolved_seq=row.seq, resolved_at=event.decided_at,
            edited=event.arguments, approved_digest=event.digest if event.outcome == "approved" else "",
        )  # fmt: skip

    def _started(self, event: ev.ToolStarted, row: Row) -> None:
        key = event.permit
        if key not in self._entries:
            key = f"{event.permit}:{event.call_id}"
            if key not in self._entries:
                entry = self._unasked("", event.call_id, event.tool, event.digest, row)
                self._open(key, replace(entry, outcome="approved", via=event.permit, approved_digest=event.digest))
        run = Attempt(row.seq, row.at, event.attempt, event.digest, event.key)
        self._change(key, runs=(*self._entries[key].runs, run))

    def _refused(self, event: ev.InputRefused, row: Row) -> None:
        again = Try(row.seq, row.at, row.actor, event.code, event.why, event.about)
        key = event.about if event.about in self._entries else self._newest.get(event.about)
        if key is not None:
            self._change(key, tries=(*self._entries[key].tries, again))
        elif event.input == "decide":
            self.strays.append(again)

    def _returned(self, event: ev.ToolReturned, row: Row) -> None:
        key = self._newest.get(event.call_id)
        if key is not None:
            self._change(key, result=event.outcome, content=event.content, returned_seq=row.seq, returned_at=row.at)
        self._calls.pop(event.call_id, None)


def audit(rows: Iterable[Row]) -> list[Entry]:
    """The entries of one session, from its rows in seq order."""
    fold = Audit()
    for row in rows:
        fold.add(row)
    return fold.entries


def audit_session(reader: "LogReader", session: str) -> tuple[Audit, "list[Unreadable]"]:
    """The fold of a session, read page by page, and the rows that could not be read (erased, or damaged)."""
    fold, unreadable, after = Audit(), [], 0
    while page := reader.read_lenient(session, after, _PAGE):
        after = page[-1].seq
        for row in page:
            if isinstance(row, Row):
                fold.add(row)
            else:
                unreadable.append(row)
    return fold, unreadable
