"""Commands that plan runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cimemories.cli import output
from cimemories.cli.base import cli
from cimemories.cli.options import (
    AllowKeys,
    AllowMissing,
    AsJson,
    BaseUrl,
    Concurrency,
    Contexts,
    DatasetName,
    KeyEnv,
    Model,
    Profiles,
    Seed,
    Temperature,
    Timeout,
    TokenLimit,
    Workspace,
    token_limit,
)
from cimemories.cli.work import work_on
from cimemories.store import calls
from cimemories.store import datasets as store_datasets
from cimemories.store import runs as store_runs
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_store

if TYPE_CHECKING:
    from cimemories.evaluation.estimates import StageEstimate
    from cimemories.evaluation.planning import JudgeSpec, RunSpec
    from cimemories.seeds.prompts import Prompt


JudgeKinds = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        help="`matcher` finds values without a model. Without any judge named, the model itself judges beside it.",
    ),
]


JudgeModels = Annotated[list[str] | None, typer.Option("--judge-model", help="Model that judges; may be repeated.")]


JudgeUrls = Annotated[
    list[str] | None, typer.Option("--judge-base-url", help="Its server, one for all or one each; the model's.")
]


JudgeKeys = Annotated[list[str] | None, typer.Option("--judge-api-key-env", help="Variable of its key.")]


JudgeLimit = Annotated[
    str | None,
    typer.Option(
        "--judge-max-tokens",
        metavar="N",
        help="Limit of one judgement, its reasoning included; `server` sends none. Default: 16384, or half of the "
        "server's context where that is less.",
    ),
]


JudgeSplit = Annotated[int | None, typer.Option("--judge-split", min=1, help="At most so many attributes a call.")]


JudgeSet = Annotated[list[str] | None, typer.Option("--judge-set", help="A field of its requests, NAME=JSON.")]


JudgePrompt = Annotated[
    str | None, typer.Option("--judge-prompt", help="Wording from a prompt file, FILE:LEVEL (docs/formats.md).")
]


JudgePrices = Annotated[
    list[str] | None, typer.Option("--judge-price", help="The same of its tokens, one for all judges or one each.")
]


Fresh = Annotated[
    bool, typer.Option("--fresh", help="Draw anew: take no answer that other work has in the record; resuming does.")
]


Reasoning = Annotated[bool, typer.Option("--judge-reasoning", help="Judge the reasoning too, as a second channel.")]


@cli.command()
def run(
    dataset: DatasetName,
    model: Model,
    base_url: BaseUrl,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=100, help="Responses a context.")] = 5,
    profiles: Profiles = None,
    contexts: Contexts = None,
    prompt_level: Annotated[
        str, typer.Option("--prompt-level", help="base, light, medium, high; or a level of --prompt-file.")
    ] = "base",
    prompt_file: Annotated[
        Path | None, typer.Option("--prompt-file", help="Wording in the published layout (docs/formats.md).")
    ] = None,
    memory: Annotated[str, typer.Option("--memory", help="full, necessary+K, inappropriate+K or random-K.")] = "full",
    memory_order: Annotated[str, typer.Option("--memory-order", help="fixed or shuffled.")] = "fixed",
    memory_seed: Annotated[int, typer.Option("--memory-seed", help="Of the choice and the shuffling.")] = 0,
    memory_template: Annotated[
        str, typer.Option("--memory-template", help="bullets, plain, numbered, keyed, grouped.")
    ] = "bullets",
    thinking: Annotated[str, typer.Option("--thinking", help="default, on, off, low, medium, high.")] = "default",
    mitigation: Annotated[str, typer.Option("--mitigation", help="none, gate or rewrite.")] = "none",
    check: Annotated[
        str, typer.Option("--check", help="Does a message do its task? rules, model (the first judge's) or none.")
    ] = "rules",
    judge: JudgeKinds = None,
    judge_model: JudgeModels = None,
    judge_base_url: JudgeUrls = None,
    judge_api_key_env: JudgeKeys = None,
    judge_max_tokens: JudgeLimit = None,
    judge_split: JudgeSplit = None,
    judge_set: JudgeSet = None,
    judge_prompt: JudgePrompt = None,
    judge_reasoning: Reasoning = False,
    judge_price: JudgePrices = None,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    preset: Annotated[str | None, typer.Option("--preset", help="What is known of the model; see `presets`.")] = None,
    temperature: Temperature = None,
    sampling: Annotated[
        list[str] | None, typer.Option("--set", help="A field of each request, NAME=JSON, e.g. top_p=0.9.")
    ] = None,
    max_tokens: TokenLimit = "1024",
    seed: Seed = None,
    price: Annotated[
        str | None, typer.Option("--price", help="Of a million tokens: PROMPT/CACHED/COMPLETION, as '2/0.5/8 EUR'.")
    ] = None,
    cap: Annotated[
        float | None, typer.Option("--cap", help="Stop once it has paid so much; what is under way adds.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would ask, cost and take; nothing is started.")
    ] = False,
    fresh: Fresh = False,
    name: Annotated[str | None, typer.Option("--name", help="What to call the run.")] = None,
    timeout: Timeout = 120.0,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let a model write the messages and judges read them; waits, and prints the run's id last.

    Example: cimemories run -d official -m qwen3-32b --base-url http://localhost:8000/v1 --judge matcher
    """
    from cimemories.evaluation import planning
    from cimemories.evaluation.costs import Prices
    from cimemories.evaluation.planning import BATCH, Memory
    from cimemories.labels.whatif import effective_labels
    from cimemories.llm.endpoint import allow_key

    allow_key(api_key_env, base_url)
    if not judge and not judge_model and is_real(model, base_url, api_key_env):
        judge, judge_model = ["matcher"], [model]
        judge_price = judge_price or ([price] if price and not judge_base_url else None)
    judges = judges_asked(
        judge, judge_model, judge_base_url or [base_url], judge_api_key_env or [api_key_env], judge_max_tokens,
        judge_split, judge_set, judge_prompt, judge_reasoning, judge_price,
    )  # fmt: skip
    spec = planning.RunSpec(
        dataset=dataset,
        model=model,
        base_url=base_url,
        samples=samples,
        profiles=profiles,
        contexts=contexts,
        judge=judges[0],
        more_judges=tuple(judges[1:]),
        api_key_env=api_key_env,
        temperature=temperature,
        sampling=fields_of(sampling, "--set"),
        max_tokens=token_limit(max_tokens),
        seed=seed,
        prompt_level=prompt_level,
        prompts=_wording(prompt_file, prompt_level, memory_template),
        memory=Memory(memory, memory_order, memory_seed, memory_template),
        thinking=thinking,
        mitigation=mitigation,
        check=check,
        preset=preset,
        timeout=timeout,
        name=name,
        prices=Prices.read(price) if price else None,
        cap=cap,
        fresh=fresh,
    )
    store = open_store(workspace)
    if plan:
        estimated_costs(store, spec, concurrency)
        return
    run_id = planning.plan(store, spec, find_labels=effective_labels)
    if base_url == BATCH:
        _wait_for_batches(store, run_id)
        return
    work_on(store, run_id, concurrency, allow_missing=allow_missing)


