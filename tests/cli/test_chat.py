"""`turnlog chat`."""

import asyncio
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.terminal import Terminal, environment, turnlog
from turnlog import Agent, Engine
from turnlog.cli.card import Word, ask_word, card
from turnlog.engine.models.scripted import ScriptedModel
from turnlog.fsm.events import ApprovalRequested

QUESTIONING = '''
from turnlog import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say

HIDDEN = "Ann\\u202e\\x1b[2KBob"


@tool(needs_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def hidden():
    return Agent("@agent", ScriptedModel([call(("pay", {"to": HIDDEN})), say(f"Paid {HIDDEN}.")]))
'''


@pytest.mark.field(129)
def test_a_card_shows_all_of_the_arguments_escaped_with_their_digest() -> None:
    asked = ApprovalRequested(
        request_id="r1", call_id="c1", tool="pay", digest="d" * 64, risk="spends money\x1b[2K",
        arguments={"to": "Ann\u202e" + " " * 10_000 + "Bob" + "x" * 5000}, deadline=61_000,
    )  # fmt: skip
    lines = card(asked, 1_000)
    assert lines[0] == 'pay {"to": "Ann\\u{202e}\\u{20*10000}Bob' + "x" * 5000 + '"}'
    assert lines[1:] == [
        "  risk: spends money\\u{1b}[2K",
        "  request r1",
        f"  sha256 of the arguments {'d' * 64}",
        "  60 seconds left, then it is not allowed",
    ]


def test_the_card_of_an_unknown_outcome_says_that_it_is_given_up_at_the_deadline() -> None:
    request = asked("outcome_unknown").model_copy(update={"deadline": 61_000})
    assert card(request, 1_000)[-1] == "  60 seconds left, then it is given up and not run again"


