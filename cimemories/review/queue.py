"""The review queue: which pairs a person is shown next, what a card says, and where the review of a dataset stands."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.curation.consensus import CODES, LABELS, UNLABELLED
from cimemories.labels.votes import GLYPHS, MISSING_GLYPH
from cimemories.model import Label, Value
from cimemories.review.adjudication import disputes
from cimemories.review.index import Facet, Ints, PairIndex, PairShape, Positions
from cimemories.store import datasets, decisions, labellings, reviews
from cimemories.store.decisions import Decision
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import Comment
from cimemories.store.tables import (
    attribute,
    ballot,
    comment,
    context,
    dataset,
    decision,
    profile,
    profile_context,
    slice_item,
    vote,
)

# ---- review comments
#
# Comments of a dataset, each with its pair in words.


@dataclass(frozen=True)
class Remark:
    """A comment and what it is about. `profile`: the id of the profile that the attribute is of."""

    comment: Comment
    profile: int
    profile_name: str
    key: str
    statement: str
    task: str
    recipient: str

    @property
    def searched(self) -> str:
        """What a search looks in, in lower case."""
        words = (self.comment.text, self.comment.resolution, self.statement, self.key, self.task, self.recipient)
        return "\n".join((*words, self.profile_name)).casefold()


def remarks(store: Store, dataset_id: int) -> list[Remark]:
    """Every comment of a dataset: open ones first, of each the newest first."""
    query = (
        sa.select(comment.c.id, attribute.c.profile, profile.c.name.label("profile_name"), attribute.c.key)
        .add_columns(attribute.c.statement, context.c.task, context.c.recipient)
        .join(attribute, comment.c.attribute == attribute.c.id)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(context, comment.c.context == context.c.id)
        .where(comment.c.dataset == dataset_id, comment.c.resolves.is_(None))
    )
    names = ("profile", "profile_name", "key", "statement", "task", "recipient")
    with store.read() as connection:
        said = reviews.comments_of_dataset(connection, dataset_id)
        about = {row["id"]: {n: row[n] for n in names} for row in connection.execute(query).mappings()}
    newest = [Remark(item, **about[item.id]) for item in reversed(said)]
    return sorted(newest, key=lambda item: not item.comment.open)


# ---- review standing
#
# What people have decided of the pairs of a dataset, kept in memory and brought up to date by what is new.
#
# Every decision moves the dataset's revision, so the decisions are no part of the index: of hundreds of thousands only
# the newest few are read for each selection.


# Of two transactions on PostgreSQL the one with the lower ids may be seen later: what is this young is read again.
SETTLED_SECONDS = 60.0
HELD = 8
_CODES = {str(label): code for label, code in CODES.items()}
Codes = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Standing:
    """The newest word of everybody on every pair, at one moment. Arrays are shared: do not write to them.

    people: annotators in order of first appearance. keys: person x pairs + position, sorted; ids, labels: the newest
    decision there and its label code, UNLABELLED where it was taken back. decided: [pairs], the code of the newest
    decision that stands, whoever's, UNLABELLED where none does.
    """

    pairs: int
    people: tuple[str, ...]
    keys: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    labels: Codes
    decided: Codes

    def of(self, annotator: str) -> tuple[npt.NDArray[np.int64], Codes]:
        """The positions on which this person's decision stands, ascending, with the codes of the labels."""
        if annotator not in self.people:
            return np.zeros(0, np.int64), np.zeros(0, np.int8)
        person = self.people.index(annotator)
        first, last = np.searchsorted(self.keys, [person * self.pairs, (person + 1) * self.pairs])
        labels = self.labels[first:last]
        stand = labels != UNLABELLED
        return self.keys[first:last][stand] - person * self.pairs, labels[stand]

    def deciders(self, positions: Ints) -> npt.NDArray[np.int32]:
        """How many people's decisions stand on each of these positions."""
        counts = np.zeros(len(positions), np.int32)
        for person in range(len(self.people)):
            if len(self.keys):
                at, there = _find(self.keys, np.asarray(positions, np.int64) + person * self.pairs)
                counts += there & (self.labels[at] != UNLABELLED)
        return counts

    def differing(self, annotator: str) -> npt.NDArray[np.int64]:
        """The positions on which this person's decision stands and somebody else's with another label."""
        positions, labels = self.of(annotator)
        differ = np.zeros(len(positions), np.bool_)
        for person, name in enumerate(self.people):
            if name != annotator and len(positions):
                at, there = _find(self.keys, positions + person * self.pairs)
                differ |= there & (self.labels[at] != UNLABELLED) & (self.labels[at] != labels)
        return positions[differ]


