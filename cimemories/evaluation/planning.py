"""Planning a run: servers are looked up, every response is written down as owed, and the manifest says what shapes it.

The manifest and the wording that is kept with it are all that carrying out needs: no file that may change meanwhile.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version as installed
from typing import Any

import sqlalchemy as sa

from cimemories import seeds, version
from cimemories.access.roles import Role
from cimemories.evaluation.compositions import (
    Composition,
    FindLabels,
    LabelsFor,
    LabelSource,
    keep_composed,
    labels_for,
)
from cimemories.evaluation.judging import CHECK, CHECK_RULES, PlannedJudge, prompt_part, reference_part
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.respond import Wording
from cimemories.evaluation.spec import BATCH, LLM, JudgeSpec, RunSpec, settings_alike
from cimemories.llm.capabilities import Server, find_out
from cimemories.llm.endpoint import TASKS, Endpoint, EndpointError, is_assistant
from cimemories.llm.identity import server_id
from cimemories.llm.local_vllm import is_local, planned_server
from cimemories.llm.source import listed, reachable
from cimemories.manifest import JudgePart, PromptPart
from cimemories.seeds.prompts import KEYS, Prompt, PromptFile, reference_prompts
from cimemories.seeds.reading import SeedError
from cimemories.store import calls, datasets, judgements, runs, versions, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, canonical_json, plain_name
from cimemories.store.runs import RunRow
from cimemories.store.team import log

# ---- servers
#
# What a run has to know of a server before it is planned: found out by one probe, and worked around where it lacks.


def look_up(
    base_url: str,
    key_env: str,
    model: str,
    samples: int,
    wants_schema: bool,
    seed: int | None,
    fields: str = "{}",
    *,
    retries: int = 3,
) -> Server:
    """Ask a server what it serves and can do. fields: further fields of the requests to come, as JSON so that look-ups
    can be compared. samples: 0 only asks whether it serves the model, as of an embedding model, which answers no chat.
    Raises EndpointError if it cannot be used. The word `batch` stands for one request a sample."""
    if base_url == TASKS:
        return Server(simulated=False, n=False, notes=("tasks go out as a file",), identity=calls.BATCH)
    if is_assistant(base_url):
        from cimemories.llm import assistants  # with its SDK

        return assistants.look_up(Endpoint(base_url, key_env))
    if base_url == BATCH:
        note = "the server was not asked what it can do: calls go by batch files"
        return Server(simulated=False, n=False, notes=(note,), identity=calls.BATCH)
    if is_local(base_url):
        return planned_server(base_url, model, seed_wanted=seed is not None)
    if not samples:
        return Server(**vars(listed(base_url, key_env, model)))
    with reachable(base_url) as url:
        return find_out(
            Endpoint(url, key_env),
            model,
            schema_wanted=wants_schema,
            seed_wanted=seed is not None,
            samples=samples,
            retries=retries,
            fields=fields,
        )


def with_identity(store: Store, base_url: str, server: Server) -> Server:
    """Return the server with its identity."""
    address = server.base_url or base_url
    return server if server.identity else replace(server, identity=server_id(address, server, store).text)


# ---- planning


LookUp = Callable[[str, str, str, int, bool, int | None, str], Server]


@dataclass(frozen=True)
class Prepared:
    """A run whose servers have been looked up and whose wording has been read; nothing of it is written yet. checker:
    its task check. memory_server: of another model than the one under test that a memory system asks."""

    spec: RunSpec
    wording: Wording
    composition: Composition
    server: Server
    judges: tuple[PlannedJudge, ...]
    checker: PlannedJudge | None
    memory_server: Server | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """Return the further fields of a message's request, as sent."""
        if self.spec.is_served:
            return {}  # what it asks its model is its own
        limit = {} if self.spec.max_tokens is None else {self.server.token_limit: self.spec.max_tokens}
        return {**limit, **self.server.accepted(self.spec.fields)}

    @property
    def seed(self) -> int | None:
        """Return the seed that is sent: to a simulator always one, to a server that refuses seeds none."""
        if self.spec.seed is None:
            return 0 if self.server.simulated else None
        return None if self.server.seed is False else self.spec.seed


