"""Options that several commands share."""

import shlex
import string
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .text import visible

if TYPE_CHECKING:
    from ..store import LogReader

_SAFE = (string.ascii_letters + string.digits + "-_./").encode()
DEFAULT_DB = Path("turnlog.db")

Db = Annotated[Path, typer.Option("--db", envvar="TURNLOG_DB", help="The log, an SQLite file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def command(*words: object) -> str:
    """A command of ours as it can be pasted into a shell."""
    return " ".join(("turnlog", *(_quoted(str(word)) for word in words)))


def _quoted(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    # Shells read bytes in octal between $' and ': so it can be seen whole, and pasted.
    data = word.encode("utf-8", "surrogateescape")
    return f"$'{''.join(chr(one) if one in _SAFE else f'{chr(92)}{one:03o}' for one in data)}'"


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
