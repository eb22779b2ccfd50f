"""Hierarchical bootstrap of means of means: profiles are drawn first, then what is averaged inside each of them.

Drawn plainly, it errs in two ways that benchmarks/intervals.py shows. What differs inside profiles enters twice: it is
in the means of the profiles already, and is drawn once more. And ten profiles vary less in a resample than ten of a
population do. So the means of the profiles are first drawn towards their common mean by as much as the variance inside
explains (after Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8), and the ends of the
interval are moved outwards as Student's t asks for (Hesterberg, What Teachers Should Know About the Bootstrap, The
American Statistician, 2015). With fewer than LEAST_USERS profiles neither is done: nothing then is said of users.

Where the profiles hold more than MANY values together, what is drawn inside them is drawn from its normal limit: a mean
of hundreds of draws has no other distribution to speak of, and the cost stays that of the profiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from cimemories.analysis.cube import Floats, Ints

RESAMPLES = 2000
SEED = 20251114
LEVEL = 0.95
LEAST_USERS = 5  # with fewer profiles an interval says little of users
MANY = 300


def profile_draws(profiles: int, resamples: int, seed: int) -> Ints:
    """How often each resample draws each profile, with replacement: [resamples, profiles]; rows add up to profiles."""
    chosen = np.random.default_rng(seed).integers(0, profiles, (resamples, profiles))
    slots = chosen + np.arange(resamples)[:, None] * profiles
    return np.bincount(slots.reshape(-1), minlength=resamples * profiles).reshape(resamples, profiles)


def resampled_means(groups: Sequence[Floats], times: Ints, seed: int) -> Floats:
    """Means over drawn profiles of means over values drawn inside each: [resamples, K].

    groups: of each profile [values, K], K numbers of the same thing, none of them nan; an empty one is skipped wherever
    it is drawn. times: from `profile_draws`. nan for a resample in which every drawn profile is empty.
    """
    random = np.random.default_rng(seed + 1)
    filled = [place for place, values in enumerate(groups) if len(values)]
    if not filled:
        return np.full((len(times), groups[0].shape[1]), np.nan)
    kept = _Groups.of([groups[place] for place in filled])
    drawn = times if len(filled) == len(groups) else times[:, filled]
    total = (_limit if len(kept.values) > MANY else _exact)(kept, kept.shifts(), drawn, random)
    number = drawn.sum(axis=1)[:, None]
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class _Groups:
    """Values of all profiles below each other, [values, K]; of each profile where they start, how many they are, their
    means, and the variances of these means, [profiles, K]."""

    values: Floats
    starts: Ints
    sizes: Ints
    means: Floats
    inside: Floats

    @classmethod
    def of(cls, groups: Sequence[Floats]) -> _Groups:
        values, sizes = np.concatenate(groups), np.array([len(group) for group in groups])
        starts = np.cumsum(sizes) - sizes
        means = np.add.reduceat(values, starts) / sizes[:, None]
        away = values - np.repeat(means, sizes, axis=0)
        inside = np.add.reduceat(away * away, starts) / (sizes * sizes)[:, None]
        return cls(values, starts, sizes, means, inside)

    def shifts(self) -> Floats:
        """What puts the means of the profiles as far apart as the profiles themselves explain: [profiles, K]."""
        if len(self.means) < LEAST_USERS:
            return np.zeros_like(self.means)
        between = self.means.var(axis=0, ddof=1)
        inside = self.inside.mean(axis=0)
        explained = np.where(between > 0, 1.0 - inside / np.where(between > 0, between, 1.0), 0.0)
        kept = np.sqrt(np.maximum(explained, 0.0))
        moved: Floats = (kept - 1.0) * (self.means - self.means.mean(axis=0))
        return moved


def _exact(groups: _Groups, shifts: Floats, times: Ints, random: np.random.Generator) -> Floats:
    """Sums over drawn profiles of the means of resampled values: [resamples, K]."""
    total = times @ shifts
    for own, start, size in zip(times.T, groups.starts, groups.sizes.tolist(), strict=True):
        rows, values = np.repeat(np.arange(len(times)), own), groups.values[start : start + size]
        kind = np.uint8 if size <= 256 else np.uint32
        drawn = random.integers(0, size, (len(rows), size), dtype=kind) + np.arange(len(rows))[:, None] * size
        counts = np.bincount(drawn.reshape(-1), minlength=len(rows) * size).reshape(len(rows), size)
        means = counts.astype(np.float64) @ values / size
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        if len(rows):
            total[rows[first]] += np.add.reduceat(means, first, axis=0)
    return total


def _limit(groups: _Groups, shifts: Floats, times: Ints, random: np.random.Generator) -> Floats:
    """The same for many values: a sum of such means is normal, with the mean and the variance that they have."""
    weights = times.astype(np.float64)
    noise = random.standard_normal((len(times), groups.means.shape[1]))
    drawn: Floats = weights @ (groups.means + shifts) + noise * np.sqrt(weights @ groups.inside)
    return drawn


def bounds(samples: Floats, value: float, users: int, least: float, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a number from its resampled values, inside `least` to 1; nan where none is defined.

    value: the number itself. users: how many profiles it is a mean over.
    """
    defined = samples[~np.isnan(samples)]
    if not defined.size or np.isnan(value):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    out = wider(users, level)
    return max(least, value + out * (float(low) - value)), min(1.0, value + out * (float(high) - value))


def wider(users: int, level: float = LEVEL) -> float:
    """By how much the ends of an interval move outwards for so few profiles; 1 with fewer than LEAST_USERS."""
    if users < LEAST_USERS:
        return 1.0
    tail = (1 + level) / 2
    return float(stdtrit(users - 1, tail) / ndtri(tail) * np.sqrt(users / (users - 1)))
