"""Runs pytest again and again in forks of one process that has the libraries loaded, but nothing of turnlog.

Each line of stdin is a JSON list of pytest arguments; each line of stdout answers [exit code, output].
"""

import json
import os
import sys
import tempfile
import traceback
from importlib import import_module
from pathlib import Path

import hypothesis
import pydantic
import pytest

LIBRARIES = ("hypothesis.stateful", "hypothesis.strategies", "sqlite_utils", "transitions")


def load() -> None:
    """What each fork finds done: what pydantic needs, and a profile that finds a fault without making it smaller."""
    hypothesis.settings.register_profile("mutant", deadline=None, derandomize=True, phases=[hypothesis.Phase.generate])

    for name in LIBRARIES:
        import_module(name)

    class _Model(pydantic.BaseModel):
        value: int | list[str] = 0

    _Model.model_validate({"value": 1}).model_dump_json()


def once(arguments: list[str]) -> tuple[int, str]:
    """One run in a child of this process."""
    with tempfile.NamedTemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            code = 70
            try:
                code = int(pytest.main(arguments))
            except BaseException:  # noqa: BLE001 - this process ends here, and its output is read
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        text = Path(output.name).read_text(encoding="utf-8", errors="replace")
    return os.waitstatus_to_exitcode(status), text


if __name__ == "__main__":
    load()
    for line in sys.stdin:
        print(json.dumps(once(json.loads(line))), flush=True)
