"""The effect of the open labels on a number, and the part of it that the decision on each pair removes.

Mean and variance are those of metrics.label_uncertainty, of one run or of the difference of two. The value of deciding
a pair is how much of the variance goes with it: the sum over labels y of pi_y (theta_y - mean of theta)^2, theta_y the
number if the pair has the label y (Lindley 1956, On a Measure of the Information Provided by an Experiment, with
squared error). tests/extras/decision_value/test_effects.py checks both against sampled labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule, flow_arrays
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.metrics.label_uncertainty import Posterior, posterior
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.metrics.violation import no_leak_probabilities

WIDTH = 0.01  # default target of the half-width of label uncertainty, as a share


@dataclass(frozen=True)
class Subject:
    """A weighted sum of the numbers of runs on the same pairs: one run with weight 1, or a difference with 1 and -1.

    no_leak: q of each flow [runs, profile, attribute, context]; rate: r / N. flows: those with a judged sample in every
    run; counted: [profile, attribute]."""

    weights: Floats
    no_leak: Floats
    rate: Floats
    flows: Bools
    counted: Bools


def subject(runs: Sequence[FlowArrays], weights: Sequence[float], n: int) -> Subject:
    """Combine runs whose arrays have the same profiles, attributes and contexts (`intervals.common`). Violation@n of
    each flow is read at `read_at` samples at most."""
    flows = np.logical_and.reduce([data.draws > 0 for data in runs])
    counted = np.logical_and.reduce([data.counted for data in runs])
    no_leak = np.stack([_no_leak(data, n) for data in runs])
    rate = np.stack([data.reveals / np.maximum(data.draws, 1) for data in runs])
    return Subject(np.asarray(weights, np.float64), no_leak, rate, flows, counted)


def _no_leak(data: FlowArrays, n: int) -> Floats:
    if data.read_at is None:
        return no_leak_probabilities(data.reveals, data.draws, n)
    most = np.clip(data.read_at, 1, n)
    result = np.ones(data.draws.shape)
    for at in np.unique(most).tolist():
        here = most == at
        result[here] = no_leak_probabilities(data.reveals[here], data.draws[here], at)
    return result


@dataclass(frozen=True)
class LabelEffect:
    """Mean and variance of a number over labels drawn from their posterior; value: by how much deciding each pair
    [profile, attribute, context] lowers the variance, 0 if it is not open."""

    mean: float
    variance: float
    value: Floats


def _means(per_profile: Floats, spread: Floats, scale: Floats) -> tuple[float, float]:
    defined = scale > 0
    users = max(int(defined.sum()), 1)
    # If little is open, rounding may bring differences of products below 0.
    return float(per_profile[defined].sum()) / users, max(float(spread[defined].sum()), 0.0) / users**2


def violation_effect(of: Subject, labels: Posterior) -> LabelEffect:
    """Return the effect of labels on a sum of Violation@n, and the value of each pair for it."""
    retained = labels.retained[:, None, :]
    exposed = of.flows & of.counted[:, :, None]
    pi = np.where(exposed, labels.inappropriate * retained, 0.0)
    factors = [1 - pi * (1 - q) for q in of.no_leak]  # E x, one a run
    unrevealed = np.stack([x.prod(axis=2) for x in factors])
    never = (1 - pi).prod(axis=2)
    leaks = np.tensordot(of.weights, 1 - unrevealed, 1)
    # Var of the weighted sum of products: E of each product of two less the product of their means.
    square = np.zeros_like(leaks)
    for i, first in enumerate(of.no_leak):
        for j, second in enumerate(of.no_leak):
            square += of.weights[i] * of.weights[j] * (1 - pi * (1 - first * second)).prod(axis=2)
    spread = square - np.tensordot(of.weights, unrevealed, 1) ** 2
    total, number = leaks.sum(axis=1), (1 - never).sum(axis=1)
    share = np.where(number > 0, total / np.where(number > 0, number, 1), 0.0)[:, None]
    # Of a ratio to first order: Var(L - share * E) over the square of the mean of the denominator.
    ratio = spread + share**2 * never * (1 - never) - 2 * share * leaks * never
    per_profile = np.where(number > 0, ratio.sum(axis=1) / np.where(number > 0, number, 1) ** 2, 0.0)
    mean, variance = _means(share[:, 0], per_profile, number)
    # Settle each pair either way: only the terms of its attribute change.
    others = [_without_each(x, whole) for x, whole in zip(factors, unrevealed, strict=True)]
    no_other = _without_each(1 - pi, never)
    chance = np.where(exposed, retained, 0.0)
    rest_total, rest_number = (total[:, None] - leaks)[:, :, None], (number[:, None] - (1 - never))[:, :, None]

    def settled(probability: Floats | float) -> Floats:
        leak = sum(
            w * (1 - o * (1 - probability * (1 - q))) for w, o, q in zip(of.weights, others, of.no_leak, strict=True)
        )
        exposure = 1 - no_other * (1 - probability)
        under = rest_number + exposure
        return np.where(under > 0, (rest_total + leak) / np.where(under > 0, under, 1), share[:, :, None])

    difference = settled(chance) - settled(0.0)
    users = max(int((number > 0).sum()), 1)
    chance = np.where(exposed, labels.inappropriate, 0.0)
    value = np.where(labels.open, chance * (1 - chance) * difference**2, 0.0) / users**2
    return LabelEffect(mean, variance, value)


def completeness_effect(of: Subject, labels: Posterior) -> LabelEffect:
    """Return the effect of labels on completeness: in each context the mean over its necessary attributes, then over
    contexts."""
    retained = labels.retained
    pi = np.where(of.flows, labels.necessary * retained[:, None, :], 0.0)
    rate = np.tensordot(of.weights, of.rate, 1)
    total, number = (pi * rate).sum(axis=1), pi.sum(axis=1)
    share = np.where(number > 0, total / np.where(number > 0, number, 1), 0.0)
    # A context counts by its probability of having a necessary attribute.
    there = np.where(number > 0, 1 - (1 - pi).prod(axis=1), 0.0)
    spread = (pi * (1 - pi) * (rate - share[:, None, :]) ** 2).sum(axis=1)
    spread = np.where(number > 0, spread / np.where(number > 0, number, 1) ** 2, 0.0)
    contexts = there.sum(axis=1)
    scale = np.where(contexts > 0, contexts, 1)
    per_profile = (there * share).sum(axis=1) / scale
    variance_of = (there**2 * spread).sum(axis=1) / scale**2
    mean, variance = _means(per_profile, variance_of, contexts)
    rest_total, rest_number = total[:, None, :] - pi * rate, number[:, None, :] - pi
    chance = np.where(of.flows, retained[:, None, :], 0.0)

    def settled(probability: Floats | float) -> Floats:
        under = rest_number + probability
        # Without any other attribute the context would have no number: it stays at its mean, which moves nothing.
        return np.where(under > 1e-9, (rest_total + probability * rate) / np.maximum(under, 1e-9), share[:, None, :])

    difference = (settled(chance) - settled(0.0)) * (there / scale[:, None])[:, None, :]
    chance = np.where(of.flows, labels.necessary, 0.0)
    users = max(int((contexts > 0).sum()), 1)
    value = np.where(labels.open, chance * (1 - chance) * difference**2, 0.0) / users**2
    return LabelEffect(mean, variance, value)


def _without_each(factors: Floats, product: Floats) -> Floats:
    """Return the product over the contexts of an attribute without each of them: [profile, attribute, context], by
    division, or by the product of the others if a factor is 0."""
    zero = factors <= 0
    number = zero.sum(axis=2, keepdims=True)
    nonzero = np.where(zero, 1.0, factors)
    whole = np.where(number == 0, product[:, :, None], nonzero.prod(axis=2)[:, :, None])
    # With one 0 only the product without it is nonzero; with two none is.
    return np.where(number == 0, whole / nonzero, np.where((number == 1) & zero, whole, 0.0))


@cached
def label_effects(
    flows: Flows, scope: Scope, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[LabelEffect, LabelEffect]:
    """Return the effects of the labels on a run's Violation@n and on its completeness."""
    data = flow_arrays(flows, scope, rule)
    of, labels = subject([data], [1.0], n), posterior(flows, scope, data)
    return violation_effect(of, labels), completeness_effect(of, labels)


def decisions_needed(effect: LabelEffect, half_width: float) -> int | None:
    """Estimate how many more decisions, the most valuable first, narrow 1.96 standard deviations of the labels' effect
    to `half_width`; 0 if it is there already, None if all open pairs together would not suffice. Values are the current
    ones, and move with each decision.

    The part of the variance that the values leave is due to two pairs together, and goes only when both are decided:
    with pairs that have the share f of all values, f^2 of it."""
    left = effect.variance - (half_width / NORMAL_95) ** 2
    if left <= 1e-9 * effect.variance:
        return 0
    values = np.sort(effect.value[effect.value > 0])[::-1]
    if not values.size:
        return None
    share = np.cumsum(values) / values.sum()
    alone = min(float(values.sum()) / effect.variance, 1.0)
    gained = effect.variance * (alone * share + (1 - alone) * share**2)
    reached = np.searchsorted(gained, left * (1 - 1e-9))
    return int(reached) + 1 if reached < len(gained) else None
