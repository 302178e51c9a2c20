"""Who speaks next in a group."""

import re

from .session import Session, pair

_DECORATION = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[*_`~\"'\\]+")


def candidates(session: Session, channel: str) -> tuple[str, ...]:
    """Members that may speak: not the last speaker, and below the round limit of a pair."""
    group = session.channels[channel]
    last = session.last.sender if session.last and session.last.recipient == channel else ""
    limit = session.limits.max_rounds
    return tuple(
        name for name in group.members
        if name in session.agents and name != last and session.rounds.get(pair(name, channel), 0) < limit
    )  # fmt: skip


def choose(raw: str, allowed: tuple[str, ...], seed: int) -> tuple[str, str]:
    """The speaker that a director's answer names, and by whom it was chosen.

    Decoration, escapes, a leading "@" or "Role:" and a reason behind the name do not matter. An answer that names no
    allowed member, or more than one, falls back on `seed`.
    """
    if len(allowed) == 1:
        return allowed[0], "only_candidate"
    lines = [line for line in raw.splitlines() if line.strip()]
    named = _named(lines[0], allowed) if lines else set()
    if len(named) == 1:
        return named.pop(), "director"
    return allowed[seed % len(allowed)], "random"


def _named(line: str, allowed: tuple[str, ...]) -> set[str]:
    text = plain(line)
    exact = {name for name in allowed if plain(name) == text}
    if exact:
        return exact
    return {name for name in allowed if re.search(rf"(?<!\w){re.escape(plain(name))}(?!\w)", text)}


def plain(text: str) -> str:
    """A name without what a model hangs on it."""
    bare = _DECORATION.sub(lambda found: "_" if found.group() in ("_", "\\_") else "", text)
    return bare.strip().strip(".,:;!?#>- ").removeprefix("@").casefold()
