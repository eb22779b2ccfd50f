"""A dataset as frames, to compute with elsewhere: its profiles, their attributes, the votes of a labelling, and the
labels that follow. Texts that repeat are categories; an attribute id and a context id together name a pair."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.flows.columns import ATTRIBUTE_COLUMNS, LABEL_WORDS
from cimemories.flows.flows import frame_of, typed
from cimemories.flows.labels import TOO_FEW, vote_counts
from cimemories.labels.matrix import matrix
from cimemories.model import is_bio
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store
from cimemories.store.labellings import BOTH_LISTS, LabellingRow

PAIR = ["profile", "user", "attribute", "key", "domain", "event", "context", "recipient", "task", "sphere"]


def profile_frame(store: Store, dataset: DatasetRow) -> pd.DataFrame:
    """Return one row a profile: profile (id), user, sex, address, age, attributes, contexts (counts), events."""
    with store.read() as connection:
        records = datasets.profile_records(connection, dataset.id)
    rows = [
        (r.id, p.name, p.sex, p.address, p.age, len(p.attributes), len(p.contexts), ", ".join(p.events))
        for r in records
        for p in [r.profile]
    ]
    columns = ["profile", "user", "sex", "address", "age", "attributes", "contexts", "events"]
    return pd.DataFrame(rows, columns=columns)


def attribute_frame(store: Store, dataset: DatasetRow) -> pd.DataFrame:
    """Return one row an attribute: profile (id), user, attribute (id), key, value, domain, event, statement, identifier
    (repeats the biography)."""
    with store.read() as connection:
        frame = frame_of(datasets.attribute_rows(connection, dataset.id), ATTRIBUTE_COLUMNS)
        users = datasets.profile_names(connection, dataset.id)
    frame = typed(frame, ["profile", "attribute"])
    frame.insert(1, "user", frame["profile"].map(users))
    frame["value"] = pd.Series([json.loads(text) for text in frame["value"]], frame.index, dtype=object)
    frame["identifier"] = np.fromiter(map(is_bio, frame["key"], frame["domain"]), np.bool_, len(frame))
    return frame


def vote_frame(store: Store, dataset: DatasetRow, labelling: LabellingRow) -> pd.DataFrame:
    """Return the counted votes of a labelling, one row a pair and persona: the columns of PAIR, persona, prior,
    necessary, inappropriate, abstain, conflict (votes in both lists) and planned (votes, lost ones included). Of an
    imported labelling they are the shares of its file, 0 to 1, and nothing was planned. Pairs without a row in the
    labelling are left out."""
    counts = vote_counts(store, labelling.id).under(BOTH_LISTS[0])
    personas, pairs = len(counts.personas), len(counts.attributes)
    frame = _pairs(store, dataset, np.repeat(counts.attributes, personas), np.repeat(counts.contexts, personas))
    keys = pd.CategoricalDtype(list(dict.fromkeys(persona.key for persona in counts.personas)))
    frame["persona"] = pd.Series([persona.key for persona in counts.personas] * pairs, dtype=keys)
    frame["prior"] = np.tile([float(persona.prior) for persona in counts.personas], pairs)
    votes = counts.votes.reshape(pairs * personas, 3)
    frame[["necessary", "inappropriate", "abstain"]] = votes
    frame["conflict"] = 0 if counts.conflicts is None else counts.conflicts.reshape(-1)
    frame["planned"] = np.repeat(np.broadcast_to(counts.planned, pairs), personas)
    return frame


def effective_labels(store: Store, dataset: DatasetRow, labelling: LabellingRow | None) -> pd.DataFrame:
    """Return the labels of every attribute in every context of its profile: the columns of PAIR, label (the effective
    one), consensus (of the votes, by the rule that holds), decided (a person's decision stands), retained (the context
    has a necessary and an inappropriate attribute). Labels are words of LABEL_WORDS. Without a labelling only what
    people decided is labelled."""
    with store.read() as connection:
        records = datasets.profile_records(connection, dataset.id)
    matrices = [matrix(store, None if labelling is None else labelling.id, record) for record in records]

    def joined(arrays: list[npt.NDArray[Any]], kind: type[np.generic]) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, kind), *(array.reshape(-1) for array in arrays)])

    def words(arrays: list[npt.NDArray[np.int8]]) -> Any:
        return pd.Categorical.from_codes(joined(arrays, np.int8) - TOO_FEW, pd.Index(LABEL_WORDS, dtype="str"))

    attributes = [np.repeat(r.attribute_ids, len(r.context_ids)) for r in records]
    contexts = [np.tile(r.context_ids, len(r.attribute_ids)) for r in records]
    frame = _pairs(store, dataset, joined(attributes, np.int64), joined(contexts, np.int64))
    frame["label"] = words([item.effective for item in matrices])
    frame["consensus"] = words([item.consensus for item in matrices])
    frame["decided"] = joined([item.decided for item in matrices], np.bool_)
    frame["retained"] = joined([np.broadcast_to(item.retained, item.decided.shape) for item in matrices], np.bool_)
    return frame


def _pairs(
    store: Store, dataset: DatasetRow, attributes: npt.NDArray[np.int64], contexts: npt.NDArray[np.int64]
) -> pd.DataFrame:
    """Return the columns of PAIR for these attributes and contexts, ids of one length, in their order."""
    about = attribute_frame(store, dataset).set_index("attribute")
    with store.read() as connection:
        rows = {row.id: row.context for row in datasets.contexts(connection, dataset.id)}
    of_context = pd.DataFrame(
        [(item.recipient, item.task, item.sphere) for item in rows.values()],
        index=list(rows),
        columns=["recipient", "task", "sphere"],
    )
    texts = ["user", "key", "domain", "event"]
    about = about[["profile", *texts]].astype(dict.fromkeys(texts, "category"))
    frame = about.loc[attributes].reset_index()
    frame["context"] = contexts
    for name, column in of_context.astype("category").items():
        frame[name] = column.loc[pd.Index(contexts)].array
    return frame[PAIR]
