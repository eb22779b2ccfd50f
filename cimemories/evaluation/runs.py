"""Doing runs: what is owed is asked for, by profile, and judged as soon as it is there; no barrier between the two.

Planned as a whole before the first call (planning.py), worked off by one process, resumed by any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from cimemories import seeds
from cimemories.evaluation.costs import CapWatch
from cimemories.evaluation.judging import LLM, Judge, JudgeInput, judge_at_once, judgement_job
from cimemories.evaluation.planning import BATCH
from cimemories.evaluation.repeat import messages_simulated, recorded_prompt
from cimemories.evaluation.respond import Mitigation, Slot, Writer, response_job, restrict
from cimemories.llm import worker
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint, EndpointError, probe
from cimemories.llm.executor import Job, Progress
from cimemories.manifest import PromptPart, RequestPart
from cimemories.model import Context
from cimemories.store import datasets, judgements, runs
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import IMPORTED, RunRow

MakeClient = Callable[[Endpoint, bool], Client]
StopWhen = Callable[[Progress], str | None]


@dataclass(frozen=True)
class Addresses:
    """Where a run's model and its judges are served: as planned, or where they have moved to."""

    run: RunRow
    moved_to: str | None = None
    judges_moved_to: str | None = None

    @property
    def model(self) -> str:
        return self.moved_to or self.run.endpoint

    def planned(self, judge: JudgeRow) -> str:
        """Where a judge was served when it was planned; empty for one that asks no model. Runs of before judges had
        settings keep it in their manifest."""
        if "base_url" in judge.settings:
            return str(judge.settings["base_url"])
        return self.run.manifest.judge.base_url if judge.kind == LLM else ""

    def judge(self, judge: JudgeRow) -> str:
        """Where a judge is served now. One that was served from the same address as the model has moved with it."""
        address = self.planned(judge)
        if self.judges_moved_to:
            return self.judges_moved_to
        return self.model if address == self.run.endpoint else address


def execute(
    store: Store,
    run_id: str,
    *,
    base_url: str | None = None,
    judge_base_url: str | None = None,
    concurrency: int = 32,
    on_progress: Callable[[Progress], None] | None = None,
    queued: bool = False,
    n_at_once: bool = True,
    stop_when: StopWhen | None = None,
) -> Progress:
    """Do what a run owes, answers and judgements; waits until it is done, or has paid its cap on cost.

    `base_url` and `judge_base_url` replace the recorded addresses (servers that have moved). n_at_once False asks for
    every sample by a request of its own, also where the server takes several. `stop_when`: as of `worker.perform`,
    beside the cap. Raises what `worker.perform` raises, and StoreError for a run that was imported from a file: nobody
    can be asked for it.
    """
    with store.read() as connection:
        row = runs.named(connection, run_id)
        judges = judges_of(connection, run_id)
    addresses = Addresses(row, base_url, judge_base_url)
    _refuse_what_nobody_answers(store, row, judges, addresses)
    if base_url or judge_base_url:
        _refuse_simulators(row, judges, addresses)

    watches = [CapWatch(store, run_id)]
    # A sweep at work brings its own watch in stop_when.
    if row.sweep is not None and stop_when is None:
        watches.append(CapWatch(store, row.sweep))  # resumed by itself: what it pays counts for its sweep too
    for watch in watches:
        if reason := watch.reached():
            # Before anything is asked: a worker would look at its cap only after the first batch of answers.
            worker.refuse(store, run_id, reason, queued=queued)
    stops: list[StopWhen] = [*([stop_when] if stop_when else []), *watches]

    served = {addresses.model, *(addresses.judge(judge) for judge in judges if addresses.planned(judge))}
    with ExitStack() as stack:
        # Entered once each, so that model and judges at the word simulator share one simulator.
        urls = {a: stack.enter_context(worker.reachable(a)) for a in served - {IMPORTED, BATCH}}

        # Called by the worker with the fenced store: what jobs write must stop when the claim is lost.
        def jobs(own: Store, client: MakeClient) -> Iterator[Job]:
            def url(judge: JudgeRow | None) -> str:
                address = addresses.model if judge is None else addresses.judge(judge)
                return urls.get(address, address)

            return jobs_of(own, row, judges, client, url, n_at_once=n_at_once)

        return worker.perform(
            store,
            run_id,
            jobs,
            concurrency=concurrency,
            on_progress=on_progress,
            queued=queued,
            stop_when=lambda done: next(filter(None, (stop(done) for stop in stops)), None),
        )


