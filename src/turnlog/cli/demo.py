"""`turnlog demo`: a conversation that is killed while it waits for an approval, and goes on."""

import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .options import command
from .text import say


def demo(
    *,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Make this folder and keep it; else a temporary one is used.")
    ] = None,
    unasked: Annotated[bool, typer.Option("--yes", help="Ask nothing, decide as suggested.")] = False,
) -> None:
    """Show a conversation with approvals that survives kill -9. No key, no network, no language model."""
    from ..demo.story import run
    from ..engine.tools.registry import AUTO_APPROVE
    from .lines import ask_line

    if os.environ.get(AUTO_APPROVE):
        say(f"{AUTO_APPROVE} is set, and is left out here: in the demo nothing runs unasked")

    ask = ask_line if sys.stdin.isatty() and not unasked else None
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="turnlog-demo-") as made:
            run(Path(made), ask)
    else:
        if folder.exists() and any(folder.iterdir()):
            raise typer.BadParameter(f"{folder} is not empty: name a new folder", param_hint="--folder")
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, ask)
    where = folder / "turnlog.db" if folder else "FOLDER/turnlog.db"
    look = "Look around" if folder else "Keep the files with --folder and look around"
    say(f"\nEverything held. {look}: `{command('sessions', '--db', where)}`.")
