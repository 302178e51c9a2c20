"""The tree keeps the rules of house.py, and each rule is known to be able to fail."""

import tomllib
from pathlib import Path

import pytest

from tests.house import FUNCTION_LINES, LAYERS, MODULE_LINES, RULES

ROOT = Path(__file__).resolve().parent.parent


def complaints(rule: str, root: Path) -> list[str]:
    return list(RULES[rule](root))


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("rule", RULES)
def test_the_tree_keeps_the_rule(rule: str) -> None:
    assert complaints(rule, ROOT) == []


@pytest.mark.parametrize("name", LAYERS)
def test_src_turnlog_links_to_the_folder(name: str) -> None:
    link = ROOT / "src" / "turnlog" / name
    assert link.is_symlink()
    assert link.readlink() == Path("..", "..", name)


DOC = '"""Doc."""\n'
WORDS = (
    "/work" + "/main",
    "/root" + "/.pyenv",
    "/home" + "/ann",
    "/Users" + "/ann",
    "https://pypi" + ".org/simple",
)

IMPURE = """
    time datetime random secrets uuid os os.path sys pathlib io tempfile socket ssl select threading asyncio
    multiprocessing concurrent.futures sqlite3 sqlite_utils subprocess logging ctypes importlib websockets
"""

PLANTED = [
    ("upward_imports", "fsm/a.py", "from ..store import EventLog", "fsm imports turnlog.store.EventLog"),
    ("upward_imports", "fsm/a.py", "from .. import engine", "fsm imports turnlog.engine"),
    ("upward_imports", "store/a.py", "import turnlog.engine.hub", "store imports turnlog.engine.hub"),
    (
        "upward_imports",
        "store/a.py",
        "def f():\n    from turnlog import Engine",
        "store imports turnlog.Engine",
    ),
    (
        "upward_imports",
        "engine/tools/a.py",
        "from ...server import serve",
        "engine imports turnlog.server.serve",
    ),
    ("upward_imports", "engine/a.py", "import_module('turnlog.server')", "engine imports turnlog.server"),
    ("upward_imports", "server/a.py", "from ..cli import main", "server imports turnlog.cli.main"),
    ("upward_imports", "tests/store/a.py", "from store import EventLog", "imports store.EventLog"),
    ("impure", "store/a.py", "import asyncio", "store is synchronous"),
    ("impure", "fsm/a.py", "from transitions.extensions.asyncio import AsyncMachine", "fsm may not import"),
    *(("impure", "fsm/a.py", f"def f():\n    import {name}", f"fsm may not import {name}") for name in IMPURE.split()),
    *(
        ("impure", "fsm/a.py", f"{name}('x')", f"fsm may not call {name}")
        for name in ("open", "print", "input", "eval")
    ),
    ("impure", "fsm/a.py", "__import__('time').time()", "fsm may not import time"),
    ("too_long", "bench/a.py", "x = 1\n" * (MODULE_LINES + 1), "401 lines, 400 at most"),
    ("too_long", "tests/a.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES, "f has 61 lines, 60 at most"),
    (
        "too_long",
        "fsm/a.py",
        "class A:\n  async def f():\n" + "    x = 1\n" * FUNCTION_LINES,
        "f has 61 lines",
    ),
    *(("foreign_words", "docs/a.md", f"see {word} there", "must not be in the project") for word in WORDS),
    ("foreign_words", ".ci/run", WORDS[0], "must not be in the project"),
    ("foreign_words", "Makefile", WORDS[-1], "must not be in the project"),
    ("undocumented", "fsm/a.py", "x = 1", "the module has no docstring"),
    ("undocumented", "store/a.py", DOC + "def f(): ...", "f has no docstring"),
    ("undocumented", "src/turnlog/cli/a.py", DOC + "class A: ...", "A has no docstring"),
    (
        "undocumented",
        "server/a.py",
        f"{DOC}class A:\n    {DOC}    async def f(self): ...",
        "A.f has no docstring",
    ),
    ("unreasoned", "fsm/a.py", "x = 1  # noqa: E501", "gives no reason"),
    ("unreasoned", "fsm/a.py", "x = 1  # noqa - it is long", "silences every check"),
    ("unreasoned", "tests/a.py", "x = 1  # type: ignore[arg-type]", "gives no reason"),
    ("unreasoned", "tests/a.py", "x = 1  # type: ignore  # bad stubs", "silences every check"),
    ("unreasoned", "tests/a.py", "x = 1  # type: ignore[misc]  # noqa: E501", "gives no reason"),
    ("unreasoned", "tests/a.py", "# ruff: noqa: E501, D100", "gives no reason"),
    ("unreasoned", "tests/a.py", "x = 1  # pragma: no cover", "gives no reason"),
    ("unreasoned", "tests/a.py", "@pytest.mark.skip\ndef test_a(): ...", "skip without a reason"),
    ("unreasoned", "tests/a.py", "@pytest.mark.skipif(True)\ndef test_a(): ...", "skipif without a reason"),
    ("unreasoned", "tests/a.py", "def test_a():\n    pytest.skip()", "skip without a reason"),
]


@pytest.mark.parametrize(("rule", "name", "text", "expected"), PLANTED)
def test_a_planted_violation_is_found(tmp_path: Path, rule: str, name: str, text: str, expected: str) -> None:
    plant(tmp_path, name, text)
    found = complaints(rule, tmp_path)
    assert any(expected in complaint and name in complaint for complaint in found), found


GOOD = {
    "fsm/a.py": f"{DOC}import json\nfrom collections.abc import Mapping\nfrom .b import B\n",
    "fsm/b.py": f"{DOC}def f(input):\n    {DOC}    return input\n",
    "store/a.py": f"{DOC}import sqlite3\nfrom ..fsm import Session\nfrom turnlog.fsm import Row\n",
    "engine/tools/a.py": f"{DOC}import asyncio\nfrom ..hub import Hub\nfrom ...store import EventLog\n",
    "src/turnlog/cli/a.py": f"{DOC}from turnlog.server import serve\nfrom .. import Agent\n",
    "src/turnlog/cli/b.py": f"{DOC}@overload\ndef f(): ...\ndef _f(): ...\n",
    "src/turnlog/cli/c.py": f"{DOC}class A:\n    {DOC}    def _g(self): ...\n",
    "tests/a.py": "import time\nx = 1  # noqa: E501 - a table\ny = 2  # type: ignore[misc]  # untyped\n",
    "tests/b.py": "x = 1  # why noqa: is not wanted\ny = [1,  2]  # fmt: skip\n",
    "tests/c.py": "x = 1\n" * MODULE_LINES,
    "tests/d.py": "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1),
    "tests/e.py": "@pytest.mark.skipif(True, reason='no strace')\ndef f(): ...\n",
    "diagrams/a.py": "# Generated by `make diagrams`.\n" + "x = 1\n" * MODULE_LINES,
    "docs/a.md": "Put it in ~/work/ or /var/lib/turnlog.\n",
    ".venv/lib/a.py": "x = 1\n" * (MODULE_LINES + 1),
    "env/pyvenv.cfg": "",
    "env/a.py": "x = 1\n" * (MODULE_LINES + 1),
}


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_complains_about_what_is_right(tmp_path: Path, rule: str) -> None:
    for name, text in GOOD.items():
        plant(tmp_path, name, text)
    assert complaints(rule, tmp_path) == []


def test_each_rule_that_ruff_ignores_has_its_reason_beside_it() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lint = tomllib.loads(text)["tool"]["ruff"]["lint"]
    ignored = set(lint["ignore"]).union(*lint["per-file-ignores"].values())
    lines = [line.strip() for line in text.splitlines()]
    for code in ignored:
        entries = [line for line in lines if line.startswith(f'"{code}"')]
        assert entries, code
        assert all("# " in entry for entry in entries), entries
