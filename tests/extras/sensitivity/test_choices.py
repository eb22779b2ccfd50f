"""The order of runs, what choices do to it and to numbers, fewer profiles, and what flows the numbers cover."""

from __future__ import annotations

import json
import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from evaluating import cli_inside
from hypothesis import given
from hypothesis import strategies as st
from judging_worlds import judged_world
from scipy.stats import kendalltau
from two_runs import close, world
from worlds import add_dataset, add_labels, add_run

from cimemories.compare.ranking import Measure, order_change, order_text, ranks, swap_text, swaps, tau, tau_text, turned
from cimemories.compare.study import left_out, study
from cimemories.extras.sensitivity.choices import (
    Choice,
    Range,
    Subsets,
    choices_text,
    flows_per_run,
    judged_otherwise,
    personas_text,
    ranges,
    setting_of,
    settings_table,
    subsets,
    subsets_text,
    trial,
    variants,
)
from cimemories.extras.sensitivity.coverage import PARTS, flow_coverage
from cimemories.flows.arrays import IdentifierRule, flow_arrays, necessary_mask
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Labels, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.metrics.places import By
from cimemories.metrics.violation import balanced, exposures
from cimemories.model import JudgementStatus
from cimemories.store.engine import Store, open_store

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
values = st.lists(st.integers(0, 5).map(lambda n: n / 5) | st.just(float("nan")), min_size=2, max_size=6)


@given(values, values, st.sampled_from(Measure))
def test_an_order_counts_who_is_better_and_its_tau_is_scipys(one: list, other: list, measure: Measure) -> None:
    size = min(len(one), len(other))
    first, second = np.array(one[:size]), np.array(other[:size])
    sign = -1 if measure == Measure.VIOLATION else 1
    first_ranks = ranks(first, measure)
    for place, value in zip(first_ranks, first, strict=True):
        assert np.isnan(place) == np.isnan(value)
        if not np.isnan(value):
            assert place == 1 + sum(sign * v > sign * value for v in first)
    both = ~np.isnan(first) & ~np.isnan(second)
    expected = kendalltau(sign * first[both], sign * second[both]).statistic if both.sum() > 1 else float("nan")
    assert tau(first_ranks, ranks(second, measure)) == pytest.approx(expected, nan_ok=True)
    passed = {(a, b) for a in range(size) for b in range(size) if sign * first[a] < sign * first[b]}
    assert set(turned(first, second, measure)) == {(a, b) for a, b in passed if sign * second[a] > sign * second[b]}


def test_changes_of_places_are_said_in_words() -> None:
    grid, names = (0.6, 0.7, 0.8, 0.9, 1.0), ("Qwen", "Llama", "Gemma")
    over = np.array([[0.1, 0.1, 0.3, 0.3, 0.3], [0.2, 0.2, 0.2, 0.2, 0.2], [0.9, 0.1, 0.0, 0.25, 0.1]])
    changes = swaps(over[:, -1], over, grid, 1.0, Measure.BALANCED)
    texts = [swap_text(swap, names, grid) for swap in changes]
    assert texts == [
        "Llama and Gemma change places below a threshold of 70 % and at a threshold of 90 %",
        "Qwen and Llama change places below a threshold of 80 %",
        "Qwen and Gemma change places below a threshold of 70 %",
    ]
    assert order_text(changes, names, grid, Measure.BALANCED) == f"{texts[0]}; 2 more pairs do so"
    same = swaps(over[:, 0], over[:, :1], grid[:1], 0.6, Measure.BALANCED)
    assert "is the same at every threshold" in order_text(same, names, grid, Measure.BALANCED)
    above = swaps(over[:, 0], over, grid, 0.6, Measure.VIOLATION)
    assert "Qwen and Llama change places above a threshold of 70 %" in [swap_text(s, names, grid) for s in above]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3), st.sampled_from(Measure))
def test_fewer_profiles_are_all_the_subsets_of_them(seed: int, many: int, k: int, measure: Measure) -> None:
    chance = np.random.default_rng(seed)
    k = min(k, many)
    violation, complete = chance.random((2, 3, many))
    complete[0, 0] = np.nan
    result = subsets(violation, complete, k, measure)
    each = []
    for chosen in combinations(range(many), k):
        rows = []
        for run in range(3):
            v = violation[run, list(chosen)].mean()
            own = [c for c in complete[run, list(chosen)] if not np.isnan(c)]
            c = np.mean(own) if own else np.nan
            rows.append({"violation": v, "completeness": c, "balanced": balanced(v, c)}[measure])
        each.append(rows)
    array = np.array(each)
    assert result.count == len(array) and result.all
    means = [np.mean(own[~np.isnan(own)]) if (~np.isnan(own)).any() else np.nan for own in array.T]
    assert result.mean.tolist() == close(means)
    whole = ranks(subsets(violation, complete, many, measure).mean, measure)
    same = [((r := ranks(row, measure)) == whole) | (np.isnan(r) & np.isnan(whole)) for row in array]
    assert result.same_order == close(np.mean([item.all() for item in same]))
    assert (np.isnan(result.low) | (result.low <= result.high)).all()


