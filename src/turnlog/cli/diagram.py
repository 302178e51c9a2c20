"""`turnlog diagram`: the machine as a picture, drawn from its table."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import AsJson
from .text import say, to_json


class Format(StrEnum):
    """How the machine is drawn."""

    MERMAID = "mermaid"
    SVG = "svg"
    TABLE = "table"


def diagram(
    *,
    form: Annotated[Format, typer.Option("--format", help="How to draw it.")] = Format.MERMAID,
    write: Annotated[Path | None, typer.Option("--write", help="Write all three into this folder.")] = None,
    as_json: AsJson = False,
) -> None:
    """Draw the states and what leads from one to the next."""
    from ..fsm.diagram import FILES, arrows, markdown, mermaid, svg
    from ..fsm.table import machine

    if write is not None:
        if not write.is_dir():
            raise typer.BadParameter(f"there is no folder {write}: create it first", param_hint="--write")
        for name, draw in FILES.items():
            (write / name).write_text(draw(machine), encoding="utf-8")
            say(str(write / name))
    elif as_json:
        say(to_json([{"from": source, "kind": kind, "to": target} for source, kind, target in arrows(machine)]))
    else:
        draw = {Format.MERMAID: mermaid, Format.SVG: svg, Format.TABLE: markdown}[form]
        say(draw(machine), end="")
