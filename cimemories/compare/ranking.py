"""Runs that are ranked together, and their order by a number: the Pareto front, ranks, Kendall's tau between two
orders, and changes of places."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations

import numpy as np

from cimemories.flows.arrays import Bools, Floats
from cimemories.flows.scope import Scope
from cimemories.metrics.headline import Headline
from cimemories.metrics.warnings import COVERAGE_WARNING
from cimemories.store.runs import RunRow
from cimemories.text import count, exact_percent, listed, percent

# ---- runs that are ranked together


def memory_text(row: RunRow) -> str:
    """Return the memory of a run in few words: 'full', 'random-50, shuffled', 'full, sessions last-3'."""
    order, sessions = row.manifest.memory.order, row.manifest.sessions
    text = row.composition if order == "fixed" else f"{row.composition}, {order}"
    return text if sessions is None else f"{text}, sessions {sessions.kept}"


def common_samples(numbers: Headline, n: int | None) -> int:
    """Return the samples that a run can be read at beside others: all that every flow of it has, at most n if given."""
    samples = numbers.scope.run.samples
    return min(n or samples, samples, numbers.supported_n or samples)


def _judged_by(scope: Scope) -> tuple[Hashable, ...]:
    # By the prompt too: one name with two wordings is two judges.
    prompts = tuple(sorted(judge.prompt_hash or "" for judge in scope.judges))
    return scope.judge_text, prompts, scope.grounded, str(scope.verdicts)


def planned_contexts(run: RunRow) -> int:
    """Count the (profile, context) pairs that a run has messages planned for."""
    return math.ceil(run.expected / run.samples)


@dataclass(frozen=True)
class LeastSize:
    """Least size that a run has to have planned to be ranked: (profile, context) pairs, and samples of each."""

    contexts: int = 0
    samples: int = 0

    @classmethod
    def of(cls, every: Sequence[Headline], n: int | None) -> LeastSize:
        """Return the sizes that make the most of these runs with full coverage, so that one small run does not take
        from all others what they have: as many pairs as give the most (runs, pair) in common; among these as many
        samples as give the most (run, sample), of two runs or more. n: the samples that are read at most."""
        covered = [item.scope.run for item in every if item.covered]
        contexts = _most_in_common([planned_contexts(run) for run in covered])
        wide = [run for run in covered if planned_contexts(run) >= contexts]
        return cls(contexts, _most_in_common([min(n or run.samples, run.samples) for run in wide], least_runs=2))

    def reason(self, run: RunRow) -> str:
        """Say why a run is too small; '' if it is not."""
        if (contexts := planned_contexts(run)) < self.contexts:
            return f"covers {contexts:,} of {count(self.contexts, 'context')}"
        return f"has {run.samples} of {count(self.samples, 'sample')}" if run.samples < self.samples else ""


ANY_SIZE = LeastSize()


def _most_in_common(sizes: Sequence[int], least_runs: int = 1) -> int:
    """Return the size for which (runs that have it) x size is largest; of equals the smaller. 0 for no runs."""
    ordered = sorted(sizes, reverse=True)
    numbers = range(min(least_runs, len(ordered)), len(ordered) + 1)
    best = max(numbers, key=lambda runs: (runs * ordered[runs - 1], runs)) if ordered else 0
    return ordered[best - 1] if best else 0


def ranked_group(every: Sequence[Headline], least: LeastSize) -> list[int]:
    """Return positions of the runs that are ranked: the most with one judge and one memory, among those with full
    coverage and of this size; of two groups as large, the one with the most flows."""
    groups: dict[Hashable, list[int]] = {}
    for i, numbers in enumerate(every):
        if numbers.covered and not least.reason(numbers.scope.run):
            groups.setdefault((_judged_by(numbers.scope), memory_text(numbers.scope.run)), []).append(i)
    return max(groups.values(), key=lambda group: (len(group), max(every[i].flows for i in group)), default=[])


def why_not_ranked(numbers: Headline, leader: Headline | None, there: bool, least: LeastSize) -> str:
    """Say why a run is not ranked; '' if it is. leader: one that is. there: whether it is in the ranked group, and that
    has flows in common. least: the size of ranked runs."""
    if not numbers.covered:
        return f"coverage {percent(numbers.coverage)}, under {exact_percent(COVERAGE_WARNING)}"
    if small := least.reason(numbers.scope.run):
        return small
    if there or leader is None:
        return ""
    own, others = numbers.scope, leader.scope
    if memory_text(own.run) != memory_text(others.run):
        return f"its memory is {memory_text(own.run)}, that of ranked runs {memory_text(others.run)}"
    if own.judge_text != others.judge_text:
        return f"judged by {own.judge_text}, ranked runs by {others.judge_text}"
    if _judged_by(own) != _judged_by(others):
        return "its judge has another prompt, or other claims of it count, than of ranked runs"
    return "ranked runs would have no judged flow in common"


# ---- the order


def front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Mark the (violation, completeness) points that are on the Pareto front: no other has at most its violation and at
    least its completeness, and is better in one of them. Equal points are on it together; one with nan never is."""
    return [
        not (math.isnan(v) or math.isnan(c))
        and not any(other_v <= v and other_c >= c and (other_v < v or other_c > c) for other_v, other_c in points)
        for v, c in points
    ]


