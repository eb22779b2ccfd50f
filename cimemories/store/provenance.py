"""Where the answers behind runs come from: how many each server gave, and how many of them earlier work had asked for.

origins(connection, ["run-1"])["run-1"][0].words() == "480 of 480 messages come from http://gpu1:8000/v1"
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.calls import OK
from cimemories.store.run_tables import run_call
from cimemories.store.servers import NOT_KNOWN, ServerId
from cimemories.store.tables import call, run

# What the answers to each kind of call are called, in the order in which they are shown.
ANSWERS = {
    "gate": "gate answers",
    "respond": "messages",
    "rewrite": "rewritten messages",
    "judge": "judgements",
    "check": "task checks",
}


@dataclass(frozen=True)
class Source:
    """What one server gave of the answers of one kind by one model.

    server: the text of its ServerId, or NOT_KNOWN. answers: of it; of: by all servers together. recorded: of `answers`,
    those that were in the record before the run was planned.
    """

    kind: str
    model: str
    server: str
    answers: int
    of: int
    recorded: int

    def words(self) -> str:
        """For people: '360 of 480 messages come from http://gpu1:8000/v1 (120 of them were in the record)'."""
        name = ANSWERS.get(self.kind, f"{self.kind} answers")
        known = (
            "are of a server not known" if self.server == NOT_KNOWN else f"come from {ServerId.read(self.server).shown}"
        )
        before = f" ({self.recorded:,} of them were in the record)" if self.recorded else ""
        return f"{self.answers:,} of {self.of:,} {name} {known}{before}"

    def as_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "model": self.model,
            "server": None if self.server == NOT_KNOWN else self.server,
            "answers": self.answers,
            "of": self.of,
            "recorded": self.recorded,
        }


def origins(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, list[Source]]:
    """By run, who gave its answers: kinds in the order of ANSWERS, within each the server of the most answers first.
    Failed calls are no answers. Empty for a run without calls, as one that was imported."""
    before = sa.case((call.c.started < run.c.created, 1), else_=0)
    columns = (run_call.c.run, call.c.kind, call.c.model, call.c.server)
    query = (
        sa.select(*columns, sa.func.count().label("answers"), sa.func.sum(before).label("recorded"))
        .join(call, call.c.key == run_call.c.call)
        .join(run, run.c.id == run_call.c.run)
        .where(run_call.c.run.in_(run_ids), call.c.status == OK)
        .group_by(*columns)
    )
    rows = connection.execute(query).all()
    totals: dict[tuple[str, str, str], int] = {}
    for row in rows:
        totals[row.run, row.kind, row.model] = totals.get((row.run, row.kind, row.model), 0) + row.answers
    found: dict[str, list[Source]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        of = totals[row.run, row.kind, row.model]
        source = Source(row.kind, row.model, row.server or NOT_KNOWN, int(row.answers), of, int(row.recorded))
        found[row.run].append(source)
    order = list(ANSWERS)
    for sources in found.values():
        sources.sort(key=lambda s: (order.index(s.kind) if s.kind in order else 99, s.model, -s.answers, s.server))
    return found
