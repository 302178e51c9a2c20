from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from turnlog.fsm.errors import StorageError
from turnlog.store import Draft, LogReader, SQLiteLog
from turnlog.store import schema as schema_module
from turnlog.store.driver import sqlite3
from turnlog.store.schema import APPLICATION_ID, COLUMNS, INDEXES, TRIGGERS, migrate, protect

from .support import child, conversation, draft, fill, message, requested, resolved, started, tool_started


def schema(path: Path) -> list[tuple[str, str]]:
    conn = sqlite3.connect(path)
    try:
        return sorted(conn.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
    finally:
        conn.close()


def plain(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None)


@pytest.mark.accept(64)
@pytest.mark.parametrize(
    "statement",
    [
        *(f"UPDATE events SET {column} = {column}" for column in COLUMNS),
        "DELETE FROM events WHERE seq = 3",
        "DELETE FROM events",
        "UPDATE blobs SET data = x'00'",
        "DELETE FROM blobs",
    ],
)
def test_a_stored_row_cannot_be_changed_or_deleted(path: Path, statement: str) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
        log.put_blob(b"data").result()
    conn = plain(path)
    with pytest.raises(sqlite3.IntegrityError, match="is append-only"):
        conn.execute(statement)
    conn.close()
    with SQLiteLog(path) as log:
        assert log.read("s") == rows


@pytest.mark.accept(64)
def test_a_row_cannot_be_replaced_through_sqlite_utils(path: Path) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
    db = Database(path, execute_plugins=False)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.table("events").upsert({**next(db.query("SELECT * FROM events")), "actor": "eve"}, pk=("session", "seq"))
    db.close()
    with LogReader(path) as reader:
        assert reader.read("s") == rows


def test_opening_again_changes_nothing(path: Path) -> None:
    SQLiteLog(path).close()
    first, data = schema(path), path.read_bytes()
    SQLiteLog(path).close()
    assert (schema(path), path.read_bytes()) == (first, data)


def test_every_table_is_strict(path: Path) -> None:
    SQLiteLog(path).close()
    conn = plain(path)
    tables = conn.execute(
        "SELECT name, strict FROM pragma_table_list WHERE schema = 'main' AND type = 'table' "
        "AND name NOT LIKE '%sqlite_%'"
    ).fetchall()
    conn.close()
    assert sorted(tables) == [("blobs", 1), ("events", 1), ("leases", 1), ("snapshots", 1)]


def test_a_migration_that_transforms_a_table_leaves_the_triggers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SQLiteLog(path) as log:
        rows = fill(log, "s")
    later = Migrations("turnlog")
    later(name="001_log")(lambda db: None)

    @later(name="002_note")
    def _note(db: Database) -> None:
        db.table("events").transform(defaults={"actor": "nobody"})
        assert not [trigger for trigger in db.triggers if trigger.table == "events"], "transform keeps triggers now"

    monkeypatch.setattr(schema_module, "MIGRATIONS", later)
    monkeypatch.setattr("turnlog.store.pages.MIGRATIONS", later)
    with SQLiteLog(path) as log:
        assert log.read("s") == rows
    assert {name for name, _ in schema(path)} >= {*TRIGGERS, *INDEXES}
    conn = plain(path)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        conn.execute("DELETE FROM events")
    conn.close()


def test_a_trigger_that_was_weakened_is_put_back(path: Path) -> None:
    SQLiteLog(path).close()
    first = schema(path)
    conn = plain(path)
    conn.execute("DROP TRIGGER events_no_delete")
    conn.execute("DROP TRIGGER events_no_update")
    conn.execute("CREATE TRIGGER events_no_update BEFORE UPDATE ON events BEGIN SELECT 1; END")
    conn.close()
    SQLiteLog(path).close()
    assert schema(path) == first


def test_protecting_a_protected_file_writes_nothing(path: Path) -> None:
    SQLiteLog(path).close()
    db = Database(plain(path), execute_plugins=False)
    before = db.conn.total_changes
    protect(db)
    assert db.conn.total_changes == before
    db.close()


def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQLiteLog(path).close()
    first = schema(path)
    later = Migrations("turnlog")
    later(name="001_log")(lambda db: None)

    @later(name="002_half")
    def _half(db: Database) -> None:
        db.execute("CREATE TABLE half (a INTEGER)")
        raise RuntimeError("power")

    monkeypatch.setattr(schema_module, "MIGRATIONS", later)
    db = Database(plain(path), execute_plugins=False)
    with pytest.raises(RuntimeError, match="power"):
        migrate(db, path)
    db.close()
    assert schema(path) == first


def test_a_file_of_a_newer_release_is_refused(path: Path) -> None:
    SQLiteLog(path).close()
    db = Database(path, execute_plugins=False)
    db.table("_sqlite_migrations").insert({"migration_set": "turnlog", "name": "999_later", "applied_at": "2099"})
    db.close()
    for opener in (SQLiteLog, LogReader):
        with pytest.raises(StorageError, match=r"newer turnlog \(999_later\): upgrade"):
            opener(path)


def test_a_database_of_somebody_else_is_refused_and_left_alone(path: Path) -> None:
    db = Database(path, execute_plugins=False)
    db.table("notes").insert({"a": 1})
    db.close()
    first = schema(path)
    for opener in (SQLiteLog, LogReader):
        with pytest.raises(StorageError, match="no turnlog log"):
            opener(path)
    assert schema(path) == first


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"hello " * 500)
    for opener in (SQLiteLog, LogReader):
        with pytest.raises(StorageError, match="no SQLite database"):
            opener(path)
    assert path.read_bytes() == b"hello " * 500


