"""The consensus rule and the persona mixture, as properties over random votes, and their refusals.

The oracle for the paper's rule is written from the words of metrics.md: a list of verdicts per persona, no arithmetic.
"""

from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from worlds import PERSONAS

from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    LABELS,
    NECESSARY,
    UNLABELLED,
    consensus,
    mixture,
)
from cimemories.model import Label, Verdict

WESTIN = [0.26, 0.64, 0.10]
COUNTED = (Verdict.NECESSARY, Verdict.INAPPROPRIATE, Verdict.ABSTAIN)

Ballots = list[list[Verdict]]


def tally(ballots: Ballots) -> list[list[int]]:
    """Counts as the store hands them over: a conflict is kept, but counted as nothing."""
    return [[Counter(draws)[verdict] for verdict in COUNTED] for draws in ballots]


def label(ballots: Ballots, priors: list[float], threshold: float = 1.0) -> int:
    return int(consensus(tally(ballots), priors, threshold))


# Few kinds of verdict in a case, so that agreement is not a rare accident.
ballots_of = st.sampled_from([list(Verdict), [Verdict.NECESSARY], [Verdict.INAPPROPRIATE, Verdict.CONFLICT]]).flatmap(
    lambda kinds: st.lists(st.lists(st.sampled_from(kinds), max_size=6), min_size=1, max_size=4)
)


@st.composite
def votes_and_priors(draw: st.DrawFn) -> tuple[Ballots, list[float]]:
    ballots = draw(ballots_of)
    weights = draw(st.lists(st.integers(0, 20), min_size=len(ballots), max_size=len(ballots)).filter(any))
    return ballots, [w / sum(weights) for w in weights]


def by_the_paper(ballots: Ballots, priors: list[float]) -> int:
    counted = [[v for v in draws if v is not Verdict.CONFLICT] for draws in ballots]
    if not any(counted):
        return UNLABELLED
    heard = [draws for draws, prior in zip(counted, priors, strict=True) if prior > 0]
    if not all(heard):
        return AMBIGUOUS
    verdicts = {v for draws in heard for v in draws}
    if verdicts == {Verdict.NECESSARY}:
        return NECESSARY
    return INAPPROPRIATE if verdicts == {Verdict.INAPPROPRIATE} else AMBIGUOUS


@given(votes_and_priors())
def test_at_threshold_one_a_label_needs_every_counted_vote_of_every_persona_with_a_prior(
    case: tuple[Ballots, list[float]],
) -> None:
    ballots, priors = case
    assert label(ballots, priors) == by_the_paper(ballots, priors)


@given(votes_and_priors(), st.floats(0.51, 1.0), st.randoms(use_true_random=False))
def test_the_order_of_draws_and_of_personas_is_nothing(
    case: tuple[Ballots, list[float]], threshold: float, chance: random.Random
) -> None:
    ballots, priors = case
    order = list(range(len(ballots)))
    chance.shuffle(order)
    shuffled = [chance.sample(ballots[i], len(ballots[i])) for i in order]
    assert label(shuffled, [priors[i] for i in order], threshold) == label(ballots, priors, threshold)


@given(votes_and_priors(), st.floats(0.51, 1.0), st.floats(0.51, 1.0))
def test_a_higher_threshold_never_makes_a_label(case: tuple[Ballots, list[float]], one: float, other: float) -> None:
    ballots, priors = case
    low, high = label(ballots, priors, min(one, other)), label(ballots, priors, max(one, other))
    assert high in (low, AMBIGUOUS)
    assert (high == UNLABELLED) == (low == UNLABELLED)


@given(votes_and_priors(), st.data())
def test_at_threshold_one_priors_matter_only_where_one_is_zero(
    case: tuple[Ballots, list[float]], data: st.DataObject
) -> None:
    ballots, priors = case
    size = len(priors)
    weights = data.draw(st.lists(st.integers(1, 50), min_size=size, max_size=size))
    others = [0.0 if p == 0 else float(w) for p, w in zip(priors, weights, strict=True)]
    assert label(ballots, priors) == label(ballots, [w / sum(others) for w in others])


def test_a_persona_without_a_prior_is_not_asked() -> None:
    ballots = [[Verdict.NECESSARY], [Verdict.INAPPROPRIATE]]
    assert label(ballots, [0.5, 0.5]) == AMBIGUOUS
    assert label(ballots, [1.0, 0.0]) == NECESSARY
    assert label([[Verdict.NECESSARY], []], [1.0, 0.0]) == NECESSARY
    assert label([[], [Verdict.INAPPROPRIATE]], [1.0, 0.0]) == AMBIGUOUS


