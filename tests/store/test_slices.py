"""Slices in the record, and how they are drawn."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, records

from cimemories.flows.labels import CODES, UNLABELLED, consensus_labels
from cimemories.model import Label
from cimemories.review.sampling import (
    LEVELS,
    Plan,
    allocation,
    draw_items,
    draw_slice,
    expected_interval,
    plan,
    population,
    progress,
)
from cimemories.store import audits, datasets, decisions
from cimemories.store.audits import SliceItem
from cimemories.store.decisions import NewDecision
from cimemories.store.engine import Store, StoreError


def slice_items(store: Store, dataset_id: int) -> list[SliceItem]:
    person = records(store, dataset_id)[0]
    pairs = [(a, c) for a in person.attribute_ids for c in person.context_ids]
    return [SliceItem(a, c, None, "a" if n % 2 else "b", 2.5) for n, (a, c) in enumerate(reversed(pairs))]


def keep(store: Store, dataset_id: int, name: str = "first", **changes: object) -> int:
    values = {"kind": "labels", "seed": 7, "manifest": {"b": 1, "a": [2]}, "annotator": "Ada"} | changes
    values.setdefault("items", slice_items(store, dataset_id))
    with store.write() as connection:
        return audits.add_slice(connection, dataset_id, name=name, **values)  # type: ignore[arg-type]


def test_a_slice_comes_back_as_it_was_drawn(store: Store) -> None:
    data, other = add_dataset(store).id, add_dataset(store, name="other").id
    first, second = keep(store, data), keep(store, data, "second", items=slice_items(store, data)[:3])
    with store.read() as connection:
        rows = audits.all_slices(connection, data)
        assert [(row.id, row.name, row.seed, row.items, row.annotator) for row in rows] == [
            (first, "first", 7, 24, "Ada"),
            (second, "second", 7, 3, "Ada"),
        ]
        assert rows[0].manifest == {"a": [2], "b": 1} and rows[0].kind == "labels" and rows[0].dataset == data
        assert audits.slice_items(connection, first) == slice_items(store, data)  # in this very order
        assert audits.slice_row(connection, second) == rows[1]
        assert audits.all_slices(connection, other) == [] == audits.all_slices(connection, data, "judgements")


def test_deleting_a_slice_takes_its_items_alone_and_a_dataset_takes_its_slices(store: Store) -> None:
    data = add_dataset(store).id
    first, second = keep(store, data), keep(store, data, "second")
    with store.write() as connection:
        audits.delete_slice(connection, first)
        assert [row.id for row in audits.all_slices(connection, data)] == [second]
        assert audits.slice_items(connection, first) == [] and len(audits.slice_items(connection, second)) == 24
        with pytest.raises(StoreError, match="no slice"):
            audits.slice_row(connection, first)
        datasets.delete(connection, data)
        assert audits.all_slices(connection, data) == [] == audits.slice_items(connection, second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": " \n "}, "needs a name"),
        ({"name": "x" * 81}, "needs a name"),
        ({"annotator": ""}, "name of who"),
        ({"kind": "else"}, "no kind"),
        ({"items": []}, "empty"),
        ({"kind": "judgements"}, "needs its response"),
        ({"name": "  taken "}, "exists already"),
    ],
)
def test_what_is_no_slice_is_refused_and_nothing_is_written(
    sqlite_store: Store, changes: dict[str, object], message: str
) -> None:
    data = add_dataset(sqlite_store).id
    keep(sqlite_store, data, "taken")
    with pytest.raises(StoreError, match=message):
        keep(sqlite_store, data, **changes)  # type: ignore[arg-type]
    with sqlite_store.read() as connection:
        assert [row.name for row in audits.all_slices(connection, data)] == ["taken"]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.data())
def test_an_allocation_is_proportional_with_one_each_where_it_can_be(sizes: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, sum(sizes)))
    allocated = allocation(sizes, size)
    assert allocated.sum() == size and (allocated <= sizes).all() and (allocated >= 0).all()
    if size >= len(sizes):
        assert (allocated >= 1).all()
    quota = size * np.array(sizes) / sum(sizes)
    if (quota >= 1).all():
        assert (np.abs(allocated - quota) < 1).all()
    for a, b in itertools.combinations(range(len(sizes)), 2):  # the larger stratum never gives less
        assert allocated[a] >= allocated[b] - (sizes[a] == sizes[b]) or sizes[a] < sizes[b]


def test_largest_remainders() -> None:
    assert allocation([50, 30, 20], 7).tolist() == [4, 2, 1]  # 3.5, 2.1, 1.4
    assert allocation([96, 3, 1], 10).tolist() == [8, 1, 1]
    assert allocation([96, 3, 1], 2).tolist() == [2, 0, 0]
    with pytest.raises(ValueError, match="cannot be sampled"):
        allocation([3, 2], 6)


def wide(store: Store) -> tuple[int, str]:
    """A labelling of 240 pairs: two domains, three labels, three patterns."""
    data = add_dataset(store, profiles=2, attributes=6, contexts=20).id
    codes = np.random.default_rng(5).choice([0, 1, 2], p=[0.5, 0.1, 0.4], size=(2, 6, 20))
    codes[0, 0, 0] = UNLABELLED
    return data, add_labels(store, data, codes)


def test_the_same_seed_draws_the_same_pairs_and_weights_add_up(sqlite_store: Store) -> None:
    _, labelling = wide(sqlite_store)
    pairs = population(sqlite_store, labelling)
    assert len(pairs) == 239
    items = draw_items(pairs, 60, seed=3)
    assert items == draw_items(population(sqlite_store, labelling), 60, seed=3)
    assert items != draw_items(pairs, 60, seed=4)
    assert len({(item.attribute, item.context) for item in items}) == 60
    assert sum(item.weight for item in items) == pytest.approx(239)
    labels = consensus_labels(sqlite_store, labelling).set_index(["attribute", "context"])["label"]
    code_of = {str(label): code for label, code in CODES.items()}
    patterns = {"necessary": "NNN", "inappropriate": "XXX", "ambiguous": "??N"}
    for item in items:  # each stands in the stratum that it is of
        _, label, pattern = item.stratum.split(" / ")
        assert labels[item.attribute, item.context] == code_of[label] and pattern == patterns[label]
    assert {item.stratum for item in items} == set(pairs.strata[0][0])  # at least one of each


def test_every_pair_is_as_likely_as_its_weight_says(sqlite_store: Store) -> None:
    pairs = population(sqlite_store, wide(sqlite_store)[1])
    times: Counter[tuple[int, int]] = Counter()
    weights = {}
    for seed in range(400):
        for item in draw_items(pairs, 40, seed):
            times[item.attribute, item.context] += 1
            weights[item.attribute, item.context] = item.weight
    assert len(times) == 239
    share = sum(times[pair] * weights[pair] for pair in times) / 400
    assert share == pytest.approx(239)
    z = [(times[p] - 400 / w) / np.sqrt(400 / w * (1 - 1 / w)) for p, w in weights.items() if w > 1]
    assert np.std(z) == pytest.approx(1, abs=0.15) and max(map(abs, z)) < 5


def test_fewer_pairs_than_strata_make_strata_coarser(sqlite_store: Store) -> None:
    pairs = population(sqlite_store, wide(sqlite_store)[1])
    assert len(pairs.strata[0][0]) == len(pairs.strata[1][0]) == 18 and len(pairs.strata[2][0]) == 3
    assert [plan(pairs, n).level for n in (18, 17, 3, 2, 1)] == [LEVELS[0], LEVELS[2], LEVELS[2], LEVELS[3], LEVELS[3]]
    assert all(sum(i.weight for i in draw_items(pairs, n, 0)) == pytest.approx(239) for n in (1, 2, 3, 17, 18, 239))


def test_the_expected_interval_is_said_before_and_holds(sqlite_store: Store) -> None:
    """A slice of everything is exact; in proportion it is the textbook's; and it covers what it says it does."""
    pairs = population(sqlite_store, wide(sqlite_store)[1])
    simple = Plan("none", ("all",), np.array([239]), np.array([60]))
    assert simple.half_width(0.8) == pytest.approx(1.96 * np.sqrt(0.8 * 0.2 / 60 * (1 - 60 / 239)))
    assert plan(pairs, 239).half_width() == 0 and "exact" in expected_interval(pairs, 239)
    wanted = plan(pairs, 60)
    assert wanted.half_width(0.8) < wanted.half_width(0.5) < plan(pairs, 30).half_width(0.5)
    sentence = expected_interval(pairs, 60)
    assert "60 of 239" in sentence and f"80 % ± {100 * wanted.half_width(0.8):.1f}" in sentence
    # Pairs right by a coin of 80 %: the share that slices give stays within the width of the truth in 95 % of them.
    right = np.random.default_rng(1).random(239) < 0.8
    truth = dict(zip(zip(pairs.attributes, pairs.contexts, strict=True), right, strict=True))
    shares = [
        sum(i.weight * truth[i.attribute, i.context] for i in draw_items(pairs, 60, seed)) / 239 for seed in range(300)
    ]
    inside = np.abs(np.array(shares) - right.mean()) <= wanted.half_width(0.8)
    assert inside.mean() > 0.9
    for size in (0, 240):
        with pytest.raises(StoreError, match="cannot be sampled"):
            expected_interval(pairs, size)


