"""Drives the machine: performs its effects (models, tools, timers), one writer per session."""

from .agents import Agent, person
from .clock import Clock, SystemClock
from .conversation import Conversation, Turn
from .engine import Engine
from .hub import Hub
from .inbox import Outcome
from .notices import Notice, Piece, Rows, Trouble
from .prompt import Asking, Document
from .tools import Registry, Rerank, Tool, ToolContext, tool

__all__ = [
    "Agent",
    "Asking",
    "Clock",
    "Conversation",
    "Document",
    "Engine",
    "Hub",
    "Notice",
    "Outcome",
    "Piece",
    "Registry",
    "Rerank",
    "Rows",
    "SystemClock",
    "Tool",
    "ToolContext",
    "Trouble",
    "Turn",
    "person",
    "tool",
]
