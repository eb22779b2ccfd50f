"""Runs side by side, and each compared with the first of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from cimemories.answer import Answer, Column, Table
from cimemories.answers.metrics import Metrics, metrics
from cimemories.compare.difference import Difference, against
from cimemories.evaluation.spec import names
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, parts_of
from cimemories.metrics.headline import Headline, headline
from cimemories.metrics.warnings import comparison_warnings
from cimemories.store.engine import StoreError
from cimemories.text import simulated_text


@dataclass(frozen=True, kw_only=True)
class Comparison(Answer):
    """runs: one row a run, its own numbers. differences: every other run minus the first. metrics: all numbers of each
    run, by its id."""

    runs: Table
    differences: tuple[Difference, ...]
    metrics: dict[str, Metrics]


def compare(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule = IdentifierRule.EXACT) -> Comparison:
    """Compare runs with the first one. Runs of another dataset have no flow in common with it: they are shown beside
    it, with a warning. Raises StoreError for fewer than two runs."""
    if len({scope.run.id for scope in scopes}) < 2:
        raise StoreError("a comparison needs two different runs. `cimemories runs` lists them.")
    numbers = [headline(flows, scope, rule) for scope in scopes]
    run_names = names([scope.run for scope in scopes])
    ns = range(1, max(scope.run.samples for scope in scopes) + 1)
    columns = {
        "run": Column("text", "Run"),
        "name": Column("text", "Name"),
        "model": Column("text", "Model"),
        **{f"violation_{n}": Column("percent", f"Violation@{n}") for n in ns},
        "completeness": Column("percent", "Completeness"),
        "ambiguous_exposure": Column("percent", "Ambiguous exposure"),
        "coverage": Column("percent", "Coverage"),
        "does_task": Column("percent", "Does the task"),
        "memory": Column("text", "Memory"),
        "judge": Column("text", "Judge"),
        "simulated": Column("text", "Kind"),
    }
    rows = [_row(item, run_names[item.scope.run.id], ns) for item in numbers]
    others = [scope for scope in scopes[1:] if scope.run.dataset == scopes[0].run.dataset]
    warnings = comparison_warnings(flows.store, scopes)
    return Comparison(
        notes=(*warnings, *(f"{item.scope.run.id}: {note}" for item in numbers for note in item.notes)),
        simulated=parts_of(scope.simulated for scope in scopes),
        runs=Table(pd.DataFrame(rows), columns),
        differences=tuple(against(flows, scopes[0], others, rule, run_names)),
        metrics={scope.run.id: metrics(flows, scope, rule) for scope in scopes},
    )


def _row(numbers: Headline, name: str, ns: Iterable[int]) -> dict[str, object]:
    scope = numbers.scope
    row: dict[str, object] = {"run": scope.run.id, "name": name, "model": scope.run.model}
    # Violation@n beyond a run's own samples is a dash, not a number of another n.
    for n in ns:
        open_ = n in numbers.violation and not numbers.reads(n)
        row[f"violation_{n}"] = math.nan if open_ else numbers.violation.get(n, math.nan)
        if open_:
            row[f"violation_{n}_low"], row[f"violation_{n}_high"] = numbers.violation_bounds[n]
    return row | {
        "completeness": numbers.completeness,
        "ambiguous_exposure": numbers.ambiguous_exposure,
        "coverage": numbers.coverage,
        "does_task": numbers.does_task.share if numbers.does_task else math.nan,
        "memory": scope.run.composition,
        "judge": scope.judge_text,
        "simulated": simulated_text(scope.simulated),
    }
