"""Tables, indexes, triggers, and the numbered migrations that lead there.

`events` has a rowid: with bodies over a kilobyte a table WITHOUT ROWID took twice the bytes and the CPU.
`body_hash` is NULL while the body is there; when a body is erased, body and salt become NULL and it is kept.
The previous hash of a row is the hash of the row before it, so it is not stored.
"""

from pathlib import Path

from sqlite_utils import Database, Migrations

from ..fsm.errors import StorageError

APPLICATION_ID = 0x746C6F67  # "tlog"
MIGRATIONS = Migrations("turnlog")

COLUMNS = (
    "session",
    "seq",
    "state",
    "kind",
    "v",
    "at",
    "actor",
    "command_id",
    "command_digest",
    "body",
    "salt",
    "body_hash",
    "hash",
)

# The kinds that can be listed over all sessions without reading every row.
LISTED = ("approval_requested", "approval_resolved", "grant_recorded", "grant_revoked")


def _field(name: str) -> str:
    # A damaged body must not make an index or a query over other sessions fail.
    return f"CASE WHEN json_valid(body) THEN json_extract(body, '$.{name}') END"


# A damaged body counts as a use of a grant, so that the reader sees that one may be missing.
_GRANT_USE = (
    "kind = 'approval_resolved' AND body IS NOT NULL AND "
    "CASE WHEN json_valid(body) THEN json_extract(body, '$.via') = 'grant' ELSE 1 END"
)
# Named, because SQLite would rather take `events_kind` and look into every approval.
GRANT_USES = f"events INDEXED BY events_grant_use WHERE {_GRANT_USE}"


@MIGRATIONS(name="001_log")
def _log(db: Database) -> None:
    listed = " OR ".join(f"kind = '{kind}'" for kind in LISTED)
    for statement in (
        """CREATE TABLE events (
            session TEXT NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL, kind TEXT NOT NULL,
            v INTEGER NOT NULL, at INTEGER NOT NULL, actor TEXT NOT NULL,
            command_id TEXT, command_digest TEXT, body TEXT, salt BLOB, body_hash BLOB, hash BLOB NOT NULL,
            PRIMARY KEY (session, seq)
        ) STRICT""",
        "CREATE UNIQUE INDEX events_command ON events (session, command_id) WHERE command_id IS NOT NULL",
        f"""CREATE UNIQUE INDEX events_resolution ON events (session, {_field("request_id")})
            WHERE kind = 'approval_resolved'""",
        f"""CREATE UNIQUE INDEX events_start ON events (session, {_field("call_id")}, {_field("attempt")})
            WHERE kind = 'tool_started'""",
        f"CREATE INDEX events_kind ON events (kind, session, seq) WHERE {listed}",
        f"CREATE INDEX events_grant_use ON events (session, seq) WHERE {_GRANT_USE}",
        """CREATE TABLE leases (
            session TEXT PRIMARY KEY, owner TEXT NOT NULL, epoch INTEGER NOT NULL
        ) STRICT, WITHOUT ROWID""",
        """CREATE TABLE snapshots (
            session TEXT PRIMARY KEY, seq INTEGER NOT NULL, hash BLOB NOT NULL, body TEXT NOT NULL,
            code_version TEXT NOT NULL
        ) STRICT""",
        "CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT",
    ):
        db.execute(statement)


def names() -> set[str]:
    """The migrations that this release knows."""
    return {step.name for step in MIGRATIONS._migrations}  # noqa: SLF001 - the library has no public list


INDEXES = ("events_command", "events_resolution", "events_start", "events_kind", "events_grant_use")
TRIGGERS = {
    f"{table}_no_{verb.lower()}": (
        f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
        f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
    )
    for table in ("events", "blobs")
    for verb in ("UPDATE", "DELETE")
}


def protect(db: Database) -> None:
    """Create the append-only triggers where they are missing: `transform` of sqlite-utils drops them."""
    there = dict(db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    for name, statement in TRIGGERS.items():
        if there.get(name) != statement:
            db.execute(f"DROP TRIGGER IF EXISTS {name}")
            db.execute(statement)


def check(db: Database, path: Path) -> bool:
    """Refuse a file that is not ours or is newer than this release. False for an empty file.

    Raises:
        StorageError: says which.
    """
    tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()}
    (mark,) = db.execute("PRAGMA application_id").fetchone()
    if tables and mark != APPLICATION_ID:
        raise StorageError(f"{path} is a SQLite database, but no turnlog log: name another file")
    if newer := sorted({done.name for done in MIGRATIONS.applied(db)} - names()):
        raise StorageError(f"{path} was written by a newer turnlog ({', '.join(newer)}): upgrade turnlog")
    return bool(mark == APPLICATION_ID)


def migrate(db: Database, path: Path) -> None:
    """Bring the file to this release's schema in one transaction; a file that has it stays as it is."""
    db.execute("BEGIN IMMEDIATE")
    try:
        marked = check(db, path)
        MIGRATIONS.apply(db)
        protect(db)
        if not marked:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:
        if db.conn.in_transaction:
            db.execute("ROLLBACK")
        raise
