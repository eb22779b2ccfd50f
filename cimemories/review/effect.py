"""The effect of people's decisions on a run: Violation@n and completeness under the consensus alone and under
decisions, and the decisions that moved them most."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cimemories.flows.arrays import (
    Bools,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    flow_arrays,
    mean_or_nan,
)
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, LABELS, NECESSARY, UNLABELLED, consensus_labels
from cimemories.flows.scope import Scope
from cimemories.labels.votes import describe_pairs
from cimemories.metrics import completeness, violation
from cimemories.metrics.violation import missing
from cimemories.metrics.warnings import reading_n
from cimemories.store import judgements

_DECIDED = """
SELECT profile, attribute, context, label, position FROM {pairs} WHERE decided
"""


@dataclass(frozen=True)
class Numbers:
    """Violation@n for every n that it can be read at, completeness and retained (profile, context) pairs of a run; nan
    where undefined."""

    violation: dict[int, float]
    completeness: float
    retained: int


@dataclass(frozen=True)
class DecisionEffect:
    """A run's numbers by two sets of labels. decided: pairs of the run with a standing decision; changed: how many of
    these differ from the consensus, the only ones that can move a number.

    moved: one row a changed pair, most effect first, with the columns attribute, context (ids), consensus, decision
    (names of labels, '' without a vote), violation and completeness: by how much the number (Violation@n, as the mean
    over profiles) is higher than if this pair had the label of the consensus, all other decisions kept; nan where it
    would be undefined then. These do not add up to the whole difference: decisions on one attribute share an effect,
    and one can bring a context back that another one then counts in.
    """

    consensus: Numbers
    decisions: Numbers
    n: int
    decided: int
    changed: int
    moved: pd.DataFrame


def decision_effect(
    flows: Flows, scope: Scope, n: int | None = None, rule: IdentifierRule = IdentifierRule.EXACT
) -> DecisionEffect:
    """Return the effect of the decisions on a run, cached until its inputs change. n: of the Violation@n that pairs are
    ordered by; None, or more than every flow supports under 99 % coverage by both sets of labels: as many as these do
    (`reading_n`). Raises ValueError for an n below 1."""
    return flows.cached(("decision effect", scope.version, n, rule), lambda: _effect(flows, scope, n, rule))


def moved_pairs(flows: Flows, scope: Scope, moved: pd.DataFrame) -> pd.DataFrame:
    """Add texts to rows of `DecisionEffect.moved`: profile (id), user, key, domain, statement, recipient, task."""
    with flows.store.read() as connection:
        return describe_pairs(connection, scope.run.dataset, moved)


def _effect(flows: Flows, scope: Scope, at_n: int | None, rule: IdentifierRule) -> DecisionEffect:
    data = flow_arrays(flows, scope, rule)
    frame = flows.query(scope, _DECIDED)
    frame["consensus"] = UNLABELLED
    if scope.labelling is not None and not frame.empty:
        labels = consensus_labels(flows.store, scope.labelling.id)[["attribute", "context", "label"]]
        of_pairs = frame[["attribute", "context"]].merge(labels, on=["attribute", "context"], how="left")["label"]
        frame["consensus"] = of_pairs.fillna(UNLABELLED).to_numpy(np.int64)
    # The arrays' profiles and contexts ascend, and every decided pair is among them.
    p = np.searchsorted(np.array(data.profiles, np.int64), frame["profile"].to_numpy(np.int64))
    c = np.searchsorted(np.array(data.contexts, np.int64), frame["context"].to_numpy(np.int64))
    a = frame["position"].to_numpy(np.int64)
    alone = data.labels.copy()
    # The same labels with every decision taken away.
    alone[p, a, c] = frame["consensus"].to_numpy(np.int64)
    differs = (frame["consensus"] != frame["label"]).to_numpy(np.bool_)
    changed = frame[differs]
    run = scope.run
    with flows.store.read() as connection:
        judged = judgements.judged_by_all(connection, run.id, scope.judge_ids)
    supported = (missing(replace(data, labels=labels)).supported_n(run.samples) for labels in (alone, data.labels))
    most = min(reading_n(judged, run.expected, run.samples, each) for each in supported)
    n = most if at_n is None else min(at_n, most)
    at = (p[differs], a[differs], c[differs])
    less_violation, less_completeness = without_each(data, at, changed["consensus"].to_numpy(np.int64), n)
    samples = range(1, most + 1)
    consensus, decided = (_numbers(data, labels, samples) for labels in (alone, data.labels))
    moved = pd.DataFrame(
        {
            "attribute": changed["attribute"].to_numpy(np.int64),
            "context": changed["context"].to_numpy(np.int64),
            "consensus": [str(LABELS.get(code, "")) for code in changed["consensus"]],
            "decision": [str(LABELS.get(code, "")) for code in changed["label"]],
            "violation": decided.violation[n] - less_violation,
            "completeness": decided.completeness - less_completeness,
        }
    )
    size = moved[["violation", "completeness"]].abs().fillna(np.inf)  # undefined without it: the largest effect
    # The last key of lexsort is the first to sort by.
    order = np.lexsort([-size["completeness"], -size["violation"]])
    return DecisionEffect(consensus, decided, n, len(frame), len(changed), moved.iloc[order].reset_index(drop=True))


def _numbers(data: FlowArrays, labels: Ints, samples: range) -> Numbers:
    return Numbers(
        {n: mean_or_nan(violation.by_profile(data.reveals, data.draws, labels, data.counted, n)) for n in samples},
        mean_or_nan(completeness.by_profile(data.reveals, data.draws, labels)),
        int(replace(data, labels=labels).judged.sum()),
    )


def without_each(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, n: int) -> tuple[Floats, Floats]:
    """Return Violation@n and completeness (means over profiles) if one pair alone had another label: [pairs], each.

    at: positions (profile, attribute, context) in the arrays, [pairs]; labels: the other label's code of each pair. A
    label that does not change whether its context is retained moves one attribute and one context only; all such pairs
    are computed at once. Otherwise the profile is computed again.
    """
    p, _, c = at
    violations = violation.by_profile(data.reveals, data.draws, data.labels, data.counted, n)
    completes = completeness.by_profile(data.reveals, data.draws, data.labels)
    retained = data.retained[p, c]
    # A context is retained while it has a necessary and an inappropriate attribute.
    has_both = np.ones(len(p), np.bool_)
    for code in (NECESSARY, INAPPROPRIATE):
        # Attributes with this label in the context, less the pair's own label, plus its other one.
        number = (data.labels == code).sum(axis=1)[p, c]
        has_both &= number - (data.labels[at] == code) + (labels == code) > 0
    turns = has_both != retained
    new_violation = _local_violation(data, at, labels, retained, n)
    new_completeness = _local_completeness(data, at, labels, retained)
    # A context that turns moves all its attributes, so the whole profile is computed.
    for i in np.flatnonzero(turns).tolist():
        one = slice(int(p[i]), int(p[i]) + 1)
        changed = data.labels[one].copy()
        changed[0, at[1][i], c[i]] = labels[i]
        reveals, draws = data.reveals[one], data.draws[one]
        new_violation[i] = violation.by_profile(reveals, draws, changed, data.counted[one], n)[0]
        new_completeness[i] = completeness.by_profile(reveals, draws, changed)[0]
    return _replaced(violations, p, new_violation), _replaced(completes, p, new_completeness)


def _local_violation(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, retained: Bools, n: int) -> Floats:
    """Return V@n of each pair's profile with the other label, its context retained as before: [pairs].

    V@n is the mean over exposed attributes of 1 - the product of no-leak probabilities over contexts; of that mean the
    term of the pair's attribute alone is replaced.
    """
    p, a, c = at
    mask = data.can_violate
    no_leak = np.where(mask, violation.no_leak_probabilities(data.reveals, data.draws, n), 1.0)
    exposed = np.asarray(mask.any(axis=2))
    terms = np.where(exposed, 1 - no_leak.prod(axis=2), 0.0)
    # The rows of the pairs' attributes, [pairs, contexts], with the pair itself under its other label.
    row_no_leak, row_mask = no_leak[p, a], mask[p, a]
    row = np.arange(len(p))
    # The other label makes the flow count, or not, by the same conditions as inappropriate_mask.
    row_mask[row, c] = retained & (labels == INAPPROPRIATE) & data.counted[p, a] & (data.draws[at] > 0)
    pair_no_leak = violation.no_leak_probabilities(data.reveals[at], data.draws[at], n)
    row_no_leak[row, c] = np.where(row_mask[row, c], pair_no_leak, 1.0)
    # With its other label the attribute may leave the mean, or enter it.
    still_exposed = np.asarray(row_mask.any(axis=1))
    total = terms.sum(axis=1)[p] - terms[p, a] + np.where(still_exposed, 1 - row_no_leak.prod(axis=1), 0.0)
    return _mean(total, exposed.sum(axis=1)[p] - exposed[p, a].astype(np.int64) + still_exposed)


def _local_completeness(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, retained: Bools) -> Floats:
    """Return C of each pair's profile with the other label, its context retained as before: [pairs].

    C is the mean over contexts of the mean reveal rate of their necessary attributes; of that mean the term of the
    pair's context alone is replaced.
    """
    p, _, c = at
    mask = data.is_needed
    rate = data.reveals / np.maximum(data.draws, 1)
    rates, number = np.where(mask, rate, 0.0).sum(axis=1), mask.sum(axis=1)
    terms = rates / np.maximum(number, 1)
    counts = retained & (labels == NECESSARY) & (data.draws[at] > 0)
    # The pair's own rate is taken out where it is in, and added where it then is.
    new_rates = rates[p, c] - np.where(mask[at], rate[at], 0.0) + np.where(counts, rate[at], 0.0)
    new_number = number[p, c] - mask[at] + counts
    new_term = np.where(new_number > 0, new_rates / np.maximum(new_number, 1), 0.0)
    defined = number > 0
    total = terms.sum(axis=1)[p] - terms[p, c] + new_term
    return _mean(total, defined.sum(axis=1)[p] - defined[p, c].astype(np.int64) + (new_number > 0))


def _mean(total: Floats, number: Ints) -> Floats:
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def _replaced(values: Floats, p: Ints, new: Floats) -> Floats:
    """Return the mean over the defined profiles with the value of one of them replaced: [pairs]."""
    defined = ~np.isnan(values)
    # A profile without a number adds 0 here, and is not counted below.
    total = np.nansum(values) - np.nan_to_num(values[p]) + np.nan_to_num(new)
    return _mean(total, int(defined.sum()) - defined[p].astype(np.int64) + ~np.isnan(new))
