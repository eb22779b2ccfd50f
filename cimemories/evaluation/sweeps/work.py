"""A sweep at work: planned in one transaction, worked off run by run, and resumed as one piece of work.

    sweep_id = plan(store, read_sweep(path), find_labels=effective_labels)
    execute(store, sweep_id)

Every cell is an ordinary run. Runs of one model follow each other, and of one memory within it, so that what they have
in common is still in the server's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
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
from cimemories.llm.endpoint import SIMULATOR, EndpointError
from cimemories.llm.executor import LIMITED, UNREACHABLE, Progress, Stopped
from cimemories.llm.local_vllm import keep_running
from cimemories.llm.worker import STOPPING, WorkError
from cimemories.model import WorkStatus
from cimemories.store import datasets, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import DatabaseLost, Store
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
    """The estimates of the cells of a sweep, in their order; a call that several of them make counts once."""

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
            dataset_id=datasets.by_name(connection, spec.dataset).id,
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
    answers: dict[tuple[Any, ...], Server | EndpointError] = {}

    def server(*question: Any) -> Server:
        if question not in answers:
            try:
                answers[question] = ask(*question)
            except EndpointError as error:
                # A server that is away would be waited for again with each cell.
                answers[question] = error
        answer = answers[question]
        if isinstance(answer, EndpointError):
            raise answer
        return answer

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
    # The sweep is claimed by `own`; each of its runs claims itself, so that a run can be looked at and paused alone.
    own, _ = worker.begin(store, sweep_id, queued=queued)
    with worker.ending(own, sweep_id), keep_running(store.workspace):
        if failed := _work_off(store.patient(), own, sweep_id, begin, how):
            raise worker.Failed(f"{len(failed)} of its runs did not finish: {'; '.join(failed)}")


def _work_off(store: Store, own: Store, sweep_id: str, begin: Begin | None, how: Mapping[str, Any]) -> list[str]:
    """Do the runs that owe something; returns what failed, a sentence each. own: fenced by the sweep's claim."""

    def beat(own: Store) -> str | None:
        """Record a heartbeat of the sweep. Returns why it is to stop, or None."""
        with own.write(relaxed=True) as connection:
            return STOPPING.get(work.heartbeat(connection, sweep_id))

    def part_of() -> str | None:
        try:
            return beat(own.patient(0))
        except work.ClaimLost as lost:
            return str(lost)  # the run is let go too

    def check() -> None:
        """Raises Stopped if the sweep was asked to stop."""
        if reason := own.retry(partial(beat, own)):
            raise Stopped(reason)

    with store.read() as connection:
        rows = store_runs.of_sweep(connection, sweep_id)
    failed: list[str] = []
    gone: set[tuple[str, str]] = set()  # (model, address) that refuse us: their other cells would fail as well
    for number, row in enumerate(rows, start=1):
        check()
        if row.status.is_finished and not runs.owes_anything(store, row):
            continue
        called = f"{row.id} ({row.name})"
        # A server that refused one cell would be asked, with all its retries, for every other.
        if (row.model, row.endpoint) in gone:
            failed.append(f"{called} was not started, for the same reason")
            continue
        # Made for each run: what the one before has paid counts, and the cap may have been raised.
        watch = CapWatch(store, sweep_id)
        if reason := watch.reached():
            raise Stopped(reason)
        try:
            with begin(row, number, len(rows)) if begin else nullcontext() as report:
                runs.execute(store, row.id, on_progress=report, stop_when=watch, part_of=part_of, **how)
        except WorkError as error:
            check()
            status, why = _status(store, row.id)
            sentence = f"{called}: {why or error}"
            # worker.perform turns Ctrl-C into a WorkError; what was pressed is in its cause.
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            if reason := watch.reached():
                raise Stopped(reason) from error
            # A server that is away may come back, and a limit ends: the sweep can be resumed then.
            away = status == WorkStatus.INTERRUPTED and (why or "").startswith((UNREACHABLE, LIMITED))
            if away or isinstance(error.__cause__, (sa.exc.DBAPIError, DatabaseLost)):
                raise Stopped(sentence) from error
            failed.append(sentence)
            # Cancelled by a person says nothing of the server: its other cells may go well.
            if status != WorkStatus.CANCELLED:
                gone.add((row.model, row.endpoint))
        except (sa.exc.DBAPIError, DatabaseLost, work.ClaimLost):
            raise
        except Exception as error:
            check()
            failed.append(f"{called}: {error}")
        check()
        if _status(store, row.id)[0] == WorkStatus.PAUSED:
            failed.append(f"{called} was paused on its own")
    return failed


def _status(store: Store, run_id: str) -> tuple[WorkStatus, str | None]:
    with store.read() as connection:
        row = work.load(connection, run_id)
    return WorkStatus(row["status"]), row["error"]
