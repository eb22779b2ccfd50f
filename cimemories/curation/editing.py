"""Editing a dataset by hand, with history. What labels, decisions or runs rest on is kept: an edit of it is saved as
the next version of the dataset, so that every number which was ever shown stays defended.

    plan = editing.plan(store, dataset_id, edit)      # what would happen, in words: plan.sentences
    saved = editing.save(store, dataset_id, edit, annotator="Ada", reason="typo", expected=plan)

The labelling prompt of a profile holds all its statements: a change of one touches all votes on that profile, and no
other. A context stands in its own calls alone. Calls are recorded under what was sent, so labelling a new version asks
only for what changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.curation import editing_fields as fields
from cimemories.curation.edit_plan import Needs, Plan
from cimemories.model import Attribute, Context, Profile
from cimemories.store import changes, datasets, edits, labellings, versions
from cimemories.store.edits import Edit
from cimemories.store.engine import Store, StoreError
from cimemories.store.labellings import LabellingRow


@dataclass(frozen=True)
class Saved:
    """What saving came to: the dataset that holds the change, and decisions that went along or could not."""

    dataset: int
    name: str
    edit: int
    in_place: bool
    carried: int
    left_behind: int


def attribute_edit(profile: int, before: Attribute | None, after: Attribute | None) -> Edit:
    """Add (no before), change or remove (no after) an attribute of the profile with that ordinal."""
    return _edit("attribute", profile, fields.attribute_side(before), fields.attribute_side(after))


def context_edit(profile: int | None, before: Context | None, after: Context | None) -> Edit:
    """The same for a context of one profile, or of all (None)."""
    return _edit("context", profile, fields.context_side(before), fields.context_side(after))


def bio_edit(profile: int, before: Profile, after: Profile) -> Edit:
    """Change name, sex, address or age; attributes and contexts of the two do not matter."""
    return _edit("bio", profile, fields.bio_side(before), fields.bio_side(after))


def _edit(kind: edits.Kind, profile: int | None, before: edits.Side | None, after: edits.Side | None) -> Edit:
    action: edits.Action = "add" if before is None else "remove" if after is None else "change"
    return Edit(kind, action, profile, before, after)


def plan(store: Store, dataset_id: int, edit: Edit) -> Plan:
    """What saving this change would do. Raises StoreError for a change that is not valid, or a dataset that is gone."""
    checked = fields.checked(edit)
    with store.read() as connection:
        return _plan(connection, dataset_id, checked)


def save(
    store: Store, dataset_id: int, edit: Edit, *, annotator: str, reason: str = "", expected: Plan | None = None
) -> Saved:
    """Make a change, in the dataset or in its next version, with its history; all of it or nothing.

    `expected` is the plan that was shown: where the change would go elsewhere by now (somebody else has saved, labelled
    or frozen in the meantime) nothing is written. Raises StoreError then, for a change that is not valid, that changes
    nothing, or whose `before` is not what stands there, and where nobody's name is given.
    """
    who = fields.line(annotator)
    if not who:
        raise StoreError("a change needs the name of who makes it. Give yours and save again.")
    checked = fields.checked(edit)
    with store.write() as connection:
        versions.lock(connection, dataset_id)
        return _save(connection, dataset_id, checked, who, fields.line(reason), expected)


def undo(store: Store, dataset_id: int, edit_id: int, *, annotator: str, expected: Plan | None = None) -> Saved:
    """Take a change of the history back, which is one more change. Raises StoreError as `save` does, also where what
    that change made has been changed again since."""
    with store.read() as connection:
        row = edits.named(connection, edit_id)
    reason = f"takes change {edit_id} back"
    return save(store, dataset_id, row.edit.inverse, annotator=annotator, reason=reason, expected=expected)


def new_version(store: Store, dataset_id: int) -> tuple[int, str]:
    """The next version with nothing changed, e.g. to go on from a frozen one; returns its id and name."""
    with store.write() as connection:
        versions.lock(connection, dataset_id)
        name, number = versions.next_name(connection, dataset_id)
        new = versions.copy(connection, dataset_id, name, number)
        versions.carry_decisions(connection, dataset_id, new)
        return new, name


def _save(
    connection: sa.Connection, dataset_id: int, edit: Edit, who: str, reason: str, expected: Plan | None
) -> Saved:
    now = _plan(connection, dataset_id, edit)
    if expected is not None and expected.target != now.target:
        raise StoreError(
            f"'{now.dataset}' has changed since you looked at it: your change would now be saved as '{now.target}' and "
            f"not as '{expected.target}'. Nothing was saved: look at its versions, then decide."
        )
    if now.in_place:
        done = changes.apply(connection, dataset_id, edit)
        row = edits.add(connection, dataset_id, done, annotator=who, reason=reason)
        return Saved(dataset_id, now.target, row, True, 0, 0)
    _, number = versions.next_name(connection, dataset_id)
    new = versions.copy(connection, dataset_id, now.target, number)
    done = changes.apply(connection, new, edit)
    row = edits.add(connection, new, done, annotator=who, reason=reason)
    carried, left_behind = versions.carry_decisions(connection, dataset_id, new)
    return Saved(new, now.target, row, False, carried, left_behind)


def _plan(connection: sa.Connection, dataset_id: int, edit: Edit) -> Plan:
    members = versions.family(connection, dataset_id)
    this = next((item for item in members if item.dataset == dataset_id), None)
    if this is None:
        raise StoreError(f"the dataset {dataset_id} is not here any more. Look at the list of datasets again.")
    rests = versions.rests_on(connection, dataset_id)
    target = versions.next_name(connection, dataset_id)[0] if rests.anything else this.name
    rows = labellings.all_rows(connection, dataset_id)
    draws, personas = _habit(rows)
    sizes = datasets.sizes(connection, dataset_id)
    needs = _needs(edit, sizes)
    who = sizes[edit.profile].name if edit.profile in sizes else "all profiles"
    calls = None if draws is None else needs.profiles * needs.contexts * personas * draws
    newer = tuple(item.name for item in members if item.parent == dataset_id)
    imported = sum(row.imported for row in rows)
    return Plan(this.name, target, rests, imported, newer, edit.kind, who, len(sizes), needs, draws, calls)


def _habit(rows: list[LabellingRow]) -> tuple[int | None, int]:
    """Draws and personas of the newest labelling that was voted; None and 0 where there is none."""
    voted = [row for row in rows if not row.imported]
    if not voted:
        return None, 0
    personas = voted[-1].manifest.get("personas")
    return voted[-1].draws, len(personas) if isinstance(personas, list) else 0


def _needs(edit: Edit, sizes: dict[int, datasets.Size]) -> Needs:
    """Which pairs a change leaves without votes: all of a profile whose statements change, or those of one context."""
    before, after = edit.before or {}, edit.after or {}
    if edit.kind == "attribute" and before.get("statement") != after.get("statement"):
        size = sizes.get(edit.profile if edit.profile is not None else -1)
        if size is None:
            return Needs(0, 0, 0)
        return Needs(1, size.attributes + {"add": 1, "remove": -1}.get(edit.action, 0), size.contexts)
    words = [tuple(side.get(name) for name in ("task", "recipient")) for side in (before, after)]
    if edit.kind == "context" and edit.action != "remove" and words[0] != words[1]:
        concerned = [size for ordinal, size in sizes.items() if edit.profile in (None, ordinal)]
        return Needs(len(concerned), sum(size.attributes for size in concerned), 1)
    return Needs(0, 0, 0)
