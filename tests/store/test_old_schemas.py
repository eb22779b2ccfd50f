"""Workspaces of older versions: real databases of every schema, written by the tool of that day.

Each holds a dataset of two profiles with four contexts, its labels by the simulator, two decisions by hand and a run
with its judgements; from 0009 on also rows of what is new in it, since 0016 of review and a memory system as well.
`schemas.json` is what `metrics --json` of that day said. Schema 0001 exists in two forms: labels alone, and, for its
first hours, with the tables of runs as well. Until 0015 the chain ran 0012, 0014, 0013, hence the names of the last two
before it.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from evaluating import cli_inside, outside

from cimemories.flows.labels import default_labelling, vote_counts
from cimemories.model import Label
from cimemories.store import datasets, decisions, migrations, reviews, tables
from cimemories.store.engine import SQLITE_FILE, Store, StoreError, open_store
from cimemories.store.reviews import Guideline, Plan

FIXTURES = Path(__file__).parents[1] / "fixtures"
SCHEMAS = sorted(path.name.split(".")[0].removeprefix("schema-") for path in FIXTURES.glob("schema-*.sqlite.xz"))
NUMBERS: dict[str, dict[str, object]] = json.loads((FIXTURES / "schemas.json").read_text(encoding="utf-8"))


def unpack(schema: str, workspace: Path) -> Path:
    workspace.mkdir()
    packed = (FIXTURES / f"schema-{schema}.sqlite.xz").read_bytes()
    (workspace / SQLITE_FILE).write_bytes(lzma.decompress(packed))
    return workspace


def rows_of(workspace: Path, columns: dict[str, str] | None = None) -> dict[str, list[tuple[object, ...]]]:
    """Return the rows of each table of a database but its schema's name; columns: only these of these tables."""
    with closing(sqlite3.connect(workspace / SQLITE_FILE)) as connection:
        columns = columns or columns_of(workspace)
        return {name: connection.execute(f'SELECT {own} FROM "{name}"').fetchall() for name, own in columns.items()}


def columns_of(workspace: Path) -> dict[str, str]:
    with closing(sqlite3.connect(workspace / SQLITE_FILE)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: ", ".join(f'"{row[1]}"' for row in connection.execute(f'PRAGMA table_info("{name}")'))
            for (name,) in names
            if name != "alembic_version"
        }


def set_schema(store: Store, schema: str) -> None:
    with store.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :to"), {"to": schema})


@pytest.mark.parametrize("schema", SCHEMAS)
def test_an_old_workspace_is_brought_up_to_date_with_all_it_holds_and_its_numbers(tmp_path: Path, schema: str) -> None:
    workspace = unpack(schema, tmp_path / "workspace")
    columns, before = columns_of(workspace), rows_of(workspace)
    store = open_store(workspace)
    assert rows_of(workspace, columns) == before
    assert migrations.current_schema(store.engine) == migrations.HEAD
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
        assert connection.execute(sa.text("PRAGMA foreign_key_check")).all() == []
        (dataset,) = datasets.all_rows(connection)
        assert (dataset.profiles, dataset.attributes, dataset.contexts, dataset.labellings) == (2, 82, 4, 1)
        people = datasets.profile_records(connection, dataset.id)
        history = decisions.history(connection, dataset.id)
    assert [(row.annotator, row.label) for row in history] == [("Ada", Label.NECESSARY), ("Ada", Label.INAPPROPRIATE)]
    labelling = default_labelling(store, dataset.id)
    assert labelling is not None
    assert vote_counts(store, labelling.id).votes.sum() == 1968
    if schema in NUMBERS:
        assert_numbers(workspace, NUMBERS[schema])
    pair = {"attribute": people[1].attribute_ids[0], "context": people[1].context_ids[0]}
    with store.write() as connection:
        decisions.add(connection, dataset_id=dataset.id, annotator="Ada", label=Label.NECESSARY, **pair)
    store.close()


def assert_numbers(workspace: Path, expected: dict[str, object]) -> None:
    done = cli_inside(outside(), "metrics", expected["run"], "--json", "--workspace", workspace)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    for row in numbers["per_profile"]:
        del row["violation"]  # at the headline's n: the same again
    assert {name: numbers[name] for name in expected} == expected


def test_a_guideline_and_an_overlap_from_before_reasons_stay_and_have_none(tmp_path: Path) -> None:
    workspace = unpack("0004", tmp_path / "workspace")
    with sqlite3.connect(workspace / SQLITE_FILE) as connection:
        connection.execute("INSERT INTO guideline (hash, text, annotator, created) VALUES ('h', 'Old.', 'Ada', '2026')")
        connection.execute("INSERT INTO review_plan VALUES (1, 0.25, 3, 7, 'Ada', '2026')")
    connection.close()
    store = open_store(workspace)
    with store.write() as connection:
        assert reviews.guideline_versions(connection) == [Guideline("h", "Old.", "Ada", "2026", 1, "")]
        before = reviews.PlanChange(Plan(0.25, 3, 7), "Ada", "", "2026")
        assert reviews.plan_changes(connection, 1) == [before]
        reviews.set_overlap_plan(connection, 1, Plan(0.5), "Bob", "More.")
        assert reviews.overlap_plan(connection, 1) == Plan(0.5)
        first, second = reviews.plan_changes(connection, 1)
    store.close()
    assert (first, second.annotator, second.reason) == (before, "Bob", "More.")


def test_migrations_run_in_the_order_of_their_numbers_and_every_old_schema_has_a_record() -> None:
    """A branch, or a number before one that a database has passed, would leave that database without its tables."""
    schemas = migrations.known_schemas()
    assert schemas == [f"{number:04}" for number in range(1, len(schemas) + 1)]
    assert {name[:4] for name in SCHEMAS} == set(schemas)
    assert migrations.tables_of(migrations.HEAD) == (frozenset({*tables.metadata.tables, "alembic_version"}),)


EARLIER = "ALTER TABLE response DROP COLUMN earlier"
EXPLAINS = ("DROP INDEX ix_run_explains", "ALTER TABLE run DROP COLUMN explains")
SINCE = (  # of the migrations after these
    "ALTER TABLE call DROP COLUMN served_model",
    "ALTER TABLE request DROP COLUMN passages",
    "DROP TABLE passage",
    "ALTER TABLE run DROP COLUMN tags",
    "ALTER TABLE run DROP COLUMN note",
)


@pytest.mark.parametrize(("schema", "lacks"), [("0012", (EARLIER, *EXPLAINS)), ("0014", EXPLAINS), ("0013", ())])
def test_a_database_of_when_0014_came_before_0013_gets_what_it_lacks(
    store: Store, schema: str, lacks: tuple[str, ...]
) -> None:
    with store.write() as connection:
        for statement in (*lacks, *SINCE):
            connection.execute(sa.text(statement))
    set_schema(store, schema)
    again = open_store(store.workspace, store.engine.url.render_as_string(hide_password=False))
    assert migrations.current_schema(again.engine) == migrations.HEAD
    with again.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
    again.close()


def test_a_newer_schema_is_refused_and_left_as_it_is(store: Store) -> None:
    set_schema(store, "9001")
    with pytest.raises(StoreError, match="newer version of CIMemories Studio .schema 9001.* Update") as caught:
        open_store(store.workspace, store.engine.url.render_as_string(hide_password=False))
    assert "\n" not in str(caught.value)
    assert migrations.current_schema(store.engine) == "9001"
