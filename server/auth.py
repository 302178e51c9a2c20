"""Who is there and what they may do: tokens, principals, roles."""

import hmac
import re
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from ..fsm.errors import Misuse

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
MIN_TOKEN = 16  # characters; shorter ones can be guessed over the wire


class Role(StrEnum):
    """What a principal may do: an observer looks, an approver also decides, a controller may do everything.

    A decision that is to be remembered is a grant, which is for controllers.
    """

    OBSERVER = "observer"
    APPROVER = "approver"
    CONTROLLER = "controller"


_LOOK = frozenset({"open", "close", "list", "fetch", "grants"})
_DECIDE = _LOOK | {"decide", "answer"}


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody with a token. They see the sessions that they own, or with `all_sessions` every one."""

    name: str
    role: Role = Role.CONTROLLER
    all_sessions: bool = False

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise Misuse(f"{self.name!r} is no name of a principal: use 1 to 64 of A-Z a-z 0-9 _ . @ -")

    @property
    def actor(self) -> str:
        """How rows name them."""
        return f"person:{self.name}"

    def may(self, verb: str) -> bool:
        """Whether their role allows a command of this type."""
        if self.role is Role.CONTROLLER:
            return True
        return verb in (_DECIDE if self.role is Role.APPROVER else _LOOK)

    def lacks(self, verbs: Iterable[str]) -> str | None:
        """The first of these that their role does not allow, None when it allows all."""
        return next((verb for verb in verbs if not self.may(verb)), None)

    def sees(self, owner: str) -> bool:
        """Whether a session of this owner exists for them."""
        return self.all_sessions or owner == self.name


def fresh_token() -> str:
    """A token that nobody can guess: 256 random bits."""
    return secrets.token_urlsafe(32)


class Tokens:
    """Which token is whose. Only their sha256 is kept.

    `tries` counts the rows that tell of things people had no right to, by principal and session. Connections are
    free and a principal may have several tokens, so neither is what is counted.
    """

    def __init__(self, principals: Mapping[str, Principal] | None = None) -> None:
        self.tries: Counter[tuple[str, str]] = Counter()
        self._known: dict[bytes, Principal] = {}
        for token, principal in (principals or {}).items():
            self.add(token, principal)

    def add(self, token: str, principal: Principal) -> None:
        """Let a token in.

        Raises:
            Misuse: it is too short to be a secret, or is somebody's already.
        """
        if len(token) < MIN_TOKEN:
            raise Misuse(f"the token of {principal.name!r} is shorter than {MIN_TOKEN} characters: use fresh_token()")
        if self.find(token) is not None:
            raise Misuse(f"the token of {principal.name!r} is another's too: use fresh_token() for each")
        self._known[_mark(token)] = principal

    def find(self, token: str) -> tuple[bytes, Principal] | None:
        """The token's mark and whose it is; takes the same time for every wrong token."""
        mark, found = _mark(token), None
        for known, principal in self._known.items():
            if hmac.compare_digest(known, mark):
                found = known, principal
        return found

    def revoke(self, token: str) -> bytes | None:
        """Let a token in no longer; the answer is its mark, None when nobody had it."""
        found = self.find(token)
        if found is None:
            return None
        del self._known[found[0]]
        return found[0]

    def __iter__(self) -> Iterator[Principal]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)


def _mark(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogatepass")).digest()
