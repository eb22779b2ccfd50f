"""Runs and their responses. Every response of a run is planned as a row before the first call is made."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from cimemories.manifest import RunManifest, read_manifest
from cimemories.model import JudgementStatus, ResponseStatus, Reveal, WorkKind, WorkStatus
from cimemories.store import calls, datasets, judgements, work
from cimemories.store.calls import TOKEN_SUMS
from cimemories.store.engine import (
    StoreError,
    canonical_json,
    in_chunks,
    insert_ignore,
    new_id,
    now,
    plain_name,
    rows_in_chunks,
    storable,
    values_of,
)
from cimemories.store.rows import as_relation
from cimemories.store.tables import call, context, judgement, profile, prompt, response, run, run_call, sweep

# ---- imported runs
#
# Runs that came from a file: written whole, with no calls behind them, and nothing that could be asked again.


IMPORTED = "imported"  # the endpoint of a run or a judge that came from a file


@dataclass(frozen=True)
class ImportedResponse:
    """One response with what one judge says of it. memory, shown, recall: their hashes; earlier: ids of contexts, as
    `settle` takes them. A judgement that is `owed` is not written."""

    run: str
    profile: int
    context: int
    level: str
    sample: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    memory: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: Sequence[Reveal]  # attributes by the record's id
    shown: str | None = None
    recall: str | None = None
    earlier: Sequence[int] | None = None


def runs_with_file(connection: sa.Connection, sha256: str) -> list[str]:
    """The ids of the runs that were imported from these very bytes."""
    rows = connection.execute(sa.select(run.c.id, run.c.manifest).where(run.c.endpoint == IMPORTED).order_by(run.c.id))
    imported = ((row.id, read_manifest(row.manifest).imported) for row in rows)
    return [run_id for run_id, part in imported if part and part.sha256 == sha256]


def add_responses(connection: sa.Connection, judges: dict[str, int], new: Sequence[ImportedResponse]) -> None:
    """Write responses with their judgements and reveals. judges: the judge's id by run."""
    plain = ("run", "profile", "context", "level", "sample", "status", "memory", "shown", "recall")
    for part in in_chunks(new):
        ids = _inserted(
            connection,
            response,
            [
                {name: getattr(r, name) for name in plain}
                | {"cause": _storable(r.cause), "text": _storable(r.text)}
                | {"earlier": None if r.earlier is None else json.dumps(list(r.earlier))}
                for r in part
            ],
        )
        # No row means owed.
        judged = [(i, r) for i, r in zip(ids, part, strict=True) if r.judgement is not JudgementStatus.OWED]
        judgement_ids = _inserted(
            connection,
            judgement,
            [
                {"response": i, "judge": judges[r.run], "status": r.judgement, "cause": _storable(r.judgement_cause)}
                for i, r in judged
            ],
        )
        by_judgement = zip(judgement_ids, judged, strict=True)
        judgements.add_reveals(connection, ((i, item) for i, (_, r) in by_judgement for item in r.reveals))


def _storable(text: str | None) -> str | None:
    return None if text is None else storable(text)


def _inserted(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, object]]) -> list[int]:
    """Ids of new rows, in the order given."""
    if not rows:
        return []
    # Engines may return the ids in any order; judgements are matched to responses by theirs.
    statement = sa.insert(table).returning(table.c.id, sort_by_parameter_order=True)
    return [int(i) for i in connection.execute(statement, list(rows)).scalars()]


# ---- prompts
#
# The wording of prompts that runs were planned with, kept by the hash of the template.


def keep_prompts(
    connection: sa.Connection, *, digest: str, kind: str, level: str, template: str, answers: str, source: str
) -> str:
    """Write a wording where it is new; returns its hash. The same template under another name stays what it was."""
    connection.execute(
        insert_ignore(connection, prompt).values(
            hash=digest, kind=kind, level=level, template=template, answers=answers, source=source, created=now()
        )
    )
    return digest


def kept_prompts(connection: sa.Connection, digest: str) -> sa.Row | None:
    """The row of a wording; None for one of before wordings were kept."""
    return connection.execute(sa.select(prompt).where(prompt.c.hash == digest)).first()


# ---- run contents
#
# What a run consists of, profile by profile, as an export of it needs it.