def test_a_drawn_slice_is_kept_and_its_progress_counted(store: Store) -> None:
    data, labelling = wide(store)
    made = draw_slice(store, labelling, size=50, seed=9, name="audit", annotator="Ada")
    with store.read() as connection:
        row, items = audits.slice_row(connection, made), audits.slice_items(connection, made)
    assert items == draw_items(population(store, labelling), 50, 9)
    assert (row.kind, row.seed, row.items, row.manifest["population"]) == ("labels", 9, 50, 239)
    assert progress(store, data, items) == {}
    with store.write() as connection:
        new_decisions = [
            NewDecision(i.attribute, i.context, Label.NECESSARY, blind=n < 4) for n, i in enumerate(items[:10])
        ]
        decisions.add_all(connection, data, "Bob", new_decisions)
        inside = {(i.attribute, i.context) for i in items}
        other = next(p for p in zip(*map(list, _pairs(store, labelling)), strict=True) if p not in inside)
        decisions.add_all(connection, data, "Cleo", [NewDecision(*other, Label.NECESSARY)])
    assert progress(store, data, items) == {"Bob": (10, 4)}


def _pairs(store: Store, labelling: str) -> tuple[list[int], list[int]]:
    pairs = population(store, labelling)
    return pairs.attributes.tolist(), pairs.contexts.tolist()
