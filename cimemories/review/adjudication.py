"""Pairs on which people differ, and how that was settled (docs/metrics.md, Labels).

What counts of a person is their own last decision on a pair, an adjudication apart. A pair is in dispute where two or
more people's decisions are of different labels. An adjudication is one more decision, which says why people had
differed; it stands until somebody decides anew, and no decision is ever removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

from cimemories.model import Label
from cimemories.store import decisions, reviews
from cimemories.store.decisions import Decision, NewDecision
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, decision, profile

SOURCE = "adjudicated"
_CHUNK = 2000  # ids in one IN (...)
Pair = tuple[int, int]


class Cause(StrEnum):
    """Why people had differed."""

    NORM = "norm unclear"
    STATEMENT = "statement unclear"
    GUIDELINE = "guideline gap"
    SLIP = "slip"


@dataclass(frozen=True)
class Disputed:
    """One pair and what people decided of it. `decisions`: each person's own last one, oldest first; `adjudication`:
    the newest one, None where there was none; `history`: every decision, oldest first."""

    attribute: int
    context: int
    profile: int
    profile_name: str
    key: str
    statement: str
    domain: str
    task: str
    recipient: str
    decisions: tuple[Decision, ...]
    adjudication: Decision | None
    history: tuple[Decision, ...]

    @property
    def pair(self) -> Pair:
        return self.attribute, self.context

    @property
    def labels(self) -> Counter[Label]:
        """How many people's own last decision is each label."""
        return Counter(item.label for item in self.decisions if item.label is not None)


@dataclass(frozen=True)
class Disputes:
    """`open`: in dispute and not settled, those with the most people first; `settled`: an adjudication stands, newest
    first. `shared`: pairs with decisions of two or more people, which is what the open ones are a share of."""

    open: tuple[Disputed, ...]
    settled: tuple[Disputed, ...]
    shared: int

    @property
    def causes(self) -> dict[Cause, int]:
        """How often each cause was given among the settled ones; causes that are none of Cause are left out."""
        counts = Counter(item.adjudication.cause for item in self.settled if item.adjudication is not None)
        return {cause: counts[cause] for cause in Cause if counts[cause]}


def disputes(store: Store, dataset_id: int) -> Disputes:
    """Every pair of a dataset on which people differ, or differed until an adjudication that stands."""
    with store.read() as connection:
        histories = _histories(connection, dataset_id)
        own = {pair: _own_decisions(history) for pair, history in histories.items()}
        standing = {pair: list(decisions.standing(history).values()) for pair, history in histories.items()}
        # Settled: the pair's label rests on an adjudication; nobody has decided since.
        settled = [pair for pair, newest in standing.items() if newest and newest[0].source == SOURCE]
        differing = [pair for pair, made in own.items() if len({item.label for item in made}) > 1]
        described = _described(connection, {*differing, *settled})
    items = {
        pair: Disputed(
            *pair,
            **texts,
            decisions=own[pair],
            # reversed: of several adjudications the newest.
            adjudication=next((item for item in reversed(histories[pair]) if item.source == SOURCE), None),
            history=tuple(histories[pair]),
        )
        for pair, texts in described.items()
    }
    ended = set(settled)
    still_open = (items[pair] for pair in differing if pair not in ended)
    return Disputes(
        open=tuple(sorted(still_open, key=lambda item: (-len(item.decisions), item.pair))),
        settled=tuple(sorted((items[p] for p in settled), key=lambda item: item.history[-1].created, reverse=True)),
        shared=sum(len(made) > 1 for made in own.values()),
    )


def settle(
    store: Store, dataset_id: int, item: Disputed, annotator: str, label: Label, cause: Cause, reason: str = ""
) -> None:
    """Record an adjudication. Raises StoreError without a name, and where somebody has decided the pair since `item`
    was read: their decision would be overruled unseen."""
    if not annotator.strip():
        raise StoreError("an adjudication needs your name. Enter it and settle the pair again.")
    with store.write() as connection:
        # Read in the transaction that writes: a decision that came since `item` was read is seen.
        history = decisions.history(connection, dataset_id, [item.attribute], item.context)
        if {d.id for d in history} - {d.id for d in item.history}:
            raise StoreError("somebody has just decided this pair. Look at it again before you resolve it.")
        adjudication = NewDecision(
            *item.pair,
            label,
            source=SOURCE,
            cause=str(Cause(cause)),
            reason=reason.strip(),
            guideline=reviews.keep_guideline(connection).hash,
        )
        decisions.add_all(connection, dataset_id, annotator, [adjudication])