def run_responses(connection: sa.Connection, run_id: str, judge_id: int, profile_id: int) -> list[sa.RowMapping]:
    """The responses of one profile, contexts in the order of their ids, with what one judge made of them: columns id,
    context, level, sample, status, cause, text, memory, shown, recall, earlier, judgement, judgement_cause, request (of
    the recorded call)."""
    own = ("id", "context", "level", "sample", "status", "cause", "text", "memory", "shown", "recall", "earlier")
    judged = sa.and_(judgement.c.response == response.c.id, judgement.c.judge == judge_id)
    # Outer joins: a response without a judgement by this judge, or without a call (imported), still has its row.
    query = (
        sa.select(
            *(response.c[n] for n in own),
            judgement.c.status.label("judgement"),
            judgement.c.cause.label("judgement_cause"),
            call.c.request,
        )
        .outerjoin(judgement, judged)
        .outerjoin(call, response.c.call == call.c.key)
        .where(response.c.run == run_id, response.c.profile == profile_id)
        .order_by(response.c.context, response.c.level, response.c.sample)
    )
    return list(connection.execute(query).mappings())


def sent_prompts(connection: sa.Connection, request_hashes: Collection[str]) -> dict[str, str]:
    """What was sent in each of these requests, as one text: the messages' contents with a blank line between them."""
    prompts = {}
    for digest, body in calls.bodies(connection, request_hashes).items():
        messages = json.loads(body).get("messages", [])
        prompts[digest] = "\n\n".join(str(message.get("content", "")) for message in messages)
    return prompts


# ---- sweeps
#
# Sweeps: runs that were planned together, and are worked off one after the other as one piece of work.


@dataclass(frozen=True)
class SweepRow:
    """One sweep in a list. spec: the file it was planned from; plan: what it was estimated at; cells: its runs."""

    id: str
    name: str
    dataset: int
    spec: dict[str, Any]
    plan: dict[str, Any]
    cap: float | None
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    cells: int


def add_sweep(
    connection: sa.Connection,
    *,
    name: str,
    dataset_id: int,
    spec: Mapping[str, object],
    plan: Mapping[str, object],
    cap: float | None,
) -> str:
    """Write a new sweep; returns its id. It waits for its worker."""
    sweep_id = new_id("sweep")
    connection.execute(
        sa.insert(sweep).values(
            id=sweep_id,
            name=plain_name(name, "sweep"),
            dataset=dataset_id,
            spec=canonical_json(spec),
            plan=canonical_json(plan),
            cap=cap,
            status=WorkStatus.QUEUED,
            created=now(),
        )
    )
    # Sets the heartbeat: a worker that never comes is noticed.
    work.queue(connection, sweep_id)
    return sweep_id


def all_sweeps(connection: sa.Connection) -> list[SweepRow]:
    """Every sweep, oldest first."""
    return _sweep_rows(connection, work.select(sweep).order_by(sweep.c.created, sweep.c.id))


def sweep_named(connection: sa.Connection, sweep_id: str) -> SweepRow:
    """One sweep by its id. Raises StoreError that says where to look."""
    rows = _sweep_rows(connection, work.select(sweep).where(sweep.c.id == sweep_id))
    if not rows:
        raise StoreError(f"there is no sweep '{sweep_id}' in this workspace. `cimemories sweep --list` lists them.")
    return rows[0]


def _sweep_rows(connection: sa.Connection, query: sa.Select) -> list[SweepRow]:
    cells = sa.select(run.c.sweep, sa.func.count().label("cells")).where(run.c.sweep.is_not(None)).group_by(run.c.sweep)
    counts = {row.sweep: row.cells for row in connection.execute(cells)}
    return [
        SweepRow(
            **values_of(row, SweepRow, "spec", "plan", "status", "cells"),
            spec=json.loads(row["spec"]),
            plan=json.loads(row["plan"]),
            status=work.shown_status(row),
            cells=counts.get(row["id"], 0),
        )
        for row in connection.execute(query).mappings()
    ]


# ---- runs


