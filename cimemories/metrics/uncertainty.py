"""Variance of a headline number by parts, and the 95 % interval that follows from it.

A number is a mean over profiles. Profiles and contexts are both samples, and they are crossed: all profiles meet the
same contexts. Its variance is therefore that of two crossed clusters (Cameron, Gelbach, Miller 2011, Journal of
Business & Economic Statistics 29, 238-249):

    users      S^2 / P, the spread of the profiles' own numbers over P profiles; with all chance inside them
    contexts   what all profiles have in common of leaving a context out, a jackknife: `variance`. What each has of it
               for itself is counted under users already. Never below 0
    labels     of imputed labels (label_uncertainty.py), where votes are there
    judge      of the correction by an audit, where there is one

`samples` says how much of `users` comes from having drawn few samples only (Miller 2024, Adding Error Bars to Evals,
calls it conditional variance). The interval is that of Korn and Graubard for shares of clustered samples (1998, Survey
Methodology 24, 193-201): Clopper and Pearson's, with the effective number of observations m (1 - m) / variance and
Student's t for few clusters. It lies inside 0 to 1 and has a width where nothing, or everything, is revealed. Degrees
of freedom are Satterthwaite's. benchmarks/intervals.py counts how often the intervals cover the truth.

Everything here is computed, nothing sampled: one number has one interval, and A - B that of B - A, mirrored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import betaincinv, comb, ndtri, stdtr, stdtrit

from cimemories.flows.arrays import Bools, Entries, Floats, Ints
from cimemories.flows.processes import added
from cimemories.metrics import completeness
from cimemories.metrics.violation import by_outcome, distinct, no_leak_probabilities

LEVEL = 0.95
NORMAL_95 = 1.96  # standard errors to each side that hold 95 % of a normal distribution
TIE = 1e-12  # two shares that agree to so much are one number, however they were summed
LEAST_USERS = 5  # with fewer profiles an interval says little of users
# Correlation of attributes inside a profile, assumed only where the data show no spread at all (nothing, or everything,
# is revealed). In the paper's Table 1 profiles hardly differ more than their attributes explain, so 0.05 is cautious.
ASSUMED_CORRELATION = 0.05
ROUNDING = 1e-18  # a variance below is that of sums of floats, not of anything that varies


@dataclass(frozen=True)
class Parts:
    """Variances (shares squared) that add up to `total`: users (without samples), samples, contexts, labels, judge.
    labels and judge are nan where they are not known, and count as 0 then."""

    users: float
    samples: float
    contexts: float
    labels: float = math.nan
    judge: float = math.nan

    @property
    def total(self) -> float:
        return float(np.nansum([self.users, self.samples, self.contexts, self.labels, self.judge]))

    def shares(self) -> dict[str, float]:
        """Return the share of each part in the total, 0 to 1; nan for unknown parts, and where the total is 0."""
        total = self.total
        return {name: getattr(self, name) / total if total else math.nan for name in PARTS}

    def half_widths(self) -> dict[str, float]:
        """Return 1.96 standard errors of each part alone, as a share."""
        return {name: NORMAL_95 * math.sqrt(getattr(self, name)) for name in PARTS}


PARTS = ("users", "samples", "contexts", "labels", "judge")


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval; nan where undefined. users: how many profiles it is from. error: its standard
    error; freedom: degrees of freedom; parts: of the variance."""

    value: float
    low: float
    high: float
    users: int
    level: float = LEVEL
    error: float = math.nan
    freedom: float = math.nan
    parts: Parts | None = None

    @property
    def speaks_for(self) -> str:
        """'users', or 'attributes' where there are too few profiles for it to say anything of users."""
        return "users" if self.users >= LEAST_USERS else "attributes"

    @property
    def has_zero(self) -> bool:
        """True if 0 lies inside, by unrounded ends; of a difference, the two may be alike then."""
        return self.low <= 0 <= self.high

    @property
    def p(self) -> float:
        """Two-sided p of a difference: how often chance alone would bring one at least as large. nan where undefined, 1
        where nothing varies and there is no evidence either way."""
        if math.isnan(self.value):
            return math.nan
        if not self.error**2 > ROUNDING:
            return 1.0
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))

    def part_widths(self) -> dict[str, float]:
        """Return half the interval's width, as a share, by its parts, the largest first: their squares add up to its
        square. Parts that are not known are left out; empty where nothing varies."""
        if self.parts is None or not self.parts.total > ROUNDING:
            return {}
        defined = {name: share for name, share in self.parts.shares().items() if not math.isnan(share)}
        half = (self.high - self.low) / 2
        return {name: half * math.sqrt(defined[name]) for name in sorted(defined, key=lambda name: -defined[name])}

    def columns(self, name: str) -> dict[str, float]:
        """Return the number and its ends as columns of a table."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}

    def as_json(self) -> dict[str, object]:
        parts = None if self.parts is None else {k: none_for_nan(getattr(self.parts, k)) for k in PARTS}
        return {
            "value": none_for_nan(self.value),
            "low": none_for_nan(self.low),
            "high": none_for_nan(self.high),
            "level": self.level,
            "profiles": self.users,
            "speaks_for": self.speaks_for,
            "standard_error": none_for_nan(self.error),
            "degrees_of_freedom": none_for_nan(self.freedom) if math.isfinite(self.freedom) else None,
            "variance": parts,
            "half_width_by_part": self.part_widths(),
        }


UNDEFINED = Interval(math.nan, math.nan, math.nan, 0)


def none_for_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


@dataclass(frozen=True)
class Terms:
    """Terms of the variance of a mean over profiles.

    values: each profile's number [P], nan where it has none. without: the same with one context left out [P, T]; where
    nothing would be left, the profile's own number. inside: the variance of each profile's number by chance among its
    attributes (violation) or contexts (completeness), [P]. samples: the part of it that drawing few samples explains,
    [P]; 0 before `sampled`. units: attributes or contexts behind each number, [P]. left_out: takes the place of
    `without`, which then has no contexts; None: `without` has them all.
    """

    values: Floats
    without: Floats
    inside: Floats
    samples: Floats
    units: Ints
    left_out: LeftOut | None = None

    @property
    def value(self) -> float:
        defined = self.values[~np.isnan(self.values)]
        return float(defined.mean()) if defined.size else math.nan

    def combined(self, weight: float, other: Terms, of_other: float) -> Terms:
        """Return weight * self + of_other * other, of the same profiles and contexts: a difference, or a linearised
        score. Samples and attributes of the two are taken as independent."""
        return Terms(
            weight * self.values + of_other * other.values,
            weight * self.without + of_other * other.without,
            weight**2 * self.inside + of_other**2 * other.inside,
            weight**2 * self.samples + of_other**2 * other.samples,
            np.maximum(self.units, other.units),
        )

    def summed(self) -> Terms:
        """Return the terms with what leaving contexts out does as sums: the contexts take more memory than all else."""
        return replace(self, without=self.without[:, :0], left_out=LeftOut.of(self))

    @classmethod
    def joined(cls, parts: Sequence[Terms], contexts: Ints | None = None) -> Terms:
        """Join blocks of profiles, in their order, over these contexts; default: all."""
        contexts = np.arange(parts[0].without.shape[1]) if contexts is None else contexts
        values = np.concatenate([part.values for part in parts])
        lefts = [part.left_out for part in parts if part.left_out is not None]
        columns = contexts if not lefts else np.arange(0)
        return cls(
            values=values,
            without=np.concatenate([part.without[:, columns] for part in parts]),
            inside=np.concatenate([part.inside for part in parts]),
            samples=np.zeros(len(values)),
            units=np.concatenate([part.units for part in parts]),
            left_out=added(lefts).at(contexts) if lefts else None,
        )

    def sampled(self, sums: Sequence[float] | Floats, other: Terms | None = None) -> Terms:
        """Return the terms with the samples' part, of which only sums are known: that of the profiles that `other` has
        a number of too (None: all), and that of the others. Each is spread evenly, which is all that a variance asks of
        it."""
        defined, samples = ~np.isnan(self.values), np.zeros(len(self.values))
        both = defined if other is None else defined & ~np.isnan(other.values)
        for total, some in zip(sums, (both, defined & ~both), strict=True):
            samples[some] = total / max(int(some.sum()), 1)
        return replace(self, samples=samples)


def violation_terms(flows: Entries, n: int, counted: Sequence[int] | Ints | None = None) -> Terms:
    """Return the terms of Violation@n from its flows. counted: the contexts that count as such; None: all with any
    flow. Raises ValueError for n < 1."""
    return violation_terms_each(flows, (n,), counted)[n]


def violation_terms_each(
    flows: Entries, ns: Sequence[int], counted: Sequence[int] | Ints | None = None
) -> dict[int, Terms]:
    """Return `violation_terms` for each n: what does not depend on n is counted once."""
    profiles, attributes, contexts = flows.shape
    leaks = by_outcome(flows)
    exposed = np.bincount(leaks.profile, minlength=profiles)
    owner_of = leaks.profile * attributes + leaks.attribute
    row_of, single = np.zeros(profiles * attributes, np.int64), np.zeros(profiles * attributes, np.bool_)
    row_of[owner_of], single[owner_of] = np.arange(len(owner_of)), leaks.counts.sum(axis=1) == 1
    # Without one of its contexts an attribute's value changes only if that flow can leak, or was its only one.
    revealing = flows.kinds[:, 1] > 0
    flow_single = single[flows.owners]
    moving = np.flatnonzero(revealing[flows.outcomes] | flow_single)
    owners, outcomes, alone = flows.owners[moving], flows.outcomes[moving], flow_single[moving]
    rows = row_of[owners]
    cells = owners.astype(np.int64) // max(attributes, 1) * contexts + flows.contexts[moving]

    def summed(values: Floats | Bools) -> Floats:
        total: Floats = np.bincount(cells, weights=values, minlength=profiles * contexts).astype(np.float64)
        return total.reshape(profiles, contexts)

    left = exposed[:, None] - summed(alone)
    counts = leaks.counts.astype(np.float64)
    result = {}
    for n in ns:
        q = leaks.no_leak(n)
        certain = q == 0
        possible = np.where(certain, 1.0, q)
        # No matrix products: threads of their library would cost more than these few columns.
        sums, zeros = (np.einsum("rk,k->r", counts, each) for each in (np.log(possible), certain.astype(np.float64)))
        unrevealed = np.exp(sums)
        values = np.where(zeros > 0, 1.0, 1.0 - unrevealed)
        # Each attribute without one of its contexts: its product over that of the flow. 0 where it has no other.
        others = unrevealed[rows] * (1.0 / possible)[outcomes]
        rest = np.where(zeros[rows] > certain[outcomes], 1.0, 1.0 - others)
        total = np.bincount(leaks.profile, weights=values, minlength=profiles)
        rates = _ratio(total, exposed)
        changed = total[:, None] + summed(np.where(alone, 0.0, rest) - values[rows])
        without = np.where(left > 0, _ratio(changed, left), rates[:, None])
        squares = np.bincount(leaks.profile, weights=values**2, minlength=profiles)
        # Sample variance of the attributes over their number; 0 for a single one, which shows no spread.
        inside = _ratio(squares - exposed * np.nan_to_num(rates) ** 2, np.maximum(exposed - 1, 1) * exposed)
        result[n] = Terms(rates, _met(without, flows, counted), np.maximum(inside, 0.0), np.zeros(profiles), exposed)
    return result


def completeness_terms(needed: Entries, counted: Sequence[int] | Ints | None = None) -> Terms:
    """Return the terms of completeness from the flows that it rests on. counted: as in `violation_terms`."""
    means = completeness.means_of(needed)
    defined = ~np.isnan(means)
    filled = np.where(defined, means, 0.0)
    number, total = defined.sum(axis=1), filled.sum(axis=1)
    rates = _ratio(total, number)
    left = number[:, None] - defined
    without = np.where(left > 0, _ratio(total[:, None] - filled, left), rates[:, None])
    squares = (filled**2).sum(axis=1)
    inside = _ratio(squares - number * np.nan_to_num(rates) ** 2, np.maximum(number - 1, 1) * number)
    return Terms(rates, _met(without, needed, counted), np.maximum(inside, 0.0), np.zeros(len(rates)), number)


@dataclass(frozen=True)
class RateSums:
    """Sums of each profile from which the per-exposure leak rate R = sum r / sum N follows; blocks of profiles stand
    below each other. draws, reveals: [profiles, contexts]; squares: of its attributes' sums N and r, the sums of N^2, N
    r and r^2, [3, profiles]; exposed: its attributes, [profiles]; kinds: by (N, r), how many flows; empty: the samples'
    part is not known. Any ratio of sums over users is such a rate, r the sum over it and N that under it."""

    draws: Ints | Floats
    reveals: Ints | Floats
    squares: Ints | Floats
    exposed: Ints
    kinds: Mapping[tuple[int, int], int]

    @classmethod
    def of(cls, flows: Entries) -> RateSums:
        profiles, attributes, contexts = flows.shape
        owners, width = flows.owners.astype(np.int64), max(attributes, 1)
        cell = owners // width * contexts + flows.contexts
        by_context, by_attribute = [], []
        for column in (0, 1):
            values = flows.each(flows.kinds[:, column]).astype(np.float64)
            sums = np.bincount(cell, weights=values, minlength=profiles * contexts)
            by_context.append(sums.reshape(profiles, contexts).astype(np.int32))
            sums = np.bincount(owners, weights=values, minlength=profiles * width)
            by_attribute.append(sums.reshape(profiles, width))
        draws, reveals = by_attribute
        products = [(one * two).sum(axis=1) for one, two in ((draws, draws), (draws, reveals), (reveals, reveals))]
        times = np.bincount(flows.outcomes, minlength=len(flows.kinds)).tolist()
        kinds = {(n, r): often for (n, r, _), often in zip(flows.kinds.tolist(), times, strict=True)}
        squares, exposed = np.array(products, np.int64), (draws > 0).sum(axis=1)
        return cls(by_context[0], by_context[1], squares, exposed, kinds)

    @classmethod
    def of_user(cls, over: Ints | Floats, under: Ints | Floats) -> RateSums:
        """Return what one user adds to any ratio. over, under: [contexts, attributes]."""
        r, n = over.sum(axis=0), under.sum(axis=0)
        squares = np.array([[(n * n).sum()], [(n * r).sum()], [(r * r).sum()]])
        return cls(under.sum(axis=1)[None], over.sum(axis=1)[None], squares, np.array([int((n > 0).sum())]), {})

    @classmethod
    def joined(cls, parts: Sequence[RateSums]) -> RateSums:
        """Join blocks of a run, in their order. Contexts that a block does not reach count as 0 there."""
        width = max(part.draws.shape[1] for part in parts)
        kinds: dict[tuple[int, int], int] = {}
        for part in parts:
            for kind, often in part.kinds.items():
                kinds[kind] = kinds.get(kind, 0) + often
        return cls(
            np.concatenate([np.pad(part.draws, ((0, 0), (0, width - part.draws.shape[1]))) for part in parts]),
            np.concatenate([np.pad(part.reveals, ((0, 0), (0, width - part.reveals.shape[1]))) for part in parts]),
            np.concatenate([part.squares for part in parts], axis=1),
            np.concatenate([part.exposed for part in parts]),
            kinds,
        )

    def terms(self) -> Terms:
        """Return the terms of the leak rate, a ratio of sums over all profiles: linearised, so that a profile's number
        is R + P (r - R N) / sum N of its own sums (Cochran 1977, Sampling Techniques, 6.3; it may lie outside 0 to 1).
        What drawing few samples explains is spread evenly over the profiles."""
        met = np.flatnonzero(self.draws.any(axis=0))
        draws, reveals = (part[:, met].astype(np.float64) for part in (self.draws, self.reveals))
        profiles, total = len(draws), float(draws.sum())
        if not total:
            undefined, none = np.full(profiles, np.nan), np.zeros(profiles, np.int64)
            return Terms(undefined, np.empty((profiles, 0)), np.zeros(profiles), np.zeros(profiles), none)
        rate, users = float(reveals.sum()) / total, int((self.exposed > 0).sum())
        scale = users / total
        of_context = (reveals - rate * draws) * scale
        sums = of_context.sum(axis=1)
        own = np.where(self.exposed > 0, rate + sums, np.nan)
        left = total - draws.sum(axis=0)
        without: Floats = own[:, None] - of_context * np.where(left > 0, total / np.where(left > 0, left, 1), 0.0)
        of_draws, of_both, of_reveals = self.squares
        squares = (of_reveals - 2 * rate * of_both + rate**2 * of_draws) * scale**2
        squares = squares - sums**2 / np.maximum(self.exposed, 1)
        # With equal attributes, or one alone, only rounding is left, which would pass for a variance.
        rounding = 1e-12 * (of_reveals + rate**2 * of_draws) * scale**2
        squares = np.where((squares > rounding) & (self.exposed > 1), squares, 0.0)
        inside: Floats = squares * self.exposed / np.maximum(self.exposed - 1, 1)
        terms = Terms(own, without, inside, np.zeros(profiles), self.exposed)
        if not self.kinds:
            return terms
        kinds, times = np.array(list(self.kinds), np.int64), np.array(list(self.kinds.values()), np.int64)
        alpha, beta = _leak_prior(kinds, times)
        a, b = alpha + kinds[:, 1], beta + kinds[:, 0] - kinds[:, 1]
        spread = float((times * kinds[:, 0] * a * b / ((a + b) * (a + b + 1))).sum()) * scale**2
        return terms.sampled([spread, 0.0])


def _met(without: Floats, flows: Entries, counted: Sequence[int] | Ints | None) -> Floats:
    """Return the columns of contexts that the number rests on: a context without a flow is no sample of anything."""
    contexts = contexts_of(flows) if counted is None else np.asarray(counted, np.int64)
    return without[:, contexts]


def contexts_of(*flows: Entries) -> Ints:
    """Return the contexts that these flows are in, ascending."""
    return np.flatnonzero(sum(np.bincount(each.contexts, minlength=each.shape[2]) for each in flows))


def _ratio(over: Floats | Ints, under: Floats | Ints) -> Floats:
    return np.where(under > 0, over / np.where(under > 0, under, 1), np.nan)


def _leak_prior(kinds: Ints, times: Ints) -> tuple[float, float]:
    """Return a Beta distribution of the flows' leak probabilities, by moments. kinds: [K, 3], as of Entries; times:
    [K], how often each occurs. 0.5 is added to reveals and to silences, so that neither parameter is 0."""
    draws, reveals = kinds[:, 0].astype(np.float64), kinds[:, 1].astype(np.float64)
    mean = (float(times @ reveals) + 0.5) / (float(times @ draws) + 1.0)
    # How often both of two samples of one flow leak; only flows with two samples or more tell.
    pairs = float(times @ (draws * (draws - 1)))
    both = float(times @ (reveals * (reveals - 1))) / pairs if pairs else mean * mean
    correlation = min(max((both - mean**2) / (mean * (1 - mean)), 1e-3), 0.999)
    strength = 1.0 / correlation - 1.0
    return mean * strength, (1.0 - mean) * strength


# Leak rates that an attribute may have: close enough to each other that a finer grid changes no figure by 2 %.
_RATES = np.geomspace(1e-4, 0.98, 40)
_ROUNDS = 50  # of the fit; more move the samples' part by less than its error


@dataclass(frozen=True)
class SampleSums:
    """Variances of profiles' own Violation@n and completeness that come from their samples, what each would vary by if
    the same messages were drawn again, as sums over profiles, so that those of blocks add up. Leaks of different flows
    are taken as independent given their probabilities, although a message may leak several attributes at once: at least
    so much.

    Leaks cluster: some attributes are told everywhere, most nowhere. So each attribute has a leak rate p for all its
    flows, and how rates are distributed is estimated from all attributes without any assumption on its form
    (nonparametric maximum likelihood: Kiefer and Wolfowitz 1956, Annals of Mathematical Statistics 27, 887-906; Laird
    1978, JASA 73, 805-811). Given p an attribute has product of E q^2 - product of (1 - p)^(2 n), q the estimator of
    the chance that n samples of a flow reveal nothing; its mean is taken over p from its posterior. Flows that differ
    within an attribute change little: where leaks are rare only the sum of their rates counts. Of completeness it is p
    (1 - p) / N of each flow, p from its posterior, by its weight in the mean.

    sizes: [sizes, 2], (N, most) of inappropriate flows. attributes: [kinds, sizes + 1], of each kind how many flows of
    each size an attribute has, and their reveals. flows: [K, 2], (N, r) of necessary flows. times: how many
    attributes, flows of each kind. weights: [kinds, 2], [K, 2], the sums of 1 / (attributes of their profile)^2, and of
    the squares of their weights in completeness: of profiles that have both numbers, and of those that have one.
    """

    sizes: Ints
    attributes: Ints
    times: Ints
    weights: Floats
    flows: Ints
    flow_times: Ints
    flow_weights: Floats

    @classmethod
    def of(cls, inappropriate: Entries, needed: Entries) -> SampleSums:
        """Return the sums of some profiles, from the flows that violation and completeness rest on."""
        leaks = by_outcome(inappropriate)
        profiles, attributes, contexts = needed.shape
        owner = needed.owners.astype(np.int64) // max(attributes, 1)
        cell = owner * contexts + needed.contexts
        in_cell = np.bincount(cell, minlength=profiles * contexts)
        defined = (in_cell.reshape(profiles, contexts) > 0).sum(axis=1)
        exposed = np.bincount(leaks.profile, minlength=profiles)
        one_number = ((exposed == 0) | (defined == 0)).astype(np.int64)
        sizes, size_of = distinct(leaks.outcomes[:, [0, 2]])
        numbers = leaks.counts @ (size_of[:, None] == np.arange(len(sizes))).astype(np.int64)
        alike, which = distinct(np.column_stack([numbers, leaks.counts @ leaks.outcomes[:, 1]]))
        weights = 1.0 / exposed[leaks.profile].astype(np.float64) ** 2
        kinds = len(needed.kinds)
        flow_weights = 1.0 / (in_cell[cell].astype(np.float64) * defined[owner]) ** 2
        kind_of = 2 * needed.outcomes.astype(np.int64) + one_number[owner]
        return cls(
            sizes,
            alike,
            np.bincount(which, minlength=len(alike)),
            np.bincount(2 * which + one_number[leaks.profile], weights, 2 * len(alike))
            .astype(np.float64)
            .reshape(-1, 2),
            needed.kinds[:, :2],
            np.bincount(needed.outcomes, minlength=kinds),
            np.bincount(kind_of, flow_weights, 2 * kinds).astype(np.float64).reshape(-1, 2),
        )

    @classmethod
    def joined(cls, parts: Sequence[SampleSums]) -> SampleSums:
        if len(parts) == 1:
            return parts[0]
        sizes, column = distinct(np.concatenate([part.sizes for part in parts]))
        rows = np.zeros((sum(len(part.attributes) for part in parts), len(sizes) + 1), np.int64)
        row = first = 0
        for part in parts:
            mine = slice(row, row + len(part.attributes))
            rows[mine, column[first : first + len(part.sizes)]] = part.attributes[:, :-1]
            rows[mine, -1] = part.attributes[:, -1]
            row, first = mine.stop, first + len(part.sizes)
        alike, which = distinct(rows)
        flows, kind = distinct(np.concatenate([part.flows for part in parts]))

        def gathered(name: str, at: Ints, number: int) -> Any:
            values = np.concatenate([getattr(part, name) for part in parts])
            total = np.zeros((number, *values.shape[1:]), values.dtype)
            np.add.at(total, at, values)
            return total

        of_alike = gathered("times", which, len(alike)), gathered("weights", which, len(alike))
        of_flows = gathered("flow_times", kind, len(flows)), gathered("flow_weights", kind, len(flows))
        return cls(sizes, alike, *of_alike, flows, *of_flows)

    @cached_property
    def _rates(self) -> Floats:
        """Posterior of the leak rates of each kind of attribute: [kinds, rates]."""
        reveals = self.attributes[:, -1:]
        unrevealed = self.attributes[:, :-1] @ self.sizes[:, :1] - reveals
        logs = reveals * np.log(_RATES) + unrevealed * np.log1p(-_RATES)
        likelihood = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights = np.full(len(_RATES), 1 / len(_RATES))
        for _ in range(_ROUNDS if len(self.times) else 0):  # expectation and maximisation
            weights = weights * ((self.times / (likelihood @ weights)) @ likelihood) / int(self.times.sum())
        chances = likelihood * weights
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def of_violation(self, n: int) -> Floats:
        """Return the samples' variances of Violation@n, summed over the profiles that have both numbers, and over those
        that have this one alone: [2]."""
        squared, never = np.empty((2, len(self.sizes), len(_RATES)))
        for k, (draws, limit) in enumerate(self.sizes.tolist()):
            most, r = min(n, limit), np.arange(draws + 1)
            q = no_leak_probabilities(r, np.full(draws + 1, draws), most)
            resampled = comb(draws, r)[:, None] * _RATES ** r[:, None] * (1 - _RATES) ** (draws - r)[:, None]
            squared[k], never[k] = np.log(q**2 @ resampled), most * np.log1p(-_RATES)
        numbers = self.attributes[:, :-1]
        spread: Floats = self._rates * (np.exp(numbers @ squared) - np.exp(2 * numbers @ never))
        return np.asarray(spread.sum(axis=1) @ self.weights)

    def planned(self, n: int, times: float = 1.0) -> Floats:
        """Return `of_violation` of a run that is still to be made with n samples, which may be more than these have.
        times: how many contexts there are for each of its own, each attribute exposed in so many more."""
        # With all n samples read, q is 1 or 0, and so is the product of all: E q^2 = E q.
        no_leak = np.exp(times * n * self.attributes[:, :-1].sum(axis=1, keepdims=True) * np.log1p(-_RATES))
        return np.asarray((self._rates * no_leak * (1 - no_leak)).sum(axis=1) @ self.weights)

    def of_completeness(self) -> Floats:
        """Return the samples' variances of completeness, summed as in `of_violation`: [2]."""
        alpha, beta = _leak_prior(self.flows, self.flow_times)
        draws, reveals = self.flows.T
        a, b = alpha + reveals, beta + draws - reveals
        return np.asarray((a * b / ((a + b) * (a + b + 1)) / draws) @ self.flow_weights)


