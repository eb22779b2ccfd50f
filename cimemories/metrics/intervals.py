"""95 % intervals of a run's headline numbers, and of the difference of two runs.

What an interval is made of is in uncertainty.py; here are the flows that go into it. Two runs are compared on the flows
that both have: a judged sample whose memory held the attribute. What one run lacks (contexts that it did not plan,
responses that failed, another memory) is left out of both sides, so that a difference is one of behaviour and not of
what was asked. Where one has fewer judged samples of a flow, both are read at as many: Violation@n grows with n, and
the run that lost messages would seem to leak less.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pandas as pd

from cimemories.flows.arrays import (
    Bools,
    Entries,
    FlowArrays,
    IdentifierRule,
    Ints,
    Names,
    count,
    counted_flows,
    entries,
    flow_arrays,
    inappropriate_mask,
    necessary_mask,
    retained,
    some_profiles,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import AMBIGUOUS
from cimemories.flows.scope import Scope
from cimemories.metrics import blocks
from cimemories.metrics.breakdown import By, block_grouping, group_names, grouping
from cimemories.metrics.label_uncertainty import (
    LabelSums,
    Posterior,
    headline_variances,
    label_sums,
    label_variances,
    part_posterior,
    posterior,
)
from cimemories.metrics.uncertainty import (
    ROUNDING,
    UNDEFINED,
    Interval,
    LeftOut,
    RateSums,
    SampleSums,
    Terms,
    added,
    completeness_terms,
    contexts_of,
    difference_interval,
    holm,
    rate_terms,
    sample_sums,
    share_interval,
    violation_terms,
    violation_terms_each,
)
from cimemories.metrics.violation import Missing, balanced, by_outcome, missing, missing_flows, no_leak_probability


@dataclass(frozen=True)
class Intervals:
    """Intervals of one run: Violation@n by n, completeness, and the balanced score by n.

    bounds: by n, an interval for Violation@n of all planned messages, whatever the missing ones say: from the lower end
    of the interval of the low bound (all silent) to the upper end of that of the high one (all reveal). It holds the
    whole stretch between the bounds, so it covers the one true number at least as often as each end is held (Imbens and
    Manski 2004, Econometrica 72, 1845-1857, shorten it where the stretch is long; this does not). Where nothing is
    missing it is that of Violation@n.
    """

    violation: dict[int, Interval]
    completeness: Interval
    balanced_at: dict[int, Interval]
    bounds: dict[int, tuple[float, float]]

    @property
    def balanced(self) -> Interval:
        """The balanced score at the most samples."""
        return self.balanced_at[max(self.balanced_at)]


@dataclass(frozen=True)
class Paired:
    """Second run minus first on their common flows, at `n` samples. Negative violation: the second leaks less.

    first, second: (violation, completeness) of each on those profiles. profiles: how many they have in common.
    balanced: the difference of the balanced scores of these.
    """

    n: int
    profiles: int
    violation: Interval
    completeness: Interval
    first: tuple[float, float]
    second: tuple[float, float]
    balanced: Interval = UNDEFINED


@cached
def intervals(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT, *, ns: tuple[int, ...] | None = None
) -> Intervals:
    """Intervals of a run's headline numbers, what its labels leave open included; ns: which n of Violation@n, None:
    every one up to the run's samples. Raises ValueError for an n < 1."""
    ns = ns or tuple(range(1, scope.run.samples + 1))
    if flows.is_large(scope):
        return intervals_by_terms(*blocks.terms(flows, scope, rule, ns))
    counted = counted_flows(flows, scope, rule)
    leaks_variances, needed_variance = label_variances(flows, scope, ns, rule)
    lost = missing_flows(flows, scope, rule)
    return _intervals(counted.inappropriate, counted.necessary, lost, ns, leaks_variances, needed_variance)


def intervals_on(flows: Flows, scope: Scope, data: FlowArrays, ns: tuple[int, ...]) -> Intervals:
    """`intervals` of a part of a run (`shared`): what its labels leave open is that of the same part. Raises ValueError
    for an n < 1."""
    whole = flow_arrays(flows, scope)
    cells = np.ix_(
        np.searchsorted(whole.profiles, data.profiles),
        np.arange(data.counted.shape[1]),
        np.searchsorted(whole.contexts, data.contexts),
    )
    return intervals_under(data, posterior(flows, scope).at(cells), ns)


