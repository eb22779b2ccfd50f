"""95 % intervals of the headline numbers, and of the difference of two runs on the same profiles.

Hierarchical bootstrap (analysis.bootstrap): profiles first, then attributes (violation) or contexts (completeness)
inside them; 2,000 resamples with a fixed seed, so that the same numbers come out every time and on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cimemories.analysis import bootstrap, completeness, rates
from cimemories.analysis.bootstrap import LEAST_USERS, RESAMPLES, SEED, bounds, profile_draws, resampled_means
from cimemories.analysis.counted import counted_flows
from cimemories.analysis.cube import Cube, Floats, IdentifierRule, cube, mean_or_nan
from cimemories.analysis.flows import Flows, Scope
from cimemories.analysis.tally import Exposures, by_outcome, exposures


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval; nan where undefined. users: how many profiles it was drawn from."""

    value: float
    low: float
    high: float
    users: int
    level: float = bootstrap.LEVEL

    @property
    def speaks_for(self) -> str:
        """'users', or 'attributes' where there are too few profiles for it to say anything of users."""
        return "users" if self.users >= LEAST_USERS else "attributes"

    @property
    def has_zero(self) -> bool:
        """Whether 0 lies inside: of a difference, that the two may be alike."""
        return self.low <= 0 <= self.high

    def as_json(self) -> dict[str, float | int | str | None]:
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        found: dict[str, float | int | str | None] = {k: None if np.isnan(v) else v for k, v in numbers.items()}
        return found | {"level": self.level, "profiles": self.users, "speaks_for": self.speaks_for}


@dataclass(frozen=True)
class Intervals:
    """Intervals of one run: Violation@n by n, completeness, and the balanced score at the most samples."""

    violation: dict[int, Interval]
    completeness: Interval
    balanced: Interval


@dataclass(frozen=True)
class Paired:
    """Second run minus first on their common profiles, at `n` samples. Negative violation: the second leaks less.

    first, second: (violation, completeness) of each on those profiles. profiles: how many they have in common.
    """

    n: int
    profiles: int
    violation: Interval
    completeness: Interval
    first: tuple[float, float]
    second: tuple[float, float]


def intervals(
    flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT, *, ns: tuple[int, ...] | None = None
) -> Intervals:
    """Intervals of a run's headline numbers; ns: which n of Violation@n, None: every one up to the run's samples."""
    wanted = ns or tuple(range(1, asked.run.samples + 1))
    key = ("intervals", asked.version, rule, wanted)
    return flows.remember(key, lambda: _intervals(*sums(flows, asked, rule), wanted))


def sums(flows: Flows, asked: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> tuple[Exposures, Floats]:
    """What headline numbers and their intervals are made of: outcomes of each attribute, and the mean of each context
    [profile, context] (see `completeness.by_context`)."""

    def both() -> tuple[Exposures, Floats]:
        found = counted_flows(flows, asked, rule)
        return by_outcome(found.inappropriate), completeness.means_of(found.necessary)

    return flows.remember(("sums", asked.version, rule), both)


def of_cube(data: Cube, ns: tuple[int, ...], resamples: int = RESAMPLES, seed: int = SEED) -> Intervals:
    """`intervals` of arrays: pure."""
    means = completeness.by_context(data.reveals, data.draws, data.labels)
    return _intervals(exposures(data), means, ns, resamples, seed)


def _intervals(
    leaks: Exposures, means: Floats, ns: tuple[int, ...], resamples: int = RESAMPLES, seed: int = SEED
) -> Intervals:
    users = leaks.profiles
    if not users:
        nothing = Interval(float("nan"), float("nan"), float("nan"), 0)
        return Intervals(dict.fromkeys(ns, nothing), nothing, nothing)
    exposed = np.stack([leaks.violation(n) for n in ns], axis=1)
    ends = np.searchsorted(leaks.profile, np.arange(1, users))
    conveyed = [row[~np.isnan(row)][:, None] for row in means]
    times = profile_draws(users, resamples, seed)
    leaked = dict(zip(ns, resampled_means(np.split(exposed, ends), times, seed).T, strict=True))
    told = resampled_means(conveyed, times, seed + 1)[:, 0]
    violation = {n: _interval(leaked[n], mean_or_nan(leaks.by_profile(exposed[:, i])), users) for i, n in enumerate(ns)}
    complete = _interval(told, mean_or_nan(completeness.over_contexts(means)), users)
    both = rates.balanced_many(leaked[max(ns)], told)
    score = rates.balanced(violation[max(ns)].value, complete.value)
    return Intervals(violation, complete, _interval(both, score, users))


def _interval(samples: Floats, value: float, users: int, least: float = 0.0) -> Interval:
    return Interval(value, *bounds(samples, value, users, least), users)


def paired(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Paired:
    """The difference of two runs on the profiles that both have. Attributes and contexts are those that both define,
    resampled together. With another number of samples in each, both are read at the smaller one."""
    n = min(first.run.samples, second.run.samples)
    key = ("paired", first.version, second.version, rule)
    return flows.remember(key, lambda: paired_cubes(cube(flows, first, rule), cube(flows, second, rule), n))


def paired_cubes(first: Cube, second: Cube, n: int, resamples: int = RESAMPLES, seed: int = SEED) -> Paired:
    """`paired` of arrays: pure."""
    common = sorted(set(first.profiles) & set(second.profiles))
    ways: list[tuple[Callable[[Cube], dict[int, dict[int, float]]], int]] = [
        (lambda data: _by_attribute(data, n), 1),
        (_by_context, 2),
    ]
    found, means = [], []
    for of, offset in ways:
        one, two = of(first), of(second)
        shared = {p: sorted(one.get(p, {}).keys() & two.get(p, {}).keys()) for p in common}
        left = [np.array([[one[p][i]] for i in shared[p]]) for p in common if shared[p]]
        right = [np.array([[two[p][i]] for i in shared[p]]) for p in common if shared[p]]
        apart = [b - a for a, b in zip(left, right, strict=True)]
        means.append((_mean(left), _mean(right)))
        if not apart:
            found.append(Interval(float("nan"), float("nan"), float("nan"), 0))
            continue
        times = profile_draws(len(apart), resamples, seed)
        samples = resampled_means(apart, times, seed + offset)[:, 0]
        found.append(_interval(samples, _mean(apart), len(apart), least=-1.0))
    (v1, v2), (c1, c2) = means
    return Paired(n, len(common), found[0], found[1], (v1, c1), (v2, c2))


def _by_attribute(data: Cube, n: int) -> dict[int, dict[int, float]]:
    """V@n(s, a) by record ids: profile -> attribute -> value."""
    found = exposures(data)
    result: dict[int, dict[int, float]] = {}
    for p, a, value in zip(found.profile, found.attribute, found.violation(n), strict=True):
        result.setdefault(data.profiles[p], {})[int(data.names.attribute[p, a])] = float(value)
    return result


def _by_context(data: Cube) -> dict[int, dict[int, float]]:
    means = completeness.by_context(data.reveals, data.draws, data.labels)
    return {
        profile: {c: float(v) for c, v in zip(data.contexts, row, strict=True) if not np.isnan(v)}
        for profile, row in zip(data.profiles, means, strict=True)
    }


def _mean(groups: list[Floats]) -> float:
    """The mean over profiles of the mean inside each."""
    return float(np.mean([values.mean() for values in groups])) if groups else float("nan")
