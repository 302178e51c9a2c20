"""The parts of a session: its open calls, its newest message, the requests and questions that were closed lately."""

from dataclasses import dataclass
from typing import NamedTuple

from pydantic import JsonValue

from .values import Question, Repeats


class Call(NamedTuple):
    """A call of the open round.

    `status`: gated (needs a word), waiting (a request is open), approved, started, unknown (started under an older
    epoch), closed (will not run; `verdict` says why), question, returned. `source` is the seq of the row that holds
    the arguments that may run. `via` and `rule` tell by whom it was allowed.
    """

    id: str
    tool: str
    arguments: dict[str, JsonValue]
    digest: str
    status: str
    source: int
    permit: str = ""
    idempotent: bool = False
    attempt: int = 0
    epoch: int = 0
    verdict: str = ""
    note: str = ""
    questions: tuple[Question, ...] = ()
    edited: bool = False
    repeats: Repeats | None = None
    direct: bool = False
    via: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A request or a question that is closed. Of a question older rows do not say by whom and when."""

    request_id: str
    outcome: str
    actor: str
    at: int


class Fetched(NamedTuple):
    """What an agent's sources gave in the open turn, as digests."""

    context: str
    parts: tuple[str, ...]


class Last(NamedTuple):
    """The newest message, without its text."""

    sender: str
    recipient: str
    by: str
    control: str
