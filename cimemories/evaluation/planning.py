"""Planning a run: servers are looked up, every response is written down as owed, and the manifest says what shapes it.

The manifest and the wording that is kept with it are all that carrying out needs: no file that may change meanwhile.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from importlib import metadata
from typing import Any, get_args

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
    read_composition,
)
from cimemories.evaluation.judging import CHECK, CHECK_RULES, LLM, MATCHER
from cimemories.evaluation.prices import Prices, check_money
from cimemories.evaluation.recalling import check_asked, listed_server
from cimemories.evaluation.reference import Reference
from cimemories.evaluation.respond import Mitigation, Wording
from cimemories.evaluation.sessions import Sessions
from cimemories.llm import worker
from cimemories.llm.capabilities import Server, find_out
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, Endpoint, EndpointError
from cimemories.llm.identity import server_id
from cimemories.llm.local_vllm import is_local, planned_server
from cimemories.llm.replies import Schema
from cimemories.memory.systems import SystemSpec
from cimemories.seeds.presets import preset
from cimemories.seeds.prompts import KEYS, Prompt, PromptFile, reference_prompts
from cimemories.seeds.reading import SeedError
from cimemories.store import calls, datasets, judgements, runs, versions, work
from cimemories.store.datasets import DatasetRow
from cimemories.store.engine import Store, StoreError, plain_name
from cimemories.store.judgements import MESSAGE
from cimemories.store.team import log

# ---- servers
#
# What a run has to know of a server before it is planned: found out by one probe, and worked around where it lacks.


BATCH = "batch"  # the word for no server at all: calls go out and come back as batch files


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
    """Ask a server what it serves and can do. fields: the further fields of the requests to come, as JSON, so that
    look-ups can be compared. Raises EndpointError where it cannot be used. For the word `batch` no server is asked: one
    request a sample, and a JSON schema, as batch servers take them."""
    if base_url == BATCH:
        note = "nobody was asked what it can do: calls go by batch files"
        return Server(simulated=False, n=False, notes=(note,), identity=calls.BATCH)
    if is_local(base_url):
        return planned_server(base_url, model, seed_wanted=seed is not None)
    with worker.reachable(base_url) as url:
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
    """The same with its identity, where it has none yet."""
    address = server.base_url or base_url
    return server if server.identity else replace(server, identity=server_id(address, server, store).text)


def served(
    store: Store,
    base_url: str,
    key_env: str,
    model: str,
    draws: int,
    seed: int | None,
    fields: Mapping[str, object],
    look_up: LookUp = look_up,
) -> Server:
    """The server of a labelling or a generation, tested as that of a run is. Raises EndpointError where it cannot be
    used, and for the word `batch`."""
    if base_url == BATCH:
        raise EndpointError("only runs can go by batch files. Give the address of a server (--base-url).")
    server = look_up(base_url, key_env, model, draws, True, seed, json.dumps(fields))
    return with_identity(store, base_url, server)


# ---- spec
#
# What a run is to be: the model, its memory, sampling and mitigation, and who judges it.
#
# RunSpec(dataset="demo", model="qwen3-32b", base_url="http://localhost:8000/v1", memory=Memory("necessary+20"))


THINKING = ("default", "on", "off", "low", "medium", "high")
CHECKS = ("rules", "model", "none")
# Fields of a request that the tool itself decides about; the others may be set by hand.
RESERVED = frozenset({"model", "messages", "n", "seed", "stream", "response_format", "max_tokens"})
MESSAGE_TOKENS = 1024
# A judge's limit has to leave room for reasoning: 2,048 tokens cut what models like DeepSeek-R1 answer.
JUDGE_TOKENS = 16_384
SIMULATED_JUDGE_TOKENS = 2048  # the simulator does not think first; as in the recorded calls of the demo
SERVERS_LIMIT = "server"  # the word for no limit of ours: what the server allows


@dataclass(frozen=True)
class JudgeSpec:
    """A judge that is asked for. kind 'matcher' needs nothing else; 'llm' needs a model and where it is served.

    max_tokens: limit of one answer; None sends none, so that the server's own holds; JUDGE_TOKENS becomes half of the
    server's context where that is less. channel: message, or reasoning (what a reasoning model thought before it).
    split: at most so many attributes a call.
    fields: further fields of the request body. schema: how its answers are held to their form (json_schema,
    json_object, none); None: as the server can. prompt: another wording than that of seeds/prompts/judge.yaml. prices:
    of its tokens; None: not known. reference: by the authors' settings.
    """

    kind: str = MATCHER
    model: str = MATCHER
    base_url: str = ""
    api_key_env: str = DEFAULT_KEY_ENV
    max_tokens: int | None = JUDGE_TOKENS
    channel: str = MESSAGE
    split: int | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    prompt: Prompt | None = None
    schema: str | None = None
    timeout: float | None = None
    prices: Prices | None = None
    reference: Reference | None = None

    @property
    def request_fields(self) -> dict[str, object]:
        """Return the further fields of its requests, without the limit on tokens: temperature 0 unless it is set."""
        # The authors' requests have the whole number.
        return {"temperature": 0.0 if self.reference is None else 0, **self.fields}


@dataclass(frozen=True)
class Memory:
    """What is held of a user, and how it is written into the prompt. template: of seeds/prompts/memory.yaml, where the
    run brings no wording of its own. prices: of the model that a memory system asks, where that is another than the one
    under test; None: not known."""

    composition: str = "full"
    order: str = "fixed"
    seed: int = 0
    template: str = "bullets"
    prices: Prices | None = None

    def read(self) -> Composition:
        return read_composition(self.composition, self.order, self.seed)


@dataclass(frozen=True)
class RunSpec:
    """What a run is to be. `profiles` and `contexts` limit it to the first so many; None means all.

    base_url: an OpenAI-compatible server, or the word `simulator`. sampling: fields of the request as sent; empty: the
    model's defaults, and recorded as that choice. temperature stands for the field of that name. Seed None sends none
    to a real server (some refuse it, and vLLM's CPU engine dies of it) and 0 to the simulator. thinking: default sends
    nothing; on and off set the chat template's switch; low, medium, high the reasoning effort.
    check: whether a message does its task, by rules, by the first judge's model, or not at all. prompts: wording by
    kind (respond, memory, gate, rewrite, check) that goes before that of the seeds. prices: of the model's tokens;
    None: not known. max_tokens: limit of one message; None sends none. timeout: seconds for one request, more with each
    retry. cap: what the run may cost, in the unit of the prices, which then have to be known. fresh: nothing that other
    work has recorded serves. reference: by the authors' settings, see `as_reference`.
    sessions: whether tasks remember the messages of earlier ones; None: each begins anew.
    """

    dataset: str
    model: str
    base_url: str
    samples: int = 5
    profiles: int | None = None
    contexts: int | None = None
    judge: JudgeSpec = JudgeSpec()
    more_judges: tuple[JudgeSpec, ...] = ()
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    sampling: Mapping[str, object] = field(default_factory=dict)
    max_tokens: int | None = MESSAGE_TOKENS
    seed: int | None = None
    prompt_level: str = "base"
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    memory: Memory = Memory()
    thinking: str = "default"
    mitigation: str = Mitigation.NONE
    check: str = "rules"
    preset: str | None = None
    timeout: float = 120.0
    name: str | None = None
    prices: Prices | None = None
    cap: float | None = None
    fresh: bool = False
    reference: Reference | None = None
    sessions: Sessions | None = None

    @property
    def judges(self) -> tuple[JudgeSpec, ...]:
        return (self.judge, *self.more_judges)

    @property
    def memory_text(self) -> str:
        return self.memory.composition + (f", sessions {self.sessions.label}" if self.sessions else "")

    def checked(self) -> RunSpec:
        """The spec itself. Raises StoreError or CompositionError for what can be seen to be wrong without a server."""
        if self.samples < 1:
            raise StoreError("a run needs at least one sample for each context (on the command line: --samples).")
        # PostgreSQL's integers have 32 bits: a run of another seed could not be written there, nor moved there.
        if self.seed is not None and not -(2**31) <= self.seed < 2**31:
            raise StoreError(f"a seed is from -2,147,483,648 to 2,147,483,647, not {self.seed:,}.")
        for name in (self.model, *(judge.model for judge in self.judges)):
            plain_name(name, "model")
        if (system := self.memory.read().system) is not None:
            if self.mitigation == Mitigation.GATE:
                raise StoreError("a gate and a memory system both choose what is recalled: leave one of them out.")
            if self.reference is not None:
                raise StoreError("the authors' settings have no memory system: leave --reference or the system out.")
            check_asked(system, self.base_url)
            if system.grounds and all(judge.kind != LLM for judge in self.judges):
                raise StoreError("ground=model asks the first judge that is a model, and no judge of the run is one.")
        _one_of("thinking", self.thinking, THINKING)
        _one_of("mitigation", self.mitigation, tuple(Mitigation))
        _one_of("check", self.check, CHECKS)
        if self.sessions and self.reference:
            raise StoreError(
                "the authors' settings ask for each task by itself, and an earlier message in memory makes it another "
                "request: leave out --reference or --sessions."
            )
        for settings in (self.sampling, *(judge.fields for judge in self.judges)):
            # Set by hand they would contradict what the manifest and the keys of the calls say was asked.
            reserved = sorted(RESERVED & set(settings))
            if reserved:
                raise StoreError(f"the tool itself sets {', '.join(reserved)} in a request; it cannot be set by hand.")
        for judge in self.judges:
            if judge.kind not in (LLM, MATCHER):
                raise StoreError(f"there is no judge of the kind '{judge.kind}': {LLM} or {MATCHER}.")
            if judge.schema is not None:
                _one_of("judge-schema", judge.schema, get_args(Schema))
            if judge.split is not None and judge.split < 1:
                raise StoreError("a judge needs at least one attribute a call (on the command line: --judge-split).")
        if self.check == "model" and not any(judge.kind == LLM for judge in self.judges):
            raise StoreError("the task check by a model is asked of the first judge's model, and no judge is a model.")
        self._check_money()
        return self

    def _check_money(self) -> None:
        judges = [(judge.model, judge.prices) for judge in self.judges if judge.kind == LLM]
        asks = (self.memory.read().system or SystemSpec("")).asks
        other = asks[0] if asks and asks[0] != self.model else None
        if self.memory.prices is not None and other is None:
            raise StoreError(
                "the price of a memory system is of a model of its own: name one (model=NAME), or leave the price out. "
                "The model under test has its own price."
            )
        check_money((self.model, self.prices), judges, (other, self.memory.prices) if other else None, self.cap)

    @property
    def fields(self) -> dict[str, object]:
        """The further fields of a message's request, but for the limit on tokens: what is sent to a server that takes
        all of them."""
        # The authors' greedy requests have the whole number 0.
        temperature = 0 if self.reference is not None and self.temperature == 0 else self.temperature
        return {
            **self.sampling,
            **({} if temperature is None else {"temperature": temperature}),
            **self._thinking_fields,
        }

    @property
    def _thinking_fields(self) -> Mapping[str, object]:
        """What switches the model's thinking: its preset's fields where it has some."""
        known = preset(self.preset).thinking if self.preset else None
        # Nothing is sent, so that a server which knows no such field does not refuse the request.
        if self.thinking == "default":
            return {}
        if self.thinking not in ("on", "off"):
            return {"reasoning_effort": self.thinking}
        fields: Mapping[str, object] | None = getattr(known, self.thinking, None)
        return {"chat_template_kwargs": {"enable_thinking": self.thinking == "on"}} if fields is None else fields

    def as_json(self) -> dict[str, object]:
        """What was asked for, as the manifest keeps it; prompts by hash, since their wording is kept apart."""
        return _fields(self)


def _fields(spec: RunSpec | JudgeSpec) -> dict[str, object]:
    values = {item.name: _plain(getattr(spec, item.name)) for item in fields(spec)}
    # Only where it is one: what is planned is compared with runs from before there was such a setting.
    return {name: v for name, v in values.items() if name not in ("reference", "sessions") or v is not None}


def _plain(value: object) -> object:
    if isinstance(value, Reference | Sessions):
        return value.as_json()
    if isinstance(value, Prompt):
        return {"level": value.level, "source": value.source, "sha256": value.sha256}
    if isinstance(value, JudgeSpec):
        return _fields(value)
    if isinstance(value, Memory):
        # Without a price as before there was one, since runs are compared by what they were asked for.
        return {name: v for name, v in asdict(value).items() if name != "prices" or v is not None}
    if isinstance(value, Prices):
        return asdict(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {name: _plain(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise StoreError(f"--{name} is one of {', '.join(known)}, not '{value}'.")


# ---- planning


LookUp = Callable[[str, str, str, int, bool, int | None, str], Server]
Fallback = Callable[[EndpointError, JudgeSpec | None], Server]


@dataclass(frozen=True)
class PlannedJudge:
    """A judge of a run, its server looked up and its wording read; neither for one that asks no model. kind: that of
    the spec, or of a task check."""

    kind: str
    spec: JudgeSpec
    server: Server | None = None
    prompt: Prompt | None = None

    @property
    def simulated(self) -> bool:
        return self.server is not None and self.server.simulated

    @property
    def schema(self) -> str:
        """The form of response_format that its requests carry."""
        return self.spec.schema or (self.server.schema if self.server else "json_schema")

    @property
    def parameters(self) -> dict[str, object]:
        """The further fields of its requests, as sent."""
        if self.server is None:
            return {}
        limit = judge_limit(self.spec, self.server)
        fields = self.server.accepted(self.spec.request_fields)
        return {**({} if limit is None else {self.server.token_limit: limit}), **fields}

    @property
    def model(self) -> str:
        return self.spec.model

    @property
    def channel(self) -> str:
        return self.spec.channel

    @property
    def settings(self) -> dict[str, object]:
        """Where it is served and how it is asked."""
        same = ("base_url", "api_key_env", "timeout", "split")
        at_once, server = (self.server.n, self.server.identity) if self.server else (True, None)
        how = {"schema": self.schema, "n_at_once": at_once, "server": server}
        return {name: getattr(self.spec, name) for name in same} | how | self._reference

    @property
    def _reference(self) -> dict[str, object]:
        return {"reference": self.spec.reference.as_json()} if self.spec.reference else {}

    def as_json(self) -> dict[str, object]:
        """As the manifest describes it."""
        spec, prompt = self.spec, self.prompt
        same = ("kind", "model", "base_url", "api_key_env", "max_tokens", "channel", "split", "schema")
        return {
            **{name: getattr(spec, name) for name in same},
            "simulated": self.simulated,
            "server": self.server.as_json() if self.server else None,
            "prompt": prompt_part(prompt) if prompt else None,
            "prompt_sha256": prompt.sha256 if prompt else None,
            "prices": spec.prices.as_json() if spec.prices else None,
            "parameters": self.parameters,
            **self._reference,
        }


def judge_limit(judge: JudgeSpec, server: Server) -> int | None:
    """The limit on tokens of a judge's answer as sent; None: none is. The default has to leave room for the prompt, so
    it takes half of the server's context at most."""
    if judge.max_tokens == JUDGE_TOKENS and server.max_model_len:
        # A server refuses a request whose prompt and limit together exceed its context.
        return min(JUDGE_TOKENS, max(1, server.max_model_len // 2))
    return judge.max_tokens


@dataclass(frozen=True)
class Prepared:
    """A run whose servers have been looked up and whose wording has been read; nothing of it is written yet. checker:
    says whether each message does its task. memory_server: of the model that a memory system asks, where that is
    another than the one under test."""

    spec: RunSpec
    wording: Wording
    composition: Composition
    server: Server
    judges: tuple[PlannedJudge, ...]
    checker: PlannedJudge | None
    memory_server: Server | None = None

    @property
    def parameters(self) -> dict[str, object]:
        """The further fields of a message's request, as sent."""
        limit = {} if self.spec.max_tokens is None else {self.server.token_limit: self.spec.max_tokens}
        return {**limit, **self.server.accepted(self.spec.fields)}

    @property
    def seed(self) -> int | None:
        """The seed that is sent: to a simulator always one, to a server that refuses seeds none."""
        if self.spec.seed is None:
            return 0 if self.server.simulated else None
        return None if self.server.seed is False else self.spec.seed


def prepare(store: Store, spec: RunSpec, look_up: LookUp = look_up, fallback: Fallback | None = None) -> Prepared:
    """Check what is asked for, read its wording and look its servers up; nothing is written.

    look_up: how a server is asked. fallback: what stands for one that cannot be used, given the error and whose server
    it is, a judge's or (None) the model's. Raises StoreError, SeedError or CompositionError, and EndpointError where
    there is no fallback.
    """

    def server_of(judge: JudgeSpec | None, base_url: str, *question: Any, ask: LookUp = look_up) -> Server:
        try:
            server = ask(base_url, *question)
        except EndpointError as error:
            if fallback is None:
                raise
            server = fallback(error, judge)
        return with_identity(store, base_url, server)

    spec.checked()
    # Wording is read before a server is asked: a missing prompt costs nothing that way.
    wording, what, gated = wording_of(spec), spec.memory.read(), spec.mitigation == Mitigation.GATE
    # One request a sample, whatever the server can do: for that it is not asked either.
    at_once = spec.samples if spec.reference is None else 1
    server = server_of(
        None, spec.base_url, spec.api_key_env, spec.model, at_once, gated, spec.seed, json.dumps(spec.fields)
    )
    if spec.reference is not None:
        server = replace(server, n=False)
    if late := server.too_slow(spec.max_tokens, spec.timeout):
        server = replace(server, notes=(*server.notes, late))
    spec = replace(spec, base_url=server.base_url or spec.base_url)
    judges = tuple(planned_judge(judge, partial(server_of, judge)) for judge in spec.judges)
    refuse_simulated_judges(server.simulated, judges)
    memory_server = None
    if what.system is not None and what.system.asks is not None:
        model, base_url = what.system.asks
        served = JudgeSpec(LLM, model, base_url or spec.base_url, spec.api_key_env)
        ask = listed_server if what.system.embeds else look_up
        fields = json.dumps(served.request_fields)
        memory_server = server_of(served, served.base_url, served.api_key_env, model, 1, True, None, fields, ask=ask)
        if memory_server.base_url is not None:
            # Its options are a part of the memory's name, by which runs are compared: not changed behind the user.
            raise EndpointError(f"{model} is at {memory_server.base_url}: give the memory system that base_url.")
        if memory_server.simulated and not server.simulated:
            raise StoreError(f"{model} is simulated, and the messages are of a real model: what it recalls is made up.")
    return Prepared(spec, wording, what, server, judges, _checker(spec, judges), memory_server)


PUBLISHED_LEVELS = {"base": "1", "medium": "2", "high": "3", "light": "4"}  # our names of levels in that layout


def as_reference(spec: RunSpec, file: PromptFile | None = None) -> RunSpec:
    """The same run by the settings of the authors' own evaluation (evaluation/reference.py): their form of memories,
    recipient and judge's lines, no limit on tokens, one request a sample, judges at temperature 0 and without a schema.

    file: prompts in the published layout, `spec.prompt_level` one of its levels; None: our own in that layout. What a
    file lacks (the judge's prompt, the biography) is taken from ours. Raises SeedError for a level that it does not
    have, and StoreError for a setting that contradicts these.
    """
    usual, judge_of = RunSpec(spec.dataset, spec.model, spec.base_url), partial(judge_as_reference, file=file)
    fixed = ("max_tokens", "seed", "mitigation")
    changed = [name for name in fixed if getattr(spec, name) not in (getattr(usual, name), None)]
    changed += ["memory_template"] if spec.memory.template not in ("bullets", "plain") else []
    if changed:
        raise StoreError(f"a reference run sets these itself, leave them out: {', '.join(changed)}.")
    given = file or reference_prompts()
    known = spec.prompt_level in given.levels("respond")
    level = spec.prompt_level if known else PUBLISHED_LEVELS.get(spec.prompt_level, spec.prompt_level)
    return replace(
        spec,
        prompt_level=level,
        prompts={**spec.prompts, "respond": _without_braces(given.prompt("respond", level))},
        memory=replace(spec.memory, template="plain"),
        max_tokens=None,
        judge=judge_of(spec.judge),
        more_judges=tuple(map(judge_of, spec.more_judges)),
        reference=_reference(file),
    )


def judge_as_reference(judge: JudgeSpec, file: PromptFile | None = None) -> JudgeSpec:
    """The same judge by these settings; one that asks no model is what it was. Raises like `as_reference`."""
    if judge.kind != LLM:
        return judge
    prompt = judge.prompt
    if prompt is None:
        given = file if file is not None and file.levels("judge") else reference_prompts()
        prompt = given.prompt("judge", given.levels("judge")[0])
    if prompt.answers != KEYS or judge.split is not None:
        raise StoreError("a reference judge reads all attributes at once, by a prompt of the published layout.")
    return replace(judge, max_tokens=None, schema="none", prompt=_without_braces(prompt), reference=_reference(file))


def _reference(file: PromptFile | None) -> Reference:
    given = file if file is not None and file.biography else reference_prompts()
    return Reference(given.biography, given.name)


def _without_braces(prompt: Prompt) -> Prompt:
    # The authors' code fills templates by str.format, which makes one brace of two; ours leaves them as they are.
    if "{{" in prompt.template or "}}" in prompt.template:
        raise SeedError(f"{prompt.source}: {prompt.kind}.{prompt.level}: write single braces instead of doubled ones")
    return prompt


def planned_judge(judge: JudgeSpec, look_up: LookUp) -> PlannedJudge:
    """A judge that is a model with its server and its own wording or that of the seeds; the matcher with neither."""
    if judge.kind != LLM:
        return PlannedJudge(judge.kind, judge)
    fields = json.dumps(judge.request_fields)
    server = look_up(judge.base_url, judge.api_key_env, judge.model, 1, True, None, fields)
    judge = replace(judge, base_url=server.base_url or judge.base_url)
    return PlannedJudge(judge.kind, judge, server, judge.prompt or seeds.load_prompt("judge"))


def _checker(spec: RunSpec, judges: Sequence[PlannedJudge]) -> PlannedJudge | None:
    """Who says whether a message does its task: rules, or the first judge's model, asked as plainly as can be."""
    if spec.check == "rules":
        return PlannedJudge(CHECK_RULES, JudgeSpec(CHECK_RULES, CHECK_RULES))
    if spec.check != "model":
        return None
    return checked_by(next(judge for judge in judges if judge.kind == LLM), spec.prompts.get("check"))


def checked_by(judge: PlannedJudge, prompt: Prompt | None = None) -> PlannedJudge:
    """The task check by the model of a judge. prompt: None for the usual one."""
    own = judge.spec
    # Neither split nor channel: a check reads the whole message, and no list of attributes.
    plain = JudgeSpec(LLM, own.model, own.base_url, own.api_key_env, own.max_tokens, fields=own.fields)
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
    """Look the servers up, write down every response that the run is to have, and return the run's id. find_labels:
    gives the labels of a dataset for a memory that goes by them. instead: gives the id of a run to take in its place,
    if any, while nobody else can plan. require: raises where the prepared run must not be planned
    (`estimates.require_fit`). Raises EndpointError, StoreError, SeedError or CompositionError before that."""
    # Before the transaction: servers are asked here, and nobody else could write while one is slow to answer.
    prepared = prepare(store, spec)
    labels = labels_for(store, spec.dataset, prepared.composition, find_labels)
    if require is not None:
        require(store, prepared, labels)
    with store.write(Role.OPERATOR) as connection:
        if instead is not None:
            versions.lock(connection, datasets.named(connection, spec.dataset).id)
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
    """Write a prepared run with all its responses in the transaction at hand; returns its id. by: of `labels_for`.
    sweep, cell: what it is a part of. Raises like `plan`."""
    spec, what, server, judges = prepared.spec, prepared.composition, prepared.server, prepared.judges
    dataset = datasets.named(connection, spec.dataset)
    source = by.source if by else None
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
            "name": spec.name or _name(spec, dataset.name),
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
        raise StoreError(_nothing(spec, what))
    work.queue(connection, run_id)
    return run_id


def _manifest(prepared: Prepared, dataset: DatasetRow, data_hash: str, source: LabelSource | None) -> dict[str, object]:
    """What shapes a run, for good."""
    spec, wording, what, server = prepared.spec, prepared.wording, prepared.composition, prepared.server
    judges = [judge.as_json() for judge in prepared.judges]
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
            **({"system": _system(what.system, prepared)} if what.system else {}),
        },
        "mitigation": {"kind": str(spec.mitigation), "prompt": prompt_part(wording.before) if wording.before else None},
        "parameters": prepared.parameters,
        "sampling": "as sent" if spec.sampling or spec.temperature is not None else "the model's defaults",
        "judge": judges[0],
        "judges": judges,
        "check": spec.check,
        "cap": spec.cap,
        "fresh": spec.fresh,
        **({"reference": spec.reference.as_json()} if spec.reference else {}),
        **(
            {"sessions": spec.sessions.manifest(prompt_part(wording.earlier))}
            if spec.sessions and wording.earlier
            else {}
        ),
        "seeds_hash": seeds.seeds_hash(),
        "asked": spec.as_json(),
        "versions": {
            "cimemories": version.__version__,
            "revision": version.revision(),
            "openai": metadata.version("openai"),
            "python": platform.python_version(),
            "server": server.version,
        },
    }


def _system(system: SystemSpec, prepared: Prepared) -> dict[str, object]:
    about: dict[str, object] = {"name": system.name, "version": system.make().version, "options": dict(system.options)}
    prices = prepared.spec.memory.prices
    about |= {"prices": prices.as_json()} if prices else {}
    return about | ({"server": prepared.memory_server.as_json()} if prepared.memory_server else {})


def _name(spec: RunSpec, dataset: str) -> str:
    marks = {
        spec.prompt_level: "base",
        str(spec.mitigation): "none",
        spec.memory.read().label: "full",  # without the options that are at their defaults
        f"thinking {spec.thinking}": "thinking default",
        f"sessions {spec.sessions.label if spec.sessions else ''}": "sessions ",
    }
    more = ", ".join(mark for mark, usual in marks.items() if mark != usual)
    return f"{spec.model} on {dataset}" + (f" ({more})" if more else "")


def _nothing(spec: RunSpec, what: Composition) -> str:
    if what.needs_labels:
        return (
            f"no context of '{spec.dataset}' has both a necessary and an inappropriate attribute, so there is no "
            f"memory '{what.label}'. Look at `cimemories consensus -d {spec.dataset}`."
        )
    return f"the dataset '{spec.dataset}' has no profile with a context: there is nothing to run."


def wording_of(spec: RunSpec) -> Wording:
    """The wording that a run is planned with: its own where it brings one, else that of the seeds."""
    given, kind = spec.prompts, str(spec.mitigation)
    return Wording(
        respond=given.get("respond") or seeds.load_prompt("respond", spec.prompt_level),
        lines=given.get("memory") or seeds.load_prompt("memory", spec.memory.template),
        before=None if kind == Mitigation.NONE else given.get(kind) or seeds.load_prompt(kind),
        reference=spec.reference,
        earlier=None if spec.sessions is None else given.get("session") or seeds.load_prompt("session"),
    )


def keep(connection: sa.Connection, prompt: Prompt) -> str:
    """Keep the wording of a prompt in the record; returns its hash."""
    return runs.keep_prompts(
        connection,
        digest=prompt.sha256,
        kind=prompt.kind,
        level=prompt.level,
        template=prompt.template,
        answers=prompt.answers,
        source=prompt.source,
    )


def prompt_part(prompt: Prompt) -> dict[str, object]:
    """A wording as a manifest names it; read back as a PromptPart."""
    return {name: getattr(prompt, name) for name in ("kind", "level", "sha256", "answers", "source")}


def add_judge(connection: sa.Connection, run_id: str, judge: PlannedJudge, timeout: float = 120.0) -> int:
    """Make this a judge of the run; returns its id. timeout: where its spec has none."""
    spec = judge.spec
    # Only where they differ from the plain way, so that a judge asked plainly keeps its identity.
    options: dict[str, object] = {"split": spec.split} if spec.split else {}
    options |= {"schema": judge.schema} if judge.schema != "json_schema" else {}
    options |= {"reference": spec.reference.as_json()} if spec.reference else {}
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
