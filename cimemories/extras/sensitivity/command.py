"""The command `sensitivity`."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from cimemories.cli.base import cli
from cimemories.cli.options import (
    RUN_ID,
    NumberOptions,
    Printing,
    RankSmall,
    Samples,
    priors_by_key,
    word_of,
)


@cli.command()
def sensitivity(
    run_ids: Annotated[list[str], Argument(metavar="RUN [RUN...]", callback=RUN_ID, help="Runs of one dataset.")],
    options: NumberOptions,
    printing: Printing,
    order_by: Annotated[str, Option(help="Order runs by balanced, violation or completeness.")] = "balanced",
    threshold: Annotated[float | None, Option(help="Consensus threshold to try.")] = None,
    priors: Annotated[str | None, Option(help="Priors to try, e.g. fundamentalist=0.3,pragmatic=0.7.")] = None,
    without: Annotated[str | None, Option(help="Key of a persona to leave out.")] = None,
    least_votes: Annotated[int | None, Option(help="Counted votes to ask of each persona on a pair.")] = None,
    samples: Samples = None,
    rank_small: RankSmall = False,
    by: Annotated[
        str, Option(help="Coverage of flows by domain, context, sphere, event, profile or attribute.")
    ] = "domain",
) -> None:
    """Show how results depend on the choices behind them.

    One choice is changed at a time: consensus threshold, priors, a persona left out, decisions, judge, identifier
    rule, number of profiles. --threshold, --priors, --without and --least-votes try one setting. Also shown is the
    share of flows that the headline covers.

    Example: cimemories sensitivity run-3f9a run-77 --threshold 0.8
    """
    from cimemories.compare.ranking import Measure
    from cimemories.extras.sensitivity.answer import sensitivity as question
    from cimemories.flows.flows import Flows
    from cimemories.metrics.places import By

    rule = options.identifier_rule()
    measure, group_by = word_of(Measure, order_by, "order by"), word_of(By, by, "breakdown by")
    result = question(
        Flows(printing.record),
        options.scopes(printing.record, run_ids),
        rule,
        measure=measure,
        by=group_by,
        n=samples,
        rank_small=rank_small,
        threshold=threshold,
        priors=priors_by_key(priors) if priors else None,
        without=without,
        least_votes=least_votes,
    )
    printing.answer(result)
