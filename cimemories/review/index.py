"""Every pair (attribute, context) of a dataset in one order, as dense arrays, with what the review needs of each.

Who, what and towards whom; the consensus, how divided the votes are, and what runs did with the pair.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.curation.consensus import UNLABELLED, consensus
from cimemories.flows.labels import AppliedRule, VoteCounts, applied_rule, vote_counts
from cimemories.labels.votes import WHOLE
from cimemories.model import GENERAL, is_bio
from cimemories.store import judgements, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, dataset, edit, profile, profile_context, run, run_judge

# ---- review shape
#
# Every pair (attribute, context) of a dataset in one order, as dense arrays: who, what, towards whom.
#
# A pair's position is its number in the record's order: profile, then attribute, then context of that profile.


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


# ---- review index
#
# The review queue's view of a dataset: for every pair the consensus, how divided the votes are, and what runs did.
#
#     position  attribute context consensus entropy reveals draws effect
#     1703      35        12      AMBIGUOUS 0.971   9       15    0.583
#
# Nothing in it changes when people decide: decisions are laid over it (`review_standing`) when pairs are selected, so
# that it is built once for the votes and runs that it rests on.


TIE = 1e-6  # what a pair's reveal rate is raised by in its effect, so that what nobody revealed goes by entropy
SAME = 1e-9  # shares closer than this are equal
DIGITS = 6  # of entropy: pairs with the same votes in another arrangement tie, and go by the record's order
CHUNK = 500_000  # pairs whose votes are worked on at once: what bounds the memory
PAIRS_HELD = 16_000_000

Floats = npt.NDArray[np.float32]
VoteKey = tuple[str, int, str] | None
RunKey = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class PairIndex:
    """All that orders and filters pairs, apart from decisions. Arrays are [pairs] unless said, shared, not to be
    written to.

    consensus: label codes by `rule`, UNLABELLED where no vote is counted. entropy: bits, 0 to log2(3), of the mixture
    `p(verdict) = sum of prior x share of votes / sum of priors` over the personas that have a counted vote; nan where
    none has. dissents: [personas, pairs], whether a persona dissents: no verdict that it gives most often is one that
    the mixture of the others favours most (ties agree; a persona without a counted vote never dissents, nor does one
    where no other with a prior above 0 has any). reveals, draws: over all finished runs, by the first judge of each,
    with the whole memory: in how many judged messages the attribute is revealed in full. effect: entropy x
    (reveals / draws + TIE), 0 for the rate where nothing was judged and of biography attributes; nan as entropy.
    """

    shape: PairShape
    labelling_id: str | None
    rule: AppliedRule | None
    imported: bool
    consensus: npt.NDArray[np.int8]
    entropy: Floats
    dissents: npt.NDArray[np.bool_]
    reveals: npt.NDArray[np.int32]
    draws: npt.NDArray[np.int32]
    effect: Floats
    vote_key: VoteKey = None
    run_key: RunKey = ()
    _kept: dict[object, Positions] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dataset_id(self) -> int:
        return self.shape.dataset_id

    @property
    def attributes(self) -> npt.NDArray[np.generic]:
        """Attribute ids [pairs]."""
        return self.shape.attributes

    @property
    def contexts(self) -> npt.NDArray[np.generic]:
        """Context ids [pairs]."""
        return self.shape.contexts

    @property
    def personas(self) -> tuple[str, ...]:
        """Keys, in the order of `dissents`."""
        return self.rule.keys if self.rule else ()

    def __len__(self) -> int:
        return self.shape.pairs

    def pairs(self, positions: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
        """(attribute id, context id) of these positions, in their order."""
        return self.shape.ids(positions)

    def each(self, positions: npt.NDArray[np.generic], piece: int = 500) -> Iterator[tuple[int, int]]:
        """The same one after the other, for who will stop after the first few of millions."""
        for start in range(0, len(positions), piece):
            yield from self.shape.ids(positions[start : start + piece])

    def kept(self, name: object, make: Callable[[], Positions], most: int = 8) -> Positions:
        """A permutation that was made before, or a new one; the oldest goes where there are too many."""
        if name not in self._kept:
            while len(self._kept) >= most:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[name] = make()
        return self._kept[name]


_held: OrderedDict[tuple[object, ...], PairIndex] = OrderedDict()
_lock = threading.RLock()


def pair_index(store: Store, dataset_id: int, labelling_id: str | None) -> PairIndex:
    """The index of a dataset under a labelling (None: no votes), from memory while votes, rule, runs and profiles are
    what they were. Raises StoreError for an unknown dataset, or a labelling that is not of it."""
    with store.read() as connection:
        shaped = shape_key(store, connection, dataset_id)
        rule, voted = _voted(connection, dataset_id, labelling_id)
        ran = _finished(connection, dataset_id)
    key = (shaped, voted, ran)
    with _lock:
        if key not in _held:
            _held[key] = _build(store, shaped, rule, voted, ran)
        _held.move_to_end(key)
        while len(_held) > 1 and (sum(map(len, _held.values())) > PAIRS_HELD or len(_held) > 8):
            _held.popitem(last=False)
        return _held[key]


def _voted(connection: sa.Connection, dataset_id: int, labelling_id: str | None) -> tuple[AppliedRule | None, VoteKey]:
    if labelling_id is None:
        return None, None
    row = work.load(connection, labelling_id)
    if row["dataset"] != dataset_id:
        raise StoreError(f"the labelling '{labelling_id}' is of another dataset. Choose one that is listed.")
    rule = applied_rule(connection, labelling_id)
    return rule, (labelling_id, int(row["revision"]), rule.digest)


def _finished(connection: sa.Connection, dataset_id: int) -> RunKey:
    """Finished runs of the dataset on the whole memory, with their revision and first judge."""
    rows = connection.execute(
        sa.select(run.c.id, run.c.revision, run_judge.c.judge)
        .join(run_judge, sa.and_(run_judge.c.run == run.c.id, run_judge.c.ordinal == 0))
        .where(run.c.dataset == dataset_id, run.c.status.in_(work.FINISHED), run.c.composition == WHOLE)
        .order_by(run.c.id)
    )
    return tuple((str(row.id), int(row.revision), int(row.judge)) for row in rows)


def _build(
    store: Store, shaped: tuple[str, int, str, int], rule: AppliedRule | None, voted: VoteKey, ran: RunKey
) -> PairIndex:
    # What an index that is held already knows need not be read again: votes come while runs stay, and the other way.
    like = [item for item in _held.values() if item.shape.key == shaped]
    shape = like[-1].shape if like else None
    runs_like = next((item for item in reversed(like) if item.run_key == ran), None)
    with store.read() as connection:
        shape = shape or read_shape(connection, shaped)
        signs = _identifiers(connection, shape)
        reveals, draws = (
            (runs_like.reveals, runs_like.draws) if runs_like is not None else _revealed(connection, shape, ran)
        )
    counts = vote_counts(store, voted[0]) if voted else None
    labels, entropies, dissents = votes_of(shape, counts, rule)
    rate = (reveals / np.maximum(draws, 1)).astype(np.float32)
    rate[signs[shape.attribute_row]] = 0.0  # a message has to be signed: no decision there can move violation
    return PairIndex(
        shape=shape,
        labelling_id=voted[0] if voted else None,
        rule=rule,
        imported=counts is not None and counts.imported,
        consensus=labels,
        entropy=entropies,
        dissents=dissents,
        reveals=reveals,
        draws=draws,
        effect=(entropies * (rate + np.float32(TIE))).astype(np.float32),
        vote_key=voted,
        run_key=ran,
    )


def _identifiers(connection: sa.Connection, shape: PairShape) -> npt.NDArray[np.bool_]:
    """[attributes]: whether each repeats the biography."""
    query = sa.select(attribute.c.id, attribute.c.key, attribute.c.domain).join(
        profile, attribute.c.profile == profile.c.id
    )
    rows = connection.execute(query.where(profile.c.dataset == shape.dataset_id, attribute.c.domain == GENERAL))
    bio = [row.id for row in rows if is_bio(row.key, row.domain)]
    return np.isin(shape.attribute_ids, np.array(bio, np.int64))


def votes_of(
    shape: PairShape, counts: VoteCounts | None, rule: AppliedRule | None
) -> tuple[npt.NDArray[np.int8], Floats, npt.NDArray[np.bool_]]:
    """Consensus codes, entropies and dissents of all pairs, as PairIndex has them."""
    labels = np.full(shape.pairs, UNLABELLED, np.int8)
    entropies = np.full(shape.pairs, np.nan, np.float32)
    dissents = np.zeros((len(rule.keys) if rule else 0, shape.pairs), np.bool_)
    if counts is None or rule is None:
        return labels, entropies, dissents
    for start in range(0, len(counts.attributes), CHUNK):
        part = slice(start, start + CHUNK)
        at = shape.locate(counts.attributes[part], counts.contexts[part])
        votes, at = counts.votes[part][at >= 0], at[at >= 0]
        labels[at] = consensus(votes, rule.priors, rule.threshold)
        entropies[at], dissents[:, at] = divided(votes, rule.priors)
    return labels, entropies, dissents


def divided(votes: npt.NDArray[np.generic], priors: tuple[float, ...]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Entropy in bits [pairs] and dissents [personas, pairs] of counted votes [pairs, personas, 3]; see PairIndex."""
    # Pairs last: numpy is many times as fast over a long last axis as over one of three.
    counted = np.ascontiguousarray(votes.transpose(1, 2, 0), np.float64)
    totals = counted.sum(axis=1)
    heard = totals > 0
    counted /= np.where(heard, totals, 1)[:, None]
    weights = np.asarray(priors)[:, None] * heard
    weighted = weights[:, None] * counted
    mixed, weight = weighted.sum(axis=0), weights.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = mixed / weight
        entropies = np.abs(np.where(parts > 0, parts * np.log2(parts), 0).sum(axis=0)).round(DIGITS)
    entropies[weight == 0] = np.nan
    dissents = np.zeros(heard.shape, np.bool_)
    for persona in range(len(priors)):
        others = weight - weights[persona] > SAME
        agrees = (_most(counted[persona]) & _most(mixed - weighted[persona])).any(axis=0)
        dissents[persona] = heard[persona] & others & ~agrees
    return entropies.astype(np.float32), dissents


