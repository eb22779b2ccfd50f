"""How much the parts of curation take at full size: seconds, peak memory, and the size of the record.

    python benchmarks/scale.py [--profiles FILE] [--count 1000] [--contexts 49]

Generates COUNT profiles offline, saves an edited attribute of them as the next version, with 10,000 decisions that go
along (making these is not counted), and labels the profiles of FILE (official layout; default: ten generated ones) in
all their contexts with Westin's three personas and ten draws against the simulator, which runs in a process of its own
and is not measured. Each part runs in a fresh process; memory is its peak resident set. The limits are those of
the project for two cores; the machine's load is printed, since other work slows the figures.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from cimemories import seeds
from cimemories.curation import editing, execution, labelling
from cimemories.curation.offline import generate_dataset, generate_profiles
from cimemories.curation.spec import LabellingSpec
from cimemories.formats.official import read_profiles
from cimemories.model import Label
from cimemories.store import datasets, decisions
from cimemories.store.engine import open_store

MOST_MEGABYTES = 1000.0
MOST_SECONDS = {"generate": 60.0, "save": 5.0, "label": 360.0}
DECISIONS = 10_000
SIMULATOR = "import sys\nfrom cimemories.simulator.server import running_simulator\n"
SIMULATOR += "with running_simulator() as url:\n    print(url, flush=True)\n    sys.stdin.read()\n"


def generate(count: int) -> str:
    """Make profiles and write them as a dataset, as `cimemories generate` does."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        row = generate_dataset(store, "scale", count)
        store.close()
    return f"{row.profiles:,} profiles, {row.attributes:,} attributes, written as a dataset"


def save(count: int) -> tuple[float, str]:
    """Edit one statement of a dataset on which decisions rest; returns the seconds of saving alone."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        row = generate_dataset(store, "scale", count)
        with store.write() as connection:
            ids = datasets.profile_ids(connection, row.id)
            records = [datasets.profile_record(connection, i) for i in ids[:20]]
            pairs = [(a, c) for r in records for a in r.attribute_ids for c in r.context_ids][:DECISIONS]
            new = [decisions.NewDecision(a, c, Label.NECESSARY, uid=f"{a}.{c}") for a, c in pairs]
            decisions.add_all(connection, row.id, "Ada", new)
        before = records[0].profile.attributes[0]
        edit = editing.edit_of("attribute", 0, before, replace(before, statement="My name is another."))
        clock = time.perf_counter()
        saved = editing.save(store, row.id, edit, annotator="Ada")
        seconds = time.perf_counter() - clock
        store.close()
    return seconds, f"'{saved.name}' of {row.profiles:,} profiles, {saved.carried:,} decisions copied"


def label(file: str, contexts: int, url: str) -> str:
    """Label a file's profiles, or ten generated ones where no file is named."""
    if file:
        profiles = list(read_profiles(Path(file)).profiles)
    else:
        profiles = list(generate_profiles(10, contexts=seeds.load_contexts()))
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        with store.write() as connection:
            datasets.add(connection, "scale", profiles, origin="test", source_name=None, source_hash="scale")
        spec = LabellingSpec(dataset="scale", model="sim-labeler", base_url=url, contexts=contexts)
        progress = execution.execute(store, labelling.plan(store, spec))
        store.close()
        size = sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6
    votes = sum(len(p.attributes) * min(contexts, len(p.contexts)) for p in profiles) * 3 * spec.draws
    return f"{progress.asked:,} draws, {votes:,} votes, record of {size:.0f} MB"


def measured(part: str, *arguments: str) -> None:
    """Run one part in a process of its own and print its line."""
    command = [sys.executable, __file__, "--part", part, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{part} failed:\n{done.stderr}")
    seconds, megabytes, what = done.stdout.strip().split("\t")
    limit = MOST_SECONDS[part]
    print(
        f"{part:9} {float(seconds):7.1f} {float(seconds) / limit:6.2f} {float(megabytes):9.0f} "
        f"{float(megabytes) / MOST_MEGABYTES:6.2f}   {what}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--profiles", default="", help="official layout; default: ten generated profiles")
    parser.add_argument("--count", type=int, default=1000, help="profiles to generate")
    parser.add_argument("--contexts", type=int, default=49)
    parser.add_argument("--part", choices=MOST_SECONDS, help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        clock = time.perf_counter()
        if options.part == "save":
            seconds, summary = save(options.count)
        else:
            one = options.part == "generate"
            summary = generate(options.count) if one else label(options.profiles, options.contexts, options.url)
            seconds = time.perf_counter() - clock
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{seconds}\t{peak}\t{summary}")
        return
    one, five, _ = os.getloadavg()
    print(f"{os.cpu_count()} cores, load {one:.1f} (1 min) {five:.1f} (5 min) before the start\n")
    print("part      seconds of its   peak MB of its   what\n                   limit            limit")
    measured("generate", "--count", str(options.count))
    measured("save", "--count", str(options.count))
    with subprocess.Popen(
        [sys.executable, "-c", SIMULATOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        try:
            measured("label", "--profiles", options.profiles, "--contexts", str(options.contexts), "--url", url)
        finally:
            server.stdin.close()


if __name__ == "__main__":
    main()
