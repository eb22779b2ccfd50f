"""Profiles written by a model (paper, Section 4.1.1): one call for the general attributes of a profile, then one for
each of its life events, nine information domains in each.

The calls of one profile follow each other, because each prompt holds what was written before, so that nothing
contradicts; profiles are written side by side. What breaks a rule (authoring_rules) is rejected with its reason and
asked for again, at most twice. The dataset is made in the transaction that settles the last part, or not at all.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.metadata import version

import sqlalchemy as sa

from cimemories import seeds
from cimemories.access.roles import Role
from cimemories.answer import attributes
from cimemories.curation.authoring_rules import LONGEST_TEXT, MOST_ITEMS, Reason, Rejection, review
from cimemories.curation.offline import Biography, biographies
from cimemories.curation.plans import Asked, CurationSource, ask_server
from cimemories.curation.spec import AuthoringSpec
from cimemories.evaluation.costs import Cost, cost_of
from cimemories.evaluation.estimates import CountingClient, Estimate, Traversal, or_recorded, refuse_misfits
from cimemories.evaluation.planning import LookUp, look_up
from cimemories.llm import worker
from cimemories.llm.client import Client
from cimemories.llm.executor import Deferred, Job
from cimemories.llm.replies import (
    AnswerError,
    answer_form,
    object_schema,
    one_line,
    read_object,
    response_format,
    status_of,
    truncated,
)
from cimemories.llm.scripts import Ask, Branch, Keep, Script, begun
from cimemories.llm.source import MakeClient, Unit
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
from cimemories.text import count

# ---- people: biographies by Faker and the events to come, seeded, before any model is asked


@dataclass(frozen=True)
class Person(Biography):
    """A biography, and the events of that life in the order in which they are written."""

    events: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return GENERAL, *self.events


def people(count: int, *, seed: int, locale: str, events: int) -> list[Person]:
    """Return `count` people, no name twice; the first k of n are the k. Raises SeedError for a locale that is not one
    of offline.LOCALES or has too few names, and for more events than the seeds have."""
    names = [event.name for event in seeds.load_events()]
    if not 1 <= events <= len(names):
        raise SeedError(f"{events} events per profile are not possible; the seeds have {len(names)}, take 1 or more.")
    return [
        Person(**vars(biography), events=tuple(source.random.sample(names, events)))
        for source, biography in biographies(count, locale, f"cimemories biography {seed}")
    ]


# ---- the script


NONE = "(none)"
ATTEMPTS = 3  # the first, and two more for what was rejected
MOST_REFUSED = 40  # lines; a model that went wrong more often than that is helped no further by reading on
TOKENS_AN_ATTRIBUTE = 40  # of an answer: key, value and sentence, with the JSON around them
FOR_GOOD = "rejected"  # an HTTP refusal of this request: no repetition can do better


@dataclass(frozen=True)
class Author:
    """Writes the profiles of one generation. parameters: further fields of each request; schema: the form of
    response_format that the server takes."""

    generation: str
    model: str
    parameters: Mapping[str, object]
    seed: int | None
    schema: str
    people: Sequence[Person]
    contexts: Sequence[Context]
    per_domain: int
    general: int

    @cached_property
    def prompts(self) -> dict[str, Prompt]:
        """Return the wording of both kinds of call, by level."""
        return {level: seeds.load_prompt("generate", level) for level in ("event", GENERAL)}

    @cached_property
    def described(self) -> dict[str, str]:
        return {event.name: event.description for event in seeds.load_events()}

    @cached_property
    def sentences(self) -> Mapping[str, str]:
        """Return the sentences of biographies, by key."""
        return seeds.load_general().bio

    @classmethod
    def of(cls, row: GenerationRow) -> Author:
        """Return the author that a manifest describes. Raises StoreError if it cannot be read, or the wording has
        changed."""
        manifest = row.manifest
        try:
            author = cls(
                row.id,
                row.model,
                dict(manifest["parameters"]),
                None if manifest["seed"] is None else int(manifest["seed"]),
                # Planned before servers were tested: all were asked for a JSON schema then.
                str(manifest.get("schema", "json_schema")),
                [Person(**{**p, "events": tuple(p["events"])}) for p in manifest["people"]],
                [Context(*item) for item in manifest["contexts"]],
                int(manifest["per_domain"]),
                int(manifest["general"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the manifest of {row.id} cannot be read ({error}). Start a new one with `cimemories generate`."
            ) from error
        if {level: prompt.sha256 for level, prompt in author.prompts.items()} != manifest["prompts"]:
            raise StoreError(
                f"the prompts in seeds/prompts/generate.yaml have changed since {row.id} was planned. Start a new one "
                "with `cimemories generate`, or restore the old wording."
            )
        return author

    def write(self, client: Client, person: Person, parts: Iterable[Part]) -> Script:
        """Write what is owed of a profile, part by part, and make the dataset if that was the last part of all."""
        biography = person.attributes(self.sentences)
        memories: list[Attribute] = []
        for part in parts:
            # The general attributes come first and know the events by name only; an event comes with its description.
            level, about = "event", self.described.get(part.event)
            whole = dict.fromkeys(DOMAINS, self.per_domain)
            if part.event == GENERAL:
                level, about, whole = GENERAL, ", ".join(person.events), {GENERAL: self.general}
            while part.open:
                there = Counter(item.domain for item in part.attributes)
                missing = {domain: n - there[domain] for domain, n in whole.items() if n > there[domain]}
                written = [*memories, *part.attributes]
                text = self.prompts[level].render(
                    biography="\n".join(f"- {one_line(item.statement)}" for item in biography),
                    memories="\n".join(f"- {item.key}: {one_line(item.statement)}" for item in written) or NONE,
                    about=part.event if about is None else f"{part.event}: {about}",
                    wanted="\n".join(f"- {domain}: {count}" for domain, count in missing.items()),
                    refused="\n".join(map(_rejection_line, part.rejected[-MOST_REFUSED:])) or NONE,
                )
                form = response_format(answer_schema(missing), self.schema)
                request = ChatRequest(self.model, (("user", text),), {**self.parameters, **form}, self.seed)
                # The attempt is the draw: an answer that cannot be read would else be served from the record again.
                ask = Ask("generate", client, request, (_stand_in(missing, len(written)),), draw=part.attempt)
                part = _settled(part, (yield ask), missing, [*biography, *written])
                recorded = yield Keep(generations.settle, partial(replace, part))
                if part.status == generations.FAILED or not recorded:
                    return  # a resume asks again, or another process writes this profile
            memories += part.attributes
        yield Keep(self.make_dataset, lambda: None)

    def make_dataset(self, connection: sa.Connection, _: Sequence[None] = ()) -> None:
        """Make the dataset if no part is open any more, in this transaction."""
        work.take_turns(connection, self.generation)
        row = generations.by_id(connection, self.generation)
        # Another worker may have made it, or a resume come here twice.
        if row.settled < row.expected or row.dataset is not None:
            return
        written: defaultdict[int, list[Attribute]] = defaultdict(list)
        order = (GENERAL, *DOMAINS).index
        for part in generations.parts(connection, self.generation):
            # What was asked for again came last; a profile goes through the domains in their order.
            written[part.profile] += sorted(part.attributes, key=lambda item: order(item.domain))
        # A biography alone is no profile: people without a usable attribute are left out, and reported.
        profiles = [
            Profile(p.name, p.sex, p.address, p.age, (*p.attributes(self.sentences), *written[i]), tuple(self.contexts))
            for i, p in enumerate(self.people)
            if written[i]
        ]
        if not profiles:
            return
        taken = any(other.name == row.name for other in datasets.all_rows(connection))
        dataset_id = datasets.add(
            connection,
            f"{row.name} ({row.id})" if taken else row.name,  # paid-for work is not lost to a name
            profiles,
            origin="generated",
            source_name=f"{row.model}, simulated" if row.simulated else row.model,
            source_hash=content_hash(["generation", row.id]),
        )
        work.update(connection, row.id, dataset=dataset_id)
        name = log.dataset_name(connection, dataset_id)
        log.add(connection, "dataset.created", name, profiles=len(profiles), generation=row.id)


def _rejection_line(item: Mapping[str, object]) -> str:
    texts = {name: one_line(str(item.get(name) or "")) for name in ("domain", "key", "detail", "said")}
    path = " / ".join(text for text in (texts["domain"], texts["key"]) if text)
    detail = f" ({texts['detail']})" if texts["detail"] else ""
    quote = f': "{texts["said"][:LONGEST_TEXT]}"' if texts["said"] else ""
    return f"- {path or 'the answer'}: {item['reason']}{detail}{quote}"


def answer_schema(counts: Mapping[str, int]) -> dict[str, object]:
    """Return the response_format that holds an answer to lists of attributes, as many for each domain as `counts` has.
    Texts have no pattern or length: with xgrammar those made compiling a schema 5 to 20 seconds instead of 0.03."""
    text: dict[str, object] = {"type": "string"}
    items = {"type": "array", "items": text, "minItems": 1, "maxItems": MOST_ITEMS}
    value = {"anyOf": [text, {"type": "number"}, {"type": "boolean"}, items]}
    attribute = object_schema({"key": text, "value": value, "statement": text})
    lists = {
        domain: {"type": "array", "items": attribute, "minItems": count, "maxItems": count}
        for domain, count in counts.items()
    }
    return answer_form("attributes", lists)


def _stand_in(missing: Mapping[str, int], number: int) -> str:
    """Return an answer for a plan, of attributes that are 24 tokens each in the prompts that follow. number: of the
    first."""
    numbers = itertools.count(number)
    return json.dumps(
        {
            domain: [
                {"key": f"stand_in_{n:011}", "value": True, "statement": f"I {n:070}"}
                for n in itertools.islice(numbers, count)
            ]
            for domain, count in missing.items()
        }
    )


def _settled(part: Part, answer: Answer, missing: Mapping[str, int], existing: Sequence[Attribute]) -> Part:
    """Return a part after an answer. missing: what was asked for; existing: what it must not repeat."""
    part = replace(part, call=answer.key)
    # A server that failed may succeed at a resume; a request that it refuses never will, so that part is settled.
    if not answer.ok and answer.status != FOR_GOOD:
        return replace(part, status=generations.FAILED, cause=answer.status)
    status, _ = status_of(answer)
    if not answer.ok or status == ResponseStatus.REFUSED:
        cause = f"the server refuses the request: {answer.error}"[:300]
        return replace(part, status=generations.REFUSED, cause=cause)
    accepted: Sequence[Attribute] = ()
    if truncated(answer):
        detail = "write shorter statements, so that the whole object fits"
        rejected = [Rejection(Reason.CUT, part.attempt, detail=detail)]
    else:
        try:
            value = read_object(answer.content)
        except AnswerError as error:
            # A model that only reasoned is told nothing new by "no JSON object".
            rejected = [Rejection(Reason.UNREADABLE, part.attempt, detail=answer.error or str(error))]
        else:
            accepted, rejected = review(value, missing, part.event, existing, part.attempt)
    part = replace(
        part,
        attributes=(*part.attributes, *accepted),
        rejected=(*part.rejected, *({**item.as_json(), "call": answer.key} for item in rejected)),
    )
    if len(accepted) == sum(missing.values()):
        return replace(part, status=generations.OK, cause=None)
    # Without a rejection the model was given no reason to answer otherwise.
    if rejected and part.attempt + 1 < ATTEMPTS:
        return replace(part, status=generations.OWED, cause=None, attempt=part.attempt + 1)
    return replace(part, status=generations.SHORT, cause="attributes are missing")


# ---- planning and running


def prepare(store: Store, spec: AuthoringSpec, look_up: LookUp = look_up) -> tuple[Asked[AuthoringSpec], Author]:
    """Check the settings, sample the people and test the server; nothing is written. Raises StoreError, SeedError, and
    EndpointError if the server cannot be used."""
    persons = people(spec.profiles, seed=spec.seed, locale=spec.locale, events=spec.events)
    contexts = packs.contexts_of(spec.contexts, store.workspace)
    asked = ask_server(store, spec, look_up, draws=1, seed=spec.model_seed, simulator_seed=spec.seed)
    asks = spec.model, asked.parameters, asked.seed, asked.server.schema
    return asked, Author("", *asks, persons, contexts, spec.per_domain, spec.general)


def estimate(
    store: Store, spec: AuthoringSpec, *, concurrency: int = 32, look_up: LookUp = partial(look_up, retries=1)
) -> Estimate:
    """Return what a generation would come to if nothing is rejected. Raises StoreError or SeedError if it could not be
    planned."""
    unreachable = dict[str, None]()
    estimated = _estimated(store, *prepare(store, spec, or_recorded(store, look_up, unreachable)))
    return replace(estimated, concurrency=concurrency, unreachable=tuple(unreachable))


def _estimated(store: Store, asked: Asked[AuthoringSpec], author: Author) -> Estimate:
    spec = asked.spec
    client = CountingClient(store, spec.base_url, asked.server)
    attributes = spec.general + spec.events * spec.per_domain * len(DOMAINS)
    usual = round(attributes / (1 + spec.events) * TOKENS_AN_ATTRIBUTE)
    about = f"about {TOKENS_AN_ATTRIBUTE} completion tokens an attribute"
    with store.read() as connection:
        counter = Traversal(connection)
        # One after the other: of a prompt a server has in its cache what the one before it of the same profile held.
        for ordinal, person in enumerate(author.people):
            parts = [Part(0, ordinal, position, event) for position, event in enumerate(person.parts)]
            counter.count([[Branch(partial(author.write, client, person, parts))]])
        rows = generations.all_rows(connection)
        stages, assumptions = asked.stages(connection, counter, rows, generation_part, (usual, about))
    if any(stage.requests for stage in stages):
        again = f"what is rejected is asked for again, at most {ATTEMPTS - 1} times: at most {ATTEMPTS} times as much"
        assumptions = (*assumptions, again)
    return Estimate(
        *(len(author.people), len(author.people) * attributes, stages, assumptions, 32, spec.cap),
        unit="profile",
        counts=("attribute", "attribute"),
    )


def plan(store: Store, spec: AuthoringSpec, *, allow_too_long: bool = False) -> str:
    """Look the server up, sample the people, record what is to be written, and return the id of the generation. One
    without a dataset that was planned with the same content is continued. Raises EndpointError, StoreError or SeedError
    before anything is written; StoreError also if it is running, and, unless `allow_too_long`, if requests do not fit
    into the server's context."""
    if not spec.name.strip():
        raise StoreError("the dataset needs a name (on the command line: --dataset).")
    asked, author = prepare(store, spec)
    spec, server = asked.spec, asked.server
    if server.max_model_len and not allow_too_long:
        # One person: what the others' prompts hold is as long.
        refuse_misfits(_estimated(store, asked, replace(author, people=author.people[:1])))
    answering = str(server.identity)
    content = {
        "people": [asdict(person) for person in author.people],
        "contexts": [[context.task, context.recipient, context.sphere] for context in author.contexts],
        "prompts": {level: prompt.sha256 for level, prompt in author.prompts.items()},
        "parameters": asked.identity,
        "seed": asked.asked_seed,
        "per_domain": spec.per_domain,
        "general": spec.general,
    }
    # Without the address: a server of the same model elsewhere goes on with what is there.
    identity = content_hash([content, spec.model, server.simulated])
    manifest = {
        **content,
        **asked.manifest,
        "identity": identity,
        "server": answering,
        "seeds": seeds.seeds_hash(),
        "faker": version("faker"),
    }
    with store.write(Role.OPERATOR) as connection:
        calls.keep_servers(connection, [answering])
        unfinished = generations.unfinished(connection, spec.name, identity)
        if unfinished is not None:
            generations.move(connection, unfinished, spec.base_url, asked.manifest)
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
            events=[person.parts for person in author.people],
        )


