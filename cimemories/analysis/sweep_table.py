"""A sweep as a table of its cells, with what each has cost and what speaks against comparing them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cimemories.analysis.flows import scope, shared_flows
from cimemories.analysis.headline import Headline, headline
from cimemories.analysis.scopes import Scope
from cimemories.analysis.warnings import comparison_warnings
from cimemories.evaluation.costs import Cost, run_cost, sweep_cost
from cimemories.model import WorkStatus
from cimemories.store import runs, sweeps
from cimemories.store.engine import Store
from cimemories.store.runs import RunRow
from cimemories.store.sweeps import SweepRow

WAITING = "waiting"
# In what the cells of a sweep are meant to differ: no warning says it of them.
AXES = (
    "the prompt",
    "the memory",
    "the mitigation",
    "parameter chat_template_kwargs",
    "parameter reasoning_effort",
)


@dataclass(frozen=True)
class Cell:
    """One run of a sweep. status: its own, or 'waiting' before its turn. numbers: None before anything is judged."""

    run: RunRow
    status: str
    thinking: str
    mitigation: str
    numbers: Headline | None
    cost: Cost

    @property
    def label(self) -> str:
        """What tells it from the other cells."""
        return f"{self.run.model}, {self.run.composition}, {self.run.prompt_level}, {self.mitigation}, {self.thinking}"

    @property
    def violation(self) -> float:
        """At as many samples as the run has; nan where it is undefined or nothing is judged."""
        return self.numbers.violation[self.run.samples] if self.numbers else math.nan

    @property
    def completeness(self) -> float:
        return self.numbers.completeness if self.numbers else math.nan

    @property
    def coverage(self) -> float:
        """Judged responses over planned ones; 0 before anything is judged."""
        return self.numbers.coverage if self.numbers else 0.0

    @property
    def does_task(self) -> float:
        check = self.numbers.does_task if self.numbers else None
        return math.nan if check is None or check.share is None else check.share

    def as_json(self) -> dict[str, object]:
        """One object for scripts; what is undefined or not known becomes null."""
        return {
            "cell": self.run.cell,
            "run": self.run.id,
            "model": self.run.model,
            "memory": self.run.composition,
            "prompt_level": self.run.prompt_level,
            "mitigation": self.mitigation,
            "thinking": self.thinking,
            "status": self.status,
            "error": self.run.error if self.status != WAITING else None,
            "simulated": self.run.simulated,
            "samples": self.run.samples,
            "violation": _number(self.violation),
            "completeness": _number(self.completeness),
            "coverage": self.coverage,
            "does_task": _number(self.does_task),
            "cost": self.cost.amount,
            "currency": self.cost.currency,
            "expected_responses": self.run.expected,
            "judged_responses": self.run.judged,
        }


@dataclass(frozen=True)
class SweepTable:
    """A sweep, its cells in their order, the cost of all of them (a call that several share is paid once), and in what
    the cells differ beside what the sweep is about."""

    row: SweepRow
    cells: tuple[Cell, ...]
    cost: Cost
    warnings: tuple[str, ...]

    @property
    def done(self) -> int:
        """Cells that have been worked off."""
        return sum(cell.run.status.is_finished for cell in self.cells)

    def as_json(self) -> dict[str, object]:
        """One object for scripts."""
        return {
            "id": self.row.id,
            "name": self.row.name,
            "status": str(self.row.status),
            "error": self.row.error,
            "cap": self.row.cap,
            "cost": self.cost.amount,
            "paid": self.cost.paid,
            "currency": self.cost.currency,
            "plan": self.row.plan,
            "cells": [cell.as_json() for cell in self.cells],
            "warnings": list(self.warnings),
        }


def sweep_table(store: Store, sweep_id: str) -> SweepTable:
    """A sweep as it stands now. Raises StoreError for one that is not there."""
    with store.read() as connection:
        row = sweeps.named(connection, sweep_id)
        rows = runs.of_sweep(connection, sweep_id)
    flows, cells, scopes = shared_flows(store), list[Cell](), list[Scope]()
    for item in rows:
        numbers = None
        if item.judged:
            asked = scope(store, item.id)
            scopes.append(asked)
            numbers = headline(flows, asked)
        cells.append(_cell(store, item, row, numbers))
    warnings = comparison_warnings(store, scopes) if len(scopes) > 1 else ()
    kept = tuple(text for text in warnings if not any(f"differ in {axis}:" in text for axis in AXES))
    return SweepTable(row, tuple(cells), sweep_cost(store, sweep_id), kept)


def _cell(store: Store, row: RunRow, of: SweepRow, numbers: Headline | None) -> Cell:
    asked, mitigation = row.manifest.get("asked"), row.manifest.get("mitigation")
    untouched = set(row.responses) <= {"owed"} and row.status == WorkStatus.PAUSED
    return Cell(
        run=row,
        status=WAITING if untouched else str(row.status),
        thinking=str(asked.get("thinking", "default")) if isinstance(asked, dict) else "default",
        mitigation=str(mitigation.get("kind", "none")) if isinstance(mitigation, dict) else "none",
        numbers=numbers,
        cost=run_cost(store, row.id),
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
