"""Who works on a labelling, run, sweep or generation: claimed by one process, with a heartbeat, taken from the dead."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass

import psutil
import sqlalchemy as sa

from cimemories.model import WorkStatus
from cimemories.store.curation_tables import generation
from cimemories.store.engine import StoreError
from cimemories.store.ids import now
from cimemories.store.run_tables import sweep
from cimemories.store.tables import labelling, run

STALE_SECONDS = 30.0
ACTIVE = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.PAUSING, WorkStatus.CANCELLING)
FINISHED = (WorkStatus.FINISHED, WorkStatus.FINISHED_WITH_FAILURES)
ENDED = (
    *FINISHED,
    WorkStatus.PAUSED,
    WorkStatus.CANCELLED,
    WorkStatus.FAILED,
    WorkStatus.INTERRUPTED,
)
Row = sa.RowMapping


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one that was given the same number by its start time."""

    host: str
    pid: int
    process_started: float


def me() -> Owner:
    return Owner(socket.gethostname(), os.getpid(), psutil.Process().create_time())


def table_of(work_id: str) -> sa.Table:
    """The table that an id belongs to; ids say their kind. Raises StoreError for anything else."""
    if work_id.startswith("run-"):
        return run
    if work_id.startswith("labelling-"):
        return labelling
    if work_id.startswith("generation-"):
        return generation
    if work_id.startswith("sweep-"):
        return sweep
    raise StoreError(f"'{work_id}' is no id of a run, sweep, labelling or generation. `cimemories runs` lists them.")


def load(connection: sa.Connection, work_id: str) -> Row:
    """The row of a run, labelling or generation. Raises StoreError where there is none."""
    table = table_of(work_id)
    row = connection.execute(sa.select(table).where(table.c.id == work_id)).mappings().first()
    if row is None:
        raise StoreError(f"there is no '{work_id}' in this workspace. `cimemories runs` lists what is there.")
    return row


def is_alive(row: Row) -> bool:
    """Whether the process that claimed this work still does it.

    On this machine the process itself is asked; for another host only the age of the heartbeat can tell. Work that is
    queued and not yet claimed counts as alive for as long as a start may take.
    """
    if row["status"] not in ACTIVE:
        return False
    age = time.time() - (row["heartbeat"] or 0.0)
    if row["pid"] is None or row["host"] != socket.gethostname():
        return age < STALE_SECONDS
    try:
        process = psutil.Process(row["pid"])
        same = abs(process.create_time() - (row["process_started"] or 0.0)) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return age < STALE_SECONDS


def claim(connection: sa.Connection, work_id: str, *, queued: bool = False) -> Row:
    """Make this process the one that works on it. Raises StoreError while another one lives and does.

    `queued`: only what still waits for its worker, so that work which was cancelled in the meantime stays cancelled.
    """
    table = table_of(work_id)
    # SQLite has taken its write lock at BEGIN; PostgreSQL locks the row here: of two claims one sees the other.
    connection.execute(sa.select(table.c.id).where(table.c.id == work_id).with_for_update())
    row = load(connection, work_id)
    if queued and row["status"] != WorkStatus.QUEUED:
        raise StoreError(f"{work_id} was {row['status']} before its worker began; nothing was done.")
    owner = me()
    mine = row["pid"] == owner.pid and row["host"] == owner.host
    if row["pid"] is not None and not mine and is_alive(row):
        raise StoreError(
            f"{work_id} is being worked on by process {row['pid']} on {row['host']}. Wait for it, or cancel it first."
        )
    connection.execute(
        sa.update(table)
        .where(table.c.id == work_id)
        .values(
            status=WorkStatus.RUNNING,
            error=None,
            host=owner.host,
            pid=owner.pid,
            process_started=owner.process_started,
            heartbeat=time.time(),
            finished=None,
        )
    )
    return row


def beat(connection: sa.Connection, work_id: str) -> WorkStatus:
    """Say that the work goes on; returns the status, which somebody may have set to `cancelling` or `pausing`."""
    table = table_of(work_id)
    connection.execute(sa.update(table).where(table.c.id == work_id).values(heartbeat=time.time()))
    status = connection.execute(sa.select(table.c.status).where(table.c.id == work_id)).scalar()
    # A row that is gone was deleted by somebody: there is nothing left to work for.
    return WorkStatus(status) if status else WorkStatus.CANCELLING


def queue(connection: sa.Connection, work_id: str) -> None:
    """Mark work as about to be started, before its process is launched, so that a dead launch can be seen."""
    table = table_of(work_id)
    row = load(connection, work_id)
    if is_alive(row) and row["pid"] is not None:
        raise StoreError(f"{work_id} is already being worked on by process {row['pid']}.")
    connection.execute(
        sa.update(table)
        .where(table.c.id == work_id)
        .values(status=WorkStatus.QUEUED, error=None, pid=None, host=None, process_started=None, heartbeat=time.time())
    )


def request_cancel(connection: sa.Connection, work_id: str) -> None:
    """Ask the worker to stop; where none lives, the work is cancelled at once."""
    row = load(connection, work_id)
    if row["status"] not in ACTIVE:
        return
    alive = is_alive(row) and row["pid"] is not None
    finish(connection, work_id, WorkStatus.CANCELLING if alive else WorkStatus.CANCELLED)


def request_pause(connection: sa.Connection, work_id: str) -> None:
    """Ask the worker to end once its calls in flight are in the record; where none lives, it is paused at once.

    Work that has ended stays as it ended, and work that is being cancelled is cancelled.
    """
    row = load(connection, work_id)
    if row["status"] not in (WorkStatus.QUEUED, WorkStatus.RUNNING):
        return
    alive = is_alive(row) and row["pid"] is not None
    finish(connection, work_id, WorkStatus.PAUSING if alive else WorkStatus.PAUSED)


def finish(connection: sa.Connection, work_id: str, status: WorkStatus, error: str | None = None) -> None:
    """Set the status at the end of a piece of work, with the reason where it did not go well."""
    table = table_of(work_id)
    values: dict[str, object] = {"status": status, "error": error}
    if status in ENDED:
        values["finished"] = now()
    connection.execute(sa.update(table).where(table.c.id == work_id).values(**values))


def bump(connection: sa.Connection, work_id: str) -> None:
    """Count a change of content, so that nothing computed before it is shown as current."""
    table = table_of(work_id)
    connection.execute(sa.update(table).where(table.c.id == work_id).values(revision=table.c.revision + 1))


def shown_status(row: Row, missing: int = 0) -> WorkStatus:
    """The status as a person should see it: active work whose process is gone is interrupted.

    missing: how much of what was planned is not there. Records from before `finished with failures` say `finished`.
    """
    if row["status"] in ACTIVE and not is_alive(row):
        return WorkStatus.INTERRUPTED
    if row["status"] == WorkStatus.FINISHED and missing:
        return WorkStatus.FINISHED_WITH_FAILURES
    return WorkStatus(row["status"])
