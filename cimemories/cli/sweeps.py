"""Commands for sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AllowKeys, AllowMissing, AsJson, Concurrency, Workspace
from cimemories.cli.runs import duration
from cimemories.cli.work import work_on
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store
from cimemories.text import percent

if TYPE_CHECKING:
    from cimemories.compare.sweeps import SweepTable
    from cimemories.evaluation.sweeps import SweepEstimate


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
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run models x memories x prompts from one file; waits, and prints the sweep's id last. `resume` goes on with it.

    Example: cimemories sweep small-models.yaml --plan
    """
    from cimemories.compare.sweeps import sweep_table
    from cimemories.evaluation import sweeps as evaluation_sweeps
    from cimemories.evaluation.sweeps import read_sweep
    from cimemories.labels.whatif import effective_labels

    if (file is None) == (show is None):
        raise StoreError("give the FILE of a sweep to run, or --show ID for one that is there.")
    store = open_store(workspace)
    if show is not None:
        table(sweep_table(store, show), as_json)
        return
    assert file is not None
    spec = read_sweep(file)
    found = evaluation_sweeps.estimate_sweep(store, spec, find_labels=effective_labels, concurrency=concurrency)
    if plan:
        estimated_sweep(found, as_json)
        return
    if found.total.warning:
        output.note(f"warning: {found.total.warning}")
    sweep_id = evaluation_sweeps.plan(store, spec, find_labels=effective_labels, estimated=found)
    work_on(store, sweep_id, concurrency, allow_missing=allow_missing)


@cli.command()
def sweeps(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the sweeps, each with the table of its cells.  Example: cimemories sweeps --json"""
    from cimemories.compare.sweeps import sweep_table
    from cimemories.store import runs as store_runs

    store = open_store(workspace)
    with store.read() as connection:
        found = [row.id for row in store_runs.all_sweeps(connection)]
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
    from cimemories.evaluation.costs import money

    if as_json:
        output.line(output.as_json_text(found.as_json()))
        return
    row, cost = found.row, found.cost
    cap = f", cap {money(row.cap, cost.currency)}" if row.cap is not None else ""
    output.line(
        f"{row.id}  {row.name}: {row.status}, {found.done} of {len(found.cells)} cells, cost {cost.words()}{cap}"
    )
    axes = _varying(
        [
            (c.run.model, c.run.composition, c.run.prompt_level, c.mitigation, c.thinking, c.run.name)
            for c in found.cells
        ]
    )
    numbers = (f"V@{max((c.run.samples for c in found.cells), default=1)}", "C", "coverage", "does task", "cost")
    output.table(
        [("run", False), *((title, False) for title, _ in axes), ("status", False), *((n, True) for n in numbers)],
        [
            (
                cell.run.id,
                *(values[place] for _, values in axes),
                cell.status,
                percent(cell.violation),
                percent(cell.completeness),
                percent(cell.coverage),
                percent(cell.does_task),
                cell.cost.words(),
            )
            for place, cell in enumerate(found.cells)
        ],
        whole=True,
    )
    if any(cell.run.simulated for cell in found.cells):
        output.note("note: simulated; says nothing about any real model")
    if row.error:
        output.note(f"note: {row.error}")
    for text in found.warnings:
        output.note(f"warning: {text}")


def estimated_sweep(found: SweepEstimate, as_json: bool) -> None:
    """What a sweep would come to, by cell and in all; nothing is started."""

    total = found.total
    if as_json:
        output.line(output.as_json_text({**found.as_json(), "assumptions": list(total.notes)}))
        return
    axes = _varying(
        [(r.model, r.memory.composition, r.prompt_level, str(r.mitigation), r.thinking, r.base_url) for r in found.runs]
    )
    numbers = ("responses", "recorded", "requests", "prompt tokens", "completion tokens", "cost", "time")
    rows = [
        (
            *(values[place] for _, values in axes),
            f"{cell.responses:,}",
            f"{cell.recorded:,}",
            f"{cell.requests:,}",
            f"{cell.prompt_tokens:,}",
            f"{cell.completion_tokens:,}",
            "not known" if cell.unpriced else cell.cost_words,
            duration(cell.seconds),
        )
        for place, cell in enumerate(found.cells)
    ]
    output.table([*((title, False) for title, _ in axes), *((name, True) for name in numbers)], rows, whole=True)
    output.line(f"cells      {len(found.cells):,} with {total.responses:,} responses")
    output.line(f"requests   {total.requests:,}; {total.recorded:,} of {total.draws:,} draws are in the record by then")
    output.line(f"tokens     about {total.prompt_tokens:,} of prompts and {total.completion_tokens:,} of completions")
    output.line(f"cost       {total.cost_words}")
    output.line(f"time       {duration(total.seconds)}")
    for text in total.notes:
        output.note(f"note: {text}")
    if total.warning:
        output.note(f"warning: {total.warning}")


def _varying(cells: Sequence[Sequence[str]]) -> list[tuple[str, tuple[str, ...]]]:
    """The axes of a grid in which its cells differ, each with the value of every cell; the model in any case. What is
    behind the named axes is shown where nothing else tells two cells apart."""
    titles = ("model", "memory", "prompt", "mitigation", "thinking")
    columns = list(zip(*cells, strict=True))
    found = [
        (title, values)
        for title, values in zip(titles, columns, strict=False)
        if title == "model" or len({*values}) > 1
    ]
    told = {tuple(values[place] for _, values in found) for place in range(len(cells))}
    return found if len(told) == len(cells) or not columns else [*found, ("", columns[-1])]
