"""Every sentence about numbers: takeaways of pages, titles of figures, notes, and what commands and reports say.

All are made here, of results that know their uncertainty, so that none claims more than its numbers do:

    claims      a difference, a most or a best is claimed only where a test over its whole family separates it (Holm);
                otherwise a number is the highest one, and it is said from how many others it is not separable
    ties        what is 0 in all of a family is no finding, and neither is a tie
    digits      decisions are taken on unrounded numbers; numbers are printed with as many digits as it takes that
                none which is not 0 reads as 0, and no two that differ read alike
    counts      what was judged, not what was planned

    difference(tested, "B", "A", "leaks", "violation@5")
    'B leaks 4.1 points less than A [1.2, 7.0]; the interval does not include 0.'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd

from cimemories.metrics.accumulation import Accumulation, Clock, Effort, Survival
from cimemories.metrics.breakdown import INAPPROPRIATE_FLOWS, NECESSARY_FLOWS, FlowCoverage
from cimemories.metrics.intervals import Tallied
from cimemories.metrics.judge_uncertainty import CorrectedViolation
from cimemories.metrics.one_user import OneUser
from cimemories.metrics.power import Detectable, Noise, Pilot, Row, Size
from cimemories.metrics.separation import SIGNIFICANT, Cell, CellChanges, Standing, separates
from cimemories.metrics.uncertainty import ENOUGH_USERS, LEAST_USERS, NORMAL_95, Interval, holm, unseen_users
from cimemories.metrics.warnings import coverage_warning
from cimemories.store.runs import RunRow
from cimemories.text import UNDEFINED, count, exact_percent, listed, percent, shortened

TIE = 1e-12  # two shares that agree to so much are one number, however they were summed
LONGEST = 38  # characters of a run's name in a title
TITLE_NAMES = 70  # characters of names that a title may hold


# ---- numbers as text


def decimals(*points: float) -> int:
    """The fewest decimals, 1 to 4, with which none of these numbers reads as 0 that is not."""
    smallest = min((abs(value) for value in points if abs(value) > 100 * TIE), default=1.0)
    return next((digits for digits in range(1, 4) if round(smallest, digits)), 4)


def number(points: float, digits: int = 1, sign: str = "") -> str:
    """Percentage points or percent: '4.1', with a sign '+4.1'; what so many digits would make 0 as '2e-06'."""
    if abs(points) <= 100 * TIE:
        return f"{0:.{digits}f}"
    return f"{points:{sign}.1g}" if not round(points, digits) else f"{points:{sign}.{digits}f}"


def share(value: float) -> str:
    """'12.4 %', with more digits where it would read as 0 or 100 and is not; a dash for nan."""
    return shares(value)[0]


def shares(*values: float) -> list[str]:
    """Shares that stand beside each other in a sentence: with so many digits that no two different ones read alike."""
    known = [100 * value for value in values if not math.isnan(value)]
    digits = max((decimals(value, 100 - value) for value in known), default=1)
    different = {round(value, 10) for value in known}
    while digits < 4 and len({round(value, digits) for value in known}) < len(different):
        digits += 1
    if digits == 1:
        return [percent(value) for value in values]
    return [UNDEFINED if math.isnan(value) else f"{number(100 * value, digits)} %" for value in values]


def p_text(p: float) -> str:
    """'p = 0.012', 'p < 0.001'; with so many digits that it does not read as 0.05 where it is below."""
    if p < 0.001:
        return "p < 0.001"
    digits = next(d for d in (3, 4, 6, 9, 12, 17) if (round(p, d) < SIGNIFICANT) == (p < SIGNIFICANT) or d == 17)
    return f"p = {min(p, 1.0):.{digits}f}"


def bounds(apart: Interval) -> str:
    """'[-4.1, 7.0]' in points, so that it can be read off whether 0 is inside; empty where there is none."""
    if math.isnan(apart.low):
        return ""
    low, high = 100 * apart.low, 100 * apart.high
    digits = decimals(low, high)
    return f"[{number(low, digits, '+')}, {number(high, digits, '+')}]"


def points(apart: Interval) -> str:
    """'-1.2': a difference in percentage points; a dash where undefined."""
    value = 100 * apart.value
    return UNDEFINED if math.isnan(value) else number(value, decimals(value), "+")


def signed(apart: Interval) -> str:
    """'-1.2 [-4.1, +0.7]', in percentage points; empty where undefined."""
    return "" if math.isnan(apart.value) else f"{points(apart)} {bounds(apart)}"


# ---- what an interval is made of


def made_of(item: Interval) -> str:
    """'of the ±4.1 points: users 3.2, contexts 2.4, labels 1.3, samples 0.8; what the judge gets wrong is not in it'.

    Half of the interval's width by its parts, whose squares add up; empty where there is no interval."""
    if math.isnan(item.low) or item.parts is None:
        return ""
    widths = {name: 100 * width for name, width in item.part_widths().items()}
    if not widths:
        return "nothing varies among these profiles: the interval is that of as many alike attributes"
    half = 50 * (item.high - item.low)
    digits = decimals(half)
    # With few profiles these count as given, and what is left is chance among their attributes.
    names = {"users": item.speaks_for}
    parts = ", ".join(f"{names.get(name, name)} {width:.{digits}f}" for name, width in widths.items())
    without = "; what the judge gets wrong is not in it" if "judge" not in widths else ""
    return f"of the ±{number(half, digits)} points: {parts}{without}"


