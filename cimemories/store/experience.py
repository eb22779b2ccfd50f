"""What recorded calls teach about calls to come: lengths, tokens and seconds of one kind of call to one model.

Read through the calls of the newest runs, so that a record of millions of calls answers as fast as a small one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cimemories.store.run_tables import run_call
from cimemories.store.tables import call, request, run

CALLS_AT_MOST = 2000
TEXTS_AT_MOST = 20


@dataclass(frozen=True)
class Learned:
    """Means over recorded answers. completion_tokens: a draw; seconds: an exchange; characters: of an answer's text."""

    draws: int
    completion_tokens: float
    seconds: float
    characters: float


def manifests(connection: sa.Connection, limit: int = 40) -> list[tuple[str, dict[str, Any]]]:
    """The newest runs as (id, manifest), the newest first."""
    rows = connection.execute(sa.select(run.c.id, run.c.manifest).order_by(run.c.created.desc()).limit(limit))
    return [(row.id, json.loads(row.manifest)) for row in rows]


def learned(
    connection: sa.Connection, run_ids: Sequence[str], kind: str, model: str, simulated: bool
) -> Learned | None:
    """What the answers of this kind and model in these runs teach; None where there is none."""
    some = (
        sa.select(call.c.completion_tokens, call.c.seconds, sa.func.length(call.c.response).label("characters"))
        .join(run_call, run_call.c.call == call.c.key)
        .where(
            run_call.c.run.in_(run_ids),
            call.c.kind == kind,
            call.c.model == model,
            call.c.simulated == simulated,
            call.c.status == "ok",
        )
        .limit(CALLS_AT_MOST)
        .subquery()
    )
    exchange = some.c.completion_tokens.is_not(None)  # what an exchange used stands on its first draw
    row = connection.execute(
        sa.select(
            sa.func.count().label("draws"),
            sa.func.sum(some.c.completion_tokens).label("tokens"),
            sa.func.avg(sa.case((exchange, some.c.seconds))).label("seconds"),
            sa.func.avg(sa.func.coalesce(some.c.characters, 0)).label("characters"),
        )
    ).one()
    if not row.draws or row.tokens is None:
        return None
    return Learned(int(row.draws), float(row.tokens) / row.draws, float(row.seconds), float(row.characters))


def characters_a_token(connection: sa.Connection, run_ids: Sequence[str], model: str, simulated: bool) -> float | None:
    """Characters of a prompt over its tokens, as this model's server counted a few; None where nothing is recorded."""
    rows = connection.execute(
        sa.select(request.c.body, call.c.prompt_tokens)
        .join(call, call.c.request == request.c.hash)
        .join(run_call, run_call.c.call == call.c.key)
        .where(
            run_call.c.run.in_(run_ids),
            call.c.model == model,
            call.c.simulated == simulated,
            call.c.prompt_tokens > 0,
        )
        .limit(TEXTS_AT_MOST)
    ).all()
    characters = sum(len(message["content"]) for row in rows for message in json.loads(row.body)["messages"])
    tokens = sum(int(row.prompt_tokens) for row in rows)
    return characters / tokens if tokens else None
