"""Runs and their responses. Every response of a run is planned as a row before the first call is made."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from cimemories.manifest import RunManifest
from cimemories.model import JudgementStatus, ResponseStatus, Reveal, WorkKind, WorkStatus
from cimemories.store import calls, datasets, judgements, work
from cimemories.store.calls import TOKEN_SUMS
from cimemories.store.engine import StoreError, canonical_json, new_id, now, plain_name, storable
from cimemories.store.rows import (
    count,
    fetch,
    from_row,
    in_chunks,
    insert_new,
    insert_one,
    insert_returning,
    rows_in_chunks,
    rows_of,
)
from cimemories.store.rows import settle as settle_rows
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
    """Return the ids of the runs that were imported from these very bytes."""
    rows = connection.execute(sa.select(run.c.id, run.c.manifest).where(run.c.endpoint == IMPORTED).order_by(run.c.id))
    return [row.id for row in rows if row.manifest.imported and row.manifest.imported.sha256 == sha256]


def add_responses(connection: sa.Connection, judges: dict[str, int], new: Sequence[ImportedResponse]) -> None:
    """Write responses with their judgements and reveals. judges: the judge's id by run."""

    def text(value: str | None) -> str | None:
        return None if value is None else storable(value)

    plain = ("run", "profile", "context", "level", "sample", "status", "memory", "shown", "recall")
    for part in in_chunks(new):
        rows = [
            {name: getattr(r, name) for name in plain}
            | {"cause": text(r.cause), "text": text(r.text)}
            | {"earlier": None if r.earlier is None else json.dumps(list(r.earlier))}
            for r in part
        ]
        written = zip(insert_returning(connection, response, rows, "id"), part, strict=True)
        # No row means owed.
        judged = [(row.id, r) for row, r in written if r.judgement is not JudgementStatus.OWED]
        rows = [
            {"response": i, "judge": judges[r.run], "status": r.judgement, "cause": text(r.judgement_cause)}
            for i, r in judged
        ]
        by_judgement = zip(insert_returning(connection, judgement, rows, "id"), judged, strict=True)
        judgements.add_reveals(connection, ((row.id, item) for row, (_, r) in by_judgement for item in r.reveals))


# ---- contents
#
# The wording that runs were planned with, by the hash of the template, and their messages, profile by profile.


def keep_prompts(
    connection: sa.Connection, *, digest: str, kind: str, level: str, template: str, answers: str, source: str
) -> str:
    """Write a wording if it is new; return its hash. The same template under another name stays what it was."""
    values = {"kind": kind, "level": level, "template": template, "answers": answers, "source": source}
    insert_new(connection, prompt, [{"hash": digest, **values, "created": now()}])
    return digest


def recorded_prompts(connection: sa.Connection, digest: str) -> sa.Row | None:
    """Return the row of a wording, or None for one from before wordings were recorded."""
    return connection.execute(sa.select(prompt).where(prompt.c.hash == digest)).first()


def run_responses(connection: sa.Connection, run_id: str, judge_id: int, profile_id: int) -> list[sa.RowMapping]:
    """Return the responses of one profile, contexts in the order of their ids, with what one judge made of them:
    columns id, context, level, sample, status, cause, text, memory, shown, recall, earlier, judgement, judgement_cause,
    request (of the recorded call)."""
    names = ("id", "context", "level", "sample", "status", "cause", "text", "memory", "shown", "recall", "earlier")
    judged = sa.and_(judgement.c.response == response.c.id, judgement.c.judge == judge_id)
    columns = (judgement.c.status.label("judgement"), judgement.c.cause.label("judgement_cause"), call.c.request)
    # Outer joins: a response without a judgement by this judge, or without a call (imported), still has its row.
    query = (
        sa.select(*(response.c[name] for name in names), *columns)
        .outerjoin(judgement, judged)
        .outerjoin(call, response.c.call == call.c.key)
        .where(response.c.run == run_id, response.c.profile == profile_id)
        .order_by(response.c.context, response.c.level, response.c.sample)
    )
    return rows_of(connection, query)


