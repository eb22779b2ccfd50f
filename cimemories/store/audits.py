"""What people say of judgements, and the random slices of pairs or claims that they work through. Append-only."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import sqlalchemy as sa

from cimemories.model import Strength
from cimemories.store.engine import (
    CHUNK,
    StoreError,
    canonical_json,
    in_chunks,
    insert_ignore,
    later_than,
    now,
    one_line,
    plain_name,
    rows_in_chunks,
    storable,
    values_of,
)
from cimemories.store.tables import attribute, audit, profile, response, review_import, run, slice_item
from cimemories.store.tables import slice as slice_table

# ---- slices
#
# Slices: stratified random samples for audits, drawn once and kept. Of pairs (kind labels), of what responses are said
# to reveal (kind judgements), or of attributes with the responses that may leak them (kind attributes), one item a
# response: those of an attribute one after the other, with its stratum and weight.


SLICE_LABELS, JUDGEMENTS, ATTRIBUTES = "labels", "judgements", "attributes"
KINDS = (SLICE_LABELS, JUDGEMENTS, ATTRIBUTES)
LONGEST_SLICE_NAME = 80


@dataclass(frozen=True)
class SliceItem:
    """One drawn item: a pair, in a slice of judgements or attributes of one response. weight: how many of the
    population it, or its attribute, stands for (size of its stratum over how many were drawn from it)."""

    attribute: int
    context: int
    response: int | None
    stratum: str
    weight: float


@dataclass(frozen=True)
class SliceRow:
    """One slice. manifest: what it was drawn from and how, as the drawing wrote it; items: how many were drawn."""

    id: int
    dataset: int
    kind: str
    name: str
    seed: int
    manifest: dict[str, object]
    annotator: str
    created: str
    items: int


def add_slice(
    connection: sa.Connection,
    dataset_id: int,
    kind: str,
    name: str,
    seed: int,
    manifest: Mapping[str, object],
    annotator: str,
    items: Sequence[SliceItem],
) -> int:
    """Keep a slice with its items in their order; returns its id. Raises StoreError for an empty, too long or taken
    name (a dataset's slices of all kinds share them), an unknown kind, a missing annotator, no items, or a slice of
    responses whose items name none."""
    wanted, who = plain_name(one_line(name), "slice"), plain_name(one_line(annotator), "annotator")
    if kind not in KINDS:
        raise StoreError(f"'{kind}' is no kind of slice. Choose {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    if not wanted or len(wanted) > LONGEST_SLICE_NAME:
        raise StoreError(f"a slice needs a name of 1 to {LONGEST_SLICE_NAME} characters.")
    if not who:
        raise StoreError("a slice needs the name of who draws it.")
    if not items:
        raise StoreError("there is nothing to sample from, so the slice would be empty.")
    if kind != SLICE_LABELS and any(item.response is None for item in items):
        raise StoreError(f"every item of a slice of {kind} needs its response.")
    values = {
        "dataset": dataset_id,
        "kind": kind,
        "name": wanted,
        "seed": int(seed),
        "manifest": canonical_json(dict(manifest)),
        "annotator": who[:LONGEST_SLICE_NAME],
        "created": now(),
    }
    row = connection.execute(
        insert_ignore(connection, slice_table).values(**values).returning(slice_table.c.id)
    ).first()
    if row is None:
        raise StoreError(f"a slice named '{wanted}' exists already. Choose another name, or delete that one first.")
    for chunk in in_chunks({"slice": int(row[0]), "ordinal": n, **vars(item)} for n, item in enumerate(items)):
        connection.execute(sa.insert(slice_item), chunk)
    return int(row[0])


def all_slices(connection: sa.Connection, dataset_id: int, kind: str | None = None) -> list[SliceRow]:
    """The slices of a dataset, oldest first; of one kind where given."""
    own = slice_table.c.dataset == dataset_id
    return _rows(connection, own if kind is None else sa.and_(own, slice_table.c.kind == kind))


def slice_row(connection: sa.Connection, slice_id: int) -> SliceRow:
    """The slice of this id. Raises StoreError where it is not there (any more)."""
    rows = _rows(connection, slice_table.c.id == slice_id)
    if not rows:
        raise StoreError(f"there is no slice {slice_id}, or it was deleted. Choose one from the list.")
    return rows[0]


def slice_items(connection: sa.Connection, slice_id: int) -> list[SliceItem]:
    """What was drawn, in the order in which it was; empty for an unknown slice."""
    query = sa.select(slice_item).where(slice_item.c.slice == slice_id).order_by(slice_item.c.ordinal)
    return [
        SliceItem(row.attribute, row.context, row.response, row.stratum, float(row.weight))
        for row in connection.execute(query)
    ]


def delete_slice(connection: sa.Connection, slice_id: int) -> None:
    """Forget a slice and what was drawn for it; what people said of its items stays. Nothing for an unknown one."""
    connection.execute(sa.delete(slice_item).where(slice_item.c.slice == slice_id))
    connection.execute(sa.delete(slice_table).where(slice_table.c.id == slice_id))


def _rows(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[SliceRow]:
    # Counted apart and joined: slices then have one row each, and manifests are no part of a grouping.
    sizes = sa.select(slice_item.c.slice, sa.func.count().label("size")).group_by(slice_item.c.slice).subquery("sizes")
    query = (
        sa.select(slice_table, sa.func.coalesce(sizes.c.size, 0).label("items"))
        .outerjoin(sizes, sizes.c.slice == slice_table.c.id)
        .where(where)
        .order_by(slice_table.c.id)
    )
    return [
        SliceRow(**{**row, "manifest": json.loads(row["manifest"]), "items": int(row["items"])})
        for row in connection.execute(query).mappings()
    ]


# ---- audits
#
# Audits: what people say of whether a response reveals an attribute. Append-only, and beside the judges' judgements,
# never over them.
#
#     response attribute annotator verdict  blind
#     4711     17        Ada       full     true
#     4711     17        Ada       (none)   true     taken back
#
# The verdicts are the judges' strengths and `none`, not revealed. An undo is one more row; its reason names what it
# takes away, so that a merged record undoes the same.


_UNDO_OF = "undo of "
Flow = tuple[int, int]  # (response, attribute)


class AuditVerdict(StrEnum):
    """How much of an attribute a person finds in a message: a judge's strength, or nothing."""

    FULL = "full"
    PARTIAL = "partial"
    IMPLIED = "implied"
    NONE = "none"


@dataclass(frozen=True)
class NewVerdict:
    """A verdict that is to be recorded; None takes back what the annotator said before. uid: given by whoever made it,
    so that it is recorded once however often it is sent. seconds: taken over it. blind: the judge was not in sight."""

    response: int
    attribute: int
    verdict: AuditVerdict | None
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    reason: str = ""
    seconds: float | None = None
    blind: bool = False
    created: str | None = None


@dataclass(frozen=True)
class Audit:
    """One event as it stands in the record."""

    id: int
    uid: str
    response: int
    attribute: int
    annotator: str
    verdict: AuditVerdict | None
    reason: str
    seconds: float | None
    blind: bool
    supersedes: int | None
    created: str

    @property
    def flow(self) -> Flow:
        return self.response, self.attribute

    @property
    def undoes(self) -> str | None:
        """The uid of the event that this one takes away; None for a verdict."""
        return self.reason.removeprefix(_UNDO_OF) if self.reason.startswith(_UNDO_OF) else None


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, new: Sequence[NewVerdict]) -> int:
    """Append verdicts of one annotator in their order; those whose uid the dataset has already are left out.

    Each supersedes the annotator's last one on its flow. Returns how many are new. The dataset's revision stays: only
    what asks for people's verdicts rests on them. Raises StoreError where a response and an attribute are not of one
    profile of this dataset.
    """
    # Foreign keys only say that both are there, not that they belong together.
    _check(connection, dataset_id, {(item.response, item.attribute) for item in new})
    times: dict[Flow, str] = {}
    last: dict[Flow, int] = {}
    columns = (audit.c[name] for name in ("created", "uid", "id", "response", "attribute"))
    mine = sa.select(*columns).where(audit.c.dataset == dataset_id, audit.c.annotator == annotator)
    known = rows_in_chunks(connection, mine, audit.c.response, (item.response for item in new))
    for earlier in sorted(known, key=lambda each: (each["created"], each["uid"])):
        flow = earlier["response"], earlier["attribute"]
        # By time, so what stays is the newest: an import may have brought an older one since.
        last[flow], times[flow] = earlier["id"], earlier["created"]
    written = 0
    for item in new:
        flow = item.response, item.attribute
        before = times.get(flow, "")
        values = {
            **vars(item),
            "dataset": dataset_id,
            "annotator": plain_name(annotator, "annotator"),
            "verdict": None if item.verdict is None else str(AuditVerdict(item.verdict)),
            "reason": storable(item.reason),
            "supersedes": last.get(flow),
            "created": item.created or later_than(before, now()),
        }
        # One by one: the next may be on the same flow, and needs this one's id. A known uid returns no row.
        row = connection.execute(insert_ignore(connection, audit).values(**values).returning(audit.c.id)).first()
        if row is not None:
            last[flow] = int(row.id)
            # An event may bring an older time of its own; what follows must still be later than all.
            times[flow] = max(values["created"], before)
            written += 1
    return written


