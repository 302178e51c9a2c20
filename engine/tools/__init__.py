"""Tools: typed functions that a model may call."""

from .ask import ask_user
from .function import Tool, ToolContext, tool
from .registry import Registry
from .rerank import Rerank

__all__ = ["Registry", "Rerank", "Tool", "ToolContext", "ask_user", "tool"]
