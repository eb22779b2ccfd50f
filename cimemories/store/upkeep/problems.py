"""Explaining failures of a database or a disk: full, read-only, damaged, locked, out of reach."""

from __future__ import annotations

import errno
import sqlite3
from dataclasses import dataclass

import sqlalchemy as sa

RESTORE = (
    "`cimemories workspace verify` says what is damaged; `cimemories workspace restore FILE --replace` brings a backup "
    "back."
)
FREE_SPACE = "Free some space, then do it again; everything saved before is kept."
WRITABLE = "Copy the workspace to a folder that can be written, or change its rights."
REACH = "See that the database server runs and that CIMEMORIES_DATABASE_URL is right, then do it again."
FREE_PLACE = "Do it again when it is less busy, or raise max_connections on the server."

GONE = (
    "what this belongs to was deleted while it was being saved, so nothing was saved. Load the page or the list again, "
    "and choose what is there."
)


@dataclass(frozen=True)
class Problem:
    """`what` is one clause without a full stop, `next` one or two sentences about what to do. damage: the content of
    the database is not what was written."""

    what: str
    next: str
    damage: bool = False


FULL = Problem("the disk of the workspace is full", FREE_SPACE)
# Prefixes of the names of SQLite's result codes, see https://sqlite.org/rescode.html
_SQLITE = {
    "SQLITE_FULL": FULL,
    "SQLITE_CORRUPT": Problem("the database file is damaged", RESTORE, damage=True),
    "SQLITE_NOTADB": Problem("the database file is damaged, or is no SQLite database", RESTORE, damage=True),
    "SQLITE_READONLY": Problem("the workspace is read-only", WRITABLE),
    "SQLITE_BUSY": Problem("another process keeps the database locked", "Wait until it is done, then do it again."),
    "SQLITE_CANTOPEN": Problem(
        "the database file cannot be opened", "Check its folder, its rights and the free disk space."
    ),
    # What SQLite says as well where the disk is so full that it cannot make its files beside the database.
    "SQLITE_IOERR": Problem(
        "the disk of the workspace is full or reports an error",
        "Free some space or check the disk, then do it again; everything saved before is kept.",
    ),
}
# Prefixes of SQLSTATE, see https://www.postgresql.org/docs/current/errcodes-appendix.html
# The first prefix that fits counts, so a code of one error stands before the class that it belongs to.
_POSTGRES = {
    "53100": Problem("the disk of the database server is full", FREE_SPACE),
    "25006": Problem("the database is read-only", "Use an address that may write, or the server's primary."),
    "42501": Problem("the database user may not do this", "Give it the rights, or use another in the address."),
    "XX001": Problem("a table of the database is damaged", RESTORE, damage=True),
    "XX002": Problem("an index of the database is damaged", "REINDEX DATABASE repairs indexes.", damage=True),
    "08": Problem("the connection to the database was lost", REACH),
    "57P": Problem("the database server is stopping or restarting", "Do it again once it is back."),
    "53300": Problem("the database server takes no more connections", FREE_PLACE),
    "53": Problem("the database server has no resources left", "Do it again when it is less busy."),
}
_LOST = Problem("the connection to the database was lost", REACH)


def problem(error: BaseException) -> Problem | None:
    """Return what failed, for an error of the database or of the disk; None for every other error: a broken constraint
    is a bug, not a condition of the machine."""
    if isinstance(error, sa.exc.DBAPIError):
        entry = _POSTGRES["53300"] if is_full(error) else _by_code(error.orig)
        # psycopg gives no SQLSTATE where the server was never reached.
        never = isinstance(error, sa.exc.OperationalError) and _codes(error.orig) == (None, None)
        return entry or (_LOST if error.connection_invalidated or never else None)
    if isinstance(error, sqlite3.Error):
        return _by_code(error)
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return Problem(f"the disk is full{where}", FREE_SPACE)
        if error.errno == errno.EROFS:
            return Problem(f"the file system is read-only{where}", "Choose a folder that can be written.")
    return None


def is_full(error: sa.exc.DBAPIError) -> bool:
    """Return whether the database server has no connection left for us."""
    # At connecting the driver has no SQLSTATE, only the server's words.
    text = str(error.orig)
    return _codes(error.orig)[1] == "53300" or "too many c" in text or "remaining connection slots" in text


def is_lost(error: sa.exc.DBAPIError) -> bool:
    """Return whether an error says that the server is gone, starting or stopping, and nothing of the statement."""
    if error.connection_invalidated:
        return True
    if not isinstance(error, sa.exc.OperationalError):
        return False
    # SQLite's errors have no state: its file does not go away and come back. None: no connection was made.
    state = getattr(error.orig, "sqlstate", "")
    # 08: connection exceptions; 57P: shut down or starting; 53300: no place is free.
    return state is None or state.startswith(("08", "57P")) or state == "53300"


def lacks_row(error: sa.exc.DBAPIError) -> bool:
    """Return whether a row was to be written whose owner is not there, or not any more. What is deleted takes along
    what belongs to it, so a broken foreign key is never the other way round."""
    return _codes(error.orig) in (("SQLITE_CONSTRAINT_FOREIGNKEY", None), (None, "23503"))


def first_line(error: object) -> str:
    """Return the first line of an error's text, without a full stop: what follows is SQL and its values."""
    return (str(error).strip().splitlines() or ["no reason given"])[0].rstrip(".")


def cause(error: BaseException) -> str:
    """Return what failed, as one clause, for any error of the database or of the disk."""
    entry = problem(error)
    return entry.what if entry else first_line(error.orig if isinstance(error, sa.exc.DBAPIError) else error)


def explained(error: BaseException) -> str:
    """Return what failed and what to do next, in one line."""
    entry = problem(error)
    return f"{entry.what}. {entry.next}" if entry else f"{cause(error)}."


def _codes(error: BaseException | None) -> tuple[str | None, str | None]:
    """Return SQLite's name of a result code, and PostgreSQL's SQLSTATE."""
    return getattr(error, "sqlite_errorname", None), getattr(error, "sqlstate", None)


def _by_code(error: BaseException | None) -> Problem | None:
    for code, table in zip(_codes(error), (_SQLITE, _POSTGRES), strict=True):
        for prefix, entry in table.items():
            if code and code.startswith(prefix):
                return entry
    return None
