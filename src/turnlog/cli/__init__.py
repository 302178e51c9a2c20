"""The command line. `main` is what the console script `turnlog` calls."""

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit: 0 well, 1 it failed, 2 it was called wrongly, 130 interrupted.

    Args:
        argv: the arguments after the program's name; None takes those of the process.
    """
    from .app import run

    sys.exit(run(sys.argv[1:] if argv is None else argv))
