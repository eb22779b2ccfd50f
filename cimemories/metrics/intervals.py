"""95 % intervals of a run's headline numbers, and of the difference of two runs.

uncertainty.py computes an interval; this module chooses the flows that go into it. Two runs are compared on the flows
that both have: a judged sample whose memory held the attribute. What one run lacks (contexts that it did not plan,
responses that failed, another memory) is left out of both sides, so that a difference is one of behaviour and not of
what was asked. Where one has fewer judged samples of a flow, both are read at as many: Violation@n grows with n, and
the run that lost messages would seem to leak less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Bools, Entries, FlowArrays, IdentifierRule, Ints
from cimemories.flows.flows import Flows, cached
from cimemories.flows.processes import added, each_block
from cimemories.flows.scope import Scope
from cimemories.metrics.label_uncertainty import LabelSums, Posterior, label_sums, posterior
from cimemories.metrics.places import By, places
from cimemories.metrics.uncertainty import (
    ROUNDING,
    UNDEFINED,
    Interval,
    NumberTerms,
    RateSums,
    SampleSums,
    Terms,
    difference_interval,
    holm,
    share_interval,
)
from cimemories.metrics.violation import balanced, missing, no_leak_probability


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
        """Return the balanced score at the most samples."""
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
    """Return intervals of a run's headline numbers, with the uncertainty of its labels. ns: which n of Violation@n,
    None: every one up to the run's samples. Raises ValueError for an n < 1."""
    ns = ns or tuple(range(1, scope.run.samples + 1))
    return intervals_of_blocks(list(each_block(flows, [scope], rule, _terms_of_block, ns)))


def _terms_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], ns: tuple[int, ...]
) -> BlockTerms:
    return block_terms(every[0], posterior(flows, scopes[0], every[0]), ns)


def intervals_of(data: FlowArrays, ns: tuple[int, ...], labels: Posterior | None = None) -> Intervals:
    """Return `intervals` of arrays: pure. labels: the posterior of their pairs; None: labels are taken as given. Raises
    ValueError for an n < 1."""
    return intervals_of_blocks([block_terms(data, labels, ns)])


@dataclass(frozen=True)
class BlockTerms:
    """Terms of the intervals of some profiles. bounds: the terms with every missing message silent, and with every one
    revealing; none where nothing is missing. labels: sums of label uncertainty; None: labels are taken as given."""

    numbers: NumberTerms
    bounds: tuple[NumberTerms, ...]
    labels: LabelSums | None


def block_terms(data: FlowArrays, labels: Posterior | None, ns: tuple[int, ...]) -> BlockTerms:
    """Return the terms of one block. labels: the posterior of its pairs. Raises ValueError for an n < 1."""
    gaps = missing(data)
    ends = () if gaps.nothing else (gaps.not_revealing, gaps.leaking)
    return BlockTerms(
        NumberTerms.of(data.inappropriate, data.necessary, ns),
        # Summed, since only an interval is needed of these.
        tuple(NumberTerms.of(end, data.necessary, ns).summed() for end in ends),
        None if labels is None else label_sums(data, labels, ns),
    )


def intervals_of_blocks(parts: Sequence[BlockTerms]) -> Intervals:
    """Return `intervals` of a run from its blocks, in their order."""
    whole = NumberTerms.joined([part.numbers for part in parts])
    numbers, conveyed = whole.violation, whole.completeness
    labels, labels_needed = dict.fromkeys(numbers, math.nan), math.nan
    if sums := [part.labels for part in parts if part.labels is not None]:
        labels, labels_needed = added(sums).variances(tuple(numbers))
    violation = {n: share_interval(terms, labels[n]) for n, terms in numbers.items()}
    bounds = {n: (item.low, item.high) for n, item in violation.items()}
    if any(part.bounds for part in parts):
        # A block that lost nothing has the judged numbers at both ends.
        low, high = ([part.bounds[side] if part.bounds else part.numbers.summed() for part in parts] for side in (0, 1))
        planned = np.flatnonzero(np.any([side for part in (*low, *high) for side in part.met], axis=0))
        silent, revealing = (NumberTerms.joined(side, planned).violation for side in (low, high))
        for n in numbers:
            bounds[n] = share_interval(silent[n], labels[n]).low, share_interval(revealing[n], labels[n]).high
    completeness = share_interval(conveyed, labels_needed)
    balanced_at = {}
    for n, terms in numbers.items():
        score = _balanced_interval(terms, conveyed, labels[n], labels_needed)
        balanced_at[n] = _with_what_does_not_vary(score, violation[n], completeness)
    return Intervals(violation, completeness, balanced_at, bounds)


