"""Runs on their common flows, in blocks of profiles.

A block leaves each profile's terms, and sums; the blocks together give what both runs at once would (metrics/blocks.py
says why).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.flows.arrays import Bools, Floats, FlowArrays, IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.processes import added, each_block
from cimemories.flows.scope import Scope
from cimemories.metrics.blocks import Counted, count_block, joined
from cimemories.metrics.intervals import (
    BlockTerms,
    DomainTerms,
    Intervals,
    Paired,
    PairTerms,
    Tallied,
    block_terms,
    changes,
    common,
    defined_in_both,
    domain_frame,
    domain_terms,
    intervals_of_blocks,
    paired_of,
    shared,
)
from cimemories.metrics.label_uncertainty import posterior
from cimemories.metrics.power import Noise, noise_of, noise_sums

MOST_CHANGED = 10_000  # changed flows of each kind that are listed of runs too large for memory


@dataclass(frozen=True)
class _Block:
    pair: PairTerms
    domains: dict[str, DomainTerms]
    tallied: Tallied
    changed: pd.DataFrame
    noise: Floats
    necessary: int


@dataclass(frozen=True)
class PairedRuns:
    """Results for `difference` of two runs. domains: as intervals.domain_frame has them; changed: as intervals.changes,
    of each kind of several blocks at most MOST_CHANGED, the most revealed; necessary: flows that completeness rests on
    in both."""

    paired: Paired
    tallied: Tallied
    changed: pd.DataFrame
    domains: pd.DataFrame
    noise: Noise
    necessary: int


def paired_runs(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule, n: int) -> Paired:
    """Return intervals.paired_arrays of two runs, on their common flows."""
    return paired_of(list(each_block(flows, [first, second], rule, _pair_of_block, n)), n)


def compared_runs(flows: Flows, first: Scope, second: Scope, rule: IdentifierRule, n: int) -> PairedRuns:
    """Compare two runs on their common flows."""
    parts: list[_Block] = []
    changed = pd.DataFrame()
    for part in each_block(flows, [first, second], rule, _compared_block, n):
        # Cut at every block, since each may list as many as all together.
        changed = most_changed(pd.concat([changed, part.changed], ignore_index=True)) if parts else part.changed
        parts.append(replace(part, changed=part.changed[:0]))
    return PairedRuns(
        paired_of([part.pair for part in parts], n),
        added([part.tallied for part in parts]),
        changed,
        domain_frame([part.domains for part in parts], n),
        noise_of(np.sum([part.noise for part in parts], axis=0)),
        sum(part.necessary for part in parts),
    )


def _pair_of_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int) -> PairTerms:
    return PairTerms.of(*common(*every), n)


def _compared_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], n: int) -> _Block:
    one, two = common(*every)
    tallied, changed = changes(one, two)
    return _Block(
        PairTerms.of(one, two, n),
        domain_terms(one, two, n),
        tallied,
        pd.DataFrame(changed),
        noise_sums(one, two, n),
        defined_in_both(one, two)[1],
    )


def most_changed(changed: pd.DataFrame) -> pd.DataFrame:
    """Return the most revealed of each kind, at most MOST_CHANGED; ties in the order of `difference`."""
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
    """Return whether each run has something inappropriate, and something judged, in what all judged: [runs, 2]."""
    return [np.array([data.can_violate.any(), (data.draws > 0).any()]) for data in shared(every)]


def common_parts(
    flows: Flows, scopes: Sequence[Scope], rule: IdentifierRule, n: int
) -> list[tuple[Intervals, Counted]]:
    """Return intervals and counts of each of these runs, on what all of them judged."""
    parts = each_block(flows, scopes, rule, _terms_of_parts, (n,))
    return [
        (intervals_of_blocks([terms for terms, _ in of_run]), joined([counted for _, counted in of_run]))
        for of_run in zip(*parts, strict=True)
    ]


def _terms_of_parts(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], ns: tuple[int, ...]
) -> list[tuple[BlockTerms, Counted]]:
    return [
        (block_terms(part, posterior(flows, scope, part), ns), count_block(part, scope.run.samples))
        for scope, part in zip(scopes, shared(every), strict=True)
    ]
