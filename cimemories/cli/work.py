"""Doing the work of a run, sweep, labelling or generation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AllowKeys, AllowMissing, Concurrency, Workspace
from cimemories.model import WorkKind
from cimemories.store import generations as store_generations
from cimemories.store import judgements, work
from cimemories.store import labellings as store_labellings
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_patiently, open_store
from cimemories.text import percent

if TYPE_CHECKING:
    from cimemories.llm.executor import Progress as Done
    from cimemories.store.runs import RunRow


INCOMPLETE = 3  # exit status


UNITS = {
    WorkKind.RUN: "responses",
    WorkKind.SWEEP: "responses",
    WorkKind.LABELLING: "ballots",
    WorkKind.GENERATION: "parts",
}


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
    from cimemories.curation import authoring as curation_authoring
    from cimemories.curation import labelling as curation_labelling
    from cimemories.evaluation import runs as evaluation_runs
    from cimemories.metrics.headline import warm

    store = store.patient()
    kind = work.kind_of(work_id)
    with store.read() as connection:
        work.load(connection, work_id)
    if kind is WorkKind.SWEEP:
        _sweep(store, work_id, concurrency, allow_missing, moved=bool(base_url or judge_base_url), queued=queued)
        return
    try:
        with progress(store, work_id) as report:
            if kind is WorkKind.RUN:
                evaluation_runs.execute(
                    store,
                    work_id,
                    base_url=base_url,
                    judge_base_url=judge_base_url,
                    concurrency=concurrency,
                    on_progress=report,
                    queued=queued,
                )
            elif kind is WorkKind.GENERATION:
                curation_authoring.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
            else:
                curation_labelling.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
        outcome(store, work_id)
        if kind is not WorkKind.GENERATION:
            warm(store, work_id)
        exit_if_incomplete(store, work_id, allow_missing)
    finally:
        output.line(work_id)


def exit_if_incomplete(store: Store, work_id: str, allow_missing: float, *, tried: bool = False) -> None:
    """End the command with status 3 where more than this share of what was planned is missing, and say how much it is.
    tried: count only what was tried and failed, not what is still owed."""
    with store.read() as connection:
        found = work.outcome(connection, work_id)
    count, share = (found.failed, found.failed_share) if tried else (found.missing, found.share)
    if not count:
        return
    what = UNITS[work.kind_of(work_id)]
    how = "failed" if tried else "are missing or incomplete"
    words = f"{work_id}: {count:,} of {found.planned:,} planned {what} {how}"
    if share <= allow_missing:
        output.note(f"{words} ({percent(share)}), allowed by --allow-missing {allow_missing:g}")
        return
    again = f"`cimemories resume {work_id}` asks again for failed calls, not for answers that were refused or cut"
    output.note(f"{words} ({percent(share)}); {again}")
    raise typer.Exit(INCOMPLETE)


def _sweep(store: Store, sweep_id: str, concurrency: int, allow_missing: float, *, moved: bool, queued: bool) -> None:
    from cimemories.compare.sweeps import sweep_table

    if moved:
        raise StoreError("the runs of a sweep may have servers of their own: move one with `cimemories resume RUN`.")
    try:
        execute(store, sweep_id, concurrency, queued=queued)
        sweep_table(store, sweep_id)  # so that no page has to wait for its numbers
        exit_if_incomplete(store, sweep_id, allow_missing)
    finally:
        output.line(sweep_id)


def execute(store: Store, sweep_id: str, concurrency: int, *, queued: bool) -> None:
    """Work a sweep off, with a progress line for each of its runs."""
    from cimemories.evaluation import sweeps as evaluation_sweeps

    @contextmanager
    def begin(row: RunRow, number: int, count: int) -> Iterator[Callable[[Done], None]]:
        output.note(f"{sweep_id}: {number} of {count}, {row.name}, {row.composition}")
        with progress(store, row.id) as report:
            yield report
        outcome(store, row.id)

    evaluation_sweeps.execute(store, sweep_id, concurrency=concurrency, begin=begin, queued=queued)


@cli.command()
def resume(
    work_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run or a labelling.")],
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where its server is now.")] = None,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url")] = None,
    cap: Annotated[float | None, typer.Option("--cap", help="Another cap on cost, for a run or sweep.")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", hidden=True, help="Only if it still waits for its worker.")
    ] = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Do what a run or labelling still owes, failures too; prints its id.  Example: cimemories resume run-3f9a1c2e"""
    store = open_patiently(workspace) if queued else open_store(workspace)
    if cap is not None:
        from cimemories.evaluation.costs import raise_cap

        raise_cap(store, work_id, cap)
    work_on(store, work_id, concurrency, base_url, judge_base_url, queued=queued, allow_missing=allow_missing)


