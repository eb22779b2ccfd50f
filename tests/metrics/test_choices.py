"""The order of runs, what choices do to it and to numbers, fewer profiles, and what flows the numbers cover."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from evaluating import cli_inside
from hypothesis import given, settings
from hypothesis import strategies as st
from judging_worlds import judged_world
from scipy.stats import kendalltau
from two_runs import close, world
from worlds import add_dataset, add_labels, add_run

from cimemories.compare.ranking import Measure, ranks, swaps, tau, turned
from cimemories.compare.sensitivity import (
    Choice,
    as_frame,
    flows_per_run,
    judged_otherwise,
    left_out,
    ranges,
    setting_of,
    study,
    subsets,
    trial,
    variants,
)
from cimemories.flows.arrays import IdentifierRule, flow_arrays, necessary_mask
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Labels, resolve_scope
from cimemories.metrics import sentences
from cimemories.metrics.breakdown import PARTS, By, flow_coverage
from cimemories.metrics.headline import headline
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
    found = ranks(first, measure)
    for place, value in zip(found, first, strict=True):
        assert np.isnan(place) == np.isnan(value)
        if not np.isnan(value):
            assert place == 1 + sum(sign * v > sign * value for v in first)
    both = ~np.isnan(first) & ~np.isnan(second)
    expected = kendalltau(sign * first[both], sign * second[both]).statistic if both.sum() > 1 else float("nan")
    assert tau(found, ranks(second, measure)) == pytest.approx(expected, nan_ok=True)
    passed = {(a, b) for a in range(size) for b in range(size) if sign * first[a] < sign * first[b]}
    assert set(turned(first, second, measure)) == {(a, b) for a, b in passed if sign * second[a] > sign * second[b]}


def test_changes_of_places_are_said_in_words() -> None:
    grid, names = (0.6, 0.7, 0.8, 0.9, 1.0), ("Qwen", "Llama", "Gemma")
    over = np.array([[0.1, 0.1, 0.3, 0.3, 0.3], [0.2, 0.2, 0.2, 0.2, 0.2], [0.9, 0.1, 0.0, 0.25, 0.1]])
    found = swaps(over[:, -1], over, grid, 1.0, Measure.BALANCED)
    said = [sentences.swap(swap, names, grid) for swap in found]
    assert said == [
        "Llama and Gemma change places below a threshold of 70 % and at a threshold of 90 %",
        "Qwen and Llama change places below a threshold of 80 %",
        "Qwen and Gemma change places below a threshold of 70 %",
    ]
    assert sentences.order(found, names, grid, Measure.BALANCED) == f"{said[0]}; 2 more pairs do so"
    same = swaps(over[:, 0], over[:, :1], grid[:1], 0.6, Measure.BALANCED)
    assert "is the same at every threshold" in sentences.order(same, names, grid, Measure.BALANCED)
    above = swaps(over[:, 0], over, grid, 0.6, Measure.VIOLATION)
    assert "Qwen and Llama change places above a threshold of 70 %" in [sentences.swap(s, names, grid) for s in above]


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3), st.sampled_from(Measure))
@settings(max_examples=40)
def test_fewer_profiles_are_all_the_subsets_of_them(seed: int, many: int, k: int, measure: Measure) -> None:
    chance = np.random.default_rng(seed)
    k = min(k, many)
    violation, complete = chance.random((2, 3, many))
    complete[0, 0] = np.nan
    found = subsets(violation, complete, k, measure)
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
    assert found.count == len(array) and found.all
    means = [np.mean(own[~np.isnan(own)]) if (~np.isnan(own)).any() else np.nan for own in array.T]
    assert found.mean.tolist() == close(means)
    whole = ranks(subsets(violation, complete, many, measure).mean, measure)
    same = [((r := ranks(row, measure)) == whole) | (np.isnan(r) & np.isnan(whole)) for row in array]
    assert found.same_order == close(np.mean([item.all() for item in same]))
    assert (np.isnan(found.low) | (found.low <= found.high)).all()


def test_many_profiles_are_drawn_at_random_and_the_same_every_time() -> None:
    violation, complete = np.random.default_rng(1).random((2, 2, 40))
    first, again = (subsets(violation, complete, 20, Measure.BALANCED) for _ in range(2))
    assert not first.all and first.count == 1000
    assert first.mean.tolist() == again.mean.tolist()
    assert first.mean == pytest.approx(subsets(violation, complete, 40, Measure.BALANCED).mean, abs=0.02)


def test_each_choice_is_moved_alone(sqlite_store: Store) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    found = study(flows, [resolve_scope(sqlite_store, run_id) for run_id in run_ids])
    tried = list(variants(found))
    by_name = {item.name: item for item in tried}
    assert {item.choice for item in tried} == set(Choice) - {Choice.JUDGE}
    assert len(by_name) == len(tried) and found.base.threshold == 1
    assert sum(item.choice == Choice.THRESHOLD for item in tried) == 49
    for place, run_id in enumerate(run_ids):
        alone = headline(flows, resolve_scope(sqlite_store, run_id, labels=Labels.CONSENSUS))
        assert by_name["consensus alone"].numbers[place].balanced[0] == close(alone.balanced)
        plain = headline(flows, resolve_scope(sqlite_store, run_id), IdentifierRule.NONE)
        assert by_name["identifiers by the rule 'none'"].numbers[place].flows[0] == plain.flows
    assert [key for key, _ in left_out(found)] == list(found.votes.keys)
    frame = as_frame(found, tried, ["a", "b"])
    assert len(frame) == 2 * (len(tried) + 1)
    now = frame[frame["choice"] == "now"]
    for measure in Measure:
        for item in ranges(found, tried, measure):
            own = frame[frame["choice"] == str(item.choice)]
            change = own[str(measure)].to_numpy().reshape(-1, 2) - now[str(measure)].to_numpy()
            assert (item.low, item.high) == close((min(0, change.min()), max(0, change.max())))
            assert item.settings == len(change)


def test_another_judge_is_a_choice_where_runs_have_several(sqlite_store: Store) -> None:
    run_id = judged_world(sqlite_store).run_id
    flows = Flows(sqlite_store)
    asked = resolve_scope(sqlite_store, run_id)
    found = study(flows, [asked])
    tried = {item.name: item.numbers[0] for item in judged_otherwise(flows, found)}
    ways = {"judge 1": "judge judge 1", "judge 2": "judge judge 2"}
    ways |= {way: f"{way} of the judges" for way in ("any", "majority", "all")}
    assert set(tried) == set(ways.values())
    for way, name in ways.items():
        theirs = headline(flows, resolve_scope(sqlite_store, run_id, judge_id=way))
        assert tried[name].mean_violation[0] == close(theirs.violation[asked.run.samples])
        assert tried[name].mean_completeness[0] == close(theirs.completeness)
        assert tried[name].flows[0] == theirs.flows
    assert len({item.mean_violation[0] for item in tried.values()}) > 1
    alone = study(flows, [resolve_scope(sqlite_store, world(sqlite_store)[0])])
    assert list(judged_otherwise(flows, alone)) == []


def test_a_trial_is_the_difference_of_two_settings(sqlite_store: Store) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    found = study(flows, [resolve_scope(sqlite_store, run_id) for run_id in run_ids])
    setting = setting_of(found, 0.7, [10, 20, 70], IdentifierRule.EXACT)
    tried = trial(found, setting, ["a", "b"], Measure.VIOLATION, flows_per_run(flows, found)).frame.set_index("run")
    for name, run_id in zip("ab", run_ids, strict=True):
        then = headline(flows, resolve_scope(sqlite_store, run_id, rule="looser"))
        now = headline(flows, resolve_scope(sqlite_store, run_id))
        n = then.scope.run.samples
        assert tried.loc[name, "violation"] == close(then.violation[n])
        assert tried.loc[name, "balanced_change"] == close(then.balanced - now.balanced)
        assert tried.loc[name, "retained"] == then.retained
        said = flow_coverage(flows, resolve_scope(sqlite_store, run_id, rule="looser"))
        assert tried.loc[name, "speaks"] == close(said.share)
    with pytest.raises(ValueError, match="weights"):
        setting_of(found, None, [0, 0, 0], IdentifierRule.EXACT)


@pytest.mark.parametrize("by", [By.DOMAIN, By.CONTEXT, By.PROFILE])
def test_every_flow_is_spoken_for_or_told_why_not(sqlite_store: Store, by: By) -> None:
    run_ids = world(sqlite_store)
    flows = Flows(sqlite_store)
    for run_id in run_ids:
        asked = resolve_scope(sqlite_store, run_id)
        data = flow_arrays(flows, asked)
        found = flow_coverage(flows, asked, by)
        assert found.whole["inappropriate"] == exposures(data).flows
        assert found.whole["necessary"] == necessary_mask(data.draws, data.labels).sum()
        assert found.pairs == 2 * 8 * 4
        assert (found.frame[list(PARTS)].sum(axis=1) == found.frame["pairs"]).all()
        assert found.frame["pairs"].sum() == found.pairs and found.frame["speaks"].sum() == found.speaks
        assert 0 < found.decided < found.speaks
        assert flow_coverage(flows, resolve_scope(sqlite_store, run_id, labels="consensus"), by).decided == 0


def test_a_flow_that_nobody_judged_or_that_only_signs_is_not_spoken_for(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    add_labels(sqlite_store, data.id, [[[X, X], [N, X], [A, N]]])
    missing = {(0, 1, sample): JudgementStatus.FAILED for sample in range(2)}
    run_id = add_run(sqlite_store, data.id, 2, [[[1, 2], [2, 0], [0, 1]]], missing=missing)
    found = flow_coverage(Flows(sqlite_store), resolve_scope(sqlite_store, run_id))
    assert (found.speaks, found.whole["not_judged"], found.whole["ambiguous"]) == (2, 3, 1)


def test_the_command_line_says_it_all(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    run_ids = world(store)
    store.close()

    def asked(*options: str) -> tuple[int, str, str]:
        done = cli_inside({}, "sensitivity", *run_ids, "--workspace", tmp_path, *options)
        return done.returncode, done.stdout, done.stderr

    code, text, _ = asked("--json", "--threshold", "0.7", "--without", "unconcerned")
    assert code == 0
    found = json.loads(text)
    assert [item["run"] for item in found["runs"]] == run_ids
    assert found["tried"]["priors"]["unconcerned"] == 0
    assert {row["choice"] for row in found["ranges"]} >= {str(Choice.THRESHOLD), str(Choice.LABELS)}
    assert sum(row["pairs"] for row in found["spoken_for"][0]["by"]) == found["spoken_for"][0]["pairs"] == 64
    code, text, _ = asked("--priors", "fundamentalist=0,pragmatic=0.5,unconcerned=0.5", "--order-by", "violation")
    assert code == 0 and "tried: a threshold of 100 %, with priors fundamentalist 0 %, pragmatic 50 %" in text
    for wrong, said in (
        (("--without", "nobody"), "there is no persona 'nobody'"),
        (("--threshold", "0.3"), "threshold"),
        (("--order-by", "colour"), "by 'colour'"),
        (("--by", "colour"), "by 'colour'"),
    ):
        code, _, problem = asked(*wrong)
        assert code == 1 and said in problem, problem
