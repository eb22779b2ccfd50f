"""Leases on labellings, runs, sweeps and generations: held by one process, with a heartbeat, reclaimed when it dies.

    claim = work.claim(connection, "run-3f9a1c2e")
    with store.fenced(claim.hold).write() as connection: ...   # raises ClaimLost once another process has claimed it

A worker on another machine counts as dead once its heartbeat is old, by the clock of the database alone. That can be
wrong (a worker that was cut off for a minute lives on), so a claim has a token: every write of a worker checks it in
the same transaction, and a worker whose token was replaced writes nothing more.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import psutil
import sqlalchemy as sa
from cachetools import LRUCache
from sqlalchemy.ext.compiler import compiles

from cimemories.manifest import RunManifest
from cimemories.model import JudgementStatus, ResponseStatus, WorkKind, WorkStatus
from cimemories.store.engine import PATIENCE_SECONDS, StoreError, now
from cimemories.store.rows import from_row, rows_of
from cimemories.store.tables import (
    ballot,
    generation,
    generation_part,
    judgement,
    labelling,
    response,
    run,
    run_judge,
    sweep,
)

STALE_SECONDS = 30.0  # a living worker says so about every second (llm.worker)
ACTIVE = (WorkStatus.QUEUED, WorkStatus.RUNNING, WorkStatus.PAUSING, WorkStatus.CANCELLING)
FINISHED = (WorkStatus.FINISHED, WorkStatus.FINISHED_WITH_FAILURES)
ENDED = (*FINISHED, WorkStatus.PAUSED, WorkStatus.CANCELLED, WorkStatus.FAILED, WorkStatus.INTERRUPTED)
TABLES = {WorkKind.LABELLING: labelling, WorkKind.RUN: run, WorkKind.GENERATION: generation, WorkKind.SWEEP: sweep}
NO_OWNER = dict.fromkeys(("host", "machine", "pid", "process_started", "claim"))
Row = sa.RowMapping
T = TypeVar("T")


# ---- the database's clock
#
# Times that machines compare (heartbeats, leases) are by the database's clock, never by the caller's: the clocks of two
# machines often differ by minutes.


class database_clock(sa.sql.functions.FunctionElement[float]):
    """SQL: seconds since 1970 by the database's clock, at the moment of the statement. A SQLite file has the clock of
    its one machine."""

    type = sa.Double()
    inherit_cache = True


class database_started(sa.sql.functions.FunctionElement[float]):
    """SQL: when the database server was started, by its own clock; 0 for a SQLite file, which is always there."""

    type = sa.Double()
    inherit_cache = True


@compiles(database_clock, "sqlite")
def _sqlite_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    # 2440587.5 is the Julian day on which 1970 began; a day has 86,400 seconds.
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(database_clock, "postgresql")
def _postgres_clock(_element: Any, _compiler: Any, **_options: Any) -> str:
    # Not now(), which stands still from the start of the transaction on.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"


@compiles(database_started, "sqlite")
def _sqlite_started(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "0.0"


@compiles(database_started, "postgresql")
def _postgres_started(_element: Any, _compiler: Any, **_options: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM pg_postmaster_start_time()) AS DOUBLE PRECISION)"


# ---- claims


class ClaimLost(StoreError):
    """The work was claimed by another process, or was ended or deleted. Its former worker must write nothing."""


@dataclass(frozen=True)
class Claim:
    """A lease on one piece of work: `token` stands in its row until another process claims it."""

    work_id: str
    token: str

    def hold(self, connection: sa.Connection) -> None:
        """Keep the claim until the transaction ends; every write of a worker is a heartbeat too. Raises ClaimLost if
        the claim does not stand any more."""
        # SQLite has taken its write lock at BEGIN; PostgreSQL locks the row here, so it cannot be claimed meanwhile.
        beat = connection.execute(_heartbeat(table_of(self.work_id)), {"work_id": self.work_id, "token": self.token})
        if not beat.rowcount:
            self._lose(connection)

    def share(self, connection: sa.Connection) -> None:
        """Keep the claim as one of many processes that write under it at once (extras/ray), on PostgreSQL; the
        heartbeat is left to the one that made it. Raises ClaimLost like `hold`."""
        table = table_of(self.work_id)
        claimed = sa.select(table.c.id).where(table.c.id == self.work_id, table.c.claim == self.token)
        # FOR KEY SHARE, the lock of a foreign key: it stops claiming, queueing and deleting the work (FOR UPDATE), and
        # neither the heartbeat nor the other processes.
        if connection.execute(claimed.with_for_update(read=True, key_share=True)).first() is None:
            self._lose(connection)

    def _lose(self, connection: sa.Connection) -> NoReturn:
        table = table_of(self.work_id)
        # The claim is lost already; this finds out why, for the message.
        row = connection.execute(sa.select(table).where(table.c.id == self.work_id)).first()
        if row is None:
            raise ClaimLost(f"{self.work_id} was deleted while it was being worked on.")
        if row.claim is None:
            raise ClaimLost(
                f"{self.work_id} was {row.status} while its worker gave no sign of life. Its worker wrote nothing more."
            )
        raise ClaimLost(
            f"{self.work_id} was taken over by process {row.pid} on {row.host}, because this one gave no sign of life. "
            "Nothing more is written here; the other one continues."
        )


# Executed in every commit of a worker, like `_bumped`: a cached statement takes 0.06 ms instead of 0.2.
@cache
def _heartbeat(table: sa.Table) -> sa.Update:
    claimed = table.c.id == sa.bindparam("work_id"), table.c.claim == sa.bindparam("token")
    return sa.update(table).where(*claimed).values(heartbeat=database_clock())


@dataclass(frozen=True)
class Owner:
    """A process. `process_started` tells it from a later one with the same number, `machine` from one on a machine of
    the same name."""

    host: str
    machine: str | None
    pid: int
    process_started: float


def me() -> Owner:
    """Return this process."""
    return Owner(socket.gethostname(), _machine(), os.getpid(), _started(psutil.Process()))


@cache
def _machine() -> str | None:
    """Return a name of this start of this machine and of the process namespace: a container sees its own processes
    alone. None if the system does not say (not Linux); then the name of the host must do."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(process: psutil.Process) -> float:
    """Return when a process was started, in seconds since the start of the machine if the system says so (Linux), else
    since 1970. The former stays the same when the clock is set; psutil's create_time() moves with it."""
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8", errors="replace")
        return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")  # field 22; the name may hold spaces
    except (OSError, IndexError, ValueError):
        return process.create_time()


