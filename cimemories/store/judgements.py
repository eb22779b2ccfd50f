"""Judges, judgements and reveals: what a judge says a response gives away, and where it says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from cimemories.model import Channel, JudgementStatus, ResponseStatus, Reveal, Span, Strength
from cimemories.store import datasets
from cimemories.store.engine import StoreError, canonical_json, content_hash, plain_name, storable
from cimemories.store.rows import (
    count,
    exists,
    fetch,
    from_row,
    in_chunks,
    insert,
    insert_new,
    insert_one,
    rows_in_chunks,
    rows_of,
)
from cimemories.store.tables import attribute, audit, context, judge, judgement, recall, response, reveal, run_judge

# ---- claims of judges
#
# What one judge, or several of a run together, claim of its messages, counted and one by one.
#
# A response counts once every asked judge has judged it; an attribute counts as revealed there if enough of them claim
# it in full. Claims count only on what the response's memory held: `partial_memories` says which memories leave
# something out, and a memory that is not among them holds all attributes of its profile.


# Hash of a memory that leaves something out -> the attributes that it holds
PartialMemories = Mapping[str, frozenset[int]]


def partial_memories(connection: sa.Connection, run_id: str) -> dict[str, frozenset[int]]:
    """Return the memories of a run that leave out an attribute of their profile, by hash; empty for the common run,
    whose responses all hold everything. Raises StoreError if a memory is named that the record does not have."""
    # Distinct: many samples share one memory.
    named = connection.execute(
        sa.select(response.c.memory, response.c.profile)
        .where(response.c.run == run_id, response.c.memory.is_not(None))
        .distinct()
    ).all()
    if not named:
        return {}
    memories = datasets.memories_of(connection, [row.memory for row in named])
    if lost := next((row.memory for row in named if row.memory not in memories), None):
        raise StoreError(
            f"{run_id} names the memory {lost[:12]}, which is not in the workspace, so what its messages "
            "could reveal is not known. Import the run again, or delete it."
        )
    of = attribute.c.profile
    counts = sa.select(of, sa.func.count().label("attributes")).group_by(of)
    rows = rows_in_chunks(connection, counts, of, (row.profile for row in named))
    sizes = {row["profile"]: row["attributes"] for row in rows}
    # A memory names attributes of its own profile, each once: as many as the profile has are all of them.
    partial = (row for row in named if len(memories[row.memory]) < sizes[row.profile])
    return {row.memory: frozenset(memories[row.memory]) for row in partial}


def memory_holds(memories: PartialMemories, memory: str | None, attribute_id: int) -> bool:
    """Return whether a memory holds an attribute of its profile."""
    return memory is None or memory not in memories or attribute_id in memories[memory]


def _of_profiles(run_id: str, profiles: Sequence[int] | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the condition for the responses of a run, of these profiles alone if given."""
    of_run = response.c.run == run_id
    return (of_run,) if profiles is None else (of_run, response.c.profile.in_(profiles))


_FULL = reveal.c.strength == Strength.FULL
_STRENGTH = sa.type_coerce(reveal.c.strength, sa.Text).label("strength")  # as text, for many rows at once


def _judged_by(run_id: str, judge_ids: Sequence[int], *, claims: bool = False) -> sa.Select[Any]:
    """Return a query, without columns yet, for the judgements by these judges on a run; claims: for their claims."""
    by_judges = judgement.c.judge == judge_ids[0] if len(judge_ids) == 1 else judgement.c.judge.in_(judge_ids)
    judged = judgement.join(response, judgement.c.response == response.c.id)
    source = judged.join(reveal, reveal.c.judgement == judgement.c.id) if claims else judged
    judged_well = judgement.c.status == JudgementStatus.OK
    return sa.select().select_from(source).where(response.c.run == run_id, by_judges, judged_well)


