"""Numbers of a run that are counted in blocks of profiles (arrays.blocks): what a block gives, and how blocks add up.

Every headline number is a mean over profiles, and what a variance rests on is a sum over them. So a block leaves a few
numbers a profile, not its flows, and the blocks together give what all flows at once would: whole numbers are the same,
shares to rounding. A run that fits into memory is one block.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from cimemories.flows.arrays import (
    Bools,
    CountedFlows,
    Entries,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    blocks,
    count,
    counted_blocks,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import TOO_FEW
from cimemories.flows.processes import Task, answers
from cimemories.flows.scope import Scope
from cimemories.metrics import completeness
from cimemories.metrics.label_uncertainty import LabelSums, Posterior, label_sums, part_posterior
from cimemories.metrics.uncertainty import (
    SampleSums,
    Terms,
    added,
    completeness_terms,
    contexts_of,
    sample_sums,
    violation_terms_each,
)
from cimemories.metrics.violation import (
    LeakRate,
    Missing,
    by_outcome,
    exposures_by_context,
    missing,
    missing_flows,
    rate_over,
)

T = TypeVar("T")
P = ParamSpec("P")


def each_block(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule,
    ask: Callable[Concatenate[Flows, Sequence[Scope], Sequence[FlowArrays], P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> list[T]:
    """What `ask` says of each block of the same profiles of these runs, in their order, by several processes where
    there are many; those that some run lacks may be among them. One block where all runs fit into memory. ask: a
    function of a module."""
    return list(found_in_blocks(flows, scopes, rule, ask, *args, **kwargs))


def found_in_blocks(
    flows: Flows,
    scopes: Sequence[Scope],
    rule: IdentifierRule,
    ask: Callable[Concatenate[Flows, Sequence[Scope], Sequence[FlowArrays], P], T],
    *args: P.args,
    **kwargs: P.kwargs,
) -> Iterator[T]:
    """`each_block` one after the other."""
    any_block = False
    if any(map(flows.is_large, scopes)):
        for there, answer in answers(flows, Task.of(flows, scopes, rule, ask, args, kwargs)):
            if there:
                any_block = True
                yield answer
    if not any_block:
        # Of runs without a profile in common any will do: what has none says so.
        every = [next(blocks(flows, scope, rule)) for scope in scopes]
        yield ask(flows, scopes, every, *args, **kwargs)


# ---- the headline


@dataclass(frozen=True)
class Counted:
    """What the headline of these profiles is made of. violation, low, high: by n, [profiles]; low and high with every
    missing message silent, or revealing. complete: [profiles]. kept, lost: retained and discarded contexts, [profiles].
    conveying: contexts of profiles that completeness is a mean of. draws, reveals: of flows that can violate, by
    context. least: as in `violation.Missing`."""

    profiles: tuple[int, ...]
    contexts: tuple[int, ...]
    violation: Mapping[int, Floats]
    low: Mapping[int, Floats]
    high: Mapping[int, Floats]
    complete: Floats
    kept: Ints
    lost: Ints
    conveying: int
    draws: Ints
    reveals: Ints
    ambiguous: tuple[int, int]
    flows: int
    attributes: int
    too_few: int
    unjudged: int
    least: int | None
    nothing_missing: bool

    @property
    def leak_rate(self) -> LeakRate:
        return rate_over(self.draws, self.reveals)

    def supported_n(self, samples: int) -> int | None:
        """As `violation.Missing` has it."""
        if not self.flows:
            return None
        return samples if self.least is None else min(self.least, samples)


def count_block(data: FlowArrays, counted: CountedFlows, gaps: Missing, samples: int) -> Counted:
    """What one block gives: pure."""
    leaks, ns = by_outcome(counted.inappropriate), range(1, samples + 1)
    by_n = {n: leaks.by_profile(leaks.violation(n)) for n in ns}
    low = high = by_n
    if not gaps.nothing:
        low, high = (
            {n: exposed.by_profile(exposed.violation(n)) for n in ns}
            for exposed in map(by_outcome, (gaps.not_revealing, gaps.leaking))
        )
    draws, reveals = exposures_by_context(counted.inappropriate)
    means = completeness.means_of(counted.necessary)
    return Counted(
        profiles=data.profiles,
        contexts=data.contexts,
        violation=by_n,
        low=low,
        high=high,
        complete=completeness.over_contexts(means),
        # Discarded: judged and labelled, but not with both a necessary and an inappropriate attribute.
        kept=counted.kept.sum(axis=1),
        lost=(counted.labelled & ~counted.kept).sum(axis=1),
        conveying=int((~np.isnan(means)).sum()),
        draws=draws,
        reveals=reveals,
        ambiguous=counted.ambiguous,
        flows=leaks.flows,
        attributes=len(leaks.profile),
        too_few=int(np.count_nonzero(data.labels == TOO_FEW)),
        unjudged=gaps.unjudged,
        least=gaps.least,
        nothing_missing=gaps.nothing,
    )


@cached
def counted_numbers(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Counted:
    """What the headline of a run is made of."""
    if not flows.is_large(scope):
        (one,) = counted_blocks(flows, scope, rule)
        return count_block(*one, missing_flows(flows, scope, rule), scope.run.samples)
    return joined(each_block(flows, [scope], rule, _count_block))


def _count_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays]) -> Counted:
    counted = count(every[0])
    return count_block(every[0], counted, missing(every[0], counted.inappropriate), scopes[0].run.samples)


def joined(parts: Sequence[Counted]) -> Counted:
    """Blocks of a run, in their order, as one: pure."""
    first = parts[0]

    def by_n(name: str) -> dict[int, Floats]:
        return {n: np.concatenate([getattr(part, name)[n] for part in parts]) for n in first.violation}

    def total(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    return Counted(
        profiles=tuple(profile for part in parts for profile in part.profiles),
        contexts=first.contexts,
        violation=by_n("violation"),
        low=by_n("low"),
        high=by_n("high"),
        complete=np.concatenate([part.complete for part in parts]),
        kept=np.concatenate([part.kept for part in parts]),
        lost=np.concatenate([part.lost for part in parts]),
        conveying=total("conveying"),
        draws=np.sum([part.draws for part in parts], axis=0),
        reveals=np.sum([part.reveals for part in parts], axis=0),
        ambiguous=(sum(part.ambiguous[0] for part in parts), sum(part.ambiguous[1] for part in parts)),
        flows=total("flows"),
        attributes=total("attributes"),
        too_few=total("too_few"),
        unjudged=total("unjudged"),
        least=min((part.least for part in parts if part.least is not None), default=None),
        nothing_missing=all(part.nothing_missing for part in parts),
    )


def supported_n(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> int | None:
    """`violation.Missing.supported_n` of a run of any size."""
    if flows.is_large(scope):
        return counted_numbers(flows, scope, rule).supported_n(scope.run.samples)
    return missing_flows(flows, scope, rule).supported_n(scope.run.samples)


@cached
def judged_digest(flows: Flows, scope: Scope) -> str:
    """Names the flows of a run that are judged: two runs with the same digest judged the same flows."""
    digest = hashlib.sha256()
    for data in blocks(flows, scope):
        digest.update(repr((data.profiles, data.contexts)).encode())
        digest.update(data.names.attribute.tobytes())
        digest.update(np.packbits(data.draws > 0).tobytes())
    return digest.hexdigest()


# ---- what intervals are made of


@dataclass(frozen=True)
class BlockTerms:
    """The terms of one block over all contexts (`sampled` apart), and the contexts that they rest on: [contexts]."""

    violation: Mapping[int, Terms]
    conveyed: Terms
    ends: tuple[Mapping[int, Terms], ...]
    used: Bools
    planned: Bools
    sums: tuple[SampleSums, ...]
    labels: LabelSums


def terms(
    flows: Flows, scope: Scope, rule: IdentifierRule, ns: tuple[int, ...]
) -> tuple[dict[int, Terms], Terms, tuple[dict[int, Terms], ...], dict[int, float], float]:
    """The terms of a run in blocks: of Violation@n by n, of completeness, of the ends that missing messages leave (none
    where nothing is missing), and the variances that labels leave open, by n and of completeness."""
    return terms_of(each_block(flows, [scope], rule, _terms_of_block, ns), ns)


def terms_of(
    parts: Sequence[BlockTerms], ns: Sequence[int]
) -> tuple[dict[int, Terms], Terms, tuple[dict[int, Terms], ...], dict[int, float], float]:
    """The same of blocks that are counted already."""
    used = np.flatnonzero(np.any([part.used for part in parts], axis=0))
    sums = [added([part.sums[min(side, len(part.sums) - 1)] for part in parts]) for side in range(3)]
    conveyed = together([part.conveyed for part in parts], used, sums[0].of_completeness())
    exposed = {n: together([part.violation[n] for part in parts], used, sums[0].of_violation(n)) for n in ns}
    ends: tuple[dict[int, Terms], ...] = ()
    if any(part.ends for part in parts):
        planned = np.flatnonzero(np.any([part.used | part.planned for part in parts], axis=0))
        ends = tuple(
            {
                # Where a block lost nothing, both ends are what was judged.
                n: together(
                    [(part.ends[side] if part.ends else part.violation)[n] for part in parts],
                    planned,
                    sums[1 + side].of_violation(n),
                )
                for n in ns
            }
            for side in (0, 1)
        )
    labels = reduce(LabelSums.plus, [part.labels for part in parts])
    by_n, needed = labels.variances(ns)
    return exposed, conveyed, ends, {n: max(value, 0.0) for n, value in by_n.items()}, max(needed, 0.0)


def _terms_of_block(
    flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays], ns: tuple[int, ...]
) -> BlockTerms:
    return block_terms(every[0], part_posterior(flows, scopes[0], every[0]), ns)


def block_terms(data: FlowArrays, believed: Posterior, ns: tuple[int, ...]) -> BlockTerms:
    """The terms of one block. believed: of the labels of its pairs."""
    counted = count(data)
    leaks, needed = counted.inappropriate, counted.necessary
    gaps = missing(data, leaks)
    every = np.arange(len(data.contexts))
    ends = () if gaps.nothing else (gaps.not_revealing, gaps.leaking)

    def rests_on(*parts: Entries) -> Bools:
        return np.isin(every, contexts_of(*parts))

    return BlockTerms(
        violation=violation_terms_each(leaks, ns, every, sampled=False),
        conveyed=completeness_terms(needed, every),
        ends=tuple(violation_terms_each(end, ns, every, sampled=False) for end in ends),
        used=rests_on(leaks, needed),
        planned=rests_on(gaps.not_revealing),
        sums=tuple(sample_sums(by_outcome(end), needed) for end in (leaks, *ends)),
        labels=label_sums(data, believed, ns),
    )


def together(parts: Sequence[Terms], contexts: Ints, samples: float) -> Terms:
    """The terms of all blocks, over these contexts. samples: the sum of the samples' variances, which is all that a
    variance asks of them: it is spread evenly over the profiles that have a number."""
    own = np.concatenate([part.own for part in parts])
    users = int((~np.isnan(own)).sum())
    return replace(
        parts[0],
        own=own,
        without=np.concatenate([part.without[:, contexts] for part in parts]),
        inside=np.concatenate([part.inside for part in parts]),
        samples=np.where(np.isnan(own), 0.0, samples / users if users else math.nan),
        units=np.concatenate([part.units for part in parts]),
    )
