"""Sentences about numbers claim no more than their numbers do: ties, zeros, few users, one run, unequal n, missing
messages; false claims counted over simulated families of equals."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from worlds import add_dataset, add_labels, add_run

from cimemories.extras.sensitivity.coverage import (
    AMBIGUOUS_FLOWS,
    INAPPROPRIATE_FLOWS,
    NECESSARY_FLOWS,
    PARTS,
    FlowCoverage,
    coverage_text,
)
from cimemories.flows.arrays import FlowArrays, Names
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY, consensus
from cimemories.flows.scope import resolve_scope
from cimemories.metrics import heatmap, sentences
from cimemories.metrics.accumulation import (
    Clock,
    Effort,
    accumulation_of,
    effort_of,
    first_leaks,
    independent,
    order_of,
    survival,
)
from cimemories.metrics.intervals import (
    Paired,
    Tallied,
    changed_by_chance,
    changes,
    common,
    intervals_of,
    paired_arrays,
)
from cimemories.metrics.one_user import OneUser
from cimemories.metrics.sentences import Ranked, Ranking, difference, family, single
from cimemories.metrics.separation import (
    Cell,
    CellChanges,
    CellSums,
    Standing,
    Widest,
    cell_changes,
    fewer_by_chance,
    group_terms,
    highest_group,
    largest_count,
    separates,
    shared_with,
    standing,
)
from cimemories.metrics.uncertainty import Interval, Terms, holm
from cimemories.metrics.violation import balanced
from cimemories.store.engine import Store

N, X = NECESSARY, INAPPROPRIATE
WHOLE = Effort(tasks=49, planned_tasks=49, fewest=5, most=5, samples=5)
PART = Effort(tasks=3, planned_tasks=6, fewest=1, most=1, samples=2)


def apart(value: float, error: float, freedom: float = 9.0, users: int = 10) -> Interval:
    """A difference with the interval that belongs to its error."""
    reach = float(student.ppf(0.975, freedom)) * error
    return Interval(value, value - reach, value + reach, users, error=error, freedom=freedom)


def say(tested: sentences.Tested) -> str:
    return difference(tested, "B", "A", "leaks", "violation@5")


# ---- differences

NONE = "No detectable difference of B from A in violation@5"


@pytest.mark.parametrize(
    ("interval", "sentence"),
    [
        ((-0.041, 0.01282), "B leaks less than A: -4.1 points, 95 % CI -7.0 to -1.2 (p = 0.011)."),
        ((0.041, 0.01282), "B leaks more than A: 4.1 points, 95 % CI 1.2 to 7.0 (p = 0.011)."),
        ((-0.01, 0.00884), f"{NONE}: -1.0 points, 95 % CI -3.0 to 1.0 (p = 0.287)."),
        ((0.0, 0.00884), f"{NONE}: 0.0 points, 95 % CI -2.0 to 2.0 (p = 1.000)."),
        # Small, but no tie: as many digits as it takes to see that 0 lies outside.
        ((0.0004, 0.0001326), "B leaks more than A: 0.04 points, 95 % CI 0.01 to 0.07 (p = 0.015)."),
        ((0.0, 0.0), f"{NONE}: 0.0 points, 95 % CI 0.0 to 0.0 (p = 1.000)."),
        ((math.nan, math.nan), "B and A have no common flow on which violation@5 could be compared."),
    ],
)
def test_a_difference_in_words(interval: tuple[float, float], sentence: str) -> None:
    assert say(single(apart(*interval))) == sentence


def test_where_nothing_varies_no_test_tells_two_apart() -> None:
    certain = Interval(0.5, 0.3, 0.7, 6, error=0.0, freedom=5.0)
    assert not single(certain).claimed
    assert "nothing varies in what they have in common" in say(single(certain))


def test_few_users_are_said_with_the_claim() -> None:
    assert "of these attributes, with too few users to say more" in say(single(apart(0.3, 0.01, users=1)))
    assert "users" not in say(single(apart(0.3, 0.01, users=5)))


def test_one_of_many_comparisons_is_no_finding_by_itself() -> None:
    one = apart(0.03, 0.0118)
    assert single(one).claimed and not one.has_zero
    tested = family([one, *(apart(0.001, 0.0118) for _ in range(6))])
    assert not tested[0].claimed
    assert say(tested[0]).startswith(f"{NONE}: 3.0 points, 95 % CI 0.3 to 5.7 (p = 0.")
    assert say(tested[0]).endswith(", Holm over 7 comparisons).")
    sure = family([apart(0.2, 0.01), *(apart(0.001, 0.0118) for _ in range(6))])
    assert say(sure[0]).endswith("(p < 0.001, Holm over 7 comparisons).")


numbers = (
    st.floats(-1, 1).map(lambda x: round(x, 9)) | st.floats(-1e-5, 1e-5).map(lambda x: round(x, 11)) | st.just(0.0)
)
errors = st.floats(1e-7, 0.4) | st.just(0.0)


@given(st.lists(st.tuples(numbers, errors), min_size=1, max_size=9))
def test_a_difference_is_claimed_only_where_its_adjusted_p_says_so(values: list[tuple[float, float]]) -> None:
    tested = family([apart(*value) for value in values])
    adjusted = holm([item.difference.p for item in tested])
    for item, p in zip(tested, adjusted, strict=True):
        text = say(item)
        claimed = not text.startswith("No detectable difference")
        if claimed:
            assert p < 0.05 and not item.difference.has_zero
        # What is printed says the same as what was decided on, value and interval in one sense and order.
        numbers = re.search(r": (\S+) points, 95 % CI (\S+) to (\S+) \(p", text)
        assert numbers is not None
        value, low, high = map(float, numbers.groups())
        assert (low <= 0 <= high) == item.difference.has_zero
        assert low <= value <= high and np.sign(value) == (
            0 if abs(item.difference.value) <= sentences.TIE else np.sign(item.difference.value)
        )
        assert ("less than" in text) == (claimed and value < 0)
        assert sentences.difference_short(item, "leaks") == (
            "no detectable difference" if not claimed else "leaks less" if item.difference.value < 0 else "leaks more"
        )


@given(st.floats(0, 1), st.floats(0, 1))
def test_shares_beside_each_other_read_apart(one: float, other: float) -> None:
    texts = sentences.shares(one, other)
    if abs(one - other) > 1e-6:
        assert texts[0] != texts[1]
    for value, text in zip((one, other), texts, strict=True):
        read = float(text.removesuffix(" %")) / 100
        assert read == pytest.approx(value, abs=0.00051)
        if 1e-9 < value < 1 - 1e-6:
            assert 0 < read < 1


@given(st.floats(0, 1))
def test_p_reads_on_its_side_of_the_limit(p: float) -> None:
    text = sentences.p_text(p)
    assert (float(text.split()[-1]) < 0.05) == separates(p)


def test_eight_equal_runs_against_the_first_are_rarely_told_apart() -> None:
    """Faults 7: by single intervals 27 % of such families had a false finding."""
    generator = np.random.default_rng(7)
    false = single = 0
    for _ in range(600):
        # Of 10 users: their own level, and chance in each run.
        runs = generator.normal(0, 1, (10, 1)) + generator.normal(0, 1, (10, 9))
        d = runs[:, 1:] - runs[:, :1]
        differences = [apart(m, s) for m, s in zip(d.mean(axis=0), d.std(axis=0, ddof=1) / math.sqrt(10), strict=True)]
        false += any(not say(item).startswith("No detectable") for item in family(differences))
        single += any(not item.has_zero for item in differences)
    assert single > 0.15 * 600 > 0.065 * 600 > false


def domain_frame(violation: Sequence[tuple[float, float]]) -> pd.DataFrame:
    differences = [apart(*value) for value in violation]
    return pd.DataFrame(
        {
            "domain": [f"domain_{i}" for i in range(len(differences))],
            "violation": [item.value for item in differences],
            "violation_low": [item.low for item in differences],
            "violation_high": [item.high for item in differences],
            "violation_p": holm([item.p for item in differences]),
        }
    )


def test_domains_are_told_apart_over_all_of_them() -> None:
    one_of_nine = [(0.03, 0.0118), *((0.001, 0.0118) for _ in range(8))]
    frame = domain_frame(one_of_nine)
    assert frame["violation_low"].iloc[0] > 0  # by its own interval it would have been a finding
    assert sentences.domains(frame, "A", "B") == "In none of 9 domains does a test tell B and A apart (Holm)"
    mixed = domain_frame([(0.3, 0.01), (-0.2, 0.01), (0.0, 0.01)])
    assert (
        sentences.domains(mixed, "A", "B")
        == "B leaks less than A in 1 (domain 1) and more in 1 (domain 0) of 3 domains (Holm)"
    )
    none = frame.assign(violation_p=math.nan)
    assert "no inappropriate flow in common" in sentences.domains(none, "A", "B")


# ---- the highest of a family


def test_ties_and_what_cannot_be_tested_are_not_separable() -> None:
    tied = standing([0.2, 0.2, 0.1], [math.nan, 1e-9, 1e-9])
    assert tied == Standing(0, 0.2, 1, 2, 1)
    assert standing([0.2, 0.1], [math.nan, math.nan]) == Standing(0, 0.2, 0, 1, 1)
    assert standing([math.nan], [math.nan]) is None
    assert standing([math.nan, 0.3], [0.0, 0.0]) == Standing(1, 0.3, 0, 0, 0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_the_most_is_claimed_only_where_every_test_agrees(rows: list[tuple[float, float]]) -> None:
    values, p = zip(*rows, strict=True)
    result = standing(values, p)
    assert result is not None and 0 <= result.indistinguishable <= result.others == len(rows) - 1
    adjusted = holm([x for i, x in enumerate(p) if i != result.first])
    text = sentences.groups("A", "domain", 5, ("finance", result))
    if "gives away most" in text:
        assert all(x < 0.05 for x in adjusted) and result.ties == 0
    elif result.others and result.value > sentences.TIE:
        assert "highest" in text and "too close to call against" in text


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        (None, "A: no domain has an inappropriate flow"),
        (("finance", Standing(0, 0.0, 9, 9, 9)), "A: nothing inappropriate was revealed in any of 10 domains"),
        (("finance", Standing(0, 0.0, 0, 0, 0)), "A: nothing inappropriate was revealed in the only domain"),
        (
            ("finance", Standing(0, 0.3, 0, 0, 0)),
            "A: violation@5 is 30.0 % in finance, the only domain with an inappropriate flow",
        ),
        (
            ("finance", Standing(0, 0.3, 0, 9, 0)),
            "A gives away most in finance: violation@5 30.0 %, clearly above all 9 other domains",
        ),
        (
            ("finance", Standing(0, 0.0002, 0, 9, 8)),
            "A: violation@5 is highest in finance (0.02 %), too close to call against 8 of 9 other domains",
        ),
        (
            ("", Standing(0, 0.3, 1, 1, 1)),
            "A: violation@5 is highest in (none) (30.0 %), too close to call against the other domain",
        ),
    ],
)
def test_groups_in_words(group: tuple[str, Standing] | None, sentence: str) -> None:
    assert sentences.groups("A", "domain", 5, group) == sentence


def test_cells_in_words() -> None:
    def text(standing: Standing, measure: str = "violation") -> str:
        return sentences.cell(Cell("finance", "landlord", 0.25, 8, standing), "in finance to landlord", measure)

    assert text(Standing(0, 0.0, 9, 9, 9)) == "nothing inappropriate was revealed"
    assert text(Standing(0, 0.0, 9, 9, 9), "completeness") == "everything necessary was conveyed"
    assert text(Standing(3, 2.0, 0, 489, 57)) == (
        "the largest count of pairs leaked is in finance to landlord (25.0 % of 8 inappropriate pairs), "
        "too close to call against 57 of 489 other cells"
    )
    assert text(Standing(3, 2.0, 0, 489, 0), "completeness").startswith("most pairs left out in finance to landlord")
    assert sentences.cell(None, "", "violation") == "nothing was inappropriate"


def test_a_cell_is_a_title_only_where_it_is_a_finding() -> None:
    def title(standing: Standing) -> str:
        return sentences.cell_title(
            Cell("finance", "landlord", 0.25, 8, standing), "in finance to landlord", "violation"
        )

    assert title(Standing(3, 2.0, 0, 489, 57)) == ""
    assert title(Standing(3, 2.0, 0, 489, 0)).startswith(
        "Most pairs leaked in finance to landlord (25.0 % of 8 inappropriate"
    )
    assert title(Standing(0, 0.0, 9, 9, 9)) == "Nothing inappropriate was revealed"


def equal_cells(generator: np.random.Generator, users: int, cells: int, pairs: int, more: float = 0.0) -> Standing:
    """A world of cells in which all leak alike, users not; `more` of the first cell's pairs leak besides."""
    own = generator.beta(1, 5, users)
    leaks = generator.random((users, cells, pairs)) < own[:, None, None]
    leaks[:, 0] |= generator.random((users, pairs)) < more
    user, cell, _ = np.indices(leaks.shape)
    flows = cell.ravel(), user.ravel(), leaks.ravel().astype(float), cells, users
    sums = CellSums.of(*flows)
    assert sums.first is not None
    result = sums.standing(sums.first, shared_with(sums.first, *flows))
    assert result is not None
    return result


