"""The numbers of a run by profile, domain, event, sphere, context or attribute.

Each group is measured by the definitions of the whole, with the flows of the group alone: Violation@n is the mean over
profiles of the mean over the group's attributes, completeness the mean over profiles of the mean over contexts. Which
contexts are retained is decided by all labels, so that a group does not change what counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from cimemories.flows.arrays import (
    Entries,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    blocks,
)
from cimemories.flows.flows import Flows, cached
from cimemories.flows.scope import Scope
from cimemories.metrics import violation
from cimemories.metrics.places import By, places


@dataclass(frozen=True)
class GroupSums:
    """Sums over profiles from which the numbers of groups follow; those of blocks of profiles add up. violation,
    completeness: the means of profiles' own means, summed, and how many profiles they are of, [2, groups]; attributes:
    [groups]; counts: flows, reveals and draws of what violation, completeness and ambiguous exposure rest on, [3, 3,
    groups]; coverage: judged and planned draws, [2, groups]."""

    violation: Floats
    completeness: Floats
    attributes: Ints
    counts: Ints
    coverage: Ints

    def frame(self) -> pd.DataFrame:
        """Return `breakdown` of these sums, one row a group, without names."""
        flows, reveals, draws = self.counts.swapaxes(0, 1)
        rates = np.where(flows > 0, reveals / np.maximum(draws, 1), np.nan)
        judged, planned = self.coverage
        means = [np.where(n > 0, s / np.maximum(n, 1), np.nan) for s, n in (self.violation, self.completeness)]
        return pd.DataFrame(
            {
                "violation": means[0],
                "attributes": self.attributes,
                "leak_rate": rates[0],
                "inappropriate_flows": flows[0],
                "completeness": means[1],
                "necessary_flows": flows[1],
                "ambiguous_exposure": rates[2],
                "ambiguous_flows": flows[2],
                "coverage": np.where(planned > 0, judged / np.maximum(planned, 1), np.nan),
            }
        )


@cached
def breakdown(flows: Flows, scope: Scope, by: By, n: int, rule: IdentifierRule = IdentifierRule.EXACT) -> pd.DataFrame:
    """Return one row a group, by name: its Violation@n with the (profile, attribute) pairs behind it, per-exposure leak
    rate, completeness, ambiguous exposure, the flows that each rests on, and coverage (judged over planned draws of its
    flows). Shares are 0 to 1, nan where a group has no such flow."""
    parts = [group_sums(data, codes, number, n) for data, codes, number in grouped(flows, scope, by, rule)]
    fields = zip(*(vars(part).values() for part in parts), strict=True)
    groups = places(flows, scope, by).groups
    frame = GroupSums(*(together(by, field) for field in fields)).frame()
    frame.insert(0, "group", "")
    frame = frame.iloc[list(groups.values())].assign(group=list(groups)).reset_index(drop=True)
    # A group without a name is listed only if it has a flow.
    used = frame[["inappropriate_flows", "necessary_flows", "ambiguous_flows"]].sum(axis=1) > 0
    return frame[used | (frame["group"] != "")].reset_index(drop=True)


def grouped(flows: Flows, scope: Scope, by: By, rule: IdentifierRule) -> Iterator[tuple[FlowArrays, Ints, int]]:
    """Yield the blocks of a run, with the group of each flow and the number of groups. By profile, the groups are those
    of the block alone."""
    side = places(flows, scope, by)
    for data in blocks(flows, scope, rule):
        codes = side.codes_in(data)
        yield (data, codes - codes[:1], len(codes)) if by == By.PROFILE else (data, codes, len(side))


def together(by: By, parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Join the arrays of blocks, by group along the last axis: profiles are appended, other groups added up."""
    return np.concatenate(parts, axis=-1) if by == By.PROFILE else np.asarray(sum(parts[1:], parts[0]))


