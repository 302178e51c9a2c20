"""The demo's agent: three tools over a folder of toy files, and a script in place of a language model."""

from collections.abc import Callable
from pathlib import Path

from ..engine import Agent, Tool, tool
from ..engine.models.base import ModelCall
from ..engine.models.scripted import ScriptedModel, Step, attempts, call, fail, say
from ..fsm.history import ToolMessage

MODEL = "scripted, not an LLM"
FILES = {
    "app.log": "the log of today\n",
    "app-1.log": "the log of yesterday\n",
    "debug.log": "what somebody looked for a year ago\n",
    "notes.txt": "keep this\n",
}
PROPOSED = ("app.log", "debug.log")
MISSING = "report.txt"

_REPORT = call(("read_file", {"path": MISSING}), text="I look for the report of the last clean-up.")
_END = attempts(
    fail("overloaded", "the provider is overloaded (this is part of the demo)"),
    say("Done. There was no report of an earlier clean-up."),
)


def script(folder: Path) -> Callable[[ModelCall], Step]:
    """What the model does next. It follows from what it is shown, as with a language model."""

    def step(given: ModelCall) -> Step:
        match given.messages[-1]:
            case ToolMessage(name="list_files", content=files):
                return _proposal(files.split("\n"), folder)
            case ToolMessage(name="delete_file"):
                return _REPORT
            case ToolMessage():
                return _END
            case _:
                return call(("list_files", {}))

    return step


def _proposal(files: list[str], folder: Path) -> Step:
    logs = [one for one in files if one.endswith(".log")]
    found = [one for one in PROPOSED if one in logs] or logs
    if not found:
        return say(f"No log is left to delete. Remove {folder} to get the toy files again.")
    told = "Two logs can go." if len(found) == len(PROPOSED) else "One log can go."
    return call(*(("delete_file", {"path": path}) for path in found), text=told)


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
    """The tools over one folder, which is made when one of them is first used."""

    def existing(path: str) -> Path:
        fill(folder)
        found = (folder / path).resolve()
        if found.parent != folder.resolve():
            raise ValueError(f"{path} is not in the folder")
        if not found.is_file():
            raise ValueError(f"there is no file {path}")
        return found

    @tool(idempotent=True)
    def list_files() -> str:
        """List the files of the folder."""
        fill(folder)
        return "\n".join(sorted(one.name for one in folder.iterdir()))

    @tool(idempotent=True)
    def read_file(path: str) -> str:
        """Read one file of the folder."""
        return existing(path).read_text(encoding="utf-8")

    @tool(needs_approval=True, risk="deletes a file for good")
    def delete_file(path: str) -> str:
        """Delete one file of the folder."""
        with ledger(folder).open("a", encoding="utf-8") as lines:
            lines.write(f"{path}\n")
        existing(path).unlink()
        return f"{path} is deleted"

    return [list_files, read_file, delete_file]


def demo_agent(folder: Path) -> Agent:
    """The agent of the demo. A log that it is not used with gets no folder."""
    return Agent("@agent", ScriptedModel(script(folder), MODEL), role="You tidy up a folder.", tools=tools(folder))
