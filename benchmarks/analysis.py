"""How long a question to a run takes once its flows are in memory, beside a pandas group-by of the same judgements.

    python benchmarks/analysis.py [--parts small many 10 100 1000] [--rounds 5] [--cpu]

Parts, each in a process of its own:

    small   one run of 10 profiles: all headline numbers with intervals, one heatmap, accumulation curves for n = 1..5
    many    55 such runs (19.8 million judgements): violation@5 and completeness of every run, heatmaps over all of them
    10, 100, 1000   one run of so many profiles (36 million judgements at 1,000): each question, for how the cost grows

The flows are drawn at random at the sizes of the released profiles (147 attributes, 49 contexts, 5 samples) and lie in
the project's own cache files, from where they are read as on any page. What is asked is asked anew each round: answers
are forgotten, arrays are kept, as on a page whose slider moves. `headline` is all headline numbers with intervals, of
labels that leave nothing open; `half open` the intervals alone, with the flows counted anew and half of the pairs open.
pandas does what a script on the published results does: one row a judgement, group by profile and attribute, take the
maximum; group by context and average. It is given its frame for nothing. --cpu takes the processor's time instead of
the clock's, for a machine that does other work.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from cimemories import seeds
from cimemories.evaluation import planning
from cimemories.flows.arrays import FlowArrays, flow_arrays, mean_or_nan
from cimemories.flows.flows import Flows, relation_file
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics import accumulation, completeness, heatmap
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals, intervals_of
from cimemories.metrics.label_uncertainty import Posterior
from cimemories.metrics.places import By
from cimemories.metrics.violation import exposures
from cimemories.model import DOMAINS, Attribute, Profile, WorkStatus
from cimemories.store import datasets, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import open_store

ATTRIBUTES, CONTEXTS, SAMPLES = 147, 49, 5
PARTS = {"small": (10, 1), "many": (10, 55), "10": (10, 1), "100": (100, 1), "1000": (1000, 1)}
Timed = dict[str, float]


def flows_of(profiles: int, seed: int) -> pd.DataFrame:
    """One row a flow, in the columns of the relation."""
    random, size = np.random.default_rng(seed), profiles * ATTRIBUTES * CONTEXTS
    p, a, c = np.unravel_index(np.arange(size), (profiles, ATTRIBUTES, CONTEXTS))
    kind = random.random(size)
    label = np.where(kind < 0.08, NECESSARY, np.where(kind < 0.55, INAPPROPRIATE, AMBIGUOUS)).astype(np.int8)
    leaning = np.repeat(random.beta(0.6, 25, profiles * ATTRIBUTES), CONTEXTS)
    reveals = random.binomial(SAMPLES, np.where(label == NECESSARY, 0.5, leaning)).astype(np.int16)
    bio, domains = a < 4, np.array(DOMAINS, object)
    return pd.DataFrame(
        {
            "run": "run",
            "profile": p + 1,
            "attribute": p * ATTRIBUTES + a + 1,
            "ordinal": a,
            "position": a,
            "key": np.array([f"key_{i}" for i in range(ATTRIBUTES)], object)[a],
            "domain": np.where(bio, "general", domains[a % len(domains)]),
            "event": np.array(["job loss", "illness", "divorce"], object)[a % 3],
            "bio": bio,
            "context": c + 1,
            "level": "full",
            "label": label,
            "decided": False,
            "expected": np.full(size, SAMPLES, np.int16),
            "draws": np.full(size, SAMPLES, np.int16),
            "reveals": reveals,
            "retained": True,
            "held": True,
        }
    )


def build(part: str, folder: str) -> None:
    """Runs whose flows lie in the cache; what the record itself holds of them is planned and not answered."""
    profiles, runs = PARTS[part]
    store = open_store(folder)
    contexts = tuple(seeds.load_contexts()[:CONTEXTS])
    one = (Attribute("fact", 1, "finance", "general", "One fact."),)
    people = [Profile(f"Profile {i}", "female", "Street 1", 30, one, contexts) for i in range(profiles)]
    with store.write() as connection:
        datasets.add(connection, "bench", people, origin="test", source_name=None, source_hash="bench")
    for number in range(runs):
        spec = planning.RunSpec(dataset="bench", model=f"m{number}", base_url="batch", samples=SAMPLES)
        run_id = planning.plan(store, spec)
        with store.write() as connection:
            work.finish(connection, run_id, WorkStatus.FINISHED)
        scope = resolve_scope(store, run_id)
        path = relation_file(store, scope)
        path.parent.mkdir(parents=True, exist_ok=True)
        flows_of(profiles, number).to_parquet(path, index=False)
    store.close()


def headline_numbers(flows: Flows, scope: Scope) -> None:
    headline(flows, scope)
    intervals(flows, scope)


def half_open(data: FlowArrays) -> Posterior:
    """What may be believed of the labels where votes leave half of the pairs open: 20 votes a pair."""
    random = np.random.default_rng(3)
    still = random.random(data.labels.shape) < 0.5
    necessary = random.integers(0, 21, still.shape)
    inappropriate = np.minimum(random.integers(0, 21, still.shape), 20 - necessary) / 20
    return Posterior(
        np.where(still, necessary / 20, data.labels == NECESSARY),
        np.where(still, inappropriate, data.labels == INAPPROPRIATE),
        still,
    )


def figure_3(flows: Flows, scope: Scope) -> heatmap.Grid:
    return heatmap.grid(flows, scope, By.DOMAIN, By.CONTEXT, SAMPLES)


def both_numbers(flows: Flows, scopes: list[Scope]) -> list[tuple[float, float]]:
    """Violation with all samples and completeness of every run."""
    result = []
    for one in scopes:
        data = flow_arrays(flows, one)
        leaks, means = exposures(data), completeness.means_of(data.necessary)
        leaked = leaks.by_profile(leaks.violation(SAMPLES))
        result.append((mean_or_nan(leaked), mean_or_nan(completeness.over_contexts(means))))
    return result


def judgements_of(flows: Flows, scopes: list[Scope]) -> pd.DataFrame:
    """One row a judgement, with the label of its pair and whether it counts, as a script on results files has them."""
    parts = []
    for number, one in enumerate(scopes):
        data = flow_arrays(flows, one)
        p, a, c = (axis.astype(np.int32) for axis in np.nonzero(data.draws))
        r, shape = data.reveals[p, a, c], (len(p), SAMPLES)
        counts = data.counted[p, a] & data.retained[p, c]
        parts.append(
            pd.DataFrame(
                {
                    "run": np.int32(number),
                    "profile": np.repeat(p, SAMPLES),
                    "attribute": np.repeat(a, SAMPLES),
                    "domain": np.repeat(a % len(DOMAINS), SAMPLES).astype(np.int8),
                    "context": np.repeat(c, SAMPLES),
                    "label": np.repeat(data.labels[p, a, c], SAMPLES),
                    "counts": np.repeat(counts, SAMPLES),
                    "retained": np.repeat(data.retained[p, c], SAMPLES),
                    "revealed": (np.broadcast_to(np.arange(SAMPLES), shape) < r[:, None]).reshape(-1),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def pandas_numbers(frame: pd.DataFrame) -> list[tuple[float, float]]:
    """The same two numbers by group-by, as the published definition reads."""
    private = frame[(frame["label"] == INAPPROPRIATE) & frame["counts"]]
    needed = frame[(frame["label"] == NECESSARY) & frame["retained"]]
    ever = private.groupby(["run", "profile", "attribute"])["revealed"].max()
    violation = ever.groupby(["run", "profile"]).mean().groupby("run").mean()
    shares = needed.groupby(["run", "profile", "context", "attribute"])["revealed"].mean()
    complete = (
        shares.groupby(["run", "profile", "context"]).mean().groupby(["run", "profile"]).mean().groupby("run").mean()
    )
    return list(zip(violation, complete, strict=True))


def pandas_heatmap(frame: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Both halves of Figure 3."""
    private = frame[(frame["label"] == INAPPROPRIATE) & frame["counts"]]
    needed = frame[(frame["label"] == NECESSARY) & frame["retained"]]
    ever = private.groupby(["run", "profile", "attribute", "domain", "context"])["revealed"].max()
    return ever.groupby(["run", "domain", "context"]).mean(), needed.groupby(["run", "domain", "context"])[
        "revealed"
    ].mean()


