"""How far an assigned slice has come, how fast its people are, and whether it will be done in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import ceil
from statistics import median

from cimemories.access.roles import Role
from cimemories.store.engine import Store
from cimemories.store.reviews import Plan
from cimemories.store.team import assignments
from cimemories.store.team.assignments import Answer, Assignment
from cimemories.text import count

WINDOW_DAYS = 7  # a pace is that of the last days: people speed up, and go on holiday


@dataclass(frozen=True)
class Pace:
    """One person in an assigned slice. answered: pairs on which their decision stands, `blind` of these made blind.
    share: of the pairs how many are theirs: all where everybody decides all, else an equal part, rounded up. per_day:
    answers a day over the last WINDOW_DAYS days, or since the first of them; 0 without any. seconds: the median that an
    answer took; None where none was timed. last: when they answered last, '' if never."""

    person: str
    answered: int
    blind: int
    share: int
    per_day: float
    seconds: float | None
    last: str


@dataclass(frozen=True)
class Progress:
    """An assigned slice. decisions: how many there are to make, `made` of them made: of a pair no more count than are
    wanted. done_by: the day on which the rest is made at the pace of all together; None where nobody is at it."""

    of: Assignment
    people: tuple[Pace, ...]
    decisions: int
    made: int
    done_by: date | None

    @property
    def left(self) -> int:
        return self.decisions - self.made

    @property
    def sentence(self) -> str:
        """'120 of 400 decisions made; due 2026-12-01, done about 2026-12-03 at this pace: 2 days late'."""
        text = f"{count(self.made)} of {count(self.decisions, 'decision')} made"
        due = date.fromisoformat(self.of.due) if self.of.due else None
        if not self.left:
            return f"{text}: done"
        parts = [f"due {due}"] if due else []
        if self.done_by is None:
            parts.append("nobody is at it")
        else:
            late = (self.done_by - due).days if due else 0
            behind = f": {count(late, 'day')} late" if late > 0 else ""
            parts.append(f"done about {self.done_by} at this pace{behind}")
        return f"{text}; {', '.join(parts)}"


def progress_of(item: Assignment, answers: Sequence[Answer], now: datetime) -> Progress:
    """How far an assignment has come at this moment (in UTC), by the decisions on its pairs."""
    deciders = Counter(answer.pair for answer in answers)
    if item.overlap is None:
        # Everybody answers all: what others say of these pairs counts for nothing here.
        made = sum(answer.annotator in item.people for answer in answers)
    else:
        made = sum(min(number, item.wanted) for number in deciders.values())
    decisions = item.items * item.wanted
    share = ceil(decisions / len(item.people)) if item.people else 0
    people = tuple(_pace(name, [a for a in answers if a.annotator == name], share, now) for name in item.people)
    speed = sum(person.per_day for person in people)
    left = decisions - made
    done_by = (now + timedelta(days=ceil(left / speed))).date() if speed else None
    return Progress(item, people, decisions, made, done_by)


def _pace(name: str, own: Sequence[Answer], share: int, now: datetime) -> Pace:
    begin = now - timedelta(days=WINDOW_DAYS)
    recent = [at for answer in own if (at := datetime.fromisoformat(answer.created)) >= begin]
    # Of today's first hour no pace of thousands a day is made: a day is the least.
    days = max((now - min(recent)) / timedelta(days=1), 1.0) if recent else 1.0
    timed = [answer.seconds for answer in own if answer.seconds is not None]
    return Pace(
        name,
        len(own),
        sum(answer.blind for answer in own),
        share,
        len(recent) / days,
        median(timed) if timed else None,
        own[-1].created if own else "",
    )


def progress(store: Store, *, dataset_id: int | None = None, person: str | None = None) -> list[Progress]:
    """The assignments of a dataset, or of a person, those that are due first."""
    with store.read() as connection:
        assigned = assignments.assignments(connection, dataset_id=dataset_id, person=person)
        every = [assignments.answers(connection, item.slice) for item in assigned]
    return [progress_of(item, answers, datetime.now(UTC)) for item, answers in zip(assigned, every, strict=True)]


@dataclass(frozen=True)
class Mine:
    """What somebody has been assigned: of how many pairs they have answered so many."""

    of: Assignment
    answered: int
    share: int


def assigned_to(store: Store, person: str) -> list[Mine]:
    """What is assigned to a person and not done, those that are due first."""
    open_ones = [item for item in progress(store, person=person) if item.left]
    own = [(item, next(pace for pace in item.people if pace.person == person)) for item in open_ones]
    return [Mine(item.of, pace.answered, pace.share) for item, pace in own if pace.answered < item.of.items]


def assignment_of(store: Store, slice_id: int | None) -> Assignment | None:
    """The assignment of a slice; None where it is anybody's."""
    if slice_id is None:
        return None
    with store.read() as connection:
        return next(iter(assignments.assignments(connection, slice_id=slice_id)), None)


def overlap_of(item: Assignment | None) -> Plan | None:
    """How many people each pair of an assigned slice is given to; None where everybody decides all of it."""
    return None if item is None or item.overlap is None else Plan(1.0, item.overlap)


def assign(
    store: Store, slice_id: int, people: Sequence[str], *, overlap: int | None, due: str | None, annotator: str
) -> None:
    """Let these people decide a slice, as store.team.assignments.assign does; nobody: it is anybody's again."""
    with store.write(Role.CURATOR) as connection:
        assignments.assign(connection, slice_id, people, overlap=overlap, due=due, annotator=annotator)
