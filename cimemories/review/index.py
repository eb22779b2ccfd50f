"""Every pair (attribute, context) of a dataset in one order, as dense arrays, with what the review needs of each.

A `PairShape` says who, what and towards whom. A pair's position is its number in the record's order: profile, then
attribute, then context of that profile. A `PairIndex` adds the consensus, how divided the votes are, and what runs did:

    position  attribute context consensus entropy reveals draws effect
    1703      35        12      AMBIGUOUS 0.971   9       15    0.583

Nothing in it changes when people decide: decisions are laid over it (`review.standing`) when pairs are selected, so
that it is built once for the votes and runs that it rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.flows.cache import shared_cache
from cimemories.flows.labels import UNLABELLED, AppliedRule, VoteCounts, applied_rule, vote_counts
from cimemories.labels.votes import WHOLE
from cimemories.model import GENERAL, is_bio
from cimemories.store import judgements, work
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, dataset, edit, profile, profile_context, run, run_judge

TIE = 1e-6  # what a pair's reveal rate is raised by in its effect, so that pairs without reveals go by entropy
SAME = 1e-9  # shares closer than this are equal
DIGITS = 6  # of entropy: pairs with the same votes in another arrangement tie, and go by the record's order
CHUNK = 500_000  # pairs whose votes are worked on at once: what bounds the memory
PAIRS_CACHED = 16_000_000

Ints = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int32]
ShapeKey = tuple[str, int, str, int]
VoteKey = tuple[str, int, str] | None
RunKey = tuple[tuple[str, int, int], ...]


class Facet(StrEnum):
    """A property that groups pairs, besides their attribute and context."""

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
    order of the codes of PROFILE. first_pair: [attributes], the position of an attribute's first pair. context_rank:
    [profiles, contexts], the number of a context among those of a profile, -1 where it is none of them. A context
    without a sphere has the sphere ''.
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
    first_pair: Ints
    context_rank: Ints

    @property
    def pairs(self) -> int:
        return len(self.attributes)

    @property
    def dataset_id(self) -> int:
        return self.key[1]

    def codes(self, facet: Facet, positions: Ints | None = None) -> Ints:
        """Return the codes of these positions (None: all pairs) into names[facet]."""
        rows = self.context_row if facet is Facet.SPHERE else self.attribute_row
        return np.asarray(self.row_codes[facet][rows if positions is None else rows[positions]])

    def ids(self, positions: Ints) -> list[tuple[int, int]]:
        """Return (attribute id, context id) of these positions, in their order."""
        return list(zip(self.attributes[positions].tolist(), self.contexts[positions].tolist(), strict=True))

    def locate(self, attributes: npt.ArrayLike, contexts: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the positions of pairs given by ids, -1 for those that are not in the dataset: [as many as given]."""
        row = search(self.attribute_ids, np.asarray(attributes, np.int64))
        if not self.pairs:
            return np.full(len(row), -1, np.int64)
        sorted_ids, order = self._contexts_by_id
        at = search(sorted_ids, np.asarray(contexts, np.int64))
        column = np.where(at >= 0, order[at], -1)
        # -1 reads the last row or column here; such pairs are left out in the next line.
        rank = self.context_rank[self.row_codes[Facet.PROFILE][row], column]
        return np.where((row >= 0) & (column >= 0) & (rank >= 0), self.first_pair[row] + rank, -1)

    @cached_property
    def _contexts_by_id(self) -> tuple[Ints, Ints]:
        # Contexts stand in the record's order; to be found by id they are sorted once.
        order = np.argsort(self.context_ids)
        return self.context_ids[order], order


