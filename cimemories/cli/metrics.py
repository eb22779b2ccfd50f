"""Commands about the numbers of one run: its headline, what a plan like it can show, and how leaks accumulate."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import RUN_ID, NumberOptions, Printing, Run, word_of
from cimemories.store.engine import StoreError

TASKS = (1, 2, 3, 5, 10, 15, 20, 30, 40, 50, 75, 100)  # rows of the table of curves, besides the last task


@cli.command("metrics")
def show_metrics(
    run_id: Run,
    options: NumberOptions,
    printing: Printing,
    by: Annotated[
        str | None, Option(help="Add a table by profile, domain, event, sphere, context or attribute.")
    ] = None,
) -> None:
    """Show a run's violation and completeness.

    With 95 % intervals and coverage. Also shown is its score by the norm of each persona alone and, of a run behind a
    gate or a memory system, what was recalled of what is stored, and said of what was recalled; of a run with sessions,
    which leaks travelled.

    --json adds constant baselines, every breakdown, and what each identifier rule leaves out.

    Example: cimemories metrics run-3f9a --json
    """
    from cimemories.answers import metrics as question
    from cimemories.flows.flows import Flows
    from cimemories.metrics.places import By

    rule = options.identifier_rule()
    groups = [word_of(By, by, "breakdown by")] if by else []
    if printing.as_json:
        groups = [by for by in By if by != By.RECIPIENT]  # contexts say it already
    scope = options.scope(printing.record, run_id)
    result = question.metrics(
        Flows(printing.record), scope, rule, by=groups, norms=True, identifier_rules=printing.as_json
    )
    printing.answer(result)
    for table in [] if printing.as_json else result.by.values():
        output.answer_table(table)


# ---- what a plan can show


@cli.command()
def power(
    run_id: Annotated[str, Argument(metavar="RUN", callback=RUN_ID, help="Pilot run; `cimemories runs` lists them.")],
    options: NumberOptions,
    printing: Printing,
    second_id: Annotated[
        str | None,
        Argument(metavar="[RUN]", callback=RUN_ID, help="Second pilot: how alike the two models are is then measured."),
    ] = None,
    profiles: Annotated[int | None, Option(min=1, help="Planned profiles; default: those of the pilot.")] = None,
    contexts: Annotated[int | None, Option(min=1, help="Planned contexts; default: those of the pilot.")] = None,
    samples: Annotated[
        int | None, Option("--samples", "-n", min=1, help="Planned samples; default: those of the pilot.")
    ] = None,
    chance: Annotated[
        float, Option("--power", min=0.5, max=0.999, help="How often a difference that is there should be shown.")
    ] = 0.8,
    difference: Annotated[
        float | None, Option(help="Say how many profiles show a difference of so many percentage points.")
    ] = None,
    correlation: Annotated[
        float | None,
        Option(min=-1, max=1, help="Assumed correlation of two models' numbers, with one pilot. Default: 0.5."),
    ] = None,
) -> None:
    """Estimate what a planned run could show, from a pilot run.

    The smallest difference of two runs on the same profiles and contexts that a two-sided test at 5 % shows with a
    power of 80 %, and how far apart two runs of one model lie by chance, estimated from how much profiles, contexts
    and samples vary in a pilot run.

    Example: cimemories power run-3f9a --profiles 40 --difference 3
    """
    from cimemories.answers import power as question
    from cimemories.flows.flows import Flows
    from cimemories.metrics.power import CORRELATION

    if difference is not None and not 0 < difference <= 100:
        raise StoreError("--difference takes percentage points, above 0 and up to 100.")
    if correlation is not None and second_id is not None:
        raise StoreError("--correlation is assumed where there is one pilot run; two show it.")
    result = question.power(
        Flows(printing.record),
        [options.scope(printing.record, item) for item in (run_id, second_id) if item is not None],
        options.identifier_rule(),
        profiles=profiles,
        contexts=contexts,
        samples=samples,
        chance=chance,
        difference=None if difference is None else difference / 100,
        correlation=CORRELATION if correlation is None else correlation,
    )
    printing.answer(result)


# ---- accumulation


@cli.command()
def accumulate(
    run_id: Run,
    options: NumberOptions,
    printing: Printing,
    n: Annotated[int | None, Option(min=1, help="Only n samples per task; default: every n.")] = None,
    profile: Annotated[int | None, Option(min=0, help="Add the tasks of one profile, counted from 0.")] = None,
    order: Annotated[str, Option(help="Order of its tasks: listed, worst or shuffled.")] = "listed",
    seed: Annotated[int, Option(min=0, help="Seed of the shuffled order.")] = 1,
) -> None:
    """Show how leaks accumulate over tasks and samples.

    The expected share of a user's attributes revealed inappropriately after k tasks, over all orders of tasks, with a
    95 % band over users, an independence baseline, the hazard, and the time to an attribute's first leak.

    Example: cimemories accumulate run-3f9a --profile 0 --order worst
    """
    from cimemories.answers.accumulation import accumulated
    from cimemories.flows.flows import Flows
    from cimemories.metrics.accumulation import Order

    rule, task_order = options.identifier_rule(), word_of(Order, order, "order of tasks")
    scope, tasks = options.scope(printing.record, run_id), () if printing.as_json else TASKS
    result = accumulated(
        Flows(printing.record), scope, rule, n, profile=profile, order=task_order, seed=seed, tasks=tasks
    )
    printing.answer(result)
