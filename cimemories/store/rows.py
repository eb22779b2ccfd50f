"""Rows of the record: read into dataclasses, counted, and written, many by few statements on both engines.

`fetch` fills a dataclass from the columns of the same names; columns of JSON, of enumerations and the like are made
what they are by their types (tables.py). Of 50,000 decisions that takes 0.28 s; SQLAlchemy's mapped dataclasses take
0.62 s, and a mapping for each row 0.42 s.

SQLAlchemy's `executemany` is one statement a row: on PostgreSQL 0.1 ms of this process each, on SQLite the driver hands
Python's lock over and back for each, which beside a busy thread took ten times as long as the rows themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache
from itertools import chain, islice
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

CHUNK = 2000  # values of one IN list, or rows of one INSERT of up to 15 columns
MOST_PARAMETERS = 6000  # of one statement; SQLite takes 32,766
Row = Mapping[str, Any]
T = TypeVar("T")


# ---- reading


def fetch(connection: sa.Connection, query: sa.Executable, kind: type[T], parameters: Row | None = None) -> list[T]:
    """Return the rows of a query as objects of a dataclass, each field from the column of its name; fields that no
    column is named like have their defaults."""
    result = connection.execute(query, parameters)
    columns, every = list(result.keys()), _fields(kind)  # type: ignore[arg-type]
    names = [name for name in every if name in columns]
    values = itemgetter(*map(columns.index, names))
    if names == every[: len(names)]:
        return [kind(*values(row)) for row in result]
    return [kind(**dict(zip(names, values(row), strict=True))) for row in result]


def from_row(kind: type[T], row: Row | sa.RowMapping, **more: Any) -> T:
    """Return an object of a dataclass from the columns of a row that are named like its fields, and from `more`."""
    names = (name for name in _fields(kind) if name not in more and name in row)  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names}, **more)


@cache
def _fields(kind: type[Any]) -> list[str]:
    return [item.name for item in fields(kind)]


def rows_of(connection: sa.Connection, query: sa.Executable) -> list[sa.RowMapping]:
    """Return the rows of a query, by the names of their columns."""
    return list(connection.execute(query).mappings())


def count(connection: sa.Connection, source: sa.FromClause, *where: sa.ColumnElement[bool]) -> int:
    """Return how many rows of a table or join satisfy all these conditions."""
    return int(connection.execute(sa.select(sa.func.count()).select_from(source).where(*where)).scalar_one())


def exists(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> bool:
    """Return whether some row satisfies all these conditions."""
    return connection.execute(sa.select(sa.literal(1)).where(*where).limit(1)).first() is not None


def in_chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`, for statements with a list of values; none if there are none."""
    waiting = iter(items)
    while chunk := list(islice(waiting, size)):
        yield chunk


def rows_in_chunks(
    connection: sa.Connection,
    query: sa.Select[Any],
    column: sa.ColumnElement[Any],
    values: Iterable[object],
    size: int = CHUNK,
) -> Iterator[sa.RowMapping]:
    """Yield the rows of a query whose column has one of these values, which may be more than one statement takes."""
    for chunk in in_chunks(dict.fromkeys(values), size):
        yield from connection.execute(query.where(column.in_(chunk))).mappings()


# ---- writing


def insert(connection: sa.Connection, table: sa.Table, rows: Iterable[Row]) -> None:
    """Insert rows, a few thousand at a time. All have the names of the first.

    On PostgreSQL they go in by COPY: 18,000 votes take 0.13 s instead of 0.5 s by `insert_new`.
    """
    for chunk in in_chunks(rows):
        if connection.dialect.name != "sqlite":
            _copy(connection, table, chunk)
            continue
        names = _listed(connection.dialect, tuple(chunk[0]))
        for relation, parameters in as_relation(connection, table, chunk):
            into = _listed(connection.dialect, [table.name])
            connection.exec_driver_sql(f"INSERT INTO {into} ({names}) SELECT {names} FROM {relation}", parameters)


def _copy(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    """Insert rows by PostgreSQL's COPY, in the transaction of the connection; errors are SQLAlchemy's."""
    dialect, names = connection.dialect, tuple(rows[0])
    columns = [_values(dialect, table.c[name].type, [row[name] for row in rows]) for name in names]
    statement = f"COPY {_listed(dialect, [table.name])} ({_listed(dialect, names)}) FROM STDIN"
    kinds = dialect.loaded_dbapi
    try:
        with connection.connection.cursor() as cursor, cursor.copy(statement) as copy:  # type: ignore[attr-defined]
            for row in zip(*columns, strict=True):
                copy.write_row(row)
    except kinds.Error as error:
        lost = dialect.is_disconnect(error, None, None)
        if lost:
            connection.invalidate(error)
        raise sa.exc.DBAPIError.instance(
            statement, None, error, kinds.Error, connection_invalidated=lost, dialect=dialect
        ) from error


def insert_one(connection: sa.Connection, table: sa.Table, **values: Any) -> Any:
    """Insert a row and return its primary key."""
    key = connection.execute(sa.insert(table).values(**values)).inserted_primary_key
    return key[0] if key else None


def insert_returning(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row], *names: str
) -> Sequence[sa.Row[Any]]:
    """Insert rows and return these columns of each, in the order given, in which engines need not return them."""
    statement = sa.insert(table).returning(*(table.c[name] for name in names), sort_by_parameter_order=True)
    return connection.execute(statement, list(rows)).all() if rows else []


