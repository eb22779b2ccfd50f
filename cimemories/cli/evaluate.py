"""Commands that run models, go on with what is owed, and list runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cimemories.cli import output
from cimemories.cli.base import (
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
    cli,
    token_limit,
)
from cimemories.store import engine
from cimemories.store.engine import DEFAULT_WORKSPACE, Store, StoreError, open_patiently, open_store

if TYPE_CHECKING:
    from cimemories.compare.sweeps import SweepTable
    from cimemories.evaluation.batches import BatchImported
    from cimemories.evaluation.estimates import StageEstimate
    from cimemories.evaluation.planning import JudgeSpec, RunSpec
    from cimemories.evaluation.sweeps import SweepEstimate
    from cimemories.llm.executor import Progress
    from cimemories.seeds.prompts import Prompt
    from cimemories.store.runs import RunRow

# ---- working
#
# Doing the work of a labelling, a run, a sweep or a generation from a command, with its progress on standard error.


INCOMPLETE = 3  # exit status
UNITS = {"run": "responses", "sweep": "responses", "labelling": "ballots", "generation": "parts"}


def work_on(
    store: Store,
    work_id: str,
    concurrency: int,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    *,
    queued: bool = False,
    allow_missing: float = 0.0,
) -> None:
    """Execute with a progress line; the id is printed at the end whatever happens, so that it can be resumed.

    Ends the command with status 3 where more than the share `allow_missing` of what was planned is missing.
    """
    from cimemories.curation import authoring as curation_authoring
    from cimemories.curation import labelling as curation_labelling
    from cimemories.evaluation import runs as evaluation_runs
    from cimemories.metrics.headline import warm
    from cimemories.store import work as store_work

    store = store.patient()
    table = store_work.table_of(work_id)
    with store.read() as connection:
        store_work.load(connection, work_id)
    if table.name == "sweep":
        _sweep(store, work_id, concurrency, allow_missing, moved=bool(base_url or judge_base_url), queued=queued)
        return
    try:
        with output.progress(store, work_id) as report:
            if table.name == "run":
                evaluation_runs.execute(
                    store,
                    work_id,
                    base_url=base_url,
                    judge_base_url=judge_base_url,
                    concurrency=concurrency,
                    on_progress=report,
                    queued=queued,
                )
            elif table.name == "generation":
                curation_authoring.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
            else:
                curation_labelling.execute(
                    store, work_id, base_url=base_url, concurrency=concurrency, on_progress=report, queued=queued
                )
        output.outcome(store, work_id)
        if table.name != "generation":
            warm(store, work_id)
        exit_if_incomplete(store, work_id, allow_missing)
    finally:
        output.line(work_id)


def exit_if_incomplete(store: Store, work_id: str, allow_missing: float, *, tried: bool = False) -> None:
    """End the command with status 3 where more than this share of what was planned is missing, and say how much it is.
    tried: count only what was tried and failed, not what is still owed."""
    from cimemories.store.work import outcome

    with store.read() as connection:
        found = outcome(connection, work_id)
    count, share = (found.failed, found.failed_share) if tried else (found.missing, found.share)
    if not count:
        return
    what = UNITS[work_id.partition("-")[0]]
    how = "failed" if tried else "are missing or incomplete"
    words = f"{work_id}: {count:,} of {found.planned:,} planned {what} {how}"
    if share <= allow_missing:
        output.note(f"{words} ({output.percent(share)}), allowed by --allow-missing {allow_missing:g}")
        return
    again = f"`cimemories resume {work_id}` asks again for failed calls, not for answers that were refused or cut"
    output.note(f"{words} ({output.percent(share)}); {again}")
    raise typer.Exit(INCOMPLETE)


def _sweep(store: Store, sweep_id: str, concurrency: int, allow_missing: float, *, moved: bool, queued: bool) -> None:
    from cimemories.compare.sweeps import sweep_table

    if moved:
        raise StoreError("the runs of a sweep may have servers of their own: move one with `cimemories resume RUN`.")
    try:
        execute(store, sweep_id, concurrency, queued=queued)
        sweep_table(store, sweep_id)  # so that no page has to wait for its numbers
        exit_if_incomplete(store, sweep_id, allow_missing)
    finally:
        output.line(sweep_id)


# ---- batch
#
# Commands for runs by batch file.


batch = typer.Typer(help="Write what a run owes as a batch file, and take the answers back.", no_args_is_help=True)
cli.add_typer(batch, name="batch")
MOST_LINES, MOST_BYTES = 50_000, 200 << 20  # of one file for OpenAI's Batch API


@batch.command("export")
def export_(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run; `cimemories runs` lists them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, one request a line.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Only what is asked of this model (a judge's, say).")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Write over a file that is there.")] = False,
    as_json: AsJson = False,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Write every call that a run owes, for `vllm run-batch` or OpenAI's Batch API.

    Example: cimemories batch export run-3f9a1c2e --out owed.jsonl
    """
    from cimemories.evaluation.batches import export_batch

    store = open_store(workspace)
    with engine.written_for_user(out, workspace):
        found = export_batch(store, run, out, model=model, replace=replace)
    size = out.stat().st_size if found.lines else 0
    if as_json:
        told = {"path": str(out) if found.lines else None, "lines": found.lines, "bytes": size}
        asked_of = {"kinds": dict(found.kinds), "models": dict(found.models), "other_models": found.elsewhere}
        output.line(output.as_json_text({**told, **asked_of}))
        return
    if not found.lines:
        output.line(f"{run} owes nothing{f' of {model}' if found.elsewhere else ''}; no file was written")
    else:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.kinds.items())
        output.line(f"{found.lines:,} calls of {run} ({kinds}): {out} ({size / 1e6:,.1f} MB)")
    if found.elsewhere:
        output.note(f"note: {found.elsewhere:,} calls of other models are owed too")
    if len(found.models) > 1:
        asked = ", ".join(found.models)
        output.note(f"note: the file asks several models ({asked}); a batch is answered by one: use --model")
    if found.lines > MOST_LINES or size > MOST_BYTES:
        output.note("note: OpenAI's Batch API takes 50,000 lines and 200 MB a file; vllm run-batch has no such limit")


