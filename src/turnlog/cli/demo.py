"""`turnlog demo`: a conversation that is killed while it waits for an approval, and goes on."""

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def demo(
    *,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Make this folder and keep it; else a temporary one is used.")
    ] = None,
    unasked: Annotated[bool, typer.Option("--yes", help="Ask nothing, decide as suggested.")] = False,
) -> None:
    """Show a conversation with approvals that survives kill -9. No key, no network, no language model."""
    from ..demo.story import run
    from .lines import ask_line

    ask = ask_line if sys.stdin.isatty() and not unasked else None
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="turnlog-demo-") as made:
            run(Path(made), ask)
    else:
        if folder.exists() and any(folder.iterdir()):
            raise typer.BadParameter(f"{folder} is not empty: name a new folder", param_hint="--folder")
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, ask)
    print(f"\nEverything held. {'Look around' if folder else 'Keep the files with --folder and look around'}: ", end="")
    where = folder / "turnlog.db" if folder else Path("FOLDER/turnlog.db")
    print(f"`turnlog sessions --db {where}`.")
