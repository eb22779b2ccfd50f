"""A dataset as a folder for the Hugging Face Hub.

    README.md                              the dataset card, with what the Hub reads of it as YAML on top
    data/test-00000-of-00001.parquet       one row a pair, in the authors' columns and ours (formats.huggingface)
    eval.yaml                              registers the dataset as a benchmark; not where a simulator voted

`datasets.load_dataset(FOLDER)` reads it from the disk as from the Hub. The split is called test, as the authors' is.
YAML: https://huggingface.co/docs/hub/datasets-cards, datasets-manual-configuration and eval-results. The last calls
itself work in progress: which frameworks of evaluation it takes besides those that it names is not written there.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import yaml

from cimemories.exchange.card import dataset_card
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow
from cimemories.text import visible_in

DATA = "data/test-00000-of-00001.parquet"
CARD, BENCHMARK = "README.md", "eval.yaml"
FRAMEWORK = "cimemories-studio"
OURS = ("offline", "demo")  # made from our own templates: English, and ours to license
# Upper ends of the Hub's size categories, in rows.
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
LARGEST = "10M<n<100M"


def write_about(folder: Path, store: Store, row: DatasetRow, chosen: LabellingRow) -> list[str]:
    """Write card and, for real votes, eval.yaml into a folder that holds the data. Returns what has to be known before
    it is uploaded."""
    rows = pq.read_metadata(folder / DATA).num_rows
    card = dataset_card(store, row.name, labelling_id=chosen.id)
    (folder / CARD).write_text(f"---\n{_yaml(front_matter(row, chosen, rows))}---\n\n{card}", encoding="utf-8")
    notes = [] if row.origin in OURS else ["license in README.md is 'other': write there what the profiles are under"]
    if chosen.simulated:
        return [*notes, f"no {BENCHMARK}: a simulator voted, and that is no benchmark"]
    (folder / BENCHMARK).write_text(_yaml(benchmark(row)), encoding="utf-8")
    return [*notes, f"whether the Hub takes '{FRAMEWORK}' as the framework in {BENCHMARK} is for it to say when pushed"]


def front_matter(row: DatasetRow, chosen: LabellingRow, rows: int) -> dict[str, object]:
    """What the Hub reads at the head of the card."""
    size = next((name for most, name in _SIZES if rows < most), LARGEST)
    about: dict[str, object] = {"pretty_name": _line(row.name), "license": "mit" if row.origin in OURS else "other"}
    if row.origin in OURS:
        about["language"] = ["en"]
    else:
        about["license_name"] = "see-the-card"
    tags = ["cimemories", "contextual-integrity", "privacy", "benchmark"]
    return about | {
        "task_categories": ["text-generation"],
        "size_categories": [size],
        "tags": [*tags, "simulated"] if chosen.simulated else tags,
        "configs": [{"config_name": "default", "data_files": [{"split": "test", "path": "data/test-*.parquet"}]}],
    }


def benchmark(row: DatasetRow) -> dict[str, object]:
    """What registers a dataset as a benchmark on the Hub."""
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
    """A name in one line: one of --- would end the head of the card for whoever looks for it line by line."""
    return " ".join(name.split())


def _yaml(value: dict[str, object]) -> str:
    # safe_dump quotes what YAML would read as something else: a name may hold a colon, a line break or a tag.
    return yaml.safe_dump(visible_in(value), sort_keys=False, allow_unicode=True, width=1000)
