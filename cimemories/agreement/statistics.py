"""Agreement on nominal answers, corrected for chance: Cohen's kappa, Gwet's AC1, Krippendorff's alpha, with intervals.

Pure functions on small codes. Where a statistic is undefined it is None, never a number, and a `Figure` says why:

                                    kappa      AC1        alpha
    nothing, or one item alone      undefined  undefined  undefined
    all answers are the same        undefined  1          undefined
    one annotator alone             -          -          undefined

Kappa and alpha compare with the agreement expected by chance; where all answers are the same, chance explains all of
it. AC1 takes chance agreement to be at most 1 / categories, so that it is defined there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import krippendorff
import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
LEVEL = 0.95
LEAST_DEFINED = 0.95  # of the resamples, for an interval of those that are defined to speak for all
TOO_FEW = "fewer than two were answered by both"
ONE_ANSWER = "everybody gave one and the same answer to everything, so that chance alone explains the agreement"
NO_OVERLAP = "fewer than two were answered by two or more"
NO_SPREAD = "every resample gives the same number, which says nothing of how far chance could move it"
OFTEN_UNDEFINED = "too many of the resamples leave it undefined"

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]


@dataclass(frozen=True)
class Figure:
    """One statistic over `items`. value None: undefined, and `why` says why. low, high: its 95 % percentile bootstrap
    interval over the items; None where there is none, and `why` then says why."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    why: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two answers to the same items. table: [first, second], how often (with weights: for how many of the population)
    each two answers meet. agreement: the share on the diagonal."""

    items: int
    table: Floats
    agreement: Figure
    kappa: Figure
    ac1: Figure


def confusion(
    first: npt.ArrayLike, second: npt.ArrayLike, categories: int, weights: npt.ArrayLike | None = None
) -> Floats:
    """How often each two answers meet: [categories, categories]; sums of the weights where given.

    first, second: codes 0 to categories - 1, [items]. Raises ValueError for fewer than two categories, another code,
    or arrays that are not of one length.
    """
    one, two = np.asarray(first, np.int64), np.asarray(second, np.int64)
    mass = np.ones(len(one)) if weights is None else np.asarray(weights, np.float64)
    if categories < 2:
        raise ValueError(f"agreement needs two categories or more, not {categories}")
    if not len(one) == len(two) == len(mass):
        raise ValueError(f"{len(one)} first answers, {len(two)} second ones and {len(mass)} weights do not match")
    if len(one) and (min(one.min(), two.min()) < 0 or max(one.max(), two.max()) >= categories):
        raise ValueError(f"answers must be codes from 0 to {categories - 1}")
    cells = np.bincount(one * categories + two, weights=mass, minlength=categories**2)
    return cells.astype(np.float64).reshape(categories, categories)


def cohen_kappa(
    first: npt.ArrayLike, second: npt.ArrayLike, categories: int, weights: npt.ArrayLike | None = None
) -> float | None:
    """(p - e) / (1 - e): p the share of items with the same answer, e the share expected if both answered
    independently, each with the shares of its own answers (J. Cohen 1960, Educational and Psychological Measurement
    20, 37-46). weights: what each item stands for. None as the module says; errors of `confusion`."""
    return _number(kappa_of(confusion(first, second, categories, weights)), len(np.asarray(first)))


def gwet_ac1(
    first: npt.ArrayLike, second: npt.ArrayLike, categories: int, weights: npt.ArrayLike | None = None
) -> float | None:
    """(p - e) / (1 - e) with e = sum of s (1 - s) / (categories - 1), s the share of a category over both (K. L. Gwet
    2008, British Journal of Mathematical and Statistical Psychology 61, 29-48). It does not collapse where one answer
    is much more frequent than the others. Categories that nobody used count. None and errors as cohen_kappa."""
    return _number(ac1_of(confusion(first, second, categories, weights)), len(np.asarray(first)))


def krippendorff_alpha(counts: npt.ArrayLike) -> float | None:
    """Krippendorff's alpha for nominal answers, by the package `krippendorff`. counts: how many annotators gave each
    answer, [items, categories]; items answered by fewer than two enter nowhere. None as the module says."""
    usable = _pairable(counts)
    if _no_alpha(usable):
        return None
    return float(krippendorff.alpha(value_counts=usable, level_of_measurement="nominal"))


def interval(
    statistic: Callable[[Codes], float | None], n: int, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float] | None:
    """The 95 % percentile bootstrap interval of any statistic of n items: `statistic` gets positions, [n], drawn with
    replacement. None where n < 2, where more than 5 % of the resamples leave it undefined, or where all of them give
    the same number. Slower than `compare` and `alpha`, which resample the counts of like items instead."""
    if n < 2:
        return None
    rng = np.random.default_rng(seed)
    found = [statistic(rng.integers(0, n, n)) for _ in range(resamples)]
    bounds = _bounds(np.array([np.nan if value is None else value for value in found], np.float64))
    return bounds if isinstance(bounds, tuple) else None


def compare(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    categories: int,
    weights: npt.ArrayLike | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Raw agreement, kappa and AC1 of two answers to the same items, with intervals.

    With weights (of a stratified sample: what each item stands for) all three speak for the population. Items are
    drawn with their weights as if there had been no strata, which makes the interval rather too wide than too narrow.
    """
    one, two = np.asarray(first, np.int64), np.asarray(second, np.int64)
    mass = np.ones(len(one)) if weights is None else np.asarray(weights, np.float64)
    table = confusion(one, two, categories, mass)
    drawn = _resampled(one * categories + two, mass, categories**2, resamples, seed).reshape(-1, categories, categories)

    def figure(statistic: Statistic) -> Figure:
        value = _number(statistic(table), len(one))
        if value is None:
            return Figure(None, None, None, len(one), TOO_FEW if len(one) < 2 else ONE_ANSWER)
        return _figure(value, statistic(drawn), len(one))

    return Comparison(len(one), table, figure(agreement_of), figure(kappa_of), figure(ac1_of))


