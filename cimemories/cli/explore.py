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


@cli.command()
def metrics(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    labels: Annotated[str | None, typer.Option("--labels", help="Id of a labelling; the newest by default.")] = None,
    identifiers: Annotated[
        str, typer.Option("--identifiers", help="Which attributes only sign: exact, substring or none.")
    ] = "exact",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Violation@1..n, completeness and coverage of a run.  Example: cimemories metrics run-3f9a1c2e --json"""
    from cimemories.analysis.cube import IdentifierRule
    from cimemories.analysis.flows import Flows, scope
    from cimemories.analysis.headline import headline

    if identifiers not in set(IdentifierRule):
        raise StoreError(f"there is no identifier rule '{identifiers}'. Use exact, substring or none.")
    store = open_store(workspace)
    numbers = headline(Flows(store), scope(store, run_id, labels), IdentifierRule(identifiers))
    output.metrics(numbers, as_json)
