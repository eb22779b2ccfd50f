"""Numbers and intervals as text: the digits that they take, and the parts of an interval."""

from __future__ import annotations

import math

from cimemories.metrics.separation import SIGNIFICANT
from cimemories.metrics.uncertainty import ENOUGH_USERS, Interval, unseen_users
from cimemories.metrics.uncertainty import TIE as TIE
from cimemories.text import UNDEFINED, count, percent

LONGEST = 38  # characters of a run's name in a title

TITLE_NAMES = 70  # characters of names that a title may hold


# ---- numbers as text


def decimals(*points: float) -> int:
    """Return the fewest decimals, 1 to 4, with which none of these numbers reads as 0 that is not."""
    smallest = min((abs(value) for value in points if abs(value) > 100 * TIE), default=1.0)
    return next((digits for digits in range(1, 4) if round(smallest, digits)), 4)


def number(points: float, digits: int = 1, sign: str = "") -> str:
    """Return percentage points or percent: '4.1', with a sign '+4.1'; what so many digits would make 0 as '2e-06'."""
    if abs(points) <= 100 * TIE:
        return f"{0:.{digits}f}"
    return f"{points:{sign}.1g}" if not round(points, digits) else f"{points:{sign}.{digits}f}"


def share(value: float) -> str:
    """Return '12.4 %', with more digits where it would read as 0 or 100 and is not; a dash for nan."""
    return shares(value)[0]


def shares(*values: float) -> list[str]:
    """Return shares for one sentence, with so many digits that no two different ones read alike."""
    defined = [100 * value for value in values if not math.isnan(value)]
    digits = max((decimals(value, 100 - value) for value in defined), default=1)
    different = {round(value, 10) for value in defined}
    while digits < 4 and len({round(value, digits) for value in defined}) < len(different):
        digits += 1
    if digits == 1:
        return [percent(value) for value in values]
    return [UNDEFINED if math.isnan(value) else f"{number(100 * value, digits)} %" for value in values]


def p_text(p: float) -> str:
    """Return 'p = 0.012', 'p < 0.001'; with so many digits that p below 0.05 does not read as 0.05."""
    if p < 0.001:
        return "p < 0.001"
    digits = next(d for d in (3, 4, 6, 9, 12, 17) if (round(p, d) < SIGNIFICANT) == (p < SIGNIFICANT) or d == 17)
    return f"p = {min(p, 1.0):.{digits}f}"


# ---- what an interval is made of


def parts_text(item: Interval) -> str:
    """Return half of an interval's width by its parts, whose squares add up; '' without an interval: 'of the ±4.1
    points: users 3.2, contexts 2.4, labels 1.3, samples 0.8; what the judge gets wrong is not in it'."""
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
    """Say what no interval from few profiles covers: 'a kind of user rarer than 26 % may be missing among 10 profiles;
    no interval covers it'; '' from 59 profiles on, and without any."""
    if not 0 < profiles < ENOUGH_USERS:
        return ""
    rarer = f"{100 * unseen_users(profiles):.0f} %"
    return f"a kind of user rarer than {rarer} may be missing among {count(profiles, 'profile')}; no interval covers it"


def bounds_text(interval: Interval) -> str:
    """Return '41.2 % [35.0, 47.6]'; the number alone where it has no interval, a dash where it is undefined."""
    value = share(interval.value)
    return value if math.isnan(interval.low) else f"{value} [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