def _find(keys: npt.NDArray[np.int64], asked: npt.NDArray[np.int64]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where each asked key would be among sorted ones (there must be some), and whether it is there."""
    at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
    return at, keys[at] == asked


class _Reader:
    """The decisions of one dataset as this process knows them."""

    def __init__(self, shape: PairShape) -> None:
        self.shape = shape
        self.lock = threading.Lock()
        self.revision = -1
        self.seen: list[tuple[float, int]] = [(0.0, 0)]  # when, and which id was the highest then
        nothing = np.zeros(0, np.int64)
        undecided = np.full(shape.pairs, UNLABELLED, np.int8)
        self.standing = Standing(shape.pairs, (), nothing, nothing, np.zeros(0, np.int8), undecided)

    def refresh(self, store: Store) -> Standing:
        with self.lock, store.read() as connection:
            revision = connection.execute(
                sa.select(dataset.c.revision).where(dataset.c.id == self.shape.dataset_id)
            ).scalar()
            if revision is not None and revision != self.revision:
                self._read(connection, is_sqlite=store.is_sqlite)
                self.revision = int(revision)
            return self.standing

    def _read(self, connection: sa.Connection, *, is_sqlite: bool) -> None:
        now = time.monotonic()
        while len(self.seen) > 1 and self.seen[1][0] < now - SETTLED_SECONDS:
            self.seen.pop(0)
        # SQLite has one writer at a time, so its ids are seen in their order.
        after = self.seen[-1][1] if is_sqlite else self.seen[0][1]
        rows = connection.execute(
            sa.select(decision.c.id, decision.c.attribute, decision.c.context, decision.c.annotator, decision.c.label)
            .where(decision.c.dataset == self.shape.dataset_id, decision.c.id > after)
            .order_by(decision.c.id)
        ).all()
        if rows:
            self.seen.append((now, max(int(rows[-1][0]), self.seen[-1][1])))
            ids, attributes, contexts, names, labels = zip(*rows, strict=True)
            people = tuple(dict.fromkeys([*self.standing.people, *names]))
            person = {name: n for n, name in enumerate(people)}
            at = self.shape.locate(attributes, contexts)
            keys = np.array([person[name] for name in names], np.int64) * self.shape.pairs + at
            codes = np.array([_CODES.get(label or "", UNLABELLED) for label in labels], np.int8)
            own = at >= 0
            self.standing = _with(self.standing, people, keys[own], np.array(ids, np.int64)[own], codes[own])


def _with(before: Standing, people: tuple[str, ...], keys: Ints, ids: Ints, labels: Codes) -> Standing:
    """The standing decisions after further rows, in the order of their ids; some may be known already."""
    order = np.lexsort((ids, keys))
    keys, ids, labels = keys[order], ids[order], labels[order]
    newest = np.append(keys[1:] != keys[:-1], True)[: len(keys)]
    keys, ids, labels = keys[newest], ids[newest], labels[newest]
    all_ids, all_labels = before.ids.copy(), before.labels.copy()
    at, there = _find(before.keys, keys) if len(before.keys) else (keys, np.zeros(len(keys), np.bool_))
    later = there.copy()
    later[there] = ids[there] > before.ids[at[there]]
    all_ids[at[later]], all_labels[at[later]] = ids[later], labels[later]
    where = np.searchsorted(before.keys, keys[~there])
    after = Standing(
        before.pairs,
        people,
        np.insert(before.keys, where, keys[~there]),
        np.insert(all_ids, where, ids[~there]),
        np.insert(all_labels, where, labels[~there]),
        before.decided.copy(),
    )
    touched = np.unique(keys % max(before.pairs, 1))
    best = np.full(len(touched), -1, np.int64)
    said = np.full(len(touched), UNLABELLED, np.int8)
    for person in range(len(people) if len(after.keys) else 0):
        at, there = _find(after.keys, touched + person * before.pairs)
        newer = there & (after.labels[at] != UNLABELLED) & (after.ids[at] > best)
        best[newer], said[newer] = after.ids[at][newer], after.labels[at][newer]
    after.decided[touched] = said
    return after


_held: OrderedDict[tuple[str, int, str, int], _Reader] = OrderedDict()
_lock = threading.Lock()


def standing(store: Store, shape: PairShape) -> Standing:
    """The decisions of a dataset that stand now."""
    with _lock:
        reader = _held.get(shape.key) or _held.setdefault(shape.key, _Reader(shape))
        _held.move_to_end(shape.key)
        while len(_held) > HELD:
            _held.popitem(last=False)
    return reader.refresh(store)


def effective(consensus: Codes, found: Standing) -> Codes:
    """Effective label codes: what the newest standing decision says, else the consensus; [pairs]."""
    return np.where(found.decided != UNLABELLED, found.decided, consensus)


# ---- review items
#
# What a card of the review queue says of a pair: its words, the votes draw by draw, and what runs and people did.


_LETTERS = {str(verdict): glyph for verdict, glyph in GLYPHS.items()}
Letters = tuple[tuple[str, float, str], ...]


@dataclass(frozen=True)
class Item:
    """One pair as it is shown. attribute, context: ids.

    votes: of each persona its key, its prior by the rule that holds, and a letter a draw, in their order: N, X, ? for
    an abstention, - where the vote is missing; of a labelling that was imported as shares, and without one, there are
    none. reveals of draws: judged messages of finished runs that reveal the attribute in full. decided: how many
    people's decisions stand.
    """

    attribute: int
    context: int
    statement: str
    key: str
    value: Value
    domain: str
    event: str
    user: str
    recipient: str
    task: str
    sphere: str | None
    consensus: Label | None
    effective: Label | None
    votes: Letters
    reveals: int
    draws: int
    decided: int


def items(store: Store, index: PairIndex, positions: npt.NDArray[np.generic] | Sequence[int]) -> list[Item]:
    """The pairs at these positions, in their order; meant for a screenful, not for thousands. A pair whose attribute or
    context was removed in the meantime is left out."""
    at = np.asarray(positions, np.int64)
    if not len(at):
        return []
    shape, found = index.shape, standing(store, index.shape)
    pairs = index.pairs(at)
    owners = shape.codes(Facet.PROFILE, at)
    with store.read() as connection:
        attributes = _rows(connection, attribute, {a for a, _ in pairs})
        contexts = _rows(connection, context, {c for _, c in pairs})
        votes = _votes(connection, index, pairs, shape.profile_ids[owners].tolist())
    decided = found.deciders(at)
    shown = []
    for n, (a, c) in enumerate(pairs):
        if a not in attributes or c not in contexts:
            continue
        said, towards = attributes[a], contexts[c]
        shown.append(
            Item(
                attribute=a,
                context=c,
                statement=said.statement,
                key=said.key,
                value=json.loads(said.value),
                domain=said.domain,
                event=said.event,
                user=shape.names[Facet.PROFILE][owners[n]],
                recipient=towards.recipient,
                task=towards.task,
                sphere=towards.sphere,
                consensus=_label(index.consensus[at[n]]),
                effective=_label(_effective(index, found, at[n])),
                votes=votes.get((a, c), ()),
                reveals=int(index.reveals[at[n]]),
                draws=int(index.draws[at[n]]),
                decided=int(decided[n]),
            )
        )
    return shown


def sample(positions: npt.NDArray[np.generic], count: int, seed: int = 0) -> Ints:
    """A random sample of these positions without replacement, in their order; all of them where there are no more."""
    if len(positions) <= count:
        return positions
    chosen = np.random.default_rng(seed).choice(len(positions), count, replace=False)
    drawn: Ints = positions[np.sort(chosen)]
    return drawn


def undecided(store: Store, index: PairIndex, positions: npt.NDArray[np.generic], annotator: str) -> Ints:
    """Those of these positions on which no decision of this annotator stands, in their order."""
    mask = np.ones(len(index), np.bool_)
    mask[standing(store, index.shape).of(annotator)[0]] = False
    kept: Ints = positions[mask[positions]]
    return kept


def _label(code: int) -> Label | None:
    return None if code == UNLABELLED else LABELS[int(code)]


def _effective(index: PairIndex, found: Standing, position: int) -> int:
    decided = found.decided[position]
    return int(index.consensus[position] if decided == UNLABELLED else decided)


def _rows(connection: sa.Connection, table: sa.Table, ids: set[int]) -> dict[int, Any]:
    return {row.id: row for row in connection.execute(sa.select(table).where(table.c.id.in_(ids)))}


def _votes(
    connection: sa.Connection, index: PairIndex, pairs: Sequence[tuple[int, int]], profiles: Sequence[int]
) -> dict[tuple[int, int], Letters]:
    """The letters of each pair, by persona in the order of the rule."""
    if index.labelling_id is None or index.rule is None or index.imported:
        return {}
    personas = list(labellings.personas(connection, index.labelling_id))
    columns = [sa.column(name, sa.BigInteger) for name in ("attribute", "profile", "context")]
    rows = sorted({(a, p, c) for (a, c), p in zip(pairs, profiles, strict=True)})
    asked = sa.values(*columns, name="asked").data(rows).cte()
    own = (
        ballot.c.labelling == index.labelling_id,
        ballot.c.profile == asked.c.profile,
        ballot.c.context == asked.c.context,
    )
    cast = connection.execute(
        sa.select(asked.c.attribute, asked.c.context, ballot.c.persona, vote.c.verdict)
        .select_from(asked)
        .join(ballot, sa.and_(*own))
        .outerjoin(vote, sa.and_(vote.c.ballot == ballot.c.id, vote.c.attribute == asked.c.attribute))
        .order_by(ballot.c.draw)
    )
    drawn: dict[tuple[int, int, int], str] = {}
    for a, c, persona, verdict in cast:
        drawn[a, c, persona] = drawn.get((a, c, persona), "") + _LETTERS.get(verdict, MISSING_GLYPH)
    keyed = list(zip(personas, index.rule.keys, index.rule.priors, strict=True))
    return {(a, c): tuple((key, prior, drawn.get((a, c, i), "")) for i, key, prior in keyed) for a, c in pairs}


# ---- review status
#
# Where the review of a dataset stands: who has said how much, what is open and what is in dispute.


@dataclass(frozen=True)
class Person:
    """One person. `labels`: on how many pairs their word that stands is each label; `taken_back`: on how many it is
    that they say nothing any more. `events`: everything they ever decided, `sources` of it by how."""

    name: str
    labels: Mapping[str, int]
    taken_back: int
    events: int
    sources: Mapping[str, int]


@dataclass(frozen=True)
class Status:
    """`decided`: pairs whose label is a person's, of `pairs`. `disputed`: of the `shared` ones, that is those which two
    or more people decided. `guideline`: the version that stands."""

    dataset: str
    simulated: bool
    pairs: int
    decided: int
    shared: int
    disputed: int
    comments: int
    open_comments: int
    flagged: int
    guideline: int
    people: tuple[Person, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values, people as a list."""
        return asdict(self)


def status(store: Store, dataset: str) -> Status:
    """What there is to say of a dataset's review. Raises StoreError for a dataset that is not there."""
    with store.read() as connection:
        row = datasets.named(connection, dataset)
        history = decisions.history(connection, row.id)
        remarks = reviews.comments_of_dataset(connection, row.id)
        flagged = len(reviews.standing_marks(connection, row.id, reviews.MarkKind.FLAG))
        version = reviews.current_guideline(connection).version
        pairs = _pairs(connection, row.id)
    found = disputes(store, row.id)
    by_person: dict[str, list[Decision]] = {}
    for item in history:
        by_person.setdefault(item.annotator, []).append(item)
    return Status(
        dataset=row.name,
        simulated=row.simulated,
        pairs=pairs,
        decided=len(decisions.standing(history)),
        shared=found.shared,
        disputed=len(found.open),
        comments=len(remarks),
        open_comments=sum(item.open for item in remarks),
        flagged=flagged,
        guideline=version,
        people=tuple(_person(name, said) for name, said in sorted(by_person.items())),
    )


def _person(name: str, said: list[Decision]) -> Person:
    standing = decisions.standing(said)
    labels = Counter(item.label for item in standing.values())
    every = {(item.attribute, item.context) for item in said}
    return Person(
        name,
        {str(label): labels[label] for label in Label},
        len(every) - len(standing),
        len(said),
        dict(sorted(Counter(item.source for item in said).items())),
    )


def _pairs(connection: sa.Connection, dataset_id: int) -> int:
    """Pairs of an attribute and a context that its profile is tested in."""
    query = (
        sa.select(sa.func.count())
        .select_from(attribute)
        .join(profile, attribute.c.profile == profile.c.id)
        .join(profile_context, profile_context.c.profile == profile.c.id)
        .where(profile.c.dataset == dataset_id)
    )
    return int(connection.execute(query).scalar_one())


# ---- review select
#
# Which pairs a person is shown next: the index with decisions laid over it, filtered and in an order.


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
            flagged = reviews.standing_marks(connection, index.dataset_id, reviews.MarkKind.FLAG)
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