def kind_of(work_id: str) -> WorkKind:
    """Return the kind of work that an id begins with. Raises StoreError for anything else."""
    for kind in WorkKind:
        if work_id.startswith(f"{kind}-"):
            return kind
    raise StoreError(
        f"'{work_id}' is not the id of a run, sweep, labelling or generation. `cimemories runs` lists runs."
    )


def ids_of(connection: sa.Connection, text: str, *kinds: WorkKind) -> list[str]:
    """Return the ids that a text may mean: the id itself, else those with that name, else those that begin with it.

    A beginning has four hex digits or more, with or without the kind: 'run-3f9a', '3f9a'.
    """
    tables = {kind: TABLES[kind] for kind in kinds}
    if any(connection.scalar(sa.select(table.c.id).where(table.c.id == text)) for table in tables.values()):
        return [text]
    queries = []
    if WorkKind.RUN in tables:
        queries.append(sa.select(run.c.id).where(run.c.name == text, run.c.explains.is_(None)))
    if WorkKind.SWEEP in tables:
        queries.append(sa.select(sweep.c.id).where(sweep.c.name == text))
    if ids := [work_id for query in queries for work_id in connection.scalars(query)]:
        return ids
    for kind, table in tables.items():
        digits = text.removeprefix(f"{kind}-")
        if re.fullmatch("[0-9a-f]{4,}", digits):
            ids += connection.scalars(sa.select(table.c.id).where(table.c.id.startswith(f"{kind}-{digits}")))
    return ids


def table_of(work_id: str) -> sa.Table:
    """Return the table of the rows of this kind of work. Raises StoreError like `kind_of`."""
    return TABLES[kind_of(work_id)]


