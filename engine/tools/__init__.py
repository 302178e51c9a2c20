"""Tools: typed functions that a model may call."""

from .ask import ask_user
from .flow import Flow
from .function import Tool, ToolContext, tool
from .mcp import McpServer
from .mcp_file import mcp_servers
from .plugin import Plugin
from .registry import Registry
from .rerank import Rerank
from .source import ToolSource

__all__ = [
    "Flow", "McpServer", "Plugin", "Registry", "Rerank", "Tool", "ToolContext", "ToolSource", "ask_user", "mcp_servers",
    "tool",
]  # fmt: skip
