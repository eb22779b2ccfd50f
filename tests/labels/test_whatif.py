"""What-if: the same as labelling anew under the new rule, and sums that add up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vote_strategies import priors_, thresholds, votes
from worlds import PERSONAS, add_dataset, add_labels, records

from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    LABELS,
    NECESSARY,
    UNLABELLED,
    VoteCounts,
    consensus,
    consensus_labels,
    custom_rule,
    paper_rule,
    vote_counts,
)
from cimemories.labels.votes import GroupBy, Groups
from cimemories.labels.whatif import Pairs, compare, what_if, with_decisions
from cimemories.model import Label
from cimemories.store import decisions, labellings
from cimemories.store.engine import Store, StoreError

X, N, A, U = INAPPROPRIATE, NECESSARY, AMBIGUOUS, UNLABELLED
KEYS = [p.key for p in PERSONAS]


def as_pairs(counts: np.ndarray) -> Pairs:
    """These votes as pairs of one profile, every pair an attribute of its own, in two domains by turns."""
    size = len(counts)
    ids = np.arange(size)
    held = VoteCounts("labelling-0", 0, ids, np.zeros(size, np.int64), counts, PERSONAS, imported=False)
    domains = Groups(("even", "odd"), ("even", "odd"), ids % 2)
    return Pairs(1, held, {GroupBy.DOMAIN: domains}, np.zeros(size, bool), np.full(size, U, np.int8))


@given(votes(), thresholds, priors_)
def test_a_what_if_is_the_labelling_anew_under_that_rule(counts: np.ndarray, threshold: float, priors: list) -> None:
    before = paper_rule(PERSONAS)
    after = custom_rule(PERSONAS, "tried", threshold, dict(zip(KEYS, priors, strict=True)))
    comparison = compare(as_pairs(counts), before, after)
    old = [int(consensus(c, before.priors)) for c in counts]
    new = [int(consensus(c, priors, threshold)) for c in counts]
    labelled = [(a, b) for a, b in zip(old, new, strict=True) if a != U]
    moves = [(str(LABELS[a]), str(LABELS[b])) for a, b in labelled if a != b]
    assert {(a, b): n for a, b, n in comparison.changes.frame.to_numpy().tolist()} == {
        move: moves.count(move) for move in moves
    }
    assert (comparison.pairs, comparison.changed) == (len(labelled), len(moves))
    frame = comparison.by[GroupBy.DOMAIN].frame
    assert (frame["pairs"].sum(), frame["changed"].sum()) == (comparison.pairs, comparison.changed)
    if labelled:
        assert comparison.survival_after == pytest.approx(np.mean([b > A for _, b in labelled]))
        assert (frame["survival_after"] * frame["pairs"]).sum() == pytest.approx(
            comparison.survival_after * comparison.pairs
        )
        assert frame["gained"].sum() - frame["lost"].sum() == round(
            (comparison.survival_after - comparison.survival_before) * comparison.pairs
        )


@given(votes(), thresholds, thresholds, priors_)
def test_survival_never_rises_with_the_threshold(counts: np.ndarray, one: float, two: float, priors: list) -> None:
    mapped = dict(zip(KEYS, priors, strict=True))
    low, high = (custom_rule(PERSONAS, "tried", t, mapped) for t in sorted((one, two)))
    comparison = compare(as_pairs(counts), low, high)
    assert np.isnan(comparison.survival_after) or comparison.survival_after <= comparison.survival_before
    assert set(comparison.changes.frame["to"]) <= {str(Label.AMBIGUOUS)}


@given(votes(), st.integers(0, 29), st.integers(0, 2))
def test_a_decision_on_an_unvoted_pair_is_a_pair_without_votes(counts: np.ndarray, attribute: int, code: int) -> None:
    held = as_pairs(counts).counts
    wider, labels = with_decisions(held, np.array([[attribute, 5, code], [0, 0, N]]))
    assert len(labels) == len(counts) + 1
    order = list(zip(wider.attributes.tolist(), wider.contexts.tolist(), strict=True))
    assert order == sorted(order)
    assert labels[order.index((attribute, 5))] == code and not wider.votes[order.index((attribute, 5))].any()
    assert labels[order.index((0, 0))] == N and (labels != U).sum() == 2
    for n in range(len(counts)):
        assert (wider.votes[order.index((n, 0))] == counts[n]).all()


def test_what_is_tried_is_what_a_saved_rule_then_does(store: Store) -> None:
    data = add_dataset(store, profiles=2, attributes=4, contexts=3)
    rng = np.random.default_rng(3)
    labelling = add_labels(store, data.id, rng.choice([X, N, A, U], (2, 4, 3), p=[0.3, 0.2, 0.4, 0.1]), draws=2)
    priors = {"fundamentalist": 0.2, "pragmatic": 0.2, "unconcerned": 0.6}
    before = consensus_labels(store, labelling)
    tried = what_if(store, labelling, 0.6, priors)
    assert tried.changed and consensus_labels(store, labelling).equals(before)
    with store.write() as connection:
        labellings.add_rule(connection, data.id, "saved", threshold=0.6, priors=priors, annotator="Ada", use=True)
    after = consensus_labels(store, labelling)
    assert (after["label"] != before["label"]).sum() == tried.changed
    assert (after["label"] > A).mean() == pytest.approx(tried.survival_after)
    again = what_if(store, labelling, 0.6, priors)
    assert (again.changed, again.survival_before) == (0, tried.survival_after)


def test_a_decided_pair_is_counted_apart(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[A], [A]]])
    person = records(sqlite_store, data.id)[0]
    priors = {"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8}
    assert what_if(sqlite_store, labelling, 0.7, priors).decided == 0
    with sqlite_store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=person.attribute_ids[1],
            context=person.context_ids[0],
            annotator="Ada",
            label=Label.INAPPROPRIATE,
        )
    comparison = what_if(sqlite_store, labelling, 0.7, priors)
    assert (comparison.changed, comparison.decided) == (2, 1)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"fundamentalist": 1.0}, "a prior for each of fundamentalist, pragmatic, unconcerned"),
        ({"fundamentalist": 0.5, "pragmatic": 0.5, "unconcerned": 0.5}, "add up to 1.5"),
    ],
)
def test_what_cannot_be_tried_says_why(sqlite_store: Store, priors: dict, message: str) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[A]]])
    with pytest.raises(StoreError, match=message):
        what_if(sqlite_store, labelling, 0.8, priors)


def test_counts_are_the_votes_and_outlive_their_cache(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=2, attributes=3, contexts=2)
    labels = np.random.default_rng(1).choice([X, N, A, U], (2, 3, 2))
    labelling = add_labels(sqlite_store, data.id, labels, draws=3)
    counts = vote_counts(sqlite_store, labelling)
    people = records(sqlite_store, data.id)
    expected = {
        (a, c): int(labels[p, i, j])
        for p, person in enumerate(people)
        for i, a in enumerate(person.attribute_ids)
        for j, c in enumerate(person.context_ids)
        if labels[p, i, j] != U
    }
    pairs = list(zip(counts.attributes.tolist(), counts.contexts.tolist(), strict=True))
    assert pairs == sorted(expected)
    assert (counts.votes.sum(axis=2) == 3).all()
    assert counts.labels(paper_rule(counts.personas)).tolist() == [expected[pair] for pair in pairs]
