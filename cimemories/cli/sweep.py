"""Commands for sweeps: many runs from one file, planned in one go and worked off as one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Concurrency, Workspace, cli
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.analysis.sweep_table import SweepTable
    from cimemories.evaluation.sweeps import SweepEstimate
    from cimemories.llm.executor import Progress
    from cimemories.store.runs import RunRow


@cli.command()
def sweep(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="What to run, as docs/sweeps.md says it.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would ask, cost and take; nothing is started.")
    ] = False,
    show: Annotated[
        str | None, typer.Option("--show", metavar="ID", help="The table of a sweep that is there.")
    ] = None,
    as_json: AsJson = False,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run models x memories x prompts from one file; waits, and prints the sweep's id last. `resume` goes on with it.

    Example: cimemories sweep small-models.yaml --plan
    """
    from cimemories.analysis.effective_labels import effective_labels
    from cimemories.analysis.sweep_table import sweep_table
    from cimemories.cli.working import work_on
    from cimemories.evaluation import sweeps as working
    from cimemories.evaluation.sweep_file import read_sweep

    if (file is None) == (show is None):
        raise StoreError("give the FILE of a sweep to run, or --show ID for one that is there.")
    store = open_store(workspace)
    if show is not None:
        table(sweep_table(store, show), as_json)
        return
    assert file is not None
    spec = read_sweep(file)
    found = working.estimate_sweep(store, spec, find_labels=effective_labels, concurrency=concurrency)
    if plan:
        estimated(found, as_json)
        return
    if found.total.warning:
        output.note(f"warning: {found.total.warning}")
    work_on(store, working.plan(store, spec, find_labels=effective_labels, estimated=found), concurrency)


@cli.command()
def sweeps(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the sweeps, each with the table of its cells.  Example: cimemories sweeps --json"""
    from cimemories.analysis.sweep_table import sweep_table
    from cimemories.store import sweeps as rows

    store = open_store(workspace)
    with store.read() as connection:
        found = [row.id for row in rows.all_rows(connection)]
    tables = [sweep_table(store, sweep_id) for sweep_id in found]
    if as_json:
        output.line(output.as_json_text([item.as_json() for item in tables]))
        return
    for item in tables:
        table(item, False)
    if not tables:
        output.note("no sweep yet: `cimemories sweep FILE.yaml` runs one (docs/sweeps.md).")


def table(found: SweepTable, as_json: bool) -> None:
    """One sweep with its cells."""
    from cimemories.evaluation.prices import money

    if as_json:
        output.line(output.as_json_text(found.as_json()))
        return
    row, cost = found.row, found.cost
    cap = f", cap {money(row.cap, cost.currency)}" if row.cap is not None else ""
    output.line(
        f"{row.id}  {row.name}: {row.status}, {found.done} of {len(found.cells)} cells, cost {cost.words()}{cap}"
    )
    columns = ("", "run", "model", "memory", "prompt", "mitigation", "thinking", "status")
    numbers = ("violation", "completeness", "coverage", "does task", "cost", "")
    output.table(
        [*((name, False) for name in columns), *((name, True) for name in numbers)],
        [
            (
                "" if cell.run.cell is None else cell.run.cell,
                cell.run.id,
                cell.run.model,
                cell.run.composition,
                cell.run.prompt_level,
                cell.mitigation,
                cell.thinking,
                cell.status,
                output.percent(cell.violation),
                output.percent(cell.completeness),
                output.percent(cell.coverage),
                output.percent(cell.does_task),
                cell.cost.words(),
                "simulated" if cell.run.simulated else "",
            )
            for cell in found.cells
        ],
    )
    if row.error:
        output.note(f"note: {row.error}")
    for text in found.warnings:
        output.note(f"warning: {text}")


def estimated(found: SweepEstimate, as_json: bool) -> None:
    """What a sweep would come to, by cell and in all; nothing is started."""
    from cimemories.cli.costs import duration

    total = found.total
    if as_json:
        output.line(output.as_json_text({**found.as_json(), "assumptions": list(total.assumptions)}))
        return
    words = ("", "model", "memory", "prompt", "mitigation", "thinking")
    numbers = ("responses", "recorded", "requests", "prompt tokens", "completion tokens", "cost", "time")
    rows = [
        (
            number,
            spec.model,
            spec.memory.composition,
            spec.prompt_level,
            str(spec.mitigation),
            spec.thinking,
            f"{cell.responses:,}",
            f"{cell.recorded:,}",
            f"{cell.requests:,}",
            f"{cell.prompt_tokens:,}",
            f"{cell.completion_tokens:,}",
            "not known" if cell.unpriced else cell.cost_words,
            duration(cell.seconds),
        )
        for number, (spec, cell) in enumerate(zip(found.runs, found.cells, strict=True))
    ]
    output.table([*((name, False) for name in words), *((name, True) for name in numbers)], rows)
    output.line(f"cells      {len(found.cells):,} with {total.responses:,} responses")
    output.line(f"requests   {total.requests:,}; {total.recorded:,} of {total.draws:,} draws are in the record by then")
    output.line(f"tokens     about {total.prompt_tokens:,} of prompts and {total.completion_tokens:,} of completions")
    output.line(f"cost       {total.cost_words}")
    output.line(f"time       {duration(total.seconds)}")
    for text in total.assumptions:
        output.note(f"note: {text}")
    if total.warning:
        output.note(f"warning: {total.warning}")


def execute(store: Store, sweep_id: str, concurrency: int, *, queued: bool) -> None:
    """Work a sweep off, with a progress line for each of its runs."""
    from cimemories.evaluation import sweeps as working

    @contextmanager
    def begin(row: RunRow, number: int, count: int) -> Iterator[Callable[[Progress], None]]:
        output.note(f"{sweep_id}: {number} of {count}, {row.name}, {row.composition}")
        with output.progress(store, row.id) as report:
            yield report
        output.outcome(store, row.id)

    working.execute(store, sweep_id, concurrency=concurrency, begin=begin, queued=queued)