def as_relation(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row]
) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield rows of values for a table as what a statement reads FROM, under the name `new` and with the names of their
    columns, and its parameters; several if they are more than one statement takes. All have the names of the first.

    On PostgreSQL every column goes as one array, so that the text of the statement is the same for any number of rows
    and the server keeps it prepared.
    """
    if not rows:
        return
    names = tuple(rows[0])
    columns = [_values(connection.dialect, table.c[name].type, [row[name] for row in rows]) for name in names]
    listed = _listed(connection.dialect, names)
    if connection.dialect.name != "sqlite":
        yield f"unnest({_arrays(connection.dialect, table, names)}) AS new ({listed})", tuple(columns)
        return
    one, step = f"({', '.join('?' * len(names))})", MOST_PARAMETERS // len(names)
    values = list(zip(*columns, strict=True))
    for page in (values[start : start + step] for start in range(0, len(values), step)):
        # Inside, since the driver counts no rows of a statement that begins with WITH.
        text = f"(WITH new ({listed}) AS (VALUES {', '.join([one] * len(page))}) SELECT * FROM new) AS new"
        yield text, tuple(chain.from_iterable(page))


def _values(dialect: sa.Dialect, kind: TypeEngine[Any], values: list[Any]) -> list[Any]:
    """Return values as the driver takes them for a column."""
    if isinstance(kind, sa.TypeDecorator):
        return [kind.process_bind_param(value, dialect) for value in values]
    # The driver takes an array for one of the type of its values: enumerations of texts, and whole numbers among
    # floats, are made what the column holds.
    exact = {str: str, float: float}.get(kind.python_type)
    return [value if exact is None or value is None else exact(value) for value in values]


@lru_cache(maxsize=64)
def _arrays(dialect: sa.Dialect, table: sa.Table, names: tuple[str, ...]) -> str:
    # %b: texts go as they are. As a literal each would be searched for what has to be escaped, 16,000 characters of a
    # prompt among them.
    kinds = [table.c[name].type for name in names]
    texts = [isinstance(kind, sa.TypeDecorator) or kind.python_type is str for kind in kinds]
    forms = zip(kinds, texts, strict=True)
    return ", ".join(f"{'%b' if text else '%s'}::{kind.compile(dialect=dialect)}[]" for kind, text in forms)


def _listed(dialect: sa.Dialect, names: Sequence[str]) -> str:
    return ", ".join(map(dialect.identifier_preparer.quote, names))


def insert_new(
    connection: sa.Connection, table: sa.Table, rows: Sequence[Row], returning: Sequence[str] = ()
) -> tuple[int, list[tuple[Any, ...]]]:
    """Insert rows, each a mapping with the same names, and leave those alone that are there already. Return how many
    were inserted, and of these the columns named in `returning`."""
    written, returned = 0, []
    for relation, parameters in as_relation(connection, table, rows):
        into, names = _listed(connection.dialect, [table.name]), _listed(connection.dialect, tuple(rows[0]))
        # WHERE true: without it SQLite reads ON as the beginning of a join.
        text = f"INSERT INTO {into} ({names}) SELECT {names} FROM {relation} WHERE true ON CONFLICT DO NOTHING"
        if returning:
            text += f" RETURNING {_listed(connection.dialect, returning)}"
        result = connection.exec_driver_sql(text, parameters)
        page = [tuple(row) for row in result] if returning else []
        returned += page
        written += len(page) if returning else result.rowcount
    return written, returned


def settle(connection: sa.Connection, table: sa.Table, rows: Sequence[Row], owed: Sequence[str]) -> set[int]:
    """Update rows, named by their `id`, whose status is one of `owed` still; return the ids of these. The statement
    looks at the status itself: of two that settle a row at once, the second changes nothing."""
    written: set[int] = set()
    for relation, parameters in as_relation(connection, table, rows):
        values = ", ".join(f"{name} = new.{name}" for name in rows[0] if name != "id")
        still = ", ".join(f"'{status}'" for status in owed)
        text = (
            f"UPDATE {table.name} SET {values} FROM {relation} WHERE {table.name}.id = new.id "
            f"AND {table.name}.status IN ({still}) RETURNING {table.name}.id"
        )
        written.update(connection.exec_driver_sql(text, parameters).scalars())
    return written
