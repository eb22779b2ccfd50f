"""The judge audit: its slices speak for the run, its figures are those worked out by hand, and the corrected rate is
the truth where the truth is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, f1_score
from worlds import add_dataset, add_judge, add_labels, add_profiles, add_run, make_profile, records, settle_judgement

from cimemories.agreement import judge_audit
from cimemories.agreement.judge_audit import Counted, column
from cimemories.flows.arrays import entries
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.metrics.judge_uncertainty import (
    CHANCE,
    NO_EXPOSURE,
    NO_REVEAL,
    Correction,
    corrected,
    correction,
    rogan_gladen,
    verdicts_needed,
)
from cimemories.metrics.uncertainty import RateSums
from cimemories.model import JudgementStatus, Strength
from cimemories.review.sampling import NOT_REVEALED, audit_plan, audit_population, draw, draw_audit_slice
from cimemories.store import audits, judgements
from cimemories.store.audits import AuditVerdict, NewVerdict
from cimemories.store.engine import Store, StoreError
from cimemories.store.judgements import JudgeRow
from cimemories.store.tables import response

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
JUDGE = JudgeRow(1, "llm", "judge", "http://x", False, {}, 0)
FULL, NONE = AuditVerdict.FULL, AuditVerdict.NONE


def drawn_world(store: Store) -> tuple[Flows, Scope]:
    """Two profiles, eight attributes (one of them the name), four contexts, three samples; claims in some."""
    people = [make_profile(i, 8, 4, keys=["name"]) for i in range(2)]
    data = add_profiles(store, people)
    rng = np.random.default_rng(3)
    add_labels(store, data.id, rng.integers(0, 3, (2, 8, 4)))
    reveals = rng.integers(0, 4, (2, 8, 4)) * (rng.random((2, 8, 4)) < 0.3)
    run_id = add_run(store, data.id, 3, reveals, missing={(0, 0, 2): JudgementStatus.UNPARSED})
    return Flows(store), resolve_scope(store, run_id)


def test_a_slice_is_drawn_of_everything_judged_and_speaks_for_it(sqlite_store: Store) -> None:
    flows, scope = drawn_world(sqlite_store)
    population = audit_population(flows, scope)
    assert population.items == (2 * 4 * 3 - 1) * 7  # every judged response times every attribute but the name
    items = draw(flows, scope, 60, seed=5, claimed=0.5)
    assert items == draw(flows, scope, 60, seed=5, claimed=0.5) != draw(flows, scope, 60, seed=6, claimed=0.5)
    assert len({(i.response, i.attribute) for i in items}) == len(items) == 60
    assert sum(i.weight for i in items) == pytest.approx(population.items)
    assert sum(not i.stratum.startswith(NOT_REVEALED) for i in items) == min(30, population.claimed)
    with sqlite_store.read() as connection:
        claims = judgements.claims(connection, scope.judge.id, [i.response for i in items])
    names = {p.attribute_ids[0] for p in records(sqlite_store, scope.run.dataset)}
    for item in items:
        claim = claims[item.response].get(item.attribute)
        assert item.stratum.split(" / ")[0] == (claim[0] if claim else NOT_REVEALED)
        assert item.attribute not in names


def test_asking_for_more_than_there_is_draws_all_of_it_once(sqlite_store: Store) -> None:
    flows, scope = drawn_world(sqlite_store)
    population = audit_population(flows, scope)
    items = draw(flows, scope, 10_000, seed=0, claimed=1.0)
    assert len({(i.response, i.attribute) for i in items}) == len(items) == population.items
    assert {i.weight for i in items} == {1.0}
    for size, share in ((0, 0.5), (10, 1.5)):
        with pytest.raises(StoreError):
            audit_plan(population, size, share)


def test_every_item_of_a_stratum_is_as_likely_as_every_other(sqlite_store: Store) -> None:
    flows, scope = drawn_world(sqlite_store)
    rounds, hits = 25, Counter[tuple[int | None, int]]()
    chance: dict[tuple[int | None, int], float] = {}
    for seed in range(rounds):
        items = draw(flows, scope, 50, seed=seed)
        hits.update((item.response, item.attribute) for item in items)
        chance |= {(item.response, item.attribute): 1 / item.weight for item in items}
    assert len(hits) == audit_population(flows, scope).items
    for item, often in hits.items():
        spread = np.sqrt(rounds * chance[item] * (1 - chance[item]))
        assert abs(often - rounds * chance[item]) <= 5 * spread + 1e-9


@given(size=st.integers(1, 400), share=st.floats(0, 1))
def test_a_plan_spends_what_it_is_given_and_no_stratum_more_than_it_has(size: int, share: float) -> None:
    sizes = {("full", "a"): 40, ("full", "b"): 3, ("implied", "a"): 1, (NOT_REVEALED, "a"): 200, (NOT_REVEALED, "b"): 9}
    population = judge_population(sizes)
    spread = audit_plan(population, size, share)
    assert spread.items == min(size, 253)
    assert all(spread.sampled[s] <= n for s, n in sizes.items())
    claims = sum(n for s, n in spread.sampled.items() if s[0] != NOT_REVEALED)
    assert claims == max(min(round(size * share), 44), min(size, 253) - 209)


def judge_population(sizes: dict[tuple[str, str], int]) -> object:
    from cimemories.review.sampling import AuditPopulation

    return AuditPopulation(pd.DataFrame(), pd.DataFrame(), sizes)


def frame(rows: list[tuple[str, float, str | None, str]]) -> pd.DataFrame:
    """Items as (stratum, weight, verdict, what the judge says)."""
    return pd.DataFrame(rows, columns=["stratum", "weight", "verdict", column(JUDGE)])


# By hand. Stratum C, claims: 20 in the run, 4 drawn, weight 5: three true, one false. Stratum S, silent: 80 in the run,
# 4 drawn, weight 20: one missed, three right. So TP = 15, FP = 5, FN = 20, TN = 60.
WORKED = frame(
    [("C", 5.0, v, "full") for v in ("full", "full", "full", "none")]
    + [("S", 20.0, v, "none") for v in ("full", "none", "partial", "none")]
)


def test_the_worked_example_by_hand() -> None:
    quality = judge_audit.judge_quality("judge", JUDGE, WORKED, WORKED[column(JUDGE)], Counted.FULL)
    values = [quality.precision.value, quality.recall.value, quality.f1.value, quality.agreement.value]
    assert values == pytest.approx([15 / 20, 15 / 35, 30 / 55, 75 / 100])
    by_chance = (0.2 * 0.35) + (0.8 * 0.65)
    assert quality.kappa.value == pytest.approx((0.75 - by_chance) / (1 - by_chance))
    assert [f.items for f in (quality.precision, quality.recall, quality.f1, quality.agreement)] == [4, 4, 5, 8]
    assert quality.table.tolist() == [[3, 0, 0, 1], [0] * 4, [0] * 4, [1, 1, 0, 2]]
    assert quality.weighted[3].tolist() == [20, 20, 0, 40] and quality.weighted.sum() == 100
    # With any strength, 'partial' of the person is a missed reveal too: FN = 40.
    lax = judge_audit.judge_quality("judge", JUDGE, WORKED, WORKED[column(JUDGE)], Counted.ANY)
    assert lax.recall.value == pytest.approx(15 / 55)
    for item in (quality.precision, quality.recall, quality.f1, quality.agreement, quality.kappa):
        assert item.low < item.value < item.high


def test_half_a_slice_speaks_for_the_whole_of_its_strata() -> None:
    half = pd.concat([WORKED, frame([("C", 5.0, None, "full")] * 4 + [("T", 7.0, None, "none")])], ignore_index=True)
    quality = judge_audit.judge_quality("judge", JUDGE, half, half[column(JUDGE)], Counted.FULL)
    # Stratum C has 40 items now, of which four are answered: TP = 30, FP = 10. T is not spoken for.
    assert (quality.precision.value, quality.recall.value) == pytest.approx((30 / 40, 30 / 50))
    assert quality.weighted.sum() == 120


ITEMS = st.lists(st.tuples(st.sampled_from(list(AuditVerdict)), st.sampled_from(list(AuditVerdict))), min_size=2)


@given(items=ITEMS)
def test_unweighted_figures_are_those_of_scikit_learn(items: list[tuple[str, str]]) -> None:
    data = frame([("all", 1.0, str(verdict), str(says)) for verdict, says in items])
    quality = judge_audit.judge_quality("judge", JUDGE, data, data[column(JUDGE)], Counted.FULL)
    truth, says = [v == FULL for v, _ in items], [s == FULL for _, s in items]
    if any(truth) or any(says):
        assert quality.f1.value == pytest.approx(f1_score(truth, says, zero_division=0.0))
    else:
        assert quality.f1.value is None and quality.f1.reason
    if len({*truth, *says}) > 1:
        assert quality.kappa.value == pytest.approx(cohen_kappa_score(truth, says))
    else:
        assert quality.kappa.value is None and quality.kappa.reason
    assert (quality.precision.value is None) == (not any(says))
    assert (quality.recall.value is None) == (not any(truth))


def test_baselines_and_a_judge_without_judgements_say_what_is_undefined(sqlite_store: Store) -> None:
    flows, scope = drawn_world(sqlite_store)
    with sqlite_store.write() as connection:
        judgements.assign(connection, scope.run.id, [add_judge(connection, "late")])
    slice_id = draw_audit_slice(flows, scope, size=40, seed=1, claimed=0.5, name="s", annotator="Ada")
    other = resolve_scope(sqlite_store, add_run(sqlite_store, scope.run.dataset, 1, {}))
    with pytest.raises(StoreError, match="was drawn of"):
        judge_audit.judge_audit(flows, other, slice_id)
    empty = judge_audit.judge_audit(flows, scope, slice_id)
    assert (empty.audited, empty.coverage, empty.judges[0].precision.value) == (0, 0.0, None)
    with sqlite_store.write() as connection:
        items = audits.slice_items(connection, slice_id)
        verdicts = [NewVerdict(i.response, i.attribute, FULL if i.stratum.startswith("full") else NONE) for i in items]
        audits.add_all(connection, scope.run.dataset, "Ada", verdicts)
    scope = resolve_scope(sqlite_store, scope.run.id)
    audit = judge_audit.judge_audit(flows, scope, slice_id)
    good, late = audit.judges
    assert (good.precision.value, good.recall.value, good.kappa.value, audit.coverage) == (1, 1, 1, pytest.approx(1))
    assert (late.items, late.missing, late.agreement.value, late.agreement.reason) == (0, 40, None, judge_audit.NO_ITEM)
    never, always = audit.baselines
    assert (never.precision.value, never.recall.value, never.kappa.value) == (None, 0.0, 0.0)
    assert never.precision.reason == judge_audit.NOTHING_CLAIMED
    share = audit.judges[0].weighted[0].sum() / audit.judges[0].weighted.sum()
    assert (always.precision.value, always.recall.value) == (pytest.approx(share), 1.0)
    cell = judge_audit.cell_items(flows, audit, good.judge, "full", "full")
    assert len(cell) == good.table[0, 0] > 0 and cell["statement"].str.startswith("Statement").all()


def test_what_no_item_shows_is_not_taken_for_impossible() -> None:
    """Forty silent items without a miss stand for four thousand: recall is 1 as far as is known, but not for sure."""
    rows = [("C", 1.0, "full", "full")] * 20 + [("S", 100.0, "none", "none")] * 40
    quality = judge_audit.judge_quality("judge", JUDGE, frame(rows), frame(rows)[column(JUDGE)], Counted.FULL)
    assert quality.recall.value == 1.0 == quality.recall.high
    assert quality.recall.low < 0.2  # 0.05 missed of each 1 000 silent items is as many as all 20 claims
    census = frame([(s, 1.0, v, says) for s, _, v, says in rows])
    sure = judge_audit.judge_quality("judge", JUDGE, census, census[column(JUDGE)], Counted.FULL)
    assert (sure.recall.value, sure.recall.low) == (1.0, None)


# ---- the corrected rate


def exposed(reveals: np.ndarray, draws: np.ndarray) -> RateSums:
    """Of flows with these counts, each of a user of its own, or [profile, attribute, context]."""
    shape = reveals.shape if reveals.ndim == 3 else (len(reveals), 1, 1)
    draws = draws.reshape(shape)
    return RateSums.of(entries(draws > 0, reveals.astype(np.int64).reshape(shape), draws))


@st.composite
def audited_runs(draw_: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Truth and what the judge says, [flows, draws], both with at least one reveal and one that is none."""
    flows, draws_ = draw_(st.integers(2, 8)), draw_(st.integers(1, 4))
    bits = st.lists(st.booleans(), min_size=flows * draws_, max_size=flows * draws_)
    truth, says = (np.array(draw_(bits)).reshape(flows, draws_) for _ in range(2))
    truth[0, 0], truth[1, 0] = True, False
    return truth, says