def undo(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Take one verdict back: what the annotator had said of the flow before it stands again. False, and nothing is
    written, where there is no such verdict of theirs or they have said something else since."""
    flow = connection.execute(
        sa.select(audit.c.response, audit.c.attribute).where(
            audit.c.dataset == dataset_id, audit.c.uid == uid, audit.c.annotator == annotator
        )
    ).first()
    if flow is None:
        return False
    of_flow = audit.c.response == flow.response, audit.c.attribute == flow.attribute, audit.c.annotator == annotator
    stack = _stack(_audits(connection, sa.and_(audit.c.dataset == dataset_id, *of_flow)))
    if not stack or stack[-1].uid != uid:
        return False
    before = stack[-2].verdict if len(stack) > 1 else None
    back = NewVerdict(flow.response, flow.attribute, before, new_uid, f"{_UNDO_OF}{uid}")
    return add_all(connection, dataset_id, annotator, [back]) == 1


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Whether the dataset has an event of this uid."""
    query = sa.select(audit.c.id).where(audit.c.dataset == dataset_id, audit.c.uid == uid)
    return connection.execute(query).first() is not None


def last_verdict(connection: sa.Connection, dataset_id: int, annotator: str, flows: Iterable[Flow]) -> Audit | None:
    """The annotator's newest verdict on any of these flows that an undo would take back; None: there is none left."""
    wanted, stacks = set(flows), dict[Flow, list[Audit]]()
    for item in history(connection, dataset_id, annotator):
        if item.flow in wanted:
            stacks.setdefault(item.flow, []).append(item)
    tops = [stack[-1] for stack in map(_stack, stacks.values()) if stack]
    # Of several flows, saved in one go at one moment, the last is the one written last: uids say nothing of that.
    return max(tops, key=lambda item: (item.created, item.id), default=None)


def history(connection: sa.Connection, dataset_id: int, annotator: str | None = None) -> list[Audit]:
    """Every audit of a dataset, oldest first; one annotator's where given."""
    own = audit.c.dataset == dataset_id
    return _audits(connection, own if annotator is None else sa.and_(own, audit.c.annotator == annotator))


def of_run(connection: sa.Connection, run_id: str) -> list[Audit]:
    """Every audit of a run's responses, oldest first."""
    responses = sa.select(response.c.id).where(response.c.run == run_id)
    return _audits(connection, audit.c.response.in_(responses))


def on(connection: sa.Connection, responses: Sequence[int]) -> list[Audit]:
    """Every audit of these responses, oldest first; few enough for one query."""
    return _audits(connection, audit.c.response.in_(responses))


def standing(audits: Iterable[Audit]) -> dict[Flow, Audit]:
    """The newest verdict that stands on each flow, by time and then uid, as with decisions: superseded and taken-back
    ones do not."""
    known = list(audits)
    superseded = {item.supersedes for item in known if item.supersedes is not None}
    stand: dict[Flow, Audit] = {}
    for item in sorted(known, key=_moment):
        if item.verdict is not None and item.id not in superseded:
            stand[item.flow] = item
    return stand


@dataclass(frozen=True)
class StandingVerdict:
    """Whether people say that a response, to this context and with this memory (None: whole), reveals an attribute."""

    response: int
    attribute: int
    context: int
    memory: str | None
    revealed: bool


def standing_verdicts(connection: sa.Connection, run_id: str) -> tuple[StandingVerdict, ...]:
    """People's standing verdicts on the responses of a run; only in full counts as revealed."""
    query = sa.select(response.c.id, response.c.context, response.c.memory)
    audited = query.where(response.c.run == run_id, response.c.id.in_(sa.select(audit.c.response)))
    places = {int(row.id): (int(row.context), row.memory) for row in connection.execute(audited)}
    return tuple(
        StandingVerdict(of, item.attribute, *places[of], says_revealed(item.verdict))
        for (of, _), item in standing(of_run(connection, run_id)).items()
    )


def version(connection: sa.Connection, run_id: str) -> tuple[int, int, int]:
    """(how many, the newest id) of the audits of a run, and how many imports of events were undone in its dataset:
    changes with every new one, and where some are removed; (0, 0, 0) where nobody has audited."""
    query = (
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.max(audit.c.id), 0))
        .join(response, audit.c.response == response.c.id)
        .where(response.c.run == run_id)
    )
    count, newest = connection.execute(query).one()
    # Ids of removed rows come again in SQLite, so that the two numbers alone could, too.
    undone = (
        sa.select(sa.func.count())
        .select_from(review_import.join(run, run.c.dataset == review_import.c.dataset))
        .where(run.c.id == run_id, review_import.c.undone.is_not(None))
    )
    return int(count), int(newest), int(connection.execute(undone).scalar_one())