def prepare(store: Store, spec: RunSpec, look_up: LookUp = look_up) -> Prepared:
    """Check the settings, read the wording and look the servers up; nothing is written. Raises StoreError, SeedError,
    CompositionError, and what `look_up` raises."""

    def server_of(base_url: str, *question: Any) -> Server:
        return with_identity(store, base_url, look_up(base_url, *question))

    spec = spec.replace()  # a spec that was read from a record has not been checked
    if not spec.is_served and not (spec.base_url and spec.model):
        raise StoreError("name the model and where it is served: --model and --base-url (or an --assistant).")
    # Wording is read before a server is asked: a missing prompt costs nothing that way.
    wording, what, gated = wording_of(spec), spec.composition, spec.mitigation == "gate"
    # One request a sample, whatever the server can do: for that it is not asked either.
    at_once = spec.samples if spec.reference is None else 1
    server = server_of(spec.base_url, spec.api_key_env, spec.model, at_once, gated, spec.seed, json.dumps(spec.fields))
    if spec.reference is not None:
        server = replace(server, n=False)
    if late := server.too_slow(spec.max_tokens, spec.timeout):
        server = replace(server, notes=(*server.notes, late))
    # An assistant may tell its name, and then needs none from the user.
    model = spec.model or plain_name(server.root or "assistant", "model")
    spec = spec.replace(base_url=server.base_url or spec.base_url, model=model)
    judges = tuple(planned_judge(judge, server_of) for judge in spec.judges)
    refuse_simulated_judges(server.simulated, judges)
    memory_server = None
    if what.system is not None and what.system.asks is not None:
        model, base_url = what.system.asks
        served = JudgeSpec(kind=LLM, model=model, base_url=base_url or spec.base_url, api_key_env=spec.api_key_env)
        fields, tried = json.dumps(served.request_fields), 0 if what.system.embeds else 1
        memory_server = server_of(served.base_url, served.api_key_env, model, tried, True, None, fields)
        if memory_server.base_url is not None:
            # Its options are a part of the memory's name, by which runs are compared: not changed behind the user.
            raise EndpointError(f"{model} is at {memory_server.base_url}: give the memory system that base_url.")
        if memory_server.simulated and not server.simulated:
            raise StoreError(f"{model} is simulated, and the messages are of a real model: what it recalls is made up.")
    checker = PlannedJudge(CHECK_RULES, JudgeSpec(model=CHECK_RULES)) if spec.check == "rules" else None
    if spec.check == "model":
        checker = checked_by(next(judge for judge in judges if judge.kind == LLM), spec.prompts.get("check"))
    return Prepared(spec, wording, what, server, judges, checker, memory_server)


PUBLISHED_LEVELS = {"base": "1", "medium": "2", "high": "3", "light": "4"}  # our names of levels in that layout


def as_reference(spec: RunSpec, file: PromptFile | None = None) -> RunSpec:
    """Return the same run by the settings of the authors' own evaluation (evaluation/reference.py): no limit on tokens,
    one request a sample, judges at temperature 0 and without a schema.

    file: prompts in the published layout; None for our own. What a file lacks (the judge's prompt, the biography) is
    taken from ours. Raises SeedError for a level that it does not have, and StoreError for a setting that contradicts
    these.
    """
    judge_of, fixed = partial(judge_as_reference, file=file), ("max_tokens", "seed", "mitigation", "memory_template")
    changed = [item.name for item, value in spec.non_defaults() if item.name in fixed and value not in (None, "plain")]
    if changed:
        raise StoreError(f"a reference run sets these itself, leave them out: {', '.join(changed)}.")
    given = file or reference_prompts()
    known = spec.prompt_level in given.levels("respond")
    level = spec.prompt_level if known else PUBLISHED_LEVELS.get(spec.prompt_level, spec.prompt_level)
    return spec.replace(
        prompt_level=level,
        prompts={**spec.prompts, "respond": _without_braces(given.prompt("respond", level))},
        memory_template="plain",
        max_tokens=None,
        judges=tuple(map(judge_of, spec.judges)),
        reference=_reference(file),
    )


