"""Checking a record: SQLite's integrity check, foreign keys, references without a foreign key, and counts.

Nothing is written and nothing is migrated, so that a damaged or an older record can be looked at as it is.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cimemories.store import migrations
from cimemories.store.calls import named_passages
from cimemories.store.engine import StoreError, open_as_it_is, record_address, sqlite_path
from cimemories.store.rows import count
from cimemories.store.tables import metadata, passage
from cimemories.store.upkeep.problems import cause, problem

MOST_LINES = 20
# References by text that no foreign key guards: (table, column, table it refers to, column there).
REFERENCES = (
    ("response", "memory", "memory", "hash"),
    ("response", "shown", "memory", "hash"),
    ("response", "recall", "recall", "hash"),
    ("response", "before", "call", "key"),
    ("run", "sweep", "sweep", "id"),
    ("run", "explains", "run", "id"),
    ("freeze", "labelling", "labelling", "id"),
)
# Rows whose profile or attribute must be of the dataset that they name: (table, column, its way to a dataset).
_OF_ANOTHER = {
    "decision": "SELECT count(*) FROM decision d JOIN attribute a ON a.id = d.attribute JOIN profile p "
    "ON p.id = a.profile WHERE p.dataset <> d.dataset",
    "response": "SELECT count(*) FROM response r JOIN run u ON u.id = r.run JOIN profile p ON p.id = r.profile "
    "WHERE p.dataset <> u.dataset",
    "ballot": "SELECT count(*) FROM ballot b JOIN labelling l ON l.id = b.labelling JOIN profile p "
    "ON p.id = b.profile WHERE p.dataset <> l.dataset",
}


@dataclass(frozen=True)
class Fault:
    """Something that is wrong. kind: damage | foreign key | reference | dataset | table; rows: how many."""

    kind: str
    table: str
    text: str
    rows: int


@dataclass(frozen=True)
class Soundness:
    """The result of a check. schema: None without tables; counts: rows by table, those that can be read."""

    address: str
    schema: str | None
    newest: str
    faults: tuple[Fault, ...]
    counts: dict[str, int]

    @property
    def sound(self) -> bool:
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        return {"sound": self.sound, **asdict(self)}


def require_record(workspace: Path, address: str) -> None:
    """Raise StoreError if a workspace has no record, which opening it would make."""
    file = sqlite_path(address)
    if file is not None and not file.exists():
        raise StoreError(
            f"there is no record in {workspace}: {file.name} is missing. Choose a workspace with --workspace."
        )


def check(workspace: Path, url: str | None = None) -> Soundness:
    """Check all of a record. Raises StoreError if there is none or its address cannot be read, and sqlalchemy's
    DBAPIError if it cannot be opened for another reason than damage (a lock, a server out of reach)."""
    address = record_address(workspace, url)
    file = sqlite_path(address)
    require_record(workspace, address)
    engine = open_as_it_is(address)
    shown = engine.url.render_as_string(hide_password=True)
    faults: list[Fault] = []
    counts: dict[str, int] = {}
    schema = None
    try:
        with engine.connect() as connection, connection.begin():
            tables = set(sa.inspect(connection).get_table_names())
            if migrations.VERSION_TABLE in tables:
                schema = connection.scalar(sa.select(migrations.version_table.c.version_num))
            if file is not None:
                faults += _of_sqlite(connection)
            # Where pages are damaged, queries over them say nothing more, and may fail half way.
            if not faults or all(fault.kind != "damage" for fault in faults):
                faults += _of_references(connection, tables, foreign_keys=file is None)
            counts = _counts(connection, tables, faults)
        # An older schema lacks tables by right.
        missing = sorted(metadata.tables.keys() - tables) if schema == migrations.HEAD else []
        faults += [Fault("table", name, "the table is missing", 1) for name in missing]
    except sa.exc.DBAPIError as error:
        faults.append(_damage(error))
    finally:
        engine.dispose()
    return Soundness(shown, schema, migrations.HEAD, tuple(faults), counts)


def _damage(error: sa.exc.DBAPIError, table: str = "") -> Fault:
    """Return the fault behind an error of the database. Raises the error if it is of another kind: a lock, say."""
    entry = problem(error)
    if entry is None or not entry.damage:
        raise error
    return Fault("damage", table, cause(error), 1)


def _of_sqlite(connection: sa.Connection) -> list[Fault]:
    try:
        verdicts = connection.exec_driver_sql(f"PRAGMA integrity_check({MOST_LINES})").scalars().all()
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
    except sa.exc.DBAPIError as error:
        return [_damage(error)]
    faults = [Fault("damage", "", str(verdict), 1) for verdict in verdicts if verdict != "ok"]
    pairs: dict[tuple[str, str], int] = {}
    for row in broken:
        pairs[row[0], row[2]] = pairs.get((row[0], row[2]), 0) + 1
    return faults + [
        Fault("foreign key", table, f"the {other} they belong to is gone", n) for (table, other), n in pairs.items()
    ]


def _of_references(connection: sa.Connection, tables: set[str], *, foreign_keys: bool) -> list[Fault]:
    """Return broken references. foreign_keys: those of the tables as well, if the engine cannot check them itself."""
    references = [("reference", *reference) for reference in REFERENCES]
    if foreign_keys:
        references += [
            ("foreign key", table.name, key.parent.name, key.column.table.name, key.column.name)
            for table in metadata.sorted_tables
            for key in table.foreign_keys
        ]
    faults = []
    for kind, owner, column, other, target in references:
        # An older schema may lack the column.
        if not {owner, other} <= tables or column not in {c["name"] for c in sa.inspect(connection).get_columns(owner)}:
            continue
        child, parent = metadata.tables[owner], metadata.tables[other].alias("parent")
        # Rows that name something and find no row of it: the outer join leaves null there.
        joined = child.outerjoin(parent, child.c[column] == parent.c[target])
        if rows := count(connection, joined, child.c[column].is_not(None), parent.c[target].is_(None)):
            faults.append(Fault(kind, owner, f"the {other} in '{column}' is gone", rows))
    if "passage" in tables:
        lost = sa.except_(named_passages(connection), sa.select(passage.c.hash)).subquery()
        if rows := count(connection, lost):
            faults.append(Fault("reference", "request", "the passage in 'passages' is gone", rows))
    for table, query in _OF_ANOTHER.items():
        if table in tables and (rows := connection.exec_driver_sql(query).scalar_one()):
            faults.append(Fault("dataset", table, "they name a profile of another dataset", int(rows)))
    return faults


def _counts(connection: sa.Connection, tables: set[str], faults: list[Fault]) -> dict[str, int]:
    counts = {}
    for name in sorted(tables & metadata.tables.keys()):
        try:
            # A savepoint: PostgreSQL would refuse everything after a damaged table.
            with connection.begin_nested():
                counts[name] = count(connection, sa.table(name))
        except sa.exc.DBAPIError as error:
            faults.append(_damage(error, name))
    return counts