def unseen(profiles: int) -> str:
    """What no interval from few profiles can say: 'a kind of user rarer than 26 % may be missing among 10 profiles; no
    interval speaks of it'. Empty from 59 profiles on, and without any."""
    if not 0 < profiles < ENOUGH_USERS:
        return ""
    rarer = f"{100 * unseen_users(profiles):.0f} %"
    return (
        f"a kind of user rarer than {rarer} may be missing among {count(profiles, 'profile')}; no interval speaks of it"
    )


# ---- differences of two runs


@dataclass(frozen=True)
class Tested:
    """A difference with its test. p: adjusted for its family by Holm; family: how many comparisons that has."""

    apart: Interval
    p: float
    family: int = 1

    @property
    def claimed(self) -> bool:
        """Whether it may be said that the two differ: the test says so over its family, and the interval does."""
        return separates(self.p) and not self.apart.has_zero


def alone(apart: Interval) -> Tested:
    """A difference that is the only one asked for."""
    return Tested(apart, apart.p)


def family(intervals: Sequence[Interval]) -> list[Tested]:
    """Differences that are read together, such as all runs against the first."""
    adjusted = holm([apart.p for apart in intervals])
    tested = sum(not math.isnan(p) for p in adjusted)
    return [Tested(apart, p, tested) for apart, p in zip(intervals, adjusted, strict=True)]


def difference(tested: Tested, who: str, whom: str, does: str, of: str, what: str = "") -> str:
    """A difference in percentage points. who: the second run; whom: the first; does: 'leaks', 'conveys'; of: the
    number; what: of what. The bounds are of its size: 'less' by so much."""
    apart = tested.apart
    if math.isnan(apart.value):
        return f"{who} and {whom} have no common flow on which {of} could be compared."
    sign = -1 if apart.value < 0 else 1
    # Turned with the sign, the bounds change places.
    low, high = sorted((100 * sign * apart.low, 100 * sign * apart.high))
    value = 100 * abs(apart.value)
    digits = decimals(value, low, high)
    interval = f"[{number(low, digits)}, {number(high, digits)}]"
    direction = "less" if sign < 0 else "more"
    size = f"{number(value, digits)} points {direction}"
    if tested.claimed:
        among = f" ({p_text(tested.p)} among {tested.family} comparisons)" if tested.family > 1 else ""
        of_users = "" if apart.speaks_for == "users" else ", of these attributes and not of users,"
        return f"{who} {does} {size}{what} than {whom} {interval}; the interval{of_users} does not include 0{among}."
    if abs(apart.value) <= TIE:
        start = f"{who} {does} as much{what} as {whom} {interval}"
    else:
        start = f"{who} {does} perhaps as much{what} as {whom}: {size} {interval}"
    return f"{start}; {_unclear(tested)}."


def _unclear(tested: Tested) -> str:
    """Why a difference is not claimed."""
    if tested.apart.has_zero:
        return "the interval includes 0, so they may be alike"
    if tested.family > 1 and separates(tested.apart.p):
        return f"one of {tested.family} comparisons may differ so much by chance ({p_text(tested.p)}, Holm)"
    return "nothing varies in what they have in common, so no test tells them apart"


def difference_short(tested: Tested, does: str) -> str:
    """'leaks less', 'leaks perhaps as much', for a table."""
    if math.isnan(tested.apart.value):
        return "cannot be compared"
    if not tested.claimed:
        return f"{does} perhaps as much"
    return f"{does} {'less' if tested.apart.value < 0 else 'more'}"


def changed_flows(tallied: Tallied) -> str:
    """How many flows newly leak and no longer leak, beside what chance alone would change."""
    verb = "leaks" if tallied.newly == 1 else "leak"
    text = f"{count(tallied.newly, 'flow')} newly {verb}, {tallied.stopped:,} stopped leaking"
    if math.isnan(tallied.newly_by_chance) or not tallied.newly + tallied.stopped:
        return text
    newly, stopped = (about(value) for value in (tallied.newly_by_chance, tallied.stopped_by_chance))
    chance = f"{newly} and {stopped}" if newly != stopped else f"{newly} of each"
    return f"{text}; a repetition with equal leak probabilities would show about {chance}"


def about(expected: float) -> str:
    """An expected number: '0.4', '640'."""
    return f"{expected:,.1f}" if expected < 9.95 else count(round(expected))


def domains(frame: pd.DataFrame, first: str, second: str) -> str:
    """Differences by domain (intervals.by_domain): where a test over all domains finds one."""
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
    return f"{second} leaks {_in_so_many(first, _some(less), _some(more), over)} (Holm)"


def _some(names: Sequence[str]) -> str:
    text = listed(names)
    return "" if not names else f"{len(names)} ({text})" if len(text) <= TITLE_NAMES else f"{len(names)}"


