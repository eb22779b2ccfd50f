"""Constant strategies to compare a run with, and the attributes that another identifier rule leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cimemories.flows.arrays import (
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    blocks,
    is_identifier,
    mean_or_nan,
)
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope
from cimemories.metrics import completeness, violation


@dataclass(frozen=True)
class Baseline:
    """Scores of a strategy that ignores the context, on the flows of a run. Shares are 0 to 1, nan where the run
    defines none."""

    name: str
    violation: float
    completeness: float

    @property
    def balanced(self) -> float:
        return violation.balanced(self.violation, self.completeness)


def run_baselines(flows: Flows, scope: Scope, rule: IdentifierRule = IdentifierRule.EXACT) -> tuple[Baseline, ...]:
    """Score three constant strategies on the judged flows of a run: share everything, nothing, or the biography alone.

    The first two are 1 and 0 by definition wherever anything is defined. The third depends on the labels: a name can be
    necessary, and under another identifier rule than `exact` a biographical attribute can also be a violation.
    """
    return baselines(blocks(flows, scope, rule))


def baselines(every: Iterable[FlowArrays]) -> tuple[Baseline, ...]:
    """Return `run_baselines` of arrays, block by block: pure."""
    parts = [_constant_strategies(data) for data in every]
    return tuple(
        Baseline(name, *(mean_or_nan(np.concatenate([part[name][side] for part in parts])) for side in (0, 1)))
        for name in parts[0]
    )


def _constant_strategies(data: FlowArrays) -> dict[str, tuple[Floats, Floats]]:
    """Return violation and completeness of each strategy, [profiles]."""
    # A view of the whole shape, without a copy for each context.
    bio = np.broadcast_to(data.names.bio[:, :, None], data.draws.shape)
    strategies: dict[str, Ints] = {
        "share everything": data.draws,
        "share nothing": np.zeros_like(data.draws),
        "biography alone": np.where(bio, data.draws, 0),
    }
    result = {}
    for name, reveals in strategies.items():
        written = replace(data, reveals=reveals)
        # n = 1: r is 0 or N in every flow, so every n gives the same.
        leaks = violation.exposures(written)
        conveyed = completeness.over_contexts(completeness.means_of(written.necessary))
        result[name] = leaks.by_profile(leaks.violation(1)), conveyed
    return result


def run_dropped(flows: Flows, scope: Scope, rule: IdentifierRule, other: IdentifierRule) -> list[str]:
    """Return keys of attributes beyond the biography that another rule never counts, though they could violate: sorted,
    each once. They say what the substring rule leaves out of a run; empty for the exact rule."""
    return dropped(blocks(flows, scope, rule), other)


def dropped(every: Iterable[FlowArrays], rule: IdentifierRule) -> list[str]:
    """Return `run_dropped` of arrays, block by block: pure."""
    lost: set[str] = set()
    for data in every:
        # Not data.counted: that has the rule in force applied already.
        could = replace(data, counted=~data.names.bio & (data.names.attribute >= 0)).can_violate.any(axis=2)
        keys = data.names.key[could]
        lost.update(map(str, keys[is_identifier(keys, np.zeros(len(keys), np.bool_), rule)]))
    return sorted(lost)
