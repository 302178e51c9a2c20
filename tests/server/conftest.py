"""Fixtures of the server's tests."""

from pathlib import Path

import pytest

from tests.server.support import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A fresh file, clock and ledger."""
    return World(tmp_path)
