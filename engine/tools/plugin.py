"""`Plugin`: a folder with a plugin.json and a Python file, whose functions become tools.

{"id": "weather", "name": "Weather", "version": "1.0", "active": true,
 "tools": [{"name": "now", "entry": "handler:now", "description": "The weather of a city."},
           {"name": "alarm", "entry": "handler:alarm", "schema": {"properties": {"city": {"type": "string"}}}}]}

A plugin with one tool may say `entry`, `description` and `schema` at the top; that tool is called by the id alone.
A schema is made from the function's signature where there is none. The code of a plugin runs in this process: nothing
keeps it from anything, so load only what you trust. Its tools ask for a word unless the application says otherwise.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...fsm.errors import Misuse
from ..values import told
from .function import Tool, tool
from .registry import CHILD
from .schema import CONTEXT
from .source import Host, Kind, checked_name, fits
from .variables import arguments

MANIFEST = "plugin.json"
_ENTRY = r"^[A-Za-z_][A-Za-z0-9_]*:[A-Za-z_][A-Za-z0-9_]*$"


class _Schema(BaseModel):
    """What a manifest may say of arguments; a function with types can say more."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["object"] = "object"
    properties: dict[str, dict[str, Any]] = Field(default_factory=dict)
    required: list[str] = Field(default_factory=list)


class _One(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    entry: str = Field(pattern=_ENTRY)
    description: str = ""
    given: _Schema | None = Field(default=None, alias="schema")
    risk: str = ""


class _Manifest(BaseModel):
    """The fields of plugin.json. More than these may be there: catalogues add their own."""

    id: str
    name: str = ""
    version: str = ""
    active: bool = False
    entry: str = Field(default="", pattern=f"{_ENTRY}|^$")
    description: str = ""
    given: _Schema | None = Field(default=None, alias="schema")
    tools: list[_One] = Field(default_factory=list)


class Plugin:
    """A folder as a source of tools. It is read, and its code run, when the engine starts, and only if it is `active`.

    Args:
        folder: where its plugin.json is; the id in it must be the folder's name, or `name`.
        name: what agents and the log call it (`name#tool`, or `@@name`).
        free: tools that run without a word, by name or pattern; of a plugin with one tool its id.
        idempotent: tools that may be repeated without harm, by name or pattern.

    Raises:
        Misuse: the name cannot be one.
    """

    kind: Kind = "plugin"

    def __init__(
        self, folder: str | Path, *, name: str = "", free: Collection[str] = (), idempotent: Collection[str] = ()
    ) -> None:
        self.folder = Path(folder).resolve()
        self.name = checked_name("plugin", name or self.folder.name)
        for label, given in (("free", free), ("idempotent", idempotent)):
            if isinstance(given, str):
                raise Misuse(f"{label} of plugin {self.name!r} is the text {given!r}: give a list of names")
        self.free, self.idempotent = tuple(free), tuple(idempotent)
        self.left_out: Sequence[str] = ()

    async def open(self, host: Host) -> Sequence[Tool]:
        """Read the manifest and load the functions; a tool that cannot be loaded is left out.

        Raises:
            Misuse: the plugin is not active, or its manifest is none.
        """
        manifest = self._manifest()
        if not manifest.active:
            raise Misuse(f'it is not active: look at it, then set "active": true in {self.folder / MANIFEST}')
        found, left_out, modules = [], [], dict[str, Any]()
        for one in self._listed(manifest):
            path, _, attribute = one.entry.partition(":")
            try:
                if path not in modules:
                    # In a thread: what a file does while it is imported may take its time.
                    modules[path] = await self._in_thread(host, path)
                found.append(self._tool(one, getattr(modules[path], attribute), alone=not manifest.tools))
            except Exception as error:  # noqa: BLE001 - a plugin is anybody's code
                why = str(error) if isinstance(error, Misuse) else told(error)
                left_out.append(f"the tool {one.name!r} is left out: {why}")
        self.left_out = left_out
        return found

    async def close(self) -> None:
        """Nothing is held."""

    def _manifest(self) -> _Manifest:
        path = self.folder / MANIFEST
        try:
            manifest = _Manifest.model_validate_json(path.read_bytes())
        except OSError as error:
            raise Misuse(f"{path} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise Misuse(f"{path}: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from error
        if manifest.id != self.name:
            raise Misuse(f"{path} has the id {manifest.id!r}, not {self.name!r}: name the source so, or the folder")
        if bool(manifest.tools) is bool(manifest.entry):
            raise Misuse(f'{path} needs "entry" (of its one tool) or "tools", and not both')
        return manifest

    def _listed(self, manifest: _Manifest) -> list[_One]:
        if manifest.tools:
            return manifest.tools
        about = manifest.description or manifest.name
        return [_One(name=manifest.id, entry=manifest.entry, description=about, schema=manifest.given)]

    def _tool(self, one: _One, function: Any, *, alone: bool) -> Tool:
        if isinstance(function, Tool):
            made = function
        else:
            made = tool(function) if one.given is None else _described(function, one.given)
        return replace(
            made, name=self.name if alone else f"{self.name}{CHILD}{one.name}",
            description=one.description or made.description,
            risk=one.risk or made.risk or f"code of the plugin {self.name}",
            needs_approval=not fits(self.free, one.name), idempotent=fits(self.idempotent, one.name),
        )  # fmt: skip

    async def _in_thread(self, host: Host, path: str) -> Any:
        kept: list[Any] = []

        def load() -> str:
            kept.append(_load(self.folder / f"{path}.py", f"turnlog_plugin_{self.name}_{path}"))
            return ""

        _, failed = await host.threads.run(f"plugin {self.name}", load, {})
        if failed is not None:
            raise failed if isinstance(failed, Exception) else Misuse(told(failed))
        return kept[0]


def _load(path: Path, name: str) -> Any:
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise Misuse(f"there is no {path.name} in {path.parent}")
    module = module_from_spec(spec)
    sys.modules[name] = module  # types in its annotations are looked up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _described(function: Callable[..., Any], schema: _Schema) -> Tool:
    """A tool with the arguments of a schema; the function gets them by name, and a `context` if it takes one."""
    shape = arguments(f"{function.__name__}_arguments", schema.properties, schema.required)
    taken = inspect.signature(function).parameters
    everything = any(one.kind is one.VAR_KEYWORD for one in taken.values())
    if missing := [name for name in shape.model_fields if name not in taken and not everything]:
        raise Misuse(f"{function.__name__} takes no {missing[0]!r}, which its schema describes")
    context = CONTEXT if CONTEXT in taken and CONTEXT not in shape.model_fields else ""
    return Tool(function.__name__, inspect.getdoc(function) or "", function, shape, context_parameter=context)