def _judged_by_all(judge_ids: Sequence[int]) -> sa.FromClause:
    # One join a judge: a response that one of them has not judged drops out, so all counts have the same denominator.
    source: sa.FromClause = response
    for judge_id in judge_ids:
        each = judgement.alias()
        read = each.c.response == response.c.id, each.c.judge == judge_id, each.c.status == JudgementStatus.OK
        source = source.join(each, sa.and_(*read))
    return source


def planned_responses(
    connection: sa.Connection, run_id: str, profiles: Sequence[int] | None = None
) -> sa.CursorResult[tuple]:
    """Return planned responses counted, answered or not: columns profile, context, level, memory, expected. profiles:
    of these alone; None: of all, here and below."""
    group = response.c.profile, response.c.context, response.c.level, response.c.memory
    return connection.execute(
        sa.select(*group, sa.func.count().label("expected")).where(*_of_profiles(run_id, profiles)).group_by(*group)
    )


def judged_draws(
    connection: sa.Connection,
    run_id: str,
    judge_ids: Sequence[int],
    profiles: Sequence[int] | None = None,
    *,
    by_shown: bool = False,
) -> sa.CursorResult[tuple]:
    """Return the responses that every one of these judges has judged, counted: columns profile, context, level, memory,
    draws. `reveal_counts` looks for claims in these responses. by_shown: apart by what reached the prompt, with a
    column `shown` before the counts, here and there."""
    group = [response.c.profile, response.c.context, response.c.level, response.c.memory]
    group += [response.c.shown] if by_shown else []
    return connection.execute(
        sa.select(*group, sa.func.count().label("draws"))
        .select_from(_judged_by_all(judge_ids))
        .where(*_of_profiles(run_id, profiles))
        .group_by(*group)
    )


