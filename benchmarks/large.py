"""How much time and memory the numbers of a run take as it grows: 250, 1,000, 10,000 and 100,000 profiles.

    python benchmarks/large.py [--profiles 250 1000 10000 100000] [--distinct 10000] [--folder FOLDER] [--at-once 1000]
                               [--processes 4000] [--only headline compare ...]

Flows at the sizes of the released profiles (147 attributes, 49 contexts, 5 samples) are drawn at random and written as
the parts that a large run is counted from (flows/parts.py), of two runs. Of each size a process of its own counts what
the headline is made of, the intervals, one heatmap (domain by context) with its title, the breakdown by domain, the
curves of accumulation and the comparison of both runs, and reads one page of a cell's flows; then the intervals of the
leak rate and of each domain, what an audit is sampled of, and the gallery of leaks, found, ordered and counted. It says
how long each took, and its peak resident set. --distinct: so many profiles are written; a larger run reads them again
and again, which costs the same but takes less of the disk. --at-once: sizes that are also counted as one block, as a
run that fits into memory is. --processes: sizes that are counted by one, then by two processes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb

from cimemories import seeds
from cimemories.compare.difference import difference
from cimemories.evaluation import planning
from cimemories.extras.attribute_audit.sampling import attribute_population
from cimemories.flows import parts, processes
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, relation_file
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.leaks.examples import FULL, examples
from cimemories.metrics.accumulation import accumulation
from cimemories.metrics.blocks import counted_numbers
from cimemories.metrics.breakdown import breakdown
from cimemories.metrics.heatmap import grid
from cimemories.metrics.intervals import group_intervals, intervals, rate_intervals
from cimemories.metrics.places import By
from cimemories.metrics.separation import worst_cell
from cimemories.model import DOMAINS, Attribute, Profile, WorkStatus
from cimemories.store import datasets, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import open_store

ATTRIBUTES, CONTEXTS, SAMPLES = 147, 49, 5
MOST_MEGABYTES = 2000.0
EXACT = IdentifierRule.EXACT
# One row a flow. hash() gives every flow the same numbers on every machine: kind decides its label, leaning how freely
# its attribute is told (most never are), and five more numbers whether each sample tells it.
_PART = f"""
COPY (
    WITH flow AS (
        SELECT $first + i // {ATTRIBUTES * CONTEXTS} AS profile, i // {CONTEXTS} % {ATTRIBUTES} AS position,
               i % {CONTEXTS} + 1 AS context, hash($first, i) % 100 AS kind, $run AS seed
        FROM range($profiles * {ATTRIBUTES * CONTEXTS}) AS flows(i)
    ), told AS (
        SELECT *, CASE WHEN kind < 8 THEN 50 WHEN hash(profile, position, 1) % 10 < 7 THEN 0
                       ELSE hash(profile, position, 2) % 12 END AS leaning
        FROM flow
    )
    SELECT 'run' AS run, profile, profile * {ATTRIBUTES} + position AS attribute, position AS ordinal, position,
           'key_' || position AS key,
           CASE WHEN position < 4 THEN 'general' ELSE list_extract($domains, position % {len(DOMAINS)} + 1) END
               AS domain,
           'job loss' AS event, position < 4 AS bio, context, 'full' AS level,
           (CASE WHEN kind < 8 THEN {NECESSARY} WHEN kind < 55 THEN {INAPPROPRIATE} ELSE {AMBIGUOUS} END)::TINYINT
               AS label,
           false AS decided, {SAMPLES}::SMALLINT AS expected, {SAMPLES}::SMALLINT AS draws,
           ({" + ".join(f"(hash(profile, position, context, seed, {n}) % 100 < leaning)::INT" for n in range(SAMPLES))})
               ::SMALLINT AS reveals,
           true AS retained, true AS held
    FROM told ORDER BY profile, ordinal, context
) TO '$file' (FORMAT parquet)
"""


def build(folder: Path, distinct: int) -> None:
    """The record of two runs, planned for a few profiles, and the parts of `distinct` ones of each."""
    store = open_store(folder / "workspace")
    contexts = tuple(seeds.load_contexts()[:CONTEXTS])
    one = (Attribute("fact", 1, "finance", "general", "One fact."),)
    people = [Profile(f"Profile {i}", "female", "Street 1", 30, one, contexts) for i in range(5)]
    with store.write() as connection:
        datasets.add(connection, "bench", people, origin="test", source_name=None, source_hash="bench")
    for model in ("m", "other"):
        run_id = planning.plan(store, planning.RunSpec(dataset="bench", model=model, base_url="batch", samples=SAMPLES))
        with store.write() as connection:
            work.finish(connection, run_id, WorkStatus.FINISHED)
    store.close()
    size, connection = parts.PROFILES_A_PART, duckdb.connect()
    domains = "[" + ", ".join(f"'{domain}'" for domain in DOMAINS) + "]"
    for run, start in itertools.product((0, 1), range(0, distinct, size)):
        of_run = folder / f"parts-{run}"
        of_run.mkdir(exist_ok=True)
        count, file = min(size, distinct - start), of_run / f"{start:07}.parquet"
        values = {"$first": start + 1, "$profiles": count, "$domains": domains, "$file": file, "$run": run}
        sql = _PART
        for name, value in values.items():
            sql = sql.replace(name, str(value))
        connection.execute(sql)


Ask = Callable[[Flows, Scope, Scope], object]
ASKED: dict[str, Ask] = {
    "headline": lambda flows, one, two: counted_numbers(flows, one, EXACT),
    "intervals": lambda flows, one, two: intervals(flows, one, EXACT),
    "heatmap": lambda flows, one, two: grid(flows, one, By.DOMAIN, By.CONTEXT, SAMPLES, EXACT),
    "title": lambda flows, one, two: worst_cell(flows, one, By.DOMAIN, By.CONTEXT, SAMPLES),
    "groups": lambda flows, one, two: breakdown(flows, one, By.DOMAIN, SAMPLES, EXACT),
    "curves": lambda flows, one, two: accumulation(flows, one, EXACT),
    "compare": lambda flows, one, two: difference(flows, one, two, EXACT),
    "cell": lambda flows, one, two: flows.query(one, _CELL, ["finance", 1]),
    "rates": lambda flows, one, two: rate_intervals(flows, one, EXACT),
    "by group": lambda flows, one, two: group_intervals(flows, one, By.DOMAIN, SAMPLES, EXACT),
    "audit": lambda flows, one, two: attribute_population(flows, one, 1, EXACT),
    "gallery": lambda flows, one, two: examples(flows, [one]).left(FULL),
}
# heatmap.cell_flows without its texts, which this record has not.
_CELL = """
    SELECT profile, attribute, context, label, reveals, draws FROM {flow}
    WHERE retained AND draws > 0 AND label > 0 AND NOT bio AND domain = ? AND context = ?
    ORDER BY label DESC, reveals::DOUBLE / draws DESC, profile, ordinal, context LIMIT 50