def places(connection: sa.Connection, flows: Iterable[Flow]) -> dict[Flow, tuple[int, str]]:
    """(context, level) of each flow whose response is there."""
    wanted = list(flows)
    query = sa.select(response.c.id, response.c.context, response.c.level)
    rows = rows_in_chunks(connection, query, response.c.id, (r for r, _ in wanted))
    by_response = {row["id"]: (row["context"], row["level"]) for row in rows}
    return {flow: by_response[flow[0]] for flow in wanted if flow[0] in by_response}


def datasets_of(connection: sa.Connection, responses: Iterable[int]) -> dict[int, int]:
    """The dataset of each of these responses that is there."""
    query = sa.select(response.c.id, profile.c.dataset).join(profile, profile.c.id == response.c.profile)
    return {row["id"]: row["dataset"] for row in rows_in_chunks(connection, query, response.c.id, responses)}


def _check(connection: sa.Connection, dataset_id: int, flows: set[Flow]) -> None:
    """Every response must be of the dataset, and its attribute of the very profile that it was written for."""
    query = sa.select(response.c.id, attribute.c.id.label("attribute")).join(
        attribute, attribute.c.profile == response.c.profile
    )
    query = query.join(profile, profile.c.id == response.c.profile).where(profile.c.dataset == dataset_id)
    # Without the list the rows are all attributes of each response, which a set of flows picks from below.
    query = query.where(attribute.c.id.in_({a for _, a in flows})) if len(flows) <= CHUNK else query
    rows = rows_in_chunks(connection, query, response.c.id, (r for r, _ in flows))
    if wrong := flows - {(row["id"], row["attribute"]) for row in rows}:
        there = ", ".join(f"response {r} and attribute {a}" for r, a in sorted(wrong)[:3])
        raise StoreError(
            f"a verdict needs a response and an attribute of one profile of this dataset: {there} are not."
        )


