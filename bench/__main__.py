"""Run every benchmark of this folder, one after the other, each in a process of its own: `python -m bench`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """The exit code: 1 when a benchmark failed."""
    failed = 0
    for path in sorted(HERE.glob("[a-z]*.py")):
        print(f"== {path.stem}", flush=True)
        failed |= subprocess.run([sys.executable, str(path)], check=False).returncode  # noqa: S603 - our own file
    return int(failed != 0)


if __name__ == "__main__":
    sys.exit(main())
