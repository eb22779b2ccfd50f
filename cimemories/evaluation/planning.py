"""Planning a run: servers are looked up, every response is written down as owed, and the manifest says what shapes it.

The manifest and the wording that is kept with it are all that carrying out needs: no file that may change meanwhile.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import openai
import sqlalchemy as sa

import cimemories
from cimemories import seeds
from cimemories.evaluation.checking import CHECK, CHECK_RULES
from cimemories.evaluation.compositions import Composition, Labels, held
from cimemories.evaluation.judging import LLM
from cimemories.evaluation.mitigations import Mitigation
from cimemories.evaluation.servers import Server, look_up, told_apart
from cimemories.evaluation.spec import JUDGE_TOKENS, JudgeSpec, RunSpec
from cimemories.seeds import Prompt
from cimemories.seeds.presets import preset
from cimemories.store import datasets, judgements, memories, prompts, runs, servers, work
from cimemories.store.engine import Store, StoreError


@dataclass(frozen=True)
class LabelSource:
    """The labels that a memory composition goes by: effective labels by (attribute id, context id), and what they are
    from, for the manifest."""

    labels: Labels
    origin: Mapping[str, object]


FindLabels = Callable[[Store, int], LabelSource | None]


LookUp = Callable[[str, str, str, int, bool, int | None], Server]
Seat = tuple[JudgeSpec, Server | None, Prompt | None]


@dataclass(frozen=True)
class Wording:
    """The prompts of a run: of the message, of one memory, and of what a mitigation asks before or after it."""

    respond: Prompt
    lines: Prompt
    before: Prompt | None


@dataclass(frozen=True)
class Prepared:
    """A run whose servers have been looked up and whose wording has been read; nothing of it is written yet."""

    spec: RunSpec
    wording: Wording
    what: Composition
    server: Server
    seats: tuple[Seat, ...]
    parameters: Mapping[str, object]


def prepare(store: Store, spec: RunSpec, look_up: LookUp = look_up) -> Prepared:
    """Check what is asked for, read its wording and look its servers up; nothing is written.

    look_up: how a server is asked. Raises EndpointError, StoreError, SeedError or CompositionError.
    """

    def asked(base_url: str, key_env: str, model: str, samples: int, wants_schema: bool, seed: int | None) -> Server:
        return told_apart(store, base_url, look_up(base_url, key_env, model, samples, wants_schema, seed))

    spec.checked()
    wording = wording_of(spec)
    what = spec.memory.read()
    wants_schema = spec.mitigation == Mitigation.GATE
    server = asked(spec.base_url, spec.api_key_env, spec.model, spec.samples, wants_schema, spec.seed)
    seats = [
        (judge, asked(judge.base_url, judge.api_key_env, judge.model, 1, True, None), judge_prompt(judge))
        if judge.kind == LLM
        else (judge, None, None)
        for judge in spec.judges
    ]
    refuse_simulated_judges(server.simulated, [(judge, of) for judge, of, _ in seats])
    parameters = spec.parameters(server.token_limit, thinking_of(spec.preset))
    return Prepared(spec, wording, what, server, tuple(seats), parameters)


def refuse_simulated_judges(messages_simulated: bool, judges: Sequence[tuple[JudgeSpec, Server | None]]) -> None:
    """Raises StoreError where a simulated judge is to read what a real model wrote: what it says would be made up."""
    for judge, server in judges:
        if server is not None and server.simulated and not messages_simulated:
            raise StoreError(
                f"{judge.model} at {judge.base_url} is a simulated judge, and the messages are of a real model: what "
                "it says of them would be made up. Let a model that is served judge, or the matcher, which needs none "
                "(on the command line: --judge-model MODEL --judge-base-url URL, or --judge matcher)."
            )


def plan(
    store: Store, spec: RunSpec, *, find_labels: FindLabels | None = None, sweep: str | None = None, cell: int = 0
) -> str:
    """Look the servers up, write down every response that the run is to have, and return the run's id.

    find_labels: gives the labels of a dataset for a memory that goes by them. sweep, cell: what the run is a part of.
    Raises EndpointError, StoreError, SeedError or CompositionError before anything is written.
    """
    prepared = prepare(store, spec)
    with store.write() as connection:
        return write(connection, store, prepared, find_labels=find_labels, sweep=sweep, cell=cell)


def write(
    connection: sa.Connection,
    store: Store,
    prepared: Prepared,
    *,
    find_labels: FindLabels | None = None,
    sweep: str | None = None,
    cell: int = 0,
) -> str:
    """Write a prepared run with all its responses in the transaction at hand; returns its id. Raises like `plan`."""
    spec, wording, what, server = prepared.spec, prepared.wording, prepared.what, prepared.server
    seats = prepared.seats
    dataset = datasets.named(connection, spec.dataset)
    source = find_labels(store, dataset.id) if find_labels and what.needs_labels else None
    profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
    context_ids = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
    data_hash = datasets.dataset_hash(connection, dataset.id)
    for prompt in (wording.respond, wording.lines, wording.before, *(prompt for _, _, prompt in seats)):
        if prompt is not None:
            keep(connection, prompt)
    servers.remember(connection, [server.identity, *(s.identity for _, s, _ in seats if s is not None)])
    run_id = runs.add(
        connection,
        {
            "name": spec.name or _name(spec, dataset.name),
            "dataset": dataset.id,
            "dataset_hash": data_hash,
            "model": spec.model,
            "endpoint": spec.base_url,
            "simulated": server.simulated or any(s.simulated for _, s, _ in seats if s is not None),
            "samples": spec.samples,
            "seed": seed_of(spec, server),
            "prompt_level": wording.respond.level,
            "prompt_hash": wording.respond.sha256,
            "composition": what.label,
            "parameters": "{}",
            "sweep": sweep,
            "cell": cell if sweep else None,
        },
        manifest={
            "dataset": {"name": dataset.name, "hash": data_hash, "source": dataset.source_name},
            "model": {
                "name": spec.model,
                "endpoint": spec.base_url,
                **server.as_json(),
                "prices": spec.prices.as_json() if spec.prices else None,
            },
            "prompt": _named(wording.respond),
            "memory": {
                "composition": what.label,
                "order": str(what.order),
                "seed": what.seed,
                "template": _named(wording.lines),
                "labels": dict(source.origin) if source else None,
            },
            "mitigation": {
                "kind": str(spec.mitigation),
                "prompt": _named(wording.before) if wording.before else None,
            },
            "parameters": dict(prepared.parameters),
            "sampling": "as sent" if spec.sampling or spec.temperature is not None else "the model's defaults",
            "judge": seat_of(*seats[0]),
            "judges": [seat_of(*seat) for seat in seats],
            "check": spec.check,
            "cap": spec.cap,
            "fresh": spec.fresh,
            "seeds_hash": seeds.seeds_hash(),
            "asked": spec.asked(),
            "versions": {
                "cimemories": cimemories.__version__,
                "revision": cimemories.revision(),
                "openai": openai.__version__,
                "python": platform.python_version(),
                "server": server.version,
            },
        },
    )
    ids = [add_judge(connection, run_id, *seat, timeout=spec.timeout) for seat in seats]
    if len(set(ids)) < len(ids):
        raise StoreError("two of the judges are the same (model, wording and parameters): leave one out.")
    _add_checker(connection, run_id, spec, seats)
    held_by = None if what.is_plain else _memories(connection, what, profile_ids, context_ids, source)
    planned = runs.plan(connection, run_id, profile_ids, context_ids, spec.samples, what.label, held_by)
    if not planned:
        raise StoreError(_nothing(spec, what))
    work.queue(connection, run_id)
    return run_id


def seed_of(spec: RunSpec, server: Server) -> int | None:
    """The seed that is sent: to a simulator always one, to a server that refuses seeds none."""
    if spec.seed is None:
        return 0 if server.simulated else None
    return None if server.seed is False else spec.seed


def _name(spec: RunSpec, dataset: str) -> str:
    marks = {
        spec.prompt_level: "base",
        str(spec.mitigation): "none",
        spec.memory.composition: "full",
        f"thinking {spec.thinking}": "thinking default",
    }
    more = ", ".join(mark for mark, usual in marks.items() if mark != usual)
    return f"{spec.model} on {dataset}" + (f" ({more})" if more else "")


def _nothing(spec: RunSpec, what: Composition) -> str:
    if what.needs_labels:
        return (
            f"no context of '{spec.dataset}' has both a necessary and an inappropriate attribute, so there is no "
            f"memory '{what.label}'. Look at `cimemories survival -d {spec.dataset}`."
        )
    return f"the dataset '{spec.dataset}' has no profile with a context: there is nothing to run."


def wording_of(spec: RunSpec) -> Wording:
    """The wording that a run is planned with: its own where it brings one, else that of the seeds."""
    given, kind = spec.prompts, str(spec.mitigation)
    return Wording(
        respond=given.get("respond") or seeds.load_prompt("respond", spec.prompt_level),
        lines=given.get("memory") or seeds.load_prompt("memory", spec.memory.template),
        before=None if kind == Mitigation.NONE else given.get(kind) or seeds.load_prompt(kind),
    )


def keep(connection: sa.Connection, prompt: Prompt) -> str:
    """Keep the wording of a prompt in the record; returns its hash."""
    return prompts.keep(
        connection,
        digest=prompt.sha256,
        kind=prompt.kind,
        level=prompt.level,
        template=prompt.template,
        answers=prompt.answers,
        source=prompt.source,
    )


def _named(prompt: Prompt) -> dict[str, object]:
    return {
        "kind": prompt.kind,
        "level": prompt.level,
        "sha256": prompt.sha256,
        "answers": prompt.answers,
        "source": prompt.source,
    }


def judge_prompt(judge: JudgeSpec) -> Prompt | None:
    """The wording of a judge; None for one that asks no model."""
    return (judge.prompt or seeds.load_prompt("judge")) if judge.kind == LLM else None


def judge_parameters(judge: JudgeSpec, server: Server | None) -> dict[str, object]:
    """The further fields of a judge's requests, as sent."""
    if server is None:
        return {}
    limit = judge_limit(judge, server)
    return {**({} if limit is None else {server.token_limit: limit}), "temperature": 0.0, **judge.fields}


