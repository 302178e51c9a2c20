"""What README.md and the examples say is what happens."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from tests.cli.terminal import environment, turnlog
from turnlog.cli.app import app
from turnlog.fsm.diagram import mermaid
from turnlog.fsm.table import machine

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
# What differs in every run: times, and the random part of an id.
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "TIME"),
    (re.compile(r"\b(r|s|call|g|m)_[0-9a-f]{6,24}\b"), r"\1_ID"),
)


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def fixed(text: str) -> list[str]:
    """The words of a text without what varies: how it is wrapped does not matter."""
    for pattern, put in VARIES:
        text = pattern.sub(put, text)
    return text.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the code of the README was run."""
    made = tmp_path_factory.mktemp("readme")
    (made / "readme.py").write_text(blocks("python")[0])
    done = subprocess.run(
        [sys.executable, "readme.py"], cwd=made, check=True, capture_output=True, text=True, timeout=60,
        env=environment(),
    )  # fmt: skip
    (made / "printed").write_text(done.stdout)
    return made


def test_the_code_of_the_readme_prints_what_stands_below_it(folder: Path) -> None:
    assert (folder / "printed").read_text() in blocks("text")


def test_the_commands_shown_in_the_readme_print_what_stands_below_them(folder: Path) -> None:
    shown = [block for block in blocks("console") if block.startswith("$ turnlog ")]
    assert len(shown) == 2
    for block in shown:
        command, printed = block.split("\n", 1)
        done = turnlog(*command.split()[2:], folder=folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert fixed(done.stdout) == fixed(printed)


def test_the_readme_lists_every_command_with_its_own_words() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a group has commands
    first = {name: re.split(r"\.\s", str(one.help))[0].rstrip(".") for name, one in commands.items()}
    listed = [line for line in README.splitlines() if line.startswith("| `turnlog ")]
    assert listed == [f"| `turnlog {name}` | {words} |" for name, words in first.items()]


def test_options_and_verbs_that_the_readme_names_exist() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]  # a group has commands
    options = {opt for one in commands.values() for param in one.params for opt in param.opts} | {"--help"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) <= options
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    verbs = set(re.findall(r"\bmake ([a-z][a-z-]*)", README))
    assert verbs >= {"demo", "test"}
    assert [verb for verb in verbs if not re.search(rf"^{verb}:", makefile, re.MULTILINE)] == []


def test_every_file_that_the_readme_names_is_there() -> None:
    named = re.findall(r"`((?:[a-z]+/)+[\w.]+\.\w+|[A-Z]+\.md)`", README)
    assert len(named) >= 10
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_readme_has_no_link_that_leads_nowhere_on_a_package_index() -> None:
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"|^\[[^]]+\]: *(\S+)", README, re.MULTILINE)
    assert [one for one in targets if not "".join(one).startswith(("https://", "#"))] == []


def test_the_picture_in_the_readme_is_drawn_from_the_table() -> None:
    (picture,) = blocks("mermaid")
    head, *arrows = picture.splitlines()
    drawn = mermaid(machine).splitlines()
    assert head == drawn[0]
    assert arrows == [line for line in drawn if " --> " in line and "[*]" not in line]


def test_the_readme_is_short() -> None:
    assert 100 <= len(README.splitlines()) <= 150


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of the examples, so that nothing is written beside them."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "examples"


def test_the_example_application_can_be_chatted_with(examples: Path) -> None:
    given = 'My chair?\ne\n{"order": "A2", "euros": 30}\n'
    done = turnlog("chat", "--app", "support:agents", folder=examples, given=given)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the bank takes 30 euros" in done.stdout
    assert re.search(r"ok: 30 euros for A2 are on their way, key s_\w+:call_\w+", done.stdout)
    assert "I have done what I may." in done.stdout


def test_the_example_client_sees_every_row_and_approves(examples: Path) -> None:
    done = subprocess.run(
        [sys.executable, "client.py"], cwd=examples, check=True, capture_output=True, text=True, timeout=60,
        env=environment(),
    )  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(seq) for seq, *_ in lines] == list(range(1, len(lines) + 1))
    kinds = [kind for *_, kind in lines]
    assert kinds.count("approval_resolved") == 1
    assert kinds[-1] == "turn_interrupted"
    (one,) = json.loads(turnlog("audit", "--db", "client.db", "--json", folder=examples).stdout)[0]["requests"]
    assert (one["edited"], one["result"]) == ({"order": "A2", "euros": 35}, "ok")
