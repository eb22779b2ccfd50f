"""Commands that make, import, export, freeze and list datasets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AllowMissing,
    AsJson,
    Concurrency,
    Dataset,
    DatasetName,
    KeyEnv,
    Temperature,
    Timeout,
    TokenLimit,
    Workspace,
    token_limit,
)
from cimemories.cli.work import work_on
from cimemories.seeds import PersonaPack, packs
from cimemories.seeds.reading import SeedError
from cimemories.store import datasets as store_datasets
from cimemories.store import engine
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.store.versions import Version

if TYPE_CHECKING:
    from cimemories.formats.importing import Imported


def imported(outcome: Imported, as_json: bool) -> None:
    row = outcome.dataset
    if as_json:
        told = {"new": outcome.new, "notes": list(outcome.notes), "imported_runs": list(outcome.runs)}
        output.line(output.as_json_text({**_dataset(row), **told}))
        return
    verb = "imported" if outcome.new else "already here, nothing doubled:"
    named = f"{', '.join(outcome.runs)} of '{row.name}'" if outcome.runs else f"'{row.name}'"
    output.line(f"{verb} {named}: {row.profiles} profiles, {row.attributes:,} attributes, {row.contexts} contexts")
    for text in outcome.notes:
        output.note(f"note: {text}")


def _dataset(row: store_datasets.DatasetRow) -> dict[str, object]:
    return {
        "id": row.id,
        "name": row.name,
        "counts": {
            "profiles": row.profiles,
            "attributes": row.attributes,
            "contexts": row.contexts,
            "labellings": row.labellings,
            "runs": row.runs,
        },
        "status": "labelled" if row.labellings else "unlabelled",
        "simulated": row.simulated,
        "origin": row.origin,
        "created": row.created,
    }


@cli.command()
def datasets(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the datasets.  Example: cimemories datasets --json"""
    store = open_store(workspace)
    with store.read() as connection:
        rows = store_datasets.all_rows(connection)
    if as_json:
        output.line(output.as_json_text([_dataset(row) for row in rows]))
        return
    output.table(
        [
            ("name", False),
            ("profiles", True),
            ("attributes", True),
            ("contexts", True),
            ("labellings", True),
            ("", False),
        ],
        [
            (r.name, r.profiles, f"{r.attributes:,}", r.contexts, r.labellings, "simulated" if r.simulated else "")
            for r in rows
        ],
    )


