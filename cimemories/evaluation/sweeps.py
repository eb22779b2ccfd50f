"""A sweep at work: planned in one transaction, worked off run by run, and resumed as one piece of work.

    sweep_id = plan(store, read_sweep(path), find_labels=effective_labels)
    execute(store, sweep_id)

Every cell is an ordinary run. Runs of one model follow each other, and of one memory within it, so that what they have
in common is still in the server's cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from cimemories.evaluation import runs as working
from cimemories.evaluation.costs import CapWatch
from cimemories.evaluation.estimates import Estimate, estimate
from cimemories.evaluation.planning import FindLabels, LabelSource, LookUp, prepare, write
from cimemories.evaluation.servers import Server, look_up
from cimemories.evaluation.spec import RunSpec
from cimemories.evaluation.sweep_file import SweepSpec
from cimemories.llm import worker
from cimemories.llm.client import EndpointError
from cimemories.llm.executor import UNREACHABLE, Progress
from cimemories.llm.worker import CANCELLED, HEARTBEAT_SECONDS, PAUSED, WorkError, resume_words
from cimemories.model import WorkStatus
from cimemories.store import datasets, judgements, outcomes, runs, sweeps, work
from cimemories.store.engine import DatabaseLost, Store, StoreError
from cimemories.store.runs import RunRow

Report = Callable[[Progress], None]
Begin = Callable[[RunRow, int, int], AbstractContextManager[Report | None]]
WAITS = "waits for its turn in"


@dataclass(frozen=True)
class SweepEstimate:
    """What the cells of a sweep would come to, in their order; what one cell asks and another asks too counts once."""

    runs: tuple[RunSpec, ...]
    cells: tuple[Estimate, ...]
    cap: float | None = None

    @property
    def total(self) -> Estimate:
        """All cells as one, its stages in the order of the cells."""
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

    def as_json(self) -> dict[str, object]:
        """The sums, as they are kept with the sweep."""
        total = self.total
        return {
            "cells": len(self.cells),
            "responses": total.responses,
            "requests": total.requests,
            "draws": total.draws,
            "recorded": total.recorded,
            "prompt_tokens": total.prompt_tokens,
            "completion_tokens": total.completion_tokens,
            "cost_least": total.cost_least,
            "cost_most": total.cost_most,
            "currency": total.currency,
            "seconds": total.seconds,
        }


def estimate_sweep(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, concurrency: int = 32
) -> SweepEstimate:
    """What a sweep would come to. Raises StoreError, SeedError or CompositionError where it could not be planned."""
    find, asked, ask = _once(find_labels), set[str](), _asked_once(partial(look_up, retries=1))
    cells = tuple(
        estimate(store, run, find_labels=find, concurrency=concurrency, asked=asked, look_up=ask) for run in spec.runs
    )
    return SweepEstimate(spec.runs, cells, spec.cap)


def plan(
    store: Store, spec: SweepSpec, *, find_labels: FindLabels | None = None, estimated: SweepEstimate | None = None
) -> str:
    """Look every server up, then write the sweep with all its runs in one transaction; returns its id.

    estimated: what it was said to come to, to be kept with it. Raises EndpointError, StoreError, SeedError or
    CompositionError before anything is written.
    """
    ask, find = _asked_once(look_up), _once(find_labels)
    prepared = [prepare(store, run, ask) for run in spec.runs]
    with store.write() as connection:
        dataset = datasets.named(connection, spec.dataset)
        sweep_id = sweeps.add(
            connection,
            name=spec.name,
            dataset_id=dataset.id,
            spec=spec.source,
            plan=estimated.as_json() if estimated else {},
            cap=spec.cap,
        )
        for cell, item in enumerate(prepared):
            run_id = write(connection, store, item, find_labels=find, sweep=sweep_id, cell=cell)
            # Queued work whose worker does not come would soon be shown as interrupted.
            work.finish(connection, run_id, WorkStatus.PAUSED, f"{WAITS} {sweep_id}")
    return sweep_id


def _asked_once(ask: LookUp) -> LookUp:
    """Each question to a server asked once for all cells, one that was not answered among them."""
    found: dict[tuple[object, ...], Server | EndpointError] = {}

    def server(base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None) -> Server:
        key = (base_url, key_env, model, samples, wants_schema, seed)
        if key not in found:
            try:
                found[key] = ask(*key)
            except EndpointError as error:
                found[key] = error
        known = found[key]
        if isinstance(known, EndpointError):
            raise known
        return known

    return server


def _once(find_labels: FindLabels | None) -> FindLabels | None:
    """The labels of a dataset, looked up once for all cells."""
    if find_labels is None:
        return None
    found: dict[int, LabelSource | None] = {}

    def find(store: Store, dataset_id: int) -> LabelSource | None:
        if dataset_id not in found:
            found[dataset_id] = find_labels(store, dataset_id)
        return found[dataset_id]

    return find


def execute(
    store: Store,
    sweep_id: str,
    *,
    concurrency: int = 32,
    begin: Begin | None = None,
    queued: bool = False,
) -> None:
    """Work off what the runs of a sweep owe, one after the other; waits until all is done.

    begin: entered around each run with (run, its number from 1, how many there are), and gives what its progress is
    told to. Raises StoreError where another process is at it. Raises WorkError where it ended early: cancelled, at its
    cap, or a server is gone; and, once all others are done, where runs failed, naming them. A sweep that was asked to
    pause returns, and its status is `paused`.
    """
    own, _ = worker.begin(store, sweep_id, queued=queued)
    heart = _Heart(own, sweep_id)
    try:
        with heart.beating():
            failed = _work_off(store.patient(), sweep_id, heart, concurrency, begin)
    except work.ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except _End as end:
        _finish(own, sweep_id, end.status, end.reason)
        if end.status == WorkStatus.PAUSED:
            return
        raise WorkError(resume_words(sweep_id, end.reason)) from end
    except KeyboardInterrupt as error:
        _finish(own.patient(0), sweep_id, WorkStatus.CANCELLED, "stopped by the keyboard")
        raise WorkError(f"{sweep_id}: stopped. `cimemories resume {sweep_id}` goes on where it stopped.") from error
    except (sa.exc.DBAPIError, DatabaseLost) as error:
        reason = worker.why_not_written(error)
        _finish(own.patient(0), sweep_id, WorkStatus.INTERRUPTED, reason)
        raise WorkError(f"{sweep_id}: {reason}. Make room or mend the database, then resume it.") from error
    if failed:
        reason = f"{len(failed)} of its runs could not be done: {'; '.join(failed)}"
        _finish(own, sweep_id, WorkStatus.FAILED, reason)
        raise WorkError(f"{sweep_id}: {reason}. `cimemories resume {sweep_id}` tries them again.")
    _finish(own, sweep_id, None, None)


class _End(Exception):
    """The sweep ends here, with this status and for this reason."""

    def __init__(self, status: WorkStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Heart:
    """Says once a second that the sweep goes on, and hands what is asked of it down to the run at work.

    Where the sweep is somebody else's by now, `lost` says so, and the run at work is to end: the other one needs it.
    """

    def __init__(self, store: Store, sweep_id: str) -> None:
        self.store, self.sweep_id = store, sweep_id
        self.run_id: str | None = None
        self.asked: WorkStatus | None = None
        self.lost: str | None = None
        self._over = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
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
        """Beat once. What was asked is handed down at every beat: the run may not have been claimed at the last."""
        with self.store.write(relaxed=True) as connection:
            status = work.beat(connection, self.sweep_id)
            if status in (WorkStatus.CANCELLING, WorkStatus.PAUSING):
                self.asked = status
            run_id = self.run_id
            if run_id is not None and self.asked == WorkStatus.CANCELLING:
                work.request_cancel(connection, run_id)
            elif run_id is not None and self.asked == WorkStatus.PAUSING:
                work.request_pause(connection, run_id)

    def check(self) -> None:
        """Raises _End where somebody asked the sweep to stop."""
        self.store.retry(self.look)
        if self.asked == WorkStatus.CANCELLING:
            raise _End(WorkStatus.CANCELLED, CANCELLED)
        if self.asked == WorkStatus.PAUSING:
            raise _End(WorkStatus.PAUSED, PAUSED)


def _work_off(store: Store, sweep_id: str, heart: _Heart, concurrency: int, begin: Begin | None) -> list[str]:
    """Do the runs that owe something; returns what failed, in words."""
    with store.read() as connection:
        rows = runs.of_sweep(connection, sweep_id)
    failed: list[str] = []
    gone: set[tuple[str, str]] = set()  # (model, address) that refuse us: their other cells would fail as well
    for number, row in enumerate(rows, start=1):
        heart.check()
        if _is_done(store, row):
            continue
        if (row.model, row.endpoint) in gone:
            failed.append(f"{row.id} ({row.name}) was not begun, for the same reason")
            continue
        watch = CapWatch(store, sweep_id)
        if reason := watch.reached():
            raise _End(WorkStatus.INTERRUPTED, reason)
        heart.run_id = row.id
        try:
            with begin(row, number, len(rows)) if begin else nullcontext() as report:
                stop = partial(_stop_when, heart, watch)
                working.execute(store, row.id, concurrency=concurrency, on_progress=report, stop_when=stop)
        except WorkError as error:
            heart.check()
            reason = _why(store, row, error, watch)
            failed.append(reason)
            if _status(store, row.id)[0] != WorkStatus.CANCELLED:
                gone.add((row.model, row.endpoint))
        except (sa.exc.DBAPIError, DatabaseLost, work.ClaimLost):
            raise
        except Exception as error:
            heart.check()
            failed.append(f"{row.id} ({row.name}): {error}")
        finally:
            heart.run_id = None
        heart.check()
        if _status(store, row.id)[0] == WorkStatus.PAUSED:
            failed.append(f"{row.id} ({row.name}) was paused by itself")
    return failed


def _stop_when(heart: _Heart, watch: CapWatch, done: Progress) -> str | None:
    return heart.lost or watch(done)


def _why(store: Store, row: RunRow, error: WorkError, watch: CapWatch) -> str:
    """Why a run ended early, where the sweep can go on without it. Raises _End where it cannot."""
    status, reason = _status(store, row.id)
    if isinstance(error.__cause__, KeyboardInterrupt):
        raise _End(WorkStatus.CANCELLED, "stopped by the keyboard") from error
    if watch.reached():
        raise _End(WorkStatus.INTERRUPTED, str(watch.reached())) from error
    said = f"{row.id} ({row.name}): {reason or error}"
    if status == WorkStatus.INTERRUPTED and (reason or "").startswith(UNREACHABLE):
        raise _End(WorkStatus.INTERRUPTED, said) from error
    if isinstance(error.__cause__, (sa.exc.DBAPIError, DatabaseLost)):
        raise _End(WorkStatus.INTERRUPTED, said) from error
    return said


def _status(store: Store, run_id: str) -> tuple[WorkStatus, str | None]:
    with store.read() as connection:
        row = work.load(connection, run_id)
    return WorkStatus(row["status"]), row["error"]


def _is_done(store: Store, row: RunRow) -> bool:
    """Whether a run has ended and owes nothing, failures included."""
    if not row.status.is_finished or any(row.responses.get(status) for status in runs.RETRIABLE):
        return False
    with store.read() as connection:
        judges = judgements.of_run(connection, row.id) + judgements.checkers_of_run(connection, row.id)
        profiles = runs.profile_ids(connection, row.id)
        return not any(judgements.owed(connection, row.id, j.id, p) for j in judges for p in profiles)


def _finish(store: Store, sweep_id: str, status: WorkStatus | None, reason: str | None) -> None:
    """Set the status at the end of one's own sweep; None: it came to its end, and what is missing in its runs decides.
    Raises WorkError where it is somebody else's by now."""
    try:
        with store.write() as connection:
            if status is None:
                outcomes.finish(connection, sweep_id)
            else:
                work.finish(connection, sweep_id, status, reason)
            work.bump(connection, sweep_id)
    except work.ClaimLost as lost:
        raise WorkError(str(lost)) from lost
    except (sa.exc.DBAPIError, StoreError):
        return  # where the disk is full, not even this can be written: the dead heartbeat then tells
