"""Who works through which slice, by when, and how many people answer each of its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from math import ceil

import sqlalchemy as sa

from cimemories.store import audits, decisions
from cimemories.store.audits import ATTRIBUTES, SLICE_LABELS, TEST, TRAINING, Flow, KnownPair, slice_row
from cimemories.store.decisions import ADJUDICATED, moment
from cimemories.store.engine import StoreError, now, one_line, plain_name
from cimemories.store.tables import assignee, assignment, dataset, decision, slice, slice_item
from cimemories.store.team import log

MOST_ASSIGNEES = 100
Item = tuple[int, int]


@dataclass(frozen=True)
class Assignment:
    """A slice that people are to work through. overlap: how many of them answer an item, None for all of them; due: a
    date as text, None without one; items: pairs, judgements, or attributes of which each is read to its end. labelling,
    run, judge: what the slice was drawn of, None where it names none. training, tests: how many pairs with known
    answers come before it, and are mixed into it."""

    slice: int
    name: str
    kind: str
    dataset: int
    dataset_name: str
    labelling: str | None
    run: str | None
    judge: int | None
    items: int
    people: tuple[str, ...]
    overlap: int | None
    due: str | None
    annotator: str
    created: str
    training: int = 0
    tests: int = 0

    @property
    def wanted(self) -> int:
        """Return the number of people who are to answer each item."""
        return min(self.overlap or len(self.people), len(self.people))

    @property
    def share(self) -> int:
        """Return the number of items that one person answers: all, or an equal part of what is wanted, rounded up; 0
        without people."""
        return min(self.items, ceil(self.items * self.wanted / len(self.people))) if self.people else 0

    @property
    def dealt(self) -> bool:
        """Return whether it is fixed who answers which item. It is for an audit with overlap, so that any two people
        share about as many. Pairs with overlap go to the people who come first."""
        return self.overlap is not None and self.kind != SLICE_LABELS


def assign(
    connection: sa.Connection,
    slice_id: int,
    people: Sequence[str],
    *,
    overlap: int | None = None,
    due: str | None = None,
    known: Sequence[KnownPair] | None = None,
    annotator: str,
) -> None:
    """Let these people work through a slice, in the place of those before; without people it is open to all again.
    known: its pairs with known answers; None: those that it has. Raises StoreError for a slice that is not there, a
    date that is none, and an overlap of more people than there are."""
    # An assignment or a deletion at the same moment goes first.
    connection.execute(sa.select(slice.c.id).where(slice.c.id == slice_id).with_for_update())
    row = slice_row(connection, slice_id)
    names = list(dict.fromkeys(plain_name(name, "person") for each in people if (name := one_line(each))))
    if len(names) > MOST_ASSIGNEES:
        raise StoreError(f"a slice can be assigned to {MOST_ASSIGNEES} people, not {len(names)}.")
    if overlap is not None and not 1 <= overlap <= max(len(names), 1):
        raise StoreError(f"each item can be answered by 1 to {len(names)} of these people, not {overlap}.")
    if due is not None:
        try:
            due = date.fromisoformat(due).isoformat()
        except ValueError:
            raise StoreError(f"'{due}' is no date. Write it like 2026-12-31.") from None
    connection.execute(sa.delete(assignee).where(assignee.c.slice == slice_id))
    connection.execute(sa.delete(assignment).where(assignment.c.slice == slice_id))
    if names:
        who = plain_name(annotator, "annotator")
        values = {"slice": slice_id, "overlap": overlap, "due": due, "annotator": who, "created": now()}
        connection.execute(sa.insert(assignment).values(**values))
        connection.execute(sa.insert(assignee), [{"slice": slice_id, "name": name} for name in names])
    if known is not None:
        audits.set_known(connection, slice_id, known)
    uses = Counter(pair.use for pair in known or ())
    set_to = {"overlap": overlap, "due": due, TRAINING: uses[TRAINING] or None, "tests": uses[TEST] or None}
    log.add(connection, "slice.assigned", row.name, people=", ".join(names) or "no one", **set_to)


def assignments(
    connection: sa.Connection, *, dataset_id: int | None = None, person: str | None = None, slice_id: int | None = None
) -> list[Assignment]:
    """Return the assignments of a dataset, of a person, or of a slice, those that are due first; without a date
    last."""
    sizes = (
        sa.select(slice_item.c.slice, sa.func.count().label("size"))
        .add_columns(sa.func.count(slice_item.c.attribute.distinct()).label("attributes"))
        .where(audits.DRAWN)
        .group_by(slice_item.c.slice)
        .subquery()
    )
    query = (
        sa.select(assignment, slice.c.name, slice.c.kind, slice.c.dataset, slice.c.manifest)
        .add_columns(dataset.c.name.label("dataset_name"))
        .add_columns(sa.case((slice.c.kind == ATTRIBUTES, sizes.c.attributes), else_=sizes.c.size).label("items"))
        .join(slice, slice.c.id == assignment.c.slice)
        .join(dataset, dataset.c.id == slice.c.dataset)
        .outerjoin(sizes, sizes.c.slice == slice.c.id)
    )
    if dataset_id is not None:
        query = query.where(slice.c.dataset == dataset_id)
    if slice_id is not None:
        query = query.where(slice.c.id == slice_id)
    if person is not None:
        query = query.where(assignment.c.slice.in_(sa.select(assignee.c.slice).where(assignee.c.name == person)))
    rows = connection.execute(query).mappings().all()
    named: dict[int, list[str]] = {}
    for each in connection.execute(sa.select(assignee).where(assignee.c.slice.in_([row["slice"] for row in rows]))):
        named.setdefault(each.slice, []).append(each.name)
    known = audits.known_pairs(connection, [row["slice"] for row in rows])
    matching = []
    for row in rows:
        manifest = row["manifest"]
        run, judge, labelling = (manifest.get(name) for name in ("run", "judge", "labelling"))
        matching.append(
            Assignment(
                people=tuple(sorted(named.get(row["slice"], ()))),
                labelling=labelling if isinstance(labelling, str) else None,
                run=run if isinstance(run, str) else None,
                judge=judge if isinstance(judge, int) else None,
                **{name: value for name, value in row.items() if name not in ("manifest", "items")},
                items=row["items"] or 0,
                training=sum(pair.use == TRAINING for pair in known.get(row["slice"], ())),
                tests=sum(pair.use == TEST for pair in known.get(row["slice"], ())),
            )
        )
    return sorted(matching, key=lambda item: (item.due or "9999", item.slice))


@dataclass(frozen=True)
class Answer:
    """The word of a person on an item of a slice, as it stands. It is a decision on a pair (attribute, context), a
    verdict on a judgement (response, attribute), or all verdicts on an attribute (0, attribute). blind: whether all of
    it was."""

    annotator: str
    item: Item
    blind: bool
    seconds: float | None
    created: str


def answers(connection: sa.Connection, of: Assignment) -> list[Answer]:
    """Everybody's standing answers to the items of a slice, in the order they were made; of who has only adjudicated a
    pair that, since the queue does not give it to them any more. An attribute is answered by who found it in one of its
    messages, or read them all."""
    if of.kind == SLICE_LABELS:
        return _decisions(connection, of.slice)
    flows = [(item.response or 0, item.attribute) for item in audits.slice_items(connection, of.slice)]
    by_person = _verdicts(connection, of, flows)
    if of.kind == ATTRIBUTES:
        messages: dict[int, list[Flow]] = {}
        for flow in flows:
            messages.setdefault(flow[1], []).append(flow)
        every = [
            answer
            for verdicts in by_person.values()
            for attribute, statuses in messages.items()
            if (answer := _attribute(attribute, statuses, verdicts)) is not None
        ]
    else:
        every = [
            Answer(item.annotator, flow, item.blind, item.seconds, item.created)
            for verdicts in by_person.values()
            for flow, item in verdicts.items()
        ]
    return sorted(every, key=lambda answer: answer.created)


def items(connection: sa.Connection, of: Assignment) -> list[Item]:
    """Return the items of a slice as answers name them, in their order."""
    every = audits.slice_items(connection, of.slice)
    if of.kind == SLICE_LABELS:
        return [(item.attribute, item.context) for item in every]
    named = ((0 if of.kind == ATTRIBUTES else item.response or 0, item.attribute) for item in every)
    return list(dict.fromkeys(named))


def _decisions(connection: sa.Connection, slice_id: int) -> list[Answer]:
    same = sa.and_(slice_item.c.attribute == decision.c.attribute, slice_item.c.context == decision.c.context)
    drawn = sa.select(decision).join(slice_item, same).where(slice_item.c.slice == slice_id, audits.DRAWN)
    rows = connection.execute(drawn)
    standing: dict[tuple[str, Item], Answer] = {}
    for row in sorted(rows, key=moment):
        pair = row.attribute, row.context
        # Who settled a dispute is not asked again, and counts once; their own answer before that is the one that does.
        if row.source == ADJUDICATED and (row.annotator, pair) in standing:
            continue
        # Taken out and put in again: what stands comes in the order of its last word.
        standing.pop((row.annotator, pair), None)
        if row.label is not None:
            answer = Answer(row.annotator, pair, bool(row.blind), row.seconds, row.created)
            standing[row.annotator, pair] = answer
    return list(standing.values())


def _verdicts(connection: sa.Connection, of: Assignment, flows: Sequence[Flow]) -> dict[str, dict[Flow, audits.Audit]]:
    """By person their standing verdicts on these flows."""
    asked, made = set(flows), dict[str, list[audits.Audit]]()
    for item in audits.of_run(connection, of.run) if of.run else ():
        if item.place in asked:
            made.setdefault(item.annotator, []).append(item)
    return {person: decisions.standing(audits_of) for person, audits_of in made.items()}


def _attribute(attribute: int, messages: Iterable[Flow], verdicts: dict[Flow, audits.Audit]) -> Answer | None:
    """A person's answer to an attribute, by their verdicts on its messages; None while they are at it."""
    every = list(messages)
    read = [verdicts[flow] for flow in every if flow in verdicts]
    if len(read) < len(every) and not any(audits.says_revealed(item.verdict) for item in read):
        return None
    timed = [item.seconds for item in read if item.seconds is not None]
    last = max(item.created for item in read)
    return Answer(
        read[0].annotator, (0, attribute), all(item.blind for item in read), sum(timed) if timed else None, last
    )
