"""Human decisions on pairs (attribute, context): append-only. Undo is one more decision, with no label.

Also what people said of a dataset as events without ids of this workspace, and merging such events from another one.
"""

from __future__ import annotations

import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store.datasets import revise
from cimemories.store.engine import StoreError, content_hash, later_than, now, plain_name, storable
from cimemories.store.rows import (
    CHUNK,
    count,
    exists,
    fetch,
    from_row,
    in_chunks,
    insert,
    insert_new,
    insert_one,
    insert_returning,
    rows_in_chunks,
    rows_of,
)
from cimemories.store.tables import (
    attribute,
    audit,
    comment,
    context,
    decision,
    mark,
    profile,
    profile_context,
    response,
    review_import,
    review_import_item,
    run,
)

Pair = tuple[int, int]
E = TypeVar("E")

# ---- decisions


# Sources of decisions that are not a person's independent answer: what takes one back, and what settles a dispute.
UNDO, ADJUDICATED = "undo", "adjudicated"


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

    @property
    def place(self) -> Pair:
        return self.attribute, self.context

    @property
    def value(self) -> Label | None:
        return self.label

    def undoes(self, before: Decision) -> bool:
        """Return whether it takes the decision before it on its pair away."""
        return self.source == UNDO


@dataclass(frozen=True)
class NewDecision:
    """A decision to be recorded. uid: given by the browser or file that made it, so that it is recorded once however
    often it is sent. seconds: taken over it. source: single, batch, proposal, adjudicated or undo. guideline: the hash
    of the text that stood. cause: why people had differed, in an adjudication."""

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


LOCK, LOCK_OF_PERSON = 0x7266, 0x7267  # tell these advisory locks of PostgreSQL from others, as reviews.LOCK


def take_turns(connection: sa.Connection, dataset_id: int, annotator: str, *, exclusive: bool = False) -> None:
    """Keep others from deciding under this name until the transaction ends; call it before reading what a decision
    will rest on. exclusive: keep them from deciding in the dataset at all, so that an adjudication sees every decision.
    On SQLite only one process writes anyway."""
    if connection.dialect.name == "postgresql":
        # Numbers of 32 bits; two that share one only wait for each other. Always in this order, or both would.
        of_all = sa.func.pg_advisory_xact_lock if exclusive else sa.func.pg_advisory_xact_lock_shared
        person = zlib.crc32(f"{dataset_id} {annotator}".encode("utf-8", "surrogatepass")) % 2**31
        connection.execute(sa.select(of_all(LOCK, dataset_id % 2**31)))
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_OF_PERSON, person)))


def add(
    connection: sa.Connection,
    *,
    dataset_id: int,
    attribute: int,
    context: int,
    annotator: str,
    label: Label | None,
    **more: Any,
) -> int:
    """Append one decision and return its id. more: the further fields of NewDecision."""
    new = NewDecision(attribute, context, label, **more)
    add_all(connection, dataset_id, annotator, [new])
    same = decision.c.dataset == dataset_id, decision.c.uid == new.uid
    return int(connection.execute(sa.select(decision.c.id).where(*same)).scalar_one())


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, new: Sequence[NewDecision]) -> int:
    """Append decisions as `append` does; the dataset's revision moves by one if any is new."""
    written = append(connection, decision, ("attribute", "context"), dataset_id, annotator, new)
    if written:
        revise(connection, dataset_id)
    return written


