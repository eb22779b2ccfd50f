"""Removing recorded calls and recalls that nothing needs any more, and giving their space back.

Calls outlive the runs they were made for: they cost money, and the same request is answered from them. A call is
needed by a vote, message, judgement or part of a profile that names it, by a run that used it, and by work that is
not done and may still ask for it: as long as there is an unfinished run, no call of a run is removed, and so for
labellings and generations. What a memory system recalled is needed by the messages that name it.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from cimemories.model import JudgementStatus, WorkStatus
from cimemories.store import calls, generations, labellings, runs, work
from cimemories.store.engine import Store, StoreError, sqlite_path
from cimemories.store.rows import count
from cimemories.store.tables import (
    ballot,
    call,
    generation,
    generation_part,
    judgement,
    labelling,
    passage,
    recall,
    request,
    response,
    run,
    run_call,
    run_judge,
    sweep,
)
from cimemories.store.team import log
from cimemories.store.upkeep.backup import BACKUP_DRAFT, DRAFT, abandoned
from cimemories.store.upkeep.problems import explained

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
    """The things to remove. recalls: of memory systems; bytes: of the texts of all three; files: caches and logs of
    deleted work; unfinished: work that may need calls which nothing names; kept_calls: how many these are."""

    calls: int
    requests: int
    recalls: int
    bytes: int
    files: int
    file_bytes: int
    unfinished: tuple[str, ...]
    kept_calls: int

    @property
    def nothing(self) -> bool:
        return not (self.calls or self.requests or self.recalls or self.files)


def plan(store: Store) -> Purge:
    """Return what `purge` would remove, also while work is under way. Writes nothing."""
    with store.read() as connection:
        return _plan(connection, store.workspace)


def purge(store: Store) -> Purge:
    """Remove what nothing needs, then give the space back to the disk; return what went. Raises StoreError while any
    work is under way: it may be about to use a call that nothing names yet."""
    with store.write() as connection:
        if connection.dialect.name == "postgresql":
            # No work is claimed meanwhile; on SQLite this transaction is the only one that writes.
            names = ", ".join(table.name for table in (labelling, run, generation, sweep))
            connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE MODE")
        work.require_idle(work.active(connection))
        # Inside the transaction: what is reported is what goes, and nothing comes to need it meanwhile.
        planned = _plan(connection, store.workspace)
        connection.execute(sa.delete(call).where(call.c.key.in_(_removable(connection))))
        # After the calls, of which none may refer to a request that goes.
        unused = sa.except_(sa.select(request.c.hash), sa.select(call.c.request))
        connection.execute(sa.delete(request).where(request.c.hash.in_(unused)))
        connection.execute(sa.delete(recall).where(recall.c.hash.in_(_unused_recalls())))
        files = list(_leftover_files(connection, store.workspace))
        if not planned.nothing:
            log.add(connection, "workspace.purged", str(store.workspace), calls=planned.calls, files=planned.files)
    with store.write() as connection:
        if connection.dialect.name == "postgresql":
            # Waits for requests in the making, which have found passages there. It is the only lock that is held: what
            # it waits for cannot wait for another.
            connection.exec_driver_sql("LOCK TABLE request IN SHARE ROW EXCLUSIVE MODE")
        connection.execute(sa.delete(passage).where(passage.c.hash.in_(_unused_passages(connection))))
    # Once the transaction is committed: a file cannot be brought back by a rollback.
    for file in files:
        file.unlink(missing_ok=True)
    for prefix in DRAFTS:
        abandoned(store.workspace, prefix, remove=True)
    _give_back(store)
    return planned


def _plan(connection: sa.Connection, workspace: Path) -> Purge:
    def sized(table: sa.Table, where: sa.ColumnElement[bool], *names: str) -> tuple[int, int]:
        """Return how many rows satisfy a condition, and the characters in their texts."""
        texts = [sa.func.coalesce(sa.func.length(table.c[name]), 0) for name in names]
        total = sa.func.coalesce(sa.func.sum(sum(texts[1:], texts[0])), 0)
        number, characters = connection.execute(sa.select(sa.func.count(), total).where(where)).one()
        return int(number), int(characters)

    keys = _removable(connection)
    gone, texts = sized(call, call.c.key.in_(keys), "response", "reasoning", "error")
    # Requests go once no call that stays is of them.
    staying = sa.select(call.c.request).where(call.c.key.in_(sa.except_(sa.select(call.c.key), keys)))
    requests, bodies = sized(request, request.c.hash.in_(sa.select(request.c.hash).except_(staying)), "body")
    unused = _unused_passages(connection, request.c.hash.in_(staying))
    _, passages = sized(passage, passage.c.hash.in_(unused), "text")
    recalls, lines = sized(recall, recall.c.hash.in_(_unused_recalls()), "lines")
    unfinished = _unfinished(connection)
    staying_unnamed = count(connection, _unnamed(connection).subquery()) - gone
    files = list(_leftover_files(connection, workspace))
    return Purge(
        calls=gone,
        requests=requests,
        recalls=recalls,
        bytes=texts + bodies + passages + lines,
        files=len(files),
        file_bytes=sum(file.lstat().st_size for file in files),
        unfinished=tuple(sorted(name for names in unfinished.values() for name in names)) if staying_unnamed else (),
        kept_calls=staying_unnamed,
    )


def _unnamed(connection: sa.Connection) -> sa.CompoundSelect[Any]:
    """Return the keys of the calls that no row names."""
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


def _unused_passages(connection: sa.Connection, *staying: sa.ColumnElement[bool]) -> sa.CompoundSelect[Any]:
    """Return the hashes of the passages that no request names. staying: which requests count; all unless given."""
    return sa.except_(sa.select(passage.c.hash), calls.named_passages(connection).where(*staying))


def _unused_recalls() -> sa.CompoundSelect[Any]:
    """Return the hashes of the recalls that no message names: each is written with its message, so unfinished work
    needs none."""
    return sa.except_(sa.select(recall.c.hash), sa.select(response.c.recall).where(response.c.recall.is_not(None)))


def _removable(connection: sa.Connection) -> sa.Select[Any]:
    """Return the keys of the calls that no row names and no unfinished work may ask for."""
    unnamed = _unnamed(connection).subquery()
    query = sa.select(unnamed.c.key).join(call, call.c.key == unnamed.c.key)
    unfinished = _unfinished(connection)
    if unfinished["labelling"]:
        query = query.where(call.c.kind != LABEL)
    if unfinished["generation"]:
        query = query.where(call.c.kind != GENERATE)
    # Runs ask for all other kinds: messages, judgements, gates, rewrites, checks.
    if unfinished["run"]:
        query = query.where(call.c.kind.in_((LABEL, GENERATE)))
    return query


def _unfinished(connection: sa.Connection) -> dict[str, list[str]]:
    """Return the ids of the work that a resume may still ask models for, by kind; sweeps count as runs."""

    def ids(table: sa.Table, owes: sa.ColumnElement[bool]) -> list[str]:
        open_ = sa.or_(table.c.status.not_in([status for status in WorkStatus if status.is_finished]), owes)
        return list(connection.scalars(sa.select(table.c.id).where(open_)))

    answered = sa.select(sa.func.count()).where(response.c.run == run.c.id, response.c.status == "ok")
    judges = sa.select(sa.func.count()).where(run_judge.c.run == run.c.id)
    settled = (
        sa.select(sa.func.count())
        .select_from(judgement.join(response, judgement.c.response == response.c.id))
        .join(run_judge, sa.and_(run_judge.c.judge == judgement.c.judge, run_judge.c.run == response.c.run))
        .where(response.c.run == run.c.id, judgement.c.status.not_in((JudgementStatus.FAILED, JudgementStatus.OWED)))
    )
    owed = sa.exists().where(response.c.run == run.c.id, response.c.status.in_(runs.RETRIABLE))
    # A judge that was added later has no rows of what it owes, so what is there is compared with what there must be.
    unjudged = settled.scalar_subquery() < answered.scalar_subquery() * judges.scalar_subquery()
    ballots = sa.exists().where(ballot.c.labelling == labelling.c.id, ballot.c.status.in_(labellings.RETRIABLE))
    parts = sa.exists().where(
        generation_part.c.generation == generation.c.id, generation_part.c.status.in_(generations.RETRIABLE)
    )
    return {
        "labelling": ids(labelling, ballots),
        "generation": ids(generation, parts),
        # A sweep owes nothing by itself: its runs are looked at, of itself only its status counts.
        "run": ids(run, sa.or_(owed, unjudged)) + ids(sweep, sa.false()),
    }


def _leftover_files(connection: sa.Connection, workspace: Path) -> Iterator[Path]:
    """Yield caches and logs of work that is not here any more, and what a killed process left half written."""
    tables = (labelling, run, generation, sweep)
    there = {str(name) for table in tables for name in connection.scalars(sa.select(table.c.id))}
    for file in _own_files(workspace / "logs", "*.log"):
        if file.stem.split("-")[0] in ("run", "labelling", "generation", "sweep") and file.stem not in there:
            yield file
    cache = workspace / "cache"
    for file in (*_own_files(cache, "*"), *_own_files(cache, "*/*")):
        # The name of a cached file, or of its folder, holds the id of what it was computed from.
        if not file.parent.is_symlink() and not any(name in str(file.relative_to(cache)) for name in there):
            yield file
    for prefix in DRAFTS:
        for folder in abandoned(workspace, prefix):
            yield from _own_files(folder, "**/*")


def _own_files(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the files in a folder of the workspace. None if that is a link: a workspace from another person could lead
    to any folder of this user."""
    if not folder.is_symlink():
        yield from (path for path in sorted(folder.glob(pattern)) if path.is_symlink() or path.is_file())


def _give_back(store: Store) -> None:
    """VACUUM the database: SQLite writes its file again, for which the disk must have room once more."""
    file = sqlite_path(str(store.engine.url))
    if file is not None and shutil.disk_usage(file.parent).free < file.stat().st_size * 1.1:
        raise StoreError(
            f"the calls were removed, but the disk has no room to write {file} again, so it keeps its size. Free "
            f"{file.stat().st_size / 1e6:,.0f} MB and run `cimemories workspace purge` again."
        )
    if not store.is_sqlite:
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (FULL, ANALYZE) call, request, passage, recall")
        return
    raw = store.engine.raw_connection()
    try:
        assert raw.driver_connection is not None
        # On the driver's own connection: SQLAlchemy would begin a transaction, and VACUUM refuses to run in one.
        raw.driver_connection.execute("VACUUM")
        # VACUUM wrote the new content into the log as well: this empties it into the file, and cuts it to nothing.
        raw.driver_connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise StoreError(f"the calls were removed, but their space was not given back: {explained(error)}") from error
    finally:
        raw.close()
