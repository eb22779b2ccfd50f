"""Schema migrations by Alembic, run on open. Two processes that open a new workspace at once take turns."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

HERE = Path(__file__).parent / "migrations"
HEAD = "0005"
_ADVISORY_LOCK = 7_023_511_493


def upgrade(engine: sa.Engine) -> None:
    """Bring the schema to HEAD; returns at once where it already is there. Raises sqlalchemy's errors unchanged."""
    if _current(engine) == HEAD:
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


def _current(engine: sa.Engine) -> str | None:
    with engine.connect() as connection, connection.begin():
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
