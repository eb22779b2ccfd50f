"""Which pairs a person is shown next: the index with decisions laid over it, filtered and in an order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.analysis.review_index import PairIndex
from cimemories.analysis.review_shape import Facet, Ints, Positions
from cimemories.analysis.review_standing import effective, standing
from cimemories.curation.consensus import CODES, UNLABELLED
from cimemories.model import Label
from cimemories.store import marks
from cimemories.store.engine import Store, StoreError
from cimemories.store.review_tables import slice_item

UNLABELLED_NAME = "none"
Mask = npt.NDArray[np.bool_]


class Order(StrEnum):
    """In which order pairs come. What ties, and CONTEXT and ATTRIBUTE themselves, go by the record's order."""

    EFFECT = "effect"  # entropy x reveal rate, highest first
    ENTROPY = "entropy"
    CONTEXT = "context"  # one recipient and task at a time, over all profiles
    ATTRIBUTE = "attribute"  # one profile's attributes one by one
    RANDOM = "random"  # by a hash of seed, attribute and context: a pair that comes later disturbs no other


@dataclass(frozen=True)
class Filters:
    """What pairs must be; all of what is given must hold. profile, attribute, context, slice: ids in the record.

    labels: names of effective labels, 'none' for pairs that nobody labelled; empty: all. dissenter: key of a persona
    that dissents (PairIndex). undecided_by: an annotator without a standing decision there. others_differ_from: an
    annotator with a standing decision, where somebody else's has another label. revealed: in a judged message of a
    finished run (False: in none). flagged: by somebody as a bad item (False: by nobody).
    """

    profile: int | None = None
    attribute: int | None = None
    context: int | None = None
    domain: str | None = None
    event: str | None = None
    sphere: str | None = None
    labels: tuple[str, ...] = ()
    dissenter: str | None = None
    undecided_by: str | None = None
    others_differ_from: str | None = None
    revealed: bool | None = None
    flagged: bool | None = None
    slice: int | None = None


def select(store: Store, index: PairIndex, filters: Filters, order: Order, seed: int = 0) -> Positions:
    """The positions in the index of the pairs that match, in this order: [matching]. Read-only. seed: of RANDOM.

    What is asked for and is not there (a profile that is gone, a name never heard of) matches nothing. Raises
    StoreError for a label that is none.
    """
    permutation = index.kept(_name(order, seed), lambda: _permutation(index, order, seed))
    mask = _mask(store, index, filters)
    if mask is None:
        return permutation
    found: Positions = permutation[mask[permutation]]
    return found


def _name(order: Order, seed: int) -> object:
    return (order, seed) if order is Order.RANDOM else order


def _permutation(index: PairIndex, order: Order, seed: int) -> Positions:
    shape = index.shape
    if order is Order.ATTRIBUTE:
        found: Ints = np.arange(shape.pairs)
    elif order is Order.CONTEXT:
        small = shape.context_row.astype(np.int16) if len(shape.context_ids) < 2**15 else shape.context_row
        found = np.argsort(small, kind="stable")  # in linear time for small integers
    elif order is Order.RANDOM:
        found = np.argsort(_hashed(seed, shape.attributes, shape.contexts), kind="stable")
    else:
        values = index.effect if order is Order.EFFECT else index.entropy
        found = np.argsort(np.where(np.isnan(values), 1, -values), kind="stable")  # pairs without any vote come last
    permutation = found.astype(np.int32)
    permutation.setflags(write=False)
    return permutation


def _hashed(seed: int, attributes: Ints, contexts: Ints) -> npt.NDArray[np.uint64]:
    """A number a pair that looks random (the finalizer of splitmix64, Steele et al. 2014)."""
    start = np.uint64((seed * 0x9E3779B97F4A7C15) % 2**64)
    with np.errstate(over="ignore"):
        mixed = _mixed(attributes.astype(np.uint64) ^ _mixed(np.atleast_1d(start)))
        return _mixed(mixed + contexts.astype(np.uint64))


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _mask(store: Store, index: PairIndex, filters: Filters) -> Mask | None:
    """Which pairs match; None where nothing is asked."""
    shape, parts = index.shape, []
    if rows := _attribute_rows(index, filters):
        parts.append(np.logical_and.reduce(rows)[shape.attribute_row])
    if columns := _context_rows(index, filters):
        parts.append(np.logical_and.reduce(columns)[shape.context_row])
    if filters.dissenter is not None:
        known = filters.dissenter in index.personas
        parts.append(index.dissents[index.personas.index(filters.dissenter)] if known else _none(index))
    if filters.revealed is not None:
        parts.append((index.reveals > 0) == filters.revealed)
    if filters.flagged is not None:
        with store.read() as connection:
            flagged = marks.standing(connection, index.dataset_id, marks.Kind.FLAG)
        parts.append(_at(index, flagged) == filters.flagged)
    if filters.slice is not None:
        parts.append(_at(index, _slice(store, filters.slice)))
    parts += _people(store, index, filters)
    if not parts:
        return None
    mask: Mask = parts[0] if len(parts) == 1 else np.logical_and.reduce(parts)
    return mask