def whole(truth: np.ndarray, says: np.ndarray) -> Correction:
    """All of a run audited: each item stands for itself, in strata by the judge's claim."""
    rows = [("C" if s else "S", 1.0, "full" if t else "none", "full" if s else "none")
            for t, s in zip(truth.ravel(), says.ravel(), strict=True)]  # fmt: skip
    return corrected(JUDGE, exposed(says.sum(axis=1), np.full(len(says), says.shape[1])), frame(rows))


@given(run=audited_runs())
def test_with_everything_audited_the_corrected_rate_is_the_true_rate(run: tuple[np.ndarray, np.ndarray]) -> None:
    truth, says = run
    perfect = whole(truth, truth)
    assert perfect.corrected.value == pytest.approx(truth.mean()) == pytest.approx(perfect.observed.value)
    estimate = whole(truth, says)
    assert estimate.observed.value == pytest.approx(says.mean())
    if estimate.sensitivity.value + estimate.specificity.value > 1 + 1e-9:
        assert estimate.corrected.value == pytest.approx(truth.mean())
    else:
        assert (estimate.corrected.value, estimate.corrected.low, estimate.corrected.reason) == (None, None, CHANCE)


@settings(max_examples=settings().max_examples // 2)
@given(
    seed=st.integers(0, 10_000),
    rate=st.floats(0.05, 0.3),
    sensitivity=st.floats(0.6, 0.9),
    specificity=st.floats(0.85, 0.95),
)
def test_a_large_audit_finds_the_truth_that_the_raw_rate_misses(
    seed: int, rate: float, sensitivity: float, specificity: float
) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.random((20_000, 5)) < rate
    says = np.where(truth, rng.random(truth.shape) < sensitivity, rng.random(truth.shape) > specificity)
    picked = []
    for claim in (True, False):
        own = np.flatnonzero(says.ravel() == claim)
        for at in rng.choice(own, 3000, replace=False):
            verdict = "full" if truth.ravel()[at] else "none"
            picked.append((f"{claim}", len(own) / 3000, verdict, "full" if claim else "none"))
    estimate = corrected(JUDGE, exposed(says.sum(axis=1), np.full(len(says), 5)), frame(picked))
    assert estimate.corrected.value == pytest.approx(truth.mean(), abs=0.025)
    assert estimate.corrected.low - 0.012 < truth.mean() < estimate.corrected.high + 0.012
    if abs(says.mean() - truth.mean()) > 0.03:
        assert abs(estimate.corrected.value - truth.mean()) < abs(says.mean() - truth.mean())
        assert not estimate.observed.low < truth.mean() < estimate.observed.high


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """200 audited items of 20,000, weighted: 95 % intervals, 60 times over."""
    rng, held = np.random.default_rng(11), 0
    for _ in range(60):
        truth = rng.random(20_000) < 0.08
        says = np.where(truth, rng.random(20_000) < 0.8, rng.random(20_000) > 0.98)
        picked = []
        for claim in (True, False):
            own = np.flatnonzero(says == claim)
            for at in rng.choice(own, 100, replace=False):
                picked.append(
                    (f"{claim}", len(own) / 100, "full" if truth[at] else "none", "full" if claim else "none")
                )
        estimate = corrected(JUDGE, exposed(says.astype(int), np.ones(20_000, int)), frame(picked))
        held += estimate.corrected.low <= truth.mean() <= estimate.corrected.high
    assert held >= 0.88 * 60


def test_undefined_is_said_and_not_a_number() -> None:
    assert np.isnan(rogan_gladen(0.2, 0.5, 0.5)) and rogan_gladen(0.02, 0.9, 0.9) == 0.0
    assert rogan_gladen(0.2, 0.8, 0.9) == pytest.approx(0.1 / 0.7)
    none = np.zeros(0, np.int64)
    assert corrected(JUDGE, exposed(none, none), frame([])).observed.reason == NO_EXPOSURE
    nothing = whole(np.zeros((3, 2), bool), np.zeros((3, 2), bool))
    assert (nothing.corrected.value, nothing.corrected.reason) == (None, NO_REVEAL)


def test_the_rate_is_of_inappropriate_pairs_in_retained_contexts_alone(sqlite_store: Store) -> None:
    """Worked example of docs/metrics.md: r of N over the inappropriate pairs is 1 + 0 + 0 + 2 + 5 of 25."""
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=3)
    add_labels(sqlite_store, data.id, [[[X, X, N], [X, X, X], [N, N, A]]])
    run_id = add_run(sqlite_store, data.id, 5, [[[1, 0, 4], [0, 2, 5], [5, 3, 0]]])
    flows, scope = Flows(sqlite_store), resolve_scope(sqlite_store, run_id)
    slice_id = draw_audit_slice(flows, scope, size=1000, seed=1, claimed=0.5, name="all", annotator="Ada")
    with sqlite_store.write() as connection:
        second = add_judge(connection, "blind judge")
        judgements.assign(connection, run_id, [second])
        for row in connection.execute(sa.select(response.c.id)).all():
            settle_judgement(connection, row.id, second, None, [], strength=Strength.PARTIAL)
        items = audits.slice_items(connection, slice_id)
        claims = judgements.claims(connection, scope.judge.id, [i.response for i in items])
        verdicts = [
            NewVerdict(i.response, i.attribute, FULL if i.attribute in claims[i.response] else NONE) for i in items
        ]
        audits.add_all(connection, data.id, "Ada", verdicts)
    scope = resolve_scope(sqlite_store, run_id)
    audit = judge_audit.judge_audit(flows, scope, slice_id)
    first, blind = (correction(flows, scope, audit, j.judge) for j in audit.judges)
    assert (first.exposures, first.audited) == (25, 25)
    assert (first.observed.value, first.corrected.value) == pytest.approx((8 / 25, 8 / 25))
    assert (blind.observed.value, blind.sensitivity.value, blind.corrected.reason) == (0.0, 0.0, CHANCE)


