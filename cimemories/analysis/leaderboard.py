"""The leaderboard in the form of the paper's Table 1: one line a run, with spread, intervals, and what it rests on.

    GPT-5     violation@5 25.1 % +- 3.0 [22.4, 27.9]    completeness 51.0 % +- 2.1 [49.2, 52.8]    published 25.1 % ...

Constant strategies stand beside it, and what the paper states of the same model, marked as published.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.analysis.baselines import Baseline, baselines
from cimemories.analysis.cube import IdentifierRule, cube
from cimemories.analysis.flows import Combine, Flows, Scope, scope
from cimemories.analysis.headline import Headline, headline
from cimemories.analysis.intervals import Interval, intervals
from cimemories.analysis.run_table import memory_words
from cimemories.analysis.scopes import messages_first
from cimemories.analysis.warnings import COVERAGE_WARNING, comparison_warnings, coverage_warning
from cimemories.seeds.published import Figure, Measure, Published, load_published
from cimemories.store import audits, judgements, runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow


@dataclass(frozen=True)
class Line:
    """One run. n: samples that violation and the balanced score are read at, at most as many as the run has. spread:
    standard deviations over profiles (n - 1 below the line). published: the paper on this model; None for a simulated
    run, and where its text says nothing of the model."""

    numbers: Headline
    n: int
    violation: Interval
    completeness: Interval
    balanced: Interval
    violation_spread: float
    completeness_spread: float
    published: Published | None

    @property
    def scope(self) -> Scope:
        return self.numbers.scope

    @property
    def run(self) -> RunRow:
        return self.scope.run

    @property
    def simulated(self) -> bool:
        return bool(self.scope.simulated)

    @property
    def covered(self) -> bool:
        """Whether enough is judged for the numbers to stand without a warning."""
        return self.numbers.coverage >= COVERAGE_WARNING

    @property
    def warning(self) -> str:
        """What is said of its coverage; empty where nothing has to be."""
        return coverage_warning(self.numbers.judged, self.run.expected) or ""

    def stated(self, measure: Measure) -> Figure | None:
        """What the paper states: violation at this very n, or completeness; None where it does not."""
        if self.published is None:
            return None
        return self.published.figure(measure, self.n if measure == Measure.VIOLATION else None)

    def as_record(self) -> dict[str, object]:
        """One flat row for tables and files; shares 0 to 1, nan where undefined."""
        told = {f"published_{m}": self.stated(m) for m in Measure}
        return {
            "run": self.run.id,
            "name": self.run.name,
            "model": self.run.model,
            "simulated": self.simulated,
            "n": self.n,
            "violation": self.violation.value,
            "violation_sd": self.violation_spread,
            "violation_low": self.violation.low,
            "violation_high": self.violation.high,
            "completeness": self.completeness.value,
            "completeness_sd": self.completeness_spread,
            "completeness_low": self.completeness.low,
            "completeness_high": self.completeness.high,
            "balanced": self.balanced.value,
            "balanced_low": self.balanced.low,
            "balanced_high": self.balanced.high,
            "leak_rate": self.numbers.leak_rate.micro,
            "coverage": self.numbers.coverage,
            "samples": self.run.samples,
            "profiles": self.numbers.profiles,
            "attributes": self.numbers.attributes,
            "judge": self.scope.judge_words,
            "labels": self.scope.labelling.id if self.scope.labelling else "",
            "memory": memory_words(self.run),
            "prompt": self.run.prompt_level,
            "mitigation": mitigation(self.run),
            "thinking": thinking(self.run),
            **{name: figure.value if figure else math.nan for name, figure in told.items()},
            **{f"{name}_where": figure.where if figure else "" for name, figure in told.items()},
            "warning": self.warning,
        }


@dataclass(frozen=True)
class Leaderboard:
    """Lines, the best balanced score first and undefined ones last; the constant strategies (of the run with the most
    flows); and in what the runs differ apart from their models."""

    lines: tuple[Line, ...]
    constants: tuple[Baseline, ...]
    warnings: tuple[str, ...]
    rule: IdentifierRule

    @property
    def n(self) -> int | None:
        """At how many samples violation is read; None where that differs from run to run."""
        found = {line.n for line in self.lines}
        return found.pop() if len(found) == 1 else None

    @property
    def violation_name(self) -> str:
        """'Violation@5', or 'Violation@N' where N differs."""
        return f"Violation@{self.n or 'N'}"

    @property
    def simulated(self) -> bool:
        """Whether any line is: then what shows them all is marked."""
        return any(line.simulated for line in self.lines)

    def frame(self) -> pd.DataFrame:
        """One row a run, as Line.as_record has it; the constant strategies are not among them."""
        return pd.DataFrame([line.as_record() for line in self.lines])

    def as_json(self) -> dict[str, object]:
        """One object for scripts; what is undefined becomes null."""
        return {
            "identifier_rule": str(self.rule),
            "runs": [{k: none_for_nan(v) for k, v in line.as_record().items()} for line in self.lines],
            "baselines": [
                {
                    "name": item.name,
                    "violation": none_for_nan(item.violation),
                    "completeness": none_for_nan(item.completeness),
                    "balanced": none_for_nan(item.balanced),
                }
                for item in self.constants
            ],
            "warnings": list(self.warnings),
            "published_from": load_published().paper.link,
        }


def judged_runs(store: Store, dataset_id: int | None = None) -> list[RunRow]:
    """Runs with at least one judgement, oldest first; of one dataset where given."""
    with store.read() as connection:
        return [row for row in runs.all_rows(connection, dataset_id) if row.judged]


def busiest_dataset(store: Store) -> int | None:
    """The dataset to compare on where nobody says which: that of the most judged runs, the newest of these; None where
    no run is judged."""
    rows = judged_runs(store)
    most = {row.dataset: sum(other.dataset == row.dataset for other in rows) for row in rows}
    return max(most, key=lambda i: (most[i], i), default=None)


def scopes_of(
    store: Store, run_ids: Sequence[str] = (), *, dataset_id: int | None = None, judge: str | None = None
) -> list[Scope]:
    """The scopes of these runs, each once; without any, of all judged runs of the dataset (None: of the busiest one).

    judge: as for analysis.scopes.scope, of every run. Raises StoreError for runs of several datasets, or where there is
    none, or one that is not there or has no such judge.
    """
    if not run_ids:
        chosen = dataset_id if dataset_id is not None else busiest_dataset(store)
        run_ids = [row.id for row in judged_runs(store, chosen)] if chosen is not None else []
    if not run_ids:
        raise StoreError("no run is judged yet, so there is nothing to compare. `cimemories runs` lists what is there.")
    found = [scope(store, run_id, judge_id=judge) for run_id in dict.fromkeys(run_ids)]
    same_dataset(found)
    return found


def scopes_of_rows(store: Store, rows: Sequence[RunRow], judge: str | None = None) -> list[Scope]:
    """The same of runs of one dataset that have just been read, without reading for each what they have in common."""
    if not rows or judge not in (None, Combine.ONE):
        return [scope(store, row.id, judge_id=judge) for row in rows]
    first, found = scope(store, rows[0].id), []
    with store.read() as connection:
        for row in rows:
            judges = messages_first(judgements.of_run(connection, row.id))
            if judges:
                audited = audits.version(connection, row.id)
                found.append(replace(first, run=row, judge=judges[0], audits=audited))
    return found


def same_dataset(scopes: Sequence[Scope]) -> None:
    """Raise StoreError unless all are of one dataset: other profiles make other numbers, whatever the model."""
    named = dict.fromkeys((asked.run.dataset, asked.dataset_name) for asked in scopes)
    if len(named) > 1:
        names = ", ".join(f"'{name}'" for _, name in named)
        raise StoreError(f"the runs are of {len(named)} datasets ({names}). Compare runs of one dataset.")


def leaderboard(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    n: int | None = None,
    warned: bool = True,
) -> Leaderboard:
    """The leaderboard of these runs. n: samples at which violation is read, of each run at most its own; None: all that
    each has, as the paper does with its 5. Raises ValueError for n < 1, StoreError for runs of several datasets.
    warned: whether each line's numbers come with their own warnings, which take long to gather for many runs.
    """
    if n is not None and n < 1:
        raise ValueError(f"n must be at least 1, this is {n}")
    same_dataset(scopes)
    lines = [line(flows, asked, rule, n, warned=warned) for asked in scopes]
    ranked = sorted(lines, key=lambda item: -math.inf if math.isnan(item.balanced.value) else item.balanced.value)
    widest = max(lines, key=lambda item: item.numbers.flows, default=None)
    return Leaderboard(
        lines=tuple(reversed(ranked)),
        constants=baselines(cube(flows, widest.scope, rule)) if widest else (),
        warnings=(*covered_alike(lines), *comparison_warnings(flows.store, scopes)) if len(scopes) > 1 else (),
        rule=rule,
    )


def covered_alike(lines: Sequence[Line]) -> tuple[str, ...]:
    """What keeps the lines from being of the same people in the same contexts, in words; empty where nothing does.
    A difference of two runs is read on what they have in common; a table shows each run as it is."""
    by_size: dict[tuple[int, int], list[str]] = {}
    for item in lines:
        by_size.setdefault((item.numbers.profiles, item.numbers.retained), []).append(item.run.id)
    if len(by_size) < 2:
        return ()
    said = "; ".join(
        f"{people} {'profile' if people == 1 else 'profiles'}, {places:,} retained contexts ({', '.join(whose)})"
        for (people, places), whose in by_size.items()
    )
    return (f"the runs do not cover the same profiles and contexts: {said}",)


def line(
    flows: Flows,
    asked: Scope,
    rule: IdentifierRule = IdentifierRule.EXACT,
    n: int | None = None,
    *,
    warned: bool = True,
) -> Line:
    """One run's line; see leaderboard."""
    at = min(n or asked.run.samples, asked.run.samples)
    found = flows.remember(("line", asked.version, rule, at), lambda: _line(flows, asked, rule, at))
    # A name or status moves without any number moving.
    numbers = headline(flows, asked, rule) if warned else replace(found.numbers, scope=asked, warnings=())
    return replace(found, numbers=numbers)


