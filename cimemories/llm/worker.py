"""One process working on a run or a labelling: claims it, keeps its heartbeat, and leaves a true status.

All that a worker writes is fenced by its claim (store.work): once another process has taken the work over, this one
stops, and its calls in flight are not recorded. It waits for a database that goes away."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import NoReturn

import sqlalchemy as sa

from cimemories import event_loop
from cimemories.llm import engines
from cimemories.llm.engines import LOCAL, Engine, EngineError
from cimemories.llm.executor import Deferred, Execution, Executor, Job, Progress, Stopped
from cimemories.llm.source import MakeClient, Source, Unit, reached
from cimemories.llm.vllm import VllmError
from cimemories.model import WorkStatus
from cimemories.store import work
from cimemories.store.engine import DatabaseLost, Store, StoreError
from cimemories.store.upkeep.problems import cause
from cimemories.store.work import Claim, ClaimLost
from cimemories.text import visible, without_credentials

HEARTBEAT_SECONDS = 1.0  # also how soon a request to pause or cancel is seen; store.work.STALE_SECONDS is far longer
UNRECORDED = 64  # about one commit; each answer waits for milliseconds, unless the server answers at once
CANCELLED = "cancelled on request"
PAUSED = "paused on request"
STOPPING = {WorkStatus.CANCELLING: CANCELLED, WorkStatus.PAUSING: PAUSED}


class WorkError(Exception):
    """The work ended early. The message says why and what to do next."""


class Failed(Stopped):
    """Parts of the work failed, and all others are done."""


def begin(store: Store, work_id: str, *, queued: bool = False) -> tuple[Store, Claim]:
    """Claim the work; return the store for its worker, fenced by the claim and patient, and the claim. queued: only if
    it still waits for its worker. Raises StoreError if another process works on it."""
    patient = store.patient()

    def claimed() -> Claim:
        with patient.write(relaxed=True) as connection:
            return work.claim(connection, work_id, queued=queued)

    claim = patient.retry(claimed)
    return patient.fenced(claim.hold), claim


def perform(
    store: Store,
    work_id: str,
    source: Source,
    *,
    concurrency: int,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
    stop_when: Callable[[Progress], str | None] | None = None,
    part_of: Callable[[], str | None] | None = None,
    engine: Engine | None = None,
) -> Progress:
    """Claim the work, run its jobs to the end, set its status, and return the progress.

    queued: as of `begin`. stop_when: called after each batch of outcomes; a text that it returns ends the work for that
    reason, once the calls in flight are recorded. part_of: called with each heartbeat, records that of the enclosing
    work; a text that it returns ends this work (PAUSED: once the calls in flight are recorded). engine: does it in
    place of this process, with `concurrency` in each of its workers. Paused work returns its progress so far.

    Raises StoreError if another process works on it, and WorkError if the work ended early: it is then `cancelled`,
    `interrupted` (can be resumed) or `failed`, or another process has taken it over."""
    if engine is not None:
        try:
            engine.connect(store)
        except EngineError as error:
            refuse(store, work_id, str(error).rstrip("."), queued=queued)
        own, claim = begin(store, work_id, queued=queued)
        there = engine.driver(own, claim, source, concurrency=concurrency, on_progress=on_progress, stop_when=stop_when)
        return _attend(own, work_id, engine.text, there, there.run, part_of)
    addresses = source.servers(store)
    # Claimed before its own servers are started: that takes minutes, in which it can be paused and cancelled.
    own, _ = begin(store, work_id, queued=queued)
    here = Executor(
        own,
        work_id,
        concurrency=concurrency,
        # A cap on cost looks at the record after each commit, and may be exceeded by the requests in flight alone.
        unrecorded=0 if stop_when else UNRECORDED,
        on_progress=on_progress,
        stop_when=stop_when,
    )

    async def run() -> None:
        try:
            async with reached(addresses, own, concurrency, here.ordered) as (clients, urls):
                # Its clients are closed after the run: its tasks have ended by then.
                await here.run(_jobs(source, here.store, clients, urls))
        except VllmError as error:
            raise Stopped(str(error).rstrip(".")) from error

    return _attend(own, work_id, LOCAL, here, run, part_of)


def _jobs(source: Source, store: Store, client: MakeClient, urls: Mapping[str, str]) -> Iterator[Job | Deferred]:
    jobs = source.opened(store, client, urls)
    for profile in store.retry(partial(source.profiles, store)):
        yield from jobs(Unit(profile))


def _attend(
    own: Store,
    work_id: str,
    engine: str,
    execution: Execution,
    run: Callable[[], Awaitable[None]],
    part_of: Callable[[], str | None] | None,
) -> Progress:
    """Log the engine of the work, run it with a heartbeat, and set the status at its end."""

    def noted() -> None:
        with own.write(relaxed=True) as connection:
            engines.record(connection, work_id, engine)

    async def with_heart() -> None:
        # Not patient: a beat that waits for a lost database comes too late.
        heart = asyncio.create_task(_beat(own.patient(0), work_id, execution, part_of))
        try:
            await run()
        finally:
            heart.cancel()
            await asyncio.gather(heart, return_exceptions=True)

    try:
        own.retry(noted)
    except ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    # The garbage collector no longer scans the present objects: it took one in twenty calls a second.
    gc.freeze()
    try:
        with ending(own, work_id):
            event_loop.run(with_heart())
    finally:
        gc.unfreeze()
    return execution.progress


@contextmanager
def ending(own: Store, work_id: str) -> Iterator[None]:
    """Set the status of the work when the block ends, in any way; `Stopped` with PAUSED is a success. Raises WorkError
    if it ended early."""
    try:
        yield
    except ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except Stopped as stop:
        if str(stop) == PAUSED:
            finish(own, work_id, WorkStatus.PAUSED, None)
            return
        failed = WorkStatus.FAILED if isinstance(stop, Failed) else WorkStatus.INTERRUPTED
        finish(own, work_id, WorkStatus.CANCELLED if str(stop) == CANCELLED else failed, str(stop))
        # The error of a vLLM that was started for the work.
        lines = stop.__cause__.lines if isinstance(stop.__cause__, VllmError) else ()
        words = visible("".join(f"\n  {line}" for line in ("vLLM's last lines:", *lines))) if lines else ""
        raise WorkError(stopped_message(work_id, str(stop)) + words) from stop
    except (KeyboardInterrupt, asyncio.CancelledError) as error:
        # Without patience: a user who pressed Ctrl-C is not kept waiting for a database.
        finish(own.patient(0), work_id, WorkStatus.CANCELLED, "stopped by the keyboard")
        raise WorkError(f"{work_id}: stopped. Continue with `cimemories resume {work_id}`.") from error
    except (sa.exc.DBAPIError, DatabaseLost) as error:
        reason = why_not_written(error)
        # Without patience: the waiting is over.
        finish(own.patient(0), work_id, WorkStatus.INTERRUPTED, reason)
        raise WorkError(
            f"{work_id}: {reason}. Everything before that is kept. Free some space or fix the database, then "
            f"`cimemories resume {work_id}`."
        ) from error
    except Exception as error:
        finish(own, work_id, WorkStatus.FAILED, without_credentials(f"{type(error).__name__}: {error}"))
        raise
    finish(own, work_id, None, None)


def stopped_message(work_id: str, reason: str) -> str:
    """Return why work stopped, and how to continue if the reason does not say that itself."""
    if f"resume {work_id}" in reason or "Plan it again" in reason:
        return f"{work_id}: {reason}."
    return f"{work_id}: {reason}. Continue with `cimemories resume {work_id}`."


def refuse(store: Store, work_id: str, reason: str, *, queued: bool = False) -> NoReturn:
    """Leave work interrupted for that reason without starting it. Raises WorkError, and StoreError if another process
    works on it."""
    own, _ = begin(store, work_id, queued=queued)
    finish(own, work_id, WorkStatus.INTERRUPTED, reason)
    raise WorkError(f"{work_id}: {reason}.")


def why_not_written(error: sa.exc.DBAPIError | DatabaseLost) -> str:
    """Return why the record could not be written, as one line for people."""
    lost = error.__cause__ if isinstance(error, DatabaseLost) else None
    return f"the record could not be written: {cause(lost or error)}"


def finish(store: Store, work_id: str, status: WorkStatus | None, error: str | None) -> None:
    """Set the status at the end of the work; None: completed, and the missing items decide. Raises WorkError if another
    process has taken it over."""

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


async def _beat(store: Store, work_id: str, execution: Execution, part_of: Callable[[], str | None] | None) -> None:
    slowed = ""  # as it was written last

    def beat(slowed: str | None) -> str | None:
        """Return why the work has to stop, or None."""
        # Relaxed: after a power cut the last beat is not needed.
        with store.write(relaxed=True) as connection:
            if slowed is not None:
                work.slow_down(connection, work_id, slowed)
            status = work.heartbeat(connection, work_id)
        return STOPPING.get(status) or (part_of() if part_of else None)

    while True:
        execution.look()
        written, slowed = slowed, execution.progress.slowed
        try:
            reason = await asyncio.to_thread(beat, slowed if slowed or written else None)
        except ClaimLost as lost:
            # Another process has the work now: calls in flight here can no longer be recorded.
            execution.fail(lost)
            return
        except (sa.exc.DBAPIError, StoreError):
            reason = None  # one missed beat is no reason to stop; a record that is gone fails the commits
        if reason == PAUSED:
            execution.drain(PAUSED)  # calls in flight end and are kept; cancelling drops them
        elif reason:
            execution.stop(reason)
        await asyncio.sleep(HEARTBEAT_SECONDS)
