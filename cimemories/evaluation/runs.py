"""Do runs: what is owed is asked for, by profile, and judged as soon as it is there; no barrier between the two.

Planned as a whole before the first call (planning.py), worked off by one process, resumed by any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.evaluation.compositions import restrict
from cimemories.evaluation.costs import JUDGE, MODEL, capped, price_list, writes_no_more
from cimemories.evaluation.estimates import CountingClient, Estimate, Traversal, calls_of_run, refuse_misfits, stages_of
from cimemories.evaluation.judging import Judge, JudgeInput, PlannedJudge, at_work, judging, read_by, unread
from cimemories.evaluation.planning import (
    LookUp,
    add_judge,
    checked_by,
    look_up,
    planned_judge,
    recorded_prompt,
    recorded_wording,
    refuse_simulated_judges,
    with_identity,
)
from cimemories.evaluation.prices import Prices, check_money
from cimemories.evaluation.respond import MemoryModel, Slot, Writer, message_branches, replay
from cimemories.evaluation.sessions import session_order
from cimemories.evaluation.spec import BY_FILE, LLM, JudgeSpec, RunSpec, address_of_assistant
from cimemories.llm import worker
from cimemories.llm.capabilities import Server
from cimemories.llm.client import Client
from cimemories.llm.endpoint import SIMULATOR, Endpoint, EndpointError, is_assistant
from cimemories.llm.engines import Engine
from cimemories.llm.executor import Deferred, Job, Progress
from cimemories.llm.local_vllm import is_local
from cimemories.llm.scripts import Branch, begun
from cimemories.llm.source import MakeClient, Source, Unit
from cimemories.manifest import PromptPart
from cimemories.memory.systems import MemorySystemError, SystemSpec
from cimemories.seeds.prompts import Prompt
from cimemories.store import calls, datasets, judgements, runs, work
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, canonical_json
from cimemories.store.judgements import JudgeRow
from cimemories.store.runs import IMPORTED, RunRow
from cimemories.store.tables import run as run_table
from cimemories.store.tables import run_judge
from cimemories.store.team import log
from cimemories.text import count

StopWhen = Callable[[Progress], str | None]


@dataclass(frozen=True)
class Addresses:
    """The addresses of a run's model and its judges: as planned, or where they have moved to."""

    run: RunRow
    moved_to: str | None = None
    judges_moved_to: str | None = None

    def planned(self, judge: JudgeRow) -> str:
        """Return where a judge was served when it was planned; '' for one that asks no model."""
        if "base_url" in judge.settings:
            return str(judge.settings["base_url"])
        # Runs of before judges had settings keep it in their manifest.
        return self.run.manifest.judge.base_url if judge.kind == LLM else ""

    def of(self, served: JudgeRow | str | None = None) -> str:
        """Return where the model (None), a judge, or what was planned at an address is served now. What was served from
        the model's address has moved with it."""
        if isinstance(served, JudgeRow):
            return self.judges_moved_to or self.of(self.planned(served))
        return (self.moved_to or self.run.endpoint) if served in (None, self.run.endpoint) else str(served)


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
    part_of: Callable[[], str | None] | None = None,
    engine: Engine | None = None,
) -> Progress:
    """Do what a run owes, answers and judgements; wait until it is done, or has paid its cap on cost.

    `base_url` and `judge_base_url` replace the recorded addresses of servers that have moved. n_at_once: False sends a
    request for every sample. `stop_when`, `part_of` and `engine`: as of `worker.perform`, the first beside the cap.
    Raises what that raises, and StoreError for what no server can be asked for.
    """
    with store.read() as connection:
        row = runs.by_id(connection, run_id)
        judges = judges_of(connection, run_id)
    if base_url and is_assistant(row.endpoint):
        base_url = address_of_assistant(base_url) or base_url
    addresses = Addresses(row, base_url, judge_base_url)
    _require_servers(store, row, judges, addresses)
    if base_url or judge_base_url:
        _refuse_simulators(row, judges, addresses)

    def owes_calls() -> bool:
        asking = [judge for judge in judges if judge.kind in judgements.ASKING]
        return _owes_messages(row) or _has_unread(store, row, asking)

    # A run of which nothing can be paid any more ends as it would without a cap. A sweep at work brings its watch in
    # stop_when; a run of it that is resumed by itself counts for its sweep too.
    works = [run_id, *([row.sweep] if row.sweep is not None and stop_when is None else [])]
    watches = [capped(store, work_id, owes=owes_calls, queued=queued) for work_id in works]
    stops: list[StopWhen] = [watch for watch in (stop_when, *watches) if watch]
    return worker.perform(
        store,
        run_id,
        RunSource(run_id, base_url, judge_base_url, n_at_once),
        concurrency=concurrency,
        on_progress=on_progress,
        queued=queued,
        stop_when=(lambda done: next(filter(None, (stop(done) for stop in stops)), None)) if stops else None,
        part_of=part_of,
        engine=engine,
    )


