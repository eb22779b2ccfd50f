"""Profiles in lists: counts and search without reading any profile whole, however many there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import sqlalchemy as sa

from cimemories.model import GENERAL
from cimemories.store.tables import attribute, profile


@dataclass(frozen=True)
class Summary:
    """One profile in a list; `events` in order of first mention, `general` left out."""

    id: int
    ordinal: int
    name: str
    age: int
    events: tuple[str, ...]
    attributes: int


@dataclass(frozen=True)
class Hit:
    """An attribute that matches a search."""

    profile: int
    attribute: int
    name: str
    statement: str
    domain: str


def summaries(connection: sa.Connection, dataset_id: int) -> list[Summary]:
    """Every profile of a dataset in its order, with what a list says of it."""
    events: dict[int, list[str]] = {}
    counts: dict[int, int] = {}
    for profile_id, event, count in connection.execute(
        sa.select(attribute.c.profile, attribute.c.event, sa.func.count())
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .group_by(attribute.c.profile, attribute.c.event)
        .order_by(attribute.c.profile, sa.func.min(attribute.c.ordinal))
    ):
        counts[profile_id] = counts.get(profile_id, 0) + count
        # Grouped by the database as the file spelled them: two spellings are one event.
        if event != GENERAL and event not in events.setdefault(profile_id, []):
            events[profile_id].append(event)
    rows = connection.execute(
        sa.select(profile.c.id, profile.c.ordinal, profile.c.name, profile.c.age)
        .where(profile.c.dataset == dataset_id)
        .order_by(profile.c.ordinal)
    )
    return [Summary(r.id, r.ordinal, r.name, r.age, tuple(events.get(r.id, ())), counts.get(r.id, 0)) for r in rows]


def domains(connection: sa.Connection, dataset_id: int) -> dict[str, int]:
    """How many attributes each domain of a dataset has."""
    rows = connection.execute(
        sa.select(attribute.c.domain, sa.func.count())
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .group_by(attribute.c.domain)
        .order_by(attribute.c.domain)
    )
    return {row.domain: int(row[1]) for row in rows}


@cache
def _cases() -> dict[str, str]:
    """All letters beyond ASCII that are one and the same when case is folded, by what they fold to."""
    found: dict[str, str] = {}
    for letter in map(chr, range(128, 0x1F000)):
        found[letter.casefold()] = found.get(letter.casefold(), "") + letter
    return found


def search(
    connection: sa.Connection,
    dataset_id: int,
    wanted: str,
    *,
    domains: Collection[str] = (),
    profiles: Sequence[int] | None = None,
    limit: int = 200,
) -> tuple[list[Hit], int]:
    """Attributes in whose statement, key or owner's name every word of `wanted` occurs, whatever its case.

    In `domains` where given, of these profiles (ids) where given. Returns the first `limit`, in order, and how many
    there are. The engines fold the case of ASCII letters alone, so words with others are looked at here.
    """
    words = wanted.casefold().split()
    query = (
        sa.select(
            attribute.c.profile,
            attribute.c.id.label("attribute"),
            profile.c.name,
            attribute.c.statement,
            attribute.c.domain,
            attribute.c.key,
        )
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    if domains:
        query = query.where(attribute.c.domain.in_(domains))
    if profiles is not None:
        query = query.where(attribute.c.profile.in_(profiles))
    columns = (attribute.c.statement, attribute.c.key, profile.c.name)
    for piece in (piece for word in words for piece in re.findall(r"[\x21-\x7e]+", word)):
        query = query.where(sa.or_(*(column.icontains(piece, autoescape=True) for column in columns)))
    for letter in (letter for word in words for letter in re.findall(r"[^\x00-\x7f]", word)[:1]):
        query = query.where(sa.or_(*(c.contains(cased) for c in columns for cased in _cases().get(letter, letter))))
    ordered = query.order_by(profile.c.ordinal, attribute.c.ordinal)
    if all(word.isascii() for word in words):
        rows = connection.execute(ordered.limit(limit)).all()
        total = len(rows)
        if total == limit:
            total = int(connection.execute(sa.select(sa.func.count()).select_from(query.subquery())).scalar_one())
    else:
        rows = [
            row
            for row in connection.execute(ordered)
            if all(word in f"{row.statement}\n{row.key}\n{row.name}".casefold() for word in words)
        ]
        total = len(rows)
    return [Hit(r.profile, r.attribute, r.name, r.statement, r.domain) for r in rows[:limit]], total
