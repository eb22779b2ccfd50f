"""95 % intervals of the headline numbers, and of the difference of two runs, by a hierarchical bootstrap.

Profiles are resampled first, then attributes (violation) or contexts (completeness) inside them; 2,000 resamples with a
fixed seed, so that the same numbers come out every time and on every machine. The plain hierarchical bootstrap errs in
two ways that benchmarks/intervals.py shows. What differs inside profiles enters twice: it is in the means of the
profiles already, and is resampled once more. And ten profiles vary less in a resample than ten of a population do. So
the means of the profiles are first shrunk towards their common mean by as much as the variance inside explains (after
Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 3.8), and the ends of the interval are moved
outwards as Student's t demands (Hesterberg, What Teachers Should Know About the Bootstrap, The American Statistician,
2015). With fewer than LEAST_USERS profiles neither is done: the interval then describes attributes, not users.

Where the profiles hold more than MANY values together, resampling inside them is from its normal limit: a mean of
hundreds of samples has no other distribution to speak of, and the cost stays that of the profiles.

Two runs are compared on the flows that both have: a judged sample whose memory held the attribute. What one run lacks
(contexts that it did not plan, responses that failed, another memory) is left out of both sides, so that a difference
is one of behaviour and not of what was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import ndtri, stdtrit

from cimemories.flows.arrays import (
    Bools,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    Names,
    counted_flows,
    flow_arrays,
    inappropriate_mask,
    mean_or_nan,
    necessary_mask,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.metrics import completeness
from cimemories.metrics.violation import Exposures, balanced, balanced_many, by_outcome, exposures

RESAMPLES = 2000
SEED = 20251114
LEVEL = 0.95
LEAST_USERS = 5  # with fewer profiles an interval says little of users
MANY = 300


def resampled_profiles(profiles: int, resamples: int, seed: int) -> Ints:
    """How often each resample takes each profile, with replacement: [resamples, profiles]; rows add up to profiles."""
    chosen = np.random.default_rng(seed).integers(0, profiles, (resamples, profiles))
    # One count over all resamples: each has slots of its own.
    slots = chosen + np.arange(resamples)[:, None] * profiles
    return np.bincount(slots.reshape(-1), minlength=resamples * profiles).reshape(resamples, profiles)


def resampled_means(groups: Sequence[Floats], times: Ints, seed: int) -> Floats:
    """Means over drawn profiles of means over values drawn inside each: [resamples, K].

    groups: of each profile [values, K], K numbers of the same thing, none of them nan; an empty one is skipped wherever
    it is drawn. times: from `resampled_profiles`. nan for a resample in which every drawn profile is empty.
    """
    # Not the stream that chose the profiles: the same random numbers would choose both.
    generator = np.random.default_rng(seed + 1)
    filled = [position for position, values in enumerate(groups) if len(values)]
    if not filled:
        return np.full((len(times), groups[0].shape[1]), np.nan)
    kept = _Groups.of([groups[position] for position in filled])
    taken = times if len(filled) == len(groups) else times[:, filled]
    sums_of = _normal_limit_sums if len(kept.values) > MANY else _resampled_sums
    total = sums_of(kept, kept.shifts(), taken, generator)
    # Only profiles with values were counted in, so a resample divides by those that it took.
    number = taken.sum(axis=1)[:, None]
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


@dataclass(frozen=True)
class _Groups:
    """Values of all profiles below each other, [values, K]; of each profile where they start, how many they are, their
    means, and the variances of these means, [profiles, K]."""

    values: Floats
    starts: Ints
    sizes: Ints
    means: Floats
    inside: Floats

    @classmethod
    def of(cls, groups: Sequence[Floats]) -> _Groups:
        values, sizes = np.concatenate(groups), np.array([len(group) for group in groups])
        starts = np.cumsum(sizes) - sizes
        # reduceat gives an empty group the value of its neighbour; `groups` has none that is empty.
        means = np.add.reduceat(values, starts) / sizes[:, None]
        away = values - np.repeat(means, sizes, axis=0)
        # n below the line and n values in the mean: this is the variance that resampling n of n values has.
        inside = np.add.reduceat(away * away, starts) / (sizes * sizes)[:, None]
        return cls(values, starts, sizes, means, inside)

    def shifts(self) -> Floats:
        """The shrinkage: what moves the means of the profiles as close together as they are without the variance inside
        profiles, [profiles, K]."""
        if len(self.means) < LEAST_USERS:
            return np.zeros_like(self.means)
        between = self.means.var(axis=0, ddof=1)
        # What the spread of the means owes to chance inside; where that is more than the spread, nothing of it is kept.
        inside = self.inside.mean(axis=0)
        explained = np.where(between > 0, 1.0 - inside / np.where(between > 0, between, 1.0), 0.0)
        kept = np.sqrt(np.maximum(explained, 0.0))
        moved: Floats = (kept - 1.0) * (self.means - self.means.mean(axis=0))
        return moved


def _resampled_sums(groups: _Groups, shifts: Floats, times: Ints, generator: np.random.Generator) -> Floats:
    """Sums over sampled profiles of the means of resampled values: [resamples, K]."""
    # The shrinkage moves the mean of a profile, so it is added once for each time that the profile is taken.
    total = times @ shifts
    for own, start, size in zip(times.T, groups.starts, groups.sizes.tolist(), strict=True):
        rows, values = np.repeat(np.arange(len(times)), own), groups.values[start : start + size]
        # The type decides the random stream too: with another one every interval comes out a little different.
        kind = np.uint8 if size <= 256 else np.uint32
        sampled = generator.integers(0, size, (len(rows), size), dtype=kind) + np.arange(len(rows))[:, None] * size
        # How often each value was taken, so that all means are one product of matrices.
        counts = np.bincount(sampled.reshape(-1), minlength=len(rows) * size).reshape(len(rows), size)
        means = counts.astype(np.float64) @ values / size
        # A resample's rows stand together, and a profile that is taken twice is resampled anew each time.
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        if len(rows):
            total[rows[first]] += np.add.reduceat(means, first, axis=0)
    return total


def _normal_limit_sums(groups: _Groups, shifts: Floats, times: Ints, generator: np.random.Generator) -> Floats:
    """The same for many values: a sum of such means is normal, with the mean and the variance that they have."""
    weights = times.astype(np.float64)
    noise = generator.standard_normal((len(times), groups.means.shape[1]))
    sums_of_means: Floats = weights @ (groups.means + shifts) + noise * np.sqrt(weights @ groups.inside)
    return sums_of_means


def bounds(samples: Floats, value: float, users: int, least: float, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a number from its resampled values, inside `least` to 1; nan where none is defined.

    value: the number itself. users: how many profiles it is a mean over.
    """
    defined = samples[~np.isnan(samples)]
    if not defined.size or np.isnan(value):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    out = wider(users, level)
    return max(least, value + out * (float(low) - value)), min(1.0, value + out * (float(high) - value))