@dataclass(frozen=True)
class RunSource(Source):
    """The answers and judgements that a run owes; the further fields are as of `execute`."""

    run_id: str
    moved_to: str | None = None
    judges_moved_to: str | None = None
    n_at_once: bool = True

    def servers(self, store: Store) -> set[str]:
        addresses, judges = self._planned(store)
        row = addresses.run
        served = {addresses.of(), *(addresses.of(judge) for judge in judges if addresses.planned(judge))}
        system = row.manifest.memory.system
        if system is not None and system.server is not None:
            served.add(addresses.of(str(system.options.get("base_url") or row.endpoint)))
        if any(map(is_local, served)) and not _owes_messages(row):
            # A vLLM is not started for nothing, and may not fit beside another into the memory of a GPU.
            asked = {addresses.of(judge) for judge in judges if _has_unread(store, row, [judge])}
            served = {address for address in served if address in asked or not is_local(address)}
        return served - {IMPORTED, *BY_FILE}

    def key_variables(self, store: Store) -> set[str]:
        addresses, judges = self._planned(store)
        manifest = addresses.run.manifest
        variables = [str(judge.settings.get("api_key_env") or manifest.judge.api_key_env) for judge in judges]
        return {*variables, manifest.request.api_key_env if manifest.request else ""}

    def profiles(self, store: Store) -> list[int]:
        with store.read() as connection:
            return runs.profile_ids(connection, self.run_id)

    def most_parts(self, store: Store) -> int:
        with store.read() as connection:
            row = runs.by_id(connection, self.run_id)
            # A task needs the messages before it: the sessions of a user stay together.
            return 1 if row.manifest.sessions else len(datasets.contexts(connection, row.dataset))

    def opened(
        self, store: Store, client: MakeClient, urls: Mapping[str, str]
    ) -> Callable[[Unit], Iterator[Job | Deferred]]:
        addresses, judges = store.retry(partial(self._planned, store))

        def url(of: JudgeRow | str | None) -> str:
            address = addresses.of(of)
            return urls.get(address, address)

        return jobs_by_unit(store, addresses.run, judges, client, url, n_at_once=self.n_at_once)

    def _planned(self, store: Store) -> tuple[Addresses, list[JudgeRow]]:
        with store.read() as connection:
            row, judges = runs.by_id(connection, self.run_id), judges_of(connection, self.run_id)
        return Addresses(row, self.moved_to, self.judges_moved_to), judges


def judges_of(connection: sa.Connection, run_id: str) -> list[JudgeRow]:
    """Return all that read the messages of a run: its judges, then its task checks."""
    return [*judgements.of_run(connection, run_id), *judgements.checkers_of_run(connection, run_id)]


