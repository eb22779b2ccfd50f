"""What recorded runs did with one pair: in how many judged messages each of them reveals it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlalchemy as sa

from cimemories.model import JudgementStatus, Strength
from cimemories.store import memories
from cimemories.store.engine import Store
from cimemories.store.tables import attribute, judgement, response, reveal, run, run_judge

WHOLE = "full"  # the composition of a run whose assistants hold everything


@dataclass(frozen=True)
class PairRun:
    """One run on one pair, by its first judge. draws: judged messages whose memory held the attribute; reveals: in how
    many of them it is revealed in full; expected: how many messages were planned with it in memory. composition: what
    memories of the run hold; a reduced one says something else than the whole, and is to be named."""

    run_id: str
    name: str
    simulated: bool
    expected: int
    draws: int
    reveals: int
    composition: str = WHOLE

    @property
    def title(self) -> str:
        """The run's name, with its memory where that is not the whole."""
        return self.name if self.composition == WHOLE else f"{self.name} (memory: {self.composition})"


def pair_runs(store: Store, attribute_id: int, context_id: int) -> list[PairRun]:
    """Every run that was to write messages of the attribute's profile in that context with it in memory, oldest first.
    Messages that are missing, or have no verdict, are in no `draws`."""
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
            run.c.composition,
            response.c.memory,
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
            ),
        )
        .outerjoin(judgement, judged)
        .outerjoin(reveal, told)
        .group_by(run.c.id, run.c.name, run.c.simulated, run.c.composition, run.c.created, response.c.memory)
        .order_by(run.c.created, run.c.id)
    )
    with store.read() as connection:
        rows = connection.execute(query).all()
        held = memories.of_hashes(connection, {row.memory for row in rows if row.memory is not None})
    found: dict[str, PairRun] = {}
    for row in rows:
        if row.memory is not None and attribute_id not in held.get(row.memory, (attribute_id,)):
            continue
        own = found.setdefault(row.id, PairRun(row.id, row.name, row.simulated, 0, 0, 0, row.composition))
        found[row.id] = replace(
            own,
            expected=own.expected + row.expected,
            draws=own.draws + row.draws,
            reveals=own.reveals + row.reveals,
        )
    return list(found.values())
