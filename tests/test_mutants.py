"""Every planted fault of `mutants.py` is found by the test that is named for it."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[1]
TREES = ("fsm", "store", "engine", "server", "src", "tests", "diagrams")
PASSED, FAILED = 0, 1  # exit codes of pytest
OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain")


class Nursery:
    """A copy of the source tree, and a process that runs its tests; nothing of turnlog is loaded before a run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for tree in TREES:  # the links in src/turnlog are relative, so they lead into the copy
            shutil.copytree(ROOT / tree, root / tree, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", root)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV"))}
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.mutant_server"],
            cwd=root,
            env={**kept, "HYPOTHESIS_PROFILE": "mutant"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and output of pytest."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps([*OPTIONS, *arguments]) + "\n")
        self.server.stdin.flush()
        code, output = json.loads(self.server.stdout.readline())
        return code, output

    def close(self) -> None:
        """End the process."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait(60)
        self.server.stdout.close()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """One copy and one process for this file's tests."""
    made = Nursery(tmp_path_factory.mktemp("mutants"))
    yield made
    made.close()


def write(path: Path, text: str) -> None:
    """Change a module, and forget what Python compiled of it: within one second it would not see the change."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def title(mutant: Mutant) -> str:
    """A readable id."""
    return f"{mutant.guards}-{Path(mutant.file).stem}-{MUTANTS.index(mutant)}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=title)
def test_a_planted_fault_is_found(mutant: Mutant, nursery: Nursery) -> None:
    path = nursery.root / mutant.file
    text = path.read_text(encoding="utf-8")
    assert text.count(mutant.old) == 1, f"{mutant.file} holds this text {text.count(mutant.old)} times: {mutant.old!r}"
    try:
        write(path, text.replace(mutant.old, mutant.new))
        code, output = nursery.run(mutant.test, "-k", mutant.names)
    finally:
        write(path, text)
    assert code == FAILED, f"exit code {code}, so nobody noticed that {mutant.file} was changed\n{output}"
    assert " failed" in output.splitlines()[-1], output


@pytest.mark.timeout(300)
def test_without_a_fault_the_same_tests_pass(nursery: Nursery) -> None:
    names = " or ".join(sorted({mutant.names for mutant in MUTANTS}))
    code, output = nursery.run(*sorted({mutant.test for mutant in MUTANTS}), "-k", names)
    assert code == PASSED, output


def test_each_invariant_has_two_mutants() -> None:
    counted = Counter(mutant.guards for mutant in MUTANTS)
    assert [number for number in range(1, 11) if counted[number] < 2] == []