@batch.command("import")
def import_(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run that the answers are for.")],
    file: Annotated[Path, typer.Argument(help="The answers, one a line; the file of errors can be imported too.")],
    as_json: AsJson = False,
    allow_missing: AllowMissing = 0.0,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Take the answers of a batch into a run; what they make necessary (judgements) is owed afterwards.

    Example: cimemories batch import run-3f9a1c2e answers.jsonl
    """
    from cimemories.evaluation.batches import import_batch

    store = open_store(workspace)
    found = import_batch(store, run, file)
    _told(run, found, as_json)
    # What the next files will bring is no failure; what this one was to bring and did not is.
    exit_if_incomplete(store, run, allow_missing, tried=True)


def _told(run: str, found: BatchImported, as_json: bool) -> None:
    if as_json:
        told = {"answers": found.settled, "failed": dict(found.failed), "already_there": found.there}
        strays = {"unknown": found.unknown, "unknown_ids": list(found.unknown_ids), "repeated": found.repeated}
        output.line(output.as_json_text({"run": run, **told, **strays, "owed": found.owed}))
        return
    output.line(f"{run}: {found.settled:,} answers taken, {found.owed:,} calls owed")
    if found.there:
        output.note(f"note: {found.there:,} lines are in the record already")
    for cause, count in found.failed.most_common():
        output.note(f"note: {count:,} failed ({cause}): recorded, and owed again")
    if found.unknown:
        named = ", ".join(repr(custom_id[:64]) for custom_id in found.unknown_ids)
        more = (
            "" if found.unknown <= len(found.unknown_ids) else f" and {found.unknown - len(found.unknown_ids):,} more"
        )
        output.note(f"note: {found.unknown:,} lines belong to no call of this run: {named}{more}")
    if found.repeated:
        output.note(f"note: {found.repeated:,} lines repeat a custom_id; the first that went well was taken")
    if found.owed:
        output.note(f"note: next: cimemories batch export {run} --out FILE, or cimemories resume {run}")


# ---- costs
#
# What work would cost, and what it has cost, as commands print it.


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


# ---- pause
#
# The command that pauses work: unlike cancelling, it loses no call that is under way.


@cli.command()
def pause(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Let the calls in flight of a run end, then stop until it is resumed.  Example: cimemories pause run-3f9a1c2e"""
    from cimemories.model import WorkStatus
    from cimemories.store import work as store_work

    store = open_store(workspace)
    with store.write() as connection:
        store_work.request_pause(connection, work_id)
        status = WorkStatus(store_work.load(connection, work_id)["status"])
    if status == WorkStatus.PAUSING:
        output.note(f"{work_id}: pausing. Its calls in flight end first; then `cimemories resume {work_id}` goes on.")
    elif status == WorkStatus.PAUSED:
        output.note(f"{work_id}: paused. `cimemories resume {work_id}` goes on.")
    else:
        output.note(f"{work_id}: nothing to pause, it is {status}.")


# ---- run
#
# Commands that plan runs: a new one, one more judge for an old one, the same once more.


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


# ---- sweep
#
# Commands for sweeps: many runs from one file, planned in one go and worked off as one piece of work.


@cli.command()
def sweep(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="What to run, as docs/sweeps.md says it.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would ask, cost and take; nothing is started.")
    ] = False,
    show: Annotated[
        str | None, typer.Option("--show", metavar="ID", help="The table of a sweep that is there.")
    ] = None,
    as_json: AsJson = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Run models x memories x prompts from one file; waits, and prints the sweep's id last. `resume` goes on with it.

    Example: cimemories sweep small-models.yaml --plan
    """
    from cimemories.compare.sweeps import sweep_table
    from cimemories.evaluation import sweeps as evaluation_sweeps
    from cimemories.evaluation.sweeps import read_sweep
    from cimemories.labels.whatif import effective_labels

    if (file is None) == (show is None):
        raise StoreError("give the FILE of a sweep to run, or --show ID for one that is there.")
    store = open_store(workspace)
    if show is not None:
        table(sweep_table(store, show), as_json)
        return
    assert file is not None
    spec = read_sweep(file)
    found = evaluation_sweeps.estimate_sweep(store, spec, find_labels=effective_labels, concurrency=concurrency)
    if plan:
        estimated_sweep(found, as_json)
        return
    if found.total.warning:
        output.note(f"warning: {found.total.warning}")
    sweep_id = evaluation_sweeps.plan(store, spec, find_labels=effective_labels, estimated=found)
    work_on(store, sweep_id, concurrency, allow_missing=allow_missing)


@cli.command()
def sweeps(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the sweeps, each with the table of its cells.  Example: cimemories sweeps --json"""
    from cimemories.compare.sweeps import sweep_table
    from cimemories.store import runs as store_runs

    store = open_store(workspace)
    with store.read() as connection:
        found = [row.id for row in store_runs.all_sweeps(connection)]
    tables = [sweep_table(store, sweep_id) for sweep_id in found]
    if as_json:
        output.line(output.as_json_text([item.as_json() for item in tables]))
        return
    for item in tables:
        table(item, False)
    if not tables:
        output.note("no sweep yet: `cimemories sweep FILE.yaml` runs one (docs/sweeps.md).")


