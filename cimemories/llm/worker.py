"""One process working on a run or a labelling: claims it, keeps its heartbeat, and leaves a status that is true.

All that a worker writes is fenced by its claim (store.work): once another process has taken the work over, this one
stops, and what it had in flight is not recorded. A database that goes away is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

import sqlalchemy as sa

from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint
from cimemories.llm.executor import Executor, Job, Progress, Stopped
from cimemories.llm.identity import confirmed, origin_of
from cimemories.model import WorkStatus
from cimemories.simulator.server import running_simulator
from cimemories.store import work
from cimemories.store.engine import DatabaseLost, Store, StoreError, cause
from cimemories.store.work import Claim, ClaimLost
from cimemories.text import without_credentials

SIMULATOR = "simulator"
HEARTBEAT_SECONDS = 1.0  # also how soon a request to pause or cancel is seen; store.work.STALE_SECONDS is far longer
CANCELLED = "cancelled on request"
PAUSED = "paused on request"


MakeClient = Callable[[Endpoint, bool], Client]
MakeJobs = Callable[[Store, MakeClient], Iterable[Job]]


class WorkError(Exception):
    """The work ended early. The message says why and what to do next."""


@contextmanager
def reachable(base_url: str) -> Iterator[str]:
    """The server's address: the word `simulator` starts one for as long as the block lasts."""
    if base_url != SIMULATOR:
        yield base_url
        return
    with running_simulator() as url:
        yield url


def begin(store: Store, work_id: str, *, queued: bool = False) -> Store:
    """Claim the work; returns the store as its worker must use it, fenced by the claim and patient. `queued`: only if
    it still waits for its worker. Raises StoreError where another process works on it."""
    patient = store.patient()

    def claimed() -> Claim:
        with patient.write(relaxed=True) as connection:
            return work.claim(connection, work_id, queued=queued)

    return patient.fenced(patient.retry(claimed).hold)


def perform(
    store: Store,
    work_id: str,
    make_jobs: MakeJobs,
    *,
    concurrency: int,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
    stop_when: Callable[[Progress], str | None] | None = None,
) -> Progress:
    """Claim the work, run its jobs to the end, and set its status. Returns what was done.

    `queued`: claim it only if it still waits for its worker. `make_jobs` is given the store, through which alone it may
    write, and a maker of clients, which are closed at the end. `stop_when` is called after each batch of outcomes: a
    text that it returns (a cap on cost is reached, say) ends the work for that reason, once the calls in flight are
    recorded. Work that is paused on request returns what was done until then, and its status is `paused`.

    Raises StoreError where another process works on it, and WorkError where the work ended early: it is then
    `cancelled`, `interrupted` (can be resumed) or `failed`, or another process has taken it over.
    """
    own = begin(store, work_id, queued=queued)
    executor = Executor(own, work_id, concurrency=concurrency, on_progress=on_progress, stop_when=stop_when)
    try:
        asyncio.run(_perform(own, work_id, make_jobs, executor))
    except ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except Stopped as stop:
        if str(stop) == PAUSED:
            _finish(own, work_id, WorkStatus.PAUSED, None)
            return executor.progress
        cancelled = str(stop) == CANCELLED
        _finish(own, work_id, WorkStatus.CANCELLED if cancelled else WorkStatus.INTERRUPTED, str(stop))
        raise WorkError(stopped_message(work_id, str(stop))) from stop
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        # Without patience: whoever pressed Ctrl-C is not kept waiting for a database.
        _finish(own.patient(0), work_id, WorkStatus.CANCELLED, "stopped by the keyboard")
        raise WorkError(f"{work_id}: stopped. Continue with `cimemories resume {work_id}`.") from error
    except (sa.exc.DBAPIError, DatabaseLost) as error:
        reason = why_not_written(error)
        # Without patience: what could be waited for has been.
        _finish(own.patient(0), work_id, WorkStatus.INTERRUPTED, reason)
        raise WorkError(
            f"{work_id}: {reason}. Everything before that is kept. Free some space or fix the database, then "
            f"`cimemories resume {work_id}`."
        ) from error
    except Exception as error:
        _finish(own, work_id, WorkStatus.FAILED, without_credentials(f"{type(error).__name__}: {error}"))
        raise
    _finish(own, work_id, None, None)
    return executor.progress