def intervals_under(data: FlowArrays, labels: Posterior, ns: tuple[int, ...]) -> Intervals:
    """`intervals` of arrays whose labels are believed so: pure. labels: of the pairs of the arrays."""
    return _intervals_of(data, ns, *headline_variances(data, labels, ns))


def intervals_of(data: FlowArrays, ns: tuple[int, ...]) -> Intervals:
    """`intervals` of arrays, their labels taken as given: pure."""
    return _intervals_of(data, ns, {}, math.nan)


def _intervals_of(data: FlowArrays, ns: tuple[int, ...], labels: dict[int, float], labels_needed: float) -> Intervals:
    counted = count(data)
    lost = missing(data, counted.inappropriate)
    return _intervals(counted.inappropriate, counted.necessary, lost, ns, labels, labels_needed)


@cached
def group_intervals(
    flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> dict[str, tuple[Interval, Interval]]:
    """Violation@n and completeness of each group of `breakdown`, by its name, with intervals: of the group's flows
    alone, what their labels leave open included. One profile's interval is over its attributes and contexts."""
    if flows.is_large(scope):
        return _intervals_of_users(flows, scope, n, rule) if by == By.PROFILE else _in_groups(flows, scope, by, n, rule)
    data, groups, labels = flow_arrays(flows, scope, rule), grouping(flows, scope, by, rule), posterior(flows, scope)
    result = {}
    for code, name in enumerate(groups.names):
        own = intervals_under(_only(data, np.broadcast_to(groups.codes == code, data.draws.shape)), labels, (n,))
        result[name] = own.violation[n], own.completeness
    return result


def _intervals_of_users(
    flows: Flows, scope: Scope, n: int, rule: IdentifierRule
) -> dict[str, tuple[Interval, Interval]]:
    """`group_intervals` of the profiles of a large run: each lies in one block."""
    names = group_names(flows, scope, By.PROFILE)
    results = (own for part in blocks.each_block(flows, [scope], rule, _users_of_block, n) for own in part)
    return dict(zip(names, results, strict=True))


def _users_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int
) -> list[tuple[Interval, Interval]]:
    data, labels = every[0], part_posterior(flows, scopes[0], every[0])
    result = []
    for p in range(len(data.profiles)):
        at = np.array([p])
        cells = np.ix_(at, np.arange(data.draws.shape[1]), np.arange(data.draws.shape[2]))
        own = intervals_under(some_profiles(data, at), labels.at(cells), (n,))
        result.append((own.violation[n], own.completeness))
    return result


@dataclass(frozen=True)
class _GroupPart:
    """A group's flows in one block: terms of violation and completeness without their contexts, which would take more
    memory than all else (`left`), the contexts that they rest on, and what gives the parts of samples and labels."""

    terms: tuple[Terms, Terms]
    left: tuple[LeftOut, LeftOut]
    used: Bools
    sums: SampleSums
    labels: LabelSums


def _in_groups(
    flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule
) -> dict[str, tuple[Interval, Interval]]:
    names = group_names(flows, scope, by)
    results = blocks.each_block(flows, [scope], rule, _groups_of_block, by, names, n)
    names = names or results[0][0]
    result = {}
    for code, name in enumerate(names):
        parts = [groups[code] for _, groups in results]
        used, sums = np.any([part.used for part in parts], axis=0), added([part.sums for part in parts])
        by_n, needed = reduce(LabelSums.plus, [part.labels for part in parts]).variances((n,))
        sides = []
        for side, samples, labels in ((0, sums.of_violation(n), by_n[n]), (1, sums.of_completeness(), needed)):
            terms = blocks.together([part.terms[side] for part in parts], np.arange(0), samples)
            left = reduce(LeftOut.plus, [part.left[side] for part in parts]).at(used)
            sides.append(share_interval(terms, labels, left=left))
        result[name] = sides[0], sides[1]
    return result


def _groups_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], by: By, names: tuple[str, ...], n: int
) -> tuple[tuple[str, ...], list[_GroupPart]]:
    data, labels = every[0], part_posterior(flows, scopes[0], every[0])
    groups, contexts = block_grouping(flows, scopes[0], by, names, data), np.arange(data.draws.shape[2])
    parts = []
    for code in range(len(groups.names)):
        own = _only(data, np.broadcast_to(groups.codes == code, data.draws.shape))
        counted = count(own)
        leaks, needed = counted.inappropriate, counted.necessary
        terms = violation_terms(leaks, n, contexts, sampled=False), completeness_terms(needed, contexts)
        bare = [replace(each, without=each.without[:, :0]) for each in terms]
        parts.append(
            _GroupPart(
                (bare[0], bare[1]),
                (LeftOut.of(terms[0]), LeftOut.of(terms[1])),
                np.isin(contexts, contexts_of(leaks, needed)),
                sample_sums(by_outcome(leaks), needed),
                label_sums(own, labels, (n,)),
            )
        )
    return groups.names, parts


