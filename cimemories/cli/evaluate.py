"""Commands that run models, go on with what is owed, and list runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
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
    Workspace,
    cli,
)
from cimemories.cli.working import work_on
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store


@cli.command()
def run(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=100, help="Responses a context.")] = 5,
    profiles: Profiles = None,
    contexts: Contexts = None,
    judge: Annotated[
        str | None, typer.Option("--judge", help="`matcher` finds values without a model (the default).")
    ] = None,
    judge_model: Annotated[str | None, typer.Option("--judge-model", help="Model that judges.")] = None,
    judge_base_url: Annotated[
        str | None, typer.Option("--judge-base-url", help="Its server; the model's by default.")
    ] = None,
    judge_api_key_env: Annotated[str | None, typer.Option("--judge-api-key-env")] = None,
    judge_max_tokens: Annotated[int, typer.Option("--judge-max-tokens", min=1)] = 2048,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    temperature: Temperature = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Limit of one message.")] = 1024,
    seed: Seed = None,
    name: Annotated[str | None, typer.Option("--name", help="What to call the run.")] = None,
    timeout: Timeout = 120.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let a model write the messages and a judge read them; waits, and prints the run's id last.

    Example: cimemories run -d official -m qwen3-32b --base-url http://localhost:8000/v1 --judge matcher
    """
    from cimemories.evaluation import runs

    if judge_model and judge:
        raise StoreError("give either --judge matcher or --judge-model MODEL, not both.")
    if judge not in (None, "matcher"):
        raise StoreError(f"there is no judge '{judge}'. Use --judge matcher, or --judge-model MODEL for a model.")
    judging = runs.JudgeSpec()
    if judge_model:
        judging = runs.JudgeSpec(
            "llm", judge_model, judge_base_url or base_url, judge_api_key_env or api_key_env, judge_max_tokens
        )
    store = open_store(workspace)
    spec = runs.RunSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        samples=samples,
        profiles=profiles,
        contexts=contexts,
        judge=judging,
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        timeout=timeout,
        name=name,
    )
    work_on(store, runs.plan(store, spec), concurrency)


@cli.command()
def resume(
    work_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run or a labelling.")],
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where its server is now.")] = None,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", hidden=True, help="Only if it still waits for its worker.")
    ] = False,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Do what a run or labelling still owes, failures too; prints its id.  Example: cimemories resume run-3f9a1c2e"""
    work_on(open_store(workspace), work_id, concurrency, base_url, judge_base_url, queued=queued)


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
