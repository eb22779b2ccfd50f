"""Commands that make, label and list datasets."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AllowMissing,
    AsJson,
    BaseUrl,
    Concurrency,
    Contexts,
    DatasetName,
    KeyEnv,
    Model,
    Profiles,
    Seed,
    Temperature,
    Timeout,
    TokenLimit,
    Workspace,
    cli,
    token_limit,
)
from cimemories.cli.working import work_on
from cimemories.store.engine import DEFAULT_WORKSPACE, open_store


@cli.command()
def label(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Votes of each persona on each pair.")] = 10,
    personas: Annotated[str, typer.Option("--personas", help="Pack of personas; `cimemories packs` lists them.")] = (
        "westin"
    ),
    profiles: Profiles = None,
    contexts: Contexts = None,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = None,
    max_tokens: TokenLimit = "2048",
    seed: Seed = None,
    timeout: Timeout = 120.0,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let the personas vote; prints the labelling's id.

    Example: cimemories label -d official -m gpt-oss-120b --base-url http://localhost:8000/v1 --draws 10
    """
    from cimemories.curation import labelling
    from cimemories.llm.address import allow_key

    allow_key(api_key_env, base_url)
    store = open_store(workspace)
    spec = labelling.LabellingSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        draws=draws,
        profiles=profiles,
        contexts=contexts,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=token_limit(max_tokens),
        seed=seed,
        timeout=timeout,
        personas=personas,
    )
    work_on(store, labelling.plan(store, spec), concurrency, allow_missing=allow_missing)


@cli.command()
def datasets(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the datasets.  Example: cimemories datasets --json"""
    output.datasets(open_store(workspace), as_json)


@cli.command()
def labellings(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the labellings with their status.  Example: cimemories labellings --json"""
    output.labellings(open_store(workspace), as_json)
