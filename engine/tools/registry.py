"""All tools of an engine under one roof, whatever they are made of."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ...fsm.approval import auto_rule
from ...fsm.errors import Misuse
from ...fsm.history import provider_name
from ...fsm.inputs import ToolFacts
from .function import Tool

AUTO_APPROVE = "TURNLOG_AUTO_APPROVE"
CHILD = "#"
CUSTOM = "@@"


def configured() -> tuple[str, ...]:
    """The auto-approve list of the environment: names or patterns, separated by commas; "all" allows every tool."""
    return tuple(part for part in (one.strip() for one in os.environ.get(AUTO_APPROVE, "").split(",")) if part)


class Listed(NamedTuple):
    """A tool as the registry knows it: its clear name, the name that models see, and where it is from."""

    name: str
    shown: str
    source: str
    kind: str
    gated: bool


class Registry:
    """Tools by name, and what may run unasked."""

    def __init__(self, tools: Iterable[Tool] = (), auto_approve: Sequence[str] | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._shown: dict[str, str] = {}  # the names that models see, with the tools' own
        self._from: dict[str, str] = {}  # the source of a tool
        self._kinds: dict[str, str] = {}  # of the sources
        self._custom: dict[str, str] = {}  # the sources by what they are called after @@
        self.absent: frozenset[str] = frozenset()  # sources that are not open
        self.added: Callable[[Tool], object] | None = None  # hears of tools that come after the start
        self.auto_approve = configured() if auto_approve is None else tuple(auto_approve)
        for tool in {id(one): one for one in tools}.values():
            self.add(tool)

    def add(self, tool: Tool, source: str = "") -> None:
        """Register a tool.

        Raises:
            Misuse: the name is taken, or models would see one name for two tools.
        """
        shown = provider_name(tool.name)
        other = self._shown.get(shown)
        if tool.name in self._tools:
            raise Misuse(f"two tools are named {tool.name!r}: rename one")
        if other is not None:
            raise Misuse(f"models would see {shown!r} for both {other!r} and {tool.name!r}: rename one")
        if not source and tool.name in self._kinds:
            raise Misuse(f"{tool.name!r} is a {self._kinds[tool.name]} and a tool: rename one")
        self._tools[tool.name], self._shown[shown] = tool, tool.name
        if source:
            self._from[tool.name] = source
        if self.added is not None:
            self.added(tool)

    # Sources --------------------------------------------------------------------------------------

    def add_source(self, name: str, kind: str, custom: str) -> None:
        """Make a source known; it counts as absent until it is `opened`.

        Raises:
            Misuse: the name is taken.
        """
        if name in self._kinds or custom in self._custom:
            raise Misuse(f"two sources are named {name!r}: rename one")
        if name in self._tools:
            raise Misuse(f"{name!r} is a {kind} and a tool: rename one")
        self._kinds[name], self._custom[custom] = kind, name
        self.absent |= {name}

    def opened(self, source: str) -> None:
        """A source has brought its tools."""
        self.absent -= {source}

    def awaits(self, name: str) -> bool:
        """Whether a tool is not there only because its source is not open (now)."""
        return name not in self._tools and name.partition(CHILD)[0] in self.absent

    def listing(self) -> list[Listed]:
        """Every tool with its source and the kind of it."""
        rows: list[Listed] = []
        for tool in self:
            source, shown = self._from.get(tool.name, ""), provider_name(tool.name)
            rows.append(Listed(tool.name, shown, source, self.kind(tool.name), tool.needs_approval))
        return rows

    def kind(self, tool: str) -> str:
        """What a tool is from: builtin, flow, mcp or plugin."""
        return self._kinds.get(self._from.get(tool, ""), "builtin")

    # Names ----------------------------------------------------------------------------------------

    def check(self, agent: str, names: Iterable[str | Tool]) -> None:
        """Refuse names that nothing can be meant by.

        Raises:
            Misuse: tells the name and what there is.
        """
        for name in names:
            if isinstance(name, Tool) or name in self._tools or self._parent(name)[0]:
                continue
            there = sorted({*self._kinds, *self._custom, *(one for one in self._tools if one not in self._from)})
            raise Misuse(f"agent {agent!r} names the tool {name!r}, which is not there. There are: {', '.join(there)}")

    def resolve(self, names: Iterable[str | Tool]) -> tuple[str, ...]:
        """The names of the tools that are meant by tools, `plain`, `parent`, `parent#child` and `@@custom`.

        A child of a source that is not open keeps its name; of such a source as a whole nothing is known.
        """
        found: dict[str, None] = {}
        for name in names:
            if isinstance(name, Tool):
                found[name.name] = None
            elif name in self._tools:
                found[name] = None
            else:
                source, child = self._parent(name)
                if child:
                    full = f"{source}{CHILD}{child}"
                    if full in self._tools or source in self.absent:
                        found[full] = None
                else:
                    found |= dict.fromkeys(one for one, whose in self._from.items() if whose == source)
        return tuple(found)

    def _parent(self, name: str) -> tuple[str, str]:
        """The source and the child that a name is made of; the source is "" when there is none."""
        parent, _, child = name.partition(CHILD)
        source = self._custom.get(parent, "") if parent.startswith(CUSTOM) else parent
        return (source if source in self._kinds else ""), child

    def get(self, name: str) -> Tool | None:
        """A tool by its own name."""
        return self._tools.get(name)

    def named(self, names: Iterable[str]) -> list[Tool]:
        """The tools of these names that exist, in this order."""
        return [self._tools[name] for name in names if name in self._tools]

    def __iter__(self) -> Iterator[Tool]:
        yield from self._tools.values()

    def facts(self, tool: Tool) -> ToolFacts:
        """What the machine is told of a tool."""
        return ToolFacts(
            gated=tool.needs_approval, idempotent=tool.idempotent, description=tool.description, risk=tool.risk,
            definition=tool.definition_digest, auto=auto_rule(self.auto_approve, tool.name),
            repeats=tool.repeats, direct=tool.direct,
        )  # fmt: skip