def test_the_largest_of_equal_cells_is_rarely_called_the_most() -> None:
    generator = np.random.default_rng(3)
    standings = [equal_cells(generator, 10, 20, 4) for _ in range(300)]
    # Neither that it is the most, nor that it is separable from any other.
    assert sum(item.clear for item in standings) <= 6
    assert sum(item.indistinguishable < item.others for item in standings) <= 0.065 * 300
    assert sum(equal_cells(generator, 2, 3, 3).indistinguishable < 2 for _ in range(200)) <= 0.065 * 200
    assert equal_cells(generator, 10, 4, 60, more=0.95).clear


def test_counts_that_would_be_equal_are_compared_exactly() -> None:
    from scipy.stats import binomtest

    for more, fewer in combinations(range(12), 2):
        expected = binomtest(max(more, fewer), more + fewer).pvalue
        assert float(fewer_by_chance(np.array(float(more)), np.array(float(fewer)))) == pytest.approx(expected)
    assert float(fewer_by_chance(np.zeros(()), np.zeros(()))) == 1.0


def arrays(
    reveals: np.ndarray, draws: np.ndarray, labels: np.ndarray | None = None, planned: np.ndarray | None = None
) -> FlowArrays:
    """The last attribute is necessary everywhere, the others are inappropriate, unless labels say otherwise."""
    if labels is None:
        labels = np.full(reveals.shape, X)
        labels[:, -1] = N
    counted = np.ones(reveals.shape[:2], np.bool_)
    profiles, contexts = tuple(range(reveals.shape[0])), tuple(range(reveals.shape[2]))
    return FlowArrays(
        reveals, draws, labels, counted, profiles, contexts, Names.unnamed(*reveals.shape[:2]), planned=planned
    )


