"""Schema migrations by Alembic, run on open. Two processes that open a new workspace at once take turns."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

from cimemories.store import curation_tables, review_tables, run_tables  # noqa: F401  they make the metadata whole
from cimemories.store.tables import metadata

HERE = Path(__file__).parent / "migrations"
HEAD = "0008"
VERSION_TABLE = "alembic_version"
_ADVISORY_LOCK = 7_023_511_493


class SchemaError(Exception):
    """The schema cannot be used as it is. The message goes on from 'the database X' and says what to do next."""


def upgrade(engine: sa.Engine) -> None:
    """Bring the schema to HEAD; returns at once where it already is there.

    Raises SchemaError where the schema is newer than this version knows, and sqlalchemy's errors unchanged.
    """
    if _at_head(engine):
        return
    from alembic import command  # imported late: it costs 0.2 s, and a current workspace does not need it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    with engine.connect() as connection:
        connection = connection.execution_options(cimemories_write=True)
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def require_current(engine: sa.Engine) -> None:
    """Raises SchemaError where the schema is not the one of this version and cannot be brought up to date, because the
    database is read-only."""
    if not _at_head(engine):
        found = current(engine)
        state = f"has the older schema {found}" if found else "holds no tables yet"
        raise SchemaError(
            f"{state} and is read-only, so it cannot be brought up to date. Copy the workspace to a folder that can be "
            "written, and open it there."
        )


def _at_head(engine: sa.Engine) -> bool:
    found = current(engine)
    if found in (None, HEAD):
        return found == HEAD
    if found not in known():
        raise SchemaError(
            f"was written by a newer version of CIMemories Studio (schema {found}; this one knows up to {HEAD}). "
            "Update this installation, or choose another workspace. Nothing was changed."
        )
    return False


def known() -> frozenset[str]:
    """The schemas that can be opened and brought up to date."""
    return frozenset(file.name[:4] for file in (HERE / "versions").glob("[0-9]*.py"))


def tables_of(schema: str) -> tuple[frozenset[str], ...]:
    """The names of all tables of a known schema, alembic's own among them: one set for each form that it had.

    Older schemas are made in memory, which takes a moment.
    """
    if schema == HEAD:
        return (frozenset({*metadata.tables, VERSION_TABLE}),)
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(HERE))
    engine = sa.create_engine("sqlite://")
    try:
        with engine.connect() as connection, connection.begin():
            config.attributes["connection"] = connection
            command.upgrade(config, schema)
            names = frozenset(sa.inspect(connection).get_table_names())
    finally:
        engine.dispose()
    # For a few hours schema 0001 had the tables of 0002 as well.
    return (names, *tables_of("0002")) if schema == "0001" else (names,)


def current(engine: sa.Engine) -> str | None:
    """The schema that a database stands at; None where it has no tables of ours."""
    with engine.connect() as connection, connection.begin():
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
