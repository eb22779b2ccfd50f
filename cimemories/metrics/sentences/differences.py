"""Differences of two runs, with their tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.metrics.intervals import Tallied
from cimemories.metrics.power import Noise
from cimemories.metrics.sentences.families import in_so_many
from cimemories.metrics.sentences.numbers import TITLE_NAMES, decimals, number, p_text
from cimemories.metrics.separation import separates
from cimemories.metrics.uncertainty import Interval, holm
from cimemories.text import count, listed


@dataclass(frozen=True)
class Tested:
    """A difference with its test. p: adjusted for its family by Holm; family: how many comparisons that has."""

    apart: Interval
    p: float
    family: int = 1

    @property
    def claimed(self) -> bool:
        """True if a difference may be claimed: the test shows it over its family, and the interval excludes 0."""
        return separates(self.p) and not self.apart.has_zero


def alone(apart: Interval) -> Tested:
    """Return a difference that is the only one asked for."""
    return Tested(apart, apart.p)


def family(intervals: Sequence[Interval]) -> list[Tested]:
    """Return differences that are read together, such as all runs against the first."""
    adjusted = holm([apart.p for apart in intervals])
    tested = sum(not math.isnan(p) for p in adjusted)
    return [Tested(apart, p, tested) for apart, p in zip(intervals, adjusted, strict=True)]


def difference(tested: Tested, who: str, whom: str, does: str, of: str, what: str = "") -> str:
    """Say how far the second run lies from the first, second minus first: 'B leaks less than A: -4.1 points, 95 % CI
    -7.0 to -1.2 (p = 0.002).' who: the second run; whom: the first; does: 'leaks', 'conveys'; of: the number; what: of
    what."""
    if math.isnan(tested.apart.value):
        return f"{who} and {whom} have no common flow on which {of} could be compared."
    if tested.claimed:
        direction = "less" if tested.apart.value < 0 else "more"
        return f"{who} {does} {direction}{what} than {whom}: {_estimate(tested)}."
    return f"No detectable difference of {who} from {whom} in {of}: {_estimate(tested)}."


def _estimate(tested: Tested) -> str:
    """Return '-1.0 points, 95 % CI -3.0 to 1.0 (p = 0.41)', followed by what limits it."""
    apart = tested.apart
    low, high = 100 * apart.low, 100 * apart.high
    digits = decimals(100 * apart.value, low, high)
    value = f"{number(100 * apart.value, digits)} points, 95 % CI {number(low, digits)} to {number(high, digits)}"
    test = f"{p_text(tested.p)}, Holm over {tested.family} comparisons" if tested.family > 1 else p_text(tested.p)
    limits = "" if apart.speaks_for == "users" else "; of these attributes, with too few users to say more"
    # Where nothing varies there is no test that could have found something.
    nothing = "; nothing varies in what they have in common" if not apart.has_zero and tested.apart.p == 1 else ""
    return f"{value} ({test}){limits}{nothing}"


def difference_short(tested: Tested, does: str) -> str:
    """Return 'leaks less', 'no detectable difference', for a table."""
    if math.isnan(tested.apart.value):
        return "cannot be compared"
    if not tested.claimed:
        return "no detectable difference"
    return f"{does} {'less' if tested.apart.value < 0 else 'more'}"


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
