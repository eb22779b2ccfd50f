"""Runs that came from a file: written whole, with no calls behind them, and nothing that could be asked again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import JudgementStatus, ResponseStatus, Reveal
from cimemories.store.engine import storable
from cimemories.store.tables import judgement, response, reveal, run

IMPORTED = "imported"  # the endpoint of a run or a judge that came from a file
CHUNK = 2000


@dataclass(frozen=True)
class ImportedResponse:
    """One response with what one judge says of it. memory: its hash. A judgement that is `owed` is not written."""

    run: str
    profile: int
    context: int
    level: str
    sample: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    memory: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: Sequence[Reveal]  # attributes by the record's id


def with_file(connection: sa.Connection, sha256: str) -> list[str]:
    """The ids of the runs that were imported from these very bytes."""
    rows = connection.execute(sa.select(run.c.id, run.c.manifest).where(run.c.endpoint == IMPORTED).order_by(run.c.id))
    return [row.id for row in rows if json.loads(row.manifest).get("imported", {}).get("sha256") == sha256]


def add_responses(connection: sa.Connection, judges: dict[str, int], found: Sequence[ImportedResponse]) -> None:
    """Write responses with their judgements and reveals. judges: the judge's id by run."""
    for start in range(0, len(found), CHUNK):
        part = found[start : start + CHUNK]
        ids = _inserted(
            connection,
            response,
            [
                {
                    "run": r.run,
                    "profile": r.profile,
                    "context": r.context,
                    "level": r.level,
                    "sample": r.sample,
                    "status": r.status,
                    "cause": None if r.cause is None else storable(r.cause),
                    "text": None if r.text is None else storable(r.text),
                    "memory": r.memory,
                }
                for r in part
            ],
        )
        judged = [(i, r) for i, r in zip(ids, part, strict=True) if r.judgement is not JudgementStatus.OWED]
        judgement_ids = _inserted(
            connection,
            judgement,
            [
                {
                    "response": i,
                    "judge": judges[r.run],
                    "status": r.judgement,
                    "cause": None if r.judgement_cause is None else storable(r.judgement_cause),
                }
                for i, r in judged
            ],
        )
        rows = [
            {
                "judgement": i,
                "attribute": item.attribute,
                "quote": storable(item.quote),
                "start": item.span.start if item.span else None,
                "end": item.span.end if item.span else None,
                "grounded": item.grounded,
                "strength": str(item.strength),
            }
            for i, (_, r) in zip(judgement_ids, judged, strict=True)
            for item in r.reveals
        ]
        if rows:
            connection.execute(sa.insert(reveal), rows)


def _inserted(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, object]]) -> list[int]:
    """Ids of new rows, in the order given."""
    if not rows:
        return []
    statement = sa.insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return [int(i) for i in connection.execute(statement, list(rows)).scalars()]