def _in_so_many(than: str, less: str, more: str, over: str) -> str:
    """'less than A in 2 and more in 1 of 10 domains'; either number may be empty."""
    (word, some), *other = [(word, some) for word, some in (("less", less), ("more", more)) if some]
    also = "".join(f" and {second} in {number}" for second, number in other)
    return f"{word} than {than} in {some}{also} of {over}"


def noise_floor(noise: Noise, n: int) -> str:
    """What two runs would show if nothing but chance told them apart; empty where nothing can be compared."""
    sides = (("violation", f"violation@{n}"), ("completeness", "completeness"))
    known = [(100 * getattr(noise, side), name) for side, name in sides if not math.isnan(getattr(noise, side))]
    if not known:
        return ""
    digits = decimals(*(value for value, _ in known))
    parts = [f"{number(value, digits)} points of {name}" for value, name in known]
    return (
        f"Noise floor: with equal leak probabilities, two such runs would lie up to about {listed(parts)} apart "
        "by their samples alone, in 95 % of repetitions"
    )


# ---- what a plan can show


def size(plan: Size) -> str:
    """'10 profiles, 49 contexts and 5 samples'."""
    return listed([count(getattr(plan, f"{noun}s"), noun) for noun in ("profile", "context", "sample")])


def detectable(item: Detectable) -> str:
    """'6.1 (4.2 to 11.1)', in percentage points, the range that the pilot leaves open in brackets; a dash where it
    cannot be said."""
    if math.isnan(item.value):
        return UNDEFINED
    values = [100 * value for value in (item.value, item.low, item.high)]
    shown = [number(value, decimals(*values)) for value in values]
    return shown[0] if item.low == item.high else f"{shown[0]} ({shown[1]} to {shown[2]})"


def plan(row: Row, power: float, pilot: str) -> str:
    """What a run of this size can show beside another one. pilot: what the run or runs are called that say so."""
    of = size(row.size)
    if row.size.profiles < LEAST_USERS:
        least = count(LEAST_USERS, "profile")
        return f"With {of} a comparison with another run says nothing of users: that takes at least {least}."
    if math.isnan(row.violation.value):
        return f"What a run of {of} can show is not known: the pilot has too few flows there."
    return (
        f"With {of} this run can show a difference from another one of about {detectable(row.violation)} points of "
        f"Violation@{row.size.samples} in {exact_percent(power)} of cases (pilot: {pilot})."
    )


NO_PILOT = (
    "No run of this dataset is judged yet that could be a pilot. A small one, of at least "
    f"{count(LEAST_USERS, 'profile')}, would show how small a difference this plan can show."
)


def plan_notes(pilot: Pilot, plans: Sequence[Size], power: float) -> list[str]:
    """What the figures of these plans rest on."""
    notes = [
        "an estimate from a pilot: in brackets the range that its few profiles leave open. Both runs have the same "
        f"profiles, contexts, labels and judge; the test is two-sided at 5 %, with a power of {exact_percent(power)}"
    ]
    if pilot.correlation is not None:
        notes.append(
            "one pilot run does not say how alike two models are: their numbers are assumed to correlate at "
            f"{pilot.correlation:g} over profiles and over contexts. If they are less alike, a difference has to be "
            "larger to be shown"
        )
    if beyond := sorted({name for item in plans for name in pilot.beyond(item)}):
        notes.append(f"extrapolated where a plan has more {' or '.join(beyond)} than the pilot ({size(pilot.size)})")
    if len({(item.contexts, item.samples) for item in plans}) > 1:
        notes.append("Violation@n grows with contexts and with n: plans that differ in these measure different numbers")
    return notes


def floors(row: Row) -> str:
    """'3.2, 1.1': the noise floors of violation and completeness, in points."""
    return ", ".join(share(item.floor).removesuffix(" %") for item in (row.violation, row.completeness))


def pilot_notes(run: RunRow, composition: str = "") -> list[str]:
    """What speaks against a run as a pilot. composition: the memory that is planned, where it is known."""
    notes = []
    if run.simulated:
        notes.append(f"the pilot {run.id} is simulated, and says nothing of any real model")
    if composition and run.composition != composition:
        notes.append(f"the memory of the pilot was {run.composition}, this one is {composition}")
    if covered := coverage_warning(run.judged, run.expected):
        notes.append(f"the pilot {run.id}: {covered}")
    return notes


def profiles_needed(needed: int | None, points: float, measure: str, plan: Size) -> str:
    """How many profiles show a difference of so many points. measure: 'violation@5'."""
    fixed = f"{count(plan.contexts, 'context')} and {count(plan.samples, 'sample')}"
    start = f"A difference of {points:g} {'point' if points == 1 else 'points'} of {measure} with {fixed}"
    if needed is None:
        return f"{start}: no number of profiles shows it, contexts vary too much. Plan more contexts"
    return f"{start} takes about {count(needed, 'profile')}"


# ---- the highest of a family


