"""What is said of a pair that is no label: skipped for now, flagged as a bad item, or cleared. Append-only."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import sqlalchemy as sa

from cimemories.store.engine import insert_ignore, plain_name
from cimemories.store.ids import later_than, now
from cimemories.store.review_tables import mark


class Kind(StrEnum):
    """The newest of an annotator on a pair holds; `clear` takes back what was said before."""

    SKIP = "skip"
    FLAG = "flag"
    CLEAR = "clear"


@dataclass(frozen=True)
class Mark:
    """One event. uid: given by whoever made it, so that it is recorded once however often it is sent."""

    attribute: int
    context: int
    kind: Kind
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    reason: str = ""
    seconds: float | None = None
    created: str | None = None


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, marks: Sequence[Mark]) -> None:
    """Append marks of one annotator; those whose uid the dataset has already are left out.

    One without a time of its own is later than all of theirs on its pair that are in the record.
    """
    own = mark.c.dataset == dataset_id, mark.c.annotator == annotator
    attributes = {item.attribute for item in marks if item.created is None}
    query = sa.select(mark.c.attribute, mark.c.context, sa.func.max(mark.c.created).label("created"))
    query = query.where(*own, mark.c.attribute.in_(attributes)).group_by(mark.c.attribute, mark.c.context)
    times = {(row.attribute, row.context): row.created for row in connection.execute(query)} if attributes else {}
    rows = [
        {
            "dataset": dataset_id,
            "annotator": plain_name(annotator, "annotator"),
            **vars(item),
            "kind": str(item.kind),
            "created": item.created or later_than(times.get((item.attribute, item.context), ""), now()),
        }
        for item in marks
    ]
    if rows:
        connection.execute(insert_ignore(connection, mark), rows)


def take_back(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Clear a mark of this annotator that is still their newest on its pair. False where there is none."""
    found = connection.execute(
        sa.select(mark.c.attribute, mark.c.context, mark.c.id).where(
            mark.c.dataset == dataset_id, mark.c.uid == uid, mark.c.annotator == annotator
        )
    ).first()
    if found is None:
        return False
    newest = _newest(connection, mark.c.dataset == dataset_id, mark.c.annotator == annotator)
    if newest[found.attribute, found.context, annotator].id != found.id:
        return False
    add_all(connection, dataset_id, annotator, [Mark(found.attribute, found.context, Kind.CLEAR, new_uid)])
    return True


def standing(
    connection: sa.Connection, dataset_id: int, *kinds: Kind, annotator: str | None = None
) -> set[tuple[int, int]]:
    """The (attribute, context) pairs on which somebody's newest mark is of these kinds; one annotator's where given."""
    of_whom = () if annotator is None else (mark.c.annotator == annotator,)
    newest = _newest(connection, mark.c.dataset == dataset_id, *of_whom)
    return {(a, c) for (a, c, _), row in newest.items() if row.kind in kinds}


def _newest(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> dict[tuple[int, int, str], sa.Row]:
    """Of each pair and annotator the mark that holds: the newest by time and uid, in whatever order they arrived."""
    rows = connection.execute(sa.select(mark).where(*where).order_by(mark.c.created, mark.c.uid))
    return {(int(row.attribute), int(row.context), str(row.annotator)): row for row in rows}
