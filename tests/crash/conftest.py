"""Fixtures of the crash tests."""

from collections.abc import Iterator

import pytest

from tests.crash.harness import Nurseries


@pytest.fixture(scope="session")
def nurseries() -> Iterator[Nurseries]:
    """Two processes that fork lives."""
    both = Nurseries()
    yield both
    both.close()