@dataclass(frozen=True)
class NumberTerms:
    """The terms of Violation@n, by n, and of completeness of the same profiles, over all contexts; blocks of profiles
    join. met: [contexts], those that violation rests on, and completeness; sums: the part of the samples, which a block
    alone does not know."""

    violation: Mapping[int, Terms]
    completeness: Terms
    met: tuple[Bools, Bools]
    sums: SampleSums

    @classmethod
    def of(cls, leaks: Entries, needed: Entries, ns: Sequence[int]) -> NumberTerms:
        """Return the terms from the flows of one block that the two numbers rest on. Raises ValueError for n < 1."""
        every = np.arange(leaks.shape[2])
        met = np.isin(every, contexts_of(leaks)), np.isin(every, contexts_of(needed))
        violation = violation_terms_each(leaks, ns, every)
        return cls(violation, completeness_terms(needed, every), met, SampleSums.of(leaks, needed))

    def summed(self) -> NumberTerms:
        violation = {n: terms.summed() for n, terms in self.violation.items()}
        return replace(self, violation=violation, completeness=self.completeness.summed())

    @classmethod
    def joined(cls, parts: Sequence[NumberTerms], contexts: Ints | None = None) -> NumberTerms:
        """Join blocks of a run, in their order, over these contexts, with the part of the samples. contexts: None:
        those that either number rests on."""
        met = [np.any([part.met[side] for part in parts], axis=0) for side in (0, 1)]
        contexts = np.flatnonzero(met[0] | met[1]) if contexts is None else contexts
        sums = SampleSums.joined([part.sums for part in parts])
        violation = {n: Terms.joined([part.violation[n] for part in parts], contexts) for n in parts[0].violation}
        conveyed = Terms.joined([part.completeness for part in parts], contexts)
        conveyed = conveyed.sampled(sums.of_completeness(), next(iter(violation.values())))
        violation = {n: terms.sampled(sums.of_violation(n), conveyed) for n, terms in violation.items()}
        return cls(violation, conveyed, (met[0][contexts], met[1][contexts]), sums)


