"""The consensus label of every pair of a labelling, as one table: attribute, context, label code, votes counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import sqlalchemy as sa

from cimemories.curation.consensus import UNLABELLED, consensus
from cimemories.model import Verdict
from cimemories.store import labellings, work
from cimemories.store.engine import Store
from cimemories.store.labellings import LabellingRow

COLUMNS = ("attribute", "context", "label", "votes")
_COUNTED = (Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN)


def default_labelling(store: Store, dataset_id: int) -> LabellingRow | None:
    """The labelling that numbers rest on unless another is asked for: the newest finished one, else the newest with a
    vote, else None."""
    with store.read() as connection:
        rows = labellings.all_rows(connection, dataset_id)
    voted = [row for row in rows if row.imported or row.ballots.get(labellings.OK)]
    finished = [row for row in voted if row.status == "finished"]
    return next(iter((finished or voted)[-1:]), None)


def consensus_labels(store: Store, labelling_id: str) -> pd.DataFrame:
    """Columns attribute, context (ids), label (code of curation.consensus), votes (counted ones, of all personas).

    The paper's rule with the priors that the labelling was planned with. Pairs without any vote are not in the table.
    Kept as a Parquet file under the revision of the labelling, which can be deleted at any time.
    """
    with store.read() as connection:
        revision = int(work.load(connection, labelling_id)["revision"])
    path = cache_file(store, f"labels-{labelling_id}", str(revision))
    if path.exists():
        return pd.read_parquet(path)
    with store.read() as connection:
        frame = _from_votes(connection, labelling_id)
    write_cache(frame, path, f"labels-{labelling_id}")
    return frame


def _from_votes(connection: sa.Connection, labelling_id: str) -> pd.DataFrame:
    personas = labellings.personas(connection, labelling_id)
    rows = labellings.tallies(connection, labelling_id).all()
    tallies = pd.DataFrame(rows, columns=["attribute", "context", "persona", *map(str, Verdict)]).astype(np.float64)
    pairs, position = np.unique(tallies[["attribute", "context"]].to_numpy(dtype=np.int64), axis=0, return_inverse=True)
    order = {persona_id: index for index, persona_id in enumerate(personas)}
    counts = np.zeros((len(pairs), len(order), len(_COUNTED)))
    persona_position = tallies["persona"].map(order).to_numpy(dtype=np.int64)
    for index, verdict in enumerate(_COUNTED):
        counts[position.reshape(-1), persona_position, index] = tallies[str(verdict)].to_numpy()
    labels = consensus(counts, [p.prior for p in personas.values()])
    frame = pd.DataFrame(
        {
            "attribute": pairs[:, 0] if len(pairs) else np.empty(0, np.int64),
            "context": pairs[:, 1] if len(pairs) else np.empty(0, np.int64),
            "label": labels.astype(np.int8),
            "votes": counts.sum(axis=(1, 2)).astype(np.int32),
        }
    )
    return frame[frame["label"] != UNLABELLED].reset_index(drop=True)


def cache_file(store: Store, name: str, version: str) -> Path:
    """Where a rebuildable table of this name and version is kept."""
    return store.workspace / "cache" / f"{name}-{version}.parquet"


def write_cache(frame: pd.DataFrame, path: Path, name: str) -> None:
    """Write a rebuildable table, whole or not at all, and drop its older versions. A disk that is full is no reason to
    fail: the table is only built again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{id(frame)}.draft")
        frame.to_parquet(draft, index=False)
        draft.replace(path)
        for old in path.parent.glob(f"{name}-*.parquet"):
            if old != path:
                old.unlink(missing_ok=True)
    except OSError:
        return
