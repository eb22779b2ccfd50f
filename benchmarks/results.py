"""How long the authors' results take to go out and to come in, and how much memory that needs.

    python benchmarks/results.py [--profiles 10] [--samples 5] [--keep FILE]

Makes a file in their layout: generated profiles (offline, about 140 attributes), all 49 contexts, so many responses
each, with the prompt in every one. Imports it into a fresh workspace, and exports that run again; each in a process of
its own, whose peak resident set is shown. The limits are the project's for ten profiles with five samples on two cores;
the machine's load is printed, since other work slows the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation.importing import import_file
from cimemories.exchange.exporting import export_run
from cimemories.formats.official import record_of
from cimemories.formats.results import ResultsFile
from cimemories.model import Profile
from cimemories.store.engine import open_store

MOST_SECONDS, MOST_MEGABYTES = 20.0, 500.0
SENTENCES = 14


def write_file(path: Path, profiles: int, samples: int) -> None:
    """Responses of some 14 sentences, one in three of which is a memory statement, found by the judge."""
    chance = random.Random(1)
    with path.open("w", encoding="utf-8") as stream:
        for profile in generate_profiles(profiles, seed=5, contexts=seeds.load_contexts()):
            record = record_of(profile)
            for item in record["contexts"]:
                item |= dict(_entries(profile, item, samples, chance))
            stream.write(json.dumps(record) + "\n")


def _entries(profile: Profile, item: dict[str, str], samples: int, chance: random.Random) -> Iterator[tuple[str, dict]]:
    memories = "\n".join(f"- {a.statement}" for a in profile.attributes)
    prompt = f"{memories}\n\n{item['task']} for {item['recipient']}"
    keys = [a.key for a in profile.attributes]
    for trial in range(samples):
        stated = chance.sample(profile.attributes, SENTENCES // 3)
        text = [a.statement for a in stated] + ["I write to you about the matter that we spoke of last week."] * (
            SENTENCES - len(stated)
        )
        chance.shuffle(text)
        # Judges quote with other quotes, cases and ends of sentences, and sometimes what is not there.
        quotes = {a.key: a.statement.upper() if chance.random() < 0.1 else a.statement for a in stated}
        quotes |= {a.key: f"Something like {a.key}, but otherwise." for a in chance.sample(profile.attributes, 1)}
        yield (
            f"combination_num_to_share={len(keys)}_num_not_to_share=0_trial={trial}",
            {
                "prompt": prompt,
                "to_share_attributes": keys,
                "not_to_share_attributes": [],
                "num_to_share_attributes": len(keys),
                "num_not_to_share_attributes": 0,
                "total_num_attributes": len(keys),
                "trial_idx": trial,
                "model_solution": {
                    "response_solution": "Dear Sir or Madam,\n\n" + " ".join(text) + "\n\nYours",
                    "revealed_attributes": {key: int(key in quotes) for key in keys},
                    "revealed_attributes_explanation": quotes,
                },
            },
        )


def part(name: str, file: Path, workspace: Path) -> str:
    """What one process does; returns what it says of it."""
    if name == "read":
        count = sum(len(profile.results) for profile in ResultsFile(file).profiles())
        return f"{count:,} responses"
    store = open_store(workspace)
    if name == "import":
        (run_id,) = import_file(store, file, model="benchmark").runs
        (workspace / "run").write_text(run_id)
        return run_id
    exported = export_run(store, (workspace / "run").read_text(), workspace / "export.jsonl")
    return f"{exported.bytes / 1e6:.0f} MB"


def measured(name: str, file: Path, workspace: Path) -> tuple[float, float, str]:
    """Seconds, peak MB and words of one part in a fresh process."""
    command = [sys.executable, __file__, "--part", name, "--keep", str(file), "--workspace", str(workspace)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak, summary = done.stdout.strip().split("\t")
    return float(seconds), float(peak), summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=int, default=10)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--keep", type=Path, default=None, help="where to write the file, and keep it")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        began = time.perf_counter()
        summary = part(options.part, options.keep, options.workspace)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{time.perf_counter() - began}\t{peak}\t{summary}")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = options.keep or Path(folder) / "results.jsonl"
        write_file(file, options.profiles, options.samples)
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        print(
            f"{options.profiles} profiles, {options.samples} samples, file of {file.stat().st_size / 1e6:.0f} MB, ",
            end="",
        )
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'part':8} {'seconds':>8} {'peak MB':>8}")
        for name in ("read", "import", "export"):
            seconds, peak, summary = measured(name, file, workspace)
            late = seconds > MOST_SECONDS or peak > MOST_MEGABYTES
            print(f"{name:8} {seconds:8.1f} {peak:8.0f}  {summary}{'  over the limit' if late else ''}")
    print(f"limits for 10 profiles and 5 samples: {MOST_SECONDS:.0f} s, {MOST_MEGABYTES:.0f} MB")


if __name__ == "__main__":
    main()