@dataclass(frozen=True)
class LeftOut:
    """Effects of leaving contexts out, as sums over profiles, which add up over blocks of them: of without - own the
    sums by context [T], the squares, and the squares of each profile's sum. It takes the place of Terms.without."""

    by_context: Floats
    squares: float
    squared_sums: float

    @classmethod
    def of(cls, terms: Terms) -> LeftOut:
        apart = (terms.without - terms.values[:, None])[~np.isnan(terms.values)]
        return cls(apart.sum(axis=0), float((apart**2).sum()), float((apart.sum(axis=1) ** 2).sum()))

    def at(self, contexts: Ints) -> LeftOut:
        """Return the effects over some contexts; no profile may have anything in the others."""
        return replace(self, by_context=self.by_context[contexts])


def variance(terms: Terms) -> tuple[Parts, float]:
    """Return the variance of the mean over profiles, by parts, and its degrees of freedom. With fewer than LEAST_USERS
    profiles it is that of their attributes alone: the profiles count as given.

    Contexts are a two-way analysis of variance of the jackknife: with J = (T - 1) / T * sum over contexts of (m without
    one - their mean)^2, and W the sum of the same of each profile over P^2, what contexts do to all profiles alike is
    (J - W) P / (P - 1). W holds 1 / P of it too: without that factor it is a fifth too small with 5 profiles.
    """
    defined = ~np.isnan(terms.values)
    users = int(defined.sum())
    if not users:
        return Parts(math.nan, math.nan, math.nan), math.nan
    own, left = terms.values[defined], terms.left_out
    contexts = terms.without.shape[1] if left is None else len(left.by_context)
    if users >= LEAST_USERS:
        between, freedom = float(own.var(ddof=1)) / users, float(users - 1)
    else:
        between = float(terms.inside[defined].sum()) / users**2
        freedom = float(np.maximum(terms.units[defined] - 1, 0).sum())
    crossed = 0.0
    if contexts > 1 and users > 1:
        scale = (contexts - 1) / contexts
        if left is None:
            without = terms.without[defined]
            overall = without.mean(axis=0)
            inside = float(((without - without.mean(axis=1, keepdims=True)) ** 2).sum())
        else:
            overall = left.by_context / users
            inside = left.squares - left.squared_sums / contexts
        jackknife = scale * float(((overall - overall.mean()) ** 2).sum())
        within = scale * inside / users**2
        apart = jackknife - within
        # If the two are equal, only rounding is left, which would pass for a variance.
        apart = 0.0 if apart <= 1e-12 * jackknife else apart
        crossed = max(apart, 0.0) * users / (users - 1)
    samples = min(float(terms.samples[defined].sum()) / users**2, between)
    total = between + crossed
    # Satterthwaite: parts of few clusters make the whole less sure.
    spent = between**2 / max(freedom, 1.0) + crossed**2 / max(contexts - 1, 1)
    return Parts(between - samples, samples, crossed), total**2 / spent if spent > 0 else max(freedom, 1.0)