@cached
def rate_intervals(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[Interval, Interval]:
    """The leak rate (sum r / sum N of inappropriate pairs) and ambiguous exposure (the same of ambiguous pairs in
    retained contexts), with intervals over users and contexts (`rate_terms`)."""
    if flows.is_large(scope):
        sums = blocks.each_block(flows, [scope], rule, _rates_of_block)
        wrong, between = (share_interval(RateSums.joined([both[side] for both in sums]).terms()) for side in (0, 1))
        return wrong, between
    data = flow_arrays(flows, scope, rule)
    parts = counted_flows(flows, scope, rule).inappropriate, _unclear(data)
    leak, ambiguous = (share_interval(rate_terms(part)) for part in parts)
    return leak, ambiguous


def _unclear(data: FlowArrays) -> Entries:
    """The ambiguous pairs of retained contexts."""
    unclear: Bools = (data.labels == AMBIGUOUS) & retained(data.labels)[:, None, :] & (data.draws > 0)
    return entries(unclear, data.reveals, data.draws)


def _rates_of_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays]) -> tuple[RateSums, RateSums]:
    return RateSums.of(count(every[0]).inappropriate), RateSums.of(_unclear(every[0]))


def _intervals(
    leaks: Entries, needed: Entries, lost: Missing, ns: tuple[int, ...], labels: dict[int, float], labels_needed: float
) -> Intervals:
    # Both numbers rest on the same contexts, so that the balanced score can be made of both.
    contexts = contexts_of(leaks, needed)
    exposed = violation_terms_each(leaks, ns, contexts)
    conveyed = completeness_terms(needed, contexts)
    ends: tuple[Mapping[int, Terms], ...] = ()
    if not lost.nothing:
        planned = np.union1d(contexts, contexts_of(lost.not_revealing))
        ends = tuple(violation_terms_each(flows, ns, planned) for flows in (lost.not_revealing, lost.leaking))
    return intervals_by_terms(exposed, conveyed, ends, labels, labels_needed)


def intervals_by_terms(
    exposed: Mapping[int, Terms],
    conveyed: Terms,
    ends: Sequence[Mapping[int, Terms]],
    labels: Mapping[int, float],
    labels_needed: float,
) -> Intervals:
    """`intervals` of these terms and variances of labels (blocks.terms). exposed, ends: by n; ends: with every missing
    message silent, and with every one revealing; empty where none is missing."""
    violation = {n: share_interval(terms, labels.get(n, math.nan)) for n, terms in exposed.items()}
    bounds = {n: (item.low, item.high) for n, item in violation.items()}
    for n in exposed if ends else ():
        low, high = (share_interval(end[n], labels.get(n, math.nan)) for end in ends)
        bounds[n] = (low.low, high.high)
    completeness = share_interval(conveyed, labels_needed)
    balanced_at = {}
    for n, terms in exposed.items():
        score = _balanced_interval(terms, conveyed, labels.get(n, math.nan), labels_needed)
        balanced_at[n] = _with_what_does_not_vary(score, violation[n], completeness)
    return Intervals(violation, completeness, balanced_at, bounds)


def _with_what_does_not_vary(score: Interval, violation: Interval, completeness: Interval) -> Interval:
    """The balanced score with an interval by those of its parts (MOVER; Zou and Donner, Statistics in Medicine 27,
    2008, 1693-1702) where one of them does not vary: a linearised score has no width of that part then, while the part
    itself has one. With parts that vary, as it is."""
    if math.isnan(score.value) or all(part.error**2 > ROUNDING for part in (violation, completeness)):
        return score
    kept, conveyed, value = 1 - violation.value, completeness.value, score.value

    def bound(kept_end: float, conveyed_end: float) -> float:
        moved = balanced(1 - kept_end, conveyed) - value, balanced(1 - kept, conveyed_end) - value
        outermost = balanced(1 - kept_end, conveyed_end)
        # No further than with both parts at their ends.
        return value + math.copysign(min(math.hypot(*moved), abs(outermost - value)), outermost - value)

    low, high = bound(1 - violation.high, completeness.low), bound(1 - violation.low, completeness.high)
    return replace(score, low=min(low, value), high=max(high, value))