def table(found: SweepTable, as_json: bool) -> None:
    """One sweep with its cells."""
    from cimemories.evaluation.costs import money

    if as_json:
        output.line(output.as_json_text(found.as_json()))
        return
    row, cost = found.row, found.cost
    cap = f", cap {money(row.cap, cost.currency)}" if row.cap is not None else ""
    output.line(
        f"{row.id}  {row.name}: {row.status}, {found.done} of {len(found.cells)} cells, cost {cost.words()}{cap}"
    )
    axes = _varying(
        [
            (c.run.model, c.run.composition, c.run.prompt_level, c.mitigation, c.thinking, c.run.name)
            for c in found.cells
        ]
    )
    numbers = (f"V@{max((c.run.samples for c in found.cells), default=1)}", "C", "coverage", "does task", "cost")
    output.table(
        [("run", False), *((title, False) for title, _ in axes), ("status", False), *((n, True) for n in numbers)],
        [
            (
                cell.run.id,
                *(values[place] for _, values in axes),
                cell.status,
                output.percent(cell.violation),
                output.percent(cell.completeness),
                output.percent(cell.coverage),
                output.percent(cell.does_task),
                cell.cost.words(),
            )
            for place, cell in enumerate(found.cells)
        ],
        whole=True,
    )
    if any(cell.run.simulated for cell in found.cells):
        output.note("note: simulated; says nothing about any real model")
    if row.error:
        output.note(f"note: {row.error}")
    for text in found.warnings:
        output.note(f"warning: {text}")


