"""The five states of a session."""

from enum import StrEnum


class State(StrEnum):
    """Where a session stands. There is no sixth: what is in flight is derived by `pending`, never stored."""

    SUCCESS = "success"
    INTERRUPT = "interrupt"
    ERROR = "error"
    AWAITING_APPROVAL = "awaiting_approval"
    TERMINATED = "terminated"
