"""Which labels a number is held against: decisions or the consensus, by which rule. A choice moves what it says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluating import cli_inside
from worlds import add_labels, add_profiles, add_run, make_profile, records

from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Labels, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.model import Label
from cimemories.store import decisions, labellings
from cimemories.store.engine import Store, StoreError, open_store

A, N, X = AMBIGUOUS, NECESSARY, INAPPROPRIATE
LABELS = np.array([[[X, X], [N, N], [A, A]]])
REVEALS = np.array([[[0, 1], [2, 2], [2, 0]]])


def world(store: Store) -> str:
    """One profile, two contexts, two samples; of the third attribute two personas abstain, the unconcerned says N."""
    dataset = add_profiles(store, [make_profile(0, 3, 2, keys=("first", "second", "third"))])
    add_labels(store, dataset.id, LABELS)
    run_id = add_run(store, dataset.id, 2, REVEALS)
    person = records(store, dataset.id)[0]
    with store.write() as connection:
        decisions.add(
            connection,
            dataset_id=dataset.id,
            attribute=person.attribute_ids[0],
            context=person.context_ids[1],
            annotator="ann",
            label=Label.NECESSARY,
        )
        labellings.add_rule(
            connection,
            dataset.id,
            "the unconcerned first",
            threshold=0.6,
            priors={"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8},
            annotator="ann",
        )
    return run_id


def test_each_choice_of_labels_gives_its_own_numbers_and_none_is_served_for_another(store: Store) -> None:
    run_id = world(store)
    flows = Flows(store)
    first = headline(flows, resolve_scope(store, run_id))
    alone = headline(flows, resolve_scope(store, run_id, labels="consensus"))
    # The decision took the leaking flow of the first attribute away; the second context has nothing inappropriate left.
    assert first.violation == {1: 0.0, 2: 0.0}
    assert (first.retained, alone.retained) == (1, 2)
    assert alone.violation == {1: 0.5, 2: 1.0}
    assert any("consensus alone" in note for note in alone.notes)
    assert alone.scope.labels_text == "consensus alone"
    for scope, expected in (
        (resolve_scope(store, run_id), first),
        (resolve_scope(store, run_id, labels=Labels.CONSENSUS), alone),
    ):
        assert headline(Flows(store), scope).violation == expected.violation


def test_a_named_rule_turns_the_same_votes_into_other_labels(store: Store) -> None:
    run_id = world(store)
    flows = Flows(store)
    paper = headline(flows, resolve_scope(store, run_id, labels="consensus", rule="paper"))
    looser = headline(flows, resolve_scope(store, run_id, labels="consensus", rule="the unconcerned first"))
    assert paper.violation == {1: 0.5, 2: 1.0}
    assert (paper.completeness, paper.ambiguous_exposure) == (1.0, 0.5)
    # What was ambiguous is necessary now: told in both samples of one context, in none of the other.
    assert looser.completeness == (1 + 0.5) / 2
    assert np.isnan(looser.ambiguous_exposure)
    assert looser.violation == paper.violation
    with pytest.raises(StoreError, match="the unconcerned first"):
        resolve_scope(store, run_id, rule="three thirds")


def test_the_command_line_chooses_labels_rule_and_breakdown(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run_id = world(store)
    store.close()
    environment: dict[str, str] = {}

    def metrics_json(*options: str) -> dict[str, object]:
        done = cli_inside(environment, "metrics", run_id, "--json", "--workspace", tmp_path, *options)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    printed = metrics_json("--labels", "consensus", "--rule", "paper")
    assert printed["violation"] == {"1": 0.5, "2": 1.0}
    assert metrics_json()["violation"] == {"1": 0.0, "2": 0.0}
    assert {"violation_interval", "baselines", "by", "identifier_rules"} <= set(printed)
    by = printed["by"]
    assert isinstance(by, dict)
    assert [row["group"] for row in by["attribute"]] == ["first", "second", "third"]
    table = cli_inside(environment, "metrics", run_id, "--workspace", tmp_path, "--by", "attribute")
    assert "first" in table.stdout
    wrong = cli_inside(environment, "metrics", run_id, "--workspace", tmp_path, "--by", "colour")
    assert wrong.returncode == 1
    assert "by 'colour'" in wrong.stderr
