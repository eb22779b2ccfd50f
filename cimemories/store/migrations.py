"""The schemas of the record in their order, and bringing a database up to the newest.

Each schema so far only adds to the one before it, so an entry names what came with it; tables.py says what that looks
like. A table that a database lacks is made as it is today, with columns that later schemas add, and these find them
there. A schema that changes or removes something does so in `then`.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.tables import metadata


@dataclass(frozen=True)
class Schema:
    """One schema. adds: names of tables, and 'table.column'; then: statements that both engines take."""

    number: str
    title: str
    adds: str
    then: tuple[str, ...] = ()


SCHEMAS = (
    Schema(
        "0001",
        "Datasets, recorded calls, votes and decisions",
        "dataset persona request call context labelling profile attribute ballot profile_context decision vote",
    ),
    Schema("0002", "Runs, responses and judgements", "judge run response run_judge judgement reveal"),
    Schema(
        "0003",
        "Versions, edits, freezes and rules of datasets; generated profiles, imported labels",
        "dataset_version edit freeze generation rule generation_part imported_vote",
    ),
    Schema(
        "0004",
        "Review: guidelines, comments, marks, claims, slices, audits; an identity for decisions",
        "guideline saved_view review_plan slice audit claim comment mark slice_item"
        " decision.uid decision.guideline decision.cause",
    ),
    Schema(
        "0005",
        "Wording, memories, the calls behind a run, sweeps; channel and settings of judges",
        "prompt memory run_call sweep run.sweep run.cell response.memory response.shown response.before"
        " judge.channel run_judge.settings judgement.verdict",
        then=(
            "INSERT INTO run_call (run, call) SELECT run, call FROM response WHERE call IS NOT NULL"
            " ON CONFLICT DO NOTHING",
            "INSERT INTO run_call (run, call) SELECT r.run, j.call FROM judgement j JOIN response r"
            " ON j.response = r.id WHERE j.call IS NOT NULL ON CONFLICT DO NOTHING",
        ),
    ),
    Schema(
        "0006",
        "A token that every write of a worker carries, and the worker's machine",
        "run.machine labelling.machine generation.machine sweep.machine"
        " run.claim labelling.claim generation.claim sweep.claim",
    ),
    Schema("0007", "Which server answered, and which are the same", "server same_server call.server call.fresh"),
    Schema("0008", "Which calls a run asked for itself", "run_call.asked"),
    Schema("0009", "Why a guideline or an overlap was changed", "guideline.reason plan_change"),
    Schema("0010", "Which file brought which review events", "review_import review_import_item"),
    Schema("0011", "People with roles, a log, assigned slices", "person audit_log assignment assignee"),
    Schema("0012", "What memory systems recalled", "recall response.recall"),
    Schema("0013", "Runs that explain a leak of another", "run.explains"),
    Schema("0014", "Which earlier messages were in a prompt", "response.earlier"),
    # For some days the order was 0012, 0014, 0013: a database that stopped at 0014 then lacks what 0013 adds.
    Schema("0015", "The same as 0013", "run.explains"),
    Schema("0016", "The model that answered, where it is another one", "call.served_model"),
    Schema("0017", "Paragraphs that prompts share, stored once", "passage request.passages"),
    Schema("0018", "Tags and notes of runs", "run.tags run.note"),
    Schema("0019", "Tool calls and memory writes of assistants", "response.channels"),
)
HEAD = SCHEMAS[-1].number
# Alembic's, which wrote it at first: databases of today have it.
version_table = sa.Table("alembic_version", sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))
VERSION_TABLE = version_table.name
# An arbitrary number that must never change: processes of two versions must wait for each other too.
_ADVISORY_LOCK = 7_023_511_493


class SchemaError(Exception):
    """The schema cannot be used as it is. The message continues 'the database X' and says what to do next."""


def upgrade_schema(engine: sa.Engine) -> None:
    """Bring the schema to HEAD, or return at once if it is there. Of processes that do so at once, one does.

    Raises SchemaError if the schema is newer than this version knows, and sqlalchemy's errors unchanged.
    """
    if _at_head(engine):
        return
    with engine.connect() as connection:
        # With this option SQLite takes its write lock at BEGIN; PostgreSQL waits at the advisory lock.
        connection = connection.execution_options(cimemories_write=True)
        with connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
            migrate(connection)


def migrate(connection: sa.Connection, number: str = HEAD) -> None:
    """Run the migrations that a database lacks, up to a schema, in the caller's transaction."""
    version_table.create(connection, checkfirst=True)
    before = connection.execute(sa.select(version_table.c.version_num)).scalar() or ""
    for schema in SCHEMAS:
        if not before < schema.number <= number:
            continue
        names = schema.adds.split()
        # Tables that are there are left alone: for a few hours 0001 had those of 0002.
        metadata.create_all(connection, [metadata.tables[name] for name in names if "." not in name])
        for name in names:
            table, _, column = name.partition(".")
            if column and column not in {each["name"] for each in sa.inspect(connection).get_columns(table)}:
                _add_column(connection, metadata.tables[table].c[column])
        for statement in schema.then:
            connection.exec_driver_sql(statement)
    if before < number:
        connection.execute(sa.delete(version_table))
        connection.execute(sa.insert(version_table).values(version_num=number))


def _add_column(connection: sa.Connection, column: sa.Column[object]) -> None:
    """Add a column to a table, with the indexes that it completes."""
    table, quote = column.table, connection.dialect.identifier_preparer.quote
    definition = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {quote(table.name)} ADD COLUMN {definition}")
    there = {each["name"] for each in sa.inspect(connection).get_columns(table.name)}
    for index in table.indexes:
        if there.issuperset(index.columns.keys()):
            index.create(connection, checkfirst=True)


def require_current_schema(engine: sa.Engine) -> None:
    """Raise SchemaError unless the schema is that of this version: a read-only database cannot be brought up to it."""
    if not _at_head(engine):
        schema = current_schema(engine)
        state = f"has the older schema {schema}" if schema else "holds no tables yet"
        raise SchemaError(
            f"{state} and is read-only, so it cannot be brought up to date. Copy the workspace to a folder that can be "
            "written, and open it there."
        )


def _at_head(engine: sa.Engine) -> bool:
    schema = current_schema(engine)
    if schema is not None and schema not in known_schemas():
        raise SchemaError(
            f"was written by a newer version of CIMemories Studio (schema {schema}; this one knows up to {HEAD}). "
            "Update this installation, or choose another workspace. Nothing was changed."
        )
    return schema == HEAD


def known_schemas() -> list[str]:
    """Return the schemas that can be opened and brought up to date, oldest first."""
    return [schema.number for schema in SCHEMAS]


def tables_of(number: str) -> tuple[frozenset[str], ...]:
    """Return the names of all tables of a known schema, the version's included: a set for each form that it had."""
    names = {name for schema in SCHEMAS if schema.number <= number for name in schema.adds.split() if "." not in name}
    # For a few hours schema 0001 had the tables of 0002 as well.
    return (frozenset({*names, VERSION_TABLE}), *(tables_of("0002") if number == "0001" else ()))


def current_schema(engine: sa.Engine) -> str | None:
    """Return the schema of a database, or None if it has no tables of ours."""
    with engine.connect() as connection, connection.begin():
        if not sa.inspect(connection).has_table(VERSION_TABLE):
            return None
        return connection.execute(sa.select(version_table.c.version_num)).scalar()
