"""Plans: what they can show before they are paid for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.power import Detectable, Pilot, Row, Size
from cimemories.metrics.sentences.numbers import decimals, number
from cimemories.metrics.uncertainty import LEAST_USERS
from cimemories.metrics.warnings import coverage_warning
from cimemories.store.runs import RunRow
from cimemories.text import UNDEFINED, count, exact_percent, listed


def size(plan: Size) -> str:
    """Return '10 profiles, 49 contexts and 5 samples'."""
    return listed([count(getattr(plan, f"{noun}s"), noun) for noun in ("profile", "context", "sample")])


def detectable(item: Detectable) -> str:
    """Return '6.1 (4.2 to 11.1)', in percentage points, the range that the pilot leaves open in brackets; a dash where
    it cannot be said."""
    if math.isnan(item.value):
        return UNDEFINED
    values = [100 * value for value in (item.value, item.low, item.high)]
    shown = [number(value, decimals(*values)) for value in values]
    return shown[0] if item.low == item.high else f"{shown[0]} ({shown[1]} to {shown[2]})"


def plan(row: Row, power: float, pilot: str) -> str:
    """Say how small a difference from another run a run of this size can show. pilot: the name of the pilot."""
    of = size(row.size)
    if row.size.profiles < LEAST_USERS:
        least = count(LEAST_USERS, "profile")
        return f"With {of} a comparison with another run says nothing of users: that takes at least {least}."
    if math.isnan(row.violation.value):
        return f"What a run of {of} can show is not known: the pilot has too few flows there."
    if row.violation.value > 1:
        return (
            f"With {of} this run can show no difference from another one: not even 100 points of "
            f"Violation@{row.size.samples} would do in {exact_percent(power)} of cases (pilot: {pilot})."
        )
    return (
        f"With {of} this run can show a difference from another one of about {detectable(row.violation)} points of "
        f"Violation@{row.size.samples} in {exact_percent(power)} of cases (pilot: {pilot})."
    )


NO_PILOT = (
    "No run of this dataset is judged yet that could be a pilot. A small one, of at least "
    f"{count(LEAST_USERS, 'profile')}, would show how small a difference this plan can show."
)


def plan_notes(pilot: Pilot, plans: Sequence[Size], power: float) -> list[str]:
    """Return remarks on what the figures of these plans rest on."""
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
    if pilot.first_of is not None:
        notes.append(
            f"the pilot is the first {count(pilot.size.profiles, 'profile')} of {pilot.first_of:,}, since the run does "
            "not fit into memory"
        )
    if len({(item.contexts, item.samples) for item in plans}) > 1:
        notes.append("Violation@n grows with contexts and with n: plans that differ in these measure different numbers")
    return notes


def pilot_notes(run: RunRow, composition: str = "") -> list[str]:
    """Return remarks against a run as a pilot. composition: the memory that is planned, where it is known."""
    notes = []
    if run.simulated:
        notes.append(f"the pilot {run.id} is simulated, and says nothing of any real model")
    if composition and run.composition != composition:
        notes.append(f"the memory of the pilot was {run.composition}, this one is {composition}")
    if covered := coverage_warning(run.judged, run.expected):
        notes.append(f"the pilot {run.id}: {covered}")
    return notes


def profiles_needed(needed: int | None, points: float, measure: str, plan: Size) -> str:
    """Say how many profiles show a difference of so many points. measure: 'violation@5'."""
    fixed = f"{count(plan.contexts, 'context')} and {count(plan.samples, 'sample')}"
    start = f"A difference of {points:g} {'point' if points == 1 else 'points'} of {measure} with {fixed}"
    if needed is None:
        return f"{start}: no number of profiles shows it, contexts vary too much. Plan more contexts"
    return f"{start} takes about {count(needed, 'profile')}"


def audit_left(half_width: float, more: int | None, now: float, what: str) -> str:
    """Say how much more is to be audited until an interval is narrow enough. half_width, now: shares; what: 'attribute'
    or 'verdict', which takes an s."""
    aim, present = number(100 * half_width), number(100 * now)
    if more == 0:
        return f"The interval is ±{present} points, within the ±{aim} wanted"
    if more is None:
        return (
            f"The interval is ±{present} points. No audit alone brings it to ±{aim}: it takes more users, contexts "
            "or samples"
        )
    return f"The interval is ±{present} points; about {count(more, f'more {what}')} would bring it to ±{aim}"
