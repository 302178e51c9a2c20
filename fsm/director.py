"""Who speaks next in a group.

What a director says is a name, whatever hangs on it; else it is no choice. A choice that names nobody (an empty answer,
TERMINATE), a stranger, a member that may not speak now, or several is not obeyed: a recorded number takes its place.
"""

import re
import unicodedata
from collections.abc import Iterable

from .session import Session, pair

# Colours of a terminal, also those that lost their escape character on the way, and titles and links.
_ESCAPES = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|\[[0-9;]{1,11}m")
_DECORATION = re.compile(r"[*`~\"'\\\u2018\u2019\u201c\u201d\u00ab\u00bb]+")
_ITALICS = re.compile(r"(?<!\w)_+|(?<!_)_++(?!\w)")  # not the underscore inside a name
_LISTED = ("", "or", "and", "then")  # what stands between the names of a list, commas and the like apart


def candidates(session: Session, channel: str) -> tuple[str, ...]:
    """Members that may speak: still in the group, not the last speaker, and below the round limit of a pair."""
    group = session.channels[channel]
    last = session.last.sender if session.last and session.last.recipient == channel else ""
    limit = session.limits.max_rounds
    return tuple(
        name for name in group.members
        if name in session.agents and name != last and session.rounds.get(pair(name, channel), 0) < limit
        and (channel, name) not in session.left
    )  # fmt: skip


def choose(raw: str, allowed: tuple[str, ...], seed: int, known: Iterable[str] = ()) -> tuple[str, str]:
    """The speaker that a director's answer names, and by whom it was chosen.

    Args:
        raw: the answer.
        allowed: who may speak, one at least.
        seed: the number to fall back on.
        known: everybody else whose name may stand in the answer.
    """
    if len(allowed) == 1:
        return allowed[0], "only_candidate"
    named = named_in(raw, (*allowed, *(name for name in known if name not in allowed)))
    return (named, "director") if named in allowed else (allowed[seed % len(allowed)], "random")


def named_in(raw: str, names: tuple[str, ...]) -> str:
    """The one name that an answer gives, or "".

    A line that is nothing but a name counts before all others, so a reason may stand above or below it; then the first
    line that holds a name does.
    """
    if raw.strip() in names:
        return raw.strip()
    by_plain: dict[str, list[str]] = {}
    for name in names:
        if bare := plain(name):
            by_plain.setdefault(bare, []).append(name)
    lines = [bare for line in _ESCAPES.sub("", raw).splitlines() if (bare := plain(line))]
    alone = {line for line in lines if line in by_plain}
    if not alone and by_plain:
        longest = sorted(by_plain, key=len, reverse=True)  # "senior planner" before "planner"
        some = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, longest))})(?![\w-])")
        alone = next((found for line in lines if (found := _in_line(line, some))), alone)
    same = by_plain[alone.pop()] if len(alone) == 1 else []
    return same[0] if len(same) == 1 else ""


def _in_line(line: str, some: re.Pattern[str]) -> set[str]:
    """The names in a line: only the first, where the line begins with it and goes on with a reason."""
    found = list(some.finditer(line))
    if len(found) > 1 and found[0].start() == 0:
        between = line[found[0].end() : found[1].start()]
        if between.strip(" \t,;/&|+") not in _LISTED:
            found = found[:1]
    return {one.group() for one in found}


def plain(text: str) -> str:
    """A name without what a model hangs on it."""
    text = unicodedata.normalize("NFKC", _ESCAPES.sub("", text))
    text = "".join(one for one in text if one.isspace() or unicodedata.category(one) not in ("Cc", "Cf"))
    text = _ITALICS.sub("", _DECORATION.sub("", text))
    return text.strip().strip(".,:;!?#>-()[]{}<\u2013\u2014 ").removeprefix("@").casefold().strip()
