"""A run once more: read by another judge, repeated as it was, or described as the command that repeats it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import sqlalchemy as sa

from cimemories import seeds
from cimemories.evaluation.checking import CHECK
from cimemories.evaluation.judging import LLM
from cimemories.evaluation.planning import add_judge, refuse_simulated_judges, seat_of
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.servers import look_up, told_apart
from cimemories.evaluation.spec import SERVERS_LIMIT, JudgeSpec, Memory, RunSpec
from cimemories.seeds import Prompt
from cimemories.seeds.prompts import FROM_SEEDS
from cimemories.store import prompts, runs, servers, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.ids import canonical_json
from cimemories.store.runs import RunRow
from cimemories.store.tables import run as run_table


def judge_again(store: Store, run_id: str, judges: Sequence[JudgeSpec], *, check: bool = False) -> list[int]:
    """Give a run further judges; returns their ids. `resume` then asks for their judgements and for nothing else.

    check: the first model among them also says whether each message does its task. Raises StoreError where a judge
    reads this run already, or where somebody is at work on it, and EndpointError where a judge cannot be reached.
    """
    seats = []
    for judge in judges:
        model = judge.kind == LLM
        server = None
        if model:
            answer = look_up(judge.base_url, judge.api_key_env, judge.model, 1, True, None)
            server = told_apart(store, judge.base_url, answer)
        seats.append((judge, server, (judge.prompt or seeds.load_prompt("judge")) if model else None))
    with store.write() as connection:
        row = runs.named(connection, run_id)
        if work.is_alive(work.load(connection, run_id)):
            raise StoreError(f"{run_id} is at work. Wait for it, or pause it, then give it another judge.")
        refuse_simulated_judges(messages_simulated(row), [(judge, server) for judge, server, _ in seats])
        unpriced = [judge.model for judge in judges if judge.kind == LLM and judge.prices is None]
        if row.manifest.get("cap") is not None and unpriced:
            raise StoreError(
                f"{run_id} has a cap on cost: give the prices of {', '.join(unpriced)}, 0 for what is free (on the "
                "command line: --judge-price)."
            )
        servers.remember(connection, [server.identity for _, server, _ in seats if server is not None])
        before = _judges(connection, run_id)
        ids = [add_judge(connection, run_id, *seat) for seat in seats]
        there = [judge.model for judge, i in zip(judges, ids, strict=True) if i in before]
        if there:
            raise StoreError(f"{', '.join(there)} judges {run_id} already, with this wording and these parameters.")
        if check:
            first = next((seat for seat in seats if seat[1] is not None), None)
            if first is None:
                raise StoreError("the task check by a model needs a judge that is one.")
            judge, server, _ = first
            add_judge(connection, run_id, replace(judge, split=None), server, seeds.load_prompt("check"), kind=CHECK)
        manifest = dict(row.manifest)
        held: Any = manifest.get("judges") or [manifest[name] for name in ("judge",) if name in manifest]
        manifest["judges"] = [*held, *(seat_of(*seat) for seat in seats)]
        simulated = row.simulated or any(server is not None and server.simulated for _, server, _ in seats)
        values = {"manifest": canonical_json(manifest), "simulated": simulated}
        connection.execute(sa.update(run_table).where(run_table.c.id == run_id).values(**values))
        work.queue(connection, run_id)
    return ids


def messages_simulated(row: RunRow) -> bool:
    """Whether a simulator wrote the messages of a run. Its mark may also come from a judge alone."""
    model = row.manifest.get("model")
    return bool(model.get("simulated", row.simulated)) if isinstance(model, Mapping) else row.simulated


def _judges(connection: sa.Connection, run_id: str) -> set[int]:
    from cimemories.store.tables import run_judge

    return set(connection.execute(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).scalars())


def spec_of(store: Store, run_id: str) -> RunSpec:
    """What to plan to repeat a run exactly: its own wording, whatever the seeds say now.

    Raises StoreError for a run that was imported, and for one whose wording was not kept and has changed since.
    """
    with store.read() as connection:
        row = runs.named(connection, run_id)
        manifest: Mapping[str, Any] = row.manifest
        asked = manifest.get("asked")
        if asked is None:
            raise StoreError(f"{run_id} was imported from a file: what it was asked with is not known.")
        memory, mitigation = manifest.get("memory") or {}, manifest.get("mitigation") or {}
        wording = {"respond": _kept(connection, run_id, manifest["prompt"])}
        if memory.get("template"):
            wording["memory"] = _kept(connection, run_id, memory["template"])
        if mitigation.get("prompt"):
            wording[str(mitigation["kind"])] = _kept(connection, run_id, mitigation["prompt"])
        judges = tuple(_judge(connection, run_id, item) for item in _asked_judges(manifest))
    plain = {name: asked[name] for name in _PLAIN if name in asked}
    return RunSpec(
        **plain,
        judge=judges[0],
        more_judges=judges[1:],
        memory=Memory(**asked["memory"]) if asked.get("memory") else Memory(),
        prompts=wording,
        prices=Prices.of(asked.get("prices")),
    )


_PLAIN = frozenset(item.name for item in fields(RunSpec)) - {
    "judge",
    "more_judges",
    "memory",
    "prompts",
    "name",
    "prices",
}


def _asked_judges(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The judges that a run began with, each with what the manifest says of it now."""
    seats: list[Mapping[str, Any]] = manifest.get("judges") or [manifest["judge"]]
    return seats[: 1 + len(manifest["asked"].get("more_judges") or ())]


def _judge(connection: sa.Connection, run_id: str, seat: Mapping[str, Any]) -> JudgeSpec:
    named = seat.get("prompt") or (
        {"kind": "judge", "level": "base", "sha256": seat["prompt_sha256"]} if seat.get("prompt_sha256") else None
    )
    sent = {name: value for name, value in seat.get("parameters", {}).items() if not name.startswith("max_")}
    return JudgeSpec(
        kind=seat["kind"],
        model=seat["model"],
        base_url=seat["base_url"],
        api_key_env=seat["api_key_env"],
        max_tokens=seat["max_tokens"],
        channel=seat.get("channel", "message"),
        split=seat.get("split"),
        schema=seat.get("schema"),
        fields={name: value for name, value in sent.items() if (name, value) != ("temperature", 0.0)},
        prompt=_kept(connection, run_id, named) if named else None,
        prices=Prices.of(seat.get("prices")),
    )


def _kept(connection: sa.Connection, run_id: str, named: Mapping[str, Any]) -> Prompt:
    kept = prompts.kept(connection, str(named["sha256"]))
    if kept is not None:
        return seeds.prompts.recorded(kept.kind, kept.level, kept.template, kept.answers, kept.source)
    current = seeds.load_prompt(str(named["kind"]), str(named["level"]))
    if current.sha256 != named["sha256"]:
        raise StoreError(f"the {named['kind']} prompt of {run_id} was not kept and has changed since.")
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
