"""Looking after a record: checking that it is whole, deleting, and purging calls that nothing needs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cimemories.model import JudgementStatus, WorkKind, WorkStatus
from cimemories.store import datasets, labellings, runs, versions, work
from cimemories.store import engine as store_engine
from cimemories.store.backup import BACKUP_DRAFT, DRAFT, abandoned, remove_abandoned
from cimemories.store.engine import (
    Store,
    StoreError,
    cause,
    explained,
    open_as_it_is,
    problem,
    record_address,
    sqlite_path,
)
from cimemories.store.tables import (
    audit,
    ballot,
    call,
    comment,
    dataset,
    decision,
    generation,
    generation_part,
    imported_vote,
    judgement,
    labelling,
    mark,
    metadata,
    request,
    response,
    run,
    run_call,
    run_judge,
    sweep,
    vote,
)
from cimemories.text import count

# ---- deleting
#
# What goes when a dataset, run, sweep, labelling or generation is deleted, what rests on it, and deleting it.
#
# Recorded calls stay: they cost money and answer the same request again; `store.purging` removes those nothing needs.


Counts = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Deletion:
    """One thing that can be deleted. goes: what is a part of it, counted; rests: what was made on top of it and goes
    with it too, which takes a word of its own; note: what a person should know beside that."""

    title: str
    dataset: int | None
    work_id: str | None
    goes: Counts
    rests: Counts = ()
    note: str = ""

    def words(self, counts: Counts) -> str:
        """'2 labellings, 1,204 decisions'."""
        return ", ".join(count(number, name) for number, name in counts)


def of_dataset(connection: sa.Connection, name: str) -> Deletion:
    """What deleting a dataset takes along. Raises StoreError where there is none of that name."""
    row = datasets.named(connection, name)

    def counted(table: sa.Table) -> int:
        return _count(connection, table, table.c.dataset == row.id)

    goes = [(row.profiles, "profile"), (row.attributes, "attribute"), (row.contexts, "context")]
    rests = [
        *((row.labellings, "labelling"), (counted(decision), "decision"), (counted(sweep), "sweep"), (row.runs, "run")),
        *((counted(audit), "audit verdict"), (counted(comment), "comment"), (counted(mark), "mark")),
        (1 if versions.freeze_of(connection, row.id) else 0, "freeze"),
    ]
    return Deletion(f"the dataset '{name}'", row.id, None, _some(goes), _some(rests))


def of_work(connection: sa.Connection, work_id: str) -> Deletion:
    """What deleting a run, sweep, labelling or generation takes along.

    Raises StoreError where there is none of that id, and where it must stay: a labelling that a frozen dataset is made
    of, a generation whose dataset is there (it says who wrote it).
    """
    kind = work.kind_of(work_id)
    row = work.load(connection, work_id)
    if kind is WorkKind.RUN:
        return _of_runs(connection, f"the run '{row['name']}' ({work_id})", work_id, [work_id])
    if kind is WorkKind.SWEEP:
        ids = list(connection.execute(sa.select(run.c.id).where(run.c.sweep == work_id)).scalars())
        own = _of_runs(connection, f"the sweep '{row['name']}' ({work_id})", work_id, ids)
        return Deletion(own.title, None, work_id, (), _some([(len(ids), "run"), *own.goes, *own.rests]))
    if kind is WorkKind.LABELLING:
        return _of_labelling(connection, row)
    if row["dataset"] is not None:
        name = connection.execute(sa.select(dataset.c.name).where(dataset.c.id == row["dataset"])).scalar()
        raise StoreError(
            f"{work_id} is where the dataset '{name}' says it comes from, so it stays as long as the dataset does. "
            "Delete the dataset first."
        )
    parts = _count(connection, generation_part, generation_part.c.generation == work_id)
    return Deletion(f"the generation '{row['name']}' ({work_id})", None, work_id, _some([(parts, "part")]))


def _of_runs(connection: sa.Connection, title: str, work_id: str, ids: list[str]) -> Deletion:
    own = response.c.run.in_(ids)
    judged = judgement.join(response, judgement.c.response == response.c.id)
    goes = [
        (_count(connection, response, own), "message"),
        (_count(connection, judged, own), "judgement"),
    ]
    return Deletion(title, None, work_id, _some(goes), _some([(verdicts_on(connection, ids), "audit verdict")]))


def verdicts_on(connection: sa.Connection, run_ids: Sequence[str]) -> int:
    """How many verdicts people have given on the judgements of these runs, taken back ones included."""
    audited = audit.join(response, audit.c.response == response.c.id)
    return _count(connection, audited, response.c.run.in_(run_ids))


def _of_labelling(connection: sa.Connection, row: work.Row) -> Deletion:
    frozen = versions.freeze_of(connection, row["dataset"])
    name, _ = datasets.name_and_revision(connection, row["dataset"])
    if frozen is not None and frozen.labelling == row["id"]:
        raise StoreError(
            f"{row['id']} is a part of '{name}', which is frozen: its hash covers these votes. Delete the dataset, or "
            "make its next version and label that."
        )
    votes = ballot.join(vote, vote.c.ballot == ballot.c.id)
    goes = [
        (_count(connection, votes, ballot.c.labelling == row["id"]), "vote"),
        (_count(connection, imported_vote, imported_vote.c.labelling == row["id"]), "imported share"),
    ]
    others = _count(connection, labelling, labelling.c.dataset == row["dataset"]) - 1
    ran = _count(connection, run, run.c.dataset == row["dataset"])
    note = ""
    if ran and not others:
        note = f"The {count(ran, 'run')} of '{name}' will have no labels to be measured by."
    return Deletion(f"the labelling {row['id']} of '{name}'", None, row["id"], _some(goes), note=note)


def delete(store: Store, planned: Deletion) -> None:
    """Delete it with all that rests on it, and the files of the workspace that are about it.

    Raises StoreError, and changes nothing, where a living process works on any of it, or where it is gone already.
    """
    with store.write() as connection:
        ids = _delete(connection, planned)
    remove_files(store.workspace, ids)


def _delete(connection: sa.Connection, planned: Deletion) -> list[str]:
    """Ids of the work that went."""
    if planned.dataset is not None:
        ids = [row["id"] for row in datasets.work_of(connection, planned.dataset)]
        datasets.delete(connection, planned.dataset)
        return ids
    work_id = str(planned.work_id)
    kind = work.kind_of(work_id)
    row = work.load(connection, work_id)
    ids = [work_id]
    if kind is WorkKind.RUN:
        runs.delete(connection, work_id)
    elif kind is WorkKind.SWEEP:
        members = connection.execute(work.select(run).where(run.c.sweep == work_id)).mappings().all()
        work.require_idle([row, *members])
        ids += [member["id"] for member in members]
        for member in members:
            runs.delete(connection, member["id"])
        connection.execute(sa.delete(sweep).where(sweep.c.id == work_id))
    elif kind is WorkKind.LABELLING:
        work.require_idle([row])
        of_work(connection, work_id)  # a freeze may have come in between
        connection.execute(sa.delete(labelling).where(labelling.c.id == work_id))
    else:
        work.require_idle([row])
        of_work(connection, work_id)
        datasets.delete_generation(connection, work_id)
    return ids


def remove_files(workspace: Path, ids: Iterable[str]) -> None:
    """Remove logs and caches of work that was deleted. What cannot be removed is left to `purge`; a folder that is a
    link is left alone, because in a workspace that came from somebody else it could lead anywhere."""
    logs, cache = workspace / "logs", workspace / "cache"
    for name in ids:
        of_logs = [] if logs.is_symlink() else [logs / f"{name}.log"]
        of_cache = [] if cache.is_symlink() else cache.glob(f"*{name}*")
        for file in (*of_logs, *of_cache):
            with suppress(OSError):
                file.unlink(missing_ok=True)


def _count(connection: sa.Connection, table: sa.FromClause, where: sa.ColumnElement[bool]) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(table).where(where)).scalar_one())


def _some(counts: Iterable[tuple[int, str]]) -> Counts:
    return tuple((count, name) for count, name in counts if count)


# ---- integrity
#
# Whether a record is sound: SQLite's own check, foreign keys, references that no foreign key guards, and counts.
#
# Nothing is written and nothing is migrated, so that a damaged or an older record can be looked at as it is.


MOST_LINES = 20
# References by text that no foreign key guards: (table, column, table it refers to, column there).
REFERENCES = (
    ("response", "memory", "memory", "hash"),
    ("response", "shown", "memory", "hash"),
    ("response", "before", "call", "key"),
    ("run", "sweep", "sweep", "id"),
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
    """What a check came to. schema: None where there are no tables; counts: rows by table, those that can be read."""

    address: str
    schema: str | None
    newest: str
    faults: tuple[Fault, ...]
    counts: dict[str, int]

    @property
    def sound(self) -> bool:
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        return {"sound": self.sound, **asdict(self), "faults": [asdict(fault) for fault in self.faults]}


def check(workspace: Path, url: str | None = None) -> Soundness:
    """Look through a whole record. Raises StoreError where there is none, or where it cannot be opened at all."""
    address = record_address(workspace, url)
    file = sqlite_path(address)
    if file is not None and not file.exists():
        raise StoreError(
            f"there is no record in {workspace}: {file.name} is missing. Choose a workspace with --workspace."
        )
    engine = open_as_it_is(address)
    shown = engine.url.render_as_string(hide_password=True)
    faults: list[Fault] = []
    counts: dict[str, int] = {}
    schema = None
    try:
        with engine.connect() as connection, connection.begin():
            tables = set(sa.inspect(connection).get_table_names())
            if "alembic_version" in tables:
                schema = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
            if file is not None:
                faults += _of_sqlite(connection)
            if not faults or all(fault.kind != "damage" for fault in faults):
                faults += _of_references(connection, tables, foreign_keys=file is None)
            counts = _counts(connection, tables, faults)
        missing = sorted(metadata.tables.keys() - tables) if schema == store_engine.HEAD else []
        faults += [Fault("table", name, "the table is missing", 1) for name in missing]
    except sa.exc.DBAPIError as error:
        faults.append(_damage(error))
    finally:
        engine.dispose()
    return Soundness(shown, schema, store_engine.HEAD, tuple(faults), counts)


def _damage(error: sa.exc.DBAPIError, table: str = "") -> Fault:
    """The fault behind an error of the database. Raises the error where it is of another kind: a lock, say."""
    known = problem(error)
    if known is None or not known.damage:
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
        Fault("foreign key", own, f"the {other} they belong to is gone", n) for (own, other), n in pairs.items()
    ]


def _of_references(connection: sa.Connection, tables: set[str], *, foreign_keys: bool) -> list[Fault]:
    """foreign_keys: those of the tables as well, where the engine has no check of its own for them."""
    kept = [("reference", *reference) for reference in REFERENCES]
    if foreign_keys:
        kept += [
            ("foreign key", table.name, key.parent.name, key.column.table.name, key.column.name)
            for table in metadata.sorted_tables
            for key in table.foreign_keys
        ]
    faults = []
    for kind, own, column, other, target in kept:
        if not {own, other} <= tables or not _has_column(connection, own, column):
            continue
        child, parent = metadata.tables[own], metadata.tables[other].alias("parent")
        gone = sa.select(sa.func.count()).select_from(child.outerjoin(parent, child.c[column] == parent.c[target]))
        rows = connection.execute(gone.where(child.c[column].is_not(None), parent.c[target].is_(None))).scalar_one()
        if rows:
            faults.append(Fault(kind, own, f"the {other} in '{column}' is gone", int(rows)))
    for table, query in _OF_ANOTHER.items():
        if table in tables and (rows := connection.exec_driver_sql(query).scalar_one()):
            faults.append(Fault("dataset", table, "they name a profile of another dataset", int(rows)))
    return faults


def _has_column(connection: sa.Connection, table: str, column: str) -> bool:
    return any(found["name"] == column for found in sa.inspect(connection).get_columns(table))


def _counts(connection: sa.Connection, tables: set[str], faults: list[Fault]) -> dict[str, int]:
    counts = {}
    for name in sorted(tables & metadata.tables.keys()):
        try:
            # A savepoint: PostgreSQL would refuse everything after a damaged table.
            with connection.begin_nested():
                query = sa.select(sa.func.count()).select_from(sa.table(name))
                counts[name] = int(connection.execute(query).scalar_one())
        except sa.exc.DBAPIError as error:
            faults.append(_damage(error, name))
    return counts


# ---- purging
#
# Recorded calls that nothing needs any more, and giving their space back.
#
# Calls outlive the runs they were made for: they cost money, and the same request is answered from them. A call is
# needed by a vote, message, judgement or part of a profile that names it, by a run that used it, and by work that is
# not done and may still ask for it: as long as there is an unfinished run, no call of a run is removed, and so for
# labellings and generations.


LABEL, GENERATE = "label", "generate"
DRAFTS = (DRAFT, BACKUP_DRAFT)  # folders that a killed restore or backup leaves in the workspace
_AT_ONCE = 2000
# Calls of earlier attempts at a part of a profile, which stand in JSON.
_REJECTED = {
    "sqlite": "SELECT json_extract(e.value, '$.call') FROM generation_part p, json_each(p.rejected) e",
    "postgresql": "SELECT e ->> 'call' FROM generation_part p, jsonb_array_elements(p.rejected::jsonb) e",
}


@dataclass(frozen=True)
class Purge:
    """What would go, or went. bytes: of the texts of calls and requests; files: caches and logs of work that is not
    here any more; unfinished: work that keeps calls which nothing names, and `kept`, how many."""

    calls: int
    requests: int
    bytes: int
    files: int
    file_bytes: int
    unfinished: tuple[str, ...]
    kept: int

    @property
    def nothing(self) -> bool:
        return not (self.calls or self.requests or self.files)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan(store: Store) -> Purge:
    """What `purge` would remove. Writes nothing."""
    with store.read() as connection:
        return _plan(connection, store.workspace)


def purge(store: Store) -> Purge:
    """Remove what nothing needs, then give the space back to the disk; returns what went.

    Raises StoreError while any work is under way: it may be about to use a call that nothing names yet.
    """
    with store.write() as connection:
        if connection.dialect.name == "postgresql":
            # Nobody claims work meanwhile; on SQLite this transaction is the only one that writes.
            names = ", ".join(table.name for table in (labelling, run, generation, sweep))
            connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE MODE")
        work.require_idle(work.active(connection))
        planned = _plan(connection, store.workspace)
        connection.execute(sa.delete(call).where(call.c.key.in_(_removable(connection))))
        connection.execute(sa.delete(request).where(request.c.hash.in_(_unused_requests())))
        files = list(_leftover_files(connection, store.workspace))
    for file in files:
        file.unlink(missing_ok=True)
    for prefix in DRAFTS:
        remove_abandoned(store.workspace, prefix)
    _give_back(store)
    return planned


def _plan(connection: sa.Connection, workspace: Path) -> Purge:
    keys = _removable(connection)
    sizes = [
        sa.func.coalesce(sa.func.length(column), 0) for column in (call.c.response, call.c.reasoning, call.c.error)
    ]
    count, texts = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sum(sizes[1:], sizes[0])), 0)).where(
            call.c.key.in_(keys)
        )
    ).one()
    # Requests go once no call that stays is of them.
    staying = sa.select(call.c.request).where(call.c.key.in_(sa.except_(sa.select(call.c.key), keys)))
    requests, bodies = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(sa.func.length(request.c.body)), 0)).where(
            request.c.hash.in_(sa.select(request.c.hash).except_(staying))
        )
    ).one()
    unnamed = connection.execute(sa.select(sa.func.count()).select_from(_unnamed(connection).subquery())).scalar_one()
    held = _unfinished(connection)
    kept = int(unnamed) - int(count)
    files = list(_leftover_files(connection, workspace))
    return Purge(
        calls=int(count),
        requests=int(requests),
        bytes=int(texts) + int(bodies),
        files=len(files),
        file_bytes=sum(file.lstat().st_size for file in files),
        unfinished=tuple(sorted(name for names in held.values() for name in names)) if kept else (),
        kept=kept,
    )


def _unnamed(connection: sa.Connection) -> sa.CompoundSelect[Any]:
    """Keys of the calls that no row names."""
    named = [
        sa.select(column).where(column.is_not(None))
        for column in (
            run_call.c.call,
            response.c.call,
            response.c.before,
            judgement.c.call,
            ballot.c.call,
            generation_part.c.call,
        )
    ]
    rejected = sa.text(_REJECTED[connection.dialect.name]).columns(sa.column("key", sa.Text))
    # EXCEPT and not NOT IN: PostgreSQL would look through the whole list again for every call.
    return sa.except_(sa.select(call.c.key), *named, rejected)


def _removable(connection: sa.Connection) -> sa.Select[Any]:
    """Keys of the calls that no row names and no unfinished work may ask for."""
    unnamed = _unnamed(connection).subquery()
    query = sa.select(unnamed.c.key).join(call, call.c.key == unnamed.c.key)
    held = _unfinished(connection)
    if held["labelling"]:
        query = query.where(call.c.kind != LABEL)
    if held["generation"]:
        query = query.where(call.c.kind != GENERATE)
    if held["run"]:
        query = query.where(call.c.kind.in_((LABEL, GENERATE)))
    return query


def _unused_requests() -> sa.CompoundSelect[Any]:
    return sa.except_(sa.select(request.c.hash), sa.select(call.c.request))


def _unfinished(connection: sa.Connection) -> dict[str, list[str]]:
    """Ids of the work that a resume may still ask models for, by kind; sweeps count as runs."""

    def ids(table: sa.Table, owes: sa.ColumnElement[bool]) -> list[str]:
        open_ = sa.or_(table.c.status.not_in([status for status in WorkStatus if status.is_finished]), owes)
        return list(connection.execute(sa.select(table.c.id).where(open_)).scalars())

    answered = sa.select(sa.func.count()).where(response.c.run == run.c.id, response.c.status == "ok")
    judges = sa.select(sa.func.count()).where(run_judge.c.run == run.c.id)
    settled = (
        sa.select(sa.func.count())
        .select_from(judgement.join(response, judgement.c.response == response.c.id))
        .join(run_judge, sa.and_(run_judge.c.judge == judgement.c.judge, run_judge.c.run == response.c.run))
        .where(response.c.run == run.c.id, judgement.c.status.not_in((JudgementStatus.FAILED, JudgementStatus.OWED)))
    )
    owed = sa.exists().where(response.c.run == run.c.id, response.c.status.in_(runs.RETRIABLE))
    unjudged = settled.scalar_subquery() < answered.scalar_subquery() * judges.scalar_subquery()
    ballots = sa.exists().where(ballot.c.labelling == labelling.c.id, ballot.c.status.in_(labellings.RETRIABLE))
    parts = sa.exists().where(
        generation_part.c.generation == generation.c.id, generation_part.c.status.in_(datasets.RETRIABLE)
    )
    return {
        "labelling": ids(labelling, ballots),
        "generation": ids(generation, parts),
        "run": ids(run, sa.or_(owed, unjudged)) + ids(sweep, sa.false()),
    }


def _leftover_files(connection: sa.Connection, workspace: Path) -> Iterator[Path]:
    """Caches and logs of work that is not here any more, and what a killed process left half written."""
    there = {
        str(name)
        for table in (labelling, run, generation, sweep)
        for name in connection.execute(sa.select(table.c.id)).scalars()
    }
    for file in _own_files(workspace / "logs", "*.log"):
        if file.stem.split("-")[0] in ("run", "labelling", "generation", "sweep") and file.stem not in there:
            yield file
    for file in _own_files(workspace / "cache", "*"):
        if not any(name in file.name for name in there):
            yield file
    for prefix in DRAFTS:
        for folder in abandoned(workspace, prefix):
            yield from _own_files(folder, "**/*")


def _own_files(folder: Path, pattern: str) -> Iterator[Path]:
    """The files in a folder of the workspace. None where that is a link: a workspace that came from somebody else could
    lead to any folder of this user."""
    if not folder.is_symlink():
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_symlink() or path.is_file())


def _give_back(store: Store) -> None:
    """VACUUM: SQLite writes its file anew, for which the disk must have room for it once more."""
    file = sqlite_path(str(store.engine.url))
    if file is not None and shutil.disk_usage(file.parent).free < file.stat().st_size * 1.1:
        raise StoreError(
            f"the calls were removed, but the disk has no room for writing {file} anew, so it keeps its size. Free "
            f"{file.stat().st_size / 1e6:,.0f} MB and run `cimemories purge` again."
        )
    if not store.is_sqlite:
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (FULL, ANALYZE) call, request")
        return
    raw = store.engine.raw_connection()
    try:
        assert raw.driver_connection is not None
        # On the driver's own connection: SQLAlchemy would begin a transaction, and VACUUM refuses to run in one.
        raw.driver_connection.execute("VACUUM")
        raw.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StoreError(f"the calls were removed, but their space was not given back: {explained(error)}") from error
    finally:
        raw.close()
