"""Doing the work of a labelling, a run or a generation from a command, with its progress on standard error."""

from __future__ import annotations

from cimemories.cli import output
from cimemories.store.engine import Store


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