@cached
def group_intervals(
    flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT
) -> dict[str, tuple[Interval, Interval]]:
    """Return intervals of Violation@n and completeness of each group of `breakdown`, by its name, from the group's
    flows alone, with the uncertainty of their labels. One profile's interval is over its attributes and contexts."""
    names = places(flows, scope, by).groups
    if by == By.PROFILE:  # each lies in one block
        results = (result for part in each_block(flows, [scope], rule, _users_of_block, n) for result in part)
        return dict(zip(names, results, strict=True))
    parts = list(each_block(flows, [scope], rule, _groups_of_block, by, n))
    result = {}
    for name, at in names.items():
        of_group = [part[at] for part in parts]
        numbers = NumberTerms.joined([terms for terms, _ in of_group])
        by_n, needed = added([labels for _, labels in of_group]).variances((n,))
        result[name] = share_interval(numbers.violation[n], by_n[n]), share_interval(numbers.completeness, needed)
    return result


def _users_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int
) -> list[tuple[Interval, Interval]]:
    data, labels = every[0], posterior(flows, scopes[0], every[0])
    result = []
    for p in range(len(data.profiles)):
        at = np.array([p])
        cells = np.ix_(at, np.arange(data.draws.shape[1]), np.arange(data.draws.shape[2]))
        interval = intervals_of(data.at(at), (n,), labels.at(cells))
        result.append((interval.violation[n], interval.completeness))
    return result


def _groups_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], by: By, n: int
) -> list[tuple[NumberTerms, LabelSums]]:
    data, labels = every[0], posterior(flows, scopes[0], every[0])
    side, parts = places(flows, scopes[0], by), []
    for code in range(len(side)):
        of_group = _only(data, np.broadcast_to(side.codes_in(data) == code, data.draws.shape))
        # Without their contexts, which would take more memory than all else.
        terms = NumberTerms.of(of_group.inappropriate, of_group.necessary, (n,)).summed()
        parts.append((terms, label_sums(of_group, labels, (n,))))
    return parts


@cached
def rate_intervals(
    flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT
) -> tuple[Interval, Interval]:
    """Return the leak rate (sum r / sum N of inappropriate pairs) and ambiguous exposure (the same of ambiguous pairs
    in retained contexts), with intervals over users and contexts (`RateSums`)."""
    sides = zip(*each_block(flows, [scope], rule, _rates_of_block), strict=True)
    leak, ambiguous = (share_interval(RateSums.joined(parts).terms()) for parts in sides)
    return leak, ambiguous


def _rates_of_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays]) -> tuple[RateSums, RateSums]:
    data = every[0]
    return RateSums.of(data.inappropriate), RateSums.of(data.entries(data.is_ambiguous))


