"""`turnlog verify`: proof that a log is what was written."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import DEFAULT_DB, AsJson, Db, reading
from .text import counted, say, to_json, visible

if TYPE_CHECKING:
    from ..store.verify import Heads, Report

_WANTED = "name a file that `turnlog verify --keep FILE` wrote"


def verify(
    *,
    db: Db = DEFAULT_DB,
    as_json: AsJson = False,
    heads: Annotated[Path | None, typer.Option("--heads", help="Heads kept earlier: finds a cut tail.")] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", help="Write the heads here when all is well; older ones are compared first."),
    ] = None,
) -> None:
    """Check every row, hash and blob. Exit code 1 when something is wrong; the first bad row of a session is named."""
    from ..store import verify as check
    from ..store.verify import heads as read_heads

    kept = _kept(heads) if heads is not None else None
    # What is kept is compared before it is replaced: else a cut log would be kept as a good one.
    older = _kept(keep) if keep is not None and keep.exists() else None
    if kept == {}:
        raise typer.BadParameter(f"no head was given: {heads} names no session; {_WANTED}", param_hint="--heads")
    with reading(db) as reader:
        report = check(reader, older if kept is None else kept)
        if report.ok and kept is not None and older:
            report = check(reader, older)
        if report.ok and keep is not None:
            _write(keep, to_json(read_heads(reader)) + "\n")
    _tell(report, older if kept is None else kept, as_json=as_json)
    if not report.ok:
        raise typer.Exit(1)


def _tell(report: "Report", kept: "Heads | None", *, as_json: bool) -> None:
    if as_json:
        seen = {"sessions": report.sessions, "rows": report.rows, "blobs": report.blobs}
        problems = [asdict(one) for one in report.problems]
        say(to_json({"ok": report.ok, **seen, "kept_heads": kept, "problems": problems}))
        return
    for one in report.problems:
        where = f"session {visible(one.session)} seq {one.seq}: " if one.session else ""
        say(f"{where}{visible(one.what)}")
    bad = len(report.problems)
    said = "nothing was changed" if report.ok else f"{counted(bad, 'problem')}; restore a backup"
    against = "" if kept is None else f", {counted(len(kept), 'kept head')}"
    looked_at = ((report.sessions, "session"), (report.rows, "row"), (report.blobs, "blob"))
    say(f"{', '.join(counted(*one) for one in looked_at)}{against}: {said}")


def _write(path: Path, text: str) -> None:
    """All of it or nothing: a half-written file of heads would be no witness."""
    half = path.with_name(f"{path.name}.half")
    half.write_text(text, encoding="ascii")
    half.replace(path)


def _kept(path: Path) -> "dict[str, tuple[int, str]]":
    from ..fsm.errors import Misuse
    from ..store.verify import parse_heads

    try:
        return parse_heads(path.read_bytes())
    except ValueError as error:
        raise Misuse(f"{path} holds no heads: {error}; {_WANTED}") from error
