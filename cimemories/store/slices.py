"""Slices: stratified random samples for audits, drawn once and kept. Of pairs (kind labels) or of what responses are
said to reveal (kind judgements)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.engine import StoreError, insert_ignore, plain_name, storable
from cimemories.store.ids import canonical_json, now
from cimemories.store.review_tables import slice as slice_table
from cimemories.store.review_tables import slice_item

LABELS, JUDGEMENTS = "labels", "judgements"
KINDS = (LABELS, JUDGEMENTS)
LONGEST_NAME = 80
CHUNK = 1000  # rows of one statement


@dataclass(frozen=True)
class SliceItem:
    """One drawn item: a pair, in a slice of judgements of one response. weight: how many of the population it stands
    for (size of its stratum over how many were drawn from it)."""

    attribute: int
    context: int
    response: int | None
    stratum: str
    weight: float


@dataclass(frozen=True)
class SliceRow:
    """One slice. manifest: what it was drawn from and how, as the drawing wrote it; items: how many were drawn."""

    id: int
    dataset: int
    kind: str
    name: str
    seed: int
    manifest: dict[str, object]
    annotator: str
    created: str
    items: int


def add(
    connection: sa.Connection,
    dataset_id: int,
    kind: str,
    name: str,
    seed: int,
    manifest: Mapping[str, object],
    annotator: str,
    items: Sequence[SliceItem],
) -> int:
    """Keep a slice with its items in their order; returns its id.

    Raises StoreError for an empty, too long or taken name (a dataset's slices of both kinds share them), an unknown
    kind, a missing annotator, no items, or a slice of judgements whose items name no response.
    """
    wanted, who = plain_name(_line(name), "slice"), plain_name(_line(annotator), "annotator")
    if kind not in KINDS:
        raise StoreError(f"'{kind}' is no kind of slice; there are {' and '.join(KINDS)}.")
    if not wanted or len(wanted) > LONGEST_NAME:
        raise StoreError(f"a slice needs a name of 1 to {LONGEST_NAME} characters.")
    if not who:
        raise StoreError("a slice needs the name of who draws it.")
    if not items:
        raise StoreError("there is nothing to draw from, so the slice would be empty.")
    if kind == JUDGEMENTS and any(item.response is None for item in items):
        raise StoreError("every item of a slice of judgements needs its response.")
    values = {
        "dataset": dataset_id,
        "kind": kind,
        "name": wanted,
        "seed": int(seed),
        "manifest": canonical_json(dict(manifest)),
        "annotator": who[:LONGEST_NAME],
        "created": now(),
    }
    row = connection.execute(
        insert_ignore(connection, slice_table).values(**values).returning(slice_table.c.id)
    ).first()
    if row is None:
        raise StoreError(f"a slice named '{wanted}' exists already. Choose another name, or delete that one first.")
    rows = [{"slice": int(row[0]), "ordinal": n, **vars(item)} for n, item in enumerate(items)]
    for start in range(0, len(rows), CHUNK):
        connection.execute(sa.insert(slice_item), rows[start : start + CHUNK])
    return int(row[0])


def all_rows(connection: sa.Connection, dataset_id: int, kind: str | None = None) -> list[SliceRow]:
    """The slices of a dataset, oldest first; of one kind where given."""
    own = slice_table.c.dataset == dataset_id
    return _rows(connection, own if kind is None else sa.and_(own, slice_table.c.kind == kind))


def one(connection: sa.Connection, slice_id: int) -> SliceRow:
    """The slice of this id. Raises StoreError where it is not there (any more)."""
    found = _rows(connection, slice_table.c.id == slice_id)
    if not found:
        raise StoreError(f"there is no slice {slice_id} (any more).")
    return found[0]


def items_of(connection: sa.Connection, slice_id: int) -> list[SliceItem]:
    """What was drawn, in the order in which it was; empty for an unknown slice."""
    query = sa.select(slice_item).where(slice_item.c.slice == slice_id).order_by(slice_item.c.ordinal)
    return [
        SliceItem(row.attribute, row.context, row.response, row.stratum, float(row.weight))
        for row in connection.execute(query)
    ]


def delete(connection: sa.Connection, slice_id: int) -> None:
    """Forget a slice and what was drawn for it; what people said of its items stays. Nothing for an unknown one."""
    connection.execute(sa.delete(slice_item).where(slice_item.c.slice == slice_id))
    connection.execute(sa.delete(slice_table).where(slice_table.c.id == slice_id))


def _rows(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[SliceRow]:
    drawn = (
        sa.select(slice_item.c.slice, sa.func.count().label("drawn")).group_by(slice_item.c.slice).subquery("per_slice")
    )
    query = (
        sa.select(slice_table, sa.func.coalesce(drawn.c.drawn, 0).label("items"))
        .outerjoin(drawn, drawn.c.slice == slice_table.c.id)
        .where(where)
        .order_by(slice_table.c.id)
    )
    return [
        SliceRow(**{**row, "manifest": json.loads(row["manifest"]), "items": int(row["items"])})
        for row in connection.execute(query).mappings()
    ]


def _line(text: str) -> str:
    return " ".join(storable(text).split())
