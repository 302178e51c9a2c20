"""`turnlog serve`, as a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import environment
from turnlog.demo.process import ServerProcess
from turnlog.fsm.errors import Error
from turnlog.server import Client, ClientError
from turnlog.store import SQLiteLog

APP = """
from turnlog import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, say


def agents():
    return [Agent("@echo", ScriptedModel([say("hello from the app")]))]


def engine():
    return {"agents": agents(), "auto_approve": ["*"]}


@tool(needs_approval=True)
def sell(what: str) -> str:
    "Sell something."
    return "sold"


@tool(needs_approval=True)
def buy(what: str) -> str:
    "Buy something."
    return "bought"


@tool
def look(what: str) -> str:
    "Look at something."
    return "seen"


def once():
    return {"agents": agents(), "tools": iter([sell]), "auto_approve": iter(["*"])}


def trade():
    return {"agents": agents(), "tools": [sell, buy, look]}


def strict():
    return {**trade(), "auto_approve": []}


def failing():
    raise RuntimeError("no database")


nothing = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an application in it."""
    made = tmp_path_factory.mktemp("served")
    (made / "served_app.py").write_text(APP)
    return made


@pytest.fixture
def run_here(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process, in that folder."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return run


class Served:
    """`turnlog serve` in a folder."""

    def __init__(self, folder: Path, *argv: str, **more: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-m", "turnlog", "serve", "--port", "0", *argv],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
            env=environment(**more),
        )  # fmt: skip
        assert self.child.stdout is not None
        self.told: list[str] = []
        while not self.told or not self.told[-1].startswith("token"):
            line = self.child.stdout.readline()
            assert line, self.child.communicate()
            self.told.append(line.rstrip("\n"))
        self.url = self.told[-2].split()[-1]
        self.token = self.told[-1].split()[-1]

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the answer is the exit code and what stood on stderr."""
        if self.child.poll() is None:
            self.child.send_signal(number)
        _, err = self.child.communicate(timeout=60)
        return self.child.returncode, err


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    """The application, served."""
    one = Served(folder, "--app", "served_app:agents", "--db", "log.db")
    yield one
    one.end(signal.SIGKILL)


async def test_an_application_is_served_to_whoever_has_the_token(served: Served) -> None:
    async with await Client.connect(served.url, served.token) as client:
        reply = await client.create()
        feed = await client.open(reply.session)
        await client.send(reply.session, "hi")
        await feed.until("message_added")
        said = await feed.until("message_added")
        assert said.body is not None
        assert said.body["text"] == "hello from the app"
    with pytest.raises(ClientError, match="unauth"):
        await Client.connect(served.url, "x" * 40)


def test_a_second_server_on_one_log_refuses_and_names_the_owner(served: Served, run_here: Run) -> None:
    second = run_here("serve", "--app", "served_app:agents", "--db", "log.db", "--port", "0")
    assert second.code == 1
    assert f"is owned by process {served.child.pid} on " in second.err
    assert "(turnlog serve)" in second.err
    assert len(second.err.splitlines()) == 1


def test_without_an_application_the_demo_is_served_and_it_is_said(folder: Path) -> None:
    one = Served(folder, "--db", "demo.db")
    assert one.end(signal.SIGINT) == (0, "")
    assert one.told[0].startswith("No --app: the demo's agent answers (its model is scripted, not an LLM)")
    assert not (folder / "demo.db.files").exists()  # no tool has looked for a file


@pytest.mark.parametrize("text", ["", "short\n"])
def test_a_token_file_without_a_good_token_is_refused_before_a_log_is_made(run_here: Run, text: str) -> None:
    Path("bad-token").write_text(text)
    done = run_here("serve", "--app", "served_app:agents", "--db", "unmade.db", "--token-file", "bad-token")
    assert done.code == 1
    assert "is shorter than" in done.err
    assert list(Path().glob("unmade.db*")) == []


