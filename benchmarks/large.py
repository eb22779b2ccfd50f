"""How much time and memory the numbers of a run take as it grows: 250, 1,000, 10,000 and 100,000 profiles.

    python benchmarks/large.py [--profiles 250 1000 10000 100000] [--distinct 10000] [--folder FOLDER] [--at-once 1000]

Flows at the sizes of the released profiles (147 attributes, 49 contexts, 5 samples) are drawn at random and written as
the parts that a large run is counted from (flows/parts.py). Of each size a process of its own counts what the headline
is made of, the intervals, and one heatmap (domain by context), and says how long each took and its peak resident set.
--distinct: so many profiles are written; a larger run reads them again and again, which costs the same but takes less
of the disk. --at-once: sizes that are also counted as one block, as a run that fits into memory is.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from cimemories import seeds
from cimemories.evaluation import planning
from cimemories.flows import parts
from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows, relation_file
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.blocks import counted_numbers
from cimemories.metrics.heatmap import By, grid
from cimemories.metrics.intervals import intervals
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
               i % {CONTEXTS} + 1 AS context, hash($first, i) % 100 AS kind
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
           ({" + ".join(f"(hash(profile, position, context, {n}) % 100 < leaning)::INT" for n in range(SAMPLES))})
               ::SMALLINT AS reveals,
           true AS retained, true AS held
    FROM told ORDER BY profile, ordinal, context
) TO '$file' (FORMAT parquet)
"""


def build(folder: Path, distinct: int) -> None:
    """The record of a run, planned for a few profiles, and the parts of `distinct` ones."""
    store = open_store(folder / "workspace")
    contexts = tuple(seeds.load_contexts()[:CONTEXTS])
    one = (Attribute("fact", 1, "finance", "general", "One fact."),)
    people = [Profile(f"Profile {i}", "female", "Street 1", 30, one, contexts) for i in range(5)]
    with store.write() as connection:
        datasets.add(connection, "bench", people, origin="test", source_name=None, source_hash="bench")
    run_id = planning.plan(store, planning.RunSpec("bench", "m", "batch", samples=SAMPLES))
    with store.write() as connection:
        work.finish(connection, run_id, WorkStatus.FINISHED)
    store.close()
    (folder / "parts").mkdir()
    size, connection = parts.PROFILES_A_PART, duckdb.connect()
    domains = "[" + ", ".join(f"'{domain}'" for domain in DOMAINS) + "]"
    for start in range(0, distinct, size):
        count, file = min(size, distinct - start), folder / "parts" / f"{start:07}.parquet"
        values = {"$first": start + 1, "$profiles": count, "$domains": domains, "$file": file}
        sql = _PART
        for name, value in values.items():
            sql = sql.replace(name, str(value))
        connection.execute(sql)


def measure(folder: Path, profiles: int, *, at_once: bool) -> dict[str, float]:
    """Seconds of each part of a run of so many profiles in this process, and its peak of memory."""
    store = open_store(folder / "workspace")
    with store.read() as connection:
        scope = resolve_scope(store, store_runs.all_rows(connection)[0].id)
    written = sorted((folder / "parts").glob("*.parquet"))
    number = -(-profiles // parts.PROFILES_A_PART)
    files = [written[i % len(written)] for i in range(number)]
    flows = Flows(store)
    if at_once:
        whole = relation_file(store, scope)
        whole.parent.mkdir(exist_ok=True)
        names = ", ".join(f"'{file}'" for file in files)
        duckdb.sql(f"SELECT * FROM read_parquet([{names}]) WHERE profile <= {profiles}").write_parquet(str(whole))
    else:
        parts.LARGE_PAIRS = 0
        flows.parts = lambda _scope: files  # type: ignore[method-assign]
    computations: dict[str, Callable[[Flows, Scope], object]] = {
        "headline": lambda f, s: counted_numbers(f, s, EXACT),
        "intervals": lambda f, s: intervals(f, s, EXACT),
        "heatmap": lambda f, s: grid(f, s, By.DOMAIN, By.CONTEXT, SAMPLES, EXACT),
    }
    figures = {"profiles": float(profiles), "bytes": sum(file.stat().st_size for file in files) / max(number, 1)}
    for name, ask in computations.items():
        clock = time.perf_counter(), time.process_time()
        ask(flows, scope)
        figures[name], figures[f"{name} cpu"] = time.perf_counter() - clock[0], time.process_time() - clock[1]
    figures["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    store.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", type=int, nargs="+", default=[250, 1000, 10_000, 100_000])
    parser.add_argument("--distinct", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, nargs="*", default=[1000])
    parser.add_argument("--folder", type=Path, help="keeps the parts there, and uses those that it finds")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part == "build":
        build(options.folder, options.distinct)
        return
    if options.part:
        print(json.dumps(measure(options.folder, int(options.profiles[0]), at_once=options.part == "at once")))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "parts").exists():
            folder.mkdir(exist_ok=True)
            clock = time.perf_counter()
            # In a process of its own: a child's peak of memory begins with what its parent holds.
            command = [sys.executable, __file__, "--part", "build", "--folder", str(folder)]
            subprocess.run([*command, "--distinct", str(min(options.distinct, max(options.profiles)))], check=True)
            print(f"parts written in {time.perf_counter() - clock:.0f} s")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; seconds, in brackets of the processor\n")
        heads = "".join(f"{name:>18}" for name in ("headline", "intervals", "heatmap"))
        print(f"{'profiles':>9} {'pairs, M':>9} {'':9}{heads}{'peak MB':>10}{'ms/profile':>12}")
        sizes = [("at once", size) for size in options.at_once] + [("in blocks", size) for size in options.profiles]
        for how, size in sizes:
            command = [sys.executable, __file__, "--part", how, "--profiles", str(size), "--folder", str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{size} profiles {how} failed:\n{done.stderr}")
            figures = json.loads(done.stdout.splitlines()[-1])
            names = ("headline", "intervals", "heatmap")
            cells = "".join(f"{figures[name]:10.1f} ({figures[name + ' cpu']:5.1f})" for name in names)
            each = 1000 * sum(figures[f"{name} cpu"] for name in names) / size
            pairs = size * ATTRIBUTES * CONTEXTS / 1e6
            print(f"{size:9,} {pairs:9.1f} {how:9}{cells}{figures['peak']:10,.0f}{each:12.2f}", flush=True)
            if figures["peak"] > MOST_MEGABYTES and how == "in blocks":
                print(f"{'':20}over the limit of {MOST_MEGABYTES:,.0f} MB")


if __name__ == "__main__":
    main()
