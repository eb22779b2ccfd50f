"""What people said of pairs, as arrays: for each person the newest of their own answers that stands.

An answer is a decision that a person made for themselves. An adjudication is none: it was made with the answers of the
others in sight, so that counting it would make people agree who did not. What was taken back is not counted, and an
undo brings back the answer that stood before, blind where that was.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.curation.consensus import CODES, UNLABELLED
from cimemories.model import Label
from cimemories.store.decisions import UNDO
from cimemories.store.engine import Store
from cimemories.store.tables import dataset, decision

ADJUDICATED = "adjudicated"
CATEGORIES = len(CODES)
HELD = 8
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Answers:
    """Who said what of which pair. people: names in order. attributes, contexts: ids [pairs], ordered by both, each
    pair answered by somebody. said: label codes [people, pairs], UNLABELLED where the person says nothing. blind:
    [people, pairs], whether it was said without sight of the votes. order: [people, pairs], grows with the time of
    saying. adjudicated: pairs of the dataset that have been adjudicated, which is not among the answers."""

    people: tuple[str, ...]
    attributes: Ints
    contexts: Ints
    said: Labels
    blind: Bools
    order: Ints
    adjudicated: int

    @property
    def counts(self) -> Ints:
        """How many people gave each label: [pairs, label codes]."""
        return np.stack([(self.said == code).sum(axis=0) for code in range(CATEGORIES)], axis=1).astype(np.int64)

    def blind_only(self) -> Answers:
        """Only what was said without sight of the votes; what people said otherwise is as if unsaid."""
        return replace(self, said=np.where(self.blind, self.said, UNLABELLED).astype(np.int8)).answered()

    def at(self, keep: Bools) -> Answers:
        """Only these pairs; keep: [pairs]."""
        return replace(
            self,
            attributes=self.attributes[keep],
            contexts=self.contexts[keep],
            said=self.said[:, keep],
            blind=self.blind[:, keep],
            order=self.order[:, keep],
        )

    def answered(self) -> Answers:
        """Without pairs of which nobody says anything. All people stay, also those who say nothing here."""
        return self.at((self.said != UNLABELLED).any(axis=0))

    def together(self) -> Labels:
        """What all people say together: the label that most of them give; of labels that as many give, the one that was
        given last. [pairs]; UNLABELLED where nobody says anything."""
        if not len(self.people):
            return np.full(len(self.attributes), UNLABELLED, np.int8)
        counts = self.counts
        last = np.stack([np.where(self.said == code, self.order, -1).max(axis=0) for code in range(CATEGORIES)], axis=1)
        most = counts == counts.max(axis=1, keepdims=True)
        best = np.where(most, last, -1).argmax(axis=1)
        return np.where(counts.sum(axis=1) > 0, best, UNLABELLED).astype(np.int8)


_held: OrderedDict[tuple[object, ...], Answers] = OrderedDict()
_lock = threading.Lock()


def answers(store: Store, dataset_id: int) -> Answers:
    """The answers of a dataset, held in memory until a decision moves its revision. The arrays are shared: do not write
    to them. Without any decision, or for an unknown dataset, nobody says anything of no pair."""
    with store.read() as connection:
        revision = connection.execute(sa.select(dataset.c.revision).where(dataset.c.id == dataset_id)).scalar()
        key = (str(store.engine.url), str(store.workspace.absolute()), dataset_id, revision)
        with _lock:
            if key in _held:
                return _held[key]
        query = (
            sa.select(*(decision.c[name] for name in COLUMNS))
            .where(decision.c.dataset == dataset_id)
            .order_by(decision.c.id)
        )
        events = pd.DataFrame(connection.execute(query).all(), columns=list(COLUMNS))
    made = of_events(events)
    with _lock:
        _held[key] = made
        while len(_held) > HELD:
            _held.popitem(last=False)
    return made


COLUMNS = ("id", "annotator", "attribute", "context", "label", "source", "blind")


def of_events(events: pd.DataFrame) -> Answers:
    """The answers that decisions come to. events: COLUMNS of the table of decisions, oldest first."""
    people, person = np.unique(events["annotator"].to_numpy(str), return_inverse=True)
    pairs, pair = np.unique(events[["attribute", "context"]].to_numpy(np.int64), axis=0, return_inverse=True)
    cell = person.reshape(-1).astype(np.int64) * len(pairs) + pair.reshape(-1)
    codes = events["label"].map({str(label): CODES[label] for label in Label}).fillna(UNLABELLED).to_numpy(np.int64)
    source = events["source"].to_numpy(object)
    kept = _standing(cell, source == UNDO)
    adjudicated = len(np.unique(pair.reshape(-1)[kept & (source == ADJUDICATED) & (codes != UNLABELLED)]))
    own = np.flatnonzero(kept & (source != ADJUDICATED))
    # Events are in the order of time, and of several values for one cell numpy keeps the last.
    flat = np.full(len(people) * len(pairs), -1, np.int64)
    flat[cell[own]] = own
    newest = flat.reshape(len(people), len(pairs))
    there = newest >= 0
    at = np.where(there, newest, 0)
    if not len(events):
        said, blind = np.zeros(newest.shape, np.int8), np.zeros(newest.shape, np.bool_)
    else:
        said = np.where(there, codes[at], UNLABELLED).astype(np.int8)
        blind = there & events["blind"].to_numpy(np.bool_)[at]
    order = np.where(said != UNLABELLED, newest, -1)
    found = Answers(tuple(map(str, people)), pairs[:, 0], pairs[:, 1], said, blind, order, adjudicated)
    return found.answered()


def _standing(cell: Ints, undone: Bools) -> Bools:
    """Which events no undo has taken away: [events]. What a person says of a pair is a stack: an undo takes the top
    away, anything else comes onto it. An undo with nothing beneath it (carried from an earlier version) is an answer.
    """
    kept = np.ones(len(cell), np.bool_)
    stacks: dict[int, list[int]] = {}
    touched = np.isin(cell, cell[undone])
    for position in np.flatnonzero(touched).tolist():
        stack = stacks.setdefault(int(cell[position]), [])
        if undone[position] and stack:
            kept[stack.pop()] = False
            kept[position] = False
        else:
            stack.append(position)
    return kept
