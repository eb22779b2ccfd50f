"""Doing the work of a labelling, a run, a sweep or a generation from a command, with its progress on standard error."""

from __future__ import annotations

from cimemories.cli import output
from cimemories.store.engine import Store, StoreError


def work_on(
    store: Store,
    work_id: str,
    concurrency: int,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    *,
    queued: bool = False,
) -> None:
    """Execute with a progress line; the id is printed at the end whatever happens, so that it can be resumed."""
    from cimemories.analysis.headline import warm
    from cimemories.curation import authoring, labelling
    from cimemories.evaluation import runs
    from cimemories.store import work

    table = work.table_of(work_id)
    with store.read() as connection:
        work.load(connection, work_id)
    if table.name == "sweep":
        _sweep(store, work_id, concurrency, moved=bool(base_url or judge_base_url), queued=queued)
        return
    try:
        with output.progress(store, work_id) as report:
            if table.name == "run":
                runs.execute(
                    store,
                    work_id,
                    base_url=base_url,
                    judge_base_url=judge_base_url,
                    concurrency=concurrency,
                    on_progress=report,
                    queued=queued,
                )
            elif table.name == "generation":
                authoring.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
            else:
                labelling.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
        output.outcome(store, work_id)
        if table.name != "generation":
            warm(store, work_id)
    finally:
        output.line(work_id)


def _sweep(store: Store, sweep_id: str, concurrency: int, *, moved: bool, queued: bool) -> None:
    from cimemories.analysis.sweep_table import sweep_table
    from cimemories.cli import sweep

    if moved:
        raise StoreError("the runs of a sweep may have servers of their own: move one with `cimemories resume RUN`.")
    try:
        sweep.execute(store, sweep_id, concurrency, queued=queued)
        sweep_table(store, sweep_id)  # so that no page has to wait for its numbers
    finally:
        output.line(sweep_id)
