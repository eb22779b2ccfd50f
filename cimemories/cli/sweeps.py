"""Commands for sweeps: many runs from one file, planned and run as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import AllowKeys, AllowPrograms, AllowTooLong, Here, ReferenceSettings, Serve, WorkOptions
from cimemories.cli.runs import print_costs
from cimemories.cli.work import work_on
from cimemories.store import runs as store_runs
from cimemories.store.engine import StoreError
from cimemories.text import count

if TYPE_CHECKING:
    from cimemories.compare.sweeps import SweepTable


@cli.command()
def sweep(
    work: WorkOptions,
    here: Here,
    file: Annotated[Path | None, Argument(metavar="FILE", help="YAML file of the sweep (docs/sweeps.md).")] = None,
    plan: Annotated[bool, Option("--plan", help="Show requests, tokens, cost and time, and stop.")] = False,
    listed: Annotated[bool, Option("--list", help="List the sweeps with their results, and stop.")] = False,
    show: Annotated[str | None, Option(metavar="ID", help="Show a sweep's table, and stop.")] = None,
    allow_key: AllowKeys = None,
    allow_program: AllowPrograms = None,
    reference: ReferenceSettings = False,
    serve: Serve = None,
    allow_too_long: AllowTooLong = False,
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
        with here.record.read() as connection:
            ids = [row.id for row in store_runs.all_sweeps(connection)]
        tables = [sweep_table(here.record, sweep_id) for sweep_id in ids]
        if not here.result(tables):
            for table in tables:
                _print_sweep(table)
            if not tables:
                output.note("no sweeps yet; start one with `cimemories sweep FILE.yaml` (docs/sweeps.md).")
        return
    store = here.store
    if show is not None:
        table = sweep_table(store, show)
        if not here.result(table):
            _print_sweep(table)
        return
    assert file is not None
    spec = evaluation_sweeps.read_sweep(file, reference=reference, serve=serve or ())
    # Also without --plan: it is kept with the sweep, and its warning about the cap comes before money is spent.
    estimate = evaluation_sweeps.estimate_sweep(store, spec, find_labels=effective_labels, concurrency=work.concurrency)
    if plan:
        total, shows = estimate.total, plan_sentence(store, spec.runs[0])
        more = {"assumptions": total.notes, "does_not_fit": total.misfits, "power": shows}
        if here.result({**estimate.as_json(), **more}):
            return
        output.listing(estimate.table)
        output.line(f"runs       {len(estimate.cells):,} with {count(total.responses, 'message')}")
        output.line(shows)
        print_costs(total, total.concurrency)
        return
    work.chosen(store)
    output.notes([estimate.total.warning], "warning")
    if not allow_too_long:
        refuse_misfits(estimate.total)
    work_on(store, evaluation_sweeps.plan(store, spec, find_labels=effective_labels, estimated=estimate), work)


def _print_sweep(sweep: SweepTable) -> None:
    """Print one sweep with its cells."""
    from cimemories.evaluation.prices import money

    row, cost = sweep.row, sweep.cost
    cap = f", cap {money(row.cap, cost.currency)}" if row.cap is not None else ""
    output.line(f"{row.id}  {row.name}: {row.status}, {sweep.done} of {len(sweep.cells)} runs, cost {cost.text}{cap}")
    output.listing(sweep.table)
    if any(cell.run.simulated for cell in sweep.cells):
        output.note("note: simulated; says nothing about any real model")
    output.notes([row.error])
    output.notes(sweep.warnings, "warning")
