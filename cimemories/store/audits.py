"""People's verdicts on judgements, and the random slices of pairs or claims that they work through. Append-only."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from cimemories.model import AuditVerdict as AuditVerdict
from cimemories.model import Label, Strength
from cimemories.store import decisions
from cimemories.store.engine import StoreError, now, one_line, plain_name
from cimemories.store.rows import CHUNK, count, exists, fetch, insert, insert_new, rows_in_chunks
from cimemories.store.tables import attribute, audit, profile, response, review_import, run, slice_item
from cimemories.store.tables import slice as slice_table

# ---- slices
#
# Stratified random samples for audits, drawn once: of pairs (kind labels), of what responses are said to reveal (kind
# judgements), or of attributes with the responses that may leak them (kind attributes), one item a response: those of
# an attribute one after the other, with its stratum and weight.


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
    """Write a slice with its items in their order; return its id. Raises StoreError for an empty, too long or taken
    name (a dataset's slices of all kinds share them), an unknown kind, a missing annotator, no items, or a slice of
    responses whose items name none."""
    title, who = plain_name(one_line(name), "slice"), plain_name(one_line(annotator), "annotator")
    if kind not in KINDS:
        raise StoreError(f"'{kind}' is no kind of slice. Choose {', '.join(KINDS[:-1])} or {KINDS[-1]}.")
    if not title or len(title) > LONGEST_SLICE_NAME:
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
        "name": title,
        "seed": int(seed),
        "manifest": dict(manifest),
        "annotator": who[:LONGEST_SLICE_NAME],
        "created": now(),
    }
    written, ids = insert_new(connection, slice_table, [values], ["id"])
    if not written:
        raise StoreError(f"a slice named '{title}' exists already. Choose another name, or delete that one first.")
    slice_id = int(ids[0][0])
    _insert_items(connection, slice_id, items)
    return slice_id


def _insert_items(connection: sa.Connection, slice_id: int, items: Sequence[SliceItem], begin: int = 0) -> None:
    rows = ({"slice": slice_id, "ordinal": n, **vars(item)} for n, item in enumerate(items, begin))
    insert(connection, slice_item, rows)


def all_slices(connection: sa.Connection, dataset_id: int, kind: str | None = None) -> list[SliceRow]:
    """Return the slices of a dataset, oldest first; of one kind if given."""
    of_dataset = slice_table.c.dataset == dataset_id
    return _slices(connection, of_dataset if kind is None else sa.and_(of_dataset, slice_table.c.kind == kind))


def slice_row(connection: sa.Connection, slice_id: int) -> SliceRow:
    """Return the slice of this id. Raises StoreError if it is not there, or not any more."""
    rows = _slices(connection, slice_table.c.id == slice_id)
    if not rows:
        raise StoreError(f"there is no slice {slice_id}, or it was deleted. Choose one from the list.")
    return rows[0]


def slice_items(connection: sa.Connection, slice_id: int) -> list[SliceItem]:
    """Return what was drawn, in the order in which it was; empty for an unknown slice."""
    query = sa.select(slice_item).where(slice_item.c.slice == slice_id, DRAWN).order_by(slice_item.c.ordinal)
    return fetch(connection, query, SliceItem)


def delete_slice(connection: sa.Connection, slice_id: int) -> None:
    """Forget a slice and what was drawn for it; people's verdicts on its items stay."""
    connection.execute(sa.delete(slice_table).where(slice_table.c.id == slice_id))


def _slices(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[SliceRow]:
    # Counted apart and joined: slices then have one row each, and manifests are no part of a grouping.
    drawn = sa.select(slice_item.c.slice, sa.func.count().label("size")).where(DRAWN)
    sizes = drawn.group_by(slice_item.c.slice).subquery("sizes")
    query = (
        sa.select(slice_table, sa.func.coalesce(sizes.c.size, 0).label("items"))
        .outerjoin(sizes, sizes.c.slice == slice_table.c.id)
        .where(where)
        .order_by(slice_table.c.id)
    )
    return fetch(connection, query, SliceRow)


# ---- pairs with known answers, beside what was drawn of a slice of labels
#
# They are items of weight 0, since they stand for no others, whose stratum says what they are for and the answer:
# 'training / necessary', 'test / inappropriate'. Training comes before the slice, tests are mixed into it.


TRAINING, TEST = "training", "test"
DRAWN = slice_item.c.weight > 0
IN_QUEUE = sa.or_(DRAWN, slice_item.c.stratum.startswith(TEST))  # what a person decides in a slice of labels


@dataclass(frozen=True)
class KnownPair:
    """A pair with its known answer. use: TRAINING or TEST."""

    attribute: int
    context: int
    label: Label
    use: str

    @property
    def pair(self) -> tuple[int, int]:
        return self.attribute, self.context


def set_known(connection: sa.Connection, slice_id: int, pairs: Sequence[KnownPair]) -> None:
    """Let a slice have these pairs with known answers, in the place of those before."""
    connection.execute(sa.delete(slice_item).where(slice_item.c.slice == slice_id, ~DRAWN))
    last = sa.select(sa.func.max(slice_item.c.ordinal)).where(slice_item.c.slice == slice_id)
    items = [SliceItem(*known.pair, None, f"{known.use} / {known.label}", 0.0) for known in pairs]
    _insert_items(connection, slice_id, items, 1 + int(connection.scalar(last) or 0))


def known_pairs(connection: sa.Connection, slice_ids: Iterable[int]) -> dict[int, list[KnownPair]]:
    """Return the pairs with known answers of each of these slices, in their order; slices without any are left out."""
    query = sa.select(slice_item).where(~DRAWN).order_by(slice_item.c.ordinal)
    known: dict[int, list[KnownPair]] = {}
    for row in rows_in_chunks(connection, query, slice_item.c.slice, slice_ids):
        use, _, label = row["stratum"].partition(" / ")
        known.setdefault(row["slice"], []).append(KnownPair(row["attribute"], row["context"], Label(label), use))
    return known


# ---- audits
#
# People's verdicts on whether a response reveals an attribute. Append-only, and beside the judges' judgements, never
# over them.
#
#     response attribute annotator verdict  blind
#     4711     17        Ada       full     true
#     4711     17        Ada       (none)   true     taken back
#
# The verdicts are the judges' strengths and `none`, not revealed. An undo is one more row; its reason names what it
# takes away, so that a merged record undoes the same.


_UNDO_OF = "undo of "
Flow = tuple[int, int]  # (response, attribute)


@dataclass(frozen=True)
class NewVerdict:
    """A verdict to be recorded; None takes back what the annotator said before. uid: given by the browser or file that
    made it, so that it is recorded once however often it is sent. seconds: taken over it. blind: the judge was not in
    sight."""

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
    def place(self) -> Flow:
        return self.response, self.attribute

    @property
    def value(self) -> AuditVerdict | None:
        return self.verdict

    def undoes(self, before: Audit) -> bool:
        """Return whether it takes the verdict before it on its flow away."""
        return self.reason == f"{_UNDO_OF}{before.uid}"


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, new: Sequence[NewVerdict]) -> int:
    """Append verdicts as `decisions.append` does; return how many are new. The dataset's revision stays: only what asks
    for people's verdicts rests on them. Raises StoreError if a response and an attribute are not of one profile of this
    dataset."""
    # Foreign keys only say that both are there, not that they belong together.
    flows = {(item.response, item.attribute) for item in new}
    query = (
        sa.select(response.c.id, attribute.c.id.label("attribute"))
        .join(attribute, attribute.c.profile == response.c.profile)
        .join(profile, profile.c.id == response.c.profile)
        .where(profile.c.dataset == dataset_id)
    )
    # Without the list the rows are all attributes of each response, which a set of flows picks from below.
    query = query.where(attribute.c.id.in_({a for _, a in flows})) if len(flows) <= CHUNK else query
    rows = rows_in_chunks(connection, query, response.c.id, (r for r, _ in flows))
    if wrong := flows - {(row["id"], row["attribute"]) for row in rows}:
        there = ", ".join(f"response {r} and attribute {a}" for r, a in sorted(wrong)[:3])
        raise StoreError(
            f"a verdict needs a response and an attribute of one profile of this dataset: {there} are not."
        )
    decisions.take_turns(connection, dataset_id, annotator)
    return decisions.append(connection, audit, ("response", "attribute"), dataset_id, annotator, new)


def undo(connection: sa.Connection, dataset_id: int, annotator: str, uid: str, new_uid: str) -> bool:
    """Take one verdict back: what the annotator had said of the flow before it stands again. Return False, and write
    nothing, if there is no such verdict of theirs or they have said something else since."""
    by_annotator = audit.c.dataset == dataset_id, audit.c.annotator == annotator
    flow = sa.select(audit.c.response, audit.c.attribute).where(*by_annotator, audit.c.uid == uid)
    of_flow = _audits(connection, *by_annotator, sa.tuple_(audit.c.response, audit.c.attribute).in_(flow))
    for place, stack in decisions.stacks(of_flow).items():
        if stack and stack[-1].uid == uid:
            before = stack[-2].verdict if len(stack) > 1 else None
            back = NewVerdict(*place, before, new_uid, f"{_UNDO_OF}{uid}")
            return add_all(connection, dataset_id, annotator, [back]) == 1
    return False


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Return whether the dataset has an event of this uid."""
    return exists(connection, audit.c.dataset == dataset_id, audit.c.uid == uid)


def last_verdict(connection: sa.Connection, dataset_id: int, annotator: str, flows: Iterable[Flow]) -> Audit | None:
    """Return the annotator's newest verdict on any of these flows that an undo would take back, or None."""
    among = set(flows)
    made = (item for item in history(connection, dataset_id, annotator) if item.place in among)
    tops = [stack[-1] for stack in decisions.stacks(made).values() if stack]
    # Of several flows, saved in one go at one moment, the last is the one written last: uids say nothing of that.
    return max(tops, key=lambda item: (item.created, item.id), default=None)


def history(connection: sa.Connection, dataset_id: int, annotator: str | None = None) -> list[Audit]:
    """Return every audit of a dataset, oldest first; one annotator's if given."""
    by_annotator = () if annotator is None else (audit.c.annotator == annotator,)
    return _audits(connection, audit.c.dataset == dataset_id, *by_annotator)


def of_run(connection: sa.Connection, run_id: str) -> list[Audit]:
    """Return every audit of a run's responses, oldest first."""
    return _audits(connection, audit.c.response.in_(sa.select(response.c.id).where(response.c.run == run_id)))


def on(connection: sa.Connection, responses: Sequence[int]) -> list[Audit]:
    """Return every audit of these responses, oldest first; few enough for one query."""
    return _audits(connection, audit.c.response.in_(responses))


def _audits(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> list[Audit]:
    return sorted(fetch(connection, sa.select(audit).where(*where), Audit), key=decisions.moment)


@dataclass(frozen=True)
class StandingVerdict:
    """People's standing verdict on an attribute in a response to this context, with this memory (None: all
    attributes)."""

    response: int
    attribute: int
    context: int
    memory: str | None
    revealed: bool


def standing_verdicts(connection: sa.Connection, run_id: str) -> tuple[StandingVerdict, ...]:
    """Return people's standing verdicts on the responses of a run; only in full counts as revealed."""
    query = sa.select(response.c.id, response.c.context, response.c.memory)
    audited = query.where(response.c.run == run_id, response.c.id.in_(sa.select(audit.c.response)))
    places = {int(row.id): (int(row.context), row.memory) for row in connection.execute(audited)}
    return tuple(
        StandingVerdict(of, item.attribute, *places[of], says_revealed(item.verdict))
        for (of, _), item in decisions.standing(of_run(connection, run_id)).items()
    )


def version(connection: sa.Connection, run_id: str) -> tuple[int, int, int]:
    """Return (how many, the newest id) of the audits of a run, and how many imports of events were undone in its
    dataset: it changes with every new one, and when some are removed; (0, 0, 0) without audits."""
    query = (
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.max(audit.c.id), 0))
        .join(response, audit.c.response == response.c.id)
        .where(response.c.run == run_id)
    )
    number, newest = connection.execute(query).one()
    # Ids of removed rows come again in SQLite, so that the two numbers alone could, too.
    imports = review_import.join(run, run.c.dataset == review_import.c.dataset)
    undone = count(connection, imports, run.c.id == run_id, review_import.c.undone.is_not(None))
    return int(number), int(newest), undone


def in_run(connection: sa.Connection, run_id: str, created: str, responses: Iterable[int]) -> set[int]:
    """Return those of the responses that are of this run. created: when the run was made, since a later run may have
    its id, and the ids of its responses."""
    query = sa.select(response.c.id).join(run, run.c.id == response.c.run)
    of_run = query.where(run.c.id == run_id, run.c.created == created)
    return {row["id"] for row in rows_in_chunks(connection, of_run, response.c.id, responses)}


def says_revealed(verdict: AuditVerdict | Strength | None, *, any_strength: bool = False) -> bool:
    """Return whether a verdict, or a judge's claim, counts as a reveal: in full, or of any strength; None and `none`
    never."""
    if verdict is None or verdict == AuditVerdict.NONE:
        return False
    return any_strength or verdict == AuditVerdict.FULL