def test_ten_groups_at_zero_are_no_finding_and_a_real_one_is() -> None:
    """Fault 7: 'gives away most in education: 0.0 %'."""
    generator = np.random.default_rng(1)
    shape = (10, 21, 6)
    draws = np.full(shape, 5)

    def standing_of(reveals: np.ndarray) -> Standing | None:
        codes = (np.arange(21) % 10)[None, :, None]
        return highest_group([Terms.joined([own]) for own in group_terms(arrays(reveals, draws), codes, 10, 5)])

    nothing = standing_of(np.zeros(shape, int))
    assert nothing == Standing(0, 0.0, 9, 9, 9)
    leaky = np.where((np.arange(21) % 10 == 4)[None, :, None], 0.6, 0.005)
    real = standing_of(generator.binomial(5, np.broadcast_to(leaky, shape)))
    assert real is not None and real.first == 4 and real.clear
    claims = 0
    for _ in range(100):
        users = generator.beta(1, 40, (10, 1, 1))
        result = standing_of(generator.binomial(5, np.broadcast_to(users, shape)))
        claims += result is not None and result.indistinguishable < result.others
    assert claims <= 9


def test_cells_of_equal_runs_are_rarely_told_apart() -> None:
    generator = np.random.default_rng(4)
    false = 0
    for _ in range(300):
        p = np.broadcast_to(generator.beta(1, 6, (10, 1, 1)), (10, 30, 6))
        user, cell, _ = np.indices(p.shape)
        d = (generator.binomial(5, p) - generator.binomial(5, p)) / 5
        tests = CellSums.of(cell.ravel(), user.ravel(), d.ravel(), 30, 10).p()
        false += min(holm(tests.tolist())) < 0.05
    assert false <= 0.065 * 300


