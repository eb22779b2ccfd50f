"""Commands that compare runs with each other, and runs under other settings."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    RUN_ID,
    AsJson,
    AsLatex,
    AsMarkdown,
    NumberOptions,
    RankSmall,
    Samples,
    Workspace,
    grouped,
    one_of,
    open_record,
    priors_by_key,
)
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError

# ---- compare


@cli.command()
@grouped
def compare(
    run_ids: Annotated[
        list[str], Argument(metavar="RUN RUN...", callback=RUN_ID, help="Runs; the first is the reference.")
    ],
    options: NumberOptions,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Compare runs side by side, with paired differences.

    Differences are to the first run, on flows judged in both runs, with 95 % intervals. --json adds them by
    domain, and lists the flows that newly leak or stopped leaking.

    Example: cimemories compare run-3f9a run-77
    """
    from cimemories.answers.comparison import compare as question
    from cimemories.flows.flows import Flows

    rule = options.identifier_rule()
    store = open_record(workspace)
    output.answer(question(Flows(store), options.scopes(store, run_ids), rule), as_json)


# ---- leaderboard


@cli.command()
@grouped
def leaderboard(
    options: NumberOptions,
    run_ids: Annotated[
        list[str] | None,
        Argument(metavar="[RUN...]", callback=RUN_ID, help="Runs of one dataset; default: all judged runs."),
    ] = None,
    dataset: Annotated[
        str | None, Option("--dataset", "-d", help="Dataset; default: the one with the most judged runs.")
    ] = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    samples: Samples = None,
    rank_small: RankSmall = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Rank runs as in the paper's Table 1.

    Runs are ranked by balanced score. Violation and completeness have their mean, standard deviation over profiles
    and 95 % interval. Below are constant strategies, and what the paper states for the same model, marked as published.

    Example: cimemories leaderboard --markdown
    """
    from cimemories.compare import leaderboard as boards
    from cimemories.flows.flows import Flows

    if as_json + as_markdown + as_latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    rule = options.identifier_rule()
    store = open_record(workspace)
    if run_ids and dataset:
        raise StoreError("runs are of one dataset already: name the runs, or --dataset for all judged runs of it.")
    scopes = options.scopes(store, run_ids or boards.default_runs(store, dataset))
    board = boards.leaderboard(Flows(store), scopes, rule, n=samples, rank_small=rank_small)
    if as_markdown:
        output.line(board.markdown().rstrip())
    elif as_latex:
        output.line(board.latex().rstrip())
    else:
        output.answer(board, as_json)
        if board.has_small and not as_json:
            output.note("note: --rank-small ranks all of them, on what they have in common")


# ---- sensitivity


@cli.command()
@grouped
def sensitivity(
    run_ids: Annotated[list[str], Argument(metavar="RUN [RUN...]", callback=RUN_ID, help="Runs of one dataset.")],
    options: NumberOptions,
    as_json: AsJson = False,
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
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Show how results depend on the choices behind them.

    One choice is changed at a time: consensus threshold, priors, a persona left out, decisions, judge, identifier
    rule, number of profiles. --threshold, --priors, --without and --least-votes try one setting. Also shown is the
    share of flows that the headline covers.

    Example: cimemories sensitivity run-3f9a run-77 --threshold 0.8
    """
    from cimemories.answers.sensitivity import sensitivity as question
    from cimemories.compare.ranking import Measure
    from cimemories.flows.flows import Flows
    from cimemories.metrics.breakdown import By

    rule = options.identifier_rule()
    measure, group_by = one_of(Measure, order_by, "order by"), one_of(By, by, "breakdown by")
    store = open_record(workspace)
    result = question(
        Flows(store),
        options.scopes(store, run_ids),
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
    output.answer(result, as_json)
