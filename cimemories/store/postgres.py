"""PostgreSQL's own programs: pg_dump for a backup, pg_restore and psql to bring it back.

They are given the address without its password, which they find in their environment: the list of processes shows
arguments to everybody.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import sqlalchemy as sa

from cimemories.store.engine import StoreError
from cimemories.store.problems import first_line
from cimemories.store.tables import metadata
from cimemories.store.transfer import count_rows

LOCK_TIMEOUT = "20s"
_INSTALL = "On Debian: apt-get install postgresql-client."
# A line of `pg_restore --list`: 215; 1259 16389 TABLE public dataset owner
_TABLE = re.compile(r"\d+; \d+ \d+ (?:FOREIGN )?TABLE (?!DATA |ATTACH )\S+ (.+?) \S*$")


def why_no_dump(engine: sa.Engine) -> str:
    """Why pg_dump cannot be used for this server, as one clause; an empty text where it can."""
    if not shutil.which("pg_dump"):
        return "pg_dump is not installed"
    told = subprocess.run(["pg_dump", "--version"], capture_output=True, text=True, check=False).stdout.split()
    version = next((word for word in told if word[:1].isdigit()), "0")
    with engine.connect() as connection:
        server = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one()) // 10000
    if int(version.split(".")[0]) < server:
        return f"pg_dump {version} is older than the server ({server})"
    return ""


def dump(engine: sa.Engine, path: Path) -> dict[str, int]:
    """Write our tables with pg_dump; returns their rows, counted in the same snapshot. Raises StoreError."""
    connection = engine.connect().execution_options(isolation_level="REPEATABLE READ")
    with connection, connection.begin():
        snapshot = str(connection.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
        counts = count_rows(connection)
        schema = str(connection.exec_driver_sql("SELECT current_schema()").scalar_one())
        tables = [f'--table="{schema}"."{name}"' for name in counts]
        _run(
            *("pg_dump", "--format=custom", "--no-owner", "--no-privileges", f"--snapshot={snapshot}"),
            *(*tables, f"--file={path}", "--dbname", _address(engine.url)),
            environment=_environment(engine.url),
        )
    return counts


def tables_in(path: Path) -> list[str]:
    """Names of the tables that a dump makes, by its list of contents. Raises StoreError where pg_restore is not
    installed or cannot read the file."""
    _require_programs("pg_restore")
    listed = _run("pg_restore", "--list", str(path), environment=dict(os.environ))
    return [match[1] for line in listed.splitlines() if (match := _TABLE.match(line))]


def _require_programs(*programs: str) -> None:
    for program in programs:
        if not shutil.which(program):
            raise StoreError(f"this backup was made by pg_dump, and {program} is not installed here. {_INSTALL}")


def restore(engine: sa.Engine, path: Path, counts: Mapping[str, int], afterwards: str) -> None:
    """Put a dump in the place of our tables, in one transaction: all of it, or nothing is changed.

    counts: rows that each table must hold in the end; afterwards: SQL to be run in the same transaction. Raises
    StoreError.
    """
    _require_programs("pg_restore", "psql")
    script = path.with_suffix(".sql")
    environment = _environment(engine.url)
    _run("pg_restore", "--no-owner", "--no-privileges", f"--file={script}", str(path), environment=environment)
    with engine.connect() as connection, connection.begin():
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar_one()
        quote = connection.dialect.identifier_preparer.quote_identifier
        there = set(sa.inspect(connection).get_table_names())
    ours = sorted(there & {*metadata.tables, "alembic_version"})
    before, after = path.with_suffix(".before.sql"), path.with_suffix(".after.sql")
    drops = [f"DROP TABLE {quote(schema)}.{quote(name)} CASCADE;" for name in ours]
    before.write_text("\n".join([f"SET lock_timeout = '{LOCK_TIMEOUT}';", *drops]), encoding="utf-8")
    checks = [
        f"IF (SELECT count(*) FROM {quote(name)}) <> {int(count)} THEN "
        f"RAISE EXCEPTION 'table {name} does not hold the rows that were backed up'; END IF;"
        for name, count in counts.items()
        if name in metadata.tables
    ]
    lines = [f"SET search_path = {quote(schema)};", "DO $check$ BEGIN", *checks, "END $check$;", afterwards]
    after.write_text("\n".join(lines), encoding="utf-8")
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
    """What the program printed. Raises StoreError where it failed."""
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line or "error" in line or "FATAL" in line]
        raise StoreError(f"{command[0]} failed: {first_line((said or [done.stderr])[0])}. Nothing was changed.")
    return done.stdout
