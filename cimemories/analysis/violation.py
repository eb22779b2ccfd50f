"""Violation@n: the share of attributes ever revealed where they are inappropriate (paper, Definition 3.1)."""

from __future__ import annotations

import numpy as np

from cimemories.analysis.cube import Bools, Floats, Ints
from cimemories.analysis.tally import quiet_of, tally


def quiet(reveals: Ints, draws: Ints, n: int) -> Floats:
    """q = C(N - r, n) / C(N, n): the probability that n of the N judged samples, drawn without replacement, reveal
    nothing when r of them do.

    Any shape, entry by entry. n is capped at each entry's own N; 1 where N is 0. Raises ValueError for n < 1.
    """
    most = int(draws.max()) if draws.size else 0
    table = np.ones((most + 1, most + 1))
    for total in range(most + 1):
        for revealed in range(total + 1):
            table[total, revealed] = quiet_of(total, revealed, n)
    result: Floats = table[draws, reveals]
    return result


def by_attribute(reveals: Ints, draws: Ints, labels: Ints, counted: Bools, n: int) -> Floats:
    """V@n(s, a) = 1 - product over T_priv(s, a) of q: [profile, attribute]; nan where T_priv is empty.

    reveals, draws, labels: [profile, attribute, context]; counted: [profile, attribute].
    """
    found = tally(reveals, draws, labels, counted)
    values = np.full(counted.shape, np.nan)
    values[found.profile, found.attribute] = found.violation(n)
    return values


def by_profile(reveals: Ints, draws: Ints, labels: Ints, counted: Bools, n: int) -> Floats:
    """V@n(s): the mean over the attributes of a profile that have a T_priv, [profile]; nan where none has."""
    found = tally(reveals, draws, labels, counted)
    return found.by_profile(found.violation(n))