def sent_prompts(connection: sa.Connection, request_hashes: Collection[str]) -> dict[str, str]:
    """Return what was sent in each of these requests, as one text: the messages' contents with a blank line between
    them."""
    sent = sent_messages(connection, request_hashes).items()
    return {digest: "\n\n".join(str(each.get("content", "")) for each in of) for digest, of in sent}


def sent_messages(connection: sa.Connection, request_hashes: Collection[str]) -> dict[str, list[dict[str, str]]]:
    """Return the messages, each with role and content, that were sent in each of these requests."""
    sent = calls.bodies(connection, request_hashes).items()
    return {digest: json.loads(body).get("messages", []) for digest, body in sent}


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
    dataset_id: int,
    spec: Mapping[str, object],
    plan: Mapping[str, object],
    **values: Any,
) -> str:
    """Write a new sweep that waits for its worker; return its id. values: name and cap."""
    plain_name(values["name"], "sweep")
    values |= {"spec": canonical_json(spec), "plan": canonical_json(plan), "dataset": dataset_id}
    sweep_id = new_id("sweep")
    insert_one(connection, sweep, id=sweep_id, status=WorkStatus.QUEUED, created=now(), **values)
    # Sets the heartbeat: a worker that never comes is noticed.
    work.queue(connection, sweep_id)
    return sweep_id


def all_sweeps(connection: sa.Connection) -> list[SweepRow]:
    """Return every sweep, oldest first."""
    return _sweep_rows(connection, work.select(sweep).order_by(sweep.c.created, sweep.c.id))


def sweep_by_id(connection: sa.Connection, sweep_id: str) -> SweepRow:
    """Return one sweep by its id. Raises StoreError that says where to look."""
    rows = _sweep_rows(connection, work.select(sweep).where(sweep.c.id == sweep_id))
    if not rows:
        raise StoreError(f"there is no sweep '{sweep_id}' in this workspace. `cimemories sweep --list` lists them.")
    return rows[0]


def _sweep_rows(connection: sa.Connection, query: sa.Select) -> list[SweepRow]:
    cells = sa.select(run.c.sweep, sa.func.count().label("cells")).where(run.c.sweep.is_not(None)).group_by(run.c.sweep)
    counts = {row.sweep: row.cells for row in connection.execute(cells)}
    return [
        from_row(SweepRow, row, status=work.shown_status(row), cells=counts.get(row["id"], 0))
        for row in rows_of(connection, query)
    ]


# ---- runs


OWN = run.c.explains.is_(None)  # not a run that explains a leak of another
RETRIABLE = (ResponseStatus.OWED, ResponseStatus.FAILED)
_SETTLED = (
    "status",
    "cause",
    "text",
    "reasoning",
    "finish_reason",
    "call",
    "before",
    "shown",
    "recall",
    "earlier",
    "channels",
)


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a planned response. call: the key of the call that it rests on, None if a memory system failed
    before any; before: that of the gate or the draft; shown: hash of what a gate or a memory system let into the
    prompt; recall: hash of what the latter recalled; earlier: JSON of the contexts whose messages were in the prompt,
    in a run with sessions; channels: what left an assistant beside its message, as `Outcome.recorded`."""

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
    channels: str | None = None


@dataclass(frozen=True)
class RunRow:
    """One run in a list. `responses` and `judgements` are counts by status; judgements are those of the first judge.
    explains: the run of which this one explains a leak; such a run is in no list of runs. tags, note: what people say
    of it."""

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
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def given_name(self) -> str:
        """Return the name that a person gave the run, in its spec or in the file it came from; empty if it is called
        after its model and dataset."""
        asked = self.manifest.request.recorded.get("name") if self.manifest.request else None
        given = self.name if asked or self.manifest.imported else ""
        return "" if given.startswith(f"{self.model} on ") else given

    @property
    def counts_whole_profiles(self) -> bool:
        """Return whether an attribute that a message's memory left out counts as unrevealed in it, as in the authors'
        code, instead of being no flow: so with their memory compositions alone."""
        return self.composition.startswith(("all_share+", "all_not_share+", "iid-"))

    @property
    def simulated_parts(self) -> tuple[str, ...]:
        """Return ('responses',), or ('judge',) for a real model's messages that a simulator judged; () for neither."""
        messages = self.manifest.model.simulated is not False  # None: the mark of the run holds
        return ("responses" if messages else "judge",) if self.simulated else ()

    @property
    def expected(self) -> int:
        """Return how many responses the run plans; as many judgements are expected of each judge."""
        return sum(self.responses.values())

    @property
    def judged(self) -> int:
        return self.judgements.get(JudgementStatus.OK, 0)

    @property
    def coverage(self) -> float | None:
        """Return judged responses over planned ones, or None for a run that plans nothing."""
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
    """Write a new run, queued and without responses; return its id. `values` are the columns that say what it is.
    Raises StoreError for a name or model with control characters."""
    for column, what in (("name", "run"), ("model", "model")):
        plain_name(str(values.get(column) or ""), what)
    written = {"manifest": canonical_json(manifest), "status": WorkStatus.QUEUED, "created": now()}
    return str(insert_one(connection, run, id=new_id("run"), **written, **values))


