"""Runs on their common flows in blocks of profiles: what a comparison of runs that do not fit into memory rests on.

A block leaves each profile's terms, and sums; the blocks together give what both runs at once would (metrics/blocks.py
says why). Runs that fit into memory are one block, and take the way of intervals.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule, count, inappropriate_mask
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics.blocks import (
    BlockTerms,
    Counted,
    block_terms,
    count_block,
    each_block,
    found_in_blocks,
    joined,
    terms_of,
    together,
)
from cimemories.metrics.intervals import (
    Intervals,
    Paired,
    PairTerms,
    Tallied,
    changes,
    common,
    common_entries,
    defined_in_both,
    domain_frame,
    in_domains,
    intervals_by_terms,
    intervals_on,
    paired_by_terms,
    shared,
)
from cimemories.metrics.label_uncertainty import part_posterior
from cimemories.metrics.power import Noise, noise_of, noise_sums
from cimemories.metrics.uncertainty import (
    Interval,
    LeftOut,
    SampleSums,
    Terms,
    added,
    completeness_terms,
    contexts_of,
    difference_interval,
    sample_sums,
    violation_terms,
)
from cimemories.metrics.violation import by_outcome, missing

MOST_CHANGED = 10_000  # changed flows of each kind that are listed of runs too large for memory


@dataclass(frozen=True)
class PairPart:
    """The terms of one block over all contexts, without the samples' part, and what gives that of all blocks: the sums
    of (first, second)."""

    terms: PairTerms
    sums: tuple[SampleSums, SampleSums]


@dataclass(frozen=True)
class _Apart:
    """One domain of a block: the differences of violation and completeness (without their contexts, which would take
    more memory than all else: `left`), the contexts that each rests on, the sums of both runs, attributes and necessary
    flows."""

    terms: tuple[Terms, Terms]
    left: tuple[LeftOut, LeftOut]
    own: tuple[Bools, Bools]
    sums: tuple[SampleSums, SampleSums]
    attributes: int
    necessary: int


@dataclass(frozen=True)
class _Block:
    pair: PairPart
    domains: dict[str, _Apart]
    tallied: Tallied
    changed: pd.DataFrame
    noise: Floats
    necessary: int


@dataclass(frozen=True)
class PairedRuns:
    """What `difference` says of two runs: domains as intervals.by_domain has them, changed as intervals.changes, of
    each kind at most MOST_CHANGED, the most revealed; necessary: flows that completeness rests on in both."""

    paired: Paired
    tallied: Tallied
    changed: pd.DataFrame
    domains: pd.DataFrame
    noise: Noise
    necessary: int


def paired_in_blocks(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule, n: int) -> Paired:
    """intervals.paired_arrays of two runs of any size, on their common flows."""
    return paired_of(each_block(flows, [first, second], rule, _pair_of_block, n), n)


def compared_in_blocks(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule, n: int) -> PairedRuns:
    """Everything that is said of two runs of any size, on their common flows."""
    parts: list[_Block] = []
    changed = pd.DataFrame()
    for part in found_in_blocks(flows, [first, second], rule, _compared_block, n):
        # At once: of each block as many may be listed as of all together.
        changed = most_changed(pd.concat([changed, part.changed], ignore_index=True) if len(parts) else part.changed)
        parts.append(replace(part, changed=part.changed[:0]))
    names = sorted({name for part in parts for name in part.domains})
    return PairedRuns(
        paired_of([part.pair for part in parts], n),
        _tallied([part.tallied for part in parts]),
        changed,
        domain_frame(
            [_domain(name, [part.domains[name] for part in parts if name in part.domains], n) for name in names]
        ),
        noise_of(np.sum([part.noise for part in parts], axis=0)),
        sum(part.necessary for part in parts),
    )


def _pair_of_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int) -> PairPart:
    one, two = common(*every)
    return pair_of(one, two, n)


def _compared_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int) -> _Block:
    one, two = common(*every)
    tallied, changed = changes(one, two)
    domains = {}
    for name, before, after in in_domains(one, two):
        pair = pair_of(before, after, n)
        violation, completeness = (
            second.combined(1.0, first, -1.0) for first, second in (pair.terms.violation, pair.terms.completeness)
        )
        left = LeftOut.of(violation), LeftOut.of(completeness)
        bare = [replace(terms, without=terms.without[:, :0]) for terms in (violation, completeness)]
        domains[name] = _Apart((bare[0], bare[1]), left, pair.terms.own, pair.sums, *defined_in_both(before, after))
    necessary = defined_in_both(one, two)[1]
    return _Block(
        pair_of(one, two, n), domains, tallied, most_changed(pd.DataFrame(changed)), noise_sums(one, two, n), necessary
    )


def pair_of(one: FlowArrays, two: FlowArrays, n: int) -> PairPart:
    leaks, needed = common_entries(one, two)
    every = np.arange(len(one.contexts))
    # The samples' part of a block alone would be another one: `sums` give it of all.
    violation = [violation_terms(part, n, every, sampled=False) for part in leaks]
    completeness = [completeness_terms(part, every) for part in needed]
    own = np.isin(every, contexts_of(*leaks)), np.isin(every, contexts_of(*needed))
    first, second = (sample_sums(by_outcome(wrong), right) for wrong, right in zip(leaks, needed, strict=True))
    terms = PairTerms(len(one.profiles), (violation[0], violation[1]), (completeness[0], completeness[1]), own)
    return PairPart(terms, (first, second))


def paired_of(parts: Sequence[PairPart], n: int) -> Paired:
    own = [np.any([part.terms.own[side] for part in parts], axis=0) for side in (0, 1)]
    every = np.flatnonzero(own[0] | own[1])
    sums = [added([part.sums[run] for part in parts]) for run in (0, 1)]
    violation = [
        together([part.terms.violation[run] for part in parts], every, sums[run].of_violation(n)) for run in (0, 1)
    ]
    completeness = [
        together([part.terms.completeness[run] for part in parts], every, sums[run].of_completeness()) for run in (0, 1)
    ]
    return paired_by_terms(
        PairTerms(
            sum(part.terms.profiles for part in parts),
            (violation[0], violation[1]),
            (completeness[0], completeness[1]),
            (own[0][every], own[1][every]),
        ),
        n,
    )


def _domain(name: str, parts: Sequence[_Apart], n: int) -> tuple[str, Interval, Interval, int, int]:
    sums = [added([part.sums[run] for part in parts]) for run in (0, 1)]
    # The variance of a difference is that of both runs.
    samples = sum(each.of_violation(n) for each in sums), sum(each.of_completeness() for each in sums)
    intervals = []
    for side in (0, 1):
        own = np.any([part.own[side] for part in parts], axis=0)
        apart = together([part.terms[side] for part in parts], np.arange(0), samples[side])
        left = reduce(LeftOut.plus, [part.left[side] for part in parts]).at(own)
        intervals.append(difference_interval(apart, left=left))
    attributes, necessary = sum(part.attributes for part in parts), sum(part.necessary for part in parts)
    return name, intervals[0], intervals[1], attributes, necessary


def _tallied(parts: Sequence[Tallied]) -> Tallied:
    return Tallied(*(sum(getattr(part, field.name) for part in parts) for field in fields(Tallied)))


def most_changed(changed: pd.DataFrame) -> pd.DataFrame:
    """Of each kind the most revealed, at most MOST_CHANGED; what ties as `difference` lists it."""
    if len(changed) <= MOST_CHANGED:
        return changed
    most = np.maximum(
        changed["first_reveals"] / changed["first_draws"], changed["second_reveals"] / changed["second_draws"]
    )
    order = ["most", "profile", "context", "attribute"]
    ranked = changed.assign(most=most).sort_values(order, ascending=[False, True, True, True])
    return ranked.groupby("newly", sort=False).head(MOST_CHANGED).drop(columns="most").reset_index(drop=True)


# ---- many runs


def left_of_each(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays]) -> list[Bools]:
    """Whether each run has something inappropriate, and something judged, in what all of them judged: [runs, 2]."""
    return [
        np.array([inappropriate_mask(d.draws, d.labels, d.counted).any(), (d.draws > 0).any()]) for d in shared(every)
    ]


@dataclass(frozen=True)
class RunPart:
    """The numbers of a part of a run: intervals, and what they are made of."""

    bounds: Intervals
    counted: Counted


def part_of_run(flows: Flows, scope: Scope, data: FlowArrays, n: int) -> RunPart:
    """Of a run that fits into memory. data: the part (`shared`)."""
    return RunPart(intervals_on(flows, scope, data, (n,)), _counted(scope, data))


def parts_in_blocks(flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule, n: int) -> list[RunPart]:
    """What all these runs judged, of each, counted in blocks of profiles."""
    found = each_block(flows, scopes, rule, _terms_of_parts, (n,))
    return [
        RunPart(
            intervals_by_terms(*terms_of([terms for terms, _ in of_run], (n,))),
            joined([counted for _, counted in of_run]),
        )
        for of_run in zip(*found, strict=True)
    ]


def _terms_of_parts(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], ns: tuple[int, ...]
) -> list[tuple[BlockTerms, Counted]]:
    """Of each run."""
    return [
        (block_terms(part, part_posterior(flows, scope, part), ns), _counted(scope, part))
        for scope, part in zip(scopes, shared(every), strict=True)
    ]


def _counted(scope: Scope, data: FlowArrays) -> Counted:
    counted = count(data)
    return count_block(data, counted, missing(data, counted.inappropriate), scope.run.samples)