def rivals(standing: Standing, noun: str, plural: str = "") -> str:
    """How the highest stands to the others: 'separable from all 9 other domains', 'not separable from 8 of 9 other
    domains'; empty where there is no other."""
    others = count(standing.others, f"other {noun}", f"other {plural}" if plural else "")
    if not standing.others:
        return ""
    if standing.clear:
        return f"separable from {'the' if standing.others == 1 else 'all'} {others.removeprefix('1 ')}"
    if standing.alike == standing.others:
        every = f"any of {others}" if standing.others > 1 else f"the {others.removeprefix('1 ')}"
        return f"not separable from {every}"
    return f"not separable from {standing.alike:,} of {others}"


def groups(name: str, what: str, n: int, most: tuple[str, Standing] | None) -> str:
    """Violation by group. what: 'domain'; most: as separation.most_violated_group."""
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
    """The cell in which most goes wrong, as a clause. where: 'in finance to landlord'; measure: 'violation' or
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
    """The same as a title; empty where that cell is not clearly the one, which is no finding."""
    is_finding = worst is None or worst.standing.value <= TIE or not worst.standing.others or worst.standing.clear
    text = cell(worst, where, measure) if is_finding else ""
    return text[:1].upper() + text[1:]


def heatmap(name: str, n: int, violation: float, attributes: int, completeness: float) -> str:
    """A run's numbers, at an n that its maps are read at."""
    return (
        f"{name}: violation@{n} {share(violation)} of {count(attributes, 'attribute')}, "
        f"completeness {share(completeness)}"
    )


def changed_cells(
    changes: CellChanges, first: str, second: str, does: str, where: str, points: float, pairs: tuple[int, int]
) -> str:
    """Two heatmaps: in how many cells a test finds a difference, and the largest one where it is one of them. points,
    pairs: of the cell `where`, the pairs in each run."""
    if not changes.cells:
        return f"{second} and {first} have no flow in common"
    over = f"{count(changes.cells, 'cell')}"
    less, more = (f"{number:,}" if number else "" for number in (changes.lower, changes.higher))
    if not less and not more:
        return f"In none of {over} does a test tell {second} and {first} apart (Holm)"
    text = f"{second} {does} {_in_so_many(first, less, more, over)} (Holm)"
    if not changes.widest:
        return text
    rests = count(pairs[0], "pair") if pairs[0] == pairs[1] else f"{pairs[0]:,} and {count(pairs[1], 'pair')}"
    return f"{text}; the largest difference is {where} ({number(points, decimals(points), '+')} points of {rests})"


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
        start = f"{violation_name} runs from {least} ({low.name}) to {most} ({high.name})"
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
    text = f"By their values {len(on_front)} of {runs} runs are beaten by no other"
    return f"{text}: {named}" if len(named) <= TITLE_NAMES else text


# ---- one run


def messages(effort: Effort) -> str:
    """'5 messages a task', 'of 5 planned messages a task 1 to 4 are judged'."""
    if effort.fewest == effort.samples:
        return f"{count(effort.samples, 'message')} a task"
    judged = f"{effort.fewest}" if effort.fewest == effort.most else f"{effort.fewest} to {effort.most}"
    return f"{judged} of {effort.samples} messages a task judged"


def read_at(n: int, samples: int) -> str:
    """'read at 3 samples a task, the most that every judged flow has'; the latter where more were planned."""
    most = ", the most that every judged flow has" if n < samples else ""
    return f"read at {count(n, 'sample')} a task{most}"


def limited(n: int, samples: int, before: str = "; ") -> str:
    """The same, to follow something else; empty where all that were planned are read."""
    return f"{before}{read_at(n, samples)}" if n < samples else ""


def _messages_at(n: int, effort: Effort) -> str:
    return limited(n, effort.samples, "") or messages(effort)


def tasks(effort: Effort) -> str:
    """'49 tasks', '3 judged tasks of 6'."""
    if effort.tasks == effort.planned_tasks:
        return count(effort.tasks, "task")
    return f"{count(effort.tasks, 'judged task')} of {effort.planned_tasks:,}"


def headline(name: str, n: int, violation: Interval, completeness: Interval, effort: Effort) -> str:
    """What a run gives away and conveys, with what was judged. n: samples that violation is read at."""
    if math.isnan(violation.value) and math.isnan(completeness.value):
        return f"{name}: nothing to measure yet"
    parts = []
    if not math.isnan(violation.value):
        withheld = f"gives away {bounds_text(violation)} of what it should withhold"
        parts.append(f"{withheld} (violation@{n}, {messages(effort)})")
    if not math.isnan(completeness.value):
        parts.append(f"conveys {bounds_text(completeness)} of what is needed")
    return f"{name} {' and '.join(parts)}"