def test_the_file_says_whose_it_is(path: Path) -> None:
    SQLiteLog(path).close()
    assert int.from_bytes(path.read_bytes()[68:72], "big") == APPLICATION_ID


@pytest.mark.parametrize(
    ("drafts", "index"),
    [
        ([started(), message(), requested(), resolved()], "resolution"),
        ([started(), message(), tool_started()], "start"),
    ],
)
def test_the_database_itself_refuses_a_second_decision_or_start(path: Path, drafts: list[Draft], index: str) -> None:
    with SQLiteLog(path) as log:
        fill(log, "s", drafts)
    conn = plain(path)
    copied = ", ".join("seq + 100" if column == "seq" else column for column in COLUMNS)
    with pytest.raises(sqlite3.IntegrityError, match=f"UNIQUE constraint failed: index 'events_{index}'"):
        conn.execute(f"INSERT INTO events SELECT {copied} FROM events ORDER BY seq DESC LIMIT 1")
    conn.close()


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        ("SELECT * FROM events WHERE kind = 'grant_recorded' AND (session, seq) > ('', 0)", "events_kind"),
        ("SELECT * FROM events WHERE kind = 'approval_resolved' ORDER BY session, seq", "events_kind"),
        (f"SELECT * FROM {schema_module.GRANT_USES} ORDER BY session, seq", "events_grant_use"),
        ("SELECT seq FROM events WHERE session = ? AND command_id = ?", "events_command"),
        ("SELECT min(session) FROM events WHERE session > ?", "COVERING INDEX sqlite_autoindex_events_1"),
        ("SELECT count(*) FROM events WHERE session = ?", "COVERING INDEX sqlite_autoindex_events_1"),
    ],
)
def test_the_lists_over_all_sessions_use_their_index(path: Path, sql: str, index: str) -> None:
    SQLiteLog(path).close()
    conn = plain(path)
    plan = conn.execute(f"EXPLAIN QUERY PLAN {sql}", ["x"] * sql.count("?")).fetchall()
    conn.close()
    assert index in plan[0][3]
    assert not any("TEMP B-TREE" in step[3] for step in plan)


_OPEN = """
import sys
from turnlog.fsm.errors import DatabaseOwned
from turnlog.store import SQLiteLog
from turnlog.store.schema import MIGRATIONS

if sys.argv[2] == "newer":
    MIGRATIONS(name="002_more")(lambda db: db.execute("CREATE TABLE more (a INTEGER) STRICT"))
sys.stdin.readline()
try:
    log = SQLiteLog(sys.argv[1])
except DatabaseOwned as error:
    print("owned", flush=True)
else:
    print("open", flush=True)
    sys.stdin.readline()
    log.close()
"""


@pytest.mark.field(17)
@pytest.mark.parametrize("release", ["this", "newer"])
def test_of_processes_that_open_a_new_or_older_file_together_one_sets_it_up(path: Path, release: str) -> None:
    if release == "newer":
        with SQLiteLog(path) as log:
            fill(log, "old")
    together = [child(_OPEN, str(path), release) for _ in range(4)]
    for process in together:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.stdout.readline().strip() for process in together if process.stdout is not None]
    for process in together:
        process.communicate("end\n")
    assert sorted(said) == ["open", "owned", "owned", "owned"]
    conn = plain(path)
    steps = [name for (name,) in conn.execute("SELECT name FROM _sqlite_migrations ORDER BY name").fetchall()]
    rows = conn.execute("SELECT count(*) FROM events").fetchone()
    conn.close()
    assert steps == ["001_log", "002_more"][: 1 + (release == "newer")]
    assert rows == (10 if release == "newer" else 0,)


@pytest.mark.field(17)
def test_threads_that_open_a_new_file_together_set_it_up_once(path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from turnlog.fsm.errors import DatabaseOwned

    def attempt(_: int) -> SQLiteLog | None:
        try:
            return SQLiteLog(path)
        except DatabaseOwned:
            return None

    with ThreadPoolExecutor(20) as pool:
        opened = [log for log in pool.map(attempt, range(20)) if log is not None]
    assert len(opened) == 1
    fill(opened[0], "s", [started(), draft(message().event)])
    assert len(opened[0].read("s")) == 2
    opened[0].close()


def test_the_columns_are_those_of_the_table(path: Path) -> None:
    SQLiteLog(path).close()
    conn = plain(path)
    names = tuple(row[1] for row in conn.execute("PRAGMA table_info(events)").fetchall())
    conn.close()
    assert names == COLUMNS
    assert len(conversation()) == 10