def test_many_profiles_are_drawn_at_random_and_the_same_every_time() -> None:
    violation, complete = np.random.default_rng(1).random((2, 2, 40))
    first, again = (subsets(violation, complete, 20, Measure.BALANCED) for _ in range(2))
    assert not first.all and first.count == 1000
    assert first.mean.tolist() == again.mean.tolist()
    assert first.mean == pytest.approx(subsets(violation, complete, 40, Measure.BALANCED).mean, abs=0.02)


def test_each_choice_is_moved_alone(sqlite_store: Store) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    sensitivity = study(flows, [resolve_scope(sqlite_store, run_id) for run_id in run_ids])
    tried = list(variants(sensitivity))
    by_name = {item.name: item for item in tried}
    assert {item.choice for item in tried} == set(Choice) - {Choice.JUDGE}
    assert len(by_name) == len(tried) and sensitivity.base.threshold == 1
    assert sum(item.choice == Choice.THRESHOLD for item in tried) == 49
    for place, run_id in enumerate(run_ids):
        alone = headline(flows, resolve_scope(sqlite_store, run_id, labels=Labels.CONSENSUS))
        assert by_name["consensus alone"].numbers[place].balanced[0] == close(alone.balanced)
        plain = headline(flows, resolve_scope(sqlite_store, run_id), IdentifierRule.NONE)
        assert by_name["identifiers by the rule 'none'"].numbers[place].flows[0] == plain.flows
    assert [key for key, _ in left_out(sensitivity)] == list(sensitivity.votes.keys)
    frame = settings_table(sensitivity, tried, ["a", "b"]).frame
    assert len(frame) == 2 * (len(tried) + 1)
    now = frame[frame["choice"] == "now"]
    for measure in Measure:
        for item in ranges(sensitivity, tried, measure):
            own = frame[frame["choice"] == str(item.choice)]
            change = own[str(measure)].to_numpy().reshape(-1, 2) - now[str(measure)].to_numpy()
            assert (item.low, item.high) == close((min(0, change.min()), max(0, change.max())))
            assert item.settings == len(change)


def test_another_judge_is_a_choice_where_runs_have_several(sqlite_store: Store) -> None:
    run_id = judged_world(sqlite_store).run_id
    flows = Flows(sqlite_store)
    scope = resolve_scope(sqlite_store, run_id)
    sensitivity = study(flows, [scope])
    tried = {item.name: item.numbers[0] for item in judged_otherwise(flows, sensitivity)}
    ways = {"judge 1": "judge judge 1", "judge 2": "judge judge 2"}
    ways |= {way: f"{way} of the judges" for way in ("any", "majority", "all")}
    assert set(tried) == set(ways.values())
    for way, name in ways.items():
        theirs = headline(flows, resolve_scope(sqlite_store, run_id, judge_id=way))
        assert tried[name].mean_violation[0] == close(theirs.violation[scope.run.samples])
        assert tried[name].mean_completeness[0] == close(theirs.completeness)
        assert tried[name].flows[0] == theirs.flows
    assert len({item.mean_violation[0] for item in tried.values()}) > 1
    alone = study(flows, [resolve_scope(sqlite_store, world(sqlite_store)[0])])
    assert list(judged_otherwise(flows, alone)) == []


def test_a_trial_is_the_difference_of_two_settings(sqlite_store: Store) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    sensitivity = study(flows, [resolve_scope(sqlite_store, run_id) for run_id in run_ids])
    setting = setting_of(sensitivity, 0.7, [10, 20, 70], IdentifierRule.EXACT)
    tried = trial(
        sensitivity, setting, ["a", "b"], Measure.VIOLATION, flows_per_run(flows, sensitivity)
    ).runs.frame.set_index("run")
    for name, run_id in zip("ab", run_ids, strict=True):
        then = headline(flows, resolve_scope(sqlite_store, run_id, rule="looser"))
        now = headline(flows, resolve_scope(sqlite_store, run_id))
        n = then.scope.run.samples
        assert tried.loc[name, "violation"] == close(then.violation[n])
        assert tried.loc[name, "balanced_change"] == close(then.balanced - now.balanced)
        assert tried.loc[name, "retained"] == then.retained
        coverage = flow_coverage(flows, resolve_scope(sqlite_store, run_id, rule="looser"))
        assert tried.loc[name, "speaks"] == close(coverage.share)
    with pytest.raises(ValueError, match="weights"):
        setting_of(sensitivity, None, [0, 0, 0], IdentifierRule.EXACT)


