"""Audits: what people say of whether a response reveals an attribute. Append-only, and beside the judges' judgements,
never over them.

    response attribute annotator verdict  blind
    4711     17        Ada       full     true
    4711     17        Ada       (none)   true     taken back

The verdicts are the judges' strengths and `none`, not revealed. An undo is one more row; its reason names what it
takes away, so that a merged record undoes the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import sqlalchemy as sa

from cimemories.model import Strength
from cimemories.store.engine import StoreError, insert_ignore, plain_name, storable
from cimemories.store.ids import later_than, now
from cimemories.store.review_tables import audit
from cimemories.store.tables import attribute, profile, response

CHUNK = 2000  # ids of one IN list
_UNDO_OF = "undo of "
Flow = tuple[int, int]  # (response, attribute)


class AuditVerdict(StrEnum):
    """How much of an attribute a person finds in a message: a judge's strength, or nothing."""

    FULL = "full"
    PARTIAL = "partial"
    IMPLIED = "implied"
    NONE = "none"


@dataclass(frozen=True)
class Said:
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


def add_all(connection: sa.Connection, dataset_id: int, annotator: str, said: Sequence[Said]) -> int:
    """Append verdicts of one annotator in their order; those whose uid the dataset has already are left out.

    Each supersedes the annotator's last one on its flow. Returns how many are new. The dataset's revision stays: only
    what asks for people's verdicts rests on them. Raises StoreError where a response and an attribute are not of one
    profile of this dataset.
    """
    _check(connection, dataset_id, {(item.response, item.attribute) for item in said})
    times: dict[Flow, str] = {}
    last: dict[Flow, int] = {}
    for r, a, newest, created in _in_chunks(
        connection,
        sa.select(audit.c.response, audit.c.attribute, sa.func.max(audit.c.id), sa.func.max(audit.c.created))
        .where(audit.c.dataset == dataset_id, audit.c.annotator == annotator)
        .group_by(audit.c.response, audit.c.attribute),
        audit.c.response,
        {item.response for item in said},
    ):
        last[int(r), int(a)], times[int(r), int(a)] = int(newest), str(created)
    new = 0
    for item in said:
        values = {
            **vars(item),
            "dataset": dataset_id,
            "annotator": plain_name(annotator, "annotator"),
            "verdict": None if item.verdict is None else str(AuditVerdict(item.verdict)),
            "reason": storable(item.reason),
            "supersedes": last.get((item.response, item.attribute)),
            "created": item.created or later_than(times.get((item.response, item.attribute), ""), now()),
        }
        row = connection.execute(insert_ignore(connection, audit).values(**values).returning(audit.c.id)).first()
        if row is not None:
            last[item.response, item.attribute] = int(row.id)
            times[item.response, item.attribute] = max(
                values["created"], times.get((item.response, item.attribute), "")
            )
            new += 1
    return new


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
    back = Said(flow.response, flow.attribute, before, new_uid, f"{_UNDO_OF}{uid}")
    return add_all(connection, dataset_id, annotator, [back]) == 1


def is_known(connection: sa.Connection, dataset_id: int, uid: str) -> bool:
    """Whether the dataset has an event of this uid."""
    found = sa.select(audit.c.id).where(audit.c.dataset == dataset_id, audit.c.uid == uid)
    return connection.execute(found).first() is not None


def last_said(connection: sa.Connection, dataset_id: int, annotator: str, flows: Iterable[Flow]) -> Audit | None:
    """The annotator's newest verdict on any of these flows that an undo would take back; None: there is none left."""
    wanted, stacks = set(flows), dict[Flow, list[Audit]]()
    for item in history(connection, dataset_id, annotator):
        if item.flow in wanted:
            stacks.setdefault(item.flow, []).append(item)
    tops = [stack[-1] for stack in map(_stack, stacks.values()) if stack]
    return max(tops, key=lambda item: item.id) if tops else None


def history(connection: sa.Connection, dataset_id: int, annotator: str | None = None) -> list[Audit]:
    """Every audit of a dataset, oldest first; one annotator's where given."""
    own = audit.c.dataset == dataset_id
    return _audits(connection, own if annotator is None else sa.and_(own, audit.c.annotator == annotator))


def of_run(connection: sa.Connection, run_id: str) -> list[Audit]:
    """Every audit of a run's responses, oldest first."""
    responses = sa.select(response.c.id).where(response.c.run == run_id)
    return _audits(connection, audit.c.response.in_(responses))


