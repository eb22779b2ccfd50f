"""Human decisions on pairs (attribute, context): append-only. Undo is one more decision, with no label."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store.engine import plain_name
from cimemories.store.ids import later_than, now
from cimemories.store.tables import attribute, context, dataset, decision, profile, profile_context

UNDO = "undo"
CHUNK = 2000  # below what both engines take as parameters of one statement, at the columns of a decision


@dataclass(frozen=True)
class Decision:
    """One event as it stands in the record. `label` None takes back what the annotator decided before."""

    id: int
    attribute: int
    context: int
    annotator: str
    label: Label | None
    reason: str
    seconds: float | None
    source: str
    blind: bool
    supersedes: int | None
    created: str
    batch: str | None = None
    uid: str | None = None
    guideline: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Said:
    """A decision that is to be recorded. uid: given by whoever made it, so that it is recorded once however often it
    is sent. seconds: taken over it. source: single, batch, proposal, adjudicated or undo. guideline: the hash of the
    text that stood. cause: why people had differed, in an adjudication."""

    attribute: int
    context: int
    label: Label | None
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    reason: str = ""
    seconds: float | None = None
    source: str = "single"
    batch: str | None = None
    blind: bool = False
    guideline: str | None = None
    cause: str | None = None
    created: str | None = None


def add(
    connection: sa.Connection,
    *,
    dataset_id: int,
    attribute: int,
    context: int,
    annotator: str,
    label: Label | None,
    reason: str = "",
    seconds: float | None = None,
    source: str = "single",
    batch: str | None = None,
    blind: bool = False,
) -> int:
    """Append one decision; it supersedes the same annotator's last one on the pair. Returns its id."""
    said = Said(attribute, context, label, reason=reason, seconds=seconds, source=source, batch=batch, blind=blind)
    add_all(connection, dataset_id, annotator, [said])
    found = sa.select(decision.c.id).where(decision.c.dataset == dataset_id, decision.c.uid == said.uid)
    return int(connection.execute(found).scalar_one())


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, said: Sequence[Said]) -> int:
    """Append decisions of one annotator in their order; those whose uid the dataset has already are left out.

    Each supersedes the annotator's last one on its pair, also where that is one of the same call. One without a time of
    its own is later than all that were said of its pair before, also where a clock was ahead. Returns how many are new.
    The dataset's revision moves by one where any is.
    """
    known = _known(connection, dataset_id, [item.uid for item in said])
    fresh = [item for item in {item.uid: item for item in said}.values() if item.uid not in known]
    if not fresh:
        return 0
    plain_name(annotator, "annotator")
    last, times = _last(connection, dataset_id, annotator, fresh)
    for chunk in _waves(fresh):
        rows = []
        for item in chunk:
            pair = item.attribute, item.context
            created = item.created or later_than(times.get(pair, ""), now())
            times[pair] = max(created, times.get(pair, ""))
            values = {"dataset": dataset_id, "annotator": annotator, "supersedes": last.get(pair)}
            label = None if item.label is None else str(item.label)
            rows.append({**values, **vars(item), "label": label, "created": created})
        statement = sa.insert(decision).returning(
            decision.c.id, decision.c.attribute, decision.c.context, sort_by_parameter_order=True
        )
        last.update({(row.attribute, row.context): row.id for row in connection.execute(statement, rows)})
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return len(fresh)