def test_what_an_application_gives_once_is_still_there_after_it_was_tried(folder: Path) -> None:
    one = Served(folder, "--app", "served_app:once", "--db", "once.db")
    assert one.end() == (0, "")
    assert one.told[0] == "the application's auto_approve (*): sell will run without asking anybody"


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ("sell,bu*", "TURNLOG_AUTO_APPROVE is set (sell,bu*): sell, buy will run without asking anybody"),
        ("x\x1b[2J", "TURNLOG_AUTO_APPROVE is set (x\\u{1b}[2J): it names no tool that needs approval"),
    ],
)
def test_a_server_says_at_its_start_what_the_environment_lets_run_unasked(folder: Path, listed: str, told: str) -> None:
    one = Served(folder, "--app", "served_app:trade", "--db", "trade.db", TURNLOG_AUTO_APPROVE=listed)
    assert one.end() == (0, "")
    assert one.told[0] == told


@pytest.mark.parametrize(("app", "listed"), [("trade", ""), ("strict", "all")])
def test_a_server_that_lets_nothing_run_unasked_says_nothing_of_it(folder: Path, app: str, listed: str) -> None:
    one = Served(folder, "--app", f"served_app:{app}", "--db", "trade.db", TURNLOG_AUTO_APPROVE=listed)
    assert one.end() == (0, "")
    assert one.told[0].startswith("turnlog serves ")


def test_a_token_file_is_made_for_its_owner_alone_and_used_again(folder: Path) -> None:
    tokens = []
    for _ in range(2):
        one = Served(folder, "--app", "served_app:engine", "--db", "token.db", "--token-file", "token")
        assert one.end(signal.SIGTERM) == (0, "")
        assert one.told[-1] == "token in token"
        tokens.append((folder / "token").read_text().strip())
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) > 40
    assert (folder / "token").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("app", "wrong"),
    [
        ("app", "'app' is not module:attribute: write for example app:agents"),
        ("nothing_here:x", "No module named 'nothing_here'"),
        ("served_app:missing", "has no attribute 'missing'"),
        ("served_app:failing", "RuntimeError: no database"),
        ("served_app:nothing", "gave int, which is not a list of Agent"),
        ("os:environ", "the application does not fit Engine"),
    ],
)
def test_an_application_that_cannot_be_used_is_named_in_one_line(run_here: Run, app: str, wrong: str) -> None:
    done = run_here("serve", "--app", app, "--db", "unmade.db", "--port", "0")
    assert done.code == 1
    assert wrong in done.err
    assert len(done.err.splitlines()) == 1
    assert list(Path().glob("unmade.db*")) == []


def test_an_address_that_others_can_reach_needs_a_token_of_our_own(run_here: Run) -> None:
    done = run_here("serve", "--app", "served_app:agents", "--db", "unmade.db", "--host", "0.0.0.0")
    assert done.code == 1
    assert list(Path().glob("unmade.db*")) == []
    assert "give tokens (`turnlog serve --token-file FILE`), or listen on 127.0.0.1" in done.err


def test_a_port_that_is_taken_is_an_error_with_the_next_step(served: Served, run_here: Run) -> None:
    port = served.url.split(":")[2].split("/")[0]
    done = run_here("serve", "--app", "served_app:agents", "--db", "other.db", "--port", port)
    assert done.code == 1
    assert done.err.startswith(f"turnlog: cannot listen on 127.0.0.1:{port}: ")
    assert "choose another --host or --port" in done.err


def test_a_log_that_fails_ends_the_server_with_an_error(run_here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # The failure is planted in this process: the event that the engine sets when a commit failed.
    from turnlog.engine import Engine
    from turnlog.fsm.errors import StorageFailed

    start = Engine.start

    async def fails(self: Engine) -> None:
        await start(self)
        self.failure = StorageFailed("the disk said no: reopen the file")
        self.failed.set()

    monkeypatch.setattr(Engine, "start", fails)
    told = run_here("serve", "--app", "served_app:agents", "--db", "other.db", "--port", 0)
    assert told.code == 1
    assert told.err == "turnlog: the disk said no: reopen the file\n"


def test_a_server_that_cannot_start_tells_the_demo_why(tmp_path: Path) -> None:
    with SQLiteLog(tmp_path / "log.db"), pytest.raises(Error, match=f"owned by process {os.getpid()} on"):
        ServerProcess(tmp_path / "log.db", tmp_path / "token")
