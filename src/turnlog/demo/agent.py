"""The demo's agent: three tools over a folder of toy files, and a script in place of a language model."""

from pathlib import Path

from ..engine import Agent, Tool, tool
from ..engine.models.base import ModelCall
from ..engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say

MODEL = "scripted, not an LLM"
FILES = {
    "app.log": "the log of today\n",
    "app-1.log": "the log of yesterday\n",
    "debug.log": "what somebody looked for a year ago\n",
    "notes.txt": "keep this\n",
}
PROPOSED = ("app.log", "debug.log")
MISSING = "report.txt"

_SCRIPT: tuple[Step, ...] = (
    call(("list_files", {})),
    call(*(("delete_file", {"path": path}) for path in PROPOSED), text="Two logs can go."),
    call(("read_file", {"path": MISSING}), text="I look for the report of the last clean-up."),
    attempts(
        fail("overloaded", "the provider is overloaded (this is part of the demo)"),
        say("Done. There was no report of an earlier clean-up."),
    ),
)


def step(given: ModelCall) -> Step:
    """The script, over and over."""
    return _SCRIPT[given.index % len(_SCRIPT)]


def fill(folder: Path) -> None:
    """Put the toy files into a folder; one that is there already stays as it is."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for name, text in FILES.items():
            (folder / name).write_text(text, encoding="utf-8")


def ledger(folder: Path) -> Path:
    """Where each deletion leaves a line, outside the folder and outside the log: a witness that is neither."""
    return folder.with_name(f"{folder.name}.deleted")


def tools(folder: Path) -> list[Tool]:
    """The tools over one folder."""

    def inside(path: str) -> Path:
        found = (folder / path).resolve()
        if found.parent != folder.resolve():
            raise ValueError(f"{path} is not in the folder")
        return found

    @tool(idempotent=True)
    def list_files() -> str:
        """List the files of the folder."""
        return "\n".join(sorted(one.name for one in folder.iterdir()))

    @tool(idempotent=True)
    def read_file(path: str) -> str:
        """Read one file of the folder."""
        if not inside(path).exists():
            raise ValueError(f"there is no file {path}")
        return inside(path).read_text(encoding="utf-8")

    @tool(needs_approval=True, risk="deletes a file for good")
    def delete_file(path: str) -> str:
        """Delete one file of the folder."""
        with ledger(folder).open("a", encoding="utf-8") as lines:
            lines.write(f"{path}\n")
        inside(path).unlink()
        return f"{path} is deleted"

    return [list_files, read_file, delete_file]


def demo_agent(folder: Path) -> Agent:
    """The agent of the demo. Its folder is to be filled before it works there."""
    return Agent("@agent", ScriptedModel(step, MODEL), role="You tidy up a folder.", tools=tools(folder))
