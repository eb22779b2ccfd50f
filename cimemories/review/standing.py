"""The standing decisions of a dataset, cached in memory and updated with new ones.

Every decision moves the dataset's revision, so decisions are no part of the review index: of hundreds of thousands only
those on the pairs of the newest few are read for each selection, and laid over the index.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.flows.cache import shared_cache
from cimemories.flows.labels import CODES, UNLABELLED
from cimemories.review.index import Ints, PairShape, search
from cimemories.store.decisions import moment
from cimemories.store.engine import Store
from cimemories.store.rows import CHUNK
from cimemories.store.tables import dataset, decision, review_import

# Of two transactions on PostgreSQL the one with the lower ids may become visible later: what is younger than this is
# read again.
SETTLED_SECONDS = 60.0
DATASETS_CACHED = 8
_CODES = {str(label): code for label, code in CODES.items()}
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Standing:
    """The newest decision of each person on each pair, at one moment. Arrays are shared: do not write to them.

    people: annotators in order of first appearance. keys: person x pairs + position, sorted; labels: the code of the
    newest decision there, UNLABELLED where it was taken back. decided: [pairs], the code of the newest standing
    decision of any person, UNLABELLED where there is none. Newest: by the time it was made, and then by uid.
    """

    pairs: int
    people: tuple[str, ...]
    keys: npt.NDArray[np.int64]
    labels: Codes
    decided: Codes

    def of(self, annotator: str) -> tuple[npt.NDArray[np.int64], Codes]:
        """Return the positions on which this person's decision stands, ascending, with the codes of the labels."""
        if annotator not in self.people:
            return np.zeros(0, np.int64), np.zeros(0, np.int8)
        person = self.people.index(annotator)
        # Keys are sorted by person first, so one person's are a slice.
        first, last = np.searchsorted(self.keys, [person * self.pairs, (person + 1) * self.pairs])
        labels = self.labels[first:last]
        stand = labels != UNLABELLED
        return self.keys[first:last][stand] - person * self.pairs, labels[stand]

    def deciders(self, positions: Ints, but: str | None = None) -> npt.NDArray[np.int32]:
        """Count the people whose decisions stand on each of these positions, without `but`."""
        counts = np.zeros(len(positions), np.int32)
        for person, name in enumerate(self.people):
            if len(self.keys) and name != but:
                at = search(self.keys, np.asarray(positions, np.int64) + person * self.pairs)
                counts += (at >= 0) & (self.labels[at] != UNLABELLED)
        return counts

    def differing(self, annotator: str) -> npt.NDArray[np.int64]:
        """Return the positions on which this person's and another person's standing decisions differ."""
        positions, labels = self.of(annotator)
        differ = np.zeros(len(positions), np.bool_)
        for person, name in enumerate(self.people):
            if name != annotator and len(positions):
                at = search(self.keys, positions + person * self.pairs)
                differ |= (at >= 0) & (self.labels[at] != UNLABELLED) & (self.labels[at] != labels)
        return positions[differ]


