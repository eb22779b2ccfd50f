"""One run, or the plan of one: what it shows, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.accumulation import Accumulation, Clock, Effort, Survival
from cimemories.metrics.one_user import OneUser
from cimemories.metrics.power import Detectable, Pilot, Row, Size
from cimemories.metrics.recalled.sessions import Group, SessionNumbers
from cimemories.metrics.recalled.split import Outcomes, RecalledNumbers
from cimemories.metrics.sentences.numbers import TIE, bounds_text, decimals, number, share, shares, unseen
from cimemories.metrics.uncertainty import LEAST_USERS, Interval
from cimemories.metrics.warnings import coverage_warning
from cimemories.store.runs import RunRow
from cimemories.text import UNDEFINED, count, exact_percent, lies_between, listed, percent


def messages(effort: Effort) -> str:
    """Return '5 messages a task', '1 to 4 of 5 messages a task judged'."""
    if effort.fewest == effort.samples:
        return f"{count(effort.samples, 'message')} a task"
    judged = f"{effort.fewest}" if effort.fewest == effort.most else f"{effort.fewest} to {effort.most}"
    return f"{judged} of {effort.samples} messages a task judged"


def read_at(n: int, samples: int) -> str:
    """Return 'read at n = 3, the largest n that every judged flow supports'; the latter where more were planned."""
    most = ", the largest n that every judged flow supports" if n < samples else ""
    return f"read at n = {n}{most}"


def limited(n: int, samples: int, before: str = "; ") -> str:
    """Return `read_at` to follow something else; '' if all that were planned are read."""
    return f"{before}{read_at(n, samples)}" if n < samples else ""


def _messages_at(n: int, effort: Effort) -> str:
    return limited(n, effort.samples, "") or messages(effort)


def tasks(effort: Effort) -> str:
    """Return '49 tasks', '3 judged tasks of 6'."""
    if effort.tasks == effort.planned_tasks:
        return count(effort.tasks, "task")
    return f"{count(effort.tasks, 'judged task')} of {effort.planned_tasks:,}"


def headline(
    name: str, n: int, violation: Interval, completeness: Interval, effort: Effort, coverage: float = 1.0
) -> str:
    """Say what a run gives away and conveys, with what was judged. n: samples that violation is read at; coverage:
    judged messages over planned ones, told below 99 %."""
    if math.isnan(violation.value) and math.isnan(completeness.value):
        return f"{name}: nothing to measure yet"
    parts = []
    if not math.isnan(violation.value):
        withheld = f"gives away {bounds_text(violation)} of what it should withhold"
        parts.append(f"{withheld} (violation@{n}, {messages(effort)})")
    if not math.isnan(completeness.value):
        parts.append(f"conveys {bounds_text(completeness)} of what is needed")
    # A task without a judged message is in no count of `messages`, which may so sound like all that was planned.
    gone = f"; only {share(coverage)} of the messages are judged" if coverage < 0.99 else ""
    return f"{name} {' and '.join(parts)}{gone}"


ABOUT = (
    "An assistant that remembers its user may tell the wrong person. Violation is the share of what should stay out of "
    "a message that slips into one; completeness is the share of what is needed that is told."
)


def measured(efforts: Sequence[Effort], numbers: Sequence[tuple[int, int]]) -> str:
    """Say what a report is about. efforts: what was judged of each run; numbers: (profiles, attributes) of each."""
    samples, tasks_ = ([getattr(effort, name) for effort in efforts] for name in ("samples", "tasks"))
    profiles, attributes = zip(*numbers, strict=True)
    return (
        # Users retain different tasks: the most that one of them has is fewer than all users together meet.
        f"Measured on {_span_of(profiles, 'synthetic user')}: up to {count(max(tasks_), 'task')} a user, "
        f"{_span_of(samples, 'message')} a task, {_span_of(attributes, 'attribute')} to be withheld in some task. "
        "Brackets are 95 % intervals."
    )


def _span_of(numbers: Sequence[int], noun: str) -> str:
    """Return '49 tasks', '6 to 49 tasks'."""
    low, high = min(numbers), max(numbers)
    return count(high, noun) if low == high else f"{low:,} to {count(high, noun)}"


def not_concluded(n: int, users: int, *, runs: Sequence[str], unaudited: Sequence[str]) -> list[str]:
    """List what numbers of violation@n do not show. users: profiles behind them; unaudited: the runs of which people
    audited no whole attributes."""
    texts = [
        f"How much leaks in longer use: violation@{n} is of {count(n, 'message')} a task and grows with further ones."
    ]
    if 0 < users < LEAST_USERS:
        texts.append(f"Anything about other users: {count(users, 'profile')} can only speak for their own attributes.")
    elif rare := unseen(users):
        texts.append(f"Anything about rare users: {rare}.")
    if unaudited:
        of = f" of {listed(unaudited)}" if len(unaudited) < len(runs) else ""
        texts.append(
            f"That the judge{of} is right: no whole attribute has been audited, and no interval contains its errors."
        )
    if len(runs) > 1:
        texts.append("Which run is better where intervals overlap: the paired differences decide that.")
    return texts


def missing(coverage: float, run: str = "") -> str:
    """Return ' Only 25.0 % of the messages are judged.'; '' from 99 % on. run: their run, where it is not the only
    one."""
    whose = f" of {run}" if run else ""
    return f" Only {share(coverage)} of the messages{whose} are judged." if coverage < 0.99 else ""


def between(bounds: tuple[float, float]) -> str:
    """Return 'between 10.1 % and 31.0 %'; one number where both are the same, as they are shown."""
    low, high = map(percent, bounds)
    return low if low == high else f"between {low} and {high}"


def missing_messages(
    judged: int, planned: int, n: int, samples: int, violation: float, bounds: tuple[float, float], unjudged: int
) -> str:
    """Say what missing messages do to violation, in one sentence without its full stop; '' if none is missing. n: that
    the headline is read at, and violation at it; bounds: at all samples; unjudged: contexts without a message."""
    if judged >= planned:
        return ""
    lies = lies_between(*map(percent, bounds))
    range_ = f"violation@{samples} of all planned messages {lies}, whatever the missing ones say"
    if (covered := coverage_warning(judged, planned)) is None:
        return f"{count(planned - judged, 'planned message')} missing: {range_}"
    left = f"; {count(unjudged, 'context')} without a judged message left out" if unjudged else ""
    return f"{covered}: violation is {read_at(n, samples)} (violation@{n} {percent(violation)}{left}); {range_}"


def accumulation(name: str, accumulated: Accumulation, effort: Effort, coverage: float) -> str:
    """Say how leaks add up over tasks."""
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
    """Say where the curves end, and where they would if every response leaked on its own at the same rates
    (independent)."""
    end, done = accumulated.at(n, accumulated.most), tasks(effort)
    if end <= TIE:
        return f"After {done} nothing private is revealed"
    shown, even = shares(end, independent)
    return (
        f"After {done} with {count(n, 'message')} each {shown} of what is private has been told. "
        f"If leaks fell at random: {even}"
    )


def curve_ends(ends: Sequence[tuple[str, float, int, Effort]]) -> str:
    """Say where the curves of several runs end: (name, share, n, effort). Ends after unequal tasks or messages are no
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
    """Describe the hazard over tasks, from the first on; nan where nothing was left."""
    defined = [value for value in values if not math.isnan(value)]
    if not any(defined):
        return "No task reveals anything"
    first, last = shares(defined[0], defined[-1])
    text = f"The first task reveals {first} of what is private"
    return f"{text}, the last {last} of the rest" if len(defined) > 1 else text


