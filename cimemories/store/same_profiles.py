"""Which dataset holds these very profiles already, so that what comes later of them is kept beside what is there."""

from __future__ import annotations

import json
from collections.abc import Sequence

import sqlalchemy as sa

from cimemories.model import Profile
from cimemories.store import datasets
from cimemories.store.datasets import DatasetRow, ProfileRecord
from cimemories.store.ids import content_hash
from cimemories.store.tables import profile


def profile_hash(item: Profile) -> str:
    """A hash over biography, attributes and contexts in their order; spheres are no part of it, as of no run."""
    return content_hash(
        [
            [item.name, item.sex, item.address, item.age],
            [[a.key, json.dumps(a.value), a.domain, a.event, a.statement] for a in item.attributes],
            [[c.task, c.recipient] for c in item.contexts],
        ]
    )


def dataset_with(
    connection: sa.Connection, profiles: Sequence[Profile], name: str | None = None
) -> tuple[DatasetRow, list[ProfileRecord]] | None:
    """The dataset that holds all of these profiles, with their records in the order given; None where none does.

    It may hold more. Of several the one of this name, else the one with the fewest profiles, else the oldest.
    """
    wanted = [profile_hash(item) for item in profiles]
    if len(set(wanted)) < len(wanted):
        return None
    names = {item.name for item in profiles}
    rows = [row for row in datasets.all_rows(connection) if row.profiles >= len(wanted)]
    for row in sorted(rows, key=lambda row: (row.name != name, row.profiles, row.id)):
        ids = connection.execute(
            sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == row.id).order_by(profile.c.ordinal)
        ).all()
        if not names <= {r.name for r in ids}:
            continue
        records = [datasets.profile_record(connection, r.id) for r in ids if r.name in names]
        by_hash = {profile_hash(record.profile): record for record in records}
        if all(digest in by_hash for digest in wanted):
            return row, [by_hash[digest] for digest in wanted]
    return None
