"""What names a process and its rows."""

import os
import secrets
import socket


def fresh_id(prefix: str) -> str:
    """An id that was never used: the prefix and 96 random bits."""
    return f"{prefix}_{os.urandom(12).hex()}"


def fresh_owner() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
