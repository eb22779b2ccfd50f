"""What a piece of work was to bring and what of it is missing, and the status that follows when it ends.

with store.read() as connection:
    outcome(connection, "run-3f9a1c2e")     # Outcome(planned=90, missing=78, failed=78)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.model import JudgementStatus, ResponseStatus, WorkStatus
from cimemories.store import work
from cimemories.store.curation_tables import generation_part
from cimemories.store.tables import ballot, judgement, labelling, response, run, run_judge


@dataclass(frozen=True)
class Outcome:
    """planned: responses of a run or sweep, ballots of a labelling, parts of a generation. missing: of these, how many
    are not there whole. failed: of the missing, those that were tried; the others are still owed.

    A response is there whole when it has a message, a judgement by every judge and, where asked for, a task check.
    """

    planned: int
    missing: int
    failed: int

    @property
    def share(self) -> float:
        """Missing over planned, 0 to 1; 0 where nothing is planned."""
        return self.missing / self.planned if self.planned else 0.0

    @property
    def failed_share(self) -> float:
        """Failed over planned, 0 to 1; 0 where nothing is planned."""
        return self.failed / self.planned if self.planned else 0.0


def outcome(connection: sa.Connection, work_id: str) -> Outcome:
    """How much of a run, sweep, labelling or generation is there. Raises StoreError for an id of nothing of these."""
    table = work.table_of(work_id)
    if table is run:
        return _of_runs(connection, [work_id])
    if table is labelling:
        return _by_status(connection, ballot.c.labelling, ballot.c.status, work_id)
    if table.name == "generation":
        return _by_status(connection, generation_part.c.generation, generation_part.c.status, work_id)
    ids = connection.execute(sa.select(run.c.id).where(run.c.sweep == work_id)).scalars().all()
    return _of_runs(connection, ids)


def finish(connection: sa.Connection, work_id: str) -> None:
    """Set the status of work that has come to its end: finished, with failures where anything planned is missing."""
    missing = outcome(connection, work_id).missing
    work.finish(connection, work_id, WorkStatus.FINISHED_WITH_FAILURES if missing else WorkStatus.FINISHED)


def _of_runs(connection: sa.Connection, run_ids: Sequence[str]) -> Outcome:
    parts = [_of_run(connection, run_id) for run_id in run_ids]
    return Outcome(*(sum(getattr(part, name) for part in parts) for name in ("planned", "missing", "failed")))


def _of_run(connection: sa.Connection, run_id: str) -> Outcome:
    own = response.c.run == run_id
    answered = response.c.status == ResponseStatus.OK
    planned = connection.execute(sa.select(sa.func.count()).select_from(response).where(own)).scalar_one()
    judges = connection.execute(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).scalars().all()
    unanswered = (ResponseStatus.OK, ResponseStatus.OWED)
    failed = connection.execute(
        sa.select(sa.func.count()).select_from(response).where(own, response.c.status.not_in(unanswered))
    ).scalar_one()
    if not judges:
        whole = connection.execute(sa.select(sa.func.count()).select_from(response).where(own, answered)).scalar_one()
        return Outcome(planned, planned - whole, failed)
    # Counted over judgements rather than by a subquery for each response: a run may have a million of them.
    judged = (
        sa.select(
            sa.func.sum(sa.case((judgement.c.status == JudgementStatus.OK, 1), else_=0)).label("good"),
            sa.func.sum(
                sa.case((judgement.c.status.not_in((JudgementStatus.OK, JudgementStatus.OWED)), 1), else_=0)
            ).label("bad"),
        )
        .select_from(judgement.join(response, judgement.c.response == response.c.id))
        .where(own, answered, judgement.c.judge.in_(judges))
        .group_by(judgement.c.response)
        .subquery()
    )
    whole, spoiled = connection.execute(
        sa.select(
            sa.func.coalesce(sa.func.sum(sa.case((judged.c.good == len(judges), 1), else_=0)), 0),
            sa.func.coalesce(sa.func.sum(sa.case((judged.c.bad > 0, 1), else_=0)), 0),
        )
    ).one()
    return Outcome(planned, planned - int(whole), failed + int(spoiled))


def _by_status(connection: sa.Connection, of: sa.Column[str], status: sa.Column[str], work_id: str) -> Outcome:
    counts = {
        str(row[0]): int(row[1])
        for row in connection.execute(sa.select(status, sa.func.count()).where(of == work_id).group_by(status))
    }
    planned, whole = sum(counts.values()), counts.get("ok", 0)
    return Outcome(planned, planned - whole, planned - whole - counts.get("owed", 0))
