"""Names and times that the record gives out.

What is compared between machines (heartbeats, leases) goes by the clock of the database, `database_clock`, never by
that of whoever asks: the clocks of two machines differ by minutes more often than one thinks.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles


def new_id(kind: str) -> str:
    """A short id that no other workspace has given out either, e.g. 'run-3f9a1c2e'."""
    return f"{kind}-{secrets.token_hex(4)}"


def now() -> str:
    """The time in UTC as ISO 8601 text, to the millisecond; sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def later_than(before: str, moment: str) -> str:
    """The moment, or the first one after `before` (may be empty) where that is later: what was written last is newest
    also where the clock of who wrote before was ahead."""
    if moment > before:
        return moment
    later = datetime.fromisoformat(before) + timedelta(milliseconds=1)
    return later.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class database_clock(sa.sql.functions.FunctionElement[float]):
    """SQL: seconds since 1970 by the database's clock, at the moment of the statement. A SQLite file has the clock of
    its one machine."""

    type = sa.Double()
    inherit_cache = True


class database_started(sa.sql.functions.FunctionElement[float]):
    """SQL: when the database server was started, by its own clock; 0 for a SQLite file, which is always there."""

    type = sa.Double()
    inherit_cache = True


@compiles(database_clock, "sqlite")
def _sqlite_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_clock, "postgresql")
def _postgres_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(database_started, "sqlite")
def _sqlite_started(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "0.0"


@compiles(database_started, "postgresql")
def _postgres_started(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS DOUBLE PRECISION)"


def canonical_json(value: object) -> str:
    """One text for one value: keys sorted, no spaces, characters as they are."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def content_hash(value: object) -> str:
    """SHA-256 (first 32 hex digits, 128 bits) of a value's canonical JSON."""
    return text_hash(canonical_json(value))


def text_hash(text: str) -> str:
    """The same of a text that is canonical JSON already."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