def _require_servers(store: Store, row: RunRow, judges: Sequence[JudgeRow], addresses: Addresses) -> None:
    """Raises StoreError if something is owed that no server can be asked for."""
    if row.endpoint == IMPORTED and row.responses.get("failed") and not _has_unread(store, row, judges):
        raise StoreError(
            f"{row.id} was imported from a file: what it lacks cannot be asked for. A new run of the model can."
        )
    messages = addresses.of() in BY_FILE and _owes_messages(row)
    # A judge with a server reads what batches brought.
    if messages or _has_unread(store, row, [judge for judge in judges if addresses.of(judge) in BY_FILE]):
        raise StoreError(
            f"{row.id} has no server: it runs by batch file. `cimemories batch export {row.id} --out requests.jsonl` "
            f"writes the remaining requests; `cimemories resume {row.id} --base-url URL` uses a server instead."
        )


def _owes_messages(row: RunRow) -> bool:
    return any(row.responses.get(status) for status in runs.RETRIABLE)


def owes_anything(store: Store, row: RunRow) -> bool:
    """Return whether a run owes messages, failed ones among them, or judgements."""
    with store.read() as connection:
        judges = judges_of(connection, row.id)
    return _owes_messages(row) or _has_unread(store, row, judges)


def _has_unread(store: Store, row: RunRow, judges: Sequence[JudgeRow]) -> bool:
    """Return whether any of these judges has still to read a response."""
    # A model judge without a prompt came with an imported run, and cannot be asked.
    able = [judge for judge in judges if judge.prompt_hash is not None or judge.kind != LLM]
    with store.read() as connection:
        profiles = runs.profile_ids(connection, row.id) if able else []
        return any(judgements.owed(connection, row.id, judge.id, profile) for judge in able for profile in profiles)


def _refuse_simulators(row: RunRow, judges: Sequence[JudgeRow], addresses: Addresses) -> None:
    """Raises StoreError if a real model or judge has moved to a simulator: its answers would stand as real ones."""
    from cimemories.llm.http.transport import probe

    real = [(row.model, addresses.moved_to)] if addresses.moved_to and not messages_simulated(row) else []
    real += [(j.model, addresses.of(j)) for j in judges if j.prompt_hash is not None and not j.simulated]
    key_env = row.manifest.request.api_key_env if row.manifest.request else ""
    for model, address in dict.fromkeys(real):
        if address not in (addresses.moved_to, addresses.judges_moved_to) or address in BY_FILE:
            continue
        try:
            # The word needs no question; any other address may be a simulator too, and says so when it is asked.
            is_simulator = address == SIMULATOR or probe(Endpoint(str(address), key_env), model).simulated
        except EndpointError:
            continue  # the calls will say what is wrong
        if is_simulator:
            raise StoreError(
                f"{address} is a simulator, and {model} in {row.id} is a real model: its answers would be made up. "
                "Give the address where the model is served now."
            )


