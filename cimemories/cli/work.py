"""Doing the work of a run, sweep, labelling or generation, with its progress on standard error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from cimemories.cli import output
from cimemories.cli.options import WorkOptions
from cimemories.model import WorkKind
from cimemories.store import generations as store_generations
from cimemories.store import judgements
from cimemories.store import labellings as store_labellings
from cimemories.store import runs as store_runs
from cimemories.store import work as store_work
from cimemories.store.engine import Store, StoreError
from cimemories.text import count, percent

if TYPE_CHECKING:
    from cimemories.evaluation.compositions import LabelSource
    from cimemories.llm.engines import Engine
    from cimemories.llm.executor import Progress as Done
    from cimemories.store.runs import RunRow

INCOMPLETE = 3  # exit status
UNITS = {
    WorkKind.RUN: "messages",
    WorkKind.SWEEP: "messages",
    WorkKind.LABELLING: "ballots",
    WorkKind.GENERATION: "parts",
}
LINE_SECONDS = 30.0  # between two lines of progress where there is no terminal
SPEED_SECONDS = 600.0  # over which the time left is estimated: a slow server answers less than once in rich's own 30
LOOK_SECONDS = 0.3  # between two looks at the database for the progress of a generation


def work_on(
    store: Store,
    work_id: str,
    options: WorkOptions,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    *,
    queued: bool = False,
) -> None:
    """Execute with its progress on standard error. The id is printed at the end whatever happens, so that a script can
    resume it; without a terminal it is in the log first of all, for work that is killed.

    Ends the command with status 3 where more than the share `allow_missing` of the plan is missing.
    """
    announce(work_id)
    # Imported here: together they take longer to load than most commands take to run.
    from cimemories.curation import execution
    from cimemories.evaluation import runs

    # A database that goes away for a moment must not end a run of many hours.
    store = store.patient()
    engine = options.chosen(store, queued=queued)
    kind = store_work.kind_of(work_id)
    with store.read() as connection:
        store_work.load(connection, work_id)
    if kind is WorkKind.SWEEP and (base_url or judge_base_url):
        raise StoreError("each run of a sweep may use another server: move one with `cimemories resume RUN`.")
    base_url, judge_base_url = _corrected(base_url), _corrected(judge_base_url)
    try:
        if kind is WorkKind.SWEEP:
            _execute_sweep(store, work_id, options.concurrency, engine, queued=queued)
        else:
            execute: Callable[..., object] = execution.execute
            if kind is WorkKind.RUN:
                execute = partial(runs.execute, judge_base_url=judge_base_url)
            output.notes(server_notes(store, work_id))
            with progress(store, work_id) as report:
                execute(
                    store,
                    work_id,
                    base_url=base_url,
                    concurrency=options.concurrency,
                    on_progress=report,
                    queued=queued,
                    engine=engine,
                )
            outcome(store, work_id)
            if kind is not WorkKind.GENERATION:
                # Only now: pandas, DuckDB and SciPy take half a second to load, and would delay the first request.
                from cimemories.metrics.headline import warm

                warm(store, work_id)
        exit_if_incomplete(store, work_id, options.allow_missing)
    finally:
        output.line(work_id)


def _corrected(address: str | None) -> str | None:
    """Return the address that a server has moved to, with what was missing of it; said where it is another."""
    if address is None:
        return None
    from cimemories.llm import assistants
    from cimemories.llm.endpoint import is_assistant
    from cimemories.llm.http.transport import right_address

    if is_assistant(address):
        assistants.allow(address)  # named by the user of a command
        return address
    right = right_address(address)
    output.notes([f"{address} was corrected to {right}"] if right != address else [])
    return right


def server_notes(store: Store, work_id: str) -> list[str]:
    """Return what the test of the servers found that has to be worked around, as the manifest has it."""
    with store.read() as connection:
        manifest = store_work.recorded(store_work.load(connection, work_id))
    parts = [
        manifest.get("model"),
        manifest.get("capabilities"),
        *(j.get("server") for j in manifest.get("judges", ())),
    ]
    notes = (note for part in parts if isinstance(part, dict) for note in part.get("notes", ()))
    return list(dict.fromkeys(map(str, notes)))


def announce(work_id: str) -> None:
    """Write the id of new work to a log, before anything is done: work that is killed is found by it."""
    if not output.err.is_terminal:
        output.note(f"{work_id}: begins")


def find_labels(store: Store, dataset: int) -> LabelSource | None:
    """Return the effective labels of a dataset, for a memory that goes by them; other runs need not wait for pandas."""
    from cimemories.labels.whatif import effective_labels

    return effective_labels(store, dataset)


def exit_if_incomplete(store: Store, work_id: str, allow_missing: float, *, tried: bool = False) -> None:
    """End the command with status 3 where more than this share of the plan is missing, and say how much it is.
    tried: count only what was tried and failed, not what was never asked."""
    with store.read() as connection:
        result = store_work.outcome(connection, work_id)
    count, share = (result.failed, result.failed_share) if tried else (result.missing, result.share)
    if not count:
        return
    state = "failed" if tried else "are missing or incomplete"
    unit = UNITS[store_work.kind_of(work_id)]
    text = f"{work_id}: {count:,} of {result.planned:,} planned {unit} {state} ({percent(share)})"
    if share <= allow_missing:
        output.note(f"{text}, allowed by --allow-missing {allow_missing:g}")
        return
    output.note(
        f"{text}; `cimemories resume {work_id}` retries failed calls, but not answers that were refused or truncated"
    )
    raise typer.Exit(INCOMPLETE)


def _execute_sweep(store: Store, sweep_id: str, concurrency: int, engine: Engine | None, *, queued: bool) -> None:
    """Execute the runs of a sweep, each with a progress line of its own."""
    from cimemories.compare.sweeps import sweep_table
    from cimemories.evaluation import sweeps

    @contextmanager
    def begin(row: RunRow, number: int, count: int) -> Iterator[Callable[[Done], None]]:
        output.note(f"{sweep_id}: {number} of {count}, {row.name}, {row.composition}")
        with progress(store, row.id) as report:
            yield report
        outcome(store, row.id)

    sweeps.execute(store, sweep_id, concurrency=concurrency, begin=begin, queued=queued, engine=engine)
    sweep_table(store, sweep_id)  # cached, so that no page has to wait for its numbers


def execute_run(store: Store, run_id: str, concurrency: int) -> None:
    """Do what is left of a run, with its progress on standard error."""
    from cimemories.evaluation import runs

    announce(run_id)
    with store.read() as connection:
        if store_runs.by_id(connection, run_id).status.is_finished:
            return
    with progress(store, run_id) as report:
        runs.execute(store.patient(), run_id, concurrency=concurrency, on_progress=report)
    outcome(store, run_id)


# ---- progress


@contextmanager
def progress(store: Store, work_id: str) -> Iterator[Callable[[Done], None]]:
    """A progress line on standard error; yields what an execution reports to."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[extra]}"),
    )
    # On standard error, so that a script which reads the id from standard output gets nothing else.
    drawn = output.err.is_terminal
    bar = _Bar(*columns, console=output.err, speed_estimate_period=SPEED_SECONDS, disable=not drawn)
    with bar, nullcontext() if drawn else _as_lines(bar):
        task = bar.add_task(work_id, total=_remaining(store, work_id), extra="")

        from cimemories.evaluation.respond import PREPARING

        def report(done: Done) -> None:
            # How many of these there will be is not known, so they are not in the total either.
            before = sum(tally.done for kind, tally in done.by_kind.items() if kind in PREPARING)
            failed = sum(done.failed.values())
            tokens = count(done.prompt_tokens + done.completion_tokens, "token")
            extra = tokens + (f", {failed} failed" if failed else "")
            bar.slowed = done.slowed
            bar.update(task, completed=done.done - before, extra=extra)

        if store_work.kind_of(work_id) is not WorkKind.GENERATION:
            yield report
            return
        from cimemories.curation.authoring import report as report_of

        now, looked = report_of(store, work_id, under_way=True), time.monotonic()

        def report_parts(done: Done) -> None:
            nonlocal now, looked
            # Reports come with each batch of outcomes, far more often than parts are settled.
            if time.monotonic() - looked > LOOK_SECONDS:
                now, looked = report_of(store, work_id, under_way=True), time.monotonic()
            report(done)
            cost = f", cost {now.cost.shown}" if now.cost.shown else ""
            # Calls do not measure a generation: how many will be repeated is not known beforehand.
            bar.update(task, completed=now.row.settled, extra=f"{bar.tasks[0].fields['extra']}{cost}")

        bar.update(task, completed=now.row.settled)
        yield report_parts
        bar.update(task, completed=report_of(store, work_id, under_way=True).row.settled)


