"""A run once more: what it was planned with, found again, repeated, or as the command that asks for the same."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from typing import TypeVar

import sqlalchemy as sa

from cimemories import seeds
from cimemories.evaluation.compositions import FindLabels
from cimemories.evaluation.judging import LLM
from cimemories.evaluation.planning import SERVERS_LIMIT, JudgeSpec, Memory, RunSpec
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.runs import recorded_prompt, recorded_wording, sessions_of
from cimemories.evaluation.sessions import Sessions
from cimemories.manifest import JudgePart, PromptPart
from cimemories.seeds.prompts import FROM_SEEDS, Prompt
from cimemories.store import datasets, runs
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.judgements import MESSAGE
from cimemories.store.runs import RunRow

T = TypeVar("T")


def planned_alike(store: Store, spec: RunSpec, find_labels: FindLabels) -> Callable[[sa.Connection], RunRow | None]:
    """What gives the newest run that was planned with these very settings, on the dataset as it is then, with the
    prompts of today and, where its memory goes by labels, with those of now; None where there is none. To be asked in a
    transaction. Raises StoreError for a dataset that is not there."""
    with store.read() as connection:
        dataset = datasets.named(connection, spec.dataset)
    source = find_labels(store, dataset.id) if spec.memory.read().needs_labels else None
    labels = json.loads(canonical_json(dict(source.origin))) if source else None
    return partial(_newest_alike, spec, labels)


def _newest_alike(spec: RunSpec, labels: object, connection: sa.Connection) -> RunRow | None:
    settings = json.loads(canonical_json(spec.as_json()))
    dataset = datasets.named(connection, spec.dataset)
    data_hash = datasets.dataset_hash(connection, dataset.id)
    for row in reversed(runs.all_rows(connection, dataset.id)):
        made = row.manifest
        same = made.request is not None and made.request.recorded == settings and made.dataset.hash == data_hash
        if same and made.seeds_hash == seeds.seeds_hash() and made.memory.labels == labels:
            return row
    return None


def spec_of(store: Store, run_id: str, *, every_judge: bool = False) -> RunSpec:
    """What to plan to repeat a run exactly: its own wording, whatever the seeds say now. every_judge: with those that
    were added later. Raises StoreError for a run that was imported, for one that explains a leak, and for one whose
    wording was not kept and has changed since."""
    with store.read() as connection:
        row = runs.named(connection, run_id)
        manifest = row.manifest
        if manifest.request is None:
            raise StoreError(f"{run_id} was imported from a file: what it was asked with is not known.")
        if row.explains:
            # Its manifest has the settings of the whole run that it explains.
            raise StoreError(f"{run_id} explains a leak of {row.explains}: repeat that run, or use `cimemories why`.")
        wording = recorded_wording(connection, row)
        # The judges that the run began with; others may have been added since.
        first = manifest.judges if every_judge else manifest.judges[: 1 + len(manifest.request.more_judges)]
        judges = tuple(_judge_spec(connection, run_id, judge) for judge in first)
    prompts = {"respond": wording.respond}
    if manifest.memory.template:
        prompts["memory"] = wording.lines
    if wording.earlier is not None:
        prompts["session"] = wording.earlier
    if wording.before is not None:
        prompts[manifest.mitigation.kind] = wording.before
    recorded = manifest.request.recorded
    memory = recorded.get("memory") or {}
    plain = {name: recorded[name] for name in _PLAIN if name in recorded}
    return RunSpec(
        **plain,
        judge=judges[0],
        more_judges=judges[1:],
        memory=Memory(**{**memory, "prices": Prices.of(memory.get("prices"))}),
        prompts=prompts,
        prices=Prices.of(recorded.get("prices")),
        reference=wording.reference,
        sessions=sessions_of(row),
    )


_READ_APART = {"judge", "more_judges", "memory", "prompts", "name", "prices", "reference", "sessions"}
_PLAIN = {item.name for item in fields(RunSpec)} - _READ_APART


def _judge_spec(connection: sa.Connection, run_id: str, judge: JudgePart) -> JudgeSpec:
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
        reference=Reference.of(judge.reference),
    )


def command_of(spec: RunSpec) -> str:
    """The command line that asks for the same run; wording of a file by its name. Raises StoreError where no options
    can ask its judges as it did: what a command left out, its run would do another way."""
    options: list[object] = ["cimemories", "run", "--dataset", spec.dataset, "--model", spec.model]
    options += ["--base-url", spec.base_url]
    usual = RunSpec(spec.dataset, spec.model, spec.base_url)
    if spec.reference is not None:
        options += ["--reference"]
        usual = replace(usual, max_tokens=None, memory=Memory(template="plain"))
    for name in ("samples", "profiles", "contexts", "api_key_env", "temperature", "seed", "timeout"):
        options += _option(name, getattr(spec, name), getattr(usual, name))
    options += _option("max_tokens", _limit(spec.max_tokens), _limit(usual.max_tokens))
    for name in ("prompt_level", "thinking", "mitigation", "check", "preset"):
        options += _option(name, getattr(spec, name), getattr(usual, name))
    options += _option("prompt_file", _file(spec.prompts.get("respond")), None)
    options += _option("memory", spec.memory.composition, "full")
    for name in ("order", "seed", "template"):
        options += _option(f"memory_{name}", getattr(spec.memory, name), getattr(usual.memory, name))
    if spec.sessions is not None:
        options += ["--sessions", spec.sessions.label]
        for name in ("order", "seed"):
            options += _option(f"session_{name}", getattr(spec.sessions, name), getattr(Sessions(), name))
    for name, value in spec.sampling.items():
        options += ["--set", f"{name}={json.dumps(value)}"]
    if spec.prices is not None:
        options += ["--price", spec.prices.text]
    if spec.memory.prices is not None:
        options += ["--memory-price", spec.memory.prices.text]
    options += _option("cap", spec.cap, None)
    options += ["--fresh"] if spec.fresh else []
    options += _judge_options(spec)
    return " ".join(shlex.quote(str(option)) for option in options)


def _limit(limit: int | None) -> int | str:
    return SERVERS_LIMIT if limit is None else limit


def _option(name: str, value: object, usual: object) -> list[object]:
    return [] if value == usual or value is None else [f"--{name.replace('_', '-')}", value]


def _judge_options(spec: RunSpec) -> list[object]:
    """The options for all judges of a run. Raises StoreError like `command_of`."""
    models = [judge for judge in spec.judges if judge.kind == LLM and judge.channel == MESSAGE]
    reasoning = [judge for judge in spec.judges if judge.channel != MESSAGE]
    rest = [judge for judge in spec.judges if judge.kind != LLM]
    if [*models, *reasoning, *rest] != list(spec.judges):
        raise _no_command("its judges are in another order: options put models before the matcher")
    if reasoning and reasoning != [replace(judge, channel=reasoning[0].channel) for judge in models[:1]]:
        raise _no_command("its reasoning is not judged as its messages are, by the first judge alone")
    prompts = [
        f"{judge.prompt.source}:{judge.prompt.level}" if judge.prompt and _file(judge.prompt) else None
        for judge in models
    ]
    prices = [judge.prices.text if judge.prices else None for judge in models]
    options: list[object] = []
    for judge in models:
        options += ["--judge-model", judge.model]
    options += _for_each("judge_base_url", [judge.base_url for judge in models])
    keys = [judge.api_key_env for judge in models]
    # A judge without a variable of its own is asked with that of the model under test.
    options += [] if set(keys) <= {spec.api_key_env} else _for_each("judge_api_key_env", keys)
    options += _for_all("judge_split", [judge.split for judge in models])
    # The default depends on the server; reference settings set the limit themselves.
    if spec.reference is None:
        options += _for_all("judge_max_tokens", [_limit(judge.max_tokens) for judge in models])
    for name, value in _same("judge_set", [judge.fields for judge in models], {}).items():
        options += ["--judge-set", f"{name}={json.dumps(value)}"]
    options += _for_all("judge_prompt", prompts)
    if None in prices and set(prices) != {None}:
        raise _no_command("--judge-price is for all judges or for none")
    options += _for_each("judge_price", prices)
    options += ["--judge-reasoning"] if reasoning else []
    for judge in rest:
        options += ["--judge", judge.kind]
    return options


def _file(prompt: Prompt | None) -> str | None:
    """The file that a prompt is of; None for one of the seeds, and where there is none."""
    return None if prompt is None or prompt.source == FROM_SEEDS else prompt.source


def _for_each(name: str, values: Sequence[object]) -> list[object]:
    """A repeatable option: once where all judges have the same value, else once for each in their order."""
    given = values if len(set(values)) > 1 else values[:1]
    return list(chain.from_iterable(_option(name, value, None) for value in given))


def _for_all(name: str, values: Sequence[object]) -> list[object]:
    """An option that holds for all judges. Raises StoreError like `command_of` where they differ."""
    return _option(name, _same(name, values, None), None)


def _same(name: str, values: Sequence[T], none: T) -> T:
    """What all judges have, `none` where there are none. Raises StoreError like `command_of` where they differ."""
    if any(value != values[0] for value in values):
        raise _no_command(f"its judges differ in --{name.replace('_', '-')}, which is for all of them")
    return values[0] if values else none


def _no_command(why: str) -> StoreError:
    return StoreError(f"no `cimemories run` asks for the same: {why}. `cimemories repeat` with the run's id does.")