DECIMALS = 12  # two numbers that agree to so many places are a tie, however they were summed


class Measure(StrEnum):
    """Numbers that runs are ordered by."""

    BALANCED = "balanced"
    VIOLATION = "violation"
    COMPLETENESS = "completeness"

    @property
    def label(self) -> str:
        return "balanced score" if self == Measure.BALANCED else str(self)

    @property
    def named(self) -> str:
        """Return the measure as it stands in a sentence: 'the balanced score', 'violation'."""
        return f"the {self.label}" if self == Measure.BALANCED else self.label

    def goodness(self, values: Floats) -> Floats:
        """Turn values so that more is better, and round them to DECIMALS."""
        return np.round(-values if self == Measure.VIOLATION else values, DECIMALS)


def ranks(values: Floats, measure: Measure) -> Floats:
    """Return ranks: 1 for the best, ties share the better rank, nan where the number is undefined. values: [runs] or
    [runs, T], put in order along the runs."""
    from scipy.stats import rankdata  # takes a second to import

    # inf puts undefined numbers behind all others; their rank is taken away again below.
    result = rankdata(np.where(np.isnan(values), np.inf, -measure.goodness(values)), method="min", axis=0)
    return np.where(np.isnan(values), np.nan, result)


def tau(first: Floats, second: Floats) -> float:
    """Return Kendall's tau-b (M. G. Kendall, Biometrika 33, 1945: with ties) of two sets of ranks [runs], over the runs
    that have both; nan with fewer than two of them, or where all are tied on one side."""
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
    """Return pairs of runs that change places: (the one that passes, the one that it passes), by positions. A tie on
    either side is no change of places. before, after: [runs]."""
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
    """Return every pair of runs whose order turns round at some threshold, nearest to `at` first. A tie is no turn.

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
    """Return stretches of neighbouring thresholds where the mask holds."""
    # 1 where a stretch begins, -1 one past its end.
    edges = np.diff(np.concatenate([[0], mask.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) - 1
    return tuple((thresholds[a], thresholds[b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True))


# ---- in words


def swap_text(swapped: Swap, names: Sequence[str], thresholds: Sequence[float]) -> str:
    """Return 'Qwen and Llama change places below a threshold of 80 %'."""
    spans = [_span(low, high, thresholds) for low, high in swapped.spans]
    return f"{names[swapped.ahead]} and {names[swapped.behind]} change places {listed(spans)}"


def _span(low: float, high: float, thresholds: Sequence[float]) -> str:
    """Say where a stretch lies among all thresholds. Below and above name the first threshold that is not in it."""
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
    """Say how the order of values changes over all thresholds. The nearest `most` pairs are named."""
    span = f"from {exact_percent(thresholds[0])} to {exact_percent(thresholds[-1])}"
    if len(names) < 2:
        return f"One run alone has no order; its {measure.label} is drawn for every threshold {span}"
    if not turns:
        return f"The order of {len(names)} runs by {measure.label} is the same at every threshold {span}"
    parts = [swap_text(turn, names, thresholds) for turn in turns[:most]]
    more = len(turns) - len(parts)
    return "; ".join(parts) + (f"; {more} more {'pairs' if more > 1 else 'pair'} do so" if more else "")


def tau_text(value: float) -> str:
    """Return 'order unchanged (Kendall's tau 1)', 'Kendall's tau 0.71', or that there is no order to compare."""
    if math.isnan(value):
        return "no order to compare"
    # Not rounded up to an order that is unchanged.
    shown = f"{value:.2f}" if f"{value:.2f}" != "1.00" else f"{value:.4f}"
    return "order unchanged (Kendall's tau 1)" if value == 1 else f"Kendall's tau {shown}"


def order_change(turned: Sequence[tuple[str, str]], runs: int, of_tau: float) -> str:
    """Say what a setting does to the order. turned: (passes, passed)."""
    if runs < 2:
        return "One run alone has no order"
    if not turned:
        return "No two runs change places" if math.isnan(of_tau) or of_tau == 1 else "Runs tie that did not"
    text = "; ".join(f"{passes} passes {passed}" for passes, passed in turned[:3])
    more = len(turned) - 3
    return text + (f"; {more} more {'pairs' if more > 1 else 'pair'} change places" if more > 0 else "")
