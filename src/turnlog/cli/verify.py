"""`turnlog verify`: proof that a log is what was written."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .options import DEFAULT_DB, AsJson, Db, reading
from .text import counted, to_json, visible


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
    from ..store import heads as read_heads
    from ..store import verify as check

    # What is kept is compared before it is replaced: else a cut log would be kept as a good one.
    compare = heads if heads is not None else keep if keep is not None and keep.exists() else None
    kept = _kept(compare) if compare is not None else None
    with reading(db) as reader:
        report = check(reader, kept)
        if report.ok and keep is not None:
            _write(keep, to_json(read_heads(reader)) + "\n")
    if as_json:
        problems = [asdict(one) for one in report.problems]
        print(to_json({"ok": report.ok, "sessions": report.sessions, "rows": report.rows, "problems": problems}))
    else:
        for one in report.problems:
            where = f"session {visible(one.session)} seq {one.seq}: " if one.session else ""
            print(f"{where}{visible(one.what)}")
        bad = len(report.problems)
        said = "nothing was changed" if report.ok else f"{counted(bad, 'problem')}; restore a backup"
        against = "" if kept is None else f", {counted(len(kept), 'kept head')}"
        seen = ((report.sessions, "session"), (report.rows, "row"), (report.blobs, "blob"))
        print(f"{', '.join(counted(*one) for one in seen)}{against}: {said}")
    if not report.ok:
        raise typer.Exit(1)


def _write(path: Path, text: str) -> None:
    """All of it or nothing: a half-written file of heads would be no witness."""
    half = path.with_name(f"{path.name}.half")
    half.write_text(text, encoding="ascii")
    half.replace(path)


def _kept(path: Path) -> dict[str, tuple[int, str]]:
    from ..fsm.errors import Misuse

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(session): (int(seq), str(digest)) for session, (seq, digest) in found.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise Misuse(f"{path} holds no heads ({error}): make it with `turnlog verify --keep {path}`") from error
