"""The audit log: who did what when. Append-only; an entry is written in the transaction of what it tells of, so that
there is none without the act and no act without it.

A decision on one pair is its own evidence, as is a verdict, a comment and an edit: each has its author and time. What
is here is the rest: roles, imports and exports, freezes and deletions, backups, runs, rules, guideline, overlap, slices
and who is assigned them, and decisions in bulk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from cimemories.access import roles
from cimemories.access.roles import Role
from cimemories.store.engine import Store, canonical_json, now, one_line, require_role
from cimemories.store.rows import fetch, insert_one
from cimemories.store.tables import audit_log, dataset

LONGEST_SUBJECT = 300
READ_ONLY, MAY_NOT = "25006", "42501"  # PostgreSQL's states for a server or session, and for a user, that only reads


@dataclass(frozen=True)
class Entry:
    """An act of a person: action in two words ('run.started'), what it was done to, and numbers or names of it."""

    id: int
    created: str
    person: str
    action: str
    subject: str
    details: dict[str, Any]

    @property
    def text(self) -> str:
        """'share: 0.5, people: 2'; empty where there is nothing more to say."""
        return ", ".join(f"{name}: {value}" for name, value in self.details.items() if value not in (None, ""))


@dataclass(frozen=True)
class Log:
    """Entries, newest first; people: everybody who is in the whole log; kinds: what entries there are about."""

    entries: list[Entry]
    people: list[str]
    kinds: list[str]


def add(connection: sa.Connection, action: str, subject: str, /, **details: object) -> None:
    """Append an entry of who is at it (access.roles.actor)."""
    insert_one(
        connection,
        audit_log,
        created=now(),
        person=roles.actor().name,
        action=action,
        subject=one_line(subject)[:LONGEST_SUBJECT],
        details=canonical_json({name: value for name, value in details.items() if value is not None}),
    )


def note(store: Store, action: str, subject: str, /, **details: object) -> None:
    """Append an entry in a transaction of its own, for what writes nothing itself: an export. It appends nothing where
    the record is read-only, for all or for this user of the database."""
    if store.read_only:
        return
    try:
        with store.write(Role.VIEWER) as connection:
            add(connection, action, subject, **details)
    except sa.exc.DBAPIError as error:
        # What is told of has been done, so that the note alone is missing.
        if getattr(error.orig, "sqlstate", None) not in (READ_ONLY, MAY_NOT):
            raise


def dataset_name(connection: sa.Connection, dataset_id: int) -> str:
    """Return the name of a dataset for an entry; 'dataset 3' where dataset 3 is gone."""
    return connection.scalar(sa.select(dataset.c.name).where(dataset.c.id == dataset_id)) or f"dataset {dataset_id}"


def entries(
    connection: sa.Connection,
    *,
    person: str | None = None,
    action: str | None = None,
    subject: str | None = None,
    since: str | None = None,
    most: int | None = None,
) -> list[Entry]:
    """Return the entries, newest first: of one person, of one action or one kind of action ('run' for all of
    'run.started' and the like), of what was done to one subject, from a time on, at most so many."""
    query = sa.select(audit_log).order_by(audit_log.c.id.desc()).limit(most)
    if person:
        query = query.where(audit_log.c.person == person)
    if action:
        query = query.where(sa.or_(audit_log.c.action == action, audit_log.c.action.startswith(f"{action}.")))
    if subject:
        query = query.where(audit_log.c.subject == subject)
    if since:
        query = query.where(audit_log.c.created >= since)
    return fetch(connection, query, Entry)


def listed(store: Store, *, person: str | None = None, action: str | None = None, most: int | None = None) -> Log:
    """Return the entries that match, newest first, and what there is to choose from. Raises NotAllowed
    unless the user is an admin."""
    with store.read() as connection:
        require_role(connection, Role.ADMIN)
        newest = entries(connection, person=person, action=action, most=most)
        kinds = connection.scalars(sa.select(audit_log.c.action).distinct())
        people = connection.scalars(sa.select(audit_log.c.person).distinct().order_by(audit_log.c.person))
        return Log(newest, list(people), sorted({kind.partition(".")[0] for kind in kinds}))