OWN = run.c.explains.is_(None)  # not a run that explains a leak of another
RETRIABLE = (ResponseStatus.OWED, ResponseStatus.FAILED)
_SETTLED = ("status", "cause", "text", "reasoning", "finish_reason", "call", "before", "shown", "recall", "earlier")
# The statement looks at the status itself: of two that settle a response at once, the second changes no row.
_SETTLE_ALL = (
    f"UPDATE response SET {', '.join(f'{name} = new.{name}' for name in _SETTLED)} FROM {{new}} "
    f"WHERE response.id = new.id AND response.status IN ({', '.join(repr(str(status)) for status in RETRIABLE)})"
)


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a planned response. call: the key of the call that it rests on, None if a memory system failed
    before any; before: that of the gate or the draft; shown: hash of what a gate or a memory system let into the
    prompt; recall: hash of what the latter recalled; earlier: JSON of the contexts whose messages were in the prompt,
    in a run with sessions."""

    response: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    reasoning: str | None
    finish_reason: str | None
    call: str | None
    before: str | None = None
    shown: str | None = None
    recall: str | None = None
    earlier: str | None = None


@dataclass(frozen=True)
class RunRow:
    """One run in a list. `responses` and `judgements` are counts by status; judgements are those of the first judge.
    explains: the run of which this one explains a leak; such a run is in no list of runs."""

    id: str
    name: str
    dataset: int
    dataset_hash: str
    model: str
    endpoint: str
    simulated: bool
    samples: int
    seed: int | None
    prompt_level: str
    composition: str
    manifest: RunManifest
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    responses: dict[str, int]
    judgements: dict[str, int]
    sweep: str | None = None
    cell: int | None = None
    explains: str | None = None

    @property
    def given_name(self) -> str:
        """The name that a person gave the run, as `asked` for or in the file it came from; empty where it is called
        after its model and dataset."""
        asked = self.manifest.request.recorded.get("name") if self.manifest.request else None
        given = self.name if asked or self.manifest.imported else ""
        return "" if given.startswith(f"{self.model} on ") else given

    @property
    def counts_whole_profiles(self) -> bool:
        """Whether an attribute that a message's memory left out counts as unrevealed in it, as in the authors' code,
        instead of being no flow: so with their memory compositions alone."""
        return self.composition.startswith(("all_share+", "all_not_share+", "iid-"))

    @property
    def simulated_parts(self) -> tuple[str, ...]:
        """('responses',), or ('judge',) for a real model's messages that a simulator judged; () for neither."""
        messages = self.manifest.model.simulated is not False  # None: the mark of the run holds
        return ("responses" if messages else "judge",) if self.simulated else ()

    @property
    def expected(self) -> int:
        """How many responses the run plans; as many judgements are expected of each judge."""
        return sum(self.responses.values())

    @property
    def judged(self) -> int:
        return self.judgements.get(JudgementStatus.OK, 0)

    @property
    def coverage(self) -> float | None:
        """Judged responses over planned ones; None for a run that plans nothing."""
        return self.judged / self.expected if self.expected else None


@dataclass(frozen=True)
class OwedResponses:
    """The samples that are still owed for one profile in one context: one request. memory: hash of what is held there,
    None for all attributes in their order."""

    profile: int
    context: int
    level: str
    samples: dict[int, int]  # sample -> response id
    memory: str | None = None


def add(connection: sa.Connection, values: Mapping[str, object], manifest: Mapping[str, object]) -> str:
    """Write a new run, queued and without responses; returns its id. `values` are the columns that say what it is.
    Raises StoreError for a name or model with control characters."""
    for column, what in (("name", "run"), ("model", "model")):
        plain_name(str(values.get(column) or ""), what)
    run_id = new_id("run")
    connection.execute(
        sa.insert(run).values(
            id=run_id, manifest=canonical_json(manifest), status=WorkStatus.QUEUED, created=now(), **values
        )
    )
    return run_id