def pseudonyms(store: Store, dataset_id: int) -> Mapping[str, str]:
    """A letter for everybody who decided anything in a dataset: A for who began first, after Z comes AA. The same for
    all pairs, and whoever joins later changes nobody's."""
    first = sa.func.min(decision.c.created)
    query = sa.select(decision.c.annotator, first).where(decision.c.dataset == dataset_id)
    with store.read() as connection:
        rows = connection.execute(query.group_by(decision.c.annotator)).all()
    people = [who for _, who in sorted((created, who) for who, created in rows)]
    return {who: letters(number) for number, who in enumerate(people)}


def letters(number: int) -> str:
    """0 as A, 25 as Z, 26 as AA."""
    text = ""
    number += 1
    while number:
        number, last = divmod(number - 1, 26)
        text = chr(ord("A") + last) + text
    return text


def _histories(connection: sa.Connection, dataset_id: int) -> dict[Pair, list[Decision]]:
    """The decisions on pairs that two people or more decided, or that were adjudicated, oldest first."""
    # max over 1 and 0: whether any decision of the pair is an adjudication.
    several = sa.or_(
        sa.func.count(sa.distinct(decision.c.annotator)) > 1,
        sa.func.max(sa.case((decision.c.source == SOURCE, 1), else_=0)) == 1,
    )
    query = (
        sa.select(decision.c.attribute, decision.c.context)
        .where(decision.c.dataset == dataset_id)
        .group_by(decision.c.attribute, decision.c.context)
        .having(several)
    )
    pairs = {(int(a), int(c)) for a, c in connection.execute(query)}
    histories: dict[Pair, list[Decision]] = {pair: [] for pair in sorted(pairs)}
    for chunk in _chunks({a for a, _ in pairs}):
        for item in decisions.history(connection, dataset_id, chunk):
            if (item.attribute, item.context) in pairs:
                histories[item.attribute, item.context].append(item)
    for history in histories.values():
        history.sort(key=_age)
    return histories


def _age(item: Decision) -> tuple[str, str, int]:
    # By time before id: ids tell the order of arrival, which is another one where records were merged.
    return item.created, item.uid or "", item.id


def _own_decisions(history: Sequence[Decision]) -> tuple[Decision, ...]:
    """Each person's last decision that is no adjudication, where it gives a label, oldest first."""
    by_id: dict[int | None, Decision] = {item.id: item for item in history}
    # Each decision names the one that it replaces: what nobody names is its author's newest.
    superseded = {item.supersedes for item in history}
    newest = {item.annotator: item for item in history if item.id not in superseded}
    own = []
    for item in newest.values():
        # Decisions of one person on one pair are a chain: back over their adjudications to their own decision.
        head: Decision | None = item
        while head is not None and head.source == SOURCE:
            head = by_id.get(head.supersedes)
        if head is not None and head.label is not None:
            own.append(head)
    return tuple(sorted(own, key=_age))


def _described(connection: sa.Connection, pairs: set[Pair]) -> dict[Pair, dict[str, Any]]:
    attributes: dict[int, dict[str, Any]] = {}
    for chunk in _chunks({a for a, _ in pairs}):
        query = (
            sa.select(attribute.c.id, attribute.c.profile, profile.c.name.label("profile_name"))
            .add_columns(attribute.c.key, attribute.c.statement, attribute.c.domain)
            .join(profile, attribute.c.profile == profile.c.id)
            .where(attribute.c.id.in_(chunk))
        )
        attributes |= {row["id"]: {n: row[n] for n in row if n != "id"} for row in connection.execute(query).mappings()}
    contexts: dict[int, dict[str, Any]] = {}
    for chunk in _chunks({c for _, c in pairs}):
        query = sa.select(context.c.id, context.c.task, context.c.recipient).where(context.c.id.in_(chunk))
        contexts |= {row["id"]: {n: row[n] for n in row if n != "id"} for row in connection.execute(query).mappings()}
    return {(a, c): {**attributes[a], **contexts[c]} for a, c in pairs}


def _chunks(ids: set[int]) -> list[list[int]]:
    ordered = sorted(ids)
    return [ordered[start : start + _CHUNK] for start in range(0, len(ordered), _CHUNK)]
