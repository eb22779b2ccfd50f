"""The profiles and labels of the task: a dataset of a workspace, or a file that can be imported.

load("demo").profiles[2].attributes
load("profiles-labelled.json")
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cimemories import demo
from cimemories.evaluation.compositions import Labels, LabelSource
from cimemories.evaluation.importing import import_file
from cimemories.extras.inspect.log import LoggedLabels
from cimemories.flows.labels import default_labelling
from cimemories.formats.importing import is_export
from cimemories.labels.whatif import effective_labels
from cimemories.model import Attribute
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.engine import SQLITE_FILE, Store, StoreError, chosen_workspace, open_store
from cimemories.text import shown

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A dataset with its current labels: people's decisions before the consensus. labels: by the ids of attribute and
    context in `records`."""

    name: str
    records: tuple[ProfileRecord, ...]
    labels: Labels
    about: LoggedLabels

    def attributes(self, profile: int) -> dict[str, Attribute]:
        """Return the attributes of a profile by key. profile: its number, from 1. Raises StoreError if there is no such
        profile."""
        if not 1 <= profile <= len(self.records):
            raise StoreError(f"'{self.name}' has no profile {profile}: this sample is of another dataset.")
        return {attribute.key: attribute for attribute in self.records[profile - 1].profile.attributes}


@lru_cache(maxsize=2)
def load(dataset: str, workspace: str | None = None) -> Source:
    """Load the dataset of this name from a workspace (default: $CIMEMORIES_WORKSPACE, else data/workspace), or from a
    file. A missing dataset `demo` is created in the workspace, which takes a minute or two. Raises StoreError and
    FormatError for a source that does not exist, cannot be read, or has no labels."""
    path = Path(dataset).expanduser()
    if path.is_file() or is_export(path):
        with tempfile.TemporaryDirectory() as folder:
            # By its address: $CIMEMORIES_DATABASE_URL would take precedence over the folder.
            store = open_store(folder, f"sqlite:///{Path(folder) / SQLITE_FILE}")
            try:
                return _source(store, import_file(store, path).dataset)
            finally:
                store.close()
    store = open_store(workspace or chosen_workspace())
    try:
        with store.read() as connection:
            names = [row.name for row in datasets.all_rows(connection)]
        if dataset == demo.DATASET and dataset not in names:
            # In a thread: `inspect eval` makes its tasks inside an event loop, and this needs one of its own.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(demo.prepare_labels, store, _log.warning).result()
        elif dataset not in names:
            there = ", ".join(f"'{shown(name)}'" for name in names) or "none yet"
            raise StoreError(
                f"there is neither a file nor a dataset '{shown(dataset)}'. The workspace {store.workspace} has: "
                f"{there}. Name one of them (-T dataset=NAME), a file, or another workspace (-T workspace=FOLDER)."
            )
        with store.read() as connection:
            row = datasets.by_name(connection, dataset)
        return _source(store, row)
    finally:
        store.close()


def _source(store: Store, row: DatasetRow) -> Source:
    source = effective_labels(store, row.id)
    if source is None:
        raise StoreError(
            f"'{row.name}' has no labels, so nothing that a message reveals is right or wrong. Label it first "
            "(`cimemories label`), or give a file with labels."
        )
    with store.read() as connection:
        records = tuple(datasets.profile_records(connection, row.id))
    for number, record in enumerate(records, 1):
        key, times = Counter(attribute.key for attribute in record.profile.attributes).most_common(1)[0]
        if times > 1:
            raise StoreError(f"profile {number}: attribute key '{shown(key)}' appears twice; rename one.")
    return Source(row.name, records, source.labels, _about(store, row.id, source))


def _about(store: Store, dataset: int, source: LabelSource) -> LoggedLabels:
    labelling = default_labelling(store, dataset)
    decisions = source.origin.get("decisions")
    return LoggedLabels(
        model=labelling.model if labelling else "",
        simulated=labelling is not None and labelling.simulated,
        decisions=decisions if isinstance(decisions, int) else 0,
    )
