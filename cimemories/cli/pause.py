"""The command that pauses work: unlike cancelling, it loses no call that is under way."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import Workspace, cli
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command()
def pause(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Let the calls in flight of a run end, then stop until it is resumed.  Example: cimemories pause run-3f9a1c2e"""
    from cimemories.model import WorkStatus
    from cimemories.store import work

    store = open_store(workspace)
    with store.write() as connection:
        work.request_pause(connection, work_id)
        status = WorkStatus(work.load(connection, work_id)["status"])
    if status == WorkStatus.PAUSING:
        output.note(f"{work_id}: pausing. Its calls in flight end first; then `cimemories resume {work_id}` goes on.")
    elif status == WorkStatus.PAUSED:
        output.note(f"{work_id}: paused. `cimemories resume {work_id}` goes on.")
    else:
        output.note(f"{work_id}: nothing to pause, it is {status}.")
