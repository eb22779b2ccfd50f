"""A run once more: read by another judge, repeated as it was, or described as the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import fields, replace

import sqlalchemy as sa

from cimemories import seeds
from cimemories.evaluation.costs import Prices
from cimemories.evaluation.judging import CHECK, LLM
from cimemories.evaluation.planning import (
    SERVERS_LIMIT,
    JudgeSpec,
    Memory,
    PlannedJudge,
    RunSpec,
    add_judge,
    look_up,
    planned_judge,
    refuse_simulated_judges,
    with_identity,
)
from cimemories.manifest import JudgePart, PromptPart
from cimemories.seeds.prompts import FROM_SEEDS, Prompt
from cimemories.store import calls, runs, work
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.runs import RunRow
from cimemories.store.tables import run as run_table


def judge_again(store: Store, run_id: str, judges: Sequence[JudgeSpec], *, check: bool = False) -> list[int]:
    """Give a run further judges; returns their ids. `resume` then asks for their judgements and for nothing else.

    check: the first model among them also says whether each message does its task. Raises StoreError where a judge
    reads this run already, or where somebody is at work on it, and EndpointError where a judge cannot be reached.
    """
    planned = []
    for judge in judges:
        if judge.kind == LLM:
            server = look_up(judge.base_url, judge.api_key_env, judge.model, 1, True, None)
            planned.append(planned_judge(judge, with_identity(store, judge.base_url, server)))
        else:
            planned.append(PlannedJudge(judge.kind, judge))
    # Servers are asked before this: a slow one must not hold the lock on writing.
    with store.write() as connection:
        row = runs.named(connection, run_id)
        if work.is_alive(work.load(connection, run_id)):
            raise StoreError(f"{run_id} is running. Wait for it, or pause it, then give it another judge.")
        refuse_simulated_judges(messages_simulated(row), planned)
        unpriced = [judge.model for judge in judges if judge.kind == LLM and judge.prices is None]
        if row.manifest.cap is not None and unpriced:
            raise StoreError(
                f"{run_id} has a cap on cost: give the prices of {', '.join(unpriced)}, 0 for what is free (on the "
                "command line: --judge-price)."
            )
        calls.keep_servers(connection, [judge.server.identity for judge in planned if judge.server])
        before = _judges(connection, run_id)
        ids = [add_judge(connection, run_id, judge) for judge in planned]
        # A judge that is there keeps its id. Raising takes back what add_judge has written for the others.
        already = [judge.model for judge, i in zip(judges, ids, strict=True) if i in before]
        if already:
            raise StoreError(f"{', '.join(already)} judges {run_id} already, with this wording and these parameters.")
        if check:
            first = next((judge for judge in planned if judge.server is not None), None)
            if first is None:
                raise StoreError("the task check by a model needs a judge that is one.")
            whole = replace(first.spec, split=None)
            add_judge(connection, run_id, PlannedJudge(CHECK, whole, first.server, seeds.load_prompt("check")))
        there_already = [judge.recorded for judge in row.manifest.judges]
        manifest = {**row.manifest.recorded, "judges": [*there_already, *(judge.as_json() for judge in planned)]}
        simulated = row.simulated or any(judge.simulated for judge in planned)
        values = {"manifest": canonical_json(manifest), "simulated": simulated}
        connection.execute(sa.update(run_table).where(run_table.c.id == run_id).values(**values))
        work.queue(connection, run_id)
    return ids


def messages_simulated(row: RunRow) -> bool:
    """Whether a simulator wrote the messages of a run. Its mark may also come from a judge alone."""
    recorded = row.manifest.model.simulated
    return row.simulated if recorded is None else recorded


def _judges(connection: sa.Connection, run_id: str) -> set[int]:
    from cimemories.store.tables import run_judge

    return set(connection.execute(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).scalars())


def spec_of(store: Store, run_id: str) -> RunSpec:
    """What to plan to repeat a run exactly: its own wording, whatever the seeds say now.

    Raises StoreError for a run that was imported, and for one whose wording was not kept and has changed since.
    """
    with store.read() as connection:
        row = runs.named(connection, run_id)
        manifest = row.manifest
        if manifest.request is None:
            raise StoreError(f"{run_id} was imported from a file: what it was asked with is not known.")
        wording = {"respond": recorded_prompt(connection, run_id, manifest.prompt)}
        if manifest.memory.template:
            wording["memory"] = recorded_prompt(connection, run_id, manifest.memory.template)
        if manifest.mitigation.prompt:
            wording[manifest.mitigation.kind] = recorded_prompt(connection, run_id, manifest.mitigation.prompt)
        # The judges that the run began with; others may have been added since.
        first = manifest.judges[: 1 + len(manifest.request.more_judges)]
        judges = tuple(_judge(connection, run_id, judge) for judge in first)
    recorded = manifest.request.recorded
    plain = {name: recorded[name] for name in _PLAIN if name in recorded}
    return RunSpec(
        **plain,
        judge=judges[0],
        more_judges=judges[1:],
        memory=Memory(**recorded["memory"]) if recorded.get("memory") else Memory(),
        prompts=wording,
        prices=Prices.of(recorded.get("prices")),
    )


_PLAIN = frozenset(item.name for item in fields(RunSpec)) - {
    "judge",
    "more_judges",
    "memory",
    "prompts",
    "name",
    "prices",
}


def _judge(connection: sa.Connection, run_id: str, judge: JudgePart) -> JudgeSpec:
    named = judge.prompt
    if named is None and judge.prompt_sha256:
        named = PromptPart(kind="judge", level="base", sha256=judge.prompt_sha256)
    # The token limit has a field of its own, whatever the server calls it (max_tokens, max_completion_tokens).
    sent = {name: value for name, value in judge.parameters.items() if not name.startswith("max_")}
    return JudgeSpec(
        kind=judge.kind,
        model=judge.model,
        base_url=judge.base_url,
        api_key_env=judge.api_key_env,
        max_tokens=judge.max_tokens,
        channel=judge.channel,
        split=judge.split,
        schema=judge.json_schema,
        # 0 is what a judge is asked with anyway; given as a field it would show as somebody's choice.
        fields={name: value for name, value in sent.items() if (name, value) != ("temperature", 0.0)},
        prompt=recorded_prompt(connection, run_id, named) if named else None,
        prices=Prices.of(judge.prices),
    )


def recorded_prompt(connection: sa.Connection, run_id: str, named: PromptPart) -> Prompt:
    """The wording that a run was planned with. One of before wordings were kept must still be that of the seeds; else
    StoreError is raised."""
    kept = runs.kept_prompts(connection, named.sha256)
    if kept is not None:
        return seeds.prompts.recorded(kept.kind, kept.level, kept.template, kept.answers, kept.source)
    current = seeds.load_prompt(named.kind, named.level)
    if current.sha256 != named.sha256:
        raise StoreError(
            f"the {named.kind} prompt has changed since {run_id} was planned, and its wording was not kept, so the "
            "rest of it would not be comparable. Start a new run, or bring the old wording back."
        )
    return current


def command_of(spec: RunSpec) -> str:
    """The command line that asks for the same run, as far as options can say it; wording of a file by its name."""
    words: list[object] = ["cimemories", "run", "--dataset", spec.dataset, "--model", spec.model]
    words += ["--base-url", spec.base_url]
    usual = RunSpec(spec.dataset, spec.model, spec.base_url)
    for name in ("samples", "profiles", "contexts", "api_key_env", "temperature", "seed", "timeout"):
        words += _option(name, getattr(spec, name), getattr(usual, name))
    words += _option("max_tokens", _limit(spec.max_tokens), usual.max_tokens)
    for name in ("prompt_level", "thinking", "mitigation", "check", "preset"):
        words += _option(name, getattr(spec, name), getattr(usual, name))
    respond = spec.prompts.get("respond")
    if respond is not None and respond.source != FROM_SEEDS:
        words += ["--prompt-file", respond.source]
    words += _option("memory", spec.memory.composition, "full")
    for name in ("order", "seed", "template"):
        words += _option(f"memory_{name}", getattr(spec.memory, name), getattr(usual.memory, name))
    for name, value in spec.sampling.items():
        words += ["--set", f"{name}={json.dumps(value)}"]
    if spec.prices is not None:
        words += ["--price", spec.prices.words()]
    words += _option("cap", spec.cap, None)
    words += ["--fresh"] if spec.fresh else []
    for judge in spec.judges:
        words += _judge_words(judge)
    return " ".join(shlex.quote(str(word)) for word in words)


def _limit(limit: int | None) -> int | str:
    return SERVERS_LIMIT if limit is None else limit


def _option(name: str, value: object, usual: object) -> list[object]:
    return [] if value == usual or value is None else [f"--{name.replace('_', '-')}", value]


def _judge_words(judge: JudgeSpec) -> list[object]:
    if judge.kind != LLM:
        return ["--judge", judge.kind]
    if judge.channel != "message":
        return ["--judge-reasoning"]
    words: list[object] = ["--judge-model", judge.model, "--judge-base-url", judge.base_url]
    usual = JudgeSpec()
    for name in ("api_key_env", "split"):
        words += _option(f"judge_{name}", getattr(judge, name), getattr(usual, name))
    words += _option("judge_max_tokens", _limit(judge.max_tokens), None)  # the default depends on the server
    for name, value in judge.fields.items():
        words += ["--judge-set", f"{name}={json.dumps(value)}"]
    if judge.prompt is not None and judge.prompt.source != FROM_SEEDS:
        words += ["--judge-prompt", f"{judge.prompt.source}:{judge.prompt.level}"]
    if judge.prices is not None:
        words += ["--judge-price", judge.prices.words()]
    return words