def append(
    connection: sa.Connection,
    table: sa.Table,
    place: tuple[str, str],
    dataset_id: int,
    annotator: str,
    new: Sequence[Any],
) -> int:
    """Append decisions, or verdicts of audits, of one annotator in their order, and return how many are new: those
    whose uid the dataset has already are left out.

    Each supersedes the annotator's last one on its place (the two columns that name it), which may be one of the same
    call. One without a time of its own is later than all that anyone said of its place before, even if a clock was
    ahead.
    """
    recorded = known_uids(connection, table, dataset_id, [item.uid for item in new])
    # By uid: a list that names one twice writes it once.
    fresh = [item for item in {item.uid: item for item in new}.values() if item.uid not in recorded]
    if not fresh:
        return 0
    plain_name(annotator, "annotator")

    def place_of(item: Any) -> Pair:
        return getattr(item, place[0]), getattr(item, place[1])

    names = (*place, "id", "annotator", "supersedes", "created", "uid")
    query = sa.select(*(table.c[name] for name in names)).where(table.c.dataset == dataset_id)
    places, first = {place_of(item) for item in fresh}, {getattr(item, place[0]) for item in fresh}
    # For more the whole dataset is read: one statement has room for only so many values.
    if len(first) <= CHUNK:
        query = query.where(table.c[place[0]].in_(first))
    rows = [row for row in connection.execute(query) if place_of(row) in places]
    superseded = {row.supersedes for row in rows}
    last: dict[Pair, int] = {}
    times: dict[Pair, str] = {}
    for row in sorted(rows, key=moment):
        # Rows come by time, so the latest stays.
        times[place_of(row)] = row.created
        if row.annotator == annotator and row.id not in superseded:
            last[place_of(row)] = row.id
    for wave in _waves(fresh, place_of):
        values = []
        for item in wave:
            at = place_of(item)
            created = item.created or later_than(times.get(at, ""), now())
            times[at] = max(created, times.get(at, ""))
            whose = {"dataset": dataset_id, "annotator": annotator, "supersedes": last.get(at)}
            values.append({**vars(item), **whose, "reason": storable(item.reason), "created": created})
        # The next wave may hold these places again: it supersedes what is written here.
        last |= {place_of(row): row.id for row in insert_returning(connection, table, values, "id", *place)}
    return len(fresh)


def known_uids(connection: sa.Connection, table: sa.Table, dataset_id: int, uids: Sequence[str]) -> set[str]:
    """Return those of these uids that the dataset has an event of."""
    query = sa.select(table.c.uid).where(table.c.dataset == dataset_id)
    return {row["uid"] for row in rows_in_chunks(connection, query, table.c.uid, uids)}


def _waves(new: Sequence[Any], place_of: Callable[[Any], Pair]) -> Iterator[list[Any]]:
    """Yield events in their order, in lists that hold no place twice: what supersedes is written after what it
    supersedes."""
    wave: dict[Pair, Any] = {}
    for item in new:
        if place_of(item) in wave or len(wave) == CHUNK:
            yield list(wave.values())
            wave = {}
        wave[place_of(item)] = item
    yield list(wave.values())


