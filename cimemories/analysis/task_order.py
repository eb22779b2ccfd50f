"""The tasks of one user in one order: the curve as this user would live it, and when each attribute first leaks.

Unlike the expectation over all orders this depends on the order, and at n = N on nothing else: an attribute leaks in
the first task in which any judged sample reveals it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cimemories.analysis.counted import exposed
from cimemories.analysis.cube import Bools, Cube, Floats, Ints, retained
from cimemories.analysis.violation import quiet


class Order(StrEnum):
    """LISTED: as the dataset lists its contexts. SHUFFLED: by a seed. WORST: those that reveal most attributes first,
    by how many they reveal in any sample; ties as listed."""

    LISTED = "listed"
    SHUFFLED = "shuffled"
    WORST = "worst"


@dataclass(frozen=True)
class FirstLeaks:
    """When attributes leak for the first time, one entry an attribute that has an inappropriate context.

    attribute: its place along the cube's axis. time: the number of the task in which it first leaks, from 1, or how
    many there were if it never does (then it is censored: leaked is False). exposures: the same clock counting only
    tasks in which the attribute is inappropriate.
    """

    attribute: Ints
    time: Ints
    exposures: Ints
    leaked: Bools


def order_of(data: Cube, profile: int, how: Order = Order.LISTED, seed: int = 0) -> Ints:
    """The retained contexts of a profile in an order: [T], places along the cube's axis. profile: place, too."""
    kept = np.flatnonzero(retained(data.labels[profile][None])[0])
    if how == Order.SHUFFLED:
        return np.random.default_rng([seed, profile]).permutation(kept)
    if how == Order.WORST:
        mask = exposed_of(data, profile)[:, kept]
        leaking = (mask & (data.reveals[profile][:, kept] > 0)).sum(axis=0)
        return kept[np.argsort(-leaking, kind="stable")]
    return kept


def ordered_curve(data: Cube, profile: int, order: Ints, n: int) -> Floats:
    """The share of the profile's attributes revealed inappropriately after the first k tasks of this order, n samples
    each: [T + 1], k = 0..T; 1 - product of q over the first k, averaged over attributes. nan where the profile has no
    attribute that could be. Raises ValueError for an n < 1."""
    mask = exposed_of(data, profile)
    rows = mask.any(axis=1)
    if not rows.any():
        return np.full(len(order) + 1, np.nan)
    kept = mask[rows][:, order]
    q = np.where(kept, quiet(data.reveals[profile][rows][:, order], data.draws[profile][rows][:, order], n), 1.0)
    silent = np.cumprod(q, axis=1).mean(axis=0)
    return np.concatenate([[0.0], 1.0 - silent])


def first_leaks(data: Cube, profile: int, order: Ints) -> FirstLeaks:
    """When each attribute of a profile first leaks in any of the N samples of a task, in this order."""
    mask = exposed_of(data, profile)
    rows = np.flatnonzero(mask.any(axis=1))
    here = mask[rows][:, order]
    leaks = here & (data.reveals[profile][rows][:, order] > 0)
    leaked = leaks.any(axis=1)
    if not rows.size:
        return FirstLeaks(rows, rows, rows, leaked)
    last = np.where(leaked, leaks.argmax(axis=1), len(order) - 1)
    met = (here & (np.arange(len(order)) <= last[:, None])).sum(axis=1)
    return FirstLeaks(rows, last + 1, met, leaked)


def exposed_of(data: Cube, profile: int) -> Bools:
    """Flows of a profile that can violate: [attribute, context]."""
    one = slice(profile, profile + 1)
    mask: Bools = exposed(data.draws[one], data.labels[one], data.counted[one])[0]
    return mask
