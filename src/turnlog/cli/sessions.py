"""`turnlog sessions`: what is in a log."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from .options import DEFAULT_DB, AsJson, Db, reading
from .text import moment, table, to_json, visible

if TYPE_CHECKING:
    from ..store import SessionInfo


def sessions(db: Db = DEFAULT_DB, *, as_json: AsJson = False) -> None:
    """List the sessions of a log: state, rows, owner, when the last row was written, what is broken."""
    with reading(db) as reader:
        found: list[SessionInfo] = []
        while page := reader.sessions(found[-1].id if found else ""):
            found += page
    if as_json:
        print(to_json([asdict(one) for one in found]))
        return
    if not found:
        print("No session yet.")
        return
    rows = [(visible(s.id), visible(s.state), str(s.seq), visible(s.owner), moment(s.last_at)) for s in found]
    print(*table(rows, ("session", "state", "rows", "owner", "last row at")), sep="\n")
    for one in found:
        if one.broken:
            print(f"broken: {visible(one.broken)}")