def _balanced_interval(violation: Terms, completeness: Terms, labels: float, labels_needed: float) -> Interval:
    """The harmonic mean of 1 - V and C, linearised at the two numbers (delta method): profiles and contexts that move
    both move it together."""
    kept, conveyed = 1 - violation.value, completeness.value
    score = balanced(violation.value, conveyed)
    if math.isnan(score):
        return UNDEFINED
    by_kept, by_conveyed = _slopes(kept, conveyed)
    both = violation.combined(-by_kept, completeness, by_conveyed)
    of_labels = by_kept**2 * labels + by_conveyed**2 * labels_needed
    return share_interval(both, of_labels, value=score)


def _slopes(kept: float, conveyed: float) -> tuple[float, float]:
    """Derivatives of 2 k c / (k + c); at 0 + 0 there is none, and the interval is that of no spread."""
    under = (kept + conveyed) ** 2
    return (2 * conveyed**2 / under, 2 * kept**2 / under) if under > 0 else (0.0, 0.0)


def _balanced_difference(violation: tuple[Terms, Terms], completeness: tuple[Terms, Terms]) -> Interval:
    """The second balanced score minus the first, each linearised at its own numbers. Terms: of first and second, on the
    same contexts."""
    scores, sides = [], []
    for leaked, conveyed in zip(violation, completeness, strict=True):
        scores.append(balanced(leaked.value, conveyed.value))
        by_kept, by_conveyed = _slopes(1 - leaked.value, conveyed.value)
        sides.append(leaked.combined(-by_kept, conveyed, by_conveyed))
    if any(map(math.isnan, scores)):
        return UNDEFINED
    apart = sides[1].combined(1.0, sides[0], -1.0)
    if math.isnan(apart.value):
        return UNDEFINED
    # A line through the numbers themselves: only its slope matters to the variance.
    shift = scores[1] - scores[0] - apart.value
    return difference_interval(replace(apart, own=apart.own + shift, without=apart.without + shift))


def paired_arrays(first: FlowArrays, second: FlowArrays, n: int) -> Paired:
    """The difference of two runs on common flows (`common`), attributes and contexts that both define: pure. Labels
    are taken as given: they are the same on both sides."""
    leaks, needed = common_entries(first, second)
    every = np.unique(np.concatenate([part.contexts for part in (*leaks, *needed)]))
    both = PairTerms(
        profiles=len(set(first.profiles) & set(second.profiles)),
        violation=(violation_terms(leaks[0], n, every), violation_terms(leaks[1], n, every)),
        completeness=(completeness_terms(needed[0], every), completeness_terms(needed[1], every)),
        # Each number rests on its own contexts: those of the other would only seem to add samples.
        own=(
            np.isin(every, np.union1d(leaks[0].contexts, leaks[1].contexts)),
            np.isin(every, np.union1d(needed[0].contexts, needed[1].contexts)),
        ),
    )
    return paired_by_terms(both, n)


@dataclass(frozen=True)
class PairTerms:
    """The terms of two runs on common flows, (first, second) each, over the same contexts. own: [contexts], those that
    violation rests on, and those of completeness. profiles: how many the runs have in common."""

    profiles: int
    violation: tuple[Terms, Terms]
    completeness: tuple[Terms, Terms]
    own: tuple[Bools, Bools]


def paired_by_terms(both: PairTerms, n: int) -> Paired:
    """The difference of two runs whose terms these are."""
    violation, completeness = (
        _apart_interval(after.combined(1.0, before, -1.0), own)
        for (before, after), own in zip((both.violation, both.completeness), both.own, strict=True)
    )
    sides = zip(both.violation, both.completeness, strict=True)
    first, second = ((leaked.value, conveyed.value) for leaked, conveyed in sides)
    apart = _balanced_difference(both.violation, both.completeness)
    return Paired(n, both.profiles, violation, completeness, first, second, apart)


def _apart_interval(apart: Terms, own: Bools) -> Interval:
    """The interval of a difference. own: [contexts], those that it rests on."""
    return difference_interval(replace(apart, without=apart.without[:, own]))