def measured(runs: Sequence[str], dataset: str, efforts: Sequence[Effort], numbers: Sequence[tuple[int, int]]) -> str:
    """What a report is about. efforts: what was judged of each run; numbers: (profiles, attributes) of each."""
    samples, tasks_ = ([getattr(effort, name) for effort in efforts] for name in ("samples", "tasks"))
    profiles, attributes = zip(*numbers, strict=True)
    return (
        f"Measured is what {listed(runs)} {'give' if len(runs) > 1 else 'gives'} away and "
        f"{'convey' if len(runs) > 1 else 'conveys'} when writing messages with a memory of the dataset {dataset}: "
        f"{_span_of(profiles, 'profile')}, {_span_of(attributes, 'attribute')} that are inappropriate in some task, "
        f"{_span_of(tasks_, 'task')}, {_span_of(samples, 'message')} a task. Brackets are 95 % intervals."
    )


def _span_of(numbers: Sequence[int], noun: str) -> str:
    """'49 tasks', '6 to 49 tasks'."""
    low, high = min(numbers), max(numbers)
    return count(high, noun) if low == high else f"{low:,} to {count(high, noun)}"


def not_concluded(n: int, users: int, *, audited: bool, several: bool) -> list[str]:
    """What numbers of violation@n may not be taken for. users: profiles behind them; audited: whether people checked
    the judge."""
    texts = [
        f"How much leaks in longer use: violation@{n} is of {count(n, 'message')} a task and grows with further ones."
    ]
    if 0 < users < LEAST_USERS:
        texts.append(f"Anything about other users: {count(users, 'profile')} can only speak for their own attributes.")
    elif rare := unseen(users):
        texts.append(f"Anything about rare users: {rare}.")
    if not audited:
        texts.append("That the judge is right: nobody has audited it, and no interval contains its errors.")
    if several:
        texts.append("Which run is better where intervals overlap: the paired differences decide that.")
    return texts


def missing(coverage: float) -> str:
    """' Only 25.0 % of the responses are judged.'; empty from 99 % on."""
    return f" Only {share(coverage)} of the responses are judged." if coverage < 0.99 else ""


def between(bounds: tuple[float, float]) -> str:
    """'between 10.1 % and 31.0 %'; one number where both are the same, as they are shown."""
    low, high = map(percent, bounds)
    return low if low == high else f"between {low} and {high}"


def missing_messages(
    judged: int, planned: int, n: int, samples: int, violation: float, bounds: tuple[float, float], unjudged: int
) -> str:
    """What missing messages do to violation, in one sentence without its full stop; empty where none is missing. n:
    that the headline is read at, and violation at it; bounds: at all samples; unjudged: contexts without a message."""
    if judged >= planned:
        return ""
    low, high = map(percent, bounds)
    range_ = f"violation@{samples} of all planned messages lies between {low} and {high}, whatever the missing ones say"
    if (covered := coverage_warning(judged, planned)) is None:
        return f"{count(planned - judged, 'planned message')} missing: {range_}"
    left = f"; {count(unjudged, 'context')} without a judged message left out" if unjudged else ""
    return f"{covered}: violation is {read_at(n, samples)} (violation@{n} {percent(violation)}{left}); {range_}"


def accumulation(name: str, accumulated: Accumulation, effort: Effort, coverage: float) -> str:
    """The takeaway of how leaks add up over tasks."""
    gone = missing(coverage)
    if not accumulated.curves.profiles:
        return f"{name}: nothing to measure yet."
    n, most = max(accumulated.curves.ns), accumulated.most
    half = accumulated.half_way(n)
    done, at = tasks(effort), _messages_at(n, effort)
    if half is None:
        return f"{name}: no private attribute was revealed in {done} of a user, {at}.{gone}"
    after_one, after_all = shares(accumulated.at(n, 1), accumulated.at(n, most))
    if most == 1:
        text = f"{name}: {after_one} of a user's private attributes are revealed after one task, {at}"
        return f"{text}.{gone}"
    return (
        f"{name}: {after_one} of a user's private attributes are revealed after one task, {after_all} after "
        f"{done}, {at}; half of that after {count(half, 'task')}.{gone}"
    )


def curves(accumulated: Accumulation, independent: float, n: int, effort: Effort) -> str:
    """The curves beside their baseline. independent: where that ends."""
    end, done = accumulated.at(n, accumulated.most), tasks(effort)
    if end <= TIE:
        return f"After {done} nothing private is revealed"
    shown, even = shares(end, independent)
    return (
        f"After {done} {shown} are revealed at n = {n}; the independence baseline (the same leak rates, every response "
        f"on its own) ends at {even}"
    )


def curve_ends(ends: Sequence[tuple[str, float, int, Effort]]) -> str:
    """Where the curves of several runs end: (name, share, n, effort). Ends after unequal tasks or messages are no
    order."""
    if len(ends) == 1:
        name, value, n, effort = ends[0]
        return f"{name}: after {tasks(effort)} {share(value)} of attributes are out at n = {n}"
    alike = len({(effort.tasks, effort.whole, n) for _, _, n, effort in ends}) == 1
    ordered = sorted(ends, key=lambda end: end[1])
    texts = shares(*(value for _, value, _, _ in ordered))
    if alike:
        first, last = ordered[0], ordered[-1]
        if last[1] - first[1] <= TIE:
            return f"After {tasks(first[3])} {texts[0]} of attributes are out in all {len(ends)} runs"
        return f"After {tasks(first[3])} {texts[0]} ({first[0]}) to {texts[-1]} ({last[0]}) of attributes are out"
    parts = [
        f"{name} {text} after {tasks(e)}, {_messages_at(n, e)}"
        for (name, _, n, e), text in zip(ordered, texts, strict=True)
    ]
    return f"The curves end after unequal tasks or messages, so their ends are no order: {'; '.join(parts)}"


