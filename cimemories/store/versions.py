"""Versions of a dataset. What labels, decisions or runs rest on is never changed: an edit makes the next version.

All versions of a dataset are a family: a tree of parents and children, numbered in the order they were made. Profiles
keep their ordinals through all of them, so that 'profile 3' is the same person everywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import sqlalchemy as sa

from cimemories import text
from cimemories.model import canonical_event, is_bio
from cimemories.store.datasets import revise
from cimemories.store.decisions import UNDO, count_standing
from cimemories.store.engine import StoreError, canonical_json, now, plain_name
from cimemories.store.rows import count, exists, fetch, from_row, insert, insert_new, insert_one, rows_of
from cimemories.store.tables import (
    attribute,
    context,
    dataset,
    dataset_version,
    decision,
    edit,
    freeze,
    labelling,
    profile,
    profile_context,
    rule,
    run,
)

# Said at the end of the reason of a decision that was made on an earlier version, once, however often it is carried.
_ORIGIN = re.compile(r"\[decided on '.*'\]$", re.DOTALL)


@dataclass(frozen=True)
class Version:
    """One member of a family. The first has version 1 and no parent; the parent of a later one may be deleted."""

    dataset: int
    name: str
    version: int
    parent: int | None
    created: str
    frozen: str | None  # the hash it is frozen as


@dataclass(frozen=True)
class Rests:
    """The counts of what rests on a dataset and keeps it from being changed in place, and whether it is frozen."""

    labellings: int
    runs: int
    decisions: int  # that stand
    undone: int  # decisions that were all taken back: their record stays
    versions: int  # that were made from it
    frozen: bool

    @property
    def anything(self) -> bool:
        return self.frozen or any((self.labellings, self.runs, self.decisions, self.undone, self.versions))

    @property
    def counted(self) -> list[str]:
        """Return the counts in words: ['1 labelling', '2 decisions']."""
        undone = self.undone, "decision that was taken back", "decisions that were taken back"
        numbers = (self.labellings, "labelling"), (self.runs, "run"), (self.decisions, "human decision"), undone
        return [text.count(*number) for number in numbers if number[0]]


def family(connection: sa.Connection, dataset_id: int) -> list[Version]:
    """Return all versions of the dataset that this one belongs to, by their numbers; itself alone at first."""
    # All rows of a table that has one for each version made: a tree of unknown depth takes no query a step.
    parents = {row.dataset: row for row in connection.execute(sa.select(dataset_version))}
    # From the oldest that is still here down through all of its children; a damaged record may hold a circle.
    members, waiting = [], [lineage(connection, dataset_id)[0]]
    while waiting:
        members.append(waiting.pop())
        waiting += [c for c, row in parents.items() if row.parent == members[-1] and c not in members]
    columns = (
        dataset.c.id.label("dataset"),
        dataset.c.name,
        sa.func.coalesce(dataset_version.c.version, 1).label("version"),
        dataset_version.c.parent,
        dataset.c.created,
        freeze.c.hash.label("frozen"),
    )
    query = (
        sa.select(*columns)
        .join(dataset_version, dataset_version.c.dataset == dataset.c.id, isouter=True)
        .join(freeze, freeze.c.dataset == dataset.c.id, isouter=True)
        .where(dataset.c.id.in_(members))
    )
    return sorted(fetch(connection, query, Version), key=lambda item: (item.version, item.dataset))


def lineage(connection: sa.Connection, dataset_id: int) -> list[int]:
    """Return a dataset and what it was made from, oldest first, as far back as it is still here."""
    parents = {row.dataset: row.parent for row in connection.execute(sa.select(dataset_version))}
    line = [dataset_id]
    # A damaged record may hold a circle of versions.
    while (parent := parents.get(line[-1])) is not None and parent not in line:
        line.append(parent)
    return line[::-1]


def rests_on(connection: sa.Connection, dataset_id: int) -> Rests:
    """Return what rests on a dataset, counted; all 0 for an id that is not there."""
    of_dataset = decision.c.dataset == dataset_id
    decided = count_standing(connection, decision, of_dataset)
    return Rests(
        labellings=count(connection, labelling, labelling.c.dataset == dataset_id),
        runs=count(connection, run, run.c.dataset == dataset_id),
        decisions=decided,
        undone=0 if decided else count(connection, decision, of_dataset, decision.c.source != UNDO),
        versions=count(connection, dataset_version, dataset_version.c.parent == dataset_id),
        frozen=exists(connection, freeze.c.dataset == dataset_id),
    )


def lock(connection: sa.Connection, dataset_id: int) -> None:
    """Keep others from changing a dataset, or from resting anything on it, until this transaction ends. Raises
    StoreError if it is gone. SQLite has taken its one write lock at BEGIN."""
    row = connection.execute(sa.select(dataset.c.id).where(dataset.c.id == dataset_id).with_for_update()).first()
    if row is None:
        raise StoreError(f"the dataset {dataset_id} was deleted. Reload the list of datasets.")


def next_name(connection: sa.Connection, dataset_id: int) -> tuple[str, int]:
    """Return the name and number that the next version of this family gets: 'demo v3', 3."""
    members = family(connection, dataset_id)
    first = members[0]
    base = first.name.removesuffix(f" v{first.version}") if first.version > 1 else first.name
    number = members[-1].version + 1
    while exists(connection, dataset.c.name == f"{base} v{number}"):
        number += 1  # another dataset was given that name
    return f"{base} v{number}", number


def copy(connection: sa.Connection, source: int, name: str, number: int) -> int:
    """Make a new version of `source` with its profiles, attributes, contexts and named rules, and return its id.
    Labellings, runs and decisions stay where they are; `carry_decisions` copies the latter after the edit."""
    created = now()
    # Copied inside the database, which never hands a dataset's texts to this process and back.
    origin = sa.select(
        sa.literal(name), dataset.c.origin, dataset.c.source_name, dataset.c.source_hash, sa.literal(created)
    ).where(dataset.c.id == source)
    connection.execute(
        sa.insert(dataset).from_select(["name", "origin", "source_name", "source_hash", "created"], origin)
    )
    new = int(connection.execute(sa.select(dataset.c.id).where(dataset.c.name == name)).scalar_one())
    insert_one(connection, dataset_version, dataset=new, parent=source, version=number, created=created)
    for table in (profile, context, rule):
        columns = [c for c in table.c if c.name not in ("id", "dataset")]
        query = sa.select(sa.literal(new), *columns).where(table.c.dataset == source).order_by(table.c.id)
        connection.execute(sa.insert(table).from_select(["dataset", *(c.name for c in columns)], query))
    old_profile, new_profile = profile.alias("old_profile"), profile.alias("new_profile")
    same_person = sa.and_(
        old_profile.c.dataset == source, new_profile.c.dataset == new, old_profile.c.ordinal == new_profile.c.ordinal
    )
    columns = [c for c in attribute.c if c.name not in ("id", "profile")]
    connection.execute(
        sa.insert(attribute).from_select(
            ["profile", *(c.name for c in columns)],
            sa.select(new_profile.c.id, *columns)
            .join(old_profile, attribute.c.profile == old_profile.c.id)
            .join(new_profile, same_person)
            # New ids are given out in the order of the old ones.
            .order_by(attribute.c.id),
        )
    )
    old_context, new_context = context.alias("old_context"), context.alias("new_context")
    connection.execute(
        sa.insert(profile_context).from_select(
            ["profile", "context", "ordinal"],
            sa.select(new_profile.c.id, new_context.c.id, profile_context.c.ordinal)
            .join(old_profile, profile_context.c.profile == old_profile.c.id)
            .join(new_profile, same_person)
            .join(old_context, profile_context.c.context == old_context.c.id)
            .join(new_context, _same_context(old_context, new_context, new)),
        )
    )
    return new


def _same_context(old: sa.FromClause, new: sa.FromClause, dataset_id: int) -> sa.ColumnElement[bool]:
    """Return the condition that a context of this dataset has the wording of another one."""
    return sa.and_(new.c.dataset == dataset_id, new.c.task == old.c.task, new.c.recipient == old.c.recipient)


CARRIED = ("annotator", "label", "seconds", "source", "blind", "created", "guideline", "cause")


def carry_decisions(connection: sa.Connection, source: int, target: int) -> tuple[int, int]:
    """Copy every annotator's standing decision on the pairs that are the same in both versions.

    The same pair: profile ordinal, key, statement and value of the attribute, task and recipient of the context.
    Author, time, reason, source and blindness stay, and the reason says where it was decided. Return how many were
    carried, and how many stand on pairs that are no longer there or no longer the same.
    """
    # Standing: a decision with a label that no later one supersedes.
    # Not by EXISTS: `supersedes` has no index, and 50,000 decisions would be gone through once for each of them.
    later = decision.alias("later")
    superseded = sa.select(later.c.supersedes).where(later.c.dataset == source, later.c.supersedes.is_not(None))
    standing = sa.and_(decision.c.dataset == source, decision.c.label.is_not(None), decision.c.id.not_in(superseded))
    total = count(connection, decision, standing)
    if not total:
        return 0, 0
    old_attribute, new_attribute = attribute.alias("old_attribute"), attribute.alias("new_attribute")
    old_profile, new_profile = profile.alias("old_profile"), profile.alias("new_profile")
    old_context, new_context = context.alias("old_context"), context.alias("new_context")
    # What a person saw when they decided. Domain and event may have changed: they are not what is revealed.
    same_columns = [old_attribute.c[n] == new_attribute.c[n] for n in ("key", "statement", "value")]
    rows = connection.execute(
        sa.select(decision, new_attribute.c.id.label("to_attribute"), new_context.c.id.label("to_context"))
        .join(old_attribute, decision.c.attribute == old_attribute.c.id)
        .join(old_profile, old_attribute.c.profile == old_profile.c.id)
        .join(new_profile, sa.and_(new_profile.c.dataset == target, new_profile.c.ordinal == old_profile.c.ordinal))
        .join(new_attribute, sa.and_(new_attribute.c.profile == new_profile.c.id, *same_columns))
        .join(old_context, decision.c.context == old_context.c.id)
        .join(new_context, _same_context(old_context, new_context, target))
        .join(
            # The new version may have taken this context from the profile.
            profile_context,
            sa.and_(profile_context.c.profile == new_profile.c.id, profile_context.c.context == new_context.c.id),
        )
        .where(standing)
        .order_by(decision.c.id)
    ).mappings()
    source_name = connection.execute(sa.select(dataset.c.name).where(dataset.c.id == source)).scalar_one()
    origin = f"[decided on '{source_name}']"
    carried = [
        {
            **{n: row[n] for n in CARRIED},
            "dataset": target,
            "attribute": row["to_attribute"],
            "context": row["to_context"],
            "reason": row["reason"] if _ORIGIN.search(row["reason"]) else f"{row['reason']} {origin}".strip(),
        }
        for row in rows
    ]
    insert(connection, decision, carried)
    return len(carried), total - len(carried)


# ---- edits
#
# The history of changes by hand: append-only, one row a change, with what stood there before and after.
#
# A change is of an attribute, of a context or of the biography of one profile, or of a context in all profiles. Its two
# sides are plain JSON objects:
#
#     attribute   {"key", "value", "domain", "event", "statement", "ordinal"}
#     context     {"task", "recipient", "sphere", "ordinal", "places": {profile ordinal: position}}
#     bio         {"name", "sex", "address", "age"}
#
# `ordinal` and `places` are where it stands; the record fills them in, so that taking a change back puts it there
# again.


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
        """Return the change that takes this one back."""
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
    def sentence(self) -> str:
        """Return the change in a few words: 'changed attribute rent of profile 3'; profiles are counted from 1."""
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
    """Append a change to the history of a dataset; return its id. It makes no change: `apply_edit` does."""
    who = plain_name(annotator, "annotator")
    values = {"dataset": dataset_id, "annotator": who, "reason": reason, "created": now()}
    return int(insert_one(connection, edit, **values, **vars(item)))


def history(connection: sa.Connection, dataset_id: int, profile: int | None = None) -> list[EditRow]:
    """Return every change that led to a dataset, those of the versions before it included, oldest first. With `profile`
    (an ordinal) those of that profile and those of contexts that all profiles share."""
    query = sa.select(edit).where(edit.c.dataset.in_(lineage(connection, dataset_id)))
    if profile is not None:
        query = query.where(sa.or_(edit.c.profile == profile, edit.c.profile.is_(None)))
    # By time: edits of a version that is deleted are copied to its children, under later ids.
    return [_row(row) for row in rows_of(connection, query.order_by(edit.c.created, edit.c.id))]


def edit_by_id(connection: sa.Connection, edit_id: int) -> EditRow:
    """Return one change of the history. Raises StoreError if there is none of that id."""
    row = connection.execute(sa.select(edit).where(edit.c.id == edit_id)).mappings().first()
    if row is None:
        raise StoreError(f"there is no change {edit_id} in the history. It may have been deleted with its dataset.")
    return _row(row)


def _row(row: sa.RowMapping) -> EditRow:
    return from_row(EditRow, row, edit=from_row(Edit, row, before=_side(row["before"]), after=_side(row["after"])))


def _side(side: Side | None) -> Side | None:
    if side is None or not isinstance(places := side.get("places"), dict):
        return side
    # Keys of JSON objects are texts.
    return {**side, "places": {int(ordinal): position for ordinal, position in places.items()}}


# ---- changes
#
# Making a change in a dataset, in place. Whether that is allowed is decided above (curation.editing).
#
# A change says what it believes to stand there. If something else does by now, nothing is written and StoreError says
# so: of two people who change the same thing at once, the second learns of the first.


BIO = ("name", "sex", "address", "age")
CONTENT = ("key", "value", "domain", "event", "statement")
ContextPositions = dict[int, int]  # profile ordinal -> position of the context in that profile


ContentMark = tuple[str, int, int, str]


def content_mark(connection: sa.Connection, dataset_id: int) -> ContentMark:
    """Return what moves when a dataset's profiles or its rule change: (its time, id of the newest edit, id and time of
    the current rule), 0 and '' for none. SQLite gives ids of what was deleted out again, so times are in it. A revision
    moves with every decision as well."""
    newest = sa.select(sa.func.max(edit.c.id)).where(edit.c.dataset == dataset_id)
    created = sa.select(dataset.c.created).where(dataset.c.id == dataset_id)
    current = sa.select(rule.c.id, rule.c.created).where(rule.c.dataset == dataset_id, rule.c.current)
    held = connection.execute(current).first() or (0, "")
    return str(connection.scalar(created) or ""), connection.scalar(newest) or 0, int(held[0]), str(held[1])


def apply_edit(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    """Make one change; return it with the places where things stood and stand. Raises StoreError, and writes nothing,
    if it does not fit what is there."""
    done = {"attribute": _attribute, "context": _context, "bio": _bio}[item.kind](connection, dataset_id, item)
    revise(connection, dataset_id)
    return done


def _changed(what: str) -> StoreError:
    return StoreError(
        f"{what} has been changed by another person since you opened it. Nothing was saved: reload, then decide."
    )


def _person(connection: sa.Connection, dataset_id: int, ordinal: int | None) -> sa.RowMapping:
    at_ordinal = profile.c.dataset == dataset_id, profile.c.ordinal == ordinal
    row = connection.execute(sa.select(profile).where(*at_ordinal)).mappings().first()
    if row is None:
        raise StoreError(f"this dataset has no profile number {ordinal}. Choose one from the list.")
    return row


def _bio(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    person = _person(connection, dataset_id, item.profile)
    if item.before is None or item.after is None:
        raise StoreError("a biography can be changed, not added or removed.")
    if any(person[name] != item.before[name] for name in BIO):
        raise _changed(f"the biography of '{person['name']}'")
    connection.execute(
        sa.update(profile).where(profile.c.id == person["id"]).values({name: item.after[name] for name in BIO})
    )
    return item


# --- attributes ---


def _attribute(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    person = _person(connection, dataset_id, item.profile)
    rows = rows_of(connection, sa.select(attribute).where(attribute.c.profile == person["id"]))
    by_key = {row["key"]: row for row in rows}
    values = None if item.after is None else _columns(item.after)
    there = None
    if item.before is not None:
        there = by_key.get(str(item.before["key"]))
        if there is None or any(there[name] != value for name, value in _columns(item.before).items()):
            raise _changed(f"the attribute '{item.before['key']}' of '{person['name']}'")
    if values is not None and values["key"] in by_key and by_key[values["key"]] is not there:
        raise StoreError(
            f"'{person['name']}' has an attribute '{values['key']}' already. Choose another key, or edit that one."
        )
    if there is None:
        taken = {int(row["ordinal"]) for row in rows}
        ordinal = int(str((item.after or {}).get("ordinal", -1)))
        if ordinal < 0 or ordinal in taken:
            # New, or taken back after something else was put in its old place: at the end.
            ordinal = max(taken, default=-1) + 1
        insert_one(connection, attribute, profile=person["id"], ordinal=ordinal, **(values or {}))
    else:
        ordinal = int(there["ordinal"])
        this = attribute.c.id == there["id"]
        if values is not None and values["event"] == there["event"]:
            del values["event"]  # the same event stays as its file spelled it
        connection.execute(
            sa.delete(attribute).where(this) if values is None else sa.update(attribute).where(this).values(values)
        )
    return _with(item, ordinal=ordinal)


def _columns(side: Side) -> dict[str, object]:
    """Return the columns of an attribute."""
    values: dict[str, object] = {name: side[name] for name in CONTENT}
    values["event"] = canonical_event(str(side["event"]))  # as it is read; the file's spelling is compared nowhere
    values["value"] = json.dumps(side["value"], ensure_ascii=False)
    values["bio"] = is_bio(str(side["key"]), str(side["domain"]))
    return values


def _with(item: Edit, **more: object) -> Edit:
    def side(value: Side | None) -> Side | None:
        return None if value is None else {**value, **more}

    return replace(item, before=side(item.before), after=side(item.after))


# --- contexts ---


def _context(connection: sa.Connection, dataset_id: int, item: Edit) -> Edit:
    people = _people(connection, dataset_id, item.profile)
    if item.before is None:
        return _add_context(connection, dataset_id, item, people)
    there = _find(connection, dataset_id, item.before)
    if there is None or there["sphere"] != item.before.get("sphere"):
        raise _changed(_context_text(item.before))
    using = _places(connection, int(there["id"]))
    # Of the profiles that use it now, those that the change is about; if one that it names no longer uses it, another
    # change came first.
    of = _profiles_of(item.before, using if item.profile is None else people)
    places = {ordinal: position for ordinal, position in using.items() if ordinal in of}
    if not places or set(_profiles_of(item.before, places)) - set(places):
        raise _changed(_context_text(item.before))
    if item.after is None:
        _unlink(connection, int(there["id"]), places, people)
        return _with(item, ordinal=there["ordinal"], places=places)
    return _change_context(connection, dataset_id, item, there, using, places, people)


def _add_context(connection: sa.Connection, dataset_id: int, item: Edit, people: Mapping[int, int]) -> Edit:
    side = item.after or {}
    there = _find(connection, dataset_id, side)
    using = _places(connection, int(there["id"])) if there else {}
    ordinals = _profiles_of(side, people)
    missing = [ordinal for ordinal in ordinals if ordinal not in using]
    # Where profiles are named, all of them must be without it; else it is added to those that lack it.
    if not missing or (isinstance(side.get("places"), dict) and len(missing) < len(ordinals)):
        raise StoreError(f"{_context_text(side)} exists already. Change its task or its recipient.")
    if there is None:
        context_id, ordinal = _insert(connection, dataset_id, side)
    else:
        context_id, ordinal = int(there["id"]), int(there["ordinal"])
        side = {**side, "sphere": there["sphere"]}
    taken: dict[int, set[int]] = {}  # positions by profile
    for person, position in connection.execute(
        sa.select(profile.c.ordinal, profile_context.c.ordinal)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    ):
        taken.setdefault(person, set()).add(position)
    given = side.get("places")
    places: ContextPositions = {}
    for person in missing:
        there_already = taken.get(person, set())
        position = int(given[person]) if isinstance(given, dict) else -1
        free = position >= 0 and position not in there_already
        places[person] = position if free else max(there_already, default=-1) + 1
    _link(connection, context_id, places, people)
    return _with(replace(item, after=side), ordinal=ordinal, places=places)


def _change_context(
    connection: sa.Connection,
    dataset_id: int,
    item: Edit,
    there: sa.RowMapping,
    using: ContextPositions,
    places: ContextPositions,
    people: Mapping[int, int],
) -> Edit:
    """Change the wording for some or all of the profiles that have it; one that the dataset has already is shared."""
    after = item.after or {}
    same_wording = (after["task"], after["recipient"]) == (there["task"], there["recipient"])
    values = {name: after.get(name) for name in ("task", "recipient", "sphere")}
    shared = None if same_wording else _find(connection, dataset_id, after)
    # All who use it change together, so the row itself changes: its id and its place stay.
    if shared is None and set(places) == set(using):
        connection.execute(sa.update(context).where(context.c.id == there["id"]).values(values))
        return _with(item, ordinal=there["ordinal"], places=places)
    if same_wording:
        raise StoreError("the sphere of a context is the same in all profiles. Change it for all of them.")
    if shared is None:
        # Others keep the old wording, so the new one is a context of its own, behind all others.
        target, _ = _insert(connection, dataset_id, {**after, "ordinal": -1})
    else:
        target = int(shared["id"])
        after = {**after, "sphere": shared["sphere"]}
        if set(_places(connection, target)) & set(places):
            raise StoreError(f"{_context_text(after)} exists already. Change its task or its recipient.")
    _unlink(connection, int(there["id"]), places, people)
    _link(connection, target, places, people)
    return _with(replace(item, after=after), ordinal=there["ordinal"], places=places)


def _context_text(side: Side) -> str:
    return f"the context '{side['recipient']}: {side['task']}'"


def _people(connection: sa.Connection, dataset_id: int, ordinal: int | None) -> dict[int, int]:
    """Return profile ids by ordinal: of all profiles, or of the one."""
    if ordinal is not None:
        return {ordinal: int(_person(connection, dataset_id, ordinal)["id"])}
    rows = connection.execute(sa.select(profile.c.ordinal, profile.c.id).where(profile.c.dataset == dataset_id))
    return {row.ordinal: row.id for row in rows}


def _profiles_of(side: Side, otherwise: Mapping[int, int]) -> list[int]:
    """Return the profiles that a side names, or else those that it is about."""
    places = side.get("places")
    return list(places) if isinstance(places, dict) else list(otherwise)


def _find(connection: sa.Connection, dataset_id: int, side: Side) -> sa.RowMapping | None:
    wording = context.c.task == side["task"], context.c.recipient == side["recipient"]
    query = sa.select(context).where(context.c.dataset == dataset_id, *wording)
    return connection.execute(query).mappings().first()


def _places(connection: sa.Connection, context_id: int) -> ContextPositions:
    rows = connection.execute(
        sa.select(profile.c.ordinal, profile_context.c.ordinal)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile_context.c.context == context_id)
        .order_by(profile.c.ordinal)
    )
    return {int(row[0]): int(row[1]) for row in rows}


def _insert(connection: sa.Connection, dataset_id: int, side: Side) -> tuple[int, int]:
    ordinal = int(str(side.get("ordinal", -1)))
    if ordinal < 0:
        highest = sa.select(sa.func.coalesce(sa.func.max(context.c.ordinal), -1)).where(context.c.dataset == dataset_id)
        ordinal = int(connection.execute(highest).scalar_one()) + 1
    values = {name: side.get(name) for name in ("task", "recipient", "sphere")}
    return int(insert_one(connection, context, dataset=dataset_id, ordinal=ordinal, **values)), ordinal


def _link(connection: sa.Connection, context_id: int, places: ContextPositions, people: Mapping[int, int]) -> None:
    rows = ({"profile": people[o], "context": context_id, "ordinal": position} for o, position in places.items())
    insert(connection, profile_context, rows)


def _unlink(connection: sa.Connection, context_id: int, places: ContextPositions, people: Mapping[int, int]) -> None:
    """Take a context from some profiles; one that no profile has any more goes."""
    ids = [people[ordinal] for ordinal in places]
    connection.execute(
        sa.delete(profile_context).where(profile_context.c.context == context_id, profile_context.c.profile.in_(ids))
    )
    if not exists(connection, profile_context.c.context == context_id):
        connection.execute(sa.delete(context).where(context.c.id == context_id))


# ---- freezes
#
# Frozen datasets; what a freeze covers is in archive.py.


@dataclass(frozen=True)
class FreezeRow:
    """A frozen dataset. `rule`: name, threshold, priors and, unless it was frozen before rules had one, least_votes;
    `counts`: what the hash covers, in numbers, and `content`, the hash of profiles and contexts alone, which runs
    name."""

    dataset: int
    hash: str
    labelling: str | None
    rule: dict[str, object]
    counts: dict[str, int | str]
    annotator: str
    created: str


def freeze_of(connection: sa.Connection, dataset_id: int) -> FreezeRow | None:
    """Return the freeze of a dataset, or None for an open one."""
    return next(iter(fetch(connection, sa.select(freeze).where(freeze.c.dataset == dataset_id), FreezeRow)), None)


def add_freeze(
    connection: sa.Connection,
    dataset_id: int,
    *,
    digest: str,
    labelling_id: str | None,
    rule: Mapping[str, object],
    counts: Mapping[str, int | str],
    annotator: str,
) -> None:
    """Freeze a dataset for good. Raises StoreError if it is frozen already."""
    values = {"hash": digest, "labelling": labelling_id, "rule": canonical_json(rule), "counts": canonical_json(counts)}
    who = {"annotator": plain_name(annotator, "annotator"), "created": now()}
    # The primary key decides between two who freeze at once: the second writes nothing.
    written, _ = insert_new(connection, freeze, [{"dataset": dataset_id, **values, **who}])
    there = freeze_of(connection, dataset_id)
    if not written and there is not None:
        raise StoreError(
            f"this dataset was frozen by {there.annotator} on {there.created[:10]} as {there.hash[:8]}. A frozen "
            "dataset cannot be changed: make its next version, and freeze that."
        )
    revise(connection, dataset_id)
