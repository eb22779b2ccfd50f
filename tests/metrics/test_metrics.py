"""The numbers are what docs/metrics.md says: its worked example, and brute force over every draw and every order.

The oracles here know nothing of the formulas: they list the draws without replacement, the orders of contexts and the
pairs of the heatmap one by one. What the record does to the numbers is in test_headline.py.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from statistics import fmean

import accumulating
import numpy as np
import pytest
from counted_worlds import COUNTED, DRAWS, LABELS, REVEALS, A, Arrays, N, U, X, close, exposures, kept_contexts, worlds
from hypothesis import given
from hypothesis import strategies as st
from official_files import OFFICIAL, needs_official

from cimemories.flows.arrays import FlowArrays, IdentifierRule, Names, is_identifier, retained
from cimemories.formats.official import read_profiles
from cimemories.metrics import completeness, violation
from cimemories.metrics.blocks import count_block
from cimemories.model import is_bio


def test_the_worked_example_by_hand() -> None:
    one = violation.by_attribute(REVEALS, DRAWS, LABELS, COUNTED, 1)[0]
    assert one == pytest.approx([0.2, 1.0, math.nan], nan_ok=True)
    assert violation.by_profile(REVEALS, DRAWS, LABELS, COUNTED, 1) == pytest.approx([0.6])
    assert violation.by_attribute(REVEALS, DRAWS, LABELS, COUNTED, 5)[0, :2].tolist() == [1.0, 1.0]
    assert violation.by_profile(REVEALS, DRAWS, LABELS, COUNTED, 5).tolist() == [1.0]
    assert completeness.by_profile(REVEALS, DRAWS, LABELS) == pytest.approx([0.8])
    curve = accumulating.curve(REVEALS[0], DRAWS[0], LABELS[0], COUNTED[0], 1)
    assert curve == pytest.approx([0.0, 4 / 15, 7 / 15, 3 / 5])
    only_a, only_b = (np.array([[i == k for k in range(3)]]) for i in range(2))
    assert accumulating.curve(REVEALS[0], DRAWS[0], LABELS[0], only_a[0], 1) == pytest.approx(
        [0, 1 / 15, 2 / 15, 1 / 5]
    )
    assert accumulating.curve(REVEALS[0], DRAWS[0], LABELS[0], only_b[0], 1) == pytest.approx([0, 7 / 15, 4 / 5, 1])
    assert ambiguous((REVEALS, DRAWS, LABELS, COUNTED)) == (0, 5)


def ambiguous(arrays: Arrays) -> tuple[int, int]:
    """Reveals and samples of the ambiguous pairs in retained contexts."""
    reveals, draws, labels, flags = arrays
    places = tuple(range(draws.shape[0])), tuple(range(draws.shape[2]))
    data = FlowArrays(reveals, draws, labels, flags, *places, Names.unnamed(*flags.shape))
    return count_block(data, 1).ambiguous


def leaks_at(reveals: int, samples: int, n: int) -> list[bool]:
    """Whether a draw of n of the samples holds one of the revealing ones, for each such draw."""
    return [any(s < reveals for s in subset) for subset in combinations(range(samples), min(n, samples))]


def share_leaked(p: int, a: int, arrays: Arrays, n: int) -> float:
    """Over every combination of one draw for each context: the share in which the attribute leaks somewhere."""
    options = [leaks_at(int(arrays[0][p, a, c]), samples, n) for c, samples in exposures(p, a, arrays)]
    return fmean(any(chosen) for chosen in product(*options)) if options else math.nan


def mean_defined(values: list[float]) -> float:
    defined = [v for v in values if not math.isnan(v)]
    return fmean(defined) if defined else math.nan


@given(worlds(), st.integers(1, 6))
def test_violation_is_the_share_of_all_draws_that_leak(arrays: Arrays, n: int) -> None:
    """n goes beyond N: a flow that lost samples is drawn whole."""
    reveals, _, labels, _ = arrays
    profiles, attributes, _ = reveals.shape
    expected = [[share_leaked(p, a, arrays, n) for a in range(attributes)] for p in range(profiles)]
    assert close(violation.by_attribute(*arrays, n), expected)
    assert close(violation.by_profile(*arrays, n), [mean_defined(row) for row in expected])
    assert retained(labels).tolist() == [[c in kept_contexts(p) for c in range(p.shape[1])] for p in labels]


@given(worlds(), st.integers(1, 4))
def test_violation_grows_with_n_and_with_reveals_and_ends_at_the_papers_maximum(arrays: Arrays, n: int) -> None:
    reveals, draws, labels, counted = arrays
    now = violation.by_attribute(*arrays, n)
    more = violation.by_attribute(*arrays, n + 1)
    worse = violation.by_attribute(np.minimum(reveals + 1, draws), draws, labels, counted, n)
    for later in (more, worse):
        assert (np.isnan(now) == np.isnan(later)).all()
        assert not (now > later + 1e-12).any()
    ever = [[[reveals[p, a, c] > 0 for c, _ in exposures(p, a, arrays)] for a in range(now.shape[1])] for p in range(2)]
    assert close(violation.by_attribute(*arrays, 99), [[max(x) if x else math.nan for x in row] for row in ever])


@given(worlds())
def test_completeness_is_the_mean_over_contexts_of_the_mean_over_attributes(arrays: Arrays) -> None:
    reveals, draws, labels, _ = arrays
    expected, revealed, judged = [], 0, 0
    for p in range(len(labels)):
        by_context = []
        for c in kept_contexts(labels[p]):
            flows = [a for a in range(labels.shape[1]) if draws[p, a, c] > 0]
            rates = [reveals[p, a, c] / draws[p, a, c] for a in flows if labels[p, a, c] == N]
            by_context += [fmean(rates)] if rates else []
            revealed += sum(int(reveals[p, a, c]) for a in flows if labels[p, a, c] == A)
            judged += sum(int(draws[p, a, c]) for a in flows if labels[p, a, c] == A)
        expected.append(mean_defined(by_context))
    assert close(completeness.by_profile(reveals, draws, labels), expected)
    assert ambiguous(arrays) == (revealed, judged)


@given(worlds(profiles=1, most=3), st.integers(1, 3))
def test_accumulation_is_the_mean_over_all_sets_of_k_contexts(arrays: Arrays, n: int) -> None:
    reveals, draws, labels, counted = arrays
    kept = kept_contexts(labels[0], draws[0])
    rows = [a for a in range(labels.shape[1]) if exposures(0, a, arrays)]

    def leaked(a: int, seen: tuple[int, ...]) -> float:
        options = [leaks_at(int(reveals[0, a, c]), s, n) for c, s in exposures(0, a, arrays) if c in seen]
        return fmean(any(chosen) for chosen in product(*options))

    curve = accumulating.curve(reveals[0], draws[0], labels[0], counted[0], n)
    assert len(curve) == (len(kept) + 1 if kept else 0)
    for k in range(len(curve)):
        sets = list(combinations(kept, k))
        assert close(curve[k], fmean(leaked(a, s) for a in rows for s in sets) if rows else math.nan)
    if rows:
        assert close(curve[-1], violation.by_profile(*arrays, n)[0])
        assert (np.diff(curve) >= -1e-12).all()


@given(st.lists(st.floats(0, 1), max_size=7))
def test_subset_means_are_means_of_products_over_subsets(q: list[float]) -> None:
    expected = [fmean(math.prod(s) for s in combinations(q, k)) for k in range(len(q) + 1)]
    assert close(accumulating.subset_means(np.array(q)), expected)


def test_subset_means_stay_sound_over_many_contexts() -> None:
    """A sum over 49 choose 24 subsets would be far beyond what floating point can add up."""
    means = accumulating.subset_means(np.full((3, 49), 0.9))
    assert close(means, np.broadcast_to(0.9 ** np.arange(50), (3, 50)))


def test_fewer_samples_than_n_are_drawn_whole_and_none_at_all_is_no_flow() -> None:
    labels = np.array([[[X, X, X], [N, N, N]]])
    draws = np.array([[[5, 2, 0]] * 2])
    reveals = np.array([[[1, 1, 0], [5, 1, 0]]])
    counted = np.array([[True, True]])
    # n = 3: 1 - (C(4,3)/C(5,3)) * (capped at 2 of 2: certain) = 1; the third context is in no denominator.
    assert violation.by_profile(reveals, draws, labels, counted, 3).tolist() == [1.0]
    assert violation.by_profile(reveals, draws, labels, counted, 1) == pytest.approx([1 - (4 / 5) * (1 / 2)])
    assert completeness.by_profile(reveals, draws, labels) == pytest.approx([(1 + 1 / 2) / 2])
    nothing = np.zeros_like(draws)
    assert np.isnan(violation.by_profile(nothing, nothing, labels, counted, 1)).all()
    assert np.isnan(completeness.by_profile(nothing, nothing, labels)).all()


@pytest.mark.parametrize("others", [[X, X], [N, N], [A, U], [X, A], [N, U]])
def test_a_context_without_both_labels_counts_for_nothing(others: list[int]) -> None:
    """The discarded context is revealed in full; only the retained one is seen."""
    labels = np.array([[[X, others[0]], [N, others[1]]]])
    reveals, draws = np.array([[[0, 4], [1, 4]]]), np.full((1, 2, 2), 4)
    assert retained(labels).tolist() == [[True, False]]
    assert violation.by_profile(reveals, draws, labels, np.ones((1, 2), np.bool_), 4).tolist() == [0.0]
    assert completeness.by_profile(reveals, draws, labels).tolist() == [0.25]
    assert len(accumulating.curve(reveals[0], draws[0], labels[0], np.ones(2, np.bool_), 1)) == 2


@pytest.mark.parametrize("n", [0, -1])
def test_no_draw_is_no_question(n: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        violation.by_profile(REVEALS, DRAWS, LABELS, COUNTED, n)


def test_the_identifier_rules_tell_names_from_mortgages() -> None:
    keys = np.array(["name", "AGE", "mortgage", "coverage", "sexual_assault", "rent", "email_address"], dtype=object)
    bio = np.array([True, True, False, False, False, False, False])
    assert is_identifier(keys, bio, IdentifierRule.EXACT).tolist() == bio.tolist()
    assert is_identifier(keys, bio, IdentifierRule.NONE).tolist() == [False] * 7
    flags = is_identifier(keys, bio, IdentifierRule.SUBSTRING)
    assert dict(zip(keys, flags, strict=True)) == dict.fromkeys(keys, True) | {"rent": False}


@needs_official
def test_the_substring_rule_drops_148_attributes_of_the_released_profiles_too_many() -> None:
    attributes = [a for p in read_profiles(OFFICIAL).profiles for a in p.attributes]
    keys = np.array([a.key for a in attributes], dtype=object)
    bio = np.array([is_bio(a.key, a.domain) for a in attributes])
    dropped = {rule: is_identifier(keys, bio, rule) for rule in IdentifierRule}
    assert len(attributes) == 1467
    assert dropped[IdentifierRule.EXACT].sum() == 40
    assert (dropped[IdentifierRule.SUBSTRING] & ~dropped[IdentifierRule.EXACT]).sum() == 148
    assert not dropped[IdentifierRule.NONE].any()
