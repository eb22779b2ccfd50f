"""The order of runs by a number: the Pareto front, ranks, Kendall's tau between two orders, and who changes places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np

from cimemories.flows.arrays import Bools, Floats
from cimemories.text import exact_percent, listed


def front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Which (violation, completeness) points are on the Pareto front: no other has at most its violation and at least
    its completeness, and is better in one of them. Equal points are on it together; one with nan never is."""
    return [
        not (math.isnan(v) or math.isnan(c))
        and not any(other_v <= v and other_c >= c and (other_v < v or other_c > c) for other_v, other_c in points)
        for v, c in points
    ]


DECIMALS = 12  # two numbers that agree to so many places are a tie, however they were summed


class Measure(StrEnum):
    """What runs are ordered by."""

    BALANCED = "balanced"
    VIOLATION = "violation"
    COMPLETENESS = "completeness"

    @property
    def label(self) -> str:
        return "balanced score" if self == Measure.BALANCED else str(self)

    @property
    def named(self) -> str:
        """As it stands in a sentence: 'the balanced score', 'violation'."""
        return f"the {self.label}" if self == Measure.BALANCED else self.label

    def goodness(self, values: Floats) -> Floats:
        """The values turned so that more is better, and rounded to DECIMALS."""
        return np.round(-values if self == Measure.VIOLATION else values, DECIMALS)


def ranks(values: Floats, measure: Measure) -> Floats:
    """1 for the best, ties share the better rank, nan where the number is undefined. values: [runs] or [runs, T], put
    in order along the runs."""
    from scipy.stats import rankdata  # takes a second to import

    # inf puts undefined numbers behind all others; their rank is taken away again below.
    result = rankdata(np.where(np.isnan(values), np.inf, -measure.goodness(values)), method="min", axis=0)
    return np.where(np.isnan(values), np.nan, result)


def tau(first: Floats, second: Floats) -> float:
    """Kendall's tau-b (M. G. Kendall, Biometrika 33, 1945: with ties) of two sets of ranks [runs], over the runs that
    have both; nan with fewer than two of them, or where all are tied on one side."""
    from scipy.stats import kendalltau  # takes a second to import

    both = ~np.isnan(first) & ~np.isnan(second)
    one, other = first[both], second[both]
    if len(one) < 2 or (one == one[0]).all() or (other == other[0]).all():
        return math.nan
    # Exactly 1, which tau_text asks for; rounding might put it beside.
    if (one == other).all():
        return 1.0
    return float(kendalltau(one, other).statistic)


def turned(before: Floats, after: Floats, measure: Measure) -> list[tuple[int, int]]:
    """Pairs of runs that change places: (the one that passes, the one that it passes), by positions. A tie on either
    side is no change of places. before, after: [runs]."""
    old, new = measure.goodness(before), measure.goodness(after)
    # [a, b]: a stood behind b, and stands before it now.
    passes = (old[:, None] < old) & (new[:, None] > new)
    return [(int(a), int(b)) for a, b in np.argwhere(passes)]


@dataclass(frozen=True)
class Swap:
    """Two runs that change places. ahead, behind: positions, as they stand by the current settings. spans: stretches of
    thresholds (first, last) at which the other one is ahead. near: how far the nearest of them is."""

    ahead: int
    behind: int
    spans: tuple[tuple[float, float], ...]
    near: float


def swaps(now: Floats, over: Floats, thresholds: Sequence[float], at: float, measure: Measure) -> list[Swap]:
    """Every pair of runs whose order turns round at some threshold, the one nearest to `at` first. A tie is no turn.

    now: the numbers by the current settings [runs]; over: [runs, T]; thresholds: [T], ascending.
    """
    before, after = measure.goodness(now), measure.goodness(over)
    result = []
    for ahead, behind in permutations(range(len(now)), 2):
        if before[ahead] > before[behind] and (spans := _spans(after[behind] > after[ahead], thresholds)):
            near = min(max(low - at, at - high, 0.0) for low, high in spans)
            result.append(Swap(ahead, behind, spans, near))
    return sorted(result, key=lambda swap: swap.near)


def _spans(mask: Bools, thresholds: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """Stretches of neighbouring thresholds where the mask holds."""
    # 1 where a stretch begins, -1 one past its end.
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return tuple((thresholds[a], thresholds[b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True))


def swap_text(swap: Swap, names: Sequence[str], thresholds: Sequence[float]) -> str:
    """'Qwen and Llama change places below a threshold of 80 %'."""
    spans = [_span_text(low, high, thresholds) for low, high in swap.spans]
    return f"{names[swap.ahead]} and {names[swap.behind]} change places {listed(spans)}"


def _span_text(low: float, high: float, thresholds: Sequence[float]) -> str:
    """Where a stretch lies among all thresholds. Below and above name the first threshold that is not in it."""
    first, last = low == thresholds[0], high == thresholds[-1]
    ascending = list(thresholds)
    if first and last:
        return "at every threshold"
    if first:
        return f"below a threshold of {exact_percent(ascending[ascending.index(high) + 1])}"
    if last:
        return f"above a threshold of {exact_percent(ascending[ascending.index(low) - 1])}"
    if low == high:
        return f"at a threshold of {exact_percent(low)}"
    return f"between thresholds of {exact_percent(low)} and {exact_percent(high)}"


def order_text(
    turns: Sequence[Swap], names: Sequence[str], thresholds: Sequence[float], measure: Measure, *, most: int = 1
) -> str:
    """What becomes of the order over all thresholds, as one sentence without its full stop. The nearest `most` pairs
    are named."""
    span = f"from {exact_percent(thresholds[0])} to {exact_percent(thresholds[-1])}"
    if len(names) < 2:
        return f"One run alone has no order; its {measure.label} is drawn for every threshold {span}"
    if not turns:
        return f"The order of {len(names)} runs by {measure.label} is the same at every threshold {span}"
    parts = [swap_text(swap, names, thresholds) for swap in turns[:most]]
    more = len(turns) - len(parts)
    return "; ".join(parts) + (f"; {more} more {'pairs' if more > 1 else 'pair'} do so" if more else "")


def tau_text(value: float) -> str:
    """'order unchanged (Kendall's tau 1)', 'Kendall's tau 0.71', or that there is no order to compare."""
    if math.isnan(value):
        return "no order to compare"
    return "order unchanged (Kendall's tau 1)" if value == 1 else f"Kendall's tau {value:.2f}"
