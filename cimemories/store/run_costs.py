"""What the calls behind runs used, by kind and model, each call once however many runs share it; and caps on cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store import work
from cimemories.store.ids import canonical_json
from cimemories.store.run_tables import run_call, sweep
from cimemories.store.tables import call, run


@dataclass(frozen=True)
class ModelCalls:
    """The calls of one kind to one model: how many, how many failed, their tokens, and the seconds that they took one
    after the other (an exchange that served several draws counts once)."""

    kind: str
    model: str
    calls: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    seconds: float


def calls_by_model(connection: sa.Connection, run_ids: Sequence[str], since: str | None = None) -> list[ModelCalls]:
    """What these runs used, by kind and model. since: only what they asked themselves, so that answers which the record
    had already are left out; where that was not noted, what was asked at or after that time."""
    asked = sa.func.max(sa.case((run_call.c.asked.is_(True), 1), (run_call.c.asked.is_(False), 0))).label("asked")
    used = sa.select(run_call.c.call, asked).where(run_call.c.run.in_(run_ids)).group_by(run_call.c.call).subquery()
    first = call.c.prompt_tokens.is_not(None)  # token counts of an exchange stand on its first draw
    query = (
        sa.select(
            call.c.kind,
            call.c.model,
            sa.func.count().label("calls"),
            sa.func.sum(sa.case((call.c.status != "ok", 1), else_=0)).label("failed"),
            sa.func.coalesce(sa.func.sum(call.c.prompt_tokens), 0).label("prompt_tokens"),
            sa.func.coalesce(sa.func.sum(call.c.cached_tokens), 0).label("cached_tokens"),
            sa.func.coalesce(sa.func.sum(call.c.completion_tokens), 0).label("completion_tokens"),
            sa.func.coalesce(sa.func.sum(sa.case((first, call.c.seconds), else_=0.0)), 0.0).label("seconds"),
        )
        .join(used, used.c.call == call.c.key)
        .group_by(call.c.kind, call.c.model)
        .order_by(call.c.kind, call.c.model)
    )
    if since is not None:
        query = query.where(sa.or_(used.c.asked == 1, sa.and_(used.c.asked.is_(None), call.c.started >= since)))
    return [
        ModelCalls(
            kind=str(row["kind"]),
            model=str(row["model"]),
            calls=int(row["calls"]),
            failed=int(row["failed"]),
            prompt_tokens=int(row["prompt_tokens"]),
            cached_tokens=int(row["cached_tokens"]),
            completion_tokens=int(row["completion_tokens"]),
            seconds=float(row["seconds"]),
        )
        for row in connection.execute(query).mappings()
    ]


def cap_of(connection: sa.Connection, work_id: str) -> float | None:
    """What a run or a sweep may cost; None where there is no cap. Raises StoreError for work that is not there."""
    row = work.load(connection, work_id)
    value = json.loads(row["manifest"]).get("cap") if work.table_of(work_id) is run else row["cap"]
    return None if value is None else float(value)


def set_cap(connection: sa.Connection, work_id: str, cap: float) -> None:
    """Give a run or a sweep another cap; what it was asked with stays in its manifest."""
    row = work.load(connection, work_id)
    if work.table_of(work_id) is run:
        manifest = canonical_json({**json.loads(row["manifest"]), "cap": cap})
        connection.execute(sa.update(run).where(run.c.id == work_id).values(manifest=manifest))
    else:
        connection.execute(sa.update(sweep).where(sweep.c.id == work_id).values(cap=cap))