def effective_units(units: Ints) -> float:
    """Return the number of independent attributes behind a number if those of one profile correlate as assumed: Kish's
    design effect 1 + (m - 1) rho, m attributes a profile."""
    counted = units[units > 0]
    if not counted.size:
        return 0.0
    size = float(counted.mean())
    return float(counted.sum()) / (1 + (size - 1) * ASSUMED_CORRELATION)


def _with(of: tuple[Parts, float], labels: float, judge: float) -> tuple[Parts, float]:
    """Add these parts to a variance, and return it with its degrees of freedom. Labels and judge bring no clusters of
    their own: what they add has none to lose."""
    parts, freedom = of
    whole = replace(parts, labels=labels, judge=judge)
    return whole, freedom * (whole.total / parts.total) ** 2 if parts.total > 0 else freedom


def share_interval(
    terms: Terms, labels: float = math.nan, judge: float = math.nan, value: float | None = None
) -> Interval:
    """Return the interval of a share: Korn and Graubard's. labels, judge: variances to add. value: the share, where it
    is not the mean of the terms (a linearised score)."""
    value = terms.value if value is None else value
    users = int((~np.isnan(terms.values)).sum())
    if math.isnan(value) or not users:
        return UNDEFINED
    parts, freedom = _with(variance(terms), labels, judge)
    total = parts.total
    low, high = share_bounds(np.array(value), np.array(total), freedom, terms.units)
    return Interval(value, float(low), float(high), users, LEVEL, math.sqrt(total), freedom, parts)


