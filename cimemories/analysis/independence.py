"""The independence baseline of the accumulation curves: the same leak rates, spread over attributes without memory.

In a run some attributes leak again and again and others never, so a curve flattens. The baseline says how it would run
if the responses leaked as often, but each time whatever attribute it hits: the gap between the two is repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from cimemories.analysis.counted import exposed
from cimemories.analysis.cube import Bools, Cube, Floats, Ints, retained_and_judged
from cimemories.analysis.curves import add_context

AT_ONCE = 4096  # attributes: their means stay in the processor's cache


def independent(data: Cube, n: int) -> Floats:
    """F of every profile if every response leaked independently of the attribute: [profile, k], k = 0..K.

    In context t of profile s each response reveals each attribute that is inappropriate there with the probability
    p(s,t) = sum r / sum N over these attributes, independently of all other responses and attributes. So
    q(s,t,a;n) = (1 - p(s,t))^n, with n capped at the N of the flow, and F is 1 - E_k of them, as for the run itself. It
    is held at its last value beyond a profile's T; nan for a profile without such an attribute. Raises ValueError for
    an n < 1.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, this is {n}")
    mask = exposed(data.draws, data.labels, data.counted)
    tasks = retained_and_judged(data.labels, data.draws).sum(axis=1)
    most = int(tasks.max(initial=0))
    number = mask.any(axis=2).sum(axis=1)
    total = np.zeros((len(tasks), most + 1))
    for profile, times, sums in _sums(data, mask, n):
        for size in np.unique(tasks[profile]):
            here = tasks[profile] == size
            total[profile[here]] += sums[here] @ _spread(times, int(size), most)
    values = np.full((len(tasks), most + 1), np.nan)
    some = number > 0
    steps = np.minimum(np.arange(most + 1), tasks[some, None])
    values[some] = np.take_along_axis(1.0 - total[some] / number[some, None], steps, axis=1)
    return values


def response_rates(data: Cube, mask: Bools) -> Floats:
    """p(s,t), the share of (response, inappropriate attribute) places that leak: [profile, context]; 0 without any."""
    reveals = np.where(mask, data.reveals, 0).sum(axis=1, dtype=np.int64)
    draws = np.where(mask, data.draws, 0).sum(axis=1, dtype=np.int64)
    rates: Floats = reveals / np.maximum(draws, 1)
    return rates


def _sums(data: Cube, mask: Bools, n: int) -> Iterator[tuple[Ints, int, Floats]]:
    """Sums of E_j over attributes with as many inappropriate contexts d, of these contexts alone: (profiles, d, [those
    profiles, d + 1]). A profile comes at most once with each, and a d may come more than once."""
    quiet = (1.0 - response_rates(data, mask))[:, :, None] ** np.arange(n + 1)
    profile, attribute = np.nonzero(mask.any(axis=2))
    times = mask[profile, attribute].sum(axis=1)
    order = np.lexsort((profile, times))
    profile, attribute, times = profile[order], attribute[order], times[order]
    for d in np.unique(times):
        start, end = np.searchsorted(times, [d, d + 1])
        for first in range(start, end, AT_ONCE):
            part = slice(first, min(first + AT_ONCE, end))
            p, a = profile[part], attribute[part]
            context = np.nonzero(mask[p, a])[1].reshape(len(p), d)
            judged = np.minimum(data.draws[p[:, None], a[:, None], context], n)
            q = quiet[p[:, None], context, judged]
            means = np.zeros((d + 1, len(p)))
            means[0] = 1.0
            for m in range(1, d + 1):
                add_context(means[: m + 1], m, q[:, m - 1])
            owners, starts = np.unique(p, return_index=True)
            yield owners, int(d), np.add.reduceat(means, starts, axis=1).T


@lru_cache(maxsize=512)
def _spread(times: int, tasks: int, most: int) -> Floats:
    """How many of k tasks, of so many, are among the d = `times` chosen ones: C(d, j) C(T - d, k - j) / C(T, k), the
    weights that turn E_j of the d into E_k of all, q being 1 in the others: [d + 1, most + 1]; 0 for k > T."""
    j, k = np.arange(times + 1)[:, None], np.arange(most + 1)[None, :]
    rest = tasks - times
    possible = (j <= k) & (k - j <= rest) & (k <= tasks)
    chosen = np.where(possible, k - j, 0)
    weights = np.exp(_log_choose(times, j) + _log_choose(rest, chosen) - _log_choose(tasks, np.minimum(k, tasks)))
    found = np.where(possible, weights, 0.0)
    found.flags.writeable = False  # shared by all who ask for it again
    return found


def _log_choose(of: int, taken: Ints) -> Floats:
    found: Floats = gammaln(of + 1) - gammaln(taken + 1) - gammaln(of - taken + 1)
    return found
