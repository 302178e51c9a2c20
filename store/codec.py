"""Events as stored text, and back.

A body is the JSON object of an event's fields without those that equal their default; `kind` and `v` have
columns of their own. Loading looks a kind up in a table: no class is ever imported by a name in the data.

When a kind gets a new version, its old rows stay as they are and a `Change` says how a dict of the version
before becomes one of the new version. Changes are chained, so version 1 is readable for ever.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..fsm.canonical import digest
from ..fsm.errors import BadBody, Misuse, UnknownKind
from ..fsm.events import KINDS, ApprovalRequested, ApprovalResolved, Event

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """How version `v` of a kind differs from `v - 1`: one line for people, and a pure step for rows."""

    summary: str
    upcast: Callable[[Body], Body]


# (kind, version from 2 up) -> what changed. Version 1 of every kind is its first form.
CHANGES: dict[tuple[str, int], Change] = {}

VERSIONS: dict[str, int] = {kind: model.model_fields["v"].default for kind, model in KINDS.items()}


def check_changes(versions: Mapping[str, int], changes: Mapping[tuple[str, int], Change]) -> None:
    """Refuse a table with a step too few or too many, or a summary that is not one line.

    Raises:
        ValueError: names the kind and version.
    """
    wanted = {(kind, v) for kind, newest in versions.items() for v in range(2, newest + 1)}
    for kind, v in sorted(wanted ^ set(changes)):
        raise ValueError(f"{kind} version {v}: {'no Change leads to it' if (kind, v) in wanted else 'no such version'}")
    for (kind, v), change in changes.items():
        if not change.summary.strip() or "\n" in change.summary:
            raise ValueError(f"{kind} version {v}: its summary must be one line")


check_changes(VERSIONS, CHANGES)


def encode(event: Event) -> str:
    """The body to store.

    Raises:
        Misuse: the event holds a number or a text that has no JSON form.
    """
    try:
        # What `model_dump_json` calls, without the dozen options that it passes on.
        body = event.__pydantic_serializer__.to_json(event, exclude_defaults=True).decode()
    except ValueError as error:
        raise Misuse(f"{event.kind} cannot be stored: {error}; clean its texts first") from error
    # pydantic writes NaN and infinities as null without a word; the search is done only where a null stands.
    if "null" in body and _has_nan(event.model_dump()):
        raise Misuse(f"{event.kind} cannot be stored: NaN and infinities have no JSON form; refuse them at the door")
    return body


def _has_nan(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_nan, value))


def known(kind: str, v: int) -> int:
    """The newest version of a kind.

    Raises:
        UnknownKind: this release does not know the kind or the version.
    """
    newest = VERSIONS.get(kind)
    if newest is None:
        raise UnknownKind(f"kind {kind!r} is unknown: a newer turnlog may know it; run verify")
    if not 1 <= v <= newest:
        raise UnknownKind(f"{kind} version {v} is unknown, this release knows 1 to {newest}: use a newer turnlog")
    return newest


def decode(kind: str, v: int, body: str | None) -> Event:
    """The event of a stored row.

    Raises:
        UnknownKind: see `known`.
        BadBody: the body was erased, is no JSON object, or does not fit the kind.
    """
    newest = known(kind, v)
    if body is None:
        raise BadBody(f"the body of this {kind} was erased: its hash is kept, its content is gone")
    try:
        if v != newest:
            body = _upcast(kind, v, newest, body)
        event = KINDS[kind].model_validate_json(body, strict=True)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _bad(kind, v, _first(error)) from error
    if not event.model_fields_set.isdisjoint(("kind", "v")):
        raise _bad(kind, v, "it repeats kind or v, which have columns")
    if (
        isinstance(event, ApprovalRequested | ApprovalResolved)
        and event.arguments is not None
        and digest(event.arguments) != event.digest
    ):
        raise _bad(kind, v, "its digest is not that of its arguments")  # a card must not show what would not run
    return event


def _upcast(kind: str, v: int, newest: int, body: str) -> str:
    value = json.loads(body)
    for step in range(v + 1, newest + 1):
        value = CHANGES[kind, step].upcast(value)
    return json.dumps(value)


def _bad(kind: str, v: int, why: str) -> BadBody:
    return BadBody(f"the body is no valid {kind} version {v}: {why}; run verify, restore a backup")


def _first(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    details = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in details["loc"]) or "body"
    return f"{place}: {details['msg']}"
