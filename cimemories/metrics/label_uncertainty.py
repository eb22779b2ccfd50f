"""Uncertainty of numbers that comes from their labels.

The consensus keeps unanimous votes only; what the votes of a pair leave open is its posterior: the mixture of the
personas' votes (a person's decision settles it). Labels imputed from it are independent from pair to pair, so the mean
and the variance of a number over infinitely many imputations (Rubin 1987, Multiple Imputation, the variance between
imputations; 1 + 1/M is 1 here) need no drawing. With I the indicator that a flow is inappropriate, pi its probability,
and x = 1 - I (1 - q), an attribute leaks with L = 1 - product of x, and

    E L = 1 - product of (1 - pi (1 - q))        E (1 - L)^2 = product of (1 - pi (1 - q^2))

over its contexts; it is exposed with E = 1 - product of (1 - I), and E L = L since what leaks is exposed. A profile's
number is the ratio of the sums, its variance that of a ratio to first order. Completeness is the same with sums over
the attributes of a context. Whether a context is retained enters by its probability.
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
    Ints,
    decided_pairs,
    pair_rows,
)
from cimemories.flows.flows import Flows
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
from cimemories.metrics.violation import no_leak_probability
from cimemories.store.labellings import LabellingRow

# Profiles computed at once for a variance: the intermediate arrays then fit into the processor's cache. 1,000 profiles
# with half of their pairs open take 0.1 s instead of 14.
BLOCK = 16


@dataclass(frozen=True)
class Posterior:
    """Probabilities of the labels of each pair. necessary, inappropriate: [profile, attribute, context]; the rest to 1
    is ambiguous. open: the undecided pairs whose votes disagree, which a decision would settle."""

    necessary: Floats
    inappropriate: Floats
    open: Bools

    @cached_property
    def retained(self) -> Floats:
        """Probability that a context has both a necessary and an inappropriate attribute: [profile, context]."""
        kept = np.empty(self.open[:, 0].shape)
        for first in range(0, len(kept), BLOCK):
            block = slice(first, first + BLOCK)
            necessary, inappropriate = self.necessary[block], self.inappropriate[block]
            neither = np.prod(1 - necessary - inappropriate, axis=1)
            kept[block] = 1 - np.prod(1 - necessary, axis=1) - np.prod(1 - inappropriate, axis=1) + neither
        return np.clip(kept, 0.0, 1.0)

    def at(self, cells: tuple[Ints, ...]) -> Posterior:
        """Return the posterior of some of the profiles, attributes and contexts. cells: as np.ix_ makes them."""
        return Posterior(self.necessary[cells], self.inappropriate[cells], self.open[cells])

    def settled(self, at: tuple[Ints, ...], labels: Ints) -> Posterior:
        """Return the posterior once these pairs have these label codes. at: positions [pairs] along each axis."""
        if not len(labels):
            return self
        necessary, inappropriate, still = self.necessary.copy(), self.inappropriate.copy(), self.open.copy()
        necessary[at], inappropriate[at], still[at] = labels == NECESSARY, labels == INAPPROPRIATE, False
        return Posterior(necessary, inappropriate, still)


def posterior_of(data: FlowArrays, counts: VoteCounts | None, priors: Sequence[float]) -> Posterior:
    """Return the posterior of the pairs of these arrays by votes and the priors of their personas, without decisions. A
    pair with too few votes of some persona is held at having no label, since too little is known of it."""
    probabilities = [(data.labels == code).astype(np.float64) for code in (NECESSARY, INAPPROPRIATE)]
    still = np.zeros(data.labels.shape, np.bool_)
    if counts is not None:
        mixed = mixture(counts.votes, priors)
        complete: Bools = np.asarray(~np.isnan(mixed).any(axis=1))
        rows = pair_rows(counts, data)
        voted = (rows >= 0) & (data.labels >= AMBIGUOUS)
        voted[voted] = complete[rows[voted]]
        for column, probability in enumerate(probabilities):
            probability[voted] = mixed[rows[voted], column]
        still[voted] = mixed[rows[voted]].max(axis=1) < 1.0 - 1e-12
    return Posterior(probabilities[0], probabilities[1], still)


def votes_on(flows: Flows, labelling: LabellingRow, data: FlowArrays) -> VoteCounts:
    """Return the counted votes on the pairs of these arrays: all of a labelling, or of a block only its own."""
    if data.part is None:
        return vote_counts(flows.store, labelling.id)
    return votes_of(flows.store, labelling, data.profiles)


def posterior(flows: Flows, scope: Scope, data: FlowArrays) -> Posterior:
    """Return the posterior of the pairs of these arrays of a run: people's decisions are settled, the others as
    `posterior_of` has them. It is cached with the arrays; runs in memory with the same labels on the same pairs share
    one. For a block only its own votes are read."""

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
class LabelSums:
    """Variances of profiles' own numbers that come from labels, as sums, so that those of blocks of profiles add up: of
    Violation@n [ns] and of completeness, and how many profiles have each number."""

    violation: Floats
    completeness: float
    users: int
    needing: int

    def variances(self, ns: Sequence[int]) -> tuple[dict[int, float], float]:
        """Return the variances of the means over profiles: by n, and of completeness."""
        # Where no label is open, sums of rounded terms may end a hair below 0.
        by_n = dict(zip(ns, (np.maximum(self.violation, 0.0) / max(self.users, 1) ** 2).tolist(), strict=True))
        return by_n, max(self.completeness, 0.0) / max(self.needing, 1) ** 2


def label_sums(data: FlowArrays, labels: Posterior, ns: Sequence[int]) -> LabelSums:
    """Return the sums of these profiles, in one pass, a few profiles at once, without those that have no open pair.
    Raises ValueError for n < 1."""
    if not labels.open.any():  # then every pair is believed to be what it is labelled
        flows = data.inappropriate, data.necessary
        users, needing = (len(np.unique(part.owners // max(part.shape[1], 1))) for part in flows)
        return LabelSums(np.zeros(len(ns)), 0.0, users, needing)
    of_violation, of_completeness, users, needing = np.zeros(len(ns)), 0.0, 0, 0
    retained, chances = labels.retained, _LeakChances(int(data.draws.max(initial=0)), ns)
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
        """Return 1 - q for each n, then 1 - q^2: [2 ns, flows]. draws, reveals: [flows]."""
        wide = draws.astype(np.int64)
        for total in np.flatnonzero(np.bincount(wide)).tolist():
            if not self._known[total]:
                q = np.array([[no_leak_probability(total, r, n) for r in range(total + 1)] for n in self.ns])
                self._table[:, total * self.width :][:, : total + 1] = 1 - np.concatenate([q, q**2])
                self._known[total] = True
        return self._table[:, wide * self.width + reveals]


def _violation_spread(pi: Floats, reveals: Ints, draws: Ints, chances: _LeakChances) -> Floats:
    """Sum the variances of these profiles' own numbers: [ns]. pi: of being exposed; all [profile, attribute,
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
    """Sum the variances of these profiles' own numbers. pi: of being needed; both [profile, attribute, context]."""
    number, settled = pi.sum(axis=1), 1 - pi
    under = np.where(number > 0, number, 1)
    there = 1 - settled.prod(axis=1)
    apart = rate - (np.einsum("pac,pac->pc", pi, rate) / under)[:, None, :]
    spread = np.einsum("pac,pac->pc", settled * pi, apart * apart) / under**2
    scale = there.sum(axis=1)
    return float(((there**2 * spread).sum(axis=1) / np.where(scale > 0, scale, 1) ** 2).sum())