def search(sorted_ids: Ints, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the position of each id in sorted ids, -1 where it is not among them."""
    if not len(sorted_ids):
        return np.full(len(ids), -1, np.int64)
    at = np.minimum(np.searchsorted(sorted_ids, ids), len(sorted_ids) - 1)
    return np.where(sorted_ids[at] == ids, at, -1)


def hashed(seed: int, attributes: Ints, contexts: Ints) -> npt.NDArray[np.uint64]:
    """Return a number a pair that looks random (the finalizer of splitmix64, Steele et al. 2014)."""
    start = np.uint64((seed * 0x9E3779B97F4A7C15) % 2**64)
    # Arithmetic modulo 2**64 is what the hash is made of.
    with np.errstate(over="ignore"):
        mixed = _mixed(attributes.astype(np.uint64) ^ _mixed(np.atleast_1d(start)))
        return _mixed(mixed + contexts.astype(np.uint64))


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class DatasetGone(StoreError):
    """The dataset does not exist (any more)."""


def shape_key(store: Store, connection: sa.Connection, dataset_id: int) -> ShapeKey:
    """Return the key of a shape: the dataset and its newest edit. Raises DatasetGone for an unknown dataset."""
    created = connection.execute(sa.select(dataset.c.created).where(dataset.c.id == dataset_id)).scalar()
    if created is None:
        raise DatasetGone(f"there is no dataset {dataset_id} in this workspace. It may have been deleted.")
    newest = connection.execute(sa.select(sa.func.max(edit.c.id)).where(edit.c.dataset == dataset_id)).scalar()
    # An id may be given out again after a dataset is deleted; the moment of its making is not.
    return f"{store.engine.url} {store.workspace.absolute()}", dataset_id, str(created), int(newest or 0)


def read_shape(connection: sa.Connection, key: ShapeKey) -> PairShape:
    """Read the pairs of a dataset from the record."""
    in_dataset = profile.c.dataset == key[1]
    people = connection.execute(
        sa.select(profile.c.id, profile.c.name).where(in_dataset).order_by(profile.c.ordinal)
    ).all()
    attributes = connection.execute(
        sa.select(attribute.c.id, attribute.c.profile, attribute.c.domain, attribute.c.event)
        .join(profile, attribute.c.profile == profile.c.id)
        .where(in_dataset)
        .order_by(profile.c.ordinal, attribute.c.ordinal)
    ).all()
    contexts = connection.execute(
        sa.select(context.c.id, context.c.sphere).where(context.c.dataset == key[1]).order_by(context.c.ordinal)
    ).all()
    tested = connection.execute(
        sa.select(profile_context.c.profile, profile_context.c.context)
        .join(profile, profile_context.c.profile == profile.c.id)
        .where(in_dataset)
        .order_by(profile_context.c.profile, profile_context.c.ordinal)
    ).all()
    person = {row.id: n for n, row in enumerate(people)}
    column = {row.id: n for n, row in enumerate(contexts)}
    columns_of: list[list[int]] = [[] for _ in people]
    context_rank = np.full((len(people), len(contexts)), -1, np.int32)
    for profile_id, context_id in tested:
        columns = columns_of[person[profile_id]]
        context_rank[person[profile_id], column[context_id]] = len(columns)
        columns.append(column[context_id])
    # Pairs in the record's order: each attribute once for every context of its profile.
    owner = np.array([person[row.profile] for row in attributes], np.int32)
    width = np.array([len(columns) for columns in columns_of], np.int64)[owner]
    rows = np.repeat(np.arange(len(attributes), dtype=np.int32), width)
    blocks = [np.array(columns, np.int32) for columns in columns_of]
    # The empty array first, since nothing cannot be concatenated.
    context_row = np.concatenate([np.zeros(0, np.int32), *(blocks[p] for p in owner.tolist())])
    # Tables of attributes are sorted by id, for look-ups: `rank` leads from the record's order there.
    in_order = np.array([row.id for row in attributes], np.int64)
    by_id = np.argsort(in_order)
    rank = np.empty(len(by_id), np.int32)
    rank[by_id] = np.arange(len(by_id))
    context_ids = np.array([row.id for row in contexts], np.int64)
    domains, domain_codes = _coded([row.domain for row in attributes])
    events, event_codes = _coded([row.event for row in attributes])
    spheres, sphere_codes = _coded([row.sphere or "" for row in contexts])
    people_names = tuple(row.name for row in people)
    return PairShape(
        key=key,
        attributes=_narrow(in_order)[rows],
        contexts=_narrow(context_ids)[context_row],
        attribute_row=rank[rows],
        context_row=context_row,
        attribute_ids=in_order[by_id],
        context_ids=context_ids,
        profile_ids=np.array([row.id for row in people], np.int64),
        names={Facet.PROFILE: people_names, Facet.DOMAIN: domains, Facet.EVENT: events, Facet.SPHERE: spheres},
        row_codes={
            Facet.PROFILE: owner[by_id],
            Facet.DOMAIN: domain_codes[by_id],
            Facet.EVENT: event_codes[by_id],
            Facet.SPHERE: sphere_codes,
        },
        # A running sum in the record's order, then brought into the order of the ids.
        first_pair=(np.cumsum(width) - width)[by_id],
        context_rank=context_rank,
    )


def _coded(names: list[str]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the names in order of first mention, and the code of each."""
    code = {name: n for n, name in enumerate(dict.fromkeys(names))}
    return tuple(code), np.array([code[name] for name in names], np.int32)


def _narrow(ids: npt.NDArray[np.int64]) -> Ints:
    """Store ids in 32 bits where they fit: there may be millions of pairs."""
    return ids if len(ids) and ids.max() > np.iinfo(np.int32).max else ids.astype(np.int32)


@dataclass(frozen=True)
class PairIndex:
    """All that orders and filters pairs, apart from decisions. Arrays are [pairs] unless said, shared, not to be
    written to.

    consensus: label codes by `rule`, UNLABELLED where no vote is counted, TOO_FEW where few are. entropy: bits, 0 to
    log2(3), of the mixture `p(verdict) = sum of prior x share of votes / sum of priors` over the personas that have a
    counted vote; nan where none has. dissents: [personas, pairs], whether a persona dissents: no verdict that it gives
    most often is one that the mixture of the others favours most (ties agree; a persona without a counted vote never
    dissents, nor does one where no other with a prior above 0 has any). reveals, draws: over all finished runs, by the
    first judge of each, with the whole memory: in how many judged messages the attribute is revealed in full. effect:
    entropy x (reveals / draws + TIE), 0 for the rate where nothing was judged and of biography attributes; nan as
    entropy.
    """

    shape: PairShape
    labelling_id: str | None
    rule: AppliedRule | None
    imported: bool
    consensus: npt.NDArray[np.int8]
    entropy: Floats
    dissents: Bools
    reveals: npt.NDArray[np.int32]
    draws: npt.NDArray[np.int32]
    effect: Floats
    vote_key: VoteKey = None
    run_key: RunKey = ()
    _permutations: dict[object, Positions] = field(default_factory=dict, repr=False, compare=False)

    @property
    def dataset_id(self) -> int:
        return self.shape.dataset_id

    @property
    def personas(self) -> tuple[str, ...]:
        """Return the keys, in the order of `dissents`."""
        return self.rule.keys if self.rule else ()

    def __len__(self) -> int:
        return self.shape.pairs

    def pairs(self, positions: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
        """Return (attribute id, context id) of these positions, in their order."""
        return self.shape.ids(positions)

    def each(self, positions: npt.NDArray[np.generic], piece: int = 500) -> Iterator[tuple[int, int]]:
        """Yield them one by one, for callers that stop after the first few of millions."""
        for start in range(0, len(positions), piece):
            yield from self.shape.ids(positions[start : start + piece])

    def permutation(self, name: object, make: Callable[[], Positions], most: int = 8) -> Positions:
        """Return a permutation of the pairs from the cache, or make it; the oldest is dropped when there are too
        many."""
        if name not in self._permutations:
            while len(self._permutations) >= most:
                # None: another thread may have dropped it a moment ago.
                self._permutations.pop(next(iter(self._permutations)), None)
            self._permutations[name] = make()
        return self._permutations[name]


def pair_index(store: Store, dataset_id: int, labelling_id: str | None) -> PairIndex:
    """Return the index of a dataset under a labelling (None: no votes), cached until votes, rule, runs or profiles
    change. Raises StoreError for an unknown dataset, or a labelling that is not of it."""
    with store.read() as connection:
        of_shape = shape_key(store, connection, dataset_id)
        rule, of_votes = _vote_key(connection, dataset_id, labelling_id)
        of_runs = _run_key(connection, dataset_id)
    return shared_cache.get(
        "pair index",
        (of_shape, of_votes, of_runs),
        lambda: _build(store, of_shape, rule, of_votes, of_runs),
        most=PAIRS_CACHED,
        size=lambda index: max(len(index), PAIRS_CACHED // 8),  # so that there are at most eight
    )


def _vote_key(
    connection: sa.Connection, dataset_id: int, labelling_id: str | None
) -> tuple[AppliedRule | None, VoteKey]:
    if labelling_id is None:
        return None, None
    row = work.load(connection, labelling_id)
    if row["dataset"] != dataset_id:
        raise StoreError(f"the labelling '{labelling_id}' is of another dataset. Choose one that is listed.")
    rule = applied_rule(connection, labelling_id)
    return rule, (labelling_id, int(row["revision"]), rule.digest)


def _run_key(connection: sa.Connection, dataset_id: int) -> RunKey:
    """Return the finished runs of the dataset on the full memory, with their revision and first judge."""
    rows = connection.execute(
        sa.select(run.c.id, run.c.revision, run_judge.c.judge)
        .join(run_judge, sa.and_(run_judge.c.run == run.c.id, run_judge.c.ordinal == 0))
        # Under a reduced memory a reveal rate says something else.
        .where(run.c.dataset == dataset_id, run.c.status.in_(work.FINISHED), run.c.composition == WHOLE)
        .where(run.c.explains.is_(None))
        .order_by(run.c.id)
    )
    return tuple((str(row.id), int(row.revision), int(row.judge)) for row in rows)


def _build(store: Store, of_shape: ShapeKey, rule: AppliedRule | None, of_votes: VoteKey, of_runs: RunKey) -> PairIndex:
    # A cached index may hold one half already: votes change while runs stay, and the other way round.
    similar = [item for item in shared_cache.kept("pair index") if item.shape.key == of_shape]
    same_runs = next((item for item in reversed(similar) if item.run_key == of_runs), None)
    with store.read() as connection:
        shape = similar[-1].shape if similar else read_shape(connection, of_shape)
        reveals, draws = (
            (same_runs.reveals, same_runs.draws) if same_runs is not None else _revealed(connection, shape, of_runs)
        )
        general = connection.execute(
            sa.select(attribute.c.id, attribute.c.key, attribute.c.domain)
            .join(profile, attribute.c.profile == profile.c.id)
            .where(profile.c.dataset == shape.dataset_id, attribute.c.domain == GENERAL)
        )
        identifiers = [row.id for row in general if is_bio(row.key, row.domain)]
    counts = vote_counts(store, of_votes[0]) if of_votes else None
    labels, entropies, dissents = votes_of(shape, counts, rule)
    rate = (reveals / np.maximum(draws, 1)).astype(np.float32)
    # A message has to be signed: no decision on an attribute that repeats the biography can move violation.
    rate[np.isin(shape.attribute_ids, np.array(identifiers, np.int64))[shape.attribute_row]] = 0.0
    return PairIndex(
        shape=shape,
        labelling_id=of_votes[0] if of_votes else None,
        rule=rule,
        imported=counts is not None and counts.imported,
        consensus=labels,
        entropy=entropies,
        dissents=dissents,
        reveals=reveals,
        draws=draws,
        effect=(entropies * (rate + np.float32(TIE))).astype(np.float32),
        vote_key=of_votes,
        run_key=of_runs,
    )


def votes_of(
    shape: PairShape, counts: VoteCounts | None, rule: AppliedRule | None
) -> tuple[npt.NDArray[np.int8], Floats, Bools]:
    """Return consensus codes, entropies and dissents of all pairs, as in PairIndex."""
    labels = np.full(shape.pairs, UNLABELLED, np.int8)
    entropies = np.full(shape.pairs, np.nan, np.float32)
    dissents = np.zeros((len(rule.keys) if rule else 0, shape.pairs), np.bool_)
    if counts is None or rule is None:
        return labels, entropies, dissents
    for start in range(0, len(counts.attributes), CHUNK):
        part = slice(start, start + CHUNK)
        at = shape.locate(counts.attributes[part], counts.contexts[part])
        here, at = counts.at(part).at(at >= 0), at[at >= 0]
        labels[at] = here.labels(rule)
        entropies[at], dissents[:, at] = divided(here.votes, rule.priors)
    return labels, entropies, dissents


def divided(votes: npt.NDArray[np.generic], priors: tuple[float, ...]) -> tuple[Floats, Bools]:
    """Return entropy in bits [pairs] and dissents [personas, pairs] of counted votes [pairs, personas, 3]; see
    PairIndex."""
    # Pairs last: numpy is many times as fast over a long last axis as over one of three.
    counted = np.ascontiguousarray(votes.transpose(1, 2, 0), np.float64)
    totals = counted.sum(axis=1)
    heard = totals > 0
    # 1 without votes: 0 / 1 leaves the share at 0.
    counted /= np.where(heard, totals, 1)[:, None]
    weights = np.asarray(priors)[:, None] * heard
    weighted = weights[:, None] * counted
    mixed, weight = weighted.sum(axis=0), weights.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = mixed / weight
        # 0 log 0 counts as 0; abs turns the sign and leaves no -0.0.
        entropies = np.abs(np.where(parts > 0, parts * np.log2(parts), 0).sum(axis=0)).round(DIGITS)
    entropies[weight == 0] = np.nan
    dissents = np.zeros(heard.shape, np.bool_)
    for persona in range(len(priors)):
        # A persona without any other cannot dissent.
        others = weight - weights[persona] > SAME
        # mixed - weighted is what the others say; ties agree, so one verdict in common is enough.
        agrees = (_leading(counted[persona]) & _leading(mixed - weighted[persona])).any(axis=0)
        dissents[persona] = heard[persona] & others & ~agrees
    return entropies.astype(np.float32), dissents


def _leading(shares: npt.NDArray[np.float64]) -> Bools:
    """Return a mask of the verdicts with the largest share, ties included: [3, pairs]."""
    return np.asarray(shares >= shares.max(axis=0) - SAME, np.bool_)


def _revealed(
    connection: sa.Connection, shape: PairShape, of_runs: RunKey
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Count the reveals and judged messages of each pair over these runs."""
    reveals = np.zeros(shape.pairs, np.int32)
    judged = np.zeros(shape.context_rank.shape, np.int32)
    profiles = {int(i): n for n, i in enumerate(shape.profile_ids)}
    contexts = {int(i): n for n, i in enumerate(shape.context_ids)}
    for run_id, _, judge_id in of_runs:
        for row in judgements.judged_draws(connection, run_id, [judge_id]):
            if row.profile in profiles and row.context in contexts:
                judged[profiles[row.profile], contexts[row.context]] += row.draws
        result = judgements.reveal_counts(connection, run_id, [judge_id])
        # In pieces, which bounds the memory: a run of a thousand profiles has many rows.
        while rows := list(result.fetchmany(CHUNK)):
            at = shape.locate([r.attribute for r in rows], [r.context for r in rows])
            counts = np.array([r.reveals for r in rows], np.int32)
            # add.at, since a pair may come in several rows: += would count only one of them.
            np.add.at(reveals, at[at >= 0], counts[at >= 0])
    return reveals, judged[shape.codes(Facet.PROFILE), shape.context_row]
