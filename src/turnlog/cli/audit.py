"""`turnlog audit`: who allowed what, through which layer, with which arguments, and what came of it."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import DEFAULT_DB, AsJson, Db, existing, reading
from .text import arguments, columns, marked, moment, say, short, to_json, visible, wrapped

if TYPE_CHECKING:
    from ..store import LogReader
    from ..store.audit import Audit, Entry, Try
    from ..store.reader import Unreadable

_SHOWN = 1000  # characters of arguments in a block; --json has all
# What a request holds may be wrapped anywhere; it never begins where a line of ours begins.
_DETAIL, _FURTHER = " " * 2, " " * 6


def audit(
    session: Annotated[str, typer.Argument(help="One session; every one when left out.")] = "",
    *,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
    every: Annotated[bool, typer.Option("--all", help="Also calls of tools that need no approval.")] = False,
) -> None:
    """Tell of every request for approval: who or what resolved it, when, why, what ran and how it ended.

    Exit code 1 when a row could not be read, since something may be missing then.
    """
    unreadable = []
    parts: list[dict[str, Any]] = []
    with reading(db) as reader:
        granted = _granted(reader)
        for name in [existing(reader, session)] if session else reader.session_ids():
            fold, lost = _read(reader, name)
            unreadable += lost
            entries = [entry for entry in fold.entries if every or entry.via != "free"]
            if as_json:
                parts.append(_as_json(name, entries, fold, lost, granted))
            else:
                _print(_blocks(name, entries, fold, granted))
    if as_json:
        say(to_json(parts))
    else:
        for row in unreadable:
            say(f"not readable: {visible(row.why)}")
    if unreadable:
        raise typer.Exit(1)


def _read(reader: "LogReader", name: str) -> "tuple[Audit, list[Unreadable]]":
    from ..store.audit import audit_session

    return audit_session(reader, name)


def _granted(reader: "LogReader") -> dict[str, str]:
    """Who recorded each grant."""
    return {row.event.grant_id: row.actor for row in reader.grants() if row.event.kind == "grant_recorded"}


def _print(blocks: Iterator[list[str]]) -> None:
    width = columns()
    for head, *rest in blocks:
        lines = [*wrapped(head, width, _FURTHER)]
        for one in rest:
            lines += wrapped(f"{_DETAIL}{one}", width, _FURTHER)
        say("\n".join((*lines, "")))


def _as_json(
    name: str, entries: "list[Entry]", fold: "Audit", lost: "list[Unreadable]", granted: dict[str, str]
) -> dict[str, Any]:
    requests = [
        {**asdict(entry), "ran_digest": entry.ran_digest, "granted_by": granted.get(entry.rule, "")}
        for entry in entries
    ]
    return {
        "session": name,
        "requests": requests,
        "strays": [asdict(one) for one in fold.strays],
        "unreadable": [asdict(one) for one in lost],
    }


def _blocks(name: str, entries: "list[Entry]", fold: "Audit", granted: dict[str, str]) -> Iterator[list[str]]:
    for entry in entries:
        yield list(_block(entry, granted))
    for one in fold.strays:
        yield [f"{visible(one.about)} in {visible(name)}: no such request", _try(one)]


def _block(entry: "Entry", granted: dict[str, str]) -> Iterator[str]:
    """A request: what was asked for, then a line for each thing that became of it."""
    named = visible(entry.request_id) or "(not asked)"
    yield f"{named} in {visible(entry.session)}, asked at {moment(entry.asked_at)}"
    yield f"{visible(entry.tool)} {arguments(entry.arguments, _SHOWN)} {marked(entry.digest)}"
    if entry.why != "gated":
        yield f"asked because: {entry.why}"
    yield _resolution(entry, granted)
    if entry.edited is not None:
        yield f"edited to {arguments(entry.edited, _SHOWN)} {marked(entry.approved_digest)}"
    yield _ran(entry)
    yield from map(_try, entry.tries)


def _resolution(entry: "Entry", granted: dict[str, str]) -> str:
    if entry.outcome == "open":
        until = f" until {moment(entry.deadline)}" if entry.deadline is not None else ""
        return f"open{until}"
    if entry.via == "free":
        return "needs no approval"
    told = f"{entry.outcome} via {visible(entry.via)} by {visible(entry.actor)} at {moment(entry.resolved_at)}"
    if entry.via != "person" and entry.rule:
        giver = f", given by {visible(granted[entry.rule])}" if entry.rule in granted else ""
        told += f" (rule {visible(entry.rule)}{giver})"
    if entry.reason:
        told += f' because "{short(entry.reason)}"'
    return told


def _ran(entry: "Entry") -> str:
    if not entry.runs and entry.why == "outcome_unknown":
        return f"had been started before and was cut off; not run again: {entry.result or 'not returned'}"
    if not entry.runs:
        return f"did not run{f': {entry.result}' if entry.result else ''}"
    starts = ", ".join(f"at {moment(run.at)} with {marked(run.digest)}" for run in entry.runs)
    return f"ran {starts}: {entry.result or 'not returned'}"


def _try(one: "Try") -> str:
    return f'refused at {moment(one.at)} to {visible(one.actor)} ({one.code}): "{short(one.why)}"'
