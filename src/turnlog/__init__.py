"""LLM agent conversations as an explicit state machine over an append-only event log."""

from .engine import Agent, Conversation, Engine, ToolContext, Turn, person, tool
from .fsm.errors import Error
from .fsm.events import Channel, Citation, Limits, Usage
from .fsm.states import State

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Channel",
    "Citation",
    "Conversation",
    "Engine",
    "Error",
    "Limits",
    "State",
    "ToolContext",
    "Turn",
    "Usage",
    "person",
    "tool",
]
