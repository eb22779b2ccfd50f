"""The order of the queue by value, the most informative pairs first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from cimemories.desk.queue import Ordering
from cimemories.extras.decision_value.effects import WIDTH
from cimemories.extras.decision_value.random_share import SHARE, interleaved
from cimemories.extras.decision_value.value import Aim, lacking, value_without, valued
from cimemories.review.index import Ints, PairIndex, Positions
from cimemories.review.queue import Filters, Order, in_order, select
from cimemories.store.engine import Store

TITLE = "most informative first"
NOT_OF_ALL = (
    "The random share is drawn from these pairs alone. For all pairs it speaks only without filters and with seed 0."
)


@dataclass(frozen=True)
class ByValue(Ordering):
    """An order with the pairs first that most reduce the uncertainty of a number, and those without a value by entropy.

    share: how much of the queue is drawn at random, 0 to 1. width: the target half-width of the label uncertainty, as a
    share."""

    order: Order = Order.ENTROPY
    aim: Aim = field(default_factory=Aim)
    share: float = SHARE
    width: float = WIDTH

    @property
    def name(self) -> list[object]:
        # Values move while people decide; the queue stays as it is.
        return ["value", self.seed, self.aim.target, self.aim.runs, self.share]

    @property
    def title(self) -> str:
        return TITLE

    def select(self, store: Store, index: PairIndex, filters: Filters) -> Positions:
        positions = select(store, index, filters, Order.ENTROPY)
        matching = np.zeros(len(index), np.bool_)
        matching[positions] = True
        value = valued(store, index, self.aim)
        if value is not None:
            # Few pairs have a value: they go before the others, which keep their order.
            positions = np.concatenate([value.front[matching[value.front]], positions[value.values[positions] == 0]])
        if not self.share:
            return positions
        by_hash = in_order(index, Order.RANDOM, self.seed)
        return interleaved(positions, by_hash[matching[by_hash]], self.share)

    def aside(self, store: Store, index: PairIndex) -> Sequence[str]:
        """Describe the uncertainty of the number now, and the work left to do."""
        value = valued(store, index, self.aim)
        return [lacking(self.aim)] if value is None else [value.sentence(self.width), value.beside]

    def note(self, filters: Filters) -> str:
        narrowed = replace(filters, undecided_by=None) != Filters()
        return NOT_OF_ALL if self.share and (narrowed or self.seed) else ""

    def summary(self, store: Store, index: PairIndex, decided: Ints) -> Sequence[str]:
        """Describe the effect of these decisions on the number."""
        now = valued(store, index, self.aim, batch=1)
        before = value_without(store, index, self.aim, decided)
        if now is None or before is None:
            return [lacking(self.aim)]
        return [now.since_sentence(before), now.sentence(self.width)]
