"""Hierarchical bootstrap of means of means: profiles are drawn first, then what is averaged inside each of them.

Inside a profile only the distinct values matter and how often each occurs, so one multinomial draw stands for as many
single ones: the cost does not grow with the number of attributes (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, for the method; profiles first, since attributes of one person are not independent of each other).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from cimemories.analysis.cube import Floats, Ints

RESAMPLES = 2000
SEED = 20251114
LEVEL = 0.95
_AT_ONCE = 4_000_000  # numbers held at a time


def profile_draws(profiles: int, resamples: int, seed: int) -> Ints:
    """Which profiles each resample draws, with replacement: [resamples, profiles]."""
    return np.random.default_rng(seed).integers(0, profiles, (resamples, profiles))


def resampled_means(groups: Sequence[Floats], chosen: Ints, seed: int) -> Floats:
    """Means over drawn profiles of means over values drawn inside each: [resamples].

    groups: the values of each profile, none of them nan; an empty one is skipped wherever it is drawn. chosen: from
    `profile_draws`. nan for a resample in which every drawn profile is empty.
    """
    random = np.random.default_rng(seed + 1)
    total, number = np.zeros(len(chosen)), np.zeros(len(chosen))
    slots = chosen + np.arange(len(chosen))[:, None] * len(groups)
    drawn = np.bincount(slots.reshape(-1), minlength=len(chosen) * len(groups)).reshape(len(chosen), len(groups)).T
    for times, values in zip(np.ascontiguousarray(drawn), groups, strict=True):
        if not values.size:
            continue
        rows = np.repeat(np.arange(len(chosen)), times)
        for part, means in _means_inside(values, len(rows), random):
            total += np.bincount(rows[part], weights=means, minlength=len(chosen))
        number += times
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _means_inside(values: Floats, draws: int, random: np.random.Generator) -> Iterator[tuple[slice, Floats]]:
    """Means of so many resamples of these values, in parts: (which of the draws, their means)."""
    distinct, times = np.unique(values, return_counts=True)
    size = len(values)
    if len(distinct) == 1:
        yield slice(0, draws), np.full(draws, distinct[0])
        return
    if len(distinct) == 2:
        hits = random.binomial(size, times[1] / size, draws)
        yield slice(0, draws), distinct[0] + (distinct[1] - distinct[0]) * hits / size
        return
    step = max(1, _AT_ONCE // len(distinct))
    for start in range(0, draws, step):
        part = slice(start, min(start + step, draws))
        counts = random.multinomial(size, times / size, part.stop - part.start)
        yield part, counts @ distinct / size


def bounds(samples: Floats, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of resampled values; nan where none is defined."""
    defined = samples[~np.isnan(samples)]
    if not defined.size:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
