"""Deleting a dataset, run, sweep, labelling or generation, with what is a part of it and what rests on it.

Recorded calls stay: they cost money and answer the same request again. `purging` removes those that nothing needs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.model import WorkKind
from cimemories.store import datasets, decisions, reviews, runs, versions, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.rows import count as count_rows
from cimemories.store.rows import rows_of
from cimemories.store.tables import (
    audit,
    ballot,
    dataset,
    decision,
    generation_part,
    imported_vote,
    judgement,
    labelling,
    response,
    run,
    sweep,
    vote,
)
from cimemories.store.team import log
from cimemories.text import count

Counts = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Deletion:
    """One thing that can be deleted. goes: its parts, counted; rests: what depends on it and is deleted too, which
    needs a confirmation of its own; note: what else to know."""

    title: str
    dataset: int | None
    work_id: str | None
    goes: Counts
    rests: Counts = ()
    note: str = ""


def listed(counts: Counts) -> str:
    """'2 labellings, 1,204 decisions'."""
    return ", ".join(count(number, name) for number, name in counts)


def of_dataset(connection: sa.Connection, name: str) -> Deletion:
    """Return what deleting a dataset also deletes. Raises StoreError for an unknown name."""
    row = datasets.by_name(connection, name)

    def standing(table: sa.Table) -> int:
        return decisions.count_standing(connection, table, table.c.dataset == row.id)

    goes = [(row.profiles, "profile"), (row.attributes, "attribute"), (row.contexts, "context")]
    comments, marks = reviews.counts(connection, row.id)
    sweeps = count_rows(connection, sweep, sweep.c.dataset == row.id)
    rests = [
        *((row.labellings, "labelling"), (standing(decision), "decision"), (sweeps, "sweep"), (row.runs, "run")),
        *((standing(audit), "audit verdict"), (comments, "comment"), (marks, "mark")),
        (1 if versions.freeze_of(connection, row.id) else 0, "freeze"),
    ]
    return Deletion(f"the dataset '{name}'", row.id, None, _some(goes), _some(rests))


def of_work(connection: sa.Connection, work_id: str) -> Deletion:
    """Return what deleting a run, sweep, labelling or generation also deletes. Raises StoreError for an unknown id, for
    the labelling of a frozen dataset, and for a generation whose dataset exists (it is its provenance)."""
    kind = work.kind_of(work_id)
    row = work.load(connection, work_id)
    if kind is WorkKind.RUN:
        return _of_runs(connection, f"the run '{row['name']}' ({work_id})", work_id, [work_id])
    if kind is WorkKind.SWEEP:
        ids = list(connection.scalars(sa.select(run.c.id).where(run.c.sweep == work_id)))
        deletion = _of_runs(connection, f"the sweep '{row['name']}' ({work_id})", work_id, ids)
        return Deletion(deletion.title, None, work_id, (), _some([(len(ids), "run"), *deletion.goes, *deletion.rests]))
    if kind is WorkKind.LABELLING:
        return _of_labelling(connection, row)
    if row["dataset"] is not None:
        name = connection.execute(sa.select(dataset.c.name).where(dataset.c.id == row["dataset"])).scalar()
        raise StoreError(
            f"{work_id} is where the dataset '{name}' says it comes from, so it stays as long as the dataset does. "
            "Delete the dataset first."
        )
    parts = count_rows(connection, generation_part, generation_part.c.generation == work_id)
    return Deletion(f"the generation '{row['name']}' ({work_id})", None, work_id, _some([(parts, "part")]))


def _of_runs(connection: sa.Connection, title: str, work_id: str, ids: list[str]) -> Deletion:
    of_runs = response.c.run.in_(ids)
    judged = judgement.join(response, judgement.c.response == response.c.id)
    messages, judgements = (count_rows(connection, table, of_runs) for table in (response, judged))
    replays = count_rows(connection, run, run.c.explains.in_(ids))
    rests = [(verdicts_on(connection, ids), "audit verdict"), (replays, "leak replay")]
    goes = _some([(messages, "message"), (judgements, "judgement")])
    return Deletion(title, None, work_id, goes, _some(rests))


def verdicts_on(connection: sa.Connection, run_ids: Sequence[str]) -> int:
    """Return how many verdicts of people stand on the judgements of these runs."""
    messages = sa.select(response.c.id).where(response.c.run.in_(run_ids))
    return decisions.count_standing(connection, audit, audit.c.response.in_(messages))


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
        (count_rows(connection, votes, ballot.c.labelling == row["id"]), "vote"),
        (count_rows(connection, imported_vote, imported_vote.c.labelling == row["id"]), "imported share"),
    ]
    others = count_rows(connection, labelling, labelling.c.dataset == row["dataset"]) - 1
    runs_left = count_rows(connection, run, run.c.dataset == row["dataset"], run.c.explains.is_(None))
    note = ""
    if runs_left and not others:
        note = f"The {count(runs_left, 'run')} of '{name}' will have no labels to be measured by."
    return Deletion(f"the labelling {row['id']} of '{name}'", None, row["id"], _some(goes), note=note)


def delete(store: Store, planned: Deletion) -> None:
    """Delete it with all that depends on it, and its files in the workspace. Raises StoreError, and changes nothing, if
    a living process works on any of it, or if it was deleted already."""
    of_runs = planned.dataset is None and work.kind_of(str(planned.work_id)) is not WorkKind.LABELLING
    with store.write(Role.OPERATOR if of_runs else Role.CURATOR) as connection:
        ids = _delete(connection, planned)
        what = "dataset" if planned.dataset is not None else str(work.kind_of(str(planned.work_id)))
        log.add(connection, f"{what}.deleted", planned.title, with_it=listed((*planned.goes, *planned.rests)))
    # After the commit: a file cannot be brought back by a rollback.
    remove_files(store.workspace, ids)


def _delete(connection: sa.Connection, planned: Deletion) -> list[str]:
    """Delete the rows; return the ids of the deleted work."""
    if planned.dataset is not None:
        # Decisions made while a large one is deleted wait, and are then refused: their pair is gone.
        decisions.take_turns(connection, planned.dataset, "", exclusive=True)
        ids = [row["id"] for row in datasets.work_of(connection, planned.dataset)]
        datasets.delete(connection, planned.dataset)
        return ids
    work_id = str(planned.work_id)
    kind = work.kind_of(work_id)
    row = work.load(connection, work_id)
    if kind is WorkKind.RUN:
        return runs.delete(connection, work_id)
    # Runs name their sweep by text without a foreign key, so they are deleted one by one and not by cascade.
    of_sweep = run.c.sweep == work_id
    members = rows_of(connection, work.select(run).where(of_sweep)) if kind is WorkKind.SWEEP else []
    work.require_idle([row, *members])
    of_work(connection, work_id)  # again, since a freeze or a new dataset may forbid it by now
    ids = [work_id, *(id_ for member in members for id_ in runs.delete(connection, member["id"]))]
    table = work.table_of(work_id)
    connection.execute(sa.delete(table).where(table.c.id == work_id))
    return ids


def remove_files(workspace: Path, ids: Iterable[str]) -> None:
    """Remove logs and caches of work that was deleted. What cannot be removed is left to `purge`. Links to
    folders are not followed: in a workspace from another person they could lead anywhere."""
    logs, cache = workspace / "logs", workspace / "cache"
    for name in ids:
        of_logs = [] if logs.is_symlink() else [logs / f"{name}.log"]
        of_cache = [] if cache.is_symlink() else cache.glob(f"*{name}*")
        for file in (*of_logs, *of_cache):
            with suppress(OSError):
                # The flows and leaks of a run that does not fit into memory are folders.
                if file.is_dir() and not file.is_symlink():
                    shutil.rmtree(file)
                else:
                    file.unlink(missing_ok=True)


def _some(counts: Iterable[tuple[int, str]]) -> Counts:
    return tuple((count, name) for count, name in counts if count)