def first_leak(survival: Survival) -> str:
    """Say the time to the first leak, in tasks with a judged message."""
    if not survival.leaked:
        return f"No attribute leaks in {count(int(survival.times[-1]), 'judged task')}"
    after = survival.median if survival.median is not None else int(survival.times[-1])
    done = count(after, "judged task")
    done += " where they are private" if survival.clock == Clock.EXPOSURES else ""
    if survival.median is not None:
        return f"Half of the attributes have leaked after {done}"
    return f"{share(float(survival.private[-1]))} of the attributes are still private after {done}"


def first_leak_line(survival: Survival, whose: str) -> str:
    """Say the time to the first leak with both ends, for a terminal."""
    never = (
        f"{share(float(survival.private[-1]))} have not leaked after {count(int(survival.times[-1]), 'judged task')}"
    )
    half = "" if survival.median is None else f"half of them have leaked after {count(survival.median, 'task')}, "
    return f"first leak of {count(survival.attributes, 'attribute')} {whose} (Kaplan-Meier): {half}{never}"


def one_user(user: OneUser) -> str:
    """Say what a user's tasks give away."""
    judged = count(len(user.steps), "task")
    if user.judged < len(user.steps):
        judged = f"{count(user.judged, 'judged task')} of {len(user.steps)}"
    return f"{user.name}: {user.leaked} of {count(user.attributes, 'private attribute')} leak in {judged}"


