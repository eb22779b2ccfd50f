"""Copying all rows of a record into another one, whatever engines they are on. Both must have the newest schema."""

from __future__ import annotations

import sqlalchemy as sa

from cimemories.store.migrations import VERSION_TABLE
from cimemories.store.rows import count
from cimemories.store.tables import metadata

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
        parent = next((c.name for c in table.c if any(key.column.table is table for key in c.foreign_keys)), None)
        ahead: list[dict[str, int]] = []
        # Streamed: no table is ever in memory as a whole.
        result = source.execution_options(stream_results=True, yield_per=_ROWS_AT_ONCE).execute(query)
        for rows in result.mappings().partitions(_ROWS_AT_ONCE):
            values = [dict(row) for row in rows]
            for row in values if parent else ():
                # Not there yet: what was merged from another workspace has a higher id than what superseded it.
                if row[parent] is not None and row[parent] > row["id"]:
                    ahead.append({"this": row["id"], "other": row[parent]})
                    row[parent] = None
            target.execute(sa.insert(table), values)
        if parent and ahead:
            statement = sa.update(table).where(table.c.id == sa.bindparam("this"))
            target.execute(statement.values({parent: sa.bindparam("other")}), ahead)
        if target.dialect.name == "postgresql" and "id" in table.c and isinstance(table.c.id.type, sa.BigInteger):
            # New rows are numbered after those that came with their ids.
            sequence = sa.func.pg_get_serial_sequence(target.dialect.identifier_preparer.quote(table.name), "id")
            highest = sa.select(sa.func.coalesce(sa.func.max(table.c.id), 0) + 1).scalar_subquery()
            # False: the next row gets this very number, not the one after it.
            target.execute(sa.select(sa.func.setval(sequence, highest, False)))


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
