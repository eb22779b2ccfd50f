"""The random share of the queue: mixed in, reproducible, and unbiased where the rest of the queue is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta
from worlds import add_dataset, add_labels

from cimemories.extras.decision_value.ordering import ByValue
from cimemories.extras.decision_value.random_share import ShareAgreement, interleaved, share_agreement
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, LABELS, NECESSARY, TOO_FEW, UNLABELLED
from cimemories.model import Label
from cimemories.review.index import PairIndex, hashed, pair_index
from cimemories.review.queue import Filters, Order, select, undecided
from cimemories.store import decisions, reviews
from cimemories.store.engine import Store
from cimemories.store.reviews import Mark, MarkKind

SHAPE = 3, 20, 10


@given(st.integers(0, 400), st.floats(0, 1), st.integers(0, 5))
def test_each_position_comes_once_and_the_share_holds_up_to_each_place(number: int, share: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    first, by_hash = draw.permutation(number), draw.permutation(number)
    mixed = interleaved(first, by_hash, share)
    assert sorted(mixed.tolist()) == list(range(number))
    if not 0 < share < 1:
        assert mixed.tolist() == (by_hash if share >= 1 else first).tolist()
        return
    for place in range(1, min(number, 60)):
        head = set(mixed[:place].tolist())
        wanted = set(by_hash[: int(place * share)].tolist()), set(first[: int(place * (1 - share))].tolist())
        # What is due by one order may have come by the other already, so there is never less of either.
        assert all(due <= head for due in wanted)


def world(store: Store) -> PairIndex:
    row = add_dataset(store, *SHAPE)
    labels = np.random.default_rng(1).choice([AMBIGUOUS, NECESSARY, INAPPROPRIATE], SHAPE)
    return pair_index(store, row.id, add_labels(store, row.id, labels))


def decide(store: Store, index: PairIndex, positions: list[int], truth: np.ndarray, *, blind: bool = True) -> None:
    at = np.array(positions)
    new_decisions = [
        decisions.NewDecision(*pair, LABELS[int(code)], blind=blind)
        for pair, code in zip(index.pairs(at), truth[at], strict=True)
    ]
    with store.write() as connection:
        decisions.add_all(connection, index.dataset_id, "Ada", new_decisions)


def test_the_share_goes_on_through_the_queue_and_is_the_same_for_everybody(sqlite_store: Store) -> None:
    index = world(sqlite_store)
    by_hash = select(sqlite_store, index, Filters(), Order.RANDOM, 5).tolist()
    truth = np.full(len(index), NECESSARY)
    taken: list[int] = []
    for _ in range(6):
        left = ByValue(seed=5, share=0.2).select(sqlite_store, index, Filters(undecided_by="Ada"))
        taken += left[:10].tolist()
        decide(sqlite_store, index, left[:10].tolist(), truth)
    # Of sixty pairs twelve are due by hash, whenever the queue was asked for again.
    assert set(by_hash[:12]) <= set(taken)
    agreement = share_agreement(sqlite_store, index, 5)
    assert agreement.sampled >= 12 and agreement.sampled == agreement.answered
    assert undecided(sqlite_store, index, np.array(by_hash[: agreement.sampled]), "Ada").size == 0
    assert agreement.probability == agreement.sampled / len(index)
    # Another seed draws others.
    assert share_agreement(sqlite_store, index, 6).sampled < 12


def test_the_estimate_of_the_share_is_unbiased_where_that_of_the_queue_is_not(sqlite_store: Store) -> None:
    """People differ from the consensus exactly where the queue looks first; over 200 seeds the share is right in the
    mean, and its interval covers the truth in 95 % of them."""
    index = world(sqlite_store)
    draw = np.random.default_rng(2)
    truth = index.consensus.astype(np.int64)
    # Ambiguous pairs have entropy, so they come first; people settle nine in ten of them, and err seldom elsewhere.
    wrong = np.where(truth == AMBIGUOUS, draw.random(len(truth)) < 0.9, draw.random(len(truth)) < 0.1)
    truth = np.where(wrong, np.where(truth == NECESSARY, INAPPROPRIATE, NECESSARY), truth)
    real = float((truth == index.consensus).mean())
    shares, covered = [], 0
    chosen = ByValue(share=0.0).select(sqlite_store, index, Filters())[:100]
    assert float((truth == index.consensus)[chosen].mean()) < real - 0.3
    decide(sqlite_store, index, list(range(len(index))), truth)
    for seed in range(200):
        order = np.argsort(hashed(seed, index.shape.attributes, index.shape.contexts), kind="stable")
        own = order[:60]
        shares.append(float((truth == index.consensus)[own].mean()))
        agreement = share_agreement(sqlite_store, index, seed, among=own)
        assert agreement.agree / agreement.answered == shares[-1]
        part = share_interval(agreement.agree, agreement.answered, 60 / len(index))
        covered += part[0] <= real <= part[1]
    assert np.mean(shares) == pytest.approx(real, abs=4 * np.std(shares) / np.sqrt(200))
    assert covered >= 185


def share_interval(agree: int, of: int, probability: float) -> tuple[float, float]:
    population = round(of / probability)
    _, low, high = ShareAgreement(population, of, of, of, agree, 0, 0, 0).estimate()
    return low, high


def test_the_share_ends_before_what_nobody_has_seen_and_counts_skips_as_unanswered(sqlite_store: Store) -> None:
    index = world(sqlite_store)
    by_hash = select(sqlite_store, index, Filters(), Order.RANDOM).tolist()
    nothing = share_agreement(sqlite_store, index)
    assert (nothing.sampled, nothing.answered) == (0, 0) and "Nothing of the random share" in nothing.sentence
    assert nothing.as_json()["agreement"] is None
    # 0, 1 and 3 decided, 2 skipped, 5 decided for another reason: 4 is open, so 5 is not of the sample.
    truth = index.consensus.astype(np.int64)
    decide(sqlite_store, index, [by_hash[0], by_hash[3], by_hash[5]], truth)
    decide(sqlite_store, index, [by_hash[1]], (truth + 1) % 3, blind=False)
    with sqlite_store.write() as connection:
        (pair,) = index.pairs(np.array([by_hash[2]]))
        reviews.add_marks(connection, index.dataset_id, "Ada", [Mark(*pair, MarkKind.SKIP, uid="skip")])
    agreement = share_agreement(sqlite_store, index)
    assert (agreement.sampled, agreement.answered, agreement.agree, agreement.blind) == (4, 3, 2, 2)
    share, low, high = agreement.estimate()
    assert share == pytest.approx(2 / 3) and 0 < low < share < high < 1
    assert "1 skipped" in agreement.sentence and "1 answered with the votes in sight" in agreement.sentence


def test_where_pairs_were_skipped_the_rest_is_still_a_part(sqlite_store: Store) -> None:
    """Of 20 pairs 10 are answered, 8 as the consensus, and all others skipped: nothing is left to come, but what people
    think of ten pairs is not known. As many as 10 / (1 - 10 / 20) = 20 observations, of which 16 agree."""
    row = add_dataset(sqlite_store, profiles=1, attributes=5, contexts=4)
    labels = np.where(np.arange(5)[:, None] < 4, INAPPROPRIATE, NECESSARY) * np.ones((1, 5, 4), np.int64)
    index = pair_index(sqlite_store, row.id, add_labels(sqlite_store, row.id, labels))
    truth = index.consensus.astype(np.int64)
    truth[:2] = np.where(truth[:2] == NECESSARY, INAPPROPRIATE, NECESSARY)
    decide(sqlite_store, index, list(range(10)), truth)
    marks = [Mark(*pair, MarkKind.SKIP, uid=str(pair)) for pair in index.pairs(np.arange(10, 20))]
    with sqlite_store.write() as connection:
        reviews.add_marks(connection, index.dataset_id, "Ada", marks)
    agreement = share_agreement(sqlite_store, index)
    assert (agreement.population, agreement.sampled, agreement.answered) == (20, 20, 10)
    expected = 0.8, float(beta.ppf(0.025, 16, 5)), float(beta.ppf(0.975, 17, 4))
    assert agreement.estimate() == pytest.approx(expected) == agreement.settled_estimate()
    assert "80.0 % [56.3 %, 94.3 %]" in agreement.sentence


def test_an_adjudication_is_no_answer_of_the_share(sqlite_store: Store) -> None:
    index = world(sqlite_store)
    (first,) = select(sqlite_store, index, Filters(), Order.RANDOM)[:1].tolist()
    (pair,) = index.pairs(np.array([first]))
    with sqlite_store.write() as connection:
        new_decisions = [decisions.NewDecision(*pair, Label.NECESSARY, source="adjudicated")]
        decisions.add_all(connection, index.dataset_id, "Ada", new_decisions)
    assert share_agreement(sqlite_store, index).answered == 0


def test_everything_answered_is_no_sample_and_has_no_interval(sqlite_store: Store) -> None:
    index = world(sqlite_store)
    decide(sqlite_store, index, list(range(len(index))), index.consensus.astype(np.int64))
    agreement = share_agreement(sqlite_store, index)
    assert agreement.estimate() == agreement.settled_estimate() == (1, 1, 1)
    assert agreement.probability == 1


def test_pairs_with_too_few_votes_have_no_label_that_anybody_could_agree_with(sqlite_store: Store) -> None:
    index = world(sqlite_store)
    decide(sqlite_store, index, list(range(len(index))), index.consensus.astype(np.int64))
    consensus = index.consensus.copy()
    consensus[:7], consensus[7] = TOO_FEW, UNLABELLED
    assert share_agreement(sqlite_store, replace(index, consensus=consensus)).population == len(index) - 8