def alpha(counts: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Figure:
    """Krippendorff's alpha as `krippendorff_alpha` has it, with its interval over the items that count."""
    usable = _pairable(counts)
    if why := _no_alpha(usable):
        return Figure(None, None, None, len(usable), why)
    # One whole number a row tells the rows apart, and is sorted many times faster than rows are.
    shape = tuple(int(most) + 1 for most in usable.max(axis=0))
    kinds, number = np.unique(np.ravel_multi_index(tuple(usable.T), shape), return_counts=True)
    patterns = np.stack(np.unravel_index(kinds, shape), axis=1)
    drawn = np.random.default_rng(seed).multinomial(len(usable), number / len(usable), size=resamples)
    value = float(krippendorff.alpha(value_counts=usable, level_of_measurement="nominal"))
    return _figure(value, _alphas(patterns, drawn), len(usable))


def agreement_of(table: Floats) -> Floats:
    """The share on the diagonal, nan for an empty table: [...] of tables [..., q, q]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.trace(table, axis1=-2, axis2=-1) / table.sum(axis=(-2, -1)))


def kappa_of(table: Floats) -> Floats:
    """Cohen's kappa, nan where undefined: [...] of tables [..., q, q]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        total = table.sum(axis=(-2, -1))
        expected = (table.sum(axis=-1) * table.sum(axis=-2)).sum(axis=-1) / total**2
    return _corrected(agreement_of(table), expected)


def ac1_of(table: Floats) -> Floats:
    """Gwet's AC1, nan where undefined: [...] of tables [..., q, q]."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (table.sum(axis=-1) + table.sum(axis=-2)) / (2 * table.sum(axis=(-2, -1)))[..., None]
    expected = (shares * (1 - shares)).sum(axis=-1) / (table.shape[-1] - 1)
    return _corrected(agreement_of(table), expected)


def _corrected(observed: Floats, expected: Floats) -> Floats:
    room = 1 - expected
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(room > 1e-12, (observed - expected) / room, np.nan)


def _number(value: Floats, items: int) -> float | None:
    return None if items < 2 or np.isnan(value) else float(value)


def _resampled(cells: Codes, mass: Floats, width: int, resamples: int, seed: int) -> Floats:
    """What falls into each cell in every resample: [resamples, width].

    Items of one cell and weight cannot be told apart, so how often each such kind is drawn is multinomial: the same
    distribution as drawing item by item, in a fraction of the time.
    """
    if not len(cells):
        return np.zeros((resamples, width))
    kinds, number = np.unique(np.stack([cells.astype(np.float64), mass]), axis=1, return_counts=True)
    drawn = np.random.default_rng(seed).multinomial(len(cells), number / len(cells), size=resamples)
    place = np.zeros((kinds.shape[1], width))
    place[np.arange(kinds.shape[1]), kinds[0].astype(np.int64)] = kinds[1]
    return np.asarray(drawn @ place)


def _pairable(counts: npt.ArrayLike) -> Codes:
    array: Codes = np.asarray(counts, np.int64)
    shared: Codes = array[array.sum(axis=1) > 1]
    return shared


def _no_alpha(usable: Codes) -> str:
    """Why alpha is undefined; '' where it is not."""
    if len(usable) < 2:
        return NO_OVERLAP
    return ONE_ANSWER if (usable.sum(axis=0) > 0).sum() < 2 else ""


def _alphas(patterns: Codes, drawn: Codes) -> Floats:
    """Nominal alpha of each resample, nan where undefined: 1 - observed over expected disagreement. patterns: [kinds,
    categories]; drawn: how often each kind, [resamples, kinds]."""
    size = patterns.sum(axis=1)
    differing = (size**2 - (patterns**2).sum(axis=1)) / (size - 1)
    by_answer = (drawn @ patterns).astype(np.float64)
    total = by_answer.sum(axis=1)
    expected = (total**2 - (by_answer**2).sum(axis=1)) / (total - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(expected > 1e-12, 1 - (drawn @ differing) / expected, np.nan)


def _figure(value: float, resampled: Floats, items: int) -> Figure:
    bounds = _bounds(resampled)
    if isinstance(bounds, str):
        return Figure(value, None, None, items, bounds)
    return Figure(value, *bounds, items)


def _bounds(resampled: Floats) -> tuple[float, float] | str:
    """The middle 95 % of the resamples that are defined, or why there is none."""
    defined = resampled[~np.isnan(resampled)]
    if len(defined) < LEAST_DEFINED * len(resampled):
        return OFTEN_UNDEFINED
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return (float(low), float(high)) if defined.max() - defined.min() > 1e-12 else NO_SPREAD
