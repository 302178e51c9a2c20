"""Options that several commands share."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..store import LogReader

DEFAULT_DB = Path("turnlog.db")

Db = Annotated[Path, typer.Option("--db", envvar="TURNLOG_DB", help="The log, an SQLite file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def command(*words: object) -> str:
    """A command of ours as it can be pasted into a shell."""
    return shlex.join(("turnlog", *map(str, words)))


@contextmanager
def reading(db: Path) -> "Iterator[LogReader]":
    """The log, read-only: it works while a server owns the file."""
    from ..store import LogReader

    reader = LogReader(db)
    try:
        yield reader
    finally:
        reader.close()


def existing(reader: "LogReader", session: str) -> str:
    """The id, if such a session is there.

    Raises:
        UnknownSession: it is not.
    """
    from ..fsm.errors import UnknownSession

    if not reader.raw(session, -(2**63), 1):
        raise UnknownSession(
            f"no session has the id {session!r}: `{command('sessions', '--db', reader.path)}` lists them"
        )
    return session
