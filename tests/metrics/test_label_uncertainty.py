"""What the votes of a pair leave open, and what a decision settles."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import PERSONAS, add_dataset, add_labels, add_run, records

from cimemories.flows.arrays import FlowArrays, Names, flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED, VoteCounts
from cimemories.flows.scope import resolve_scope
from cimemories.metrics.label_uncertainty import posterior, posterior_of
from cimemories.model import Label
from cimemories.store import decisions
from cimemories.store.engine import Store


def votes(rows: list[list[list[int]]]) -> VoteCounts:
    """Counted votes of attributes 0, 1, ... in context 0 by the three personas."""
    ids = np.arange(len(rows))
    return VoteCounts(
        "votes", 0, ids, np.zeros(len(rows), np.int64), np.array(rows, np.int64).reshape(-1, 3, 3), PERSONAS, False
    )


def test_the_posterior_is_the_mixture_of_the_votes_and_holds_what_lacks_votes() -> None:
    counts = votes(
        [
            [[10, 0, 0], [10, 0, 0], [10, 0, 0]],  # unanimous
            [[0, 10, 0], [5, 5, 0], [10, 0, 0]],  # divided
            [[0, 10, 0], [0, 0, 0], [10, 0, 0]],  # a persona is missing
            [[0, 0, 0]] * 3,  # nobody voted
        ]
    )
    labels = np.array([NECESSARY, AMBIGUOUS, AMBIGUOUS, UNLABELLED]).reshape(1, 4, 1)
    zeros = np.zeros((1, 4, 1), np.int64)
    data = FlowArrays(zeros, zeros + 1, labels, zeros[:, :, 0] == 0, (0,), (0,), Names.unnamed(1, 4))
    believed = posterior_of(data, counts, (0.2, 0.5, 0.3))
    assert believed.necessary.ravel() == pytest.approx([1, 0.5 * 0.5 + 0.3, 0, 0])
    assert believed.inappropriate.ravel() == pytest.approx([0, 0.2 + 0.5 * 0.5, 0, 0])
    assert believed.open.ravel().tolist() == [False, True, False, False]
    assert not posterior_of(data, votes([]), (0.2, 0.5, 0.3)).open.any(), "a labelling without a counted vote"


def test_a_decision_settles_its_pair_in_the_posterior_of_a_run(sqlite_store: Store) -> None:
    row = add_dataset(sqlite_store, 1, 3, 2)
    add_labels(sqlite_store, row.id, [[[NECESSARY] * 2, [INAPPROPRIATE] * 2, [AMBIGUOUS] * 2]])
    run = add_run(sqlite_store, row.id, 2, [[[1, 1], [1, 0], [1, 2]]])
    (person,) = records(sqlite_store, row.id)
    pair = person.attribute_ids[2], person.context_ids[1]
    with sqlite_store.write() as connection:
        decisions.add_all(connection, row.id, "Ada", [decisions.NewDecision(*pair, Label.INAPPROPRIATE)])
    flows, scope = Flows(sqlite_store), resolve_scope(sqlite_store, run)
    believed = posterior(flows, scope, flow_arrays(flows, scope))
    assert believed.open.nonzero()[1].tolist() == [2] and believed.open.nonzero()[2].tolist() == [0]
    assert (believed.necessary[0, 2, 1], believed.inappropriate[0, 2, 1]) == (0, 1)
    assert believed.inappropriate[0, 2, 0] < 1
    assert flow_arrays(flows, scope).labels[0, 2, 1] == INAPPROPRIATE
