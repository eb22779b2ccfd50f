"""Pairs on which people differ, and how that was settled (docs/metrics.md, Labels).

What counts of a person is their own last decision on a pair, an adjudication apart. A pair is in dispute where two or
more people's decisions are of different labels. An adjudication is one more decision, which says why people had
differed; it stands until a person decides again, and no decision is ever removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from cimemories.labels.votes import PairText, pair_texts
from cimemories.model import Label
from cimemories.store import decisions
from cimemories.store.decisions import ADJUDICATED, UNDO, Decision, moment
from cimemories.store.engine import Store
from cimemories.store.rows import in_chunks
from cimemories.store.tables import decision

Pair = tuple[int, int]


class Cause(StrEnum):
    """The reason that people had differed."""

    NORM = "norm unclear"
    STATEMENT = "statement unclear"
    GUIDELINE = "guideline gap"
    SLIP = "slip"


@dataclass(frozen=True)
class Disputed(PairText):
    """A pair and what people decided of it. `decisions`: each person's own last one, oldest first; `adjudication`:
    the newest one that is not taken back, None without any; `history`: every decision, oldest first."""

    decisions: tuple[Decision, ...]
    adjudication: Decision | None
    history: tuple[Decision, ...]

    @property
    def labels(self) -> Counter[Label]:
        """Return how many people's last decision is each label, adjudications apart."""
        return Counter(item.label for item in self.decisions if item.label is not None)

    def is_own(self, annotator: str) -> bool:
        """Return True if one of the answers is this person's."""
        return any(item.annotator == annotator for item in self.decisions)

    def seen(self, annotator: str) -> int:
        """Return the id of the newest decision that this person has seen. Their own adjudications do not count, so that
        an undo leads back to the same card."""
        return last_unsettled(self.history, annotator)


@dataclass(frozen=True)
class Disputes:
    """`open`: in dispute and not settled, those with the most people first; `settled`: an adjudication stands, newest
    first. `shared`: pairs with decisions of two or more people, which is what the open ones are a share of."""

    open: tuple[Disputed, ...]
    settled: tuple[Disputed, ...]
    shared: int

    @property
    def differing(self) -> int:
        """Return the number of pairs on which people's decisions differ, settled or not."""
        return len(self.open) + sum(len(item.labels) > 1 for item in self.settled)

    @property
    def causes(self) -> dict[Cause, int]:
        """Count the causes of the settled pairs; causes that are not in Cause are left out."""
        counts = Counter(item.adjudication.cause for item in self.settled if item.adjudication is not None)
        return {cause: counts[cause] for cause in Cause if counts[cause]}


def disputes(store: Store, dataset_id: int) -> Disputes:
    """Return the pairs of a dataset on which people differ, or differed until an adjudication that stands."""
    with store.read() as connection:
        histories = _histories(connection, dataset_id)
        people = {pair: _by_person(history) for pair, history in histories.items()}
        last = {
            pair: tuple(sorted(filter(None, map(last_decision, stacks.values())), key=moment))
            for pair, stacks in people.items()
        }
        settled = decisions.adjudicated([item for history in histories.values() for item in history])
        differing = [pair for pair, made in last.items() if len({item.label for item in made}) > 1]
        texts = pair_texts(connection, {*differing, *settled})
    items = {
        pair: Disputed(
            **vars(text),
            decisions=last[pair],
            adjudication=max(
                (d for stack in people[pair].values() for d in stack if d.source == ADJUDICATED),
                key=moment,
                default=None,
            ),
            history=tuple(histories[pair]),
        )
        for pair, text in texts.items()
    }
    still_open = (items[pair] for pair in differing if pair not in settled)
    return Disputes(
        open=tuple(sorted(still_open, key=lambda item: (-len(item.decisions), item.pair))),
        settled=tuple(
            sorted((items[p] for p in sorted(settled)), key=lambda item: item.history[-1].created, reverse=True)
        ),
        shared=sum(len(made) > 1 for made in last.values()),
    )


def last_unsettled(history: Sequence[Decision], annotator: str) -> int:
    """Return the id of the newest decision on a pair that is not this person's adjudication, nor the undo of one; 0
    without any."""
    mine = (ADJUDICATED, UNDO)
    return max((d.id for d in history if d.annotator != annotator or d.source not in mine), default=0)


def pseudonyms(store: Store, dataset_id: int) -> Mapping[str, str]:
    """Return a letter for each annotator of a dataset: A for the first to decide, after Z comes AA. It is the same on
    all pairs, and later annotators do not change it."""
    first = sa.func.min(decision.c.created)
    query = sa.select(decision.c.annotator, first).where(decision.c.dataset == dataset_id)
    with store.read() as connection:
        rows = connection.execute(query.group_by(decision.c.annotator)).all()
    people = [who for _, who in sorted((created, who) for who, created in rows)]
    return {who: letters(number) for number, who in enumerate(people)}


def letters(number: int) -> str:
    """Write a number in letters: 0 as A, 25 as Z, 26 as AA."""
    text = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        text = chr(ord("A") + last) + text
    return text


def _histories(connection: sa.Connection, dataset_id: int) -> dict[Pair, list[Decision]]:
    """Return the decisions on pairs that two people or more decided, or that were adjudicated, oldest first."""
    # max over 1 and 0: whether any decision of the pair is an adjudication.
    several = sa.or_(
        sa.func.count(sa.distinct(decision.c.annotator)) > 1,
        sa.func.max(sa.case((decision.c.source == ADJUDICATED, 1), else_=0)) == 1,
    )
    query = (
        sa.select(decision.c.attribute, decision.c.context)
        .where(decision.c.dataset == dataset_id)
        .group_by(decision.c.attribute, decision.c.context)
        .having(several)
    )
    pairs = {(int(a), int(c)) for a, c in connection.execute(query)}
    histories: dict[Pair, list[Decision]] = {pair: [] for pair in sorted(pairs)}
    for attributes in in_chunks(sorted({a for a, _ in pairs})):
        for item in decisions.history(connection, dataset_id, attributes):
            if (item.attribute, item.context) in pairs:
                histories[item.attribute, item.context].append(item)
    return histories


def last_decision(stack: Sequence[Decision]) -> Decision | None:
    """Return the last decision of a person's stack on a pair (`decisions.stacks`) that is not an adjudication, or None
    if it gives no label."""
    last = next((item for item in reversed(stack) if item.source != ADJUDICATED), None)
    return last if last is not None and last.label is not None else None


def _by_person(history: Sequence[Decision]) -> dict[str, list[Decision]]:
    """Return each person's stack of standing decisions on one pair."""
    people: dict[str, list[Decision]] = {}
    for item in history:
        people.setdefault(item.annotator, []).append(item)
    return {who: next(iter(decisions.stacks(made).values())) for who, made in people.items()}
