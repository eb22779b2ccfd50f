"""Labelling: the personas of a pack vote, k draws each, on all attributes of a profile in a context (Section 4.1.2).

One call carries all attributes; the answer lists their numbers, read into a verdict for each attribute:

    {"necessary": [3, "12-14"], "inappropriate": [1, "20-31"]}

To leave a number out is to abstain; a number in both lists is a conflict, a number that does not exist is unknown: both
are recorded as what they are and counted, never folded into abstain. What calls share comes first in the prompt, and
calls are made by profile, context and persona, so that a server's prefix cache serves nearly all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from cimemories import seeds
from cimemories.access.roles import Role
from cimemories.curation.plans import Asked, CurationSource, ask_server
from cimemories.curation.spec import LabellingSpec
from cimemories.evaluation.estimates import CountingClient, Estimate, Traversal, or_recorded, refuse_misfits
from cimemories.evaluation.judging import Unread, readable
from cimemories.evaluation.planning import LookUp, look_up
from cimemories.llm import replies
from cimemories.llm.client import Client
from cimemories.llm.executor import Deferred, Job, opening_of
from cimemories.llm.scripts import Ask, Branch, Keep, Script, begun
from cimemories.llm.source import MakeClient, Unit
from cimemories.model import ChatRequest, Persona, Verdict
from cimemories.seeds import PersonaPack, packs
from cimemories.seeds.prompts import Prompt
from cimemories.store import calls, datasets, labellings, work
from cimemories.store.calls import Answer, address_of
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, content_hash
from cimemories.store.labellings import BallotGroup, Settled
from cimemories.store.tables import ballot as ballot_table
from cimemories.store.team import log

LISTS = (Verdict.NECESSARY, Verdict.INAPPROPRIATE)
_RANGE = re.compile(r"\s*(\d{1,9})\s*[-\u2013]\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Ballot:
    """One answer: verdicts by position of the attribute. conflicts: attributes named in both lists. unknown: entries
    that are no number, or name one that does not exist."""

    verdicts: tuple[Verdict, ...]
    conflicts: int
    unknown: int


def read_ballot(text: str | None, attributes: int) -> Ballot:
    """Return the votes on `attributes` attributes, numbered from 1. An entry is a number or a range 'FIRST-LAST'; of a
    range that leaves 1..attributes the numbers that exist count, and the entry as unknown too. Raises
    replies.AnswerError if the answer is no ballot."""
    value = replies.read_object(text)
    # A number that is left out is an abstention: the prompt says so.
    verdicts = [Verdict.ABSTAIN] * attributes
    unknown = 0
    for verdict in LISTS:
        for item in replies.read_list(value, verdict):
            # Most entries by far: without this, reading a labelling takes four times as long.
            if type(item) is int and 0 < item <= attributes and verdicts[item - 1] is Verdict.ABSTAIN:
                verdicts[item - 1] = verdict
                continue
            first, last = _span(item) or (0, 0)
            unknown += first < 1 or last > attributes
            # Cut to the attributes before it is counted out: '1-999999999' must not become so many numbers.
            for position in range(max(first, 1) - 1, min(last, attributes)):
                other = verdicts[position] not in (Verdict.ABSTAIN, verdict)
                verdicts[position] = Verdict.CONFLICT if other else verdict
    return Ballot(tuple(verdicts), verdicts.count(Verdict.CONFLICT), unknown)


def answer_schema(attributes: int) -> dict[str, object]:
    """Return the response_format that holds an answer to lists of attribute numbers and ranges of them."""
    number = {"type": "integer", "minimum": 1, "maximum": attributes}
    numbers = {"type": "string", "pattern": "^[0-9]{1,4}-[0-9]{1,4}$"}
    entries = {"type": "array", "items": {"anyOf": [number, numbers]}, "maxItems": attributes}
    return replies.answer_form("votes", {str(verdict): entries for verdict in LISTS})


def _span(item: object) -> tuple[int, int] | None:
    """Return the first and the last number of an entry, or None if it is neither a number nor a range that rises."""
    number = replies.read_number(item)
    if number is not None:
        return number, number
    hit = _RANGE.fullmatch(item) if isinstance(item, str) else None
    if hit is None or int(hit[1]) > int(hit[2]):
        return None
    return int(hit[1]), int(hit[2])


def prepare(
    store: Store, spec: LabellingSpec, look_up: LookUp = look_up
) -> tuple[Asked[LabellingSpec], PersonaPack, Prompt]:
    """Check the settings, read personas and wording, and test the server; nothing is written. Raises StoreError,
    SeedError, and EndpointError if the server cannot be used."""
    pack, prompt = packs.persona_pack(spec.personas, store.workspace), seeds.load_prompt("label")
    return ask_server(store, spec, look_up, draws=spec.draws, seed=spec.seed, simulator_seed=0), pack, prompt


def plan(store: Store, spec: LabellingSpec, *, allow_too_long: bool = False) -> str:
    """Look the server up, record what is to be voted on, and return the id of the labelling.

    The same model, wording, personas and parameters on the same dataset are one labelling, which a second call extends
    (more draws, profiles or contexts). Raises EndpointError, StoreError or SeedError before anything is written;
    StoreError also if the labelling is running, if its cap is not above what it has cost, and, unless `allow_too_long`,
    if requests do not fit into the server's context.
    """
    # Before the transaction: a slow server must not hold the lock on writing.
    asked, pack, prompt = prepare(store, spec)
    spec, server = asked.spec, asked.server
    if server.max_model_len and not allow_too_long:
        refuse_misfits(_estimated(store, asked, pack, prompt, longest=True))
    answering = str(server.identity)
    with store.write(Role.OPERATOR) as connection:
        dataset = datasets.by_name(connection, spec.dataset)
        profile_ids = datasets.profile_ids(connection, dataset.id, spec.profiles)
        context_ids = [row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]]
        persona_ids = labellings.personas_of(connection, pack.name, pack.personas)
        calls.keep_servers(connection, [answering])
        # What makes votes comparable. Draws, profiles and contexts are not in it: more of them extend a labelling.
        what: list[object] = [prompt.sha256, persona_ids, asked.identity, asked.asked_seed]
        identity = [dataset.id, spec.model, server.simulated, *what]
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
                **asked.manifest,
                "personas": persona_ids,
                "prompt": {"kind": prompt.kind, "level": prompt.level, "sha256": prompt.sha256},
                "n_at_once": server.n,
                "api_key_env": spec.api_key_env,
                "timeout": spec.timeout,
                "server": answering,
                "dataset_hash": datasets.dataset_hash(connection, dataset.id),
            },
        )
        labellings.plan(connection, labelling_id, profile_ids, context_ids, persona_ids, spec.draws)
        work.bump(connection, labelling_id)
        log.add(connection, "labelling.planned", labelling_id, dataset=spec.dataset, model=spec.model)
    return labelling_id


def estimate(
    store: Store, spec: LabellingSpec, *, concurrency: int = 32, look_up: LookUp = partial(look_up, retries=1)
) -> Estimate:
    """Return what a labelling would come to. Raises StoreError or SeedError if it could not be planned."""
    unreachable = dict[str, None]()
    estimated = _estimated(store, *prepare(store, spec, or_recorded(store, look_up, unreachable)))
    return replace(estimated, concurrency=concurrency, unreachable=tuple(unreachable))


def _estimated(
    store: Store, asked: Asked[LabellingSpec], pack: PersonaPack, prompt: Prompt, *, longest: bool = False
) -> Estimate:
    """Return the estimate. longest: only of the profile with the longest statements."""
    spec, server, ballots, pairs = asked.spec, asked.server, 0, 0
    client = CountingClient(store, spec.base_url, server)
    personas = dict(enumerate(pack.personas))
    asks = _Asking(client, spec.model, prompt, asked.parameters, server.schema, asked.seed, personas)
    with store.snapshot() as connection:
        dataset = datasets.by_name(connection, spec.dataset)
        which = datasets.longest_profile if longest else datasets.profile_ids
        contexts = {row.id for row in datasets.contexts(connection, dataset.id)[: spec.contexts]}
        counter = Traversal(connection)
        for profile_id in which(connection, dataset.id, spec.profiles):
            record = datasets.profile_record(connection, profile_id)
            draws = dict.fromkeys(range(spec.draws), 0)
            tested = [context for context in record.context_ids if context in contexts]
            groups = [BallotGroup(profile_id, context, persona, draws) for context in tested for persona in personas]
            counter.count(asks.branches(record, groups))
            pairs, ballots = pairs + len(tested), ballots + spec.draws * len(groups)
        stages, assumptions = asked.stages(connection, counter, labellings.all_rows(connection), ballot_table)
    return Estimate(pairs, ballots, stages, assumptions, 32, spec.cap, counts=("ballot", "ballot"))


def _identity(connection: sa.Connection, content: list[object], answering: str, base_url: str) -> str:
    """Return the identity of the labelling that this extends, or of a new one. Votes of another server are another
    labelling, unless the servers are marked as the same. One from before servers were told apart is extended by its
    address."""
    same = calls.declared_same(connection, answering)
    for server in (answering, *same.servers):
        identity = content_hash([*content, server])
        if labellings.with_identity(connection, identity) is not None:
            return identity
    # What has no server in its identity can only be told by its address.
    older = content_hash(content)
    endpoint = labellings.with_identity(connection, older)
    if endpoint is not None and address_of(endpoint) in {address_of(base_url), *same.before}:
        return older
    return content_hash([*content, answering])


class LabellingSource(CurationSource):
    """The ballots that a labelling owes."""

    def row(self, store: Store) -> labellings.LabellingRow:
        with store.read() as connection:
            row = next((r for r in labellings.all_rows(connection) if r.id == self.work_id), None)
        if row is None:
            raise StoreError(f"there is no labelling '{self.work_id}' in this workspace.")
        return row

    def owes(self, store: Store) -> list[int]:
        with store.read() as connection:
            return labellings.owing_profiles(connection, self.work_id)

    profiles = owes

    def most_parts(self, store: Store) -> int:
        row = self.row(store)
        with store.read() as connection:
            return len(datasets.contexts(connection, row.dataset))

    def opened(self, store: Store, client: MakeClient, urls: Mapping[str, str]) -> Callable[[Unit], Iterator[Job]]:
        row = store.retry(partial(self.row, store))
        manifest: Mapping[str, Any] = row.manifest
        prompt = seeds.load_prompt("label")
        # Votes under two wordings would be added up as if they were one question.
        if manifest["prompt"]["sha256"] != prompt.sha256:
            raise StoreError(
                f"the labelling prompt has changed since {row.id} was planned. Start a new labelling with "
                "`cimemories label`, or restore the old wording."
            )
        with store.read() as connection:
            personas = labellings.personas(connection, row.id)
        # Planned before servers were tested: all were asked for a JSON schema then.
        schema, asked = manifest.get("schema", "json_schema"), self.client(row, client, urls)
        asks = _Asking(asked, row.model, prompt, manifest["parameters"], schema, manifest["seed"], personas)

        def remaining(unit: Unit) -> tuple[ProfileRecord, list[BallotGroup]]:
            with store.read() as connection:
                record = datasets.profile_record(connection, unit.profile)
                groups = labellings.owed(connection, row.id, unit.profile)
            contexts = {context for position, context in enumerate(record.context_ids) if unit.holds(position)}
            return record, [group for group in groups if group.context in contexts]

        def jobs(unit: Unit) -> Iterator[Job]:
            # Read whole before jobs go out, so that no transaction is open while calls are made.
            for branches in asks.branches(*store.retry(partial(remaining, unit))):
                yield from Deferred(partial(begun, branches)).jobs(store)

        return jobs


@dataclass(frozen=True)
class _Asking:
    """Makes the scripts of ballots. personas: by their ids in the record."""

    client: Client
    model: str
    prompt: Prompt
    parameters: Mapping[str, object]
    schema: str
    seed: int | None
    personas: Mapping[int, Persona]

    def branches(self, record: ProfileRecord, groups: Iterable[BallotGroup]) -> Iterator[list[Branch]]:
        """Yield the scripts of each group, one a draw."""
        # Once a profile: the same text begins the prompts of all its contexts and personas.
        facts = replies.numbered([a.statement for a in record.profile.attributes])
        form = replies.response_format(answer_schema(len(record.attribute_ids)), self.schema)
        for group in groups:
            context = record.profile.contexts[record.context_ids.index(group.context)]
            persona = self.personas[group.persona]
            text = self.prompt.render(
                attributes=facts,
                recipient=replies.one_line(context.recipient),
                task=replies.one_line(context.task),
                persona=f"{persona.name}. {persona.description.strip()}",
            )
            request = ChatRequest(self.model, (("user", text),), {**self.parameters, **form}, self.seed)
            ask = Ask("label", self.client, request, opening=opening_of(text, facts))
            ids = record.attribute_ids
            yield [Branch(partial(_voting, ask, ids, ballot), draw) for draw, ballot in sorted(group.ballots.items())]


def _voting(ask: Ask, attribute_ids: Sequence[int], ballot_id: int) -> Script:
    answer = yield ask
    yield Keep(labellings.settle, partial(_settled, attribute_ids, ballot_id, answer))


def _settled(attribute_ids: Sequence[int], ballot_id: int, answer: Answer) -> Settled:
    """Return the votes in an answer, or why there are none."""
    try:
        with readable(answer) as content:
            ballot = read_ballot(content, len(attribute_ids))
    except Unread as unread:
        return Settled(ballot_id, unread.status, unread.cause, unread.call)
    votes = list(zip(attribute_ids, ballot.verdicts, strict=True))
    return Settled(ballot_id, "ok", None, answer.key, votes, ballot.conflicts, ballot.unknown)
