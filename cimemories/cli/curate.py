"""Commands that make, label and list datasets."""

from __future__ import annotations

import getpass
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from cimemories.cli.evaluate import work_on
from cimemories.seeds import PersonaPack, packs
from cimemories.seeds.reading import SeedError
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store
from cimemories.store.labellings import LabellingRow
from cimemories.store.versions import Version

if TYPE_CHECKING:
    from cimemories.labels.whatif import WhatIf
    from cimemories.review.queue import Status

# ---- exchange
#
# Commands that read and write files.


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
    output.imported(outcome, as_json)


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


# ---- generate
#
# The commands that make datasets: profiles from templates, or written by a model.


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
    output.note(f"{generation_id}: {estimate(spec).words(price_in, price_out)}")
    work_on(store, generation_id, concurrency, allow_missing=allow_missing)


@cli.command()
def generations(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the generations with what was turned down.  Example: cimemories generations --json"""
    output.generations(open_store(workspace), as_json)


# ---- labels report
#
# Commands about what votes became: survival, the rules that make labels, and how labellings agree.


LabellingOption = Annotated[
    str | None, typer.Option("--labelling", "-L", help="Id of a labelling; the newest finished one by default.")
]


@cli.command()
def survival(
    dataset: DatasetName,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Share of pairs with a consensus, who dissents, contexts discarded and why, and the statistics of Table 2.

    Example: cimemories survival -d official --json
    """
    from cimemories.labels.survival import contexts as survival_contexts
    from cimemories.labels.survival import survival as measure
    from cimemories.labels.survival import table2
    from cimemories.metrics import headline

    store = open_store(workspace)
    row = _labelling(store, dataset, labelling)
    output.show_survival(
        dataset,
        row,
        measure(store, row.id),
        survival_contexts(store, row.id),
        table2(store, row.id),
        [item for item in headline.family_warnings(store, row.id) if item.warning],
        as_json,
    )


@cli.command("rules")
def list_rules(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the named rules of a dataset and say which is current.  Example: cimemories rules -d official --json"""
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    with open_store(workspace).read() as connection:
        rows = store_labellings.all_rules(connection, store_datasets.named(connection, dataset).id)
    output.show_rules(rows, as_json)


@cli.command()
def rule(
    dataset: DatasetName,
    name: Annotated[str, typer.Option("--name", help="Of the rule; `paper` is the paper's.")],
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Above 0.5, at most 1; left out: use or delete a rule.")
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option("--priors", help="E.g. fundamentalist=0.3,pragmatic=0.6,unconcerned=0.1; the labelling's if not."),
    ] = None,
    use: Annotated[bool, typer.Option("--use", help="Make it the rule that labels rest on.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the rule of this name.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would change, and save nothing.")] = False,
    annotator: Annotated[str | None, typer.Option("--annotator", help="Who sets it; your login by default.")] = None,
    labelling: LabellingOption = None,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Save a named rule, try it, use it or delete it.

    Example: cimemories rule -d official --name lenient --threshold 0.9 --use

    Back to the paper's: cimemories rule -d official --name paper --use
    """
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    if threshold is None and (dry_run or not (use or delete)):
        raise StoreError("say what to do: --threshold with a number for a new rule, or --use, or --delete.")
    if delete and (threshold is not None or use):
        raise StoreError("--delete goes with neither --threshold nor --use.")
    store = open_store(workspace)
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    if threshold is None:
        if priors is not None:
            raise StoreError("--priors needs --threshold: a rule that is saved is not changed. Save a new one.")
        with store.write() as connection:
            (store_labellings.delete_rule if delete else store_labellings.make_current_rule)(connection, data.id, name)
        output.note(f"'{name}' is {'deleted' if delete else 'now the rule'} of '{dataset}'")
        return
    row, effect = _effect(store, dataset, labelling, threshold, priors)
    wanted = effect.after.prior_by_key if effect else priors_by_key(priors or "")
    if not dry_run:
        with store.write() as connection:
            store_labellings.add_rule(
                connection,
                data.id,
                name,
                threshold=threshold,
                priors=wanted,
                annotator=annotator or getpass.getuser(),
                use=use,
            )
    output.show_effect(row, effect, as_json, name=name, saved=not dry_run, current=use and not dry_run)


@cli.command("agreement")
def agreement_(dataset: DatasetName, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """How far the labellings of a dataset agree with one another, models with models.

    Example: cimemories agreement -d official --json
    """
    from cimemories.agreement.models import agreements
    from cimemories.store import datasets as store_datasets

    store = open_store(workspace)
    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
    found = agreements(store, data.id)
    output.show_agreements(dataset, found, as_json)


def _labelling(store: Store, dataset: str, labelling_id: str | None) -> LabellingRow:
    """The labelling asked for. Raises StoreError where the dataset has none, or not that one."""
    from cimemories.flows.labels import default_labelling
    from cimemories.store import datasets as store_datasets
    from cimemories.store import labellings as store_labellings

    with store.read() as connection:
        data = store_datasets.named(connection, dataset)
        rows = {row.id: row for row in store_labellings.all_rows(connection, data.id)}
    row = rows.get(labelling_id) if labelling_id else default_labelling(store, data.id)
    if row is None and labelling_id:
        raise StoreError(f"'{dataset}' has no labelling '{labelling_id}'. It has: {', '.join(rows) or 'none yet'}.")
    if row is None:
        raise StoreError(f"'{dataset}' has no labels yet. Label it first: cimemories label -d {dataset} ...")
    return row


def _effect(
    store: Store, dataset: str, labelling_id: str | None, threshold: float, priors: str | None
) -> tuple[LabellingRow | None, WhatIf | None]:
    """What the rule would do to a labelling; (None, None) where there is none yet and the priors are given."""
    from cimemories.flows.labels import vote_counts
    from cimemories.labels.whatif import what_if

    try:
        row = _labelling(store, dataset, labelling_id)
    except StoreError:
        if labelling_id is not None or priors is None:
            raise
        return None, None
    wanted = priors_by_key(priors) if priors else {p.key: p.prior for p in vote_counts(store, row.id).personas}
    return row, what_if(store, row.id, threshold, wanted)


def priors_by_key(text: str) -> dict[str, float]:
    """'a=0.3,b=0.7' as numbers by key. Raises StoreError that quotes the part which is none."""
    found: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, number = (piece.strip() for piece in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            raise StoreError(f"--priors: '{part}' is no KEY=NUMBER, e.g. pragmatic=0.64.") from None
        if not key or key in found:
            raise StoreError(f"--priors: '{part}' names no persona, or one that was named before.")
        found[key] = value
    return found


# ---- packs
#
# The command that lists the packs of contexts and personas, and checks one that somebody writes.


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


# ---- review
#
# Commands about what people said: export and import of review events, and where the review of a dataset stands.


review = typer.Typer(
    name="review", help="What people said of pairs and judgements: export, import, status.", no_args_is_help=True
)
cli.add_typer(review)

Dataset = Annotated[str, typer.Argument(help="Name of the dataset; `cimemories datasets` lists them.")]


@review.command("export")
def export_(
    dataset: Dataset,
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write; with csv or parquet a folder of tables.")],
    form: Annotated[str, typer.Option("--format", help="jsonl, csv or parquet.")] = "jsonl",
    annotator: Annotated[str | None, typer.Option("--annotator", help="Only what this person said.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Only decisions of it: single, batch, ...")] = None,
    domain: Annotated[str | None, typer.Option("--domain", help="Only attributes of this information domain.")] = None,
    profile: Annotated[int | None, typer.Option("--profile", min=0, help="Only of one profile, from 0.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="Only from then on, e.g. 2026-01-31.")] = None,
    blind: Annotated[bool, typer.Option("--blind", help="Only what was said in blind mode.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write decisions, marks, comments and audits to a file.  Example: cimemories review export official -o all.jsonl

    A filter on what a kind does not have (--source, --blind) leaves that kind out.
    """
    from cimemories.formats.review_events import FORMS, Filters, export_events

    kind = next((kind for kind in FORMS if kind == form), None)
    if kind is None:
        raise typer.BadParameter(f"'{form}' is none of {', '.join(FORMS)}", param_hint="--format")
    filters = Filters(annotator, source, domain, profile, since, blind)
    store = open_store(workspace)
    with engine.written_for_user(out, workspace):
        done = export_events(store, dataset, out, kind, filters, replace=replace)
    if as_json:
        shown = {"path": str(done.path), "format": kind, "counts": dict(done.counts), "simulated": done.simulated}
        output.line(output.as_json_text(shown))
        return
    mark = ", simulated" if done.simulated else ""
    output.line(f"exported {_counted(done.counts)} of '{dataset}': {done.path}{mark}")


@review.command("import")
def import_review(
    file: Annotated[Path, typer.Argument(help="A file or folder that `review export` wrote, or one laid out so.")],
    dataset: Annotated[
        str | None, typer.Option("--dataset", "-d", help="Whose events they are; what the file says if left out.")
    ] = None,
    skip_unknown: Annotated[
        bool, typer.Option("--skip-unknown", help="Leave out events whose pair or run is not here.")
    ] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Add what is not here yet, all of a file or nothing.  Example: cimemories review import ada.jsonl -d official"""
    from cimemories.formats.review_events import import_events

    done = import_events(open_store(workspace), file, dataset, skip_unknown=skip_unknown)
    if as_json:
        shown = {"datasets": list(done.datasets), "new": dict(done.new), "known": dict(done.known)}
        output.line(output.as_json_text({**shown, "skipped": list(done.skipped), "notes": list(done.notes)}))
        return
    names = ", ".join(f"'{name}'" for name in done.datasets)
    output.line(f"imported {_counted(done.new)}{f' into {names}' if names else ''}")
    if sum(done.known.values()):
        output.note(f"note: {_counted(done.known)} were here already")
    for text in done.notes:
        output.note(f"note: {text}")
    for text in done.skipped:
        output.note(f"skipped: {text}")


@review.command()
def status(dataset: Dataset, as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Decisions by person, label and source, open comments and disputes.  Example: cimemories review status official"""
    from cimemories.review.queue import status as find

    found = find(open_store(workspace), dataset)
    if as_json:
        output.line(output.as_json_text(found.as_json()))
        return
    _review_table(found)


def _review_table(found: Status) -> None:
    mark = ", simulated" if found.simulated else ""
    output.line(
        f"'{found.dataset}'{mark}: {found.decided:,} of {found.pairs:,} pairs decided, "
        f"{found.disputed:,} of {found.shared:,} pairs decided by two or more people in dispute"
    )
    output.line(
        f"comments: {found.open_comments:,} of {found.comments:,} open; flagged pairs: {found.flagged:,}; "
        f"guideline: version {found.guideline}"
    )
    if not found.people:
        return
    output.table(
        [("person", False), *((word, True) for word in ("N", "X", "?", "taken back", "events")), ("sources", False)],
        [
            (
                person.name,
                *(f"{person.labels[label]:,}" for label in ("necessary", "inappropriate", "ambiguous")),
                f"{person.taken_back:,}",
                f"{person.events:,}",
                ", ".join(f"{source} {count:,}" for source, count in person.sources.items()),
            )
            for person in found.people
        ],
    )


def _counted(counts: Mapping[str, int]) -> str:
    """'3 decisions, 1 comment'; 'nothing' where all are 0."""
    words = [f"{n:,} {kind}{'' if n == 1 else 's'}" for kind, n in counts.items() if n]
    return ", ".join(words) or "nothing"


# ---- versions
#
# Commands about the versions of a dataset: what there are, freezing one, and its card.


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
    from cimemories.store import runs as store_runs
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


# ---- curate


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
    from cimemories.curation import labelling as curation_labelling
    from cimemories.llm.endpoint import allow_key

    allow_key(api_key_env, base_url)
    store = open_store(workspace)
    spec = curation_labelling.LabellingSpec(
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
    work_on(store, curation_labelling.plan(store, spec), concurrency, allow_missing=allow_missing)


@cli.command()
def datasets(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the datasets.  Example: cimemories datasets --json"""
    output.datasets(open_store(workspace), as_json)


@cli.command()
def labellings(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the labellings with their status.  Example: cimemories labellings --json"""
    output.labellings(open_store(workspace), as_json)