def jobs_by_unit(
    store: Store,
    row: RunRow,
    judges: Sequence[JudgeRow],
    client: MakeClient,
    address: Callable[[JudgeRow | str | None], str],
    *,
    n_at_once: bool = True,
) -> Callable[[Unit], Iterator[Job | Deferred]]:
    """Return what makes the jobs that a unit of the run still owes: judgements of what is answered, then messages.
    client: makes one for an endpoint. address: as of Addresses.of."""
    spec, manifest = RunSpec.of(row.manifest), row.manifest
    endpoint = Endpoint(
        address(None),
        spec.api_key_env,
        spec.timeout,
        n_at_once=n_at_once,
        server=manifest.model.identity,
        # The runs of a sweep share what they have in common, also where all is asked for again.
        fresh=(row.sweep or row.id) if manifest.fresh else None,
    )

    def asks(endpoint: Endpoint, simulated: bool, n_at_once: bool) -> Client:
        return client(endpoint if n_at_once else replace(endpoint, n_at_once=False), simulated)

    # Of an imported run only judgements can be owed to a server. Where no message is owed, a judge can read what came
    # through a memory system that is not installed here, or is another version by now.
    writes = row.endpoint != IMPORTED and _owes_messages(row)
    prompts: list[Prompt | None] = []
    with store.read() as connection:
        for judge in judges:
            kind = "check" if judge.kind == "check" else "judge"
            named = PromptPart(kind=kind, level="base", sha256=judge.prompt_hash) if judge.prompt_hash else None
            prompts.append(recorded_prompt(connection, row.id, named) if named else None)
        wording = recorded_wording(connection, row) if writes else None
    # Behind the block: a client looks up in the record whose answers may serve it.
    readers = []
    for judge, prompt in zip(judges, prompts, strict=True):
        settings: Mapping[str, Any] = judge.settings
        asked = None
        if prompt is not None:
            at = replace(
                endpoint,
                base_url=address(judge),
                api_key_env=str(settings.get("api_key_env") or manifest.judge.api_key_env),
                timeout=float(settings.get("timeout") or endpoint.timeout),
                server=settings.get("server"),
            )
            asked = asks(at, judge.simulated, bool(settings.get("n_at_once", True)))
        readers.append(at_work(judge, judge.id, asked, prompt))
    writer = None
    if wording is not None:
        memory_model, part = None, manifest.memory.system
        if part is not None and part.server is not None:
            system, server = SystemSpec(part.name, part.options), Server.of(part.server.recorded)
            model, base_url = system.asks or ("", "")
            at = replace(endpoint, base_url=address(base_url or row.endpoint), server=server.identity)
            memory_model = MemoryModel(asks(at, server.simulated, True), model, server, system.embeds)
        writer = Writer(
            asks(endpoint, messages_simulated(row), manifest.model.n),
            row.model,
            wording,
            manifest.parameters,
            row.seed,
            readers,
            RunSpec.of_row(row),
            manifest.model.json_schema,
            _system(row),
            memory_model,
        )

    def jobs(unit: Unit) -> Iterator[Job | Deferred]:
        # Read to its end before the first job goes out: a transaction open across a yield would last as long as calls.
        inputs, slots = store.retry(partial(_owed_by_unit, store, row, unit, readers, writes=writes))
        for judge, read in inputs:
            yield from Deferred(partial(begun, [Branch(partial(judging, judge, read))])).jobs(store)
        if writer is not None:
            for branches in message_branches(writer, slots):
                first = Deferred(partial(begun, branches))
                yield from [first] if writer.system is not None else first.jobs(store)

    return jobs


def _owed_by_unit(
    store: Store, row: RunRow, unit: Unit, judges: Sequence[Judge], *, writes: bool
) -> tuple[list[tuple[Judge, JudgeInput]], list[Slot]]:
    """Return what the judges have still to read of a unit, and the slots of the messages to be written: in sessions all
    tasks of the user, in their order."""
    run_id, sessions = row.id, RunSpec.of_row(row).remembered
    with store.read() as connection:
        record = datasets.profile_record(connection, unit.profile)
        contexts = {context for position, context in enumerate(record.context_ids) if unit.holds(position)}
        inputs = unread(connection, run_id, record, judges, contexts)
        messages = runs.owed(connection, run_id, unit.profile) if writes and sessions is None else []
        messages = [group for group in messages if group.context in contexts]
        rows = runs.session_responses(connection, run_id, unit.profile) if writes and sessions is not None else []
        # Each memory once: hundreds of slots of a profile share a few. None is the hash of all attributes.
        hashes = {group.memory for group in messages} | {item["memory"] for item in rows}
        attributes = datasets.memories_of(connection, [digest for digest in hashes if digest])
        replays = _replays(connection, row, record)
    memories = {h: record if h is None else restrict(record, attributes[h]) for h in hashes}
    slots = [Slot(memories[g.memory], g.context, g.samples, replay=replays.get(g.level)) for g in messages]
    if sessions is not None:
        tasks: dict[int, list[sa.RowMapping]] = {}
        for item in rows:
            tasks.setdefault(item["context"], []).append(item)
        slots = [
            Slot(
                memories[tasks[context][0]["memory"]],
                context,
                {item["sample"]: item["id"] for item in tasks[context] if item["status"] in runs.RETRIABLE},
                {item["sample"]: item["text"] for item in tasks[context] if item["text"] is not None},
            )
            for context in session_order(sessions, record, tasks)
        ]
    return inputs, slots


