"""`turnlog fork`: a second way on from a row of a session."""

from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_DB, AsJson, Db, command
from .text import say, to_json, visible

if TYPE_CHECKING:
    from ..fsm.session import Session


def fork(
    session: Annotated[str, typer.Argument(help="The session to fork; it stays as it is.")],
    *,
    at: Annotated[int, typer.Option("--at", min=1, help="The last row that the fork shares with it.")],
    new: Annotated[str, typer.Option("--new", help="The id of the fork; one is made up where none is given.")] = "",
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
) -> None:
    """Start a session that begins where another one stood. What was allowed there is asked about again.

    Nothing runs here: what the fork owes (a model's answer, say) is done when `serve` or `chat` opens it.
    """
    import os
    import socket

    from ..engine.clock import SystemClock
    from ..engine.forks import fork_log
    from ..engine.ids import fresh_id
    from ..fsm.canonical import clean
    from ..fsm.errors import DatabaseOwned, Misuse, UnknownSession
    from ..store import SQLiteLog
    from ..store.base import code_version

    if not db.exists():
        raise UnknownSession(f"there is no log {db}: name one with --db")
    if new and clean(new) != new:
        raise Misuse(f"{new!r} is no text: choose another id")
    name = new or fresh_id("s")
    try:
        log = SQLiteLog(db, hint="turnlog fork")
    except DatabaseOwned as error:
        raise Misuse(f"{error}; a server that owns it forks when it is sent the command `fork`") from error
    with log:
        made = fork_log(
            log, session, at, name, owner="", actor="", writer=f"{socket.gethostname()}:{os.getpid()}:fork",
            code_version=code_version(), now=SystemClock().now(), new_id=fresh_id,
        )  # fmt: skip
        parent = log.read(name, 0, 1)[0].event
    _tell(made, parent.model_dump(mode="json")["parent"], str(db), as_json=as_json)


def _tell(made: "Session", parent: dict[str, object], db: str, *, as_json: bool) -> None:
    if as_json:
        waiting = [request.request_id for request in made.requests]
        say(to_json({"session": made.id, "seq": made.seq, "state": made.state, "parent": parent, "requests": waiting}))
        return
    whence = f"{visible(str(parent['session']))} at seq {parent['seq']}"
    say(f"session {visible(made.id)}, forked from {whence}: {made.state}, {made.seq} rows.")
    if made.requests:
        say(f"{len(made.requests)} calls wait for a word.")
    say(f"Go on with: {command('chat', '--session', made.id, '--db', db)}")
