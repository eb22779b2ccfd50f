"""Commands that turn runs into numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AsJson,
    Workspace,
    cli,
)
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

Labels = Annotated[str | None, typer.Option("--labels", help="Id of a labelling; the newest by default.")]
Identifiers = Annotated[
    str, typer.Option("--identifiers", help="Which attributes only sign: exact, substring or none.")
]
JudgeOption = Annotated[
    str | None,
    typer.Option("--judge", help="Id or name of a judge of the run, or any, majority or all of them; else the first."),
]
Grounded = Annotated[bool, typer.Option("--grounded", help="Count only claims whose quote stands in the text.")]


@cli.command()
def metrics(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    labels: Labels = None,
    identifiers: Identifiers = "exact",
    judge: JudgeOption = None,
    grounded: Grounded = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Violation@1..n, completeness and coverage of a run.  Example: cimemories metrics run-3f9a1c2e --json"""
    from cimemories.analysis.cube import IdentifierRule
    from cimemories.analysis.flows import Flows, scope
    from cimemories.analysis.headline import headline

    if identifiers not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{identifiers}'. Use exact, substring or none.")
    store = open_store(workspace)
    asked = scope(store, run_id, labels, judge, grounded=grounded)
    output.metrics(headline(Flows(store), asked, IdentifierRule(identifiers)), as_json)