def judge_as_reference(judge: JudgeSpec, file: PromptFile | None = None) -> JudgeSpec:
    """Return the same judge by these settings; non-LLM judges are returned unchanged. Raises like `as_reference`."""
    if judge.kind != LLM:
        return judge
    prompt = judge.prompt
    if prompt is None:
        given = file if file is not None and file.levels("judge") else reference_prompts()
        prompt = given.prompt("judge", given.levels("judge")[0])
    if prompt.answers != KEYS or judge.split is not None:
        raise StoreError("a reference judge reads all attributes at once, by a prompt of the published layout.")
    return judge.replace(
        max_tokens=None, json_schema="none", prompt=_without_braces(prompt), reference=_reference(file)
    )


def _reference(file: PromptFile | None) -> Reference:
    given = file if file is not None and file.biography else reference_prompts()
    return Reference(given.biography, given.name)


def _without_braces(prompt: Prompt) -> Prompt:
    # The authors' code fills templates by str.format, which makes one brace of two; ours leaves them as they are.
    if "{{" in prompt.template or "}}" in prompt.template:
        raise SeedError(f"{prompt.source}: {prompt.kind}.{prompt.level}: write single braces instead of doubled ones")
    return prompt


def planned_judge(judge: JudgeSpec, look_up: LookUp) -> PlannedJudge:
    """Return an LLM judge with its server and wording, or the matcher with neither."""
    if judge.kind != LLM:
        return PlannedJudge(judge.kind, judge)
    fields = json.dumps(judge.request_fields)
    server = look_up(judge.base_url, judge.api_key_env, judge.model, 1, True, None, fields)
    judge = judge.replace(base_url=server.base_url or judge.base_url)
    return PlannedJudge(judge.kind, judge, server, judge.prompt or seeds.load_prompt("judge"))


def checked_by(judge: PlannedJudge, prompt: Prompt | None = None) -> PlannedJudge:
    """Return the task check by the model of a judge."""
    own = judge.spec
    # Neither split nor channel: a check reads the whole message, and no list of attributes.
    asked = ("kind", "model", "base_url", "api_key_env", "max_tokens", "fields")
    plain = JudgeSpec(**{name: getattr(own, name) for name in asked})
    return PlannedJudge(CHECK, plain, judge.server, prompt or seeds.load_prompt("check"))


def refuse_simulated_judges(messages_simulated: bool, judges: Sequence[PlannedJudge]) -> None:
    """Raises StoreError where a simulated judge is to read what a real model wrote: what it says would be made up."""
    for judge in judges:
        if judge.simulated and not messages_simulated:
            raise StoreError(
                f"{judge.spec.model} at {judge.spec.base_url} is a simulated judge, and the messages are of a real "
                "model: what it says of them would be made up. Let a model that is served judge, or the matcher, which "
                "needs none (on the command line: --judge-model MODEL --judge-base-url URL, or --judge matcher)."
            )


def plan(
    store: Store,
    spec: RunSpec,
    *,
    find_labels: FindLabels | None = None,
    instead: Callable[[sa.Connection], str | None] | None = None,
    require: Callable[[Store, Prepared, LabelsFor | None], None] | None = None,
) -> str:
    """Look the servers up, write every response that the run is to have, and return the run's id. instead: gives the id
    of a run to take in its place, while no other process can plan. require: raises if the prepared run must not be
    planned (`estimates.require_fit`). Raises EndpointError, StoreError, SeedError or CompositionError before that."""
    # Before the transaction: servers are asked here, and no one else could write while one is slow to answer.
    prepared = prepare(store, spec)
    labels = labels_for(store, spec.dataset, prepared.composition, find_labels)
    if require is not None:
        require(store, prepared, labels)
    with store.write(Role.OPERATOR) as connection:
        if instead is not None:
            versions.lock(connection, datasets.by_name(connection, spec.dataset).id)
            if there := instead(connection):
                return there
        run_id = write(connection, prepared, labels)
        log.add(connection, "run.planned", run_id, dataset=spec.dataset, model=spec.model)
        return run_id