def plan(
    connection: sa.Connection,
    run_id: str,
    profile_ids: Sequence[int],
    context_ids: Sequence[int],
    samples: int,
    level: str = "full",
    memories: Mapping[tuple[int, int], str] | None = None,
) -> int:
    """Write every response that the run is to have as owed; returns how many. Planning twice changes nothing. memories:
    hash of what is held, by (profile, context); a pair that is not among them is not planned. None: all attributes in
    their order, everywhere."""
    tested = datasets.tested_pairs(connection, profile_ids, context_ids)
    pairs = [pair for pair in tested if memories is None or pair in memories]
    rows = (
        {
            "run": run_id,
            "profile": of,
            "context": into,
            "level": level,
            "sample": sample,
            "status": ResponseStatus.OWED,
            "memory": None if memories is None else memories[of, into],
        }
        for of, into in pairs
        for sample in range(samples)
    )
    statement = insert_ignore(connection, response)  # what an earlier plan has written stays, answered or not
    for chunk in in_chunks(rows):
        connection.execute(statement, chunk)
    return len(pairs) * samples


def add_explaining(
    connection: sa.Connection, run_id: str, own: Mapping[str, object], manifest: Mapping[str, object]
) -> str:
    """Write a run that explains a leak of this one, queued, with its judges and without responses; returns its id. All
    columns but those in `own` are as in that run."""
    of = connection.execute(sa.select(run).where(run.c.id == run_id)).mappings().one()
    same = ("dataset", "dataset_hash", "model", "endpoint", "seed", "prompt_level", "prompt_hash", "composition")
    new = add(connection, {n: of[n] for n in (*same, "parameters")} | {**own, "explains": run_id}, manifest)
    judges = judgements.of_run(connection, run_id) + judgements.checkers_of_run(connection, run_id)
    judgements.assign(connection, new, [item.id for item in judges], {item.id: item.settings for item in judges})
    return new


def plan_levels(
    connection: sa.Connection,
    run_id: str,
    place: tuple[int, int],
    levels: Sequence[str],
    samples: Sequence[int],
    memory: str | None,
) -> None:
    """Write the responses of one (profile, context) as owed: these samples at each level, all with this memory."""
    rows = (
        {"run": run_id, "profile": place[0], "context": place[1], "level": level, "sample": sample}
        | {"status": ResponseStatus.OWED, "memory": memory}
        for level in levels
        for sample in samples
    )
    for chunk in in_chunks(rows):
        connection.execute(insert_ignore(connection, response), chunk)


def all_rows(connection: sa.Connection, dataset_id: int | None = None) -> list[RunRow]:
    """Runs with their counts, oldest first; of one dataset where given. Counts of runs that have ended are cached. Runs
    that explain a leak are not among them: `explaining` has those."""
    query = work.select(run).where(OWN).order_by(run.c.created, run.c.id)
    if dataset_id is not None:
        query = query.where(run.c.dataset == dataset_id)
    return _rows(connection, query)


def names(connection: sa.Connection, dataset_id: int | None = None) -> dict[str, str]:
    """The names of a dataset's runs (None: of all) by id, oldest first, without their counts, which take long."""
    query = sa.select(run.c.id, run.c.name).where(OWN).order_by(run.c.created, run.c.id)
    query = query if dataset_id is None else query.where(run.c.dataset == dataset_id)
    return {row.id: row.name for row in connection.execute(query)}


def explaining(connection: sa.Connection, run_id: str) -> list[RunRow]:
    """The runs that explain leaks of this one, the newest first."""
    own = work.select(run).where(run.c.explains == run_id)
    return _rows(connection, own.order_by(run.c.created.desc(), run.c.id))


def marks(connection: sa.Connection) -> frozenset[tuple[str, ...]]:
    """What tells that a list of runs and sweeps is out of date: id, name, status and claim of each, without any counts,
    which take long."""
    parts = (sa.select(*(table.c[name] for name in ("id", "name", "status", "claim"))) for table in (run, sweep))
    return frozenset(tuple(row) for row in connection.execute(sa.union_all(*parts)))


def of_sweep(connection: sa.Connection, sweep_id: str) -> list[RunRow]:
    """The runs of a sweep, by cell; empty for an unknown sweep."""
    return _rows(connection, work.select(run).where(run.c.sweep == sweep_id).order_by(run.c.cell))


def named(connection: sa.Connection, run_id: str) -> RunRow:
    """One run by its id. Raises StoreError that says where to look."""
    rows = _rows(connection, work.select(run).where(run.c.id == run_id))
    if not rows:
        there = connection.execute(sa.select(sa.func.count()).select_from(run).where(OWN)).scalar_one()
        raise StoreError(
            f"there is no run '{run_id}' in this workspace, which holds {there}. `cimemories runs` lists them."
        )
    return rows[0]


