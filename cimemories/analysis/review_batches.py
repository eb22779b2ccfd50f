"""What one person has decided lately: their batches, each of which can be taken back at once, and their last pair."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store.decisions import UNDO
from cimemories.store.engine import Store
from cimemories.store.tables import decision

RECENT = 200  # decisions that are looked through for the last single one


@dataclass(frozen=True)
class Batch:
    """Decisions made at one stroke. pairs: how many; taken_back: how many of them were. label: None where the batch
    has several. created: of the first, ISO 8601 in UTC."""

    id: str
    source: str
    pairs: int
    taken_back: int
    label: Label | None
    reason: str
    created: str


@dataclass(frozen=True)
class Last:
    """A pair (ids) and what was decided of it."""

    attribute: int
    context: int
    label: Label


def batches(store: Store, dataset_id: int, annotator: str, limit: int = 10) -> list[Batch]:
    """The newest batches of one annotator in a dataset, newest first."""
    own = decision.c.dataset == dataset_id, decision.c.annotator == annotator, decision.c.batch.is_not(None)
    grouped = (
        sa.select(
            decision.c.batch,
            sa.func.min(decision.c.source).label("source"),
            sa.func.count().label("pairs"),
            sa.func.min(decision.c.label).label("lowest"),
            sa.func.max(decision.c.label).label("highest"),
            sa.func.min(decision.c.reason).label("reason"),
            sa.func.min(decision.c.created).label("created"),
        )
        .where(*own, decision.c.source != UNDO)
        .group_by(decision.c.batch)
        .order_by(sa.func.max(decision.c.id).desc())
        .limit(limit)
    )
    with store.read() as connection:
        rows = connection.execute(grouped).all()
        undone: dict[str, int] = {
            str(row[0]): int(row[1])
            for row in connection.execute(
                sa.select(decision.c.batch, sa.func.count())
                .where(*own, decision.c.source == UNDO, decision.c.batch.in_([f"undo-{row.batch}" for row in rows]))
                .group_by(decision.c.batch)
            )
        }
    return [
        Batch(
            id=row.batch,
            source=row.source,
            pairs=row.pairs,
            taken_back=undone.get(f"undo-{row.batch}", 0),
            label=Label(row.lowest) if row.lowest is not None and row.lowest == row.highest else None,
            reason=row.reason,
            created=row.created,
        )
        for row in rows
    ]


def last_single(store: Store, dataset_id: int, annotator: str) -> Last | None:
    """The pair that this annotator decided last by itself, of those decisions that still stand; None where there is
    none among their newest RECENT."""
    query = (
        sa.select(decision.c.attribute, decision.c.context, decision.c.label, decision.c.source)
        .where(decision.c.dataset == dataset_id, decision.c.annotator == annotator)
        .order_by(decision.c.id.desc())
        .limit(RECENT)
    )
    seen: set[tuple[int, int]] = set()
    with store.read() as connection:
        for attribute, context, label, source in connection.execute(query):
            if (attribute, context) not in seen and label is not None and source == "single":
                return Last(attribute, context, Label(label))
            seen.add((attribute, context))
    return None
