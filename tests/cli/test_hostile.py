"""A log whose ids and names were chosen by somebody who wants to move the terminal: nothing reaches it raw."""

import ast
import asyncio
import shutil
import sqlite3
import unicodedata
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import turnlog
from tests.fakes import FakeClock, Ids
from turnlog import Agent, Conversation, Engine, tool
from turnlog.cli import text
from turnlog.engine.models.scripted import ScriptedModel, call, say
from turnlog.fsm import inputs as inp
from turnlog.fsm.events import Limits

# Clears the screen, sets the title, turns the direction of writing, and begins a line of its own.
EVIL = "\x1b[2J\x1b]0;x\x07\u202e\u200b\nFORGED"
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
APP = f'''
from turnlog import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, say


@tool(needs_approval=True, risk="risk{EVIL!r}")
def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"


def agents():
    return [Agent({"@agent" + EVIL!r}, ScriptedModel([say("never")] * 9), tools=[pay])]
'''


@tool(needs_approval=True, risk="risk" + EVIL)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


async def record(path: Path) -> None:
    ids = Ids()

    def new_id(prefix: str) -> str:
        return ids(prefix) + EVIL

    model = ScriptedModel([call(("pay", {"to": EVIL}), ("pay", {"to": "Bob"})), say(f"Paid {EVIL}.")] * 2, "m" + EVIL)
    agent = Agent("@agent" + EVIL, model, tools=[pay], role="r")
    log = Engine(path, [agent], clock=FakeClock(), new_id=new_id, limits=Limits(approval_seconds=10**9))
    async with log as engine:
        conversation = await engine.create("s" + EVIL, owner="ann" + EVIL)
        await settle(conversation)
        await conversation.send("Pay" + EVIL, by="ann")


async def settle(c: Conversation) -> None:
    """One round with every sort of word: approved with others, denied, late, on nothing."""
    await c.grant("other", by="ann" + EVIL)
    first, second = (await c.send("Pay", by="ann" + EVIL)).requests
    await c.apply(inp.Show(first.request_id, first.digest, "conn" + EVIL, "person:ann" + EVIL))
    await c.decide(first, "approved", by="ann" + EVIL, arguments={"to": "Ann" + EVIL})
    await c.apply(inp.Decide(first.request_id, first.digest, "denied", "person:eve" + EVIL))
    await c.apply(inp.Decide("guessed" + EVIL, first.digest, "denied", "person:eve" + EVIL))
    await c.decide(second, "denied", by="ann" + EVIL, reason="why" + EVIL)
    await c.rest()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "log.db"
    asyncio.run(record(path))
    return path


def harmless(out: str) -> None:
    """Every character is to be seen, and no line was begun by the log."""
    assert "FORGED" in out
    assert [char for char in out if char != "\n" and unicodedata.category(char) in HIDDEN] == []
    assert [line for line in out.splitlines() if line.startswith("FORGED")] == []


@pytest.mark.field(129)
@pytest.mark.parametrize(
    "argv",
    [
        ("sessions",),
        ("replay", "s" + EVIL),
        ("replay", "s" + EVIL, "--history"),
        ("replay", "s" + EVIL, "--from", "USER"),
        ("audit",),
        ("audit", "s" + EVIL, "--all"),
    ],
)
def test_hostile_ids_and_names_reach_no_terminal_raw(run: Run, log: Path, argv: tuple[str, ...]) -> None:
    told = run(*argv, "--db", log)
    assert told.code == 0
    harmless(told.out)


@pytest.mark.field(129)
@pytest.mark.parametrize(
    "argv",
    [
        ("replay", "other" + EVIL),
        ("replay", "s" + EVIL, "--to", 999),
        ("replay", "s" + EVIL, "--history", "--as", "nobody"),
        ("audit", "other" + EVIL),
        ("chat", "--model", "scripted", "--session", "other" + EVIL),
        ("sessions", "--db", EVIL),
    ],
)
def test_an_error_that_names_something_hostile_is_harmless_too(
    run: Run, log: Path, argv: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(log, tmp_path / "log.db")
    monkeypatch.setenv("TURNLOG_DB", str(tmp_path / "log.db"))
    told = run(*argv)
    assert told.code != 0
    assert "Traceback" not in told.err
    assert [char for char in told.err + told.out if char != "\n" and unicodedata.category(char) in HIDDEN] == []


@pytest.mark.field(129)
def test_what_verify_finds_in_a_hostile_session_is_harmless(run: Run, log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "log.db"
    shutil.copy(log, copy)
    connection = sqlite3.connect(copy)
    connection.executescript("DROP TRIGGER events_no_update; UPDATE events SET body = '{' WHERE seq = 3")
    connection.close()
    for command in ("verify", "audit", "sessions"):
        harmless(run(command, "--db", copy).out)


@pytest.mark.field(129)
def test_the_card_of_a_hostile_request_and_the_chat_around_it_are_harmless(log: Path, tmp_path: Path) -> None:
    shutil.copy(log, tmp_path / "log.db")
    (tmp_path / "app.py").write_text(APP)
    done = turnlog(
        "chat", "--app", "app:agents", "--session", "s" + EVIL, "--db", "log.db", folder=tmp_path, given="y\n"
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "  request r" in done.stdout
    harmless(done.stdout)


@pytest.mark.field(129)
def test_a_line_that_forgot_to_escape_is_escaped_where_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text.say("a\x1b[2Jb\u202e\nc", colour="red")
    assert capsys.readouterr().out == "a\\u{1b}[2Jb\\u{202e}\nc\n"


def test_the_command_line_prints_through_one_function() -> None:
    folder = Path(text.__file__).parent
    found = [
        file.name
        for file in (*folder.glob("*.py"), *folder.parent.joinpath("demo").glob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "sys.stdout.write", "typer.echo", "input")
    ]
    assert found == ["text.py"]