def any_message(user: OneUser) -> str:
    """Say which message has to reveal an attribute for it to be named: 'the first message', 'any of the 5 messages',
    'any judged message (1 to 5 a task)'."""
    judged = [step.judged for step in user.steps if step.judged]
    least, most = min(judged, default=0), max(judged, default=0)
    if least < most:
        return f"any judged message ({least} to {most} a task)"
    return f"any of the {most} messages" if most > 1 else "the first message" if most else "any judged message"


# ---- stored, recalled, said

OUTCOME_NAMES = {
    "recalled_and_said": "recalled and said",
    "said_not_recalled": "said, not recalled",
    "recalled_not_said": "recalled, not said",
    "not_recalled": "not recalled",
}


def recalled(name: str, numbers: RecalledNumbers) -> str:
    """Say where between memory and message the attributes that a run should withhold were stopped; of a run without
    any, where what is needed was lost. Without its full stop."""
    split, needed = numbers.violation[numbers.n], numbers.completeness
    if not math.isnan(split.said):
        held, silent, said = shares(split.not_recalled, split.recalled_not_said, split.said)
        without = f" ({shares(split.said_not_recalled)[0]} without recall)" if split.said_not_recalled > 0 else ""
        return (
            f"Of what {name} should withhold, {held} was not recalled, {silent} was recalled and held back by the "
            f"model, {said} leaked{without} (violation@{numbers.n})"
        )
    if not math.isnan(needed.said):
        held, silent, said = shares(needed.not_recalled, needed.recalled_not_said, needed.said)
        return (
            f"Of what {name} needs to say, {held} was not recalled, {silent} was recalled and not said, {said} was said"
        )
    return f"{name}: nothing to measure yet"


def ungrounded(numbers: RecalledNumbers) -> str:
    """Say in how many messages a summary or an external memory system put lines into the prompt whose attributes are
    unknown, so that too much counts as not recalled. Without its full stop; '' where there are none."""
    item = numbers.ungrounded
    if not item.lines:
        return ""
    return (
        f"In {item.messages:,} of {count(item.of_messages, 'message')} the prompt held recalled lines of which no "
        f"attribute is known ({count(item.lines, 'line')}, ungrounded): what they say counts as not recalled"
    )


def outcomes(item: Outcomes) -> str:
    """Return 'recalled in 40.1 % of the samples, said in 22.0 %, 1.3 % without recall'."""
    if not item.draws:
        return "no judged sample"
    recalled_share, said = shares(item.exposure, item.said / item.draws)
    without = f", {shares(item.share('said_not_recalled'))[0]} without recall" if item.said_not_recalled else ""
    return f"recalled in {recalled_share} of the samples, said in {said}{without}"


# ---- sessions: leaks that travel through earlier messages of the assistant


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


def said_before_text(numbers: SessionNumbers) -> str:
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


def session_groups(numbers: SessionNumbers) -> list[tuple[str, Group, Interval | None]]:
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


# ---- plans: what they can show before they are paid for


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