def _line(flows: Flows, asked: Scope, rule: IdentifierRule, at: int) -> Line:
    numbers = headline(flows, asked, rule)
    found = intervals(flows, asked, rule, ns=(at,))
    return Line(
        numbers=numbers,
        n=at,
        violation=found.violation[at],
        completeness=found.completeness,
        balanced=found.balanced,
        violation_spread=_deviation([person.violation[at] for person in numbers.per_profile]),
        completeness_spread=_deviation([person.completeness for person in numbers.per_profile]),
        published=None if asked.run.simulated else load_published().model(asked.run.model),
    )


def names(lines: Sequence[Line]) -> dict[str, str]:
    """What to call each run, by its id: its model; where several are of one model, also in what they differ; and its id
    where even that is the same."""
    found = {item.run.id: item.run.model for item in lines}
    kinds: list[Callable[[RunRow], str]] = [
        lambda run: run.prompt_level,
        memory_words,
        mitigation,
        lambda run: f"thinking {thinking(run)}",
        lambda run: f"{run.samples} samples",
    ]
    for told in kinds:
        found = {
            item.run.id: f"{found[item.run.id]}, {told(item.run)}"
            if len({told(other.run) for other in lines if found[other.run.id] == found[item.run.id]}) > 1
            else found[item.run.id]
            for item in lines
        }
    often = Counter(found.values())
    return {run_id: name if often[name] == 1 else f"{name} ({run_id})" for run_id, name in found.items()}


def thinking(run: RunRow) -> str:
    """How much the model was asked to think: on, off, low, medium, high, or default, where nothing was sent."""
    asked = run.manifest.get("asked")
    return str(asked.get("thinking", "default")) if isinstance(asked, dict) else "default"


def mitigation(run: RunRow) -> str:
    """What stood between memory and message: none, gate, rewrite."""
    part = run.manifest.get("mitigation")
    return str(part.get("kind", "none")) if isinstance(part, dict) else "none"


def none_for_nan(value: object) -> object:
    """The same for JSON, which has no nan."""
    return None if isinstance(value, float) and math.isnan(value) else value


def _deviation(values: Sequence[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return float(np.std(defined, ddof=1)) if len(defined) > 1 else math.nan
