"""What recalling costs beside what a run does anyway, as ratios within one run.

    python benchmarks/recall.py [--profiles 10] [--contexts 49] [--repeat 3]

Generated profiles (offline, about 150 attributes each) in so many contexts. Each built-in system that asks no model
takes in every profile and recalls for every context, by way of `evaluation/recalling.py`: its lines are checked, and
the profile of the prompt is made of them. It is held against building the prompt of every message with the whole
memory, which a run does anyway, and against planning that run. `all` recalls everything (k = all): what the path
through a system costs where it changes nothing. Seconds are of the processor, the least of the repetitions; other work
moves them, so read the ratios.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cimemories import seeds
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation import planning
from cimemories.evaluation.recalling import ingesting
from cimemories.evaluation.respond import memory_lines
from cimemories.evaluation.spec import JudgeSpec, RunSpec
from cimemories.memory.systems import missing, read_system
from cimemories.model import Context, Profile
from cimemories.store import datasets
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, open_store

T = TypeVar("T")
DATASET = "benchmark"
MOST_SECONDS = 10.0  # of bm25 for 10 profiles in 49 contexts
SYSTEMS = {
    "bm25, k=20": "system:bm25:k=20",
    "bm25, all": "system:bm25:k=100000",
    "TF-IDF, k=20": "system:embedding:k=20",
    "TF-IDF, all": "system:embedding:k=100000",
}


def prompt(profile: Profile, context: Context) -> str:
    """The prompt of one message, with these attributes as its memory."""
    lines = memory_lines(seeds.load_prompt("memory", "bullets"), profile.attributes)
    return seeds.load_prompt("respond").render(memories=lines, recipient=context.recipient, task=context.task)


def recall_all(records: Sequence[ProfileRecord], label: str, *, built: bool) -> None:
    """Every profile taken in, and a recall for each of its contexts; built: with the prompt of each."""
    spec = read_system(label)
    for record in records:
        system = result(ingesting(spec, record))
        for context in record.profile.contexts:
            recalled = result(system.recalling(context, context.task))
            if built:
                prompt(recalled.prompt_profile, context)


def result(asking: Generator[Any, Any, T]) -> T:
    """Return what a memory system gives. Raises AssertionError if it asks a model."""
    try:
        next(asking)
    except StopIteration as end:
        given: T = end.value
        return given
    raise AssertionError("this system asks a model")


def build_all(records: Sequence[ProfileRecord]) -> None:
    """The prompt of every message with the whole memory."""
    for record in records:
        for context in record.profile.contexts:
            prompt(record.profile, context)


def plan(store: Store) -> None:
    """Plan a run of all profiles and contexts, one sample each, by the simulator."""
    judge = JudgeSpec()
    planning.plan(
        store,
        RunSpec(dataset=DATASET, model="sim-average", base_url="simulator", samples=1, check="none", judges=(judge,)),
    )


def least_seconds(do: Callable[[], None], repeat: int) -> float:
    """Seconds of the processor, the least of so many."""
    seconds = []
    for _ in range(repeat):
        began = time.process_time()
        do()
        seconds.append(time.process_time() - began)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profiles", type=int, default=10)
    parser.add_argument("--contexts", type=int, default=49)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    people = list(generate_profiles(options.profiles, seed=5, contexts=seeds.load_contexts()[: options.contexts]))
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "workspace")
        with store.write() as connection:
            datasets.add(connection, DATASET, people, origin="benchmark", source_name=None, source_hash=DATASET)
            row = datasets.by_name(connection, DATASET)
            records = datasets.profile_records(connection, row.id)
        attributes = sum(len(record.attribute_ids) for record in records) / len(records)
        print(f"{len(records)} profiles of {attributes:.0f} attributes, {options.contexts} contexts, ", end="")
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        build_all(records)  # what is read once, such as prompts, is read
        whole = least_seconds(lambda: build_all(records), options.repeat)
        planned = least_seconds(lambda: plan(store), options.repeat)
        print(f"{'':24} {'seconds':>8} {'of prompts':>11} {'of plan':>8}")

        def show(name: str, seconds: float, note: str = "") -> None:
            print(f"{name:24} {seconds:8.3f} {seconds / whole:10.2f}x {seconds / planned:7.2f}x{note}")

        show("prompts, whole memory", whole)
        show("planning the run", planned)
        for name, label in SYSTEMS.items():
            if reason := missing(read_name(label)):
                print(f"{name:24} left out: {reason}")
                continue
            recall_all(records[:1], label, built=False)  # its library is imported
            seconds = least_seconds(lambda label=label: recall_all(records, label, built=False), options.repeat)
            show(f"recall by {name}", seconds, "  over the limit" if seconds > MOST_SECONDS else "")
            if label.endswith("k=100000"):
                both = least_seconds(lambda label=label: recall_all(records, label, built=True), options.repeat)
                show(f"{name}, with prompts", both)
        store.close()
    print(f"limit of a recall for 10 profiles in 49 contexts: {MOST_SECONDS:.0f} s")


def read_name(label: str) -> str:
    return label.split(":")[1]


if __name__ == "__main__":
    main()
