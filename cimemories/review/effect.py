"""What people's decisions do to a run's numbers: Violation@n and completeness under the consensus alone and under
decisions, and the decisions that moved them most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cimemories.curation.consensus import INAPPROPRIATE, LABELS, NECESSARY, UNLABELLED
from cimemories.flows import arrays
from cimemories.flows.arrays import (
    Bools,
    Floats,
    FlowArrays,
    IdentifierRule,
    Ints,
    flow_arrays,
    mean_or_nan,
    retained,
    retained_and_judged,
)
from cimemories.flows.flows import Flows
from cimemories.flows.labels import consensus_labels
from cimemories.flows.scope import Scope
from cimemories.labels.votes import pair_words
from cimemories.metrics import completeness, violation

COLUMNS = ("attribute", "context", "consensus", "decision", "violation", "completeness")

_DECIDED = """
SELECT profile, attribute, context, label, position FROM {pairs} WHERE decided
"""


@dataclass(frozen=True)
class Numbers:
    """Violation@n for n = 1..N, completeness and retained (profile, context) pairs of a run; nan where undefined."""

    violation: dict[int, float]
    completeness: float
    retained: int


@dataclass(frozen=True)
class DecisionEffect:
    """A run's numbers by two sets of labels. decided: pairs of the run with a standing decision; changed: of these,
    how many say something else than the consensus, the only ones that can move a number.

    moved: one row a changed pair, most effect first, with the columns attribute, context (ids), consensus, decision
    (labels in words, '' where nobody voted), violation and completeness: by how much the number (Violation@n, as the
    mean over profiles) is higher than if this pair had the label of the consensus, all other decisions kept; nan where
    it would be undefined then. These do not add up to the whole difference: decisions on one attribute share what they
    do, and one can bring a context back that another one then counts in.
    """

    consensus: Numbers
    decisions: Numbers
    n: int
    decided: int
    changed: int
    moved: pd.DataFrame


def decision_effect(
    flows: Flows, asked: Scope, n: int | None = None, rule: IdentifierRule = IdentifierRule.EXACT
) -> DecisionEffect:
    """What the decisions do to a run, remembered as long as nothing behind it moves. n: of the Violation@n that pairs
    are ordered by; all samples of the run where None. Raises ValueError for an n below 1."""
    wanted = asked.run.samples if n is None else min(n, asked.run.samples)
    return flows.cached(("decision effect", asked.version, wanted, rule), lambda: _effect(flows, asked, wanted, rule))


def words(flows: Flows, asked: Scope, moved: pd.DataFrame) -> pd.DataFrame:
    """These rows of `DecisionEffect.moved` with what a person reads: profile (id), user, key, domain, statement,
    recipient, task."""
    with flows.store.read() as connection:
        return pair_words(connection, asked.run.dataset, moved)


def _effect(flows: Flows, asked: Scope, n: int, rule: IdentifierRule) -> DecisionEffect:
    data = flow_arrays(flows, asked, rule)
    frame = flows.query(asked, _DECIDED)
    frame["consensus"] = _consensus(flows, asked, frame)
    p = np.searchsorted(np.array(data.profiles, np.int64), frame["profile"].to_numpy(np.int64))
    c = np.searchsorted(np.array(data.contexts, np.int64), frame["context"].to_numpy(np.int64))
    a = frame["position"].to_numpy(np.int64)
    alone = data.labels.copy()
    alone[p, a, c] = frame["consensus"].to_numpy(np.int64)
    differs = (frame["consensus"] != frame["label"]).to_numpy(np.bool_)
    changed = frame[differs]
    at = (p[differs], a[differs], c[differs])
    less_violation, less_completeness = without_each(data, at, changed["consensus"].to_numpy(np.int64), n)
    samples = range(1, asked.run.samples + 1)
    consensus, decided = (_numbers(data, labels, samples) for labels in (alone, data.labels))
    moved = pd.DataFrame(
        {
            "attribute": changed["attribute"].to_numpy(np.int64),
            "context": changed["context"].to_numpy(np.int64),
            "consensus": [_word(code) for code in changed["consensus"]],
            "decision": [_word(code) for code in changed["label"]],
            "violation": decided.violation[n] - less_violation,
            "completeness": decided.completeness - less_completeness,
        },
        columns=list(COLUMNS),
    )
    size = moved[["violation", "completeness"]].abs().fillna(np.inf)  # undefined without it: the largest effect
    order = np.lexsort([-size["completeness"], -size["violation"]])
    return DecisionEffect(consensus, decided, n, len(frame), len(changed), moved.iloc[order].reset_index(drop=True))


def _word(code: int) -> str:
    return "" if code == UNLABELLED else str(LABELS[int(code)])


def _consensus(flows: Flows, asked: Scope, frame: pd.DataFrame) -> Ints:
    """The consensus of these pairs, UNLABELLED where nobody voted."""
    if asked.labelling is None or frame.empty:
        return np.full(len(frame), UNLABELLED, np.int64)
    labels = consensus_labels(flows.store, asked.labelling.id)[["attribute", "context", "label"]]
    found = frame[["attribute", "context"]].merge(labels, on=["attribute", "context"], how="left")["label"]
    return found.fillna(UNLABELLED).to_numpy(np.int64)


def _numbers(data: FlowArrays, labels: Ints, samples: range) -> Numbers:
    return Numbers(
        {n: mean_or_nan(violation.by_profile(data.reveals, data.draws, labels, data.counted, n)) for n in samples},
        mean_or_nan(completeness.by_profile(data.reveals, data.draws, labels)),
        int(retained_and_judged(labels, data.draws).sum()),
    )


def without_each(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, n: int) -> tuple[Floats, Floats]:
    """Violation@n and completeness (means over profiles) where one pair alone has another label: [pairs], each.

    at: positions (profile, attribute, context) in the arrays, [pairs]; labels: the other label's code of each pair. A
    label that leaves its context retained, or not, as it was moves one attribute and one context only, which is worked
    out for all such pairs at once; where it turns, the profile is computed anew.
    """
    p, _, c = at
    violations = violation.by_profile(data.reveals, data.draws, data.labels, data.counted, n)
    completes = completeness.by_profile(data.reveals, data.draws, data.labels)
    turns = _turns(data.labels, at, labels)
    kept = retained(data.labels)[p, c]
    new_violation = _local_violation(data, at, labels, kept, n)
    new_completeness = _local_completeness(data, at, labels, kept)
    for i in np.flatnonzero(turns).tolist():
        own = slice(int(p[i]), int(p[i]) + 1)
        changed = data.labels[own].copy()
        changed[0, at[1][i], c[i]] = labels[i]
        reveals, draws = data.reveals[own], data.draws[own]
        new_violation[i] = violation.by_profile(reveals, draws, changed, data.counted[own], n)[0]
        new_completeness[i] = completeness.by_profile(reveals, draws, changed)[0]
    return _replaced(violations, p, new_violation), _replaced(completes, p, new_completeness)


def _turns(current: Ints, at: tuple[Ints, Ints, Ints], labels: Ints) -> Bools:
    """Where the other label makes a context retained that was not, or the other way round: [pairs]."""
    p, _, c = at
    before = current[at]
    after = []
    for code in (NECESSARY, INAPPROPRIATE):
        number = (current == code).sum(axis=1)[p, c]
        after.append(number - (before == code) + (labels == code) > 0)
    turns: Bools = (after[0] & after[1]) != retained(current)[p, c]
    return turns


def _local_violation(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, kept: Bools, n: int) -> Floats:
    """V@n of each pair's profile with the other label, its context retained as it was: [pairs]."""
    p, a, c = at
    mask = arrays.inappropriate_mask(data.draws, data.labels, data.counted)
    silent = np.where(mask, violation.no_leak_probabilities(data.reveals, data.draws, n), 1.0)
    values = np.where(mask.any(axis=2), 1 - silent.prod(axis=2), 0.0)
    total, number = values.sum(axis=1), mask.any(axis=2).sum(axis=1)
    rows, there = silent[p, a], mask[p, a]
    place = np.arange(len(p))
    there[place, c] = kept & (labels == INAPPROPRIATE) & data.counted[p, a] & (data.draws[at] > 0)
    rows[place, c] = np.where(
        there[place, c], violation.no_leak_probabilities(data.reveals[at], data.draws[at], n), 1.0
    )
    has, exposed = np.asarray(there.any(axis=1)), np.asarray(mask.any(axis=2))
    had = exposed[p, a]
    top = total[p] - values[p, a] + np.where(has, 1 - rows.prod(axis=1), 0.0)
    return _over(top, number[p] - had.astype(np.int64) + has)


