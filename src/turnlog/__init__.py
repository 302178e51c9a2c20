"""LLM agent conversations as an explicit state machine over an append-only event log."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import (
        Agent,
        Asking,
        Conversation,
        Document,
        Engine,
        Flow,
        McpServer,
        Plugin,
        Rerank,
        ToolContext,
        Turn,
        Untooled,
        mcp_servers,
        person,
        tool,
    )
    from .fsm.errors import Error
    from .fsm.events import Channel, Citation, Limits, Usage
    from .fsm.states import State

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Asking",
    "Channel",
    "Citation",
    "Conversation",
    "Document",
    "Engine",
    "Error",
    "Flow",
    "Limits",
    "McpServer",
    "Plugin",
    "Rerank",
    "State",
    "ToolContext",
    "Turn",
    "Untooled",
    "Usage",
    "mcp_servers",
    "person",
    "tool",
]
_FSM = {
    "Channel": ".fsm.events",
    "Citation": ".fsm.events",
    "Error": ".fsm.errors",
    "Limits": ".fsm.events",
    "State": ".fsm.states",
    "Usage": ".fsm.events",
}


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first asked for: `turnlog --help` needs none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_FSM.get(name, ".engine"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
