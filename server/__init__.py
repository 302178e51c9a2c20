"""Lets people and programs in: a WebSocket that speaks `turnlog.v1`."""

from .app import Server, ServerLimits, serve
from .auth import Principal, Role, Tokens, fresh_token
from .client import Client, ClientError

__all__ = [
    "Client",
    "ClientError",
    "Principal",
    "Role",
    "Server",
    "ServerLimits",
    "Tokens",
    "fresh_token",
    "serve",
]
