"""What names a process and its rows: fresh ids, and the version that writes."""

import os
import secrets
import socket
from importlib.metadata import PackageNotFoundError, version


def code_version() -> str:
    """The version of turnlog that writes."""
    try:
        return version("turnlog")
    except PackageNotFoundError:
        return "unknown"


def fresh_id(prefix: str) -> str:
    """An id that was never used: the prefix and 96 random bits."""
    return f"{prefix}_{os.urandom(12).hex()}"


def fresh_owner() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