def select(table: sa.Table) -> sa.Select[Any]:
    """Return a query for rows of work with their `heartbeat_age`: seconds by the database's clock, null without a
    heartbeat. After a restart of the database server workers are given time to come back: if the last heartbeat was
    not longer ago than workers wait, it counts from the start of the server."""
    heartbeat, started = table.c.heartbeat, database_started()
    away = sa.and_(started > heartbeat, started - heartbeat < PATIENCE_SECONDS + STALE_SECONDS)
    last = sa.case((away, started), else_=heartbeat)
    return sa.select(table, (database_clock() - last).label("heartbeat_age"))


def load(connection: sa.Connection, work_id: str) -> Row:
    """Return the row of a piece of work. Raises StoreError if there is none."""
    table = table_of(work_id)
    row = connection.execute(select(table).where(table.c.id == work_id)).mappings().first()
    if row is None:
        raise StoreError(f"there is no '{work_id}' in this workspace. `cimemories runs` lists runs.")
    return row


def locked(connection: sa.Connection, work_id: str) -> Row:
    """Return the row of a piece of work, locked until the transaction ends, so that it cannot change before the caller
    writes. Raises StoreError like `load`."""
    table = table_of(work_id)
    # SQLite has taken its write lock at BEGIN; PostgreSQL locks the row here: the second of two claims sees the first.
    connection.execute(sa.select(table.c.id).where(table.c.id == work_id).with_for_update())
    return load(connection, work_id)


def recorded(row: Row) -> dict[str, Any]:
    """Return the manifest of a run, labelling or generation as it was written."""
    manifest = row["manifest"]
    return manifest.recorded if isinstance(manifest, RunManifest) else manifest


def is_alive(row: Row) -> bool:
    """Return whether the process that claimed this work still does it; the row is one of `select` or `load`. On this
    machine the process itself is asked; for another host only the age of the heartbeat can tell. Work that is queued
    and not yet claimed counts as alive for as long as a start may take."""
    if row["status"] not in ACTIVE:
        return False
    # A heartbeat from the future was written before the clock was set back; a living worker soon writes another one.
    fresh = row["heartbeat_age"] is not None and abs(row["heartbeat_age"]) < STALE_SECONDS
    # Two machines or containers may have the same host name; without `machine` the name must do.
    here = row["host"] == socket.gethostname() and row["machine"] in (None, _machine())
    # Queued and not claimed yet, or on a machine whose processes cannot be seen from here.
    if row["pid"] is None or not here:
        return fresh
    try:
        process, started = psutil.Process(row["pid"]), row["process_started"] or 0.0
        # Older records give the time since 1970. Neither clock can be mistaken for the other: they differ by the time
        # at which the machine was started.
        same = abs(_started(process) - started) < 1.0 or abs(process.create_time() - started) < 1.0
        # A zombie has ended; its parent has not read its exit status yet.
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return fresh  # a process that this user may not look at: only its heartbeat can tell


def active(connection: sa.Connection) -> list[Row]:
    """Return every run, sweep, labelling and generation that is under way, or was when its process died."""
    queries = (select(table).where(table.c.status.in_(ACTIVE)) for table in TABLES.values())
    return [row for query in queries for row in rows_of(connection, query)]


def require_idle(rows: Iterable[Row]) -> None:
    """Raise StoreError that names those of these rows (of `select` or `load`) which a living process works on, or is
    about to."""
    busy = [row["id"] for row in rows if is_alive(row)]
    if busy:
        are, it = ("is", "it") if len(busy) == 1 else ("are", "them")
        raise StoreError(f"{', '.join(busy)} {are} running. Pause or cancel {it} first; nothing was changed.")


def update(connection: sa.Connection, work_id: str, **values: object) -> None:
    """Set columns of a piece of work."""
    table = table_of(work_id)
    connection.execute(sa.update(table).where(table.c.id == work_id).values(**values))


def claim(connection: sa.Connection, work_id: str, *, queued: bool = False) -> Claim:
    """Make this process the one that works on it; an earlier claim, even of this process, ends. Raises StoreError while
    another living process works on it. queued: only if it still waits for its worker, so that work which was cancelled
    in the meantime stays cancelled."""
    row = locked(connection, work_id)
    owner = me()
    # Work of this very process may be claimed again, by a later attempt of its own.
    mine = row["pid"] == owner.pid and row["host"] == owner.host and row["machine"] in (None, owner.machine)
    # Running by this process: its claim was written, but the database went away before it said so.
    if queued and row["status"] != WorkStatus.QUEUED and not (mine and row["status"] == WorkStatus.RUNNING):
        raise StoreError(f"{work_id} was {row['status']} before its worker started, so nothing was done.")
    if row["pid"] is not None and not mine and is_alive(row):
        raise StoreError(
            f"{work_id} is running as process {row['pid']} on {row['host']}. Wait for it, or cancel it first."
        )
    # Another token at every claim: an earlier worker writes nothing from here on.
    new = Claim(work_id, secrets.token_hex(16))
    values = {"status": WorkStatus.RUNNING, "error": None, "finished": None, "heartbeat": database_clock()}
    update(connection, work_id, **values, **vars(owner), claim=new.token)
    return new