"""


def measure(folder: Path, profiles: int, only: Sequence[str], *, at_once: bool) -> dict[str, float]:
    """Seconds of each part of a run of so many profiles in this process, and its peak of memory."""
    store = open_store(folder / "workspace")
    with store.read() as connection:
        scopes = [resolve_scope(store, row.id) for row in store_runs.all_rows(connection)]
    number = -(-profiles // parts.PROFILES_A_PART)
    files = {}
    for run, scope in enumerate(scopes):
        written = sorted((folder / f"parts-{run}").glob("*.parquet"))
        files[scope.run.id] = [written[i % len(written)] for i in range(number)]
    flows = Flows(store)
    for old in (store.workspace / "cache").glob("leaks-*"):  # of another size, which has the same version here
        shutil.rmtree(old)
    if at_once:
        for scope in scopes:
            whole = relation_file(store, scope)
            whole.parent.mkdir(exist_ok=True)
            names = ", ".join(f"'{file}'" for file in files[scope.run.id])
            duckdb.sql(f"SELECT * FROM read_parquet([{names}]) WHERE profile <= {profiles}").write_parquet(str(whole))
    else:
        parts.LARGE_PAIRS = 0
        flows.parts = lambda scope: files[scope.run.id]  # type: ignore[method-assign]
    figures = {"profiles": float(profiles), "bytes": sum(f.stat().st_size for f in files[scopes[0].run.id]) / number}
    for name in only:
        clock, spent = time.perf_counter(), _processor()
        ASKED[name](flows, scopes[0], scopes[1])
        figures[name], figures[f"{name} cpu"] = time.perf_counter() - clock, _processor() - spent
        figures[f"{name} peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures["child peak"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    store.close()
    return figures


def _processor() -> float:
    """Seconds of the processor, those of processes that counted and have ended included."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", type=int, nargs="+", default=[250, 1000, 10_000, 100_000])
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, nargs="*", default=[1000])
    parser.add_argument("--processes", type=int, nargs="*", default=[4000])
    parser.add_argument("--only", nargs="+", choices=ASKED, default=list(ASKED))
    parser.add_argument("--folder", type=Path, help="keeps the parts there, and uses those that it finds")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "build":
        build(options.folder, options.distinct)
        return
    if options.part:
        at_once = options.part == "at once"
        print(json.dumps(measure(options.folder, int(options.profiles[0]), options.only, at_once=at_once)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "parts-0").exists():
            folder.mkdir(exist_ok=True)
            clock = time.perf_counter()
            # In a process of its own: a child's peak of memory begins with what its parent holds.
            most = max([*options.profiles, *options.at_once, *options.processes])
            command = [sys.executable, __file__, "--part", "build", "--folder", str(folder)]
            subprocess.run([*command, "--distinct", str(min(options.distinct, most))], check=True)
            print(f"parts written in {time.perf_counter() - clock:.0f} s")
        load = os.getloadavg()[0]
        print(f"{os.cpu_count()} cores, load {load:.1f}; milliseconds of the processor a profile, [seconds in all]\n")
        print(f"{'profiles':>9} {'':12}" + "".join(f"{name:>16}" for name in options.only) + f"{'peak MB':>9}")
        sizes = [("at once", size, 1) for size in options.at_once]
        sizes += [("in blocks", size, 1) for size in options.profiles]
        sizes += [("in blocks", size, count) for size in options.processes for count in (1, 2)]
        for how, size, count in sizes:
            command = [sys.executable, __file__, "--part", how, "--profiles", str(size), "--folder", str(folder)]
            command += ["--only", *options.only]
            environ = os.environ | {processes.VARIABLE: str(count)}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
            if done.returncode:
                raise SystemExit(f"{size} profiles {how} failed:\n{done.stderr}")
            figures = json.loads(done.stdout.splitlines()[-1])
            cells = "".join(
                f"{1000 * figures[f'{name} cpu'] / size:8.2f} {f'[{figures[name]:.1f}]':>7}" for name in options.only
            )
            named = f"{how} by {count}" if count > 1 else how
            peak = figures["peak"] + count * figures["child peak"] * (count > 1)
            print(f"{size:9,} {named:12}{cells}{peak:9,.0f}", flush=True)
            if peak > MOST_MEGABYTES and how == "in blocks":
                print(f"{'':20}over the limit of {MOST_MEGABYTES:,.0f} MB")


if __name__ == "__main__":
    main()
