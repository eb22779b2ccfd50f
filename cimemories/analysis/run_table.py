"""The table of runs: one line a run with what it is, how far it is, and its numbers by its first judge.

What rests on a run's messages is remembered under everything that can move it, so that a table of many runs is read
from memory, whatever it is drawn for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from cimemories.analysis.flows import Flows, scope
from cimemories.analysis.headline import headline
from cimemories.analysis.labels import default_labelling
from cimemories.analysis.task_check import task_checks
from cimemories.evaluation.costs import Cost, run_cost
from cimemories.store import datasets, judgements
from cimemories.store.engine import StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow
from cimemories.store.tables import run_judge

RULES = "check-rules"


@dataclass(frozen=True)
class RunLine:
    """One run in the table. Shares are 0 to 1, nan where they are undefined or nothing is judged yet.

    violation: Violation@n with all samples of the run. does_task: share of the checked messages that do their task.
    judges: names, in the order of the run.
    """

    run: RunRow
    dataset: str
    memory: str
    mitigation: str
    judges: tuple[str, ...]
    violation: float
    completeness: float
    does_task: float
    cost: Cost


@dataclass(frozen=True)
class _Numbers:
    violation: float = math.nan
    completeness: float = math.nan
    does_task: float = math.nan


def run_lines(flows: Flows, rows: Sequence[RunRow]) -> list[RunLine]:
    """A line for each of these runs, in their order."""
    with flows.store.read() as connection:
        named = {row.id: row for row in datasets.all_rows(connection)}
        seats: dict[str, int] = {row.run: row.judges for row in connection.execute(_SEATS)}
    labelled = {i: default_labelling(flows.store, i) for i in {row.dataset for row in rows}}
    found = []
    for row in rows:
        labels, data = labelled[row.dataset], named.get(row.dataset)
        version = (
            row.id,
            row.revision,
            row.judged,
            sum(row.judgements.values()),
            seats.get(row.id, 0),
            (labels.id, labels.revision) if labels else None,
            data.revision if data else 0,
        )
        judges = flows.remember(("table judges", row.id, seats.get(row.id, 0)), partial(_judges, flows, row))
        numbers = flows.remember(("table", *version), partial(_numbers, flows, row))
        cost = flows.remember(("table cost", *version), partial(run_cost, flows.store, row.id))
        found.append(
            RunLine(
                run=row,
                dataset=data.name if data else "",
                memory=memory_words(row),
                mitigation=str(_part(row, "mitigation").get("kind", "none")),
                judges=tuple(judge.name for judge in judges),
                violation=numbers.violation,
                completeness=numbers.completeness,
                does_task=numbers.does_task,
                cost=cost,
            )
        )
    return found


_SEATS = sa.select(run_judge.c.run, sa.func.count().label("judges")).group_by(run_judge.c.run)


def memory_words(row: RunRow) -> str:
    """The memory of a run in few words: 'full', 'random-50, shuffled'."""
    order = str(_part(row, "memory").get("order", "fixed"))
    return row.composition if order == "fixed" else f"{row.composition}, {order}"


def _judges(flows: Flows, row: RunRow) -> list[JudgeRow]:
    with flows.store.read() as connection:
        return judgements.of_run(connection, row.id)


def _numbers(flows: Flows, row: RunRow) -> _Numbers:
    with flows.store.read() as connection:
        checks = task_checks(connection, row)
    # What a model says of the task goes before the rules, which know the plainest cases only.
    said = sorted((c for c in checks if c.checked), key=lambda c: c.checker.kind == RULES)
    check = next(iter(said), None)
    task = check.share if check else math.nan
    if not row.judged:
        return _Numbers(does_task=task)
    try:
        numbers = headline(flows, scope(flows.store, row.id))
    except StoreError:  # it was deleted a moment ago
        return _Numbers()
    return _Numbers(numbers.violation[row.samples], numbers.completeness, task)


def _part(row: RunRow, name: str) -> Mapping[str, object]:
    part = row.manifest.get(name)
    return part if isinstance(part, Mapping) else {}