def common_entries(first: FlowArrays, second: FlowArrays) -> tuple[list[Entries], list[Entries]]:
    """Of two runs on common flows: those that can violate, and those that completeness rests on, of each run, where
    both define a number."""
    both = (first, second)
    masks = [(inappropriate_mask(d.draws, d.labels, d.counted), necessary_mask(d.draws, d.labels)) for d in both]
    # An attribute that only one of the two exposes, or a context that only one defines, is in neither mean.
    exposed = np.asarray(masks[0][0].any(axis=2) & masks[1][0].any(axis=2))
    defined = np.asarray(masks[0][1].any(axis=1) & masks[1][1].any(axis=1))
    leaks = [_entries(wrong & exposed[:, :, None], d) for d, (wrong, _) in zip(both, masks, strict=True)]
    needed = [_entries(right & defined[:, None, :], d) for d, (_, right) in zip(both, masks, strict=True)]
    return leaks, needed


def _entries(mask: Bools, data: FlowArrays) -> Entries:
    return entries(mask, data.reveals, data.draws, data.read_at)


@dataclass(frozen=True)
class Tallied:
    """Common inappropriate flows by whether each run ever reveals them in its samples. newly_by_chance,
    stopped_by_chance: how many would change if both revealed each with the same probability."""

    neither: int
    stopped: int
    newly: int
    both: int
    newly_by_chance: float = math.nan
    stopped_by_chance: float = math.nan

    @property
    def flows(self) -> int:
        return self.neither + self.stopped + self.newly + self.both


def common(first: FlowArrays, second: FlowArrays) -> tuple[FlowArrays, FlowArrays]:
    """Both on their common flows (`shared`), each flow read at as many samples as both have: pure."""
    one, two = alike((first, second))
    return one, two


def alike(every: Sequence[FlowArrays]) -> list[FlowArrays]:
    """Runs on the flows that all share (`shared`), each flow read at as many samples as all have: pure."""
    parts = shared(every)
    if all(np.array_equal(parts[0].draws, other.draws) for other in parts[1:]):
        return parts
    fewest = np.minimum.reduce([part.draws for part in parts])
    return [replace(part, read_at=fewest) for part in parts]


def shared(every: Sequence[FlowArrays]) -> list[FlowArrays]:
    """Runs on the profiles and contexts that all share, with no draw where another has none: pure.

    A profile's attributes stand at the same positions in every run of a dataset; a position that holds another
    attribute in another run is no common flow. Runs that share everything come back as they are.
    """
    first = every[0]
    if all(_alike(first, other) for other in every[1:]):
        return list(every)
    profiles = tuple(sorted(set.intersection(*(set(data.profiles) for data in every))))
    contexts = tuple(sorted(set.intersection(*(set(data.contexts) for data in every))))
    # Beyond the narrowest array one of them has padding or nothing.
    width = min(data.counted.shape[1] for data in every)
    cut = [_cut(data, profiles, contexts, width) for data in every]
    same = np.logical_and.reduce([data.names.attribute == cut[0].names.attribute for data in cut])
    # Judged in all: a flow that one run lost says nothing of a change.
    kept: Bools = np.logical_and.reduce([data.draws > 0 for data in cut])
    kept &= (same & (cut[0].names.attribute >= 0))[:, :, None]
    return [_only(data, kept) for data in cut]


def _alike(one: FlowArrays, two: FlowArrays) -> bool:
    """Whether both judged the same flows."""
    return (
        one.profiles == two.profiles
        and one.contexts == two.contexts
        and np.array_equal(one.names.attribute, two.names.attribute)
        and np.array_equal(one.draws > 0, two.draws > 0)
    )


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
    by_chance = changed_by_chance(first.draws[mask], first.reveals[mask], second.draws[mask], second.reveals[mask])
    return Tallied(int(mask.sum()) - both - newly - stopped, stopped, newly, both, *by_chance), columns


def changed_by_chance(draws: Ints, reveals: Ints, other_draws: Ints, other_reveals: Ints) -> tuple[float, float]:
    """How many flows would newly leak, and how many stop leaking, if both runs revealed each flow with the same
    probability: all [flows], counts of either run.

    Given that a flow is revealed in R of all its N_1 + N_2 samples, every choice of R of them is then as likely
    (Fisher's exact argument), so it newly leaks (never in the first run, R times in the second) with probability
    C(N_2, R) / C(N_1 + N_2, R), and stops with C(N_1, R) / C(N_1 + N_2, R). Flows that are never revealed change
    nothing. The expectation holds however the flows of one message hang together.
    """
    both, revealed = draws.astype(np.int64) + other_draws, reveals.astype(np.int64) + other_reveals
    some = revealed > 0
    kinds, times = np.unique(np.column_stack([both, revealed, draws])[some], axis=0, return_counts=True)
    newly = stopped = 0.0
    for (total, hits, first), often in zip(kinds.tolist(), times.tolist(), strict=True):
        newly += often * _none_in(total, hits, first)
        stopped += often * _none_in(total, hits, total - first)
    return newly, stopped


