"""The label uncertainty of a number, and whether labelling may stop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cimemories.answer import Answer
from cimemories.extras.decision_value.effects import WIDTH
from cimemories.extras.decision_value.random_share import ShareAgreement, share_agreement
from cimemories.extras.decision_value.value import Aim, lacking, valued
from cimemories.flows.labels import default_labelling
from cimemories.review.index import pair_index
from cimemories.store import datasets, runs
from cimemories.store.engine import Store


@dataclass(frozen=True, kw_only=True)
class Uncertainty(Answer):
    """The label uncertainty of a number, and the agreement on the random share of the queue. label_uncertainty: None if
    there are no values (`lacking`); random_share: None without votes."""

    label_uncertainty: Mapping[str, object] | None = None
    random_share: ShareAgreement | None = None


def uncertainty(store: Store, dataset: str, aim: Aim, width: float = WIDTH, seed: int = 0) -> Uncertainty:
    """Return the label uncertainty under the dataset's default labelling, with all current decisions. aim: runs by id
    or name; width: the target, as a share. Raises StoreError for an unknown dataset or run, or a run that is not
    judged."""
    with store.read() as connection:
        row = datasets.by_name(connection, dataset)
        ids = tuple(runs.by_id(connection, name).id for name in aim.runs)
    labelling = default_labelling(store, row.id)
    if labelling is None:
        return Uncertainty(sentence=lacking(aim))
    index = pair_index(store, row.id, labelling.id)
    value, share = valued(store, index, Aim(aim.target, ids), batch=1), share_agreement(store, index, seed)
    texts = (value.sentence(width), value.beside) if value else (lacking(aim),)
    return Uncertainty(
        sentence=" ".join((*texts, share.sentence)),
        label_uncertainty=value.as_json(width) if value else None,
        random_share=share,
    )