def judges_of(connection: sa.Connection, run_id: str) -> list[JudgeRow]:
    """Everybody who reads the messages of a run: its judges, then who checks that the task is done."""
    return [*judgements.of_run(connection, run_id), *judgements.checkers_of_run(connection, run_id)]


def _refuse_what_nobody_answers(store: Store, row: RunRow, judges: Sequence[JudgeRow], addresses: Addresses) -> None:
    """Raises StoreError where something is owed that no server can be asked for."""
    if row.endpoint == IMPORTED and row.responses.get("failed") and not _has_unread(store, row, judges):
        raise StoreError(
            f"{row.id} was imported from a file: what it lacks cannot be asked for. A new run of the model can."
        )
    messages = addresses.model == BATCH and any(row.responses.get(status) for status in runs.RETRIABLE)
    # A judge with a server reads what batches brought.
    if messages or _has_unread(store, row, [judge for judge in judges if addresses.judge(judge) == BATCH]):
        raise StoreError(
            f"{row.id} has no server: it runs by batch file. `cimemories batch export {row.id} --out requests.jsonl` "
            f"writes the remaining requests; `cimemories resume {row.id} --base-url URL` uses a server instead."
        )


def _has_unread(store: Store, row: RunRow, judges: Sequence[JudgeRow]) -> bool:
    """Whether any of these judges has still to read a response. One that came with an imported run never will."""
    # A model judge without a prompt came with a file: nobody knows how to ask it.
    able = [judge for judge in judges if judge.prompt_hash is not None or judge.kind != LLM]
    with store.read() as connection:
        profiles = runs.profile_ids(connection, row.id) if able else []
        return any(judgements.owed(connection, row.id, judge.id, profile) for judge in able for profile in profiles)


def _refuse_simulators(row: RunRow, judges: Sequence[JudgeRow], addresses: Addresses) -> None:
    """Raises StoreError where a real model or judge has moved to a simulator: its answers would stand as real ones."""
    real = [(row.model, addresses.moved_to)] if addresses.moved_to and not messages_simulated(row) else []
    real += [
        (judge.model, addresses.judge(judge))
        for judge in judges
        if judge.prompt_hash is not None and not judge.simulated
    ]
    key_env = row.manifest.request.api_key_env if row.manifest.request else ""
    for model, address in dict.fromkeys(real):
        if address not in (addresses.moved_to, addresses.judges_moved_to) or address == BATCH:
            continue
        try:
            # The word needs no question; any other address may be a simulator too, and says so when it is asked.
            is_simulator = address == worker.SIMULATOR or probe(Endpoint(str(address), key_env), model).simulated
        except EndpointError:
            continue  # whoever asks it next says what is wrong
        if is_simulator:
            raise StoreError(
                f"{address} is a simulator, and {model} in {row.id} is a real model: its answers would be made up. "
                "Give the address where the model is served now."
            )


def jobs_of(
    store: Store,
    row: RunRow,
    judges: Sequence[JudgeRow],
    client: MakeClient,
    address: Callable[[JudgeRow | None], str],
    *,
    n_at_once: bool = True,
) -> Iterator[Job]:
    """Everything that the run still owes, profile by profile: judgements of what is answered, then messages.

    client: makes one for an endpoint; address: where the model (None) or a judge is served now.
    """
    request = row.manifest.request or RequestPart()
    endpoint = Endpoint(
        address(None),
        request.api_key_env,
        request.timeout,
        n_at_once=n_at_once,
        server=row.manifest.model.identity,
        # The runs of a sweep share what they have in common, sampled anew or not.
        fresh=(row.sweep or row.id) if row.manifest.fresh else None,
    )
    with store.read() as connection:
        readers = [_judge(connection, row, judge, client, address, endpoint) for judge in judges]
        # Of an imported run only judgements can be owed to a server.
        writer = None if row.endpoint == IMPORTED else _writer(connection, row, client, endpoint, readers)
        profile_ids = runs.profile_ids(connection, row.id)
    for profile_id in profile_ids:
        # Read to its end before the first job goes out: a transaction open across a yield would last as long as calls.
        owed = store.retry(partial(_owed_by_profile, store, row.id, profile_id, readers, writes=writer is not None))
        for judge, item in owed.unjudged:
            # What was owed to a judge of reasoning is the reasoning: `text` is of the judge's channel.
            text = item.text or ""
            reasoning = text if judge.channel == judgements.REASONING else None
            read = JudgeInput(item.response, owed.memories[item.memory], owed.context(item.context), text, reasoning)
            job = judgement_job(judge, read)
            if job is None:
                store.retry(partial(_judge_at_once, store, judge, read))
            else:
                yield job
        for group in owed.messages:
            assert writer is not None
            yield response_job(writer, Slot(owed.memories[group.memory], owed.context(group.context), group.samples))


