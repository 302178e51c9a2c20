"""Tools: typed functions that a model may call."""

from .ask import ask_user
from .function import Tool, ToolContext, tool
from .registry import Registry

__all__ = ["Registry", "Tool", "ToolContext", "ask_user", "tool"]
