"""Labelling: the personas of a pack vote, k draws each, on all attributes of a profile in a context (Section 4.1.2).

One call carries all attributes; the answer lists their numbers, see ballots.py. What calls share comes first in the
prompt, and calls are made by profile, context and persona, so that a server's prefix cache serves nearly all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import sqlalchemy as sa

from cimemories import seeds
from cimemories.curation.ballots import answer_schema, read_ballot
from cimemories.llm import answers, worker
from cimemories.llm.client import DEFAULT_KEY_ENV, Client, Endpoint, probe
from cimemories.llm.executor import Job, Progress
from cimemories.llm.identity import server_id
from cimemories.llm.openings import opening_of
from cimemories.model import ChatRequest
from cimemories.seeds import packs
from cimemories.store import datasets, labellings, servers, work
from cimemories.store.calls import Answer
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.ids import content_hash
from cimemories.store.labellings import Settled
from cimemories.store.servers import address_of


@dataclass(frozen=True)
class LabellingSpec:
    """What a labelling is to be. `profiles` and `contexts` limit it to the first so many; None means all.

    personas: the pack whose personas vote, one that ships or one of the workspace. base_url: an OpenAI-compatible
    server, or the word `simulator`. Temperature and max_tokens None mean the server's own. Seed None sends none to a
    real server (some refuse it, and vLLM's CPU engine dies of it) and 0 to the simulator.
    """

    dataset: str
    model: str
    base_url: str
    draws: int = 10
    profiles: int | None = None
    contexts: int | None = None
    api_key_env: str = DEFAULT_KEY_ENV
    temperature: float | None = None
    max_tokens: int | None = 2048
    seed: int | None = None
    timeout: float = 120.0
    personas: str = packs.DEFAULTS["personas"]


def plan(store: Store, spec: LabellingSpec) -> str:
    """Look the server up, write down what is wanted, and return the id of the labelling.

    The same model, wording, personas and parameters on the same dataset are one labelling, which a second call extends
    (more draws, profiles or contexts); another pack of personas is another labelling beside it. Raises EndpointError,
    StoreError or SeedError before anything is written.
    """
    if spec.draws < 1:
        raise StoreError("a labelling needs at least one draw for each persona: --draws 1 or more.")
    pack = packs.persona_pack(spec.personas, store.workspace)
    prompt = seeds.load_prompt("label")
    with worker.reachable(spec.base_url) as url:
        server = probe(Endpoint(url, spec.api_key_env), spec.model)
    answering = server_id(url, server, store).text
    seed = 0 if spec.seed is None and server.simulated else spec.seed
    parameters: dict[str, object] = {} if spec.max_tokens is None else {"max_tokens": spec.max_tokens}
    if spec.temperature is not None:
        parameters["temperature"] = spec.temperature
    with store.write() as connection:
        dataset = datasets.named(connection, spec.dataset)
        profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
        context_ids = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
        persona_ids = labellings.persona_ids(connection, pack.name, pack.personas)
        servers.remember(connection, [answering])
        identity = [dataset.id, spec.model, server.simulated, prompt.sha256, persona_ids, parameters, seed]
        labelling_id = labellings.add(
            connection,
            identity=_identity(connection, identity, answering, spec.base_url),
            dataset_id=dataset.id,
            model=spec.model,
            endpoint=spec.base_url,
            simulated=server.simulated,
            pack=pack.name,
            draws=spec.draws,
            manifest={
                "personas": persona_ids,
                "prompt": {"kind": prompt.kind, "level": prompt.level, "sha256": prompt.sha256},
                "parameters": parameters,
                "seed": seed,
                "api_key_env": spec.api_key_env,
                "timeout": spec.timeout,
                "server": answering,
                "dataset_hash": datasets.dataset_hash(connection, dataset.id),
                "asked": asdict(spec),
            },
        )
        labellings.plan(connection, labelling_id, profile_ids, context_ids, persona_ids, spec.draws)
        work.bump(connection, labelling_id)
    return labelling_id


def _identity(connection: sa.Connection, content: list[object], answering: str, base_url: str) -> str:
    """The identity of the labelling that this extends, or of a new one.

    Votes of another server are another labelling, unless a person says that the servers are the same. A labelling from
    before servers were told apart is extended by the address that it was asked at.
    """
    same = servers.same(connection, answering)
    for server in (answering, *same.servers):
        identity = content_hash([*content, server])
        if labellings.with_identity(connection, identity) is not None:
            return identity
    older = content_hash(content)
    endpoint = labellings.with_identity(connection, older)
    if endpoint is not None and address_of(endpoint) in {address_of(base_url), *same.before}:
        return older
    return content_hash([*content, answering])


def execute(
    store: Store,
    labelling_id: str,
    *,
    base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
) -> Progress:
    """Do what a labelling owes; waits until it is done. `base_url` replaces the recorded address (a server that has
    moved). Raises what `worker.perform` raises."""
    with store.read() as connection:
        row = work.load(connection, labelling_id)
    manifest = _manifest(store, labelling_id)
    with worker.reachable(base_url or row["endpoint"]) as url:
        asked = manifest.get("server")
        endpoint = Endpoint(
            url,
            str(manifest["api_key_env"]),
            float(str(manifest["timeout"])),
            server=None if asked is None else str(asked),
        )

        def jobs(store: Store, client: Callable[[Endpoint, bool], Client]) -> Iterator[Job]:
            return _jobs(store, labelling_id, manifest, row["model"], client(endpoint, row["simulated"]))

        return worker.perform(
            store, labelling_id, jobs, concurrency=concurrency, on_progress=on_progress, queued=queued
        )


def _manifest(store: Store, labelling_id: str) -> Mapping[str, object]:
    with store.read() as connection:
        return next(row.manifest for row in labellings.all_rows(connection) if row.id == labelling_id)


def _jobs(store: Store, labelling_id: str, manifest: Mapping[str, object], model: str, client: Client) -> Iterator[Job]:
    prompt = seeds.load_prompt("label")
    recorded = manifest["prompt"]
    if isinstance(recorded, dict) and recorded["sha256"] != prompt.sha256:
        raise StoreError(
            f"the labelling prompt has changed since {labelling_id} was planned. Start a new labelling with "
            "`cimemories label`, or bring the old wording back."
        )
    with store.read() as connection:
        personas = labellings.personas(connection, labelling_id)
        owing = labellings.owing_profiles(connection, labelling_id)
    for profile_id in owing:
        record, groups = store.retry(partial(_owed_by_profile, store, labelling_id, profile_id))
        facts = answers.numbered([a.statement for a in record.profile.attributes])
        for group in groups:
            context = record.profile.contexts[record.context_ids.index(group.context)]
            persona = personas[group.persona]
            text = prompt.render(
                attributes=facts,
                recipient=context.recipient,
                task=context.task,
                persona=f"{persona.name}. {persona.description.strip()}",
            )
            yield Job(
                kind="label",
                client=client,
                request=_request(model, text, manifest, len(record.attribute_ids)),
                draws=tuple(sorted(group.ballots)),
                settle=_Settle(record.attribute_ids, group.ballots),
                opening=opening_of(text, facts),
            )


def _owed_by_profile(
    store: Store, labelling_id: str, profile_id: int
) -> tuple[ProfileRecord, list[labellings.BallotGroup]]:
    with store.read() as connection:
        return datasets.profile_record(connection, profile_id), labellings.owed(connection, labelling_id, profile_id)


def _request(model: str, text: str, manifest: Mapping[str, object], attributes: int) -> ChatRequest:
    parameters = manifest["parameters"]
    seed = manifest["seed"]
    if not isinstance(parameters, dict) or not (seed is None or isinstance(seed, int)):
        raise StoreError("the manifest of this labelling cannot be read. Start a new one with `cimemories label`.")
    return ChatRequest(
        model=model,
        messages=(("user", text),),
        parameters={**parameters, "response_format": answer_schema(attributes)},
        seed=seed,
    )


@dataclass(frozen=True)
class _Settle:
    attribute_ids: Sequence[int]
    ballots: Mapping[int, int]

    def __call__(self, connection: sa.Connection, outcomes: Mapping[int, Answer]) -> Sequence[Job]:
        labellings.settle(connection, [self._one(self.ballots[draw], answer) for draw, answer in outcomes.items()])
        return ()

    def _one(self, ballot_id: int, answer: Answer) -> Settled:
        if not answer.ok:
            return Settled(ballot_id, "failed", answer.status, answer.key)
        if answers.truncated(answer):
            return Settled(ballot_id, "truncated", "the answer was cut at the token limit", answer.key)
        try:
            ballot = read_ballot(answer.content, len(self.attribute_ids))
        except answers.AnswerError as error:
            return Settled(ballot_id, "unparsed", str(error), answer.key)
        votes = list(zip(self.attribute_ids, ballot.verdicts, strict=True))
        return Settled(ballot_id, "ok", None, answer.key, votes, ballot.conflicts, ballot.unknown)
