"""Accumulation curves of a single profile, straight from their definition: what `metrics.accumulation` has to agree
with."""

from __future__ import annotations

import numpy as np

from cimemories.flows.arrays import Bools, Floats, Ints, inappropriate_mask, retained
from cimemories.metrics.violation import no_leak_probabilities


def subset_means(q: Floats) -> Floats:
    """E_k: the mean over all k-subsets of the product of q, for k = 0..T. q: [..., T]; returns [..., T + 1].

    The recurrence E_j <- (1 - j/m) E_j + (j/m) q_m E_(j-1) is a convex combination in each of its T steps, so it is
    numerically stable.
    """
    steps = q.shape[-1]
    means = np.zeros((*q.shape[:-1], steps + 1))
    means[..., 0] = 1.0
    for m in range(1, steps + 1):
        share = np.arange(m, 0, -1) / m
        kept, taken = means[..., m:0:-1], means[..., m - 1 :: -1] if m > 1 else means[..., :1]
        means[..., m:0:-1] = (1.0 - share) * kept + share * q[..., m - 1 : m] * taken
    return means


def curve(reveals: Ints, draws: Ints, labels: Ints, counted: Bools, n: int) -> Floats:
    """F(s; k, n): the expected share of attributes of one profile revealed inappropriately after k of its T retained
    contexts, all orders equally likely, n samples each: [T + 1], from k = 0.

    reveals, draws, labels: [attribute, context] of one profile; counted: [attribute]. The denominator stays fixed: all
    attributes with an inappropriate flow. Empty where no context is retained, nan where no attribute has such a flow.
    """
    kept = retained(labels[None])[0] & (draws > 0).any(axis=0)
    mask = inappropriate_mask(draws[None], labels[None], counted[None])[0][:, kept]
    rows = mask.any(axis=1)
    if not kept.any():
        return np.empty(0)
    if not rows.any():
        return np.full(int(kept.sum()) + 1, np.nan)
    q = np.where(mask, no_leak_probabilities(reveals[:, kept], draws[:, kept], n), 1.0)[rows]
    result: Floats = 1.0 - subset_means(q).mean(axis=0)
    return result