class _Reader:
    """Cache of the decisions of one dataset."""

    def __init__(self, shape: PairShape) -> None:
        self.shape = shape
        self.lock = threading.Lock()
        self.revision, self.undone = -1, 0
        self._forget()

    def _forget(self) -> None:
        shape = self.shape
        self.seen: list[tuple[float, int]] = [(0.0, 0)]  # when, and which id was the highest then
        nothing = np.zeros(0, np.int64)
        undecided = np.full(shape.pairs, UNLABELLED, np.int8)
        self.standing = Standing(shape.pairs, (), nothing, np.zeros(0, np.int8), undecided)

    def refresh(self, store: Store) -> Standing:
        # Under the lock, so that two threads do not lay the same rows over the arrays at once.
        with self.lock, store.read() as connection:
            of = self.shape.dataset_id
            undone = sa.select(sa.func.count(review_import.c.undone)).where(review_import.c.dataset == of)
            row = connection.execute(
                sa.select(dataset.c.revision, undone.scalar_subquery().label("undone")).where(dataset.c.id == of)
            ).first()
            if row is not None and row.revision != self.revision:
                if row.undone != self.undone:
                    # Undone imports remove rows, whose ids SQLite gives out again: no id tells what is new.
                    self._forget()
                self._read(connection, is_sqlite=store.is_sqlite)
                self.revision, self.undone = int(row.revision), int(row.undone)
            return self.standing

    def _read(self, connection: sa.Connection, *, is_sqlite: bool) -> None:
        now = time.monotonic()
        # What remains at the front is the newest state that is surely settled.
        while len(self.seen) > 1 and self.seen[1][0] < now - SETTLED_SECONDS:
            self.seen.pop(0)
        # SQLite has one writer at a time, so its ids are seen in their order.
        after = self.seen[-1][1] if is_sqlite else self.seen[0][1]
        names = ("id", "created", "uid", "attribute", "context", "annotator", "label")
        query = sa.select(*(decision.c[name] for name in names)).where(decision.c.dataset == self.shape.dataset_id)
        new = connection.execute(query.where(decision.c.id > after)).all()
        if not new:
            return
        self.seen.append((now, max(self.seen[-1][1], *(row.id for row in new))))
        rows = list(new)
        if after:
            # An import brings events that are older than what is known of their pairs: all of these are read.
            touched = {(row.attribute, row.context) for row in new}
            ids = list({a for a, _ in touched})
            of_attributes = query.where(decision.c.attribute.in_(ids)) if len(ids) <= CHUNK else query
            rows = [row for row in connection.execute(of_attributes) if (row.attribute, row.context) in touched]
        rows.sort(key=moment)
        # People keep their numbers, which are a part of the keys.
        people = tuple(dict.fromkeys([*self.standing.people, *(row.annotator for row in rows)]))
        person = {name: n for n, name in enumerate(people)}
        at = self.shape.locate([row.attribute for row in rows], [row.context for row in rows])
        keys = np.array([person[row.annotator] for row in rows], np.int64) * self.shape.pairs + at
        codes = np.array([_CODES.get(row.label or "", UNLABELLED) for row in rows], np.int8)
        in_dataset = at >= 0
        # A new object each time: holders of the previous one keep a consistent state.
        self.standing = _with(self.standing, people, keys[in_dataset], codes[in_dataset])


def _with(before: Standing, people: tuple[str, ...], keys: Ints, labels: Codes) -> Standing:
    """Return the standing decisions after these rows, which are all decisions on some pairs, by time and then uid."""
    # Of each key the last row, which is the newest; `moments` tells which of two people's is.
    keys, last = np.unique(keys[::-1], return_index=True)
    moments = len(labels) - 1 - last
    labels = labels[moments]
    all_labels = before.labels.copy()
    at = search(before.keys, keys)
    there = at >= 0
    all_labels[at[there]] = labels[there]
    # Inserted where they belong, so that keys stay sorted.
    where = np.searchsorted(before.keys, keys[~there])
    decided = before.decided.copy()
    if before.pairs:
        # Only pairs with a new row can have another newest decision.
        pairs = keys % before.pairs
        decided[pairs] = UNLABELLED
        # By time: of several assignments to one place numpy keeps the last.
        in_time = np.argsort(moments)
        in_time = in_time[labels[in_time] != UNLABELLED]
        decided[pairs[in_time]] = labels[in_time]
    return Standing(
        before.pairs,
        people,
        np.insert(before.keys, where, keys[~there]),
        np.insert(all_labels, where, labels[~there]),
        decided,
    )


def standing(store: Store, shape: PairShape) -> Standing:
    """Return the decisions of a dataset that stand now."""
    return shared_cache.get("decisions", shape.key, lambda: _Reader(shape), most=DATASETS_CACHED).refresh(store)


def effective(consensus: Codes, standing: Standing) -> Codes:
    """Return effective label codes: the newest standing decision's, else the consensus; [pairs]."""
    return np.where(standing.decided != UNLABELLED, standing.decided, consensus)
