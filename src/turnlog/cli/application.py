"""Where `serve` and `chat` get their agents: `--app module:attribute`, or the demo's."""

import contextlib
import importlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ..engine import Agent, Engine
from ..engine.tools import Tool
from ..engine.tools.registry import AUTO_APPROVE
from ..fsm.approval import auto_rule
from ..fsm.errors import Misuse
from ..store import SQLiteLog
from .text import visible

WANTED = "a list of Agent, a mapping of arguments for Engine, or a function that returns one of them"


def load(spec: str) -> Any:
    """What `module:attribute` names; a function is called. The working directory can be imported from.

    Raises:
        Misuse: it names nothing, or importing or calling it failed.
    """
    module, colon, path = spec.partition(":")
    if not module or not colon or not path:
        raise Misuse(f"{spec!r} is not module:attribute: write for example app:agents")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        return cast("Callable[[], Any]", found)() if callable(found) else found
    except Exception as error:
        raise Misuse(
            f"{spec} cannot be used: {type(error).__name__}: {error}; correct it, it must be {WANTED}"
        ) from error


def engine_arguments(app: str) -> dict[str, Any]:
    """The arguments of `Engine` that an application gives.

    Raises:
        Misuse: it is of another kind.
    """
    found = load(app)
    if isinstance(found, Mapping):
        return dict(found)
    if isinstance(found, Agent):
        return {"agents": [found]}
    if isinstance(found, Sequence) and found and all(isinstance(one, Agent) for one in found):
        return {"agents": list(found)}
    raise Misuse(f"{app} gave {type(found).__name__}, which is not {WANTED}")


def load_tools(spec: str) -> list[Tool]:
    """The tools that `module:attribute` names: one, or a list.

    Raises:
        Misuse: it names something else.
    """
    found = load(spec)
    several = [found] if isinstance(found, Tool) else found
    if isinstance(several, Sequence) and all(isinstance(one, Tool) for one in several):
        return list(several)
    raise Misuse(f"{spec} gave {type(found).__name__}, which is no list of tools: make them with @tool")


def demo_folder(db: Path) -> Path:
    """Where the demo's toy files lie: beside the log."""
    return db.resolve().with_name(f"{db.name}.files")


def build(db: Path, hint: str, arguments: Mapping[str, Any]) -> Engine:
    """An engine that owns the log. No log is made for arguments that do not fit `Engine`.

    Raises:
        DatabaseOwned: another process owns it. StorageError: it cannot be opened. Misuse: an argument does not fit.
    """
    # What can be read only once is needed twice.
    given = {name: list(value) if isinstance(value, Iterator) else value for name, value in arguments.items()}
    if not db.exists():
        with tempfile.TemporaryDirectory(prefix="turnlog-") as folder:
            _engine(Path(folder) / "tried.db", hint, given).log.close()
    return _engine(db, hint, given)


def _engine(db: Path, hint: str, arguments: Mapping[str, Any]) -> Engine:
    with contextlib.ExitStack() as undo:
        log = SQLiteLog(db, hint=hint)
        undo.callback(log.close)
        try:
            engine = Engine(log, **arguments)
        except TypeError as error:
            raise Misuse(f"the application does not fit Engine: {error}") from error
        undo.pop_all()
    return engine


def unasked(engine: Engine, given: Mapping[str, Any]) -> str:
    """What runs without anybody being asked although its tool needs approval, and who said so; "" when nothing does."""
    allowed = engine.registry.auto_approve
    if not allowed:
        return ""
    whose = f"{AUTO_APPROVE} is set" if given.get("auto_approve") is None else "the application's auto_approve"
    told = ",".join(map(visible, allowed))
    names = [visible(tool.name) for tool in engine.registry if tool.needs_approval and auto_rule(allowed, tool.name)]
    runs = f"{', '.join(names)} will run without asking anybody" if names else "it names no tool that needs approval"
    return f"{whose} ({told}): {runs}"
