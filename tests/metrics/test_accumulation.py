"""Accumulation curves, the order of one user's tasks, the independence baseline and time to first leak.

The oracles list every order of tasks and every draw of samples; they know none of the formulas. The curve of one
profile in expectation is tested in test_metrics.py; here it is what many profiles at once have to agree with.
"""

from __future__ import annotations

import math
from itertools import combinations, permutations, product
from statistics import fmean

import accumulating
import numpy as np
import pytest
from counted_worlds import COUNTED, DRAWS, LABELS, REVEALS, A, Arrays, N, X, close, exposures, kept_contexts, worlds
from hypothesis import given
from hypothesis import strategies as st
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.flows.arrays import FlowArrays, Names
from cimemories.metrics import accumulation, violation
from cimemories.metrics.accumulation import (
    Clock,
    Curves,
    FirstLeaks,
    Order,
    accumulation_of,
    curves,
    first_leaks,
    hazard,
    independent,
    order_of,
    ordered_curve,
    signature_means,
    survival,
)
from cimemories.metrics.intervals import intervals_of
from cimemories.metrics.one_user import first_leak, one_user, users
from cimemories.metrics.violation import tally
from cimemories.store.engine import Store


def arrays_of(arrays: Arrays) -> FlowArrays:
    reveals, draws, labels, counted = arrays
    profiles, attributes, contexts = labels.shape
    ids = np.arange(profiles * attributes).reshape(profiles, attributes)
    blanks = np.full((profiles, attributes), "", object)
    names = Names(ids, blanks, blanks, blanks, ~counted)
    return FlowArrays(reveals, draws, labels, counted, tuple(range(profiles)), tuple(range(contexts)), names)


def made_of(arrays: Arrays, ns: tuple[int, ...] = (1, 2, 3)) -> Curves:
    return curves(tally(*arrays), arrays_of(arrays).judged.sum(axis=1), ns)


def rows_of(p: int, arrays: Arrays) -> list[int]:
    return [a for a in range(arrays[2].shape[1]) if exposures(p, a, arrays)]


@given(worlds(profiles=3))
def test_many_profiles_at_once_are_each_of_them_alone_and_end_at_violation(arrays: Arrays) -> None:
    reveals, draws, labels, counted = arrays
    all_curves = made_of(arrays, (1, 2, 4))
    for p in range(3):
        size = len(kept_contexts(labels[p], draws[p]))
        assert all_curves.tasks[p] == size
        for i, n in enumerate(all_curves.ns):
            alone = accumulating.curve(reveals[p], draws[p], labels[p], counted[p], n)
            line = all_curves.values[i, p]
            assert close(line[: size + 1], alone if size else math.nan)
            assert close(line[size:], line[size]), "beyond its tasks a profile stays where it is"
            assert close(line[-1], violation.by_profile(*arrays, n)[p])
    some = [p for p in range(3) if rows_of(p, arrays)]
    assert all_curves.profiles == len(some)
    assert close(all_curves.mean(), all_curves.values[:, some].mean(axis=1) if some else math.nan)
    assert all_curves.growing().tolist() == [
        sum(len(kept_contexts(labels[p], draws[p])) >= k for p in some) for k in range(all_curves.values.shape[2])
    ]


@given(
    st.lists(st.tuples(*[st.integers(0, 3)] * 4), min_size=1, max_size=6),
    st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.25, 0.6, 1.0]), min_size=3, max_size=3),
)
def test_means_of_signatures_are_means_over_subsets(rows: list[tuple[int, ...]], q: list[float]) -> None:
    """Kinds with the same q, with q = 0 and q = 1 are put together on the way; nothing of that may be seen."""
    table = np.array(rows)
    means, at = signature_means(table.sum(axis=1), table[:, 1:], np.array(q), int(table.sum(axis=1).max()))
    for row, place in zip(rows, at, strict=True):
        products = [1.0] * row[0] + [value for value, times in zip(q, row[1:], strict=True) for _ in range(times)]
        expected = [fmean(math.prod(s) for s in combinations(products, k)) for k in range(len(products) + 1)]
        assert close(means[place][: len(expected)], expected)


def test_signatures_of_very_many_outcomes_are_told_apart() -> None:
    """More kinds than one integer can number: judgements lost here and there."""
    counts = np.random.default_rng(0).integers(0, 2, (5, 70))
    q = np.linspace(0.01, 0.99, 70)
    means, at = signature_means(counts.sum(axis=1) + 2, counts, q, 72)
    for row, place in zip(counts, at, strict=True):
        alone = accumulating.subset_means(np.concatenate([np.repeat(q, row), [1.0, 1.0]]))
        assert close(means[place][: len(alone)], alone)


