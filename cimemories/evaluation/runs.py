"""Runs: planned as a whole before the first call, worked off by one process, resumed by any other.

A run's manifest says everything that shaped its answers: data, prompts and judges by hash, parameters as sent,
versions, seeds. What is judged is judged as soon as it is written; there is no barrier between the two.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import openai

import cimemories
from cimemories import seeds
from cimemories.evaluation import judge as judging
from cimemories.evaluation.judge import LLM, MATCHER, Judge
from cimemories.evaluation.respond import response_job
from cimemories.llm import worker
from cimemories.llm.client import DEFAULT_KEY_ENV, Client, Endpoint, probe
from cimemories.llm.executor import Job, Progress
from cimemories.store import datasets, judgements, runs, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow

FULL_MEMORY = "full"


@dataclass(frozen=True)
class JudgeSpec:
    """A judge that is asked for. kind 'matcher' needs nothing else; 'llm' needs a model and where it is served."""

    kind: str = MATCHER
    model: str = MATCHER
    base_url: str = ""
    api_key_env: str = DEFAULT_KEY_ENV
    max_tokens: int = 2048


@dataclass(frozen=True)
class RunSpec:
    """What a run is to be. `profiles` and `contexts` limit it to the first so many; None means all.

    base_url: an OpenAI-compatible server, or the word `simulator`. Temperature None means the model's default. Seed
    None sends none to a real server (some refuse it, and vLLM's CPU engine dies of it) and 0 to the simulator.
    """

    dataset: str
    model: str
    base_url: str
    samples: int = 5
    profiles: int | None = None
    contexts: int | None = None
    judge: JudgeSpec = JudgeSpec()
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    max_tokens: int = 1024
    seed: int | None = None
    prompt_level: str = "base"
    timeout: float = 120.0
    name: str | None = None


def plan(store: Store, spec: RunSpec) -> str:
    """Look the servers up, write down every response that the run is to have, and return the run's id.

    Raises EndpointError, StoreError or SeedError before anything is written.
    """
    if spec.samples < 1:
        raise StoreError("a run needs at least one sample for each context: --samples 1 or more.")
    simulated = _probe(spec.base_url, spec.api_key_env, spec.model)
    judge = spec.judge
    judge_simulated = _probe(judge.base_url, judge.api_key_env, judge.model) if judge.kind == LLM else False
    prompt = seeds.load_prompt("respond", spec.prompt_level)
    parameters: dict[str, object] = {"max_tokens": spec.max_tokens}
    if spec.temperature is not None:
        parameters["temperature"] = spec.temperature
    judge_parameters: dict[str, object] = {"max_tokens": judge.max_tokens, "temperature": 0.0}
    judge_prompt = seeds.load_prompt("judge") if judge.kind == LLM else None
    with store.write() as connection:
        dataset = datasets.named(connection, spec.dataset)
        profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
        context_ids = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
        data_hash = datasets.dataset_hash(connection, dataset.id)
        run_id = runs.add(
            connection,
            {
                "name": spec.name or f"{spec.model} on {dataset.name}",
                "dataset": dataset.id,
                "dataset_hash": data_hash,
                "model": spec.model,
                "endpoint": spec.base_url,
                "simulated": simulated or judge_simulated,
                "samples": spec.samples,
                "seed": 0 if spec.seed is None and simulated else spec.seed,
                "prompt_level": prompt.level,
                "prompt_hash": prompt.sha256,
                "composition": FULL_MEMORY,
                "parameters": "{}",
            },
            manifest={
                "dataset": {"name": dataset.name, "hash": data_hash, "source": dataset.source_name},
                "model": {"name": spec.model, "endpoint": spec.base_url, "simulated": simulated},
                "prompt": {"kind": prompt.kind, "level": prompt.level, "sha256": prompt.sha256},
                "parameters": parameters,
                "judge": {
                    **asdict(judge),
                    "simulated": judge_simulated,
                    "prompt_sha256": judge_prompt.sha256 if judge_prompt else None,
                    "parameters": judge_parameters if judge_prompt else {},
                },
                "seeds_hash": seeds.seeds_hash(),
                "asked": asdict(spec),
                "versions": {
                    "cimemories": cimemories.__version__,
                    "openai": openai.__version__,
                    "python": platform.python_version(),
                },
            },
        )
        judge_id = judgements.judge_id(
            connection,
            kind=judge.kind,
            model=judge.model,
            endpoint=judge.base_url,
            simulated=judge_simulated,
            prompt_hash=judge_prompt.sha256 if judge_prompt else None,
            parameters=judge_parameters if judge_prompt else {},
        )
        judgements.assign(connection, run_id, [judge_id])
        planned = runs.plan(connection, run_id, profile_ids, context_ids, spec.samples)
        if not planned:
            raise StoreError(f"the dataset '{spec.dataset}' has no profile with a context: there is nothing to run.")
        work.queue(connection, run_id)
    return run_id


def _probe(base_url: str, api_key_env: str, model: str) -> bool:
    with worker.reachable(base_url) as url:
        return probe(Endpoint(url, api_key_env), model).simulated


def execute(
    store: Store,
    run_id: str,
    *,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
) -> Progress:
    """Do what a run owes, answers and judgements; waits until it is done.

    `base_url` and `judge_base_url` replace the recorded addresses (servers that have moved). Raises what
    `worker.perform` raises.
    """
    with store.read() as connection:
        row = runs.named(connection, run_id)
    manifest: Mapping[str, Any] = row.manifest
    asked, judge = manifest["asked"], manifest["judge"]
    with (
        worker.reachable(base_url or row.endpoint) as url,
        worker.reachable(judge_base_url or _judge_address(row, base_url, judge)) as judge_url,
    ):
        endpoint = Endpoint(url, asked["api_key_env"], float(asked["timeout"]))
        judge_endpoint = replace(endpoint, base_url=judge_url, api_key_env=judge["api_key_env"])

        def jobs(client: Callable[[Endpoint, bool], Client]) -> Iterator[Job]:
            answering = client(endpoint, bool(manifest["model"]["simulated"]))
            reading = client(judge_endpoint, bool(judge["simulated"])) if judge["kind"] == LLM else None
            return _jobs(store, row, answering, reading)

        return worker.perform(store, run_id, jobs, concurrency=concurrency, on_progress=on_progress, queued=queued)


def _judge_address(row: RunRow, moved_to: str | None, judge: Mapping[str, Any]) -> str:
    """A judge that was served from the same place as the model has moved with it."""
    if judge["kind"] != LLM:
        return ""
    return moved_to if moved_to and judge["base_url"] == row.endpoint else str(judge["base_url"])


def _jobs(store: Store, row: RunRow, answering: Client, reading: Client | None) -> Iterator[Job]:
    manifest: Mapping[str, Any] = row.manifest
    prompt = seeds.load_prompt("respond", row.prompt_level)
    _same_wording(row.id, "respond", manifest["prompt"]["sha256"], prompt.sha256)
    if manifest["judge"]["prompt_sha256"]:
        _same_wording(row.id, "judge", manifest["judge"]["prompt_sha256"], seeds.load_prompt("judge").sha256)
    with store.read() as connection:
        judges = [
            Judge(j.id, j.kind, j.model, j.parameters, reading if j.kind == LLM else None)
            for j in judgements.of_run(connection, row.id)
        ]
        profile_ids = runs.profile_ids(connection, row.id)
    for profile_id in profile_ids:
        with store.read() as connection:
            record = datasets.profile_record(connection, profile_id)
            unjudged = [(j, judgements.owed(connection, row.id, j.id, profile_id)) for j in judges]
            groups = runs.owed(connection, row.id, profile_id)
        for judge, responses in unjudged:
            for response_id, text in responses:
                if judge.client is not None:
                    yield judging.judgement_job(judge, judge.client, record, response_id, text)
                else:
                    with store.write() as connection:
                        judging.judge_response(connection, judge, record, response_id, text)
        for group in groups:
            yield response_job(answering, row.model, prompt, manifest["parameters"], row.seed, record, group, judges)


def _same_wording(run_id: str, kind: str, recorded: str, current: str) -> None:
    if recorded != current:
        raise StoreError(
            f"the {kind} prompt has changed since {run_id} was planned, so the rest of it would not be comparable. "
            "Start a new run, or bring the old wording back."
        )