def undo(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Take one decision back: what the annotator had said of the pair before it stands again. Return False, and write
    nothing, if there is no such decision of theirs or they have said something else since."""
    return bool(_undo(connection, dataset_id, annotator, decision.c.uid == uid, lambda _: new_uid, None))


def undo_batch(connection: sa.Connection, dataset_id: int, annotator: str, batch: str) -> int:
    """Take back all decisions of a batch that the annotator has not gone past since, in one batch of its own. Return
    how many were taken back."""
    where = decision.c.batch == batch
    return _undo(connection, dataset_id, annotator, where, lambda undone: f"undo-{undone}", f"undo-{batch}")


def _undo(
    connection: sa.Connection,
    dataset_id: int,
    annotator: str,
    where: sa.ColumnElement[bool],
    new_uid: Callable[[str], str],
    batch: str | None,
) -> int:
    by_annotator = decision.c.dataset == dataset_id, decision.c.annotator == annotator
    pair = decision.c.attribute, decision.c.context
    rows = connection.execute(sa.select(*pair, decision.c.uid).where(where, *by_annotator))
    to_undo = {(row.attribute, row.context): row.uid for row in rows}
    # All that the annotator said of these pairs, undone or not: only a full stack tells what lies beneath its top.
    pairs = sa.tuple_(*pair).in_(sa.select(*pair).where(where, *by_annotator))
    undos = []
    for place, stack in stacks(history(connection, dataset_id, where=sa.and_(*by_annotator, pairs))).items():
        # Unless something else has been said since, or this has been undone already.
        if stack and stack[-1].uid == to_undo[place]:
            before = stack[-2].label if len(stack) > 1 else None
            undos.append(NewDecision(*place, before, uid=new_uid(str(stack[-1].uid)), source=UNDO, batch=batch))
    return add_all(connection, dataset_id, annotator, undos)


def stacks(ordered: Iterable[E]) -> dict[Pair, list[E]]:
    """Return one annotator's decisions, or verdicts of audits, given oldest first, as a stack for each place: an undo
    takes the top away, anything else comes onto it."""
    stacks: dict[Pair, list[Any]] = {}
    event: Any
    for event in ordered:
        stack = stacks.setdefault(event.place, [])
        if stack and event.undoes(stack[-1]):  # an undo that was carried to a new version has nothing beneath it
            stack.pop()
        else:
            stack.append(event)
    return stacks


def still_there(connection: sa.Connection, dataset_id: int, pairs: Collection[Pair]) -> set[Pair]:
    """Return those of these pairs that the dataset has: an edit or a deletion may have taken some."""
    query = (
        sa.select(attribute.c.id, profile_context.c.context)
        .join(profile, profile.c.id == attribute.c.profile)
        .join(profile_context, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .where(attribute.c.id.in_({a for a, _ in pairs}), profile_context.c.context.in_({c for _, c in pairs}))
    )
    # Two lists let through every combination of them; of these only the pairs in question count.
    return set(pairs) & {(int(a), int(c)) for a, c in connection.execute(query)}


def last_decision(
    connection: sa.Connection, dataset_id: int, annotator: str, *, adjudicated: bool = False
) -> Decision | None:
    """Return what this annotator said last and has not taken back, of their own decisions, withdrawals among them, or
    of their adjudications; None if there is nothing left to take back."""
    events = history(connection, dataset_id, where=decision.c.annotator == annotator)
    tops = [stack[-1] for stack in stacks(events).values() if stack]
    # An undo that was carried to a new version has nothing beneath it that could come back.
    tops = [top for top in tops if top.label is not None or top.source != UNDO]
    tops = [top for top in tops if (top.source == ADJUDICATED) == adjudicated]
    # Of several pairs, saved in one go at one moment, the last is the one written last: uids say nothing of that.
    return max(tops, key=lambda d: (d.created, d.id), default=None)


@dataclass(frozen=True)
class Newest:
    """A decision with the words of its pair."""

    dataset: int
    decision: Decision
    statement: str
    recipient: str


def newest(connection: sa.Connection, annotator: str | None = None) -> Newest | None:
    """Return the last decision by this annotator, or by anyone, on a pair that is still there, withdrawals included;
    None without any."""
    # By time: what was merged came into the record later than it was said. 200,000 are looked through in 0.04 s.
    last = sa.select(decision.c.id).order_by(decision.c.created.desc(), decision.c.id.desc()).limit(1)
    if annotator is not None:
        last = last.where(decision.c.annotator == annotator)
    query = (
        sa.select(decision, attribute.c.statement, context.c.recipient)
        .join(attribute, attribute.c.id == decision.c.attribute)
        .join(context, context.c.id == decision.c.context)
        .where(decision.c.id == last.scalar_subquery())
    )
    row = connection.execute(query).mappings().first()
    return from_row(Newest, row, decision=from_row(Decision, row)) if row else None


def last_id(connection: sa.Connection, dataset_id: int) -> int:
    """Return the id of the dataset's newest decision, 0 if there is none: it grows with each one."""
    return connection.scalar(sa.select(sa.func.max(decision.c.id)).where(decision.c.dataset == dataset_id)) or 0


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Return whether the dataset has a decision of this uid."""
    return exists(connection, decision.c.dataset == dataset_id, decision.c.uid == uid)


def history(
    connection: sa.Connection,
    dataset_id: int,
    attributes: Sequence[int] | None = None,
    context: int | None = None,
    where: sa.ColumnElement[bool] | None = None,
) -> list[Decision]:
    """Return every decision of a dataset, oldest first (`moment`); only those on some attributes, in one context or
    that satisfy a condition, if given."""
    query = sa.select(decision).where(decision.c.dataset == dataset_id)
    if attributes is not None:
        query = query.where(decision.c.attribute.in_(attributes))
    if context is not None:
        query = query.where(decision.c.context == context)
    if where is not None:
        query = query.where(where)
    return sorted(fetch(connection, query, Decision), key=moment)


def moment(item: Any) -> tuple[str, str, int]:
    """Return what orders decisions, or rows with their created, uid and id: the time they were made, then the uid. Ids
    tell in which order they came into this record, which is another one if workspaces were merged. In Python and not in
    the database, whose order of texts may be another one."""
    return item.created, item.uid or "", item.id


def standing(events: Iterable[E]) -> dict[Pair, E]:
    """Return the newest decision, or verdict of an audit, that stands on each place."""
    ordered: list[Any] = standing_of_each(events)
    return {item.place: item for item in ordered}


def standing_of_each(events: Iterable[E]) -> list[E]:
    """Return each person's standing decision, or verdict of an audit, on each place, oldest first: superseded and
    taken-back ones do not stand."""
    ordered: list[Any] = sorted(events, key=moment)
    superseded = {item.supersedes for item in ordered}
    return [item for item in ordered if item.value is not None and item.id not in superseded]


def count_standing(connection: sa.Connection, table: sa.Table, *where: sa.ColumnElement[bool]) -> int:
    """Return how many decisions, or verdicts of audits, `standing_of_each` keeps of the rows of a table that satisfy
    all these conditions. where: must hold of all or none that one person said of a place."""
    later = table.alias()
    superseded = sa.select(later.c.supersedes).where(later.c.supersedes.is_not(None))
    return count(connection, table, table.c[_VALUE[table.name]].is_not(None), table.c.id.not_in(superseded), *where)


def standing_labels(connection: sa.Connection, dataset_id: int) -> list[tuple[int, int, str]]:
    """Return the labels of `standing` in a dataset: (attribute id, context id, label). Every count of a run reads them
    again after a decision, so they are read without the rest of it: a quarter of the time."""
    columns = (decision.c[name] for name in ("created", "uid", "id", "supersedes", "attribute", "context"))
    label = sa.type_coerce(decision.c.label, sa.Text)
    rows = connection.execute(sa.select(*columns, label).where(decision.c.dataset == dataset_id)).all()
    superseded = {row.supersedes for row in rows}
    stand: dict[Pair, str] = {}
    for row in sorted(rows, key=lambda row: (row[0], row[1] or "", row[2])):
        if row[6] is not None and row[2] not in superseded:
            stand[row[4], row[5]] = row[6]
    return [(attribute, context, label) for (attribute, context), label in stand.items()]


def adjudicated(decisions: Sequence[Decision]) -> set[Pair]:
    """Return the pairs whose label rests on an adjudication: the newest decision that stands is one, or an undo that
    has brought one back. decisions: all on these pairs."""
    who = {pair: item.annotator for pair, item in standing(decisions).items()}
    of_pairs = stacks(sorted((d for d in decisions if who.get(d.place) == d.annotator), key=moment))
    return {pair for pair, stack in of_pairs.items() if stack and stack[-1].source == ADJUDICATED}


# ---- review events
#
# An event names its pair by words that two workspaces share, and itself by its uid:
#
#     event     uid   profile  attribute  task                recipient  annotator  label      created
#     decision  3f..  0        rent       Renew the lease     Landlord   Ada        necessary  2026-01-02T10:00:00.000Z
#
# Merging is a union by uid. Of what one person said of a pair the newest counts, by the time it was said and then by
# uid, so that the same events give the same result in whatever order they come.


EVENT_KINDS = ("decision", "mark", "comment", "audit")
PAIR = ("profile", "attribute", "task", "recipient")
# What an event says, apart from where, by whom and when.
EVENT_FIELDS: dict[str, tuple[str, ...]] = {
    "decision": ("label", "reason", "seconds", "source", "batch", "blind", "guideline", "cause"),
    "mark": ("kind", "reason", "seconds"),
    "comment": ("text", "resolves"),
    "audit": ("run", "level", "sample", "verdict", "reason", "seconds", "blind"),
}
# Two events of one uid that differ in this are two.
_VALUE = {"decision": "label", "mark": "kind", "comment": "text", "audit": "verdict"}
_TABLES = {"decision": decision, "mark": mark, "comment": comment, "audit": audit}
Event = dict[str, Any]


@dataclass(frozen=True)
class Merged:
    """The outcome for the events of one kind. conflicting: of a uid that is here with something else said, left out."""

    new: int
    present: int
    conflicting: int


@dataclass(frozen=True)
class EventPositions:
    """The places in this workspace of what events name. `statements` and `names` by attribute id and profile ordinal;
    `tested`: (profile ordinal, context id)."""

    names: Mapping[int, str]
    attributes: Mapping[tuple[int, str], int]
    statements: Mapping[int, str]
    contexts: Mapping[tuple[str, str], int]
    tested: frozenset[tuple[int, int]]


def event_positions(connection: sa.Connection, dataset_id: int) -> EventPositions:
    """Return the pairs of a dataset by the words that events name them by."""
    of = profile.c.dataset == dataset_id
    columns = (profile.c.ordinal, attribute.c.key, attribute.c.id, attribute.c.statement)
    rows = connection.execute(sa.select(*columns).join(attribute, attribute.c.profile == profile.c.id).where(of)).all()
    contexts = sa.select(context.c.task, context.c.recipient, context.c.id).where(context.c.dataset == dataset_id)
    tested = sa.select(profile.c.ordinal, profile_context.c.context).join(profile_context).where(of)
    return EventPositions(
        names={r.ordinal: r.name for r in connection.execute(sa.select(profile.c.ordinal, profile.c.name).where(of))},
        # By ordinal and key, which two workspaces share; names of profiles need not be unique.
        attributes={(r.ordinal, r.key): r.id for r in rows},
        statements={r.id: r.statement for r in rows},
        contexts={(r.task, r.recipient): r.id for r in connection.execute(contexts)},
        tested=frozenset((r.ordinal, r.context) for r in connection.execute(tested)),
    )


def event_responses(connection: sa.Connection, dataset_id: int) -> dict[tuple[str, int, int, str, int], int]:
    """Return the responses that audits can be of, by (run, profile ordinal, context id, level, sample)."""
    columns = (response.c.run, profile.c.ordinal, response.c.context, response.c.level, response.c.sample)
    query = sa.select(*columns, response.c.id).join(profile).where(profile.c.dataset == dataset_id)
    return {tuple(place): i for *place, i in connection.execute(query)}


def review_events(connection: sa.Connection, dataset_id: int, kind: str) -> Iterator[Event]:
    """Yield every event of one kind, oldest first and then by uid; `simulated` of an audit is its run's, of others
    absent. Events from before there were uids get one made of their content."""
    table = _TABLES[kind]
    pair = (
        profile.c.ordinal.label("profile"),
        profile.c.name.label("profile_name"),
        attribute.c.key.label("attribute"),
        attribute.c.domain,
        attribute.c.statement,
        context.c.task,
        context.c.recipient,
    )
    plain = [table.c[name] for name in EVENT_FIELDS[kind] if name in table.c and name != "resolves"]
    base = sa.select(table.c.uid, *pair, table.c.annotator, *plain, table.c.created)
    joined = table.join(attribute, table.c.attribute == attribute.c.id).join(profile)
    if kind == "audit":
        base = base.add_columns(response.c.run, response.c.level, response.c.sample, run.c.simulated)
        joined = joined.join(response, audit.c.response == response.c.id).join(run, response.c.run == run.c.id)
        joined = joined.join(context, response.c.context == context.c.id)
    else:
        joined = joined.join(context, table.c.context == context.c.id)
    if kind == "comment":
        # The same table once more: a row that settles a comment names it by an id, and the event by its uid.
        settled = comment.alias("settled")
        base = base.add_columns(settled.c.uid.label("resolves"))
        joined = joined.join(settled, comment.c.resolves == settled.c.id, isouter=True)
    query = base.select_from(joined).where(table.c.dataset == dataset_id)
    uids = UidGenerator(kind)
    rows = rows_of(connection, query.order_by(table.c.created, table.c.id))
    events = [{"event": kind, **row, "uid": row["uid"] or uids.uid(dict(row))} for row in rows]
    yield from sorted(events, key=lambda row: (row["created"], row["uid"]))


class UidGenerator:
    """Gives uids to events that have none: the same to the same event in every workspace."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._seen: Counter[str] = Counter()

    def uid(self, event: Mapping[str, Any]) -> str:
        """Return a uid made of what the event says; of two that say the very same the second gets another one."""
        names = (*PAIR, "annotator", *EVENT_FIELDS[self.kind], "created")
        digest = content_hash([self.kind, {name: _plain(event.get(name)) for name in names}])
        self._seen[digest] += 1
        return f"event-{content_hash([digest, self._seen[digest]])}"


def _plain(value: Any) -> Any:
    # Engines and files differ in whether a flag is true or 1, and nothing an empty text.
    return float(value) if isinstance(value, bool | int | float) else value or None


def merge_events(
    connection: sa.Connection, dataset_id: int, kind: str, events: Sequence[Event], import_id: int | None = None
) -> Merged:
    """Append the events whose uid the dataset does not have.

    Each has the ids `attribute_id`, and `context_id` or `response_id`; a comment that resolves another names that one's
    uid in `resolves`. import_id: the import that brings them. If any decision or audit comes in, all are linked again:
    each supersedes what the same person had said before. The dataset's revision moves by one if a decision is new.
    Comments that are resolved must be here or among `events`: KeyError otherwise.
    """
    table = _TABLES[kind]
    if kind == "decision":
        _backfill_uids(connection, dataset_id)
    # Backwards, so that of two events with one uid in the same file the first one counts.
    by_uid = {event["uid"]: event for event in reversed(events)}
    names = ("annotator", "attribute", _VALUE[kind])
    query = sa.select(table.c.uid, *(table.c[name] for name in names)).where(table.c.dataset == dataset_id)
    known = {
        row["uid"]: tuple(row[name] for name in names) for row in rows_in_chunks(connection, query, table.c.uid, by_uid)
    }
    keys = ("annotator", "attribute_id", _VALUE[kind])
    other = sum(said != tuple(by_uid[uid][key] for key in keys) for uid, said in known.items())
    fresh = sorted((e for u, e in by_uid.items() if u not in known), key=lambda e: (e["created"], e["uid"]))
    # What settles a comment is written after all comments: a clock may have been behind.
    for part in ([e for e in fresh if not e.get("resolves")], [e for e in fresh if e.get("resolves")]):
        of_uid = sa.select(comment.c.uid, comment.c.id).where(comment.c.dataset == dataset_id)
        resolved = (e["resolves"] for e in part if e.get("resolves"))
        numbers = {row["uid"]: row["id"] for row in rows_in_chunks(connection, of_uid, comment.c.uid, resolved)}
        rows = []
        for event in part:
            row = {name: event[name] for name in ("uid", "annotator", "created")}
            row |= {name: event[name] for name in EVENT_FIELDS[kind] if name in table.c}
            where = "response" if kind == "audit" else "context"
            row |= {"dataset": dataset_id, "attribute": event["attribute_id"], where: event[f"{where}_id"]}
            if kind == "comment":
                row["resolves"] = numbers[event["resolves"]] if event.get("resolves") else None
            rows.append(row)
        for chunk in in_chunks(rows):
            insert_new(connection, table, chunk)
    if import_id is not None:
        items = ({"review_import": import_id, "kind": kind, "uid": event["uid"]} for event in fresh)
        insert(connection, review_import_item, items)
    if fresh and kind in ("decision", "audit"):
        at = "response_id" if kind == "audit" else "context_id"
        _link(connection, dataset_id, table, {(e["annotator"], e["attribute_id"], e[at]) for e in fresh})
    if fresh and kind == "decision":
        # In the same transaction: labels computed without these decisions are never taken for current.
        revise(connection, dataset_id)
    return Merged(len(fresh), len(events) - len(fresh) - other, other)


def comment_uids(connection: sa.Connection, dataset_id: int) -> set[str]:
    """Return the uids of the comments of a dataset that can be resolved."""
    query = sa.select(comment.c.uid).where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    return set(connection.scalars(query))


def _backfill_uids(connection: sa.Connection, dataset_id: int) -> None:
    """Give decisions from before there were uids the one under which `review_events` lists them."""
    named = (
        sa.select(decision, profile.c.ordinal, attribute.c.key, context.c.task, context.c.recipient)
        .select_from(
            decision.join(attribute, decision.c.attribute == attribute.c.id)
            .join(profile)
            .join(context, decision.c.context == context.c.id)
        )
        .where(decision.c.dataset == dataset_id, decision.c.uid.is_(None))
        .order_by(decision.c.created, decision.c.id)
    )
    uids = UidGenerator("decision")
    given = [
        {"this": row["id"], "given": uids.uid({**row, "profile": row["ordinal"], "attribute": row["key"]})}
        for row in rows_of(connection, named)
    ]
    if given:
        statement = sa.update(decision).where(decision.c.id == sa.bindparam("this"))
        connection.execute(statement.values(uid=sa.bindparam("given")), given)


Said = tuple[str, int, int]  # annotator, attribute, and context or response


def _link(connection: sa.Connection, dataset_id: int, table: sa.Table, touched: Collection[Said]) -> None:
    """Let each event supersede the one before it of the same person on the same pair or flow, of these."""
    at = table.c.response if table is audit else table.c.context
    groups: dict[Said, list[sa.RowMapping]] = {}
    columns = (table.c.id, table.c.annotator, table.c.attribute, at.label("at"), table.c.supersedes)
    query = sa.select(*columns, table.c.created, table.c.uid).where(table.c.dataset == dataset_id)
    # Asked by people, who are few, and sorted out here: a list of pairs could be longer than one statement takes.
    for row in rows_in_chunks(connection, query, table.c.annotator, sorted({who for who, _, _ in touched})):
        if (key := (row["annotator"], row["attribute"], row["at"])) in touched:
            groups.setdefault(key, []).append(row)
    changed = []
    for group in groups.values():
        before = None
        # Here and not in the database, whose order of texts may be another one.
        for row in sorted(group, key=lambda r: (r["created"], r["uid"])):
            if row["supersedes"] != before:
                changed.append({"this": row["id"], "before": before})
            before = row["id"]
    if changed:
        statement = sa.update(table).where(table.c.id == sa.bindparam("this"))
        connection.execute(statement.values(supersedes=sa.bindparam("before")), changed)


# ---- imports
#
# What a file of events has brought can be undone as a whole. Its rows are removed, which nothing else in this module
# does: they were said elsewhere, and are still in the file. A decision more, in the name of a person who never made it,
# would make the record say what that person did not, and the file could not be imported again.


@dataclass(frozen=True)
class ReviewImport:
    """A file of events that was imported by `annotator` (may be empty). events: how many it brought, by kind. undone:
    when it was undone, None while it holds."""

    id: int
    name: str
    annotator: str
    created: str
    undone: str | None
    events: Mapping[str, int]


def begin_import(connection: sa.Connection, dataset_id: int, name: str, annotator: str) -> int:
    """Note that a file is imported; return the id for `merge_events`."""
    return int(insert_one(connection, review_import, dataset=dataset_id, name=name, annotator=annotator, created=now()))


def end_import(connection: sa.Connection, import_id: int) -> None:
    """Forget an import that has brought nothing."""
    if not exists(connection, review_import_item.c.review_import == import_id):
        connection.execute(sa.delete(review_import).where(review_import.c.id == import_id))


def imports(connection: sa.Connection, dataset_id: int) -> list[ReviewImport]:
    """Return the files that brought events to a dataset, newest first."""
    item = review_import_item.c
    query = sa.select(review_import).where(review_import.c.dataset == dataset_id)
    rows = rows_of(connection, query.order_by(review_import.c.id.desc()))
    counts: dict[int, dict[str, int]] = {row["id"]: {} for row in rows}
    counted = sa.select(item.review_import, item.kind, sa.func.count()).group_by(item.review_import, item.kind)
    for of, kind, number in connection.execute(counted.where(item.review_import.in_(counts))):
        counts[of][kind] = number
    return [
        from_row(ReviewImport, row, events={k: counts[row["id"]][k] for k in EVENT_KINDS if k in counts[row["id"]]})
        for row in rows
    ]


def undo_import(connection: sa.Connection, dataset_id: int, import_id: int, annotator: str) -> tuple[int, int]:
    """Remove what an import brought; return how many events were removed, and how many stay: decisions and audits on
    which the same person has said something since, and comments that others have resolved. Raises StoreError if there
    is no such import, or it was undone before."""
    of_import = review_import.c.id == import_id, review_import.c.dataset == dataset_id, review_import.c.undone.is_(None)
    claimed = sa.update(review_import).where(*of_import).values(undone=now(), undone_by=annotator)
    if not connection.execute(claimed).rowcount:
        raise StoreError("this import is undone already. Reload the page.")
    brought: dict[str, list[str]] = {}
    item = review_import_item.c
    for kind, uid in connection.execute(sa.select(item.kind, item.uid).where(item.review_import == import_id)):
        brought.setdefault(kind, []).append(uid)
    removed = 0
    for kind, uids in brought.items():
        table = _TABLES[kind]
        query = sa.select(table).where(table.c.dataset == dataset_id)
        # Some may have been deleted with their pair.
        rows = list(rows_in_chunks(connection, query, table.c.uid, uids))
        if rows and kind in ("decision", "audit"):
            rows = _not_gone_past(connection, dataset_id, table, rows)
        elif rows and kind == "comment":
            ids = {row["id"] for row in rows}
            settled = sa.select(comment.c.resolves).where(comment.c.resolves.in_(ids), comment.c.id.not_in(ids))
            resolved = set(connection.scalars(settled))
            rows = [row for row in rows if row["id"] not in resolved]
        linked = kind in ("decision", "audit")
        for chunk in in_chunks(row["id"] for row in rows):
            if linked:
                # First: a row takes along those that name it.
                connection.execute(sa.update(table).where(table.c.supersedes.in_(chunk)).values(supersedes=None))
            connection.execute(sa.delete(table).where(table.c.id.in_(chunk)))
        if linked and rows:
            # What superseded them supersedes what is beneath.
            at = "response" if kind == "audit" else "context"
            _link(connection, dataset_id, table, {(row["annotator"], row["attribute"], row[at]) for row in rows})
        if rows and kind == "decision":
            revise(connection, dataset_id)
        removed += len(rows)
    return removed, sum(map(len, brought.values())) - removed


def _not_gone_past(
    connection: sa.Connection, dataset_id: int, table: sa.Table, rows: Sequence[sa.RowMapping]
) -> list[sa.RowMapping]:
    """Return those of these rows, of one import, on whose pair or flow the same person has said nothing since."""
    at = "response" if table is audit else "context"
    # By id, the order of coming in: what was said before the import may have a later time than what it brought.
    newest = max(row["id"] for row in rows)
    query = sa.select(table.c.annotator, table.c.attribute, table.c[at]).where(table.c.dataset == dataset_id)
    people = sorted({row["annotator"] for row in rows})
    later = rows_in_chunks(connection, query.where(table.c.id > newest), table.c.annotator, people)
    since = {(row["annotator"], row["attribute"], row[at]) for row in later}
    return [row for row in rows if (row["annotator"], row["attribute"], row[at]) not in since]
