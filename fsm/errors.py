"""Everything turnlog raises.

Error
├── Misuse            the caller's fault; nothing was changed
│   ├── UnknownSession
│   └── IllegalEvent  an event that the table does not allow in this state
├── Conflict          somebody else was first; read the head and decide again
│   ├── StaleVersion  the expected seq is not the head
│   ├── Fenced        a newer owner holds the session's lease
│   └── CommandReused a command id was sent again with another content
├── CorruptLog        the stored rows are not what was written
│   ├── BadBody       a body that is no valid event
│   ├── UnknownKind   a kind or version that this release does not know
│   └── GapInLog      a seq is missing
├── OutcomeUnknown    a tool cannot say whether it took effect
└── StorageError      the disk or the database said no
    ├── DatabaseOwned another process owns the file
    ├── StorageFull   no room; reads still work
    └── StorageFailed an I/O error; the process must reopen the file

Every message says what was wrong and what to do next.
"""


class Error(Exception):
    """Base of all errors of turnlog."""


class Misuse(Error):
    """The caller's fault; nothing was changed."""


class UnknownSession(Misuse):
    """No session has this id."""


class IllegalEvent(Misuse):
    """The table has no row for this event in this state."""


class Conflict(Error):
    """Somebody else was first."""


class StaleVersion(Conflict):
    """The expected seq is not the head of the session."""


class Fenced(Conflict):
    """A newer owner holds the lease of the session."""


class CommandReused(Conflict):
    """A command id was sent again with another content."""


class CorruptLog(Error):
    """Stored rows are not what was written."""


class BadBody(CorruptLog):
    """A stored body is no valid event."""


class UnknownKind(CorruptLog):
    """A kind or a version that this release does not know."""


class GapInLog(CorruptLog):
    """A seq is missing."""


class OutcomeUnknown(Error):
    """Raised by a tool that cannot say whether it took effect; its text is told to the model."""


class StorageError(Error):
    """The disk or the database refused."""


class DatabaseOwned(StorageError):
    """Another process owns the database file for writing."""


class StorageFull(StorageError):
    """No room for an append; reads still work and later appends may succeed."""


class StorageFailed(StorageError):
    """An I/O error in a commit: no further append is taken, reopen the file."""