def undo(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Take one decision back: what the annotator had said of the pair before it stands again. False, and nothing is
    written, where there is no such decision of theirs or they have said something else since."""
    found = decision.c.dataset == dataset_id, decision.c.uid == uid, decision.c.annotator == annotator
    return bool(_undo(connection, dataset_id, annotator, sa.and_(*found), lambda row: new_uid, None))


def undo_batch(connection: sa.Connection, dataset_id: int, annotator: str, batch: str) -> int:
    """The same of all decisions of a batch that the annotator has not gone past since, in one batch of its own.
    Returns how many were taken back."""
    found = decision.c.dataset == dataset_id, decision.c.batch == batch, decision.c.annotator == annotator
    where = sa.and_(*found)
    return _undo(connection, dataset_id, annotator, where, lambda row: f"undo-{row.uid}", f"undo-{batch}")


def _undo(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    where: sa.ColumnElement[bool],
    new_uid: Callable[[sa.Row], str],
    batch: str | None,
) -> int:
    row = decision.alias("row")
    pairs = sa.select(decision.c.attribute, decision.c.context, decision.c.uid).where(where).subquery("asked")
    rows = connection.execute(
        sa.select(row.c.attribute, row.c.context, row.c.uid, row.c.label, row.c.source, pairs.c.uid.label("asked"))
        .join(pairs, sa.and_(pairs.c.attribute == row.c.attribute, pairs.c.context == row.c.context))
        .where(row.c.dataset == dataset_id, row.c.annotator == annotator)
        .order_by(row.c.created, row.c.id)
    ).all()
    # What was said of a pair is a stack: an undo takes the top away, anything else comes onto it.
    stacks: dict[tuple[int, int], list[sa.Row]] = {}
    wanted: dict[tuple[int, int], str] = {}
    for item in rows:
        stack = stacks.setdefault((item.attribute, item.context), [])
        wanted[item.attribute, item.context] = item.asked
        if item.source == UNDO and stack:  # an undo that was carried to a new version has nothing beneath it
            stack.pop()
        else:
            stack.append(item)
    said = []
    for (of, into), stack in stacks.items():
        if not stack or stack[-1].uid != wanted[of, into]:
            continue
        before = stack[-2].label if len(stack) > 1 else None
        label = None if before is None else Label(before)
        said.append(Said(of, into, label, uid=new_uid(stack[-1]), source=UNDO, batch=batch))
    return add_all(connection, dataset_id, annotator, said)


def still_there(connection: sa.Connection, dataset_id: int, pairs: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of these (attribute, context) pairs that the dataset has: an edit or a deletion may have taken some."""
    query = (
        sa.select(attribute.c.id, profile_context.c.context)
        .join(profile, profile.c.id == attribute.c.profile)
        .join(profile_context, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .where(attribute.c.id.in_({a for a, _ in pairs}), profile_context.c.context.in_({c for _, c in pairs}))
    )
    return set(pairs) & {(int(a), int(c)) for a, c in connection.execute(query)}


def last_said(connection: sa.Connection, dataset_id: int, annotator: str) -> Decision | None:
    """What this annotator said last and has not taken back, None where there is nothing left to take back."""
    mine = [d for d in history(connection, dataset_id) if d.annotator == annotator]
    said = sorted(mine, key=lambda d: (d.created, d.id))
    stacks: dict[tuple[int, int], list[Decision]] = {}
    for item in said:
        stack = stacks.setdefault((item.attribute, item.context), [])
        if item.source == UNDO and stack:
            stack.pop()
        else:
            stack.append(item)
    tops = [stack[-1] for stack in stacks.values() if stack and stack[-1].label is not None]
    return max(tops, key=lambda d: (d.created, d.id), default=None)


@dataclass(frozen=True)
class Newest:
    """A decision with the words of its pair."""

    dataset: int
    decision: Decision
    statement: str
    recipient: str


def newest(connection: sa.Connection, annotator: str | None = None) -> Newest | None:
    """The last thing that this annotator, or anybody, said of any pair that is still there, be it that a decision is
    taken back. None where nothing was said."""
    query = (
        sa.select(decision, attribute.c.statement, context.c.recipient)
        .join(attribute, attribute.c.id == decision.c.attribute)
        .join(context, context.c.id == decision.c.context)
        .order_by(decision.c.id.desc())
        .limit(1)
    )
    if annotator is not None:
        query = query.where(decision.c.annotator == annotator)
    row = connection.execute(query).mappings().first()
    return Newest(int(row["dataset"]), _decision(row), row["statement"], row["recipient"]) if row else None


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Whether the dataset has a decision of this uid."""
    return bool(_known(connection, dataset_id, [uid]))


def _known(connection: sa.Connection, dataset_id: int, uids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for start in range(0, len(uids), CHUNK):
        query = sa.select(decision.c.uid).where(
            decision.c.dataset == dataset_id, decision.c.uid.in_(uids[start : start + CHUNK])
        )
        found.update(str(uid) for uid in connection.execute(query).scalars())
    return found


def _last(
    connection: sa.Connection, dataset_id: int, annotator: str, said: Sequence[Said]
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], str]]:
    """Of each of these pairs: the id of the annotator's last word, and when anybody said something last."""
    columns = (decision.c.attribute, decision.c.context, decision.c.id, decision.c.annotator, decision.c.supersedes)
    query = sa.select(*columns, decision.c.created).where(decision.c.dataset == dataset_id)
    pairs = {(item.attribute, item.context) for item in said}
    attributes = {item.attribute for item in said}
    if len(attributes) <= CHUNK:
        query = query.where(decision.c.attribute.in_(attributes))
    rows = [row for row in connection.execute(query) if (row.attribute, row.context) in pairs]
    superseded = {row.supersedes for row in rows}
    last: dict[tuple[int, int], int] = {}
    times: dict[tuple[int, int], str] = {}
    for row in sorted(rows, key=lambda row: (row.created, row.id)):
        times[row.attribute, row.context] = row.created
        if row.annotator == annotator and row.id not in superseded:
            last[row.attribute, row.context] = row.id
    return last, times


def _waves(said: Sequence[Said]) -> Iterator[list[Said]]:
    """In their order, in lists that hold no pair twice: what supersedes must be written after what it supersedes."""
    chunk: list[Said] = []
    pairs: set[tuple[int, int]] = set()
    for item in said:
        if (item.attribute, item.context) in pairs or len(chunk) == CHUNK:
            yield chunk
            chunk, pairs = [], set()
        chunk.append(item)
        pairs.add((item.attribute, item.context))
    yield chunk


def _decision(row: sa.RowMapping) -> Decision:
    values = {name: row[name] for name in Decision.__dataclass_fields__}
    return Decision(**values | {"label": None if row["label"] is None else Label(row["label"])})


def history(
    connection: sa.Connection, dataset_id: int, attributes: Sequence[int] | None = None, context: int | None = None
) -> list[Decision]:
    """Every decision of a dataset, oldest first; of some attributes or of one context where given."""
    query = sa.select(decision).where(decision.c.dataset == dataset_id).order_by(decision.c.id)
    if attributes is not None:
        query = query.where(decision.c.attribute.in_(attributes))
    if context is not None:
        query = query.where(decision.c.context == context)
    return [_decision(row) for row in connection.execute(query).mappings()]


def standing(decisions: Sequence[Decision]) -> dict[tuple[int, int], Decision]:
    """The newest decision that stands on each pair: superseded and taken-back ones do not.

    Newest by the time it was made, then by uid: ids tell in which order decisions came into this record, which is
    another one where workspaces were merged."""
    superseded = {d.supersedes for d in decisions if d.supersedes is not None}
    stand: dict[tuple[int, int], Decision] = {}
    for item in sorted(decisions, key=lambda d: (d.created, d.uid or "", d.id)):
        if item.label is not None and item.id not in superseded:
            stand[item.attribute, item.context] = item
    return stand