@cli.command("import")
def import_dataset(
    file: Annotated[
        Path, typer.Argument(help="Profiles (JSON), results (JSON lines), columns (Parquet, CSV) or a bundle.")
    ],
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Name; the file's by default.")] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="profiles, labelled, huggingface, bundle or results; recognised by content if left out."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Of results: what wrote them; the file's name if left out.")
    ] = None,
    judge: Annotated[str | None, typer.Option("--judge-model", help="Of results: what judged them.")] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Import a dataset, or the results of runs, all of a file or nothing.

    Example: cimemories import profiles.json --dataset official; cimemories import results.jsonl --model qwen3-32b
    """
    from cimemories.evaluation import importing as evaluation_importing
    from cimemories.formats import importing as formats_importing

    kind = next((kind for kind in formats_importing.KINDS if kind == form), None)
    if form is not None and kind is None:
        raise typer.BadParameter(f"'{form}' is none of {', '.join(formats_importing.KINDS)}", param_hint="--format")
    outcome = evaluation_importing.import_file(open_store(workspace), file, dataset, kind, model=model, judge=judge)
    imported(outcome, as_json)


@cli.command()
def export(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="Name of the dataset, or id of a run for results.")],
    form: Annotated[
        str, typer.Option("--format", help="official, labelled, huggingface, bundle-jsonl, bundle-parquet or results.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; a bundle without .zip is a folder.")],
    labelling: Annotated[
        str | None, typer.Option("--labelling", "-l", help="Whose labels; the newest finished one if left out.")
    ] = None,
    calls: Annotated[
        bool, typer.Option("--calls/--no-calls", help="Whether a bundle holds the recorded calls.")
    ] = True,
    judge: Annotated[
        int | None, typer.Option("--judge", help="Of results: id of the judge; the run's first one if left out.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write a dataset to a file, or a run in the layout of the authors' results.

    Example: cimemories export official --format bundle-parquet --out official.zip;
    cimemories export run-3f9a1c2e --format results --out results.jsonl
    """
    from cimemories.exchange import exporting as exchange_exporting

    kind = next((kind for kind in exchange_exporting.FORMATS if kind == form), None)
    if kind is None and form != "results":
        raise typer.BadParameter(
            f"'{form}' is none of {', '.join(exchange_exporting.FORMATS)}, results", param_hint="--format"
        )
    store = open_store(workspace)
    with engine.written_for_user(out, workspace):
        if kind is None:
            run = dataset
            found = exchange_exporting.export_run(store, run, out, judge_id=judge, labelling=labelling, replace=replace)
        else:
            found = exchange_exporting.export(
                store, dataset, kind, out, labelling=labelling, with_calls=calls, replace=replace
            )
    if as_json:
        shown = {"path": str(found.path), "format": found.format, "bytes": found.bytes, "simulated": found.simulated}
        output.line(output.as_json_text({**shown, "notes": list(found.notes)}))
        return
    mark = ", simulated" if found.simulated else ""
    output.line(f"exported '{dataset}' as {found.format}: {found.path} ({found.bytes / 1e6:,.1f} MB{mark})")
    for text in found.notes:
        output.note(f"note: {text}")


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
    from cimemories.curation import authoring as curation_authoring
    from cimemories.curation.authoring import AuthoringSpec, estimate
    from cimemories.llm.endpoint import allow_key

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
    generation_id = curation_authoring.plan(store, spec)
    output.note(f"{generation_id}: {estimate(spec).sentence(price_in, price_out)}")
    work_on(store, generation_id, concurrency, allow_missing=allow_missing)


