"""Which calls are repeats. The memory is a fold of the log: only what ran and ended well is remembered.

Three rules, asked in this order: the same arguments once per answer (`exact`, the default), a pause between two runs
of a tool (`cooldown_seconds`), one run per session (`unique`). A call that failed, was refused or was cut off may be
made again. Two calls of one round do not know of each other's end, so `exact` does not hold between them.

Arguments are the same when they are the same JSON value: the order of keys does not matter, 1 and 1.0 are one number,
the order of a list and null against a missing key do matter.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from .canonical import digest
from .parts import Call
from .values import ONCE_AN_ANSWER, Repeats


class Run(NamedTuple):
    """A call that ran and ended well. `fingerprint` is "" once the answer that it belongs to was given."""

    tool: str
    fingerprint: str
    at: int
    unique: bool
    cooldown: bool


def fingerprint(arguments: Any, known: str = "") -> str:
    """What two calls with the same arguments share. `known` is the digest of the arguments, where it is at hand."""
    same = _numbers(arguments)
    return known if known and same is arguments else digest(same)


def _numbers(value: Any) -> Any:
    """The value with whole floats as integers; the very same object where there are none."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        items = {key: _numbers(item) for key, item in value.items()}
        return value if all(items[key] is value[key] for key in value) else items
    if isinstance(value, list):
        listed = [_numbers(item) for item in value]
        return value if all(new is old for new, old in zip(listed, value, strict=True)) else listed
    return value


def repeated(
    runs: Collection[Run], round_: Collection[str], tool: str, mark: str, rule: Repeats | None, now: int
) -> str:
    """Why a call is not to run, in words for a model; "" when it may.

    Args:
        runs: what the session remembers.
        round_: tools that were called before in the same round.
        tool, mark: the tool, and the fingerprint of its arguments.
        rule: how the tool may be repeated, None for `ONCE_AN_ANSWER`.
        now: milliseconds since 1970 UTC.
    """
    rule = rule or ONCE_AN_ANSWER
    mine = [run for run in runs if run.tool == tool]
    if rule.exact and any(run.fingerprint == mark for run in mine):
        return "this call ran before with the same arguments, and its result stands above: use that, or change them."
    pause = rule.cooldown_seconds
    if pause and (tool in round_ or any(now <= run.at + pause * 1000 for run in mine)):
        return f"{tool} needs a pause of {pause:g} s between two runs, whatever the arguments: go on without it."
    if rule.unique and (tool in round_ or mine):
        return f"{tool} runs once per session, and it has: go on without it."
    return ""


def remember(runs: tuple[Run, ...], call: Call, at: int) -> tuple[Run, ...]:
    """The memory with one more run. One tool is kept once per fingerprint."""
    rule = call.repeats or ONCE_AN_ANSWER
    if not (rule.exact or rule.unique or rule.cooldown_seconds):
        return runs
    mark = fingerprint(call.arguments, call.digest)
    rest = [run for run in runs if run.tool != call.tool or run.fingerprint != mark] if runs else ()
    return (*rest, Run(call.tool, mark, at, rule.unique, bool(rule.cooldown_seconds)))


def lasting(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """What outlives an answer: the newest run of each tool that has a pause or runs once per session."""
    newest = {run.tool: run._replace(fingerprint="") for run in runs if run.unique or run.cooldown}
    return tuple(newest.values())


def forget(runs: tuple[Run, ...], tool: str) -> tuple[Run, ...]:
    """The memory without a tool, which so may run again."""
    return tuple(run for run in runs if run.tool != tool)