def _wait_for_batches(store: Store, run_id: str) -> None:
    from cimemories.model import WorkStatus
    from cimemories.store import work as store_work

    with store.write() as connection:
        store_work.finish(connection, run_id, WorkStatus.PAUSED)
    output.note(f"planned; `cimemories batch export {run_id} --out owed.jsonl` writes what it owes")
    output.line(run_id)


@cli.command()
def judge(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    judge: JudgeKinds = None,
    judge_model: JudgeModels = None,
    judge_base_url: JudgeUrls = None,
    judge_api_key_env: JudgeKeys = None,
    judge_max_tokens: JudgeLimit = None,
    judge_split: JudgeSplit = None,
    judge_set: JudgeSet = None,
    judge_prompt: JudgePrompt = None,
    judge_reasoning: Reasoning = False,
    judge_price: JudgePrices = None,
    check: Annotated[
        bool, typer.Option("--check", help="Its model also says whether each message does its task.")
    ] = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Let another judge read the messages of a run; costs the judging alone, and prints the run's id last.

    Example: cimemories judge run-3f9a1c2e --judge-model deepseek-r1 --judge-base-url http://localhost:8002/v1
    """
    from cimemories.evaluation.planning import judge_again

    if judge_model and not judge_base_url:
        raise StoreError("say where the judge is served: --judge-base-url URL.")
    judges = judges_asked(
        judge, judge_model, judge_base_url or [""], judge_api_key_env or ["OPENAI_API_KEY"], judge_max_tokens,
        judge_split, judge_set, judge_prompt, judge_reasoning, judge_price,
    )  # fmt: skip
    store = open_store(workspace)
    judge_again(store, run_id, judges, check=check)
    work_on(store, run_id, concurrency, allow_missing=allow_missing)


@cli.command()
def repeat(
    run_id: Annotated[str, typer.Argument(metavar="RUN")],
    show: Annotated[bool, typer.Option("--show", help="Print the command instead of running it.")] = False,
    fresh: Fresh = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run the same once more, with the wording it had: what was answered before is taken from the record.

    Example: cimemories repeat run-3f9a1c2e --show
    """
    from cimemories.evaluation import planning
    from cimemories.evaluation.planning import command_of, spec_of
    from cimemories.labels.whatif import effective_labels

    store = open_store(workspace)
    spec = spec_of(store, run_id)
    spec = replace(spec, fresh=spec.fresh or fresh)
    if show:
        output.line(command_of(spec))
        return
    run_id = planning.plan(store, spec, find_labels=effective_labels)
    work_on(store, run_id, concurrency, allow_missing=allow_missing)


@cli.command()
def presets() -> None:
    """List what is known of the paper's models, to be used with --preset.  Example: cimemories presets"""
    from cimemories.seeds.presets import load_presets

    for item in load_presets():
        output.line(f"{item.key}\t{item.name}\t{item.kind}\t{item.gpus or ''}".rstrip())


def judges_asked(
    kinds: Sequence[str] | None,
    models: Sequence[str] | None,
    urls: Sequence[str],
    keys: Sequence[str],
    max_tokens: str | None,
    split: int | None,
    settings: Sequence[str] | None,
    wording: str | None,
    reasoning: bool,
    prices: Sequence[str] | None = None,
) -> list[JudgeSpec]:
    """The judges that options ask for, models first; the matcher where none is named. Their keys may then be sent to
    their servers: both were named by whoever gave the command."""
    from cimemories.evaluation.costs import Prices
    from cimemories.evaluation.planning import JudgeSpec
    from cimemories.llm.endpoint import allow_key

    unknown = sorted(set(kinds or ()) - {"matcher"})
    if unknown:
        raise StoreError(f"there is no judge '{unknown[0]}'. Use --judge matcher, or --judge-model MODEL for a model.")
    models = list(models or ())
    costs: list[Prices | None] = [Prices.read(text) for text in prices or ()] or [None]
    for values, option in ((urls, "--judge-base-url"), (keys, "--judge-api-key-env"), (costs, "--judge-price")):
        if len(values) not in (1, max(len(models), 1)):
            raise StoreError(f"give {option} once for all judges, or once for each --judge-model in its order.")
    fields = fields_of(settings, "--judge-set")
    prompt = _judge_prompt(wording) if wording else None
    found = [
        JudgeSpec(
            kind="llm",
            model=model,
            base_url=urls[i % len(urls)],
            api_key_env=keys[i % len(keys)],
            max_tokens=_judge_limit(max_tokens, urls[i % len(urls)]),
            split=split,
            fields=fields,
            prompt=prompt,
            prices=costs[i % len(costs)],
        )
        for i, model in enumerate(models)
    ]
    for asked in found:
        allow_key(asked.api_key_env, asked.base_url)
    if reasoning:
        if not found:
            raise StoreError("--judge-reasoning needs a model that judges: --judge-model MODEL.")
        found.append(replace(found[0], channel="reasoning"))
    return found + [JudgeSpec()] * bool(kinds or not found)


def is_real(model: str, base_url: str, api_key_env: str) -> bool:
    """Whether a model that can judge its own messages is served there: not the simulator, and not batch files."""
    from cimemories.evaluation.planning import BATCH
    from cimemories.llm.endpoint import Endpoint, EndpointError, probe
    from cimemories.llm.worker import SIMULATOR

    if base_url in (SIMULATOR, BATCH):
        return False
    try:
        return not probe(Endpoint(base_url, api_key_env), model).simulated
    except EndpointError:
        return True  # planning asks again, and says what is wrong


def _judge_limit(text: str | None, base_url: str) -> int | None:
    from cimemories.evaluation.planning import JUDGE_TOKENS, SIMULATED_JUDGE_TOKENS
    from cimemories.llm.worker import SIMULATOR

    if text is None:
        return SIMULATED_JUDGE_TOKENS if base_url == SIMULATOR else JUDGE_TOKENS
    return token_limit(text, "--judge-max-tokens")


def fields_of(settings: Sequence[str] | None, option: str) -> dict[str, Any]:
    """NAME=JSON pairs as fields of a request; a value that is no JSON is text."""
    fields: dict[str, Any] = {}
    for item in settings or ():
        name, sign, value = item.partition("=")
        if not sign or not name.strip():
            raise StoreError(f"{option} is NAME=VALUE, for example {option} top_p=0.9; this is '{item}'.")
        try:
            fields[name.strip()] = json.loads(value)
        except ValueError:
            fields[name.strip()] = value
    return fields


def _wording(path: Path | None, level: str, template: str) -> dict[str, Prompt]:
    if path is None:
        return {}
    from cimemories.seeds.prompts import read_prompt_file

    file = read_prompt_file(path)
    found = {"respond": file.prompt("respond", level)}
    if template in file.levels("memory"):
        found["memory"] = file.prompt("memory", template)
    return found


def _judge_prompt(asked: str) -> Prompt:
    from cimemories.seeds.prompts import read_prompt_file

    path, _, level = asked.rpartition(":")
    if not path:
        path, level = level, "1"
    return read_prompt_file(Path(path)).prompt("judge", level)


COLUMNS = (
    ("stage", False),
    ("model", False),
    ("draws", True),
    ("recorded", True),
    ("requests", True),
    ("prompt tokens", True),
    ("cacheable", True),
    ("completion tokens", True),
    ("cost", True),
)


def estimated_costs(store: Store, spec: RunSpec, concurrency: int) -> None:
    """Print what a run would come to; nothing is started."""
    from cimemories.evaluation.estimates import estimate
    from cimemories.labels.whatif import effective_labels

    found = estimate(store, spec, find_labels=effective_labels, concurrency=concurrency)
    stages(found.stages)
    output.line(f"responses  {found.responses:,} in {found.places:,} pairs of profile and context")
    output.line(f"requests   {found.requests:,}; {found.recorded:,} of {found.draws:,} draws are in the record already")
    output.line(
        f"tokens     about {found.prompt_tokens:,} of prompts, {found.cacheable:,} of them a beginning that a cache "
        f"can serve, and {found.completion_tokens:,} of completions"
    )
    output.line(f"cost       {found.cost_words}")
    output.line(f"time       {duration(found.seconds)} with {concurrency} requests at once")
    for text in found.notes:
        output.note(f"note: {text}")
    if found.warning:
        output.note(f"warning: {found.warning}")


def stages(found: Sequence[StageEstimate]) -> None:
    """A table of the stages of an estimate."""
    output.table(COLUMNS, [_row(stage) for stage in found], whole=True)


def _row(stage: StageEstimate) -> list[object]:
    from cimemories.evaluation.costs import money

    low, high = stage.cost_least, stage.cost_most
    same = low == high or low is None or high is None
    return [
        stage.title,
        stage.model,
        f"{stage.draws:,}",
        f"{stage.recorded:,}",
        f"{stage.requests:,}",
        f"{stage.prompt_tokens:,}",
        f"{stage.cacheable:,}",
        f"{stage.completion_tokens:,}" if stage.completion_known else f"<= {stage.completion_tokens:,}",
        money(high) if same else f"{money(low)}-{money(high)}",
    ]


def duration(seconds: float | None) -> str:
    """A time for people: 40 s, 12 min, 3.5 h; 'not known' for None."""
    if seconds is None:
        return "not known"
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@cli.command()
def runs(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the runs with their status.  Example: cimemories runs --json"""
    store = open_store(workspace)
    with store.read() as connection:
        rows = store_runs.all_rows(connection)
        names = {row.id: row.name for row in store_datasets.all_rows(connection)}
        sources = calls.origins(connection, [row.id for row in rows]) if as_json else {}
    if as_json:
        found = [
            {
                "id": r.id,
                "name": r.name,
                "dataset": names[r.dataset],
                "model": r.model,
                "samples": r.samples,
                "counts": {
                    "expected": r.expected,
                    "judged": r.judged,
                    "responses": r.responses,
                    "judgements": r.judgements,
                },
                "coverage": r.coverage,
                "status": str(r.status),
                "error": r.error,
                "simulated": r.simulated,
                "created": r.created,
                "finished": r.finished,
                "answers": [source.as_json() for source in sources[r.id]],
            }
            for r in rows
        ]
        output.line(output.as_json_text(found))
        return
    output.table(
        [("id", False), ("name", False), ("status", False), ("judged", True), ("of", True), ("", False)],
        [(r.id, r.name, r.status, r.judged, r.expected, "simulated" if r.simulated else "") for r in rows],
    )
