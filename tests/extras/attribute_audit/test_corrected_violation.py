"""Violation@n corrected by an audit: by hand, exactly over all samples, and in simulated worlds with known truth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cimemories.extras.attribute_audit.sampling import attributes_needed, neyman
from cimemories.extras.attribute_audit.violation import (
    AuditedAttributes,
    CorrectedViolation,
    corrected_violation,
    covered,
    difference_of,
    prediction_powered,
)
from cimemories.flows.arrays import entries
from cimemories.metrics.uncertainty import violation_terms

NAN = math.nan
PROFILES, ATTRIBUTES, TASKS, SAMPLES = 10, 60, 24, 5
Bits = npt.NDArray[np.bool_]


def attributes(
    judge: Sequence[float], people: Sequence[float], profile: Sequence[int] | None = None
) -> AuditedAttributes:
    owners = np.array(profile or [0] * len(judge))
    values = np.array(judge, float)
    return AuditedAttributes(owners, values, (values == 0).astype(int), np.array(people, float), np.arange(len(judge)))


def test_the_formula_by_hand() -> None:
    """Four attributes of one user, three read. Means of the read: judge 0.5, people 2/3. Centred, judge -0.3, -0.1,
    0.4 and people -2/3, 1/3, 1/3: Cov / Var = 0.3 / 0.26 = 15/13. V = 15/13 * 0.55 + 2/3 - 15/13 * 0.5."""
    estimate = prediction_powered(attributes([0.2, 0.4, 0.9, 0.7], [0, 1, 1, NAN]))
    assert estimate.tuning == pytest.approx(15 / 13)
    assert estimate.value == pytest.approx(2 / 3 + 15 / 13 * 0.05)
    untuned = prediction_powered(attributes([0.2, 0.4, 0.9, 0.7], [0, 1, 1, NAN]), 1.0)
    assert untuned.value == pytest.approx(0.55 + 2 / 3 - 0.5)


def test_strata_and_weights_by_hand() -> None:
    """Ten attributes, four claimed. Of two read claims one is right, of three silent ones one leaks: 0.4 / 2 + 0.6 / 3,
    whatever lambda is. The variance: root of n / (n - 1) of the residuals 0.2 and 0.2, 0.2, 0.4 times 1 - f^2."""
    estimate = prediction_powered(attributes([1] * 4 + [0] * 6, [1, 0, NAN, NAN, 1, 0, 0, NAN, NAN, NAN]))
    assert estimate.value == pytest.approx(0.4)
    residuals = 2 * 0.75 * 2 * (0.2 * 0.5) ** 2 + 1.5 * 0.75 * 0.2**2 * ((2 / 3) ** 2 + 2 * (1 / 3) ** 2)
    assert estimate.variance == pytest.approx(residuals)
    # A user with one attribute weighs as much as one with three: 1/2 against 1/6 each. Read: 1/2 * 1 and 1/6 * 0.
    two = prediction_powered(attributes([1, 1, 1, 1], [1, 0, NAN, NAN], [0, 1, 1, 1]))
    assert two.value == pytest.approx((1 / 2) / (1 / 2 + 1 / 6))


def test_every_sample_of_equal_weights_taken_together_gives_the_truth() -> None:
    judge, truth = [0.4, 0.8, 1.0, 0.2, 0.0, 0.0, 0.0], [1, 1, 0, 0, 1, 0, 0]
    values = []
    for claims in itertools.combinations(range(4), 2):
        for not_revealed in itertools.combinations(range(4, 7), 2):
            people = [float(truth[i]) if i in claims + not_revealed else NAN for i in range(7)]
            values.append(prediction_powered(attributes(judge, people), 0.7).value)
    assert np.mean(values) == pytest.approx(np.mean(truth))


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0, 1), st.booleans()), min_size=1, max_size=12))
def test_with_everything_read_the_judge_does_not_matter(rows: list[tuple[int, float, bool]]) -> None:
    rows.sort(key=lambda row: row[0])
    data = attributes([j for _, j, _ in rows], [float(h) for _, _, h in rows], [p for p, _, _ in rows])
    estimate = prediction_powered(data)
    truth = np.mean([np.mean([h for p, _, h in rows if p == user]) for user in {p for p, _, _ in rows}])
    assert estimate.value == pytest.approx(truth, abs=1e-9)
    assert estimate.variance == pytest.approx(0, abs=1e-12)


def test_a_stratum_without_answers_is_not_guessed() -> None:
    data = attributes([1, 1, 0, 0, 0], [1, 0, NAN, NAN, 0])
    assert not covered(data)
    with pytest.raises(ValueError, match="stratum"):
        prediction_powered(data)
    # No error among those read does not show that there is none.
    clean = prediction_powered(attributes([1] * 20 + [0] * 80, [1] * 10 + [NAN] * 10 + [0] * 20 + [NAN] * 60))
    assert clean.value == pytest.approx(0.2)
    assert clean.variance > 0


def violated(outcomes: Bits, n: int) -> npt.NDArray[np.float64]:
    q = np.array([math.comb(SAMPLES - k, n) / math.comb(SAMPLES, n) for k in range(SAMPLES + 1)])
    return np.asarray(1 - q[outcomes.sum(axis=3)].prod(axis=2))


def world(random: np.random.Generator, profiles: int, wrong: float, leaning: float = -5.2) -> tuple[Bits, Bits]:
    """Truth and what a judge says: [profile, attribute, task, sample]. It never sees some attributes, and invents twice
    as many, each in one task: an error that comes back in every sample."""
    leak = leaning + random.normal(0, 0.35, (profiles, 1, 1)) + random.normal(0, 1.2, (profiles, ATTRIBUTES, 1))
    shape = (profiles, ATTRIBUTES, TASKS, SAMPLES)
    truth = random.random(shape) < 1 / (1 + np.exp(-leak))[..., None]
    misses, invents = random.random(shape[:2]) < wrong, random.random(shape[:2]) < 2 * wrong
    at = random.integers(0, TASKS, shape[:2])[..., None] == np.arange(TASKS)
    says = (truth & ~misses[..., None, None]) | (invents[..., None] & at)[..., None]
    return truth, says


def audited(
    truth: Bits, says: Bits, n: int, random: np.random.Generator, number: int = 150, picked: Bits | None = None
) -> CorrectedViolation:
    """The correction after people have read `number` attributes; picked: [attributes] these instead."""
    profiles = len(truth)
    not_revealed = ~says.any(axis=(2, 3)).reshape(-1)
    # Samples are alike, so the first n of each task are as good as any.
    people, right = (x[..., :n].any(axis=(2, 3)).reshape(-1).astype(float) for x in (truth, truth & says))
    sizes = np.bincount(not_revealed.astype(int), minlength=2)
    if picked is None:
        picked = np.zeros(len(not_revealed), np.bool_)
        for stratum, many in enumerate(neyman(sizes / sizes.sum(), [0.4, 0.3], sizes, number)):
            picked[random.choice(np.flatnonzero(not_revealed == stratum), many, replace=False)] = True
    flows = entries(np.ones(says.shape[:3], np.bool_), says.sum(axis=3), np.full(says.shape[:3], SAMPLES))
    data = AuditedAttributes(
        np.repeat(np.arange(profiles), ATTRIBUTES),
        violated(says, n).reshape(-1),
        not_revealed.astype(int),
        np.where(picked, people, NAN),
        np.arange(len(not_revealed)),
        beside=says[..., :n].any(axis=(2, 3)).reshape(-1).astype(float),
    )
    return corrected_violation(data, np.where(picked, right, NAN), violation_terms(flows, n), n)


@pytest.mark.parametrize("n", [1, 5])
def test_the_corrected_number_is_right_where_the_raw_one_is_not(n: int) -> None:
    """300 worlds, 5 % of attributes never seen, 10 % made up, 150 of 600 read."""
    truth = violated(world(np.random.default_rng(1), 3000, 0.05)[0], n).mean()
    raw, corrected, held, above = [], [], 0, 0
    for seed in range(300):
        random = np.random.default_rng(100 + seed)
        result = audited(*world(random, PROFILES, 0.05), n, random)
        raw.append(result.raw.value)
        corrected.append(result.corrected.value)
        held += result.corrected.low <= truth <= result.corrected.high
        above += result.lower.low > truth
        # What is confirmed is never more than what there may be.
        assert result.lower.value <= result.corrected.high
    assert abs(np.mean(raw) - truth) > 0.02
    assert abs(np.mean(corrected) - truth) < 0.005
    assert held >= 0.92 * 300
    assert above <= 0.025 * 300


def test_what_an_audit_leaves_open_is_the_judges_part() -> None:
    random = np.random.default_rng(2)
    truth, says = world(random, PROFILES, 0.05)
    few, many = (audited(truth, says, 5, np.random.default_rng(3), number) for number in (60, 300))
    assert few.corrected.parts is not None and many.corrected.parts is not None and few.raw.parts is not None
    assert few.corrected.parts.judge > 3 * many.corrected.parts.judge > 0
    assert math.isnan(few.raw.parts.judge)
    everything = audited(truth, says, 5, random, picked=np.ones(PROFILES * ATTRIBUTES, np.bool_))
    assert everything.corrected.value == pytest.approx(violated(truth, 5).mean())
    assert everything.corrected.parts is not None and everything.corrected.parts.judge == 0


def test_without_an_audited_stratum_only_the_lower_bound_is_there() -> None:
    random = np.random.default_rng(4)
    truth, says = world(random, PROFILES, 0.05)
    claims = says.any(axis=(2, 3)).reshape(-1)
    result = audited(truth, says, 5, random, picked=claims)
    assert math.isnan(result.corrected.value) and result.reason == "read at least 2 more unclaimed attributes"
    assert result.lower.value == pytest.approx((truth & says).any(axis=(2, 3)).mean())
    assert result.lower.value <= violated(truth, 5).mean()


def test_the_same_attributes_in_both_runs_make_a_difference_surer_and_it_is_mirrored() -> None:
    paired, apart, held = [], [], 0
    expected = [violated(world(np.random.default_rng(1), 2000, 0.0, leaning)[0], 5).mean() for leaning in (-5.2, -5.6)]
    for seed in range(60):
        random = np.random.default_rng(seed)
        # The same users, tasks and judge's habits: the second run leaks less.
        truth, says = world(random, PROFILES, 0.05)
        kept = random.random(truth.shape) < math.exp(-0.4)
        first = audited(truth, says, 5, random)
        at = first.data.audited
        second = audited(truth & kept, says & kept, 5, random, picked=at)
        other = audited(truth & kept, says & kept, 5, random)
        difference = difference_of(first, second)
        mirrored = difference_of(second, first)
        assert (mirrored.value, mirrored.low) == pytest.approx((-difference.value, -difference.high))
        assert difference.value == pytest.approx(second.corrected.value - first.corrected.value)
        true = expected[1] - expected[0]
        held += difference.low - 0.01 <= true <= difference.high + 0.01
        paired.append(difference.error)
        apart.append(difference_of(first, other).error)
    assert np.mean(paired) < 0.9 * np.mean(apart)
    assert held >= 0.9 * 60


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.05, 0.5)), min_size=2, max_size=2),
    st.integers(4, 20),
)
def test_neyman_is_the_best_of_all_allocations(strata: list[tuple[int, float]], number: int) -> None:
    sizes, deviations = np.array([n for n, _ in strata]), np.array([s for _, s in strata])
    weights = sizes / sizes.sum()
    given_ = neyman(weights, deviations, sizes, number)
    assert given_.sum() == min(number, sizes.sum()) and (given_ <= sizes).all()
    left = min(number, int(sizes.sum()))
    others = [(k, left - k) for k in range(left + 1) if k <= sizes[0] and 0 <= left - k <= sizes[1]]
    others = [o for o in others if all(k >= min(2, n) for k, n in zip(o, sizes, strict=True))]

    def variance(counts: tuple[int, ...]) -> float:
        return float(((weights * deviations) ** 2 / np.array(counts)).sum())

    assert variance(tuple(given_)) == pytest.approx(min(map(variance, others)))


def test_neyman_beats_equal_shares_by_what_the_theory_says() -> None:
    """A tenth of the attributes is claimed: 24 + 176 instead of 100 + 100 leaves a much smaller variance."""
    sizes = np.array([120, 1080])
    weights, deviations = sizes / sizes.sum(), np.array([0.3, 0.25])
    best = neyman(weights, deviations, sizes, 200)
    assert best.tolist() == [24, 176]
    random, by = np.random.default_rng(5), {}
    people = np.concatenate([random.random(120) < 0.9, random.random(1080) < 0.0669]).astype(float)
    for name, counts in (("best", best.tolist()), ("equal", [100, 100])):
        values = []
        for _ in range(400):
            chosen = np.full(1200, NAN)
            for at, many in ((np.arange(120), counts[0]), (np.arange(120, 1200), counts[1])):
                picked = random.choice(at, many, replace=False)
                chosen[picked] = people[picked]
            values.append(prediction_powered(attributes([1] * 120 + [0] * 1080, chosen.tolist())).value)
        by[name] = np.std(values)
        assert np.mean(values) == pytest.approx(people.mean(), abs=0.003)
    assert by["best"] < 0.8 * by["equal"]


def test_the_number_still_to_read_is_about_what_it_takes() -> None:
    random = np.random.default_rng(8)
    truth, says = world(random, 200, 0.05)
    pilot = audited(truth, says, 5, random, 100)
    more = attributes_needed(pilot, 0.035)
    assert more is not None and more > 100
    assert attributes_needed(pilot, 0.5) == 0 and attributes_needed(pilot, 0.001) is None
    after = audited(truth, says, 5, random, 100 + more).corrected
    assert (after.high - after.low) / 2 == pytest.approx(0.035, rel=0.15)
