"""Two-by-two tables of a stratified audit: what a judge says against what a person says, weighted up to the population.

                     person: no   yes
    judge: no             TN      FN
    judge: yes            FP      TP

An item of stratum h stands for size_h / n_h items of the population, n_h those that have been answered: a slice that is
answered in part speaks for the whole as well, only less surely. All functions are pure and work on any leading axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cimemories.analysis.kappa import LEAST_DEFINED, LEVEL, NO_SPREAD, OFTEN_UNDEFINED, RESAMPLES, Figure
from cimemories.analysis.kappa import agreement_of as agreement
from cimemories.analysis.kappa import kappa_of as kappa

__all__ = [
    "Statistic",
    "Strata",
    "agreement",
    "f1",
    "figure",
    "interval",
    "kappa",
    "precision",
    "recall",
    "specificity",
    "tables",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Statistic = Callable[[Floats], Floats]  # of tables [..., 2, 2], nan where undefined


@dataclass(frozen=True)
class Strata:
    """Answered items by stratum. counts: [strata, judge no/yes, person no/yes]; sizes: [strata], how many items of the
    population each stratum has. Strata in which nothing is answered are not among them."""

    counts: Ints
    sizes: Floats

    @property
    def items(self) -> Ints:
        """Answered items, unweighted: [judge, person]."""
        return np.asarray(self.counts.sum(axis=0), np.int64)

    def total(self) -> Floats:
        """What the items stand for: [judge, person]; zeros where there is none."""
        return np.asarray((self._factors()[:, None, None] * self.counts).sum(axis=0), np.float64)

    def _factors(self) -> Floats:
        answered = self.counts.sum(axis=(1, 2))
        return np.asarray(self.sizes / np.maximum(answered, 1), np.float64)

    def resampled(self, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
        """Bootstrap within strata: [resamples, judge, person] of totals.

        Items of one stratum and cell cannot be told apart, so how often each cell is drawn is binomial twice over:
        first what the judge says, then what the person says of it. Resampling can never show an error that no item
        shows: a stratum in which twenty of twenty were right would count as if all thousands that they stand for were.
        So where all answers of a person are the same and the items stand for more than themselves, their share is drawn
        from what twenty such answers leave possible, the posterior Beta(k + 1/2, n - k + 1/2) of Jeffreys' prior
        (Brown, Cai, DasGupta 2001, Statistical Science 16, 101-133).
        """
        rng = np.random.default_rng(seed)
        answered = self.counts.sum(axis=(1, 2))
        by_judge = self.counts.sum(axis=2)
        yes = rng.binomial(answered, by_judge[:, 1] / np.maximum(answered, 1), size=(resamples, len(answered)))
        said = np.stack([answered - yes, yes], axis=2)
        share = self.counts[:, :, 1] / np.maximum(by_judge, 1)
        found = rng.binomial(said, share).astype(np.float64)
        alike = (by_judge > 0) & ((share == 0) | (share == 1)) & (self._factors() > 1 + 1e-9)[:, None]
        possible = rng.beta(self.counts[:, :, 1] + 0.5, self.counts[:, :, 0] + 0.5, size=found.shape)
        found = np.where(alike, said * possible, found)
        cells = np.stack([said - found, found], axis=3)
        return np.asarray(np.einsum("h,rhjp->rjp", self._factors(), cells))


def tables(judge: Bools, person: Bools, stratum: Ints, sizes: Floats) -> Strata:
    """Items sorted into strata. judge, person: [items]; stratum: [items], positions in sizes; sizes: [strata]."""
    flat = np.bincount(stratum * 4 + judge * 2 + person, minlength=4 * len(sizes))
    counts = flat.reshape(len(sizes), 2, 2)
    kept = counts.sum(axis=(1, 2)) > 0
    return Strata(counts[kept], np.asarray(sizes, np.float64)[kept])


def precision(table: Floats) -> Floats:
    """TP / (TP + FP): of what the judge says is revealed, the share that is; nan where it says so of nothing."""
    return _share(table[..., 1, 1], table[..., 1, 0])


def recall(table: Floats) -> Floats:
    """TP / (TP + FN), also called sensitivity: of what is revealed, the share that the judge finds; nan where nothing
    is revealed."""
    return _share(table[..., 1, 1], table[..., 0, 1])


def specificity(table: Floats) -> Floats:
    """TN / (TN + FP): of what is not revealed, the share that the judge leaves alone; nan where all is revealed."""
    return _share(table[..., 0, 0], table[..., 1, 0])


def f1(table: Floats) -> Floats:
    """2 TP / (2 TP + FP + FN), the harmonic mean of precision and recall; nan where nobody sees any reveal."""
    return _share(2 * table[..., 1, 1], table[..., 0, 1] + table[..., 1, 0])


def _share(part: Floats, rest: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / (part + rest), np.float64)


def figure(statistic: Statistic, strata: Strata, resampled: Floats, items: int, undefined: str) -> Figure:
    """One statistic of the weighted table with its interval; `items` are those that it rests on, and `undefined` says
    why where it has no value."""
    value = statistic(strata.total()) if len(strata.sizes) else np.asarray(np.nan)
    if np.isnan(value):
        return Figure(None, None, None, items, undefined)
    return interval(float(value), statistic(resampled), items)


def interval(value: float, resampled: Floats, items: int) -> Figure:
    """A value with the middle 95 % of its resamples, which are made to hold the value itself; without an interval where
    more than 5 % of the resamples leave it undefined, or all of them are the same."""
    defined = resampled[~np.isnan(resampled)]
    if len(defined) < LEAST_DEFINED * len(resampled):
        return Figure(value, None, None, items, OFTEN_UNDEFINED)
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    if defined.max() - defined.min() <= 1e-12:
        return Figure(value, None, None, items, NO_SPREAD)
    return Figure(value, min(float(low), value), max(float(high), value), items)
