"""Profiles written by a model (paper, Section 4.1.1): one call for the general attributes of a profile, then one for
each of its life events, nine information domains in each.

The calls of one profile follow each other, because each prompt holds what was written before, so that nothing
contradicts; profiles are written side by side. What breaks a rule (authoring_rules) is rejected with its reason and
asked for again, at most twice. The dataset is made in the transaction that settles the last part, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import sqlalchemy as sa

from cimemories import seeds
from cimemories.access.roles import Role
from cimemories.curation import authoring_rules
from cimemories.curation.authoring_rules import LONGEST_TEXT, MOST_ITEMS, Reason, Rejection, Review
from cimemories.curation.offline import Biography, faker_of, known_locale, sample_biography, seeded_source
from cimemories.evaluation.costs import capped, curation_cost
from cimemories.evaluation.estimates import (
    Estimate,
    OneKind,
    Traversal,
    counting_client,
    refuse_misfits,
    stages_of,
)
from cimemories.evaluation.planning import LookUp, look_up, served
from cimemories.evaluation.prices import Prices, check_money, money
from cimemories.llm import replies, worker
from cimemories.llm.capabilities import Server
from cimemories.llm.client import Client
from cimemories.llm.endpoint import DEFAULT_KEY_ENV, Endpoint, EndpointError
from cimemories.llm.executor import Job, Progress
from cimemories.llm.ray_engine import Cluster
from cimemories.llm.replies import response_format, status_of, truncated
from cimemories.llm.scripts import Ask, Branch, asking
from cimemories.llm.source import SIMULATOR, MakeClient, Source, Unit
from cimemories.model import DOMAINS, GENERAL, Attribute, ChatRequest, Context, Profile, ResponseStatus, WorkStatus
from cimemories.seeds import packs
from cimemories.seeds.prompts import Prompt
from cimemories.seeds.reading import SeedError
from cimemories.store import calls, datasets, generations, work
from cimemories.store.calls import Answer
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.generations import GenerationRow, Part
from cimemories.store.tables import generation_part
from cimemories.store.team import log
from cimemories.store.upkeep import deleting
from cimemories.text import count

# ---- people: biographies by Faker and the events to come, seeded, before any model is asked


@dataclass(frozen=True)
class Person(Biography):
    """A biography, and the events of that life in the order in which they are written."""

    events: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "events": list(self.events)}


def people(count: int, *, seed: int, locale: str, events: int) -> list[Person]:
    """`count` people, no name twice; the first k of n are the k. The same arguments give the same people. `locale` is
    one of offline.LOCALES. Raises SeedError for another one, for more events than the seeds have, or where the locale
    has too few names."""
    names = [event.name for event in seeds.load_events()]
    if not 1 <= events <= len(names):
        raise SeedError(f"{events} events per profile are not possible; the seeds have {len(names)}, take 1 or more.")
    locale = known_locale(locale)
    faker = faker_of(locale)
    persons: list[Person] = []
    taken: set[str] = set()
    for index in range(count):
        source = seeded_source(faker, locale, f"cimemories biography {seed} {index}")
        biography = sample_biography(source, taken)
        taken.add(biography.name)
        persons.append(Person(**asdict(biography), events=tuple(source.random.sample(names, events))))
    return persons


# ---- prompts and the schema of answers


NONE = "(none)"
MOST_REFUSED = 40  # lines; a model that went wrong more often than that is helped no further by reading on
TOKENS_AN_ATTRIBUTE = 40  # of an answer: key, value and sentence, with the JSON around them
# Stands in a prompt for an attribute that is not written yet: with its key 24 tokens, as usual.
STAND_IN = Attribute("x" * 20, None, GENERAL, GENERAL, "x" * 72)


def authoring_prompts() -> dict[str, Prompt]:
    """The wording of both kinds of call, by level."""
    return {level: seeds.load_prompt("generate", level) for level in ("event", GENERAL)}


def request_text(
    prompt: Prompt,
    *,
    biography: Sequence[Attribute],
    memories: Sequence[Attribute],
    about: str,
    missing: Mapping[str, int],
    rejected: Sequence[Mapping[str, object]],
) -> str:
    """One prompt. memories: all that is accepted so far beyond the biography; missing: how many attributes of each
    domain to write; rejected: records of what was rejected in this part."""
    return prompt.render(
        biography="\n".join(f"- {replies.one_line(item.statement)}" for item in biography),
        memories="\n".join(f"- {item.key}: {replies.one_line(item.statement)}" for item in memories) or NONE,
        about=about,
        wanted="\n".join(f"- {domain}: {count}" for domain, count in missing.items()),
        refused="\n".join(_rejection_line(item) for item in rejected[-MOST_REFUSED:]) or NONE,
    )


def _rejection_line(item: Mapping[str, object]) -> str:
    texts = {name: replies.one_line(str(item.get(name) or "")) for name in ("domain", "key", "detail", "said")}
    path = " / ".join(text for text in (texts["domain"], texts["key"]) if text)
    detail = f" ({texts['detail']})" if texts["detail"] else ""
    quote = f': "{texts["said"][:LONGEST_TEXT]}"' if texts["said"] else ""
    return f"- {path or 'the answer'}: {item['reason']}{detail}{quote}"


def _about(event: str, person: Person) -> str:
    """What a part is about. The general attributes come first and know the events by name only; an event comes with its
    description."""
    if event == GENERAL:
        return f"{GENERAL}: {', '.join(person.events)}"
    description = next((item.description for item in seeds.load_events() if item.name == event), None)
    return event if description is None else f"{event}: {description}"


def attributes_of(event: str, per_domain: int, general: int) -> dict[str, int]:
    """How many attributes a part is to have, by domain."""
    return {GENERAL: general} if event == GENERAL else dict.fromkeys(DOMAINS, per_domain)


def answer_schema(counts: Mapping[str, int]) -> dict[str, object]:
    """The response_format that holds an answer to lists of attributes, as many for each domain as `counts` has. Texts
    have no pattern and no length here: a server has to compile each new schema, and with xgrammar those bounds made
    that 5 to 20 seconds where it is 0.03 without. The rules look at both anyway."""
    text: dict[str, object] = {"type": "string"}
    items = {"type": "array", "items": text, "minItems": 1, "maxItems": MOST_ITEMS}
    value = {"anyOf": [text, {"type": "number"}, {"type": "boolean"}, items]}
    attribute = replies.object_schema({"key": text, "value": value, "statement": text})
    lists = {
        domain: {"type": "array", "items": attribute, "minItems": count, "maxItems": count}
        for domain, count in counts.items()
    }
    return replies.answer_form("attributes", lists)


# ---- what is to be written, and what that comes to before a server is asked


ATTEMPTS = 3  # the first, and two more for what was rejected


@dataclass(frozen=True)
class AuthoringSpec:
    """What is to be written: `per_domain` attributes for each of nine domains of each event, and `general` others.

    seed: of the people and their events. model_seed: sent to the server; None sends none to a real server (some refuse
    it, and vLLM's CPU engine dies of it) and `seed` to the simulator. timeout: seconds for one request, whose answer is
    a whole part of a profile. prices: of the model's tokens; None: not known. cap: what the generation may cost, in the
    unit of the prices, which then have to be known.
    """

    name: str
    profiles: int
    model: str
    base_url: str
    seed: int = 0
    locale: str = "en_US"
    per_domain: int = 7
    events: int = 3
    general: int = 10
    contexts: tuple[str, ...] = packs.CORE
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    max_tokens: int | None = 8192
    model_seed: int | None = None
    timeout: float = 300.0
    prices: Prices | None = None
    cap: float | None = None

    @property
    def fields(self) -> dict[str, object]:
        """The further fields of its requests, without the limit on tokens."""
        return {} if self.temperature is None else {"temperature": self.temperature}


def estimate(
    store: Store, spec: AuthoringSpec, *, concurrency: int = 32, look_up: LookUp = partial(look_up, retries=1)
) -> Estimate:
    """What a generation would come to if nothing is rejected. Raises StoreError or SeedError where it could not be
    planned. A server that does not answer is taken to do all that is asked of it."""
    unreachable: list[str] = []

    def ask(*question: Any) -> Server:
        try:
            return look_up(*question)
        except EndpointError as error:
            unreachable.append(f"{str(error).rstrip('.')}: counted as if nothing was recorded")
            return Server(simulated=spec.base_url == SIMULATOR)

    prepared = prepare(store, spec, ask)
    return replace(_estimated(store, prepared), concurrency=concurrency, unreachable=tuple(unreachable))


def _estimated(store: Store, prepared: Prepared) -> Estimate:
    """Each prompt holds what was written before it, by statements of a usual length that stand for the real ones."""
    spec, texts = prepared.spec, authoring_prompts()
    asks_nobody = counting_client(store, spec.base_url, prepared.server)
    sizes = [attributes_of(event, spec.per_domain, spec.general) for event in (GENERAL, *("event",) * spec.events)]
    branches, sentences = [], seeds.load_general().bio
    for person in prepared.people:
        written: list[Attribute] = []
        for event, size in zip((GENERAL, *person.events), sizes, strict=True):
            text = request_text(
                texts[GENERAL if event == GENERAL else "event"],
                biography=person.attributes(sentences),
                memories=written,
                about=_about(event, person),
                missing=size,
                rejected=(),
            )
            form = response_format(answer_schema(size), prepared.server.schema)
            request = ChatRequest(spec.model, (("user", text),), {**prepared.parameters, **form}, prepared.seed)
            branches.append([Branch(partial(asking, Ask("generate", asks_nobody, request)))])
            written += [STAND_IN] * sum(size.values())
    attributes = sum(sum(size.values()) for size in sizes)
    usual = attributes / len(sizes) * TOKENS_AN_ATTRIBUTE
    with store.read() as connection:
        counter = Traversal(connection, set())
        counter.count(branches)
        rows = reversed(generations.all_rows(connection))
        before = [row.id for row in rows if row.model == spec.model and row.simulated == prepared.server.simulated]
        known = OneKind(
            *(connection, before, generation_part, prepared.server, spec.max_tokens, spec.prices),
            usual=(round(usual), f"about {TOKENS_AN_ATTRIBUTE} completion tokens an attribute"),
        )
        stages, assumptions = stages_of(known, counter)
    if any(stage.requests for stage in stages):
        again = f"what is rejected is asked for again, at most {ATTEMPTS - 1} times: at most {ATTEMPTS} times as much"
        assumptions = (*assumptions, again)
    return Estimate(
        *(spec.profiles, spec.profiles * attributes, stages, assumptions, 32, spec.cap),
        unit="profile",
        counts=("attribute", "attribute"),
    )


# ---- what came of a generation


@dataclass(frozen=True)
class Report:
    """One generation in numbers. Attributes are those that a model writes, without the four of each biography.
    rejected: how often something was rejected, by reason and over all attempts, so an attribute that took three
    attempts counts up to three times. left_out: profiles without a usable attribute; 0 while parts remain."""

    id: str
    name: str
    model: str
    simulated: bool
    status: str
    error: str | None
    dataset: int | None
    dataset_name: str | None
    parts: dict[str, int]
    wanted: int
    kept: int
    left_out: int
    rejected: dict[str, int]
    failures: tuple[tuple[str, str, int], ...]
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: float | None
    currency: str

    @property
    def missing(self) -> int:
        return self.wanted - self.kept

    def as_json(self) -> dict[str, object]:
        """For scripts."""
        return {**asdict(self), "missing": self.missing}

    def rejection_counts(self) -> list[tuple[str, int]]:
        """Why something was asked for again, with how often: what was wrong, and where too little came."""
        return [
            ("domains with too few attributes" if reason == Reason.TOO_FEW else f"rejected: {reason}", count)
            for reason, count in self.rejected.items()
        ]

    def lines(self) -> list[str]:
        """For people: what there is first, then what there is not and why."""
        where = f"dataset '{self.dataset_name}'" if self.dataset_name else "no dataset"
        simulated = " (simulated)" if self.simulated else ""
        spent = "" if self.cost is None else f", cost {money(self.cost, self.currency)}"
        lines = [
            f"{self.id}: {where}{simulated}, {self.kept:,} of {count(self.wanted, 'attribute')} written, "
            f"{self.prompt_tokens:,} prompt and {count(self.completion_tokens, 'completion token')}{spent}"
        ]
        if self.dataset_name and self.dataset_name != self.name:
            lines.append(f"  the name '{self.name}' was taken in the meantime")
        lines += [f"  {count:,} {reason}" for reason, count in self.rejection_counts()]
        lines += [f"  parts {status}: {count} ({cause})" for status, cause, count in self.failures]
        if self.left_out:
            lines.append(f"  left out: {count(self.left_out, 'profile')} without a usable attribute")
        return lines


def report(store: Store, generation_id: str) -> Report:
    """A generation as it stands now. Raises StoreError where there is none of that id."""
    with store.read() as connection:
        row = generations.named(connection, generation_id)
        parts = generations.parts(connection, generation_id)
        rejected = generations.rejections(connection, generation_id)
        failures = generations.failures(connection, generation_id)
        names = {item.id: item.name for item in datasets.all_rows(connection)}
    cost = curation_cost(store, generation_id)
    used = [stage.used for stage in cost.stages]
    manifest: Mapping[str, Any] = row.manifest
    sizes = [attributes_of(part.event, manifest["per_domain"], manifest["general"]) for part in parts]
    # People with nothing but a biography, which is none of the model's work.
    empty = {part.profile for part in parts} - {part.profile for part in parts if part.attributes}
    return Report(
        id=row.id,
        name=row.name,
        model=row.model,
        simulated=row.simulated,
        status=str(row.status),
        error=row.error,
        dataset=row.dataset,
        dataset_name=None if row.dataset is None else names.get(row.dataset),
        parts=row.parts,
        wanted=sum(sum(size.values()) for size in sizes),
        kept=sum(len(part.attributes) for part in parts),
        left_out=len(empty) if row.settled == row.expected else 0,
        rejected=rejected,
        failures=tuple(failures),
        prompt_tokens=sum(part.prompt_tokens for part in used),
        cached_tokens=sum(part.cached_tokens for part in used),
        completion_tokens=sum(part.completion_tokens for part in used),
        cost=cost.amount,
        currency=cost.currency,
    )


@dataclass(frozen=True)
class Live:
    """A generation under way, as it is looked at again and again: cheap, and the same at any size of its answers.
    slowed: what slows it down, '' for nothing. cost: so far, for people; empty where no price is known."""

    status: WorkStatus
    slowed: str
    settled: int
    expected: int
    rejected: dict[str, int]
    failures: tuple[tuple[str, str, int], ...]
    prompt_tokens: int
    completion_tokens: int
    cost: str


def live(store: Store, generation_id: str) -> Live:
    """How far a generation has come. Raises StoreError where there is none of that id."""
    cost = curation_cost(store, generation_id)
    with store.read() as connection:
        settled, expected = generations.progress(connection, generation_id)
        row = work.load(connection, generation_id)
        return Live(
            status=work.shown_status(row),
            slowed=row["error"] or "",
            settled=settled,
            expected=expected,
            rejected=generations.rejections(connection, generation_id),
            failures=tuple(generations.failures(connection, generation_id)),
            prompt_tokens=sum(stage.used.prompt_tokens for stage in cost.stages),
            completion_tokens=sum(stage.used.completion_tokens for stage in cost.stages),
            cost=cost.text if cost.prices else "",
        )


def all_generations(store: Store) -> list[GenerationRow]:
    """Every generation of the workspace, oldest first."""
    with store.read() as connection:
        return generations.all_rows(connection)


def discard(store: Store, generation_id: str) -> None:
    """Delete a generation that made no dataset; its answers stay recorded. Raises StoreError like `deleting.delete`."""
    with store.read() as connection:
        deletion = deleting.of_work(connection, generation_id)
    deleting.delete(store, deletion)


# ---- planning and running


ORIGIN = "generated"
_ORDINALS = {domain: ordinal for ordinal, domain in enumerate(DOMAINS)}
FOR_GOOD = "rejected"  # an HTTP refusal of this request: no repetition can do better


@dataclass(frozen=True)
class Prepared:
    """A generation whose people are sampled and whose server has been looked up; nothing of it is written yet. spec:
    with the server's right address."""

    spec: AuthoringSpec
    people: Sequence[Person]
    contexts: Sequence[Context]
    server: Server

    @property
    def parameters(self) -> dict[str, object]:
        """The further fields of its requests, as sent."""
        limit, fields = self.server.token_limit, self.server.accepted(self.spec.fields)
        return fields if self.spec.max_tokens is None else {limit: self.spec.max_tokens, **fields}

    @property
    def identity(self) -> dict[str, object]:
        """The same as they are asked for, whatever the server takes: by them a plan finds work that is there."""
        limit = {} if self.spec.max_tokens is None else {"max_tokens": self.spec.max_tokens}
        return {**limit, **self.spec.fields}

    @property
    def asked_seed(self) -> int | None:
        spec = self.spec
        return spec.seed if spec.model_seed is None and self.server.simulated else spec.model_seed

    @property
    def seed(self) -> int | None:
        """The seed that is sent: none to a server that refuses seeds."""
        return None if self.server.seed is False else self.asked_seed


def prepare(store: Store, spec: AuthoringSpec, look_up: LookUp = look_up) -> Prepared:
    """Check what is asked for, sample the people and test the server; nothing is written. Raises StoreError, SeedError,
    and EndpointError where the server cannot be used."""
    if min(spec.profiles, spec.per_domain, spec.general, 1 if spec.max_tokens is None else spec.max_tokens) < 1:
        raise StoreError("profiles, attributes for each domain, general attributes and tokens must be 1 or more.")
    check_money((spec.model, spec.prices), [], None, spec.cap)
    persons = people(spec.profiles, seed=spec.seed, locale=spec.locale, events=spec.events)
    contexts = packs.contexts_of(spec.contexts, store.workspace)
    server = served(store, spec.base_url, spec.api_key_env, spec.model, 1, spec.model_seed, spec.fields, look_up)
    return Prepared(replace(spec, base_url=server.base_url or spec.base_url), persons, contexts, server)


def plan(store: Store, spec: AuthoringSpec, *, allow_too_long: bool = False) -> str:
    """Look the server up, sample the people, record what is to be written, and return the id of the generation. A
    generation without a dataset that was planned with the same content is continued instead of beginning another.
    Raises EndpointError, StoreError or SeedError before anything is written, StoreError also where it is running, and,
    unless `allow_too_long`, where requests do not fit into the server's context."""
    if not spec.name.strip():
        raise StoreError("the dataset needs a name (on the command line: --dataset).")
    prepared = prepare(store, spec)
    if prepared.server.max_model_len and not allow_too_long:
        # One person: what the others' prompts hold is as long.
        refuse_misfits(_estimated(store, replace(prepared, people=prepared.people[:1])))
    spec, server = prepared.spec, prepared.server
    answering = str(server.identity)
    content = {
        "people": [person.as_json() for person in prepared.people],
        "contexts": [[context.task, context.recipient, context.sphere] for context in prepared.contexts],
        "prompts": {level: prompt.sha256 for level, prompt in authoring_prompts().items()},
        "parameters": prepared.identity,
        "seed": prepared.asked_seed,
        "per_domain": spec.per_domain,
        "general": spec.general,
    }
    # Without the address: a server of the same model elsewhere goes on with what is there.
    identity = content_hash([content, spec.model, server.simulated])
    how = {
        "parameters": prepared.parameters,
        "seed": prepared.seed,
        "schema": server.schema,
        "capabilities": server.as_json(),
        "prices": spec.prices.as_json() if spec.prices else None,
        "cap": spec.cap,
        "asked": asdict(spec),
    }
    manifest = {
        **content,
        **how,
        "identity": identity,
        "server": answering,
        "seeds": seeds.seeds_hash(),
        "faker": version("faker"),
    }
    with store.write(Role.OPERATOR) as connection:
        calls.keep_servers(connection, [answering])
        unfinished = generations.unfinished(connection, spec.name, identity)
        if unfinished is not None:
            generations.move(connection, unfinished, spec.base_url, how)
            return unfinished
        if any(row.name == spec.name for row in datasets.all_rows(connection)):
            raise StoreError(
                f"a dataset named '{spec.name}' exists already. Give this one another name (on the command line: "
                "--dataset)."
            )
        log.add(connection, "generation.planned", spec.name, model=spec.model)
        return generations.add(
            connection,
            name=spec.name,
            model=spec.model,
            endpoint=spec.base_url,
            simulated=server.simulated,
            manifest=manifest,
            events=[(GENERAL, *person.events) for person in prepared.people],
        )


def execute(
    store: Store,
    generation_id: str,
    *,
    base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
    cluster: Cluster | None = None,
) -> Progress:
    """Write what remains of a generation and make its dataset; waits until it is done. `base_url` replaces the recorded
    address; `cluster`: as of `worker.perform`. One that is paused returns what was done until then. Raises what
    `worker.perform` raises, and WorkError where parts failed (a resume asks again) or where nothing that was written
    could be kept (then there is no dataset)."""

    def owes() -> bool:
        with store.read() as connection:
            return bool(generations.owing_profiles(connection, generation_id))

    progress = worker.perform(
        store,
        generation_id,
        GenerationSource(generation_id, base_url),
        concurrency=concurrency,
        on_progress=on_progress,
        queued=queued,
        stop_when=capped(store, generation_id, owes=owes, queued=queued),
        cluster=cluster,
    )
    _conclude(store.patient(), generation_id)
    return progress


@dataclass(frozen=True)
class GenerationSource(Source):
    """The parts that a generation owes, by the number of their profile. moved_to: where its server is now."""

    generation_id: str
    moved_to: str | None = None

    def servers(self, store: Store) -> list[str]:
        with store.read() as connection:
            return [self.moved_to or generations.named(connection, self.generation_id).endpoint]

    def key_variables(self, store: Store) -> list[str]:
        with store.read() as connection:
            return [self._author(connection)[0].spec["api_key_env"]]

    def profiles(self, store: Store) -> Sequence[int]:
        with store.write() as connection:
            ordinals = generations.owing_profiles(connection, self.generation_id)
            if not ordinals:
                self._author(connection)[0].finish_if_settled(connection)
        return ordinals

    def most_parts(self, store: Store) -> int:
        return 1  # the parts of a profile are written one after the other

    def opened(self, store: Store, client: MakeClient, urls: Mapping[str, str]) -> Callable[[Unit], Iterator[Job]]:
        def read() -> tuple[Author, GenerationRow]:
            with store.read() as connection:
                return self._author(connection)

        author, row = store.retry(read)
        address = self.moved_to or row.endpoint
        endpoint = Endpoint(
            urls.get(address, address), author.spec["api_key_env"], author.spec["timeout"], server=author.server
        )
        asks = client(endpoint, row.simulated)
        return lambda unit: author.first_jobs(store, asks, unit.profile)

    def _author(self, connection: sa.Connection) -> tuple[Author, GenerationRow]:
        row = generations.named(connection, self.generation_id)
        return Author(self.generation_id, row.manifest, row.model), row


def _conclude(store: Store, generation_id: str) -> None:
    """Leave a status that is true: the work ended, but that is no success where there is no dataset."""
    with store.write() as connection:
        row = generations.named(connection, generation_id)
        if row.dataset is not None or row.status == WorkStatus.PAUSED or work.is_claimed(connection, generation_id):
            return  # it has its dataset, was paused, or somebody has resumed it since
        # Asked in the transaction that sets the status, after perform has let go of its claim.
        open_parts = row.expected - row.settled
        why = "; ".join(
            f"{n} {status} ({cause})" for status, cause, n in generations.failures(connection, generation_id)
        )
        if open_parts:
            status, reason = WorkStatus.INTERRUPTED, f"{open_parts} of {row.expected} parts are not written: {why}"
            after = f"Ask for them again with `cimemories resume {generation_id}`; what is written is kept."
        else:
            status = WorkStatus.FAILED
            rejections = generations.rejections(connection, generation_id)
            counted = ", ".join(f"{count} {rejection}" for rejection, count in rejections.items()) or why
            reason = f"nothing that the model wrote could be kept ({counted}), so no dataset was made"
            after = "Generate again with another model or a larger token limit (on the command line: --max-tokens)."
        work.finish(connection, generation_id, status, reason)
    raise worker.WorkError(f"{generation_id}: {reason}. {after}")


class Author:
    """Makes the calls of one generation, one after the other for each profile, from what its manifest holds."""

    def __init__(self, generation_id: str, manifest: Mapping[str, Any], model: str) -> None:
        self.generation_id, self.model = generation_id, model
        self.server: str | None = manifest.get("server")
        try:
            self.spec = dict(manifest["asked"])
            self.parameters = dict(manifest["parameters"])
            self.people = [Person(**{**p, "events": tuple(p["events"])}) for p in manifest["people"]]
            self.contexts = tuple(Context(*item) for item in manifest["contexts"])
            self.per_domain, self.general = int(manifest["per_domain"]), int(manifest["general"])
            self.seed = None if manifest["seed"] is None else int(manifest["seed"])
            # Planned before servers were tested: all were asked for a JSON schema then.
            self.schema = str(manifest.get("schema", "json_schema"))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the manifest of {generation_id} cannot be read ({error}). Start a new one with `cimemories generate`."
            ) from error
        self.prompts = authoring_prompts()
        if {level: prompt.sha256 for level, prompt in self.prompts.items()} != manifest["prompts"]:
            raise StoreError(
                f"the prompts in seeds/prompts/generate.yaml have changed since {generation_id} was planned. Start a "
                "new one with `cimemories generate`, or restore the old wording."
            )

    def first_jobs(self, store: Store, client: Client, ordinal: int) -> Iterator[Job]:
        """The next call of a profile; those after it follow from its outcome."""

        def jobs() -> list[Job]:
            with store.read() as connection:
                return self.next_jobs(connection, client, ordinal)

        yield from store.retry(jobs)

    def next_jobs(self, connection: sa.Connection, client: Client, ordinal: int) -> list[Job]:
        """The next call of a profile, none where all its parts are settled. Parts are written in order."""
        parts = generations.parts(connection, self.generation_id, ordinal)
        part = next((p for p in parts if p.open), None)
        if part is None:
            return []
        person = self.people[ordinal]
        biography = person.attributes(seeds.load_general().bio)
        written = [item for p in parts if p.position <= part.position for item in p.attributes]
        missing = self.missing(part)
        text = request_text(
            self.prompts[GENERAL if part.event == GENERAL else "event"],
            biography=biography,
            memories=written,
            about=_about(part.event, person),
            missing=missing,
            rejected=part.rejected,
        )
        form = response_format(answer_schema(missing), self.schema)
        request = ChatRequest(self.model, (("user", text),), {**self.parameters, **form}, self.seed)
        settle = _Settle(self, client, part, missing, (*biography, *written))
        # The attempt is the draw: an answer that cannot be read would otherwise be served from the record again.
        return [Job("generate", client, request, (part.attempt,), settle)]

    def missing(self, part: Part) -> dict[str, int]:
        """How many attributes a part still lacks, by domain."""
        written = Counter(item.domain for item in part.attributes)
        whole = attributes_of(part.event, self.per_domain, self.general)
        return {domain: count - written[domain] for domain, count in whole.items() if count > written[domain]}

    def finish_if_settled(self, connection: sa.Connection) -> None:
        """Make the dataset once no part is open any more, in this transaction."""
        work.take_turns(connection, self.generation_id)
        row = generations.named(connection, self.generation_id)
        # Another worker may have made it, or a resume come here twice.
        if row.settled < row.expected or row.dataset is not None:
            return
        written: dict[int, list[Attribute]] = {}
        for part in generations.parts(connection, self.generation_id):
            # What was asked for again came last; a profile goes through the domains in their order.
            in_order = sorted(part.attributes, key=lambda item: _ORDINALS.get(item.domain, 0))
            written.setdefault(part.profile, []).extend(in_order)
        # A biography alone is no profile: people without a usable attribute are left out, and reported.
        sentences = seeds.load_general().bio
        profiles = [
            Profile(p.name, p.sex, p.address, p.age, (*p.attributes(sentences), *written[i]), self.contexts)
            for i, p in enumerate(self.people)
            if written.get(i)
        ]
        if not profiles:
            return
        taken = any(other.name == row.name for other in datasets.all_rows(connection))
        dataset_id = datasets.add(
            connection,
            f"{row.name} ({row.id})" if taken else row.name,  # paid-for work is not lost to a name
            profiles,
            origin=ORIGIN,
            source_name=f"{row.model}, simulated" if row.simulated else row.model,
            source_hash=content_hash(["generation", row.id]),
        )
        generations.set_dataset(connection, row.id, dataset_id)
        name = log.dataset_name(connection, dataset_id)
        log.add(connection, "dataset.created", name, profiles=len(profiles), generation=row.id)


