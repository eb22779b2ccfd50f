"""Scores by one persona's norm: those of a rule that gives it the prior 1, with how many pairs it labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from two_runs import close
from worlds import PERSONAS, add_dataset, add_labels, add_run, ask, records

from cimemories.compare.norms import CONSENSUS, per_norm
from cimemories.compare.study import study
from cimemories.extras.sensitivity.choices import Choice, variants
from cimemories.flows.arrays import flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, custom_rule
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import intervals
from cimemories.model import Label, ResponseStatus
from cimemories.store import decisions
from cimemories.store.engine import Store

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
KEYS = [p.key for p in PERSONAS]


@pytest.fixture
def flows_and_scope(store: Store) -> tuple[Flows, Scope]:
    """Two profiles x 6 attributes x 4 contexts, a third of the pairs necessary by the third persona's votes alone."""
    chance = np.random.default_rng(4)
    data = add_dataset(store, profiles=2, attributes=6, contexts=4)
    add_labels(store, data.id, chance.choice([X, N, A], (2, 6, 4)), draws=2)
    run = add_run(store, data.id, 3, chance.integers(0, 4, (2, 6, 4)))
    person = records(store, data.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=data.id,
            attribute=person.attribute_ids[0],
            context=person.context_ids[0],
            annotator="Ada",
            label=Label.INAPPROPRIATE,
        )
    return ask(store, run)


def test_the_score_by_a_norm_is_that_of_a_rule_with_its_prior_alone(flows_and_scope: tuple[Flows, Scope]) -> None:
    flows, scope = flows_and_scope
    norms = per_norm(flows, scope)
    assert [row.key for row in norms.rows] == [CONSENSUS, *KEYS] and norms.decided == 1
    for row in norms.rows[1:]:
        priors = {key: float(key == row.key) for key in KEYS}
        own = replace(scope, rule=custom_rule(PERSONAS, row.key, 1.0, priors))
        numbers, bounds = headline(flows, own), intervals(flows, own)
        assert row.violation.value == close(numbers.violation[norms.n])
        assert row.completeness.value == close(numbers.completeness)
        assert (row.violation.low, row.violation.high) == close(
            (bounds.violation[norms.n].low, bounds.violation[norms.n].high)
        )
        assert (row.attributes, row.flows, row.retained) == (numbers.attributes, numbers.flows, numbers.retained)
        labels = flow_arrays(flows, own).labels
        assert (row.necessary, row.inappropriate) == ((labels == N).sum(), (labels == X).sum())


def test_the_consensus_stands_beside_them_as_the_headline_has_it(flows_and_scope: tuple[Flows, Scope]) -> None:
    flows, scope = flows_and_scope
    first, numbers, bounds = per_norm(flows, scope).rows[0], headline(flows, scope), intervals(flows, scope)
    assert first.violation.value == close(numbers.violation[3])
    assert (first.violation.low, first.violation.high) == close((bounds.violation[3].low, bounds.violation[3].high))
    assert (first.completeness.low, first.completeness.high) == close(
        (bounds.completeness.low, bounds.completeness.high)
    )


def test_the_sentence_says_whose_norm_and_how_many_pairs(flows_and_scope: tuple[Flows, Scope]) -> None:
    norms = per_norm(*flows_and_scope)
    assert norms.sentence.startswith("These are scores by the norm of one persona alone, each over the pairs that it ")
    for row in norms.rows[1:]:
        assert f"({row.key}, {row.labelled} pairs labelled)" in norms.sentence
    assert "under every norm people's decisions on 1 pair replace the votes" in norms.sentence
    assert len(norms.frame()) == 4 and norms.n == 3


def test_all_rows_are_read_at_one_n(store: Store) -> None:
    """The second context is retained by the third persona alone, and lost two of four messages."""
    data = add_dataset(store, profiles=1, attributes=2, contexts=2)
    add_labels(store, data.id, [[[X, X], [N, A]]])
    lost = {(0, 1, sample): ResponseStatus.FAILED for sample in (2, 3)}
    flows, scope = ask(store, add_run(store, data.id, 4, [[[1, 1], [1, 1]]], missing=lost))
    norms, numbers = per_norm(flows, scope), headline(flows, scope)
    assert (numbers.n, norms.n) == (4, 2)
    assert norms.rows[0].violation.value == close(numbers.violation[2])
    assert [row.retained for row in norms.rows] == [1, 1, 1, 2]


def test_without_labels_there_is_no_norm(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    run = add_run(store, data.id, 1, np.zeros((1, 2, 1), int))
    norms = per_norm(Flows(store), resolve_scope(store, run))
    assert (norms.rows, norms.sentence) == ((), "")


def test_with_the_papers_rule_no_prior_above_0_changes_anything(flows_and_scope: tuple[Flows, Scope]) -> None:
    flows, scope = flows_and_scope
    sensitivity = study(flows, [scope])
    (now,) = sensitivity.at(sensitivity.base)
    tried = list(variants(sensitivity))
    assert sensitivity.base.unanimous and not replace(sensitivity.base, threshold=0.8).unanimous
    positive = [item for item in tried if item.choice == Choice.PRIORS]
    assert len(positive) == 4 and len([item for item in tried if item.choice == Choice.ALONE]) == 3
    for item in positive:
        (then,) = item.numbers
        assert then.mean_violation.tolist() == now.mean_violation.tolist()
        assert then.mean_completeness.tolist() == now.mean_completeness.tolist()
    # The unconcerned alone labels more pairs: that is another norm, and not another prior.
    alone = [item.numbers[0] for item in tried if item.choice == Choice.ALONE]
    assert alone[-1].necessary[0] > now.necessary[0]
