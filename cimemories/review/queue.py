"""The review queue: the pairs that a person is shown next, and the content of their cards.

The index with decisions laid over it is filtered and put in an order; the pairs that come first are reserved for one
browser. Filters and order can be saved under a name, and a share of the pairs can be given to several people.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa

from cimemories.access.roles import Role
from cimemories.flows.labels import CODES, LABELS, TOO_FEW, TOO_FEW_NAME, UNLABELLED
from cimemories.labels.votes import GLYPHS, MISSING_GLYPH
from cimemories.model import Label, Value
from cimemories.review.index import Bools, Facet, Ints, PairIndex, Positions, hashed
from cimemories.review.standing import Standing, effective, standing
from cimemories.store import audits, labellings, reviews
from cimemories.store.engine import Store, StoreError
from cimemories.store.reviews import MarkKind, Plan, PlanChange, SavedView
from cimemories.store.tables import attribute, ballot, context, profile, slice_item, vote
from cimemories.store.team import log

PAGE = "review"  # whose saved views are listed
UNLABELLED_NAME = "none"
# Pairs reserved for one browser: enough to go on for seconds while the server is away, few enough to leave for others.
MOST_RESERVED, LEAST_RESERVED = 60, 8
LEASE_SECONDS = 60.0
_LETTERS = {str(verdict): glyph for verdict, glyph in GLYPHS.items()}
Letters = tuple[tuple[str, float, str], ...]
Pair = tuple[int, int]
_POSSESSIVES = {"f": "her", "female": "her", "m": "his", "male": "his"}
_DETERMINERS = {"the", "a", "an", "my", "your", "his", "her", "their", "our"}


class Order(StrEnum):
    """The order of pairs. Ties, and CONTEXT and ATTRIBUTE themselves, follow the record's order."""

    ENTROPY_RATE = "effect"  # entropy x reveal rate, highest first; links say "effect"
    ENTROPY = "entropy"
    CONTEXT = "context"  # one recipient and task at a time, over all profiles
    ATTRIBUTE = "attribute"  # one profile's attributes one by one
    RANDOM = "random"  # by a hash of seed, attribute and context: a pair that comes later disturbs no other


