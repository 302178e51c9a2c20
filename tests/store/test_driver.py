from pathlib import Path

import pytest

from turnlog.fsm.errors import Error, Fenced, StorageError, StorageFailed, StorageFull
from turnlog.store.driver import code_of, fatal, sqlite3, translate


def failure(code: int) -> BaseException:
    error = sqlite3.OperationalError("text of the driver")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (5, StorageError, "another process holds the write lock"),
        (261, StorageError, "another process holds the write lock"),  # BUSY_RECOVERY
        (6, StorageError, "another process holds the write lock"),
        (13, StorageFull, "make room"),
        (8, StorageFailed, "write permission"),
        (10, StorageFailed, "reopen, read the head"),
        (1034, StorageFailed, "reopen, read the head"),  # IOERR_FSYNC
        (11, StorageFailed, "restore a backup"),
        (26, StorageFailed, "restore a backup"),
        (14, StorageFailed, "folder exists"),
        (1, StorageError, "nothing was written"),
    ],
)
def test_every_failure_has_its_type_and_says_what_to_do(code: int, kind: type[Error], advice: str) -> None:
    error = translate(failure(code), Path("x.db"), "cannot append to")
    assert type(error) is kind
    assert str(error).startswith("cannot append to x.db: text of the driver")
    assert advice in str(error)
    assert fatal(failure(code)) == (kind is StorageFailed)


def test_an_error_of_our_own_stays_as_it_is() -> None:
    error = Fenced("x")
    assert translate(error, Path("x.db"), "cannot append to") is error


def test_an_exception_of_python_has_no_code() -> None:
    assert code_of(ValueError("x")) == 0
    assert not fatal(ValueError("x"))
    assert type(translate(ValueError("x"), Path("x.db"), "cannot append to")) is StorageError


def test_the_driver_is_the_one_of_sqlite_utils() -> None:
    from sqlite_utils import db

    assert sqlite3 is vars(db)["sqlite3"]
