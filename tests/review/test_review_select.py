"""Selections of the review queue as others decide meanwhile, and where what is asked for is not there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from worlds import add_dataset, add_labels, add_profiles, make_profile, records

from cimemories.agreement.people import answers
from cimemories.flows.cache import shared_cache
from cimemories.flows.labels import NECESSARY
from cimemories.formats.review_events import export_events, import_events, imports, undo_import
from cimemories.model import Label
from cimemories.review.index import pair_index
from cimemories.review.queue import Filters, Order, items, open_to, sample, select, undecided
from cimemories.review.recording import flow_of
from cimemories.review.standing import standing
from cimemories.review.status import sitting
from cimemories.store import audits, datasets, decisions, reviews
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import decision


def test_decisions_of_other_processes_and_undone_ones_are_seen_at_once(store: Store) -> None:
    data = add_dataset(store, 2, 3, 2)
    index = pair_index(store, data.id, None)
    pairs = index.pairs(np.arange(len(index)))

    def left(who: str) -> int:
        return len(select(store, index, Filters(undecided_by=who), Order.ENTROPY_RATE))

    with store.write() as connection:
        new_decisions = [decisions.NewDecision(*pair, Label.NECESSARY, uid=f"{n}") for n, pair in enumerate(pairs[:5])]
        decisions.add_all(connection, data.id, "A", new_decisions)
    assert (left("A"), left("B")) == (7, 12)
    with store.write() as connection:
        decisions.add_all(connection, data.id, "B", [decisions.NewDecision(*pairs[0], Label.INAPPROPRIATE, uid="b")])
        decisions.undo(connection, data.id, "A", "1", "undo 1")
    assert (left("A"), left("B")) == (8, 11)
    differ = Filters(others_differ_from="A")
    assert select(store, index, differ, Order.ENTROPY_RATE).tolist() == [0]
    assert open_to(store, index, np.arange(4), "B", 1).tolist() == [1]
    assert undecided(store, index, np.arange(4), "A").tolist() == [1]
    with store.write() as connection:
        decisions.undo(connection, data.id, "B", "b", "undo b")
    assert select(store, index, differ, Order.ENTROPY_RATE).tolist() == []


def test_an_undone_import_leaves_nothing_behind_and_hides_nothing_that_comes_after(
    store: Store, tmp_path: Path
) -> None:
    """Ids of what it removes are given out again, to decisions that are new."""
    data = add_dataset(store, 1, 3, 2)
    elsewhere = open_store(tmp_path / "elsewhere")
    there = add_dataset(elsewhere, 1, 3, 2)
    far = pair_index(elsewhere, there.id, None)
    with elsewhere.write() as connection:
        new = [decisions.NewDecision(*pair, Label.INAPPROPRIATE) for pair in far.pairs(np.arange(4))]
        decisions.add_all(connection, there.id, "Ada", new)
    export_events(elsewhere, there.name, tmp_path / "ada.jsonl")
    index = pair_index(store, data.id, None)
    import_events(store, tmp_path / "ada.jsonl")
    assert undecided(store, index, np.arange(6), "Ada").tolist() == [4, 5]
    assert undo_import(store, data.id, imports(store, data.id)[0].id, "Cem") == (4, 0)
    assert standing(store, index.shape).people == ()
    assert undecided(store, index, np.arange(6), "Ada").tolist() == [0, 1, 2, 3, 4, 5]
    # Fewer than were removed: none of their ids is higher than all that were known.
    with store.write() as connection:
        new = [decisions.NewDecision(*pair, Label.NECESSARY) for pair in index.pairs(np.array([5, 2]))]
        decisions.add_all(connection, data.id, "Bob", new)
    now = standing(store, index.shape)
    assert now.people == ("Bob",)
    assert now.of("Bob")[0].tolist() == [2, 5]
    assert open_to(store, index, np.arange(6), "Ada", 1).tolist() == [0, 1, 3, 4]


def test_older_decisions_that_an_import_brings_overrule_nothing(store: Store, tmp_path: Path) -> None:
    data = add_dataset(store, 1, 3, 1)
    elsewhere = open_store(tmp_path / "elsewhere")
    there = add_dataset(elsewhere, 1, 3, 1)
    far = pair_index(elsewhere, there.id, None).pairs(np.arange(3))
    old = {"created": "2026-01-01T10:00:00.000Z", "label": Label.INAPPROPRIATE}
    with elsewhere.write() as connection:
        made = [decisions.NewDecision(*pair, uid=f"old {n}", **old) for n, pair in enumerate(far)]
        # Ada took her second decision back, and Cem made the third.
        withdrawn = decisions.NewDecision(*far[1], None, uid="old undo", source="undo", created="2026-01-02")
        decisions.add_all(connection, there.id, "Ada", [*made[:2], withdrawn])
        decisions.add_all(connection, there.id, "Cem", made[2:])
    export_events(elsewhere, there.name, tmp_path / "old.jsonl")
    index = pair_index(store, data.id, None)
    pairs = index.pairs(np.arange(3))
    with store.write() as connection:
        new = [decisions.NewDecision(*pair, Label.NECESSARY, created="2026-06-01") for pair in pairs]
        decisions.add_all(connection, data.id, "Ada", new)
    # Known before the import, so that what it brings is laid over it.
    assert standing(store, index.shape).decided.tolist() == [NECESSARY] * 3
    import_events(store, tmp_path / "old.jsonl")
    now = standing(store, index.shape)
    assert now.decided.tolist() == [NECESSARY] * 3
    assert now.of("Ada")[1].tolist() == [NECESSARY] * 3
    given = answers(store, data.id)
    assert given.labels[given.people.index("Ada")].tolist() == [NECESSARY] * 3
    # A process that reads all at once sees the same.
    shared_cache.clear()
    assert standing(store, index.shape).decided.tolist() == [NECESSARY] * 3
    with store.write() as connection:
        assert reviews.hand_out_pairs(connection, data.id, "Ada", "session", pairs, 3, everybody=True) == []
        last = decisions.last_decision(connection, data.id, "Ada")
    assert last is not None
    assert not (last.uid or "old").startswith("old")


def test_answers_are_not_those_of_a_deleted_dataset_of_the_same_id(sqlite_store: Store) -> None:
    for label, name in ((Label.NECESSARY, "Ada"), (Label.INAPPROPRIATE, "Bob")):
        data = add_dataset(sqlite_store, 1, 2, 2, name=name)
        pair = pair_index(sqlite_store, data.id, None).pairs(np.array([0]))[0]
        with sqlite_store.write() as connection:
            decisions.add_all(connection, data.id, name, [decisions.NewDecision(*pair, label)])
        assert answers(sqlite_store, data.id).people == (name,)
        with sqlite_store.write() as connection:
            datasets.delete(connection, data.id)


def test_the_newest_decision_stands_whoever_came_first(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, 1, 2, 2)
    index = pair_index(sqlite_store, data.id, None)
    pair = index.pairs(np.array([1]))[0]
    events = [("A", Label.NECESSARY), ("B", Label.AMBIGUOUS), ("A", Label.INAPPROPRIATE), ("A", None)]
    expected = [Label.NECESSARY, Label.AMBIGUOUS, Label.INAPPROPRIATE, Label.AMBIGUOUS]
    for (who, label), stands in zip(events, expected, strict=True):
        with sqlite_store.write() as connection:
            decisions.add_all(connection, data.id, who, [decisions.NewDecision(*pair, label)])
        assert select(sqlite_store, index, Filters(labels=(str(stands),)), Order.ENTROPY_RATE).tolist() == [1]


def test_a_decision_that_commits_after_a_later_one_is_not_missed(store: Store) -> None:
    if store.is_sqlite:
        pytest.skip("SQLite has one writer at a time: decisions come in the order of their ids")
    data = add_dataset(store, 1, 3, 2)
    index = pair_index(store, data.id, None)
    (a, c), late = index.pairs(np.array([0, 1]))
    with store.write() as slow_one:
        row = {"dataset": data.id, "attribute": late[0], "context": late[1], "annotator": "B", "label": "ambiguous"}
        slow_one.execute(sa.insert(decision).values(**row, source="single", created="2026-01-01T00:00:00Z", uid="b"))
        with store.write() as quick_one:
            decisions.add_all(quick_one, data.id, "A", [decisions.NewDecision(a, c, Label.NECESSARY)])
        assert len(select(store, index, Filters(labels=("none",)), Order.ENTROPY_RATE)) == 5
        decisions.add_all(
            slow_one, data.id, "B", [decisions.NewDecision(*index.pairs(np.array([2]))[0], Label.NECESSARY)]
        )
    assert select(store, index, Filters(labels=("none",)), Order.ENTROPY_RATE).tolist() == [3, 4, 5]


def test_a_slice_a_sample_and_what_is_not_there(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, 1, 3, 2)
    index = pair_index(sqlite_store, data.id, None)
    a, c = index.pairs(np.array([4]))[0]
    with sqlite_store.write() as connection:
        slice_id = audits.add_slice(
            connection, data.id, "labels", "s", 0, {}, "A", [audits.SliceItem(a, c, None, "x", 1.0)]
        )
    assert select(sqlite_store, index, Filters(slice=slice_id), Order.ENTROPY_RATE).tolist() == [4]
    assert not len(select(sqlite_store, index, Filters(slice=slice_id + 1), Order.ENTROPY_RATE))
    assert not len(select(sqlite_store, index, Filters(dissenter="nobody"), Order.ENTROPY_RATE))
    assert index.shape.locate([a, a, 10**6], [c, 10**6, c]).tolist() == [4, -1, -1]
    assert sample(np.arange(6), 9).tolist() == list(range(6))
    assert len(set(sample(np.arange(600), 20).tolist())) == 20
    with pytest.raises(StoreError, match="not a label"):
        select(sqlite_store, index, Filters(labels=("maybe",)), Order.ENTROPY_RATE)
    with pytest.raises(StoreError, match="no dataset"):
        pair_index(sqlite_store, data.id + 1, None)
    other = add_dataset(sqlite_store, 1, 2, 2, name="another")
    with pytest.raises(StoreError, match="another dataset"):
        pair_index(sqlite_store, data.id, add_labels(sqlite_store, other.id, [[[1, 1], [1, 1]]]))


def test_a_dataset_without_pairs_has_an_empty_index(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    data = add_profiles(store, [replace(make_profile(0), attributes=(), contexts=())])
    index = pair_index(store, data.id, None)
    assert len(index) == 0
    for order in Order:
        assert not len(select(store, index, Filters(undecided_by="A", labels=("none",)), order))
    assert items(store, index, []) == []
    store.close()


def test_an_id_that_no_number_could_be_names_nothing() -> None:
    """It comes from the browser; isdigit alone takes a superscript, which int refuses."""
    assert flow_of("3.7") == (3, 7)
    assert flow_of("3.7.2") == (3, 7), "what was seen of a disputed pair stands behind its ids"
    assert {flow_of(card) for card in ("3.²", "1.2.²", "²", "", "1.2.3.4", "a.1", "9" * 30 + ".1")} == {(0, 0)}


def test_a_decided_pair_that_is_no_longer_of_the_dataset_changes_no_consensus(sqlite_store: Store) -> None:
    """Its position is -1, which read the last pair's consensus."""
    data = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1)
    labelling = add_labels(sqlite_store, data.id, [[[NECESSARY]]])
    other = add_dataset(sqlite_store, profiles=1, attributes=1, contexts=1, name="other")
    (person,) = records(sqlite_store, other.id)
    with sqlite_store.write() as connection:
        gone = decisions.NewDecision(person.attribute_ids[0], person.context_ids[0], Label.INAPPROPRIATE)
        decisions.add_all(connection, data.id, "Ada", [gone])
    index = pair_index(sqlite_store, data.id, labelling)
    assert index.consensus.tolist() == [NECESSARY]
    result = sitting(sqlite_store, index, "Ada", 100)
    assert (result.decisions, result.settled, result.against, result.positions.tolist()) == (1, 0, 0, [])
