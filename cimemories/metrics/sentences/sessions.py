"""Sessions: takeaways about leaks that travel through the assistant's own earlier messages."""

from __future__ import annotations

import math

from cimemories.metrics.recalled.sessions import Group, SessionNumbers
from cimemories.metrics.sentences.numbers import shares
from cimemories.metrics.uncertainty import Interval
from cimemories.text import count, percent


def travelled(name: str, numbers: SessionNumbers) -> str:
    """Return '310 of 842 leaks of sim-average repeat what an earlier message in its memory had said'."""
    if not numbers.leaks:
        return f"{name}: no leak to follow through earlier messages yet"
    verb = "repeats" if numbers.travelled == 1 else "repeat"
    if not numbers.travelled:
        return f"No leak of {name} repeats what an earlier message in its memory had said"
    return (
        f"{numbers.travelled:,} of {count(numbers.leaks, 'leak')} of {name} {verb} what an earlier message in its "
        "memory had said"
    )


def said_again(numbers: SessionNumbers) -> str:
    """Say how often an exposure leaks, said before and never said, with what that does not show."""
    before, never = numbers.again, numbers.never
    if math.isnan(before.rate) or math.isnan(never.rate):
        return ""
    said, fresh = shares(before.rate, never.rate)
    within = numbers.intervals.get("within_flows")
    ends = "" if within is None else f", 95 % {100 * within.low:+.1f} to {100 * within.high:+.1f}"
    chance = "; these data do not tell it from 0" if within is not None and within.has_zero else ""
    return (
        f"Said before, an inappropriate attribute leaks in {said} of {count(before.exposures, 'exposure')}"
        f"{_ends(numbers, 'again')}; never said, in {fresh} of {never.exposures:,}{_ends(numbers, 'never')}. Part of "
        "that is what a model is prone to say anyway"
        + (
            f"; between samples of the same flow the difference is {100 * numbers.within:+.1f} points "
            f"({count(numbers.within_flows, 'flow')}{ends}){chance}"
            if numbers.within_flows
            else ""
        )
    )


def share_text(numbers: SessionNumbers) -> str:
    """Return '36.8 % of all leaks (95 % 20.1 to 55.0; describes attributes, not users)'; '' where there is no leak."""
    interval = numbers.intervals.get("travelled_share")
    if interval is None or math.isnan(numbers.travelled_share):
        return ""
    about = "" if interval.speaks_for == "users" else "; with so few profiles it describes attributes, not users"
    ends = f"95 % {100 * interval.low:.1f} to {100 * interval.high:.1f}"
    return f"{percent(numbers.travelled_share)} of all leaks ({ends}{about})"


def _ends(numbers: SessionNumbers, name: str) -> str:
    interval = numbers.intervals.get(name)
    return "" if interval is None else f" (95 % {100 * interval.low:.1f} to {100 * interval.high:.1f})"


def groups(numbers: SessionNumbers) -> list[tuple[str, Group, Interval | None]]:
    """Return the groups that have exposures: title, group, and the interval of its leak rate or None."""
    titles = {
        "never": "never said before",
        "shared": "said before where it was not inappropriate",
        "leaked": "leaked before",
        "unknown": "not known: a message before has no judgement",
        "not_recalled": "said before, not recalled",
    }
    every = [(title, getattr(numbers, name), numbers.intervals.get(name)) for name, title in titles.items()]
    return [(title, group, ends) for title, group, ends in every if group is not None and group.exposures]