def share_bounds(values: Floats, variances: Floats, freedom: float, units: Ints) -> tuple[Floats, Floats]:
    """Return Korn and Graubard's bounds of shares with these variances, of any shape. units: attributes of each
    profile, which give the number of observations (`effective_units`) of shares without any spread."""
    spread = values * (1 - values)
    varies = (variances > ROUNDING) & (spread > ROUNDING)
    tail = (1 + LEVEL) / 2
    narrower = float(ndtri(tail) / stdtrit(freedom, tail)) ** 2 if varies.any() else 1.0
    number = np.where(varies, spread / np.where(varies, variances, 1.0) * narrower, max(effective_units(units), 1.0))
    return binomial_bounds(values, number)


def binomial_bounds(shares: Floats, numbers: Floats, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return Clopper and Pearson's interval of shares of so many observations, whole numbers or not. Any shape."""
    tail = (1 - level) / 2
    hits, misses = shares * numbers, (1 - shares) * numbers
    low = np.where(hits > 0, betaincinv(np.where(hits > 0, hits, 1.0), misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, np.where(misses > 0, misses, 1.0), 1 - tail), 1.0)
    # Rounding may put a bound a hair beyond the share itself.
    return np.minimum(low, shares), np.maximum(high, shares)


def difference_interval(terms: Terms, labels: float = math.nan, judge: float = math.nan) -> Interval:
    """Return the interval of a difference of shares, by Student's t, inside -1 to 1. Where nothing varies, it is as
    wide as so many equal attributes leave possible. Contexts add no degrees of freedom to those of the profiles:
    between runs that are alike their part is mostly noise, which would make few profiles surer than they are."""
    value = terms.value
    users = int((~np.isnan(terms.values)).sum())
    if math.isnan(value):
        return UNDEFINED
    parts, freedom = variance(terms)
    if users >= LEAST_USERS:
        freedom = min(freedom, users - 1.0)
    parts, freedom = _with((parts, freedom), labels, judge)
    total = parts.total
    if total > ROUNDING:
        reach = float(stdtrit(freedom, (1 + LEVEL) / 2)) * math.sqrt(total)
    else:
        reach = float(share_bounds(np.zeros(()), np.zeros(()), freedom, terms.units)[1])
    return Interval(
        value, max(-1.0, value - reach), min(1.0, value + reach), users, LEVEL, math.sqrt(total), freedom, parts
    )


def unseen_users(users: int, level: float = LEVEL) -> float:
    """Return the largest share of people who may be missing among so many profiles, at this level: 1 - (1 - level)^(1 /
    P). No interval from P profiles speaks of a kind of user that is rarer."""
    return 1.0 - (1.0 - level) ** (1.0 / users) if users else 1.0


ENOUGH_USERS = 59  # from so many on, a kind of user that may be missing is rarer than 5 %


def holm(values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p values (S. Holm 1979, Scandinavian Journal of Statistics 6, 65-70), in the order given;
    nan stays nan and counts as no test."""
    tested = sorted((p, i) for i, p in enumerate(values) if not math.isnan(p))
    result, least = [math.nan] * len(values), 0.0
    for rank, (p, i) in enumerate(tested):
        # No smaller than the one before: a larger p never becomes the surer finding.
        least = max(least, min(1.0, p * (len(tested) - rank)))
        result[i] = least
    return result
