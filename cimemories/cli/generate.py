"""The commands that make datasets: profiles from templates, or written by a model."""

from __future__ import annotations

from typing import Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import (
    AllowMissing,
    AsJson,
    Concurrency,
    DatasetName,
    KeyEnv,
    Temperature,
    Timeout,
    TokenLimit,
    Workspace,
    cli,
    token_limit,
)
from cimemories.cli.working import work_on
from cimemories.seeds import packs
from cimemories.store.engine import DEFAULT_WORKSPACE, StoreError, open_store

OFFLINE_PER_DOMAIN = 5  # as in the released data
MODEL_PER_DOMAIN = 7  # as in the paper


@cli.command()
def generate(
    dataset: DatasetName,
    profiles: Annotated[int, typer.Option("--profiles", min=1, help="How many profiles.")] = 10,
    offline: Annotated[
        bool, typer.Option("--offline", help="From templates, without a model; what happens without --model anyway.")
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Who writes the attributes; left out: nobody, see --offline.")
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option("--base-url", help="Its OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same people and events.")] = 0,
    locale: Annotated[
        str, typer.Option("--locale", help="Locale of names and addresses, e.g. de_DE; docs/packs.md lists them.")
    ] = "en_US",
    per_domain: Annotated[
        int | None, typer.Option("--per-domain", min=1, help="Attributes a domain and event; 7 by a model, else 5.")
    ] = None,
    contexts: Annotated[
        list[str] | None,
        typer.Option("--contexts", help="Pack of contexts, may be repeated; `cimemories packs` lists them."),
    ] = None,
    events: Annotated[int, typer.Option("--events", min=1, help="Life events a profile.")] = 3,
    general: Annotated[int, typer.Option("--general", min=1, help="General attributes that a model writes.")] = 10,
    max_tokens: TokenLimit = "8192",
    temperature: Temperature = None,
    model_seed: Annotated[
        int | None, typer.Option("--model-seed", help="Seed sent to the server; left out: none is sent.")
    ] = None,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    timeout: Timeout = 300.0,
    price_in: Annotated[float, typer.Option("--price-in", min=0, help="Price of a million prompt tokens.")] = 0.0,
    price_out: Annotated[float, typer.Option("--price-out", min=0, help="Price of a million completion tokens.")] = 0.0,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write synthetic profiles: from templates, or by a model (prints the generation's id, which can be resumed).

    Example: cimemories generate -d mine --profiles 10
    Example: cimemories generate -d mine --profiles 10 -m gpt-oss-120b --base-url http://localhost:8000/v1
    """
    if offline and model:
        raise StoreError("give either --offline or --model MODEL, not both.")
    if model is None:
        if base_url is not None:
            raise StoreError("--base-url says where, but not who: give --model MODEL too, or leave both out.")
        from cimemories.curation.generating import generate_dataset

        row = generate_dataset(
            open_store(workspace),
            dataset,
            profiles,
            seed=seed,
            locale=locale,
            per_domain=per_domain or OFFLINE_PER_DOMAIN,
            events=events,
            contexts=tuple(contexts or packs.CORE),
        )
        output.line(
            f"generated '{row.name}': {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts"
        )
        return
    if base_url is None:
        raise StoreError(f"where is '{model}' served? Give --base-url http://localhost:8000/v1, or `simulator`.")
    from cimemories.curation import authoring
    from cimemories.curation.authoring_spec import AuthoringSpec, estimate
    from cimemories.llm.address import allow_key

    allow_key(api_key_env, base_url)
    spec = AuthoringSpec(
        name=dataset,
        profiles=profiles,
        model=model,
        base_url=base_url,
        seed=seed,
        locale=locale,
        per_domain=per_domain or MODEL_PER_DOMAIN,
        events=events,
        general=general,
        contexts=tuple(contexts or packs.CORE),
        api_key_env=api_key_env,
        temperature=temperature,
        max_tokens=token_limit(max_tokens),
        model_seed=model_seed,
        timeout=timeout,
        price_in=price_in,
        price_out=price_out,
    )
    store = open_store(workspace)
    generation_id = authoring.plan(store, spec)
    output.note(f"{generation_id}: {estimate(spec).words(price_in, price_out)}")
    work_on(store, generation_id, concurrency, allow_missing=allow_missing)


@cli.command()
def generations(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the generations with what was turned down.  Example: cimemories generations --json"""
    output.generations(open_store(workspace), as_json)
