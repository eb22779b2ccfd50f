"""Commands for sweeps: many runs from one file, planned and run as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AllowKeys,
    AllowTooLong,
    AsJson,
    ReferenceSettings,
    Serve,
    WorkOptions,
    Workspace,
    grouped,
    open_record,
)
from cimemories.cli.runs import print_costs
from cimemories.cli.work import work_on
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store
from cimemories.text import count

if TYPE_CHECKING:
    from cimemories.compare.sweeps import SweepTable


@cli.command()
@grouped
def sweep(
    work: WorkOptions,
    file: Annotated[Path | None, Argument(metavar="FILE", help="YAML file of the sweep (docs/sweeps.md).")] = None,
    plan: Annotated[bool, Option("--plan", help="Show requests, tokens, cost and time, and stop.")] = False,
    listed: Annotated[bool, Option("--list", help="List the sweeps with their results, and stop.")] = False,
    show: Annotated[str | None, Option(metavar="ID", help="Show a sweep's table, and stop.")] = None,
    as_json: AsJson = False,
    allow_key: AllowKeys = None,
    reference: ReferenceSettings = False,
    serve: Serve = None,
    allow_too_long: AllowTooLong = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run models x memories x prompts from one file. Prints the sweep's id; `resume` continues it.

    Example: cimemories sweep small-models.yaml --plan
    """
    from cimemories.compare.sweeps import plan_sentence, sweep_table
    from cimemories.evaluation import sweeps as evaluation_sweeps
    from cimemories.evaluation.estimates import refuse_misfits
    from cimemories.labels.whatif import effective_labels

    if [file is not None, show is not None, listed].count(True) != 1:
        raise StoreError("give the FILE of a sweep to run it, --list to see all, or --show ID to look at one.")
    if listed:
        _print_all(workspace, as_json)
        return
    store = open_store(workspace)
    if show is not None:
        table = sweep_table(store, show)
        if as_json:
            output.as_json(table.as_json())
        else:
            _print_sweep(table)
        return
    assert file is not None
    spec = evaluation_sweeps.read_sweep(file, reference=reference, serve=serve or ())
    # Also without --plan: it is kept with the sweep, and its warning about the cap comes before money is spent.
    estimate = evaluation_sweeps.estimate_sweep(store, spec, find_labels=effective_labels, concurrency=work.concurrency)
    if plan:
        total, shows = estimate.total, plan_sentence(store, spec.runs[0])
        if as_json:
            more = {"assumptions": total.notes, "does_not_fit": total.misfits, "power": shows}
            output.as_json({**estimate.as_json(), **more})
            return
        output.listing(estimate.table)
        output.line(f"runs       {len(estimate.cells):,} with {count(total.responses, 'message')}")
        output.line(shows)
        print_costs(total, total.concurrency)
        return
    work.cluster(store)
    output.notes([estimate.total.warning], "warning")
    if not allow_too_long:
        refuse_misfits(estimate.total)
    work_on(store, evaluation_sweeps.plan(store, spec, find_labels=effective_labels, estimated=estimate), work)


def _print_all(workspace: Path, as_json: bool) -> None:
    from cimemories.compare.sweeps import sweep_table

    store = open_record(workspace)
    with store.read() as connection:
        ids = [row.id for row in store_runs.all_sweeps(connection)]
    tables = [sweep_table(store, sweep_id) for sweep_id in ids]
    if as_json:
        output.as_json([item.as_json() for item in tables])
        return
    for item in tables:
        _print_sweep(item)
    if not tables:
        output.note("no sweeps yet; start one with `cimemories sweep FILE.yaml` (docs/sweeps.md).")


def _print_sweep(sweep: SweepTable) -> None:
    """One sweep with its cells."""
    from cimemories.evaluation.prices import money

    row, cost = sweep.row, sweep.cost
    cap = f", cap {money(row.cap, cost.currency)}" if row.cap is not None else ""
    output.line(f"{row.id}  {row.name}: {row.status}, {sweep.done} of {len(sweep.cells)} runs, cost {cost.text}{cap}")
    output.listing(sweep.table)
    if any(cell.run.simulated for cell in sweep.cells):
        output.note("note: simulated; says nothing about any real model")
    output.notes([row.error])
    output.notes(sweep.warnings, "warning")