def take_turns(connection: sa.Connection, work_id: str) -> None:
    """Make the other processes that write under this claim wait until the transaction ends, so that their commits can
    be counted. On SQLite only one process writes anyway."""
    table = table_of(work_id)
    # FOR NO KEY UPDATE: waits for others that take turns, but not for those that only share the claim.
    connection.execute(sa.select(table.c.id).where(table.c.id == work_id).with_for_update(key_share=True))


def is_claimed(connection: sa.Connection, work_id: str) -> bool:
    """Return whether a process works on it, or is about to. The answer holds until the transaction ends: the row
    is locked."""
    table = table_of(work_id)
    query = sa.select(table.c.status).where(table.c.id == work_id).with_for_update()
    return connection.scalar(query) in ACTIVE


def heartbeat(connection: sa.Connection, work_id: str) -> WorkStatus:
    """Record a heartbeat; return the status, which may have been set to `cancelling` or `pausing`."""
    table = table_of(work_id)
    update(connection, work_id, heartbeat=database_clock())
    status = connection.scalar(sa.select(table.c.status).where(table.c.id == work_id))
    # A row that is gone was deleted: there is nothing left to work for.
    return WorkStatus(status) if status else WorkStatus.CANCELLING


def slow_down(connection: sa.Connection, work_id: str, reason: str) -> None:
    """Record what slows down active work ('' for nothing), in the column `error`."""
    table = table_of(work_id)
    active = sa.update(table).where(table.c.id == work_id, table.c.status.in_(ACTIVE))
    connection.execute(active.values(error=reason or None))


def queue(connection: sa.Connection, work_id: str) -> None:
    """Mark work as about to be started, before its process is launched, so that a dead launch can be seen. Raises
    StoreError if a living process works on it already."""
    row = locked(connection, work_id)
    if is_alive(row) and row["pid"] is not None:
        raise StoreError(f"{work_id} is already running as process {row['pid']}.")
    # Its claim goes as well: a former worker that still lives after all writes nothing more.
    update(connection, work_id, status=WorkStatus.QUEUED, error=None, heartbeat=database_clock(), **NO_OWNER)


def request_cancel(connection: sa.Connection, work_id: str) -> bool:
    """Ask the worker to stop; if none lives, cancel the work at once. Return False if it has ended."""
    return _stop(connection, work_id, ACTIVE, WorkStatus.CANCELLING, WorkStatus.CANCELLED)


def request_pause(connection: sa.Connection, work_id: str) -> bool:
    """Ask the worker to end once its calls in flight are in the record; if none lives, pause the work at once. Return
    False, and change nothing, if it has ended or is being cancelled."""
    return _stop(connection, work_id, (WorkStatus.QUEUED, WorkStatus.RUNNING), WorkStatus.PAUSING, WorkStatus.PAUSED)


def _stop(
    connection: sa.Connection, work_id: str, from_: Sequence[WorkStatus], request: WorkStatus, end: WorkStatus
) -> bool:
    row = locked(connection, work_id)
    if row["status"] not in from_:
        return False
    if is_alive(row) and row["pid"] is not None:
        finish(connection, work_id, request)
    else:
        finish(connection, work_id, end)
        # Should its worker live after all, its claim is gone and it stops.
        update(connection, work_id, claim=None)
    return True


def finish(connection: sa.Connection, work_id: str, status: WorkStatus, error: str | None = None) -> None:
    """Set the status at the end of a piece of work, with the reason if it did not go well."""
    update(connection, work_id, status=status, error=error, **({"finished": now()} if status in ENDED else {}))


