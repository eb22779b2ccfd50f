"""Commands that read and write files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AsJson,
    Workspace,
    cli,
)
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Profiles in the authors' layout (JSON).")],
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Name; the file's by default.")] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Import profiles, all of a file or nothing.  Example: cimemories import profiles.json --dataset official"""
    from cimemories.formats.importing import import_file

    outcome = import_file(open_store(workspace), file, dataset)
    output.imported(outcome, as_json)
