"""Numbers behind the headline of a run, added up over blocks of profiles (flows/processes.py).

Every headline number is a mean over profiles, and what a variance rests on is a sum over them. So a block leaves a few
numbers a profile, not its flows, and the blocks together give what all flows at once would: whole numbers are the same,
shares to rounding. A run that fits into memory is one block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cimemories.flows.arrays import Floats, FlowArrays, IdentifierRule, Ints, blocks, mean_or_nan
from cimemories.flows.flows import Flows, cached
from cimemories.flows.labels import AMBIGUOUS, TOO_FEW
from cimemories.flows.processes import each_block
from cimemories.flows.scope import Scope
from cimemories.metrics import completeness
from cimemories.metrics.violation import (
    LeakRate,
    by_outcome,
    exposures,
    exposures_by_context,
    missing,
    rate_over,
    supported_n,
)


@dataclass(frozen=True)
class Counted:
    """Numbers of some profiles from which the headline follows. violation, low, high: by n, [profiles]; low and high
    with every missing message silent, or revealing. complete: [profiles]. retained, discarded: contexts,
    [profiles]. conveying: contexts of profiles that completeness is a mean of. draws, reveals: of flows that can
    violate, by context. least: as in `violation.Missing`."""

    profiles: tuple[int, ...]
    contexts: tuple[int, ...]
    violation: Mapping[int, Floats]
    low: Mapping[int, Floats]
    high: Mapping[int, Floats]
    complete: Floats
    retained: Ints
    discarded: Ints
    conveying: int
    draws: Ints
    reveals: Ints
    ambiguous: tuple[int, int]
    flows: int
    attributes: int
    too_few: int
    unjudged: int
    least: int | None

    @property
    def leak_rate(self) -> LeakRate:
        return rate_over(self.draws, self.reveals)

    def bounds(self, n: int) -> tuple[float, float]:
        """Return the lowest and highest Violation@n of all planned messages, n of a flow capped at what was planned of
        it; nan where nothing inappropriate was planned."""
        return mean_or_nan(self.low[n]), mean_or_nan(self.high[n])

    def supported_n(self, samples: int) -> int | None:
        return supported_n(self.flows, self.least, samples)


def count_block(data: FlowArrays, samples: int) -> Counted:
    """Count the flows of one block: pure."""
    gaps, leaks, ns = missing(data), exposures(data), range(1, samples + 1)
    by_n = {n: leaks.by_profile(leaks.violation(n)) for n in ns}
    low = high = by_n
    if not gaps.nothing:
        low, high = (
            {n: exposed.by_profile(exposed.violation(n)) for n in ns}
            for exposed in map(by_outcome, (gaps.not_revealing, gaps.leaking))
        )
    draws, reveals = exposures_by_context(data.inappropriate)
    means = completeness.means_of(data.necessary)
    # No mask of draws: a pair without a flow is 0 of 0 and adds nothing to either sum.
    between = np.flatnonzero((data.labels == AMBIGUOUS) & data.retained[:, None, :])
    ambiguous = [int(values.reshape(-1)[between].sum(dtype=np.int64)) for values in (data.reveals, data.draws)]
    labelled = (data.labels >= AMBIGUOUS).any(axis=1) & (data.draws > 0).any(axis=1)
    return Counted(
        profiles=data.profiles,
        contexts=data.contexts,
        violation=by_n,
        low=low,
        high=high,
        complete=completeness.over_contexts(means),
        # Discarded: judged and labelled, but not with both a necessary and an inappropriate attribute.
        retained=data.judged.sum(axis=1),
        discarded=(labelled & ~data.judged).sum(axis=1),
        conveying=int((~np.isnan(means)).sum()),
        draws=draws,
        reveals=reveals,
        ambiguous=(ambiguous[0], ambiguous[1]),
        flows=leaks.flows,
        attributes=len(leaks.profile),
        too_few=int(np.count_nonzero(data.labels == TOO_FEW)),
        unjudged=gaps.unjudged,
        least=gaps.least,
    )


@cached
def counted_numbers(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> Counted:
    """Count the flows of a run, block by block."""
    return joined(list(each_block(flows, [scope], rule, _count_block)))


def _count_block(flows: Flows, scopes: Sequence[Scope], every: Sequence[FlowArrays]) -> Counted:
    return count_block(every[0], scopes[0].run.samples)


def joined(parts: Sequence[Counted]) -> Counted:
    """Join blocks of a run, in their order: pure."""
    first = parts[0]
    if len(parts) == 1:
        return first

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
        retained=np.concatenate([part.retained for part in parts]),
        discarded=np.concatenate([part.discarded for part in parts]),
        conveying=total("conveying"),
        draws=np.sum([part.draws for part in parts], axis=0),
        reveals=np.sum([part.reveals for part in parts], axis=0),
        ambiguous=(sum(part.ambiguous[0] for part in parts), sum(part.ambiguous[1] for part in parts)),
        flows=total("flows"),
        attributes=total("attributes"),
        too_few=total("too_few"),
        unjudged=total("unjudged"),
        least=min((part.least for part in parts if part.least is not None), default=None),
    )


@cached
def judged_digest(flows: Flows, scope: Scope) -> str:
    """Return a digest of the flows of a run that are judged; runs that judged the same flows have the same digest."""
    digest = hashlib.sha256()
    for data in blocks(flows, scope):
        digest.update(repr((data.profiles, data.contexts)).encode())
        digest.update(data.names.attribute.tobytes())
        digest.update(np.packbits(data.draws > 0).tobytes())
    return digest.hexdigest()