def _rows(connection: sa.Connection, query: sa.Select) -> list[RunRow]:
    rows = connection.execute(query).mappings().all()
    own = response.c.run, response.c.status
    responses = work.counts_by_work(
        connection, "responses", rows, lambda ids: work.counts_by_status(connection, *own, ids)
    )
    judged = work.counts_by_work(connection, "judgements", rows, lambda ids: judgements.counts_by_run(connection, ids))
    without = {row["id"]: work.left_out(connection, row["id"]) if row["explains"] else 0 for row in rows}
    return [
        RunRow(
            **values_of(row, RunRow, "manifest", "status", "responses", "judgements"),
            manifest=read_manifest(row["manifest"]),
            status=work.shown_status(row, _missing(responses[row["id"]], judged[row["id"]]) - without[row["id"]]),
            responses=dict(responses[row["id"]]),
            judgements=dict(judged[row["id"]]),
        )
        for row in rows
    ]


def _missing(responses: Mapping[str, int], judgements: Mapping[str, int]) -> int:
    """Planned responses without a message or without a judgement by the first judge."""
    judged = sum(judgements.values()) > 0
    # A run without any judgement may have no judge: then an answer is all there is to miss.
    return sum(responses.values()) - (judgements if judged else responses).get(ResponseStatus.OK, 0)


def owed(connection: sa.Connection, run_id: str, profile_id: int) -> list[OwedResponses]:
    """What one profile still owes, one group a request, contexts in their order."""
    rows = connection.execute(
        sa.select(response.c.context, response.c.level, response.c.sample, response.c.id, response.c.memory)
        .join(context, response.c.context == context.c.id)
        .where(response.c.run == run_id, response.c.profile == profile_id, response.c.status.in_(RETRIABLE))
        .order_by(context.c.ordinal, response.c.level, response.c.sample)
    )
    # Samples with one memory have one prompt, and so one request.
    groups: dict[tuple[int, str, str | None], dict[int, int]] = {}
    for row in rows:
        groups.setdefault((row.context, row.level, row.memory), {})[row.sample] = row.id
    return [OwedResponses(profile_id, c, level, samples, m) for (c, level, m), samples in groups.items()]


def session_responses(connection: sa.Connection, run_id: str, profile_id: int) -> list[sa.RowMapping]:
    """All responses of one profile, written or owed, contexts in their order: context, sample, id, status, text (None
    unless the status is ok), memory."""
    text = sa.case((response.c.status == ResponseStatus.OK, response.c.text))
    query = (
        sa.select(*(response.c[n] for n in ("context", "sample", "id", "status", "memory")), text.label("text"))
        .join(context, response.c.context == context.c.id)
        .where(response.c.run == run_id, response.c.profile == profile_id)
        .order_by(context.c.ordinal, response.c.sample)
    )
    return list(connection.execute(query).mappings())


@dataclass(frozen=True)
class Earlier:
    """What a settled response of a run with sessions was shown: the contexts of the earlier messages in its prompt, and
    the hash of what a gate or a memory system let into it."""

    response: int
    profile: int
    context: int
    sample: int
    memory: str | None
    earlier: list[int]
    shown: str | None


def earlier_of(connection: sa.Connection, run_id: str, profile_id: int | None = None) -> list[Earlier]:
    """Of every settled response of a run with sessions; none of other runs. profile_id: of this profile alone."""
    own = ("id", "profile", "context", "sample", "memory", "earlier", "shown")
    query = sa.select(*(response.c[n] for n in own)).where(response.c.run == run_id, response.c.earlier.is_not(None))
    query = query if profile_id is None else query.where(response.c.profile == profile_id)
    return [
        Earlier(row.id, row.profile, row.context, row.sample, row.memory, json.loads(row.earlier), row.shown)
        for row in connection.execute(query)
    ]


def profile_ids(connection: sa.Connection, run_id: str) -> list[int]:
    """The ids of the profiles that a run has responses of, in their order."""
    # exists stops at a profile's first response, where a join would go through all of them.
    own = sa.exists().where(response.c.run == run_id, response.c.profile == profile.c.id)
    return list(connection.execute(sa.select(profile.c.id).where(own).order_by(profile.c.ordinal)).scalars())


