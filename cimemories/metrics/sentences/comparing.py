"""Several runs, and the members of a family (groups, cells, judges): what a test tells apart, and what it does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.metrics.intervals import Tallied
from cimemories.metrics.power import Noise
from cimemories.metrics.sentences.numbers import TIE, TITLE_NAMES, decimals, number, p_text, share, shares
from cimemories.metrics.separation import Cell, CellChanges, Standing, separates
from cimemories.metrics.uncertainty import Interval, holm
from cimemories.text import count, listed


def in_so_many(than: str, less: str, more: str, over: str) -> str:
    """Return 'less than A in 2 and more in 1 of 10 domains'; either number may be empty."""
    (word, some), *other = [(word, some) for word, some in (("less", less), ("more", more)) if some]
    also = "".join(f" and {second} in {number}" for second, number in other)
    return f"{word} than {than} in {some}{also} of {over}"


# ---- the highest of a family


def rivals(standing: Standing, noun: str, plural: str = "") -> str:
    """Say how the highest stands to the others: 'clearly above all 9 other domains', 'too close to call against 8 of 9
    other domains'; '' if there is no other."""
    others = count(standing.others, f"other {noun}", f"other {plural}" if plural else "")
    if not standing.others:
        return ""
    every = f"all {others}" if standing.others > 1 else f"the {others.removeprefix('1 ')}"
    if standing.clear:
        return f"clearly above {every}"
    close = every if standing.indistinguishable == standing.others else f"{standing.indistinguishable:,} of {others}"
    return f"too close to call against {close}"


def groups(name: str, what: str, n: int, most: tuple[str, Standing] | None) -> str:
    """Say in which group violation is highest. what: 'domain'; most: as separation.most_violated_group."""
    if most is None:
        return f"{name}: no {what} has an inappropriate flow"
    group, standing = most
    label, value = group.replace("_", " ") or "(none)", share(standing.value)
    if standing.value <= TIE:
        where = f"in any of {count(standing.others + 1, what)}" if standing.others else f"in the only {what}"
        return f"{name}: nothing inappropriate was revealed {where}"
    if not standing.others:
        return f"{name}: violation@{n} is {value} in {label}, the only {what} with an inappropriate flow"
    if standing.clear:
        return f"{name} gives away most in {label}: violation@{n} {value}, {rivals(standing, what)}"
    return f"{name}: violation@{n} is highest in {label} ({value}), {rivals(standing, what)}"


def cell(worst: Cell | None, where: str, measure: str) -> str:
    """Say in which cell most goes wrong, as a clause. where: 'in finance to landlord'; measure: 'violation' or
    'completeness'."""
    leaking = measure == "violation"
    if worst is None:
        return "nothing was inappropriate" if leaking else "nothing was necessary"
    if worst.standing.value <= TIE:
        return "nothing inappropriate was revealed" if leaking else "everything necessary was conveyed"
    noun = "inappropriate pair" if leaking else "necessary pair"
    rests = f"{share(worst.share)} of {count(worst.pairs, noun)}"
    does = "leaked" if leaking else "left out"
    if not worst.standing.others:
        return f"{rests} {does} {where}, the only cell"
    if worst.standing.clear:
        return f"most pairs {does} {where} ({rests}), {rivals(worst.standing, 'cell')}"
    return f"the largest count of pairs {does} is {where} ({rests}), {rivals(worst.standing, 'cell')}"


def cell_title(worst: Cell | None, where: str, measure: str) -> str:
    """Return `cell` as a title; '' if no cell clearly stands out, which is no finding."""
    is_finding = worst is None or worst.standing.value <= TIE or not worst.standing.others or worst.standing.clear
    text = cell(worst, where, measure) if is_finding else ""
    return text[:1].upper() + text[1:]


def heatmap(name: str, n: int, violation: float, attributes: int, completeness: float) -> str:
    """Say a run's numbers, at an n that its maps are read at."""
    return (
        f"{name}: violation@{n} {share(violation)} of {count(attributes, 'attribute')}, "
        f"completeness {share(completeness)}"
    )


