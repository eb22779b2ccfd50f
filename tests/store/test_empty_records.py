"""The databases that tests get one after the other: each is as a new one."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import EmptyRecords
from worlds import add_dataset

from cimemories.store.engine import open_store

pytestmark = pytest.mark.postgres


def address(maintenance: sa.Connection, name: str) -> str:
    return maintenance.engine.url.set(database=name).render_as_string(hide_password=False)


def identity(maintenance: sa.Connection, name: str) -> int:
    query = sa.text("SELECT oid FROM pg_database WHERE datname = :name")
    return int(maintenance.execute(query, {"name": name}).scalar_one())


def test_what_a_test_has_written_is_gone_and_numbers_begin_at_one(
    empty_records: EmptyRecords, maintenance: sa.Connection, tmp_path: Path
) -> None:
    first = empty_records.take()
    was = identity(maintenance, first)
    store = open_store(tmp_path, address(maintenance, first))
    one = add_dataset(store, profiles=2, attributes=3, contexts=2)
    empty_records.give_back(first)  # with the store's connections still open
    store.close()
    second = empty_records.take()
    assert second != first and identity(maintenance, second) == was
    store = open_store(tmp_path, address(maintenance, second))
    with store.read() as connection:
        for table in sa.inspect(connection).get_table_names():
            count = connection.exec_driver_sql(f'SELECT count(*) FROM "{table}"').scalar_one()
            assert count == (1 if table == "alembic_version" else 0), table
    assert add_dataset(store, profiles=2, attributes=3, contexts=2).id == one.id
    store.close()
    empty_records.give_back(second)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE dataset ADD COLUMN more integer",
        "CREATE TABLE own (id integer)",
        "DROP TABLE comment CASCADE",
        "DELETE FROM alembic_version",
        "UPDATE alembic_version SET version_num = 'older'",
        "ALTER DATABASE {name} SET default_transaction_read_only TO on",
        "ALTER DATABASE {name} CONNECTION LIMIT 3",
    ],
)
def test_what_is_changed_in_anything_but_rows_is_not_used_again(
    empty_records: EmptyRecords, maintenance: sa.Connection, statement: str
) -> None:
    name = empty_records.take()
    was = identity(maintenance, name)
    engine = sa.create_engine(address(maintenance, name), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(statement.format(name=name))
    empty_records.give_back(name)
    assert not maintenance.execute(sa.text("SELECT 1 FROM pg_database WHERE oid = :was"), {"was": was}).first()
