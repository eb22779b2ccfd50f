"""How far the labels themselves may move a number, and which pairs to decide to make it surer.

The consensus keeps unanimous votes only; what the votes of a pair leave open is its posterior: the mixture of the
personas' votes (a person's decision settles it). Labels imputed from it are independent from pair to pair, so the mean
and the variance of a number over infinitely many imputations (Rubin 1987, Multiple Imputation, the variance between
imputations; 1 + 1/M is 1 here) need no drawing. With I the indicator that a flow is inappropriate, pi its probability,
and x = 1 - I (1 - q), an attribute leaks with L = 1 - product of x, and

    E L = 1 - product of (1 - pi (1 - q))        E (1 - L)^2 = product of (1 - pi (1 - q^2))

over its contexts; it is exposed with E = 1 - product of (1 - I), and E L = L since what leaks is exposed. A profile's
number is the ratio of the sums, its variance that of a ratio to first order. Completeness is the same with sums over
the attributes of a context. Whether a context is retained enters by its probability.

The value of deciding a pair is how much of this variance goes with it: the sum over labels y of
pi_y (theta_y - mean of theta)^2, theta_y the number if the pair has the label y (Lindley 1956, On a Measure of the
Information Provided by an Experiment, with squared error). tests/metrics/test_label_uncertainty.py holds both against
labels that are drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cimemories.flows.arrays import (
    Bools,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    decided_pairs,
    flow_arrays,
    pair_rows,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import (
    AMBIGUOUS,
    INAPPROPRIATE,
    NECESSARY,
    VoteCounts,
    mixture,
    rule_of,
    vote_counts,
    votes_of,
)
from cimemories.flows.scope import Scope
from cimemories.metrics.uncertainty import NORMAL_95
from cimemories.metrics.violation import no_leak_probabilities, no_leak_probability
from cimemories.store.labellings import LabellingRow

WIDTH = 0.01  # half-width of the label uncertainty that is wanted where none is named, as a share


# Profiles computed at once where nothing but a variance is wanted: what stands between then fits into the processor's
# cache. 1,000 profiles with half of their pairs open take 0.1 s instead of 14.
BLOCK = 16


@dataclass(frozen=True)
class Posterior:
    """What is believed of each pair: necessary and inappropriate, probabilities [profile, attribute, context]; the rest
    to 1 is ambiguous. open: the pairs that a decision would settle: labelled by votes that disagree, undecided."""

    necessary: Floats
    inappropriate: Floats
    open: Bools

    def retained(self) -> Floats:
        """The probability that a context has both a necessary and an inappropriate attribute: [profile, context]."""
        return self._retained

    @cached_property
    def _retained(self) -> Floats:
        kept = np.empty(self.open[:, 0].shape)
        for first in range(0, len(kept), BLOCK):
            block = slice(first, first + BLOCK)
            necessary, inappropriate = self.necessary[block], self.inappropriate[block]
            neither = np.prod(1 - necessary - inappropriate, axis=1)
            kept[block] = 1 - np.prod(1 - necessary, axis=1) - np.prod(1 - inappropriate, axis=1) + neither
        return np.clip(kept, 0.0, 1.0)

    def at(self, cells: tuple[Ints, ...]) -> Posterior:
        """Of a part of the profiles, attributes and contexts alone. cells: as np.ix_ makes them."""
        return Posterior(self.necessary[cells], self.inappropriate[cells], self.open[cells])

    def settled(self, at: tuple[Ints, ...], labels: Ints) -> Posterior:
        """The same once these pairs have these label codes. at: positions [pairs] along each axis."""
        if not len(labels):
            return self
        necessary, inappropriate, still = self.necessary.copy(), self.inappropriate.copy(), self.open.copy()
        necessary[at], inappropriate[at], still[at] = labels == NECESSARY, labels == INAPPROPRIATE, False
        return Posterior(necessary, inappropriate, still)


def posterior_of(data: FlowArrays, counts: VoteCounts | None, priors: Sequence[float]) -> Posterior:
    """The posterior of the pairs of these arrays by votes and the priors of their personas alone: nobody has decided
    any. A pair with too few votes of some persona is held at having no label: too little is known of what it
    might be instead."""
    probabilities = [(data.labels == code).astype(np.float64) for code in (NECESSARY, INAPPROPRIATE)]
    still = np.zeros(data.labels.shape, np.bool_)
    if counts is not None:
        mixed = mixture(counts.votes, priors)
        known: Bools = np.asarray(~np.isnan(mixed).any(axis=1))
        rows = pair_rows(counts.attributes, counts.contexts, data)
        voted = (rows >= 0) & (data.labels >= AMBIGUOUS)
        voted[voted] = known[rows[voted]]
        for column, probability in enumerate(probabilities):
            probability[voted] = mixed[rows[voted], column]
        still[voted] = mixed[rows[voted]].max(axis=1) < 1.0 - 1e-12
    return Posterior(probabilities[0], probabilities[1], still)


def votes_on(flows: Flows, labelling: LabellingRow, data: FlowArrays) -> VoteCounts:
    """The counted votes on the pairs of these arrays: all of a labelling, or of a block its own alone."""
    if data.part is None:
        return vote_counts(flows.store, labelling.id)
    return votes_of(flows.store, labelling, data.profiles)


def posterior(flows: Flows, scope: Scope, data: FlowArrays) -> Posterior:
    """The posterior of the pairs of these arrays of a run: people's decisions are settled, the others as `posterior_of`
    has them. Kept with the arrays; runs in memory with the same labels on the same pairs share one. Of a block its
    votes alone are read."""

    def compute() -> Posterior:
        at = decided_pairs(flows, scope, data)
        counts: VoteCounts | None = None
        priors: tuple[float, ...] = ()
        if scope.labelling is not None:
            rule = scope.rule or rule_of(flows.store, scope.labelling.id)
            counts, priors = votes_on(flows, scope.labelling, data).under(rule.both_lists), rule.priors

        def believed() -> Posterior:
            labels = posterior_of(data, counts, priors).settled(at, data.labels[at])
            for array in (labels.necessary, labels.inappropriate, labels.open):
                array.flags.writeable = False
            return labels

        if data.part is not None:
            return believed()
        of_votes = (counts.labelling_id, counts.revision, priors, counts.both_lists) if counts is not None else None
        digests = [hashlib.sha256(part.tobytes()).digest() for part in (data.labels, data.names.attribute, *at)]
        key = ("posterior of labels", of_votes, data.labels.shape, data.contexts, *digests)
        return flows.cached(key, believed)

    return data.derived(("posterior", scope.version), compute)


@dataclass(frozen=True)
class Subject:
    """A weighted sum of the numbers of runs on the same pairs: one run with weight 1, or a difference with 1 and -1.

    no_leak: q of each flow [runs, profile, attribute, context]; rate: r / N. flows: where every run has a judged
    sample; counted: [profile, attribute].
    """

    weights: Floats
    no_leak: Floats
    rate: Floats
    flows: Bools
    counted: Bools


def subject(runs: Sequence[FlowArrays], weights: Sequence[float], n: int) -> Subject:
    """Of runs whose arrays have the same profiles, attributes and contexts (`intervals.common`), Violation@n of each
    flow read at `read_at` samples at most."""
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
    """Mean and variance of a number over labels drawn from their posterior; the value of deciding each pair
    [profile, attribute, context], 0 where it is not open: by how much that lowers the variance."""

    mean: float
    variance: float
    value: Floats


def _means(per_profile: Floats, spread: Floats, scale: Floats) -> tuple[float, float]:
    defined = scale > 0
    users = max(int(defined.sum()), 1)
    # Where little is open, differences of products of rounded numbers may end below 0, which no variance is.
    return float(per_profile[defined].sum()) / users, max(float(spread[defined].sum()), 0.0) / users**2


def violation_effect(of: Subject, labels: Posterior) -> LabelEffect:
    """What labels do to a sum of Violation@n, and the value of each pair for it."""
    retained = labels.retained()[:, None, :]
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
    # Each pair settled either way: the terms of its attribute alone change.
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
    own = np.where(exposed, labels.inappropriate, 0.0)
    value = np.where(labels.open, own * (1 - own) * difference**2, 0.0) / users**2
    return LabelEffect(mean, variance, value)


def completeness_effect(of: Subject, labels: Posterior) -> LabelEffect:
    """The same of completeness: in each context the mean over its necessary attributes, then over contexts."""
    retained = labels.retained()
    pi = np.where(of.flows, labels.necessary * retained[:, None, :], 0.0)
    rate = np.tensordot(of.weights, of.rate, 1)
    total, number = (pi * rate).sum(axis=1), pi.sum(axis=1)
    share = np.where(number > 0, total / np.where(number > 0, number, 1), 0.0)
    # A context counts as far as it is likely to have a necessary attribute.
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
    own = np.where(of.flows, labels.necessary, 0.0)
    users = max(int((contexts > 0).sum()), 1)
    value = np.where(labels.open, own * (1 - own) * difference**2, 0.0) / users**2
    return LabelEffect(mean, variance, value)


def _without_each(factors: Floats, product: Floats) -> Floats:
    """The product over the contexts of an attribute without each of them: [profile, attribute, context]. Divided out,
    except where a factor is 0: there the product of the others is taken."""
    zero = factors <= 0
    number = zero.sum(axis=2, keepdims=True)
    nonzero = np.where(zero, 1.0, factors)
    whole = np.where(number == 0, product[:, :, None], nonzero.prod(axis=2)[:, :, None])
    # One 0: only without it is anything left. Two: nothing ever is.
    return np.where(number == 0, whole / nonzero, np.where((number == 1) & zero, whole, 0.0))


@dataclass(frozen=True)
class LabelSums:
    """What labels leave open of profiles' own numbers, as sums, so that those of blocks of profiles add up: variances
    of Violation@n [ns] and of completeness, and how many profiles have each number."""

    violation: Floats
    completeness: float
    users: int
    needing: int

    def variances(self, ns: Sequence[int]) -> tuple[dict[int, float], float]:
        """Of the means over profiles: by n, and of completeness."""
        # Where no label is open, sums of rounded terms may end a hair below 0.
        by_n = dict(zip(ns, (np.maximum(self.violation, 0.0) / max(self.users, 1) ** 2).tolist(), strict=True))
        return by_n, max(self.completeness, 0.0) / max(self.needing, 1) ** 2


def label_sums(data: FlowArrays, labels: Posterior, ns: Sequence[int]) -> LabelSums:
    """The sums of these profiles, which are those of `violation_effect` and `completeness_effect` without the value of
    any pair: both in one pass, by a few profiles at once, and without those that have no open pair. Raises ValueError
    for n < 1."""
    if not labels.open.any():  # then every pair is believed to be what it is labelled
        flows = data.inappropriate, data.necessary
        users, needing = (len(np.unique(part.owners // max(part.shape[1], 1))) for part in flows)
        return LabelSums(np.zeros(len(ns)), 0.0, users, needing)
    of_violation, of_completeness, users, needing = np.zeros(len(ns)), 0.0, 0, 0
    retained, chances = labels.retained(), _LeakChances(int(data.draws.max(initial=0)), ns)
    for first in range(0, len(labels.open), BLOCK):
        block = slice(first, first + BLOCK)
        draws, reveals = data.draws[block], data.reveals[block]
        held = (draws > 0) * retained[block][:, None, :]
        exposed, needed = labels.inappropriate[block] * held, labels.necessary[block] * held
        exposed *= data.counted[block][:, :, None]
        # Every profile with something exposed, or needed, is in the mean, settled or not.
        users += int(exposed.any(axis=(1, 2)).sum())
        needing += int(needed.any(axis=(1, 2)).sum())
        if labels.open[block].any():
            of_violation += _violation_spread(exposed, reveals, draws, chances)
            of_completeness += _completeness_spread(needed, reveals / np.maximum(draws, 1))
    return LabelSums(of_violation, of_completeness, users, needing)


class _LeakChances:
    """1 - q and 1 - q^2 of outcomes (N, r) for each n, [2 ns, N * width + r]; each N is computed when it is met."""

    def __init__(self, most: int, ns: Sequence[int]) -> None:
        self.width, self.ns = most + 1, tuple(ns)
        self._table, self._known = np.zeros((2 * len(self.ns), self.width**2)), np.zeros(self.width, np.bool_)
        for n in self.ns:
            no_leak_probability(0, 0, n)  # raises for n < 1

    def of(self, draws: Ints, reveals: Ints) -> Floats:
        """draws, reveals: [flows]. Returns [2 ns, flows]: 1 - q for each n, then 1 - q^2."""
        wide = draws.astype(np.int64)
        for total in np.flatnonzero(np.bincount(wide)).tolist():
            if not self._known[total]:
                q = np.array([[no_leak_probability(total, r, n) for r in range(total + 1)] for n in self.ns])
                self._table[:, total * self.width :][:, : total + 1] = 1 - np.concatenate([q, q**2])
                self._known[total] = True
        return self._table[:, wide * self.width + reveals]


def _violation_spread(pi: Floats, reveals: Ints, draws: Ints, chances: _LeakChances) -> Floats:
    """The variances of these profiles' own numbers, summed: [ns]. pi: of being exposed; all [profile, attribute,
    context]."""
    never = (1 - pi).prod(axis=2)
    # Only flows with a reveal can leak: x is 1 for all others.
    at = np.flatnonzero((reveals > 0) & (pi > 0))
    x = chances.of(draws.reshape(-1)[at], reveals.reshape(-1)[at])
    x *= -pi.reshape(-1)[at]
    x += 1
    products = np.ones((len(x), never.size))
    if len(at):
        owners = at // pi.shape[2]
        starts = np.flatnonzero(np.concatenate([[True], owners[1:] != owners[:-1]]))
        products[:, owners[starts]] = np.multiply.reduceat(x, starts, axis=1)
    unrevealed, square = products.reshape(2, -1, *never.shape)  # [ns, profile, attribute]
    leaks, number = 1 - unrevealed, (1 - never).sum(axis=1)
    under = np.where(number > 0, number, 1)
    share = (leaks.sum(axis=2) / under)[:, :, None]
    ratio = square - unrevealed**2 + share**2 * never * (1 - never) - 2 * share * leaks * never
    spread: Floats = (ratio.sum(axis=2) / under**2).sum(axis=1)
    return spread


def _completeness_spread(pi: Floats, rate: Floats) -> float:
    """The variances of these profiles' own numbers, summed. pi: of being needed; both [profile, attribute, context]."""
    number, settled = pi.sum(axis=1), 1 - pi
    under = np.where(number > 0, number, 1)
    there = 1 - settled.prod(axis=1)
    apart = rate - (np.einsum("pac,pac->pc", pi, rate) / under)[:, None, :]
    spread = np.einsum("pac,pac->pc", settled * pi, apart * apart) / under**2
    scale = there.sum(axis=1)
    return float(((there**2 * spread).sum(axis=1) / np.where(scale > 0, scale, 1) ** 2).sum())


@cached
def label_effects(
    flows: Flows, scope: Scope, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[LabelEffect, LabelEffect]:
    """What the labels do to a run's Violation@n and to its completeness."""
    data = flow_arrays(flows, scope, rule)
    of, labels = subject([data], [1.0], n), posterior(flows, scope, data)
    return violation_effect(of, labels), completeness_effect(of, labels)


def decisions_needed(effect: LabelEffect, half_width: float) -> int | None:
    """About how many more decisions, the most valuable first, bring 1.96 standard deviations of the labels' effect to
    `half_width`; 0 where it is there already, None where all open pairs together would not. An estimate: values are
    those of now, and move with each decision.

    What the values leave of the variance is due to two pairs together, and goes only when both are decided: with pairs
    that have the share f of all values, f^2 of it.
    """
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
