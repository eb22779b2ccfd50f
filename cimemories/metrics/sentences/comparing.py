"""Several runs: the leaderboard, and along what a sweep varies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cimemories.metrics.sentences.numbers import TIE, TITLE_NAMES, share, shares
from cimemories.metrics.separation import Standing, separates
from cimemories.metrics.uncertainty import Interval

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
    """Tests of a table's runs, on common flows. balanced: standing of the run with the highest score among the others;
    violation_p: that of the highest violation against the lowest, for all pairs that these two could have been."""

    balanced: Standing
    violation_p: float


def leaderboard(violation_name: str, runs: Sequence[Ranked], ranking: Ranking | None) -> str:
    """Say what a table of runs shows. runs: those with both numbers that can be ranked, the highest balanced score
    first. ranking: None where runs cannot be compared; then nothing is said of an order."""
    if not runs:
        return "No run has both a violation and a completeness yet."
    first = runs[0]
    if len(runs) == 1:
        complete = share(first.completeness.value)
        return f"{first.name}: {violation_name} {share(first.violation.value)}, completeness {complete}."
    low = min(runs, key=lambda run: run.violation.value)
    high = max(runs, key=lambda run: run.violation.value)
    least, most = shares(low.violation.value, high.violation.value)
    best = f"Best balance: {first.name}, {share(first.balanced.value)}"
    if high.violation.value - low.violation.value <= TIE:
        start = f"{violation_name} is {least} in all {len(runs)} runs"
        if first.balanced.value - min(run.balanced.value for run in runs) <= TIE:
            return f"{start}, the balanced score {share(first.balanced.value)}."
    elif ranking is not None and separates(ranking.violation_p):
        start = f"{violation_name} ranges from {least} ({low.name}) to {most} ({high.name})"
    else:
        start = f"{violation_name} lies between {least} ({low.name}) and {most} ({high.name}), too close to call"
    if ranking is None:
        return f"{start}."
    close, others = ranking.balanced.alike, ranking.balanced.others
    if not ranking.balanced.clear:
        whose = "the other" if others == 1 else "one other" if close == 1 else f"{close} of {others} others"
        best += f"; {whose} {'is' if close == 1 else 'are'} too close to call"
    return f"{best}. {start}."


def unranked(runs: int) -> str:
    """Say that no run of a table can be ranked."""
    return f"None of {runs} runs has full coverage, so none can be ranked."


def some_ranked(ranked: int, runs: int) -> str:
    """Return '2 of 16 runs can be ranked. ', before what is said of these; '' where all are."""
    return f"{ranked} of {runs} runs can be ranked. " if ranked < runs else ""


def plane(on_front: Sequence[str], runs: int) -> str:
    """Describe runs in the plane of violation and completeness. on_front: names of those that no other beats, by their
    values alone: which of two runs is better is said by their difference."""
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
    """Say what a number does between two runs, and return whether a test (p, adjusted) shows it. at: where the first of
    them stands, if not at the beginning."""
    first, last = ends
    before, after = shares(first.value, last.value)
    if separates(p) and abs(last.value - first.value) > TIE:
        return f"{name} {'falls' if last.value < first.value else 'rises'} from {before}{at} to {after}", True
    return f"{name} ({before}{at}, {after})", False


def apart_p(first: Interval, last: Interval) -> float:
    """Return p of the difference of two numbers, taken as independent: runs on the same users and tasks go up and down
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
    """Say what changes from one end of a series to the other. series: its name where there are several, else empty."""
    clear, unclear = ([text for text, is_clear in changes if is_clear == wanted] for wanted in (True, False))
    clause = " and ".join(clear)
    if unclear:
        doubt = f"no test shows that {' or '.join(unclear)} {'change' if len(unclear) > 1 else 'changes'}"
        clause = f"{clause}; {doubt}" if clause else doubt
    text = f"rom {ticks[0]} to {ticks[1]} {clause or 'nothing can be measured'}"
    return f"{series}: f{text}" if series else f"F{text}"
