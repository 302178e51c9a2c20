"""Writes diagrams/: `python -m tests.fsm.write_diagrams` from the root of the repository."""

from pathlib import Path

from turnlog.fsm.diagram import FILES, coverage
from turnlog.fsm.table import machine

from .conversations import walked

FOLDER = Path(__file__).resolve().parents[2] / "diagrams"
COMMAND = "PYTHONPATH=src python -m tests.fsm.write_diagrams"


def drawn() -> dict[str, str]:
    """File name to text."""
    return {**{name: draw(machine) for name, draw in FILES.items()}, "coverage.mmd": coverage(machine, walked())}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