def test_changed_cells_in_words() -> None:
    def text(cells: int, higher: int = 0, *, clear: bool = False, alone: bool = False) -> str:
        widest = Widest("finance", "landlord", 40.0, 34, clear) if cells else None
        changes = CellChanges(cells, higher, 0, 400, widest)
        return sentences.changed_cells(changes, "A", "B", "leaks", "in finance to landlord", unpaired=alone)

    assert text(0) == "B and A have no flow in common"
    # A largest difference that no test tells from 0 is no finding.
    assert text(120) == "In none of 120 cells does a test tell B and A apart (Holm)"
    assert text(120, 2) == "B leaks more than A in 2 of 120 cells (Holm)"
    assert text(120, 2, clear=True) == (
        "B leaks more than A in 2 of 120 cells (Holm); the largest difference is in finance to landlord "
        "(+40.0 points of 34 pairs)"
    )
    assert text(120, 2, clear=True, alone=True).endswith("(+40.0 points of 34 pairs that both have)")


def test_the_largest_difference_of_two_heatmaps_is_of_the_flows_that_both_judged(sqlite_store: Store) -> None:
    """A has the first 12 users, 9 of whom leak an attribute; none of them does in B, but all of its 48 others."""
    data = add_dataset(sqlite_store, profiles=60, attributes=3, contexts=2)
    x, n = [INAPPROPRIATE] * 2, [NECESSARY] * 2
    add_labels(sqlite_store, data.id, [[x, x, n]] * 60)
    silent, leaky = [[0, 0], [0, 0], [1, 1]], [[1, 0], [0, 0], [1, 1]]
    runs = (
        add_run(sqlite_store, data.id, 1, [leaky] * 9 + [silent] * 51, profiles=slice(0, 12)),
        add_run(sqlite_store, data.id, 1, [silent] * 12 + [leaky] * 48),
    )
    flows = Flows(sqlite_store)
    first, second = (resolve_scope(sqlite_store, run) for run in runs)
    sides = heatmap.places(flows, first, heatmap.By.ATTRIBUTE), heatmap.places(flows, first, heatmap.By.CONTEXT)
    changes = cell_changes(flows, (first, second), sides, 1, "violation")
    assert changes.widest is not None and changes.pairs == 12 * 4
    assert (changes.widest.points, changes.widest.pairs, changes.widest.clear) == (-75.0, 12, True)
    assert (changes.lower, changes.higher) == (1, 0)
    # All flows of either run say the reverse there: 48 of 60 against 9 of 12.
    grids = [heatmap.grid(flows, scope, sides[0].by, sides[1].by, 1) for scope in (first, second)]
    assert np.nanmax(grids[1].violation - grids[0].violation) == pytest.approx(0.05)


