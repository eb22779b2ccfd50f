"""What decisions do to a run: both sets of numbers by the plain definitions, and each decision's own part in them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.flows.arrays import FlowArrays, Names, mean_or_nan
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.metrics import completeness, violation
from cimemories.metrics.headline import headline
from cimemories.model import Label, ResponseStatus
from cimemories.review.effect import decision_effect, moved_pairs, without_each
from cimemories.store import decisions
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS


def decide(store: Store, dataset: int, labels: dict[tuple[int, int], Label | None]) -> None:
    with store.write() as connection:
        decisions.add_all(connection, dataset, "Ada", [NewDecision(a, c, label) for (a, c), label in labels.items()])


def test_the_worked_example_of_the_metrics_with_a_decision_that_takes_a_leak_away(store: Store) -> None:
    """docs/metrics.md: V@1 0.6, V@5 1, completeness 0.8; b is decided as necessary in t3, where it leaks most."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    labelling = add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run = add_run(store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    (person,) = records(store, data.id)
    (_, b, c), contexts = person.attribute_ids, person.context_ids
    nothing = decision_effect(*ask(store, run))
    assert (nothing.decided, nothing.changed, len(nothing.moved)) == (0, 0, 0)
    assert nothing.consensus == nothing.decisions
    decide(store, data.id, {(b, contexts[2]): Label.NECESSARY, (c, contexts[0]): Label.NECESSARY})
    flows, scope = ask(store, run)
    effect = decision_effect(flows, scope, 1)
    assert effect.consensus.violation[1] == pytest.approx(0.6) and effect.consensus.violation[5] == pytest.approx(1)
    assert effect.consensus.completeness == pytest.approx(0.8) and effect.consensus.retained == 3
    # t3 has no inappropriate attribute any more and is discarded: b keeps t1 (0 of 5) and t2 (2 of 5).
    assert effect.decisions.violation[1] == pytest.approx((0.2 + 0.4) / 2) and effect.decisions.retained == 2
    assert effect.decisions.completeness == pytest.approx((1 + 0.6) / 2)
    assert effect.decisions.violation == headline(flows, scope).violation
    assert (effect.decided, effect.changed) == (2, 1)  # the other decision says what the consensus says
    (row,) = moved_pairs(flows, scope, effect.moved).to_dict("records")
    assert (row["key"], row["recipient"], row["consensus"], row["decision"]) == (
        "fact_1",
        "Recipient 2",
        "inappropriate",
        "necessary",
    )
    assert (row["violation"], row["completeness"]) == pytest.approx((-0.3, 0.0))
    assert labelling == scope.labelling.id if scope.labelling else False


def test_where_messages_are_missing_no_more_samples_are_read_than_every_flow_has(store: Store) -> None:
    """Of the third context one of 5 messages is judged, so Violation@1 alone can be read: a and b leak once in 5 each,
    0.2; with b necessary where it leaks, (0.2 + 0) / 2."""
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X] * 3, [X] * 3, [N] * 3]])
    lost = {(0, 2, sample): ResponseStatus.FAILED for sample in range(1, 5)}
    run = add_run(store, data.id, 5, [[[1, 0, 0], [0, 1, 0], [4, 4, 1]]], missing=lost)
    (person,) = records(store, data.id)
    decide(store, data.id, {(person.attribute_ids[1], person.context_ids[1]): Label.NECESSARY})
    for wanted in (None, 5):
        effect = decision_effect(*ask(store, run), wanted)
        assert effect.n == headline(*ask(store, run)).n == 1
        assert effect.consensus.violation == pytest.approx({1: 0.2})
        assert effect.decisions.violation == pytest.approx({1: 0.1})
        assert effect.moved["violation"].tolist() == pytest.approx([-0.1])


def test_without_labels_the_consensus_alone_has_no_numbers(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    run = add_run(store, data.id, 2, [[[2], [1]]])
    (person,) = records(store, data.id)
    (context,) = person.context_ids
    pairs = dict(zip(person.attribute_ids, (Label.INAPPROPRIATE, Label.NECESSARY), strict=True))
    decide(store, data.id, {(a, context): label for a, label in pairs.items()})
    effect = decision_effect(*ask(store, run))
    assert math.isnan(effect.consensus.violation[2]) and math.isnan(effect.consensus.completeness)
    assert (effect.decisions.violation[2], effect.decisions.completeness) == (1.0, 0.5)
    assert effect.moved["violation"].isna().all() and set(effect.moved["consensus"]) == {""}


CODES = st.sampled_from([UNLABELLED, A, N, X])


@st.composite
def some_arrays(draw: st.DrawFn) -> tuple[FlowArrays, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 3)))
    size = int(np.prod(shape))

    def array(values: st.SearchStrategy[int]) -> npt.NDArray[np.int64]:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), np.int64).reshape(shape)

    draws = array(st.integers(0, 3))
    reveals = np.minimum(array(st.integers(0, 3)), draws)
    counted = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)[:, :, 0]
    flow_arrays = FlowArrays(
        reveals, draws, array(CODES), counted, tuple(range(shape[0])), tuple(range(shape[2])), Names.unnamed(*shape[:2])
    )
    return flow_arrays, array(CODES), np.arange(size)


@given(some_arrays(), st.integers(1, 3))
def test_leaving_one_decision_out_is_computing_everything_anew(
    example: tuple[FlowArrays, npt.NDArray[np.int64], npt.NDArray[np.int64]], n: int
) -> None:
    flow_arrays, other, numbers = example
    at = tuple(np.unravel_index(numbers, flow_arrays.labels.shape))
    ours = without_each(flow_arrays, at, other[at], n)
    for i in numbers:
        labels = flow_arrays.labels.copy()
        place = tuple(axis[i] for axis in at)
        labels[place] = other[place]
        plain = (
            mean_or_nan(violation.by_profile(flow_arrays.reveals, flow_arrays.draws, labels, flow_arrays.counted, n)),
            mean_or_nan(completeness.by_profile(flow_arrays.reveals, flow_arrays.draws, labels)),
        )
        assert (ours[0][i], ours[1][i]) == pytest.approx(plain, nan_ok=True)


def test_the_decision_that_moves_most_stands_first(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=2, attributes=5, contexts=4)
    rng = np.random.default_rng(2)
    labels = rng.choice([A, N, X], size=(2, 5, 4))
    add_labels(sqlite_store, data.id, labels)
    run = add_run(sqlite_store, data.id, 3, rng.integers(0, 4, size=(2, 5, 4)))
    pairs = [(a, c) for p in records(sqlite_store, data.id) for a in p.attribute_ids for c in p.context_ids]
    decided_labels = dict(zip(pairs, rng.choice(list(Label), size=len(pairs)), strict=True))
    decide(sqlite_store, data.id, {pair: Label(str(label)) for pair, label in decided_labels.items()})
    effect = decision_effect(*ask(sqlite_store, run))
    assert effect.decided == 40 and effect.changed == len(effect.moved) > 10
    size = effect.moved["violation"].abs().to_numpy()
    assert (np.diff(size) <= 1e-12).all() and size[0] > 0
    top = effect.moved.iloc[0]
    decide(sqlite_store, data.id, {(int(top["attribute"]), int(top["context"])): None})  # that one alone taken back
    again = decision_effect(*ask(sqlite_store, run))
    moved = (
        effect.decisions.violation[3] - again.decisions.violation[3],
        (effect.decisions.completeness - again.decisions.completeness),
    )
    assert moved == pytest.approx((top["violation"], top["completeness"]))