def asked(why: str = "gated") -> ApprovalRequested:
    """A request."""
    return ApprovalRequested.model_validate({
        "request_id": "r1", "call_id": "c1", "tool": "pay", "digest": "d", "arguments": {"to": "Ann"}, "why": why,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("said", "why", "word"),
    [
        (["y"], "gated", Word("approved")),
        (["Approve"], "gated", Word("approved")),
        (["n", "too much"], "gated", Word("denied", reason="too much")),
        (["e", "no", "[1]", '{"to": "Bob"}'], "gated", Word("approved", {"to": "Bob"})),
        (["", "x", "d", ""], "gated", Word("denied")),
        (["a", "r"], "outcome_unknown", Word("approved")),
        (["y", "e", "c", "it was paid"], "outcome_unknown", Word("committed", result="it was paid")),
        (["give up", ""], "outcome_unknown", Word("denied")),
    ],
)
def test_a_person_is_asked_until_there_is_a_word(said: list[str], why: str, word: Word) -> None:
    answers = iter(said)
    assert ask_word(asked(why), lambda _: next(answers)) == word
    assert list(answers) == []


def test_an_empty_answer_takes_the_default_and_only_where_there_is_one() -> None:
    word = Word("approved", {"to": "Bob"})
    prompts: list[str] = []

    def nothing(prompt: str) -> str:
        prompts.append(prompt)
        return ""

    assert ask_word(asked(), nothing, word) is word
    assert 'Enter: approve {"to": "Bob"}' in prompts[0]


def test_without_a_terminal_a_chat_reads_its_input_and_ends_with_it(tmp_path: Path) -> None:
    done = turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\nn\nno\ny\n\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "The model is scripted, not an LLM" in done.stdout
    assert "Done. There was no report of an earlier clean-up." in done.stdout
    assert 'denied via person because "no"' in done.stdout
    assert not (tmp_path / "turnlog.db.files" / "debug.log").exists()
    assert (tmp_path / "turnlog.db.files" / "app.log").exists()


def test_a_chat_that_was_left_while_a_call_waits_goes_on_with_the_same_request(tmp_path: Path) -> None:
    first = turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\n")
    session = re.search(r"turnlog chat --session (\S+) --db", first.stdout)
    assert session is not None
    again = turnlog("chat", "--model", "scripted", "--session", session[1], folder=tmp_path, given="y\nn\n\n\n")
    assert re.findall(r"^  request (\S+)$", again.stdout, re.MULTILINE)[:1] == re.findall(
        r"^  request (\S+)$", first.stdout, re.MULTILINE
    )
    assert not (tmp_path / "turnlog.db.files" / "app.log").exists()


def test_a_person_at_a_terminal_approves_edits_retries_and_ends_the_session(tmp_path: Path) -> None:
    chat = Terminal("chat", "--model", "scripted", folder=tmp_path)
    chat.answer([
        ("> ", "/nope"),
        ("/nope is no command", ""),
        ("> ", "Clean up"),
        ("[d] deny", "e"),
        ("a JSON object: ", '{"path": "notes.txt"}'),
        ("[d] deny", "y"),
        ("Enter tries again", ""),
        ("Done. There was no report", "/stop"),
    ])  # fmt: skip
    assert chat.end() == 0
    assert "The session has ended." in chat.told
    left = {one.name for one in (tmp_path / "turnlog.db.files").iterdir()}
    assert left == {"app.log", "app-1.log"}


def test_ctrl_c_leaves_the_chat_and_keeps_the_session(tmp_path: Path, run: Run) -> None:
    chat = Terminal("chat", "--model", "scripted", folder=tmp_path)
    chat.answer([("> ", "Clean up")]).until("[d] deny")
    chat.interrupt()
    assert chat.end() == 130
    assert "Traceback" not in chat.told
    (listed,) = run("sessions", "--db", tmp_path / "turnlog.db", "--json").json
    assert listed["state"] == "awaiting_approval"


@pytest.mark.field(129)
def test_what_a_model_and_a_tool_write_reaches_the_terminal_escaped(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(QUESTIONING)
    done = turnlog("chat", "--app", "app:hidden", folder=tmp_path, given="pay\ny\n")
    assert done.returncode == 0
    assert "Paid Ann\\u{202e}\\u{1b}[2KBob." in done.stdout
    assert not {"\u202e", "\x1b"} & set(done.stdout)


@pytest.mark.parametrize(
    ("argv", "code", "wrong"),
    [
        ((), 2, "name a model: --model openai:NAME or anthropic:NAME (pip install 'turnlog[models]'"),
        (("--model", "openai:any"), 1, "set OPENAI_API_KEY or pass api_key. `turnlog demo` runs without a key"),
        (("--model", "anthropic:any"), 1, "set ANTHROPIC_API_KEY"),
        (("--model", "any"), 1, "'any' names no model: write openai:NAME or anthropic:NAME"),
        (("--model", "any", "--base-url", "x"), 1, "'x' is no base URL"),
        (("--model", "scripted", "--session", "nope"), 1, "no session has the id 'nope'"),
        (
            ("--model", "any", "--base-url", "http://127.0.0.1:9/v1", "--tools", "os:sep"),
            1,
            "gave str, which is no list",
        ),
    ],
)
def test_a_chat_that_cannot_begin_says_why_and_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...], code: int, wrong: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    told = run("chat", *argv, "--db", tmp_path / "log.db")
    assert told.code == code
    assert wrong in told.err
    assert len(told.err.splitlines()) == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "wrong"),
    [
        (("--app", "app:agents", "--model", "scripted"), "--app: it brings its own agents: leave out --model"),
        (("--app", "app:agents", "--role", "x", "--tools", "y:z"), "leave out --tools and --role"),
        (("--model", "scripted", "--base-url", "http://127.0.0.1:9"), "--model: it brings its own agents"),
    ],
)
def test_an_option_that_a_chat_would_not_use_is_refused(
    run: Run, tmp_path: Path, argv: tuple[str, ...], wrong: str
) -> None:
    told = run("chat", *argv, "--db", tmp_path / "log.db")
    assert told.code == 2
    assert wrong in told.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("session", [(), ("--session", "it's\x1b[2J\nmine")])
