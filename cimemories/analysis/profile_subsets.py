"""What the numbers and the order of models would have been with fewer profiles.

A number is a mean over profiles, so every subset of k of them gives another. All subsets are looked at where there are
at most MOST, else so many drawn at random with a fixed seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from cimemories.analysis.cube import Bools, Floats
from cimemories.analysis.ranking import Measure, ranks
from cimemories.analysis.rates import balanced_many
from cimemories.analysis.relabel import mean_over
from cimemories.analysis.sensitivity import Study

MOST, SEED = 1000, 20
BAND = (2.5, 97.5)  # percent of the subsets that lie below and above


@dataclass(frozen=True)
class Subsets:
    """The numbers with k profiles, over subsets of the common ones: mean and the middle 95 % of the subsets, [runs].

    count: how many subsets; all: whether these are all there are. same_order: the share of subsets with the very order
    of all profiles; same_best: with the same best run; nan with one run.
    """

    k: int
    count: int
    all: bool
    mean: Floats
    low: Floats
    high: Floats
    same_order: float
    same_best: float


@dataclass(frozen=True)
class ByProfiles:
    """Subsets of 1 to all common profiles. runs: positions of the runs that are in it; left_out: of those that are not,
    since they have fewer than two profiles in common with the others. profiles: how many are in common."""

    runs: tuple[int, ...]
    left_out: tuple[int, ...]
    profiles: int
    by_k: tuple[Subsets, ...]


def by_profiles(found: Study, measure: Measure) -> ByProfiles:
    """What fewer profiles would have said, by the current settings of the study. `by_k` is empty where no two runs, or
    no single one, have two profiles."""
    people = [set(item.profiles) for item in found.subjects]
    widest = max(people, key=len)
    runs = tuple(n for n, own in enumerate(people) if len(own & widest) > 1)
    common = sorted(set.intersection(*(people[n] for n in runs))) if runs else []
    left_out = tuple(n for n in range(len(people)) if n not in runs)
    if len(common) < 2:
        return ByProfiles((), tuple(range(len(people))), len(common), ())
    numbers = found.alone(runs).at(found.base)
    rows = [np.searchsorted(found.subjects[n].profiles, common) for n in runs]
    violation = np.stack([item.violation[row, 0] for item, row in zip(numbers, rows, strict=True)])
    complete = np.stack([item.completeness[row, 0] for item, row in zip(numbers, rows, strict=True)])
    by_k = tuple(subsets(violation, complete, k, measure) for k in range(1, len(common) + 1))
    return ByProfiles(runs, left_out, len(common), by_k)


def subsets(violation: Floats, complete: Floats, k: int, measure: Measure) -> Subsets:
    """violation, complete: [runs, profiles], nan where a profile has none. Raises ValueError for k < 1 or above the
    number of profiles."""
    runs, many = violation.shape
    if not 1 <= k <= many:
        raise ValueError(f"k must be from 1 to {many}, this is {k}")
    chosen = _chosen(many, k)
    values = _values(violation, complete, chosen, measure)
    with_all = _values(violation, complete, np.ones((1, many), np.bool_), measure)
    order, whole = ranks(values, measure), ranks(with_all, measure)
    same = (order == whole) | (np.isnan(order) & np.isnan(whole))
    best = ((order == 1) == (whole == 1)).all(axis=0)
    defined = np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values)
    low, high = (
        np.where(np.isnan(values).all(axis=1), np.nan, np.nanpercentile(defined, side, axis=1)) for side in BAND
    )
    return Subsets(
        k=k,
        count=len(chosen),
        all=comb(many, k) <= MOST,
        mean=mean_over(values, axis=1),
        low=low,
        high=high,
        same_order=float(same.all(axis=0).mean()) if runs > 1 else float("nan"),
        same_best=float(best.mean()) if runs > 1 else float("nan"),
    )


def _values(violation: Floats, complete: Floats, chosen: Bools, measure: Measure) -> Floats:
    """The number of each run over each subset: [runs, subsets]. chosen: [subsets, profiles]."""
    parts = [mean_over(np.where(chosen, whole[:, None, :], np.nan), axis=2) for whole in (violation, complete)]
    if measure == Measure.BALANCED:
        return balanced_many(parts[0], parts[1])
    return parts[0] if measure == Measure.VIOLATION else parts[1]


def _chosen(many: int, k: int) -> Bools:
    """Subsets of k of so many profiles: [subsets, profiles]."""
    if comb(many, k) <= MOST:
        picked = np.array(list(combinations(range(many), k)), np.int64)
        chosen = np.zeros((len(picked), many), np.bool_)
        np.put_along_axis(chosen, picked, True, axis=1)
        return chosen
    chance = np.random.default_rng(SEED)
    first = np.broadcast_to(np.arange(many) < k, (MOST, many))
    return chance.permuted(first, axis=1)
