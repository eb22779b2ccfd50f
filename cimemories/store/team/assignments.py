"""Who decides which slice, by when, and how many people decide each of its pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import sqlalchemy as sa

from cimemories.store.audits import SLICE_LABELS, slice_row
from cimemories.store.engine import StoreError, now, one_line, plain_name
from cimemories.store.tables import assignee, assignment, dataset, decision, slice, slice_item
from cimemories.store.team import log

MOST_ASSIGNEES = 100


@dataclass(frozen=True)
class Assignment:
    """A slice of labels that people are to decide. overlap: how many of them decide a pair, None for all of them; due:
    a date as text, None without one; items: pairs."""

    slice: int
    name: str
    dataset: int
    dataset_name: str
    labelling: str | None
    items: int
    people: tuple[str, ...]
    overlap: int | None
    due: str | None
    annotator: str
    created: str

    @property
    def wanted(self) -> int:
        """How many people are to decide each pair."""
        return min(self.overlap or len(self.people), len(self.people))


def assign(
    connection: sa.Connection,
    slice_id: int,
    people: Sequence[str],
    *,
    overlap: int | None = None,
    due: str | None = None,
    annotator: str,
) -> None:
    """Let these people decide a slice, in the place of those before; nobody: the slice is anybody's again. Raises
    StoreError for a slice that is not of labels, a date that is none, and an overlap of more people than there are."""
    row = slice_row(connection, slice_id)
    names = list(dict.fromkeys(plain_name(name, "person") for each in people if (name := one_line(each))))
    if row.kind != SLICE_LABELS:
        raise StoreError(f"'{row.name}' is no slice of labels. Only those are assigned.")
    if len(names) > MOST_ASSIGNEES:
        raise StoreError(f"a slice can be assigned to {MOST_ASSIGNEES} people, not {len(names)}.")
    if overlap is not None and not 1 <= overlap <= max(len(names), 1):
        raise StoreError(f"each pair can be decided by 1 to {len(names)} of these people, not {overlap}.")
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
    log.add(connection, "slice.assigned", row.name, people=", ".join(names) or "nobody", overlap=overlap, due=due)


def assignments(
    connection: sa.Connection, *, dataset_id: int | None = None, person: str | None = None, slice_id: int | None = None
) -> list[Assignment]:
    """The assignments of a dataset, of a person, or of a slice, those that are due first; without a date last."""
    sizes = sa.select(slice_item.c.slice, sa.func.count().label("size")).group_by(slice_item.c.slice).subquery()
    query = (
        sa.select(assignment, slice.c.name, slice.c.dataset, slice.c.manifest, dataset.c.name.label("dataset_name"))
        .add_columns(sa.func.coalesce(sizes.c.size, 0).label("items"))
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
    for row in connection.execute(sa.select(assignee).where(assignee.c.slice.in_([row["slice"] for row in rows]))):
        named.setdefault(row.slice, []).append(row.name)
    matching = [
        Assignment(
            people=tuple(sorted(named.get(row["slice"], ()))),
            labelling=_labelling(row["manifest"]),
            **{name: value for name, value in row.items() if name != "manifest"},
        )
        for row in rows
    ]
    return sorted(matching, key=lambda item: (item.due or "9999", item.slice))


@dataclass(frozen=True)
class Answer:
    """The decision of a person that stands on a pair of a slice."""

    annotator: str
    pair: tuple[int, int]
    blind: bool
    seconds: float | None
    created: str


def answers(connection: sa.Connection, slice_id: int) -> list[Answer]:
    """Everybody's standing decisions on the pairs of a slice, without adjudications, in the order they were made."""
    same = sa.and_(slice_item.c.attribute == decision.c.attribute, slice_item.c.context == decision.c.context)
    rows = connection.execute(
        sa.select(decision)
        .join(slice_item, same)
        .where(slice_item.c.slice == slice_id, decision.c.source != "adjudicated")
        .order_by(decision.c.created, decision.c.id)
    )
    standing: dict[tuple[str, tuple[int, int]], Answer] = {}
    for row in rows:
        pair = row.attribute, row.context
        # Taken out and put in again: what stands comes in the order of its last word.
        standing.pop((row.annotator, pair), None)
        if row.label is not None:
            answer = Answer(row.annotator, pair, bool(row.blind), row.seconds, row.created)
            standing[row.annotator, pair] = answer
    return list(standing.values())


def _labelling(manifest: str) -> str | None:
    value = json.loads(manifest).get("labelling")
    return value if isinstance(value, str) else None