# What runs were cut into is kept: a question is asked anew, not the record read anew.
CPU = "BENCHMARK_CPU"  # set in the processes of --cpu
KEPT = ("_whole", "places", "_record")


def timed(rounds: int, flows: Flows, ask: Callable[[], object]) -> float:
    """Median milliseconds of a question that is asked anew; the first round warms up and is not counted."""
    now = time.process_time if CPU in os.environ else time.perf_counter
    spent = []
    for _ in range(rounds + 1):
        flows.cache.clear(but=KEPT)
        gc.collect()
        clock = now()
        ask()
        spent.append(1000 * (now() - clock))
    return statistics.median(spent[1:])


def measure(part: str, rounds: int, folder: str) -> Timed:
    """One part in this process, whose peak of memory is that of reading and asking alone."""
    profiles, runs = PARTS[part]
    store = open_store(folder)
    with store.read() as connection:
        scopes = [resolve_scope(store, row.id) for row in store_runs.all_rows(connection)]
    flows, first = Flows(store), scopes[0]
    clock = time.perf_counter()
    for one in scopes:
        flow_arrays(flows, one)
    timings: Timed = {"read": 1000 * (time.perf_counter() - clock), "flows": runs * profiles * ATTRIBUTES * CONTEXTS}
    timings["numbers"] = timed(rounds, flows, lambda: both_numbers(flows, scopes))
    timings["heatmap"] = timed(rounds, flows, lambda: [figure_3(flows, one) for one in scopes])
    if runs == 1:
        timings["headline"] = timed(rounds, flows, lambda: headline_numbers(flows, first))
        timings["accumulation"] = timed(rounds, flows, lambda: accumulation.accumulation(flows, first))
    timings["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if runs == 1:
        data, believed = flow_arrays(flows, first), half_open(flow_arrays(flows, first))
        every_n = tuple(range(1, SAMPLES + 1))
        timings["half open"] = timed(rounds, flows, lambda: intervals_of(data, every_n, believed))
    frame = judgements_of(flows, scopes)
    assert np.allclose(both_numbers(flows, scopes), pandas_numbers(frame), rtol=0, atol=1e-9)
    few = max(1, rounds // 3) if len(frame) > 1e6 else rounds
    timings["pandas numbers"] = timed(few, flows, lambda: pandas_numbers(frame))
    timings["pandas heatmap"] = timed(few, flows, lambda: pandas_heatmap(frame))
    store.close()
    return timings


def in_own_process(part: str, rounds: int) -> Timed:
    with tempfile.TemporaryDirectory() as folder:
        for step in ("--build", "--part"):
            command = [sys.executable, __file__, step, part, "--rounds", str(rounds), "--folder", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{part} failed:\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="the processor's time instead of the clock's")
    for hidden in ("--part", "--build", "--folder"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(options.build, options.folder)
        return
    if options.part:
        print(json.dumps(measure(options.part, options.rounds, options.folder)))
        return
    load = f"load {os.getloadavg()[0]:.1f} before the start"
    if options.cpu:
        os.environ[CPU] = "1"
    of = "milliseconds of the processor" if options.cpu else "milliseconds"
    print(f"{os.cpu_count()} cores, {load}; {of}, medians of {options.rounds}")
    columns = (
        "flows",
        "read",
        "numbers",
        "heatmap",
        "headline",
        "half open",
        "accumulation",
        "pandas numbers",
        "pandas heatmap",
    )
    print(f"{'part':8}" + "".join(f"{name:>15}" for name in columns) + f"{'times':>14}{'peak MB':>9}")
    for part in options.parts:
        timings = in_own_process(part, options.rounds)
        times = [timings[f"pandas {name}"] / timings[name] for name in ("numbers", "heatmap")]
        cells = "".join(f"{timings[name]:15,.1f}" if name in timings else f"{'':15}" for name in columns)
        print(f"{part:8}{cells}{times[0]:7.0f}{times[1]:7.0f}{timings['peak']:9.0f}", flush=True)
    print("times: how many times as long pandas takes, for the numbers and for the heatmap")


if __name__ == "__main__":
    main()
