"""A PostgreSQL that takes few connections: whoever finds no place waits for one, and nothing is lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from cimemories.store import engine
from cimemories.store.engine import DatabaseLost, Store, StoreError, open_store
from cimemories.store.rows import insert
from cimemories.store.tables import dataset

pytestmark = pytest.mark.postgres
PLACES = 3


@pytest.fixture
def address(postgres_url: str) -> Iterator[str]:
    """A database for a user who may have PLACES connections."""
    name = f"few_{uuid.uuid4().hex}"
    maintenance = sa.create_engine(postgres_url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with maintenance.connect() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN CONNECTION LIMIT {PLACES}")
        connection.exec_driver_sql(f"CREATE DATABASE {name} OWNER {name}")
    yield maintenance.url.set(database=name, username=name).render_as_string(hide_password=False)
    with maintenance.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def write(store: Store, name: str) -> None:
    values = {"name": name, "origin": "test", "source_hash": name, "created": ""}
    with store.write() as connection:
        connection.execute(sa.insert(dataset).values(**values))


def test_more_processes_than_places_write_everything(address: str, tmp_path: Path) -> None:
    open_store(tmp_path, address).close()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            store = open_store(tmp_path, address)  # a pool of its own, as a process has
            for turn in range(5):
                write(store, f"{number}.{turn}")
            store.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2 * PLACES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    store = open_store(tmp_path, address)
    with store.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(dataset)).scalar() == 5 * len(threads)
    store.close()


def test_without_a_place_a_line_says_what_to_do(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.1)
    stores = [open_store(tmp_path, address) for _ in range(PLACES)]
    held = [store.engine.connect() for store in stores]
    with pytest.raises(DatabaseLost, match="takes no more connections.* raise max_connections"):
        open_store(tmp_path, address)
    with pytest.raises(DatabaseLost, match="takes no more connections, so nothing was done"):
        # A second connection of a process whose first one is in use.
        write(stores[0], "one too many")
    held[0].close()
    write(stores[0], "in the place of the first")
    for connection, store in zip(held, stores, strict=True):
        connection.close()
        store.close()


def test_whoever_rests_leaves_the_place_to_others(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 1)
    resting = [open_store(tmp_path, address) for _ in range(PLACES)]
    for store in resting:
        store.check()
    # All places are taken by connections that nobody uses: they are ended, and this one finds room in time.
    late = open_store(tmp_path, address)
    write(late, "late")
    # Those who rested connect anew.
    write(resting[0], "again")
    for store in (*resting, late):
        store.close()


def test_rows_that_are_copied_fail_as_others_do(address: str, tmp_path: Path) -> None:
    store, other = open_store(tmp_path, address), open_store(tmp_path, address)
    row = {"name": "cut off", "origin": "test", "source_hash": "x", "created": ""}
    with pytest.raises(sa.exc.IntegrityError, match="duplicate key"), store.write() as connection:
        insert(connection, dataset, [{**row, "name": "twice"}] * 2)

    def cut_off() -> None:
        with store.write() as connection:
            own = connection.scalar(sa.text("SELECT pg_backend_pid()"))
            with other.write() as ends:
                ends.execute(sa.select(sa.func.pg_terminate_backend(own)))
            insert(connection, dataset, [row] * 100_000)

    with pytest.raises(DatabaseLost, match="does not answer"):
        cut_off()
    # Nothing of either was written, and the next one finds a connection that works.
    with store.write() as connection:
        insert(connection, dataset, [{**row, "name": "whole", "source_hash": "x\\\t\n\\."}])
    with store.read() as connection:
        assert connection.execute(sa.select(dataset.c.name, dataset.c.source_hash)).all() == [("whole", "x\\\t\n\\.")]
    store.close()
    other.close()


@pytest.mark.parametrize("fresh", [0.0, 60.0])
def test_a_connection_that_died_in_the_pool_is_replaced(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: float
) -> None:
    monkeypatch.setattr(engine, "FRESH_SECONDS", fresh)
    store, other = open_store(tmp_path, address), open_store(tmp_path, address)

    def end_those_of_the_pool() -> None:
        with store.read() as one, store.read() as two:
            ended = {connection.scalar(sa.text("SELECT pg_backend_pid()")) for connection in (one, two)}
        assert len(ended) == 2
        with other.write() as ends:
            for process in ended:
                ends.execute(sa.select(sa.func.pg_terminate_backend(process, 10_000)))

    for transaction in (store.read, store.write):
        end_those_of_the_pool()
        with transaction() as first, transaction() as second:
            assert first.scalar(sa.select(1)) == second.scalar(sa.select(1)) == 1
    # A block that begins at once is not asked before: it fails, and `retry` runs it again.
    end_those_of_the_pool()
    asked = []

    def task() -> int:
        with store.read(at_once=True) as connection:
            asked.append(1)
            return int(connection.scalar(sa.select(1)) or 0)

    assert store.patient(10).retry(task) == 1
    assert len(asked) == (2 if fresh else 1)
    store.close()
    other.close()


def test_a_transaction_outlasts_the_time_that_a_session_may_be_idle(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_SECONDS", 1)
    store = open_store(tmp_path, address)
    with store.read() as reading, store.write() as writing:
        time.sleep(1.5)  # with something else, before the first statement
        assert reading.scalar(sa.select(1)) == writing.scalar(sa.select(1)) == 1
    time.sleep(1.5)
    write(store, "on a new connection")
    store.close()


def test_many_threads_share_few_connections_and_leave_places_to_others(address: str, tmp_path: Path) -> None:
    busy, other = open_store(tmp_path, address), open_store(tmp_path, address)
    stop, failures, turns = threading.Event(), list[BaseException](), list[float]()

    def work() -> None:
        try:
            while not stop.is_set():
                clock = time.monotonic()
                busy.check()
                turns.append(time.monotonic() - clock)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(5 * PLACES)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    stop.set()
    # Whoever comes while all places are taken has one as soon as the busy ones let go.
    write(other, "in between")
    for thread in threads:
        thread.join()
    assert not failures and len(turns) > len(threads)
    busy.close()
    other.close()


def test_a_database_that_does_not_hold_every_character_is_refused_in_words(
    maintenance: sa.Connection, tmp_path: Path
) -> None:
    name = f"ascii_{uuid.uuid4().hex}"
    without = "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    maintenance.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE template0 {without}")
    address = maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    try:
        with pytest.raises(StoreError, match=r"stores text as SQL_ASCII.*CREATE DATABASE .* ENCODING 'UTF8'"):
            open_store(tmp_path, address)
    finally:
        maintenance.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