def wider(users: int, level: float = LEVEL) -> float:
    """By how much the ends of an interval move outwards for so few profiles; 1 with fewer than LEAST_USERS."""
    if users < LEAST_USERS:
        return 1.0
    # Student's quantile over the normal one; and the root, since n resampled profiles vary by (n - 1) / n of a
    # population's variance.
    tail = (1 + level) / 2
    return float(stdtrit(users - 1, tail) / ndtri(tail) * np.sqrt(users / (users - 1)))


@dataclass(frozen=True)
class Interval:
    """A number with its 95 % interval; nan where undefined. users: how many profiles it is from."""

    value: float
    low: float
    high: float
    users: int
    level: float = LEVEL

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
        bounds: dict[str, float | int | str | None] = {k: None if np.isnan(v) else v for k, v in numbers.items()}
        return bounds | {"level": self.level, "profiles": self.users, "speaks_for": self.speaks_for}


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


@cached
def intervals(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT, *, ns: tuple[int, ...] | None = None
) -> Intervals:
    """Intervals of a run's headline numbers; ns: which n of Violation@n, None: every one up to the run's samples.
    Raises ValueError for an n < 1."""
    return _intervals(*sums(flows, scope, rule), ns or tuple(range(1, scope.run.samples + 1)))


@cached
def sums(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> tuple[Exposures, Floats]:
    """What headline numbers and their intervals are made of: outcomes of each attribute, and the mean of each context
    [profile, context] (see `completeness.by_context`)."""
    counted = counted_flows(flows, scope, rule)
    return by_outcome(counted.inappropriate), completeness.means_of(counted.necessary)


def intervals_of(data: FlowArrays, ns: tuple[int, ...], resamples: int = RESAMPLES, seed: int = SEED) -> Intervals:
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
    # Exposures are in the order of profiles, so each one's rows are a slice.
    ends = np.searchsorted(leaks.profile, np.arange(1, users))
    conveyed = [row[~np.isnan(row)][:, None] for row in means]
    # Both numbers of a resample are of the same profiles: the balanced score needs them together.
    times = resampled_profiles(users, resamples, seed)
    leaked = dict(zip(ns, resampled_means(np.split(exposed, ends), times, seed).T, strict=True))
    completes = resampled_means(conveyed, times, seed + 1)[:, 0]
    violation = {n: _interval(leaked[n], mean_or_nan(leaks.by_profile(exposed[:, i])), users) for i, n in enumerate(ns)}
    complete = _interval(completes, mean_or_nan(completeness.over_contexts(means)), users)
    both = balanced_many(leaked[max(ns)], completes)
    score = balanced(violation[max(ns)].value, complete.value)
    return Intervals(violation, complete, _interval(both, score, users))


def _interval(samples: Floats, value: float, users: int, least: float = 0.0) -> Interval:
    return Interval(value, *bounds(samples, value, users, least), users)


@cached
def paired(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Paired:
    """The difference of two runs on the profiles that both have. Attributes and contexts are those that both define,
    resampled together. With another number of samples in each, both are read at the smaller one."""
    n = min(first.run.samples, second.run.samples)
    return paired_arrays(flow_arrays(flows, first, rule), flow_arrays(flows, second, rule), n)


def paired_arrays(
    first: FlowArrays, second: FlowArrays, n: int, resamples: int = RESAMPLES, seed: int = SEED
) -> Paired:
    """`paired` of arrays: pure."""
    common = sorted(set(first.profiles) & set(second.profiles))
    ways: list[tuple[Callable[[FlowArrays], dict[int, dict[int, float]]], int]] = [
        (lambda data: _by_attribute(data, n), 1),
        (_by_context, 2),
    ]
    intervals, means = [], []
    for of, offset in ways:
        one, two = of(first), of(second)
        shared = {p: sorted(one.get(p, {}).keys() & two.get(p, {}).keys()) for p in common}
        # [values, 1]: one number a value.
        left = [np.array([[one[p][i]] for i in shared[p]]) for p in common if shared[p]]
        right = [np.array([[two[p][i]] for i in shared[p]]) for p in common if shared[p]]
        # Differences first, resampled after: what both runs share of a flow cancels out.
        apart = [b - a for a, b in zip(left, right, strict=True)]
        means.append((_mean(left), _mean(right)))
        if not apart:
            intervals.append(Interval(float("nan"), float("nan"), float("nan"), 0))
            continue
        times = resampled_profiles(len(apart), resamples, seed)
        samples = resampled_means(apart, times, seed + offset)[:, 0]
        intervals.append(_interval(samples, _mean(apart), len(apart), least=-1.0))
    (v1, v2), (c1, c2) = means
    return Paired(n, len(common), intervals[0], intervals[1], (v1, c1), (v2, c2))


def _by_attribute(data: FlowArrays, n: int) -> dict[int, dict[int, float]]:
    """V@n(s, a) by record ids: profile -> attribute -> value."""
    exposed = exposures(data)
    result: dict[int, dict[int, float]] = {}
    for p, a, value in zip(exposed.profile, exposed.attribute, exposed.violation(n), strict=True):
        result.setdefault(data.profiles[p], {})[int(data.names.attribute[p, a])] = float(value)
    return result


def _by_context(data: FlowArrays) -> dict[int, dict[int, float]]:
    means = completeness.by_context(data.reveals, data.draws, data.labels)
    return {
        profile: {c: float(v) for c, v in zip(data.contexts, row, strict=True) if not np.isnan(v)}
        for profile, row in zip(data.profiles, means, strict=True)
    }


def _mean(groups: list[Floats]) -> float:
    """The mean over profiles of the mean inside each."""
    return float(np.mean([values.mean() for values in groups])) if groups else float("nan")


@dataclass(frozen=True)
class Tallied:
    """Common inappropriate flows by whether each run ever reveals them in its samples."""

    neither: int
    stopped: int
    newly: int
    both: int

    @property
    def flows(self) -> int:
        return self.neither + self.stopped + self.newly + self.both


def common(first: FlowArrays, second: FlowArrays) -> tuple[FlowArrays, FlowArrays]:
    """Both on the profiles and contexts that they share, with no draw where the other has none: pure.

    A profile's attributes stand at the same positions in every run of a dataset; a position that holds another
    attribute in the other is no common flow.
    """
    profiles = tuple(sorted(set(first.profiles) & set(second.profiles)))
    contexts = tuple(sorted(set(first.contexts) & set(second.contexts)))
    # Beyond the narrower array one of the two has padding or nothing.
    width = min(first.counted.shape[1], second.counted.shape[1])
    one, two = (_cut(data, profiles, contexts, width) for data in (first, second))
    same = (one.names.attribute == two.names.attribute) & (one.names.attribute >= 0)
    # Judged in both: a flow that one run lost says nothing of a change.
    kept: Bools = (one.draws > 0) & (two.draws > 0) & same[:, :, None]
    return _only(one, kept), _only(two, kept)


def changes(first: FlowArrays, second: FlowArrays) -> tuple[Tallied, dict[str, Ints]]:
    """Of two runs on common flows: how many inappropriate flows each reveals, and those that changed, as arrays
    `profile` and `context` (record ids), `attribute` (record id), counts of both sides, `newly` (1 or 0)."""
    mask = inappropriate_mask(first.draws, first.labels, first.counted) & inappropriate_mask(
        second.draws, second.labels, second.counted
    )
    before, after = mask & (first.reveals > 0), mask & (second.reveals > 0)
    moved = before ^ after
    p, a, c = np.nonzero(moved)
    both, newly, stopped = int((before & after).sum()), int((after & ~before).sum()), int((before & ~after).sum())
    columns = {
        "profile": np.array(first.profiles, np.int64)[p] if len(p) else p,
        "attribute": first.names.attribute[p, a],
        "context": np.array(first.contexts, np.int64)[c] if len(c) else c,
        "newly": after[moved].astype(np.int64),
        "first_reveals": first.reveals[moved],
        "first_draws": first.draws[moved],
        "second_reveals": second.reveals[moved],
        "second_draws": second.draws[moved],
    }
    return Tallied(int(mask.sum()) - both - newly - stopped, stopped, newly, both), columns


def by_domain(first: FlowArrays, second: FlowArrays, n: int) -> pd.DataFrame:
    """The differences inside each domain, of two runs on common flows: domain, `violation` and `completeness` with
    `_low` and `_high`, and what they rest on (`attributes`, `necessary_flows`); nan where a domain has none."""
    names = first.names.domain
    leaking = inappropriate_mask(first.draws, first.labels, first.counted) & inappropriate_mask(
        second.draws, second.labels, second.counted
    )
    needed = necessary_mask(first.draws, first.labels) & necessary_mask(second.draws, second.labels)
    rows = []
    for name in sorted({str(name) for name in names[first.names.attribute >= 0]}):
        # Only reveals and draws are cut, not labels: what is retained does not depend on the domain.
        inside = (names == name)[:, :, None]
        paired = paired_arrays(_only(first, inside), _only(second, inside), n)
        rows.append(
            {
                "domain": name,
                **_columns("violation", paired.violation),
                "attributes": int((leaking & inside).any(axis=2).sum()),
                **_columns("completeness", paired.completeness),
                "necessary_flows": int((needed & inside).sum()),
            }
        )
    columns = ["domain", "violation", "violation_low", "violation_high", "attributes"]
    columns += ["completeness", "completeness_low", "completeness_high", "necessary_flows"]
    return pd.DataFrame(rows, columns=columns)


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _cut(data: FlowArrays, profiles: Sequence[int], contexts: Sequence[int], width: int) -> FlowArrays:
    p = np.array([data.profiles.index(i) for i in profiles], np.int64)
    c = np.array([data.contexts.index(i) for i in contexts], np.int64)
    cells = np.ix_(p, np.arange(width), c)
    rows = np.ix_(p, np.arange(width))
    names = data.names
    kept = Names(names.attribute[rows], names.key[rows], names.domain[rows], names.event[rows], names.bio[rows])
    counts = data.reveals[cells], data.draws[cells], data.labels[cells], data.counted[rows]
    return FlowArrays(*counts, tuple(profiles), tuple(contexts), kept)


def _only(data: FlowArrays, kept: Bools) -> FlowArrays:
    return replace(data, reveals=np.where(kept, data.reveals, 0), draws=np.where(kept, data.draws, 0))
