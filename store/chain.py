"""The hash chain of a session: pure functions.

    body hash = sha256(salt + body)
    hash      = sha256(previous hash + header + body hash)
    header    = JSON array of session, seq, state, kind, v, at, actor, command_id, command_digest (ASCII, no spaces)

The previous hash of the first row is `origin(session)`. So a row can be moved nowhere, not even to another session.
Because of the salt an erased body cannot be guessed from its hash.
"""

from hashlib import sha256
from json.encoder import encode_basestring_ascii as quote


def origin(session: str) -> bytes:
    """What stands before the first row: 32 bytes."""
    return sha256(b"turnlog 1 " + session.encode("utf-8", "surrogateescape")).digest()


def body_hash(salt: bytes, body: str) -> bytes:
    """The 32 bytes that stand for a body in the chain, also after the body is erased."""
    return sha256(salt + body.encode("utf-8", "surrogateescape")).digest()


def link(
    previous: bytes,
    session: str,
    seq: int,
    state: str,
    kind: str,
    v: int,
    at: int,
    actor: str,
    command_id: str | None,
    command_digest: str | None,
    body: bytes,
) -> bytes:
    """The hash of a row: 32 bytes. `body` is its body hash."""
    header = (
        f"[{quote(session)},{seq},{quote(state)},{quote(kind)},{v},{at},{quote(actor)},"
        f"{'null' if command_id is None else quote(command_id)},"
        f"{'null' if command_digest is None else quote(command_digest)}]"
    )
    return sha256(previous + header.encode("ascii") + body).digest()
