"""Doing the work of a labelling, a run, a sweep or a generation from a command, with its progress on standard error."""

from __future__ import annotations

import typer

from cimemories.cli import output
from cimemories.store.engine import Store, StoreError

INCOMPLETE = 3  # exit status
UNITS = {"run": "responses", "sweep": "responses", "labelling": "ballots", "generation": "parts"}


def work_on(
    store: Store,
    work_id: str,
    concurrency: int,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    *,
    queued: bool = False,
    allow_missing: float = 0.0,
) -> None:
    """Execute with a progress line; the id is printed at the end whatever happens, so that it can be resumed.

    Ends the command with status 3 where more than the share `allow_missing` of what was planned is missing.
    """
    from cimemories.analysis.headline import warm
    from cimemories.curation import authoring, labelling
    from cimemories.evaluation import runs
    from cimemories.store import work

    store = store.patient()
    table = work.table_of(work_id)
    with store.read() as connection:
        work.load(connection, work_id)
    if table.name == "sweep":
        _sweep(store, work_id, concurrency, allow_missing, moved=bool(base_url or judge_base_url), queued=queued)
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
        exit_if_incomplete(store, work_id, allow_missing)
    finally:
        output.line(work_id)


def exit_if_incomplete(store: Store, work_id: str, allow_missing: float, *, tried: bool = False) -> None:
    """End the command with status 3 where more than this share of what was planned is missing, and say how much it is.
    tried: count only what was tried and failed, not what is still owed."""
    from cimemories.store.outcomes import outcome

    with store.read() as connection:
        found = outcome(connection, work_id)
    count, share = (found.failed, found.failed_share) if tried else (found.missing, found.share)
    if not count:
        return
    what = UNITS[work_id.partition("-")[0]]
    how = "failed" if tried else "are missing or incomplete"
    words = f"{work_id}: {count:,} of {found.planned:,} planned {what} {how}"
    if share <= allow_missing:
        output.note(f"{words} ({output.percent(share)}), allowed by --allow-missing {allow_missing:g}")
        return
    again = f"`cimemories resume {work_id}` asks again for failed calls, not for answers that were refused or cut"
    output.note(f"{words} ({output.percent(share)}); {again}")
    raise typer.Exit(INCOMPLETE)


def _sweep(store: Store, sweep_id: str, concurrency: int, allow_missing: float, *, moved: bool, queued: bool) -> None:
    from cimemories.analysis.sweep_table import sweep_table
    from cimemories.cli import sweep

    if moved:
        raise StoreError("the runs of a sweep may have servers of their own: move one with `cimemories resume RUN`.")
    try:
        sweep.execute(store, sweep_id, concurrency, queued=queued)
        sweep_table(store, sweep_id)  # so that no page has to wait for its numbers
        exit_if_incomplete(store, sweep_id, allow_missing)
    finally:
        output.line(sweep_id)
