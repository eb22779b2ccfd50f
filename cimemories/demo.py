"""The demo: a synthetic dataset with simulated labels and runs of three simulated models, from data/demo/.

The files hold profiles and recorded calls; labels, responses and judgements follow from them by the code that does real
work. If a prompt has changed, the calls no longer fit and the simulator answers.

    python -m cimemories.demo        writes data/demo/ again, except the run of a real model

Beside them is one run of a real model, recorded from a real server. data/demo/README.md says what is what."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cimemories import seeds
from cimemories.curation import execution, labelling
from cimemories.curation.offline import generate_profiles
from cimemories.curation.spec import LabellingSpec
from cimemories.demo_parts import FOLDER, MODELS, ORIGIN, REAL_ABOUT, about_real, mark, real_is_there
from cimemories.evaluation import planning, runs
from cimemories.evaluation.planning import look_up, write
from cimemories.evaluation.planning import prepare as prepare_run
from cimemories.evaluation.spec import JudgeSpec, RunSpec
from cimemories.formats.batch_files import read_calls, write_calls
from cimemories.formats.official import read_profiles, write_profiles
from cimemories.llm.capabilities import Server
from cimemories.llm.endpoint import SIMULATOR
from cimemories.llm.worker import WorkError
from cimemories.metrics.headline import warm
from cimemories.model import Context
from cimemories.store import datasets
from cimemories.store import runs as store_runs
from cimemories.store.calls import SIMULATED
from cimemories.store.engine import Store, now, open_store

# ---- the demo's run of a real model
#
# Recorded once from a real server, played back from data/demo/ ever after.
#     python -m cimemories.demo --base-url http://127.0.0.1:8090/v1 --model qwen2.5-coder-1.5b-instruct
# records it again. The model is one that a machine without a GPU can serve: its messages show what a real model does,
# and say nothing of how good larger models are. The matcher reads them: as a judge the model itself quotes passages
# that no message has. The labels are the demo's, by the simulator, and marked so.


REAL_CALLS = "real-calls.jsonl.xz"
REAL_PROFILES, REAL_CONTEXTS, REAL_SAMPLES, MAX_TOKENS = 2, 8, 3, 600
# As the model's publisher recommends them.
TEMPERATURE, SAMPLING = 0.7, {"top_p": 0.8, "top_k": 20, "repeat_penalty": 1.1}
# Of the contexts that the run has, one of each sphere; they come first in the demo's dataset.
REAL_RECIPIENTS = (
    "Landlord",
    "Line manager",
    "Lending officer at the bank",
    "Dentist",
    "Course instructor",
    "Old friend",
    "Clerk of the court",
    "Consulate clerk",
)


def prepare_real(store: Store, folder: Path, dataset: str, report: Callable[[str], None]) -> str | None:
    """Put the run into a workspace that holds the demo's dataset; returns its id, None if it exists or none is
    recorded. If the recorded calls no longer fit (the profiles were made again) it is left out, with a report."""
    about = about_real(folder)
    with store.read() as connection:
        ran = store_runs.all_rows(connection)
    if about is None or real_is_there(folder, ran):
        return None
    report(f"preparing the demo: the recorded run of {about['model']}, a real model")
    read_calls(store, folder / REAL_CALLS, server=about["server"].get("identity"))
    server = Server.of(about["server"])
    spec = _real_spec(dataset, about["model"], about["base_url"], about["prompts"])
    prepared = prepare_run(store, spec, look_up=lambda *_: server)
    with store.write() as connection:
        for row in ran:
            if row.model == about["model"]:
                store_runs.delete(connection, row.id)
        run_id = write(connection, prepared)
    try:
        runs.execute(store, run_id)
    except WorkError:
        with store.write() as connection:
            store_runs.delete(connection, run_id)
        report(f"skipping the run of {about['model']}: its recorded calls no longer match the demo's profiles")
        return None
    warm(store, run_id)
    return run_id


def _real_spec(dataset: str, model: str, base_url: str, wording: dict[str, str]) -> RunSpec:
    """wording: the prompts of the recording by kind, since those of the seeds may be newer."""
    prompts = {
        kind: seeds.prompts.recorded(kind, "base" if kind == "respond" else "bullets", text, "text", "seeds")
        for kind, text in wording.items()
    }
    return RunSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        samples=REAL_SAMPLES,
        profiles=REAL_PROFILES,
        contexts=REAL_CONTEXTS,
        max_tokens=MAX_TOKENS,
        temperature=TEMPERATURE,
        sampling=SAMPLING,
        prompts=prompts,
        timeout=1800.0,
        name=f"{model}, a real model",
    )


def record_real(base_url: str, model: str) -> None:
    """Ask the server for the run and write it into data/demo/. Raises the errors of planning and running."""
    os.environ.pop("CIMEMORIES_DATABASE_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        add_dataset(store)
        server: list[Server] = []

        def looked_up(*arguments: Any) -> Server:
            # Named so that another server at the same address is not mistaken for it, as `prepare_real` reads it.
            live = look_up(*arguments)
            server.append(replace(live, identity=f"the demo's recording of {model}"))
            return server[-1]

        wording = {"respond": seeds.load_prompt("respond").template}
        wording["memory"] = seeds.load_prompt("memory", "bullets").template
        spec = _real_spec(DATASET, model, base_url, wording)
        prepared = prepare_run(store, spec, look_up=looked_up)
        with store.write() as connection:
            run_id = write(connection, prepared)
        runs.execute(store, run_id)
        count = write_calls(store, FOLDER / REAL_CALLS, simulated=False, servers=False)
        about = {"model": model, "base_url": base_url, "server": server[0].as_json(), "prompts": wording}
        text = json.dumps({**about, "recorded": now()}, indent=2, ensure_ascii=False)
        (FOLDER / REAL_ABOUT).write_text(text + "\n", encoding="utf-8")
        store.close()
    print(f"{count} calls of {model} in {FOLDER / REAL_CALLS}", file=sys.stderr)  # noqa: T201


# ---- demo


DATASET = "demo"
PROFILES, SEED = 10, 7
LABELLER, JUDGE = "sim-labeler", "sim-judge"
SAMPLES, DRAWS = 5, 10


def prepare(store: Store, report: Callable[[str], None], profiles: int | None = None) -> None:
    """Put the demo into a workspace, or finish it if it was cut short; only its first `profiles` if given. Raises the
    errors of its steps."""
    prepare_labels(store, report, profiles)
    for model in MODELS:
        report(f"preparing the demo: a run of {model}")
        _run(store, model)
    prepare_real(store, FOLDER, DATASET, report)  # the newest run is shown first
    with suppress(OSError):  # a missing mark does not make a finished demo a failure
        store.workspace.mkdir(parents=True, exist_ok=True)
        mark(store).touch()


def prepare_labels(store: Store, report: Callable[[str], None], profiles: int | None = None) -> None:
    """Put the demo's profiles with their labels into a workspace; only its first `profiles` if given. Raises the errors
    of its steps."""
    add_dataset(store, profiles)
    archive = FOLDER / "calls.jsonl.xz"
    if archive.exists():
        report("preparing the demo: recorded calls")
        read_calls(store, archive, server=SIMULATED.text)
    report("preparing the demo: labels")
    spec = LabellingSpec(dataset=DATASET, model=LABELLER, base_url=SIMULATOR, draws=DRAWS)
    labelling_id = labelling.plan(store, spec)
    execution.execute(store, labelling_id)
    warm(store, labelling_id)


def add_dataset(store: Store, profiles: int | None = None) -> None:
    """Add the demo's dataset if it is missing; only its first `profiles` if given."""
    file = read_profiles(FOLDER / "profiles.json")
    with store.write() as connection:
        rows = datasets.all_rows(connection)
        if not any(row.name == DATASET for row in rows):
            # The file's layout lacks spheres: they are those of the seeds' contexts.
            spheres = {(c.task, c.recipient): c.sphere for c in seeds.load_contexts()}
            datasets.add(
                connection,
                DATASET,
                [
                    replace(
                        p, contexts=tuple(replace(c, sphere=spheres.get((c.task, c.recipient))) for c in p.contexts)
                    )
                    for p in file.profiles[:profiles]
                ],
                origin=ORIGIN,
                source_name="profiles.json",
                source_hash=file.sha256,
            )


