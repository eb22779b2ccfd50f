"""Pairs on which people differ, and what was settled about them (metrics.md, Labels).

What counts of a person is their own last word on a pair, an adjudication apart. A pair is in dispute where two or more
people's words are of different labels. An adjudication is one more decision, which says why people had differed; it
stands until somebody decides anew, and nothing that anybody said goes away.
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
from cimemories.store.decisions import Decision, Said
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import attribute, context, decision, profile

SOURCE = "adjudicated"
_CHUNK = 2000
Pair = tuple[int, int]


class Cause(StrEnum):
    """Why people had differed."""

    NORM = "norm unclear"
    STATEMENT = "statement unclear"
    GUIDELINE = "guideline gap"
    SLIP = "slip"


@dataclass(frozen=True)
class Disputed:
    """One pair, in words and with what people said of it. `words`: each person's own last word, oldest first;
    `adjudication`: the newest one, None where there was none; `history`: every decision, oldest first."""

    attribute: int
    context: int
    profile: int
    profile_name: str
    key: str
    statement: str
    domain: str
    task: str
    recipient: str
    words: tuple[Decision, ...]
    adjudication: Decision | None
    history: tuple[Decision, ...]

    @property
    def pair(self) -> Pair:
        return self.attribute, self.context

    @property
    def labels(self) -> Counter[Label]:
        """How many people's own last word is each label."""
        return Counter(item.label for item in self.words if item.label is not None)


@dataclass(frozen=True)
class Disputes:
    """`open`: in dispute and not settled, those with the most people first; `settled`: an adjudication stands, newest
    first. `shared`: pairs with own words of two or more people, which is what the open ones are a share of."""

    open: tuple[Disputed, ...]
    settled: tuple[Disputed, ...]
    shared: int

    @property
    def causes(self) -> dict[Cause, int]:
        """How often each cause was given among the settled ones; those of other words are left out."""
        found = Counter(item.adjudication.cause for item in self.settled if item.adjudication is not None)
        return {cause: found[cause] for cause in Cause if found[cause]}


def disputes(store: Store, dataset_id: int) -> Disputes:
    """Every pair of a dataset on which people differ, or differed until an adjudication that stands."""
    with store.read() as connection:
        histories = _histories(connection, dataset_id)
        found = {pair: _own_words(history) for pair, history in histories.items()}
        settled = {pair: _standing_adjudication(history) for pair, history in histories.items()}
        differing = [pair for pair, words in found.items() if len({word.label for word in words}) > 1]
        wanted = {*differing, *(pair for pair, item in settled.items() if item is not None)}
        described = _described(connection, wanted)
    items = {
        pair: Disputed(
            *pair, **described[pair], words=found[pair], adjudication=_newest(history), history=tuple(history)
        )
        for pair, history in histories.items()
        if pair in wanted
    }
    ended = [items[pair] for pair, item in settled.items() if item is not None]
    return Disputes(
        open=tuple(sorted((items[p] for p in differing if settled[p] is None), key=lambda i: (-len(i.words), i.pair))),
        settled=tuple(sorted(ended, key=lambda i: i.history[-1].created, reverse=True)),
        shared=sum(len(words) > 1 for words in found.values()),
    )


def settle(
    store: Store, dataset_id: int, item: Disputed, annotator: str, label: Label, cause: Cause, reason: str = ""
) -> None:
    """Record an adjudication. Raises StoreError without a name, and where somebody has decided the pair since `item`
    was read: their word would be gone past unseen."""
    if not annotator.strip():
        raise StoreError("an adjudication needs a name. Say yours, and settle the pair again.")
    with store.write() as connection:
        history = decisions.history(connection, dataset_id, [item.attribute], item.context)
        if {d.id for d in history} - {d.id for d in item.history}:
            raise StoreError("somebody has decided this pair just now. Look at it again, and settle it then.")
        said = Said(
            *item.pair,
            label,
            source=SOURCE,
            cause=str(Cause(cause)),
            reason=reason.strip(),
            guideline=reviews.keep_guideline(connection).hash,
        )
        decisions.add_all(connection, dataset_id, annotator, [said])


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
    """The decisions on pairs of which two people or more said something, or that were adjudicated, oldest first."""
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
    attributes = sorted({a for a, _ in pairs})
    found: dict[Pair, list[Decision]] = {pair: [] for pair in sorted(pairs)}
    for start in range(0, len(attributes), _CHUNK):
        for item in decisions.history(connection, dataset_id, attributes[start : start + _CHUNK]):
            if (item.attribute, item.context) in pairs:
                found[item.attribute, item.context].append(item)
    for history in found.values():
        history.sort(key=_age)
    return found


def _age(item: Decision) -> tuple[str, str, int]:
    return item.created, item.uid or "", item.id


def _own_words(history: Sequence[Decision]) -> tuple[Decision, ...]:
    """Each person's last word that is no adjudication, where it gives a label, oldest first."""
    by_id = {item.id: item for item in history}
    superseded = {item.supersedes for item in history}
    last: dict[str, Decision] = {}
    for item in history:
        if item.id not in superseded:
            last[item.annotator] = item
    own = []
    for head in last.values():
        word: Decision | None = head
        while word is not None and word.source == SOURCE:
            word = by_id.get(word.supersedes) if word.supersedes is not None else None
        if word is not None and word.label is not None:
            own.append(word)
    return tuple(sorted(own, key=_age))


def _standing_adjudication(history: Sequence[Decision]) -> Decision | None:
    """The adjudication that the pair's label rests on; None where somebody has decided since, or there is none."""
    stands = list(decisions.standing(history).values())
    return stands[0] if stands and stands[0].source == SOURCE else None


def _newest(history: Sequence[Decision]) -> Decision | None:
    return next((item for item in reversed(history) if item.source == SOURCE), None)


def _described(connection: sa.Connection, pairs: set[Pair]) -> dict[Pair, dict[str, Any]]:
    attributes: dict[int, dict[str, Any]] = {}
    for chunk in _chunks(sorted({a for a, _ in pairs})):
        query = (
            sa.select(attribute.c.id, attribute.c.profile, profile.c.name.label("profile_name"))
            .add_columns(attribute.c.key, attribute.c.statement, attribute.c.domain)
            .join(profile, attribute.c.profile == profile.c.id)
            .where(attribute.c.id.in_(chunk))
        )
        attributes |= {row["id"]: {n: row[n] for n in row if n != "id"} for row in connection.execute(query).mappings()}
    contexts: dict[int, dict[str, Any]] = {}
    for chunk in _chunks(sorted({c for _, c in pairs})):
        query = sa.select(context.c.id, context.c.task, context.c.recipient).where(context.c.id.in_(chunk))
        contexts |= {row["id"]: {n: row[n] for n in row if n != "id"} for row in connection.execute(query).mappings()}
    return {(a, c): {**attributes[a], **contexts[c]} for a, c in pairs}


def _chunks(ids: list[int]) -> list[list[int]]:
    return [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