class GenerationSource(CurationSource):
    """The parts that a generation owes, by the number of their profile."""

    def row(self, store: Store) -> GenerationRow:
        with store.read() as connection:
            return generations.by_id(connection, self.work_id)

    def owes(self, store: Store) -> list[int]:
        with store.read() as connection:
            return generations.owing_profiles(connection, self.work_id)

    def profiles(self, store: Store) -> Sequence[int]:
        # Where none owes a part, the script of any of them makes the dataset.
        return self.owes(store) or [0]

    def most_parts(self, store: Store) -> int:
        return 1  # the parts of a profile are written one after the other

    def opened(self, store: Store, client: MakeClient, urls: Mapping[str, str]) -> Callable[[Unit], Iterator[Job]]:
        row = store.retry(partial(self.row, store))
        author, asked = Author.of(row), self.client(row, client, urls)

        def parts(profile: int) -> list[Part]:
            with store.read() as connection:
                return generations.parts(connection, self.work_id, profile)

        def jobs(unit: Unit) -> Iterator[Job]:
            owed = store.retry(partial(parts, unit.profile))
            script = partial(author.write, asked, author.people[unit.profile], owed)
            yield from Deferred(partial(begun, [Branch(script)])).jobs(store)

        return jobs


def conclude(store: Store, generation_id: str) -> None:
    """Set the status of a generation that ended without a dataset. Raises WorkError for one."""
    with store.write() as connection:
        row = generations.by_id(connection, generation_id)
        if row.dataset is not None or row.status == WorkStatus.PAUSED or work.is_claimed(connection, generation_id):
            return  # it has its dataset, was paused, or was resumed since
        # Asked in the transaction that sets the status, after perform has let go of its claim.
        open_parts = row.expected - row.settled
        why = "; ".join(f"{n} {status} ({cause})" for status, cause, n in work.failures(connection, generation_id))
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


