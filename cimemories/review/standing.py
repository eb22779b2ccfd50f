"""What people have decided of the pairs of a dataset, kept in memory and brought up to date by what is new.

Every decision moves the dataset's revision, so decisions are no part of the review index: of hundreds of thousands only
the newest few are read for each selection, and laid over the index.
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
from cimemories.review.index import Ints, PairShape
from cimemories.store.engine import Store
from cimemories.store.tables import dataset, decision

# Of two transactions on PostgreSQL the one with the lower ids may become visible later: what is younger than this is
# read again.
SETTLED_SECONDS = 60.0
DATASETS_CACHED = 8
_CODES = {str(label): code for label, code in CODES.items()}
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Standing:
    """The newest decision of everybody on every pair, at one moment. Arrays are shared: do not write to them.

    people: annotators in order of first appearance. keys: person x pairs + position, sorted; ids, labels: the newest
    decision there and its label code, UNLABELLED where it was taken back. decided: [pairs], the code of the newest
    decision that stands, whoever's, UNLABELLED where none does.
    """

    pairs: int
    people: tuple[str, ...]
    keys: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    labels: Codes
    decided: Codes

    def of(self, annotator: str) -> tuple[npt.NDArray[np.int64], Codes]:
        """The positions on which this person's decision stands, ascending, with the codes of the labels."""
        if annotator not in self.people:
            return np.zeros(0, np.int64), np.zeros(0, np.int8)
        person = self.people.index(annotator)
        # Keys are sorted by person first, so one person's are a slice.
        first, last = np.searchsorted(self.keys, [person * self.pairs, (person + 1) * self.pairs])
        labels = self.labels[first:last]
        stand = labels != UNLABELLED
        return self.keys[first:last][stand] - person * self.pairs, labels[stand]

    def deciders(self, positions: Ints, but: str | None = None) -> npt.NDArray[np.int32]:
        """How many people's decisions stand on each of these positions, not counting those of `but`."""
        counts = np.zeros(len(positions), np.int32)
        for person, name in enumerate(self.people):
            if len(self.keys) and name != but:
                at, there = _search(self.keys, np.asarray(positions, np.int64) + person * self.pairs)
                counts += there & (self.labels[at] != UNLABELLED)
        return counts

    def differing(self, annotator: str) -> npt.NDArray[np.int64]:
        """The positions on which this person's decision stands and somebody else's with another label."""
        positions, labels = self.of(annotator)
        differ = np.zeros(len(positions), np.bool_)
        for person, name in enumerate(self.people):
            if name != annotator and len(positions):
                at, there = _search(self.keys, positions + person * self.pairs)
                differ |= there & (self.labels[at] != UNLABELLED) & (self.labels[at] != labels)
        return positions[differ]


def _search(keys: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where each wanted key would be among sorted ones (there must be some), and whether it is there."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return at, keys[at] == wanted


class _Reader:
    """The decisions of one dataset as this process knows them."""

    def __init__(self, shape: PairShape) -> None:
        self.shape = shape
        self.lock = threading.Lock()
        self.revision = -1
        self.seen: list[tuple[float, int]] = [(0.0, 0)]  # when, and which id was the highest then
        nothing = np.zeros(0, np.int64)
        undecided = np.full(shape.pairs, UNLABELLED, np.int8)
        self.standing = Standing(shape.pairs, (), nothing, nothing, np.zeros(0, np.int8), undecided)

    def refresh(self, store: Store) -> Standing:
        # Under the lock, so that two threads do not lay the same rows over the arrays at once.
        with self.lock, store.read() as connection:
            revision = connection.execute(
                sa.select(dataset.c.revision).where(dataset.c.id == self.shape.dataset_id)
            ).scalar()
            if revision is not None and revision != self.revision:
                self._read(connection, is_sqlite=store.is_sqlite)
                self.revision = int(revision)
            return self.standing

    def _read(self, connection: sa.Connection, *, is_sqlite: bool) -> None:
        now = time.monotonic()
        # What remains at the front is the newest state that is surely settled.
        while len(self.seen) > 1 and self.seen[1][0] < now - SETTLED_SECONDS:
            self.seen.pop(0)
        # SQLite has one writer at a time, so its ids are seen in their order.
        after = self.seen[-1][1] if is_sqlite else self.seen[0][1]
        rows = connection.execute(
            sa.select(decision.c.id, decision.c.attribute, decision.c.context, decision.c.annotator, decision.c.label)
            .where(decision.c.dataset == self.shape.dataset_id, decision.c.id > after)
            .order_by(decision.c.id)
        ).all()
        if rows:
            self.seen.append((now, max(int(rows[-1][0]), self.seen[-1][1])))
            ids, attributes, contexts, names, labels = zip(*rows, strict=True)
            # Known people keep their numbers, which are a part of the keys.
            people = tuple(dict.fromkeys([*self.standing.people, *names]))
            person = {name: n for n, name in enumerate(people)}
            at = self.shape.locate(attributes, contexts)
            keys = np.array([person[name] for name in names], np.int64) * self.shape.pairs + at
            codes = np.array([_CODES.get(label or "", UNLABELLED) for label in labels], np.int8)
            own = at >= 0
            # A new object each time: who holds the one before goes on with a whole state.
            self.standing = _with(self.standing, people, keys[own], np.array(ids, np.int64)[own], codes[own])


def _with(before: Standing, people: tuple[str, ...], keys: Ints, ids: Ints, labels: Codes) -> Standing:
    """The standing decisions after further rows, in the order of their ids; some may be known already."""
    order = np.lexsort((ids, keys))
    keys, ids, labels = keys[order], ids[order], labels[order]
    # Of each key the last one, which has the highest id.
    newest = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
    keys, ids, labels = keys[newest], ids[newest], labels[newest]
    all_ids, all_labels = before.ids.copy(), before.labels.copy()
    at, there = _search(before.keys, keys) if len(before.keys) else (keys, np.zeros(len(keys), np.bool_))
    later = there.copy()
    # What is read again must not go before what is newer.
    later[there] = ids[there] > before.ids[at[there]]
    all_ids[at[later]], all_labels[at[later]] = ids[later], labels[later]
    # Inserted where they belong, so that keys stay sorted.
    where = np.searchsorted(before.keys, keys[~there])
    after = Standing(
        before.pairs,
        people,
        np.insert(before.keys, where, keys[~there]),
        np.insert(all_ids, where, ids[~there]),
        np.insert(all_labels, where, labels[~there]),
        before.decided.copy(),
    )
    # Only pairs with a new row can have another newest decision.
    touched = np.unique(keys % max(before.pairs, 1))
    best = np.full(len(touched), -1, np.int64)
    label = np.full(len(touched), UNLABELLED, np.int8)
    # Of everybody's decisions on a pair the one with the highest id stands for it.
    for person in range(len(people) if len(after.keys) else 0):
        at, there = _search(after.keys, touched + person * before.pairs)
        newer = there & (after.labels[at] != UNLABELLED) & (after.ids[at] > best)
        best[newer], label[newer] = after.ids[at][newer], after.labels[at][newer]
    after.decided[touched] = label
    return after


def standing(store: Store, shape: PairShape) -> Standing:
    """The decisions of a dataset that stand now."""
    return shared_cache.get("decisions", shape.key, lambda: _Reader(shape), most=DATASETS_CACHED).refresh(store)


def effective(consensus: Codes, standing: Standing) -> Codes:
    """Effective label codes: what the newest standing decision says, else the consensus; [pairs]."""
    return np.where(standing.decided != UNLABELLED, standing.decided, consensus)
