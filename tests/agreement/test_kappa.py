"""Agreement corrected for chance: equal to maintained implementations and published examples, undefined where it is."""

from __future__ import annotations

import warnings

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from cimemories.agreement import statistics
from cimemories.agreement.statistics import cohen_kappa, compare, confusion, gwet_ac1, krippendorff_alpha

# 100 patients classified by two abstractors: `cont3x3abstractors` of Gwet's own R package irrCAC, whose documentation
# ("Computing agreement coefficients from contingency tables") prints kappa 0.7964094, AC1 0.8493305 and 89 % agreement.
ABSTRACTORS = np.array([[13, 0, 0], [0, 20, 7], [0, 4, 56]])
# Four observers and twelve units: K. Krippendorff 2011, Computing Krippendorff's Alpha-Reliability, section C, nominal.
MISSING = -1
OBSERVERS = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, MISSING, MISSING, MISSING],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, MISSING, 3],
        [MISSING, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, MISSING],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, MISSING],
    ]
)


def answers(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The items behind a table."""
    cells = np.repeat(np.arange(table.size), table.reshape(-1))
    return cells // len(table), cells % len(table)


def counted(codes: np.ndarray, categories: range) -> np.ndarray:
    """How many gave each answer, [items, categories], of answers [annotators, items]."""
    return np.stack([(codes == category).sum(axis=0) for category in categories], axis=1)


def test_gwets_own_example() -> None:
    first, second = answers(ABSTRACTORS)
    comparison = compare(first, second, 3)
    assert comparison.table.tolist() == ABSTRACTORS.tolist() and comparison.items == 100
    assert comparison.agreement.value == pytest.approx(0.89)
    assert comparison.kappa.value == cohen_kappa(ABSTRACTORS) == pytest.approx(0.7964094, abs=5e-8)
    assert comparison.ac1.value == gwet_ac1(ABSTRACTORS) == pytest.approx(0.8493305, abs=5e-8)
    # Its confidence interval by the normal approximation is (0.764, 0.935) there; ours is by resampling.
    assert (comparison.ac1.low, comparison.ac1.high) == pytest.approx((0.764, 0.935), abs=0.02)
    assert (comparison.kappa.low, comparison.kappa.high) == pytest.approx((0.68, 0.913), abs=0.02)


def test_krippendorffs_own_example() -> None:
    counts = counted(OBSERVERS, range(1, 6))
    alpha = krippendorff_alpha(counts)
    assert alpha.value == pytest.approx(0.743, abs=5e-4) and alpha.items == 11  # unit 12 was seen by one observer alone
    assert alpha.low is not None and alpha.high is not None and alpha.low < 0.743 < alpha.high <= 1


@st.composite
def pairs_of_answers(draw: st.DrawFn) -> tuple[int, list[int], list[int], list[float]]:
    categories = draw(st.integers(2, 4))
    codes = st.integers(0, categories - 1)
    rows = draw(st.lists(st.tuples(codes, codes, st.sampled_from([0.5, 1.0, 2.0, 7.25])), min_size=2, max_size=40))
    first, second, weights = (list(column) for column in zip(*rows, strict=True))
    return categories, first, second, weights


@given(pairs_of_answers())
def test_kappa_is_scikit_learns(ratings: tuple[int, list[int], list[int], list[float]]) -> None:
    categories, first, second, weights = ratings
    for mass in (None, weights):
        ours = compare(first, second, categories, mass, resamples=2).kappa.value
        if len({*first, *second}) == 1:
            assert ours is None  # scikit-learn says nan, and warns
        else:
            theirs = cohen_kappa_score(first, second, sample_weight=mass)
            assert ours == pytest.approx(theirs, abs=1e-12)


@given(pairs_of_answers())
def test_ac1_lies_where_its_definition_puts_it(ratings: tuple[int, list[int], list[int], list[float]]) -> None:
    categories, first, second, weights = ratings
    value = compare(first, second, categories, weights, resamples=2).ac1.value
    assert value is not None
    agreed = np.average(np.equal(first, second), weights=weights)
    assert -1 <= value <= agreed + 1e-12  # chance takes away, never adds
    assert (value > 1 - 1e-12) == (first == second)
    twice = np.repeat(first, 2), np.repeat(second, 2), categories, np.repeat(weights, 2) * 3
    again = compare(*twice, resamples=2).ac1.value
    assert value == pytest.approx(again)  # neither the size of the sample nor the unit of the weights matters


@given(st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=1, max_size=30), st.integers(0, 2**32))
def test_alpha_is_the_packages_in_every_resample(rows: list[list[int]], seed: int) -> None:
    counts = np.array(rows)
    usable = counts[counts.sum(axis=1) > 1]
    if len(usable) < 2 or (usable.sum(axis=0) > 0).sum() < 2:
        assert krippendorff_alpha(counts, resamples=2).value is None
        return
    theirs = krippendorff.alpha(value_counts=counts, level_of_measurement="nominal")
    assert krippendorff_alpha(counts, resamples=2).value == theirs
    patterns, number = np.unique(usable, axis=0, return_counts=True)
    resampled = np.random.default_rng(seed).multinomial(len(usable), number / len(usable), size=3)
    for times, ours in zip(resampled, statistics._alphas(patterns, resampled), strict=True):
        theirs = krippendorff_alpha(np.repeat(patterns, times, axis=0), resamples=2).value
        assert np.isnan(ours) if theirs is None else ours == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("first", "second", "kappa_value", "ac1_value", "why"),
    [
        ([], [], None, None, statistics.TOO_FEW),
        ([1], [1], None, None, statistics.TOO_FEW),
        ([2, 2, 2], [2, 2, 2], None, 1.0, statistics.ONE_ANSWER),
        ([1, 1], [2, 2], 0.0, -1 / 3, ""),  # never the same answer: e = (1/4 + 1/4) / 2
        ([0, 1, 2], [0, 1, 2], 1.0, 1.0, ""),
        ([1, 1, 1, 1], [1, 1, 2, 2], 0.0, (0.5 - 3 / 16) / (1 - 3 / 16), ""),
    ],
)
def test_what_is_undefined_is_no_number(
    first: list[int], second: list[int], kappa_value: float | None, ac1_value: float | None, why: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        comparison = compare(first, second, 3)
    assert (comparison.kappa.value, comparison.ac1.value) == pytest.approx((kappa_value, ac1_value))
    if kappa_value is None:
        assert (comparison.kappa.low, comparison.kappa.high, comparison.kappa.reason) == (None, None, why)
    if len(first) > 1:  # also where resamples are all alike
        agreement = comparison.agreement
        assert agreement.low is not None and 0 <= agreement.low <= agreement.value <= agreement.high <= 1
        assert agreement.high - agreement.low > 0.2


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        (np.zeros((0, 3)), statistics.NO_OVERLAP),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], statistics.NO_OVERLAP),  # one annotator, or no overlap
        ([[1, 1, 0], [0, 1, 0]], statistics.NO_OVERLAP),
        ([[0, 2, 0], [0, 3, 0], [1, 0, 0]], statistics.ONE_ANSWER),
    ],
)
def test_alpha_without_overlap_or_spread_says_why(counts: list[list[int]], why: str) -> None:
    alpha = krippendorff_alpha(counts)
    assert (alpha.value, alpha.low, alpha.high, alpha.reason) == (None, None, None, why)


def test_resampling_kinds_is_resampling_items() -> None:
    """The fast interval and the plain one, item by item, are of the same distribution."""
    first, second = answers(ABSTRACTORS)
    weights = np.where(first == 0, 5.0, 1.0)
    fast = compare(first, second, 3, weights, resamples=4000, seed=1).kappa
    rng = np.random.default_rng(2)
    samples = (rng.integers(0, len(first), len(first)) for _ in range(4000))
    by_item = [float(cohen_kappa(confusion(first[at], second[at], 3, weights[at]))) for at in samples]
    plain = tuple(np.quantile(by_item, [0.025, 0.975]))
    assert fast.value == pytest.approx(cohen_kappa_score(first, second, sample_weight=weights))
    assert plain == pytest.approx((fast.low, fast.high), abs=0.012)


def test_no_interval_where_resamples_are_undefined_or_alike() -> None:
    same = statistics.bootstrap_estimate(1.0, np.ones(9), 5)
    assert (same.low, same.high, same.reason) == (None, None, statistics.NO_SPREAD)
    assert (one := compare([0], [1], 2)).agreement.value is None and one.agreement.reason == statistics.TOO_FEW
    often = statistics.bootstrap_estimate(1.0, np.array([np.nan] * 2 + list(range(18))), 5)
    assert (often.low, often.reason) == (None, statistics.OFTEN_UNDEFINED)
    rare = compare([0] * 9 + [1], [0] * 10, 2)  # a third of the resamples have one answer alone
    assert rare.kappa.value == 0 and rare.kappa.low < 0 < rare.kappa.high
    assert rare.agreement.low == pytest.approx(0.7) and rare.agreement.high == 1


def test_weighted_figures_at_high_agreement_always_have_an_interval() -> None:
    """A stratified sample of 100 from a population that agrees on 98 %: in one of seven samples nothing differs."""
    held, never = 0, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first = rng.choice(3, 100, p=[0.3, 0.6, 0.1])
        second = np.where(rng.random(100) < 0.98, first, (first + 1) % 3)
        comparison = compare(first, second, 3, np.where(first == 0, 4.0, 6.0), resamples=500)
        for figure in (comparison.agreement, comparison.kappa, comparison.ac1):
            assert figure.low is not None and figure.high is not None
            assert figure.low < figure.value <= figure.high <= 1
        never += comparison.agreement.value == 1
        held += comparison.agreement.low <= 0.98 <= comparison.agreement.high
    assert never > 10
    assert held >= 0.85 * 200


def test_alphas_interval_holds_the_truth_with_few_items() -> None:
    """Twenty items by three annotators; a percentile interval holds it in 90 %."""

    def answered(rng: np.random.Generator, items: int) -> np.ndarray:
        truth = rng.choice(3, items, p=[0.4, 0.35, 0.25])
        given = [np.where(rng.random(items) < 0.6, truth, rng.choice(3, items, p=[0.4, 0.35, 0.25])) for _ in range(3)]
        return np.stack([(np.stack(given) == code).sum(axis=0) for code in range(3)], axis=1)

    truth = krippendorff.alpha(
        value_counts=answered(np.random.default_rng(99), 100_000), level_of_measurement="nominal"
    )
    rng = np.random.default_rng(0)
    alphas = [krippendorff_alpha(answered(rng, 20)) for _ in range(400)]
    assert sum(item.low <= truth <= item.high for item in alphas) >= 0.93 * 400


@pytest.mark.parametrize(("first", "second", "categories"), [([0], [1], 1), ([0, 3], [0, 1], 3), ([0, 1], [0], 2)])
def test_codes_that_are_none_are_refused(first: list[int], second: list[int], categories: int) -> None:
    with pytest.raises(ValueError, match=r"categories|codes|match"):
        confusion(first, second, categories)