def write(
    connection: sa.Connection,
    prepared: Prepared,
    by: LabelsFor | None = None,
    *,
    sweep: str | None = None,
    cell: int = 0,
) -> str:
    """Write a prepared run with all its responses in this transaction, and return its id. by: of `labels_for`. sweep,
    cell: the sweep that it is a part of. Raises like `plan`."""
    spec, what, server, judges = prepared.spec, prepared.composition, prepared.server, prepared.judges
    dataset = datasets.by_name(connection, spec.dataset)
    source, traits = by.source if by else None, spec.traits
    profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
    context_ids = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
    # In the transaction that writes the responses, so that the hash is of the data they are planned for.
    data_hash = datasets.dataset_hash(connection, dataset.id)
    if by is not None and by.dataset != (dataset.id, data_hash):
        raise StoreError(f"{dataset.name} was changed while the run was being planned. Plan it again.")
    prompt = prepared.wording.respond
    for wording in (*prepared.wording.all, *(judge.prompt for judge in judges)):
        if wording is not None:
            keep(connection, wording)
    others = [prepared.memory_server, *(judge.server for judge in judges)]
    calls.keep_servers(connection, [server.identity, *(other.identity for other in others if other)])
    run_id = runs.add(
        connection,
        {
            "name": spec.name or f"{spec.model} on {dataset.name}" + (f" ({', '.join(traits)})" if traits else ""),
            "dataset": dataset.id,
            "dataset_hash": data_hash,
            "model": spec.model,
            "endpoint": spec.base_url,
            "simulated": server.simulated or any(judge.simulated for judge in judges),
            "samples": spec.samples,
            "seed": prepared.seed,
            "prompt_level": prompt.level,
            "prompt_hash": prompt.sha256,
            "composition": what.label,
            "parameters": "{}",
            "sweep": sweep,
            "cell": cell if sweep else None,
        },
        manifest=_manifest(prepared, dataset, data_hash, source),
    )
    ids = [add_judge(connection, run_id, judge, spec.timeout) for judge in judges]
    # The same judge has one id. Raising takes back the whole run, which has been written by now.
    if len(set(ids)) < len(ids):
        raise StoreError("two of the judges are the same (model, wording and parameters): leave one out.")
    if prepared.checker is not None:
        add_judge(connection, run_id, prepared.checker, spec.timeout)
    labels = source.labels if source else None
    memories = None if what.is_plain else keep_composed(connection, what, profile_ids, context_ids, labels)
    # Nothing to run is known only now; raising takes back what was written.
    if not runs.plan(connection, run_id, profile_ids, context_ids, spec.samples, what.label, memories):
        raise StoreError(
            f"no context of '{spec.dataset}' has both a necessary and an inappropriate attribute, so there is no "
            f"memory '{what.label}'. Look at `cimemories consensus -d {spec.dataset}`."
            if what.needs_labels
            else f"the dataset '{spec.dataset}' has no profile with a context: there is nothing to run."
        )
    work.queue(connection, run_id)
    return run_id


