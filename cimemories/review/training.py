"""Pairs with known answers beside a slice of labels: training before it, and hidden tests mixed into it.

A known answer is an adjudication, or a label that the majority of each persona gives. What a person answers in training
is a mark and no decision; what they answer to a test is a decision like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product, zip_longest

import numpy as np

from cimemories.model import Label
from cimemories.review.sampling import Population, population
from cimemories.store import audits, decisions, reviews
from cimemories.store.audits import SLICE_LABELS, TEST, TRAINING, KnownPair, SliceRow
from cimemories.store.decisions import Pair
from cimemories.store.engine import Connection, Store, StoreError
from cimemories.store.team import assignments
from cimemories.text import count

BY_PERSONAS = "All personas give this label."
ADJUDICATED = "People settled it so"
_LETTERS = {Label.NECESSARY: "N", Label.INAPPROPRIATE: "X"}  # in the names of strata


def draw_known(store: Store, row: SliceRow, training: int, tests: int) -> list[KnownPair]:
    """Draw pairs with known answers that are not in a slice, by its seed: for training adjudicated ones first, then
    those on which all personas agree, necessary and inappropriate by turns; tests from these alone, undecided so far:
    an answer to a test may not overrule what people settled. Raises StoreError if there are not so many, or for a slice
    of something else than labels."""
    labelling = row.manifest.get("labelling")
    if row.kind != SLICE_LABELS or not isinstance(labelling, str):
        raise StoreError("only a slice of labels can have training and test pairs.")
    labelled = population(store, labelling)
    with store.read() as connection:
        drawn = {(item.attribute, item.context) for item in audits.slice_items(connection, row.id)}
        history = decisions.history(connection, row.dataset)
    standing = decisions.standing(history)
    settled = sorted(decisions.adjudicated(history) - drawn)
    generator = np.random.default_rng(row.seed)
    mixed = [settled[n] for n in generator.permutation(len(settled)).tolist()]
    adjudicated = ((pair, label) for pair in mixed if (label := standing[pair].label) is not None)
    agreed = _agreed(labelled, generator, drawn | standing.keys())
    pairs = [KnownPair(a, c, label, TRAINING) for (a, c), label in islice(chain(adjudicated, agreed), training)]
    pairs += [KnownPair(a, c, label, TEST) for (a, c), label in islice(agreed, tests)]
    if missing := training + tests - len(pairs):
        raise StoreError(
            f"{count(missing, 'pair')} with a known answer too few: they need an adjudication, or personas that all "
            "agree. Choose fewer training and test pairs."
        )
    return pairs


def _agreed(labelled: Population, generator: np.random.Generator, taken: set[Pair]) -> Iterator[tuple[Pair, Label]]:
    """Yield pairs at random whose label is the majority of each persona, necessary and inappropriate by turns."""
    names, stratum = labelled.strata[0]  # 'finance / necessary / NNN'

    def of(label: Label) -> Iterator[tuple[Pair, Label]]:
        unanimous = [n for n, name in enumerate(names) if set(name.rpartition(" / ")[2]) == {_LETTERS[label]}]
        for at in generator.permutation(np.flatnonzero(np.isin(stratum, unanimous))).tolist():
            pair = int(labelled.attributes[at]), int(labelled.contexts[at])
            if pair not in taken:
                yield pair, label

    pairs = zip_longest(of(Label.NECESSARY), of(Label.INAPPROPRIATE))
    return (known for known in chain.from_iterable(pairs) if known is not None)


@dataclass(frozen=True)
class Course:
    """The pairs with known answers of a slice, for one person. answers: theirs in training, by pair; tests: pairs."""

    training: Sequence[KnownPair]
    answers: Mapping[Pair, Label]
    tests: frozenset[Pair]

    @property
    def left(self) -> list[KnownPair]:
        """Return the training pairs that they have not answered."""
        return [pair for pair in self.training if pair.pair not in self.answers]

    @property
    def right(self) -> int:
        return sum(self.answers.get(pair.pair) == pair.label for pair in self.training)


NO_COURSE = Course((), {}, frozenset())


def course_of(store: Store, slice_id: int | None, person: str) -> Course:
    """Return the course of a person through a slice; without pairs for None and a slice that has none."""
    if slice_id is None:
        return NO_COURSE
    with store.read() as connection:
        pairs = audits.known_pairs(connection, [slice_id]).get(slice_id, [])
        if not pairs:
            return NO_COURSE
        trained = reviews.trained(connection, audits.slice_row(connection, slice_id).dataset)
    return Course(
        [pair for pair in pairs if pair.use == TRAINING],
        {(a, c): label for (a, c, who), label in trained.items() if who == person},
        frozenset(pair.pair for pair in pairs if pair.use == TEST),
    )


def reason_of(connection: Connection, dataset_id: int, pair: KnownPair) -> str:
    """Say in a sentence or two why this is the answer: what an adjudication gave as its reason, or that the personas
    agree."""
    made = decisions.history(connection, dataset_id, [pair.attribute], pair.context)
    if pair.pair not in decisions.adjudicated(made):
        return BY_PERSONAS
    last = max((item for item in made if item.source == decisions.ADJUDICATED), key=decisions.moment)
    return f"{ADJUDICATED}{f': {last.reason}' if last.reason else '.'}"


Answered = tuple[Label, Label]  # what a person said, and the known answer


def answered(
    connection: Connection, dataset_id: int, decided: Mapping[str, Mapping[Pair, Label]]
) -> dict[str, dict[str, list[Answered]]]:
    """Return what people said in training and to tests, in all slices of a dataset: by person, by use, an entry a pair.
    own: each person's own decisions; those of people to whom the slice is assigned are answers to its tests."""
    slices = [row.id for row in audits.all_slices(connection, dataset_id, SLICE_LABELS)]
    known = audits.known_pairs(connection, slices)
    said: dict[str, dict[tuple[str, Pair], Answered]] = {}
    for (a, c, who), label in reviews.trained(connection, dataset_id).items() if known else ():
        for pair in chain.from_iterable(known.values()):
            if pair.use == TRAINING and pair.pair == (a, c):
                said.setdefault(who, {})[TRAINING, pair.pair] = label, pair.label
    for item in assignments.assignments(connection, dataset_id=dataset_id) if known else ():
        for pair, who in product(known.get(item.slice, ()), item.people):
            if pair.use == TEST and pair.pair in decided.get(who, {}):
                said.setdefault(who, {})[TEST, pair.pair] = decided[who][pair.pair], pair.label
    return {
        who: {use: [both for (of, _), both in pairs.items() if of == use] for use in (TRAINING, TEST)}
        for who, pairs in said.items()
    }
