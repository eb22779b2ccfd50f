"""Comments on pairs (attribute, context): append-only. A comment is settled by one more row, which says why."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.engine import StoreError, insert_ignore, plain_name, storable
from cimemories.store.ids import now
from cimemories.store.review_tables import comment


@dataclass(frozen=True)
class Comment:
    """One comment on a pair. `resolved_by`: who settled it, None while it is open; `resolution`: their word why.

    Where it was settled more than once, in two workspaces that were merged, the earliest word counts."""

    id: int
    uid: str
    attribute: int
    context: int
    annotator: str
    text: str
    resolved_by: str | None
    resolution: str
    created: str

    @property
    def open(self) -> bool:
        return self.resolved_by is None


def add(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    attribute: int,
    context: int,
    text: str,
    uid: str | None = None,
    created: str | None = None,
) -> bool:
    """Append a comment. False, and nothing is written, where the dataset has that uid already.

    Raises StoreError for a text without a word."""
    if not text.strip():
        raise StoreError("a comment needs a word or more. Write what is to be said of the pair.")
    values = {"attribute": attribute, "context": context, "text": storable(text), "resolves": None}
    return _append(connection, dataset_id, annotator, uid, created, values)


def resolve(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    comment_id: int,
    text: str = "",
    uid: str | None = None,
    created: str | None = None,
) -> bool:
    """Append that a comment is settled, and why. False, and nothing is written, for a uid that is known.

    One that is settled already can be settled again (two people at once do that); the earliest word counts.
    Raises StoreError where the dataset has no such comment."""
    found = connection.execute(
        sa.select(comment.c.attribute, comment.c.context).where(
            comment.c.id == comment_id, comment.c.dataset == dataset_id, comment.c.resolves.is_(None)
        )
    ).first()
    if found is None:
        raise StoreError(f"there is no comment {comment_id} in this dataset. It went with its pair, or never was.")
    values = {"attribute": found.attribute, "context": found.context, "text": storable(text), "resolves": comment_id}
    return _append(connection, dataset_id, annotator, uid, created, values)


def _append(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    uid: str | None,
    created: str | None,
    values: dict[str, object],
) -> bool:
    who = plain_name(annotator, "annotator")
    row = {
        "dataset": dataset_id,
        "annotator": who,
        "uid": uid or uuid.uuid4().hex,
        "created": created or now(),
    }
    statement = insert_ignore(connection, comment).values(**row, **values).returning(comment.c.id)
    return connection.execute(statement).first() is not None


def of_dataset(connection: sa.Connection, dataset_id: int) -> list[Comment]:
    """All comments of a dataset, oldest first; those of one moment by uid, so that two workspaces agree."""
    return _comments(connection, comment.c.dataset == dataset_id)


def of_pair(connection: sa.Connection, attribute: int, context: int) -> list[Comment]:
    """All comments on one pair, oldest first."""
    return _comments(connection, sa.and_(comment.c.attribute == attribute, comment.c.context == context))


def _comments(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Comment]:
    # Ordered here and not in the database, whose order of texts may be another one.
    found = connection.execute(sa.select(comment).where(where)).mappings()
    rows = sorted(found, key=lambda row: (row["created"], row["uid"]))
    said: list[sa.RowMapping] = []
    settled: dict[int, tuple[str, str]] = {}
    for row in rows:
        if row["resolves"] is None:
            said.append(row)
        else:
            settled.setdefault(row["resolves"], (str(row["annotator"]), str(row["text"])))
    plain = ("id", "uid", "attribute", "context", "annotator", "text", "created")
    listed = []
    for row in said:
        who, why = settled.get(row["id"], (None, ""))
        listed.append(Comment(**{name: row[name] for name in plain}, resolved_by=who, resolution=why))
    return listed