def plan(
    connection: sa.Connection,
    run_id: str,
    profile_ids: Sequence[int],
    context_ids: Sequence[int],
    samples: int,
    level: str = "full",
    memories: Mapping[tuple[int, int], str] | None = None,
) -> int:
    """Write every response that the run is to have as owed; return how many. Planning twice changes nothing. memories:
    hash of the memory, by (profile, context); a pair that is not among them is not planned. None: all attributes in
    their order, everywhere."""
    tested = datasets.tested_pairs(connection, profile_ids, context_ids)
    pairs = [pair for pair in tested if memories is None or pair in memories]
    held = {pair: None if memories is None else memories[pair] for pair in pairs}
    _owe(connection, run_id, ((pair, level, sample, held[pair]) for pair in pairs for sample in range(samples)))
    return len(pairs) * samples


def plan_levels(
    connection: sa.Connection,
    run_id: str,
    place: tuple[int, int],
    levels: Sequence[str],
    samples: Sequence[int],
    memory: str | None,
) -> None:
    """Write the responses of one (profile, context) as owed: these samples at each level, all with this memory."""
    _owe(connection, run_id, ((place, level, sample, memory) for level in levels for sample in samples))


def _owe(
    connection: sa.Connection, run_id: str, planned: Iterable[tuple[tuple[int, int], str, int, str | None]]
) -> None:
    """Write responses, as ((profile, context), level, sample, memory), as owed."""
    rows = (
        {
            "run": run_id,
            "profile": of,
            "context": into,
            "level": level,
            "sample": sample,
            "status": ResponseStatus.OWED,
            "memory": memory,
        }
        for (of, into), level, sample, memory in planned
    )
    # What an earlier plan has written stays, answered or not.
    for chunk in in_chunks(rows):
        insert_new(connection, response, chunk)


def add_explaining(
    connection: sa.Connection, run_id: str, values: Mapping[str, object], manifest: Mapping[str, object]
) -> str:
    """Write a run that explains a leak of this one, queued, with its judges and without responses; return its id. All
    columns but those in `own` are as in that run."""
    of = connection.execute(sa.select(run).where(run.c.id == run_id)).mappings().one()
    same = ("dataset", "dataset_hash", "model", "endpoint", "seed", "prompt_level", "prompt_hash", "composition")
    new = add(connection, {n: of[n] for n in (*same, "parameters")} | {**values, "explains": run_id}, manifest)
    judges = judgements.of_run(connection, run_id) + judgements.checkers_of_run(connection, run_id)
    judgements.assign(connection, new, [item.id for item in judges], {item.id: item.settings for item in judges})
    return new


def all_rows(connection: sa.Connection, dataset_id: int | None = None) -> list[RunRow]:
    """Return runs with their counts, oldest first; of one dataset if given. Counts of runs that have ended are cached.
    Runs that explain a leak are not among them: `explaining` has those."""
    query = work.select(run).where(OWN).order_by(run.c.created, run.c.id)
    return _rows(connection, query if dataset_id is None else query.where(run.c.dataset == dataset_id))