# ---- what came of a generation


@dataclass(frozen=True)
class Report:
    """A generation as it stands, without the four attributes of each biography. rejected: by reason and over all
    attempts. written: accepted attributes; left_out: profiles without one, 0 while parts remain."""

    row: GenerationRow
    dataset_name: str | None
    written: int
    left_out: int
    rejected: dict[str, int]
    failures: tuple[tuple[str, str, int], ...]
    cost: Cost

    @property
    def planned(self) -> int:
        manifest, profiles = self.row.manifest, len(self.row.manifest["people"])
        return int(
            profiles * manifest["general"] + (self.row.expected - profiles) * manifest["per_domain"] * len(DOMAINS)
        )

    @property
    def missing(self) -> int:
        return self.planned - self.written

    def tokens(self, kind: str) -> int:
        """Return the prompt, cached or completion tokens so far."""
        return sum(getattr(stage.used, f"{kind}_tokens") for stage in self.cost.stages)

    def as_json(self) -> dict[str, object]:
        """Return all of it for scripts."""
        row = attributes(self.row, "id name model simulated status error dataset parts")
        return row | {
            **attributes(self, "dataset_name planned written missing left_out rejected failures"),
            **{f"{kind}_tokens": self.tokens(kind) for kind in ("prompt", "cached", "completion")},
            "cost": self.cost.amount,
            "currency": self.cost.currency,
        }

    def lines(self) -> list[str]:
        """Return lines for people: what there is first, then what there is not and why."""
        row, cost = self.row, self.cost
        where = f"dataset '{self.dataset_name}'" if self.dataset_name else "no dataset"
        simulated = " (simulated)" if row.simulated else ""
        spent = "" if cost.amount is None else f", cost {cost.text}"
        lines = [
            f"{row.id}: {where}{simulated}, {self.written:,} of {count(self.planned, 'attribute')} written, "
            f"{self.tokens('prompt'):,} prompt and {count(self.tokens('completion'), 'completion token')}{spent}"
        ]
        if self.dataset_name and self.dataset_name != row.name:
            lines.append(f"  the name '{row.name}' was taken in the meantime")
        lines += [
            f"  {number:,} "
            + ("domains with too few attributes" if reason == Reason.TOO_FEW else f"rejected: {reason}")
            for reason, number in self.rejected.items()
        ]
        lines += [f"  parts {status}: {count} ({cause})" for status, cause, count in self.failures]
        if self.left_out:
            lines.append(f"  left out: {count(self.left_out, 'profile')} without a usable attribute")
        return lines


def report(store: Store, generation_id: str, *, under_way: bool = False) -> Report:
    """Return a generation as it stands now. under_way: leave `written` and `left_out` at 0, for which all that was
    written has to be read. Raises StoreError if there is none of that id."""
    with store.read() as connection:
        row = generations.by_id(connection, generation_id)
        parts = [] if under_way else generations.parts(connection, generation_id)
        rejected = generations.rejections(connection, generation_id)
        failures = tuple(work.failures(connection, generation_id))
        made = [] if row.dataset is None else [r.name for r in datasets.all_rows(connection) if r.id == row.dataset]
    # People with nothing but a biography, which is none of the model's work.
    empty = {part.profile for part in parts} - {part.profile for part in parts if part.attributes}
    return Report(
        row,
        made[0] if made else None,
        written=sum(len(part.attributes) for part in parts),
        left_out=len(empty) if row.settled == row.expected else 0,
        rejected=rejected,
        failures=failures,
        cost=cost_of(store, generation_id),
    )


def all_generations(store: Store) -> list[GenerationRow]:
    """Return every generation of the workspace, oldest first."""
    with store.read() as connection:
        return generations.all_rows(connection)