def _stack(audits: Iterable[Audit]) -> list[Audit]:
    """What one annotator has said of one flow and not undone: an undo takes the top away that it names."""
    stack: list[Audit] = []
    for item in sorted(audits, key=_moment):
        if stack and item.undoes == stack[-1].uid:
            stack.pop()
        else:
            stack.append(item)
    return stack


def _moment(item: Audit) -> tuple[str, str]:
    """Orders by the time it was said and then by uid: ids tell in which order verdicts came into this record, which is
    another one where events were imported."""
    return item.created, item.uid


def _audits(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Audit]:
    rows = connection.execute(sa.select(audit).where(where)).mappings()
    verdicts = ((row, row["verdict"] and AuditVerdict(row["verdict"])) for row in rows)
    # Ordered here and not in the database, whose order of texts may be another one.
    every = (Audit(**values_of(row, Audit, "verdict"), verdict=verdict) for row, verdict in verdicts)
    return sorted(every, key=_moment)


def says_revealed(verdict: AuditVerdict | Strength | None, *, any_strength: bool = False) -> bool:
    """Whether a verdict, or a judge's claim, counts as a reveal: in full, or of any strength; None and `none` never."""
    if verdict is None or verdict == AuditVerdict.NONE:
        return False
    return any_strength or verdict == AuditVerdict.FULL