def bump(connection: sa.Connection, work_id: str) -> None:
    """Count a change of content, so that nothing computed before it is shown as current."""
    connection.execute(_bumped(table_of(work_id)), {"work_id": work_id})


@cache
def _bumped(table: sa.Table) -> sa.Update:
    # Added by the database: of two that read the number first, one change would not count.
    return sa.update(table).where(table.c.id == sa.bindparam("work_id")).values(revision=table.c.revision + 1)


def shown_status(row: Row, missing: int = 0) -> WorkStatus:
    """Return the status to show: active work whose process is gone is interrupted. missing: how much of what was
    planned is not there; records from before `finished with failures` say `finished`."""
    if row["status"] in ACTIVE and not is_alive(row):
        return WorkStatus.INTERRUPTED
    if row["status"] == WorkStatus.FINISHED and missing:
        return WorkStatus.FINISHED_WITH_FAILURES
    return WorkStatus(row["status"])


# ---- counts of work that has ended
#
# Cached in memory: a page that lists runs must not count millions of rows each time.


Counts = Mapping[str, int]

_counts: LRUCache[tuple[object, ...], Counts] = LRUCache(maxsize=8192)
_lock = threading.Lock()  # the app's threads share the cache, and LRUCache is not safe by itself


def counts_by_work(
    connection: sa.Connection,
    kind: str,
    rows: Sequence[sa.RowMapping],
    count: Callable[[Sequence[str]], Mapping[str, Counts]],
) -> dict[str, Counts]:
    """Return counts by status of each of these runs or labellings, empty for one without any.

    count: returns the counts of some ids, and may leave out ids without rows; kind: what it counts. Ended work is
    counted once per revision, which every write of content raises.
    """
    address = connection.engine.url
    # created and finished beside the revision: a restored record may count on from an older number.
    keys = {
        row["id"]: (address, kind, row["id"], row["revision"], row["created"], row["finished"])
        for row in rows
        if row["status"] in ENDED
    }
    with _lock:
        cached = {name: _counts[key] for name, key in keys.items() if key in _counts}
    missing = [row["id"] for row in rows if row["id"] not in cached]
    if not missing:
        return cached
    # Outside the lock, since it may take seconds. Two threads that count at once get the same result.
    counted = count(missing)
    # Work without rows is cached as empty, or it would be counted every time.
    fresh = {name: counted.get(name, {}) for name in missing}
    with _lock:
        _counts.update({keys[name]: counts for name, counts in fresh.items() if name in keys})
    return cached | fresh


def listed(
    connection: sa.Connection, query: sa.Select, kind: type[T], field: str, of: sa.Column[str], status: sa.Column[str]
) -> list[T]:
    """Return rows of labellings or generations as objects of a dataclass, with their ballots or parts counted by status
    in this field. of: the column that names the owner of a ballot or part."""
    rows = rows_of(connection, query)
    # A labelling may have millions of ballots: those of one that has ended are counted once.
    counts = counts_by_work(connection, field, rows, lambda ids: counts_by_status(connection, of, status, ids))
    items = []
    for row in rows:
        parts = dict(counts[row["id"]])
        missing = sum(parts.values()) - parts.get("ok", 0)
        items.append(from_row(kind, row, status=shown_status(row, missing), **{field: parts}))
    return items


def counts_by_cause(
    connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]
) -> list[tuple[str, str, int]]:
    """Return rows of a table counted by status and cause ('' for none): (status, cause, count), the most frequent
    first."""
    columns = (table.c.status, table.c.cause)
    query = sa.select(*columns, sa.func.count().label("n")).where(*where).group_by(*columns)
    rows = connection.execute(query.order_by(sa.desc("n"), *columns))
    return [(str(status), cause or "", int(n)) for status, cause, n in rows]


def failures(connection: sa.Connection, work_id: str) -> list[tuple[str, str, int]]:
    """Return why ballots of a labelling, or parts of a generation, are missing or short: (status, cause, count), the
    most frequent first."""
    table, owner = (
        (ballot, ballot.c.labelling)
        if kind_of(work_id) is WorkKind.LABELLING
        else (generation_part, generation_part.c.generation)
    )
    return counts_by_cause(connection, table, owner == work_id, table.c.status.not_in(("ok", "owed")))


