"""Two runs on common flows against plain loops, the Pareto front as a property, flows that change."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from cimemories.compare.ranking import front
from cimemories.flows.arrays import FlowArrays, Names
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics.intervals import changes, common, domain_frame, domain_terms, paired_arrays

SHAPE = (2, 3, 3)
DOMAINS = np.array([["finance", "health", "finance"]] * 2, object)
counts = arrays.arrays(np.int64, SHAPE, elements=st.integers(0, 3))
codes = arrays.arrays(np.int64, SHAPE, elements=st.sampled_from([NECESSARY, INAPPROPRIATE, AMBIGUOUS]))


def make(reveals: np.ndarray, draws: np.ndarray, labels: np.ndarray, first_context: int = 1) -> FlowArrays:
    ids = np.arange(reveals.shape[0] * reveals.shape[1]).reshape(reveals.shape[:2])
    keys = np.full(ids.shape, "key", object)
    bio = np.zeros(ids.shape, np.bool_)
    bio[:, 0] = True
    names = Names(ids, keys, DOMAINS[: ids.shape[0], : ids.shape[1]], keys, bio)
    contexts = tuple(range(first_context, first_context + reveals.shape[2]))
    return FlowArrays(
        np.minimum(reveals, draws), draws, labels, ~bio, tuple(range(10, 10 + reveals.shape[0])), contexts, names
    )


def leaks(revealed: int, samples: int, n: int) -> float:
    """The share of all choices of n draws that hold at least one of those revealed."""
    choices = list(combinations(range(samples), min(n, samples)))
    return sum(any(i < revealed for i in choice) for choice in choices) / len(choices)


def expected(one: FlowArrays, two: FlowArrays, n: int, domain: str | None = None) -> tuple[float, float]:
    """Both differences by plain loops over common flows: over profiles the mean over attributes, or over contexts."""
    kept = (one.draws > 0) & (two.draws > 0)
    violation, complete = [], []
    for p in range(SHAPE[0]):
        retained = [c for c in range(SHAPE[2]) if {NECESSARY, INAPPROPRIATE} <= set(one.labels[p, :, c].tolist())]
        of = [a for a in range(SHAPE[1]) if domain is None or one.names.domain[p, a] == domain]
        apart = []
        for a in of:
            places = [
                c for c in retained if one.labels[p, a, c] == INAPPROPRIATE and kept[p, a, c] and one.counted[p, a]
            ]
            if places:
                no_leak = [
                    math.prod(
                        1
                        - leaks(
                            data.reveals[p, a, c], data.draws[p, a, c], min(n, one.draws[p, a, c], two.draws[p, a, c])
                        )
                        for c in places
                    )
                    for data in (one, two)
                ]
                apart.append(no_leak[0] - no_leak[1])
        if apart:
            violation.append(np.mean(apart))
        means = []
        for c in retained:
            needed = [a for a in of if one.labels[p, a, c] == NECESSARY and kept[p, a, c]]
            if needed:
                means.append(
                    np.mean(
                        [
                            two.reveals[p, a, c] / two.draws[p, a, c] - one.reveals[p, a, c] / one.draws[p, a, c]
                            for a in needed
                        ]
                    )
                )
        if means:
            complete.append(np.mean(means))
    return tuple(float(np.mean(values)) if values else math.nan for values in (violation, complete))  # type: ignore[return-value]


@given(counts, counts, counts, counts, codes, st.integers(1, 4))
def test_a_paired_difference_is_what_loops_over_common_flows_give(
    reveals: np.ndarray, others: np.ndarray, draws: np.ndarray, other_draws: np.ndarray, labels: np.ndarray, n: int
) -> None:
    whole = make(reveals, draws, labels), make(others, other_draws, labels)
    one, two = common(*whole)
    compared = paired_arrays(one, two, n)
    violation, completeness = expected(*whole, n)
    assert (compared.violation.value, compared.completeness.value) == pytest.approx(
        (violation, completeness), nan_ok=True
    )
    table = domain_frame([domain_terms(one, two, n)], n).set_index("domain")
    for domain in ("finance", "health"):
        row = table.loc[domain, ["violation", "completeness"]].tolist()
        assert row == pytest.approx(list(expected(*whole, n, domain)), nan_ok=True)
    tallied, moved = changes(one, two)
    exposed = [
        (p, a, c)
        for p, a, c in np.ndindex(SHAPE)
        if labels[p, a, c] == INAPPROPRIATE
        and a
        and min(draws[p, a, c], other_draws[p, a, c])
        and NECESSARY in labels[p, :, c]
    ]
    newly = {f for f in exposed if not whole[0].reveals[f] and whole[1].reveals[f]}
    stopped = {f for f in exposed if whole[0].reveals[f] and not whole[1].reveals[f]}
    assert (tallied.flows, tallied.newly, tallied.stopped) == (len(exposed), len(newly), len(stopped))
    rows = zip(moved["profile"], moved["attribute"], moved["context"], moved["newly"], strict=True)
    assert {(p - 10, a % SHAPE[1], c - 1, bool(new)) for p, a, c, new in rows} == {
        (*f, f in newly) for f in newly | stopped
    }


def test_runs_are_compared_in_the_contexts_and_people_that_both_have() -> None:
    full = np.full(SHAPE, 2)
    labels = np.tile(np.array([NECESSARY, INAPPROPRIATE, INAPPROPRIATE])[None, :, None], (2, 1, 3))
    one = make(np.zeros(SHAPE, int), full, labels)
    two = make(full[:1, :, :2], full[:1, :, :2], labels[:1, :, :2], first_context=2)
    left, right = common(one, two)
    assert (left.profiles, left.contexts) == (right.profiles, right.contexts) == ((10,), (2, 3))
    tallied, _ = changes(left, right)
    assert (tallied.newly, tallied.flows) == (4, 4)
    strange = FlowArrays(two.reveals, two.draws, two.labels, two.counted, (99,), two.contexts, two.names)
    assert math.isnan(paired_arrays(*common(one, strange), 1).violation.value)


points = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)) | st.just((math.nan, 0.5)), max_size=12)


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@given(points)
def test_the_front_holds_exactly_what_nothing_beats(scores: list[tuple[float, float]]) -> None:
    on = front(scores)
    best = [point for point, is_on in zip(scores, on, strict=True) if is_on]
    for point, is_on in zip(scores, on, strict=True):
        if math.isnan(point[0]):
            assert not is_on
        elif is_on:
            assert not any(beats(other, point) for other in scores)
        else:
            assert any(beats(other, point) for other in best)
