"""Sweeps: runs that were planned together, and are worked off one after the other as one piece of work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import StoreError, plain_name
from cimemories.store.ids import canonical_json, new_id, now
from cimemories.store.run_tables import sweep
from cimemories.store.tables import run


@dataclass(frozen=True)
class SweepRow:
    """One sweep in a list. spec: the file it was planned from; plan: what it was estimated at; cells: its runs."""

    id: str
    name: str
    dataset: int
    spec: dict[str, Any]
    plan: dict[str, Any]
    cap: float | None
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    cells: int


def add(
    connection: sa.Connection,
    *,
    name: str,
    dataset_id: int,
    spec: Mapping[str, object],
    plan: Mapping[str, object],
    cap: float | None,
) -> str:
    """Write a new sweep; returns its id. It waits for its worker."""
    sweep_id = new_id("sweep")
    connection.execute(
        sa.insert(sweep).values(
            id=sweep_id,
            name=plain_name(name, "sweep"),
            dataset=dataset_id,
            spec=canonical_json(spec),
            plan=canonical_json(plan),
            cap=cap,
            status=WorkStatus.QUEUED,
            created=now(),
        )
    )
    work.queue(connection, sweep_id)
    return sweep_id


def all_rows(connection: sa.Connection) -> list[SweepRow]:
    """Every sweep, oldest first."""
    return _rows(connection, work.select(sweep).order_by(sweep.c.created, sweep.c.id))


def named(connection: sa.Connection, sweep_id: str) -> SweepRow:
    """One sweep by its id. Raises StoreError that says where to look."""
    rows = _rows(connection, work.select(sweep).where(sweep.c.id == sweep_id))
    if not rows:
        raise StoreError(f"there is no sweep '{sweep_id}' in this workspace. `cimemories sweeps` lists them.")
    return rows[0]


def _rows(connection: sa.Connection, query: sa.Select) -> list[SweepRow]:
    counts: dict[str, int] = {
        row.sweep: row.cells
        for row in connection.execute(
            sa.select(run.c.sweep, sa.func.count().label("cells")).where(run.c.sweep.is_not(None)).group_by(run.c.sweep)
        )
    }
    return [
        SweepRow(
            id=row["id"],
            name=row["name"],
            dataset=row["dataset"],
            spec=json.loads(row["spec"]),
            plan=json.loads(row["plan"]),
            cap=row["cap"],
            status=work.shown_status(row),
            error=row["error"],
            created=row["created"],
            finished=row["finished"],
            revision=row["revision"],
            cells=counts.get(row["id"], 0),
        )
        for row in connection.execute(query).mappings()
    ]