def names(connection: sa.Connection, dataset_id: int | None = None) -> dict[str, str]:
    """Return the names of a dataset's runs (None: of all) by id, oldest first, without their counts, which take
    long."""
    query = sa.select(run.c.id, run.c.name).where(OWN).order_by(run.c.created, run.c.id)
    query = query if dataset_id is None else query.where(run.c.dataset == dataset_id)
    return {row.id: row.name for row in connection.execute(query)}


def explaining(connection: sa.Connection, run_id: str) -> list[RunRow]:
    """Return the runs that explain leaks of this one, the newest first."""
    query = work.select(run).where(run.c.explains == run_id)
    return _rows(connection, query.order_by(run.c.created.desc(), run.c.id))


def marks(connection: sa.Connection) -> frozenset[tuple[str, ...]]:
    """Return what tells that a list of runs and sweeps is out of date: id, name, status and claim of each, without any
    counts, which take long."""
    parts = (sa.select(*(table.c[name] for name in ("id", "name", "status", "claim"))) for table in (run, sweep))
    return frozenset(tuple(row) for row in connection.execute(sa.union_all(*parts)))


def of_sweep(connection: sa.Connection, sweep_id: str) -> list[RunRow]:
    """Return the runs of a sweep, by cell; empty for an unknown sweep."""
    return _rows(connection, work.select(run).where(run.c.sweep == sweep_id).order_by(run.c.cell))


def by_id(connection: sa.Connection, run_id: str) -> RunRow:
    """Return one run by its id. Raises StoreError that says where to look."""
    rows = _rows(connection, work.select(run).where(run.c.id == run_id))
    if not rows:
        there = count(connection, run, OWN)
        raise StoreError(
            f"there is no run '{run_id}' in this workspace, which holds {there}. `cimemories runs` lists them."
        )
    return rows[0]


def _rows(connection: sa.Connection, query: sa.Select) -> list[RunRow]:
    rows = rows_of(connection, query)
    keys = response.c.run, response.c.status
    responses = work.counts_by_work(
        connection, "responses", rows, lambda ids: work.counts_by_status(connection, *keys, ids)
    )
    judged = work.counts_by_work(connection, "judgements", rows, lambda ids: judgements.counts_by_run(connection, ids))
    runs = []
    for row in rows:
        counts = {"responses": dict(responses[row["id"]]), "judgements": dict(judged[row["id"]])}
        about = {"tags": tuple((row["tags"] or "").split()), "note": row["note"] or ""}
        runs.append(from_row(RunRow, row, status=work.shown_status(row, _missing(**counts)), **counts, **about))
    return runs


def _missing(responses: Mapping[str, int], judgements: Mapping[str, int]) -> int:
    """Return how many planned responses are without a message or without a judgement by the first judge."""
    judged = sum(judgements.values()) > 0
    # A run without any judgement may have no judge: then an answer is all there is to miss.
    return sum(responses.values()) - (judgements if judged else responses).get(ResponseStatus.OK, 0)


def owed(connection: sa.Connection, run_id: str, profile_id: int) -> list[OwedResponses]:
    """Return what one profile still owes, one group a request, contexts in their order."""
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
    """Return all responses of one profile, written or owed, contexts in their order: columns context, sample, id,
    status, text (None unless the status is ok), memory."""
    text = sa.case((response.c.status == ResponseStatus.OK, response.c.text))
    query = (
        sa.select(*(response.c[n] for n in ("context", "sample", "id", "status", "memory")), text.label("text"))
        .join(context, response.c.context == context.c.id)
        .where(response.c.run == run_id, response.c.profile == profile_id)
        .order_by(context.c.ordinal, response.c.sample)
    )
    return rows_of(connection, query)


