"""A dataset as a folder for the Hugging Face Hub: the one format that holds everything, to move or publish.

    README.md                              the dataset card, with the Hub's metadata as YAML on top
    data/test-00000-of-00001.parquet       one row a pair, in the authors' columns and ours (formats.huggingface)
    tables/profiles.parquet, ...           all of it as tables (formats.tables), each a configuration of its own
    eval.yaml                              registers the dataset as a benchmark; not if a simulator voted

`datasets.load_dataset(FOLDER)` reads it from the disk as from the Hub. The split is called test, as the authors' is.
YAML: https://huggingface.co/docs/hub/datasets-cards, datasets-manual-configuration and eval-results. The last calls
itself work in progress, and does not say which frameworks of evaluation it takes besides those that it names."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pyarrow.parquet as pq
import yaml

from cimemories.exchange.card import dataset_card
from cimemories.formats.tables import FOLDER, LAYOUT, TABLES, write_tables
from cimemories.store import archive, audits, decisions, reviews, runs
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import count, listed, visible_in
from cimemories.version import __version__

DATA = "data/test-00000-of-00001.parquet"
CARD, BENCHMARK = "README.md", "eval.yaml"
FRAMEWORK = "cimemories-studio"
OURS = ("offline", "demo")  # made from our own templates: English, and ours to license
LICENCES = dict.fromkeys(OURS, "Made from the templates of CIMemories Studio (MIT).")
FOREIGN = (
    "The profiles come from elsewhere and stay under the licence of their source; the profiles that the authors of "
    "CIMemories released are CC BY-NC 4.0."
)
# Upper ends of the Hub's size categories, in rows.
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
LARGEST = "10M<n<100M"


def write_folder(
    folder: Path, store: Store, row: DatasetRow, chosen: LabellingRow | None, *, with_calls: bool
) -> list[str]:
    """Write the tables of a dataset into a new folder; return what they lack. chosen: whose labels are in the data
    beside them."""
    simulated = is_simulated(store, row)
    with store.read() as connection:
        contents = archive.Contents(connection, row.id)
        contents.number_runs(with_calls)
        about = {
            "layout": LAYOUT,
            **{name: getattr(row, name) for name in ("name", "origin", "source_name", "source_hash", "version")},
            "created": row.created,
            "simulated": simulated,
            "software": f"CIMemories Studio {__version__}",
            "licence": LICENCES.get(row.origin, FOREIGN),
        }
        rows = {name: getattr(contents, name) for name in TABLES if name != "dataset"}
        write_tables(folder, {"dataset": lambda: [about], **rows})
        comments, marks = reviews.counts(connection, row.id)
        audited = len(decisions.standing_of_each(audits.history(connection, row.id)))
    notes = (
        [] if with_calls else ["the calls behind votes and messages are left out; what rests on them has their keys"]
    )
    numbers = ((comments, "comment"), (marks, "mark"), (audited, "verdict on judgements", "verdicts on judgements"))
    if said := listed([count(*number) for number in numbers if number[0]]):
        are = "is" if comments + marks + audited == 1 else "are"
        notes.append(f"{said} {are} not in a folder: export them with `cimemories review export`")
    return notes


def is_simulated(store: Store, row: DatasetRow) -> bool:
    """Return whether a simulator wrote, voted, answered or judged any part of a dataset."""
    with store.read() as connection:
        return row.simulated or any(run.simulated for run in runs.all_rows(connection) if run.dataset == row.id)


def pack(folder: Path, path: Path) -> None:
    """Write the files of a folder as one zip file; the same content gives the same bytes."""
    with zipfile.ZipFile(path, "w") as archive_:
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)), (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_STORED if file.suffix == ".parquet" else zipfile.ZIP_DEFLATED
            # Readable by all, in the upper half as Unix has it; without it Python writes 0600, for the owner alone.
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, archive_.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target, 1 << 20)


def write_about(folder: Path, store: Store, row: DatasetRow, chosen: LabellingRow | None) -> list[str]:
    """Write card and, for real votes, eval.yaml into a folder that holds the data. Return what to know before uploading
    it."""
    card = dataset_card(store, row.name, labelling_id=chosen.id if chosen else None)
    (folder / CARD).write_text(f"---\n{_yaml(front_matter(folder, row, chosen))}---\n\n{card}", encoding="utf-8")
    notes = [] if row.origin in OURS else ["license in README.md is 'other': write there what the profiles are under"]
    if chosen is None or chosen.simulated:
        why = "a simulator voted, and that is no benchmark" if chosen else "there are no labels"
        return [*notes, f"no {BENCHMARK}: {why}"]
    (folder / BENCHMARK).write_text(_yaml(benchmark(row)), encoding="utf-8")
    return [*notes, f"whether the Hub takes '{FRAMEWORK}' as the framework in {BENCHMARK} is for it to say when pushed"]


def front_matter(folder: Path, row: DatasetRow, chosen: LabellingRow | None) -> dict[str, object]:
    """Return the metadata that the Hub reads at the head of the card."""
    rows = {name: pq.read_metadata(folder / FOLDER / f"{name}.parquet").num_rows for name in TABLES}
    configs = {name: f"{FOLDER}/{name}.parquet" for name in TABLES if rows[name]}
    largest = max(rows.values())
    if chosen is not None:
        configs = {"default": "data/test-*.parquet", **configs}
        largest = pq.read_metadata(folder / DATA).num_rows
    about: dict[str, object] = {"pretty_name": _line(row.name), "license": "mit" if row.origin in OURS else "other"}
    if row.origin in OURS:
        about["language"] = ["en"]
    else:
        about["license_name"] = "see-the-card"
    tags = ["cimemories", "contextual-integrity", "privacy", "benchmark"]
    return about | {
        "task_categories": ["text-generation"],
        "size_categories": [next((name for most, name in _SIZES if largest < most), LARGEST)],
        "tags": [*tags, "simulated"] if chosen is not None and chosen.simulated else tags,
        "configs": [
            {"config_name": name, "data_files": [{"split": "test", "path": path}]} for name, path in configs.items()
        ],
    }


def benchmark(row: DatasetRow) -> dict[str, object]:
    """Return the registration of a dataset as a benchmark on the Hub."""
    return {
        "name": f"CIMemories: {_line(row.name)}",
        "description": (
            "Contextual integrity of assistants with memory (Mireshghallah et al., arXiv 2511.14937). A model writes "
            "a message to a recipient with all memories of a user in its prompt; a judge says which attributes it "
            "reveals. The score is the balanced score, the harmonic mean of completeness (necessary attributes that "
            "are conveyed) and 1 minus violation@n (attributes ever revealed where they are inappropriate), from 0 to "
            "1, higher is better."
        ),
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": "balanced_score", "config": "default", "split": "test"}],
    }


def _line(name: str) -> str:
    """Return a name in one line: one of --- would end the head of the card for a reader that goes line by line."""
    return " ".join(name.split())


def _yaml(value: dict[str, object]) -> str:
    # safe_dump quotes texts that YAML would misread: a name may hold a colon, a line break or a tag.
    return yaml.safe_dump(visible_in(value), sort_keys=False, allow_unicode=True, width=1000)
