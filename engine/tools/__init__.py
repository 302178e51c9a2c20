"""Tools: typed functions that a model may call."""

from .function import Tool, ToolContext, tool
from .registry import Registry

__all__ = ["Registry", "Tool", "ToolContext", "tool"]