@dataclass(frozen=True)
class Earlier:
    """The prompt of a settled response of a run with sessions. earlier: the contexts of the earlier messages in it;
    shown: the hash of what a gate or a memory system let into it."""

    response: int
    profile: int
    context: int
    sample: int
    memory: str | None
    earlier: list[int]
    shown: str | None


def earlier_of(connection: sa.Connection, run_id: str, profile_id: int | None = None) -> list[Earlier]:
    """Return what every settled response of a run with sessions was shown; empty for other runs. profile_id: of this
    profile alone."""
    query = sa.select(response).where(response.c.run == run_id, response.c.earlier.is_not(None))
    query = query if profile_id is None else query.where(response.c.profile == profile_id)
    return [
        Earlier(row.id, row.profile, row.context, row.sample, row.memory, json.loads(row.earlier), row.shown)
        for row in connection.execute(query)
    ]


def profile_ids(connection: sa.Connection, run_id: str) -> list[int]:
    """Return the ids of the profiles that a run has responses of, in their order."""
    # exists stops at a profile's first response, where a join would go through all of them.
    has_responses = sa.exists().where(response.c.run == run_id, response.c.profile == profile.c.id)
    return list(connection.scalars(sa.select(profile.c.id).where(has_responses).order_by(profile.c.ordinal)))


def settle_all(connection: sa.Connection, outcomes: Sequence[Settled]) -> list[bool]:
    """Write the outcomes of many planned responses by one statement; those that had been settled already stay. Return
    for each whether the response rests on this very call now."""
    rows = [{"id": item.response} | {name: getattr(item, name) for name in _SETTLED} for item in outcomes]
    written = settle_rows(connection, response, rows, RETRIABLE)
    if len(written) == len(outcomes):
        return [True] * len(outcomes)
    query = sa.select(response.c.id, response.c.call)
    there = rows_in_chunks(connection, query, response.c.id, (item.response for item in outcomes))
    by_id = {row["id"]: row["call"] for row in there}
    return [by_id.get(item.response) == item.call for item in outcomes]


def failures(
    connection: sa.Connection, run_id: str, judges: Sequence[int] | None = None
) -> list[tuple[str, str, str, int]]:
    """Return what is missing and why: (stage, status, cause, count), the most frequent first. Judgements are those of
    all judges and task checkers, so a response counts once for each that failed on it; of these judges alone, if they
    are named, it counts once, by the first of its failed judgements."""
    of_run = response.c.run == run_id
    missing = response.c.status.not_in((ResponseStatus.OK, ResponseStatus.OWED))
    unjudged: tuple[sa.ColumnElement[bool], ...] = (
        judgement.c.response.in_(sa.select(response.c.id).where(of_run)),
        judgement.c.status != JudgementStatus.OK,
    )
    if judges is not None:
        first = sa.select(sa.func.min(judgement.c.id)).where(*unjudged, judgement.c.judge.in_(judges))
        unjudged = (judgement.c.id.in_(first.group_by(judgement.c.response)),)
    failed = [("response", *row) for row in work.counts_by_cause(connection, response, of_run, missing)]
    failed += [("judgement", *row) for row in work.counts_by_cause(connection, judgement, *unjudged)]
    return sorted(failed, key=lambda row: -row[3])


def call_errors(connection: sa.Connection, run_id: str) -> dict[str, str]:
    """Return by cause what the server or the network said of one of the failed calls of a run."""
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
    """Return what these runs used, by kind and model. since: only what they asked themselves, so that answers which the
    record had already are left out; if that was not noted, what was asked from that time on."""
    # 1 if any of these runs asked it itself, 0 if all took it from the record, null if that was not noted.
    paid = sa.func.max(sa.case((run_call.c.asked.is_(True), 1), (run_call.c.asked.is_(False), 0))).label("asked")
    used = sa.select(run_call.c.call, paid).where(run_call.c.run.in_(run_ids)).group_by(run_call.c.call)
    return usage(connection, used, since)


# For work that notes no `asked`. With a type: PostgreSQL takes a bare null in a subquery for a text.
NOT_NOTED = sa.cast(sa.null(), sa.Integer).label("asked")


