"""The demo: a synthetic dataset with simulated labels and runs of three simulated models, from data/demo/.

What is shipped are the profiles and the recorded calls; labels, responses and judgements follow from them by the same
code that serves real work. Where a prompt has been changed since, the calls no longer fit and the simulator answers.

    python -m cimemories.demo        writes data/demo/ anew, but for the run of a real model

Beside them stands one small run of a real model, recorded from a real vLLM server (demo_real.py).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cimemories import demo_real, seeds
from cimemories.analysis.headline import warm
from cimemories.curation import labelling
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation import runs
from cimemories.evaluation.spec import SIMULATED_JUDGE_TOKENS
from cimemories.formats.calls_archive import read_calls, write_calls
from cimemories.formats.official import read_profiles, write_profiles
from cimemories.llm.worker import SIMULATOR
from cimemories.model import Context, Profile
from cimemories.store import datasets, labellings
from cimemories.store import runs as run_rows
from cimemories.store.engine import Store, open_store
from cimemories.store.servers import SIMULATED

DATASET = "demo"
ORIGIN = "demo"
FOLDER = Path(__file__).resolve().parent.parent / "data" / "demo"
PROFILES, SEED = 10, 7
LABELLER, JUDGE = "sim-labeler", "sim-judge"
MODELS = ("sim-careful", "sim-oversharing", "sim-average")  # of different characters; the last is shown first
SAMPLES, DRAWS = 5, 10


def is_wanted(store: Store) -> bool:
    """Whether the workspace is empty, or holds a demo whose preparation was cut short. What somebody has deleted of one
    that was whole is not missed."""
    with store.read() as connection:
        rows = datasets.all_rows(connection)
        if not rows:
            return True
        demo = next((row for row in rows if row.origin == ORIGIN), None)
        if demo is None or not FOLDER.is_dir() or _whole(store).exists():
            return False
        labelled = labellings.all_rows(connection, demo.id)
        ran = run_rows.all_rows(connection, demo.id)
    finished = {row.model for row in ran if row.status.is_finished}
    return not labelled or not finished >= set(MODELS) or not demo_real.is_there(FOLDER, ran)


def prepare(store: Store, tell: Callable[[str], None], profiles: int | None = None) -> None:
    """Put the demo into a workspace, or finish it where it was cut short; only its first `profiles` where given.

    Raises what its steps raise.
    """
    add_dataset(store, profiles)
    archive = FOLDER / "calls.jsonl.xz"
    if archive.exists():
        tell("preparing the demo: recorded calls")
        read_calls(store, archive, server=SIMULATED.text)
    tell("preparing the demo: labels")
    labelling_id = labelling.plan(store, _labelling_spec())
    labelling.execute(store, labelling_id)
    warm(store, labelling_id)
    demo_real.prepare(store, FOLDER, DATASET, tell)
    for model in MODELS:
        tell(f"preparing the demo: a run of {model}")
        _run(store, model)
    with suppress(OSError):  # no room for the mark is no reason to call a demo that is there a failure
        store.workspace.mkdir(parents=True, exist_ok=True)
        _whole(store).touch()


def _whole(store: Store) -> Path:
    """A file that stands in the workspace once its demo has been prepared to the end."""
    return store.workspace / "demo.prepared"


def add_dataset(store: Store, profiles: int | None = None) -> None:
    """The demo's dataset where it is not there; only its first `profiles` where given."""
    file = read_profiles(FOLDER / "profiles.json")
    with store.write() as connection:
        rows = datasets.all_rows(connection)
        if not any(row.name == DATASET for row in rows):
            datasets.add(
                connection,
                DATASET,
                _with_spheres(file.profiles[:profiles]),
                origin=ORIGIN,
                source_name="profiles.json",
                source_hash=file.sha256,
            )


def _run(store: Store, model: str) -> None:
    with store.read() as connection:
        demo = datasets.named(connection, DATASET)
        there = [row for row in run_rows.all_rows(connection, demo.id) if row.model == model]
    run_id = there[0].id if there else runs.plan(store, _run_spec(model))
    if not there or not there[0].status.is_finished:
        runs.execute(store, run_id)
    warm(store, run_id)


def _labelling_spec() -> labelling.LabellingSpec:
    return labelling.LabellingSpec(dataset=DATASET, model=LABELLER, base_url=SIMULATOR, draws=DRAWS)


def _run_spec(model: str) -> runs.RunSpec:
    return runs.RunSpec(
        dataset=DATASET,
        model=model,
        base_url=SIMULATOR,
        samples=SAMPLES,
        judge=runs.JudgeSpec("llm", JUDGE, SIMULATOR, max_tokens=SIMULATED_JUDGE_TOKENS),
        name=f"{model} on the demo",
    )


def _with_spheres(profiles: tuple[Profile, ...]) -> list[Profile]:
    """The layout of the file knows no spheres; the seeds that its contexts come from do."""
    spheres = {(c.task, c.recipient): c.sphere for c in seeds.load_contexts()}
    return [
        Profile(
            p.name,
            p.sex,
            p.address,
            p.age,
            p.attributes,
            tuple(Context(c.task, c.recipient, spheres.get((c.task, c.recipient))) for c in p.contexts),
        )
        for p in profiles
    ]


def rebuild() -> None:
    """Write data/demo/ anew: profiles from the offline templates, every call answered by the simulator."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    profiles = list(generate_profiles(PROFILES, seed=SEED, contexts=seeds.load_contexts()))
    (FOLDER / "profiles.json").write_text(write_profiles(profiles), encoding="utf-8")
    (FOLDER / "calls.jsonl.xz").unlink(missing_ok=True)
    os.environ.pop("CIMEMORIES_DATABASE_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        prepare(store, lambda text: print(text, file=sys.stderr))  # noqa: T201
        count = write_calls(store, FOLDER / "calls.jsonl.xz", simulated=True)
        store.close()
    print(f"{count} calls in {FOLDER}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    rebuild()