def _local_completeness(data: FlowArrays, at: tuple[Ints, Ints, Ints], labels: Ints, kept: Bools) -> Floats:
    """C of each pair's profile with the other label, its context retained as it was: [pairs]."""
    p, _, c = at
    mask = (data.labels == NECESSARY) & retained(data.labels)[:, None, :] & (data.draws > 0)
    rate = data.reveals / np.maximum(data.draws, 1)
    top, number = np.where(mask, rate, 0.0).sum(axis=1), mask.sum(axis=1)
    values = top / np.maximum(number, 1)
    counts = kept & (labels == NECESSARY) & (data.draws[at] > 0)
    new_top = top[p, c] - np.where(mask[at], rate[at], 0.0) + np.where(counts, rate[at], 0.0)
    new_number = number[p, c] - mask[at] + counts
    total = values.sum(axis=1)[p] - values[p, c] + np.where(new_number > 0, new_top / np.maximum(new_number, 1), 0.0)
    return _over(total, (number > 0).sum(axis=1)[p] - (number[p, c] > 0).astype(np.int64) + (new_number > 0))


def _over(top: Floats, number: Ints) -> Floats:
    return np.where(number > 0, top / np.maximum(number, 1), np.nan)


def _replaced(values: Floats, p: Ints, new: Floats) -> Floats:
    """The mean over the defined profiles with the value of one of them replaced: [pairs]."""
    defined = ~np.isnan(values)
    total, number = np.where(defined, values, 0.0).sum(), int(defined.sum())
    top = total - np.where(defined[p], np.nan_to_num(values[p]), 0.0) + np.nan_to_num(new)
    return _over(top, number - defined[p].astype(np.int64) + ~np.isnan(new))