@dataclass(frozen=True)
class _Owed:
    """What one profile owes: responses to be judged, messages to be written, and by their hash the memories that these
    are about; None is the hash of all attributes."""

    record: ProfileRecord
    unjudged: Sequence[tuple[Judge, judgements.OwedJudgement]]
    messages: Sequence[runs.OwedResponses]
    memories: Mapping[str | None, ProfileRecord]

    def context(self, context_id: int) -> Context:
        return self.record.profile.contexts[self.record.context_ids.index(context_id)]


def _owed_by_profile(store: Store, run_id: str, profile_id: int, judges: Sequence[Judge], *, writes: bool) -> _Owed:
    with store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        unjudged = [(j, item) for j in judges for item in judgements.owed(connection, run_id, j.id, profile_id)]
        messages = runs.owed(connection, run_id, profile_id) if writes else []
        # Each memory once: hundreds of slots of a profile share a few.
        hashes = {item.memory for _, item in unjudged} | {group.memory for group in messages}
        attributes = datasets.memories_of(connection, [digest for digest in hashes if digest])
    memories = {h: record if h is None else restrict(record, attributes[h]) for h in hashes}
    return _Owed(record, unjudged, messages, memories)


def _judge_at_once(store: Store, judge: Judge, read: JudgeInput) -> None:
    """Write a judgement that needs no call, in a transaction of its own."""
    with store.write(relaxed=True) as connection:
        judge_at_once(connection, judge, read)


def _writer(
    connection: sa.Connection, row: RunRow, client: MakeClient, endpoint: Endpoint, judges: list[Judge]
) -> Writer:
    manifest = row.manifest
    lines, before = manifest.memory.template, manifest.mitigation.prompt
    return Writer(
        client=_client(client, endpoint, messages_simulated(row), manifest.model.n),
        model=row.model,
        prompt=recorded_prompt(connection, row.id, manifest.prompt),
        lines=recorded_prompt(connection, row.id, lines) if lines else seeds.load_prompt("memory", "bullets"),
        parameters=manifest.parameters,
        seed=row.seed,
        judges=judges,
        mitigation=Mitigation(manifest.mitigation.kind),
        before=recorded_prompt(connection, row.id, before) if before else None,
        schema=manifest.model.json_schema,
    )


def _client(make: MakeClient, endpoint: Endpoint, simulated: bool, n_at_once: bool) -> Client:
    return make(endpoint if n_at_once else replace(endpoint, n_at_once=False), simulated)


def _judge(
    connection: sa.Connection,
    row: RunRow,
    judge: JudgeRow,
    client: MakeClient,
    address: Callable[[JudgeRow | None], str],
    endpoint: Endpoint,
) -> Judge:
    settings: Mapping[str, Any] = judge.settings
    if judge.prompt_hash is None:
        return Judge(judge.id, judge.kind, judge.model, judge.parameters, None, channel=judge.channel)
    own = replace(
        endpoint,
        base_url=address(judge),
        api_key_env=str(settings.get("api_key_env") or row.manifest.judge.api_key_env),
        timeout=float(settings.get("timeout") or endpoint.timeout),
        server=settings.get("server"),
    )
    wording = PromptPart(kind="check" if judge.kind == "check" else "judge", level="base", sha256=judge.prompt_hash)
    return Judge(
        judge.id,
        judge.kind,
        judge.model,
        judge.parameters,
        _client(client, own, judge.simulated, bool(settings.get("n_at_once", True))),
        recorded_prompt(connection, row.id, wording),
        settings.get("split"),
        str(settings.get("schema") or "json_schema"),
        judge.channel,
    )
