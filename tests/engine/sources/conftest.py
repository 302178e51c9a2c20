"""Fixtures: a real MCP server."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.sources.shop import PROGRAM, Shop


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """The program; without the package there is none."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    return Shop(tmp_path)


@pytest.fixture
def web(shop: Shop) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The same server over HTTP: its URL and its process."""
    command = [sys.executable, str(PROGRAM), "--http"]
    with subprocess.Popen(command, env={**os.environ, **shop.env}, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp", process
        finally:
            process.kill()
