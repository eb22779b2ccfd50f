"""Lists of what a workspace holds, a table each: what the command line, the pages and the Python API show of it.

A row has more than people see: all that `--json` and `to_frame()` give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cimemories.answer import Answer, Column, Listing, Table, attributes
from cimemories.evaluation.spec import MODEL, RunSpec, prompt_level
from cimemories.seeds import PersonaPack, SeedError
from cimemories.seeds import packs as seed_packs
from cimemories.seeds.packs import ContextPack
from cimemories.seeds.presets import load_presets
from cimemories.store import calls, judgements
from cimemories.store import datasets as store_datasets
from cimemories.store import labellings as store_labellings
from cimemories.store import runs as store_runs
from cimemories.store import versions as store_versions
from cimemories.store.datasets import DatasetRow
from cimemories.store.decisions import ReviewImport
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.store.runs import RunRow, SweepRow
from cimemories.store.team import people as store_people
from cimemories.store.team.log import Entry
from cimemories.store.versions import EditRow
from cimemories.text import simulated_text, without_credentials

if TYPE_CHECKING:
    from cimemories.compare.leaderboard import RunLine
    from cimemories.review.assignments import Progress

# What a column of this name is, in every list.
COLUMNS = {
    "action": Column("text", "What"),
    "annotator": Column("text", "By"),
    "answered": Column("count", "Answered"),
    "answers": Column("count", "Answers"),
    "at": Column("text", "GPUs (a hint) or server"),
    "attributes": Column("count", "Attributes"),
    "base_url": Column("text", "Address"),
    "blind": Column("count", "Blind"),
    "both": Column("text", "A vote in both lists"),
    "by": Column("text", "Declared by"),
    "cells": Column("count", "Runs"),
    "changes": Column("count", "Changes", "By hand"),
    "completeness": Column("percent", "Completeness"),
    "content": Column("hash", "Content", "Hash of profiles and contexts"),
    "contexts": Column("count", "Contexts", "Of all profiles"),
    "cost": Column("text", "Cost"),
    "counted": Column("count", "Ballots", "Counted ones"),
    "coverage": Column("percent", "Coverage", "Judged messages over planned ones"),
    "created": Column("date", "Created (UTC)"),
    "current": Column("flag", "In use"),
    "dataset": Column("text", "Dataset"),
    "dataset_name": Column("text", "Dataset"),
    "default": Column("flag", "Default", "Used where no other is named"),
    "details": Column("wide", "Details"),
    "does_task": Column("percent", "Does the task"),
    "draws": Column("count", "Draws"),
    "email": Column("text", "Verified address"),
    "entries": Column("count", "Entries"),
    "events": Column("text", "Events"),
    "error": Column("text", "Error"),
    "expected": Column("count", "Planned"),
    "figures": Column("text", "Figures"),
    "first": Column("text", "Address"),
    "frozen_words": Column("text", "Frozen"),
    "here": Column("text", "Last here (UTC)"),
    "id": Column("text", "Id"),
    "judged": Column("count", "Judged", "Messages that the first judge has judged"),
    "judges": Column("text", "Judges"),
    "keep": Column("flag", "Left running"),
    "key": Column("text", "Preset"),
    "kind": Column("text", "Kind"),
    "labellings": Column("count", "Labellings"),
    "labels": Column("text", "Labels", "The newest labelling"),
    "last": Column("date", "Last (UTC)"),
    "mark": Column("small", "Simulated"),
    "memory": Column("text", "Memory"),
    "mitigation": Column("text", "Mitigation"),
    "model": Column("text", "Model"),
    "n": Column("count", "n"),
    "name": Column("text", "Name"),
    "note": Column("wide", "Note"),
    "origin": Column("text", "Origin"),
    "parent": Column("text", "Based on"),
    "parts": Column("text", "Parts", "By status"),
    "per_day": Column("count", "A day", "Answers"),
    "person": Column("text", "Who"),
    "planned": Column("count", "Planned", "Attributes that the model is to write"),
    "priors": Column("wide", "Priors", "Of the personas; none: those of the labelling"),
    "profiles": Column("count", "Profiles"),
    "prompt_level": Column("text", "Prompt level"),
    "recipient": Column("text", "Recipient"),
    "role": Column("text", "Role"),
    "roles": Column("text", "Roles"),
    "runs": Column("count", "Runs"),
    "same": Column("flag", "Same", "Whether it is what the version holds now"),
    "samples": Column("count", "Samples", "Messages per context"),
    "seconds": Column("number", "Seconds each", "The median"),
    "second": Column("text", "Is the same server as"),
    "served_name": Column("text", "Model"),
    "server": Column("text", "Server"),
    "share": Column("count", "Of", "About, where not everybody answers everything"),
    "shipped": Column("flag", "From the project"),
    "simulated": Column("flag", "Simulated", "Whether a part of it comes from a simulator"),
    "sphere": Column("text", "Sphere"),
    "status": Column("text", "Status"),
    "step": Column("text", "Step"),
    "subject": Column("wide", "Of"),
    "tags": Column("text", "Tags"),
    "task": Column("text", "Task"),
    "threshold": Column("percent", "Threshold"),
    "title": Column("text", "Title"),
    "undone": Column("date", "Undone (UTC)"),
    "version": Column("text", "Version"),
    "violation": Column("percent", "Violation@n"),
    "votes": Column("text", "Votes needed"),
    "written": Column("count", "Written", "Attributes that the model has written"),
}

BOTH_LISTS = dict(zip(store_labellings.BOTH_LISTS, ("Conflict, not counted", "Necessary"), strict=True))


def _listing(rows: Sequence[dict[str, Any]], shown: str, caption: str = "") -> Listing:
    """Return a list. shown: the columns that people see, separated by spaces."""
    return Listing(rows, {name: COLUMNS[name] for name in shown.split()}, caption)


# ---- datasets, labellings and runs


@dataclass(frozen=True)
class Contents:
    """Every dataset, labelling and run of a workspace at one moment, each list oldest first."""

    datasets: list[DatasetRow]
    labellings: list[LabellingRow]
    runs: list[RunRow]

    @property
    def dataset_names(self) -> dict[int, str]:
        return {row.id: row.name for row in self.datasets}


def contents(store: Store) -> Contents:
    """Return what a workspace holds, read in one transaction."""
    with store.read() as connection:
        return Contents(
            store_datasets.all_rows(connection),
            store_labellings.all_rows(connection),
            store_runs.all_rows(connection),
        )


def datasets(here: Contents) -> Listing:
    """Return the datasets, oldest first. version: '' for a first one that is not frozen; contexts: of all profiles;
    labels: the state and the model of the newest labelling; simulated: its profiles or labels are."""
    labels = {row.dataset: f"{row.status}, {row.model}" for row in here.labellings}
    rows = [
        attributes(row, "id name origin profiles attributes contexts labellings runs simulated created")
        | {"version": row.note, "labels": labels.get(row.id, "none yet")}
        for row in here.datasets
    ]
    shown = "name origin version profiles attributes contexts labels labellings runs simulated created"
    return _listing(rows, shown, "Datasets")


def labellings(store: Store) -> Listing:
    """Return the labellings, oldest first. ballots: by status; counted: those that are; default: the numbers of its
    dataset rest on it."""
    from cimemories.flows.labels import default_labelling

    here = contents(store)
    names = here.dataset_names
    defaults = {row.id for row in (default_labelling(store, i) for i in names) if row}
    rows = [
        attributes(row, "id model draws status error expected ballots simulated created finished")
        | {"dataset": names[row.dataset], "name": f"{row.model} on {names[row.dataset]}"}
        | {"counted": row.ballots.get(store_labellings.OK, 0), "default": row.id in defaults}
        for row in here.labellings
    ]
    return _listing(rows, "id dataset model draws status counted expected default created simulated", "Labellings")


def rules(store: Store, dataset_id: int) -> Listing:
    """Return the paper's rule, then the named rules of a dataset, oldest first. current: labels rest on it; votes: what
    it asks for; priors: missing where they are those of the labelling."""
    with store.read() as connection:
        named = store_labellings.all_rules(connection, dataset_id)
    given = "name threshold priors least_votes both_lists annotator created current"
    paper = dict.fromkeys(given.split()) | {"name": store_labellings.PAPER_RULE, "threshold": 1.0}
    paper |= {"both_lists": store_labellings.BOTH_LISTS[0], "current": not any(row.current for row in named)}
    rows = [paper, *(attributes(row, given) for row in named)]
    for row in rows:
        row |= {"votes": store_labellings.least_text(row["least_votes"]), "both": BOTH_LISTS[row["both_lists"]]}
    return _listing(rows, "name current threshold priors votes both annotator created", "Rules of the dataset")


def runs(rows: Sequence[RunRow], datasets: Mapping[int, str]) -> Listing:
    """Return these runs, in their order. datasets: names by id; responses, judgements: messages, and judgements of the
    first judge, by status; simulated: its messages or its judge are; tags: words with a space between them."""
    listed = [
        attributes(row, "id name model samples status error judged expected coverage responses judgements")
        | attributes(row, "simulated created finished sweep note")
        | {"dataset": datasets.get(row.dataset, ""), "tags": " ".join(row.tags)}
        for row in rows
    ]
    shown = f"id name{_described(rows)} dataset model samples status judged expected coverage created simulated"
    return _listing(listed, shown, "Runs")


def _described(rows: Iterable[RunRow]) -> str:
    """Return the columns of what people say of these runs: ' tags note', less what none of them has."""
    rows = list(rows)
    return "".join(f" {name}" for name in ("tags", "note") if any(getattr(row, name) for row in rows))


def runs_with_settings(store: Store, tag: str | None = None) -> Listing:
    """Return every run, or those with a tag, as `runs` does, but slower, with more columns: judges (names), answers
    (which servers gave them), and its settings: judge_settings, prompts (hashes), reference, and those of `RunSpec`
    that are not among the others. None where a setting does not apply to the run, or the record does not
    have it: the run was imported, or planned before there was one."""
    here = contents(store)
    chosen = [row for row in here.runs if tag in (None, *row.tags)]
    ids = [row.id for row in chosen]
    with store.read() as connection:
        judges = {run_id: judgements.of_run(connection, run_id) for run_id in ids}
        sources = calls.origins(connection, ids)
    shown = runs(chosen, here.dataset_names)
    rows = [
        values
        | {"judges": ", ".join(judge.name for judge in judges[row.id])}
        | {"answers": [source.as_json() for source in sources[row.id]]}
        # What the record says of every run goes before what was asked for.
        | {name: value for name, value in _settings(row).items() if name not in values}
        for row, values in zip(chosen, shown.records(), strict=True)
    ]
    return Listing(rows, {**shown.columns, "judges": COLUMNS["judges"]}, shown.caption)


def _settings(row: RunRow) -> dict[str, object]:
    """Return the settings of a run as it was asked for; None for those that its record does not have."""
    spec = RunSpec.of_row(row)
    values = spec.model_dump(mode="json", warnings=False)  # a setting of another version may be none of its choices
    # Those of a model's run have their values, even where these mean nothing, such as a seed without a shuffle.
    known = spec.model_fields_set & (values if spec.assistant == MODEL else spec.applicable(values)).keys()
    values = {name: value if name in known else None for name, value in values.items()}
    asked = row.manifest.request.recorded if row.manifest.request else {}
    values |= {"judge_settings": values.pop("judges"), "seed": row.seed}
    values |= {name: asked.get(name) for name in ("prompts", "reference")}
    return {name: _without_credentials(value) for name, value in values.items()}


def _without_credentials(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_credentials(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_credentials(item) for item in value]
    return without_credentials(value) if isinstance(value, str) else value


def runs_with_numbers(lines: Sequence[RunLine]) -> Listing:
    """Return runs with their numbers by their first judges, and in few words what was run. mark: which parts of it are
    simulated."""
    rows = [
        attributes(line.run, "id name model status judged expected coverage created")
        | attributes(line, "dataset memory mitigation does_task n")
        | {
            "prompt_level": prompt_level(line.run),
            "mark": simulated_text(line.simulated),
            "judges": ", ".join(line.judges),
        }
        | {"tags": " ".join(line.run.tags), "note": line.run.note}
        | {"cost": line.cost.shown}
        | {
            f"{name}{end}": getattr(getattr(line, name), field)
            for name in ("violation", "completeness")
            for end, field in (("", "value"), ("_low", "low"), ("_high", "high"))
        }
        for line in lines
    ]
    shown = (
        f"name{_described(line.run for line in lines)} mark status judged expected coverage violation completeness "
        "does_task n prompt_level memory mitigation judges cost created model dataset id"
    )
    return _listing(rows, shown, "Runs")


def sweeps(rows: Sequence[SweepRow], datasets: Mapping[int, str]) -> Listing:
    """Return these sweeps, in their order. datasets: names by id; cells: runs."""
    listed = [
        attributes(row, "id name status cells created") | {"dataset": datasets.get(row.dataset, "")} for row in rows
    ]
    return _listing(listed, "name status cells dataset created id", "Sweeps of this workspace, the newest first")


# ---- generations, versions, contexts and packs


def generations(store: Store) -> Listing:
    """Return the generations as they stand, oldest first, as of `curation.authoring.Report`."""
    from cimemories.curation.authoring import all_generations, report

    rows = [report(store, row.id).as_json() for row in all_generations(store)]
    return _listing(rows, "id name model status parts written planned dataset_name simulated", "Generations")


def versions(store: Store, dataset_id: int, hashes: Mapping[int, str] | None = None) -> Listing:
    """Return all versions of a dataset in their order.

    parent: the name of the version that it was made from; content: the hash of its profiles and contexts; changes: how
    many by hand; since: what has come since it was frozen; runs: those on it, and whether they used this content.
    hashes: by dataset, to be taken for content instead of hashing all, which takes seconds for many profiles.
    """
    from cimemories.exchange.freezing import frozen

    with store.read() as connection:
        members = store_versions.family(connection, dataset_id)
    names = {item.dataset: item.name for item in members}
    rows = []
    for item in members:
        freeze = frozen(store, item.dataset)
        with store.read() as connection:
            if hashes is None:
                content: str | None = store_datasets.dataset_hash(connection, item.dataset)
            else:
                content = hashes.get(item.dataset)
            changes = store_versions.history(connection, item.dataset)
            used = store_runs.all_rows(connection, item.dataset)
        rows.append(
            attributes(item, "name version created frozen")
            | {
                "id": item.dataset,
                "parent": names.get(item.parent) if item.parent is not None else None,
                "content": content,
                "changes": len(changes),
                "frozen_by": freeze.row.annotator if freeze else None,
                "frozen_words": freeze.words if freeze else None,
                "since": list(freeze.since) if freeze else [],
                "runs": [
                    attributes(run, "id name simulated")
                    | {"content": run.dataset_hash, "same": run.dataset_hash == content}
                    for run in used
                ],
            }
        )
    return _listing(rows, "version name parent changes content frozen_words created", "The versions of this dataset")


def runs_of_version(version: Mapping[str, Any]) -> Listing:
    """Return the runs on a version, a row of `versions`, and which content each used."""
    return _listing(
        version["runs"], "name content same simulated", "The runs on this dataset and the content they used"
    )


def contexts(store: Store, dataset: str) -> Listing:
    """Return the contexts of a dataset. Raises StoreError for one that is not there."""
    with store.read() as connection:
        rows = store_datasets.contexts(connection, store_datasets.by_name(connection, dataset).id)
    shown = "sphere recipient task"
    return _listing([attributes(row.context, shown) for row in rows], shown, "Contexts")


def packs(workspace: Path) -> Listing:
    """Return the packs of contexts and personas, those of the project first. A file that is no pack has an error, and
    no content (`pack_content`)."""
    rows = []
    for file in (file for kind in seed_packs.KINDS for file in seed_packs.pack_files(kind, workspace)):
        row = attributes(file, "kind name shipped default path") | dict.fromkeys(PACK_CONTENT) | {"error": None}
        try:
            row |= pack_content(seed_packs.load_pack(file, workspace))
        except SeedError as error:
            row["error"] = str(error)
        rows.append(row)
    return _listing(rows, "name kind entries shipped default title", "Packs")


PACK_CONTENT = ("title", "about", "entries", "priors", "priors_from", "spheres")


def pack_content(pack: ContextPack | PersonaPack) -> dict[str, Any]:
    """Return what a pack holds: of personas their priors, of contexts how many each sphere has."""
    row = dict.fromkeys(PACK_CONTENT) | attributes(pack, "title about")
    if isinstance(pack, PersonaPack):
        priors = {persona.key: persona.prior for persona in pack.personas}
        return row | {"entries": len(pack.personas), "priors": priors, "priors_from": pack.priors_from}
    return row | {"entries": len(pack.contexts), "spheres": dict(Counter(item.sphere for item in pack.contexts))}


def edits(changes: Sequence[tuple[EditRow, str]]) -> Listing:
    """Return changes of profiles by hand, each with the name of the version that it made or is in."""
    columns = {
        "created": Column("date", "When (UTC)"),
        "annotator": Column("text", "By"),
        "sentence": Column("wide", "Change"),
        "reason": Column("text", "Reason"),
        "version": Column("text", "Version"),
    }
    rows = [attributes(row, "id created annotator sentence reason") | {"version": name} for row, name in changes]
    return Listing(rows, columns, "Changes, the newest first")


# ---- models and servers


def presets() -> Listing:
    """Return the paper's models and their presets. at: GPUs, as a hint, or the server of a hosted model."""
    rows = [
        attributes(item, "key name kind") | {"at": item.gpus or item.base_url or "", "roles": ", ".join(item.roles)}
        for item in load_presets()
    ]
    return _listing(rows, "key name kind at roles", "Presets")


