"""The history of changes by hand: append-only, one row a change, with what stood there before and after.

A change is of an attribute, of a context or of the biography of one profile, or of a context in all profiles. Its two
sides are plain JSON objects:

    attribute   {"key", "value", "domain", "event", "statement", "ordinal"}
    context     {"task", "recipient", "sphere", "ordinal", "places": {profile ordinal: position}}
    bio         {"name", "sex", "address", "age"}

`ordinal` and `places` are where it stands; the record fills them in, so that taking a change back puts it there again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import sqlalchemy as sa

from cimemories.store import versions
from cimemories.store.curation_tables import edit
from cimemories.store.engine import StoreError, plain_name
from cimemories.store.ids import now

Kind = Literal["attribute", "context", "bio"]
Action = Literal["add", "change", "remove"]
Side = Mapping[str, object]


@dataclass(frozen=True)
class Edit:
    """One change. `profile`: the ordinal of the profile that it is of, None for a context of all profiles. `before` is
    None where something is added, `after` where it is removed."""

    kind: Kind
    action: Action
    profile: int | None
    before: Side | None
    after: Side | None

    @property
    def inverse(self) -> Edit:
        """The change that takes this one back."""
        opposite: dict[Action, Action] = {"add": "remove", "remove": "add", "change": "change"}
        return replace(self, action=opposite[self.action], before=self.after, after=self.before)


@dataclass(frozen=True)
class EditRow:
    """A change in the history: on which dataset it was made, by whom, why and when."""

    id: int
    dataset: int
    edit: Edit
    annotator: str
    reason: str
    created: str

    @property
    def words(self) -> str:
        """The change in a few words: 'changed attribute rent of profile 3'; profiles are counted from 1."""
        verb = {"add": "added", "change": "changed", "remove": "removed"}[self.edit.action]
        side = self.edit.after or self.edit.before or {}
        what = {
            "attribute": f"attribute {side.get('key')}",
            "context": f"context {side.get('recipient')}: {side.get('task')}",
            "bio": "the biography",
        }[self.edit.kind]
        whose = "all profiles" if self.edit.profile is None else f"profile {self.edit.profile + 1}"
        return f"{verb} {what} of {whose}"


def add(connection: sa.Connection, dataset_id: int, item: Edit, *, annotator: str, reason: str) -> int:
    """Append a change to the history of a dataset; returns its id."""
    return int(
        connection.execute(
            sa.insert(edit)
            .values(
                dataset=dataset_id,
                profile=item.profile,
                kind=item.kind,
                action=item.action,
                before=_text(item.before),
                after=_text(item.after),
                annotator=plain_name(annotator, "annotator"),
                reason=reason,
                created=now(),
            )
            .returning(edit.c.id)
        ).scalar_one()
    )


def history(connection: sa.Connection, dataset_id: int, profile: int | None = None) -> list[EditRow]:
    """Every change that led to a dataset, those of the versions before it included, oldest first.

    With `profile` (an ordinal) those of that profile and those of contexts that all profiles share.
    """
    query = sa.select(edit).where(edit.c.dataset.in_(versions.lineage(connection, dataset_id)))
    if profile is not None:
        query = query.where(sa.or_(edit.c.profile == profile, edit.c.profile.is_(None)))
    rows = connection.execute(query.order_by(edit.c.created, edit.c.id)).mappings()
    return [_row(row) for row in rows]


def named(connection: sa.Connection, edit_id: int) -> EditRow:
    """One change of the history. Raises StoreError where there is none of that id."""
    row = connection.execute(sa.select(edit).where(edit.c.id == edit_id)).mappings().first()
    if row is None:
        raise StoreError(f"there is no change {edit_id} in the history. It went with its dataset, or never was.")
    return _row(row)


def _row(row: sa.RowMapping) -> EditRow:
    item = Edit(row["kind"], row["action"], row["profile"], _side(row["before"]), _side(row["after"]))
    return EditRow(row["id"], row["dataset"], item, row["annotator"], row["reason"], row["created"])


def _text(side: Side | None) -> str | None:
    # Keys keep their order: a value that holds an object must come back as it was, to the byte.
    return None if side is None else json.dumps(side, ensure_ascii=False)


def _side(text: str | None) -> Side | None:
    if text is None:
        return None
    side: dict[str, object] = json.loads(text)
    places = side.get("places")
    if isinstance(places, dict):
        side["places"] = {int(ordinal): position for ordinal, position in places.items()}
    return side
