"""A run at a glance: which of its leaks is shown, and numbers that are those of the other answers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from worlds import add_labels, add_profiles, add_run, ask, make_profile, records

from cimemories.answers.overview import LONGEST, overview
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics.headline import headline
from cimemories.model import Label
from cimemories.store.engine import Store

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, N, N], [X, X, N], [N, A, X]]]
REVEALS = [[[5, 5, 0], [3, 0, 0], [5, 0, 0]]]


@pytest.mark.parametrize(("statement", "shown"), [("I have lost my job.", 1), ("I have lost my job. " * 9, 0)])
def test_the_leak_is_told_often_private_from_most_and_short(store: Store, statement: str, shown: int) -> None:
    assert len("I have lost my job.") < LONGEST[0] < len(statement) or shown
    person = make_profile(0, 3, 3)
    facts = [person.attributes[0], replace(person.attributes[1], statement=statement), person.attributes[2]]
    data = add_profiles(store, [replace(person, attributes=tuple(facts))])
    add_labels(store, data.id, LABELS)
    leak = overview(*ask(store, add_run(store, data.id, 5, REVEALS))).leak
    there = records(store, data.id)[0]
    assert leak is not None
    assert (leak.profile, leak.context, leak.attribute) == (there.id, there.context_ids[0], there.attribute_ids[shown])
    assert [piece.text for piece in leak.row.excerpt if piece.leaked] == ["All of it"]


def test_the_numbers_are_those_of_the_run(store: Store) -> None:
    data = add_profiles(store, [make_profile(0, 3, 3)])
    add_labels(store, data.id, LABELS)
    flows, scope = ask(store, add_run(store, data.id, 5, REVEALS))
    found, numbers = overview(flows, scope), headline(flows, scope)
    assert found.violation.value == numbers.violation[5] == pytest.approx(found.curve[-1])
    assert found.completeness.value == numbers.completeness
    assert found.labels == {Label.INAPPROPRIATE: 4, Label.NECESSARY: 4, Label.AMBIGUOUS: 1} and found.decided == 0


def test_a_run_without_labels_or_leaks_has_none_to_show(store: Store) -> None:
    data = add_profiles(store, [make_profile(0, 3, 3)])
    unlabelled = overview(*ask(store, add_run(store, data.id, 2, REVEALS)))
    assert unlabelled.leak is None and unlabelled.labels == {None: 9}
    add_labels(store, data.id, LABELS)
    assert overview(*ask(store, add_run(store, data.id, 2, [[[0, 0, 0]] * 3]))).leak is None