def _none_in(total: int, revealed: int, samples: int) -> float:
    """The chance that none of these samples, of so many in all, is one of those that reveal it."""
    return no_leak_probability(total, revealed, samples) if samples else 1.0


def by_domain(first: FlowArrays, second: FlowArrays, n: int) -> pd.DataFrame:
    """The differences inside each domain, of two runs on common flows: domain, `violation` and `completeness` with
    `_low`, `_high` and `_p` (Holm's adjusted p over all domains, so that one of nine is no finding by chance), and what
    they rest on (`attributes`, `necessary_flows`); nan where a domain has none."""
    rows = []
    for name, one, two in in_domains(first, second):
        paired = paired_arrays(one, two, n)
        rows.append((name, paired.violation, paired.completeness, *defined_in_both(one, two)))
    return domain_frame(rows)


def in_domains(first: FlowArrays, second: FlowArrays) -> Iterator[tuple[str, FlowArrays, FlowArrays]]:
    """Two runs on common flows, of one domain at a time."""
    names = first.names.domain
    for name in sorted({str(name) for name in names[first.names.attribute >= 0]}):
        # Only reveals and draws are cut, not labels: what is retained does not depend on the domain.
        inside = (names == name)[:, :, None]
        yield name, _only(first, inside), _only(second, inside)


def defined_in_both(first: FlowArrays, second: FlowArrays) -> tuple[int, int]:
    """How many attributes have a flow that can violate in both runs, and how many flows completeness rests on in
    both."""
    leaking = inappropriate_mask(first.draws, first.labels, first.counted) & inappropriate_mask(
        second.draws, second.labels, second.counted
    )
    # By the labels of both: the two may be held against different ones.
    needed = necessary_mask(first.draws, first.labels) & necessary_mask(second.draws, second.labels)
    return int(leaking.any(axis=2).sum()), int(needed.sum())


def domain_frame(rows: Sequence[tuple[str, Interval, Interval, int, int]]) -> pd.DataFrame:
    """What `by_domain` gives. rows: name, differences of violation and completeness, attributes, necessary flows."""
    frame = pd.DataFrame(
        [
            {
                "domain": name,
                **_columns("violation", violation),
                "violation_p": math.nan,
                "attributes": attributes,
                **_columns("completeness", completeness),
                "completeness_p": math.nan,
                "necessary_flows": necessary,
            }
            for name, violation, completeness, attributes, necessary in rows
        ],
        columns=DOMAIN_COLUMNS,
    )
    for side, measure in enumerate(("violation", "completeness"), start=1):
        frame[f"{measure}_p"] = holm([row[side].p for row in rows])  # type: ignore[union-attr]
    return frame


DOMAIN_COLUMNS = ["domain", "violation", "violation_low", "violation_high", "violation_p", "attributes"]
DOMAIN_COLUMNS += ["completeness", "completeness_low", "completeness_high", "completeness_p", "necessary_flows"]


def _columns(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}


def _cut(data: FlowArrays, profiles: Sequence[int], contexts: Sequence[int], width: int) -> FlowArrays:
    p = np.array([data.profiles.index(i) for i in profiles], np.int64)
    c = np.array([data.contexts.index(i) for i in contexts], np.int64)
    cells = np.ix_(p, np.arange(width), c)
    planned = None if data.planned is None else data.planned[cells]
    rows = np.ix_(p, np.arange(width))
    names = data.names
    kept = Names(names.attribute[rows], names.key[rows], names.domain[rows], names.event[rows], names.bio[rows])
    counts = data.reveals[cells], data.draws[cells], data.labels[cells], data.counted[rows]
    return FlowArrays(*counts, tuple(profiles), tuple(contexts), kept, planned=planned)


def _only(data: FlowArrays, kept: Bools) -> FlowArrays:
    planned = None if data.planned is None else np.where(kept, data.planned, 0)
    return replace(data, reveals=np.where(kept, data.reveals, 0), draws=np.where(kept, data.draws, 0), planned=planned)