@cli.command()
def pause(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Let the calls in flight of a run end, then stop until it is resumed.  Example: cimemories pause run-3f9a1c2e"""
    from cimemories.model import WorkStatus
    from cimemories.store import work as store_work

    store = open_store(workspace)
    with store.write() as connection:
        store_work.request_pause(connection, work_id)
        status = WorkStatus(store_work.load(connection, work_id)["status"])
    if status == WorkStatus.PAUSING:
        output.note(f"{work_id}: pausing. Its calls in flight end first; then `cimemories resume {work_id}` goes on.")
    elif status == WorkStatus.PAUSED:
        output.note(f"{work_id}: paused. `cimemories resume {work_id}` goes on.")
    else:
        output.note(f"{work_id}: nothing to pause, it is {status}.")


@cli.command()
def cancel(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Ask the worker of a run or labelling to stop; what is recorded stays.  Example: cimemories cancel run-3f9a1c2e"""
    from cimemories.store import work as store_work

    store = open_store(workspace)
    with store.write() as connection:
        store_work.request_cancel(connection, work_id)


LOOK_SECONDS = 0.3  # between two looks at the record for the progress of a generation


def _owed(store: Store, work_id: str) -> int:
    with store.read() as connection:
        if work.kind_of(work_id) is WorkKind.GENERATION:
            return store_generations.progress(connection, work_id)[1]
        if work.kind_of(work_id) is WorkKind.RUN:
            row = store_runs.named(connection, work_id)
            judges = [j for j in judgements.of_run(connection, work_id) if j.kind == "llm"]
            open_responses = sum(row.responses.get(s, 0) for s in store_runs.RETRIABLE)
            answered = row.responses.get("ok", 0)
            return open_responses * (1 + len(judges)) + (answered - row.judged) * len(judges)
        row_ = next(r for r in store_labellings.all_rows(connection) if r.id == work_id)
        return sum(row_.ballots.get(s, 0) for s in store_labellings.RETRIABLE)


@contextmanager
def progress(store: Store, work_id: str) -> Iterator[Callable[[Done], None]]:
    """A progress line on standard error; yields what an execution reports to."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[extra]}"),
    )
    with Progress(*columns, console=output.err) as bar:
        task = bar.add_task(work_id, total=_owed(store, work_id), extra="")

        def report(done: Done) -> None:
            failed = sum(done.failed.values())
            extra = f"{done.prompt_tokens + done.completion_tokens:,} tokens" + (f", {failed} failed" if failed else "")
            bar.update(task, completed=done.done, extra=extra)

        if work.kind_of(work_id) is not WorkKind.GENERATION:
            yield report
            return
        parts = _Parts(store, work_id)

        def report_parts(done: Done) -> None:
            report(done)
            # Calls are no measure here: how many will be asked for again is not known beforehand.
            bar.update(task, completed=parts.settled(), extra=f"{bar.tasks[0].fields['extra']}{parts.cost(done)}")

        bar.update(task, completed=parts.settled())
        yield report_parts
        bar.update(task, completed=parts.settled(at_once=True))


class _Parts:
    """Settled parts of a generation, looked up now and then, and what its tokens cost."""

    def __init__(self, store: Store, work_id: str) -> None:
        self.store, self.work_id, self.looked, self.count = store, work_id, 0.0, 0
        with store.read() as connection:
            asked = store_generations.named(connection, work_id).manifest.get("asked")
        prices = asked if isinstance(asked, dict) else {}
        self.prices = float(prices.get("price_in", 0)), float(prices.get("price_out", 0))

    def settled(self, *, at_once: bool = False) -> int:
        if at_once or time.monotonic() - self.looked > LOOK_SECONDS:
            with self.store.read() as connection:
                self.count = store_generations.progress(connection, self.work_id)[0]
            self.looked = time.monotonic()
        return self.count

    def cost(self, done: Done) -> str:
        from cimemories.curation.authoring import cost

        if not any(self.prices):
            return ""
        return f", cost {cost(done.prompt_tokens, done.completion_tokens, *self.prices):,.2f}"


def outcome(store: Store, work_id: str) -> None:
    """What came of a piece of work, on standard error: what is missing and why, never hidden."""
    if work.kind_of(work_id) is WorkKind.GENERATION:
        _written(store, work_id)
        return
    with store.read() as connection:
        work.load(connection, work_id)
        if work.kind_of(work_id) is WorkKind.RUN:
            row = store_runs.named(connection, work_id)
            output.note(f"{work_id}: {row.judged:,} of {row.expected:,} responses judged ({percent(row.coverage)})")
            for stage, status, cause, count in store_runs.failures(connection, work_id):
                output.note(f"  missing: {count} {stage}s {status} ({cause})")
            for cause, error in store_runs.call_errors(connection, work_id).items():
                output.note(f"  {cause}, for example: {error}")
            if row.manifest.cap is not None:
                _above_cap(store, work_id)
            return
        labelled = next(r for r in store_labellings.all_rows(connection) if r.id == work_id)
        output.note(f"{work_id}: {labelled.ballots.get('ok', 0):,} of {labelled.expected:,} ballots counted")
        for status, cause, count in store_labellings.failures(connection, work_id):
            output.note(f"  missing: {count} ballots {status} ({cause})")


def _above_cap(store: Store, run_id: str) -> None:
    from cimemories.evaluation.costs import run_cost

    if words := run_cost(store, run_id).above_cap_words():
        output.note(f"  {words}")


def _written(store: Store, work_id: str) -> None:
    from cimemories.curation.authoring import report

    for text in report(store, work_id).lines():
        output.note(text)