# ---- flows that change by chance


def test_chance_changes_as_many_flows_as_all_arrangements_say() -> None:
    first, second, revealed = 2, 3, 2
    every = list(combinations(range(first + second), revealed))
    newly = sum(min(chosen) >= first for chosen in every) / len(every)
    stopped = sum(max(chosen) < first for chosen in every) / len(every)
    one = (np.array([first]), np.array([1]), np.array([second]), np.array([1]))
    assert changed_by_chance(*one) == pytest.approx((newly, stopped))
    nothing = (np.array([5, 5]), np.array([0, 0]), np.array([5, 5]), np.array([0, 0]))
    assert changed_by_chance(*nothing) == (0.0, 0.0)


@pytest.mark.parametrize("draws", [(5, 5), (5, 2)])
def test_a_repetition_of_the_same_model_changes_as_many_flows_as_expected(draws: tuple[int, int]) -> None:
    generator = np.random.default_rng(11)
    apart_by = []
    for _ in range(400):
        p = generator.beta(0.3, 6, 500)
        one, two = (generator.binomial(n, p) for n in draws)
        expected = changed_by_chance(np.full(500, draws[0]), one, np.full(500, draws[1]), two)
        seen = ((one == 0) & (two > 0)).sum(), ((one > 0) & (two == 0)).sum()
        apart_by.append(np.subtract(seen, expected))
    deviations = np.array(apart_by)
    error = deviations.std(axis=0, ddof=1) / math.sqrt(len(deviations))
    assert (np.abs(deviations.mean(axis=0)) < 4 * error).all()
    assert (error < 1).all()


def test_changed_flows_come_with_what_chance_would_show() -> None:
    text = sentences.changed_flows(Tallied(0, 3, 1, 0, 1.46, 2.54))
    assert text == (
        "1 flow newly leaks, 3 stopped leaking; a repetition with equal leak probabilities would show about 1.5 and 2.5"
    )
    assert sentences.changed_flows(Tallied(9, 0, 0, 4)) == "0 flows newly leak, 0 stopped leaking"
    generator = np.random.default_rng(2)
    shape, draws = (3, 5, 4), np.full((3, 5, 4), 4)
    both = common(*(arrays(generator.binomial(4, 0.2, shape), draws) for _ in range(2)))
    tallied, _ = changes(*both)
    assert tallied.newly_by_chance == pytest.approx(tallied.stopped_by_chance)
    assert 0 < tallied.newly_by_chance < tallied.flows


# ---- the leaderboard


def ranked(name: str, violation: float, completeness: float = 0.5) -> Ranked:
    score = balanced(violation, completeness)
    return Ranked(name, *(Interval(x, x, x, 10) for x in (violation, completeness, score)))