def judged_by_all(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> int:
    """Return how many responses of a run every one of these judges has judged."""
    return count(connection, _judged_by_all(judge_ids), response.c.run == run_id)


def reveal_counts(
    connection: sa.Connection,
    run_id: str,
    judge_ids: Sequence[int],
    need: int = 1,
    *,
    grounded: bool = False,
    profiles: Sequence[int] | None = None,
    by_shown: bool = False,
) -> sa.CursorResult[tuple]:
    """Return in how many responses that all of these judges have judged at least `need` of them claim an attribute in
    full (grounded: with a quote that stands in the message): columns attribute, context, memory, reveals."""
    group = [reveal.c.attribute, response.c.context, response.c.memory]
    group += [response.c.shown] if by_shown else []
    of_claims = sa.and_(
        judgement.c.response == response.c.id,
        judgement.c.judge.in_(judge_ids),
        judgement.c.status == JudgementStatus.OK,
    )
    counted = [*_of_profiles(run_id, profiles), reveal.c.strength == Strength.FULL]
    if grounded:
        counted.append(reveal.c.grounded)
    # One judge has one judgement a response, so its claims are counted as they are, without the grouping below.
    if len(judge_ids) == 1:
        source = response.join(judgement, of_claims).join(reveal, reveal.c.judgement == judgement.c.id)
        query = sa.select(*group, sa.func.count().label("reveals")).select_from(source)
        return connection.execute(query.where(*counted).group_by(*group))
    # Several judges: first the responses in which enough of them claim it, then how many those are.
    source = _judged_by_all(judge_ids).join(judgement, of_claims).join(reveal, reveal.c.judgement == judgement.c.id)
    agreed = (
        sa.select(*group, response.c.id)
        .select_from(source)
        .where(*counted)
        # A judge names an attribute once in a response (the key of reveal), so rows here are judges.
        .group_by(*group, response.c.id)
        .having(sa.func.count() >= need)
        .subquery()
    )
    columns = [agreed.c[column.name] for column in group]
    return connection.execute(sa.select(*columns, sa.func.count().label("reveals")).group_by(*columns))


def recalls(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a gate or a memory system chose what reached the prompt of a run's messages; False while no
    message has come through one."""
    return exists(connection, response.c.run == run_id, response.c.shown.is_not(None))


@dataclass(frozen=True)
class Ungrounded:
    """Lines that a memory system recalled and that carry no known attribute: in how many of the run's messages some
    stood in the prompt, of how many that have a recall, and how many lines these were."""

    messages: int
    of_messages: int
    lines: int


def ungrounded_lines(connection: sa.Connection, run_id: str) -> Ungrounded:
    """Return those of the answered messages of a run."""
    some = sa.case((recall.c.ungrounded > 0, 1), else_=0)
    query = (
        sa.select(sa.func.sum(some), sa.func.count(), sa.func.sum(recall.c.ungrounded))
        .select_from(response.join(recall, response.c.recall == recall.c.hash))
        .where(response.c.run == run_id, response.c.status == ResponseStatus.OK)
    )
    return Ungrounded(*(int(number or 0) for number in connection.execute(query).one()))


def of_responses(connection: sa.Connection, response_ids: Iterable[int], *names: str) -> dict[int, tuple[Any, ...]]:
    """Return these columns of each of these responses that is there."""
    query = sa.select(response.c.id, *(response.c[name] for name in names))
    rows = rows_in_chunks(connection, query, response.c.id, response_ids)
    return {row["id"]: tuple(row[name] for name in names) for row in rows}


def grounding(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return by judge its full claims in a run, and how many of them have a quote that is not in the text; (0, 0) for
    one that claims nothing."""
    group = judgement.c.judge, reveal.c.grounded
    query = _judged_by(run_id, judge_ids, claims=True).where(_FULL).add_columns(*group, sa.func.count())
    # A judge that claims nothing has no row: it starts from zeros.
    counts = dict.fromkeys(judge_ids, (0, 0))
    for judge_id, grounded, number in connection.execute(query.group_by(*group)):
        claims, lost = counts[judge_id]
        counts[judge_id] = claims + number, lost + number * (not grounded)
    return counts


def run_claims(
    connection: sa.Connection,
    run_id: str,
    judge_ids: Sequence[int],
    *names: str,
    full: bool = False,
    grounded: bool = False,
) -> sa.CursorResult[tuple]:
    """Return the claims of these judges in a run: columns judge, response, attribute, and these of the claim or its
    response (strength as text). full: those of full strength; grounded: those whose quote stands in the message."""
    by_name = {**dict(response.c), **dict(reveal.c), "strength": _STRENGTH}
    columns = (judgement.c.judge, judgement.c.response, reveal.c.attribute, *(by_name[name] for name in names))
    which = [*([_FULL] if full else []), *([reveal.c.grounded] if grounded else [])]
    return connection.execute(_judged_by(run_id, judge_ids, claims=True).add_columns(*columns).where(*which))


def claims_on_audited(
    connection: sa.Connection, run_id: str, judge_ids: Sequence[int], *, grounded: bool = False
) -> dict[int, Counter[int]]:
    """Return, of each response of a run that people have audited and every one of these judges has judged, how many of
    them claim each attribute in full."""
    audited = response.c.id.in_(sa.select(audit.c.response))
    judged = sa.select(response.c.id).select_from(_judged_by_all(judge_ids)).where(response.c.run == run_id, audited)
    claims = {int(response_id): Counter[int]() for response_id in connection.scalars(judged)}
    query = _judged_by(run_id, judge_ids, claims=True).add_columns(judgement.c.response, reveal.c.attribute)
    query = query.where(audited, _FULL, *([reveal.c.grounded] if grounded else []))
    for response_id, attribute_id in connection.execute(query):
        # One judge may have read a response that another has still to read.
        if response_id in claims:
            claims[response_id][attribute_id] += 1
    return claims


def judged(connection: sa.Connection, run_id: str, judge_ids: Sequence[int], *names: str) -> sa.CursorResult[tuple]:
    """Return every response that one of these judges has judged: columns judge, response, and these of the response."""
    columns = (judgement.c.judge, judgement.c.response, *(response.c[name] for name in names))
    return connection.execute(_judged_by(run_id, judge_ids).add_columns(*columns))


def _text(channel: sa.ColumnElement[str]) -> sa.ColumnElement[str | None]:
    """Return what a judge of this channel reads of a response: for tool calls and memory writes the JSON of all."""
    sent = channel.in_((Channel.TOOLS, Channel.MEMORY)), response.c.channels
    return sa.case((channel == Channel.REASONING, response.c.reasoning), sent, else_=response.c.text)


def judged_lengths(connection: sa.Connection, run_id: str, judge_id: int) -> sa.CursorResult[tuple]:
    """Return every response that a judge has judged: columns response, profile, context, memory, length (characters of
    the text that it read)."""
    channel = sa.select(judge.c.channel).where(judge.c.id == judge_id).scalar_subquery()
    columns = response.c.id, response.c.profile, response.c.context, response.c.memory, sa.func.length(_text(channel))
    return connection.execute(_judged_by(run_id, [judge_id]).add_columns(*columns))


def responses_judged_by(
    connection: sa.Connection, run_id: str, judge_id: int, pairs: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, int, str | None]]:
    """Yield what a judge has judged in these (profile, context): (profile, context, response, memory), by sample."""
    of, into = response.c.profile, response.c.context
    query = _judged_by(run_id, [judge_id]).add_columns(of, into, response.c.id, response.c.memory)
    query = query.order_by(of, into, response.c.level, response.c.sample)
    for chunk in in_chunks(sorted(set(pairs))):
        # Pairs, and not two lists, which would let through every combination of them.
        rows = connection.execute(query.where(sa.tuple_(of, into).in_(chunk)))
        yield from ((int(p), int(c), int(r), memory) for p, c, r, memory in rows)


def task_verdicts(connection: sa.Connection, run_id: str, checker_ids: Sequence[int]) -> sa.CursorResult[tuple]:
    """Return task checks of a run's answered responses: columns judge, verdict (null: not to be had), messages."""
    return connection.execute(
        sa.select(judgement.c.judge, judgement.c.verdict, sa.func.count().label("messages"))
        .join(response, judgement.c.response == response.c.id)
        .where(response.c.run == run_id, response.c.status == ResponseStatus.OK, judgement.c.judge.in_(checker_ids))
        .group_by(judgement.c.judge, judgement.c.verdict)
    )


def task_verdict_of(connection: sa.Connection, checker_id: int, response_ids: Iterable[int]) -> dict[int, str]:
    """Return the verdict of one task check on each of these responses that it has one of."""
    by_checker = judgement.c.judge == checker_id, judgement.c.verdict.is_not(None)
    query = sa.select(judgement.c.response, judgement.c.verdict).where(*by_checker)
    rows = rows_in_chunks(connection, query, judgement.c.response, response_ids)
    return {row["response"]: row["verdict"] for row in rows}


def reasoning_counts(connection: sa.Connection, run_id: str) -> tuple[int, int]:
    """Return the number of answered responses of a run, and of those that came without any reasoning text."""
    answered = response.c.run == run_id, response.c.status == ResponseStatus.OK
    # Servers that do not give the reasoning away send null or an empty text.
    hidden = sa.func.coalesce(response.c.reasoning, "") == ""
    return count(connection, response, *answered), count(connection, response, *answered, hidden)


def dropped_claims(connection: sa.Connection, run_id: str, judge_id_: int) -> tuple[int, int]:
    """Return the number of claims of a judge that could not be used, and in how many messages of the run."""
    row = connection.execute(
        sa.select(sa.func.coalesce(sa.func.sum(judgement.c.unknown), 0), sa.func.count())
        .join(response, response.c.id == judgement.c.response)
        .where(response.c.run == run_id, judgement.c.judge == judge_id_, judgement.c.unknown > 0)
    ).one()
    return int(row[0]), int(row[1])


# ---- judgements


RETRIABLE = (JudgementStatus.FAILED,)
ASKING = ("llm", "check")  # kinds of judges that ask a model
# Built once: building them again for every judgement would cost several times what carrying them out does.
_THERE = sa.select(judgement.c.id, judgement.c.status).where(
    judgement.c.response == sa.bindparam("of_response"), judgement.c.judge == sa.bindparam("of_judge")
)


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a judgement. cause: why there is none; call: key of the call that it rests on, None if none was
    needed; unknown: claims that could not be used; verdict: of a task check."""

    response: int
    judge: int
    status: JudgementStatus
    cause: str | None = None
    call: str | None = None
    unknown: int = 0
    reveals: Sequence[Reveal] = ()
    verdict: str | None = None


@dataclass(frozen=True)
class JudgeRow:
    """A judge of a run. kind: 'llm' or 'matcher', of a task check 'check' or 'check-rules'; ordinal 0 is the one that
    numbers rest on by default. prompt_hash: of the prompt it was asked with; None for one that asks no model. channel:
    what it reads, the message or the reasoning before it. settings: where it is served and how it is asked."""

    id: int
    kind: str
    model: str
    endpoint: str
    simulated: bool
    parameters: dict[str, object]
    ordinal: int
    prompt_hash: str | None = None
    channel: str = Channel.MESSAGE
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        title = {"matcher": "matcher", "check-rules": "rules"}.get(self.kind, self.model)
        return title if self.channel == Channel.MESSAGE else f"{title} on {Channel(self.channel).in_words}"


@dataclass(frozen=True)
class JudgedResponse:
    """One sample of a run in one context with what the judge found; `reveals` name attributes by the record's id."""

    id: int
    context: int
    sample: int
    status: ResponseStatus
    cause: str | None
    text: str | None
    judgement: JudgementStatus
    judgement_cause: str | None
    reveals: tuple[Reveal, ...]


@dataclass(frozen=True)
class OwedJudgement:
    """A response that a judge has still to read. memory: hash of what was held, None for all attributes; text: the
    message, or for a judge of it the reasoning; None if there is none. channels: as a response has them."""

    response: int
    context: int
    memory: str | None
    text: str | None
    channels: str | None


def judge_id(
    connection: sa.Connection,
    *,
    endpoint: str,
    parameters: Mapping[str, object],
    options: Mapping[str, object] | None = None,
    **values: Any,
) -> int:
    """Return the id of this judge, written if it is new. The endpoint is where it was first met and no part of its
    identity. options: what else of how it is asked makes it another judge (a split list of attributes, no JSON
    schema); values: the further arguments of `judge_identity`."""
    plain_name(values["model"], "judge")
    identity = judge_identity(parameters=parameters, options=options, **values)
    values |= {"endpoint": endpoint, "parameters": canonical_json(parameters)}
    insert_new(connection, judge, [{"identity": identity, **values}])
    return int(connection.execute(sa.select(judge.c.id).where(judge.c.identity == identity)).scalar_one())


def judge_identity(
    kind: str,
    model: str,
    simulated: bool,
    prompt_hash: str | None,
    parameters: Mapping[str, object],
    channel: str = Channel.MESSAGE,
    options: Mapping[str, object] | None = None,
) -> str:
    """Return the hash that tells a judge from others."""
    # What came later is a part of the identity only where it is set: judges of older runs stay the same judges.
    more = [] if channel == Channel.MESSAGE and not options else [channel, options or {}]
    return content_hash([kind, model, simulated, prompt_hash, parameters, *more])


def assign(
    connection: sa.Connection,
    run_id: str,
    judge_ids: Sequence[int],
    settings: Mapping[int, Mapping[str, object]] | None = None,
) -> list[int]:
    """Make these the judges of a run, in this order, behind those that it has already; return those that are new.
    settings: by judge, where it is served and how it is asked; a judge that is there gets new ones."""
    there = connection.scalars(sa.select(run_judge.c.judge).where(run_judge.c.run == run_id)).all()
    new = [i for i in dict.fromkeys(judge_ids) if i not in there]
    # Judges are never taken from a run, so their number is the next ordinal.
    for ordinal, i in enumerate(new, start=len(there)):
        insert_one(connection, run_judge, run=run_id, judge=i, ordinal=ordinal)
    for i, setting in (settings or {}).items():
        where = run_judge.c.run == run_id, run_judge.c.judge == i
        connection.execute(sa.update(run_judge).where(*where).values(settings=canonical_json(setting)))
    return new


def of_run(connection: sa.Connection, run_id: str) -> list[JudgeRow]:
    """Return the judges of a run that say what is revealed, the first one first."""
    return _of_run(connection, run_id, ("llm", "matcher"))


def checkers_of_run(connection: sa.Connection, run_id: str) -> list[JudgeRow]:
    """Return the judges of a run that say whether a message does its task."""
    return _of_run(connection, run_id, ("check", "check-rules"))


def _of_run(connection: sa.Connection, run_id: str, kinds: Sequence[str]) -> list[JudgeRow]:
    query = (
        sa.select(judge, run_judge.c.ordinal, run_judge.c.settings)
        .join(run_judge, run_judge.c.judge == judge.c.id)
        .where(run_judge.c.run == run_id, judge.c.kind.in_(kinds))
        .order_by(run_judge.c.ordinal)
    )
    return fetch(connection, query, JudgeRow)


def counts_by_run(connection: sa.Connection, run_ids: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return the judgements of each run's first judge, counted by status."""
    # A judgement names its judge and no run: which judge is the first is said by the run of its response.
    first = run_judge.c.run == response.c.run, run_judge.c.judge == judgement.c.judge, run_judge.c.ordinal == 0
    group = response.c.run, judgement.c.status
    query = sa.select(*group, sa.func.count()).join(judgement, judgement.c.response == response.c.id)
    query = query.join(run_judge, sa.and_(*first)).where(response.c.run.in_(run_ids)).group_by(*group)
    counts: dict[str, dict[str, int]] = {}
    for run_id, status, number in connection.execute(query):
        counts.setdefault(run_id, {})[status] = number
    return counts


_OF_JUDGE: sa.BindParameter[int] = sa.bindparam("of_judge")
# Not yet settled rather than status 'owed': a judge that was added later has no rows here at all.
_SETTLED = sa.exists().where(
    judgement.c.response == response.c.id, judgement.c.judge == _OF_JUDGE, judgement.c.status.not_in(RETRIABLE)
)
_CHANNEL = sa.select(judge.c.channel).where(judge.c.id == _OF_JUDGE).scalar_subquery()
# Only the channel's text is read: the other may be many times as long. Made once, which is a fifth of the time that the
# statement takes: each profile of a run asks it for each judge.
_OWED = (
    sa.select(
        response.c.id.label("response"),
        *(response.c[name] for name in ("context", "memory", "channels")),
        sa.case((_CHANNEL == Channel.REASONING, response.c.reasoning), else_=response.c.text).label("text"),
    )
    .where(response.c.run == sa.bindparam("of_run"), response.c.profile == sa.bindparam("of_profile"))
    .where(response.c.status == ResponseStatus.OK, ~_SETTLED)
    .order_by(response.c.id)
)


def owed(connection: sa.Connection, run_id: str, judge_id_: int, profile_id: int) -> list[OwedJudgement]:
    """Return the responses of one profile that this judge has still to read, with the text of its channel."""
    parameters = {"of_run": run_id, "of_judge": judge_id_, "of_profile": profile_id}
    return fetch(connection, _OWED, OwedJudgement, parameters)


def readable(connection: sa.Connection, run_id: str, profile_id: int, channel: str) -> list[OwedJudgement]:
    """Return the responses of one profile that a judge of this channel could read."""
    text = response.c.reasoning if channel == Channel.REASONING else response.c.text
    columns = (response.c[name] for name in ("context", "memory", "channels"))
    query = sa.select(response.c.id.label("response"), *columns, text.label("text")).order_by(response.c.id)
    answered = response.c.run == run_id, response.c.profile == profile_id, response.c.status == ResponseStatus.OK
    return fetch(connection, query.where(*answered), OwedJudgement)


def sent_beside(
    connection: sa.Connection, run_id: str, profile_id: int, sample: int | None = None
) -> list[dict[str, Any]]:
    """Return what assistants sent beside the messages of one profile, of one sample if given: response, level, sample,
    recipient, task, channels; none if no message has channels."""
    of = [response.c.run == run_id, response.c.profile == profile_id]
    of += [] if sample is None else [response.c.sample == sample]
    if not exists(connection, *of, response.c.channels.is_not(None)):
        return []
    columns = response.c.id.label("response"), *(response.c[name] for name in ("level", "sample", "channels"))
    query = sa.select(*columns, context.c.recipient, context.c.task).join(context, response.c.context == context.c.id)
    return [dict(row) for row in rows_of(connection, query.where(*of).order_by(response.c.id))]


def reopen(connection: sa.Connection, response_ids: Sequence[int], judge_ids: Sequence[int]) -> None:
    """Remove what these judges said of these responses, whose text has grown since: it is owed again."""
    of = judgement.c.response.in_(response_ids), judgement.c.judge.in_(judge_ids)
    connection.execute(sa.delete(reveal).where(reveal.c.judgement.in_(sa.select(judgement.c.id).where(*of))))
    connection.execute(sa.delete(judgement).where(*of))


def count_owed(connection: sa.Connection, run_id: str) -> int:
    """Return how many judgements and task checks the models that judge a run have still to give on the messages that
    are there."""
    settled = sa.exists().where(
        judgement.c.response == response.c.id,
        judgement.c.judge == run_judge.c.judge,
        judgement.c.status.not_in(RETRIABLE),
    )
    judges = response.join(run_judge, run_judge.c.run == response.c.run).join(judge, judge.c.id == run_judge.c.judge)
    answered = response.c.run == run_id, response.c.status == ResponseStatus.OK
    return count(connection, judges, *answered, judge.c.kind.in_(ASKING), ~settled)


def settle(connection: sa.Connection, response_id: int, judge_id_: int, **outcome: Any) -> None:
    """Write one judgement as `settle_all` does; outcome: the further fields of Settled."""
    settle_all(connection, [Settled(response_id, judge_id_, **outcome)])


def settle_all(connection: sa.Connection, outcomes: Sequence[Settled]) -> None:
    """Write judgements with their reveals, and task checks with their verdicts, by two statements if none is there yet.
    One that is there stays, unless it had only failed."""
    rows = [{"response": item.response, "judge": item.judge} | _values(item) for item in outcomes]
    _, inserted = insert_new(connection, judgement, rows, ("response", "judge", "id"))
    ids = {(of_response, of_judge): i for of_response, of_judge, i in inserted}
    reveals: list[tuple[int, Reveal]] = []
    for item in outcomes:
        # Of two outcomes of one judgement the first one is inserted; the second finds it there.
        judgement_id = ids.pop((item.response, item.judge), None)
        if judgement_id is None:
            there = connection.execute(_THERE, {"of_response": item.response, "of_judge": item.judge}).one()
            # Only a failure is replaced: what two processes judged at once stays as the first of them wrote it.
            if there.status not in RETRIABLE:
                continue
            # A failure has no reveals, so none have to go before the new ones come.
            judgement_id = there.id
            connection.execute(sa.update(judgement).where(judgement.c.id == judgement_id).values(**_values(item)))
        reveals.extend((judgement_id, claim) for claim in item.reveals)
    add_reveals(connection, reveals)


def _values(item: Settled) -> dict[str, object]:
    return {name: getattr(item, name) for name in ("status", "cause", "call", "unknown", "verdict")}


def add_reveals(connection: sa.Connection, new: Iterable[tuple[int, Reveal]]) -> None:
    """Write (judgement id, reveal) pairs, an attribute at most once a judgement. Raises sqlalchemy's IntegrityError for
    one that is there already."""
    rows = (
        {
            "judgement": judgement_id,
            "attribute": item.attribute,
            "quote": storable(item.quote),
            "start": item.span.start if item.span else None,
            "end": item.span.end if item.span else None,
            "grounded": item.grounded,
            "strength": item.strength,
        }
        for judgement_id, item in new
    )
    insert(connection, reveal, rows)


def claims(
    connection: sa.Connection, judge_id_: int, response_ids: Iterable[int]
) -> dict[int, dict[int, tuple[Strength, Span | None, str]]]:
    """Return what a judge claims of these responses: by response, by attribute, (strength, where its quote stands, the
    quote). A response in which it found nothing has an empty entry; one that it has no judgement of has none."""
    query = (
        sa.select(judgement.c.response, reveal)
        # Outer: a judgement that claims nothing has one row, with nulls, and so its empty entry.
        .outerjoin(reveal, reveal.c.judgement == judgement.c.id)
        .where(judgement.c.judge == judge_id_, judgement.c.status == JudgementStatus.OK)
    )
    claims: dict[int, dict[int, tuple[Strength, Span | None, str]]] = {}
    for row in rows_in_chunks(connection, query, judgement.c.response, response_ids):
        of_response = claims.setdefault(row["response"], {})
        if row["attribute"] is not None:
            of_response[row["attribute"]] = row["strength"], _span(row), row["quote"]
    return claims


def _span(row: sa.RowMapping) -> Span | None:
    return Span(row["start"], row["end"]) if row["grounded"] else None


def judged_responses(
    connection: sa.Connection, run_id: str, judge_id_: int, profile_id: int, context_id: int | None
) -> list[JudgedResponse]:
    """Return all samples of a run for one profile in one context (None: in all), with the reveals that this judge
    found, by context and sample."""
    into = [] if context_id is None else [response.c.context == context_id]
    query = (
        sa.select(
            *(response.c[name] for name in ("id", "context", "sample", "status", "cause", "text")),
            judgement.c.id.label("judgement_id"),
            judgement.c.status.label("judgement"),
            judgement.c.cause.label("judgement_cause"),
        )
        # The judge stands in the join and not in the where, which would drop responses that it has not judged.
        .outerjoin(judgement, sa.and_(judgement.c.response == response.c.id, judgement.c.judge == judge_id_))
        .where(response.c.run == run_id, response.c.profile == profile_id, *into)
        .order_by(response.c.context, response.c.level, response.c.sample)
    )
    rows = rows_of(connection, query)
    reveals: dict[int, list[Reveal]] = {}
    claimed = sa.select(reveal).join(attribute, reveal.c.attribute == attribute.c.id).order_by(attribute.c.ordinal)
    of_rows = reveal.c.judgement.in_([row["judgement_id"] for row in rows if row["judgement_id"] is not None])
    for item in rows_of(connection, claimed.where(of_rows)):
        claim = Reveal(item["attribute"], item["quote"], _span(item), item["strength"])
        reveals.setdefault(item["judgement"], []).append(claim)
    return [
        from_row(
            JudgedResponse,
            row,
            status=ResponseStatus(row["status"]),
            # No row yet: the judge has still to read it.
            judgement=JudgementStatus(row["judgement"] or JudgementStatus.OWED),
            reveals=tuple(reveals.get(row["judgement_id"], ())),
        )
        for row in rows
    ]
