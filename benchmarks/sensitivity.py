"""What a move of a slider costs on the Sensitivity tab, beside building the flow relations anew for the same setting.

    .venv/bin/python benchmarks/sensitivity.py WORKSPACE [ROUNDS]

WORKSPACE holds judged runs, as the demo does (`cimemories app` fills an empty one). It is copied, and nothing in it is
changed. Its fullest runs are taken by turns until there are eight. Prints medians and the worst in milliseconds, and
each as a ratio to the move of a slider in the same run; the numbers are compared first.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

from cimemories.compare.leaderboard import busiest_dataset, judged_runs
from cimemories.compare.ranking import Measure
from cimemories.compare.study import study
from cimemories.extras.sensitivity.charts import order
from cimemories.extras.sensitivity.choices import by_profiles, flows_per_run, setting_of, trial, variants
from cimemories.flows.arrays import IdentifierRule, flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import custom_rule
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.store.engine import open_store

RUNS, THRESHOLD, WEIGHTS = 8, 0.8, (30, 50, 20)


def median(action: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median and worst, in milliseconds, after one round that does not count."""
    action()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times), max(times)


def main(workspace: Path, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "workspace"
        shutil.copytree(workspace, copy)
        measure(copy, rounds)


def measure(workspace: Path, rounds: int) -> None:
    store = open_store(workspace)
    flows = Flows(store)
    every = [resolve_scope(store, row.id) for row in judged_runs(store, busiest_dataset(store))]
    sizes = [flow_arrays(flows, one_scope).draws.sum() for one_scope in every]
    full = [one_scope for one_scope, size in zip(every, sizes, strict=True) if size * 2 > max(sizes)]
    scopes = list(islice(cycle(full), RUNS))
    names = [f"run {n}" for n in range(RUNS)]
    sensitivity = study(flows, scopes)
    setting = setting_of(sensitivity, THRESHOLD, WEIGHTS, IdentifierRule.EXACT)
    priors = dict(zip(sensitivity.votes.keys, setting.priors, strict=True))
    rule = custom_rule(sensitivity.counts.personas, "tried", THRESHOLD, priors)
    tried = [replace(one_scope, rule=rule) for one_scope in scopes]
    pairs, now = flows_per_run(flows, sensitivity), sensitivity.at(sensitivity.base)

    def anew() -> list[tuple[float, float]]:
        fresh, seen = Flows(store), set()
        for old in (workspace / "cache").glob("flows-*"):
            old.unlink()
        numbers = []
        for place, scope in enumerate(tried):
            # A run that is taken a second time is built a second time: eight runs are eight relations.
            one: Scope = scope if scope.run.id not in seen else replace(scope, dataset_revision=-place)
            seen.add(scope.run.id)
            result = headline(fresh, one)
            numbers.append((result.violation[scope.run.samples], result.completeness))
        return numbers

    ours = [(float(item.mean_violation[0]), float(item.mean_completeness[0])) for item in sensitivity.at(setting)]
    for mine, theirs in zip(ours, anew(), strict=True):
        assert max(abs(a - b) for a, b in zip(mine, theirs, strict=True)) < 1e-12
    shape = sensitivity.subjects[0].draws.shape
    size = f"{shape[0]} profiles, {shape[1]} attributes, {shape[2]} contexts"
    print(f"{RUNS} runs of {size}; {len(sensitivity.thresholds)} thresholds")
    made = trial(sensitivity, setting, names, Measure.BALANCED, pairs, now)
    rows: list[tuple[str, Callable[[], object], int]] = [
        (
            "a slider moves: all numbers, all thresholds",
            lambda: trial(sensitivity, setting, names, Measure.BALANCED, pairs, now),
            rounds,
        ),
        ("the same, one threshold", lambda: sensitivity.at(setting), rounds),
        ("the bump chart of it", lambda: order(sensitivity, made, names, Measure.BALANCED), rounds),
        ("every choice alone", lambda: list(variants(sensitivity)), max(3, rounds // 4)),
        ("subsets of profiles, all sizes", lambda: by_profiles(sensitivity, Measure.BALANCED), max(3, rounds // 4)),
        ("the flow relations anew, one threshold", anew, 2),
    ]
    measure_values = {name: median(action, times) for name, action, times in rows}
    base = measure_values[rows[0][0]][0]
    print(f"{'':46} {'median ms':>10} {'worst':>8}  ratio to the slider")
    for name, (middle, worst) in measure_values.items():
        print(f"{name:46} {middle:10.1f} {worst:8.1f}  {middle / base:.2f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 12)