def _manifest(prepared: Prepared, dataset: DatasetRow, data_hash: str, source: LabelSource | None) -> dict[str, object]:
    """Return all that shapes a run."""
    spec, wording, what, server = prepared.spec, prepared.wording, prepared.composition, prepared.server
    judges = [judge.as_json() for judge in prepared.judges]
    system: dict[str, object] = {}
    if what.system is not None:
        system = {"name": what.system.name, "version": what.system.make().version, "options": dict(what.system.options)}
        system |= {"prices": spec.memory_prices.as_json()} if spec.memory_prices else {}
        system |= {"server": prepared.memory_server.as_json()} if prepared.memory_server else {}
    return {
        "dataset": {"name": dataset.name, "hash": data_hash, "source": dataset.source_name},
        "model": {
            "name": spec.model,
            "endpoint": spec.base_url,
            **server.as_json(),
            "prices": spec.prices.as_json() if spec.prices else None,
        },
        "prompt": prompt_part(wording.respond),
        "memory": {
            "composition": what.label,
            "order": str(what.order),
            "seed": what.seed,
            "template": prompt_part(wording.lines),
            "labels": dict(source.origin) if source else None,
            **({"system": system} if system else {}),
        },
        "mitigation": {"kind": str(spec.mitigation), "prompt": prompt_part(wording.before) if wording.before else None},
        "parameters": prepared.parameters,
        "sampling": "as sent" if spec.sampling or spec.temperature is not None else "the model's defaults",
        "judge": judges[0],
        "judges": judges,
        "check": spec.check,
        "cap": spec.cap,
        "fresh": spec.fresh,
        **reference_part(spec),
        **(
            {"sessions": spec.remembered.as_json() | {"template": prompt_part(wording.earlier)}}
            if spec.remembered and wording.earlier
            else {}
        ),
        "seeds_hash": seeds.seeds_hash(),
        "asked": spec.as_json(),
        "versions": {
            "cimemories": version.__version__,
            "revision": version.revision(),
            "openai": installed("openai"),
            "python": platform.python_version(),
            "server": server.version,
        },
    }


def wording_of(spec: RunSpec) -> Wording:
    """Return the wording that a run is planned with: of the spec, else of the seeds."""
    given, kind = spec.prompts, str(spec.mitigation)
    return Wording(
        respond=given.get("respond") or seeds.load_prompt("respond", spec.prompt_level),
        lines=given.get("memory") or seeds.load_prompt("memory", spec.memory_template),
        before=None if kind == "none" else given.get(kind) or seeds.load_prompt(kind),
        reference=spec.reference,
        earlier=None if spec.sessions is None else given.get("session") or seeds.load_prompt("session"),
    )


# ---- a run once more


def planned_alike(store: Store, spec: RunSpec, find_labels: FindLabels) -> Callable[[sa.Connection], RunRow | None]:
    """Return a function that gives, in a transaction, the newest run with these settings, this state of the dataset,
    today's prompts and, if its memory goes by labels, today's labels, or None. Raises StoreError if there is no such
    dataset."""
    with store.read() as connection:
        dataset = datasets.by_name(connection, spec.dataset)
    source = find_labels(store, dataset.id) if spec.composition.needs_labels else None
    labels = json.loads(canonical_json(dict(source.origin))) if source else None

    def newest(connection: sa.Connection) -> RunRow | None:
        dataset = datasets.by_name(connection, spec.dataset)
        data_hash = datasets.dataset_hash(connection, dataset.id)
        for row in reversed(runs.all_rows(connection, dataset.id)):
            made = row.manifest
            same = made.request is not None and settings_alike(spec, made.request.recorded)
            same = same and made.dataset.hash == data_hash and made.memory.labels == labels
            if same and made.seeds_hash == seeds.seeds_hash():
                return row
        return None

    return newest


def spec_of(store: Store, run_id: str, *, every_judge: bool = False) -> RunSpec:
    """Return the spec that repeats a run exactly, with its own wording. every_judge: also those that were added later.
    Raises StoreError for a run that was imported or explains a leak, and if its wording was not recorded and has
    changed."""
    with store.read() as connection:
        row = runs.by_id(connection, run_id)
        manifest = row.manifest
        if manifest.request is None:
            raise StoreError(f"{run_id} was imported from a file: what it was asked with is not known.")
        if row.explains:
            # Its manifest has the settings of the whole run that it explains.
            raise StoreError(f"{run_id} explains a leak of {row.explains}: repeat that run, or use `cimemories why`.")
        spec, wording = RunSpec.of(manifest), recorded_wording(connection, row)
        # The judges that the run began with; others may have been added since.
        first = manifest.judges if every_judge else manifest.judges[: len(spec.judges)]
        judges = tuple(_judge_spec(connection, run_id, judge) for judge in first)
    prompts = {
        "respond": wording.respond,
        "memory": wording.lines if manifest.memory.template else None,
        "session": wording.earlier,
        manifest.mitigation.kind: wording.before,
    }
    given = {kind: prompt for kind, prompt in prompts.items() if prompt is not None}
    # Not checked here: what is no longer installed or served can still be shown.
    return spec.model_copy(update={"judges": judges, "prompts": given, "reference": wording.reference, "name": None})


