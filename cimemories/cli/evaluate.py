"""Commands that run models, go on with what is owed, and list runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AllowKeys,
    AllowMissing,
    AsJson,
    Concurrency,
    Workspace,
    cli,
)
from cimemories.cli.working import work_on
from cimemories.store.engine import DEFAULT_WORKSPACE, open_patiently, open_store


@cli.command()
def resume(
    work_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run or a labelling.")],
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where its server is now.")] = None,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url")] = None,
    cap: Annotated[float | None, typer.Option("--cap", help="Another cap on cost, for a run or sweep.")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", hidden=True, help="Only if it still waits for its worker.")
    ] = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Do what a run or labelling still owes, failures too; prints its id.  Example: cimemories resume run-3f9a1c2e"""
    store = open_patiently(workspace) if queued else open_store(workspace)
    if cap is not None:
        from cimemories.evaluation.costs import raise_cap

        raise_cap(store, work_id, cap)
    work_on(store, work_id, concurrency, base_url, judge_base_url, queued=queued, allow_missing=allow_missing)


@cli.command()
def cancel(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Ask the worker of a run or labelling to stop; what is recorded stays.  Example: cimemories cancel run-3f9a1c2e"""
    from cimemories.store import work

    store = open_store(workspace)
    with store.write() as connection:
        work.request_cancel(connection, work_id)


@cli.command()
def runs(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the runs with their status.  Example: cimemories runs --json"""
    output.runs(open_store(workspace), as_json)