def changed_cells(
    changes: CellChanges, first: str, second: str, does: str, where: str, *, unpaired: bool = False
) -> str:
    """Say in how many cells of two heatmaps a test finds a difference, and the largest one if it is one of them, on the
    pairs that both runs have. where: the cell of the largest. unpaired: whether one of the runs has pairs that the
    other has not."""
    if not changes.cells:
        return f"{second} and {first} have no flow in common"
    over = f"{count(changes.cells, 'cell')}"
    less, more = (f"{number:,}" if number else "" for number in (changes.lower, changes.higher))
    if not less and not more:
        return f"In none of {over} does a test tell {second} and {first} apart (Holm)"
    text = f"{second} {does} {in_so_many(first, less, more, over)} (Holm)"
    widest = changes.widest
    if widest is None or not widest.clear:
        return text
    points = number(widest.points, decimals(widest.points), "+")
    rests = f"{count(widest.pairs, 'pair')}{' that both have' if unpaired else ''}"
    return f"{text}; the largest difference is {where} ({points} points of {rests})"


# ---- counts, and judges beside people


def ends(names: Sequence[str], values: Sequence[float]) -> str:
    """Return 'from 12.0 % (legal) to 80.0 % (health)', of counts that are no sample of anything; ties have no ends. At
    least one value, none nan."""
    low, high = min(values), max(values)
    if high - low <= TIE:
        return f"{share(low)} in {'each of ' if len(values) > 1 else ''}{listed_count(names)}"
    least, most = shares(low, high)
    at = [[name for name, value in zip(names, values, strict=True) if abs(value - end) <= TIE] for end in (low, high)]
    return f"from {least} ({listed_count(at[0])}) to {most} ({listed_count(at[1])})"


def contexts_discarded(name: str, discarded: int, contexts: int, standing: Standing) -> str:
    """Say of which profile most contexts are discarded."""
    return _largest(
        f"{discarded:,} of {count(contexts, 'context')} of {name} {'is' if discarded == 1 else 'are'} discarded",
        standing,
        "profile",
    )


def labels_changed(name: str, changed: int, pairs: int, standing: Standing, noun: str, plural: str) -> str:
    """Say in which group most labels change. noun: 'domain'."""
    text = f"{changed:,} of {count(pairs, 'pair')} of {name} change their label"
    return _largest(text, standing, noun, plural)


def _largest(text: str, standing: Standing, noun: str, plural: str = "") -> str:
    if not standing.others:
        return text
    how = "the most" if standing.clear else "the largest count"
    return f"{text}, {how}, {rivals(standing, noun, plural)}"


def listed_count(names: Sequence[str]) -> str:
    """Return the name of one, the number of several."""
    return names[0] if len(names) == 1 else f"{len(names)}"


def leaks_by_run(counts: Sequence[tuple[str, int]]) -> str:
    """Say how many flows each run reveals: '12 by A, 9 by B'; of more than four runs from the fewest to the most."""
    if len(counts) <= 4:
        return ", ".join(f"{number:,} by {name}" for name, number in counts)
    ordered = sorted(counts, key=lambda item: item[1])
    (least, few), (most, many) = ordered[0], ordered[-1]
    if few == many:
        return f"{few:,} by each of {len(counts)} runs"
    return f"from {few:,} by {least} to {many:,} by {most}"


def nearest_judge(judges: Sequence[tuple[str, float, float, float]]) -> str:
    """Say which judge agrees with people most, by F1: (name, value, low, high), nan where undefined. It is called
    nearest only where its interval lies above all others: they judge the same items, so this is cautious."""
    defined = [item for item in judges if not math.isnan(item[1])]
    if len(judges) < 2 or not defined:
        return "How far the judge can be trusted" if len(judges) < 2 else "How far the judges can be trusted"
    first = max(defined, key=lambda item: item[1])
    others = [item for item in judges if item is not first]
    alike = sum(not item[3] < first[2] for item in others)
    if not alike:
        return f"{first[0]} is nearest to people (F1 {first[1]:.2f})"
    beside = rivals(Standing(0, first[1], 0, len(others), alike), "judge")
    return f"{first[0]} has the highest F1 ({first[1]:.2f}), {beside}"


# ---- two runs


@dataclass(frozen=True)
class Tested:
    """A difference with its test. p: adjusted for its family by Holm; family: how many comparisons that has."""

    difference: Interval
    p: float
    family: int = 1

    @property
    def claimed(self) -> bool:
        """True if a difference may be claimed: the test shows it over its family, and the interval excludes 0."""
        return separates(self.p) and not self.difference.has_zero


def single(interval: Interval) -> Tested:
    """Return a difference that is the only one asked for."""
    return Tested(interval, interval.p)


def family(intervals: Sequence[Interval]) -> list[Tested]:
    """Return differences that are read together, such as all runs against the first."""
    adjusted = holm([interval.p for interval in intervals])
    tested = sum(not math.isnan(p) for p in adjusted)
    return [Tested(interval, p, tested) for interval, p in zip(intervals, adjusted, strict=True)]


