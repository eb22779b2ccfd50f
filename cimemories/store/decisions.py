"""Human decisions on pairs (attribute, context): append-only. Undo is one more decision, with no label."""

from __future__ import annotations

import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store.engine import (
    CHUNK,
    StoreError,
    content_hash,
    in_chunks,
    insert_ignore,
    later_than,
    now,
    plain_name,
    rows_in_chunks,
)
from cimemories.store.tables import (
    attribute,
    audit,
    comment,
    context,
    dataset,
    decision,
    mark,
    profile,
    profile_context,
    response,
    review_import,
    review_import_item,
    run,
)

# ---- review merge
#
# What people said of a dataset as events without ids of this workspace, and the merge of such events from another one.
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
SAID: dict[str, tuple[str, ...]] = {
    "decision": ("label", "reason", "seconds", "source", "batch", "blind", "guideline", "cause"),
    "mark": ("kind", "reason", "seconds"),
    "comment": ("text", "resolves"),
    "audit": ("run", "level", "sample", "verdict", "reason", "seconds", "blind"),
}
# Where two events of one uid differ in these, they are two.
_CORE = {"decision": ("label",), "mark": ("kind",), "comment": ("text",), "audit": ("verdict",)}
_TABLES = {"decision": decision, "mark": mark, "comment": comment, "audit": audit}
Event = dict[str, Any]


@dataclass(frozen=True)
class Merged:
    """What became of the events of one kind. `other`: of a uid that is here with something else said, left out."""

    new: int
    known: int
    other: int


@dataclass(frozen=True)
class Places:
    """Where this workspace keeps what events name. `statements` and `names` by attribute id and profile ordinal;
    `tested`: (profile ordinal, context id)."""

    names: Mapping[int, str]
    attributes: Mapping[tuple[int, str], int]
    statements: Mapping[int, str]
    contexts: Mapping[tuple[str, str], int]
    tested: frozenset[tuple[int, int]]


def event_positions(connection: sa.Connection, dataset_id: int) -> Places:
    """The pairs of a dataset by the words that events name them by."""
    of = profile.c.dataset == dataset_id
    rows = connection.execute(
        sa.select(profile.c.ordinal, attribute.c.key, attribute.c.id, attribute.c.statement)
        .join(attribute, attribute.c.profile == profile.c.id)
        .where(of)
    ).all()
    contexts = sa.select(context.c.task, context.c.recipient, context.c.id).where(context.c.dataset == dataset_id)
    tested = sa.select(profile.c.ordinal, profile_context.c.context).join(
        profile_context, profile_context.c.profile == profile.c.id
    )
    return Places(
        names={r.ordinal: r.name for r in connection.execute(sa.select(profile.c.ordinal, profile.c.name).where(of))},
        # By ordinal and key, which two workspaces share; names of profiles need not be unique.
        attributes={(r.ordinal, r.key): r.id for r in rows},
        statements={r.id: r.statement for r in rows},
        contexts={(r.task, r.recipient): r.id for r in connection.execute(contexts)},
        tested=frozenset((r.ordinal, r.context) for r in connection.execute(tested.where(of))),
    )


