"""Several runs: the leaderboard, along what a sweep varies, and what settings do to their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cimemories.metrics.sentences.families import rivals
from cimemories.metrics.sentences.numbers import LONGEST, TIE, TITLE_NAMES, number, share, shares
from cimemories.metrics.separation import Standing, separates
from cimemories.metrics.uncertainty import Interval
from cimemories.text import count, exact_percent, lies_between, listed, shortened

# ---- the leaderboard


@dataclass(frozen=True)
class Ranked:
    """One run of a table: what it is called, and its numbers."""

    name: str
    violation: Interval
    completeness: Interval
    balanced: Interval


@dataclass(frozen=True)
class Ranking:
    """Tests of a table's runs, on common flows. balanced: how the run with the highest score stands to the others;
    violation_p: that of the highest violation against the lowest, for all pairs that these two could have been."""

    balanced: Standing
    violation_p: float


def leaderboard(violation_name: str, runs: Sequence[Ranked], ranking: Ranking | None) -> str:
    """What a table of runs says. runs: those with both numbers that can be ranked, the highest balanced score first.
    ranking: None where runs cannot be compared; then nothing is said of an order."""
    if not runs:
        return "No run has both a violation and a completeness yet."
    first = runs[0]
    if len(runs) == 1:
        complete = share(first.completeness.value)
        return f"{first.name}: {violation_name} {share(first.violation.value)}, completeness {complete}."
    low = min(runs, key=lambda run: run.violation.value)
    high = max(runs, key=lambda run: run.violation.value)
    least, most = shares(low.violation.value, high.violation.value)
    score = share(first.balanced.value)
    if high.violation.value - low.violation.value <= TIE:
        start = f"{violation_name} is {least} in all {len(runs)} runs"
        if first.balanced.value - min(run.balanced.value for run in runs) <= TIE:
            return f"{start}, the balanced score {score}."
    elif ranking is not None and separates(ranking.violation_p):
        start = f"{violation_name} ranges from {least} ({low.name}) to {most} ({high.name})"
    else:
        start = (
            f"{violation_name} lies between {least} ({low.name}) and {most} ({high.name}), which no test tells apart"
        )
    if ranking is None:
        return f"{start}."
    if ranking.balanced.clear:
        return f"{start}; {first.name} has the best balanced score, {score}."
    return f"{start}; the highest balanced score, {score} ({first.name}), is {rivals(ranking.balanced, 'run')}."


def unranked(runs: int) -> str:
    """Of a table in which no run can be ranked."""
    return f"None of {runs} runs has full coverage, so none is ranked."


def some_ranked(ranked: int, runs: int) -> str:
    """'Of 16 runs 2 are ranked: ', before what is said of these; empty where all are."""
    return f"Of {runs} runs {ranked} {'is' if ranked == 1 else 'are'} ranked: " if ranked < runs else ""


def plane(on_front: Sequence[str], runs: int) -> str:
    """Runs in the plane of violation and completeness. on_front: names of those that no other beats, by their values
    alone: which of two runs is better is said by their difference."""
    if not on_front:
        return "No run is ranked, so there is no front"
    if runs == 1:
        return f"One run alone: {on_front[0]}"
    if len(on_front) == 1:
        return f"By its values {on_front[0]} leaks least and conveys most of {runs} runs"
    named = ", ".join(on_front)
    text = f"By their values {len(on_front)} of {runs} runs are on the Pareto front"
    return f"{text}: {named}" if len(named) <= TITLE_NAMES else text


# ---- along what a sweep varies


def moved(name: str, ends: tuple[Interval, Interval], p: float, at: str = "") -> tuple[str, bool]:
    """What a number does between two runs, and whether a test (p, adjusted) says so. at: where the first of them
    stands, if not at the beginning."""
    first, last = ends
    before, after = shares(first.value, last.value)
    if separates(p) and abs(last.value - first.value) > TIE:
        return f"{name} {'falls' if last.value < first.value else 'rises'} from {before}{at} to {after}", True
    return f"{name} ({before}{at}, {after})", False


def apart_p(first: Interval, last: Interval) -> float:
    """p of the difference of two numbers, taken as independent: runs on the same users and tasks go up and down
    together, so this is cautious. nan where either has no standard error, 1 where nothing varies."""
    from scipy.special import stdtr

    error = math.hypot(first.error, last.error)
    if math.isnan(error) or math.isnan(first.value) or math.isnan(last.value):
        return math.nan
    if error**2 <= 1e-18:
        return 1.0
    # Welch and Satterthwaite.
    spent = sum(side.error**4 / side.freedom for side in (first, last) if side.freedom > 0)
    freedom = error**4 / spent if spent > 0 else 1.0
    return float(2 * stdtr(freedom, -abs(last.value - first.value) / error))


def sweep(series: str, ticks: tuple[str, str], changes: Sequence[tuple[str, bool]]) -> str:
    """From one end of a series to the other. series: its name where there are several, else empty."""
    clear, unclear = ([text for text, is_clear in changes if is_clear == wanted] for wanted in (True, False))
    clause = " and ".join(clear)
    if unclear:
        doubt = f"no test shows that {' or '.join(unclear)} {'change' if len(unclear) > 1 else 'changes'}"
        clause = f"{clause}; {doubt}" if clause else doubt
    text = f"rom {ticks[0]} to {ticks[1]} {clause or 'nothing can be measured'}"
    return f"{series}: f{text}" if series else f"F{text}"


# ---- sensitivity: what settings do. Changes of settings are exact; only what they say of models is uncertain


class Named(Protocol):
    """A number that runs are ordered by: 'balanced score', 'the balanced score'."""

    @property
    def label(self) -> str: ...
    @property
    def named(self) -> str: ...


class Swapped(Protocol):
    """Two runs that change places, at stretches of thresholds (compare/ranking.py)."""

    @property
    def ahead(self) -> int: ...
    @property
    def behind(self) -> int: ...
    @property
    def spans(self) -> tuple[tuple[float, float], ...]: ...


class Moved(Protocol):
    """The effect of one choice on a number (extras/sensitivity/choices.py)."""

    @property
    def low(self) -> float: ...
    @property
    def low_at(self) -> tuple[str, int]: ...
    @property
    def high(self) -> float: ...
    @property
    def high_at(self) -> tuple[str, int]: ...
    @property
    def least_tau(self) -> float: ...
    @property
    def settings(self) -> int: ...


class OfSubsets(Protocol):
    """Numbers over subsets of k profiles (extras/sensitivity/choices.py)."""

    @property
    def k(self) -> int: ...
    @property
    def low(self) -> np.ndarray: ...
    @property
    def high(self) -> np.ndarray: ...
    @property
    def same_order(self) -> float: ...
    @property
    def same_best(self) -> float: ...


VISIBLE = 0.0005  # a change of a share below it would read as 0.0 points
IDLE_PRIORS = "where all personas must agree, no priors above 0 change anything"


def choices(ranges: Sequence[Moved], names: Sequence[str], measure: Named) -> str:
    """The largest change that any setting makes, by its name."""
    sides = [side for item in ranges for side in ((item.low, item.low_at), (item.high, item.high_at))]
    change, (setting, run) = max(sides, key=lambda side: abs(side[0]))
    if abs(change) < VISIBLE:
        return f"No choice moves {measure.named} of any run by a tenth of a point"
    number_of = sum(item.settings for item in ranges)
    most = f", the largest change of {number_of} settings" if number_of > 1 else ""
    start = setting if setting.startswith("without") else f"with {setting}"
    who = shortened(names[run], LONGEST)
    size = number(100 * change, 1, "+")
    text = f"{start[0].upper()}{start[1:]}, {measure.named} of {who} changes by {size} points{most}"
    turned = sum(item.least_tau < 1 for item in ranges)
    if not all(math.isnan(item.least_tau) for item in ranges):
        text += f"; {turned} of {count(len(ranges), 'choice')} can change the order of values"
    return text


def personas(changes: Sequence[tuple[str, str, float]], measure: Named) -> str:
    """Each persona left out: (persona, run, change). The largest change by its name."""
    known = [item for item in changes if not math.isnan(item[2])]
    if not known:
        return ""
    who, run, most = max(known, key=lambda item: abs(item[2]))
    if abs(most) < VISIBLE:
        return f"Leaving out one persona moves {measure.named} of no run"
    largest = f", the largest of {count(len(known), 'change')}" if len(known) > 1 else ""
    return f"Without the {who}, {measure.named} of {run} changes by {number(100 * most, 1, '+')} points{largest}"


def subsets(by_k: Sequence[OfSubsets], k: int, runs: int) -> str:
    """What k profiles would have said. by_k: of each size from 1 to all."""
    size, of = by_k[k - 1], len(by_k)
    if runs < 2:
        ends = shares(float(size.low[0]), float(size.high[0]))
        if k == of:
            return f"With all {of} profiles the number is {ends[0]}"
        return f"With {k} of {of} profiles the number {lies_between(*ends)} in the middle 95 % of the subsets"
    if k == of:
        half = by_k[max(k // 2, 1) - 1]
        return (
            f"Half of the profiles ({half.k} of {k}) give the order of all in {share(half.same_order)} of the subsets"
        )
    return (
        f"{k} of {of} profiles give the order of all in {share(size.same_order)} of the subsets, "
        f"and the same first run in {share(size.same_best)}"
    )


def one_run_over_thresholds(name: str, measure: Named, values: Sequence[float], thresholds: Sequence[float]) -> str:
    """The number of one run over consensus thresholds; nan where it is undefined."""
    known = [value for value in values if not math.isnan(value)]
    low, high = shares(min(known), max(known))
    verb = f"lies between {low} and {high} over" if max(known) - min(known) > TIE else f"is {low} at all"
    return (
        f"{measure.named[0].upper()}{measure.named[1:]} of {shortened(name, LONGEST)} {verb} "
        f"thresholds from {exact_percent(thresholds[0])} to {exact_percent(thresholds[-1])}"
    )


def swap(swapped: Swapped, names: Sequence[str], thresholds: Sequence[float]) -> str:
    """'Qwen and Llama change places below a threshold of 80 %'."""
    spans = [_span(low, high, thresholds) for low, high in swapped.spans]
    return f"{names[swapped.ahead]} and {names[swapped.behind]} change places {listed(spans)}"


def _span(low: float, high: float, thresholds: Sequence[float]) -> str:
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


def order(
    turns: Sequence[Swapped], names: Sequence[str], thresholds: Sequence[float], measure: Named, *, most: int = 1
) -> str:
    """What becomes of the order of values over all thresholds, without a full stop. The nearest `most` pairs are
    named."""
    span = f"from {exact_percent(thresholds[0])} to {exact_percent(thresholds[-1])}"
    if len(names) < 2:
        return f"One run alone has no order; its {measure.label} is drawn for every threshold {span}"
    if not turns:
        return f"The order of {len(names)} runs by {measure.label} is the same at every threshold {span}"
    parts = [swap(turn, names, thresholds) for turn in turns[:most]]
    more = len(turns) - len(parts)
    return "; ".join(parts) + (f"; {more} more {'pairs' if more > 1 else 'pair'} do so" if more else "")


def tau(value: float) -> str:
    """'order unchanged (Kendall's tau 1)', 'Kendall's tau 0.71', or that there is no order to compare."""
    if math.isnan(value):
        return "no order to compare"
    # Not rounded up to an order that is unchanged.
    shown = f"{value:.2f}" if f"{value:.2f}" != "1.00" else f"{value:.4f}"
    return "order unchanged (Kendall's tau 1)" if value == 1 else f"Kendall's tau {shown}"


def order_change(turned: Sequence[tuple[str, str]], runs: int, of_tau: float) -> str:
    """What a setting does to the order, without a full stop. turned: (passes, passed)."""
    if runs < 2:
        return "One run alone has no order"
    if not turned:
        return "No two runs change places" if math.isnan(of_tau) or of_tau == 1 else "Runs tie that did not"
    text = "; ".join(f"{passes} passes {passed}" for passes, passed in turned[:3])
    more = len(turned) - 3
    return text + (f"; {more} more {'pairs' if more > 1 else 'pair'} change places" if more > 0 else "")