def difference(tested: Tested, who: str, whom: str, does: str, of: str, what: str = "") -> str:
    """Say how far the second run lies from the first, second minus first: 'B leaks less than A: -4.1 points, 95 % CI
    -7.0 to -1.2 (p = 0.002).' who: the second run; whom: the first; does: 'leaks', 'conveys'; of: the number; what: of
    what."""
    if math.isnan(tested.difference.value):
        return f"{who} and {whom} have no common flow on which {of} could be compared."
    if tested.claimed:
        direction = "less" if tested.difference.value < 0 else "more"
        return f"{who} {does} {direction}{what} than {whom}: {_estimate(tested)}."
    return f"No detectable difference of {who} from {whom} in {of}: {_estimate(tested)}."


def _estimate(tested: Tested) -> str:
    """Return '-1.0 points, 95 % CI -3.0 to 1.0 (p = 0.41)', followed by what limits it."""
    interval = tested.difference
    low, high = 100 * interval.low, 100 * interval.high
    digits = decimals(100 * interval.value, low, high)
    value = f"{number(100 * interval.value, digits)} points, 95 % CI {number(low, digits)} to {number(high, digits)}"
    test = f"{p_text(tested.p)}, Holm over {tested.family} comparisons" if tested.family > 1 else p_text(tested.p)
    limits = "" if interval.speaks_for == "users" else "; of these attributes, with too few users to say more"
    # Where nothing varies there is no test that could have found something.
    nothing = "; nothing varies in what they have in common" if not interval.has_zero and interval.p == 1 else ""
    return f"{value} ({test}){limits}{nothing}"


def difference_short(tested: Tested, does: str) -> str:
    """Return 'leaks less', 'no detectable difference', for a table."""
    if math.isnan(tested.difference.value):
        return "cannot be compared"
    if not tested.claimed:
        return "no detectable difference"
    return f"{does} {'less' if tested.difference.value < 0 else 'more'}"


def changed_flows(tallied: Tallied) -> str:
    """Say how many flows newly leak and no longer leak, beside what chance alone would change."""
    verb = "leaks" if tallied.newly == 1 else "leak"
    text = f"{count(tallied.newly, 'flow')} newly {verb}, {tallied.stopped:,} stopped leaking"
    if math.isnan(tallied.newly_by_chance) or not tallied.newly + tallied.stopped:
        return text
    newly, stopped = (about(value) for value in (tallied.newly_by_chance, tallied.stopped_by_chance))
    chance = f"{newly} and {stopped}" if newly != stopped else f"{newly} of each"
    return f"{text}; a repetition with equal leak probabilities would show about {chance}"


def about(expected: float) -> str:
    """Return an expected number: '0.4', '640'."""
    return f"{expected:,.1f}" if expected < 9.95 else count(round(expected))


def domains(frame: pd.DataFrame, first: str, second: str) -> str:
    """Say in how many domains (intervals.domain_frame) a test over all of them finds a difference."""
    tested = frame[frame["violation_p"].notna()]
    if tested.empty:
        return f"{second} and {first} have no inappropriate flow in common"
    clear = tested[tested["violation_p"].map(separates) & (tested["violation_low"] * tested["violation_high"] > 0)]
    less, more = (
        [str(name).replace("_", " ") for name in clear.loc[side, "domain"]]
        for side in (clear["violation"] < 0, clear["violation"] > 0)
    )
    over = f"{count(len(tested), 'domain')}"
    if not less and not more:
        return f"In none of {over} does a test tell {second} and {first} apart (Holm)"
    return f"{second} leaks {in_so_many(first, _some(less), _some(more), over)} (Holm)"


def _some(names: Sequence[str]) -> str:
    text = listed(names)
    return "" if not names else f"{len(names)} ({text})" if len(text) <= TITLE_NAMES else f"{len(names)}"


def noise_floor(noise: Noise, n: int) -> str:
    """Say how far apart two runs would lie by chance alone; '' if nothing can be compared."""
    sides = (("violation", f"violation@{n}"), ("completeness", "completeness"))
    defined = [(100 * getattr(noise, side), name) for side, name in sides if not math.isnan(getattr(noise, side))]
    if not defined:
        return ""
    digits = decimals(*(value for value, _ in defined))
    parts = [f"{number(value, digits)} points of {name}" for value, name in defined]
    return (
        f"Noise floor: with equal leak probabilities, two such runs would lie up to about {listed(parts)} apart "
        "by their samples alone, in 95 % of repetitions"
    )


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
    close, others = ranking.balanced.indistinguishable, ranking.balanced.others
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