def settle_all(connection: sa.Connection, outcomes: Sequence[Settled]) -> list[bool]:
    """Write what came of many planned responses by one statement; those that had been settled already stay. Returns for
    each whether the response rests on this very call now."""
    rows = [{"id": item.response} | {name: getattr(item, name) for name in _SETTLED} for item in outcomes]
    written = 0
    for new, parameters in as_relation(connection, response, rows):
        written += connection.exec_driver_sql(_SETTLE_ALL.format(new=new), parameters).rowcount
    if written == len(outcomes):
        return [True] * len(outcomes)
    query = sa.select(response.c.id, response.c.call)
    there = rows_in_chunks(connection, query, response.c.id, (item.response for item in outcomes))
    by_id = {row["id"]: row["call"] for row in there}
    return [by_id.get(item.response) == item.call for item in outcomes]


def failures(
    connection: sa.Connection, run_id: str, judges: Sequence[int] | None = None
) -> list[tuple[str, str, str, int]]:
    """What is missing and why: (stage, status, cause, count), the most frequent first. Judgements are those of all
    judges and task checkers, so a response counts once for each that failed on it; of these judges alone, where they
    are named, it counts once, by the first of its failed judgements."""
    own = response.c.run == run_id
    missing = response.c.status.not_in((ResponseStatus.OK, ResponseStatus.OWED))
    unjudged: tuple[sa.ColumnElement[bool], ...] = (
        judgement.c.response.in_(sa.select(response.c.id).where(own)),
        judgement.c.status != JudgementStatus.OK,
    )
    if judges is not None:
        first = sa.select(sa.func.min(judgement.c.id)).where(*unjudged, judgement.c.judge.in_(judges))
        unjudged = (judgement.c.id.in_(first.group_by(judgement.c.response)),)
    failed = [("response", *row) for row in work.counts_by_cause(connection, response, own, missing)]
    failed += [("judgement", *row) for row in work.counts_by_cause(connection, judgement, *unjudged)]
    return sorted(failed, key=lambda row: -row[3])


def call_errors(connection: sa.Connection, run_id: str) -> dict[str, str]:
    """What the server or the network said of failed calls of a run: by cause, the error of one of them."""
    rows = connection.execute(
        # min: any one will do, and the same one at every look.
        sa.select(call.c.status, sa.func.min(call.c.error))
        .join(run_call, run_call.c.call == call.c.key)
        .where(run_call.c.run == run_id, call.c.status != calls.OK, call.c.error.is_not(None))
        .group_by(call.c.status)
        .order_by(call.c.status)
    )
    return {str(status): str(error) for status, error in rows}


# ---- costs
#
# What the calls behind runs used, by kind and model, each call once however many runs share it; and caps on cost.


@dataclass(frozen=True)
class ModelCalls:
    """The calls of one kind to one model: how many, how many failed, their tokens, and the seconds that they took one
    after the other (an exchange that served several draws counts once). uncounted: answered exchanges whose tokens the
    server did not report; they are in no sum of tokens."""

    kind: str
    model: str
    calls: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    uncounted: int
    seconds: float

    def plus(self, other: ModelCalls) -> ModelCalls:
        """Both together."""
        numbers = {item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)[2:]}
        return ModelCalls(self.kind, f"{self.model}, {other.model}", **numbers)


def calls_by_model(connection: sa.Connection, run_ids: Sequence[str], since: str | None = None) -> list[ModelCalls]:
    """What these runs used, by kind and model. since: only what they asked themselves, so that answers which the record
    had already are left out; where that was not noted, what was asked at or after that time."""
    # 1 where any of these runs asked it itself, 0 where all took it from the record, null where nobody noted it.
    paid = sa.func.max(sa.case((run_call.c.asked.is_(True), 1), (run_call.c.asked.is_(False), 0))).label("asked")
    used = sa.select(run_call.c.call, paid).where(run_call.c.run.in_(run_ids)).group_by(run_call.c.call)
    return usage(connection, used, since)