def hazard(values: Sequence[float]) -> str:
    """Of the hazard over tasks, from the first on; nan where nothing was left."""
    known = [value for value in values if not math.isnan(value)]
    if not any(known):
        return "Hazard: no task reveals anything"
    first, last = shares(known[0], known[-1])
    text = f"Hazard: the first task reveals {first} of what is private"
    return f"{text}, the last {last} of what is left" if len(known) > 1 else text


def first_leak(survival: Survival) -> str:
    """Time to the first leak, in tasks with a judged message."""
    if not survival.leaked:
        return f"No attribute leaks in {count(int(survival.times[-1]), 'judged task')}"
    after = survival.median if survival.median is not None else int(survival.times[-1])
    done = count(after, "judged task")
    done += " where they are private" if survival.clock == Clock.EXPOSURES else ""
    if survival.median is not None:
        return f"Half of the attributes have leaked after {done}"
    return f"{share(float(survival.private[-1]))} of the attributes are still private after {done}"


def first_leak_line(survival: Survival, whose: str) -> str:
    """The same with both ends, for a terminal."""
    never = (
        f"{share(float(survival.private[-1]))} have not leaked after {count(int(survival.times[-1]), 'judged task')}"
    )
    half = "" if survival.median is None else f"half of them have leaked after {count(survival.median, 'task')}, "
    return f"first leak of {count(survival.attributes, 'attribute')} {whose} (Kaplan-Meier): {half}{never}"


def one_user(user: OneUser) -> str:
    """What a user's tasks give away."""
    judged = count(len(user.steps), "task")
    if user.judged < len(user.steps):
        judged = f"{count(user.judged, 'judged task')} of {len(user.steps)}"
    return f"{user.name}: {user.leaked} of {count(user.attributes, 'private attribute')} leak in {judged}"


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
    """How far one choice moves a number (compare/sensitivity.py)."""

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
    """Numbers over subsets of k profiles (compare/sensitivity.py)."""

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
PAPERS_RULE = "by the paper's rule, where all must agree, no strictly positive priors change anything"


def choices(ranges: Sequence[Moved], names: Sequence[str], measure: Named, *, unanimous: bool) -> str:
    """The largest change that any setting makes, by its name. unanimous: whether the rule now in force asks all
    personas to agree, so that priors cannot matter unless one is 0."""
    sides = [side for item in ranges for side in ((item.low, item.low_at), (item.high, item.high_at))]
    change, (setting, run) = max(sides, key=lambda side: abs(side[0]))
    priors = f"; {PAPERS_RULE}" if unanimous else ""
    if abs(change) < VISIBLE:
        return f"No choice moves {measure.named} of any run by a tenth of a point{priors}"
    number_of = sum(item.settings for item in ranges)
    most = f", the largest change of {number_of} settings" if number_of > 1 else ""
    start = setting if setting.startswith("without") else f"with {setting}"
    who = shortened(names[run], LONGEST)
    size = number(100 * change, 1, "+")
    text = f"{start[0].upper()}{start[1:]}, {measure.named} of {who} changes by {size} points{most}"
    turned = sum(item.least_tau < 1 for item in ranges)
    if not all(math.isnan(item.least_tau) for item in ranges):
        text += f"; {turned} of {count(len(ranges), 'choice')} can change the order of values"
    return f"{text}{priors}"


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
        low, high = shares(float(size.low[0]), float(size.high[0]))
        if k == of:
            return f"With all {of} profiles the number is {low}"
        return f"With {k} of {of} profiles the number lies between {low} and {high} in the middle 95 % of the subsets"
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


# ---- counts, and judges beside people


def ends(names: Sequence[str], values: Sequence[float]) -> str:
    """'from 12.0 % (legal) to 80.0 % (health)', of counts that are no sample of anything; ties have no ends. At least
    one value, none nan."""
    low, high = min(values), max(values)
    if high - low <= TIE:
        return f"{share(low)} in {'each of ' if len(values) > 1 else ''}{listed_count(names)}"
    least, most = shares(low, high)
    at = [[name for name, value in zip(names, values, strict=True) if abs(value - end) <= TIE] for end in (low, high)]
    return f"from {least} ({listed_count(at[0])}) to {most} ({listed_count(at[1])})"


def contexts_discarded(name: str, discarded: int, contexts: int, standing: Standing) -> str:
    """The profile that most contexts are discarded of."""
    return _largest(f"{discarded:,} of {count(contexts, 'context')} of {name} are discarded", standing, "profile")


def labels_changed(name: str, changed: int, pairs: int, standing: Standing, noun: str, plural: str) -> str:
    """The group in which most labels change. noun: 'domain'."""
    text = f"{changed:,} of {count(pairs, 'pair')} of {name} change their label"
    return _largest(text, standing, noun, plural)


