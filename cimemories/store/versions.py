"""Versions of a dataset. What labels, decisions or runs rest on is never changed: an edit makes the next version.

All versions of a dataset are a family: a tree of parents and children, numbered in the order they were made. Profiles
keep their ordinals through all of them, so that 'profile 3' is the same person everywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlalchemy as sa

from cimemories.store.curation_tables import dataset_version, freeze, rule
from cimemories.store.engine import StoreError
from cimemories.store.ids import now
from cimemories.store.tables import attribute, context, dataset, decision, labelling, profile, profile_context, run

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
    """How much rests on a dataset: what keeps it from being changed in place."""

    labellings: int
    runs: int
    decisions: int
    versions: int  # that were made from it
    frozen: bool

    @property
    def anything(self) -> bool:
        return self.frozen or any((self.labellings, self.runs, self.decisions, self.versions))


def family(connection: sa.Connection, dataset_id: int) -> list[Version]:
    """All versions of the dataset that this one belongs to, in the order of their numbers; itself alone at first."""
    parents = {row.dataset: row for row in connection.execute(sa.select(dataset_version))}
    root = dataset_id
    while root in parents and parents[root].parent is not None:
        root = parents[root].parent
    members, waiting = [], [root]
    while waiting:
        members.append(waiting.pop())
        waiting += [child for child, row in parents.items() if row.parent == members[-1]]
    rows = connection.execute(
        sa.select(dataset.c.id, dataset.c.name, dataset.c.created, freeze.c.hash)
        .join(freeze, freeze.c.dataset == dataset.c.id, isouter=True)
        .where(dataset.c.id.in_(members))
    )
    found = [
        Version(
            dataset=row.id,
            name=row.name,
            version=parents[row.id].version if row.id in parents else 1,
            parent=parents[row.id].parent if row.id in parents else None,
            created=row.created,
            frozen=row.hash,
        )
        for row in rows
    ]
    return sorted(found, key=lambda item: (item.version, item.dataset))


def lineage(connection: sa.Connection, dataset_id: int) -> list[int]:
    """A dataset and what it was made from, oldest first, as far back as it is still here."""
    parents = {row.dataset: row.parent for row in connection.execute(sa.select(dataset_version))}
    line = [dataset_id]
    while (parent := parents.get(line[-1])) is not None:
        line.append(parent)
    return line[::-1]


def rests_on(connection: sa.Connection, dataset_id: int) -> Rests:
    """What rests on a dataset."""

    def count(column: sa.Column[int]) -> int:
        return int(connection.execute(sa.select(sa.func.count()).where(column == dataset_id)).scalar_one())

    return Rests(
        labellings=count(labelling.c.dataset),
        runs=count(run.c.dataset),
        decisions=count(decision.c.dataset),
        versions=count(dataset_version.c.parent),
        frozen=bool(count(freeze.c.dataset)),
    )


def lock(connection: sa.Connection, dataset_id: int) -> None:
    """Keep others from changing a dataset, or from resting anything on it, until this transaction ends. Raises
    StoreError where it is gone. SQLite has taken its one write lock at BEGIN."""
    row = connection.execute(sa.select(dataset.c.id).where(dataset.c.id == dataset_id).with_for_update()).first()
    if row is None:
        raise StoreError(f"the dataset {dataset_id} is not here any more. Look at the list of datasets again.")


def next_name(connection: sa.Connection, dataset_id: int) -> tuple[str, int]:
    """The name and number that the next version of this family gets: 'demo v3', 3."""
    members = family(connection, dataset_id)
    first = members[0]
    base = first.name.removesuffix(f" v{first.version}") if first.version > 1 else first.name
    number = members[-1].version + 1
    while connection.execute(sa.select(dataset.c.id).where(dataset.c.name == f"{base} v{number}")).first():
        number += 1  # somebody has given that name to another dataset
    return f"{base} v{number}", number


def copy(connection: sa.Connection, source: int, name: str, number: int) -> int:
    """A new version that holds what `source` holds: profiles, attributes, contexts and named rules; returns its id.

    Labellings, runs and decisions stay where they are; `carry_decisions` brings the latter over after the edit.
    """
    created = now()
    origin = sa.select(
        sa.literal(name), dataset.c.origin, dataset.c.source_name, dataset.c.source_hash, sa.literal(created)
    ).where(dataset.c.id == source)
    connection.execute(
        sa.insert(dataset).from_select(["name", "origin", "source_name", "source_hash", "created"], origin)
    )
    new = int(connection.execute(sa.select(dataset.c.id).where(dataset.c.name == name)).scalar_one())
    connection.execute(sa.insert(dataset_version).values(dataset=new, parent=source, version=number, created=created))
    _copy_own(connection, profile, source, new)
    _copy_own(connection, context, source, new)
    _copy_own(connection, rule, source, new)
    old_profile, new_profile = profile.alias("old_profile"), profile.alias("new_profile")
    same_person = sa.and_(
        old_profile.c.dataset == source,
        new_profile.c.dataset == new,
        old_profile.c.ordinal == new_profile.c.ordinal,
    )
    columns = [c for c in attribute.c if c.name not in ("id", "profile")]
    connection.execute(
        sa.insert(attribute).from_select(
            ["profile", *(c.name for c in columns)],
            sa.select(new_profile.c.id, *columns)
            .join(old_profile, attribute.c.profile == old_profile.c.id)
            .join(new_profile, same_person)
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
            .join(
                new_context,
                sa.and_(
                    new_context.c.dataset == new,
                    new_context.c.task == old_context.c.task,
                    new_context.c.recipient == old_context.c.recipient,
                ),
            ),
        )
    )
    return new


def _copy_own(connection: sa.Connection, table: sa.Table, source: int, new: int) -> None:
    """The rows of a table that belong to a dataset, for another one."""
    columns = [c for c in table.c if c.name not in ("id", "dataset")]
    connection.execute(
        sa.insert(table).from_select(
            ["dataset", *(c.name for c in columns)],
            sa.select(sa.literal(new), *columns).where(table.c.dataset == source).order_by(table.c.id),
        )
    )


CARRIED = ("annotator", "label", "seconds", "source", "blind", "created", "guideline", "cause")


def carry_decisions(connection: sa.Connection, source: int, target: int) -> tuple[int, int]:
    """Copy every annotator's standing decision on the pairs that are the same in both versions.

    The same pair: profile ordinal, key, statement and value of the attribute, task and recipient of the context.
    Author, time, reason, source and blindness are kept, and the reason says where it was decided. Returns how many were
    carried, and how many stand on pairs that are no longer there or no longer the same.
    """
    later = decision.alias("later")
    standing = sa.and_(
        decision.c.dataset == source,
        decision.c.label.is_not(None),
        ~sa.exists().where(later.c.supersedes == decision.c.id),
    )
    total = int(connection.execute(sa.select(sa.func.count()).select_from(decision).where(standing)).scalar_one())
    if not total:
        return 0, 0
    old_attribute, new_attribute = attribute.alias("old_attribute"), attribute.alias("new_attribute")
    old_profile, new_profile = profile.alias("old_profile"), profile.alias("new_profile")
    old_context, new_context = context.alias("old_context"), context.alias("new_context")
    same_columns = [old_attribute.c[n] == new_attribute.c[n] for n in ("key", "statement", "value")]
    rows = connection.execute(
        sa.select(decision, new_attribute.c.id.label("to_attribute"), new_context.c.id.label("to_context"))
        .join(old_attribute, decision.c.attribute == old_attribute.c.id)
        .join(old_profile, old_attribute.c.profile == old_profile.c.id)
        .join(new_profile, sa.and_(new_profile.c.dataset == target, new_profile.c.ordinal == old_profile.c.ordinal))
        .join(new_attribute, sa.and_(new_attribute.c.profile == new_profile.c.id, *same_columns))
        .join(old_context, decision.c.context == old_context.c.id)
        .join(
            new_context,
            sa.and_(
                new_context.c.dataset == target,
                new_context.c.task == old_context.c.task,
                new_context.c.recipient == old_context.c.recipient,
            ),
        )
        .join(
            profile_context,
            sa.and_(profile_context.c.profile == new_profile.c.id, profile_context.c.context == new_context.c.id),
        )
        .where(standing)
        .order_by(decision.c.id)
    ).mappings()
    source_name = connection.execute(sa.select(dataset.c.name).where(dataset.c.id == source)).scalar_one()
    carried = [
        {
            **{n: row[n] for n in CARRIED},
            "dataset": target,
            "attribute": row["to_attribute"],
            "context": row["to_context"],
            "reason": _with_origin(row["reason"], source_name),
        }
        for row in rows
    ]
    if carried:
        connection.execute(sa.insert(decision), carried)
    return len(carried), total - len(carried)


def _with_origin(reason: str, name: str) -> str:
    return reason if _ORIGIN.search(reason) else f"{reason} [decided on '{name}']".strip()