def test_the_worked_example_as_curves_orders_and_first_leaks() -> None:
    arrays = (REVEALS, DRAWS, LABELS, COUNTED)
    all_curves = made_of(arrays, (1, 5))
    assert all_curves.values[0, 0] == pytest.approx([0, 4 / 15, 7 / 15, 3 / 5])
    # n = 5: a leaks in t1 alone, b in t2 and t3. One task: (1/3 + 2/3) / 2; two: (2/3 + 1) / 2.
    assert all_curves.values[1, 0] == pytest.approx([0, 1 / 2, 5 / 6, 1])
    data = arrays_of(arrays)
    listed = order_of(data, 0)
    assert listed.tolist() == [0, 1, 2]
    assert ordered_curve(data, 0, listed, 5) == pytest.approx([0, 1 / 2, 1, 1])
    assert ordered_curve(data, 0, listed, 1) == pytest.approx([0, 0.1, (0.2 + 0.4) / 2, (0.2 + 1) / 2])
    first = first_leaks(data, 0, listed)
    assert (first.attribute.tolist(), first.time.tolist(), first.leaked.tolist()) == ([0, 1], [1, 2], [True, True])
    assert first.exposures.tolist() == [1, 2]
    # One response in t1: 1 of 10 places; t2: 2 of 10; t3: 5 of 5, b alone.
    expected = 1 - (np.array([0.9 * 0.8, 0.9 * 0.8 * 0.0])).mean()
    assert independent(data, 1)[0, -1] == pytest.approx(expected)