def _run(store: Store, model: str) -> None:
    with store.read() as connection:
        demo = datasets.by_name(connection, DATASET)
        there = [row for row in store_runs.all_rows(connection, demo.id) if row.model == model]
    spec = RunSpec(
        dataset=DATASET,
        model=model,
        base_url=SIMULATOR,
        samples=SAMPLES,
        name=f"{model} on the demo",
        judges=(JudgeSpec(kind="llm", model=JUDGE, base_url=SIMULATOR),),
    )
    run_id = there[0].id if there else planning.plan(store, spec)
    if not there or not there[0].status.is_finished:
        runs.execute(store, run_id)
    warm(store, run_id)


def _place(context: Context) -> int:
    """Return the place of a context in the demo: those of the run of a real model first, the others in their order."""
    is_first = context.recipient in REAL_RECIPIENTS
    return REAL_RECIPIENTS.index(context.recipient) if is_first else len(REAL_RECIPIENTS)


def rebuild() -> None:
    """Write data/demo/ again: profiles from the offline templates, every call answered by the simulator."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    contexts = sorted(seeds.load_contexts(), key=_place)
    profiles = list(generate_profiles(PROFILES, seed=SEED, contexts=contexts))
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
    options = argparse.ArgumentParser(
        description="Write data/demo/ again; with a server, its recorded run of a real model."
    )
    options.add_argument("--base-url", help="an OpenAI-compatible server, for the run of a real model alone")
    options.add_argument("--model", help="the model there")
    chosen = options.parse_args()
    if chosen.base_url and chosen.model:
        record_real(chosen.base_url, chosen.model)
    else:
        rebuild()
