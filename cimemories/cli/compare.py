"""Commands that compare runs with each other."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import RUN_ID, NumberOptions, PaperPrinting, Printing, RankSmall, Samples
from cimemories.store.engine import StoreError

# ---- compare


@cli.command()
def compare(
    run_ids: Annotated[
        list[str], Argument(metavar="RUN RUN...", callback=RUN_ID, help="Runs; the first is the reference.")
    ],
    options: NumberOptions,
    printing: Printing,
) -> None:
    """Compare runs side by side, with paired differences.

    Differences are to the first run, on flows judged in both runs, with 95 % intervals. --json adds them by
    domain, and lists the flows that newly leak or stopped leaking.

    Example: cimemories compare run-3f9a run-77
    """
    from cimemories.answers.comparison import compare as question
    from cimemories.flows.flows import Flows

    rule = options.identifier_rule()
    store = printing.record
    printing.answer(question(Flows(store), options.scopes(store, run_ids), rule))


# ---- leaderboard


@cli.command()
def leaderboard(
    options: NumberOptions,
    printing: PaperPrinting,
    run_ids: Annotated[
        list[str] | None,
        Argument(metavar="[RUN...]", callback=RUN_ID, help="Runs of one dataset; default: all judged runs."),
    ] = None,
    dataset: Annotated[
        str | None, Option("--dataset", "-d", help="Dataset; default: the one with the most judged runs.")
    ] = None,
    samples: Samples = None,
    rank_small: RankSmall = False,
) -> None:
    """Rank runs as in the paper's Table 1.

    Runs are ranked by balanced score. Violation and completeness have their mean, standard deviation over profiles
    and 95 % interval. Below are constant strategies, and what the paper states for the same model, marked as published.

    Example: cimemories leaderboard --markdown
    """
    from cimemories.compare import leaderboard as boards
    from cimemories.flows.flows import Flows

    rule = options.identifier_rule()
    store = printing.record
    if run_ids and dataset:
        raise StoreError("runs are of one dataset already: name the runs, or --dataset for all judged runs of it.")
    scopes = options.scopes(store, run_ids or boards.default_runs(store, dataset))
    board = boards.leaderboard(Flows(store), scopes, rule, n=samples, rank_small=rank_small)
    if printing.for_paper:
        output.line((board.latex() if printing.latex else board.markdown()).rstrip())
    else:
        printing.answer(board)
        if board.has_small and not printing.as_json:
            output.note("note: --rank-small ranks all of them, on what they have in common")
