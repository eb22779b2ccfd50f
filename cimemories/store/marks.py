"""What is said of a pair that is no label: skipped for now, flagged as a bad item, or cleared. Append-only."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import sqlalchemy as sa

from cimemories.store.engine import insert_ignore
from cimemories.store.ids import now
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
    """Append marks of one annotator; those whose uid the dataset has already are left out."""
    rows = [
        {
            "dataset": dataset_id,
            "annotator": annotator,
            **vars(item),
            "kind": str(item.kind),
            "created": item.created or now(),
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
    newest = sa.select(sa.func.max(mark.c.id)).where(
        mark.c.attribute == found.attribute, mark.c.context == found.context, mark.c.annotator == annotator
    )
    if connection.execute(newest).scalar_one() != found.id:
        return False
    add_all(connection, dataset_id, annotator, [Mark(found.attribute, found.context, Kind.CLEAR, new_uid)])
    return True


def standing(
    connection: sa.Connection, dataset_id: int, kind: Kind, annotator: str | None = None
) -> set[tuple[int, int]]:
    """The (attribute, context) pairs on which somebody's newest mark is of this kind; one annotator's where given."""
    newest = sa.select(sa.func.max(mark.c.id)).where(mark.c.dataset == dataset_id)
    if annotator is not None:
        newest = newest.where(mark.c.annotator == annotator)
    newest = newest.group_by(mark.c.attribute, mark.c.context, mark.c.annotator)
    query = sa.select(mark.c.attribute, mark.c.context).where(mark.c.id.in_(newest), mark.c.kind == str(kind))
    return {(int(a), int(c)) for a, c in connection.execute(query)}