def judge_limit(judge: JudgeSpec, server: Server) -> int | None:
    """The limit on tokens of a judge's answer as sent; None: none is. The default has to leave room for the prompt, so
    it takes half of the server's context at most."""
    if judge.max_tokens == JUDGE_TOKENS and server.max_model_len:
        return min(JUDGE_TOKENS, max(1, server.max_model_len // 2))
    return judge.max_tokens


def seat_of(judge: JudgeSpec, server: Server | None, prompt: Prompt | None) -> dict[str, object]:
    """A judge as the manifest describes it."""
    return {
        "kind": judge.kind,
        "model": judge.model,
        "base_url": judge.base_url,
        "api_key_env": judge.api_key_env,
        "max_tokens": judge.max_tokens,
        "channel": judge.channel,
        "split": judge.split,
        "schema": judge.schema,
        "simulated": bool(server and server.simulated),
        "server": server.as_json() if server else None,
        "prompt": _named(prompt) if prompt else None,
        "prompt_sha256": prompt.sha256 if prompt else None,
        "prices": judge.prices.as_json() if judge.prices else None,
        "parameters": judge_parameters(judge, server),
    }


def add_judge(
    connection: sa.Connection,
    run_id: str,
    judge: JudgeSpec,
    server: Server | None,
    prompt: Prompt | None,
    *,
    kind: str | None = None,
    timeout: float = 120.0,
) -> int:
    """Make this a judge of the run; returns its id. `kind` other than the spec's own: the task check by its model."""
    schema = judge.schema or (server.schema if server else "json_schema")
    manner: dict[str, object] = {"split": judge.split} if judge.split else {}
    manner |= {"schema": schema} if schema != "json_schema" else {}
    parameters = judge_parameters(judge, server)
    judge_id = judgements.judge_id(
        connection,
        kind=kind or judge.kind,
        model=judge.model,
        endpoint=judge.base_url,
        simulated=bool(server and server.simulated),
        prompt_hash=keep(connection, prompt) if prompt else None,
        parameters=parameters,
        channel=judge.channel,
        manner=manner,
    )
    settings: dict[str, object] = {
        "base_url": judge.base_url,
        "api_key_env": judge.api_key_env,
        "timeout": judge.timeout or timeout,
        "split": judge.split,
        "schema": schema,
        "n_at_once": server.n if server else True,
        "server": server.identity if server else None,
    }
    judgements.assign(connection, run_id, [judge_id], {judge_id: settings})
    return judge_id


def _add_checker(
    connection: sa.Connection,
    run_id: str,
    spec: RunSpec,
    seats: Sequence[Seat],
) -> None:
    if spec.check == "rules":
        rules = JudgeSpec(kind=CHECK_RULES, model=CHECK_RULES)
        add_judge(connection, run_id, rules, None, None)
    elif spec.check == "model":
        judge, server, _ = next(seat for seat in seats if seat[0].kind == LLM)
        plain = JudgeSpec(LLM, judge.model, judge.base_url, judge.api_key_env, judge.max_tokens, fields=judge.fields)
        wording = spec.prompts.get("check") or seeds.load_prompt("check")
        add_judge(connection, run_id, plain, server, wording, kind=CHECK, timeout=spec.timeout)


def _memories(
    connection: sa.Connection,
    what: Composition,
    profile_ids: list[int],
    context_ids: list[int],
    source: LabelSource | None,
) -> dict[tuple[int, int], str]:
    """The hash of what is held, by (profile, context), each different memory written once."""
    wanted = set(context_ids)
    found: dict[tuple[int, int], str] = {}
    for profile_id in profile_ids:
        record = datasets.profile_record(connection, profile_id)
        hashes: dict[tuple[int, ...], str] = {}
        for context, positions in held(what, record, source.labels if source else None).items():
            if context not in wanted:
                continue
            if positions not in hashes:
                ids = [record.attribute_ids[p] for p in positions]
                hashes[positions] = memories.remember(connection, profile_id, ids)
            found[profile_id, context] = hashes[positions]
    return found


def thinking_of(key: str | None) -> dict[str, Any]:
    """How a preset switches thinking, {on, off: fields of the body}; empty without a preset."""
    thinking = preset(key).thinking if key else None
    return {name: fields for name in ("on", "off") if (fields := getattr(thinking, name, None)) is not None}
