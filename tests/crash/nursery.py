"""Forks a fresh process for each job, from a parent that has imported everything and started nothing.

A new interpreter takes most of a second to import what it needs; a fork takes none, and dies of SIGKILL just as well.
Reads jobs as JSON lines, answers each with the pid at once and with the wait status when it has ended.
"""

import json
import os
import sys
import traceback

from tests.crash import child


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _live(order)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


def _live(order: dict[str, str]) -> None:
    out = os.open(order["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    code = 1
    try:
        child.live(child.job_of(order["job"]))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent reads what it was
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
