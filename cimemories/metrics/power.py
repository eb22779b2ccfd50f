"""Power of a comparison of runs, before it is paid for; and the noise floor, the difference of runs of alike models.

Two runs of P profiles x T contexts x n samples are compared on the same profiles and contexts (intervals.py). Their
difference has the variance

    users / P + samples / P + contexts / T

users and samples are variances of one profile's own difference, contexts that of one context's. They are taken from a
pilot (uncertainty.py):

    users      spread of the profiles' numbers, less what their samples explain. Violation grows with contexts and
               samples, so it is read in the first T contexts and at n where the pilot has as many, else at all it has
    samples    what drawing the same messages again would move: computed for n samples and T contexts from the
               posterior of each flow's leak probability. Of completeness it is in proportion to 1 / (n T)
    contexts   crossed with profiles, so that more profiles do not lower it: that of the same contexts, and for more of
               them in proportion to 1 / T

Two pilot runs give the components of a difference. One gives those of a single run: with the correlation rho of the two
models' true numbers over profiles, and over contexts, users and contexts are 2 (1 - rho) times as large in a
difference, and samples, which two runs do not share, twice. rho is an assumption, and always stated.

The smallest detectable difference (Bloom 1995, Evaluation Review 19, 547-556; Cohen 1988; for evaluations Miller 2024,
Adding Error Bars to Evals) is (t of 1 - 5 % / 2 + t of power) times the standard error, degrees of freedom by
Satterthwaite. A pilot of few profiles knows their spread poorly: `low` and `high` are the 95 % interval of the
standard error by chi-squared, rho taken as given. Labels and judge are the same on both sides and left out of this.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri, ndtri, stdtrit

from cimemories.flows import parts
from cimemories.flows.arrays import (
    Bools,
    Entries,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    axes,
    blocks,
    ranges,
    stretch,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.metrics.intervals import common, common_entries
from cimemories.metrics.uncertainty import LEAST_USERS, LEVEL, NumberTerms, Terms, none_for_nan, variance
from cimemories.metrics.violation import no_leak_probability
from cimemories.store import runs
from cimemories.store.engine import Store, StoreError
from cimemories.store.runs import RunRow

POWER = 0.8
# Assumed between two models' true numbers over profiles, where one pilot run cannot tell. Between runs of one dataset
# it is commonly higher (users: 0.7 to 1 between simulated runs of the demo): a cautious choice, not a measured one.
CORRELATION = 0.5
PILOT_PROFILES = 2_000  # of a run that does not fit into memory
MOST_PROFILES = 100_000  # no plan asks for more
_TWO_SIDED = (1 + LEVEL) / 2


@dataclass(frozen=True)
class Size:
    """Numbers of profiles, contexts and samples of a run."""

    profiles: int
    contexts: int
    samples: int

    @property
    def messages(self) -> int:
        return self.profiles * self.contexts * self.samples


@dataclass(frozen=True)
class Detectable:
    """The smallest difference that is shown with the power asked for, as a share; nan where that cannot be said. low,
    high: its range by the pilot's 95 % interval of the standard error. floor: the difference within which two runs of
    one model stay in 95 % of repetitions, by their samples alone."""

    value: float
    low: float
    high: float
    floor: float


@dataclass(frozen=True)
class Components:
    """Variances (shares squared) of a paired difference: users and samples of one profile, contexts of one context.
    estimated_freedom: degrees of freedom behind them; infinite where they are given and not estimated."""

    users: float
    samples: float
    contexts: float
    estimated_freedom: float = math.inf

    def error(self, profiles: int, contexts: int) -> float:
        """Return the standard error of the difference."""
        return math.sqrt((self.users + self.samples) / profiles + self.contexts / contexts)

    def freedom(self, profiles: int, contexts: int) -> float:
        """Return the degrees of freedom that uncertainty.difference_interval has for so many profiles and contexts."""
        between, crossed = (self.users + self.samples) / profiles, self.contexts / contexts
        spent = between**2 / max(profiles - 1, 1) + crossed**2 / max(contexts - 1, 1)
        most = float(max(profiles - 1, 1))
        return min((between + crossed) ** 2 / spent, most) if spent > 0 else most

    def detectable(self, profiles: int, contexts: int, power: float = POWER) -> Detectable:
        """Return the smallest difference of so many profiles and contexts. nan with fewer than LEAST_USERS profiles:
        they say nothing of users. Raises ValueError for a power below 0.5 or from 1 on."""
        if not 0.5 <= power < 1:
            raise ValueError(f"power must be at least 0.5 and below 1, this is {power}")
        floor = float(ndtri(_TWO_SIDED)) * math.sqrt(self.samples / profiles)
        if profiles < LEAST_USERS:
            return Detectable(math.nan, math.nan, math.nan, floor)
        freedom = self.freedom(profiles, contexts)
        value = float(stdtrit(freedom, _TWO_SIDED) + stdtrit(freedom, power)) * self.error(profiles, contexts)
        if math.isinf(self.estimated_freedom) or math.isnan(value):
            return Detectable(value, value, value, floor)
        # chdtri takes the upper tail.
        low, high = (
            math.sqrt(self.estimated_freedom / float(chdtri(self.estimated_freedom, tail)))
            for tail in (1 - _TWO_SIDED, _TWO_SIDED)
        )
        return Detectable(value, value * low, value * high, floor)

    def profiles_needed(self, difference: float, contexts: int, power: float = POWER) -> int | None:
        """Return the fewest profiles that show a difference of this size; None where contexts alone vary too much, or
        it takes more than MOST_PROFILES. Raises ValueError for a difference that is not above 0."""
        if not difference > 0:
            raise ValueError(f"the difference must be above 0, this is {difference}")

        def enough(profiles: int) -> bool:
            return self.detectable(profiles, contexts, power).value <= difference

        low, high = LEAST_USERS - 1, LEAST_USERS
        while not enough(high):
            if high >= MOST_PROFILES:
                return None
            low, high = high, min(2 * high, MOST_PROFILES)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


# ---- a pilot


@dataclass(frozen=True)
class Row:
    """Smallest differences that a plan of this size can show."""

    size: Size
    violation: Detectable
    completeness: Detectable


@dataclass(frozen=True)
class Pilot:
    """One run, or two on their common flows. leaks, needed: the flows of each that can violate, and that completeness
    rests on. size: of the pilot. correlation: assumed for one run; None for two, which show it. first_of: the number of
    profiles of a run that does not fit into memory, whose first ones these are; None: these are all."""

    leaks: tuple[Entries, ...]
    needed: tuple[Entries, ...]
    size: Size
    correlation: float | None
    first_of: int | None = None

    def violation(self, contexts: int, samples: int) -> Components:
        """Return the components of the difference of Violation@n, n = samples, in so many contexts."""
        n = min(samples, self.size.samples)
        runs = self._runs(contexts, n)
        times = max(contexts / self.size.contexts, 1.0)
        planned = sum(float(run.sums.planned(samples, times).sum()) for run in runs)
        met = np.any([run.met[0] for run in runs], axis=0)
        return self._components(contexts, [run.violation[n] for run in runs], met, planned)

    def completeness(self, contexts: int, samples: int) -> Components:
        """Return the components of the difference of completeness."""
        runs = self._runs(contexts, 1)
        times = max(contexts / self.size.contexts, 1.0)
        # p (1 - p) / N: by the flows' own numbers of samples, which losses make smaller than those of the plan.
        planned = sum(
            float(run.sums.of_completeness().sum()) * _mean_draws(_first(needed, contexts)) / (samples * times)
            for run, needed in zip(runs, self.needed, strict=True)
        )
        met = np.any([run.met[1] for run in runs], axis=0)
        return self._components(contexts, [run.completeness for run in runs], met, planned)

    def _runs(self, contexts: int, n: int) -> list[NumberTerms]:
        """Return the terms of each run in its first contexts."""
        sides = zip(self.leaks, self.needed, strict=True)
        runs = [NumberTerms.of(_first(leaks, contexts), _first(needed, contexts), (n,)) for leaks, needed in sides]
        every = np.arange(self.leaks[0].shape[2])
        return [NumberTerms.joined([run], every) for run in runs]

    def _components(self, contexts: int, terms: Sequence[Terms], met: Bools, planned: float) -> Components:
        """Return components for a plan. contexts: of the plan. terms: of each run; met: [contexts], those behind them.
        planned: the variances of the profiles' numbers by the samples of the plan, summed over profiles and runs."""
        inside = terms[0] if len(terms) == 1 else terms[1].combined(1.0, terms[0], -1.0)
        inside = replace(inside, without=inside.without[:, met])
        defined = ~np.isnan(inside.values)
        users = int(defined.sum())
        if users < LEAST_USERS:
            return Components(math.nan, math.nan, math.nan)
        spread, freedom = variance(inside)
        mean_samples = float(inside.samples[defined].mean())
        # A spread smaller than samples explain is all theirs: both get smaller together.
        trusted = spread.samples * users / mean_samples if mean_samples > 0 else 1.0
        of_samples = planned / users * min(trusted, 1.0)
        crossed = spread.contexts * min(contexts, self.size.contexts)
        if self.correlation is None:
            return Components(spread.users * users, of_samples, crossed, freedom)
        unlike = 2 * (1 - self.correlation)
        return Components(unlike * spread.users * users, 2 * of_samples, unlike * crossed, freedom)

    def row(self, size: Size, power: float = POWER) -> Row:
        """Return the smallest differences that a plan can show. Raises ValueError as Components.detectable does."""
        sides = [side(size.contexts, size.samples) for side in (self.violation, self.completeness)]
        shown = [side.detectable(size.profiles, size.contexts, power) for side in sides]
        return Row(size, shown[0], shown[1])

    def profiles_needed(self, difference: float, size: Size, power: float = POWER) -> dict[str, int | None]:
        """Return how many profiles show a difference (a share) in each number, with the contexts and samples of `size`.
        None and errors as of Components.profiles_needed."""
        sides = {name: getattr(self, name)(size.contexts, size.samples) for name in ("violation", "completeness")}
        return {name: side.profiles_needed(difference, size.contexts, power) for name, side in sides.items()}

    def beyond(self, size: Size) -> list[str]:
        """Return in which sizes a plan goes beyond the pilot, so that its figures are extrapolated."""
        return [name for name in ("contexts", "samples") if getattr(size, name) > getattr(self.size, name)]


