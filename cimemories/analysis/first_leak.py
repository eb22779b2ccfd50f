"""Time to the first leak: a Kaplan-Meier curve over attributes (Kaplan and Meier 1958), by scipy.

An attribute that never leaks is censored at the end of its user's tasks: it might have leaked in a later one. That
matters as soon as users with different numbers of tasks are taken together.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from cimemories.analysis.bootstrap import LEVEL
from cimemories.analysis.cube import Floats, Ints
from cimemories.analysis.task_order import FirstLeaks


class Clock(StrEnum):
    """What time is counted in: all tasks of the user, or only those in which the attribute is inappropriate."""

    TASKS = "tasks"
    EXPOSURES = "exposures"


@dataclass(frozen=True)
class Survival:
    """The share of attributes that have not leaked after so many tasks, with a pointwise 95 % interval.

    times: [steps], from 0, whole numbers; silent, low, high: [steps]; at_risk: [steps], attributes that had neither
    leaked nor been censored before that time. The interval (Greenwood's) takes attributes as independent of each other,
    which those of one user are not: it says how sharp the curve is for these users, not for others.
    """

    clock: Clock
    times: Ints
    silent: Floats
    low: Floats
    high: Floats
    at_risk: Ints
    attributes: int
    leaked: int

    @property
    def median(self) -> int | None:
        """After how many tasks half of the attributes have leaked; None where fewer ever do."""
        below = np.flatnonzero(self.silent <= 0.5)
        return int(self.times[below[0]]) if below.size else None


def survival(found: Sequence[FirstLeaks], clock: Clock = Clock.TASKS) -> Survival:
    """Attributes of one or more profiles together, each in the order in which its first leaks were looked for.

    Without any attribute all arrays hold time 0 alone and are nan there.
    """
    from scipy.stats import CensoredData, ecdf  # takes a second to import

    time = np.concatenate([_clock(item, clock) for item in found] or [np.zeros(0, np.int64)])
    leaked = np.concatenate([item.leaked for item in found] or [np.zeros(0, np.bool_)])
    if not time.size:
        nothing = np.full(1, np.nan)
        return Survival(clock, np.zeros(1, np.int64), nothing, nothing, nothing, np.zeros(1, np.int64), 0, 0)
    times = np.arange(int(time.max()) + 1)
    at_risk = (time[:, None] >= times).sum(axis=0)
    if not leaked.any():
        whole = np.ones(len(times))
        return Survival(clock, times, whole, whole, whole, at_risk, len(time), 0)
    estimate = ecdf(CensoredData(uncensored=time[leaked], right=time[~leaked])).sf
    with warnings.catch_warnings(category=RuntimeWarning, action="ignore"):
        # It is undefined where nobody has leaked yet, or everybody has: there is no width to show then.
        interval = estimate.confidence_interval(LEVEL, method="log-log")
    silent = estimate.evaluate(times)
    low, high = (np.where(np.isnan(side), silent, side) for side in _sides(interval, times))
    return Survival(clock, times, silent, low, high, at_risk, len(time), int(leaked.sum()))


def _clock(found: FirstLeaks, clock: Clock) -> Ints:
    return found.time if clock == Clock.TASKS else found.exposures


def _sides(interval: object, times: Ints) -> list[Floats]:
    return [getattr(interval, side).evaluate(times) for side in ("low", "high")]
