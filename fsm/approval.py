"""Who and what may allow a call.

Three layers, in this order: the configured list (names or patterns, "all" for every tool), a standing grant of the
session's owner, a person. The fourth voice is the timer, and it only denies.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from .events import GrantRecorded

EVERYTHING = ("all", "<all>", "*")


@dataclass(frozen=True, slots=True)
class Standing:
    """A grant and how often it was used."""

    grant: GrantRecorded
    used: int = 0


def is_person(actor: str) -> bool:
    """Only an authenticated person may decide: never a model, a tool, a run or a configured name."""
    return actor.startswith("person:") and len(actor) > len("person:")


def auto_rule(patterns: Iterable[str], tool: str) -> str:
    """The first pattern of the configured list that allows a tool unasked, or ""."""
    for pattern in patterns:
        if pattern in EVERYTHING or fnmatchcase(tool, pattern):
            return pattern
    return ""


def in_time(standing: Standing, now: int) -> bool:
    """Whether a grant has not run out at `now`."""
    end = standing.grant.expires_at
    return end is None or now < end


def find_grant(standing: Iterable[Standing], subject: str, tool: str, digest: str, now: int) -> Standing | None:
    """The first grant of `subject` that covers this call at `now`."""
    for one in standing:
        grant = one.grant
        if (
            grant.subject == subject
            and grant.tool == tool
            and grant.match in ("", digest)
            and in_time(one, now)
            and (grant.max_uses is None or one.used < grant.max_uses)
        ):
            return one
    return None


def use(standing: Iterable[Standing], grant_id: str) -> tuple[Standing, ...]:
    """The same grants with one more use of `grant_id`."""
    return tuple(Standing(one.grant, one.used + 1) if one.grant.grant_id == grant_id else one for one in standing)
