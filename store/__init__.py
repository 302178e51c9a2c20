"""The log: append-only, transactional, hash-chained. Read `base.py` first, it is what the engine asks for."""

from .base import Applied, Command, Draft, EventLog, Head, code_version
from .jobs import Stats
from .reader import LogReader, RawRow, SessionInfo, Unreadable
from .sqlite import SQLiteLog
from .verify import Problem, Report, heads, verify

__all__ = [
    "Applied",
    "Command",
    "Draft",
    "EventLog",
    "Head",
    "LogReader",
    "Problem",
    "RawRow",
    "Report",
    "SQLiteLog",
    "SessionInfo",
    "Stats",
    "Unreadable",
    "code_version",
    "heads",
    "verify",
]
