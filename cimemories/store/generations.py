"""Generations: profiles being written by a model. A part is one event of one profile, or its general attributes.

The dataset of a generation is made when all its parts are settled. Its row stays afterwards as the provenance of that
dataset: who was asked for what in which words, what was turned down and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from cimemories.model import Attribute, WorkStatus
from cimemories.store import versions, work
from cimemories.store.engine import StoreError, canonical_json, new_id, now, plain_name
from cimemories.store.rows import from_row, in_chunks, insert, insert_one, rows_of
from cimemories.store.rows import settle as settle_rows
from cimemories.store.runs import NOT_NOTED, ModelCalls, usage
from cimemories.store.tables import call, generation, generation_part

OWED, FAILED = "owed", "failed"
OK = "ok"
SHORT = "short"  # settled, and some attributes that were asked for are missing
REFUSED = "refused"  # settled: the server will not take this request, however often it is asked
# What a resume asks for: failures of the way to the server too, but never what was answered three times.
RETRIABLE = (OWED, FAILED)


@dataclass(frozen=True)
class GenerationRow:
    """One generation in a list. `parts` counts them by status; `dataset` is None until it is made, or once deleted."""

    id: str
    name: str
    model: str
    endpoint: str
    simulated: bool
    manifest: dict[str, Any]
    dataset: int | None
    status: WorkStatus
    error: str | None
    created: str
    finished: str | None
    revision: int
    parts: dict[str, int]

    @property
    def expected(self) -> int:
        return sum(self.parts.values())

    @property
    def settled(self) -> int:
        """Parts that no call is owed for any more."""
        return sum(count for status, count in self.parts.items() if status not in RETRIABLE)


@dataclass(frozen=True)
class Part:
    """One part as it stands. `attempt` is the one that is owed, or the last that was made; `rejected` are records."""

    id: int
    profile: int
    position: int
    event: str
    attempt: int = 0
    status: str = OWED
    cause: str | None = None
    attributes: tuple[Attribute, ...] = ()
    rejected: tuple[dict[str, object], ...] = ()
    call: str | None = None

    @property
    def open(self) -> bool:
        return self.status in RETRIABLE


def add(
    connection: sa.Connection,
    *,
    manifest: Mapping[str, object],
    events: Sequence[Sequence[str]],
    **values: Any,
) -> str:
    """Write a new generation whose parts are all owed, and return its id. events: for each profile those of its parts,
    in their order; values: name, model, endpoint and simulated."""
    plain_name(values["name"], "dataset")
    plain_name(values["model"], "model")
    written = {"manifest": canonical_json(manifest), "status": WorkStatus.QUEUED, "created": now()}
    generation_id = insert_one(connection, generation, id=new_id("generation"), **written, **values)
    insert(
        connection,
        generation_part,
        (
            {"generation": generation_id, "profile": ordinal, "position": position, "event": event, "status": OWED}
            for ordinal, profile_events in enumerate(events)
            for position, event in enumerate(profile_events)
        ),
    )
    return str(generation_id)


def unfinished(connection: sa.Connection, name: str, identity: str) -> str | None:
    """Return the id of a generation without a dataset that was asked for the very same (its manifest's `identity`), or
    None."""
    rows = connection.execute(
        sa.select(generation.c.id, generation.c.manifest)
        .where(generation.c.name == name, generation.c.dataset.is_(None))
        .order_by(generation.c.created.desc())
    )
    return next((row.id for row in rows if row.manifest.get("identity") == identity), None)


def move(connection: sa.Connection, generation_id: str, endpoint: str, how: Mapping[str, object]) -> None:
    """Note where its server is now, and how it is asked there: `how` goes into the manifest. Raises StoreError while a
    living process works on it."""
    row = work.locked(connection, generation_id)
    work.require_idle([row])
    work.update(connection, generation_id, endpoint=endpoint, manifest=canonical_json({**row["manifest"], **how}))


def all_rows(connection: sa.Connection) -> list[GenerationRow]:
    """Return every generation with its parts counted by status, oldest first."""
    query = work.select(generation).order_by(generation.c.created, generation.c.id)
    of_part = generation_part.c.generation, generation_part.c.status
    return work.listed(connection, query, GenerationRow, "parts", *of_part)


def by_id(connection: sa.Connection, generation_id: str) -> GenerationRow:
    """Return the generation of that id. Raises StoreError if there is none."""
    row = next((row for row in all_rows(connection) if row.id == generation_id), None)
    if row is None:
        raise StoreError(
            f"there is no '{generation_id}' in this workspace. `cimemories datasets generations` lists them."
        )
    return row


def progress(connection: sa.Connection, generation_id: str) -> tuple[int, int]:
    """Return (parts settled, parts in all); (0, 0) for an unknown generation."""
    # One pass for both; a sum over no rows is null.
    settled = sa.func.coalesce(sa.func.sum(sa.case((generation_part.c.status.in_(RETRIABLE), 0), else_=1)), 0)
    query = sa.select(settled, sa.func.count()).where(generation_part.c.generation == generation_id)
    row = connection.execute(query).one()
    return int(row[0]), int(row[1])


def parts(connection: sa.Connection, generation_id: str, profile: int | None = None) -> list[Part]:
    """Return the parts of a generation, or of one of its profiles (an ordinal), in their order."""
    query = (
        sa.select(generation_part)
        .where(generation_part.c.generation == generation_id)
        .order_by(generation_part.c.profile, generation_part.c.position)
    )
    if profile is not None:
        query = query.where(generation_part.c.profile == profile)
    return [
        from_row(
            Part,
            row,
            attributes=tuple(Attribute(**item) for item in row["attributes"]),
            rejected=tuple(row["rejected"]),
        )
        for row in rows_of(connection, query)
    ]


def owing_profiles(connection: sa.Connection, generation_id: str) -> list[int]:
    """Return the ordinals of the profiles of which a part is owed, in order."""
    owing = generation_part.c.generation == generation_id, generation_part.c.status.in_(RETRIABLE)
    query = sa.select(generation_part.c.profile).where(*owing).distinct().order_by(generation_part.c.profile)
    return list(connection.scalars(query))


def settle(connection: sa.Connection, parts: Sequence[Part]) -> list[bool]:
    """Write how these parts stand now; one that is settled is left as it is. Return for each whether it rests on its
    call: if a commit's end was not confirmed, it is done again and finds the part settled."""
    names = ("id", "status", "attempt", "cause", "call", "rejected")
    rows = [
        {name: getattr(part, name) for name in names} | {"attributes": [vars(item) for item in part.attributes]}
        for part in parts
    ]
    settle_rows(connection, generation_part, rows, RETRIABLE)
    ids = [part.id for part in parts]
    query = sa.select(generation_part.c.id, generation_part.c.call).where(generation_part.c.id.in_(ids))
    calls = {row.id: row.call for row in connection.execute(query)}
    return [calls.get(part.id) == part.call for part in parts]


def rejections(connection: sa.Connection, generation_id: str) -> dict[str, int]:
    """Return how often something that a model wrote was turned down, by reason and over all attempts, the most frequent
    reason first."""
    query = sa.select(generation_part.c.rejected).where(generation_part.c.generation == generation_id)
    counted = Counter(str(item["reason"]) for rejected in connection.scalars(query) for item in rejected)
    return dict(counted.most_common())


def calls_by_model(connection: sa.Connection, generation_id: str, since: str | None = None) -> list[ModelCalls]:
    """Return what a generation used, by kind and model, its earlier attempts too. since: only what was asked from that
    time on."""
    query = sa.select(generation_part.c.call, generation_part.c.rejected)
    rows = connection.execute(query.where(generation_part.c.generation == generation_id)).all()
    # A set: one call is named by each thing that was turned down of it.
    keys = {row.call for row in rows if row.call} | {str(item["call"]) for row in rows for item in row.rejected}
    total: dict[tuple[str, str], ModelCalls] = {}
    for chunk in in_chunks(keys):
        used = sa.select(call.c.key.label("call"), NOT_NOTED).where(call.c.key.in_(chunk))
        for part in usage(connection, used, since):
            key = part.kind, part.model
            total[key] = replace(total[key].plus(part), model=part.model) if key in total else part
    return list(total.values())


def of_dataset(connection: sa.Connection, dataset_id: int) -> GenerationRow | None:
    """Return the generation that wrote a dataset or its first version, or None if no model did."""
    rows = {row.dataset: row for row in all_rows(connection) if row.dataset is not None}
    # From version to version, back to the one that was written.
    return next((rows[i] for i in reversed(versions.lineage(connection, dataset_id)) if i in rows), None)