class _Bar(Progress):
    """A progress line, and under it what slows the work down."""

    slowed = ""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.slowed:
            # Our console wraps nothing by itself, for those who copy ids from it.
            yield from Text(self.slowed, style="yellow").wrap(self.console, self.console.width)


@contextmanager
def _as_lines(bar: _Bar) -> Iterator[None]:
    """A block in which the state of a progress bar is written as a line every LINE_SECONDS, and once at its end."""
    ended = threading.Event()

    def write() -> None:
        for task in bar.tasks:
            elapsed, left = (timedelta(seconds=int(seconds or 0)) for seconds in (task.elapsed, task.time_remaining))
            guess = f", {left} left" if task.time_remaining else ""
            extra = "".join(f", {text}" for text in (task.fields["extra"], bar.slowed) if text)
            total = f"{task.completed:,.0f}/{task.total:,.0f}"
            output.note(f"{task.description}: {total}, {elapsed} elapsed{guess}{extra}")

    def write_now_and_then() -> None:
        while not ended.wait(LINE_SECONDS):
            write()

    thread = threading.Thread(target=write_now_and_then, name="progress lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        write()


def _remaining(store: Store, work_id: str) -> int:
    """Calls still to make, as far as is known now; of a generation the number of its parts."""
    with store.read() as connection:
        if store_work.kind_of(work_id) is WorkKind.GENERATION:
            return store_generations.progress(connection, work_id)[1]
        if store_work.kind_of(work_id) is WorkKind.RUN:
            row = store_runs.by_id(connection, work_id)
            judges = [*judgements.of_run(connection, work_id), *judgements.checkers_of_run(connection, work_id)]
            asking = sum(judge.kind in judgements.ASKING for judge in judges)
            open_responses = sum(row.responses.get(status, 0) for status in store_runs.RETRIABLE)
            steps = 1 + (row.manifest.mitigation.kind in ("gate", "rewrite")) + asking
            # An estimate: a message that fails needs no judge.
            return open_responses * steps + judgements.count_owed(connection, work_id)
        labelling = next(row for row in store_labellings.all_rows(connection) if row.id == work_id)
        return sum(labelling.ballots.get(status, 0) for status in store_labellings.RETRIABLE)


def outcome(store: Store, work_id: str) -> None:
    """Say on standard error what came of a piece of work, what is missing and why."""
    if store_work.kind_of(work_id) is WorkKind.GENERATION:
        from cimemories.curation.authoring import report

        for text in report(store, work_id).lines():
            output.note(text)
        return
    with store.read() as connection:
        store_work.load(connection, work_id)
        if store_work.kind_of(work_id) is WorkKind.RUN:
            row = store_runs.by_id(connection, work_id)
            share = percent(row.coverage)
            output.note(f"{work_id}: {count(row.judged)} of {count(row.expected, 'message')} judged ({share})")
            for stage, status, cause, number in store_runs.failures(connection, work_id):
                unit = "message" if stage == "response" else stage
                output.note(f"  missing: {count(number, unit)} {status} ({cause})")
            for cause, error in store_runs.call_errors(connection, work_id).items():
                output.note(f"  {cause}, for example: {error}")
            capped = row.manifest.cap is not None
        else:
            labelling = next(row for row in store_labellings.all_rows(connection) if row.id == work_id)
            counted = count(labelling.ballots.get("ok", 0))
            output.note(f"{work_id}: {counted} of {count(labelling.expected, 'ballot')} counted")
            for status, cause, number in store_work.failures(connection, work_id):
                output.note(f"  missing: {count(number, 'ballot')} {status} ({cause})")
            return
    if capped:
        from cimemories.evaluation.costs import cost_of

        if text := cost_of(store, work_id).above_cap_text:
            output.note(f"  {text}")
