"""How an application describes who takes part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..fsm.errors import Misuse
from ..fsm.events import AgentSpec
from .models.base import Model
from .prompt import Source
from .tools.function import Tool
from .tools.registry import Registry
from .tools.rerank import Rerank
from .window import quarter


@dataclass(frozen=True, slots=True)
class Agent:
    """A node of a conversation.

    Args:
        name: how it is addressed.
        model: what answers for it; None makes it a seat for a person.
        role: the system prompt.
        parts: more of the system prompt, in this order: texts, or functions that give texts, asked once a turn
            (the prompt of a workspace, memories).
        context: a function that gives texts or `Document`s, asked once a turn. What it gives is added to the newest
            message for the model, and is never part of the message in the log. Such a function may be async, and may
            take an `Asking`.
        tools: what it may call; nothing else is offered to it or runs for it. Tools, or names: `plain` of a tool,
            `parent#child` of one tool of a plugin or MCP server, `parent` of all of them, `@@custom` of an imported
            source (`@@mcp_files`, `@@flow_daily`, `@@plugin_id`). A session keeps what they meant when it began.
        interrupt: "always" hands control back to a person whenever this node would be next to speak.
        window: how many messages of history its model sees, None for all. A call and its results stay together, and
            the question that is being answered is always there.
        window_tokens: about how many tokens of history, None for any number; system text, tools and documents are not
            counted.
        estimate: how many tokens a text has; one for four characters where nothing better is given.
        settings: passed on to the model.
        rerank: how the tools of an agent with many are chosen for each turn; None offers all, as they are.
    """

    name: str
    model: Model | None = None
    role: str = ""
    tools: Sequence[Tool | str] = ()
    interrupt: Literal["always", "never"] = "never"
    window: int | None = 200
    window_tokens: int | None = None
    estimate: Callable[[str], int] = quarter
    settings: dict[str, Any] = field(default_factory=dict)
    rerank: Rerank | None = None
    parts: Sequence[str | Source] = ()
    context: Source | None = None

    def __post_init__(self) -> None:
        """Refuse what could only fail in the middle of a turn.

        Raises:
            Misuse: names the agent and what to pass.
        """
        names = [tool.name for tool in self.tools if isinstance(tool, Tool)]
        pinned = (
            self.rerank.pinned if self.rerank and len(names) == len(self.tools) else ()
        )  # what names mean comes later
        if strange := [name for name in pinned if name not in names]:
            raise Misuse(f"agent {self.name!r} pins {strange[0]!r}, which is none of its tools: leave it out")
        if isinstance(self.parts, str) or not all(isinstance(part, str) or callable(part) for part in self.parts):
            raise Misuse(f"parts of agent {self.name!r} must be a list of texts and functions")
        for name, size in (("window", self.window), ("window_tokens", self.window_tokens)):
            if size is not None and size < 0:
                raise Misuse(f"{name} of agent {self.name!r} is {size}: use 0 or more, or None for no limit")
        if self.context is not None and not callable(self.context):
            raise Misuse(f"context of agent {self.name!r} must be a function that returns texts or Documents")

    @property
    def fetches(self) -> bool:
        """Whether there is something to ask once a turn."""
        return self.context is not None or any(callable(part) for part in self.parts)

    def spec(self, registry: Registry) -> AgentSpec:
        """What the log keeps of it."""
        return AgentSpec(
            name=self.name, role=self.role, model=self.model.name if self.model else "",
            tools=registry.resolve(self.tools), interrupt=self.interrupt,
        )  # fmt: skip


def person(name: str = "USER") -> Agent:
    """A seat for a person."""
    return Agent(name, interrupt="always")