def stopped_message(work_id: str, reason: str) -> str:
    """Why work stopped, and how to continue where the reason does not say that itself."""
    how = "" if f"resume {work_id}" in reason else f" Continue with `cimemories resume {work_id}`."
    return f"{work_id}: {reason}.{how}"


def refuse(store: Store, work_id: str, reason: str, *, queued: bool = False) -> NoReturn:
    """Leave work interrupted for that reason without having begun it. Raises WorkError, and what `perform` raises where
    another process works on it."""
    own = begin(store, work_id, queued=queued)
    _finish(own, work_id, WorkStatus.INTERRUPTED, reason)
    raise WorkError(f"{work_id}: {reason}.")


def why_not_written(error: sa.exc.DBAPIError | DatabaseLost) -> str:
    """Why the record could not be written, as one line for people."""
    lost = error.__cause__ if isinstance(error, DatabaseLost) else None
    return f"the record could not be written: {cause(lost or error)}"


def _finish(store: Store, work_id: str, status: WorkStatus | None, error: str | None) -> None:
    """Set the status at the end of the work; None: it came to its end, and what is missing decides. Raises WorkError
    where another process has taken it over."""

    def finished() -> None:
        with store.write() as connection:
            if status is None:
                work.finish_by_outcome(connection, work_id)
            else:
                work.finish(connection, work_id, status, error)
            work.bump(connection, work_id)

    try:
        store.retry(finished)
    except ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except (sa.exc.DBAPIError, StoreError):
        return  # on a full disk not even this can be written: the missing heartbeat then shows that it ended


async def _perform(store: Store, work_id: str, make_jobs: MakeJobs, executor: Executor) -> None:
    clients: dict[tuple[Endpoint, bool], Client] = {}

    def client(endpoint: Endpoint, simulated: bool) -> Client:
        # One client an endpoint: they share its connections, its bound on requests and its look-up of the server.
        if (endpoint, simulated) not in clients:
            clients[endpoint, simulated] = Client(
                endpoint,
                simulated=simulated,
                at_most=executor.concurrency,
                origin=origin_of(store, simulated, endpoint.server, endpoint.fresh),
                confirm=partial(confirmed, store),
            )
        return clients[endpoint, simulated]

    # Not patient: a beat that waits for a lost database comes too late to say anything.
    heart = asyncio.create_task(_beat(store.patient(0), work_id, executor))
    try:
        await executor.run(make_jobs(executor.store, client))
    finally:
        heart.cancel()
        await asyncio.gather(heart, return_exceptions=True)
        # After the run: its tasks have ended by now, and none uses a closed client.
        for item in clients.values():
            await item.close()


async def _beat(store: Store, work_id: str, executor: Executor) -> None:
    while True:
        try:
            status = await asyncio.to_thread(_beat_once, store, work_id)
        except ClaimLost as lost:
            # Another process has the work now: what is in flight here could not be recorded any more.
            executor.fail(lost)
            return
        except (sa.exc.DBAPIError, StoreError):
            status = WorkStatus.RUNNING  # one missed beat is no reason to stop; a record that is gone fails the commits
        if status == WorkStatus.CANCELLING:
            executor.stop(CANCELLED)
        elif status == WorkStatus.PAUSING:
            executor.drain(PAUSED)  # calls in flight end and are kept, where cancelling drops them
        await asyncio.sleep(HEARTBEAT_SECONDS)


def _beat_once(store: Store, work_id: str) -> WorkStatus:
    # Relaxed: after a power cut nobody needs the last beat.
    with store.write(relaxed=True) as connection:
        return work.beat(connection, work_id)