def _with_what_does_not_vary(score: Interval, violation: Interval, completeness: Interval) -> Interval:
    """Return the balanced score, with an interval by those of its parts (MOVER; Zou and Donner, Statistics in Medicine
    27, 2008, 1693-1702) where one of them does not vary. A linearised score has no width of that part then, while the
    part itself has one. With parts that vary, the score is returned as it is."""
    if math.isnan(score.value) or all(part.error**2 > ROUNDING for part in (violation, completeness)):
        return score
    privacy, conveyed, value = 1 - violation.value, completeness.value, score.value

    def bound(kept_end: float, conveyed_end: float) -> float:
        moved = balanced(1 - kept_end, conveyed) - value, balanced(1 - privacy, conveyed_end) - value
        outermost = balanced(1 - kept_end, conveyed_end)
        # The bound lies no further out than with both parts at their ends.
        return value + math.copysign(min(math.hypot(*moved), abs(outermost - value)), outermost - value)

    low, high = bound(1 - violation.high, completeness.low), bound(1 - violation.low, completeness.high)
    return replace(score, low=min(low, value), high=max(high, value))


def _balanced_interval(violation: Terms, completeness: Terms, labels: float, labels_needed: float) -> Interval:
    """Return the harmonic mean of 1 - V and C, linearised at the two numbers (delta method): profiles and contexts that
    move both move it together."""
    privacy, conveyed = 1 - violation.value, completeness.value
    score = balanced(violation.value, conveyed)
    if math.isnan(score):
        return UNDEFINED
    by_kept, by_conveyed = _slopes(privacy, conveyed)
    both = violation.combined(-by_kept, completeness, by_conveyed)
    of_labels = by_kept**2 * labels + by_conveyed**2 * labels_needed
    return share_interval(both, of_labels, value=score)


def _slopes(privacy: float, conveyed: float) -> tuple[float, float]:
    """Return the derivatives of 2 k c / (k + c); (0, 0) at 0 + 0, where there is none."""
    under = (privacy + conveyed) ** 2
    return (2 * conveyed**2 / under, 2 * privacy**2 / under) if under > 0 else (0.0, 0.0)


def _balanced_difference(runs: Sequence[tuple[Terms, Terms]]) -> Interval:
    """Return the second balanced score minus the first, each linearised at its own numbers. runs: violation and
    completeness of first and second, on the same contexts."""
    scores, sides = [], []
    for leaked, conveyed in runs:
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
    return difference_interval(replace(apart, values=apart.values + shift, without=apart.without + shift))


@dataclass(frozen=True)
class PairTerms:
    """The terms of two runs on common flows, first and second, and how many profiles they have in common."""

    profiles: int
    first: NumberTerms
    second: NumberTerms

    @classmethod
    def of(cls, first: FlowArrays, second: FlowArrays, n: int) -> PairTerms:
        """Return the terms of one block. first, second: the runs on their common flows (`common`)."""
        leaks, needed = common_entries(first, second)
        one, two = (NumberTerms.of(wrong, right, (n,)) for wrong, right in zip(leaks, needed, strict=True))
        return cls(len(first.profiles), one, two)


def paired_arrays(first: FlowArrays, second: FlowArrays, n: int) -> Paired:
    """Return the difference of two runs on common flows (`common`), attributes and contexts that both define: pure.
    Labels are taken as given: they are the same on both sides."""
    return paired_of([PairTerms.of(first, second, n)], n)


def paired_of(parts: Sequence[PairTerms], n: int) -> Paired:
    """Return the difference of two runs from the terms of their blocks."""
    terms = [part for pair in parts for part in (pair.first, pair.second)]
    contexts = np.flatnonzero(np.any([met for part in terms for met in part.met], axis=0))
    sides = [NumberTerms.joined([getattr(part, run) for part in parts], contexts) for run in ("first", "second")]
    first, second = sides
    # Each number rests on its own contexts: those of the other would only seem to add samples.
    met = [first.met[side] | second.met[side] for side in (0, 1)]
    apart = (
        second.violation[n].combined(1.0, first.violation[n], -1.0),
        second.completeness.combined(1.0, first.completeness, -1.0),
    )
    violation, completeness = (
        difference_interval(replace(terms, without=terms.without[:, of])) for terms, of in zip(apart, met, strict=True)
    )
    values = [(side.violation[n].value, side.completeness.value) for side in sides]
    between = _balanced_difference([(side.violation[n], side.completeness) for side in sides])
    return Paired(n, sum(part.profiles for part in parts), violation, completeness, values[0], values[1], between)


