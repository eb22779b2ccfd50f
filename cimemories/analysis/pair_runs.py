"""What recorded runs did with one pair: in how many judged messages each of them reveals it."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import JudgementStatus, Strength
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, judgement, response, reveal, run, run_judge

LEVEL = "full"  # the whole memory; runs on a reduced one say something else


@dataclass(frozen=True)
class PairRun:
    """One run on one pair, by its first judge. draws: judged messages with the whole memory; reveals: in how many of
    them the attribute is revealed in full; expected: how many messages were planned."""

    run_id: str
    name: str
    simulated: bool
    expected: int
    draws: int
    reveals: int


def pair_runs(store: Store, attribute_id: int, context_id: int) -> list[PairRun]:
    """Every run that was to write messages of the attribute's profile in that context, oldest first. Messages that are
    missing, or have no verdict, are in no `draws`."""
    judged = sa.and_(
        judgement.c.response == response.c.id,
        judgement.c.judge == run_judge.c.judge,
        judgement.c.status == JudgementStatus.OK,
    )
    told = sa.and_(
        reveal.c.judgement == judgement.c.id, reveal.c.attribute == attribute_id, reveal.c.strength == Strength.FULL
    )
    profile_id = sa.select(attribute.c.profile).where(attribute.c.id == attribute_id).scalar_subquery()
    query = (
        sa.select(
            run.c.id,
            run.c.name,
            run.c.simulated,
            sa.func.count(response.c.id.distinct()).label("expected"),
            sa.func.count(judgement.c.id.distinct()).label("draws"),
            sa.func.count(reveal.c.judgement.distinct()).label("reveals"),
        )
        .select_from(run)
        .join(run_judge, sa.and_(run_judge.c.run == run.c.id, run_judge.c.ordinal == 0))
        .join(
            response,
            sa.and_(
                response.c.run == run.c.id,
                response.c.profile == profile_id,
                response.c.context == context_id,
                response.c.level == LEVEL,
            ),
        )
        .outerjoin(judgement, judged)
        .outerjoin(reveal, told)
        .group_by(run.c.id, run.c.name, run.c.simulated, run.c.created)
        .order_by(run.c.created, run.c.id)
    )
    with store.read() as connection:
        return [
            PairRun(row.id, row.name, row.simulated, row.expected, row.draws, row.reveals)
            for row in connection.execute(query)
        ]