def test_the_leaderboard_calls_a_run_best_only_where_tests_do() -> None:
    runs = [ranked("A", 0.18), ranked("B", 0.33), ranked("C", 0.64)]
    best = sentences.leaderboard("Violation@5", runs, Ranking(Standing(0, 0.62, 0, 2, 0), 0.001))
    assert best == (
        f"Best balance: A, {sentences.share(balanced(0.18, 0.5))}. Violation@5 ranges from 18.0 % (A) to 64.0 % (C)."
    )
    unclear = sentences.leaderboard("Violation@5", runs, Ranking(Standing(0, 0.62, 0, 2, 1), 0.3))
    assert "%; one other is too close to call. Violation@5 lies between" in unclear
    assert unclear.endswith("64.0 % (C), too close to call.")
    assert sentences.leaderboard("V", runs[:1], None) == "A: V 18.0 %, completeness 50.0 %."
    assert "No run" in sentences.leaderboard("V", [], None)
    near = sentences.leaderboard("V", [ranked("A", 0.18), ranked("B", 0.18001)], Ranking(Standing(0, 0.6, 0, 1, 1), 1))
    assert "between 18.000 % (A) and 18.001 % (B)" in near
    tied = sentences.leaderboard("V", [ranked("A", 0.2), ranked("B", 0.2)], Ranking(Standing(0, 0.6, 1, 1, 1), 1.0))
    assert tied == f"V is 20.0 % in all 2 runs, the balanced score {sentences.share(balanced(0.2, 0.5))}."


def test_the_difference_of_balanced_scores_is_that_of_the_scores() -> None:
    generator = np.random.default_rng(6)
    shape, draws = (8, 12, 6), np.full((8, 12, 6), 5)
    one, two = common(*(arrays(generator.binomial(5, p, shape), draws) for p in (0.1, 0.3)))
    paired: Paired = paired_arrays(one, two, 5)
    scores = [balanced(*side) for side in (paired.first, paired.second)]
    assert paired.balanced.value == pytest.approx(scores[1] - scores[0], abs=1e-12)
    assert paired.balanced.low < paired.balanced.value < paired.balanced.high
    back = paired_arrays(two, one, 5).balanced
    assert (back.value, back.low, back.high) == pytest.approx(
        (-paired.balanced.value, -paired.balanced.high, -paired.balanced.low)
    )


# ---- one run: counts are what was judged


def partly_judged() -> FlowArrays:
    """One user, 6 planned tasks of 2 messages; of 3 tasks one message is judged. Nothing is revealed."""
    shape = (1, 4, 6)
    draws = np.zeros(shape, int)
    draws[:, :, ::2] = 1
    return arrays(np.zeros(shape, int), draws, planned=np.full(shape, 2))


def test_counts_in_sentences_are_of_what_was_judged() -> None:
    """Fault 5: 'after 6 tasks', 'within 2 samples a task', of 3 judged messages."""
    data = partly_judged()
    done = effort_of(data, 2)
    assert done == PART and not done.whole
    curves = accumulation_of([data], intervals_of(data, (1, 2)).violation)
    texts = [
        sentences.accumulation("A", curves, done, 0.25),
        sentences.curves(curves, 0.0, 2, done),
        sentences.headline("A", 1, Interval(0.0, 0.0, 0.1, 5), apart(0.4, 0.05), done),
    ]
    assert texts[0] == (
        "A: no private attribute was revealed in 3 judged tasks of 6 of a user, 1 of 2 messages a task judged. "
        "Only 25.0 % of the messages are judged."
    )
    assert texts[1] == "After 3 judged tasks of 6 nothing private is revealed"
    assert texts[2].startswith(
        "A gives away 0.0 % [0.0, 10.0] of what it should withhold (violation@1, 1 of 2 messages a task judged)"
    )
    path = order_of(data, 0)
    assert len(path) == 6
    judged = path[data.draws[0].max(axis=0)[path] > 0]
    assert sentences.first_leak(survival([first_leaks(data, 0, judged)])) == "No attribute leaks in 3 judged tasks"
    assert effort_of(arrays(np.zeros((2, 3, 4), int), np.full((2, 3, 4), 5)), 5) == Effort(4, 4, 5, 5, 5)
    assert sentences.messages(Effort(4, 4, 1, 3, 5)) == "1 to 3 of 5 messages a task judged"
    assert sentences.messages(Effort(1, 1, 1, 1, 1)) == "1 message a task"


