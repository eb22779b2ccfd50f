"""A sweep at work: planned in one transaction, worked off run by run, and resumed as one piece of work.

    sweep_id = plan(store, read_sweep(path), find_labels=effective_labels)
    execute(store, sweep_id)

Every cell is an ordinary run. Runs of one model follow each other, and of one memory within it, so that what they have
in common is still in the server's cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.answer import Column, Listing, attributes
from cimemories.evaluation import runs
from cimemories.evaluation.compositions import FindLabels, labels_for
from cimemories.evaluation.costs import CapWatch
from cimemories.evaluation.estimates import Estimate, estimate
from cimemories.evaluation.planning import LookUp, look_up, prepare, write
from cimemories.evaluation.spec import RunSpec, differing
from cimemories.evaluation.sweeps.file import SweepSpec
from cimemories.llm import worker
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import EndpointError
from cimemories.llm.executor import LIMITED, UNREACHABLE, Progress
from cimemories.llm.local_vllm import kept_between
from cimemories.llm.worker import CANCELLED, HEARTBEAT_SECONDS, PAUSED, SIMULATOR, WorkError, stopped_message
from cimemories.model import WorkStatus
from cimemories.store import datasets, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import DatabaseLost, Store, StoreError
from cimemories.store.runs import RunRow
from cimemories.store.team import log

Report = Callable[[Progress], None]
Begin = Callable[[RunRow, int, int], AbstractContextManager[Report | None]]
WAITS = "waiting for its turn in"


CELL_COLUMNS = {
    "responses": Column("count", "Messages"),
    "recorded": Column("count", "Recorded"),
    "requests": Column("count", "Requests"),
    "prompt_tokens": Column("count", "Prompt tokens"),
    "completion_tokens": Column("count", "Completion tokens"),
    "cost": Column("text", "Cost"),
    "seconds": Column("number", "Seconds", "Of waiting, as far as recorded calls tell"),
    "simulated": Column("flag", "Simulated"),
}


@dataclass(frozen=True)
class SweepEstimate:
    """Return the estimates of the cells of a sweep, in their order; a call that several of them make counts once."""

    runs: tuple[RunSpec, ...]
    cells: tuple[Estimate, ...]
    cap: float | None = None

    @property
    def total(self) -> Estimate:
        """Return all cells as one, its stages in the order of the cells."""
        stages = tuple(stage for cell in self.cells for stage in cell.stages)
        assumptions = tuple(dict.fromkeys(text for cell in self.cells for text in cell.assumptions))
        return Estimate(
            places=sum(cell.places for cell in self.cells),
            responses=sum(cell.responses for cell in self.cells),
            stages=stages,
            assumptions=assumptions,
            concurrency=self.cells[0].concurrency,
            cap=self.cap,
            unreachable=tuple(dict.fromkeys(text for cell in self.cells for text in cell.unreachable)),
        )

    @property
    def table(self) -> Listing:
        """Return the cells, with the settings in which they differ. cost: as text."""
        settings = {
            "model": "Model",
            "memory_text": "Memory",
            "prompt_level": "Prompt level",
            "mitigation": "Mitigation",
            "thinking": "Thinking",
        }
        further = differing(self.runs)
        rows = [
            attributes(run, " ".join(settings))
            | {title: texts[number] for title, texts in further.items()}
            | attributes(cell, "responses recorded requests prompt_tokens completion_tokens seconds")
            | {"cost": "no price" if cell.unpriced else cell.cost_text, "simulated": run.base_url == SIMULATOR}
            for number, (run, cell) in enumerate(zip(self.runs, self.cells, strict=True))
        ]
        titles = settings | {title: title for title in further}
        columns = {name: Column("text", title) for name, title in titles.items()} | CELL_COLUMNS
        return Listing(rows, columns, "Cells of the sweep")

    def as_json(self) -> dict[str, object]:
        """Return the sums, as they are recorded with the sweep."""
        total = self.total
        counts = ("responses", "requests", "draws", "recorded", "prompt_tokens", "completion_tokens")
        names = (*counts, "cost_least", "cost_most", "currency", "seconds")
        return {"cells": len(self.cells), **{name: getattr(total, name) for name in names}}


def estimate_sweep(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, concurrency: int = 32
) -> SweepEstimate:
    """Return what a sweep would come to. Raises StoreError, SeedError or CompositionError if it could not be
    planned."""
    # `counted` goes from cell to cell: a call that an earlier cell makes is in the record when the later one comes.
    find, counted, ask = _once(find_labels), set[str](), _look_up_once(partial(look_up, retries=1))
    cells = tuple(
        estimate(store, run, find_labels=find, concurrency=concurrency, counted=counted, look_up=ask)
        for run in spec.runs
    )
    return SweepEstimate(spec.runs, cells, spec.cap)


def plan(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, estimated: SweepEstimate | None = None
) -> str:
    """Look every server up, write the sweep with all its runs in one transaction, and return its id. estimated: its
    estimate, to be recorded with it. Raises EndpointError, StoreError, SeedError or CompositionError before anything is
    written."""
    # All servers are asked before the transaction: none of them may hold the lock on writing.
    ask, find = _look_up_once(look_up), _once(find_labels)
    prepared = [prepare(store, run, ask) for run in spec.runs]
    labels = [labels_for(store, spec.dataset, run.composition, find) for run in prepared]
    with store.write(Role.OPERATOR) as connection:
        sweep_id = store_runs.add_sweep(
            connection,
            name=spec.name,
            dataset_id=datasets.named(connection, spec.dataset).id,
            spec=spec.source,
            plan=estimated.as_json() if estimated else {},
            cap=spec.cap,
        )
        for cell, (item, by) in enumerate(zip(prepared, labels, strict=True)):
            run_id = write(connection, item, by, sweep=sweep_id, cell=cell)
            # Queued work whose worker does not come would soon be shown as interrupted.
            work.finish(connection, run_id, WorkStatus.PAUSED, f"{WAITS} {sweep_id}")
        log.add(connection, "sweep.planned", sweep_id, name=spec.name, dataset=spec.dataset, runs=len(prepared))
    return sweep_id


def _look_up_once(ask: LookUp) -> LookUp:
    """Return a look-up that asks each server once for all cells, and remembers those that do not answer."""

    @cache
    def answer(*question: Any) -> Server | EndpointError:
        try:
            return ask(*question)
        except EndpointError as error:
            # Kept too: a server that is away would be waited for again with each cell.
            return error

    def server(*question: Any) -> Server:
        known = answer(*question)
        if isinstance(known, EndpointError):
            raise known
        return known

    return server


def _once(find_labels: FindLabels | None) -> FindLabels | None:
    # Effective labels of a dataset are the same for all cells, and costly to put together.
    return cache(find_labels) if find_labels else None


def execute(store: Store, sweep_id: str, *, begin: Begin | None = None, queued: bool = False, **how: Any) -> None:
    """Work off what the runs of a sweep owe, one after the other; waits until all is done.

    begin: entered around each run with (run, its number from 1, how many there are), and gives what its progress is
    reported to. how: `concurrency` and `engine`, as of runs.execute. A sweep that was asked to pause returns, and its
    status is `paused`. Raises StoreError where another process is at it, and WorkError where it ended early (cancelled,
    at its cap, a server is gone) or, once all others are done, where runs failed, naming them.
    """
    own, _ = worker.begin(store, sweep_id, queued=queued)
    # The sweep is claimed by `own`; each of its runs claims itself, so that a run can be looked at and paused alone.
    heart = _Heart(own, sweep_id)
    try:
        with heart.beating(), kept_between(store.workspace):
            failed = _work_off(store.patient(), sweep_id, heart, begin, how)
    except work.ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except _End as end:
        worker.finish(own, sweep_id, end.status, end.reason)
        if end.status == WorkStatus.PAUSED:
            return
        raise WorkError(stopped_message(sweep_id, end.reason)) from end
    except KeyboardInterrupt as error:
        # Without patience: who pressed Ctrl-C does not wait for a database that went away.
        worker.finish(own.patient(0), sweep_id, WorkStatus.CANCELLED, "stopped by the keyboard")
        raise WorkError(f"{sweep_id}: stopped. Continue with `cimemories resume {sweep_id}`.") from error
    except (sa.exc.DBAPIError, DatabaseLost) as error:
        reason = worker.why_not_written(error)
        # Without patience: a database that has just failed is not waited for once more.
        worker.finish(own.patient(0), sweep_id, WorkStatus.INTERRUPTED, reason)
        raise WorkError(f"{sweep_id}: {reason}. Free some space or fix the database, then resume it.") from error
    if failed:
        reason = f"{len(failed)} of its runs did not finish: {'; '.join(failed)}"
        worker.finish(own, sweep_id, WorkStatus.FAILED, reason)
        raise WorkError(f"{sweep_id}: {reason}. Try again with `cimemories resume {sweep_id}`.")
    worker.finish(own, sweep_id, None, None)


class _End(Exception):
    """The sweep ends here, with this status and for this reason."""

    def __init__(self, status: WorkStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Heart:
    """Records a heartbeat for the sweep, and passes a request to pause or cancel it on to the run at work. lost: why,
    if another process has taken the sweep over."""

    def __init__(self, store: Store, sweep_id: str) -> None:
        self.store, self.sweep_id = store, sweep_id
        self.run_id: str | None = None
        self.requested: WorkStatus | None = None
        self.lost: str | None = None
        # An event, not a sleep: the thread ends at once when the sweep does.
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        # A thread of its own: the run at work has this one until it ends.
        thread = threading.Thread(target=self._beat, name=f"heart of {self.sweep_id}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _beat(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS / 2):
            try:
                self.look()
            except work.ClaimLost as lost:
                self.lost = str(lost)
                return  # the next check raises it
            except (sa.exc.DBAPIError, StoreError):
                continue  # one missed beat is no reason to stop

    def look(self) -> None:
        """Record a heartbeat. A request is passed on each time: the run may not have been claimed at the last."""
        with self.store.write(relaxed=True) as connection:
            status = work.heartbeat(connection, self.sweep_id)
            if status in (WorkStatus.CANCELLING, WorkStatus.PAUSING):
                self.requested = status
            run_id = self.run_id
            if run_id is not None and self.requested == WorkStatus.CANCELLING:
                # The run is claimed by this same process: it sees the request at its own next beat.
                work.request_cancel(connection, run_id)
            elif run_id is not None and self.requested == WorkStatus.PAUSING:
                work.request_pause(connection, run_id)

    def check(self) -> None:
        """Raises _End where somebody asked the sweep to stop."""
        # Beats itself, so that a request made since the last beat is seen before the next run begins.
        self.store.retry(self.look)
        if self.requested == WorkStatus.CANCELLING:
            raise _End(WorkStatus.CANCELLED, CANCELLED)
        if self.requested == WorkStatus.PAUSING:
            raise _End(WorkStatus.PAUSED, PAUSED)


def _work_off(store: Store, sweep_id: str, heart: _Heart, begin: Begin | None, how: Mapping[str, Any]) -> list[str]:
    """Do the runs that owe something; returns what failed, a sentence each."""
    with store.read() as connection:
        rows = store_runs.of_sweep(connection, sweep_id)
    failed: list[str] = []
    gone: set[tuple[str, str]] = set()  # (model, address) that refuse us: their other cells would fail as well
    for number, row in enumerate(rows, start=1):
        heart.check()
        if row.status.is_finished and not runs.owes_anything(store, row):
            continue
        # A server that refused one cell would be asked, with all its retries, for every other.
        if (row.model, row.endpoint) in gone:
            failed.append(f"{row.id} ({row.name}) was not started, for the same reason")
            continue
        # Anew for each run: what the one before has paid counts, and the cap may have been raised.
        watch = CapWatch(store, sweep_id)
        if reason := watch.reached():
            raise _End(WorkStatus.INTERRUPTED, reason)
        heart.run_id = row.id
        try:
            with begin(row, number, len(rows)) if begin else nullcontext() as report:
                stop = partial(lambda watch, done: heart.lost or watch(done), watch)
                runs.execute(store, row.id, on_progress=report, stop_when=stop, **how)
        except WorkError as error:
            heart.check()
            reason = _why(store, row, error, watch)
            failed.append(reason)
            # Cancelled by somebody says nothing of the server: its other cells may go well.
            if _status(store, row.id)[0] != WorkStatus.CANCELLED:
                gone.add((row.model, row.endpoint))
        except (sa.exc.DBAPIError, DatabaseLost, work.ClaimLost):
            raise
        except Exception as error:
            heart.check()
            failed.append(f"{row.id} ({row.name}): {error}")
        finally:
            # The heart must not hand a request down to a run that has ended.
            heart.run_id = None
        heart.check()
        if _status(store, row.id)[0] == WorkStatus.PAUSED:
            failed.append(f"{row.id} ({row.name}) was paused on its own")
    return failed


def _why(store: Store, row: RunRow, error: WorkError, watch: CapWatch) -> str:
    """Return why a run ended early if the sweep can go on without it. Raises _End if it cannot."""
    status, reason = _status(store, row.id)
    # worker.perform turns Ctrl-C into a WorkError; what was pressed is in its cause.
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise _End(WorkStatus.CANCELLED, "stopped by the keyboard") from error
    if watch.reached():
        raise _End(WorkStatus.INTERRUPTED, str(watch.reached())) from error
    sentence = f"{row.id} ({row.name}): {reason or error}"
    # A server that is away may come back, and a limit ends: the sweep ends as interrupted and can be resumed.
    if status == WorkStatus.INTERRUPTED and (reason or "").startswith((UNREACHABLE, LIMITED)):
        raise _End(WorkStatus.INTERRUPTED, sentence) from error
    if isinstance(error.__cause__, (sa.exc.DBAPIError, DatabaseLost)):
        raise _End(WorkStatus.INTERRUPTED, sentence) from error
    return sentence


def _status(store: Store, run_id: str) -> tuple[WorkStatus, str | None]:
    with store.read() as connection:
        row = work.load(connection, run_id)
    return WorkStatus(row["status"]), row["error"]
