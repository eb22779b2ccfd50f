"""Heatmaps of any two sides: equal to plain loops over pairs, their order, and two runs set against each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from worlds import add_labels, add_profiles, add_run, ask, make_profile, records

from cimemories.flows.arrays import IdentifierRule
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import resolve_scope
from cimemories.metrics import heatmap
from cimemories.metrics.heatmap import (
    Grid,
    Order,
    as_first,
    as_frame,
    by_value,
    cluster_order,
    flows_of_both,
    most_leaked,
    on_places,
    orders,
    same_pairs,
)
from cimemories.metrics.places import By, Places
from cimemories.model import Context
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store

A, N, X = AMBIGUOUS, NECESSARY, INAPPROPRIATE
PEOPLE, ATTRIBUTES, CONTEXTS, SAMPLES = 2, 8, 5, 3
OPENED = ((By.EVENT, By.SPHERE), (By.PROFILE, By.RECIPIENT), (By.DOMAIN, By.CONTEXT), (By.ATTRIBUTE, By.SPHERE))
SPHERES = ("work", "home", None, "home", "work")


def world(store: Store, seed: int = 0) -> tuple[int, np.ndarray, np.ndarray]:
    """A dataset with labels and a run; its id, reveals and labels. Two contexts have one recipient in common."""
    chance = np.random.default_rng(seed)
    there = tuple(Context(f"Task {i}", f"Recipient {min(i, 3)}", SPHERES[i]) for i in range(CONTEXTS))
    people = []
    for number in range(PEOPLE):
        person = make_profile(number, ATTRIBUTES, CONTEXTS, keys=["name", "mortgage"])
        own = tuple(replace(a, event=("divorce", "move")[(i + number) % 2]) for i, a in enumerate(person.attributes))
        people.append(replace(person, contexts=there, attributes=own))
    data = add_profiles(store, people, f"world {seed}")
    labels = chance.choice([N, X, A], p=[0.25, 0.45, 0.3], size=(PEOPLE, ATTRIBUTES, CONTEXTS))
    reveals = chance.integers(0, SAMPLES + 1, labels.shape)
    add_labels(store, data.id, labels)
    return data.id, reveals, labels


def place(by: By, people: list[ProfileRecord], p: int, a: int, c: int) -> str:
    """The id of the place that a pair is in."""
    person = people[p]
    attribute, context = person.profile.attributes[a], person.profile.contexts[c]
    return {
        By.DOMAIN: attribute.domain,
        By.EVENT: attribute.event,
        By.ATTRIBUTE: attribute.key,
        By.PROFILE: str(person.id),
        By.CONTEXT: str(person.context_ids[c]),
        By.RECIPIENT: context.recipient,
        By.SPHERE: context.sphere or "",
    }[by]


def test_every_pair_of_sides_equals_plain_loops(sqlite_store: Store) -> None:
    dataset, reveals, labels = world(sqlite_store)
    run_id = add_run(sqlite_store, dataset, SAMPLES, reveals)
    flows, scope = ask(sqlite_store, run_id)
    pairs = [
        (p, a, c)
        for p, a, c in np.ndindex(labels.shape)
        if N in labels[p, :, c].tolist() and X in labels[p, :, c].tolist()
    ]
    people = records(sqlite_store, dataset)
    where = {by: {at: place(by, people, *at) for at in pairs} for by in By}
    assert pairs
    for rows, columns in itertools.combinations(By, 2):
        n = 2 if columns.of_context else 3
        table, turned = heatmap.grid(flows, scope, rows, columns, n), heatmap.grid(flows, scope, columns, rows, n)
        assert np.array_equal(table.violation, turned.violation.T, equal_nan=True)
        assert np.array_equal(table.completeness_pairs, turned.completeness_pairs.T)
        cells = {(i, j): table.violation[i, j] for i, j in np.ndindex(table.violation.shape)}
        for i, j in cells:
            inside = [
                at for at in pairs if (where[rows][at], where[columns][at]) == (table.rows.ids[i], table.columns.ids[j])
            ]
            wrong = [at for at in inside if labels[at] == X and at[1] != 0]  # the first is the name: of the bio
            needed = [at for at in inside if labels[at] == N]
            seen = [1 - math.comb(SAMPLES - int(reveals[at]), n) / math.comb(SAMPLES, n) for at in wrong]
            assert (table.violation_pairs[i, j], table.completeness_pairs[i, j]) == (len(wrong), len(needed))
            assert table.violation[i, j] == pytest.approx(np.mean(seen) if seen else math.nan, abs=1e-9, nan_ok=True)
            share = sum(reveals[at] for at in needed) / (SAMPLES * len(needed)) if needed else math.nan
            assert table.completeness[i, j] == pytest.approx(share, abs=1e-9, nan_ok=True)
            if (rows, columns) in OPENED:  # the flows of a cell are those that it counts
                cell = {rows: table.rows.ids[i], columns: table.columns.ids[j]}
                behind = heatmap.cell_flows(flows, scope, cell, n)
                assert len(behind) == len(wrong) + len(needed)
                assert behind["violation"][behind["label"] == X].sum() == pytest.approx(sum(seen))
    assert heatmap.grid(flows, scope, By.DOMAIN, By.CONTEXT, 1, IdentifierRule.NONE).violation_pairs.sum() > (
        heatmap.grid(flows, scope, By.DOMAIN, By.CONTEXT, 1, IdentifierRule.SUBSTRING).violation_pairs.sum()
    )
    with pytest.raises(ValueError, match="two different sides"):
        heatmap.grid(flows, scope, By.EVENT, By.EVENT, 1)


def grid(violation: list[list[float]], pairs: list[list[int]] | None = None) -> Grid:
    """A heatmap of these values; nothing is necessary."""
    values = np.array(violation, dtype=float)
    counts = np.where(np.isnan(values), 0, 1 if pairs is None else np.array(pairs))
    rows, columns = (tuple(f"{name}{i}" for i in range(size)) for name, size in zip("rc", values.shape, strict=True))
    sides = (
        Places(By.DOMAIN, rows, rows, rows, np.arange(0)),
        Places(By.CONTEXT, columns, columns, columns, np.arange(0)),
    )
    nothing = np.full(values.shape, math.nan)
    return Grid(*sides, 1, values, counts, nothing, np.zeros_like(counts), np.zeros_like(counts))


def ids(table: Grid, rows: Order, columns: Order) -> tuple[list[str], list[str]]:
    """The ids of rows and columns in these orders."""
    sides = zip((table.rows, table.columns), orders(table, rows, columns), strict=True)
    first, second = ([side.ids[i] for i in order] for side, order in sides)
    return first, second


def changes(first: Grid, second: Grid) -> list[float]:
    """The differences of violation, cell by cell."""
    changed: list[float] = as_frame(first, on_places(second, first))["violation_difference"].tolist()
    return changed


def test_places_are_ordered_by_pooled_value_with_empty_ones_last() -> None:
    table = grid([[0.0, 0.0], [math.nan, math.nan], [1.0, 0.0], [0.9, 0.9]], [[1, 1], [0, 0], [9, 1], [1, 1]])
    rows, _ = table.pooled("violation")
    assert rows.tolist() == pytest.approx([0.0, math.nan, 0.9, 0.9], nan_ok=True)  # 9 of 10 pairs, not half the cells
    assert ids(table, Order.VIOLATION, Order.DATASET)[0] == ["r2", "r3", "r0", "r1"]
    assert ids(table, Order.DATASET, Order.VIOLATION)[1] == ["c0", "c1"]
    assert ids(table, Order.NAME, Order.NAME)[0] == ["r0", "r1", "r2", "r3"]
    assert by_value(np.array([math.nan, math.nan])).tolist() == [0, 1]
    # Of too many rows those are shown in which most pairs leak, not those with the highest share.
    assert most_leaked(table, 2).rows.ids == ("r2", "r3")
    assert most_leaked(table, 9) is table


def test_like_places_stand_beside_each_other_whatever_is_missing() -> None:
    nan = math.nan
    values = np.array(
        [[0.0, 0.1, nan], [1.0, nan, 0.9], [nan, nan, nan], [0.0, 0.2, 0.1], [nan, 1.0, 1.0], [0.05, nan, 0.0]]
    )
    order = cluster_order(values).tolist()
    assert sorted(order) == list(range(6)) and order[-1] == 2  # what has no value at all comes last
    low, high = sorted(order.index(i) for i in (0, 3, 5)), sorted(order.index(i) for i in (1, 4))
    assert low[2] - low[0] == 2 and high[1] - high[0] == 1
    assert cluster_order(values[:2]).tolist() == [0, 1]
    assert cluster_order(np.full((3, 2), nan)).tolist() == [0, 1, 2]
    assert sorted(cluster_order(np.array([[nan, 1.0], [1.0, nan], [nan, 0.5], [0.2, nan]])).tolist()) == [0, 1, 2, 3]
    assert ids(grid(values.tolist()), Order.ALIKE, Order.DATASET)[0][-1] == "r2"


def test_a_difference_is_empty_where_either_run_has_no_pair() -> None:
    first, second = grid([[0.5, 0.2], [math.nan, 0.3]]), grid([[0.7, math.nan], [0.1, 0.3]])
    assert changes(first, second) == pytest.approx([0.2, math.nan, math.nan, 0.0], nan_ok=True)
    assert as_frame(first, second)["completeness_difference"].isna().all()
    assert not same_pairs(first, second) and same_pairs(first, first)
    # Places that one of them does not have: of the first they stay, of the second alone they go.
    fewer = second.take(np.array([1]), np.array([1, 0]))
    assert changes(first, fewer) == pytest.approx([math.nan] * 3 + [0.0], nan_ok=True)
    first, second = grid([[0.5], [0.1]]), grid([[0.5], [0.9]])
    rows, _ = orders(first, Order.VIOLATION, Order.DATASET, second=second)
    assert rows.tolist() == [1, 0]  # the largest rise first


def test_two_runs_are_held_against_the_same_labels(sqlite_store: Store) -> None:
    dataset, reveals, _ = world(sqlite_store, 3)
    first, second = (add_run(sqlite_store, dataset, SAMPLES, r) for r in (reveals, np.zeros_like(reveals)))
    other = add_run(sqlite_store, dataset, SAMPLES, SAMPLES - reveals, judge="another judge")
    flows = Flows(sqlite_store)
    scope = resolve_scope(sqlite_store, first)
    second_scope, note = as_first(flows, scope, second)
    assert (second_scope.run.id, second_scope.labelling, second_scope.judge, note) == (
        second,
        scope.labelling,
        scope.judge,
        "",
    )
    judged, note = as_first(flows, scope, other)
    assert judged.judge.name == "another judge" and "test-judge did not judge" in note
    sides = (By.EVENT, By.SPHERE, 2)
    before, after = heatmap.grid(flows, scope, *sides), heatmap.grid(flows, second_scope, *sides)
    frame = as_frame(before, on_places(after, before))
    assert np.array_equal(frame["violation_difference"], -before.violation.reshape(-1), equal_nan=True)
    assert (frame["violation_difference"].dropna() <= 0).all() and frame["violation_pairs_first"].sum() > 0
    cell = {By.EVENT: "divorce", By.SPHERE: "home"}
    behind = flows_of_both(flows, scope, judged, cell, 2)
    assert len(behind) == len(heatmap.cell_flows(flows, scope, cell, 2)) > 0
    assert (behind["reveals"] + behind["reveals_other"] == SAMPLES).all()
    assert behind["more_in_other"].tolist() == (behind["reveals_other"] > behind["reveals"]).tolist()
    apart = (behind["reveals_other"] - behind["reveals"]).abs().tolist()
    assert apart == sorted(apart, reverse=True)
