"""Assigned slices: the items of each person, progress, pace, and the expected end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from math import ceil
from statistics import median
from urllib.parse import urlencode

import numpy as np

from cimemories.access.roles import Role
from cimemories.review.index import hashed
from cimemories.review.training import draw_known
from cimemories.store import audits
from cimemories.store.audits import ATTRIBUTES, JUDGEMENTS, SLICE_LABELS, Flow, KnownPair, SliceRow
from cimemories.store.engine import Store
from cimemories.store.reviews import Plan
from cimemories.store.team import assignments
from cimemories.store.team.assignments import Answer, Assignment, Item
from cimemories.text import count

WINDOW_DAYS = 7  # a pace is that of the last days: people speed up, and go on holiday
# What the items of a slice of each kind are, and what people do with them.
UNITS = {SLICE_LABELS: "pair", JUDGEMENTS: "judgement", ATTRIBUTES: "attribute"}
ANSWERS = {SLICE_LABELS: "decision", JUDGEMENTS: "verdict", ATTRIBUTES: "attribute read"}


@dataclass(frozen=True)
class Pace:
    """One person in an assigned slice. answered: items on which their answer stands, `blind` of these made blind.
    share: how many are theirs: all where everybody answers all, else an equal part; left: how many they can still be
    given. per_day: answers a day over the last WINDOW_DAYS days, or since the first of them; 0 without any. seconds:
    the median that an answer took; None where none was timed. last: when they answered last, '' if never."""

    person: str
    answered: int
    blind: int
    share: int
    per_day: float
    seconds: float | None
    last: str
    left: int


@dataclass(frozen=True)
class Progress:
    """An assigned slice. decisions: how many answers are asked for; answered: how many of them were given, surplus
    answers to an item aside. done_by: the day on which the rest will be done at the present pace; None if nothing was
    answered lately."""

    of: Assignment
    people: tuple[Pace, ...]
    decisions: int
    answered: int
    done_by: date | None

    @property
    def left(self) -> int:
        return self.decisions - self.answered

    @property
    def sentence(self) -> str:
        """Return '120 of 400 decisions made; due 2026-12-01, done about 2026-12-03 at this pace: 2 days late'."""
        what = "attributes read" if self.of.kind == ATTRIBUTES else f"{ANSWERS[self.of.kind]}s made"
        text = f"{count(self.answered)} of {count(self.decisions)} {what}"
        due = date.fromisoformat(self.of.due) if self.of.due else None
        if not self.left:
            return f"{text}: done"
        parts = [f"due {due}"] if due else []
        if self.done_by is None:
            parts.append("no one is working on it")
        else:
            late = (self.done_by - due).days if due else 0
            behind = f": {count(late, 'day')} late" if late > 0 else ""
            parts.append(f"done about {self.done_by} at this pace{behind}")
        return f"{text}; {', '.join(parts)}"


def deal(
    items: Sequence[Item], people: Sequence[str], per_item: int, answers: Iterable[Answer] = ()
) -> dict[str, set[Item]]:
    """Assign each item to `per_item` people. An item goes to those with the fewest items so far; ties are broken by a
    hash of person and item. Shares differ by one at most, and any two people share about as many items. People keep the
    items that they have answered, and answers of others lower the number still wanted."""
    answered: dict[Item, list[str]] = {}
    for answer in answers:
        answered.setdefault(answer.item, []).append(answer.annotator)
    dealt: dict[str, set[Item]] = {name: set() for name in people}
    numbers = np.array(items, np.int64).reshape(-1, 2)
    ties = {name: hashed(n, numbers[:, 0], numbers[:, 1]).tolist() for n, name in enumerate(people)}
    for at, item in enumerate(items):
        before = answered.get(item, ())
        previous = [name for name in before if name in dealt]
        free = sorted((len(dealt[name]), ties[name][at], name) for name in people if name not in previous)
        for name in (*previous, *(name for *_, name in free[: max(0, per_item - len(before))])):
            dealt[name].add(item)
    return dealt


def own_items(item: Assignment, items: Sequence[Item], answers: Sequence[Answer], person: str) -> set[Item]:
    """Return the items of an assigned slice that this person answers; of pairs with overlap, those that they have
    answered and those that they can still be given. Empty if the person is not assigned."""
    if person not in item.people:
        return set()
    if item.overlap is None:
        return set(items)
    if item.dealt:
        return deal(items, item.people, item.wanted, answers)[person]
    others = Counter(answer.item for answer in answers if answer.annotator != person)
    answered = {answer.item for answer in answers if answer.annotator == person}
    return {each for each in items if each in answered or others[each] < item.wanted}


def progress_of(item: Assignment, items: Sequence[Item], answers: Sequence[Answer], now: datetime) -> Progress:
    """Compute the progress of an assignment at this moment (in UTC) from the answers to its items."""
    deciders = Counter(answer.item for answer in answers)
    if item.overlap is None:
        # Everybody answers all: what others say of these items counts for nothing here.
        made = sum(answer.annotator in item.people for answer in answers)
    else:
        made = sum(min(number, item.wanted) for number in deciders.values())
    decisions = item.items * item.wanted
    people = tuple(_pace(item, name, items, answers, now) for name in item.people)
    # People with nothing left do not help with the rest.
    speed = sum(person.per_day for person in people if person.left)
    left = decisions - made
    done_by = (now + timedelta(days=ceil(left / speed))).date() if speed else None
    return Progress(item, people, decisions, made, done_by)


def _pace(item: Assignment, name: str, items: Sequence[Item], answers: Sequence[Answer], now: datetime) -> Pace:
    made = [answer for answer in answers if answer.annotator == name]
    assigned = own_items(item, items, answers, name)
    begin = now - timedelta(days=WINDOW_DAYS)
    recent = [at for answer in made if (at := datetime.fromisoformat(answer.created)) >= begin]
    # Of today's first hour no pace of thousands a day is made: a day is the least.
    days = max((now - min(recent)) / timedelta(days=1), 1.0) if recent else 1.0
    timed = [answer.seconds for answer in made if answer.seconds is not None]
    return Pace(
        name,
        len(made),
        sum(answer.blind for answer in made),
        len(assigned) if item.dealt else item.share,
        len(recent) / days,
        median(timed) if timed else None,
        made[-1].created if made else "",
        len(assigned - {answer.item for answer in made}),
    )


def progress(store: Store, *, dataset_id: int | None = None, person: str | None = None) -> list[Progress]:
    """Return the progress of the assignments of a dataset, or of a person, soonest due first."""
    with store.read() as connection:
        assigned = assignments.assignments(connection, dataset_id=dataset_id, person=person)
        every = [
            (item, assignments.items(connection, item), assignments.answers(connection, item)) for item in assigned
        ]
    return [progress_of(*of, datetime.now(UTC)) for of in every]


@dataclass(frozen=True)
class Mine:
    """An unfinished assignment of one person: `answered` of `share` items."""

    of: Assignment
    answered: int
    share: int

    @property
    def place(self) -> tuple[str, Mapping[str, str | int | None]]:
        """Return the page on which the work continues, and the parameters of its address."""
        work = self.of
        if work.kind == SLICE_LABELS:
            query = {"dataset": work.dataset, "labelling": work.labelling, "slice": work.slice, "blind": 1}
            return "review", query
        return "judge_audit", {"run": work.run, "judge": work.judge, "slice": work.slice, "blind": 1}

    @property
    def address(self) -> str:
        """Return the address of that page: '/judge_audit?run=run-3f9a&slice=4', say."""
        where, query = self.place
        return f"/{where}?{urlencode({name: value for name, value in query.items() if value is not None})}"

    @property
    def sentence(self) -> str:
        """ "'first' of 'demo': 12 of about 50 pairs answered, due 2026-12-01"."""
        about = "about " if self.of.overlap and not self.of.dealt else ""
        due = f", due {self.of.due}" if self.of.due else ""
        share = f"{about}{count(self.share, UNITS[self.of.kind])}"
        return f"'{self.of.name}' of '{self.of.dataset_name}': {count(self.answered)} of {share} answered{due}"


def assigned_to(store: Store, person: str) -> list[Mine]:
    """Return the unfinished assignments of a person, soonest due first. A slice in which nothing is left for them is
    finished, however far the others are."""
    every = progress(store, person=person)
    paces = [(item, next(pace for pace in item.people if pace.person == person)) for item in every if item.left]
    return [Mine(item.of, pace.answered, pace.share) for item, pace in paces if pace.left]


def own_flows(store: Store, item: Assignment, flows: Sequence[Flow], person: str) -> list[Flow]:
    """Return the messages and attributes of an assigned audit that this person is to read, in their order."""
    with store.read() as connection:
        items = assignments.items(connection, item)
        answers = assignments.answers(connection, item) if item.dealt else []
    assigned = own_items(item, items, answers, person)
    return [flow for flow in flows if ((0, flow[1]) if item.kind == ATTRIBUTES else flow) in assigned]


def slices(store: Store, dataset_id: int) -> list[SliceRow]:
    """Return the slices of a dataset that can be assigned, oldest first."""
    with store.read() as connection:
        return audits.all_slices(connection, dataset_id)


def assignment_of(store: Store, slice_id: int | None) -> Assignment | None:
    """Return the assignment of a slice, or None if it has none."""
    if slice_id is None:
        return None
    with store.read() as connection:
        return next(iter(assignments.assignments(connection, slice_id=slice_id)), None)


def overlap_of(item: Assignment | None) -> Plan | None:
    """Return the overlap plan of an assigned slice of labels, or None if each person decides all of it."""
    return None if item is None or item.overlap is None else Plan(1.0, item.overlap)


def assign(
    store: Store,
    slice_id: int,
    people: Sequence[str],
    *,
    overlap: int | None,
    due: str | None,
    annotator: str,
    training: int = 0,
    tests: int = 0,
) -> None:
    """Assign a slice to these people (store.team.assignments.assign); an empty list opens it to all again. training,
    tests: how many pairs with known answers come before it, and are mixed into it; they stay the same as long as their
    numbers do. Raises StoreError as that and `training.draw_known` do."""
    before = assignment_of(store, slice_id)
    drawn: list[KnownPair] | None = []
    if before is not None and people and (before.training, before.tests) == (training, tests):
        drawn = None
    elif people and (training or tests):
        with store.read() as connection:
            row = audits.slice_row(connection, slice_id)
        drawn = draw_known(store, row, training, tests)
    with store.write(Role.CURATOR) as connection:
        assignments.assign(connection, slice_id, people, overlap=overlap, due=due, known=drawn, annotator=annotator)