def _replays(connection: sa.Connection, row: RunRow, record: ProfileRecord) -> dict[str, ProfileRecord]:
    """Return by level what reaches the prompt in a run that explains a leak; of any other run nothing."""
    part = row.manifest.attribution
    if part is None:
        return {}
    shown = datasets.memories_of(connection, [variant.shown for variant in part.variants])
    replays = {}
    for variant in part.variants:
        reworded = {} if variant.statement is None else {part.attribute: variant.statement}
        if variant.paraphrase is not None:
            raise StoreError(
                f"{row.id} asks the model for a paraphrase, which is no longer done: explain the leak again."
            )
        replays[variant.level] = replay(record, shown[variant.shown], reworded)
    return replays


def _system(row: RunRow) -> SystemSpec | None:
    """Return the memory system of a run. Raises StoreError if it is not installed, or in another version than was
    planned."""
    planned = row.manifest.memory.system
    if planned is None:
        return None
    try:
        system = SystemSpec(planned.name, planned.options)
        version = system.make().version
    except MemorySystemError as error:
        raise StoreError(f"{row.id} recalls by the memory system {planned.name}, and {error}") from None
    if version != planned.version:
        raise StoreError(
            f"{row.id} was planned with version {planned.version} of the memory system {planned.name}, and here it is "
            f"{version}: the rest would not be comparable. Install that version, or start a new run."
        )
    return system


# ---- a run once more: read by another judge, and the wording that it was planned with


def judge_again(
    store: Store,
    run_id: str,
    judges: Sequence[JudgeSpec],
    *,
    check: bool = False,
    cap: float | None = None,
    allow_too_long: bool = False,
) -> list[int]:
    """Give a run further judges, and return their ids. `resume` then asks for their judgements and for nothing else.
    check: the first model among them also says whether each message does its task. cap: what the run may cost, all that
    it has cost included; None leaves the cap that it has.

    Raises StoreError if a judge reads this run already, if its price is missing beside a cap or in another currency, if
    the run is running, and, unless `allow_too_long`, if requests do not fit into a judge's context; EndpointError if a
    judge cannot be reached.
    """
    planned = _planned_judges(store, judges)
    if not allow_too_long and any(judge.server and judge.server.max_model_len for judge in planned):
        refuse_misfits(_estimated(store, run_id, planned, check=check))
    # Servers are asked before this: a slow one must not hold the lock on writing.
    with store.write(Role.OPERATOR) as connection:
        row = runs.by_id(connection, run_id)
        if work.is_alive(work.locked(connection, run_id)):
            raise StoreError(f"{run_id} is running. Wait for it, or pause it, then give it another judge.")
        refuse_simulated_judges(messages_simulated(row), planned)
        _check_prices(connection, row, [(judge.model, judge.prices) for judge in judges if judge.kind == LLM], cap)
        calls.keep_servers(connection, [judge.server.identity for judge in planned if judge.server])
        before = set(connection.execute(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).scalars())
        ids = [add_judge(connection, run_id, judge) for judge in planned]
        # A judge that is there keeps its id. Raising takes back what add_judge has written for the others.
        already = [judge.model for judge, i in zip(judges, ids, strict=True) if i in before]
        if already:
            raise StoreError(f"{', '.join(already)} judges {run_id} already, with this wording and these parameters.")
        if check:
            first = next((judge for judge in planned if judge.server is not None), None)
            if first is None:
                raise StoreError("the task check by a model needs a judge that is one.")
            add_judge(connection, run_id, checked_by(first))
        there_already = [judge.recorded for judge in row.manifest.judges]
        manifest = {**row.manifest.recorded, "judges": [*there_already, *(judge.as_json() for judge in planned)]}
        simulated = row.simulated or any(judge.simulated for judge in planned)
        values = {"manifest": canonical_json(manifest), "simulated": simulated}
        connection.execute(sa.update(run_table).where(run_table.c.id == run_id).values(**values))
        if cap is not None:
            runs.set_cap(connection, run_id, cap)
        work.queue(connection, run_id)
        log.add(connection, "run.judges_added", run_id, judges=", ".join(judge.model for judge in judges))
    return ids


