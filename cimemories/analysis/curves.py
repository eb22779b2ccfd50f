"""Accumulation curves of many profiles at once: F(s; k, n) for every k and n, exactly (paper, Figure 2).

The order of contexts does not matter to F, so attributes with as many contexts and the same outcomes share one
computation, however many profiles they belong to:

    found = exposures(data)                                    # tally.py: outcomes (N, r) of each attribute, counted
    made = curves(found, tasks(data.labels, data.draws), (1, 2, 5))
    made.values[1, p, k]      share of profile p's attributes revealed after k of its tasks, at n = 2
    made.mean()[1, k]         its mean over profiles

What takes part in a product of q can be put in any order. Contexts in which q is 1 or 0 come first, where E_k has a
closed form; the others are added one by one by the recurrence, and signatures that begin alike share what they begin
with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from cimemories.analysis import bootstrap
from cimemories.analysis.bootstrap import LEAST_USERS, LEVEL, RESAMPLES, SEED, profile_draws
from cimemories.analysis.cube import Floats, Ints, retained_and_judged
from cimemories.analysis.tally import Exposures


@dataclass(frozen=True)
class Curves:
    """F(s; k, n) of every profile, for k = 0..K, where K is the largest T of them.

    values: [n, profile, k], shares 0..1; beyond its own T a profile stays at its last value; nan for a profile without
    any attribute that could be revealed inappropriately. variances: the same shape, of the mean over the attributes of
    the profile if they were drawn anew (variance over them / their number). tasks: [profile], T. attributes: [profile],
    the fixed denominator.
    """

    ns: tuple[int, ...]
    values: Floats
    variances: Floats
    tasks: Ints
    attributes: Ints

    @property
    def profiles(self) -> int:
        """How many profiles have a curve."""
        return int((self.attributes > 0).sum())

    def mean(self) -> Floats:
        """The mean over profiles that have a curve: [n, k]; nan where none has. At k = K it is Violation@n."""
        with_any = self.attributes > 0
        if not with_any.any():
            return np.full((len(self.ns), self.values.shape[2]), np.nan)
        result: Floats = self.values[:, with_any].mean(axis=1)
        return result

    def growing(self) -> Ints:
        """How many profiles have a k-th task: [k], k = 0..K. Where fewer do, the others are held at their end."""
        steps = np.arange(self.values.shape[2])
        result: Ints = (self.tasks[self.attributes > 0][:, None] >= steps).sum(axis=0)
        return result

    def band(self, resamples: int = RESAMPLES, seed: int = SEED) -> tuple[Floats, Floats]:
        """A pointwise 95 % band of the mean, (low, high), [n, k] each; nan where the mean is.

        The hierarchical bootstrap of the headline numbers (see bootstrap.py), so that it ends at their intervals. What
        is drawn inside a profile is drawn from its normal limit however few profiles there are: a mean over some
        hundred attributes is as good as normal, and millions of draws become a few. One deviate serves a whole curve.
        """
        mean = self.mean()
        low, high = np.full(mean.shape, np.nan), np.full(mean.shape, np.nan)
        with_any = self.attributes > 0
        if not self.profiles:
            return low, high
        times = profile_draws(len(self.tasks), resamples, seed)[:, with_any].astype(np.float64)
        times = times[times.any(axis=1)]
        noise = np.random.default_rng(seed + 1).standard_normal(len(times))[:, None]
        wider = bootstrap.wider(len(self.tasks), LEVEL)  # as bootstrap.bounds does to one number
        for i in range(len(self.ns)):
            inside = self.variances[i, with_any]
            total = times @ _apart(self.values[i, with_any], inside) + noise * np.sqrt(times @ inside)
            sampled = total / times.sum(axis=1)[:, None]
            ends = np.quantile(sampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            low[i], high[i] = np.clip(mean[i] + wider * (ends - mean[i]), 0.0, 1.0)
        return low, high


def _apart(means: Floats, inside: Floats) -> Floats:
    """Curves of profiles drawn towards their mean, as far apart as profiles themselves explain: `bootstrap` says why.
    means, and inside, the variances of each: [profile, k]."""
    if len(means) < LEAST_USERS:
        return means
    between = means.var(axis=0, ddof=1)
    explained = 1.0 - np.divide(inside.mean(axis=0), between, out=np.ones_like(between), where=between > 0)
    middle = means.mean(axis=0)
    drawn: Floats = middle + np.sqrt(np.maximum(explained, 0.0)) * (means - middle)
    return drawn


def tasks(labels: Ints, draws: Ints) -> Ints:
    """T, in how many retained contexts of each profile a message was judged: [profile]. A task whose messages are all
    missing is none of them: it would count as one in which nothing leaks. labels, draws: [profile, attribute, context].
    """
    result: Ints = retained_and_judged(labels, draws).sum(axis=1)
    return result


def hazard(shares: Floats) -> Floats:
    """h(k) = (F(k) - F(k-1)) / (1 - F(k-1)): of what was not yet revealed, the share that the k-th task reveals.

    shares: [..., K + 1]; returns [..., K + 1] with nan at k = 0 and where nothing was left to reveal.
    """
    left = 1.0 - shares[..., :-1]
    result = np.full(shares.shape, np.nan)
    np.divide(np.diff(shares, axis=-1), left, out=result[..., 1:], where=left > 1e-12)
    return result


def curves(found: Exposures, tasks: Ints, ns: Sequence[int]) -> Curves:
    """The curves of all profiles. tasks: [profile], T of each. Raises ValueError for an n < 1."""
    most = int(tasks.max(initial=0))
    number = np.bincount(found.profile, minlength=found.profiles)
    revealing = found.outcomes[:, 1] > 0
    counts = found.counts[:, revealing]
    kinds, place = distinct(np.column_stack([tasks[found.profile], counts]))
    owners = _owners(found.profile, place, found.profiles, len(kinds))
    steps = np.minimum(np.arange(most + 1), tasks[:, None])
    values = np.full((len(ns), found.profiles, most + 1), np.nan)
    variances = values.copy()
    some = np.flatnonzero(number)
    for i, n in enumerate(ns):
        means, at = signature_means(kinds[:, 0], kinds[:, 1:], found.quiet(n)[revealing], most)
        shares = 1.0 - means
        mine = csr_array((owners.data, at[owners.indices], owners.indptr), shape=(found.profiles, shares.shape[0]))
        sums = (mine @ np.hstack([shares, shares * shares]))[some] / number[some, None]
        first, second = sums[:, : most + 1], sums[:, most + 1 :]
        spread = np.maximum(second - first * first, 0.0) / number[some, None]
        values[i, some] = np.take_along_axis(first, steps[some], axis=1)
        variances[i, some] = np.take_along_axis(spread, steps[some], axis=1)
    return Curves(tuple(ns), values, variances, tasks, number)


def signature_means(tasks: Ints, counts: Ints, q: Floats, most: int) -> tuple[Floats, Ints]:
    """E_k of signatures, for k = 0..most: (means [different signatures, k], which of them each row has).

    tasks: [rows], T. counts: [rows, kinds], in how many contexts of a row q has the value of that kind; q is 1 in the
    other contexts of the T. q: [kinds]. Means beyond a row's T are 0 and mean nothing.
    """
    zeros = counts[:, q == 0].sum(axis=1)
    between = np.unique(q[(q > 0) & (q < 1)])
    columns = [counts[:, q == value].sum(axis=1) for value in between]
    order = sorted(range(len(columns)), key=lambda i: -int(columns[i].sum()))
    ones = tasks - zeros - sum(columns, np.zeros_like(zeros))
    kinds, at = distinct(np.column_stack([ones, zeros, *(columns[i] for i in order)]))
    return np.ascontiguousarray(_grown(kinds, between[order], most).T), at


def _grown(kinds: Ints, values: Floats, most: int) -> Floats:
    """E_k of rows (contexts with q = 1, with q = 0, with q = values[0], ...), sorted and different: [k, rows]."""
    starts = [_changes(kinds[:, : i + 2]) for i in range(len(values) + 1)]
    first = np.flatnonzero(starts[0])
    state = _of_ones_and_zeros(kinds[first, 0], kinds[first, 1], most)
    for i, q in enumerate(values):
        first = np.flatnonzero(starts[i + 1])
        parent = np.cumsum(starts[i])[first] - 1
        times, before = kinds[first, i + 2], kinds[first, : i + 2].sum(axis=1)
        order = np.argsort(-times, kind="stable")
        grown = state[:, parent[order]]
        times, before = times[order], before[order]
        for step in range(int(times.max(initial=0))):
            active = int(np.searchsorted(-times, -step, side="left"))
            add_context(grown[:, :active], before[:active] + step + 1, q)
        state = np.empty_like(grown)
        state[:, order] = grown
    return state


def add_context(means: Floats, number: Ints | int, q: Floats | float) -> None:
    """One step of the recurrence, in place: E_j <- (1 - j/m) E_j + (j/m) q E_(j-1). means: [k, rows], 0 beyond the
    contexts of a row so far; number: m, with the new one; q: of the new context; each one for all, or [rows]."""
    share = np.arange(1, len(means))[:, None] / number
    moved = q * means[:-1]
    moved -= means[1:]
    moved *= share
    means[1:] += moved


def _of_ones_and_zeros(ones: Ints, zeros: Ints, most: int) -> Floats:
    """E_k = C(ones, k) / C(ones + zeros, k): the chance that k of the contexts hold none with q = 0. [k, rows]."""
    taken = np.arange(most)[:, None]
    factors = np.maximum(ones - taken, 0) / np.maximum(ones + zeros - taken, 1)
    return np.vstack([np.ones((1, len(ones))), np.cumprod(factors, axis=0)])


def _changes(rows: Ints) -> np.ndarray:
    """Which sorted rows differ from the one before: [rows]; the first one does."""
    changed = np.ones(len(rows), np.bool_)
    changed[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    return changed


def distinct(rows: Ints) -> tuple[Ints, Ints]:
    """Different rows in lexicographic order, and which of them each row is. rows: [rows, columns], none negative."""
    sizes = tuple(int(most) + 1 for most in rows.max(axis=0, initial=0))
    try:
        keys = np.ravel_multi_index(tuple(rows.T.astype(np.int64)), sizes)
    except ValueError:  # more combinations than an integer can number
        found, at = np.unique(rows, axis=0, return_inverse=True)
        return found, at.reshape(-1)
    different, at = np.unique(keys, return_inverse=True)
    return np.stack(np.unravel_index(different, sizes), axis=1), at


def _owners(profile: Ints, place: Ints, profiles: int, kinds: int) -> csr_array:
    """How many attributes of each profile have each signature, [profile, kinds]."""
    both, times = np.unique(profile.astype(np.int64) * max(kinds, 1) + place, return_counts=True)
    rows, columns = both // max(kinds, 1), both % max(kinds, 1)
    return csr_array((times.astype(np.float64), (rows, columns)), shape=(profiles, max(kinds, 1)))
