"""All tools of an engine under one roof, whatever they are made of."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from ...fsm.approval import auto_rule
from ...fsm.errors import Misuse
from ...fsm.inputs import ToolFacts
from .function import Tool

AUTO_APPROVE = "TURNLOG_AUTO_APPROVE"


def configured() -> tuple[str, ...]:
    """The auto-approve list of the environment: names or patterns, separated by commas; "all" allows every tool."""
    return tuple(part for part in (one.strip() for one in os.environ.get(AUTO_APPROVE, "").split(",")) if part)


class Registry:
    """Tools by name, and what may run unasked."""

    def __init__(self, tools: Iterable[Tool] = (), auto_approve: Sequence[str] | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self.added: Callable[[Tool], object] | None = None  # hears of tools that come after the start
        self.auto_approve = configured() if auto_approve is None else tuple(auto_approve)
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Register a tool.

        Raises:
            Misuse: the name is taken.
        """
        if tool.name in self._tools:
            raise Misuse(f"two tools are named {tool.name!r}: rename one")
        self._tools[tool.name] = tool
        if self.added is not None:
            self.added(tool)

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
            repeats=tool.repeats,
        )  # fmt: skip
