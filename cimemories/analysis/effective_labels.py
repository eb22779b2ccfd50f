"""Effective labels of a whole dataset: what a memory composition goes by."""

from __future__ import annotations

from cimemories.analysis.labels import consensus_labels, default_labelling
from cimemories.curation.consensus import LABELS
from cimemories.evaluation.planning import LabelSource
from cimemories.model import Label
from cimemories.store import decisions
from cimemories.store.engine import Store
from cimemories.store.ids import content_hash


def effective_labels(store: Store, dataset_id: int) -> LabelSource | None:
    """The labels of every pair that has one (a person's decision before the consensus) with where they come from, or
    None where nothing is labelled. The hash in the origin changes with any label."""
    labelling = default_labelling(store, dataset_id)
    labels: dict[tuple[int, int], Label] = {}
    if labelling is not None:
        frame = consensus_labels(store, labelling.id)
        for of, into, code in zip(frame["attribute"], frame["context"], frame["label"], strict=True):
            if (label := LABELS.get(int(code))) is not None:
                labels[int(of), int(into)] = label
    with store.read() as connection:
        standing = decisions.standing(decisions.history(connection, dataset_id))
    decided = {pair: said.label for pair, said in standing.items() if said.label is not None}
    labels |= decided
    if not labels:
        return None
    origin = {
        "labelling": labelling.id if labelling else None,
        "decisions": len(decided),
        "hash": content_hash(sorted((a, c, str(label)) for (a, c), label in labels.items())),
    }
    return LabelSource(labels, origin)