def _most(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which verdicts have the most: [3, pairs]."""
    found: npt.NDArray[np.bool_] = shares >= shares.max(axis=0) - SAME
    return found


def _revealed(
    connection: sa.Connection, shape: PairShape, ran: RunKey
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Reveals and judged messages of each pair over these runs."""
    reveals = np.zeros(shape.pairs, np.int32)
    towards = np.zeros(shape.place.shape, np.int32)
    profiles = {int(i): n for n, i in enumerate(shape.profile_ids)}
    contexts = {int(i): n for n, i in enumerate(shape.context_ids)}
    for run_id, _, judge_id in ran:
        for row in judgements.judged_draws(connection, run_id, [judge_id]):
            if row.profile in profiles and row.context in contexts:
                towards[profiles[row.profile], contexts[row.context]] += row.draws
        for rows in _pieces(judgements.reveal_counts(connection, run_id, [judge_id])):
            at = shape.locate([r.attribute for r in rows], [r.context for r in rows])
            told = np.array([r.reveals for r in rows], np.int32)
            np.add.at(reveals, at[at >= 0], told[at >= 0])
    draws = towards[shape.codes(Facet.PROFILE), shape.context_row]
    return reveals, draws


def _pieces(result: sa.CursorResult[tuple]) -> Iterator[list[sa.Row]]:
    while rows := list(result.fetchmany(CHUNK)):
        yield rows
