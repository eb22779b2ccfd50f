"""Copying all rows from one record to another, whatever engines they are on. Both must have the newest schema."""

from __future__ import annotations

import sqlalchemy as sa

from cimemories.store import curation_tables, review_tables, run_tables  # noqa: F401  their tables hang on the same metadata
from cimemories.store.tables import metadata

_ROWS_AT_ONCE = 2000


def copy_rows(source: sa.Connection, target: sa.Connection) -> None:
    """Insert every row of `source` into `target`, whose tables must be empty; both in transactions of the caller.

    Ids stay as they are. A row that refers to another one of its table has the higher id, so the order of ids will do.
    """
    for table in metadata.sorted_tables:
        query = sa.select(table).order_by(*table.primary_key.columns)
        result = source.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE).execute(query)
        for rows in result.mappings().partitions(_ROWS_AT_ONCE):
            target.execute(sa.insert(table), [dict(row) for row in rows])
        if target.dialect.name == "postgresql" and "id" in table.c and isinstance(table.c.id.type, sa.BigInteger):
            _continue_ids(target, table)


def _continue_ids(connection: sa.Connection, table: sa.Table) -> None:
    """Let PostgreSQL number new rows after those that came with their ids."""
    sequence = sa.func.pg_get_serial_sequence(connection.dialect.identifier_preparer.quote(table.name), "id")
    highest = sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0) + 1).scalar_subquery()
    connection.execute(sa.select(sa.func.setval(sequence, highest, False)))


def count_rows(connection: sa.Connection) -> dict[str, int]:
    """Rows of every table of the newest schema, alembic's own among them."""
    counts = {
        table.name: int(connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one())
        for table in metadata.sorted_tables
    }
    return dict(sorted({**counts, "alembic_version": 1}.items()))


def clear(connection: sa.Connection) -> None:
    """Delete every row of every table, those that refer to others first."""
    for table in reversed(metadata.sorted_tables):
        connection.execute(sa.delete(table))


def is_empty(connection: sa.Connection) -> bool:
    """Whether no table holds a row."""
    return not any(
        connection.execute(sa.select(sa.literal(1)).select_from(t).limit(1)).first() for t in metadata.sorted_tables
    )
