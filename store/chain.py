"""The hash chain of a session: pure functions.

    body hash = sha256(salt + body)
    hash      = sha256(previous hash + header + body hash)
    header    = JSON array, ASCII and without spaces, of the columns in `Header`

The previous hash of the first row is `origin(session)`. So a row can be moved nowhere, not even to another
session. Because of the salt an erased body cannot be guessed from its hash.
"""

from hashlib import sha256
from json.encoder import encode_basestring_ascii as quote

# session, seq, state, kind, v, at, actor, command_id, command_digest: what a reader is shown beside the body.
Header = tuple[str, int, str, str, int, int, str, str | None, str | None]


def origin(session: str) -> bytes:
    """What stands before the first row: 32 bytes."""
    return sha256(b"turnlog 1 " + session.encode("utf-8", "surrogateescape")).digest()


def body_hash(salt: bytes | bytearray, body: str) -> bytes:
    """The 32 bytes that stand for a body in the chain, also after the body is erased."""
    return sha256(salt + body.encode("utf-8", "surrogateescape")).digest()


def link(previous: bytes, header: Header, body: bytes) -> bytes:
    """The hash of a row: 32 bytes. `previous` is the hash before it, `body` its body hash."""
    session, seq, state, kind, v, at, actor, command_id, command_digest = header
    text = (
        f"[{quote(session)},{seq},{quote(state)},{quote(kind)},{v},{at},{quote(actor)},"
        f"{'null' if command_id is None else quote(command_id)},"
        f"{'null' if command_digest is None else quote(command_digest)}]"
    )
    return sha256(previous + text.encode("ascii") + body).digest()
