"""Named rules: what is refused, that at most one is current, and that labels and flows follow at once."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from worlds import add_dataset, add_labels, add_run, ask

from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, PAPER_NAME, consensus_labels, rule_of
from cimemories.metrics.headline import headline
from cimemories.store import labellings
from cimemories.store.engine import Store, StoreError, now
from cimemories.store.labellings import personas
from cimemories.store.tables import freeze

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
WESTIN = {"fundamentalist": 0.26, "pragmatic": 0.64, "unconcerned": 0.10}
# An ambiguous pair of the test world: the first two personas abstain, the third says necessary.
LOUD_THIRD = {"fundamentalist": 0.1, "pragmatic": 0.1, "unconcerned": 0.8}


def add(store: Store, dataset_id: int, name: str, *, use: bool = False, **changes: object) -> int:
    values = {"threshold": 0.75, "priors": LOUD_THIRD, "annotator": "Ada"} | changes
    with store.write() as connection:
        return labellings.add_rule(connection, dataset_id, name, use=use, **values)  # type: ignore[arg-type]


def names(store: Store, dataset_id: int) -> dict[str, bool]:
    with store.read() as connection:
        return {row.name: row.current for row in labellings.all_rules(connection, dataset_id)}


def test_labels_and_flows_follow_the_current_rule_and_come_back(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    labelling = add_labels(store, data.id, [[[X, N], [A, A], [N, X]]])
    run = add_run(store, data.id, 2, [[[0, 0], [2, 1], [0, 0]]])
    before, exposure = consensus_labels(store, labelling), headline(*ask(store, run)).completeness
    add(store, data.id, "third is loud")
    assert consensus_labels(store, labelling).equals(before)  # saved is not yet current
    with store.write() as connection:
        labellings.make_current_rule(connection, data.id, "third is loud")
    after = consensus_labels(store, labelling)
    assert after["label"].tolist() == [N if code == A else code for code in before["label"]]
    assert headline(*ask(store, run)).completeness != exposure
    assert rule_of(store, labelling).name == "third is loud"
    with store.write() as connection:
        labellings.make_current_rule(connection, data.id, labellings.PAPER_RULE)
    assert consensus_labels(store, labelling).equals(before)
    assert headline(*ask(store, run)).completeness == exposure
    assert names(store, data.id) == {"third is loud": False}


def test_a_current_rule_that_is_deleted_leaves_the_papers(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(store, data.id, [[[A], [X]]])
    add(store, data.id, "one", use=True)
    add(store, data.id, "two", use=True)
    assert names(store, data.id) == {"one": False, "two": True}
    assert consensus_labels(store, labelling)["label"].tolist() == [N, X]
    with store.write() as connection:
        labellings.delete_rule(connection, data.id, "two")
    assert consensus_labels(store, labelling)["label"].tolist() == [A, X]
    with store.write() as connection, pytest.raises(StoreError, match="'one'"):
        labellings.delete_rule(connection, data.id, "two")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": 0.5}, "above 0.5"),
        ({"threshold": 1.01}, "at most 1"),
        ({"threshold": math.nan}, "above 0.5"),
        ({"priors": {}}, "for every persona"),
        ({"priors": {"a": 0.5, "b": 0.4}}, "add up to 0.9"),
        ({"priors": {"a": 1.5, "b": -0.5}}, "'b' must be a share"),
        ({"priors": {"a": math.nan}}, "'a' must be a share"),
        ({"annotator": " "}, "who sets it"),
        ({"name": "Paper"}, "the paper's rule"),
        ({"name": " \n"}, "1 to 80 characters"),
        ({"name": "n" * 81}, "1 to 80 characters"),
        ({"name": "taken"}, "exists already"),
    ],
)
def test_what_is_no_rule_is_refused_and_nothing_written(sqlite_store: Store, changes: dict, message: str) -> None:
    data = add_dataset(sqlite_store)
    add(sqlite_store, data.id, "taken")
    with pytest.raises(StoreError, match=message):
        add(sqlite_store, data.id, **({"name": "new"} | changes))
    assert names(sqlite_store, data.id) == {"taken": False}


def test_two_people_at_once_cannot_make_two_rules_current(store: Store) -> None:
    data = add_dataset(store)
    for number in range(8):
        add(store, data.id, f"rule {number}")

    def use(number: int) -> None:
        for turn in range(3):
            with store.write() as connection:
                labellings.make_current_rule(connection, data.id, f"rule {(number + turn) % 8}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert sum(names(store, data.id).values()) == 1


def test_a_rule_for_other_personas_falls_back_to_the_papers_and_says_so(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[A], [X]]])
    add(sqlite_store, data.id, "others", use=True, priors={"young": 0.5, "old": 0.5})
    rule = rule_of(sqlite_store, labelling)
    assert rule.is_paper and "old, young" in rule.note and "fundamentalist" in rule.note
    assert consensus_labels(sqlite_store, labelling)["label"].tolist() == [A, X]


def test_the_order_of_the_priors_does_not_matter(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[A], [X]]])
    add(sqlite_store, data.id, "backwards", use=True, priors=dict(reversed(LOUD_THIRD.items())))
    with sqlite_store.read() as connection:
        keys = [p.key for p in personas(connection, labelling).values()]
    assert dict(zip(keys, rule_of(sqlite_store, labelling).priors, strict=True)) == LOUD_THIRD
    assert consensus_labels(sqlite_store, labelling)["label"].tolist() == [N, X]


def test_a_frozen_dataset_keeps_its_rule(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=2, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[A], [X]]])
    values = {"hash": "0", "rule": "{}", "counts": "{}", "annotator": "Ada", "created": now()}
    with sqlite_store.write() as connection:
        connection.execute(sa.insert(freeze).values(dataset=data.id, labelling=labelling, **values))
    add(sqlite_store, data.id, "kept for later")
    with pytest.raises(StoreError, match="frozen"):
        add(sqlite_store, data.id, "at once", use=True)
    assert names(sqlite_store, data.id) == {"kept for later": False}
    assert rule_of(sqlite_store, labelling).name == PAPER_NAME
