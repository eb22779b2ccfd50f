"""Every pair (attribute, context) of a dataset in one order, as dense arrays: who, what, towards whom.

A pair's position is its number in the record's order: profile, then attribute, then context of that profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.store.curation_tables import edit
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, dataset, profile, profile_context

Ints = npt.NDArray[Any]
Positions = npt.NDArray[np.int32]
ShapeKey = tuple[str, int, str, int]


class Facet(StrEnum):
    """What pairs can be told apart by besides their attribute and context."""

    PROFILE = "profile"
    DOMAIN = "domain"
    EVENT = "event"
    SPHERE = "sphere"


@dataclass(frozen=True)
class PairShape:
    """The pairs of a dataset. Arrays are shared between threads: do not write to them.

    key: changes whenever pairs come or go, or their wording does. attributes, contexts: ids [pairs]. attribute_row,
    context_row: [pairs], into the tables of attributes (by id) and contexts (in the record's order). attribute_ids,
    context_ids: those tables. codes: by facet, into `names`: [attributes], of SPHERE [contexts]. profile_ids: in the
    order of the codes of PROFILE. A context without a sphere has the sphere ''.
    """

    key: ShapeKey
    attributes: Ints
    contexts: Ints
    attribute_row: Positions
    context_row: Positions
    attribute_ids: Ints
    context_ids: Ints
    profile_ids: Ints
    names: dict[Facet, tuple[str, ...]]
    row_codes: dict[Facet, Ints]
    first: Ints  # [attributes]: the position of an attribute's first pair
    place: Ints  # [profiles, contexts]: where a context stands among those of a profile, -1 where it has it not

    @property
    def pairs(self) -> int:
        return len(self.attributes)

    @property
    def dataset_id(self) -> int:
        return self.key[1]

    def codes(self, facet: Facet, positions: Ints | None = None) -> Ints:
        """The codes of these positions (all pairs where None) into names[facet]."""
        rows = self.context_row if facet is Facet.SPHERE else self.attribute_row
        found: Ints = self.row_codes[facet][rows if positions is None else rows[positions]]
        return found

    def ids(self, positions: Ints) -> list[tuple[int, int]]:
        """(attribute id, context id) of these positions, in their order."""
        return list(zip(self.attributes[positions].tolist(), self.contexts[positions].tolist(), strict=True))

    def locate(self, attributes: npt.ArrayLike, contexts: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """The positions of pairs given by ids, -1 for what is no pair of the dataset: [as many as given]."""
        row = _lookup(self.attribute_ids, np.asarray(attributes, np.int64))
        column = self._context_rank(np.asarray(contexts, np.int64))
        if not self.pairs:
            return np.full(len(row), -1, np.int64)
        known = (row >= 0) & (column >= 0)
        place = self.place[self.row_codes[Facet.PROFILE][row], column]
        return np.where(known & (place >= 0), self.first[row] + place, -1)

    def _context_rank(self, contexts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        by_id, order = self._contexts_by_id
        at = _lookup(by_id, contexts)
        return np.where(at >= 0, order[at], -1) if len(order) else at

    @cached_property
    def _contexts_by_id(self) -> tuple[Ints, Ints]:
        order = np.argsort(self.context_ids)
        return self.context_ids[order], order


def _lookup(known: Ints, asked: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where each asked id stands in sorted ids, -1 where it does not."""
    if not len(known):
        return np.full(len(asked), -1, np.int64)
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[at] == asked, at, -1)


def shape_key(store: Store, connection: sa.Connection, dataset_id: int) -> ShapeKey:
    """What a shape rests on: the dataset and the newest change by hand. Raises StoreError for an unknown dataset."""
    created = connection.execute(sa.select(dataset.c.created).where(dataset.c.id == dataset_id)).scalar()
    if created is None:
        raise StoreError(f"there is no dataset {dataset_id} in this workspace. It may have been deleted.")
    newest = connection.execute(sa.select(sa.func.max(edit.c.id)).where(edit.c.dataset == dataset_id)).scalar()
    # An id may be given out again after a dataset is deleted; the moment of its making is not.
    return f"{store.engine.url} {store.workspace.absolute()}", dataset_id, str(created), int(newest or 0)


def read_shape(connection: sa.Connection, key: ShapeKey) -> PairShape:
    """The pairs as they stand in the record now."""
    people = connection.execute(
        sa.select(profile.c.id, profile.c.name).where(profile.c.dataset == key[1]).order_by(profile.c.ordinal)
    ).all()
    attributes = connection.execute(
        sa.select(attribute.c.id, attribute.c.profile, attribute.c.domain, attribute.c.event)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(profile.c.dataset == key[1])
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    ).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.sphere).where(context.c.dataset == key[1]).order_by(context.c.ordinal)
    ).all()
    tested = connection.execute(
        sa.select(profile_context.c.profile, profile_context.c.context)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == key[1])
        .order_by(profile_context.c.profile, profile_context.c.ordinal)
    ).all()
    person = {row.id: n for n, row in enumerate(people)}
    column = {row.id: n for n, row in enumerate(contexts)}
    own: list[list[int]] = [[] for _ in people]
    place = np.full((len(people), len(contexts)), -1, np.int32)
    for profile_id, context_id in tested:
        towards = own[person[profile_id]]
        place[person[profile_id], column[context_id]] = len(towards)
        towards.append(column[context_id])
    owner = np.array([person[row.profile] for row in attributes], np.int32)
    width = np.array([len(part) for part in own], np.int64)[owner]
    flat = np.array([c for part in own for c in part], np.int32)
    began = np.concatenate([[0], np.cumsum([len(part) for part in own])])[:-1]
    rows = np.repeat(np.arange(len(attributes), dtype=np.int32), width)
    first = np.concatenate([[0], np.cumsum(width)])[:-1].astype(np.int64)
    within = np.arange(len(rows)) - first[rows]
    columns = flat[began[owner][rows] + within] if len(rows) else np.zeros(0, np.int32)
    in_order = np.array([row.id for row in attributes], np.int64)
    by_id = np.argsort(in_order)
    rank = np.empty(len(by_id), np.int32)
    rank[by_id] = np.arange(len(by_id))
    ids = np.array([row.id for row in contexts], np.int64)
    domains, domain_codes = _coded([row.domain for row in attributes])
    events, event_codes = _coded([row.event for row in attributes])
    spheres, sphere_codes = _coded([row.sphere or "" for row in contexts])
    return PairShape(
        key=key,
        attributes=_narrow(in_order)[rows],
        contexts=_narrow(ids)[columns],
        attribute_row=rank[rows],
        context_row=columns,
        attribute_ids=in_order[by_id],
        context_ids=ids,
        profile_ids=np.array([row.id for row in people], np.int64),
        names={
            Facet.PROFILE: tuple(row.name for row in people),
            Facet.DOMAIN: domains,
            Facet.EVENT: events,
            Facet.SPHERE: spheres,
        },
        row_codes={
            Facet.PROFILE: owner[by_id],
            Facet.DOMAIN: domain_codes[by_id],
            Facet.EVENT: event_codes[by_id],
            Facet.SPHERE: sphere_codes,
        },
        first=first[by_id],
        place=place,
    )


def _coded(names: list[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Names in order of first mention, and the code of each."""
    code = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return tuple(code), np.array([code[name] for name in names], np.int32)


def _narrow(ids: npt.NDArray[np.int64]) -> Ints:
    """Half the memory where the ids allow it: there may be millions of pairs."""
    return ids if len(ids) and ids.max() > np.iinfo(np.int32).max else ids.astype(np.int32)
