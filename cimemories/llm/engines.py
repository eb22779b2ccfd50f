"""Which engine does a piece of work: this machine alone, or the workers of a Ray cluster (ray_engine). What the app's
forms offer, what the command line is told, and what the log says of work that was begun.

    engine = Engine(Cluster("auto", (2, 16)))
    engine.options         # ('--engine', 'ray', '--ray-address=auto', '--workers=2:16')
    str(engine)            # 'Ray cluster (auto), 2 to 16 workers'
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib.util import find_spec

import sqlalchemy as sa

from cimemories.llm.ray_engine import INSTALL, Cluster, ClusterError, checked_workers
from cimemories.store import work
from cimemories.store.engine import DATABASE_URL, Store
from cimemories.store.team import log

ENGINE, ADDRESS, WORKERS = "CIMEMORIES_ENGINE", "CIMEMORIES_RAY_ADDRESS", "CIMEMORIES_WORKERS"
LOCAL, RAY = "local", "ray"
_ADDRESS = re.compile(r"auto|local|(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")


@dataclass(frozen=True)
class Engine:
    """What does the work; without a cluster one process on this machine."""

    cluster: Cluster | None = None

    def __str__(self) -> str:
        if self.cluster is None:
            return "this machine"
        least, most = self.cluster.workers
        workers = f"{least:,} worker{'s' * (most > 1)}" if least == most else f"{least:,} to {most:,} workers"
        return f"Ray cluster ({self.cluster.address}), {workers}"

    @property
    def options(self) -> tuple[str, ...]:
        """Of `cimemories run` and the like, so that they go by it whatever the environment says."""
        if self.cluster is None:
            return ("--engine", LOCAL)
        least, most = self.cluster.workers
        return ("--engine", RAY, f"--ray-address={self.cluster.address}", f"--workers={least}:{most}")


def missing(store: Store) -> str:
    """What to set and install so that a Ray cluster can work on this record, as a sentence; empty where nothing is
    missing."""
    steps = [f"set {DATABASE_URL} to a PostgreSQL database"] if store.is_sqlite else []
    steps += [INSTALL] if find_spec("ray") is None else []
    return f"To use a Ray cluster: {'; '.join(steps)} (docs/scale.md)." if steps else ""


def usual() -> Engine:
    """The engine that the environment names. Raises ClusterError where it names what cannot be."""
    cluster = Cluster(os.environ.get(ADDRESS, "auto"), checked_workers(os.environ.get(WORKERS, "1:4")))
    return Engine(cluster if os.environ.get(ENGINE) == RAY else None)


def checked_address(text: str) -> str:
    """The address of a cluster without spaces around it. Raises ClusterError for what is none."""
    if not _ADDRESS.fullmatch(text.strip()):
        raise ClusterError("a cluster's address is auto, local, or HOST:PORT, for example 10.0.0.5:6379.")
    return text.strip()


# ---- in the log


def record(connection: sa.Connection, work_id: str, engine: Engine) -> None:
    """Log that this engine does the work from now on. Nothing where that is known already: work that no cluster ever
    did has no entry."""
    if (last(connection, work_id) or Engine()) == engine:
        return
    details = {"engine": LOCAL}
    if engine.cluster is not None:
        workers = "{}:{}".format(*engine.cluster.workers)
        details = {"engine": RAY, "address": engine.cluster.address, "workers": workers}
    log.add(connection, f"{work.kind_of(work_id)}.engine", work_id, **details)


def last(connection: sa.Connection, work_id: str) -> Engine | None:
    """The engine that did the work last, by the log; None where that has no entry, which means this machine."""
    return next(iter(_logged(connection, work_id, most=1)), None)


def other(store: Store, work_id: str) -> Engine | None:
    """What can go on with the work instead of the engine that did it last: after a cluster this machine, after this
    machine the cluster that had it before, else the one that the environment names. None where there is no other."""
    with store.read() as connection:
        logged = _logged(connection, work_id)
    if logged and logged[0].cluster:
        return Engine()
    if missing(store):
        return None
    try:
        named = [usual()]
    except ClusterError:
        named = []
    return next((engine for engine in (*logged, *named) if engine.cluster), None)


def _logged(connection: sa.Connection, work_id: str, most: int | None = None) -> list[Engine]:
    """The engines that have done the work, the last one first."""
    entries = log.entries(connection, action=f"{work.kind_of(work_id)}.engine", subject=work_id, most=most)
    return [
        Engine(Cluster(str(entry.details.get("address")), checked_workers(str(entry.details.get("workers")))))
        if entry.details.get("engine") == RAY
        else Engine()
        for entry in entries
    ]
