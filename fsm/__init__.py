"""The machine: pure functions over frozen data. No clock, no random, no file, no socket, no thread.

Read it in this order: `table.py` (why, and the rows), `decide.py` (react, follow, pending), `session.py` (the fold).
"""

from .decide import Decision, decide, pending
from .errors import Conflict, CorruptLog, Error, Misuse, StorageError
from .events import Event, Row
from .inputs import Refusal
from .session import Session, evolve, replay
from .states import State
from .table import NEXT, ROWS

__all__ = [
    "NEXT",
    "ROWS",
    "Conflict",
    "CorruptLog",
    "Decision",
    "Error",
    "Event",
    "Misuse",
    "Refusal",
    "Row",
    "Session",
    "State",
    "StorageError",
    "decide",
    "evolve",
    "pending",
    "replay",
]
