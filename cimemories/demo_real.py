"""The demo's one run of a real model: recorded once from a real vLLM server, played back from data/demo/ ever after.

    python -m cimemories.demo_real --base-url http://127.0.0.1:8001/v1 --model smollm2-135m-instruct

records it anew. The model is one that a machine without a GPU can serve; its text shows what a real server sends, and
says nothing about how good larger models are. The labels beside it are the demo's, by the simulator, and marked so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cimemories import seeds
from cimemories.analysis.headline import warm
from cimemories.evaluation import runs
from cimemories.evaluation.planning import prepare as prepare_run
from cimemories.evaluation.planning import write
from cimemories.evaluation.servers import Server, look_up
from cimemories.formats.calls_archive import read_calls, write_calls
from cimemories.llm.worker import WorkError
from cimemories.store import runs as run_rows
from cimemories.store.engine import Store, open_store
from cimemories.store.ids import now
from cimemories.store.runs import RunRow

ABOUT, CALLS = "real.json", "real-calls.jsonl.xz"
PROFILES, CONTEXTS, SAMPLES, MAX_TOKENS = 1, 6, 2, 200
WORDED = ("respond", "memory")


def is_there(folder: Path, ran: Sequence[RunRow]) -> bool:
    """Whether the run of the real model is finished, or cannot be because nothing is recorded."""
    about = _about(folder)
    return about is None or any(row.model == about["model"] and row.status.is_finished for row in ran)


def prepare(store: Store, folder: Path, dataset: str, tell: Callable[[str], None]) -> str | None:
    """Put the run into a workspace that holds the demo's dataset; returns its id, None where it is there or none is
    recorded. Where the recorded calls no longer fit (the profiles were made anew) it is left out, and that is told."""
    about = _about(folder)
    with store.read() as connection:
        ran = run_rows.all_rows(connection)
    if about is None or is_there(folder, ran):
        return None
    tell(f"preparing the demo: a recorded run of {about['model']}, a real model")
    read_calls(store, folder / CALLS, server=about["server"].get("identity"))
    server = Server(**{**about["server"], "notes": tuple(about["server"]["notes"])})
    spec = _spec(dataset, about["model"], about["base_url"], about["prompts"])
    prepared = prepare_run(store, spec, look_up=lambda *asked: server)
    with store.write() as connection:
        for row in ran:
            if row.model == about["model"]:
                run_rows.delete(connection, row.id)
        run_id = write(connection, store, prepared)
    try:
        runs.execute(store, run_id)
    except WorkError:
        with store.write() as connection:
            run_rows.delete(connection, run_id)
        tell(f"the recorded calls of {about['model']} do not fit the demo's profiles any more; its run is left out")
        return None
    warm(store, run_id)
    return run_id


def _about(folder: Path) -> dict[str, Any] | None:
    path = folder / ABOUT
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _spec(dataset: str, model: str, base_url: str, wording: dict[str, str] | None = None) -> runs.RunSpec:
    prompts = {
        kind: seeds.prompts.recorded(kind, "base" if kind == "respond" else "bullets", text, "text", "seeds")
        for kind, text in (wording or {}).items()
    }
    return runs.RunSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        samples=SAMPLES,
        profiles=PROFILES,
        contexts=CONTEXTS,
        max_tokens=MAX_TOKENS,
        prompts=prompts,
        timeout=1800.0,
        name=f"{model}, a real model recorded from vLLM",
    )


def record(base_url: str, model: str) -> None:
    """Ask the server for the run and write it into data/demo/. Raises what planning and carrying out raise."""
    from cimemories import demo

    os.environ.pop("CIMEMORIES_DATABASE_URL", None)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(folder)
        demo.add_dataset(store)
        server: list[Server] = []

        def looked_up(*asked: Any) -> Server:
            # Named so that no server of somebody else, at the address it had here, is taken for it.
            found = look_up(*asked)
            server.append(replace(found, identity=f"the demo's recording of vLLM {found.version}"))
            return server[-1]

        wording = {"respond": seeds.load_prompt("respond").template}
        wording["memory"] = seeds.load_prompt("memory", "bullets").template
        spec = _spec(demo.DATASET, model, base_url, wording)
        prepared = prepare_run(store, replace(spec), look_up=looked_up)
        with store.write() as connection:
            run_id = write(connection, store, prepared)
        runs.execute(store, run_id)
        count = write_calls(store, demo.FOLDER / CALLS, simulated=False)
        about = {"model": model, "base_url": base_url, "server": server[0].as_json(), "prompts": wording}
        text = json.dumps({**about, "recorded": now()}, indent=2, ensure_ascii=False)
        (demo.FOLDER / ABOUT).write_text(text + "\n", encoding="utf-8")
        store.close()
    print(f"{count} calls of {model} in {demo.FOLDER / CALLS}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("--base-url", required=True)
    options.add_argument("--model", required=True)
    asked = options.parse_args()
    record(asked.base_url, asked.model)