def _attribute_rows(index: PairIndex, filters: Filters) -> list[Mask]:
    """What filters on attributes say of each attribute: much smaller than of each pair."""
    shape, rows = index.shape, []
    if filters.attribute is not None:
        rows.append(shape.attribute_ids == filters.attribute)
    if filters.profile is not None:
        own = np.flatnonzero(shape.profile_ids == filters.profile)
        rows.append(np.isin(shape.row_codes[Facet.PROFILE], own))
    rows += [
        _is(index, facet, name)
        for facet, name in ((Facet.DOMAIN, filters.domain), (Facet.EVENT, filters.event))
        if name is not None
    ]
    return rows


def _context_rows(index: PairIndex, filters: Filters) -> list[Mask]:
    rows = [] if filters.context is None else [index.shape.context_ids == filters.context]
    return rows if filters.sphere is None else [*rows, _is(index, Facet.SPHERE, filters.sphere)]


def _is(index: PairIndex, facet: Facet, name: str) -> Mask:
    names = index.shape.names[facet]
    code = names.index(name) if name in names else -1
    found: Mask = index.shape.row_codes[facet] == code
    return found


def _people(store: Store, index: PairIndex, filters: Filters) -> list[Mask]:
    """What filters on decisions say; the decisions are read only where one is asked for."""
    if not filters.labels and filters.undecided_by is None and filters.others_differ_from is None:
        return []
    found, parts = standing(store, index.shape), []
    if filters.labels:
        wanted = np.zeros(len(CODES) + 1, np.bool_)  # UNLABELLED, -1, is the last
        wanted[_codes(filters.labels)] = True
        parts.append(wanted[effective(index.consensus, found)])
    if filters.undecided_by is not None:
        mask = np.ones(len(index), np.bool_)
        mask[found.of(filters.undecided_by)[0]] = False
        parts.append(mask)
    if filters.others_differ_from is not None:
        mask = _none(index)
        mask[found.differing(filters.others_differ_from)] = True
        parts.append(mask)
    return parts


def _codes(names: tuple[str, ...]) -> list[int]:
    known = {UNLABELLED_NAME: UNLABELLED, **{str(label): code for label, code in CODES.items()}}
    if unknown := [name for name in names if name not in known]:
        raise StoreError(f"'{unknown[0]}' is no label. Choose among {', '.join([*map(str, Label), UNLABELLED_NAME])}.")
    return [known[name] for name in names]


def _slice(store: Store, slice_id: int) -> set[tuple[int, int]]:
    query = sa.select(slice_item.c.attribute, slice_item.c.context).where(slice_item.c.slice == slice_id)
    with store.read() as connection:
        return {(row.attribute, row.context) for row in connection.execute(query)}


def _at(index: PairIndex, pairs: set[tuple[int, int]]) -> Mask:
    mask = _none(index)
    if pairs:
        at = index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])
        mask[at[at >= 0]] = True
    return mask


def _none(index: PairIndex) -> Mask:
    return np.zeros(len(index), np.bool_)


def open_to(store: Store, index: PairIndex, positions: Ints, annotator: str, people: int) -> Ints:
    """Those of these positions on which fewer than `people` others have a standing decision. Claims stay correct
    without it; it spares them from looking through what others have done already."""
    others = np.zeros(len(index), np.int16)
    found = standing(store, index.shape)
    for name in found.people:
        if name != annotator:
            others[found.of(name)[0]] += 1
    kept: Ints = positions[others[positions] < people]
    return kept
