"""A dataset whose votes leave open what a judged run leaks, so that decisions are worth something."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from worlds import add_dataset, add_labels, add_run

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.model import Label
from cimemories.review.index import PairIndex, pair_index
from cimemories.store import decisions
from cimemories.store.engine import Store
from cimemories.store.tables import ballot, vote

PROFILES, ATTRIBUTES, CONTEXTS, SAMPLES = 2, 12, 4, 3
SHAPE = PROFILES, ATTRIBUTES, CONTEXTS


@dataclass(frozen=True)
class World:
    """reveals: of the first run, [profile, attribute, context]. labels: consensus codes in the same shape."""

    store: Store
    dataset: int
    labelling: str
    run: str
    labels: np.ndarray
    reveals: np.ndarray

    def index(self) -> PairIndex:
        return pair_index(self.store, self.dataset, self.labelling)

    def say(self, positions: list[int], label: Label = Label.AMBIGUOUS, who: str = "Ada") -> None:
        new_decisions = [decisions.NewDecision(*pair, label) for pair in self.index().pairs(np.array(positions))]
        with self.store.write() as connection:
            decisions.add_all(connection, self.dataset, who, new_decisions)


def made(store: Store, **changes: object) -> World:
    """Every context has a necessary and an inappropriate attribute; half of the others are ambiguous."""
    row = add_dataset(store, *SHAPE)
    draw = np.random.default_rng(0)
    labels = draw.choice([AMBIGUOUS, AMBIGUOUS, NECESSARY, INAPPROPRIATE], SHAPE)
    labels[:, 0], labels[:, 1] = NECESSARY, INAPPROPRIATE
    labelling = add_labels(store, row.id, labels)
    # Of an ambiguous pair two personas abstain: the first one calls it inappropriate here.
    with store.write() as connection:
        first = sa.select(sa.func.min(ballot.c.persona)).scalar_subquery()
        own = sa.select(ballot.c.id).where(ballot.c.persona == first)
        changed = sa.update(vote).where(vote.c.ballot.in_(own), vote.c.verdict == "abstain")
        connection.execute(changed.values(verdict="inappropriate"))
    reveals = draw.integers(0, SAMPLES + 1, SHAPE)
    return World(store, row.id, labelling, add_run(store, row.id, SAMPLES, reveals, **changes), labels, reveals)
