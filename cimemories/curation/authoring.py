"""Profiles written by a model (paper, Section 4.1.1): one call for the general attributes of a profile, then one for
each of its life events, nine information domains in each.

The calls of one profile follow each other, because each prompt holds what was written before, so that nothing
contradicts; profiles are written side by side. What breaks a rule (authoring_rules) is turned down with its reason and
asked for again, at most twice. The dataset is made in the transaction that settles the last part, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version

import sqlalchemy as sa

from cimemories import seeds
from cimemories.curation import authoring_wording as wording
from cimemories.curation.authoring_people import Person, people
from cimemories.curation.authoring_rules import Reason, Review, review
from cimemories.curation.authoring_spec import ATTEMPTS, AuthoringSpec
from cimemories.llm import answers, worker
from cimemories.llm.client import Client, Endpoint, probe
from cimemories.llm.executor import Job, Progress
from cimemories.llm.identity import server_id
from cimemories.model import DOMAINS, GENERAL, Attribute, ChatRequest, Context, Profile, WorkStatus
from cimemories.seeds import packs
from cimemories.store import datasets, generations, servers, work
from cimemories.store.calls import Answer
from cimemories.store.engine import Store, StoreError
from cimemories.store.generations import Part
from cimemories.store.ids import content_hash

ORIGIN = "generated"
_PLACES = {domain: place for place, domain in enumerate(DOMAINS)}
FOR_GOOD = "rejected"  # an HTTP refusal of this very request: no repetition can do better


def plan(store: Store, spec: AuthoringSpec) -> str:
    """Look the server up, draw the people, write down what is wanted, and return the id of the generation.

    A generation without a dataset that was asked for the very same is gone on with instead of beginning another.
    Raises EndpointError, StoreError or SeedError before anything is written.
    """
    _check(spec)
    drawn = people(spec.profiles, seed=spec.seed, locale=spec.locale, events=spec.events)
    contexts = packs.contexts_of(spec.contexts, store.workspace)
    texts = {level: prompt.sha256 for level, prompt in wording.prompts().items()}
    with worker.reachable(spec.base_url) as url:
        server = probe(Endpoint(url, spec.api_key_env), spec.model)
    answering = server_id(url, server, store).text
    model_seed = spec.seed if spec.model_seed is None and server.simulated else spec.model_seed
    parameters: dict[str, object] = {} if spec.max_tokens is None else {"max_tokens": spec.max_tokens}
    if spec.temperature is not None:
        parameters["temperature"] = spec.temperature
    content = {
        "people": [person.as_json() for person in drawn],
        "contexts": [[context.task, context.recipient, context.sphere] for context in contexts],
        "prompts": texts,
        "parameters": parameters,
        "seed": model_seed,
        "per_domain": spec.per_domain,
        "general": spec.general,
    }
    manifest = {
        **content,
        "identity": content_hash([content, spec.model, server.simulated]),
        "server": answering,
        "asked": asdict(spec),
        "seeds": seeds.seeds_hash(),
        "faker": version("faker"),
    }
    with store.write() as connection:
        servers.remember(connection, [answering])
        there = generations.unfinished(connection, spec.name, str(manifest["identity"]))
        if there is not None:
            generations.move(connection, there, spec.base_url)
            return there
        if any(row.name == spec.name for row in datasets.all_rows(connection)):
            raise StoreError(
                f"a dataset named '{spec.name}' exists already. Give this one another name with --dataset."
            )
        return generations.add(
            connection,
            name=spec.name,
            model=spec.model,
            endpoint=spec.base_url,
            simulated=server.simulated,
            manifest=manifest,
            events=[(GENERAL, *person.events) for person in drawn],
        )


def _check(spec: AuthoringSpec) -> None:
    if not spec.name.strip():
        raise StoreError("the dataset needs a name: --dataset NAME.")
    if min(spec.profiles, spec.per_domain, spec.general, 1 if spec.max_tokens is None else spec.max_tokens) < 1:
        raise StoreError("profiles, attributes for each domain, general attributes and tokens must be 1 or more.")


def execute(
    store: Store,
    generation_id: str,
    *,
    base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
) -> Progress:
    """Write what a generation owes and make its dataset; waits until it is done. `base_url` replaces the recorded
    address. Raises what `worker.perform` raises, and WorkError where parts failed (a resume asks again) or where
    nothing that was written could be kept (then there is no dataset)."""
    with store.read() as connection:
        row = generations.named(connection, generation_id)
    author = Author(generation_id, row.manifest, row.model)
    with worker.reachable(base_url or row.endpoint) as url:
        asked = author.asked
        answering = row.manifest.get("server")
        endpoint = Endpoint(
            url,
            str(asked["api_key_env"]),
            float(str(asked["timeout"])),
            server=None if answering is None else str(answering),
        )

        def jobs(store: Store, client: Callable[[Endpoint, bool], Client]) -> Iterator[Job]:
            return author.first_jobs(store, client(endpoint, row.simulated))

        progress = worker.perform(
            store, generation_id, jobs, concurrency=concurrency, on_progress=on_progress, queued=queued
        )
    _conclude(store.patient(), generation_id)
    return progress


def _conclude(store: Store, generation_id: str) -> None:
    """Leave a status that is true: the work ended, but that is no success where there is no dataset."""
    with store.write() as connection:
        row = generations.named(connection, generation_id)
        if row.dataset is not None or work.is_claimed(connection, generation_id):
            return  # it has its dataset, or somebody has resumed it since
        open_parts = row.expected - row.settled
        why = "; ".join(
            f"{n} {status} ({cause})" for status, cause, n in generations.failures(connection, generation_id)
        )
        if open_parts:
            status, reason = WorkStatus.INTERRUPTED, f"{open_parts} of {row.expected} parts are not written: {why}"
            after = f"`cimemories resume {generation_id}` asks for them again; what is written is kept."
        else:
            status = WorkStatus.FAILED
            turned_down = generations.rejections(connection, generation_id)
            counted = ", ".join(f"{count} {reason}" for reason, count in turned_down.items()) or why
            reason = f"nothing that the model wrote could be kept ({counted}), so no dataset was made"
            after = "Look at its answers with another model or a larger --max-tokens; then generate anew."
        work.finish(connection, generation_id, status, reason)
    raise worker.WorkError(f"{generation_id}: {reason}. {after}")


class Author:
    """Makes the calls of one generation, one after the other for each profile, from what its manifest holds."""

    def __init__(self, generation_id: str, manifest: Mapping[str, object], model: str) -> None:
        self.generation_id, self.model, self.manifest = generation_id, model, manifest
        try:
            self.asked = dict(_mapping(manifest["asked"]))
            self.parameters = dict(_mapping(manifest["parameters"]))
            self.people = [Person(**{**p, "events": tuple(p["events"])}) for p in _list(manifest["people"])]
            self.contexts = tuple(Context(*item) for item in _list(manifest["contexts"]))
            self.sizes = int(str(manifest["per_domain"])), int(str(manifest["general"]))
            self.seed = None if manifest["seed"] is None else int(str(manifest["seed"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"the manifest of {generation_id} cannot be read ({error}). Start anew with `cimemories generate`."
            ) from error
        self.prompts = wording.prompts()
        if {level: prompt.sha256 for level, prompt in self.prompts.items()} != manifest["prompts"]:
            raise StoreError(
                f"the prompts in seeds/prompts/generate.yaml have changed since {generation_id} was planned. Start a "
                "new one with `cimemories generate`, or bring the old wording back."
            )
        self.descriptions = {event.name: event.description for event in seeds.load_events()}

    def first_jobs(self, store: Store, client: Client) -> Iterator[Job]:
        """The next call of each profile that owes one; those after it follow from its outcome."""

        def owed() -> Sequence[int]:
            with store.write() as connection:
                owing = generations.owing_profiles(connection, self.generation_id)
                if not owing:
                    self._finish(connection)
            return owing

        def jobs_of(ordinal: int) -> list[Job]:
            with store.read() as connection:
                return self.next_jobs(connection, client, ordinal)

        for ordinal in store.retry(owed):
            yield from store.retry(partial(jobs_of, ordinal))

    def next_jobs(self, connection: sa.Connection, client: Client, ordinal: int) -> list[Job]:
        """The call that a profile owes next, none where all its parts are settled. Parts are written in order."""
        parts = generations.parts(connection, self.generation_id, ordinal)
        part = next((p for p in parts if p.open), None)
        if part is None:
            return []
        person = self.people[ordinal]
        biography = person.biography()
        held = [item for p in parts if p.position <= part.position for item in p.attributes]
        wanted = self.wanted(part)
        text = wording.request_text(
            self.prompts[GENERAL if part.event == GENERAL else "event"],
            biography=biography,
            memories=held,
            about=wording.about_event(part.event, self.descriptions, own=person.events),
            wanted=wanted,
            refused=part.rejected,
        )
        request = ChatRequest(
            self.model,
            (("user", text),),
            {**self.parameters, "response_format": wording.answer_schema(wanted)},
            self.seed,
        )
        settle = _Settle(self, client, part, wanted, (*biography, *held))
        # The attempt is the draw: an answer that cannot be read would otherwise be served from the record again.
        return [Job("generate", client, request, (part.attempt,), settle)]

    def wanted(self, part: Part) -> dict[str, int]:
        """What a part still lacks, by domain."""
        per_domain, general = self.sizes
        there = Counter(item.domain for item in part.attributes)
        whole = wording.wanted_of(part.event, per_domain=per_domain, general=general)
        return {domain: count - there[domain] for domain, count in whole.items() if count > there[domain]}

    def finish_if_settled(self, connection: sa.Connection) -> None:
        """Make the dataset once no part is open any more, in this very transaction."""
        settled, expected = generations.progress(connection, self.generation_id)
        if settled == expected:
            self._finish(connection)

    def _finish(self, connection: sa.Connection) -> None:
        row = generations.named(connection, self.generation_id)
        written: dict[int, list[Attribute]] = {}
        for part in generations.parts(connection, self.generation_id):
            # What was asked for again came last; a profile goes through the domains in their order.
            in_order = sorted(part.attributes, key=lambda item: _PLACES.get(item.domain, 0))
            written.setdefault(part.profile, []).extend(in_order)
        # A biography alone is no profile: somebody of whom nothing could be kept is left out, and reported.
        profiles = [
            Profile(p.name, p.sex, p.address, p.age, (*p.biography(), *written[i]), self.contexts)
            for i, p in enumerate(self.people)
            if written.get(i)
        ]
        if row.dataset is not None or not profiles:
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


@dataclass(frozen=True)
class _Settle:
    author: Author
    client: Client
    part: Part
    wanted: Mapping[str, int]
    held: Sequence[Attribute]

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        answer = outcomes[self.part.attempt]
        if not answer.ok and answer.status != FOR_GOOD:
            generations.fail(connection, self.part.id, answer.status, answer.key)
            return ()
        self._write(connection, answer)
        following = self.author.next_jobs(connection, self.client, self.part.profile)
        if not following:
            self.author.finish_if_settled(connection)
        return following

    def _write(self, connection: sa.Connection, answer: Answer) -> None:
        part = self.part
        if answer.ok:
            accepted, refused = self._read(answer)
            again = bool(refused) and part.attempt + 1 < ATTEMPTS and len(accepted) < sum(self.wanted.values())
            missing = sum(self.wanted.values()) - len(accepted)
            status, cause = (generations.OK, None) if not missing else (generations.SHORT, "attributes are missing")
        else:
            accepted, refused, again = (), [], False
            status, cause = generations.REFUSED, f"the server refuses the request: {answer.error}"[:300]
        generations.settle(
            connection,
            part.id,
            status=generations.OWED if again else status,
            attempt=part.attempt + 1 if again else part.attempt,
            cause=None if again else cause,
            call_key=answer.key,
            attributes=[*part.attributes, *accepted],
            rejected=[*part.rejected, *({**item, "call": answer.key} for item in refused)],
        )

    def _read(self, answer: Answer) -> tuple[Sequence[Attribute], list[dict[str, object]]]:
        """What an answer adds, and what it is refused for; an answer that cannot be read adds nothing."""
        attempt = self.part.attempt
        if answers.truncated(answer):
            detail = "write shorter statements, so that the whole object fits"
            return (), [wording.unusable(Reason.CUT, attempt, detail)]
        try:
            value = answers.read_object(answer.content)
        except answers.AnswerError as error:
            return (), [wording.unusable(Reason.UNREADABLE, attempt, str(error))]
        found: Review = review(value, self.wanted, self.part.event, self.held, attempt)
        return found.accepted, [item.as_json() for item in found.rejected]


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise TypeError("an object is missing")
    return value


def _list(value: object) -> list[dict]:
    if not isinstance(value, list):
        raise TypeError("a list is missing")
    return value