def counts_by_status(
    connection: sa.Connection, of: sa.Column[str], status: sa.Column[str], ids: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return rows counted by status, of each of these ids; an id without rows is left out. of: the column that names
    the owner of a row."""
    counts: dict[str, dict[str, int]] = {}
    query = sa.select(of, status, sa.func.count()).where(of.in_(ids)).group_by(of, status)
    for name, state, number in connection.execute(query):
        counts.setdefault(name, {})[state] = number
    return counts


# ---- outcomes
#
# How much of what was planned is there, and the status that follows when work ends.
#
# with store.read() as connection:
#     outcome(connection, "run-3f9a1c2e")     # Outcome(planned=90, missing=78, failed=78)


@dataclass(frozen=True)
class Outcome:
    """planned: responses of a run or sweep, ballots of a labelling, parts of a generation. missing: those of them that
    are incomplete. failed: the missing ones that were tried; the others are still owed. A response is complete when it
    has a message, a judgement by every judge and, where asked for, a task check."""

    planned: int
    missing: int
    failed: int

    @property
    def share(self) -> float:
        """Missing over planned, 0 to 1; 0 where nothing is planned."""
        return self.missing / self.planned if self.planned else 0.0

    @property
    def failed_share(self) -> float:
        """Failed over planned, 0 to 1; 0 where nothing is planned."""
        return self.failed / self.planned if self.planned else 0.0


def outcome(connection: sa.Connection, work_id: str) -> Outcome:
    """Return how much of a run, sweep, labelling or generation is there. Raises StoreError for any other id."""
    kind = kind_of(work_id)
    if kind is WorkKind.RUN:
        return _of_runs(connection, [work_id])
    if kind is WorkKind.LABELLING:
        return _by_status(connection, ballot.c.labelling, ballot.c.status, work_id)
    if kind is WorkKind.GENERATION:
        return _by_status(connection, generation_part.c.generation, generation_part.c.status, work_id)
    return _of_runs(connection, connection.scalars(sa.select(run.c.id).where(run.c.sweep == work_id)).all())


def finish_by_outcome(connection: sa.Connection, work_id: str) -> None:
    """Set the status of work that has come to its end: finished, with failures if anything planned is missing."""
    missing = outcome(connection, work_id).missing
    finish(connection, work_id, WorkStatus.FINISHED_WITH_FAILURES if missing else WorkStatus.FINISHED)


def _of_runs(connection: sa.Connection, run_ids: Sequence[str]) -> Outcome:
    parts = [_of_run(connection, run_id) for run_id in run_ids]
    return Outcome(*(sum(getattr(part, name) for part in parts) for name in ("planned", "missing", "failed")))


def _of_run(connection: sa.Connection, run_id: str) -> Outcome:
    answers = _by_status(connection, response.c.run, response.c.status, run_id)
    judges = connection.scalars(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).all()
    if not judges:
        return answers
    # Counted over judgements: a subquery for each of a million responses is slow. A response is complete if it has as
    # many good judgements as the run has judges; one that no judge has read has no row here, and is incomplete.

    def number_of(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
        return sa.func.coalesce(sa.func.sum(sa.case((condition, 1), else_=0)), 0)

    bad = judgement.c.status.not_in((JudgementStatus.OK, JudgementStatus.OWED))
    judged = (
        sa.select(number_of(judgement.c.status == JudgementStatus.OK).label("good"), number_of(bad).label("bad"))
        .select_from(judgement.join(response, judgement.c.response == response.c.id))
        .where(response.c.run == run_id, response.c.status == ResponseStatus.OK, judgement.c.judge.in_(judges))
        .group_by(judgement.c.response)
        .subquery()
    )
    # A response counts once as spoiled, however many of its judges have failed.
    query = sa.select(number_of(judged.c.good == len(judges)), number_of(judged.c.bad > 0))
    good, spoiled = connection.execute(query).one()
    return Outcome(answers.planned, answers.planned - int(good), answers.failed + int(spoiled))


def _by_status(connection: sa.Connection, of: sa.Column[str], status: sa.Column[str], work_id: str) -> Outcome:
    counts = counts_by_status(connection, of, status, [work_id]).get(work_id, {})
    planned, good = sum(counts.values()), counts.get("ok", 0)
    return Outcome(planned, planned - good, planned - good - counts.get("owed", 0))