def estimate_judges(
    store: Store,
    run_id: str,
    judges: Sequence[JudgeSpec],
    *,
    check: bool = False,
    cap: float | None = None,
    concurrency: int = 32,
    look_up: LookUp = partial(look_up, retries=1),
) -> Estimate:
    """Return what further judges of a run would come to, for the messages that are there. Raises StoreError if there
    are none, and EndpointError if a judge cannot be used."""
    planned = _planned_judges(store, judges, look_up)
    return replace(_estimated(store, run_id, planned, check=check), concurrency=concurrency, cap=cap)


def _planned_judges(store: Store, judges: Sequence[JudgeSpec], look_up: LookUp = look_up) -> list[PlannedJudge]:
    def server(base_url: str, *question: Any) -> Server:
        return with_identity(store, base_url, look_up(base_url, *question))

    return [planned_judge(judge, server) for judge in judges]


def _estimated(store: Store, run_id: str, planned: Sequence[PlannedJudge], *, check: bool) -> Estimate:
    first = next((judge for judge in planned if judge.server is not None), None)
    judges = [*planned, *([checked_by(first)] if check and first is not None else [])]
    readers = []
    for judge in judges:
        client = None if judge.server is None else CountingClient(store, judge.spec.base_url, judge.server)
        readers.append(at_work(judge, 0, client, judge.prompt))
    messages, texts = set[int](), 0
    with store.read() as connection:
        row = runs.by_id(connection, run_id)
        counter = Traversal(connection)
        for profile_id in runs.profile_ids(connection, run_id):
            record = datasets.profile_record(connection, profile_id)
            by_channel = {
                channel: judgements.readable(connection, run_id, profile_id, channel)
                for channel in {reader.channel for reader in readers}
            }
            inputs = read_by(connection, run_id, record, [(r, item) for r in readers for item in by_channel[r.channel]])
            messages |= {read.response for _, read in inputs}
            texts += len(inputs)
            counter.count([Branch(partial(judging, reader, read))] for reader, read in inputs)
        stages, assumptions = stages_of(connection, calls_of_run(connection, judges), counter)
        waiting = row.expected - len(messages)
    if not messages:
        raise StoreError(f"{run_id} has no messages yet, so nothing of it can be judged.")
    if waiting:
        assumptions = (*assumptions, f"{count(waiting, 'message')} of the run missing or not written: not counted")
    counts = ("judgement", "judgement")
    return Estimate(len(messages), texts, stages, assumptions, 32, unit="message", counts=counts)


def _check_prices(
    connection: sa.Connection, row: RunRow, added: Sequence[tuple[str, Prices | None]], cap: float | None
) -> None:
    """Raises StoreError if the prices of added judges do not go with those of the run, or of its sweep, or if one is
    missing that a cap needs. added: their models and prices. cap: a new one of the run."""
    # What a run of a sweep pays counts for the sweep, in the sweep's one currency.
    capped = [work_id for work_id in (row.id, row.sweep) if work_id and runs.cap_of(connection, work_id) is not None]
    unpriced = [model for model, prices in added if prices is None]
    if capped and unpriced:
        raise StoreError(
            f"{capped[0]} has a cap on cost: give the prices of {', '.join(unpriced)}, 0 for what is free (on the "
            "command line: --judge-price)."
        )
    together = runs.of_sweep(connection, row.sweep) if row.sweep else [row]
    known, _ = price_list([item.manifest for item in together])
    there = [(name, prices) for (role, name), prices in known.items() if role == JUDGE]
    model = known.get((MODEL, row.model))
    if model is None and writes_no_more(row):
        model = Prices(0, 0, 0, next((prices.currency for _, prices in added if prices), ""))
    check_money((row.model, model), [*there, *added], None, cap)


def messages_simulated(row: RunRow) -> bool:
    """Return whether a simulator wrote the messages of a run, whose mark may also come from a judge alone."""
    recorded = row.manifest.model.simulated
    return row.simulated if recorded is None else recorded
