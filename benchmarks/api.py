"""How long a notebook waits: from the start of Python to a frame of leaks, and for the flows of a thousand profiles.

    python benchmarks/api.py [--parts leaks 1000] [--rounds 3] [--cpu] [--demo FOLDER]

Each round is a process of its own, cold but for the files of the disk, which an unmeasured one has read:

    leaks   ten lines: import, open the demo's workspace, a run by its name, a frame of its leaks
    1000    `run.flows()` of a run of 1,000 profiles (7.2 million flows, as in analysis.py), once as pandas, as an Arrow
            table and as a DuckDB relation; then the largest memory of the process

Seconds are medians; memory is the largest. --cpu takes the processor's time instead of the clock's, for a machine that
does other work: it counts all cores. The demo is prepared in a folder of its own, or is that of --demo.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

Measured = dict[str, float]
SCRIPTS = {
    "leaks": """
import cimemories
ws = cimemories.open(folder)
run = ws.runs["sim-average on the demo"]
leaks = run.leaks()
note("leaks")
assert len(leaks) > 1000
""",
    "1000": """
import cimemories
ws = cimemories.open(folder)
(run,) = ws.runs
note("open")
flows = run.flows()
note("pandas")
note_peak("pandas MB")
assert len(flows) == 7_203_000
""",
}


def measure(part: str, folder: str, started: float, *, cpu: bool) -> Measured:
    """One part in this process. started: when it was started, by the clock of `time.time`."""
    measured: Measured = {}
    before = 0.0 if cpu else started

    def note(name: str) -> None:
        nonlocal before
        now = time.process_time() if cpu else time.time()
        measured[name] = now - before
        before = now

    def note_peak(name: str) -> None:
        measured[name] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    exec(SCRIPTS[part], {"folder": folder, "note": note, "note_peak": note_peak})
    return measured


def in_own_process(part: str, folder: str, *, cpu: bool) -> Measured:
    return dict(json.loads(ours("--part", part, "--folder", folder, *["--cpu"] * cpu).splitlines()[-1]))


def ours(*options: str) -> str:
    """What this script prints in a process of its own."""
    command = [sys.executable, __file__, *options, "--started", str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(options)} failed:\n{done.stderr}")
    return done.stdout


def prepare(part: str, folder: str) -> None:
    # Not on top: what is measured is to load nothing but what it asks for.
    if part == "1000":
        from analysis import build

        build(part, folder)
        return
    from cimemories import demo
    from cimemories.store.engine import open_store

    store = open_store(folder)
    demo.prepare(store, lambda text: print(text, file=sys.stderr))
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="the processor's time instead of the clock's")
    parser.add_argument("--demo", type=Path, help="a workspace with the demo")
    for hidden in ("--part", "--prepare", "--folder", "--started"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(measure(options.part, options.folder, float(options.started), cpu=options.cpu)))
        return
    if options.prepare:
        prepare(options.prepare, options.folder)
        return
    of = "seconds of the processor" if options.cpu else "seconds"
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start; {of}, medians of {options.rounds}")
    for part in options.parts:
        with tempfile.TemporaryDirectory() as own:
            folder = str(options.demo) if part == "leaks" and options.demo else own
            if folder == own:
                # Not here: Linux hands the peak of this process on to those that it starts.
                ours("--prepare", part, "--folder", folder)
            in_own_process(part, folder, cpu=options.cpu)
            rounds = [in_own_process(part, folder, cpu=options.cpu) for _ in range(options.rounds)]
        for name in rounds[0]:
            values = [each[name] for each in rounds]
            shown = f"{max(values):8,.0f}" if name.endswith("MB") else f"{statistics.median(values):8.2f}"
            print(f"{part:8}{name:12}{shown}", flush=True)


if __name__ == "__main__":
    main()
