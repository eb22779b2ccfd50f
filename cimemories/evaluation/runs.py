"""Runs at work: what is owed is asked for, by profile, and judged as soon as it is there; no barrier between the two.

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
from cimemories.evaluation.judging import LLM, Judge, Read, judge_at_once, judgement_job
from cimemories.evaluation.planning import (
    BATCH,
    FindLabels,
    JudgeSpec,
    LabelSource,
    Memory,
    RunSpec,
    messages_simulated,
    plan,
)
from cimemories.evaluation.respond import Mitigation, Place, Writer, part, response_job
from cimemories.llm import worker
from cimemories.llm.client import Client
from cimemories.llm.endpoint import Endpoint, EndpointError, probe
from cimemories.llm.executor import Job, Progress
from cimemories.manifest import PromptPart, RequestPart
from cimemories.model import Context
from cimemories.seeds import Prompt
from cimemories.store import datasets, judgements, runs
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import RunRow

__all__ = ["FindLabels", "JudgeSpec", "LabelSource", "Memory", "RunSpec", "execute", "jobs_of", "plan"]

IMPORTED = "imported"
MakeClient = Callable[[Endpoint, bool], Client]
StopWhen = Callable[[Progress], str | None]


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
        seats = [*judgements.of_run(connection, run_id), *judgements.checkers_of_run(connection, run_id)]
    if row.endpoint == IMPORTED and row.responses.get("failed") and not _owed_by(store, row, seats):
        raise StoreError(
            f"{run_id} was imported from a file: what it lacks cannot be asked for. A new run of the model can."
        )
    if _owes_batches(store, row, seats, base_url, judge_base_url):
        raise StoreError(
            f"{run_id} has no server: its calls go by batch files. `cimemories batch export {run_id} --out owed.jsonl` "
            f"writes what is owed; `cimemories resume {run_id} --base-url URL` asks a server instead."
        )
    if base_url or judge_base_url:
        _refuse_simulators(row, seats, base_url, judge_base_url)
    watches = [CapWatch(store, run_id)]
    if row.sweep is not None and stop_when is None:
        watches.append(CapWatch(store, row.sweep))  # resumed by itself: what it pays counts for its sweep too
    for watch in watches:
        if reason := watch.reached():
            worker.refuse(store, run_id, reason, queued=queued)
    stops: list[StopWhen] = [*([stop_when] if stop_when else []), *watches]
    with ExitStack() as stack:
        moved = {
            address: stack.enter_context(worker.reachable(address))
            for address in {
                base_url or row.endpoint,
                *(_judge_address(row, seat, base_url, judge_base_url) for seat in seats if _address(row, seat)),
            }
            if address not in (IMPORTED, BATCH)
        }

        def served(seat: JudgeRow | None) -> str:
            own = base_url or row.endpoint
            address = own if seat is None else _judge_address(row, seat, base_url, judge_base_url)
            return moved.get(address, address)

        def jobs(store: Store, client: MakeClient) -> Iterator[Job]:
            return jobs_of(
                store,
                row,
                seats,
                client,
                served,
                n_at_once=n_at_once,
            )

        return worker.perform(
            store,
            run_id,
            jobs,
            concurrency=concurrency,
            on_progress=on_progress,
            queued=queued,
            stop_when=lambda done: next(filter(None, (stop(done) for stop in stops)), None),
        )


def _refuse_simulators(row: RunRow, seats: list[JudgeRow], base_url: str | None, judge_base_url: str | None) -> None:
    """Raises StoreError where a real model or judge has moved to a simulator: its answers would stand as real ones."""
    real = [(row.model, base_url)] if base_url and not messages_simulated(row) else []
    real += [
        (seat.model, _judge_address(row, seat, base_url, judge_base_url))
        for seat in seats
        if seat.prompt_hash is not None and not seat.simulated
    ]
    key_env = row.manifest.request.api_key_env if row.manifest.request else ""
    for model, address in dict.fromkeys(real):
        if address not in (base_url, judge_base_url) or address == BATCH:
            continue
        try:
            is_simulator = address == worker.SIMULATOR or probe(Endpoint(str(address), key_env), model).simulated
        except EndpointError:
            continue  # whoever asks it next says what is wrong
        if is_simulator:
            raise StoreError(
                f"{address} is a simulator, and {model} in {row.id} is a real model: its answers would be made up. "
                "Give the address where the model is served now."
            )


def _owes_batches(
    store: Store, row: RunRow, seats: list[JudgeRow], base_url: str | None, judge_base_url: str | None
) -> bool:
    """Whether something is owed that no server can be asked for. A judge with a server reads what batches brought."""
    if (base_url or row.endpoint) == BATCH and any(row.responses.get(status) for status in runs.RETRIABLE):
        return True
    return _owed_by(store, row, [s for s in seats if _judge_address(row, s, base_url, judge_base_url) == BATCH])


def _owed_by(store: Store, row: RunRow, seats: list[JudgeRow]) -> bool:
    """Whether any of these judges has still to read a response. One that came with an imported run never will."""
    able = [seat for seat in seats if seat.prompt_hash is not None or seat.kind != LLM]
    with store.read() as connection:
        profiles = runs.profile_ids(connection, row.id) if able else []
        return any(judgements.owed(connection, row.id, seat.id, profile) for seat in able for profile in profiles)


def _address(row: RunRow, seat: JudgeRow) -> str:
    """Where a judge was served when it was planned; empty for one that asks no model. Runs of before judges had
    settings keep it in their manifest."""
    if "base_url" in seat.settings:
        return str(seat.settings["base_url"])
    return row.manifest.judge.base_url if seat.kind == "llm" else ""


def _judge_address(row: RunRow, seat: JudgeRow, moved_to: str | None, judge_moved_to: str | None) -> str:
    """A judge that was served from the same place as the model has moved with it."""
    address = _address(row, seat)
    if judge_moved_to:
        return judge_moved_to
    return moved_to if moved_to and address == row.endpoint else address


def jobs_of(
    store: Store,
    row: RunRow,
    seats: list[JudgeRow],
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
        # The runs of a sweep share what they have in common, drawn anew or not.
        fresh=(row.sweep or row.id) if row.manifest.fresh else None,
    )
    with store.read() as connection:
        judges = [_judge(connection, row, seat, client, address, endpoint) for seat in seats]
        writer = None if row.endpoint == IMPORTED else _writer(connection, row, client, endpoint, judges)
        profile_ids = runs.profile_ids(connection, row.id)
    for profile_id in profile_ids:
        owed = store.retry(partial(_owed_by_profile, store, row.id, profile_id, judges, writes=writer is not None))
        for judge, item in owed.unjudged:
            text = item.text or ""
            reasoning = text if judge.channel == judgements.REASONING else None
            read = Read(item.response, owed.held[item.memory], owed.context(item.context), text, reasoning)
            job = judgement_job(judge, read)
            if job is None:
                store.retry(partial(_judge_at_once, store, judge, read))
            else:
                yield job
        for group in owed.groups:
            assert writer is not None
            place = Place(owed.held[group.memory], owed.context(group.context), group.samples)
            yield response_job(writer, place)


@dataclass(frozen=True)
class _Owed:
    """What one profile owes: responses to be judged, messages to be written, and the memories they are about."""

    record: ProfileRecord
    unjudged: Sequence[tuple[Judge, judgements.OwedJudgement]]
    groups: Sequence[runs.OwedResponses]
    held: Mapping[str | None, ProfileRecord]

    def context(self, context_id: int) -> Context:
        return self.record.profile.contexts[self.record.context_ids.index(context_id)]


def _owed_by_profile(store: Store, run_id: str, profile_id: int, judges: Sequence[Judge], *, writes: bool) -> _Owed:
    with store.read() as connection:
        record = datasets.profile_record(connection, profile_id)
        unjudged = [(j, item) for j in judges for item in judgements.owed(connection, run_id, j.id, profile_id)]
        groups = runs.owed(connection, run_id, profile_id) if writes else []
        hashes = {item.memory for _, item in unjudged} | {group.memory for group in groups}
        known = datasets.memories_of(connection, [digest for digest in hashes if digest])
    return _Owed(record, unjudged, groups, {digest: _held(record, digest, known) for digest in hashes})


def _judge_at_once(store: Store, judge: Judge, read: Read) -> None:
    """Write a judgement that needs no call, in a transaction of its own."""
    with store.write(relaxed=True) as connection:
        judge_at_once(connection, judge, read)


def _held(record: ProfileRecord, digest: str | None, known: Mapping[str, tuple[int, ...]]) -> ProfileRecord:
    return record if digest is None else part(record, known[digest])


def _writer(
    connection: sa.Connection, row: RunRow, client: MakeClient, endpoint: Endpoint, judges: list[Judge]
) -> Writer:
    manifest = row.manifest
    lines, before = manifest.memory.template, manifest.mitigation.prompt
    return Writer(
        client=_client(client, endpoint, messages_simulated(row), manifest.model.n),
        model=row.model,
        prompt=_prompt(connection, row.id, manifest.prompt),
        lines=_prompt(connection, row.id, lines) if lines else seeds.load_prompt("memory", "bullets"),
        parameters=manifest.parameters,
        seed=row.seed,
        judges=judges,
        mitigation=Mitigation(manifest.mitigation.kind),
        before=_prompt(connection, row.id, before) if before else None,
        schema=manifest.model.json_schema,
    )


def _client(make: MakeClient, endpoint: Endpoint, simulated: bool, n_at_once: bool) -> Client:
    return make(endpoint if n_at_once else replace(endpoint, n_at_once=False), simulated)


def _judge(
    connection: sa.Connection,
    row: RunRow,
    seat: JudgeRow,
    client: MakeClient,
    address: Callable[[JudgeRow | None], str],
    endpoint: Endpoint,
) -> Judge:
    settings: Mapping[str, Any] = seat.settings
    if seat.prompt_hash is None:
        return Judge(seat.id, seat.kind, seat.model, seat.parameters, None, channel=seat.channel)
    key_env = settings.get("api_key_env") or row.manifest.judge.api_key_env
    place = replace(
        endpoint,
        base_url=address(seat),
        api_key_env=str(key_env),
        timeout=float(settings.get("timeout") or endpoint.timeout),
        server=settings.get("server"),
    )
    wording = PromptPart(kind="check" if seat.kind == "check" else "judge", level="base", sha256=seat.prompt_hash)
    return Judge(
        seat.id,
        seat.kind,
        seat.model,
        seat.parameters,
        _client(client, place, seat.simulated, bool(settings.get("n_at_once", True))),
        _prompt(connection, row.id, wording),
        settings.get("split"),
        str(settings.get("schema") or "json_schema"),
        seat.channel,
    )


def _prompt(connection: sa.Connection, run_id: str, named: PromptPart) -> Prompt:
    """The wording that a run was planned with. One of before wordings were kept must still be that of the seeds."""
    kept = runs.kept_prompts(connection, named.sha256)
    if kept is not None:
        return seeds.prompts.recorded(kept.kind, kept.level, kept.template, kept.answers, kept.source)
    current = seeds.load_prompt(named.kind, named.level)
    if current.sha256 != named.sha256:
        raise StoreError(
            f"the {named.kind} prompt has changed since {run_id} was planned, so the rest of it would not be "
            "comparable. Start a new run, or bring the old wording back."
        )
    return current
