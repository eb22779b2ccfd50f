"""Exporting a dataset: reads the record for the writers of cimemories.formats.

official           the authors' profiles, without labels (JSON)
labelled           the same with shares of votes by persona, and combined by the priors (JSON)
huggingface        everything as a folder for the Hugging Face Hub with a card (hub.py), or as a zip file of it:
                   profiles, votes, decisions, rules, history, runs with messages, judgements and recalls, calls. If the
                   path ends in .parquet or .csv: one row a pair with its effective label and prompts alone
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from cimemories.exchange import hub
from cimemories.exchange.columns import write_columns
from cimemories.exchange.labelled import LabelWriter
from cimemories.exchange.results import notes_on, write_results
from cimemories.flows.columns import Coded, arrow_table, flow_columns
from cimemories.flows.flows import Flows
from cimemories.flows.labels import chosen_labelling
from cimemories.flows.scope import Scope
from cimemories.formats.official import record_of, write_profiles
from cimemories.formats.reading import atomic_write
from cimemories.store import datasets, judgements, runs
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow
from cimemories.store.team import log
from cimemories.text import count, without_formula

Format = Literal["official", "labelled", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
TABLES = (".parquet", ".csv")  # endings of the columns as one file


@dataclass(frozen=True)
class Exported:
    """The outcome of an export. `bytes`: of the file, or of all files of a folder. `simulated`: the file is marked
    so."""

    path: Path
    format: str
    bytes: int
    simulated: bool
    notes: tuple[str, ...]


def export(
    store: Store,
    dataset: str,
    form: Format,
    path: Path,
    *,
    labelling: str | None = None,
    with_calls: bool = True,
    replace: bool = False,
) -> Exported:
    """Write a dataset to a path, whole or not at all.

    labelling: for the formats that hold one labelling; None: the default one. A folder holds all of them, and this
    one's effective labels. with_calls: whether a folder holds the calls behind votes and messages. replace: overwrite
    an existing file. Raises StoreError for an unknown item or a path that is taken, and FormatError for content that
    the format cannot hold."""
    with store.read() as connection:
        row = datasets.by_name(connection, dataset)
    if form != "huggingface":
        _refuse_table(path, "this format is JSON. Name the file .json; --format huggingface writes labels as a table")
    refuse_taken(path, replace=replace)
    chosen = chosen_labelling(store, row, labelling)
    if needs_labels(form, path) and chosen is None:
        raise StoreError(f"'{row.name}' has no labels yet, which this format needs. Label it first: cimemories label.")
    ending = path.suffix.lower()
    with atomic_write(path) as target:
        if form == "official":
            people = (record.profile for record in _records(store, row.id))
            target.write_text(write_profiles(people), encoding="ascii")
            notes = ["profiles only: labels and decisions are not in this format"]
        elif form == "labelled" and chosen is not None:
            labels = LabelWriter(store, chosen)
            _write_labelled(target, _records(store, row.id), labels)
            notes = labels.notes()
            if labels.repeated:
                notes.insert(
                    0,
                    f"{count(labels.repeated, 'pair')} with other labels than an earlier attribute with the same "
                    "statement; the file has one field for both and keeps the first",
                )
        elif ending in TABLES and chosen is not None:
            notes = write_columns(target, store, chosen, _records(store, row.id), parquet=ending == ".parquet")
        else:
            folder = target.with_name("folder") if ending == ".zip" else target
            notes = hub.write_folder(folder, store, row, chosen, with_calls=with_calls)
            if chosen is not None:
                (folder / hub.DATA).parent.mkdir()
                records = _records(store, row.id)
                notes += write_columns(folder / hub.DATA, store, chosen, records, parquet=True, plain=True)
            notes += hub.write_about(folder, store, row, chosen)
            if ending == ".zip":
                hub.pack(folder, target)
    log.note(store, "dataset.exported", row.name, format=form)
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    simulated = is_simulated(store, row, chosen, form, path)
    return Exported(path, form, sum(file.stat().st_size for file in files), simulated, tuple(notes))


def refuse_taken(path: Path, *, replace: bool) -> None:
    """Raise StoreError if something of that name is there, unless it is a file that may be replaced."""
    if path.exists() and not (replace and path.is_file()):
        what = "a folder of that name" if path.is_dir() else "a file of that name"
        raise StoreError(f"{path}: there is {what}. Choose another --out, or for a file say --replace.")


def _refuse_table(path: Path, why: str) -> None:
    if path.suffix.lower() in TABLES:
        raise StoreError(f"{path}: {why}.")


def needs_labels(form: Format, path: Path) -> bool:
    """Return whether the file at this path would hold only labels."""
    return form == "labelled" or (form == "huggingface" and path.suffix.lower() in TABLES)


def is_simulated(store: Store, row: DatasetRow, chosen: LabellingRow | None, form: Format, path: Path) -> bool:
    """Return whether an export is marked as simulated, by its content."""
    if needs_labels(form, path):
        return chosen is not None and chosen.simulated
    return form != "official" and hub.is_simulated(store, row)


def _write_labelled(path: Path, records: Iterator[ProfileRecord], labels: LabelWriter) -> None:
    with path.open("w", encoding="ascii", newline="\n") as stream:
        for number, record in enumerate(records):
            content = record_of(record.profile)
            labels.add(content, record)
            # The list is written by hand, so that one profile at a time is in memory.
            stream.write("[\n" if number == 0 else ",\n")
            stream.write(json.dumps(content, allow_nan=False))
        stream.write("\n]\n")


def _records(store: Store, dataset_id: int) -> Iterator[ProfileRecord]:
    """Yield one profile at a time."""
    with store.read() as connection:
        ids = datasets.profile_ids(connection, dataset_id)
    for profile_id in ids:
        with store.read() as connection:
            record = datasets.profile_record(connection, profile_id)
        yield record  # after the block: the caller uses connections of its own


def suggested_name(row: DatasetRow, form: Format, ending: str, *, simulated: bool) -> str:
    """Return a file name for a download: letters, digits and dashes, marked if it is simulated."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in row.name.lower())
    parts = [part for part in plain.split("-") if part] or ["dataset"]
    mark = ["simulated"] if simulated else []
    return "-".join([*parts, form, *mark])[:120] + ending


