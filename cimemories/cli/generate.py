"""The command that makes a dataset."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import DatasetName, Workspace, cli
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command()
def generate(
    dataset: DatasetName,
    profiles: Annotated[int, typer.Option("--profiles", min=1, help="How many profiles.")] = 10,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same profiles.")] = 0,
    locale: Annotated[str, typer.Option("--locale", help="Faker locale of names and addresses.")] = "en_US",
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write synthetic profiles from templates, without a model.  Example: cimemories generate -d mine --profiles 10"""
    from cimemories.curation.generating import generate_dataset

    row = generate_dataset(open_store(workspace), dataset, profiles, seed=seed, locale=locale)
    output.line(
        f"generated '{row.name}': {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts"
    )
