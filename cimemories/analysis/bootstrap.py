"""Hierarchical bootstrap of means of means: profiles are drawn first, then what is averaged inside each of them.

Drawn plainly, it errs in two ways that benchmarks/intervals.py shows. What differs inside profiles enters twice: it is
in the means of the profiles already, and is drawn once more. And ten profiles vary less in a resample than ten of a
population do. So the means of the profiles are first drawn towards their common mean by as much as the variance inside
explains (after Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8), and the ends of the
interval are moved outwards as Student's t asks for (Hesterberg, What Teachers Should Know About the Bootstrap, The
American Statistician, 2015). With fewer than LEAST_USERS profiles neither is done: nothing then is said of users.

Inside a profile only the distinct values matter and how often each occurs, so one multinomial draw stands for as many
single ones: the cost does not grow with the number of attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student

from cimemories.analysis.cube import Floats, Ints

RESAMPLES = 2000
SEED = 20251114
LEVEL = 0.95
LEAST_USERS = 5  # with fewer profiles an interval says little of users
_AT_ONCE = 4_000_000  # numbers held at a time


def profile_draws(profiles: int, resamples: int, seed: int) -> Ints:
    """Which profiles each resample draws, with replacement: [resamples, profiles]."""
    return np.random.default_rng(seed).integers(0, profiles, (resamples, profiles))


def resampled_means(groups: Sequence[Floats], chosen: Ints, seed: int) -> Floats:
    """Means over drawn profiles of means over values drawn inside each: [resamples].

    groups: the values of each profile, none of them nan; an empty one is skipped wherever it is drawn. chosen: from
    `profile_draws`. nan for a resample in which every drawn profile is empty.
    """
    groups = _apart(groups)
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


def _apart(groups: Sequence[Floats]) -> Sequence[Floats]:
    """The same values with the means of the profiles as far apart as the profiles themselves explain."""
    filled = [values for values in groups if values.size]
    if len(filled) < LEAST_USERS:
        return groups
    means = np.array([values.mean() for values in filled])
    inside = float(np.mean([values.var() / values.size for values in filled]))
    between = float(means.var(ddof=1))
    kept = np.sqrt(max(0.0, 1.0 - inside / between)) if between > 0 else 0.0
    middle = means.mean()
    return [values + (kept - 1.0) * (values.mean() - middle) if values.size else values for values in groups]


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


def bounds(samples: Floats, value: float, users: int, least: float, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a number from its resampled values, inside `least` to 1; nan where none is defined.

    value: the number itself. users: how many profiles it is a mean over.
    """
    defined = samples[~np.isnan(samples)]
    if not defined.size or np.isnan(value):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    wider = _wider(users, level)
    return max(least, value + wider * (float(low) - value)), min(1.0, value + wider * (float(high) - value))


def _wider(users: int, level: float) -> float:
    if users < LEAST_USERS:
        return 1.0
    tail = (1 + level) / 2
    return float(student.ppf(tail, users - 1) / normal.ppf(tail) * np.sqrt(users / (users - 1)))
