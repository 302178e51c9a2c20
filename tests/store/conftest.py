"""A fresh log for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog.store import SQLiteLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[SQLiteLog]:
    with SQLiteLog(path) as opened:
        yield opened
