"""`turnlog sessions`: what is in a log."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from .options import DEFAULT_DB, AsJson, Db, reading
from .text import moment, say, table, to_json, visible

if TYPE_CHECKING:
    from ..store import SessionInfo


def sessions(db: Db = DEFAULT_DB, *, as_json: AsJson = False) -> None:
    """List the sessions of a log: state, rows, owner, when the last row was written, what is broken."""
    with reading(db) as reader:
        found: list[SessionInfo] = []
        while page := reader.sessions(found[-1].id if found else ""):
            found += page
    if as_json:
        say(to_json([asdict(one) for one in found]))
        return
    if not found:
        say("No session yet.")
        return
    rows = [(visible(s.id), visible(s.state), str(s.seq), visible(s.owner), moment(s.last_at)) for s in found]
    say("\n".join(table(rows, ("session", "state", "rows", "owner", "last row at"))))
    for one in found:
        if one.broken:
            say(f"broken: {visible(one.broken)}")