def common_entries(first: FlowArrays, second: FlowArrays) -> tuple[list[Entries], list[Entries]]:
    """Return the flows of two runs on common flows where both define a number: those that can violate, of each run, and
    those that completeness rests on, of each run."""
    both = (first, second)
    masks = [(data.can_violate, data.is_needed) for data in both]
    # An attribute that only one of the two exposes, or a context that only one defines, is in neither mean.
    exposed = np.asarray(masks[0][0].any(axis=2) & masks[1][0].any(axis=2))
    defined = np.asarray(masks[0][1].any(axis=1) & masks[1][1].any(axis=1))
    leaks = [d.entries(wrong & exposed[:, :, None]) for d, (wrong, _) in zip(both, masks, strict=True)]
    needed = [d.entries(right & defined[:, None, :]) for d, (_, right) in zip(both, masks, strict=True)]
    return leaks, needed


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
    """Return both runs on their common flows (`shared`), each flow read at as many samples as both have: pure."""
    one, two = aligned((first, second))
    return one, two


def aligned(every: Sequence[FlowArrays]) -> list[FlowArrays]:
    """Return runs on the flows that all share (`shared`), each flow read at as many samples as all have: pure."""
    parts = shared(every)
    if all(np.array_equal(parts[0].draws, other.draws) for other in parts[1:]):
        return parts
    fewest = np.minimum.reduce([part.draws for part in parts])
    return [replace(part, read_at=fewest) for part in parts]


def shared(every: Sequence[FlowArrays]) -> list[FlowArrays]:
    """Return runs on the profiles and contexts that all share, with no draw where another has none: pure.

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
    cut = [
        data.at(np.searchsorted(data.profiles, profiles), width, np.searchsorted(data.contexts, contexts))
        for data in every
    ]
    same = np.logical_and.reduce([data.names.attribute == cut[0].names.attribute for data in cut])
    # Judged in all: a flow that one run lost says nothing of a change.
    kept: Bools = np.logical_and.reduce([data.draws > 0 for data in cut])
    kept &= (same & (cut[0].names.attribute >= 0))[:, :, None]
    return [_only(data, kept) for data in cut]


def _alike(one: FlowArrays, two: FlowArrays) -> bool:
    """Return whether both judged the same flows."""
    return (
        one.profiles == two.profiles
        and one.contexts == two.contexts
        and np.array_equal(one.names.attribute, two.names.attribute)
        and np.array_equal(one.draws > 0, two.draws > 0)
    )


def changes(first: FlowArrays, second: FlowArrays) -> tuple[Tallied, dict[str, Ints]]:
    """Compare the inappropriate flows of two runs on common flows. Return how many each reveals, and those that
    changed: `profile`, `attribute` and `context` (record ids), counts of both sides, `newly` (1 or 0)."""
    mask = first.can_violate & second.can_violate
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
    """Return how many flows would newly leak, and how many would stop leaking, if both runs revealed each flow with the
    same probability. Arguments: [flows], counts of either run.

    Given that a flow is revealed in R of all its N_1 + N_2 samples, every choice of R of them is then as likely
    (Fisher's exact argument), so it newly leaks (never in the first run, R times in the second) with probability C(N_2,
    R) / C(N_1 + N_2, R), and stops with C(N_1, R) / C(N_1 + N_2, R). Flows that are never revealed change nothing. The
    expectation holds however the flows of one message hang together.
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
    """Return the chance that none of these samples, of so many in all, is one of those that reveal it."""
    return no_leak_probability(total, revealed, samples) if samples else 1.0