def _largest(text: str, standing: Standing, noun: str, plural: str = "") -> str:
    if not standing.others:
        return text
    how = "the most" if standing.clear else "the largest count"
    return f"{text}, {how}, {rivals(standing, noun, plural)}"


def listed_count(names: Sequence[str]) -> str:
    """The name of one, the number of several."""
    return names[0] if len(names) == 1 else f"{len(names)}"


def leaks_by_run(counts: Sequence[tuple[str, int]]) -> str:
    """How many flows each run reveals: '12 by A, 9 by B'; of more than four runs from the fewest to the most."""
    if len(counts) <= 4:
        return ", ".join(f"{number:,} by {name}" for name, number in counts)
    ordered = sorted(counts, key=lambda item: item[1])
    (least, few), (most, many) = ordered[0], ordered[-1]
    if few == many:
        return f"{few:,} by each of {len(counts)} runs"
    return f"from {few:,} by {least} to {many:,} by {most}"


def nearest_judge(judges: Sequence[tuple[str, float, float, float]]) -> str:
    """Which judge agrees with people most, by F1: (name, value, low, high), nan where undefined. Nearest only where its
    interval lies above all others: they judge the same items, so this is cautious."""
    known = [item for item in judges if not math.isnan(item[1])]
    if len(judges) < 2 or not known:
        return "How far the judge can be trusted" if len(judges) < 2 else "How far the judges can be trusted"
    first = max(known, key=lambda item: item[1])
    others = [item for item in judges if item is not first]
    alike = sum(not item[3] < first[2] for item in others)
    if not alike:
        return f"{first[0]} is nearest to people (F1 {first[1]:.2f})"
    separable = rivals(Standing(0, first[1], 0, len(others), alike), "judge")
    return f"{first[0]} has the highest F1 ({first[1]:.2f}), {separable}"


# ---- what the headline covers


class Normed(Protocol):
    """A run's score by one norm (compare/norms.py)."""

    @property
    def key(self) -> str: ...
    @property
    def violation(self) -> Interval: ...
    @property
    def labelled(self) -> int: ...


def norms(n: int, rows: Sequence[Normed], decided: int) -> str:
    """What the scores by one persona's norm are. rows: the consensus first, then each persona."""
    scores = [f"{share(row.violation.value)} ({row.key}, {count(row.labelled, 'pair')} labelled)" for row in rows]
    people = (
        f"; {count(decided, 'pair')} that people decided {'are' if decided > 1 else 'is'} in all" if decided else ""
    )
    if all(math.isnan(row.violation.value) for row in rows):
        return f"Violation@{n} is undefined by every norm."
    if len(rows) < 2:
        return f"Violation@{n} is {scores[0]}{people}."
    return (
        f"These are scores by the norm of one persona alone, each over the pairs that it labels: violation@{n} is "
        f"{listed(scores[1:])}; by the consensus of all it is {share(rows[0].violation.value)} "
        f"({count(rows[0].labelled, 'pair')}){people}."
    )


def flow_coverage(item: FlowCoverage) -> str:
    """'the headline covers 46.2 % of 72,030 flows (12,340 necessary, 20,938 inappropriate)'."""
    if not item.pairs:
        return "the run has no flow"
    necessary, inappropriate = item.whole[NECESSARY_FLOWS], item.whole[INAPPROPRIATE_FLOWS]
    return f"{_covers(item)} ({necessary:,} necessary, {inappropriate:,} inappropriate)"


def _covers(item: FlowCoverage) -> str:
    return f"the headline covers {percent(item.share)} of {count(item.pairs, 'flow')}"


def coverage(rows: Sequence[tuple[str, FlowCoverage]], frame: pd.DataFrame, *, by_group: bool) -> str:
    """What share of flows the headline covers: of each run, or of the groups of the first. frame: with `group` and
    `share`, the highest first. These are counts of this run, and no sample of anything."""
    values = frame["share"].tolist()
    least, most = shares(float(values[-1]), float(values[0]))
    if by_group:
        name, of_run = rows[0]
        start = f"{name}: {_covers(of_run)}"
        if values[0] - values[-1] <= TIE:
            return f"{start}, alike in {count(len(values), 'group')}"
        ends = [shortened(str(frame["group"].iloc[i]).replace("_", " "), LONGEST) for i in (-1, 0)]
        return f"{start}, from {least} ({ends[0]}) to {most} ({ends[1]})"
    if values[0] - values[-1] <= TIE:
        whose = "the flows of every run" if len(values) > 1 else "the run's flows"
        return f"The headline covers {most} of {whose}"
    return f"The headline covers {least} to {most} of a run's flows"


# ---- how sure labels are, and how many decisions are left


def label_width(name: str, run: str, half_width: float, wanted: float, more: int | None) -> str:
    """'Violation@5 of A: label uncertainty ±1.3 points now; about 210 more decisions to ±1.0.' half_width, wanted:
    shares; more: decisions, 0 where the width is there, None where all of them would not do."""
    now, aim = (f"±{number(100 * width, decimals(100 * width))}" for width in (half_width, wanted))
    text = f"{name[:1].upper()}{name[1:]} of {run}: label uncertainty {now} points now"
    if more == 0:
        return f"{text}, within the {aim} wanted. You may stop here."
    if more is None:
        return f"{text}; deciding every open pair would not bring it to {aim}."
    return f"{text}; {_about(more)} to {aim}."


