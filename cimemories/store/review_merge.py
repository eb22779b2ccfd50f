"""What people said of a dataset as events without ids of this workspace, and the merge of such events from another one.

An event names its pair by words that two workspaces share, and itself by its uid:

    event     uid   profile  attribute  task                recipient  annotator  label      created
    decision  3f..  0        rent       Renew the lease     Landlord   Ada        necessary  2026-01-02T10:00:00.000Z

Merging is a union by uid. Of what one person said of a pair the newest counts, by the time it was said and then by uid,
so that the same events give the same result in whatever order they come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cimemories.store.engine import insert_ignore
from cimemories.store.ids import content_hash
from cimemories.store.review_tables import audit, comment, mark
from cimemories.store.tables import attribute, context, dataset, decision, profile, profile_context, response, run

KINDS = ("decision", "mark", "comment", "audit")
CHUNK = 2000  # rows of one statement, and texts of one IN list
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


def places(connection: sa.Connection, dataset_id: int) -> Places:
    """The pairs of a dataset by the words that events name them by."""
    of = profile.c.dataset == dataset_id
    rows = connection.execute(
        sa.select(profile.c.ordinal, attribute.c.key, attribute.c.id, attribute.c.statement)
        .join(attribute, attribute.c.profile == profile.c.id)
        .where(of)
    ).all()
    found = sa.select(context.c.task, context.c.recipient, context.c.id).where(context.c.dataset == dataset_id)
    tested = sa.select(profile.c.ordinal, profile_context.c.context).join(
        profile_context, profile_context.c.profile == profile.c.id
    )
    return Places(
        names={r.ordinal: r.name for r in connection.execute(sa.select(profile.c.ordinal, profile.c.name).where(of))},
        attributes={(r.ordinal, r.key): r.id for r in rows},
        statements={r.id: r.statement for r in rows},
        contexts={(r.task, r.recipient): r.id for r in connection.execute(found)},
        tested=frozenset((r.ordinal, r.context) for r in connection.execute(tested.where(of))),
    )


def responses(connection: sa.Connection, dataset_id: int) -> dict[tuple[str, int, int, str, int], int]:
    """Responses that audits can be of, by (run, profile ordinal, context id, level, sample)."""
    query = (
        sa.select(response.c.run, profile.c.ordinal, response.c.context, response.c.level, response.c.sample)
        .add_columns(response.c.id)
        .join(profile, response.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    return {(r.run, r.ordinal, r.context, r.level, r.sample): r.id for r in connection.execute(query)}


def events(connection: sa.Connection, dataset_id: int, kind: str) -> Iterator[Event]:
    """Every event of one kind, oldest first and then by uid; `simulated` of an audit is its run's, of others absent.
    Events of before there were uids get the one that their content gives them."""
    table = _TABLES[kind]
    place = (
        profile.c.ordinal.label("profile"),
        profile.c.name.label("profile_name"),
        attribute.c.key.label("attribute"),
        attribute.c.domain,
        attribute.c.statement,
        context.c.task,
        context.c.recipient,
    )
    plain = [table.c[name] for name in SAID[kind] if name in table.c and name != "resolves"]
    base = sa.select(table.c.uid, *place, table.c.annotator, *plain, table.c.created)
    joined = table.join(attribute, table.c.attribute == attribute.c.id).join(profile)
    if kind == "audit":
        base = base.add_columns(response.c.run, response.c.level, response.c.sample, run.c.simulated)
        joined = joined.join(response, audit.c.response == response.c.id).join(run, response.c.run == run.c.id)
        joined = joined.join(context, response.c.context == context.c.id)
    else:
        joined = joined.join(context, table.c.context == context.c.id)
    if kind == "comment":
        settled = comment.alias("settled")
        base = base.add_columns(settled.c.uid.label("resolves"))
        joined = joined.join(settled, comment.c.resolves == settled.c.id, isouter=True)
    query = base.select_from(joined).where(table.c.dataset == dataset_id)
    nameless = Nameless(kind)
    rows = connection.execute(query.order_by(table.c.created, table.c.id)).mappings()
    found = [{"event": kind, **row, "uid": row["uid"] or nameless.uid(dict(row))} for row in rows]
    yield from sorted(found, key=lambda row: (row["created"], row["uid"]))


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


def merge(connection: sa.Connection, dataset_id: int, kind: str, found: Sequence[Event]) -> Merged:
    """Append the events whose uid the dataset does not have. Each has the ids `attribute_id`, and `context_id` or
    `response_id`; a comment that resolves another names that one's uid in `resolves`.

    Decisions and audits are linked anew where any came in: each supersedes what the same person had said before. The
    dataset's revision moves by one where a decision is new. Comments that are resolved must be here or among `found`.
    """
    table = _TABLES[kind]
    if kind == "decision":
        _name_old(connection, dataset_id)
    by_uid = {event["uid"]: event for event in reversed(found)}
    known = _known(connection, dataset_id, kind, list(by_uid))
    other = sum(known[uid] != _core(kind, by_uid[uid]) for uid in known)
    fresh = sorted((e for u, e in by_uid.items() if u not in known), key=lambda e: (e["created"], e["uid"]))
    # What settles a comment is written after all comments: a clock may have been behind.
    rest = [event for event in fresh if event.get("resolves")]
    _insert(connection, dataset_id, table, kind, [event for event in fresh if not event.get("resolves")])
    _insert(connection, dataset_id, table, kind, rest)
    if fresh and kind in ("decision", "audit"):
        _link(connection, dataset_id, table, fresh)
    if fresh and kind == "decision":
        connection.execute(sa.update(dataset).where(dataset.c.id == dataset_id).values(revision=dataset.c.revision + 1))
    return Merged(len(fresh), len(found) - len(fresh) - other, other)


def _core(kind: str, event: Mapping[str, Any]) -> tuple[object, ...]:
    return (event["annotator"], event["attribute_id"], *(event[name] for name in _CORE[kind]))


def _known(connection: sa.Connection, dataset_id: int, kind: str, uids: Sequence[str]) -> dict[str, tuple[object, ...]]:
    table, found = _TABLES[kind], {}
    for chunk in _chunks(uids):
        columns = [table.c.uid, table.c.annotator, table.c.attribute, *(table.c[name] for name in _CORE[kind])]
        for row in connection.execute(sa.select(*columns).where(table.c.dataset == dataset_id, table.c.uid.in_(chunk))):
            found[str(row[0])] = tuple(row)[1:]
    return found


def _insert(connection: sa.Connection, dataset_id: int, table: sa.Table, kind: str, fresh: Sequence[Event]) -> None:
    numbers = _numbers(connection, dataset_id, [e["resolves"] for e in fresh if e.get("resolves")])
    for chunk in _chunks(fresh):
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
    found: dict[str, int] = {}
    for chunk in _chunks(uids):
        query = sa.select(comment.c.uid, comment.c.id).where(comment.c.dataset == dataset_id, comment.c.uid.in_(chunk))
        found.update({str(row.uid): int(row.id) for row in connection.execute(query)})
    return found


def comment_uids(connection: sa.Connection, dataset_id: int) -> set[str]:
    """The comments of a dataset that can be resolved."""
    query = sa.select(comment.c.uid).where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    return set(connection.execute(query).scalars())


def _name_old(connection: sa.Connection, dataset_id: int) -> None:
    """Decisions of before there were uids get theirs, the one under which `events` gives them out."""
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
        words = {**row, "profile": row["ordinal"], "attribute": row["key"]}
        given.append({"this": row["id"], "given": nameless.uid(words)})
    statement = sa.update(decision).where(decision.c.id == sa.bindparam("this")).values(uid=sa.bindparam("given"))
    connection.execute(statement, given)


def _link(connection: sa.Connection, dataset_id: int, table: sa.Table, fresh: Sequence[Event]) -> None:
    """Let each event supersede the one before it of the same person on the same pair or flow."""
    second = table.c.response if table is audit else table.c.context
    of = "response_id" if table is audit else "context_id"
    touched = {(event["annotator"], event["attribute_id"], event[of]) for event in fresh}
    groups: dict[tuple[str, int, int], list[sa.RowMapping]] = {}
    columns = (table.c.id, table.c.annotator, table.c.attribute, second.label("at"), table.c.supersedes)
    for people in _chunks(sorted({who for who, _, _ in touched})):
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


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    every = list(items)
    for start in range(0, len(every), CHUNK):
        yield every[start : start + CHUNK]
