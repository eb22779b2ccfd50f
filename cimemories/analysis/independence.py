"""The independence baseline of the accumulation curves: the same leak rates, spread over attributes without memory.

In a run some attributes leak again and again and others never, so a curve flattens. The baseline says how it would run
if the responses leaked as often, but each time whatever attribute it hits: the gap between the two is repetition.
"""

from __future__ import annotations

import numpy as np

from cimemories.analysis.cube import Bools, Cube, Floats, Ints, retained
from cimemories.analysis.curves import add_context
from cimemories.analysis.tally import exposed

AT_ONCE = 2048  # attributes: their means stay in the processor's cache


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
    quiet = _quiet(data, mask, n)
    tasks = retained(data.labels).sum(axis=1)
    most = int(tasks.max(initial=0))
    values = np.full((len(tasks), most + 1), np.nan)
    profile, attribute = np.nonzero(mask.any(axis=2))
    total, number = np.zeros((len(tasks), most + 1)), np.bincount(profile, minlength=len(tasks))
    for start in range(0, len(profile), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        p, a = profile[part], attribute[part]
        means = _means(mask[p, a], quiet[p, a], tasks[p], most)
        np.add.at(total, p, 1.0 - means)
    some = number > 0
    steps = np.minimum(np.arange(most + 1), tasks[some, None])
    values[some] = np.take_along_axis(total[some] / number[some, None], steps, axis=1)
    return values


def response_rates(data: Cube, mask: Bools) -> Floats:
    """p(s,t), the share of (response, inappropriate attribute) places that leak: [profile, context]; 0 without any."""
    reveals = np.where(mask, data.reveals, 0).sum(axis=1, dtype=np.int64)
    draws = np.where(mask, data.draws, 0).sum(axis=1, dtype=np.int64)
    rates: Floats = reveals / np.maximum(draws, 1)
    return rates


def _quiet(data: Cube, mask: Bools, n: int) -> Floats:
    """(1 - p)^min(n, N): [profile, attribute, context]."""
    left = (1.0 - response_rates(data, mask))[:, None, :]
    return np.where(mask, left ** np.minimum(data.draws, n), 1.0)


def _means(mask: Bools, q: Floats, tasks: Ints, most: int) -> Floats:
    """E_k of attributes, [rows, k]. mask, q: [rows, context]; tasks: [rows]. Contexts with q = 1 come first, where E_k
    is 1; the others follow one by one."""
    times = mask.sum(axis=1)
    order = np.argsort(-times, kind="stable")
    times, ones = times[order], (tasks - mask.sum(axis=1))[order]
    packed = np.take_along_axis(q[order], np.argsort(~mask[order], axis=1, kind="stable"), axis=1)
    means = (np.arange(most + 1)[:, None] <= ones).astype(np.float64)
    for step in range(int(times.max(initial=0))):
        active = int(np.searchsorted(-times, -step, side="left"))
        add_context(means[:, :active], ones[:active] + step + 1, packed[:active, step])
    result = np.empty((len(order), most + 1))
    result[order] = means.T
    return result