def event_responses(connection: sa.Connection, dataset_id: int) -> dict[tuple[str, int, int, str, int], int]:
    """Responses that audits can be of, by (run, profile ordinal, context id, level, sample)."""
    query = (
        sa.select(response.c.run, profile.c.ordinal, response.c.context, response.c.level, response.c.sample)
        .add_columns(response.c.id)
        .join(profile, response.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    return {(r.run, r.ordinal, r.context, r.level, r.sample): r.id for r in connection.execute(query)}


def review_events(connection: sa.Connection, dataset_id: int, kind: str) -> Iterator[Event]:
    """Every event of one kind, oldest first and then by uid; `simulated` of an audit is its run's, of others absent.
    Events of before there were uids get the one that their content gives them."""
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
    plain = [table.c[name] for name in SAID[kind] if name in table.c and name != "resolves"]
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
    nameless = Nameless(kind)
    rows = connection.execute(query.order_by(table.c.created, table.c.id)).mappings()
    events = [{"event": kind, **row, "uid": row["uid"] or nameless.uid(dict(row))} for row in rows]
    yield from sorted(events, key=lambda row: (row["created"], row["uid"]))


class Nameless:
    """Gives uids to events that have none: the same to the same event in every workspace."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._seen: Counter[str] = Counter()

    def uid(self, event: Mapping[str, Any]) -> str:
        """Made of what the event says; of two that say the very same the second gets another one than the first."""
        names = (*PAIR, "annotator", *SAID[self.kind], "created")
        plain = {name: _plain(event.get(name)) for name in names}
        digest = content_hash([self.kind, plain])
        self._seen[digest] += 1
        return f"event-{content_hash([digest, self._seen[digest]])}"


def _plain(value: Any) -> Any:
    # Engines and files differ in whether a flag is true or 1, and nothing an empty text.
    return float(value) if isinstance(value, bool | int | float) else value or None


def merge_events(
    connection: sa.Connection, dataset_id: int, kind: str, events: Sequence[Event], import_id: int | None = None
) -> Merged:
    """Append the events whose uid the dataset does not have. Each has the ids `attribute_id`, and `context_id` or
    `response_id`; a comment that resolves another names that one's uid in `resolves`. import_id: what they are noted
    as brought by.

    Decisions and audits are linked anew where any came in: each supersedes what the same person had said before. The
    dataset's revision moves by one where a decision is new. Comments that are resolved must be here or among
    `events`: KeyError otherwise.
    """
    table = _TABLES[kind]
    if kind == "decision":
        _name_old(connection, dataset_id)
    # Backwards, so that of two events with one uid in the same file the first one counts.
    by_uid = {event["uid"]: event for event in reversed(events)}
    known = _known_events(connection, dataset_id, kind, list(by_uid))
    other = sum(known[uid] != _core(kind, by_uid[uid]) for uid in known)
    fresh = sorted((e for u, e in by_uid.items() if u not in known), key=lambda e: (e["created"], e["uid"]))
    # What settles a comment is written after all comments: a clock may have been behind.
    rest = [event for event in fresh if event.get("resolves")]
    _insert(connection, dataset_id, table, kind, [event for event in fresh if not event.get("resolves")])
    _insert(connection, dataset_id, table, kind, rest)
    for chunk in in_chunks(fresh if import_id is not None else []):
        items = [{"review_import": import_id, "kind": kind, "uid": event["uid"]} for event in chunk]
        connection.execute(sa.insert(review_import_item), items)
    if fresh and kind in ("decision", "audit"):
        _link(connection, dataset_id, table, fresh)
    if fresh and kind == "decision":
        # In the same transaction: labels computed without these decisions are never taken for current.
        connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return Merged(len(fresh), len(events) - len(fresh) - other, other)


def _core(kind: str, event: Mapping[str, Any]) -> tuple[object, ...]:
    return (event["annotator"], event["attribute_id"], *(event[name] for name in _CORE[kind]))


def _known_events(
    connection: sa.Connection, dataset_id: int, kind: str, uids: Sequence[str]
) -> dict[str, tuple[object, ...]]:
    table = _TABLES[kind]
    columns = [table.c.annotator, table.c.attribute, *(table.c[name] for name in _CORE[kind])]
    query = sa.select(table.c.uid, *columns).where(table.c.dataset == dataset_id)
    rows = rows_in_chunks(connection, query, table.c.uid, uids)
    return {row["uid"]: tuple(row[column] for column in columns) for row in rows}


def _insert(connection: sa.Connection, dataset_id: int, table: sa.Table, kind: str, fresh: Sequence[Event]) -> None:
    numbers = _numbers(connection, dataset_id, [e["resolves"] for e in fresh if e.get("resolves")])
    for chunk in in_chunks(fresh):
        rows = []
        for event in chunk:
            row = {name: event[name] for name in ("uid", "annotator", "created")}
            row |= {name: event[name] for name in SAID[kind] if name in table.c and name != "resolves"}
            row |= {"dataset": dataset_id, "attribute": event["attribute_id"]}
            where = "response" if kind == "audit" else "context"
            row[where] = event[f"{where}_id"]
            if kind == "comment":
                row["resolves"] = numbers[event["resolves"]] if event.get("resolves") else None
            rows.append(row)
        connection.execute(insert_ignore(connection, table), rows)


def _numbers(connection: sa.Connection, dataset_id: int, uids: Sequence[str]) -> dict[str, int]:
    query = sa.select(comment.c.uid, comment.c.id).where(comment.c.dataset == dataset_id)
    return {row["uid"]: row["id"] for row in rows_in_chunks(connection, query, comment.c.uid, uids)}


def comment_uids(connection: sa.Connection, dataset_id: int) -> set[str]:
    """The comments of a dataset that can be resolved."""
    query = sa.select(comment.c.uid).where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    return set(connection.execute(query).scalars())


def _name_old(connection: sa.Connection, dataset_id: int) -> None:
    """Decisions of before there were uids get theirs, the one under which `review_events` gives them out."""
    without = sa.and_(decision.c.dataset == dataset_id, decision.c.uid.is_(None))
    ids = list(connection.execute(sa.select(decision.c.id).where(without)).scalars())
    if not ids:
        return
    named = sa.select(decision, profile.c.ordinal, attribute.c.key, context.c.task, context.c.recipient).select_from(
        decision.join(attribute, decision.c.attribute == attribute.c.id)
        .join(profile)
        .join(context, decision.c.context == context.c.id)
    )
    nameless = Nameless("decision")
    given = []
    for row in connection.execute(named.where(without).order_by(decision.c.created, decision.c.id)).mappings():
        event = {**row, "profile": row["ordinal"], "attribute": row["key"]}
        given.append({"this": row["id"], "given": nameless.uid(event)})
    statement = sa.update(decision).where(decision.c.id == sa.bindparam("this")).values(uid=sa.bindparam("given"))
    connection.execute(statement, given)


def _link(connection: sa.Connection, dataset_id: int, table: sa.Table, fresh: Sequence[Event]) -> None:
    """Let each event supersede the one before it of the same person on the same pair or flow."""
    second = table.c.response if table is audit else table.c.context
    of = "response_id" if table is audit else "context_id"
    touched = {(event["annotator"], event["attribute_id"], event[of]) for event in fresh}
    groups: dict[tuple[str, int, int], list[sa.RowMapping]] = {}
    columns = (table.c.id, table.c.annotator, table.c.attribute, second.label("at"), table.c.supersedes)
    # Asked by people, who are few, and sorted out here: a list of pairs could be longer than one statement takes.
    for people in in_chunks(sorted({who for who, _, _ in touched})):
        query = sa.select(*columns, table.c.created, table.c.uid)
        of_people = query.where(table.c.dataset == dataset_id, table.c.annotator.in_(people))
        for row in connection.execute(of_people).mappings():
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
# What a file of events has brought can be undone whole. Its rows are removed, which nothing else in this module does:
# they were said elsewhere, and are still in the file. A decision more, under the name of somebody who never made it,
# would make the record say what nobody said, and the file could not be imported again.


@dataclass(frozen=True)
class ReviewImport:
    """A file of events that was imported by `annotator` (empty: nobody had given a name). events: how many it brought,
    by kind. undone: when it was undone, None while it holds."""

    id: int
    name: str
    annotator: str
    created: str
    undone: str | None
    events: Mapping[str, int]


def begin_import(connection: sa.Connection, dataset_id: int, name: str, annotator: str) -> int:
    """Note that a file is imported; returns the id for `merge_events`."""
    values = {"dataset": dataset_id, "name": name, "annotator": annotator, "created": now()}
    statement = sa.insert(review_import).values(**values).returning(review_import.c.id)
    return int(connection.execute(statement).scalar_one())


def end_import(connection: sa.Connection, import_id: int) -> None:
    """Forget an import that has brought nothing."""
    item = review_import_item.c
    brought = sa.select(item.uid).where(item.review_import == import_id).exists()
    connection.execute(sa.delete(review_import).where(review_import.c.id == import_id, ~brought))


def imports(connection: sa.Connection, dataset_id: int) -> list[ReviewImport]:
    """The files that brought events to a dataset, newest first."""
    item = review_import_item.c
    own = sa.select(review_import).where(review_import.c.dataset == dataset_id)
    rows = connection.execute(own.order_by(review_import.c.id.desc())).mappings().all()
    counts: dict[int, dict[str, int]] = {}
    counted = sa.select(item.review_import, item.kind, sa.func.count()).group_by(item.review_import, item.kind)
    for of, kind, number in connection.execute(counted.where(item.review_import.in_([row["id"] for row in rows]))):
        counts.setdefault(of, {})[kind] = number
    plain = ("id", "name", "annotator", "created", "undone")
    return [
        ReviewImport(
            **{name: row[name] for name in plain},
            events={kind: counts[row["id"]][kind] for kind in EVENT_KINDS if kind in counts.get(row["id"], {})},
        )
        for row in rows
    ]


def undo_import(connection: sa.Connection, dataset_id: int, import_id: int, annotator: str) -> tuple[int, int]:
    """Remove what an import brought; returns how many events were removed, and how many are kept: decisions and audits
    on which the same person has said something since, and comments that others have resolved. Raises StoreError where
    there is no such import, or it was undone before."""
    own = review_import.c.id == import_id, review_import.c.dataset == dataset_id, review_import.c.undone.is_(None)
    claimed = sa.update(review_import).where(*own).values(undone=now(), undone_by=annotator)
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
        # Somebody may have deleted some with their pair.
        rows = list(rows_in_chunks(connection, query, table.c.uid, uids))
        if not rows:
            continue
        if kind in ("decision", "audit"):
            rows = _free(connection, dataset_id, table, rows)
        elif kind == "comment":
            ids = {row["id"] for row in rows}
            settled = sa.select(comment.c.resolves).where(comment.c.resolves.in_(ids), comment.c.id.not_in(ids))
            kept = set(connection.execute(settled).scalars())
            rows = [row for row in rows if row["id"] not in kept]
        _remove(connection, dataset_id, table, rows)
        removed += len(rows)
    return removed, sum(map(len, brought.values())) - removed


def _free(
    connection: sa.Connection, dataset_id: int, table: sa.Table, rows: Sequence[sa.RowMapping]
) -> list[sa.RowMapping]:
    """Those of these rows, of one import, on whose pair or flow the same person has said nothing since."""
    at = "response" if table is audit else "context"
    # By id, the order of coming in: what was said before the import may have a later time than what it brought.
    newest = max(row["id"] for row in rows)
    since: set[tuple[str, int, int]] = set()
    for people in in_chunks(sorted({row["annotator"] for row in rows})):
        query = sa.select(table.c.annotator, table.c.attribute, table.c[at]).where(table.c.dataset == dataset_id)
        later = connection.execute(query.where(table.c.id > newest, table.c.annotator.in_(people)))
        since |= {(row[0], row[1], row[2]) for row in later}
    return [row for row in rows if (row["annotator"], row["attribute"], row[at]) not in since]


def _remove(connection: sa.Connection, dataset_id: int, table: sa.Table, rows: Sequence[sa.RowMapping]) -> None:
    """Delete rows, and let what superseded them supersede what is beneath."""
    linked = table in (decision, audit)
    for chunk in in_chunks([row["id"] for row in rows]):
        if linked:
            # First: a row takes along those that name it.
            connection.execute(sa.update(table).where(table.c.supersedes.in_(chunk)).values(supersedes=None))
        connection.execute(sa.delete(table).where(table.c.id.in_(chunk)))
    if linked and rows:
        at = "response" if table is audit else "context"
        _link(
            connection,
            dataset_id,
            table,
            [{**row, "attribute_id": row["attribute"], f"{at}_id": row[at]} for row in rows],
        )
    if rows and table is decision:
        connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))


# ---- decisions


# Sources of decisions that are nobody's own: what takes one back, and what settles a dispute.
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


@dataclass(frozen=True)
class NewDecision:
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


LOCK, LOCK_OF_PERSON = 0x7266, 0x7267  # tell these advisory locks of PostgreSQL from others, as reviews.LOCK


def take_turns(connection: sa.Connection, dataset_id: int, annotator: str, *, alone: bool = False) -> None:
    """Before anything is read that a decision will rest on: until the transaction ends, nobody else decides under this
    name. alone: nor in the dataset at all, so that an adjudication goes past no word unseen. On SQLite one alone writes
    anyway."""
    if connection.dialect.name == "postgresql":
        # Numbers of 32 bits; two that share one only wait for each other. Always in this order, or both would.
        of_all = sa.func.pg_advisory_xact_lock if alone else sa.func.pg_advisory_xact_lock_shared
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
    reason: str = "",
    seconds: float | None = None,
    source: str = "single",
    batch: str | None = None,
    blind: bool = False,
) -> int:
    """Append one decision; it supersedes the same annotator's last one on the pair. Returns its id."""
    values = {"reason": reason, "seconds": seconds, "source": source, "batch": batch, "blind": blind}
    new = NewDecision(attribute, context, label, **values)  # type: ignore[arg-type]
    add_all(connection, dataset_id, annotator, [new])
    own = decision.c.dataset == dataset_id, decision.c.uid == new.uid
    return int(connection.execute(sa.select(decision.c.id).where(*own)).scalar_one())


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, new: Sequence[NewDecision]) -> int:
    """Append decisions of one annotator in their order; those whose uid the dataset has already are left out.

    Each supersedes the annotator's last one on its pair, also where that is one of the same call. One without a time of
    its own is later than all that were said of its pair before, also where a clock was ahead. Returns how many are new.
    The dataset's revision moves by one where any is.
    """
    known = _known(connection, dataset_id, [item.uid for item in new])
    # By uid: a list that names one twice writes it once.
    fresh = [item for item in {item.uid: item for item in new}.values() if item.uid not in known]
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
        # The next list may hold these pairs again: it supersedes what was written here.
        last.update({(row.attribute, row.context): row.id for row in connection.execute(statement, rows)})
    connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return len(fresh)


def undo(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Take one decision back: what the annotator had said of the pair before it stands again. False, and nothing is
    written, where there is no such decision of theirs or they have said something else since."""
    where = sa.and_(decision.c.dataset == dataset_id, decision.c.uid == uid, decision.c.annotator == annotator)
    return bool(_undo(connection, dataset_id, annotator, where, lambda row: new_uid, None))


def undo_batch(connection: sa.Connection, dataset_id: int, annotator: str, batch: str) -> int:
    """The same of all decisions of a batch that the annotator has not gone past since, in one batch of its own.
    Returns how many were taken back."""
    where = sa.and_(decision.c.dataset == dataset_id, decision.c.batch == batch, decision.c.annotator == annotator)
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
    pairs = sa.select(decision.c.attribute, decision.c.context, decision.c.uid).where(where).subquery("to_undo")
    # All that the annotator said of these pairs, undone or not: only a whole stack tells what lies beneath its top.
    rows = connection.execute(
        sa.select(row.c.attribute, row.c.context, row.c.uid, row.c.label, row.c.source, pairs.c.uid.label("to_undo"))
        .join(pairs, sa.and_(pairs.c.attribute == row.c.attribute, pairs.c.context == row.c.context))
        .add_columns(row.c.created, row.c.id)
        .where(row.c.dataset == dataset_id, row.c.annotator == annotator)
    ).all()
    to_undo = {(row.attribute, row.context): row.to_undo for row in rows}
    undos = []
    for (of, into), stack in stacks(sorted(rows, key=moment)).items():
        # Something else has been said since, or this has been undone already.
        if not stack or stack[-1].uid != to_undo[of, into]:
            continue
        before = stack[-2].label if len(stack) > 1 else None
        label = None if before is None else Label(before)
        undos.append(NewDecision(of, into, label, uid=new_uid(stack[-1]), source=UNDO, batch=batch))
    return add_all(connection, dataset_id, annotator, undos)


def stacks(ordered: Iterable[Any]) -> dict[tuple[int, int], list[Any]]:
    """One annotator's decisions, oldest first, as a stack for each pair: an undo takes the top away, anything else
    comes onto it."""
    stacks: dict[tuple[int, int], list[Any]] = {}
    for item in ordered:
        stack = stacks.setdefault((item.attribute, item.context), [])
        if item.source == UNDO and stack:  # an undo that was carried to a new version has nothing beneath it
            stack.pop()
        else:
            stack.append(item)
    return stacks


def still_there(connection: sa.Connection, dataset_id: int, pairs: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of these (attribute, context) pairs that the dataset has: an edit or a deletion may have taken some."""
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
    """What this annotator said last and has not taken back, of their own decisions, withdrawals among them, or of their
    adjudications; None where there is nothing left to take back."""
    mine = [d for d in history(connection, dataset_id) if d.annotator == annotator]
    of_pairs = stacks(mine)
    tops = [stack[-1] for stack in of_pairs.values() if stack]
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
    """The last thing that this annotator, or anybody, said of any pair that is still there, be it that a decision is
    taken back. None where nothing was said."""
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
    return Newest(int(row["dataset"]), _decision(row), row["statement"], row["recipient"]) if row else None


def last_id(connection: sa.Connection, dataset_id: int) -> int:
    """Return the id of the dataset's newest decision, 0 if there is none: it grows with each one."""
    return connection.scalar(sa.select(sa.func.max(decision.c.id)).where(decision.c.dataset == dataset_id)) or 0


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Whether the dataset has a decision of this uid."""
    return bool(_known(connection, dataset_id, [uid]))


def _known(connection: sa.Connection, dataset_id: int, uids: Sequence[str]) -> set[str]:
    query = sa.select(decision.c.uid).where(decision.c.dataset == dataset_id)
    return {row["uid"] for row in rows_in_chunks(connection, query, decision.c.uid, uids)}


def _last(
    connection: sa.Connection, dataset_id: int, annotator: str, new: Sequence[NewDecision]
) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], str]]:
    """Of each of these pairs: the id of the annotator's last word, and when anybody said something last."""
    names = ("attribute", "context", "id", "annotator", "supersedes", "created", "uid")
    query = sa.select(*(decision.c[name] for name in names)).where(decision.c.dataset == dataset_id)
    pairs = {(item.attribute, item.context) for item in new}
    attributes = {item.attribute for item in new}
    # For more the whole dataset is read: one statement has room for only so many values.
    if len(attributes) <= CHUNK:
        query = query.where(decision.c.attribute.in_(attributes))
    rows = [row for row in connection.execute(query) if (row.attribute, row.context) in pairs]
    superseded = {row.supersedes for row in rows}
    last: dict[tuple[int, int], int] = {}
    times: dict[tuple[int, int], str] = {}
    for row in sorted(rows, key=moment):
        # Rows come by time, so what stays is the latest.
        times[row.attribute, row.context] = row.created
        if row.annotator == annotator and row.id not in superseded:
            last[row.attribute, row.context] = row.id
    return last, times


def _waves(new: Sequence[NewDecision]) -> Iterator[list[NewDecision]]:
    """In their order, in lists that hold no pair twice: what supersedes must be written after what it supersedes."""
    chunk: list[NewDecision] = []
    pairs: set[tuple[int, int]] = set()
    for item in new:
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
    """Every decision of a dataset, oldest first (`moment`); of some attributes or of one context where given."""
    query = sa.select(decision).where(decision.c.dataset == dataset_id)
    if attributes is not None:
        query = query.where(decision.c.attribute.in_(attributes))
    if context is not None:
        query = query.where(decision.c.context == context)
    return sorted(map(_decision, connection.execute(query).mappings()), key=moment)


def moment(item: Any) -> tuple[str, str, int]:
    """What orders decisions, or rows with their created, uid and id: the time they were made, then the uid. Ids tell in
    which order they came into this record, which is another one where workspaces were merged. In Python and not in the
    database, whose order of texts may be another one."""
    return item.created, item.uid or "", item.id


def standing(decisions: Sequence[Decision]) -> dict[tuple[int, int], Decision]:
    """The newest decision that stands on each pair (attribute id, context id): superseded and taken-back ones do not.
    Newest by `moment`."""
    superseded = {d.supersedes for d in decisions if d.supersedes is not None}
    stand: dict[tuple[int, int], Decision] = {}
    for item in sorted(decisions, key=moment):
        if item.label is not None and item.id not in superseded:
            stand[item.attribute, item.context] = item
    return stand


def standing_labels(connection: sa.Connection, dataset_id: int) -> list[tuple[int, int, str]]:
    """The labels of `standing` in a dataset: (attribute id, context id, label). Every count of a run reads them anew
    once somebody has decided, so they are read without the rest of a decision: a quarter of the time."""
    columns = (decision.c[name] for name in ("created", "uid", "id", "supersedes", "attribute", "context", "label"))
    rows = connection.execute(sa.select(*columns).where(decision.c.dataset == dataset_id)).all()
    superseded = {row.supersedes for row in rows}
    stand: dict[tuple[int, int], str] = {}
    for row in sorted(rows, key=lambda row: (row[0], row[1] or "", row[2])):
        if row[6] is not None and row[2] not in superseded:
            stand[row[4], row[5]] = row[6]
    return [(attribute, context, label) for (attribute, context), label in stand.items()]


def adjudicated(made: Sequence[Decision]) -> set[tuple[int, int]]:
    """The pairs (attribute id, context id) whose label rests on an adjudication: the newest decision that stands is
    one, or an undo that has brought one back. made: every decision on these pairs."""
    stand = standing(made)
    who = {pair: item.annotator for pair, item in stand.items()}
    mine = [d for d in made if who.get((d.attribute, d.context)) == d.annotator]
    of_pairs = stacks(sorted(mine, key=moment))
    return {pair for pair, stack in of_pairs.items() if stack and stack[-1].source == ADJUDICATED}