@dataclass(frozen=True)
class _Settle:
    """Takes the answer to one call. missing: what was asked for; existing: what it must not repeat."""

    author: Author
    client: Client
    part: Part
    missing: Mapping[str, int]
    existing: Sequence[Attribute]

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        answer = outcomes[self.part.attempt]
        # A server that failed may succeed at a resume; a request that it refuses never will, so that part is settled.
        if not answer.ok and answer.status != FOR_GOOD:
            generations.fail(connection, self.part.id, answer.status, answer.key)
            return ()
        self._write(connection, answer)
        # In the same transaction: the next prompt must hold what this answer has just added.
        following = self.author.next_jobs(connection, self.client, self.part.profile)
        if not following:
            self.author.finish_if_settled(connection)
        return following

    def _write(self, connection: sa.Connection, answer: Answer) -> None:
        part = self.part
        if answer.ok and status_of(answer)[0] != ResponseStatus.REFUSED:
            review = self._review(answer)
            lacking = sum(self.missing.values()) - len(review.accepted)
            # Without a rejection the model was given no reason to answer otherwise.
            again = bool(review.rejected) and part.attempt + 1 < ATTEMPTS and lacking > 0
            status, cause = (generations.SHORT, "attributes are missing") if lacking else (generations.OK, None)
        else:
            review, again = Review((), ()), False
            status, cause = generations.REFUSED, f"the server refuses the request: {answer.error}"[:300]
        generations.settle(
            connection,
            part.id,
            status=generations.OWED if again else status,
            attempt=part.attempt + 1 if again else part.attempt,
            cause=None if again else cause,
            call_key=answer.key,
            attributes=[*part.attributes, *review.accepted],
            rejected=[*part.rejected, *({**item.as_json(), "call": answer.key} for item in review.rejected)],
        )

    def _review(self, answer: Answer) -> Review:
        """What an answer adds, and what of it is rejected; an answer that cannot be read adds nothing."""
        attempt = self.part.attempt
        if truncated(answer):
            detail = "write shorter statements, so that the whole object fits"
            return Review((), (Rejection(Reason.CUT, attempt, detail=detail),))
        try:
            value = replies.read_object(answer.content)
        except replies.AnswerError as error:
            # A model that only reasoned is told nothing new by "no JSON object".
            return Review((), (Rejection(Reason.UNREADABLE, attempt, detail=answer.error or str(error)),))
        return authoring_rules.review(value, self.missing, self.part.event, self.existing, attempt)