def test_a_user_with_unjudged_tasks_is_counted_by_the_judged_ones() -> None:
    @dataclass(frozen=True)
    class Step:
        judged: int
        leaks: tuple[()] = ()

    none = {"curves": {}, "expected": {}, "expected_share": np.zeros(2)}
    user = OneUser(1, "Ann", order=None, attributes=7, steps=(Step(1), Step(0)), **none)  # type: ignore[arg-type]
    assert sentences.one_user(user) == "Ann: 0 of 7 private attributes leak in 1 judged task of 2"


def test_the_baseline_of_accumulation_is_called_what_it_is() -> None:
    """Fault 6: without any repetition 2,016 reveals over 1,252 attributes could have reached 100 %."""
    generator = np.random.default_rng(8)
    shape, draws = (6, 10, 5), np.full((6, 10, 5), 3)
    data = arrays(generator.binomial(3, 0.2, shape), draws)
    curves = accumulation_of([data], intervals_of(data, (1, 3)).violation)
    even = float(np.nanmean(independent(data, 3)[:, -1]))
    title = sentences.curves(curves, even, 3, effort_of(data, 3))
    assert "If leaks fell at random" in title and "did not repeat" not in title
    assert title.startswith("After 5 tasks ")


def test_ends_of_unequal_curves_are_no_order() -> None:
    text = sentences.curve_ends([("A", 0.0, 2, PART), ("B", 0.64, 5, WHOLE)])
    assert text == (
        "The curves end after unequal tasks or messages, so their ends are no order: "
        "A 0.0 % after 3 judged tasks of 6, 1 of 2 messages a task judged; B 64.0 % after 49 tasks, 5 messages a task"
    )
    alike = sentences.curve_ends([("A", 0.64, 5, WHOLE), ("B", 0.18, 5, WHOLE)])
    assert alike == "After 49 tasks 18.0 % (B) to 64.0 % (A) of attributes are out"
    assert "in all 2 runs" in sentences.curve_ends([("A", 0.2, 5, WHOLE), ("B", 0.2, 5, WHOLE)])


def test_what_is_missing_or_simulated_stays_in_the_sentence() -> None:
    assert sentences.missing(1.0) == "" == sentences.missing(0.99)
    assert sentences.missing(0.25) == " Only 25.0 % of the messages are judged."
    marked = "gpt-5 (simulated)"
    for text in (
        sentences.headline(marked, 5, apart(0.2, 0.05), apart(0.4, 0.05), WHOLE),
        sentences.groups(marked, "domain", 5, ("finance", Standing(0, 0.3, 0, 9, 8))),
        sentences.leaderboard("V", [ranked(marked, 0.2)], None),
        difference(single(apart(0.1, 0.2)), marked, "A", "leaks", "violation"),
        sentences.plane([marked], 3),
    ):
        assert marked in text


def test_hazard_and_first_leak_in_words() -> None:
    assert sentences.hazard([0.0, 0.0]) == "No task reveals anything"
    assert sentences.hazard([0.5]) == "The first task reveals 50.0 % of what is private"
    assert sentences.hazard([0.04, math.nan]) == "The first task reveals 4.0 % of what is private"
    leaking = arrays(np.array([[[1, 0, 0], [0, 1, 0], [0, 0, 0]]]), np.ones((1, 3, 3), int))
    curve = survival([first_leaks(leaking, 0, order_of(leaking, 0))], Clock.TASKS)
    assert sentences.first_leak(curve) == "Half of the attributes have leaked after 1 judged task"


# ---- sweeps and sensitivity


def test_a_number_along_an_axis_moves_only_where_a_test_says_so() -> None:
    far = apart(0.6, 0.02), apart(0.2, 0.02)
    near = apart(0.30, 0.05), apart(0.36, 0.05)
    assert sentences.moved("violation@5", far, sentences.apart_p(*far)) == (
        "violation@5 falls from 60.0 % to 20.0 %",
        True,
    )
    assert sentences.moved("violation@5", near, sentences.apart_p(*near))[1] is False
    same = apart(0.3, 0.0), apart(0.3, 0.0)
    assert sentences.apart_p(*same) == 1.0
    assert math.isnan(sentences.apart_p(Interval(0.3, 0.2, 0.4, 9), near[0]))
    text = sentences.sweep("", ("base", "high"), [("violation@5 (30.0 %, 36.0 %)", False)])
    assert text == "From base to high no test shows that violation@5 (30.0 %, 36.0 %) changes"


