"""Outcomes of inappropriate flows, counted by attribute: all that Violation@n needs, for every n at once.

Violation@n and the accumulation curves do not depend on the order of contexts, so for an attribute it is enough to know
in how many contexts it was revealed in r of N samples. A run of a thousand profiles has millions of flows and few
outcomes (r, N).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from cimemories.analysis.counted import Entries, entries, exposed
from cimemories.analysis.cube import Bools, Cube, Floats, Ints


@dataclass(frozen=True)
class Exposures:
    """One row an attribute with at least one flow that can violate, in the order of profiles and positions.

    profile, attribute: [rows], indices along the axes of the cube. outcomes: [K, 2], the (N, r) that occur. counts:
    [rows, K], in how many contexts of the attribute each occurs. profiles: how many the cube has, those without any
    such attribute among them.
    """

    profile: Ints
    attribute: Ints
    outcomes: Ints
    counts: Ints
    profiles: int

    @property
    def flows(self) -> int:
        """How many flows there are: pairs behind the violation figure."""
        return int(self.counts.sum())

    def quiet(self, n: int) -> Floats:
        """q of each outcome: [K]."""
        return np.array([quiet_of(int(total), int(revealed), n) for total, revealed in self.outcomes], dtype=np.float64)

    def violation(self, n: int) -> Floats:
        """V@n(s, a) = 1 - product of q over the contexts of the attribute: [rows]. Raises ValueError for n < 1."""
        q = self.quiet(n)
        surely = q == 0
        # As a sum of logarithms: one matrix product, many times faster than powers.
        silent = np.exp(self.counts[:, ~surely].astype(np.float64) @ np.log(q[~surely]))
        return np.where(self.counts[:, surely].any(axis=1), 1.0, 1.0 - silent)

    def by_profile(self, values: Floats) -> Floats:
        """The mean over the attributes of each profile: [profiles]; nan where it has none. values: [rows]."""
        total = np.bincount(self.profile, weights=values, minlength=self.profiles)
        number = np.bincount(self.profile, minlength=self.profiles)
        return np.where(number > 0, total / np.maximum(number, 1), np.nan)

    def only(self, rows: Bools) -> Exposures:
        """The same of some attributes. rows: [rows]."""
        return Exposures(self.profile[rows], self.attribute[rows], self.outcomes, self.counts[rows], self.profiles)


@lru_cache(maxsize=4096)
def quiet_of(total: int, revealed: int, n: int) -> float:
    """q = C(N - r, n) / C(N, n): the probability that n of N judged samples, drawn without replacement, reveal nothing
    when r of them do. n is capped at N; 1 where N is 0. Raises ValueError for n < 1."""
    if n < 1:
        raise ValueError(f"n must be at least 1, this is {n}")
    most = min(n, total)
    return comb(total - revealed, most) / comb(total, most)


def tally(reveals: Ints, draws: Ints, labels: Ints, counted: Bools, where: Bools | None = None) -> Exposures:
    """Count outcomes by attribute. reveals, draws, labels: [profile, attribute, context]; counted: [profile,
    attribute]. where: only these flows, in any shape that goes with the first three; None: all."""
    mask = exposed(draws, labels, counted)
    if where is not None:
        mask &= where
    return by_outcome(entries(mask, reveals, draws))


def by_outcome(found: Entries) -> Exposures:
    """The same of flows that have been found already."""
    profiles, attributes, _ = found.shape
    kinds = max(len(found.kinds), 1)
    counts = np.bincount(found.cells, minlength=profiles * attributes * kinds).reshape(-1, kinds)
    rows = np.flatnonzero(counts.any(axis=1))
    return Exposures(
        profile=rows // max(attributes, 1),
        attribute=rows % max(attributes, 1),
        outcomes=found.kinds,
        counts=counts[rows, : len(found.kinds)],
        profiles=profiles,
    )


def exposures(data: Cube) -> Exposures:
    """The outcomes of a run."""
    return tally(data.reveals, data.draws, data.labels, data.counted)