# ---- runs


def export_run(
    store: Store,
    run_id: str,
    path: Path,
    *,
    judge_id: int | None = None,
    labelling: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write a run to a path in the layout of the authors' results, one profile a line, whole or not at all. judge_id:
    None: the run's first judge. labelling: None: the default one, if the dataset has any. Raises StoreError for an
    unknown item and a path that is taken."""
    with store.read() as connection:
        run = runs.by_id(connection, run_id)
        if run.explains:
            raise StoreError(f"{run_id} explains a leak of {run.explains}: export that run, or use `cimemories why`.")
        judges = judgements.of_run(connection, run_id)
        row = next(row for row in datasets.all_rows(connection) if row.id == run.dataset)
    judge = next((j for j in judges if judge_id in (None, j.id)), None)
    if judge is None:
        judges_text = ", ".join(f"{j.id} ({j.name})" for j in judges) or "none"
        raise StoreError(f"{run_id} has no judge {judge_id}. It has: {judges_text}.")
    _refuse_table(path, "results are JSON lines. Name the file .jsonl; --format flows writes a table")
    refuse_taken(path, replace=replace)
    chosen = chosen_labelling(store, row, labelling)
    labels = None if chosen is None else LabelWriter(store, chosen)
    with atomic_write(path) as target:
        write_results(target, store, run, judge, chosen, labels)
    log.note(store, "run.exported", run.id, judge=judge.name)
    simulated = run.simulated or judge.simulated or bool(chosen and chosen.simulated)
    notes = notes_on(store, run, judge) + (labels.notes() if labels else [])
    return Exported(path, "results", path.stat().st_size, simulated, tuple(notes))


def export_flows(flows: Flows, scope: Scope, path: Path, *, replace: bool = False) -> Exported:
    """Write the flows of a run as one table, whole or not at all: the rows of `flow_columns` as Parquet or CSV, by the
    path's ending. In CSV a missing text is an empty cell, and a text that a spreadsheet would run is quoted. Raises
    StoreError for another ending and a path that is taken."""
    ending = path.suffix.lower()
    if ending not in TABLES:
        raise StoreError(f"{path}: flows are one table. Name the file .parquet or .csv.")
    refuse_taken(path, replace=replace)
    columns = flow_columns(flows, scope)
    with atomic_write(path) as target:
        if ending == ".parquet":
            pq.write_table(arrow_table(columns), target, compression="zstd")
        else:
            safe = {
                name: Coded(c.codes, tuple(str(without_formula(word)) for word in c.words))
                if isinstance(c, Coded)
                else c
                for name, c in columns.items()
            }
            table = arrow_table(safe)
            texts = pa.schema([(n, pa.string() if isinstance(c, Coded) else table[n].type) for n, c in safe.items()])
            with pa_csv.CSVWriter(target, texts) as writer:
                # Texts are written batch by batch: those of millions of rows would fill the memory.
                for batch in table.to_batches(max_chunksize=100_000):
                    writer.write_table(pa.Table.from_batches([batch]).cast(texts))
    log.note(flows.store, "run.exported", scope.run.id, judge=scope.judge_text)
    notes = (f"labels: {scope.labels_text}; reveals as judged by {scope.judge_text}",)
    return Exported(path, "flows", path.stat().st_size, bool(scope.simulated), notes)
