"""The command that ranks runs in the form of the paper's Table 1."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import AsJson, Workspace, cli
from cimemories.cli.explore import (
    Grounded,
    Identifiers,
    JudgeOption,
    Labels,
    RuleOption,
    identifier_rule,
    scope_of,
)
from cimemories.store import datasets
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

Runs = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Runs of one dataset; all judged ones else.")
]
OfDataset = Annotated[
    str | None,
    typer.Option("--dataset", "-d", help="Dataset whose runs are ranked; else that of the most judged runs."),
]
Samples = Annotated[int | None, typer.Option("--samples", "-n", min=1, help="n of Violation@n; else all of each run.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")]
AsLatex = Annotated[bool, typer.Option("--latex", help="Print the table as LaTeX, for the package booktabs.")]

LEFT_OUT = ("Labels", "Memory", "Prompt")  # of a terminal; what differs in them stands in the names and the notes


@cli.command()
def leaderboard(
    run_ids: Runs = None,
    dataset: OfDataset = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    as_latex: AsLatex = False,
    samples: Samples = None,
    labels: Labels = None,
    rule: RuleOption = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Runs ranked by balanced score, as in the paper's Table 1.  Example: cimemories leaderboard --markdown

    Mean, spread over profiles and 95 % interval of violation and completeness, constant strategies, and the figures
    that the paper states of the same model, marked as published.
    """
    from cimemories.analysis import leaderboard_text
    from cimemories.analysis.flows import Flows
    from cimemories.analysis.leaderboard import leaderboard as ranked

    if as_json + as_markdown + as_latex > 1:
        raise StoreError("choose one of --json, --markdown and --latex.")
    chosen = identifier_rule(identifiers)
    store = open_store(workspace)
    ids = list(dict.fromkeys(run_ids)) if run_ids else _judged(store, dataset)
    scopes = [scope_of(store, run_id, labels, judge, grounded=grounded, rule=rule) for run_id in ids]
    board = ranked(Flows(store), scopes, chosen, n=samples)
    if as_json:
        output.line(output.as_json_text(board.as_json()))
    elif as_markdown or as_latex:
        output.line((leaderboard_text.markdown if as_markdown else leaderboard_text.latex)(board).rstrip())
    else:
        head = leaderboard_text.header(board)
        shown = [i for i, name in enumerate(head) if name not in LEFT_OUT]
        rows = [[row.cells[i] for i in shown] for row in leaderboard_text.rows(board)]
        output.table([(head[i], 0 < i < 7) for i in shown], rows, whole=True)
        for text in leaderboard_text.notes(board):
            output.note(f"note: {text}")


def _judged(store: Store, name: str | None) -> list[str]:
    """All judged runs of a dataset, of the busiest one where none is named. Raises StoreError where there is none."""
    from cimemories.analysis.leaderboard import busiest_dataset, judged_runs

    if name is None:
        of = busiest_dataset(store)
    else:
        with store.read() as connection:
            of = datasets.named(connection, name).id
    found = [row.id for row in judged_runs(store, of)] if of is not None else []
    if not found:
        where = f" of '{name}'" if name else ""
        raise StoreError(
            f"no run{where} is judged yet, so there is nothing to rank. `cimemories runs` lists what is there."
        )
    return found