@pytest.mark.parametrize("by", [By.DOMAIN, By.CONTEXT, By.PROFILE])
def test_every_flow_is_spoken_for_or_told_why_not(sqlite_store: Store, by: By) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    for run_id in run_ids:
        scope = resolve_scope(sqlite_store, run_id)
        data = flow_arrays(flows, scope)
        coverage = flow_coverage(flows, scope, by)
        assert coverage.totals["inappropriate"] == exposures(data).flows
        assert coverage.totals["necessary"] == necessary_mask(data.draws, data.labels).sum()
        assert coverage.pairs == 2 * 8 * 4
        assert (coverage.frame[list(PARTS)].sum(axis=1) == coverage.frame["pairs"]).all()
        assert coverage.frame["pairs"].sum() == coverage.pairs and coverage.frame["speaks"].sum() == coverage.speaks
        assert 0 < coverage.decided < coverage.speaks
        assert flow_coverage(flows, resolve_scope(sqlite_store, run_id, labels="consensus"), by).decided == 0


def test_a_flow_that_nobody_judged_or_that_only_signs_is_not_spoken_for(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    add_labels(sqlite_store, data.id, [[[X, X], [N, X], [A, N]]])
    missing = {(0, 1, sample): JudgementStatus.FAILED for sample in range(2)}
    run_id = add_run(sqlite_store, data.id, 2, [[[1, 2], [2, 0], [0, 1]]], missing=missing)
    coverage = flow_coverage(Flows(sqlite_store), resolve_scope(sqlite_store, run_id))
    assert (coverage.speaks, coverage.totals["not_judged"], coverage.totals["ambiguous"]) == (2, 3, 1)


def test_the_command_line_says_it_all(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run_ids = world(store)
    store.close()

    def command(*options: str) -> tuple[int, str, str]:
        done = cli_inside({}, "sensitivity", *run_ids, "--workspace", tmp_path, *options)
        return done.returncode, done.stdout, done.stderr

    code, text, _ = command("--json", "--threshold", "0.7", "--without", "unconcerned")
    assert code == 0
    printed = json.loads(text)
    assert [item["run"] for item in printed["runs"]] == run_ids
    assert printed["tried"]["setting"]["priors"][2] == 0
    assert {row["choice"] for row in printed["ranges"]} >= {str(Choice.THRESHOLD), str(Choice.LABELS)}
    first = printed["runs"][0]
    assert sum(row["pairs"] for row in printed["coverage"] if row["run"] == first["name"]) == first["pairs"] == 64
    code, text, _ = command("--priors", "fundamentalist=0,pragmatic=0.5,unconcerned=0.5", "--order-by", "violation")
    assert code == 0 and "Tried: a threshold of 100 %, with priors fundamentalist 0 %, pragmatic 50 %" in text
    for wrong, message in (
        (("--without", "nobody"), "there is no persona 'nobody'"),
        (("--threshold", "0.3"), "threshold"),
        (("--order-by", "colour"), "by 'colour'"),
        (("--by", "colour"), "by 'colour'"),
    ):
        code, _, problem = command(*wrong)
        assert code == 1 and message in problem, problem


def test_the_choice_that_moves_a_number_is_named() -> None:
    """Fault 11: '-18.2' was 'the fundamentalist alone'."""
    ranges = [
        Range(Choice.ALONE, -0.182, ("the fundamentalist persona alone", 1), 0.007, ("equal priors", 0), 0.33, "", 4),
        Range(Choice.THRESHOLD, -0.02, ("threshold 51 %", 1), 0.009, ("threshold 91 %", 1), 1.0, "", 49),
    ]
    text = choices_text(ranges, ["A", "B"], Measure.BALANCED)
    assert text == (
        "With the fundamentalist persona alone, the balanced score of B changes by -18.2 points, the largest change of "
        "53 settings; 1 of 2 choices can change the order of values"
    )
    small = [Range(Choice.PERSONA, 0.0, ("", 0), 0.0004, ("without the pragmatic", 0), math.nan, "", 2)]
    assert choices_text(small, ["A"], Measure.VIOLATION).startswith("No choice moves violation")
    left = personas_text([("pragmatic", "A", -0.03), ("unconcerned", "A", math.nan)], Measure.VIOLATION)
    assert left == "Without the pragmatic, violation of A changes by -3.0 points"


def test_a_range_of_subsets_says_that_it_is_the_middle_95_percent() -> None:
    sizes = [Subsets(k, 3, True, np.array([0.3]), np.array([0.2]), np.array([0.4]), 0.976, 0.976) for k in (1, 2, 3)]
    assert subsets_text(sizes, 2, 1) == (
        "With 2 of 3 profiles the number lies between 20.0 % and 40.0 % in the middle 95 % of the subsets"
    )
    assert subsets_text(sizes, 3, 1) == "With all 3 profiles the number is 20.0 %"
    assert "best" not in subsets_text(sizes, 2, 3)


def test_an_order_that_changes_is_not_called_unchanged() -> None:
    assert tau_text(1.0) == "order unchanged (Kendall's tau 1)"
    assert tau_text(0.9991) == "Kendall's tau 0.9991"
    assert tau_text(math.nan) == "no order to compare"
    assert order_change([], 1, math.nan) == "One run alone has no order"
    assert order_change([], 3, 0.8) == "Runs tie that did not"
    assert order_change([("A", "B")], 3, 0.8) == "A passes B"