# For work that notes no `asked`. With a type: PostgreSQL takes a bare null in a subquery for a text.
NOT_NOTED = sa.cast(sa.null(), sa.Integer).label("asked")


def usage(connection: sa.Connection, used: sa.Select[Any], since: str | None = None) -> list[ModelCalls]:
    """What calls used, by kind and model. used: selects the keys as `call`, each once, and `asked`, which is 1 for what
    counts whatever its time, 0 for what does not count since a time, and null where that time decides."""
    used_calls = used.subquery()
    first = call.c.prompt_tokens.is_not(None)  # token counts of an exchange stand on its first draw
    answered, counted = (
        sa.func.count(sa.distinct(sa.case((which, call.c.exchange)))) for which in (call.c.status == "ok", first)
    )
    query = (
        sa.select(
            call.c.kind,
            call.c.model,
            sa.func.count().label("calls"),
            sa.func.sum(sa.case((call.c.status != "ok", 1), else_=0)).label("failed"),
            *TOKEN_SUMS,
            (answered - counted).label("uncounted"),
            sa.func.coalesce(sa.func.sum(sa.case((first, call.c.seconds), else_=0.0)), 0.0).label("seconds"),
        )
        .join(used_calls, used_calls.c.call == call.c.key)
        .group_by(call.c.kind, call.c.model)
        .order_by(call.c.kind, call.c.model)
    )
    if since is not None:
        asked_since = sa.and_(used_calls.c.asked.is_(None), call.c.started >= since)
        query = query.where(sa.or_(used_calls.c.asked == 1, asked_since))
    return [ModelCalls(**row) for row in connection.execute(query).mappings()]


def cap_of(connection: sa.Connection, work_id: str) -> float | None:
    """What a piece of work may cost; None where there is no cap. Raises StoreError for work that is not there."""
    row = work.load(connection, work_id)
    match work.kind_of(work_id):
        case WorkKind.SWEEP:
            cap = row["cap"]
        case WorkKind.RUN:
            cap = read_manifest(row["manifest"]).cap
        case _:
            cap = json.loads(row["manifest"]).get("cap")
    return None if cap is None else float(cap)


def set_cap(connection: sa.Connection, work_id: str, cap: float) -> None:
    """Give a piece of work another cap; what it was asked with stays in its manifest. Raises StoreError for work that
    is not there."""
    row, table = work.load(connection, work_id), work.table_of(work_id)
    if work.kind_of(work_id) is WorkKind.SWEEP:
        values: dict[str, object] = {"cap": cap}
    else:
        values = {"manifest": canonical_json({**json.loads(row["manifest"]), "cap": cap})}
    connection.execute(sa.update(table).where(table.c.id == work_id).values(**values))


def tokens(connection: sa.Connection, run_id: str) -> tuple[int, int, int]:
    """Prompt, cached and completion tokens of all calls behind a run, whatever their kind; 0 where none was counted."""
    parts = calls_by_model(connection, [run_id])
    prompt, cached, completion = (sum(getattr(part, token.name) for part in parts) for token in TOKEN_SUMS)
    return prompt, cached, completion


def calls_by_kind(connection: sa.Connection, run_id: str) -> dict[str, ModelCalls]:
    """What each kind of call (respond, judge, gate, rewrite, check) has cost a run so far, over all models asked, their
    names joined: judges above all may be several."""
    stages: dict[str, ModelCalls] = {}
    for part in calls_by_model(connection, [run_id]):
        stages[part.kind] = stages[part.kind].plus(part) if part.kind in stages else part
    return stages


def delete(connection: sa.Connection, run_id: str) -> None:
    """Remove a run with its responses and judgements, and the runs that explain its leaks. Recorded calls stay: they
    cost money and may serve again. Raises StoreError where it is not there, or a living process works on any of it."""
    explaining_it = connection.execute(sa.select(run.c.id).where(run.c.explains == run_id)).scalars().all()
    for each in (run_id, *explaining_it):
        row = work.load(connection, each)
        if work.is_alive(row) and row["pid"] is not None:
            raise StoreError(f"{each} is running as process {row['pid']}. Cancel it first.")
    connection.execute(sa.delete(run).where(run.c.id.in_((run_id, *explaining_it))))
