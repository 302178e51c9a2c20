"""Fixtures of the command line's tests."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded import record
from turnlog.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, as JSON."""
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of `tests.cli.recorded`; tests read it only."""
    path = tmp_path_factory.mktemp("recorded") / "log.db"
    asyncio.run(record(path))
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def command(*argv: object) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main([str(one) for one in argv])
        assert isinstance(ended.value.code, int)
        told = capsys.readouterr()
        return Ran(ended.value.code, told.out, told.err)

    return command