def estimated_sweep(found: SweepEstimate, as_json: bool) -> None:
    """What a sweep would come to, by cell and in all; nothing is started."""

    total = found.total
    if as_json:
        output.line(output.as_json_text({**found.as_json(), "assumptions": list(total.notes)}))
        return
    axes = _varying(
        [(r.model, r.memory.composition, r.prompt_level, str(r.mitigation), r.thinking, r.base_url) for r in found.runs]
    )
    numbers = ("responses", "recorded", "requests", "prompt tokens", "completion tokens", "cost", "time")
    rows = [
        (
            *(values[place] for _, values in axes),
            f"{cell.responses:,}",
            f"{cell.recorded:,}",
            f"{cell.requests:,}",
            f"{cell.prompt_tokens:,}",
            f"{cell.completion_tokens:,}",
            "not known" if cell.unpriced else cell.cost_words,
            duration(cell.seconds),
        )
        for place, cell in enumerate(found.cells)
    ]
    output.table([*((title, False) for title, _ in axes), *((name, True) for name in numbers)], rows, whole=True)
    output.line(f"cells      {len(found.cells):,} with {total.responses:,} responses")
    output.line(f"requests   {total.requests:,}; {total.recorded:,} of {total.draws:,} draws are in the record by then")
    output.line(f"tokens     about {total.prompt_tokens:,} of prompts and {total.completion_tokens:,} of completions")
    output.line(f"cost       {total.cost_words}")
    output.line(f"time       {duration(total.seconds)}")
    for text in total.notes:
        output.note(f"note: {text}")
    if total.warning:
        output.note(f"warning: {total.warning}")


def _varying(cells: Sequence[Sequence[str]]) -> list[tuple[str, tuple[str, ...]]]:
    """The axes of a grid in which its cells differ, each with the value of every cell; the model in any case. What is
    behind the named axes is shown where nothing else tells two cells apart."""
    titles = ("model", "memory", "prompt", "mitigation", "thinking")
    columns = list(zip(*cells, strict=True))
    found = [
        (title, values)
        for title, values in zip(titles, columns, strict=False)
        if title == "model" or len({*values}) > 1
    ]
    told = {tuple(values[place] for _, values in found) for place in range(len(cells))}
    return found if len(told) == len(cells) or not columns else [*found, ("", columns[-1])]


def execute(store: Store, sweep_id: str, concurrency: int, *, queued: bool) -> None:
    """Work a sweep off, with a progress line for each of its runs."""
    from cimemories.evaluation import sweeps as evaluation_sweeps

    @contextmanager
    def begin(row: RunRow, number: int, count: int) -> Iterator[Callable[[Progress], None]]:
        output.note(f"{sweep_id}: {number} of {count}, {row.name}, {row.composition}")
        with output.progress(store, row.id) as report:
            yield report
        output.outcome(store, row.id)

    evaluation_sweeps.execute(store, sweep_id, concurrency=concurrency, begin=begin, queued=queued)


# ---- evaluate


@cli.command()
def resume(
    work_id: Annotated[str, typer.Argument(metavar="RUN", help="Id of a run or a labelling.")],
    base_url: Annotated[str | None, typer.Option("--base-url", help="Where its server is now.")] = None,
    judge_base_url: Annotated[str | None, typer.Option("--judge-base-url")] = None,
    cap: Annotated[float | None, typer.Option("--cap", help="Another cap on cost, for a run or sweep.")] = None,
    queued: Annotated[
        bool, typer.Option("--queued", hidden=True, help="Only if it still waits for its worker.")
    ] = False,
    allow_missing: AllowMissing = 0.0,
    concurrency: Concurrency = 32,
    allow_key: AllowKeys = None,
    workspace: Workspace = DEFAULT_WORKSPACE,
) -> None:
    """Do what a run or labelling still owes, failures too; prints its id.  Example: cimemories resume run-3f9a1c2e"""
    store = open_patiently(workspace) if queued else open_store(workspace)
    if cap is not None:
        from cimemories.evaluation.costs import raise_cap

        raise_cap(store, work_id, cap)
    work_on(store, work_id, concurrency, base_url, judge_base_url, queued=queued, allow_missing=allow_missing)


@cli.command()
def cancel(work_id: Annotated[str, typer.Argument(metavar="RUN")], workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """Ask the worker of a run or labelling to stop; what is recorded stays.  Example: cimemories cancel run-3f9a1c2e"""
    from cimemories.store import work as store_work

    store = open_store(workspace)
    with store.write() as connection:
        store_work.request_cancel(connection, work_id)


@cli.command()
def runs(as_json: AsJson = False, workspace: Workspace = DEFAULT_WORKSPACE) -> None:
    """List the runs with their status.  Example: cimemories runs --json"""
    output.runs(open_store(workspace), as_json)
