"""Drives the machine: performs its effects (models, tools, timers), one writer per session."""

from .agents import Agent, person
from .clock import Clock, SystemClock
from .conversation import Conversation, Turn
from .engine import Engine
from .hub import Hub
from .inbox import Outcome
from .models.untooled import Untooled
from .notices import Notice, Piece, Rows, Trouble
from .prompt import Asking, Document
from .tools import Flow, McpServer, Plugin, Registry, Rerank, Tool, ToolContext, ToolSource, mcp_servers, tool

__all__ = [
    "Agent",
    "Asking",
    "Clock",
    "Conversation",
    "Document",
    "Engine",
    "Flow",
    "Hub",
    "McpServer",
    "Notice",
    "Outcome",
    "Piece",
    "Plugin",
    "Registry",
    "Rerank",
    "Rows",
    "SystemClock",
    "Tool",
    "ToolContext",
    "ToolSource",
    "Trouble",
    "Turn",
    "Untooled",
    "mcp_servers",
    "person",
    "tool",
]
