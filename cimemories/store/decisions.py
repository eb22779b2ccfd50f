"""Human decisions on pairs (attribute, context): append-only. Undo is one more decision, with no label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store.ids import now
from cimemories.store.tables import dataset, decision


@dataclass(frozen=True)
class Decision:
    """One event. `label` None takes back what the annotator decided before."""

    id: int
    attribute: int
    context: int
    annotator: str
    label: Label | None
    reason: str
    seconds: float | None
    source: str
    blind: bool
    supersedes: int | None
    created: str


def add(
    connection: sa.Connection,
    *,
    dataset_id: int,
    attribute: int,
    context: int,
    annotator: str,
    label: Label | None,
    reason: str = "",
    seconds: float | None = None,
    source: str = "single",
    batch: str | None = None,
    blind: bool = False,
) -> int:
    """Append a decision; it supersedes the same annotator's last one on the pair. Returns its id."""
    earlier = connection.execute(
        sa.select(decision.c.id)
        .where(decision.c.attribute == attribute, decision.c.context == context, decision.c.annotator == annotator)
        .order_by(decision.c.id.desc())
        .limit(1)
    ).scalar()
    new = connection.execute(
        sa.insert(decision)
        .values(
            dataset=dataset_id,
            attribute=attribute,
            context=context,
            annotator=annotator,
            label=None if label is None else str(label),
            reason=reason,
            seconds=seconds,
            source=source,
            batch=batch,
            blind=blind,
            supersedes=earlier,
            created=now(),
        )
        .returning(decision.c.id)
    ).scalar_one()
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return int(new)


def _decision(row: sa.RowMapping) -> Decision:
    return Decision(
        id=row["id"],
        attribute=row["attribute"],
        context=row["context"],
        annotator=row["annotator"],
        label=None if row["label"] is None else Label(row["label"]),
        reason=row["reason"],
        seconds=row["seconds"],
        source=row["source"],
        blind=row["blind"],
        supersedes=row["supersedes"],
        created=row["created"],
    )


def history(
    connection: sa.Connection, dataset_id: int, attributes: Sequence[int] | None = None, context: int | None = None
) -> list[Decision]:
    """Every decision of a dataset, oldest first; of some attributes or of one context where given."""
    query = sa.select(decision).where(decision.c.dataset == dataset_id).order_by(decision.c.id)
    if attributes is not None:
        query = query.where(decision.c.attribute.in_(attributes))
    if context is not None:
        query = query.where(decision.c.context == context)
    return [_decision(row) for row in connection.execute(query).mappings()]


def standing(decisions: Sequence[Decision]) -> dict[tuple[int, int], Decision]:
    """The newest decision that stands on each pair: superseded and taken-back ones do not."""
    superseded = {d.supersedes for d in decisions if d.supersedes is not None}
    stand: dict[tuple[int, int], Decision] = {}
    for item in sorted(decisions, key=lambda d: d.id):
        if item.label is not None and item.id not in superseded:
            stand[item.attribute, item.context] = item
    return stand