@dataclass(frozen=True)
class DomainTerms:
    """Terms of one domain of a block: the differences of violation and of completeness (`Terms.summed`), the contexts
    that each rests on, what both runs' parts of the samples rest on, attributes and necessary flows in both."""

    differences: tuple[Terms, Terms]
    met: tuple[Bools, Bools]
    sums: tuple[SampleSums, SampleSums]
    attributes: int
    necessary: int


def domain_terms(first: FlowArrays, second: FlowArrays, n: int) -> dict[str, DomainTerms]:
    """Return the terms of each domain, of one block of two runs on common flows."""
    names, result = first.names.domain, {}
    for name in sorted({str(name) for name in names[first.names.attribute >= 0]}):
        # Only reveals and draws are cut, not labels: what is retained does not depend on the domain.
        inside = (names == name)[:, :, None]
        one, two = _only(first, inside), _only(second, inside)
        pair = PairTerms.of(one, two, n)
        before, after = pair.first, pair.second
        apart = (
            after.violation[n].combined(1.0, before.violation[n], -1.0).summed(),
            after.completeness.combined(1.0, before.completeness, -1.0).summed(),
        )
        met = before.met[0] | after.met[0], before.met[1] | after.met[1]
        result[name] = DomainTerms(apart, met, (before.sums, after.sums), *defined_in_both(one, two))
    return result


def defined_in_both(first: FlowArrays, second: FlowArrays) -> tuple[int, int]:
    """Count the attributes with a flow that can violate in both runs, and the flows that completeness rests on in
    both."""
    # By the labels of both: the two may be held against different ones.
    leaking, needed = first.can_violate & second.can_violate, first.is_needed & second.is_needed
    return int(leaking.any(axis=2).sum()), int(needed.sum())


def domain_frame(blocks: Sequence[Mapping[str, DomainTerms]], n: int) -> pd.DataFrame:
    """Return the differences inside each domain, of two runs whose blocks these are: domain, `violation` and
    `completeness` with `_low`, `_high` and `_p` (Holm's adjusted p over all domains, so that one of nine is no finding
    by chance), and what they rest on (`attributes`, `necessary_flows`); nan where a domain has none."""
    rows, p = [], []
    for name in sorted({name for block in blocks for name in block}):
        parts = [block[name] for block in blocks if name in block]
        sums = [SampleSums.joined([part.sums[run] for part in parts]) for run in (0, 1)]
        # The variance of a difference is that of both runs.
        samples = [sum(each.of_violation(n) for each in sums), sum(each.of_completeness() for each in sums)]
        intervals = []
        for side in (0, 1):
            contexts = np.flatnonzero(np.any([part.met[side] for part in parts], axis=0))
            terms = Terms.joined([part.differences[side] for part in parts], contexts)
            intervals.append(difference_interval(terms.sampled([float(np.sum(samples[side])), 0.0])))
        violation, completeness = intervals
        rows.append(
            {
                "domain": name,
                **violation.columns("violation"),
                "violation_p": math.nan,
                "attributes": sum(part.attributes for part in parts),
                **completeness.columns("completeness"),
                "completeness_p": math.nan,
                "necessary_flows": sum(part.necessary for part in parts),
            }
        )
        p.append([violation.p, completeness.p])
    frame = pd.DataFrame(rows, columns=DOMAIN_COLUMNS)
    for side, measure in enumerate(("violation", "completeness")):
        frame[f"{measure}_p"] = holm([pair[side] for pair in p])
    return frame


DOMAIN_COLUMNS = ["domain", "violation", "violation_low", "violation_high", "violation_p", "attributes"]
DOMAIN_COLUMNS += ["completeness", "completeness_low", "completeness_high", "completeness_p", "necessary_flows"]


def _only(data: FlowArrays, kept: Bools) -> FlowArrays:
    planned = None if data.planned is None else np.where(kept, data.planned, 0)
    return replace(data, reveals=np.where(kept, data.reveals, 0), draws=np.where(kept, data.draws, 0), planned=planned)