@dataclass(frozen=True)
class Filters:
    """Conditions on pairs; all that are given must hold. profile, attribute, context, slice: ids in the record.

    labels: names of effective labels, 'none' for pairs without a label; empty: all. dissenter: key of a persona that
    dissents (PairIndex). undecided_by: an annotator without a standing decision there. others_differ_from: an annotator
    with a standing decision, where another person's has another label. revealed: in a judged message of a finished run
    (False: in none). flagged: as a bad item by at least one person (False: by none).
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
    """Return the positions in the index of the pairs that match, in this order: [matching]. Read-only. seed: of RANDOM.

    A filter on what is not there (a profile that is gone, an unknown name) matches nothing. Raises StoreError for a
    label that is none.
    """
    mask, permutation = _mask(store, index, filters), in_order(index, order, seed)
    # The mask is read in the order of the permutation, so what is left stays in it.
    return permutation if mask is None else np.asarray(permutation[mask[permutation]])


def in_order(index: PairIndex, order: Order, seed: int = 0) -> Positions:
    """Return the positions of all pairs in this order, from the cache. seed: of RANDOM."""
    name = (order, seed) if order is Order.RANDOM else order
    return index.permutation(name, lambda: _permutation(index, order, seed))


def _permutation(index: PairIndex, order: Order, seed: int) -> Positions:
    shape = index.shape
    result: Ints
    if order is Order.ATTRIBUTE:
        result = np.arange(shape.pairs)
    elif order is Order.CONTEXT:
        small = shape.context_row.astype(np.int16) if len(shape.context_ids) < 2**15 else shape.context_row
        result = np.argsort(small, kind="stable")  # in linear time for small integers
    elif order is Order.RANDOM:
        result = np.argsort(hashed(seed, shape.attributes, shape.contexts), kind="stable")
    else:
        values = index.effect if order is Order.ENTROPY_RATE else index.entropy
        result = np.argsort(np.where(np.isnan(values), 1, -values), kind="stable")  # pairs without any vote come last
    permutation = result.astype(np.int32)
    permutation.setflags(write=False)
    return permutation


def _mask(store: Store, index: PairIndex, filters: Filters) -> Bools | None:
    """Return a mask of the pairs that match, or None without a filter."""
    shape = index.shape

    def named(facet: Facet, name: str) -> Bools:
        names = shape.names[facet]
        return np.asarray(shape.row_codes[facet] == (names.index(name) if name in names else -1))

    def at(pairs: set[Pair]) -> Bools:
        mask = np.zeros(len(index), np.bool_)
        positions = shape.locate([a for a, _ in pairs], [c for _, c in pairs])
        mask[positions[positions >= 0]] = True
        return mask

    parts: list[Bools] = []
    # Of attributes and of contexts there are far fewer than of pairs: these filters are joined before they are spread.
    facets = ((Facet.DOMAIN, filters.domain), (Facet.EVENT, filters.event))
    attributes = [named(facet, name) for facet, name in facets if name is not None]
    if filters.attribute is not None:
        attributes.append(shape.attribute_ids == filters.attribute)
    if filters.profile is not None:
        attributes.append(np.isin(shape.row_codes[Facet.PROFILE], np.flatnonzero(shape.profile_ids == filters.profile)))
    if attributes:
        parts.append(np.logical_and.reduce(attributes)[shape.attribute_row])
    contexts = [] if filters.sphere is None else [named(Facet.SPHERE, filters.sphere)]
    if filters.context is not None:
        contexts.append(shape.context_ids == filters.context)
    if contexts:
        parts.append(np.logical_and.reduce(contexts)[shape.context_row])
    if filters.dissenter is not None:
        # A persona that is not of the labelling dissents nowhere.
        is_persona = filters.dissenter in index.personas
        parts.append(index.dissents[index.personas.index(filters.dissenter)] if is_persona else at(set()))
    if filters.revealed is not None:
        parts.append((index.reveals > 0) == filters.revealed)
    if filters.flagged is not None:
        with store.read() as connection:
            flagged = reviews.standing_marks(connection, index.dataset_id, MarkKind.FLAG)
        parts.append(at(flagged) == filters.flagged)
    if filters.slice is not None:
        pairs_of_slice = sa.select(slice_item.c.attribute, slice_item.c.context)
        in_slice = pairs_of_slice.where(slice_item.c.slice == filters.slice, audits.IN_QUEUE)
        with store.read() as connection:
            parts.append(at({(row.attribute, row.context) for row in connection.execute(in_slice)}))
    if filters.labels or filters.undecided_by is not None or filters.others_differ_from is not None:
        decisions = standing(store, shape)  # read only where a filter is on them
        if filters.labels:
            names_of_none = {TOO_FEW_NAME: TOO_FEW, UNLABELLED_NAME: UNLABELLED}
            codes = {**names_of_none, **{str(label): code for label, code in CODES.items()}}
            if unknown := [name for name in filters.labels if name not in codes]:
                raise StoreError(
                    f"'{unknown[0]}' is not a label. Choose one of {', '.join([*map(str, Label), *names_of_none])}."
                )
            chosen = np.zeros(len(CODES) - TOO_FEW, np.bool_)  # codes below 0 are the last
            chosen[[codes[name] for name in filters.labels]] = True
            parts.append(chosen[effective(index.consensus, decisions)])
        if filters.undecided_by is not None:
            parts.append(_undecided(decisions, filters.undecided_by))
        if filters.others_differ_from is not None:
            mask = np.zeros(len(index), np.bool_)
            mask[decisions.differing(filters.others_differ_from)] = True
            parts.append(mask)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else np.logical_and.reduce(parts)


def _undecided(decisions: Standing, annotator: str) -> Bools:
    mask = np.ones(decisions.pairs, np.bool_)
    mask[decisions.of(annotator)[0]] = False
    return mask


def undecided(store: Store, index: PairIndex, positions: npt.NDArray[np.generic], annotator: str) -> Ints:
    """Return the positions on which no decision of this annotator stands, in their order."""
    return np.asarray(positions[_undecided(standing(store, index.shape), annotator)[positions]])


def still_matching(positions: Ints, shown: Ints) -> Ints:
    """Return the positions that were shown before, in their order; those that match only since then are left out."""
    return positions[np.isin(positions, shown)]


def sample(positions: npt.NDArray[np.generic], count: int, seed: int = 0) -> Ints:
    """Draw a random sample of these positions without replacement, in their order; all of them if there are no more."""
    if len(positions) <= count:
        return positions
    chosen = np.random.default_rng(seed).choice(len(positions), count, replace=False)
    return np.asarray(positions[np.sort(chosen)])


def open_to(store: Store, index: PairIndex, positions: Ints, annotator: str, people: int) -> Ints:
    """Return the positions on which fewer than `people` others have a standing decision. Reservations are correct
    without it, but would look through all that others have done."""
    others = np.zeros(len(index), np.int16)
    decisions = standing(store, index.shape)
    for name in decisions.people:
        if name != annotator:
            # One person's positions are all different, so += counts each of them.
            others[decisions.of(name)[0]] += 1
    return np.asarray(positions[others[positions] < people])


def reserve(
    store: Store,
    index: PairIndex,
    positions: Positions,
    annotator: str,
    session: str,
    *,
    release: bool = False,
    everybody: bool = False,
    plan: Plan | None = None,
) -> list[Pair]:
    """Reserve the next pairs of these positions for this annotator's browser: those that the overlap plan still needs,
    skipped ones last. Flagged ones come after them in a slice (`everybody`, or a `plan` of its own), which needs all
    its answers, and nowhere else.

    release: give up the session's earlier reservations, since its filter has changed. everybody: ignore the overlap
    plan, as in a slice, whose answers are compared. plan: of an assigned slice, instead of the dataset's."""
    with store.read() as connection:
        skipped, flagged = (
            reviews.standing_marks(connection, index.dataset_id, kind, annotator=annotator)
            for kind in (MarkKind.SKIP, MarkKind.FLAG)
        )
        last = (skipped, flagged) if everybody or plan is not None else (skipped,)
        plan = plan or reviews.overlap_plan(connection, index.dataset_id)
    # A quarter of what matches, so that a small rest is shared by those who work on it.
    count = max(LEAST_RESERVED, min(MOST_RESERVED, len(positions) // 4))
    free = positions if everybody else open_to(store, index, positions, annotator, plan.people if plan.share else 1)

    def marked(pairs: set[Pair]) -> list[Pair]:
        at = index.shape.locate([a for a, _ in pairs], [c for _, c in pairs])
        return index.pairs(free[np.isin(free, at)])

    # One by one: there may be millions, and no more are read than needed.
    queue = chain(
        (pair for pair in index.each(free) if pair not in skipped and pair not in flagged), *map(marked, last)
    )
    # relaxed: a reservation that a power cut loses is only made again.
    with store.write(Role.ANNOTATOR, relaxed=True) as connection:
        if release:
            reviews.release_pairs(connection, session)
        return reviews.hand_out_pairs(
            connection,
            index.dataset_id,
            annotator,
            session,
            queue,
            count,
            LEASE_SECONDS,
            everybody=everybody,
            plan=plan,
        )


def saved_views(store: Store) -> list[SavedView]:
    """Return the saved filters."""
    with store.read() as connection:
        return reviews.views_of_page(connection, PAGE)


def save_view(store: Store, name: str, query: dict[str, str], annotator: str) -> None:
    """Save filters, as parameters of the address, under a name. Raises StoreError for a name that will not do."""
    with store.write(Role.ANNOTATOR) as connection:
        reviews.save_view(connection, name, PAGE, query, annotator)


def overlap(store: Store, dataset_id: int) -> Plan:
    """Return the overlap plan of a dataset."""
    with store.read() as connection:
        return reviews.overlap_plan(connection, dataset_id)


def overlap_changes(store: Store, dataset_id: int) -> list[PlanChange]:
    """Return the changes of the overlap plan, oldest first."""
    with store.read() as connection:
        return reviews.plan_changes(connection, dataset_id)


def set_overlap(store: Store, dataset_id: int, plan: Plan, annotator: str, reason: str) -> None:
    """Set the overlap plan. Raises StoreError for an invalid plan, and without a reason."""
    with store.write(Role.CURATOR) as connection:
        reviews.set_overlap_plan(connection, dataset_id, plan, annotator, reason)
        shared = {"share": f"{plan.share:g}", "people": plan.people}
        log.add(connection, "overlap.changed", log.dataset_name(connection, dataset_id), **shared, reason=reason)


@dataclass(frozen=True)
class Item:
    """One pair as it is shown. attribute, profile, context: ids.

    votes: of each persona its key, its prior by the rule that holds, and a letter a draw, in their order: N, X, ? for
    an abstention, - where the vote is missing; of a labelling that was imported as shares, and without one, there are
    none. reveals of draws: judged messages of finished runs that reveal the attribute in full. decided: how many
    people's decisions stand.
    """

    attribute: int
    profile: int
    context: int
    statement: str
    key: str
    value: Value
    domain: str
    event: str
    user: str
    sex: str
    recipient: str
    task: str
    sphere: str | None
    consensus: Label | None
    effective: Label | None
    votes: Letters
    reveals: int
    draws: int
    decided: int


def spoken_of(recipient: str) -> tuple[str, str]:
    """Return the article and the recipient as inside a sentence: a role gets 'the ', a possible name stays as it is."""
    first, *others = recipient.split(" ")
    role = first[1:].islower() and not any(word[:1].isupper() for word in others)
    article = "the " if role and first.casefold() not in _DETERMINERS else ""
    # Lower case only where the second letter is: IRS and McKay stay.
    return article, recipient[:1].lower() + recipient[1:] if role else recipient


def question(user: str, sex: str, recipient: str, task: str) -> list[tuple[str, str]]:
    """Return the question about a pair in segments (text, kind), as a card has them: Ann Lee writes to the triage
    nurse. Her task: say what is wrong. Does this belong in her message?"""
    article, who = spoken_of(recipient)
    what = task[:1].lower() + task[1:] if task[1:2].islower() else task
    whose = _POSSESSIVES.get(sex.casefold(), "their")
    return [
        (user, "data"),
        (f" writes to {article}", ""),
        (who, "strong"),
        (f". {whose.capitalize()} task: ", ""),
        (what.rstrip("."), "data"),
        (f". Does this belong in {whose} message?", ""),
    ]


def items(store: Store, index: PairIndex, positions: npt.NDArray[np.generic] | Sequence[int]) -> list[Item]:
    """Return the pairs at these positions, in their order; meant for a screenful, not for thousands. A pair whose
    attribute or context was removed in the meantime is left out."""
    at = np.asarray(positions, np.int64)
    if not len(at):
        return []
    shape, decisions = index.shape, standing(store, index.shape)
    pairs = index.pairs(at)
    owners = shape.codes(Facet.PROFILE, at)
    with store.read() as connection:
        attributes = _rows(connection, attribute, {a for a, _ in pairs})
        contexts = _rows(connection, context, {c for _, c in pairs})
        people = _rows(connection, profile, set(shape.profile_ids[owners].tolist()))
        votes = _votes(connection, index, pairs, shape.profile_ids[owners].tolist())
    deciders = decisions.deciders(at)
    consensus = index.consensus[at]
    decided = decisions.decided[at]
    result = []
    for n, (a, c) in enumerate(pairs):
        if a not in attributes or c not in contexts:
            continue
        fact, towards = attributes[a], contexts[c]
        result.append(
            Item(
                attribute=a,
                profile=int(shape.profile_ids[owners[n]]),
                context=c,
                statement=fact.statement,
                key=fact.key,
                value=json.loads(fact.value),
                domain=fact.domain,
                event=fact.event,
                user=shape.names[Facet.PROFILE][owners[n]],
                sex=people[shape.profile_ids[owners[n]]].sex,
                recipient=towards.recipient,
                task=towards.task,
                sphere=towards.sphere,
                consensus=LABELS.get(int(consensus[n])),
                effective=LABELS.get(int(consensus[n] if decided[n] == UNLABELLED else decided[n])),
                votes=votes.get((a, c), ()),
                reveals=int(index.reveals[at[n]]),
                draws=int(index.draws[at[n]]),
                decided=int(deciders[n]),
            )
        )
    return result


def _rows(connection: sa.Connection, table: sa.Table, ids: set[int]) -> dict[int, Any]:
    return {row.id: row for row in connection.execute(sa.select(table).where(table.c.id.in_(ids)))}


def _votes(
    connection: sa.Connection, index: PairIndex, pairs: Sequence[Pair], profiles: Sequence[int]
) -> dict[Pair, Letters]:
    """Return the letters of each pair, by persona in the order of the rule."""
    if index.labelling_id is None or index.rule is None or index.imported:
        return {}
    personas = list(labellings.personas(connection, index.labelling_id))
    columns = [sa.column(name, sa.BigInteger) for name in ("attribute", "profile", "context")]
    rows = sorted({(a, p, c) for (a, c), p in zip(pairs, profiles, strict=True)})
    # The pairs as a table of values: one query for the whole screen.
    shown = sa.values(*columns, name="shown").data(rows).cte()
    ballots = (
        ballot.c.labelling == index.labelling_id,
        ballot.c.profile == shown.c.profile,
        ballot.c.context == shown.c.context,
    )
    cast = connection.execute(
        sa.select(shown.c.attribute, shown.c.context, ballot.c.persona, vote.c.verdict)
        .select_from(shown)
        .join(ballot, sa.and_(*ballots))
        # Outer: a ballot that says nothing of the attribute is a missing vote, and gets its letter.
        .outerjoin(vote, sa.and_(vote.c.ballot == ballot.c.id, vote.c.attribute == shown.c.attribute))
        .order_by(ballot.c.draw)
    )
    letters: dict[tuple[int, int, int], str] = {}
    for a, c, persona, verdict in cast:
        letters[a, c, persona] = letters.get((a, c, persona), "") + _LETTERS.get(verdict, MISSING_GLYPH)
    keyed = list(zip(personas, index.rule.keys, index.rule.priors, strict=True))
    return {(a, c): tuple((key, prior, letters.get((a, c, i), "")) for i, key, prior in keyed) for a, c in pairs}
