"""What one judge, or several of a run together, have said of its messages, counted and one by one.

A response counts once every asked judge has judged it; an attribute counts as revealed there where enough of them claim
it in full. Claims count only on what the response's memory held: `partial_memories` says which memories leave something
out, and a memory that is not among them holds all attributes of its profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import sqlalchemy as sa

from cimemories.model import JudgementStatus, ResponseStatus, Strength
from cimemories.store import memories
from cimemories.store.engine import StoreError
from cimemories.store.tables import attribute, judgement, response, reveal

CHUNK = 2000  # ids of one IN list
Held = Mapping[str, frozenset[int]]  # hash of a memory that leaves something out -> the attributes that it holds


def partial_memories(connection: sa.Connection, run_id: str) -> dict[str, frozenset[int]]:
    """The memories of a run that leave out an attribute of their profile, by hash; empty for the common run, whose
    responses all hold everything. Raises StoreError where a memory is named that the record does not have."""
    named = connection.execute(
        sa.select(response.c.memory, response.c.profile)
        .where(response.c.run == run_id, response.c.memory.is_not(None))
        .distinct()
    ).all()
    if not named:
        return {}
    found = memories.of_hashes(connection, [row.memory for row in named])
    if lost := next((row.memory for row in named if row.memory not in found), None):
        raise StoreError(
            f"{run_id} names the memory {lost[:12]}, which is not in the record, so it cannot be told what its "
            "messages could reveal. Import the run again, or delete it."
        )
    sizes = _sizes(connection, {int(row.profile) for row in named})
    return {row.memory: frozenset(found[row.memory]) for row in named if len(found[row.memory]) < sizes[row.profile]}


def _sizes(connection: sa.Connection, profiles: Iterable[int]) -> dict[int, int]:
    """How many attributes each of these profiles has."""
    sizes: dict[int, int] = {}
    for part in _chunks(profiles):
        rows = connection.execute(
            sa.select(attribute.c.profile, sa.func.count())
            .where(attribute.c.profile.in_(part))
            .group_by(attribute.c.profile)
        )
        sizes.update((int(profile), int(count)) for profile, count in rows)
    return sizes


def holds(held: Held, memory: str | None, attribute_id: int) -> bool:
    """Whether a memory holds an attribute of its profile."""
    return memory is None or memory not in held or attribute_id in held[memory]


def planned(connection: sa.Connection, run_id: str) -> sa.CursorResult[tuple]:
    """Planned responses: columns profile, context, level, memory, expected."""
    place = response.c.profile, response.c.context, response.c.level, response.c.memory
    return connection.execute(
        sa.select(*place, sa.func.count().label("expected")).where(response.c.run == run_id).group_by(*place)
    )


def draws(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> sa.CursorResult[tuple]:
    """Responses that every one of these judges has judged: columns profile, context, level, memory, draws."""
    place = response.c.profile, response.c.context, response.c.level, response.c.memory
    return connection.execute(
        sa.select(*place, sa.func.count().label("draws"))
        .select_from(_judged_by_all(judge_ids))
        .where(response.c.run == run_id)
        .group_by(*place)
    )


def judged_by_all(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> int:
    """How many responses of a run every one of these judges has judged."""
    query = sa.select(sa.func.count()).select_from(_judged_by_all(judge_ids)).where(response.c.run == run_id)
    return int(connection.execute(query).scalar_one())


def reveal_counts(
    connection: sa.Connection, run_id: str, judge_ids: Sequence[int], need: int = 1, *, grounded: bool = False
) -> sa.CursorResult[tuple]:
    """In how many responses that all of these judges have judged at least `need` of them claim an attribute in full
    (grounded: with a quote that stands in the message): columns attribute, context, memory, reveals."""
    place = reveal.c.attribute, response.c.context, response.c.memory
    own = sa.and_(
        judgement.c.response == response.c.id,
        judgement.c.judge.in_(judge_ids),
        judgement.c.status == JudgementStatus.OK,
    )
    counted = [response.c.run == run_id, reveal.c.strength == Strength.FULL]
    if grounded:
        counted.append(reveal.c.grounded)
    if len(judge_ids) == 1:
        source = response.join(judgement, own).join(reveal, reveal.c.judgement == judgement.c.id)
        query = sa.select(*place, sa.func.count().label("reveals")).select_from(source)
        return connection.execute(query.where(*counted).group_by(*place))
    source = _judged_by_all(judge_ids).join(judgement, own).join(reveal, reveal.c.judgement == judgement.c.id)
    said = (
        sa.select(*place, response.c.id)
        .select_from(source)
        .where(*counted)
        .group_by(*place, response.c.id)
        .having(sa.func.count() >= need)
        .subquery()
    )
    columns = said.c.attribute, said.c.context, said.c.memory
    return connection.execute(sa.select(*columns, sa.func.count().label("reveals")).group_by(*columns))


def _judged_by_all(judge_ids: Sequence[int]) -> sa.FromClause:
    source: sa.FromClause = response
    for judge_id in judge_ids:
        own = judgement.alias()
        read = own.c.response == response.c.id, own.c.judge == judge_id, own.c.status == JudgementStatus.OK
        source = source.join(own, sa.and_(*read))
    return source


def grounding(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    """By judge: its full claims in a run, and how many of them have a quote that is not in the text; (0, 0) for one
    that claims nothing."""
    rows = connection.execute(
        sa.select(judgement.c.judge, reveal.c.grounded, sa.func.count())
        .join(judgement, reveal.c.judgement == judgement.c.id)
        .join(response, judgement.c.response == response.c.id)
        .where(*_judged(run_id, judge_ids), reveal.c.strength == Strength.FULL)
        .group_by(judgement.c.judge, reveal.c.grounded)
    )
    found = dict.fromkeys(judge_ids, (0, 0))
    for judge_id, grounded, count in rows:
        claims, lost = found[judge_id]
        found[judge_id] = claims + count, lost + count * (not grounded)
    return found


def full_claims(
    connection: sa.Connection, run_id: str, judge_ids: Sequence[int], *, grounded: bool = False
) -> sa.CursorResult[tuple]:
    """Every full claim of these judges in a run: columns judge, response, attribute."""
    query = (
        sa.select(judgement.c.judge, judgement.c.response, reveal.c.attribute)
        .join(judgement, reveal.c.judgement == judgement.c.id)
        .join(response, judgement.c.response == response.c.id)
        .where(*_judged(run_id, judge_ids), reveal.c.strength == Strength.FULL)
    )
    return connection.execute(query.where(reveal.c.grounded) if grounded else query)


def judged(connection: sa.Connection, run_id: str, judge_ids: Sequence[int]) -> sa.CursorResult[tuple]:
    """Every response that one of these judges has judged: columns judge, response, profile, memory."""
    return connection.execute(
        sa.select(judgement.c.judge, judgement.c.response, response.c.profile, response.c.memory)
        .join(response, judgement.c.response == response.c.id)
        .where(*_judged(run_id, judge_ids))
    )


def claimed(connection: sa.Connection, run_id: str, judge_id: int) -> sa.CursorResult[tuple]:
    """Every claim of a judge in a run, of any strength: columns response, attribute, context, strength, memory;
    ordered."""
    return connection.execute(
        sa.select(judgement.c.response, reveal.c.attribute, response.c.context, reveal.c.strength, response.c.memory)
        .join(judgement, reveal.c.judgement == judgement.c.id)
        .join(response, judgement.c.response == response.c.id)
        .where(*_judged(run_id, [judge_id]))
        .order_by(judgement.c.response, reveal.c.attribute)
    )


def judged_in(
    connection: sa.Connection, run_id: str, judge_id: int, places: Iterable[tuple[int, int]]
) -> Iterator[tuple[int, int, int, str | None]]:
    """What a judge has judged in these (profile, context): (profile, context, response, memory), by sample."""
    wanted = sorted(set(places))
    for start in range(0, len(wanted), CHUNK // 2):
        rows = connection.execute(
            sa.select(response.c.profile, response.c.context, response.c.id, response.c.memory)
            .join(judgement, judgement.c.response == response.c.id)
            .where(
                *_judged(run_id, [judge_id]),
                sa.tuple_(response.c.profile, response.c.context).in_(wanted[start : start + CHUNK // 2]),
            )
            .order_by(response.c.profile, response.c.context, response.c.level, response.c.sample)
        )
        yield from ((int(p), int(c), int(r), memory) for p, c, r, memory in rows)


def _judged(run_id: str, judge_ids: Sequence[int]) -> tuple[sa.ColumnElement[bool], ...]:
    own = judgement.c.judge == judge_ids[0] if len(judge_ids) == 1 else judgement.c.judge.in_(judge_ids)
    return response.c.run == run_id, own, judgement.c.status == JudgementStatus.OK


def texts_of(connection: sa.Connection, response_ids: Iterable[int]) -> dict[int, tuple[str | None, str | None]]:
    """(memory, reasoning text) of each of these responses."""
    found: dict[int, tuple[str | None, str | None]] = {}
    for part in _chunks(response_ids):
        query = sa.select(response.c.id, response.c.memory, response.c.reasoning).where(response.c.id.in_(part))
        found.update((int(row.id), (row.memory, row.reasoning)) for row in connection.execute(query))
    return found


def task_verdicts(connection: sa.Connection, run_id: str, checker_ids: Sequence[int]) -> sa.CursorResult[tuple]:
    """Task checks of a run's answered responses: columns judge, verdict (null: not to be had), messages."""
    return connection.execute(
        sa.select(judgement.c.judge, judgement.c.verdict, sa.func.count().label("messages"))
        .join(response, judgement.c.response == response.c.id)
        .where(response.c.run == run_id, response.c.status == ResponseStatus.OK, judgement.c.judge.in_(checker_ids))
        .group_by(judgement.c.judge, judgement.c.verdict)
    )


def task_verdict_of(connection: sa.Connection, checker_id: int, response_ids: Iterable[int]) -> dict[int, str]:
    """The verdict of one task check on each of these responses that it has one of."""
    found: dict[int, str] = {}
    for part in _chunks(response_ids):
        query = sa.select(judgement.c.response, judgement.c.verdict).where(
            judgement.c.judge == checker_id, judgement.c.verdict.is_not(None), judgement.c.response.in_(part)
        )
        found.update((int(row.response), str(row.verdict)) for row in connection.execute(query))
    return found


def reasoning_counts(connection: sa.Connection, run_id: str) -> tuple[int, int]:
    """Answered responses of a run, and how many of them came without any reasoning text."""
    hidden = sa.case((sa.func.coalesce(response.c.reasoning, "") == "", 1), else_=0)
    row = connection.execute(
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(hidden), 0)).where(
            response.c.run == run_id, response.c.status == ResponseStatus.OK
        )
    ).one()
    return int(row[0]), int(row[1])


def _chunks(ids: Iterable[int]) -> Iterator[list[int]]:
    ordered = sorted(set(ids))
    return (ordered[start : start + CHUNK] for start in range(0, len(ordered), CHUNK))