@given(
    st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=6),
    st.lists(st.floats(0.01, 1), min_size=3, max_size=3),
)
def test_where_all_must_agree_strictly_positive_priors_change_nothing(
    votes: list[list[int]], weights: list[float]
) -> None:
    counts = np.array(votes).reshape(-1, 3, 3)
    priors = np.array(weights) / sum(weights)
    first = consensus(counts, [0.26, 0.64, 0.10], 1.0)
    assert (consensus(counts, priors, 1.0) == first).all()


# ---- counts, and judges beside people


def test_counts_have_ends_only_where_they_differ() -> None:
    assert sentences.ends(["law", "health", "work"], [0.12, 0.8, 0.8]) == "from 12.0 % (law) to 80.0 % (2)"
    assert sentences.ends(["law", "health"], [0.3, 0.3]) == "30.0 % in each of 2"
    assert sentences.ends(["law"], [0.3]) == "30.0 % in law"
    assert sentences.leaks_by_run([("A", 12), ("B", 9)]) == "12 by A, 9 by B"
    assert sentences.leaks_by_run([(name, 3) for name in "ABCDE"]) == "3 by each of 5 runs"
    assert sentences.leaks_by_run([(name, i) for i, name in enumerate("ABCDE")]) == "from 0 by A to 4 by E"


def test_a_judge_is_nearest_to_people_only_where_its_interval_is_above_all_others() -> None:
    far = [("A", 0.9, 0.85, 0.94), ("B", 0.6, 0.5, 0.7)]
    assert sentences.nearest_judge(far) == "A is nearest to people (F1 0.90)"
    near = [*far, ("C", 0.88, 0.8, 0.93), ("D", math.nan, math.nan, math.nan)]
    assert sentences.nearest_judge(near) == "A has the highest F1 (0.90), too close to call against 2 of 3 other judges"
    assert sentences.nearest_judge(far[:1]) == "How far the judge can be trusted"


def test_the_largest_count_is_the_most_only_where_counts_tell_it_apart() -> None:
    for counts, end in (
        ([90, 40, 12], "are discarded, the most, clearly above all 2 other profiles"),
        ([9, 7, 0], "are discarded, the largest count, too close to call against 1 of 2 other profiles"),
        ([9, 9], "are discarded, the largest count, too close to call against the other profile"),
        ([9], "9 of 99 contexts of Ann are discarded"),
        ([1], "1 of 99 contexts of Ann is discarded"),
    ):
        standing = largest_count(counts)
        assert standing is not None
        assert sentences.contexts_discarded("Ann", counts[0], 99, standing).endswith(end)
    assert largest_count([]) is None
    tied = largest_count([5, 5])
    assert tied is not None
    sentence = sentences.labels_changed("finance", 5, 7, tied, "domain", "domains")
    assert (
        sentence
        == "5 of 7 pairs of finance change their label, the largest count, too close to call against the other domain"
    )


def test_missing_messages_are_said_with_the_n_that_is_read() -> None:
    few = sentences.missing_messages(20, 40, 3, 5, 0.25, (0.2, 0.5), 1)
    assert few.startswith("only 50.0 % of the planned messages are judged")
    assert (
        "violation is read at n = 3, the largest n that every judged flow supports (violation@3 25.0 %; 1 context"
        in few
    )
    assert few.endswith(
        "violation@5 of all planned messages lies between 20.0 % and 50.0 %, whatever the missing ones say"
    )
    assert sentences.missing_messages(999, 1000, 5, 5, 0.25, (0.2, 0.5), 0).startswith("1 planned message missing: ")
    none_matters = sentences.missing_messages(999, 1000, 5, 5, 0.2, (0.2, 0.2), 0)
    assert none_matters.endswith("violation@5 of all planned messages is 20.0 %, whatever the missing ones say")
    assert sentences.missing_messages(40, 40, 5, 5, 0.25, (0.2, 0.2), 0) == ""
    assert sentences.limited(5, 5) == "" and sentences.limited(1, 5).startswith("; read at n = 1, the largest n")


def test_flow_coverage_in_words() -> None:
    parts = dict.fromkeys(PARTS, 0) | {NECESSARY_FLOWS: 3, INAPPROPRIATE_FLOWS: 1, AMBIGUOUS_FLOWS: 4, "decided": 0}
    sentence = coverage_text(FlowCoverage(parts, pd.DataFrame()))
    assert sentence == "the headline covers 50.0 % of 8 flows (3 necessary, 1 inappropriate)"
    nothing = FlowCoverage(dict.fromkeys([*PARTS, "decided"], 0), pd.DataFrame())
    assert coverage_text(nothing) == "the run has no flow"