@given(worlds(profiles=1, most=3), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_given_order_is_what_all_its_draws_leak(arrays: Arrays, n: int, random: object) -> None:
    reveals, draws, labels, _ = arrays
    data = arrays_of(arrays)
    kept = kept_contexts(labels[0])
    path = np.array(random.sample(kept, len(kept)), dtype=np.int64)  # type: ignore[attr-defined]
    rows = rows_of(0, arrays)

    def leaked(a: int, seen: list[int]) -> float:
        """The share of all choices of one draw in each of these tasks in which some draw reveals it."""
        options = [
            [any(s < reveals[0, a, c] for s in subset) for subset in combinations(range(judged), min(n, judged))]
            for c, judged in exposures(0, a, arrays)
            if c in seen
        ]
        return fmean(any(chosen) for chosen in product(*options))

    line = ordered_curve(data, 0, path, n)
    assert len(line) == len(kept) + 1
    for k in range(len(line)):
        assert close(line[k], fmean(leaked(a, path[:k].tolist()) for a in rows) if rows else math.nan)
    if rows and len(kept) < 4:
        judged_tasks = [c for c in kept if draws[0, :, c].any()]  # the others are no tasks of the curve
        orders = [ordered_curve(data, 0, np.array(way, dtype=np.int64), n) for way in permutations(judged_tasks)]
        assert close(np.mean(orders, axis=0), made_of(arrays, (n,)).values[0, 0])


@given(worlds(profiles=1, most=3), st.integers(1, 4))
def test_the_baseline_is_the_mean_over_sets_of_tasks_at_the_responses_own_rates(arrays: Arrays, n: int) -> None:
    reveals, draws, labels, _ = arrays
    kept, rows = kept_contexts(labels[0], draws[0]), rows_of(0, arrays)
    places = {c: [a for a in rows if c in dict(exposures(0, a, arrays))] for c in kept}
    rate = {c: sum(reveals[0, a, c] for a in of) / sum(draws[0, a, c] for a in of) for c, of in places.items() if of}
    line = independent(arrays_of(arrays), n)[0]
    if not rows:
        assert np.isnan(line).all()
        return
    for k in range(len(kept) + 1):
        no_leak = [
            math.prod((1 - rate[c]) ** min(n, judged) for c, judged in exposures(0, a, arrays) if c in seen)
            for a in rows
            for seen in combinations(kept, k)
        ]
        assert close(line[k], 1 - fmean(no_leak))


def test_leaks_that_repeat_stay_below_the_baseline_and_even_ones_meet_it() -> None:
    """Two attributes in six tasks, half of all responses leak: one always the same attribute, one taking turns."""
    labels = np.array([[[X] * 6, [X] * 6, [N] * 6]])
    draws, counted = np.full((1, 3, 6), 1), np.ones((1, 3), np.bool_)
    repeating = np.array([[[1] * 6, [0] * 6, [0] * 6]])
    turns = np.array([[[1, 0] * 3, [0, 1] * 3, [0] * 6]])
    same, even = (arrays_of((reveals, draws, labels, counted)) for reveals in (repeating, turns))
    assert close(independent(same, 1), independent(even, 1))
    assert close(independent(same, 1)[0], 1 - 0.5 ** np.arange(7))
    of_same, of_even = (accumulation_of([data], intervals_of(data, (1,)).violation).mean[0] for data in (same, even))
    assert (of_same[2:] < independent(same, 1)[0, 2:] - 0.1).all()
    assert (of_even[2:] > independent(even, 1)[0, 2:]).all()


def test_hazard_is_the_share_of_what_was_left() -> None:
    hazards = hazard(np.array([[0.0, 0.5, 0.75, 1.0, 1.0], [0.0, 0.0, 0.0, 0.2, 0.2]]))
    assert close(hazards, [[math.nan, 0.5, 0.5, 1.0, math.nan], [math.nan, 0, 0, 0.2, 0]])


def many(profiles: int, seed: int = 3) -> Arrays:
    """Profiles that differ in how much they leak, attributes inside them too."""
    random = np.random.default_rng(seed)
    shape = (profiles, 30, 8)
    labels = random.choice([X, X, N, A], size=shape)
    tend = np.clip(random.uniform(0, 0.5, (profiles, 1, 1)) + random.normal(0, 0.2, (profiles, 30, 1)), 0, 1)
    return random.binomial(3, np.broadcast_to(tend, shape)), np.full(shape, 3), labels, np.ones(shape[:2], np.bool_)


@pytest.mark.parametrize("profiles", [1, 3, 10])
def test_the_band_ends_where_the_interval_of_violation_is(profiles: int) -> None:
    data = arrays_of(many(profiles))
    result = accumulation_of([data], intervals_of(data, (1, 3)).violation)
    expected = intervals_of(data, (1, 3)).violation
    for i, n in enumerate((1, 3)):
        assert result.mean[i, -1] == pytest.approx(expected[n].value)
        ends = (result.low[i, -1], result.high[i, -1])
        assert ends == pytest.approx((expected[n].low, expected[n].high), abs=1e-9)
        assert (result.low[i] <= result.mean[i]).all() and (result.mean[i] <= result.high[i]).all()
        assert (result.high[i, 1:4] > result.low[i, 1:4]).all()


def test_worlds_with_nothing_to_leak_have_no_curve_and_do_not_fail() -> None:
    labels = np.array([[[N, N], [A, N]], [[X, X], [N, X]]])
    arrays = (np.zeros((2, 2, 2), int), np.full((2, 2, 2), 2), labels, np.array([[True, True], [True, True]]))
    data = arrays_of(arrays)
    result = accumulation_of([data], intervals_of(data, (1, 2)).violation)
    assert result.curves.profiles == 1 and np.isnan(result.curves.values[:, 0]).all()
    assert (result.mean == 0).all() and result.half_way(2) is None
    # Nothing is revealed in so few attributes: more may be possible, from the first task on.
    assert (result.high[:, 0] == 0).all() and (result.high[:, 1:] > 0).all()
    first = arrays_of(tuple(part[:1] for part in arrays))  # type: ignore[arg-type]
    nobody = accumulation_of([first], intervals_of(first, (1, 2)).violation)
    assert nobody.most == 0 and np.isnan(nobody.mean).all() and np.isnan(nobody.low).all()
    assert nobody.frame()["profiles"].tolist() == [0, 0]
    empty = survival([first_leaks(arrays_of(arrays), 0, order_of(arrays_of(arrays), 0))])
    assert empty.attributes == 0 and np.isnan(empty.private).all() and empty.median is None


@given(worlds(profiles=3), st.sampled_from(list(Clock)))
def test_kaplan_meier_is_the_product_over_times_of_those_who_stay_private(arrays: Arrays, clock: Clock) -> None:
    data = arrays_of(arrays)
    leak_times = [first_leaks(data, p, order_of(data, p, Order.SHUFFLED, 7)) for p in range(3)]
    pairs = [
        (int(time), bool(leaked))
        for item in leak_times
        for time, leaked in zip(item.time if clock == Clock.TASKS else item.exposures, item.leaked, strict=True)
    ]
    line = survival(leak_times, clock)
    expected = 1.0
    if not pairs:
        return
    for t, private in zip(line.times, line.private, strict=True):
        at_risk = sum(time >= t for time, _ in pairs)
        events = sum(leaked and time == t for time, leaked in pairs)
        expected *= 1 - events / at_risk
        assert close(private, expected)
        assert line.at_risk[t] == at_risk
    assert line.leaked == sum(leaked for _, leaked in pairs)
    assert ((line.low <= line.private + 1e-12) & (line.private <= line.high + 1e-12)).all()


def test_censoring_counts_where_users_differ_in_tasks() -> None:
    """One user leaks its attribute in the 3rd of 4 tasks, the other never in its 2: half of 2, not of 1, is at risk
    before, and at 3 only one is."""
    labels = np.array([[[X] * 4, [N] * 4], [[X, X, U_, U_], [N, N, U_, U_]]])
    reveals = np.zeros((2, 2, 4), int)
    reveals[0, 0, 2] = 1
    data = arrays_of((reveals, np.full((2, 2, 4), 1), labels, np.ones((2, 2), np.bool_)))
    line = survival([first_leaks(data, p, order_of(data, p)) for p in range(2)])
    assert line.private.tolist() == [1, 1, 1, 0]
    assert line.at_risk.tolist() == [2, 2, 2, 1]
    assert line.median == 3


@pytest.mark.parametrize("number", range(2, 60, 2))
def test_half_is_reached_where_it_is_reached_whatever_the_sums_round_to(number: int) -> None:
    """One attribute leaks for sure in one of T tasks: over all orders after T/2 of them half is revealed. And of T
    attributes, of which one leaks in each task, half have leaked after T/2."""
    labels = np.full((1, 2, number), X)
    labels[0, 1] = N
    reveals = np.zeros((1, 2, number), int)
    reveals[0, 0, 0] = 1
    data = arrays_of((reveals, np.full((1, 2, number), 1), labels, np.ones((1, 2), np.bool_)))
    assert accumulation_of([data], intervals_of(data, (1,)).violation).half_way(1) == number // 2
    steps = np.arange(1, number + 1)
    each = FirstLeaks(steps, steps, steps, np.ones(number, np.bool_))
    assert survival([each]).median == number // 2


U_ = -1


def test_orders_hold_every_retained_task_once_and_the_worst_first(sqlite_store: Store) -> None:
    data = arrays_of(many(2))
    for p in range(2):
        kept = order_of(data, p).tolist()
        assert kept == kept_contexts(data.labels[p])
        shuffled = order_of(data, p, Order.SHUFFLED, 5)
        assert sorted(shuffled.tolist()) == kept and shuffled.tolist() != kept
        assert shuffled.tolist() == order_of(data, p, Order.SHUFFLED, 5).tolist()
        worst = order_of(data, p, Order.WORST)
        assert sorted(worst.tolist()) == kept
        steps = np.diff(ordered_curve(data, p, worst, 3))
        assert steps[0] == max(np.diff(ordered_curve(data, p, np.array([c]), 3))[0] for c in kept)


def test_what_is_named_adds_up_to_the_curve_of_the_record(sqlite_store: Store) -> None:
    store = sqlite_store
    dataset = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, dataset.id, LABELS)
    flows, scope = ask(store, add_run(store, dataset.id, 5, REVEALS))
    result = accumulation.accumulation(flows, scope)
    assert result.at(1, 1) == pytest.approx(4 / 15) and result.at(5, 3) == 1.0
    assert (result.attributes, result.flows, result.most, result.half_way(5)) == (2, 5, 3, 1)
    assert accumulation.baseline(flows, scope, 1)[-1] == pytest.approx(1 - 0.9 * 0.8 / 2)
    person = records(store, dataset.id)[0]
    assert users(flows, scope) == {person.id: person.profile.name}
    user = one_user(flows, scope, person.id)
    assert [[leak.key for leak in step.leaks] for step in user.steps] == [["fact_0"], ["fact_1"], []]
    assert [(leak.reveals, leak.draws, leak.statement) for leak in user.steps[1].leaks] == [
        (2, 5, person.profile.attributes[1].statement)
    ]
    assert [step.share for step in user.steps] == [0.5, 1.0, 1.0]
    assert [step.private for step in user.steps] == [2, 2, 1]
    assert user.leaked == 2 == user.attributes
    assert user.frame()["leaked"].tolist() == [1, 2, 2]
    assert first_leak(flows, scope, person.id).private == pytest.approx([1, 0.5, 0])
    with pytest.raises(KeyError, match="no profile"):
        one_user(flows, scope, 999)