@given(votes_and_priors())
def test_the_mixture_is_the_prior_times_the_share_of_votes(case: tuple[Ballots, list[float]]) -> None:
    ballots, priors = case
    counted = [[v for v in draws if v is not Verdict.CONFLICT] for draws in ballots]
    mixed = mixture(tally(ballots), priors)
    if any(prior > 0 and not draws for draws, prior in zip(counted, priors, strict=True)):
        assert np.isnan(mixed).all()
        return
    expected = [
        sum(p * d.count(verdict) / len(d) for d, p in zip(counted, priors, strict=True) if p > 0) for verdict in COUNTED
    ]
    assert mixed == pytest.approx(expected, abs=1e-12)
    assert mixed.sum() == pytest.approx(1.0, abs=1e-12)


@given(votes_and_priors(), st.floats(0.51, 0.999))
def test_below_one_the_label_is_the_verdict_whose_mixture_reaches_the_threshold(
    case: tuple[Ballots, list[float]], threshold: float
) -> None:
    ballots, priors = case
    mixed = mixture(tally(ballots), priors)
    assume(not any(math.isclose(share, threshold, abs_tol=1e-9) for share in mixed))
    if not any(map(sum, tally(ballots))):
        assert label(ballots, priors, threshold) == UNLABELLED
    elif mixed[0] > threshold:
        assert label(ballots, priors, threshold) == NECESSARY
    elif mixed[1] > threshold:
        assert label(ballots, priors, threshold) == INAPPROPRIATE
    else:
        assert label(ballots, priors, threshold) == AMBIGUOUS


def test_many_pairs_at_once_are_the_same_as_one_by_one() -> None:
    counts = np.random.default_rng(7).integers(0, 2, (40, 30, 3, 3))
    counts[::2, :, :, 1:] = 0
    whole = consensus(counts, WESTIN)
    single = [[int(consensus(counts[i, j], WESTIN)) for j in range(30)] for i in range(40)]
    assert whole.tolist() == single
    assert {UNLABELLED, AMBIGUOUS, NECESSARY} <= set(whole.ravel().tolist())


def test_a_share_that_reaches_the_threshold_exactly_is_a_label() -> None:
    """0.64 + 0.10 is not exactly 0.74 in floating point, in whichever order it is added."""
    ballots = [[Verdict.ABSTAIN], [Verdict.INAPPROPRIATE], [Verdict.INAPPROPRIATE]]
    assert label(ballots, WESTIN, 0.74) == INAPPROPRIATE
    assert label(ballots, WESTIN, 0.75) == AMBIGUOUS


def test_one_dissent_among_very_many_votes_is_not_rounded_away() -> None:
    counts = [[10**16, 0, 1], [5, 0, 0], [5, 0, 0]]
    assert mixture(counts, WESTIN)[0] == pytest.approx(1.0)
    assert int(consensus(counts, WESTIN)) == AMBIGUOUS


def test_unanimous_abstention_is_no_label() -> None:
    assert label([[Verdict.ABSTAIN]] * 3, WESTIN) == AMBIGUOUS


def test_a_conflict_is_counted_neither_for_nor_against() -> None:
    assert label([[Verdict.NECESSARY, Verdict.CONFLICT]] * 3, WESTIN) == NECESSARY
    assert label([[Verdict.CONFLICT]] * 3, WESTIN) == UNLABELLED


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0000001, -1.0, math.nan, math.inf])
def test_a_threshold_out_of_range_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        consensus([[1, 0, 0]] * 3, WESTIN, threshold)


@pytest.mark.parametrize("priors", [[0.26, 0.64, 0.11], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
def test_priors_that_do_not_add_up_to_one_are_refused(priors: list[float]) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        consensus([[1, 0, 0]] * 3, priors)


@pytest.mark.parametrize("priors", [[math.nan, 0.5, 0.5], [1.5, -0.5, 0.0]])
def test_priors_that_are_no_shares_are_refused(priors: list[float]) -> None:
    with pytest.raises(ValueError, match="priors"):
        consensus([[1, 0, 0]] * 3, priors)


def test_the_codes_name_every_label() -> None:
    assert sorted(LABELS) == [AMBIGUOUS, NECESSARY, INAPPROPRIATE]
    assert set(LABELS.values()) == set(Label)
    assert math.isclose(sum(p.prior for p in PERSONAS), 1.0)
