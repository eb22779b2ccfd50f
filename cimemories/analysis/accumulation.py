"""How violations pile up over tasks and samples (paper, Figure 2): exact, without Monte Carlo.

`accumulation` answers for a run; `subset_means` and `curve` are its definition for a single profile, which curves.py
computes for many at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from cimemories.analysis.counted import exposed
from cimemories.analysis.cube import Bools, Cube, Floats, IdentifierRule, Ints, cube, mean_or_nan, retained_and_judged
from cimemories.analysis.curves import Curves, curves, hazard, tasks
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.independence import independent
from cimemories.analysis.tally import exposures
from cimemories.analysis.violation import quiet


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
    kept = retained_and_judged(labels[None], draws[None])[0]
    mask = exposed(draws[None], labels[None], counted[None])[0][:, kept]
    rows = mask.any(axis=1)
    if not kept.any():
        return np.empty(0)
    if not rows.any():
        return np.full(int(kept.sum()) + 1, np.nan)
    q = np.where(mask, quiet(reveals[:, kept], draws[:, kept], n), 1.0)[rows]
    result: Floats = 1.0 - subset_means(q).mean(axis=0)
    return result


@dataclass(frozen=True)
class Accumulation:
    """The curves of a run at every n up to its samples. mean, low, high: [n, k], over the profiles that have a curve,
    with a pointwise 95 % band, which is reckoned when it is first asked for; k = 0..the largest T of a profile. flows:
    inappropriate pairs behind it."""

    curves: Curves
    mean: Floats
    flows: int

    @cached_property
    def _band(self) -> tuple[Floats, Floats]:
        return self.curves.band()

    @property
    def low(self) -> Floats:
        return self._band[0]

    @property
    def high(self) -> Floats:
        return self._band[1]

    @property
    def attributes(self) -> int:
        """How many (profile, attribute) pairs the curves are the mean of: the fixed denominators, added up."""
        return int(self.curves.attributes.sum())

    @property
    def most(self) -> int:
        """The largest T of a profile: where the curves end. 0 where no profile has a retained context."""
        return int(self.mean.shape[1]) - 1

    def at(self, n: int, k: int) -> float:
        """F(k, n); nan where no profile has a curve."""
        return float(self.mean[self.curves.ns.index(n), k])

    def half_way(self, n: int) -> int | None:
        """The first k at which half of what is ever revealed has been; None where nothing ever is."""
        line = self.mean[self.curves.ns.index(n)]
        return int(np.argmax(line >= line[-1] / 2)) if line[-1] > 0 else None

    def frame(self) -> pd.DataFrame:
        """One row a point: n, tasks (k), share, low, high, hazard, profiles (behind the mean), growing (of these, how
        many have a k-th task). Shares are 0 to 1; the hazard is nan at k = 0 and where nothing is left."""
        count, steps = self.mean.shape
        return pd.DataFrame(
            {
                "n": np.repeat(self.curves.ns, steps),
                "tasks": np.tile(np.arange(steps), count),
                "share": self.mean.reshape(-1),
                "low": self.low.reshape(-1),
                "high": self.high.reshape(-1),
                "hazard": hazard(self.mean).reshape(-1),
                "profiles": self.curves.profiles,
                "growing": np.tile(self.curves.growing(), count),
            }
        )


def accumulation(flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Accumulation:
    """The curves of a run; remembered as long as nothing behind them moves."""
    ns = tuple(range(1, asked.run.samples + 1))
    return flows.remember(("accumulation", asked.version, rule), lambda: of_cube(cube(flows, asked, rule), ns))


def of_cube(data: Cube, ns: tuple[int, ...]) -> Accumulation:
    """`accumulation` of arrays: pure. Raises ValueError for an n < 1."""
    found = exposures(data)
    made = curves(found, tasks(data.labels, data.draws), ns)
    return Accumulation(made, made.mean(), found.flows)


def baseline(flows: Flows, asked: Scope, n: int, rule: IdentifierRule = IdentifierRule.EXACT) -> Floats:
    """The independence baseline of a run (see `independent`), its mean over the profiles that have a curve: [k]."""

    def mean() -> Floats:
        values = independent(cube(flows, asked, rule), n)
        return np.array([mean_or_nan(column) for column in values.T])

    return flows.remember(("independence", asked.version, rule, n), mean)
