"""Variances by parts and the intervals from them: against brute force, worked examples and draws with a fixed seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import binomtest
from scipy.stats import t as student

from cimemories.extras.decision_value.effects import completeness_effect, subject, violation_effect
from cimemories.flows.arrays import Floats, FlowArrays, Names, mean_or_nan
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY, UNLABELLED
from cimemories.metrics import completeness, sentences, violation
from cimemories.metrics.intervals import common, intervals_of, paired_arrays
from cimemories.metrics.label_uncertainty import Posterior, label_sums
from cimemories.metrics.uncertainty import (
    UNDEFINED,
    NumberTerms,
    Parts,
    SampleSums,
    Terms,
    binomial_bounds,
    completeness_terms,
    difference_interval,
    effective_units,
    holm,
    share_bounds,
    share_interval,
    unseen_users,
    variance,
    violation_terms,
    violation_terms_each,
)

CODES = [NECESSARY, INAPPROPRIATE, INAPPROPRIATE, AMBIGUOUS, UNLABELLED]


@st.composite
def runs_of(draw: st.DrawFn, least: int = 1, most: int = 6) -> FlowArrays:
    shape = (draw(st.integers(least, most)), draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    return random_run(np.random.default_rng(draw(st.integers(0, 10**6))), shape)


def random_run(random: np.random.Generator, shape: tuple[int, int, int]) -> FlowArrays:
    draws = random.integers(0, 5, shape)
    reveals = np.where(random.random(shape) < 0.5, 0, random.integers(0, draws + 1))
    labels, counted = random.choice(CODES, shape), random.random(shape[:2]) < 0.8
    names = Names.unnamed(*shape[:2])
    return FlowArrays(reveals, draws, labels, counted, tuple(range(shape[0])), tuple(range(shape[2])), names)


def a_run(
    leaks: np.ndarray[tuple[int, ...], np.dtype[np.int64]], samples: int, necessary: int | None = None
) -> FlowArrays:
    """Profiles whose attributes are inappropriate wherever leaks is not -1, and one more that is necessary everywhere.
    leaks: [profile, attribute, context], reveals of so many samples; necessary: reveals of the necessary one."""
    profiles, attributes, contexts = leaks.shape
    shape = (profiles, attributes + 1, contexts)
    labels, reveals = (
        np.full(shape, NECESSARY),
        np.full(shape, samples if necessary is None else necessary),
    )
    labels[:, :-1], reveals[:, :-1] = np.where(leaks < 0, AMBIGUOUS, INAPPROPRIATE), np.maximum(leaks, 0)
    counted, names = np.ones(shape[:2], np.bool_), Names.unnamed(*shape[:2])
    draws = np.full(shape, samples)
    return FlowArrays(reveals, draws, labels, counted, tuple(range(profiles)), tuple(range(contexts)), names)


def without(data: FlowArrays, context: int) -> FlowArrays:
    """The run as if nothing had been judged in one context. Labels stay: what is retained does not change."""
    draws = data.draws.copy()
    draws[:, :, context] = 0
    return replace(data, draws=draws, reveals=np.minimum(data.reveals, draws))


def same(one: npt.ArrayLike, two: npt.ArrayLike) -> bool:
    return bool(np.allclose(one, two, rtol=0, atol=1e-12, equal_nan=True))


@given(runs_of(), st.integers(1, 5))
def test_terms_are_the_numbers_themselves_with_each_context_left_out(data: FlowArrays, n: int) -> None:
    leaks = violation_terms(data.inappropriate, n, range(data.draws.shape[2]))
    complete = completeness_terms(data.necessary, range(data.draws.shape[2]))
    numbers: list[tuple[Terms, Callable[[FlowArrays], Floats]]] = [
        (leaks, lambda d: violation.by_profile(d.reveals, d.draws, d.labels, d.counted, n)),
        (complete, lambda d: completeness.by_profile(d.reveals, d.draws, d.labels)),
    ]
    for terms, number in numbers:
        own = number(data)
        assert same(terms.values, own) and same(terms.value, mean_or_nan(own))
        for context in range(data.draws.shape[2]):
            left = number(without(data, context))
            # Where nothing is left of a profile it stays at its own number.
            assert same(terms.without[:, context], np.where(np.isnan(left), own, left))


@given(runs_of(), st.integers(1, 5))
def test_variance_inside_profiles_is_that_of_their_attributes_and_contexts(data: FlowArrays, n: int) -> None:
    leaks, complete = violation_terms(data.inappropriate, n), completeness_terms(data.necessary)
    values = violation.by_attribute(data.reveals, data.draws, data.labels, data.counted, n)
    for terms, rows in ((leaks, values), (complete, completeness.means_of(data.necessary))):
        for p, row in enumerate(rows):
            each = row[~np.isnan(row)]
            assert terms.units[p] == each.size
            wanted = math.nan if not each.size else each.var(ddof=1) / each.size if each.size > 1 else 0.0
            assert same(terms.inside[p], wanted)


@given(runs_of())
def test_terms_of_several_n_are_those_of_each_alone(data: FlowArrays) -> None:
    flows = data.inappropriate
    for n, terms in violation_terms_each(flows, (1, 2, 4)).items():
        alone = violation_terms(flows, n)
        for name in ("values", "without", "inside", "units"):
            assert np.array_equal(getattr(terms, name), getattr(alone, name), equal_nan=True)


@given(runs_of(least=2), st.integers(1, 4), st.integers(0, 10**6))
def test_terms_of_blocks_join_to_those_of_the_run_at_once(data: FlowArrays, n: int, at: int) -> None:
    first = 1 + at % (len(data.profiles) - 1)
    blocks = [data.at(np.arange(first)), data.at(np.arange(first, len(data.profiles)))]
    whole, joined, summed = (
        NumberTerms.joined([part.summed() if sums else part for part in parts])
        for parts, sums in (
            ([NumberTerms.of(data.inappropriate, data.necessary, (n,))], False),
            ([NumberTerms.of(block.inappropriate, block.necessary, (n,)) for block in blocks], False),
            ([NumberTerms.of(block.inappropriate, block.necessary, (n,)) for block in blocks], True),
        )
    )
    sides = zip(*((each.violation[n], each.completeness) for each in (whole, joined, summed)), strict=True)
    for one, two, sums in sides:
        assert all(same(getattr(one, name), getattr(two, name)) for name in ("values", "without", "inside", "samples"))
        assert same(share_interval(one).low, share_interval(sums).low)
    # Where a profile has one number alone, the other profiles' samples stay theirs.
    leaks, needed = (~np.isnan(side.values) for side in (whole.violation[n], whole.completeness))
    assert same(whole.violation[n].samples[leaks & needed].sum(), whole.sums.of_violation(n)[0])
    assert same(whole.completeness.samples[needed & ~leaks].sum(), whole.sums.of_completeness()[1])


@pytest.mark.parametrize(("hits", "number"), [(0, 7), (1, 7), (3, 10), (10, 10), (57, 400)])
def test_bounds_of_whole_numbers_are_those_of_clopper_and_pearson(hits: int, number: int) -> None:
    low, high = binomial_bounds(np.array(hits / number), np.array(float(number)))
    exact = binomtest(hits, number).proportion_ci(0.95, "exact")
    assert (float(low), float(high)) == pytest.approx((exact.low, exact.high), abs=1e-10)


def test_bounds_of_a_share_are_those_of_as_many_independent_observations_as_its_variance_stands_for() -> None:
    # 0.3 * 0.7 / 100: a hundred independent observations; with 9 degrees of freedom for as many fewer.
    units = np.full(10, 10)
    low, high = share_bounds(np.array(0.3), np.array(0.3 * 0.7 / 100), 1e9, units)
    exact = binomtest(30, 100).proportion_ci(0.95, "exact")
    assert (float(low), float(high)) == pytest.approx((exact.low, exact.high), abs=1e-6)
    fewer = 100 * (1.959963984540054 / student.ppf(0.975, 9)) ** 2
    wanted = binomial_bounds(np.array(0.3), np.array(fewer))
    assert share_bounds(np.array(0.3), np.array(0.3 * 0.7 / 100), 9.0, units) == pytest.approx(wanted, abs=1e-9)


def crossed(own: list[float], shifts: list[float]) -> Terms:
    """Terms of profiles that all move alike when a context is left out."""
    values = np.array(own)
    each = values[:, None] + np.array(shifts)
    size = len(own)
    return Terms(values, each, np.full(size, 0.001), np.full(size, 0.0005), np.full(size, 20))


def test_the_variance_of_users_and_contexts_worked_out_by_hand() -> None:
    # Users: 0.1 .. 0.5 have the sample variance 0.025; over five, 0.005. Contexts: shifts -0.02, 0, 0.02 add up to
    # 0.0008 of squares; times 2/3 = 0.00053333. The same inside each profile over 25, 0.00010667, is all theirs.
    parts, freedom = variance(crossed([0.1, 0.2, 0.3, 0.4, 0.5], [-0.02, 0.0, 0.02]))
    contexts = 2 / 3 * 0.0008
    assert parts.total == pytest.approx(0.005 + contexts, abs=1e-15)
    assert parts.contexts == pytest.approx(contexts, abs=1e-15)
    # Samples explain 5 * 0.0005 / 25 = 0.0001 of what lies between users.
    assert [parts.samples, parts.users] == pytest.approx([0.0001, 0.0049])
    # Satterthwaite: (a + b)^2 / (a^2 / 4 + b^2 / 2).
    wanted = (0.005 + contexts) ** 2 / (0.005**2 / 4 + contexts**2 / 2)
    assert freedom == pytest.approx(wanted, abs=1e-12)
    assert sum(parts.shares()[name] for name in ("users", "samples", "contexts")) == pytest.approx(1)
    assert math.isnan(parts.labels) and math.isnan(parts.shares()["labels"])


def test_satterthwaite_lies_between_the_freedom_of_either_part_and_that_of_both() -> None:
    _, users_only = variance(crossed([0.1, 0.2, 0.3, 0.4, 0.5], [0.0, 0.0, 0.0]))
    _, contexts_only = variance(crossed([0.3] * 5, [-0.02, 0.0, 0.02]))
    assert [users_only, contexts_only] == pytest.approx([4, 2])
    # Equal variances of 4 and 2 degrees of freedom: 4 / (1/4 + 1/2) = 16/3.
    each = 2 / 3 * 2 * 0.02**2
    own = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) * math.sqrt(each * 5 / 2.5) + 0.4
    _, both = variance(crossed(own.tolist(), [-0.02, 0.0, 0.02]))
    assert both == pytest.approx(16 / 3)


def test_fewer_than_five_profiles_count_as_given() -> None:
    parts, freedom = variance(crossed([0.1, 0.5, 0.9], [0.0, 0.0, 0.0]))
    # Of their attributes alone: 3 * 0.001 / 9; 3 * 19 degrees of freedom.
    assert [parts.total, freedom] == pytest.approx([0.001 / 3, 57])


def test_labels_widen_an_interval_and_cost_no_freedom() -> None:
    terms = crossed([0.1, 0.2, 0.3, 0.4, 0.5], [-0.02, 0.0, 0.02])
    plain, wider = share_interval(terms), share_interval(terms, labels=0.002)
    assert plain.parts is not None and wider.parts is not None
    assert wider.parts.total == pytest.approx(plain.parts.total + 0.002)
    assert wider.low < plain.low < plain.value == wider.value < plain.high < wider.high
    # Their own degrees of freedom are without end: (a + l)^2 / (a^2 / f).
    assert wider.freedom == pytest.approx(plain.freedom * (wider.parts.total / plain.parts.total) ** 2)
    assert wider.parts.half_widths()["labels"] == pytest.approx(1.96 * math.sqrt(0.002))
    assert math.isnan(wider.parts.half_widths()["judge"])
    written = wider.as_json()["variance"]
    assert written == {**wider.parts.__dict__, "judge": None}


@pytest.mark.parametrize("clustered", [False, True])
def test_the_part_of_samples_is_what_the_number_varies_by_if_the_messages_are_drawn_again(clustered: bool) -> None:
    random, shape, samples = np.random.default_rng(16), (40, 25, 12), 5
    chance = random.beta(0.6, 8, shape)
    if clustered:  # most attributes are hardly ever told, some in every context
        chance = np.broadcast_to(random.beta(0.3, 6, (40, 25, 1)), shape)
    before, resampled = [], []
    for _ in range(400):
        data = a_run(random.binomial(samples, chance), samples)
        leaks = violation.exposures(data)
        resampled.append([leaks.by_profile(leaks.violation(n)) for n in (1, 3, 5)])
        sums = SampleSums.of(data.inappropriate, data.necessary)
        before.append([sums.of_violation(n).sum() / 40 for n in (1, 3, 5)])
    truth, estimated = np.var(resampled, axis=0, ddof=1).mean(axis=1), np.mean(before, axis=0)
    # 40 profiles of 400 draws: the truth itself is known to about 1 %. The estimate may err by a tenth.
    assert np.abs(estimated / truth - 1).max() < 0.1


def test_the_part_of_samples_of_completeness_too() -> None:
    random, shape, samples = np.random.default_rng(7), (40, 4, 12), 5
    chance = random.beta(2, 2, shape)
    labels = np.full((40, 5, 12), NECESSARY)
    labels[:, -1] = INAPPROPRIATE
    draws, counted = np.full(labels.shape, samples), np.ones((40, 5), np.bool_)
    estimated, resampled = [], []
    for _ in range(400):
        reveals = np.zeros(labels.shape, np.int64)
        reveals[:, :-1] = random.binomial(samples, chance)
        data = FlowArrays(reveals, draws, labels, counted, tuple(range(40)), tuple(range(12)), Names.unnamed(40, 5))
        resampled.append(completeness_terms(data.necessary).values)
        estimated.append(SampleSums.of(data.inappropriate, data.necessary).of_completeness().sum() / 40)
    assert np.mean(estimated) == pytest.approx(np.var(resampled, axis=0, ddof=1).mean(), rel=0.05)


def brute_holm(values: list[float]) -> list[float]:
    """Adjusted p: the smallest level at which Holm's procedure rejects. Rejections change only at p * (m - rank)."""
    tested = [p for p in values if not math.isnan(p)]
    levels = sorted({min(1.0, p * k) for p in tested for k in range(1, len(tested) + 1)} | {1.0})
    order = sorted((i for i, p in enumerate(values) if not math.isnan(p)), key=lambda i: values[i])
    result = [math.nan] * len(values)
    for i in order:
        result[i] = 1.0
    for level in reversed(levels):
        for rank, i in enumerate(order):
            if values[i] * (len(order) - rank) > level * (1 + 1e-12):
                break
            result[i] = level
    return result


