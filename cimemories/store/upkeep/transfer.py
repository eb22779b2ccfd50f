"""Moving all rows of a record: into another one, whatever engines they are on, and by PostgreSQL's own programs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from cimemories.store.engine import Store, StoreError
from cimemories.store.migrations import VERSION_TABLE
from cimemories.store.rows import count
from cimemories.store.tables import metadata
from cimemories.store.upkeep.problems import first_line

# ---- rows
#
# Copying all rows from one record to another, whatever engines they are on. Both must have the newest schema.


_ROWS_AT_ONCE = 2000


def copy_rows(source: sa.Connection, target: sa.Connection) -> None:
    """Insert every row of `source` into `target`, whose tables must be empty; both in transactions of the caller. Ids
    stay as they are."""
    for table in metadata.sorted_tables:
        # As it is stored, not as it is read: an event has the spelling of its file.
        stored = [
            sa.type_coerce(c, sa.Text).label(c.name) if isinstance(c.type, sa.TypeDecorator) else c for c in table.c
        ]
        query = sa.select(*stored).order_by(*table.primary_key.columns)
        # At most one column of a table refers to its own rows: supersedes, resolves.
        own = next((c.name for c in table.c if any(key.column.table is table for key in c.foreign_keys)), None)
        ahead: list[dict[str, int]] = []
        # Streamed: no table is ever in memory as a whole.
        result = source.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE).execute(query)
        for rows in result.mappings().partitions(_ROWS_AT_ONCE):
            values = [dict(row) for row in rows]
            for row in values if own else ():
                # Not there yet: what was merged from another workspace has a higher id than what superseded it.
                if row[own] is not None and row[own] > row["id"]:
                    ahead.append({"this": row["id"], "other": row[own]})
                    row[own] = None
            target.execute(sa.insert(table), values)
        if own and ahead:
            statement = sa.update(table).where(table.c.id == sa.bindparam("this"))
            target.execute(statement.values({own: sa.bindparam("other")}), ahead)
        if target.dialect.name == "postgresql" and "id" in table.c and isinstance(table.c.id.type, sa.BigInteger):
            _continue_ids(target, table)


def _continue_ids(connection: sa.Connection, table: sa.Table) -> None:
    """Let PostgreSQL number new rows after those that came with their ids."""
    sequence = sa.func.pg_get_serial_sequence(connection.dialect.identifier_preparer.quote(table.name), "id")
    highest = sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0) + 1).scalar_subquery()
    # False: the next row gets this very number, not the one after it.
    connection.execute(sa.select(sa.func.setval(sequence, highest, False)))


def count_rows(connection: sa.Connection) -> dict[str, int]:
    """Return the number of rows of every table of the newest schema, that of its version included."""
    counts = {table.name: count(connection, table) for table in metadata.sorted_tables}
    return dict(sorted({**counts, VERSION_TABLE: 1}.items()))


def clear(connection: sa.Connection) -> None:
    """Delete every row of every table, those that refer to others first."""
    for table in reversed(metadata.sorted_tables):
        connection.execute(sa.delete(table))


def is_empty(connection: sa.Connection) -> bool:
    """Return whether no table of the newest schema holds a row; they must all be there."""
    one = (sa.select(sa.literal(1)).select_from(table).limit(1) for table in metadata.sorted_tables)
    return not any(connection.execute(query).first() for query in one)


# ---- PostgreSQL
#
# pg_dump for a backup, pg_restore and psql to restore it. They are given the address without its password, which they
# find in their environment: the list of processes shows arguments to everybody.


LOCK_TIMEOUT = "20s"
_INSTALL = "On Debian: apt-get install postgresql-client."
# A line of `pg_restore --list`: 215; 1259 16389 TABLE public dataset owner
# TABLE DATA and TABLE ATTACH are entries of their own, about a table that has its line anyway.
_TABLE = re.compile(r"\d+; \d+ \d+ (?:FOREIGN )?TABLE (?!DATA |ATTACH )\S+ (.+?) \S*$")


def why_no_dump(engine: sa.Engine) -> str:
    """Return why pg_dump cannot be used for this server, as one clause, or an empty text."""
    if not shutil.which("pg_dump"):
        return "pg_dump is not installed"
    output = subprocess.run(["pg_dump", "--version"], capture_output=True, text=True, check=False).stdout.split()
    version = next((word for word in output if word[:1].isdigit()), "0")
    with engine.connect() as connection:
        server = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10000
    # pg_dump refuses servers of a newer major version than its own; server_version_num of 16.4 is 160004.
    if int(version.split(".")[0]) < server:
        return f"pg_dump {version} is older than the server ({server})"
    return ""


def dump(store: Store, path: Path) -> dict[str, int]:
    """Write our tables with pg_dump; return their rows, counted in the same snapshot. Raises StoreError."""
    # An exported snapshot ends with the transaction that exported it, which therefore stays open while pg_dump runs.
    with store.snapshot() as connection:
        snapshot = str(connection.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
        counts = count_rows(connection)
        schema = str(connection.exec_driver_sql("SELECT current_schema()").scalar_one())
        tables = [f'--table="{schema}"."{name}"' for name in counts]
        _run(
            *("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}"),
            *(*tables, f"--file={path}", "--dbname", _address(store.engine.url)),
            environment=_environment(store.engine.url),
        )
    return counts


def tables_in(path: Path) -> list[str]:
    """Return the names of the tables that a dump makes, by its list of contents. Raises StoreError if pg_restore is not
    installed or cannot read the file."""
    _require_programs("pg_restore")
    listed = _run("pg_restore", "--list", str(path), environment=dict(os.environ))
    return [match[1] for line in listed.splitlines() if (match := _TABLE.match(line))]


def _require_programs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            raise StoreError(f"this backup was made by pg_dump, and {program} is not installed here. {_INSTALL}")


def restore_postgres(engine: sa.Engine, path: Path, counts: Mapping[str, int], afterwards: str) -> None:
    """Put a dump in the place of our tables, in one transaction: all of it, or nothing is changed. counts: rows that
    each table must hold in the end; afterwards: SQL to be run in the same transaction. Raises StoreError."""
    _require_programs("pg_restore", "psql")
    script = path.with_suffix(".sql")
    environment = _environment(engine.url)
    _run("pg_restore", "--no-owner", "--no-privileges", f"--file={script}", str(path), environment=environment)
    # Over before psql begins: DROP TABLE would wait for a transaction of ours that has read the tables.
    with engine.connect() as connection, connection.begin():
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        quote = connection.dialect.identifier_preparer.quote_identifier
        there = set(sa.inspect(connection).get_table_names())
    ours = sorted(there & {*metadata.tables, VERSION_TABLE})
    before, after = path.with_suffix(".before.sql"), path.with_suffix(".after.sql")
    drops = [f"DROP TABLE {quote(schema)}.{quote(name)} CASCADE;" for name in ours]
    # Processes that have the tables open are waited for so long; then psql fails, and nothing is changed.
    before.write_text("\n".join([f"SET lock_timeout = '{LOCK_TIMEOUT}';", *drops]), encoding="utf-8")
    checks = [
        f"IF (SELECT count(*) FROM {quote(name)}) <> {int(rows)} THEN "
        f"RAISE EXCEPTION 'table {name} does not hold the rows that were backed up'; END IF;"
        for name, rows in counts.items()
        # Names and counts come from the backup file: only names of ours get into the SQL.
        if name in metadata.tables
    ]
    # A dump leaves an empty search_path behind, for the safety of what it restores.
    lines = [f"SET search_path = {quote(schema)};", "DO $check$ BEGIN", *checks, "END $check$;", afterwards]
    after.write_text("\n".join(lines), encoding="utf-8")
    # One psql for all three files: drops, dump and checks are a single transaction.
    files = [f"--file={file}" for file in (before, script, after)]
    _run(
        *("psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--single-transaction", "--output=/dev/null"),
        *(*files, "--dbname", _address(engine.url)),
        environment=environment,
    )


def _address(url: sa.URL) -> str:
    return url.set(drivername="postgresql", password=None).render_as_string(hide_password=False)


def _environment(url: sa.URL) -> dict[str, str]:
    password = {"PGPASSWORD": str(url.password)} if url.password else {}
    return {**os.environ, **password, "PGCONNECT_TIMEOUT": "30"}


def _run(*command: str, environment: dict[str, str]) -> str:
    """Return what the program printed. Raises StoreError if it failed."""
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "ERROR" in line or "error" in line or "FATAL" in line]
        raise StoreError(f"{command[0]} failed: {first_line((errors or [done.stderr])[0])}. Nothing was changed.")
    return done.stdout