def _first(flows: Entries, contexts: int) -> Entries:
    """Return the flows in the first contexts of the arrays: a plan takes the first of its dataset, too."""
    if contexts >= flows.shape[2]:
        return flows
    kept = flows.contexts < contexts
    return replace(
        flows,
        owners=flows.owners[kept],
        contexts=flows.contexts[kept],
        outcomes=flows.outcomes[kept],
    )


def _mean_draws(flows: Entries) -> float:
    draws = flows.kinds[flows.outcomes, 0]
    return float(len(draws) / (1 / draws).sum()) if len(draws) else 0.0


@cached
def pilot(
    flows: Flows,
    scope: Scope,
    other: Scope | None = None,
    rule: IdentifierRule = IdentifierRule.EXACT,
    *,
    correlation: float = CORRELATION,
) -> Pilot:
    """Return a run as a pilot, or two runs whose difference is known. Of runs that do not fit into memory it has the
    first PILOT_PROFILES, enough to estimate variances to 3 %. correlation: assumed with one run. Raises StoreError for
    runs that cannot be a pilot, and for a correlation outside -1 to 1."""
    if not -1 <= correlation <= 1:
        raise StoreError(f"a correlation lies between -1 and 1, not at {correlation:g}.")
    for item in (scope, other):
        if item is not None and item.labelling is None:
            raise StoreError(f"a pilot needs labels, and the dataset of {item.run.id} has none yet.")
    first, *others = _first_profiles(flows, [scope] if other is None else [scope, other], rule)
    if other is None:
        data, leaks, needed, samples = first, [first.inappropriate], [first.necessary], scope.run.samples
    else:
        if other.run.dataset != scope.run.dataset or other.version == scope.version:
            raise StoreError("two pilot runs are two different runs of one dataset.")
        data, second = common(first, others[0])
        leaks, needed = common_entries(data, second)
        samples = min(scope.run.samples, other.run.samples)
    width = max(data.draws.shape[1], 1)
    users = len(np.unique(leaks[0].owners // width))
    if users < LEAST_USERS:
        has = f"{scope.run.id} has" if other is None else f"{scope.run.id} and {other.run.id} have in common"
        raise StoreError(
            f"a pilot needs at least {LEAST_USERS} judged and labelled profiles, to say how much they differ; {has} "
            f"{users}."
        )
    size = Size(users, len(data.contexts), samples)
    judged = len(axes(flows, scope).profiles)
    assumed = correlation if other is None else None
    return Pilot(tuple(leaks), tuple(needed), size, assumed, judged if judged > len(first.profiles) else None)


def _first_profiles(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule) -> list[FlowArrays]:
    """Return the arrays of runs; of large ones those of their first profiles, the same ones in each."""
    number = max(PILOT_PROFILES // parts.PROFILES_A_PART, 1)
    ends = [own[number - 1][1] for own in (ranges(flows, scope) for scope in scopes) if len(own) > number]
    last = min(ends, default=sys.maxsize)
    # A run without any of these profiles gives any block: it has none in common with the other.
    return [stretch(flows, scope, 0, last, rule) or next(blocks(flows, scope, rule)) for scope in scopes]


def pilot_runs(store: Store, dataset_id: int, composition: str, *, simulated: bool) -> list[RunRow]:
    """Return judged runs of a dataset that a run with such a memory may take as a pilot: simulated ones after real ones
    for a real model, those with another memory after those with this one, and the newest first. `pilot` checks their
    profiles."""
    with store.read() as connection:
        newest_first = runs.all_rows(connection, dataset_id)[::-1]
    rows = [row for row in newest_first if row.judged >= LEAST_USERS]
    return sorted(rows, key=lambda row: (row.simulated != simulated, row.composition != composition))


def around(size: Size) -> dict[str, Size]:
    """Return a plan and larger ones, by what each is called."""
    return {
        "this plan": size,
        "twice the profiles": replace(size, profiles=2 * size.profiles),
        "four times the profiles": replace(size, profiles=4 * size.profiles),
        "twice the contexts": replace(size, contexts=2 * size.contexts),
        "twice the samples": replace(size, samples=2 * size.samples),
    }


# ---- two runs of models that are alike


@dataclass(frozen=True)
class Noise:
    """The noise floor of a comparison: the difference (a share) within which two runs of alike models would lie in 95 %
    of cases, by their samples alone."""

    violation: float
    completeness: float

    def as_json(self) -> dict[str, float | None]:
        return {"violation": none_for_nan(self.violation), "completeness": none_for_nan(self.completeness)}


def noise_sums(first: FlowArrays, second: FlowArrays, n: int) -> Floats:
    """Sum the variances behind the noise floor of two runs on common flows (intervals.common), by permutation: with the
    same chance of each leak in both, the reveals of a flow would be any of the samples of both (as in Fisher's exact
    test). Exact for given profiles and contexts, with independent flows; messages that leak several attributes add to
    it.

    Returns, of violation and of completeness, the profiles' variances summed and how many profiles they are of, [2, 2]:
    they add up over blocks of profiles. Raises ValueError for n < 1.
    """
    wrong, right = first.can_violate & second.can_violate, first.is_needed & second.is_needed
    return np.array([_violation_noise(first, second, wrong, n), _completeness_noise(first, second, right)])


def noise_of(sums: Floats) -> Noise:
    """Return the noise floor from `noise_sums`: 1.96 standard errors of a mean over profiles; nan where nothing can be
    compared."""
    violation, completeness = (
        float(ndtri(_TWO_SIDED)) * math.sqrt(spread) / users if users else math.nan for spread, users in sums.tolist()
    )
    return Noise(violation, completeness)


def _violation_noise(first: FlowArrays, second: FlowArrays, mask: Bools, n: int) -> tuple[float, int]:
    """Return the sums for violation. Each attribute adds E (product of q1 - product of q2)^2 = product of E q1^2 +
    product of E q2^2 - 2 product of E q1 q2, E over which of the samples are the first run's (hypergeometric)."""
    at = np.flatnonzero(mask)
    one, two, reveals = _counts(first, second, at)
    size = int(max(one.max(initial=0), two.max(initial=0))) + 1
    # Few (samples of the first, of the second, reveals of both) occur: each is computed once, by its number.
    codes = (one * size + two) * (2 * size) + reveals
    kinds = np.unique(codes)
    logs = np.zeros((3, len(kinds)))
    for k, code in enumerate(kinds.tolist()):
        n1, n2, r = code // (2 * size**2), code // (2 * size) % size, code % (2 * size)
        squares = _dealt(n1, n2, r, min(n, n1, n2))  # read at as many samples as both have
        logs[:, k] = [math.log(value) if value > 0 else -math.inf for value in squares]
    which = np.searchsorted(kinds, codes)
    profiles, attributes, contexts = mask.shape
    owners = at // max(contexts, 1)
    products = [np.exp(np.bincount(owners, weights=row[which], minlength=profiles * attributes)) for row in logs]
    spread = products[0] + products[1] - 2 * products[2]  # 0 for an attribute without a flow
    exposed = mask.any(axis=2).sum(axis=1)
    return _reach(spread.reshape(profiles, attributes).sum(axis=1), exposed)


def _dealt(one: int, two: int, reveals: int, n: int) -> tuple[float, float, float]:
    """Return E q1^2, E q2^2 and E q1 q2 of a flow whose reveals fall on any samples of both runs, hypergeometric."""
    first = second = both = 0.0
    for x in range(max(0, reveals - two), min(reveals, one) + 1):
        chance = math.comb(one, x) * math.comb(two, reveals - x) / math.comb(one + two, reveals)
        q1, q2 = no_leak_probability(one, x, n), no_leak_probability(two, reveals - x, n)
        first, second, both = first + chance * q1 * q1, second + chance * q2 * q2, both + chance * q1 * q2
    return first, second, both


def _completeness_noise(first: FlowArrays, second: FlowArrays, mask: Bools) -> tuple[float, int]:
    """Return the sums for completeness. The variance of x / N1 - (R - x) / N2, x hypergeometric, with M = N1 + N2, is R
    (M - R) / ((M - 1) N1 N2)."""
    at = np.flatnonzero(mask)
    one, two, reveals = _counts(first, second, at)
    every = one + two
    spread = reveals * (every - reveals) / ((every - 1) * one * two)
    profiles, attributes, contexts = mask.shape
    cells = at // max(attributes * contexts, 1) * contexts + at % max(contexts, 1)
    number = np.bincount(cells, minlength=profiles * contexts).reshape(profiles, contexts)
    total = np.bincount(cells, weights=spread, minlength=profiles * contexts).reshape(profiles, contexts)
    return _reach((total / np.maximum(number, 1) ** 2).sum(axis=1), (number > 0).sum(axis=1))


def _counts(first: FlowArrays, second: FlowArrays, at: Ints) -> tuple[Ints, Ints, Ints]:
    """Return samples of the first and of the second run, and reveals of both, of these flows: [flows] each."""
    one, two = (data.draws.reshape(-1)[at].astype(np.int64) for data in (first, second))
    return one, two, first.reveals.reshape(-1)[at].astype(np.int64) + second.reveals.reshape(-1)[at]


def _reach(total: Floats, units: Ints) -> tuple[float, int]:
    """Return the variances of means over units, summed over profiles, and how many of these have any. total: sum of the
    units' variances."""
    within = np.where(units > 0, np.maximum(total, 0.0) / np.maximum(units, 1) ** 2, 0.0)
    return float(within.sum()), int((units > 0).sum())