def group_sums(data: FlowArrays, codes: Ints, groups: int, n: int) -> GroupSums:
    """Return the sums of a block of profiles: pure. codes: the group of each flow, as Places.codes_in has them; groups:
    their number. Raises ValueError for n < 1."""
    every = data.inappropriate, data.necessary, data.entries(data.is_ambiguous)
    of = []
    for part in every:
        profile, attribute = np.divmod(part.owners, max(part.shape[1], 1))
        of.append(np.broadcast_to(codes, part.shape)[profile, attribute, part.contexts].astype(np.int64))
    counts = []
    for part, group in zip(every, of, strict=True):
        values = [np.ones(len(group)), part.each(part.kinds[:, 1]), part.each(part.kinds[:, 0])]
        counts.append([np.bincount(group, weights=weights, minlength=groups) for weights in values])
    violated, attributes = _violation(every[0], of[0], n, groups)
    return GroupSums(
        violated,
        _completeness(every[1], of[1], groups),
        attributes,
        np.array(counts).astype(np.int64),
        np.stack([_summed(values, codes, groups) for values in (data.draws, data.planned_draws)]),
    )


def _summed(values: Ints, codes: Ints, groups: int) -> Ints:
    """Sum values by group, [groups]. values: [profile, attribute, context]."""
    # First over the sides that groups do not depend on.
    total = values.sum(axis=tuple(np.flatnonzero(np.array(codes.shape) == 1)), keepdims=True, dtype=np.int64)
    total = np.broadcast_to(total, codes.shape).reshape(-1)
    group = codes.reshape(-1)
    return np.bincount(group[group >= 0], weights=total[group >= 0], minlength=groups).astype(np.int64)


def _violation(flows: Entries, group: Ints, n: int, groups: int) -> tuple[Floats, Ints]:
    """Return V@n of each group as `_over_profiles` has it, and the number of (profile, attribute) pairs behind it."""
    profiles, attributes, _ = flows.shape
    if not len(group):
        return np.zeros((2, groups)), np.zeros(groups, np.int64)
    q = violation.kind_no_leak(flows.kinds, n)[flows.outcomes]
    # Owners are smaller than the factor, so each (group, attribute) has a number of its own.
    key = group * (profiles * attributes + 1) + flows.owners
    order = np.argsort(key, kind="stable")
    # -1 before the first, so that it starts a group too.
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    # The product of q over the contexts of one attribute in one group.
    leaked = 1.0 - np.multiply.reduceat(q[order], starts)
    leaked_group, profile = group[order][starts], flows.owners[order][starts] // attributes
    return _over_profiles(leaked, leaked_group, profile, groups, profiles), np.bincount(leaked_group, minlength=groups)


def _completeness(flows: Entries, group: Ints, groups: int) -> Floats:
    profiles, attributes, contexts = flows.shape
    rate = (flows.kinds[:, 1] / flows.kinds[:, 0])[flows.outcomes]
    # A (group, profile, context) as one number; sorted by it, cells of a group's profile stand together.
    cell = (group * profiles + flows.owners // max(attributes, 1)) * max(contexts, 1) + flows.contexts
    pairs = np.bincount(cell, minlength=1)
    used = np.flatnonzero(pairs)
    means = np.bincount(cell, weights=rate, minlength=1)[used] / pairs[used]
    of = used // max(contexts, 1)
    return _over_profiles(means, of // max(profiles, 1), of % max(profiles, 1), groups, max(profiles, 1))


def _over_profiles(values: Floats, group: Ints, profile: Ints, groups: int, profiles: int) -> Floats:
    """Sum, over profiles, the mean over what each has in the group, and count those that have anything: [2, groups]."""
    cell = group.astype(np.int64) * profiles + profile
    total = np.bincount(cell, weights=values, minlength=groups * profiles).reshape(groups, profiles)
    number = np.bincount(cell, minlength=groups * profiles).reshape(groups, profiles)
    # 0 stands for a profile that has nothing in the group: it is left out by the divisor below.
    means = np.where(number > 0, total / np.maximum(number, 1), 0.0)
    return np.stack([means.sum(axis=1), (number > 0).sum(axis=1).astype(np.float64)])
