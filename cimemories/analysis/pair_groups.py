"""What the pairs of a labelling are grouped by: domain, sphere, context or profile, as small codes a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import sqlalchemy as sa

from cimemories.analysis.labels import VoteCounts
from cimemories.store.tables import attribute, context, profile

NO_SPHERE = "no sphere given"
Codes = npt.NDArray[np.int64]


class GroupBy(StrEnum):
    """What a share can be broken down by."""

    DOMAIN = "domain"
    SPHERE = "sphere"
    CONTEXT = "context"
    PROFILE = "profile"


@dataclass(frozen=True)
class Groups:
    """One grouping. ids: what tells a group apart in the record (a name, or an id of a row); names: what is shown;
    codes: [pairs], the position of each pair's group in `ids`."""

    ids: tuple[str | int, ...]
    names: tuple[str, ...]
    codes: Codes

    def count(self, mask: npt.NDArray[np.bool_]) -> Codes:
        """How many of the masked pairs each group has: [groups]. mask: [pairs]."""
        return np.bincount(self.codes[mask], minlength=len(self.ids))


def groupings(connection: sa.Connection, dataset_id: int, counts: VoteCounts) -> dict[GroupBy, Groups]:
    """Every grouping of the pairs of a labelling, groups in the order of the record."""
    attributes = connection.execute(
        sa.select(attribute.c.id, attribute.c.domain, attribute.c.profile)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
        .order_by(attribute.c.id)
    ).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.sphere, context.c.recipient, context.c.task)
        .where(context.c.dataset == dataset_id)
        .order_by(context.c.id)
    ).all()
    people = connection.execute(
        sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == dataset_id).order_by(profile.c.ordinal)
    ).all()
    by_attribute = np.searchsorted(np.array([row.id for row in attributes], np.int64), counts.attributes)
    by_context = np.searchsorted(np.array([row.id for row in contexts], np.int64), counts.contexts)
    spheres = [row.sphere or NO_SPHERE for row in contexts]
    return {
        GroupBy.DOMAIN: _named([row.domain for row in attributes], by_attribute),
        GroupBy.SPHERE: _named(spheres, by_context),
        GroupBy.CONTEXT: Groups(
            tuple(row.id for row in contexts), tuple(f"{row.recipient}: {row.task}" for row in contexts), by_context
        ),
        GroupBy.PROFILE: _of_profiles(people, [row.profile for row in attributes], by_attribute),
    }


def _named(names: Sequence[str], position: Codes) -> Groups:
    """Groups that are told apart by a name; position: [pairs] into `names`."""
    unique = sorted(set(names))
    code = np.array([unique.index(name) for name in names], np.int64)
    shown = tuple(name.replace("_", " ") for name in unique)
    return Groups(tuple(unique), shown, code[position] if len(code) else position)


def _of_profiles(people: Sequence[Any], owners: Sequence[int], position: Codes) -> Groups:
    order = {row.id: n for n, row in enumerate(people)}
    code = np.array([order[owner] for owner in owners], np.int64)
    return Groups(
        tuple(row.id for row in people), tuple(row.name for row in people), code[position] if len(code) else position
    )


def pair_words(connection: sa.Connection, dataset_id: int, pairs: pd.DataFrame) -> pd.DataFrame:
    """These pairs (columns attribute, context: ids) in their order, with what a person reads beside their further
    columns: profile (id), user, key, domain, statement, recipient, task."""
    attributes = connection.execute(
        sa.select(
            attribute.c.id,
            attribute.c.profile,
            profile.c.name,
            attribute.c.key,
            attribute.c.domain,
            attribute.c.statement,
        )
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    ).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.recipient, context.c.task).where(context.c.dataset == dataset_id)
    ).all()
    named = pairs.merge(
        pd.DataFrame(attributes, columns=["attribute", "profile", "user", "key", "domain", "statement"]),
        on="attribute",
        how="left",
    )
    return named.merge(pd.DataFrame(contexts, columns=["context", "recipient", "task"]), on="context", how="left")