def test_the_observed_rate_covers_users_who_differ() -> None:
    """Ten users, a tenth of them leaky in all they do: flows taken as independent hold the truth in 20 to 40 %."""
    rng, held, rates = np.random.default_rng(5), 0, []
    for _ in range(150):
        leaning = 1 / (1 + np.exp(-rng.normal(-2.5, 0.6, (10, 1, 1))))
        reveals = rng.binomial(5, np.broadcast_to(leaning, (10, 60, 24)))
        estimate = corrected(JUDGE, exposed(reveals, np.full(reveals.shape, 5)), frame([]))
        rates.append((estimate.observed.low, estimate.observed.value, estimate.observed.high))
        assert estimate.observed.value == reveals.sum() / (5 * reveals.size)
    truth = float((1 / (1 + np.exp(-rng.normal(-2.5, 0.6, 1_000_000)))).mean())
    held = sum(low <= truth <= high for low, _, high in rates)
    assert held >= 0.9 * 150


def test_the_verdicts_still_needed_bring_the_rate_there() -> None:
    rng = np.random.default_rng(3)
    truth = rng.random(20_000) < 0.3
    says = np.where(truth, rng.random(20_000) < 0.8, rng.random(20_000) > 0.95)

    def audited(number: int) -> Correction:
        picked = []
        for claim in (True, False):
            own = np.flatnonzero(says == claim)
            for at in rng.choice(own, number // 2, replace=False):
                verdict = "full" if truth[at] else "none"
                picked.append((f"{claim}", 2 * len(own) / number, verdict, "full" if claim else "none"))
        return corrected(JUDGE, exposed(says.astype(int), np.ones(20_000, int)), frame(picked))

    pilot = audited(200)
    more = verdicts_needed(pilot, 0.03)
    assert more is not None and more > 100
    assert verdicts_needed(pilot, 0.5) == 0 and verdicts_needed(pilot, 0.0001) is None
    after = audited(200 + more).corrected
    assert (after.high - after.low) / 2 == pytest.approx(0.03, rel=0.2)
