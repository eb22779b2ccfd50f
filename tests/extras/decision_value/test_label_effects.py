"""What labels leave open: closed forms against labels that are drawn, values against settling a pair either way."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.extras.decision_value.effects import (
    LabelEffect,
    Subject,
    completeness_effect,
    decisions_needed,
    subject,
    violation_effect,
)
from cimemories.flows.arrays import Floats, FlowArrays, Ints, Names, mean_or_nan
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics import completeness, violation
from cimemories.metrics.intervals import common
from cimemories.metrics.label_uncertainty import Posterior

SHAPE = 4, 40, 8
N = 3
CODES = np.array([NECESSARY, INAPPROPRIATE, AMBIGUOUS])


def world(seed: int, shape: tuple[int, int, int] = SHAPE, *, sure: bool = True) -> tuple[FlowArrays, Posterior]:
    """Arrays of a run of 5 samples, and a posterior that is open in half of the pairs. sure: the first attribute is
    necessary and the second inappropriate everywhere, so that every context is retained."""
    draw = np.random.default_rng(seed)
    rate = draw.beta(0.6, 1.5, shape)
    reveals, draws = draw.binomial(5, rate), np.full(shape, 5)
    chances = draw.dirichlet((1.0, 1.5, 1.0), shape)
    unanimous = draw.random(shape) < 0.5
    labels = CODES[chances.argmax(axis=-1)]
    chances[unanimous] = np.eye(3)[chances.argmax(axis=-1)][unanimous]
    if sure:
        labels[:, 0], labels[:, 1] = NECESSARY, INAPPROPRIATE
        chances[:, 0], chances[:, 1] = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    counted = np.ones(shape[:2], np.bool_)
    counted[:, 2] = False  # an identifier: it never violates, and may be necessary
    draws[0, 3] = reveals[0, 3] = 0  # what no memory held
    names = Names.unnamed(*shape[:2])
    data = FlowArrays(reveals, draws, labels, counted, tuple(range(shape[0])), tuple(range(shape[2])), names)
    return data, Posterior(chances[..., 0], chances[..., 1], chances.max(axis=-1) < 1)


def sampled_labels(labels: Posterior, times: int, seed: int) -> list[Ints]:
    """Labels from their posterior."""
    draw = np.random.default_rng(seed)
    necessary, either = labels.necessary, labels.necessary + labels.inappropriate
    sampled = []
    for _ in range(times):
        u = draw.random(necessary.shape)
        sampled.append(np.where(u < necessary, NECESSARY, np.where(u < either, INAPPROPRIATE, AMBIGUOUS)))
    return sampled


def numbers(data: FlowArrays, labels: Ints) -> tuple[float, float]:
    leaks = violation.by_profile(data.reveals, data.draws, labels, data.counted, N)
    return mean_or_nan(leaks), mean_or_nan(completeness.by_profile(data.reveals, data.draws, labels))


def agrees(effect: LabelEffect, values: Floats, ratio: float) -> None:
    """Mean and standard deviation are those of the draws, within 4 standard errors; of the mean that of a ratio to
    first order, whose error is a fraction of a standard deviation."""
    spread = values.std(ddof=1)
    assert effect.mean == pytest.approx(values.mean(), abs=4 * spread / math.sqrt(len(values)) + ratio * spread)
    assert math.sqrt(effect.variance) == pytest.approx(spread, rel=4 / math.sqrt(2 * len(values)) + ratio)


@pytest.mark.parametrize("sure", [True, False])
def test_mean_and_spread_are_those_of_labels_drawn_from_their_posterior(sure: bool) -> None:
    data, labels = world(1, sure=sure)
    values = np.array([numbers(data, codes) for codes in sampled_labels(labels, 1500, 2)])
    of = subject([data], [1.0], N)
    agrees(violation_effect(of, labels), values[:, 0], 0.05)
    agrees(completeness_effect(of, labels), values[:, 1], 0.05)


def test_the_spread_of_a_difference_is_that_of_the_same_labels_on_both_sides() -> None:
    """Labels that move both runs alike cancel: the variance is not that of two numbers added."""
    data, labels = world(3)
    draw = np.random.default_rng(4)
    other = replace(data, reveals=np.minimum(data.reveals + draw.binomial(2, 0.3, SHAPE), data.draws))
    values = np.array([[numbers(d, codes) for d in (data, other)] for codes in sampled_labels(labels, 1500, 5)])
    of = subject([data, other], [-1.0, 1.0], N)
    both = violation_effect(of, labels), completeness_effect(of, labels)
    for measure, effect in enumerate(both):
        agrees(effect, values[:, 1, measure] - values[:, 0, measure], 0.05)
    alone = [violation_effect(subject([d], [1.0], N), labels).variance for d in (data, other)]
    assert both[0].variance < 0.7 * sum(alone)
    mirrored = violation_effect(subject([data, other], [1.0, -1.0], N), labels)
    assert mirrored.mean == pytest.approx(-both[0].mean, abs=1e-15)
    assert mirrored.variance == pytest.approx(both[0].variance, rel=1e-9)
    same = violation_effect(subject([data, data], [1.0, -1.0], N), labels)
    assert (same.mean, same.variance, same.value.max()) == pytest.approx((0, 0, 0), abs=1e-15)


def settled_either_way(of: Subject, labels: Posterior, at: tuple[int, int, int], measure: object) -> float:
    """The variance of the number over the three labels that one pair may get, all else as it is believed."""
    pi = (labels.necessary[at], labels.inappropriate[at], 1 - labels.necessary[at] - labels.inappropriate[at])
    where = tuple(np.array([i]) for i in at)
    theta = [measure(of, labels.settled(where, np.array([code]))).mean for code in CODES]  # type: ignore[operator]
    mean = sum(p * t for p, t in zip(pi, theta, strict=True))
    return sum(p * (t - mean) ** 2 for p, t in zip(pi, theta, strict=True))


@given(st.integers(0, 10**6), st.booleans())
def test_the_value_of_a_violation_pair_is_that_of_settling_it_either_way(seed: int, paired: bool) -> None:
    data, labels = world(seed, (2, 6, 4))
    other = world(seed + 1, (2, 6, 4))[0]
    of = subject([data, other], [-1.0, 1.0], N) if paired else subject([data], [1.0], N)
    effect = violation_effect(of, labels)
    expected = np.zeros(data.draws.shape)
    for at in zip(*np.nonzero(labels.open), strict=True):
        expected[at] = settled_either_way(of, labels, at, violation_effect)
    np.testing.assert_allclose(effect.value, expected, atol=1e-12)
    assert (effect.value[~labels.open] == 0).all()


@given(st.integers(0, 10**6))
def test_the_value_of_a_completeness_pair_is_that_of_settling_it_either_way(seed: int) -> None:
    """Every context has a necessary attribute, so that settling a pair brings none in or out."""
    data, labels = world(seed, (2, 6, 4))
    data.draws[0, 3] = 5  # of a flow that no memory held there is nothing to settle
    of = subject([data], [1.0], N)
    effect = completeness_effect(of, labels)
    for at in zip(*np.nonzero(labels.open), strict=True):
        expected = settled_either_way(of, labels, at, completeness_effect)
        assert effect.value[at] == pytest.approx(expected, abs=1e-12)


def test_settled_labels_leave_nothing_open_and_give_the_number_itself() -> None:
    data, labels = world(7)
    codes = sampled_labels(labels, 1, 8)[0]
    at = np.nonzero(labels.open)
    sure = labels.settled(at, codes[at])
    of = subject([data], [1.0], N)
    for effect, value in zip(
        (violation_effect(of, sure), completeness_effect(of, sure)), numbers(data, codes), strict=True
    ):
        assert effect.mean == pytest.approx(value, abs=1e-12)
        assert effect.variance == pytest.approx(0, abs=1e-15)
        assert not effect.value.any()


def test_the_decisions_needed_are_the_most_valuable_ones() -> None:
    effect = LabelEffect(0.3, 10e-4, np.array([[0.0, 4e-4, 1e-4], [2e-4, 2e-4, 1e-4]]))
    width = [1.96 * math.sqrt(left) for left in (10e-4, 9e-4, 6e-4, 5e-4, 4e-4, 1e-4)]
    assert [decisions_needed(effect, w) for w in width] == [0, 1, 1, 2, 2, 4]
    assert decisions_needed(effect, 0.0) == 5
    assert decisions_needed(replace(effect, value=np.zeros((2, 3))), width[1]) is None
    # What no pair does alone goes when two are decided: half of the values take half of their part, a quarter of that.
    apart = LabelEffect(0.3, 8e-4, np.array([1e-4, 1e-4, 1e-4, 1e-4]))
    width = [1.96 * math.sqrt(left) for left in (4.9e-4, 5.1e-4, 0.1e-4)]
    assert [decisions_needed(apart, w) for w in width] == [3, 2, 4]


def test_decided_pairs_by_value_reach_the_width_that_was_foretold() -> None:
    """With labels drawn from the posterior, deciding as many as foretold leaves about the width asked for."""
    data, labels = world(9)
    of = subject([data], [1.0], N)
    effect = violation_effect(of, labels)
    wanted = 1.96 * math.sqrt(effect.variance) / 2
    needed = decisions_needed(effect, wanted)
    assert needed is not None and 10 < needed < labels.open.sum() / 2
    left = []  # a sixth wider, since the values of the start are used to the end
    for truth in sampled_labels(labels, 40, 10):
        at = np.unravel_index(np.argsort(-effect.value, axis=None)[:needed], SHAPE)
        left.append(1.96 * math.sqrt(violation_effect(of, labels.settled(at, truth[at])).variance))
    assert np.mean(left) == pytest.approx(wanted, rel=0.2)
    # As many at random leave far more.
    chosen = np.random.default_rng(11).permutation(np.flatnonzero(labels.open))[:needed]
    at = np.unravel_index(chosen, SHAPE)
    random = violation_effect(of, labels.settled(at, sampled_labels(labels, 1, 12)[0][at]))
    assert 1.96 * math.sqrt(random.variance) > 1.3 * wanted


def test_a_difference_of_unequal_runs_is_read_at_the_fewer_samples() -> None:
    """One run lost messages: read at all of its samples, the other would seem to leak more."""
    data, labels = world(13)
    fewer = replace(data, draws=np.where(data.draws > 0, 1, 0), reveals=(data.reveals >= 3).astype(np.int64))
    one, two = common(data, fewer)
    effect = violation_effect(subject([one, two], [1.0, 0.0], 5), labels)
    at_one = violation_effect(subject([data], [1.0], 1), labels)
    assert effect.mean == pytest.approx(at_one.mean, abs=1e-12)
    assert effect.variance == pytest.approx(at_one.variance, abs=1e-12)