@cli.command()
def generations(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the generations with what was turned down.  Example: cimemories generations --json"""
    store = open_store(workspace)
    from cimemories.curation.authoring import report
    from cimemories.store import generations as store_generations

    with store.read() as connection:
        rows = store_generations.all_rows(connection)
    if as_json:
        output.line(output.as_json_text([report(store, row.id).as_json() for row in rows]))
        return
    output.table(
        [
            ("id", False),
            ("name", False),
            ("model", False),
            ("status", False),
            ("parts", True),
            ("of", True),
            ("dataset", True),
            ("", False),
        ],
        [
            (
                r.id,
                r.name,
                r.model,
                r.status,
                r.settled,
                r.expected,
                "–" if r.dataset is None else r.dataset,
                "simulated" if r.simulated else "",
            )
            for r in rows
        ],
    )


@cli.command("packs")
def list_packs(
    check: Annotated[
        Path | None, typer.Option("--check", help="Check this file instead, and say where it belongs.")
    ] = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the packs of contexts and personas, or check one of your own.

    Example: cimemories packs --check my-town.yaml
    """
    if check is not None:
        _check_pack(check, workspace, as_json)
        return
    found = [_pack_text(file, workspace) for kind in packs.KINDS for file in packs.pack_files(kind, workspace)]
    if as_json:
        output.line(output.as_json_text(found))
    else:
        _pack_table(found)
        output.note(
            f"Packs of your own go into {packs.folder_of(workspace, 'contexts').parent}/contexts and /personas."
        )
    broken = [str(entry["error"]) for entry in found if entry["error"]]
    for error in broken:
        output.note(f"cannot be used: {error}")
    if broken:
        raise typer.Exit(1)


def _pack_table(found: list[dict[str, object]]) -> None:
    output.table(
        [("pack", False), ("of", False), ("entries", True), ("from", False), ("what it is", False)],
        [
            (
                entry["name"],
                entry["kind"],
                "–" if entry["entries"] is None else entry["entries"],
                "project" if entry["shipped"] else "workspace",
                f"{entry['title'] or ''}{' (default)' if entry['default'] else ''}",
            )
            for entry in found
        ],
    )


def _pack_text(file: packs.PackFile, workspace: Path) -> dict[str, object]:
    """One pack for the list; a file that does not fit is listed with its error and without entries."""
    entry: dict[str, object] = {
        "kind": file.kind,
        "name": file.name,
        "title": None,
        "entries": None,
        "shipped": file.shipped,
        "default": file.default,
        "path": str(file.path),
        "error": None,
    }
    try:
        return entry | _content(packs.load_pack(file, workspace))
    except SeedError as error:
        return entry | {"error": str(error)}


def _content(pack: packs.ContextPack | PersonaPack) -> dict[str, object]:
    told: dict[str, object] = {"title": pack.title, "about": pack.about}
    if isinstance(pack, PersonaPack):
        priors = {persona.key: persona.prior for persona in pack.personas}
        return told | {"entries": len(pack.personas), "priors": priors, "priors_from": pack.priors_from}
    return told | {"entries": len(pack.contexts), "spheres": dict(Counter(c.sphere for c in pack.contexts))}


def _check_pack(path: Path, workspace: Path, as_json: bool) -> None:
    kind, pack = packs.read_any(path)
    place = packs.folder_of(workspace, kind) / f"{pack.name}.yaml"
    taken = [f.path for f in packs.pack_files(kind, workspace) if f.name == pack.name and not _same(f.path, path)]
    if taken:
        raise SeedError(f"{path}: there is a pack named '{pack.name}' already ({taken[0]}). Give this one another name")
    content = _content(pack)
    if as_json:
        output.line(output.as_json_text({"kind": kind, "name": pack.name, "belongs": str(place), **content}))
        return
    output.line(f"{path}: fits, a pack of {content['entries']} {kind} named '{pack.name}'")
    if not _same(path, place):
        output.note(f"To use it, put it at {place}")


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


@cli.command()
def contexts(
    dataset: DatasetName,
    add: Annotated[str | None, typer.Option("--add", help="Add this pack's contexts to all its profiles.")] = None,
    annotator: Annotated[str, typer.Option("--annotator", help="Whose name the history gives.")] = "command line",
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List a dataset's contexts, or add a pack to a dataset on which nothing rests yet.

    Example: cimemories contexts -d mine --add germany
    """
    from cimemories.store import datasets as store_datasets
    from cimemories.store.engine import open_store

    store = open_store(workspace)
    if add is not None:
        from cimemories.curation.generating import add_pack

        done = add_pack(store, dataset, add, annotator=annotator)
        output.note(f"{done.new} contexts of '{add}' added to '{dataset}', {done.there} were there already")
    with store.read() as connection:
        rows = store_datasets.contexts(connection, store_datasets.named(connection, dataset).id)
    found = [(row.context.sphere or "", row.context.recipient, row.context.task) for row in rows]
    if as_json:
        output.line(output.as_json_text([{"sphere": s or None, "recipient": r, "task": t} for s, r, t in found]))
    else:
        output.table([("sphere", False), ("recipient", False), ("task", False)], found)


CardLabelling = Annotated[
    str | None, typer.Option("--labelling", "-l", help="Whose votes; left out: those that numbers rest on.")
]


@cli.command()
def freeze(
    dataset: Dataset,
    by: Annotated[str, typer.Option("--by", help="Your name.")],
    labelling: CardLabelling = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Freeze a dataset: it is edited in place no more, and a hash says what it held.

    Example: cimemories freeze mine --by Ada
    """
    from cimemories.exchange import freezing as exchange_freezing
    from cimemories.flows.labels import default_labelling
    from cimemories.store import datasets as store_datasets

    store = open_store(workspace)
    with store.read() as connection:
        row = store_datasets.named(connection, dataset)
    chosen = default_labelling(store, row.id)
    done = exchange_freezing.freeze(
        store, row.id, labelling_id=labelling or (chosen.id if chosen else None), annotator=by
    )
    if as_json:
        output.line(output.as_json_text({"dataset": dataset, **vars(done)}))
        return
    covered = ("profiles", "attributes", "votes", "decisions")
    counts = ", ".join(f"{int(done.counts[name]):,} {name}" for name in covered)
    output.note(f"frozen '{dataset}' with {counts}, labels of {done.labelling or 'nobody'}")
    output.line(done.hash)


@cli.command()
def versions(
    dataset: Dataset,
    check: Annotated[bool, typer.Option("--check", help="Hash what is frozen again; 1 where it differs.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """List the versions of a dataset, what is frozen and what has changed since.  Example: cimemories versions mine"""
    from cimemories.store import datasets as store_datasets
    from cimemories.store import versions as store_versions

    store = open_store(workspace)
    with store.read() as connection:
        row = store_datasets.named(connection, dataset)
        members = store_versions.family(connection, row.id)
    described = [_version_text(store, item) for item in members]
    if as_json:
        output.line(output.as_json_text(described))
    else:
        columns = [("version", True), ("name", False), ("made from", False), ("changes", True), ("content", False)]
        rows = [(d["version"], d["name"], d["parent"] or "", d["changes"], str(d["content"])[:8]) for d in described]
        frozen = [d["frozen_words"] or "open" for d in described]
        output.table([*columns, ("", False)], [(*cells, words) for cells, words in zip(rows, frozen, strict=True)])
    if check:
        _check_version(store, members)


def _version_text(store: Store, item: Version) -> dict[str, object]:
    from cimemories.exchange import freezing as exchange_freezing
    from cimemories.store import datasets as store_datasets
    from cimemories.store import versions as store_versions

    frozen = exchange_freezing.frozen(store, item.dataset)
    with store.read() as connection:
        names = {member.dataset: member.name for member in store_versions.family(connection, item.dataset)}
        content = store_datasets.dataset_hash(connection, item.dataset)
        changes = store_versions.history(connection, item.dataset)
        ran = store_runs.all_rows(connection, item.dataset)
    return {
        "name": item.name,
        "version": item.version,
        "parent": names.get(item.parent) if item.parent is not None else None,
        "created": item.created,
        "content": content,
        "changes": len(changes),
        "frozen": frozen.row.hash if frozen else None,
        "frozen_by": frozen.row.annotator if frozen else None,
        "frozen_words": frozen.words if frozen else None,
        "since": list(frozen.since) if frozen else [],
        "runs": [
            {"id": r.id, "name": r.name, "content": r.dataset_hash, "same": r.dataset_hash == content} for r in ran
        ],
    }


def _check_version(store: Store, members: list[Version]) -> None:
    from cimemories.exchange import freezing as exchange_freezing

    differing = []
    for item in members:
        if item.frozen is not None and exchange_freezing.present_hash(store, item.dataset) != item.frozen:
            differing.append(item.name)
    if differing:
        raise StoreError(f"no longer what was frozen: {', '.join(differing)}. See what has come since with --json.")
    output.note("every frozen version holds what it was frozen with")


@cli.command()
def card(
    dataset: Dataset,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File to write; left out: printed.")] = None,
    licence: Annotated[str, typer.Option("--licence", help="What the card says of it, for data of your own.")] = "",
    labelling: CardLabelling = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write the dataset card (Markdown).  Example: cimemories card mine --out card.md --licence "CC BY 4.0" """
    from cimemories.exchange.card import dataset_card

    text = dataset_card(open_store(workspace), dataset, licence=licence, labelling_id=labelling)
    if out is None:
        output.line(text.rstrip("\n"))
        return
    with engine.written_for_user(out, workspace):
        out.write_text(text, encoding="utf-8")
    output.note(f"wrote {out}")
