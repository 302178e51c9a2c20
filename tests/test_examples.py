"""Each example in examples/ runs as a newcomer would run it, and prints what it is there to show."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What an example must print. `support.py` and `client.py` are run by the tests of the README.
PRINTS = {
    "fork.py": (
        "the fork asks again: pay {'amount': 5, 'to': 'A'}",
        "first from None -> I was told: paid 5 to A",
        "not today",
    ),
    "limits.py": ("interrupt: limit", "interrupt: Here you are.", "terminated: stopped"),
    "group.py": (
        "clerk has left",
        "-> writer, by director 'Role: writer,",
        "by random 'TERMINATE'",
        "ended: max_rounds",
    ),
    "documents.py": (
        "She likes chairs.",
        "And a chair?\\n\\nDocuments, as they are now:\\n\\n[chairs.txt]\\nA chair costs 9.",
        "In the log: And a chair?\n",
    ),
    "sources.py": (
        "message_added: guide/chairs, guide/tables (chairs.svg, tables.svg)",
        "turn_interrupted: guide/chairs (chairs.svg)",
    ),
    "rerank.py": ("tools_called: 5 of 40 by embeddings", "    cancel_flight, ", "always ('find_mail',)"),
    "repeats.py": ("duplicate - Not run: open_ticket runs once per session", "I searched once"),
    "plugins.py": (
        "weather#alarm (plugin), models see weather_alarm_",
        "'@other': ('clock', 'weather#now')",
        "asks: weather#alarm {'city': 'Lima'}, code of the plugin weather",
        "['dry in Lima', 'will ring in Lima']",
    ),
    "flow.py": (
        '2. order {"count":"{{found.stock}}","item":"{{item}}"}',
        "@agent: 2 x chair ordered at 9 each. Thank you kindly!",
    ),
    "mcp_tools.py": (
        "asks: shop#order {'item': 'chair'}, runs on the MCP server shop",
        "ok: a chair costs 9",
        "duplicate: Not run: shop#price needs a pause of 30 s",
        "invalid_arguments: ",
        "outcome_unknown: ",
    ),
    "weak_model.py": ('weather {"city": "Lima"} after 2 tries', "Take an umbrella"),
}
NEEDS = {"mcp_tools.py": "mcp"}
ELSEWHERE = {"support.py", "client.py"}


def test_every_example_is_run() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == set(PRINTS) | ELSEWHERE


@pytest.mark.parametrize("name", PRINTS)
def test_an_example_prints_what_it_shows(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"the extra {NEEDS[name]} is not installed")
    folder = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", folder, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-W", "error", name], cwd=folder, check=False, capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    for text in PRINTS[name]:
        assert text in done.stdout