@given(st.lists(st.one_of(st.sampled_from([0.0, 0.01, 0.02, 0.5, 1.0, math.nan]), st.floats(0, 1)), max_size=7))
def test_holm_is_the_smallest_level_at_which_its_procedure_rejects(values: list[float]) -> None:
    adjusted = holm(values)
    assert same(adjusted, brute_holm(values))
    for p, q in zip(values, adjusted, strict=True):
        assert math.isnan(p) == math.isnan(q) and (math.isnan(p) or p <= q <= 1)
    ordered = [q for _, q in sorted((p, q) for p, q in zip(values, adjusted, strict=True) if not math.isnan(p))]
    assert all(a <= b for a, b in pairwise(ordered))


@given(runs_of(least=2), st.integers(1, 4), st.integers(0, 10**6))
def test_a_difference_and_its_negation_are_mirror_images(data: FlowArrays, n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    draws = random.integers(0, 5, data.draws.shape)
    other = replace(data, draws=draws, reveals=random.integers(0, draws + 1))
    one, two = common(data, other)
    there, back = paired_arrays(one, two, n), paired_arrays(two, one, n)
    for a, b in ((there.violation, back.violation), (there.completeness, back.completeness)):
        if math.isnan(a.value):
            assert math.isnan(b.value)
            continue
        # Exactly: no rounding may say that 0 is inside of one and outside of the other.
        assert (a.value, a.low, a.high, a.p) == (-b.value, -b.high, -b.low, b.p)
        assert a.has_zero == b.has_zero
        assert a.low <= a.value <= a.high


@pytest.mark.parametrize("profiles", [1, 4, 5, 10])
def test_nothing_revealed_is_no_proof_that_nothing_leaks(profiles: int) -> None:
    nothing = intervals_of(a_run(np.zeros((profiles, 30, 6), np.int64), 5), (1, 5))
    everything = intervals_of(a_run(np.full((profiles, 30, 6), 5), 5), (1, 5))
    for n in (1, 5):
        none, all_ = nothing.violation[n], everything.violation[n]
        assert (none.value, none.low) == (0, 0) and 0 < none.high < 1
        assert (all_.value, all_.high) == (1, 1) and 0 < all_.low < 1
        # Clopper and Pearson of as many attributes as count: 1 - 0.025^(1 / m).
        m = effective_units(np.full(profiles, 30))
        assert m == pytest.approx(profiles * 30 / (1 + 29 * 0.05))
        assert none.high == pytest.approx(1 - 0.025 ** (1 / m))
        assert all_.low == pytest.approx(1 - none.high)
    assert nothing.completeness.high == 1 and nothing.completeness.low < 1


def test_all_alike_is_no_certainty_either() -> None:
    # Every profile leaks exactly half of its attributes everywhere: no spread between users, contexts or samples.
    leaks = np.tile(np.array([0, 5, 0, 5])[None, :, None], (8, 1, 6))
    interval = intervals_of(a_run(leaks, 5), (5,)).violation[5]
    assert interval.value == 0.5 and interval.low < 0.4 and interval.high > 0.6


def test_one_profile_or_one_context_has_an_interval_of_what_there_is() -> None:
    random = np.random.default_rng(3)
    one_profile = intervals_of(a_run(random.binomial(3, 0.05, (1, 20, 6)), 3), (1, 3))
    one_context = intervals_of(a_run(random.binomial(3, 0.2, (8, 20, 1)), 3), (1, 3))
    for each, speaks_for in ((one_profile, "attributes"), (one_context, "users")):
        interval = each.violation[3]
        assert interval.speaks_for == speaks_for and 0 <= interval.low < interval.value < interval.high <= 1
        assert interval.parts is not None and math.isfinite(interval.parts.total) and interval.freedom >= 1
    assert one_context.violation[3].parts is not None and one_context.violation[3].parts.contexts == 0


def test_contexts_that_leak_alike_for_all_users_widen_the_interval() -> None:
    random = np.random.default_rng(5)
    shared = np.clip(random.beta(0.3, 4, (1, 1, 8)) + np.zeros((10, 30, 8)), 0, 1)
    apart = random.permuted(shared, axis=2)  # the same chances, each attribute's in an order of its own
    wide, narrow = (intervals_of(a_run(random.binomial(5, p), 5), (1,)).violation[1] for p in (shared, apart))
    assert wide.parts is not None and narrow.parts is not None
    assert wide.parts.contexts > 0.5 * wide.parts.total
    assert wide.parts.contexts > 5 * narrow.parts.contexts


def test_what_a_run_lost_does_not_make_it_seem_to_leak_less() -> None:
    """The same model twice, a fifth of one's messages lost: before, 'differs' was claimed in 38 % of pairs."""
    random, claims, worlds, differences = np.random.default_rng(20), 0, 150, []
    for _ in range(worlds):
        leak = 1 / (1 + np.exp(-random.normal(-3.2, 1.0, (10, 30, 1)) - np.zeros((10, 30, 12))))
        whole, part = (a_run(random.binomial(5, leak), 5) for _ in range(2))
        kept = np.broadcast_to(random.binomial(5, 0.8, (10, 1, 12)), part.draws.shape)
        lost = replace(part, draws=kept, reveals=random.hypergeometric(part.reveals, 5 - part.reveals, kept))
        difference = paired_arrays(*common(whole, lost), 5)
        claims += not difference.violation.has_zero
        differences.append(difference.violation.value)
    assert claims <= 0.08 * worlds  # 5 % and two standard errors
    assert abs(np.mean(differences)) < 3 * np.std(differences) / math.sqrt(worlds)


@pytest.mark.parametrize(("users", "share"), [(0, 1.0), (1, 0.95), (5, 0.451), (10, 0.259), (59, 0.0495)])
def test_who_may_be_missing_among_so_many_profiles(users: int, share: float) -> None:
    assert unseen_users(users) == pytest.approx(share, abs=5e-4)
    # Of a kind that is exactly so common, that many profiles hold nobody in 5 % of cases.
    assert users == 0 or (1 - unseen_users(users)) ** users == pytest.approx(0.05)


@given(st.integers(0, 10**6), st.booleans())
@example(486179, False)  # its products round to a variance of -3e-12
def test_variances_of_labels_without_the_value_of_pairs_are_the_same(seed: int, few_open: bool) -> None:
    random = np.random.default_rng(seed)
    shape = (int(random.integers(1, 20)), int(random.integers(1, 5)), int(random.integers(1, 5)))
    data = random_run(random, shape)
    # Some probabilities are shared by many pairs, as of votes; some pairs are settled, some profiles wholly.
    still = random.random(shape) < (0.2 if few_open else 0.8)
    still &= (random.random(shape[0]) < 0.7)[:, None, None]
    inappropriate = np.where(still, random.choice([0.0, 0.1, 0.26, 0.9, random.random()], shape), 0.0)
    necessary = np.where(still, (1 - inappropriate) * random.choice([0.0, 0.5, 1.0], shape), data.labels == NECESSARY)
    inappropriate = np.where(still, inappropriate, data.labels == INAPPROPRIATE)
    labels = Posterior(necessary, inappropriate, still)
    fast, of_completeness = label_sums(data, labels, (1, 2, 4)).variances((1, 2, 4))
    for n in (1, 2, 4):
        slow = violation_effect(subject([data], [1.0], n), labels).variance
        assert slow >= 0  # its root is drawn
        assert fast[n] == pytest.approx(slow, abs=1e-11)
    whole = completeness_effect(subject([data], [1.0], 1), labels).variance
    assert of_completeness == pytest.approx(whole, abs=1e-12)


def test_parts_that_are_not_known_count_as_nothing() -> None:
    assert Parts(1e-4, 1e-5, 2e-4).total == pytest.approx(3.1e-4)
    assert Parts(1e-4, 1e-5, 2e-4, labels=4e-5, judge=1e-5).total == pytest.approx(3.6e-4)
    nothing = np.full(2, np.nan)
    empty = difference_interval(Terms(nothing, nothing[:, None], nothing, nothing, np.zeros(2, np.int64)))
    assert math.isnan(empty.value) and math.isnan(empty.p)


def test_an_interval_says_what_it_is_made_of() -> None:
    item = share_interval(crossed([0.1, 0.2, 0.3, 0.4, 0.5], [-0.02, 0.0, 0.02]), labels=0.0004)
    widths = item.part_widths()
    assert list(widths) == ["users", "contexts", "labels", "samples"]
    # What is printed adds up to the interval that stands beside it.
    assert math.sqrt(sum(width**2 for width in widths.values())) == pytest.approx((item.high - item.low) / 2)
    half, *parts = (f"{100 * width:.1f}" for width in ((item.high - item.low) / 2, *widths.values()))
    assert sentences.parts_text(item) == (
        f"of the ±{half} points: users {parts[0]}, contexts {parts[1]}, labels {parts[2]}, samples {parts[3]}; "
        "what the judge gets wrong is not in it"
    )
    judged = share_interval(crossed([0.1, 0.2, 0.3, 0.4, 0.5], [0.0, 0.0, 0.0]), judge=0.001)
    assert sentences.parts_text(judged).startswith("of the ±") and "judge" in sentences.parts_text(judged)
    assert "not in it" not in sentences.parts_text(judged)
    few = share_interval(crossed([0.1, 0.2, 0.3], [-0.02, 0.0, 0.02]))
    assert "users" not in sentences.parts_text(few) and "attributes" in sentences.parts_text(few)
    alike = intervals_of(a_run(np.zeros((6, 5, 4), np.int64), 3), (1,)).violation[1]
    assert sentences.parts_text(alike).startswith("nothing varies among these profiles")
    assert sentences.parts_text(UNDEFINED) == ""


def test_few_profiles_are_said_to_leave_out_rare_kinds_of_users() -> None:
    text = "a kind of user rarer than 26 % may be missing among 10 profiles; no interval covers it"
    assert sentences.unseen(10) == text
    assert sentences.unseen(0) == sentences.unseen(59) == "" != sentences.unseen(58)


def test_identifiers_stay_out_of_the_parts_too() -> None:
    data = a_run(np.random.default_rng(1).binomial(3, 0.3, (6, 5, 4)), 3)
    fewer = replace(data, counted=data.counted & (np.arange(6) != 2))
    assert violation_terms(fewer.inappropriate, 2).units.tolist() == [4] * 6
