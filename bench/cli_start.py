"""CPU seconds that short commands take, the best of five runs each. Run it as `python bench/cli_start.py`."""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from turnlog.store import SQLiteLog

LIMIT = 0.5


def cpu_seconds(*argv: str) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "turnlog", *argv]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Print a line for each command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        SQLiteLog(path).close()
        for argv in (["--help"], ["sessions", "--db", str(path)], ["audit", "--db", str(path)]):
            best = min(cpu_seconds(*argv) for _ in range(5))
            verdict = "" if best < LIMIT else f"  above {LIMIT} s"
            print(f"turnlog {argv[0]:<10} {best:.2f} CPU s{verdict}")


if __name__ == "__main__":
    main()
