"""One run: its headline, what was judged of it, how its leaks add up, and which flows it covers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cimemories.metrics.accumulation import Accumulation, Clock, Effort, Survival
from cimemories.metrics.one_user import OneUser
from cimemories.metrics.sentences.numbers import TIE, bounds_text, share, shares, unseen
from cimemories.metrics.uncertainty import LEAST_USERS, Interval
from cimemories.metrics.warnings import coverage_warning
from cimemories.text import count, lies_between, listed, percent

# ---- one run


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