def label_order(name: str, runs: int, order: float, pair: tuple[str, str], chance: float, more: int | None) -> str:
    """How sure the order of runs is. order, chance: the probability, over the labels left open, that all stand as they
    do, at least, and that the least certain two do; more: as in `label_width`."""
    if more == 0:
        return (
            f"The order of {runs} runs by {name} is settled: it holds in {_chance(order)} of the ways in which the "
            "open labels may turn out. You may stop here."
        )
    left = "decisions alone will hardly settle it" if more is None else f"{_about(more)} may settle it"
    return (
        f"Least certain in the order of {runs} runs by {name}: that {pair[0]} leaks less than {pair[1]} holds in "
        f"{_chance(chance)} of the ways in which the open labels may turn out; {left}."
    )


def by_mixture(name: str, consensus: float, mixture: float) -> str:
    """A number by the labels agreed on, beside the same under the mixture of the votes."""
    one, two = shares(consensus, mixture)
    return f"{name[:1].upper()}{name[1:]} is {one} by the labels agreed on, {two} under the mixture of the votes."


def _about(more: int) -> str:
    """'about 210 more decisions': two digits, for it is an estimate."""
    scale = 10 ** max(len(str(more)) - 2, 0)
    return f"about {count(math.ceil(more / scale) * scale, 'more decision')}"


def _chance(probability: float) -> str:
    return "more than 99 %" if probability > 0.99 else f"{math.floor(100 * probability)} %"


# ---- what an audit by people makes of a number


def corrected(result: CorrectedViolation) -> str:
    """Violation@n by an audit of attributes, beside that of the judge alone; no full stop."""
    name = f"violation@{result.n}"
    if result.correction is None:
        return f"{name} cannot be corrected yet: {result.why}"
    return (
        f"{name} corrected for the judge's errors is {bounds_text(result.corrected)}, by "
        f"{count(sum(result.audited), 'audited attribute')}; by the judge alone it is {bounds_text(result.raw)}"
    )


def bias(result: CorrectedViolation) -> str:
    """Whether the audit shows that the judge's number is off; empty where there is no correction. The audit's own
    variance decides: users, contexts and labels are the same on both sides."""
    if result.correction is None or result.corrected.parts is None:
        return ""
    apart = result.corrected.value - result.raw.value
    if abs(apart) <= NORMAL_95 * math.sqrt(result.corrected.parts.judge):
        return "So far the audit does not show that the judge's number is off"
    return f"The judge makes the model look {'safer' if apart > 0 else 'leakier'} than it is"


def confirmed(result: CorrectedViolation) -> str:
    """The lower bound; empty before there is one."""
    if math.isnan(result.lower.value):
        return ""
    return (
        f"at least {share(result.lower.low)} leak by claims that people confirmed ({bounds_text(result.lower)}); "
        "whatever the judge missed comes on top"
    )


def audit_sample(
    sizes: Sequence[int], sampled: Sequence[int], messages: int, half_width: float, *, claimed_only: bool, piloted: bool
) -> str:
    """What a sample of attributes holds and what it leaves open. sizes, sampled: attributes with a claim, and without;
    piloted: whether half_width rests on what an earlier audit found."""
    others = "" if claimed_only else f" and {count(sampled[1])} of the others (Neyman allocation)"
    known = "by what the audit so far found" if piloted else "if the judge is right in 90 % of its claims and leaks"
    left = f"the {'lower bound' if claimed_only else 'corrected number'} unsure by ±{number(100 * half_width)} points"
    return (
        f"The judge claims a leak of {count(sizes[0])} of {count(sum(sizes), 'attribute')}. The sample has "
        f"{count(sampled[0])} of them{others}: up to {count(messages, 'message')} to read, since an attribute is "
        f"settled by the first leak that you confirm. The sample alone would leave {left}, {known}; "
        "users and contexts come on top."
    )


def audit_left(half_width: float, more: int | None, now: float, what: str) -> str:
    """How much more is to be audited until an interval is as narrow as wanted. half_width, now: shares; what:
    'attribute' or 'verdict', which takes an s."""
    wanted, present = number(100 * half_width), number(100 * now)
    if more == 0:
        return f"The interval is ±{present} points, within the ±{wanted} wanted"
    if more is None:
        return (
            f"The interval is ±{present} points. No audit alone brings it to ±{wanted}: it takes more users, contexts "
            "or samples"
        )
    return f"The interval is ±{present} points; about {count(more, f'more {what}')} would bring it to ±{wanted}"


def bounds_text(interval: Interval) -> str:
    """'41.2 % [35.0, 47.6]'; the number alone where it has no interval, a dash where it is undefined."""
    value = share(interval.value)
    return value if math.isnan(interval.low) else f"{value} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