def _judge_spec(connection: sa.Connection, run_id: str, judge: JudgePart) -> JudgeSpec:
    named = judge.prompt
    if named is None and judge.prompt_sha256:
        named = PromptPart(kind="judge", level="base", sha256=judge.prompt_sha256)
    # The token limit has a field of its own, whatever the server calls it (max_tokens, max_completion_tokens), and 0 is
    # what a judge is asked with anyway: given as a field it would show as a choice.
    sent = judge.parameters.items()
    fields = {name: v for name, v in sent if not name.startswith("max_") and (name, v) != ("temperature", 0.0)}
    asked = ("kind", "model", "base_url", "api_key_env", "max_tokens", "channel", "split", "json_schema")
    return JudgeSpec.recorded(
        {name: getattr(judge, name) for name in asked}
        | {
            "fields": fields,
            "prompt": recorded_prompt(connection, run_id, named) if named else None,
            "prices": judge.prices,
            "reference": Reference.of(judge.reference),
        }
    )


def recorded_wording(connection: sa.Connection, run: RunRow) -> Wording:
    """Return the prompts that a run was planned with. Raises StoreError like `recorded_prompt`."""
    lines, before = run.manifest.memory.template, run.manifest.mitigation.prompt
    earlier = run.manifest.sessions.template if run.manifest.sessions else None
    return Wording(
        respond=recorded_prompt(connection, run.id, run.manifest.prompt),
        lines=recorded_prompt(connection, run.id, lines) if lines else seeds.load_prompt("memory", "bullets"),
        before=recorded_prompt(connection, run.id, before) if before else None,
        reference=Reference.of(run.manifest.reference),
        earlier=recorded_prompt(connection, run.id, earlier) if earlier else None,
    )


def recorded_prompt(connection: sa.Connection, run_id: str, named: PromptPart) -> Prompt:
    """Return the wording that a run was planned with. Raises StoreError if it was not recorded and is not that of the
    seeds any more."""
    kept = runs.recorded_prompts(connection, named.sha256)
    if kept is not None:
        return seeds.prompts.recorded(kept.kind, kept.level, kept.template, kept.answers, kept.source)
    current = seeds.load_prompt(named.kind, named.level)
    if current.sha256 != named.sha256:
        raise StoreError(
            f"the {named.kind} prompt has changed since {run_id} was planned, and its wording was not kept, so the "
            "rest of it would not be comparable. Start a new run, or bring the old wording back."
        )
    return current


# ---- what is written


def keep(connection: sa.Connection, prompt: Prompt) -> str:
    """Keep the wording of a prompt in the record; returns its hash."""
    fields = {name: getattr(prompt, name) for name in ("kind", "level", "template", "answers", "source")}
    return runs.keep_prompts(connection, digest=prompt.sha256, **fields)


def add_judge(connection: sa.Connection, run_id: str, judge: PlannedJudge, timeout: float = 120.0) -> int:
    """Make this a judge of the run; returns its id. timeout: where its spec has none."""
    spec = judge.spec
    # Only where they differ from the plain way, so that a judge asked plainly keeps its identity.
    options: dict[str, object] = {"split": spec.split} if spec.split else {}
    options |= {"schema": judge.schema} if judge.schema != "json_schema" else {}
    options |= reference_part(spec)
    judge_id = judgements.judge_id(
        connection,
        kind=judge.kind,
        model=spec.model,
        endpoint=spec.base_url,
        simulated=judge.simulated,
        prompt_hash=keep(connection, judge.prompt) if judge.prompt else None,
        parameters=judge.parameters,
        channel=spec.channel,
        options=options,
    )
    settings = judge.settings | {"timeout": spec.timeout or timeout}
    judgements.assign(connection, run_id, [judge_id], {judge_id: settings})
    return judge_id