def servers(workspace: Path) -> Listing:
    """Return the vLLM servers that were started here, with the figures of those that answer. keep: it runs on when what
    started it ends."""
    from cimemories.llm import vllm_server
    from cimemories.llm.vllm_reports import read_metrics

    rows = []
    for state in vllm_server.servers(workspace):
        ready = state.phase == vllm_server.Phase.READY and state.here
        now = read_metrics(state.base_url) if ready else None
        rows.append(
            state.model_dump(mode="json", exclude={"owner", "supervisor", "server", "phase"})
            | {"status": state.phase, "base_url": state.base_url, "process": state.server.pid if state.server else None}
            | {"figures": now and attributes(now, "running waiting generated_tokens prompt_tokens hit_rate kv_use")}
        )
    return _listing(rows, "id status base_url served_name step error keep figures", "Servers")


@dataclass(frozen=True, kw_only=True)
class AnswerServers(Answer):
    """The servers whose answers the record holds, and which of them people say are the same."""

    servers: Table
    same: Table


def answer_servers(store: Store) -> AnswerServers:
    """Return the servers of recorded answers. Reads the whole record."""
    with store.read() as connection:
        known, counts, ties = calls.planned_servers(connection), calls.counts(connection), calls.ties(connection)
    texts = dict.fromkeys([*(item.text for item in known), *counts])
    same = [attributes(tie, "first second created") | {"by": tie.author} for tie in ties]
    return AnswerServers(
        notes=() if texts else ("no answers recorded yet",),
        servers=_listing([{"server": text, "answers": counts.get(text, 0)} for text in texts], "server answers"),
        same=_listing(same, "first second by created"),
    )


# ---- people and the log


def people(store: Store) -> Listing:
    """Return people, those who may do most first. here: when they were here last, to the hour, in words."""
    rows = [
        attributes(row, "id name email role seen created")
        | {"here": "has not logged in" if row.account is None else (row.seen or "")[:13].replace("T", " ") + "h"}
        for row in store_people.listed(store)
    ]
    return _listing(rows, "name role email here", "People and their roles")


def paces(item: Progress) -> Listing:
    """Return how far each person is with an assigned slice. name, kind, items, wanted, due: of the slice."""
    of = attributes(item.of, "name kind items wanted due")
    rows = [of | vars(pace) | {"last": pace.last or None} for pace in item.people]
    return _listing(rows, "person answered share blind per_day seconds last", "How far each person is with this slice")


def imports(rows: Sequence[ReviewImport]) -> Listing:
    """Return imported files of review events."""
    names = "id name events created annotator undone"
    return _listing([attributes(row, names) for row in rows], names, "Imported files of review events")


def log(entries: Sequence[Entry]) -> Listing:
    """Return these entries of the log, with their details in one text."""
    rows = [attributes(item, "created person action subject") | {"details": item.text} for item in entries]
    return _listing(rows, "created person action subject details", "Who did what, the newest first")
