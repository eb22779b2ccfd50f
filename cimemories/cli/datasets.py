"""Commands that make, import, export, freeze and list datasets, and the packs that they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from cimemories import extras, files
from cimemories.answers import lists
from cimemories.cli import output
from cimemories.cli.base import cli, group
from cimemories.cli.options import (
    Dataset,
    DatasetName,
    Here,
    LabellingOption,
    Place,
    PlanOptions,
    Replace,
    Serve,
    WorkOptions,
    full_id,
    options_of,
)
from cimemories.cli.runs import plan_or_work
from cimemories.cli.work import find_labels
from cimemories.curation.spec import AuthoringSpec
from cimemories.model import WorkKind
from cimemories.seeds import packs
from cimemories.seeds.reading import SeedError
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import StoreError
from cimemories.text import count, listed

FLOWS = "flows"
OF_EXTRAS = extras.registered("exports")
OF_A_RUN = ("results", FLOWS, *OF_EXTRAS)  # formats of a run's results, not of a dataset
NOT_NAMED = "not named"
TAKEN_BY = {  # which formats an option of `export` is for; --replace is for those that are one file
    "--labelling": ("labelled", "huggingface", *OF_A_RUN),
    "--no-calls": ("huggingface",),
    "--judge": OF_A_RUN,
    "--organization": ("every-eval-ever",),
    "--replace": ("official", "labelled", "huggingface", "results", FLOWS, "preferences"),
}
OFFLINE_PER_DOMAIN = 5  # as in the released data

# ---- import and export


@cli.command("import")
def import_dataset(
    here: Here,
    file: Annotated[
        Path,
        Argument(
            help="Profiles (JSON), results (JSONL), columns (Parquet, CSV), an exported folder or zip file, a Hub "
            "snapshot or an Inspect log."
        ),
    ],
    dataset: Annotated[
        str | None, Option("--dataset", "-d", help="Name of the dataset; default: the file's name.")
    ] = None,
    form: Annotated[
        str | None,
        Option(
            "--format",
            help="profiles, labelled, huggingface, folder, bundle, results or inspect; default: by content.",
        ),
    ] = None,
    model: Annotated[
        str | None, Option("--model", "-m", help="For results: the model; default: the file's name.")
    ] = None,
    judge: Annotated[str | None, Option("--judge-model", help="For results: the judge.")] = None,
) -> None:
    """Import a dataset, or the results of runs. A file is imported as a whole, or not at all.

    Example: cimemories import profiles.json --dataset official; cimemories import results.jsonl --model qwen3-32b
    """
    from cimemories.evaluation import importing as evaluation_importing
    from cimemories.formats import importing as formats_importing

    kind = next((kind for kind in formats_importing.KINDS if kind == form), None)
    if form is not None and kind is None:
        raise typer.BadParameter(f"'{form}' is not one of {', '.join(formats_importing.KINDS)}", param_hint="--format")
    result = evaluation_importing.import_file(
        here.store, file, dataset, kind, model=model, judge=judge, find_labels=find_labels
    )
    row = result.dataset
    listed = lists.datasets(lists.contents(here.store)).records()
    imported = next(item for item in listed if item["id"] == row.id)
    verb = "imported" if result.new else "already here:"
    named = f"{', '.join(result.runs)} of '{row.name}'" if result.runs else f"'{row.name}'"
    more = {"new": result.new, "notes": result.notes, "imported_runs": result.runs}
    here.result(imported | more, f"{verb} {named}: {_sizes(row)}", notes=result.notes)


@cli.command()
def export(
    here: Here,
    dataset: Annotated[
        str,
        Argument(
            metavar="DATASET",
            help="Name of the dataset; for results, flows, preferences and every-eval-ever, id or name of a run.",
        ),
    ],
    form: Annotated[
        str,
        Option(
            "--format",
            help="official, labelled, huggingface, results, flows, preferences (pairs of messages that TRL reads) or "
            "every-eval-ever.",
        ),
    ],
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            help="File to write; for every-eval-ever a folder, for huggingface a folder with everything, a .zip of it, "
            "or labels alone as .parquet or .csv; for preferences .jsonl or .parquet.",
        ),
    ],
    labelling: LabellingOption = None,
    calls: Annotated[bool, Option("--calls/--no-calls", help="Include recorded calls in a folder.")] = True,
    judge: Annotated[int | None, Option(help="For what is of a run: id of a judge; default: its first.")] = None,
    organization: Annotated[
        str, Option(help="For every-eval-ever: the organization that evaluated the model.")
    ] = NOT_NAMED,
    replace: Replace = False,
) -> None:
    """Export a dataset, or the results of a run.

    Example: cimemories export official --format huggingface --out official.zip;
    cimemories export run-3f9a1c2e --format results --out results.jsonl;
    cimemories export run-3f9a1c2e --format flows --out flows.csv
    """
    from cimemories.exchange import exporting
    from cimemories.flows.flows import Flows
    from cimemories.flows.scope import resolve_scope

    kind = next((kind for kind in exporting.FORMATS if kind == form), None)
    if kind is None and form not in OF_A_RUN:
        forms = ", ".join((*exporting.FORMATS, *OF_A_RUN))
        raise typer.BadParameter(f"'{form}' is not one of {forms}", param_hint="--format")
    given = {
        "--labelling": labelling is not None,
        "--no-calls": not calls,
        "--judge": judge is not None,
        "--organization": organization != NOT_NAMED,
        "--replace": replace,
    }
    for option, is_given in given.items():
        if is_given and form not in TAKEN_BY[option]:
            raise StoreError(f"{option} changes nothing for {form}: it is for {listed(TAKEN_BY[option])}.")
    store = here.record
    if kind is None:
        dataset = full_id(store, dataset, WorkKind.RUN)
    if form in OF_EXTRAS:
        options = {"labelling": labelling, "judge": judge, "organization": organization, "replace": replace}
        extras.load(OF_EXTRAS[form])(here, dataset, out, **options)
        return
    with files.with_users_umask(out, here.workspace):
        if form == FLOWS:
            scope = resolve_scope(store, dataset, labelling, judge)
            result = exporting.export_flows(Flows(store), scope, out, replace=replace)
        elif kind is None:
            result = exporting.export_run(store, dataset, out, judge_id=judge, labelling=labelling, replace=replace)
        else:
            result = exporting.export(store, dataset, kind, out, labelling=labelling, with_calls=calls, replace=replace)
    size = f"{result.bytes / 1e6:,.1f} MB{', simulated' if result.simulated else ''}"
    here.result(result, f"exported '{dataset}' as {result.format}: {result.path} ({size})", notes=result.notes)


datasets = group(
    "datasets",
    "List the datasets; freeze one, list its versions and contexts.\n\nExample: cimemories datasets --json",
)


@datasets.listing
def list_datasets(here: Here) -> None:
    here.listing(lists.datasets(lists.contents(here.record)))


def _sizes(row: DatasetRow) -> str:
    return ", ".join(
        (count(row.profiles, "profile"), count(row.attributes, "attribute"), count(row.contexts, "context"))
    )


# ---- generate


# Beside those of AuthoringSpec, which templates have too as far as they read them.
SettingOptions = options_of(AuthoringSpec, leave_out=("model", "base_url", "per_domain"))


@dataclass(frozen=True)
class WriterOptions:
    """The writer of the profiles: templates, or a model."""

    offline: Annotated[bool, Option("--offline", help="Use templates and no model; the default without --model.")] = (
        False
    )
    model: Annotated[str | None, Option("--model", "-m", help="Model that writes the attributes.")] = None
    base_url: Annotated[
        str | None, Option(help="Its OpenAI-compatible server, e.g. http://localhost:8000/v1, or `simulator`.")
    ] = None
    serve: Serve = None
    per_domain: Annotated[
        int | None, Option(min=1, help="Attributes per domain and event; default: 7 by a model, else 5.")
    ] = None
    event: Annotated[
        list[str] | None,
        Option(help="Sample from these events alone (templates); `published` are those of the authors. Repeatable."),
    ] = None

    def spec(self, settings: Mapping[str, Any]) -> AuthoringSpec:
        """Return what the model is to write. Raises StoreError if it is not said where it is served."""
        from cimemories.llm.local_vllm import single_address

        assert self.model is not None
        if self.base_url is None:
            raise StoreError(f"where is '{self.model}' served? Give --base-url URL, or --base-url simulator.")
        base_url = single_address(self.base_url, self.model, self.serve or ())
        size: dict[str, Any] = {} if self.per_domain is None else {"per_domain": self.per_domain}
        return AuthoringSpec(**settings, **size, model=self.model, base_url=base_url)


@cli.command()
def generate(
    settings: SettingOptions,  # type: ignore[valid-type]
    writer: WriterOptions,
    work: WorkOptions,
    planning: PlanOptions,
) -> None:
    """Generate synthetic profiles, from templates or by a model. With a model, prints the generation's id.

    Example: cimemories generate -d mine --profiles 10

    Example: cimemories generate -d mine --profiles 10 -m gpt-oss-120b --base-url http://localhost:8000/v1
    """
    given = vars(settings)
    if writer.offline and writer.model:
        raise StoreError("give either --offline or --model MODEL, not both.")
    if writer.model is None:
        if writer.base_url is not None or writer.serve:
            raise StoreError(f"--{'serve' if writer.serve else 'base-url'} needs --model MODEL.")
        for name in ("general", "temperature", "model_seed", "prices", "cap"):
            item = AuthoringSpec.described()[name]
            if given[name] != item.default:
                raise StoreError(f"{item.option} needs --model MODEL: templates do not read it.")
        if planning != PlanOptions(planning.workspace):
            raise StoreError("--plan and --allow-too-long need --model MODEL: templates cost nothing.")
        from cimemories.curation.offline import generate_dataset

        row = generate_dataset(
            planning.store,
            given["name"],
            given["profiles"],
            seed=given["seed"],
            locale=given["locale"],
            per_domain=writer.per_domain or OFFLINE_PER_DOMAIN,
            events=given["events"],
            contexts=tuple(given["contexts"] or packs.CORE),
            among=tuple(writer.event or ()),
        )
        output.line(f"generated '{row.name}': {_sizes(row)}")
        return
    if writer.event:
        raise StoreError("--event names templates, and a model writes without them: leave one of the two out.")
    from cimemories.curation import authoring
    from cimemories.llm.endpoint import allow_key

    spec = writer.spec(given)
    allow_key(spec.api_key_env, spec.base_url)
    plan_or_work(planning.store, spec, authoring, work, planning)


# ---- packs and contexts


@cli.command("packs")
def list_packs(
    here: Here, check: Annotated[Path | None, Option(help="Check this file, and say where to put it.")] = None
) -> None:
    """List the packs of contexts and personas, or check your own.

    Example: cimemories packs --check my-town.yaml
    """
    if check is not None:
        _check_pack(check, here)
        return
    shown = lists.packs(here.workspace)
    here.listing(shown)
    if not here.as_json:
        output.note(f"Put your own into {packs.folder_of(here.workspace, 'contexts').parent}/contexts or /personas.")
    errors = [row["error"] for row in shown.records() if row["error"]]
    output.notes(errors, "cannot be used")
    if errors:
        raise typer.Exit(1)


def _check_pack(path: Path, here: Here) -> None:
    """Say that a file is a pack, and where it belongs. Raises SeedError where it is none, or its name is taken."""

    def is_it(other: Path) -> bool:
        return path.exists() and other.exists() and path.samefile(other)

    kind, pack = packs.read_any(path)
    target = packs.folder_of(here.workspace, kind) / f"{pack.name}.yaml"
    taken = [f.path for f in packs.pack_files(kind, here.workspace) if f.name == pack.name and not is_it(f.path)]
    if taken:
        raise SeedError(f"{path}: a pack named '{pack.name}' already exists ({taken[0]}). Choose another name")
    content = lists.pack_content(pack)
    entries = count(content["entries"], kind.removesuffix("s"))
    about = {"kind": kind, "name": pack.name, "belongs": target, **content}
    if not here.result(about, f"{path}: valid, a pack of {entries} named '{pack.name}'") and not is_it(target):
        output.note(f"To use it, put it at {target}")


@datasets.command()
def contexts(
    here: Here,
    dataset: DatasetName,
    add: Annotated[str | None, Option(help="Add the contexts of this pack to all profiles.")] = None,
    annotator: Annotated[str, Option(help="Your name, for the history.")] = "command line",
) -> None:
    """List a dataset's contexts, or add a pack of them. Adding works while the dataset has no labels or runs.

    Example: cimemories datasets contexts -d mine --add germany
    """
    if add is not None:
        from cimemories.curation.editing import add_pack

        new, there = add_pack(here.record, dataset, add, annotator=annotator)
        output.note(f"added {count(new, 'context')} of '{add}' to '{dataset}'; {there} were already there")
    here.listing(lists.contexts(here.record, dataset))


# ---- versions and generations


@datasets.command()
def generations(here: Here) -> None:
    """List the generations.  Example: cimemories datasets generations --json"""
    here.listing(lists.generations(here.record))


@datasets.command()
def freeze(
    here: Here, dataset: Dataset, by: Annotated[str, Option(help="Your name.")], labelling: LabellingOption = None
) -> None:
    """Freeze a dataset, and print the hash of its content. It can no longer be edited in place.

    Example: cimemories datasets freeze mine --by Ada
    """
    from cimemories.exchange import freezing
    from cimemories.flows.labels import chosen_labelling, unlabelled_text

    row = here.dataset(dataset)
    chosen = chosen_labelling(here.record, row, labelling)
    result = freezing.freeze(here.record, row.id, labelling_id=chosen.id if chosen else None, annotator=by)
    if here.result({"dataset": dataset, **vars(result)}):
        return
    counts = ", ".join(
        f"{int(result.counts[name]):,} {name}" for name in ("profiles", "attributes", "votes", "decisions")
    )
    output.note(f"frozen '{dataset}' with {counts}; labels: {result.labelling or 'none'}")
    output.notes([unlabelled_text(here.record, chosen)], "warning")
    output.line(result.hash)


@datasets.command()
def versions(
    here: Here,
    dataset: Dataset,
    check: Annotated[bool, Option("--check", help="Verify the hashes; exit with 1 if one differs.")] = False,
) -> None:
    """List a dataset's versions, and what has changed since.  Example: cimemories datasets versions mine"""
    shown = lists.versions(here.record, here.dataset(dataset).id)
    here.listing(shown)
    if check:
        from cimemories.exchange.freezing import present_hash

        frozen = [row for row in shown.records() if row["frozen"]]
        if differing := [row["name"] for row in frozen if present_hash(here.record, row["id"]) != row["frozen"]]:
            raise StoreError(f"changed since it was frozen: {', '.join(differing)}. --json shows what came since.")
        output.note("every frozen version is unchanged")


@datasets.command()
def card(
    place: Place,
    dataset: Dataset,
    out: Annotated[Path | None, Option("--out", "-o", help="File to write; default: print it.")] = None,
    licence: Annotated[str, Option(help="Licence of your own data.")] = "",
    labelling: LabellingOption = None,
) -> None:
    """Write the dataset card (Markdown).  Example: cimemories datasets card mine --out card.md"""
    from cimemories.exchange.card import dataset_card

    text = dataset_card(place.record, dataset, licence=licence, labelling_id=labelling)
    if out is None:
        output.line(text.rstrip("\n"))
        return
    with files.with_users_umask(out, place.workspace):
        out.write_text(text, encoding="utf-8")
    output.note(f"wrote {out}")