def test_the_last_line_of_a_chat_can_be_pasted_into_a_shell(tmp_path: Path, session: tuple[str, ...]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash to paste into")
    folder, db = tmp_path / "here", "my log $HOME.db"
    folder.mkdir()
    if session:
        asyncio.run(create(folder / db, session[1]))
    done = turnlog("chat", "--model", "scripted", *session, "--db", db, folder=folder)
    *_, line = done.stdout.splitlines()
    assert line.startswith("turnlog chat --session ")
    assert line.isprintable()
    pasted = subprocess.run(
        [bash, "-c", f'turnlog() {{ {shlex.quote(sys.executable)} -m turnlog "$@"; }}; {line}'],
        input="", capture_output=True, text=True, check=False, cwd=folder, env=environment(), timeout=60,
    )  # fmt: skip
    assert (pasted.returncode, pasted.stderr) == (0, "")
    assert pasted.stdout.splitlines()[-1] == line


async def create(db: Path, session: str) -> None:
    """A log with one session."""
    async with Engine(db, [Agent("@agent", ScriptedModel([]))]) as engine:
        await engine.create(session)


def test_a_chat_says_at_its_start_what_the_environment_lets_run_unasked(tmp_path: Path) -> None:
    chat = Terminal("chat", "--model", "scripted", folder=tmp_path, TURNLOG_AUTO_APPROVE="delete_*")
    chat.answer([("> ", "/quit")])
    assert chat.end() == 0
    assert "TURNLOG_AUTO_APPROVE is set (delete_*): delete_file will run without asking anybody" in chat.told


def test_a_chat_owns_its_log(run: Run, tmp_path: Path) -> None:
    from turnlog.store import SQLiteLog

    with SQLiteLog(tmp_path / "log.db"):
        told = run("chat", "--model", "scripted", "--db", tmp_path / "log.db")
    assert told.code == 1
    assert "is owned by process" in told.err


def test_the_end_of_the_input_tells_what_waits_and_how_to_go_on(tmp_path: Path) -> None:
    left = turnlog("chat", "--model", "scripted", "--db", "a.db", folder=tmp_path, given="Clean up\n")
    assert left.returncode == 0
    told = left.stdout.splitlines()[-3:]
    assert re.fullmatch(r"2 calls without a word\. \d+ seconds left, then it is not allowed", told[0])
    assert told[1] == "The session goes on with:"
    assert re.fullmatch(r"turnlog chat --session \S+ --db \S*a\.db --model scripted", told[2])


def test_a_session_that_failed_says_why_and_how_to_try_again_also_in_a_later_chat(tmp_path: Path) -> None:
    first = turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\nn\nno\nn\nno\n")
    why = "The model failed. overloaded: the provider is overloaded (this is part of the demo)"
    assert why in first.stdout
    assert "Its last turn failed: go on and press Enter to try it again." in first.stdout
    session = re.search(r"--session (\S+) --db", first.stdout)
    assert session is not None
    again = turnlog("chat", "--model", "scripted", "--session", session[1], folder=tmp_path, given="\n")
    assert why in again.stdout
    assert "Done. There was no report" in again.stdout


def test_a_second_chat_in_a_folder_proposes_only_what_is_still_there(tmp_path: Path) -> None:
    turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\ny\nn\nno\n\n")
    second = turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\ny\n\n")
    assert "One log can go." in second.stdout
    assert 'delete_file {"path": "debug.log"}' in second.stdout
    for log in (tmp_path / "turnlog.db.files").glob("*.log"):
        log.unlink()
    third = turnlog("chat", "--model", "scripted", folder=tmp_path, given="Clean up\n")
    assert "No log is left to delete. Remove" in third.stdout


GROUP = """
from turnlog import Agent, tool
from turnlog.engine.models.scripted import ScriptedModel, call, say


@tool(unique=True)
def once() -> str:
    "Runs once."
    return "ran"


def agent():
    return Agent("@agent", ScriptedModel([call(("once", {})), say("A."), call(("once", {})), say("B.")]), tools=[once])
"""


def test_a_person_lets_a_tool_run_again_and_is_told_who_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "repeating.py").write_text(GROUP)
    given = "go\n/rerun once\n/remove nobody\n/rerun\ngo\n"
    done = turnlog("chat", "--app", "repeating:agent", folder=tmp_path, given=given)
    assert done.stdout.count("tool returned") == 2
    assert "once may run again." in done.stdout
    assert "'nobody' is in no group of this session" in done.stdout
    assert "/rerun is no command" in done.stdout
