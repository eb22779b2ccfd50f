"""What survives a power cut: what people decide is on the disk when it is confirmed; answers of models, which can be
asked for again, need not be."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, simulated
from worlds import add_dataset, records

from cimemories.evaluation import planning, runs
from cimemories.model import Label
from cimemories.review.recording import Event, card_id, record
from cimemories.store import decisions, reviews
from cimemories.store.engine import Store, open_store
from cimemories.store.reviews import Mark, MarkKind
from cimemories.store.rows import insert_new
from cimemories.store.tables import edit, passage

MODEL_ANSWERS = {"call", "request", "passage", "run_call", "ballot", "vote", "response", "judgement", "reveal"}
HEARTBEATS = {"run", "labelling", "generation", "sweep", "claim"}
FULL, NORMAL = 2, 1
EDIT = {"kind": "bio", "action": "change", "annotator": "Ada", "created": "2026-01-01T00:00:00.000Z"}


@contextmanager
def watched(store: Store) -> Iterator[list[tuple[int, set[str]]]]:
    """Of every write transaction that was committed: SQLite's `synchronous` as it stood, and the tables written."""
    seen: list[tuple[int, set[str]]] = []
    under_way: dict[int, set[str]] = {}

    def executed(connection: sa.Connection, _c: object, statement: str, *_: object) -> None:
        if match := re.match(r"(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM) \"?(\w+)", statement):
            under_way.setdefault(id(connection.connection.driver_connection), set()).add(match[1])

    def committed(connection: sa.Connection) -> None:
        raw = connection.connection.driver_connection
        if tables := under_way.pop(id(raw), None):
            assert raw is not None
            seen.append((raw.execute("PRAGMA synchronous").fetchone()[0], tables))

    sa.event.listen(store.engine, "after_cursor_execute", executed)
    sa.event.listen(store.engine, "commit", committed)
    try:
        yield seen
    finally:
        sa.event.remove(store.engine, "after_cursor_execute", executed)
        sa.event.remove(store.engine, "commit", committed)


def test_what_people_decide_waits_for_the_disk(sqlite_store: Store) -> None:
    store = sqlite_store
    data = add_dataset(store, profiles=1)
    (person,) = records(store, data.id)
    pair = person.attribute_ids[0], person.context_ids[0]
    press = Event("uid", "say", card_id(pair), str(Label.NECESSARY), 1.0, False, "", None)
    with watched(store) as seen:
        record(store, data, "Ada", [press])
        with store.write() as connection:
            decisions.add(
                connection,
                dataset_id=data.id,
                attribute=pair[0],
                context=pair[1],
                annotator="Bea",
                label=Label.INAPPROPRIATE,
            )
            reviews.add_comment(connection, data.id, "Ada", *pair, "why")
        with store.write() as connection:
            reviews.add_marks(connection, data.id, "Ada", [Mark(*pair, MarkKind.FLAG)])
        with store.write() as connection:
            reviews.keep_guideline(connection)
        with store.write() as connection:
            connection.execute(sa.insert(edit).values(**EDIT, dataset=data.id))
    assert {level for level, _ in seen} == {FULL}
    assert set().union(*(tables for _, tables in seen)) >= {"decision", "comment", "mark", "guideline", "edit"}


def test_only_answers_and_heartbeats_are_relaxed(sqlite_store: Store) -> None:
    """Whatever a whole run writes without waiting for the disk is asked for again by a resume, or is of no account."""
    add_labelled(sqlite_store)
    with watched(sqlite_store) as seen:
        run_id = planning.plan(sqlite_store, simulated())
        runs.execute(sqlite_store, run_id)
    relaxed = [tables for level, tables in seen if level == NORMAL]
    assert any("call" in tables for tables in relaxed), "answers do not wait for the disk one by one"
    assert set().union(*relaxed) <= MODEL_ANSWERS | HEARTBEATS | {"memory"}
    assert FULL in {level for level, tables in seen if "run" in tables}, "the plan and the end wait for it"


def test_the_level_holds_for_its_transaction_alone(sqlite_store: Store) -> None:
    for relaxed in (False, True, True, False, True):
        with sqlite_store.write(relaxed=relaxed) as connection:
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == (NORMAL if relaxed else FULL)


@pytest.mark.postgres
@pytest.mark.parametrize("setting", ["on", "off"])
def test_postgres_waits_for_its_disk_too_where_it_was_told_not_to(
    request: pytest.FixtureRequest, maintenance: sa.Connection, setting: str
) -> None:
    template = request.getfixturevalue("postgres_template")
    name = f"durable_{setting}_{os.getpid()}"
    maintenance.exec_driver_sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    maintenance.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit TO {setting}")
    folder = request.getfixturevalue("tmp_path") / "workspace"
    store = open_store(folder, str(maintenance.engine.url.set(database=name)))

    def level(*, relaxed: bool) -> str:
        with store.write(relaxed=relaxed) as connection:
            return str(connection.exec_driver_sql("SHOW synchronous_commit").scalar())

    try:
        for _ in range(2):
            assert level(relaxed=False) == "on"
            assert level(relaxed=True) == setting
    finally:
        store.close()
        maintenance.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def test_no_transaction_waits_for_its_queries_to_be_compiled(store: Store) -> None:
    if store.engine.dialect.name != "postgresql":
        pytest.skip("SQLite does not compile queries")
    for _ in range(2):
        with store.read() as connection:
            assert connection.exec_driver_sql("SHOW jit").scalar() == "off"
        with store.write() as connection:
            connection.execute(sa.text("SELECT 1"))


def test_prompts_are_compressed_by_lz4_where_the_server_knows_it(store: Store) -> None:
    if store.engine.dialect.name != "postgresql":
        pytest.skip("SQLite compresses nothing")
    with store.write() as connection:
        choices = connection.exec_driver_sql(
            "SELECT enumvals FROM pg_settings WHERE name = 'default_toast_compression'"
        ).scalar_one()
        rows = [{"hash": "memories", "text": "I agreed with my landlord on a rent. " * 500}]
        insert_new(connection, passage, rows)
        kept = connection.exec_driver_sql("SELECT pg_column_compression(text), text FROM passage").one()
    assert tuple(kept) == ("lz4" if "lz4" in choices else "pglz", rows[0]["text"])