def usage(connection: sa.Connection, used: sa.Select[Any], since: str | None = None) -> list[ModelCalls]:
    """Return what calls used, by kind and model. used: selects the keys as `call`, each once, and `asked`, which is 1
    for what counts whatever its time, 0 for what does not count since a time, and null if that time decides."""
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
    return fetch(connection, query, ModelCalls)


def cap_of(connection: sa.Connection, work_id: str) -> float | None:
    """Return what a piece of work may cost, or None without a cap. Raises StoreError for work that is not there."""
    row = work.load(connection, work_id)
    cap = row["cap"] if work.kind_of(work_id) is WorkKind.SWEEP else work.recorded(row).get("cap")
    return None if cap is None else float(cap)


def set_cap(connection: sa.Connection, work_id: str, cap: float) -> None:
    """Give a piece of work another cap; the one it was asked with stays in its manifest. Raises StoreError for work
    that is not there."""
    row = work.load(connection, work_id)
    if work.kind_of(work_id) is WorkKind.SWEEP:
        work.update(connection, work_id, cap=cap)
    else:
        work.update(connection, work_id, manifest=canonical_json({**work.recorded(row), "cap": cap}))


def calls_by_kind(connection: sa.Connection, run_id: str) -> dict[str, ModelCalls]:
    """Return what each kind of call (respond, judge, gate, rewrite, check) has used in a run so far, over all models
    asked, their names joined: there may be several judges."""
    stages: dict[str, ModelCalls] = {}
    for part in calls_by_model(connection, [run_id]):
        stages[part.kind] = stages[part.kind].plus(part) if part.kind in stages else part
    return stages


LONGEST_TAG, MOST_TAGS, LONGEST_NOTE = 40, 20, 2_000  # characters, tags of a run, characters


def describe(
    connection: sa.Connection, run_id: str, tags: Iterable[str] | None = None, note: str | None = None
) -> dict[str, str]:
    """Replace the tags of a run, or its note, or both; None leaves one as it is. Return what was written, by column.
    Raises StoreError for a run that is not there, a tag that is not one short word, too many tags, and a note that is
    too long or holds control characters other than line ends and tabs."""
    values: dict[str, str] = {}
    if tags is not None:
        words = dict.fromkeys(tag.strip() for tag in tags if tag.strip())
        for word in words:
            plain_name(word, "tag")
            if len(word.split()) > 1:
                raise StoreError(f"the tag '{word}' is more than one word. Write {'-'.join(word.split())}.")
            if len(word) > LONGEST_TAG:
                raise StoreError(f"a tag has at most {LONGEST_TAG} characters. Say more in the note of the run.")
        if len(words) > MOST_TAGS:
            raise StoreError(f"a run has at most {MOST_TAGS} tags, and these are {len(words)}.")
        values["tags"] = storable(" ".join(words))
    if note is not None:
        values["note"] = storable(note.replace("\r\n", "\n")).strip()
        if len(values["note"]) > LONGEST_NOTE:
            raise StoreError(f"a note has at most {LONGEST_NOTE:,} characters, and this one {len(values['note']):,}.")
        plain_name(values["note"].replace("\n", " ").replace("\t", " "), "note")
    work.load(connection, run_id)
    if values:
        stored = {column: text or None for column, text in values.items()}
        connection.execute(sa.update(run).where(run.c.id == run_id).values(**stored))
    return values


def delete(connection: sa.Connection, run_id: str) -> list[str]:
    """Remove a run with its responses and judgements, and the runs that explain its leaks; return their ids. Recorded
    calls stay: they cost money and may serve again. Raises StoreError if it is not there, or a living process works on
    any of it."""
    ids = [run_id, *connection.scalars(sa.select(run.c.id).where(run.c.explains == run_id))]
    for row in (work.load(connection, each) for each in ids):
        if work.is_alive(row) and row["pid"] is not None:
            raise StoreError(f"{row['id']} is running as process {row['pid']}. Cancel it first.")
    connection.execute(sa.delete(run).where(run.c.id.in_(ids)))
    return ids