def standing(audits: Iterable[Audit]) -> dict[Flow, Audit]:
    """The newest verdict that stands on each flow, by time and then uid, as with decisions: superseded and taken-back
    ones do not."""
    known = list(audits)
    superseded = {item.supersedes for item in known if item.supersedes is not None}
    stand: dict[Flow, Audit] = {}
    for item in sorted(known, key=lambda item: (item.created, item.uid)):
        if item.verdict is not None and item.id not in superseded:
            stand[item.flow] = item
    return stand


def version(connection: sa.Connection, run_id: str) -> tuple[int, int]:
    """(how many, the newest id) of the audits of a run: changes with every new one; (0, 0) where nobody has audited."""
    query = (
        sa.select(sa.func.count(), sa.func.coalesce(sa.func.max(audit.c.id), 0))
        .join(response, audit.c.response == response.c.id)
        .where(response.c.run == run_id)
    )
    count, newest = connection.execute(query).one()
    return int(count), int(newest)


def places(connection: sa.Connection, flows: Iterable[Flow]) -> dict[Flow, tuple[int, str]]:
    """(context, level) of each flow whose response is there."""
    wanted = list(flows)
    query = sa.select(response.c.id, response.c.context, response.c.level)
    found = {r.id: (int(r.context), str(r.level)) for r in _in_chunks(connection, query, response.c.id, _ids(wanted))}
    return {flow: found[flow[0]] for flow in wanted if flow[0] in found}


def datasets_of(connection: sa.Connection, responses: Iterable[int]) -> dict[int, int]:
    """The dataset of each of these responses that is there."""
    query = sa.select(response.c.id, profile.c.dataset).join(profile, profile.c.id == response.c.profile)
    return {int(r): int(d) for r, d in _in_chunks(connection, query, response.c.id, responses)}


def _ids(flows: Iterable[Flow]) -> set[int]:
    return {item for item, _ in flows}


def _check(connection: sa.Connection, dataset_id: int, flows: set[Flow]) -> None:
    """Every response must be of the dataset, and its attribute of the very profile that it was written for."""
    query = sa.select(response.c.id, attribute.c.id.label("attribute")).join(
        attribute, attribute.c.profile == response.c.profile
    )
    query = query.join(profile, profile.c.id == response.c.profile).where(profile.c.dataset == dataset_id)
    query = query.where(attribute.c.id.in_({a for _, a in flows})) if len(flows) <= CHUNK else query
    known = {(int(r), int(a)) for r, a in _in_chunks(connection, query, response.c.id, _ids(flows))}
    wrong = flows - known
    if wrong:
        there = ", ".join(f"response {r} and attribute {a}" for r, a in sorted(wrong)[:3])
        raise StoreError(
            f"a verdict needs a response and an attribute of one profile of this dataset: {there} are not."
        )


def _in_chunks(
    connection: sa.Connection, query: sa.Select, column: sa.ColumnElement[int], ids: Iterable[int]
) -> list[sa.Row]:
    wanted = sorted(set(ids))
    parts = (wanted[start : start + CHUNK] for start in range(0, len(wanted), CHUNK))
    return [row for part in parts for row in connection.execute(query.where(column.in_(part)))]


def _stack(audits: Iterable[Audit]) -> list[Audit]:
    """What one annotator has said of one flow and not undone: an undo takes the top away that it names."""
    stack: list[Audit] = []
    for item in sorted(audits, key=lambda item: item.id):
        if stack and item.undoes == stack[-1].uid:
            stack.pop()
        else:
            stack.append(item)
    return stack


def _audits(connection: sa.Connection, where: sa.ColumnElement[bool]) -> list[Audit]:
    names = [name for name in Audit.__dataclass_fields__ if name != "verdict"]
    rows = connection.execute(sa.select(audit).where(where).order_by(audit.c.id)).mappings()
    return [
        Audit(
            **{name: row[name] for name in names},
            verdict=None if row["verdict"] is None else AuditVerdict(row["verdict"]),
        )
        for row in rows
    ]


def says_revealed(verdict: AuditVerdict | Strength | None, *, any_strength: bool = False) -> bool:
    """Whether a verdict, or a judge's claim, counts as a reveal: in full, or of any strength; None and `none` never."""
    if verdict is None or verdict == AuditVerdict.NONE:
        return False
    return any_strength or verdict == AuditVerdict.FULL
