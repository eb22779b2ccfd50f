"""What a comparison can show, beforehand: by simulated worlds of known variances, and at the ends of its scale."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from planned_sweeps import sweep_content
from typer.testing import CliRunner, Result
from worlds import add_dataset, add_labels, add_run

from cimemories.cli import cli
from cimemories.flows.arrays import Floats, FlowArrays, Names
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.metrics import sentences
from cimemories.metrics.intervals import common_entries, paired_arrays
from cimemories.metrics.power import Components, Noise, Pilot, Row, Size, noise_of, noise_sums, pilot_runs
from cimemories.metrics.uncertainty import NumberTerms, Terms, difference_interval, variance
from cimemories.model import ResponseStatus
from cimemories.store import runs
from cimemories.store.engine import Store, StoreError, open_store

ATTRIBUTES = 30


def linear(parts: Components, apart: float, profiles: int, contexts: int, random: np.random.Generator) -> Terms:
    """The terms of a difference of this size whose variances are these: a mean over cells of crossed random effects."""
    cells = apart + random.normal(0, math.sqrt(parts.users), (profiles, 1))
    cells = cells + random.normal(0, math.sqrt(parts.contexts), (1, contexts))
    cells = cells + random.normal(0, math.sqrt(parts.samples * contexts), (profiles, contexts))
    without = (cells.sum(axis=1, keepdims=True) - cells) / (contexts - 1)
    nothing = np.zeros(profiles)
    return Terms(cells.mean(axis=1), without, nothing, np.full(profiles, parts.samples), np.full(profiles, 10))


@pytest.mark.parametrize(
    ("power", "parts", "profiles", "contexts"),
    [
        (0.8, Components(0.01, 0.004, 0.01), 5, 24),
        (0.8, Components(0.01, 0.004, 0.01), 10, 12),
        (0.95, Components(0.004, 0.001, 0.002), 10, 49),
        (0.95, Components(0.004, 0.001, 0.002), 30, 24),
    ],
)
def test_a_difference_of_the_smallest_size_is_found_as_often_as_promised(
    parts: Components, power: float, profiles: int, contexts: int
) -> None:
    random, worlds = np.random.default_rng(16), 1500
    apart = parts.detectable(profiles, contexts, power).value
    shown = sum(difference_interval(linear(parts, apart, profiles, contexts, random)).p < 0.05 for _ in range(worlds))
    assert abs(shown / worlds - power) < 0.04


def run(chances: Floats, labels: Floats, samples: int, random: np.random.Generator) -> FlowArrays:
    profiles, attributes, contexts = labels.shape
    reveals, draws = random.binomial(samples, chances), np.full(labels.shape, samples)
    names, counted = Names.unnamed(profiles, attributes), np.ones((profiles, attributes), np.bool_)
    return FlowArrays(reveals, draws, labels, counted, tuple(range(profiles)), tuple(range(contexts)), names)


def two_models(size: Size, random: np.random.Generator, unlike: float = 0.3) -> tuple[FlowArrays, FlowArrays]:
    """Runs of two models, the second less leaky, that differ by profile, attribute and context. unlike 0: of one."""
    shape = (size.profiles, ATTRIBUTES, size.contexts)
    kinds = random.random(shape)
    labels = np.where(kinds < 0.1, NECESSARY, np.where(kinds < 0.45, INAPPROPRIATE, AMBIGUOUS))

    def effects(middle: float, by: float) -> Floats:
        of_profiles, of_attributes, of_contexts = (
            random.normal(0, 1, tuple(n if axis in axes else 1 for axis, n in enumerate(shape)))
            for axes in ((0,), (0, 1), (2,))
        )
        return middle + by * (of_profiles + 2 * of_attributes + 1.2 * of_contexts)

    base, necessary, runs = effects(-3.5, 0.5), effects(0.0, 0.4), []
    for leaning in (0.0, -2.0 * unlike):
        own = np.where(labels == NECESSARY, necessary + effects(0.0, unlike), base + effects(leaning, unlike))
        runs.append(run(1 / (1 + np.exp(-own)), labels, size.samples, random))
    return runs[0], runs[1]


# More profiles, and more or fewer contexts and samples, of the same pilots; each alone in the long tests.
@pytest.mark.parametrize(
    ("worlds", "sizes"),
    [
        (60, (Size(30, 10, 2), Size(8, 30, 8))),
        *(
            pytest.param(240, (size,), marks=pytest.mark.long)
            for size in (Size(10, 20, 5), Size(30, 20, 5), Size(10, 10, 5), Size(10, 20, 2))
        ),
    ],
)
def test_pilots_foretell_the_error_of_another_size(worlds: int, sizes: tuple[Size, ...]) -> None:
    foretold, seen, own = defaultdict(list), defaultdict(list), Size(10, 20, 5)
    for world in range(worlds):
        after_pilot = np.random.default_rng(world)
        leaks, needed = common_entries(*two_models(own, after_pilot))
        pilot = Pilot(tuple(leaks), tuple(needed), own, None)
        for size in sizes:
            of = pilot.violation(size.contexts, size.samples), pilot.completeness(size.contexts, size.samples)
            foretold[size].append([item.error(size.profiles, size.contexts) for item in of])
            paired = paired_arrays(*two_models(size, deepcopy(after_pilot)), size.samples)
            seen[size].append([paired.violation.value, paired.completeness.value])
    for size in sizes:
        squares, values = np.array(foretold[size]) ** 2, np.array(seen[size])
        ratio = np.sqrt(squares.mean(axis=0)) / values.std(axis=0)
        # What so many worlds know of the ratio: the spread of the planned variances, and of the variance that is seen.
        kurtosis = ((values - values.mean(axis=0)) ** 4).mean(axis=0) / values.var(axis=0) ** 2
        error = ratio / 2 * np.sqrt(((squares.std(axis=0) / squares.mean(axis=0)) ** 2 + kurtosis - 1) / len(values))
        # Any of ten ratios is beyond 4 standard errors (19 %) in 1 of 1,600 sets of worlds. 4,000 worlds each found
        # ratios of 0.98 to 1.02, and of 1.06 where the plan goes beyond the pilot.
        bias = 0.06 if size.contexts > own.contexts or size.samples > own.samples else 0.02
        assert np.all(np.abs(ratio - 1) < 4 * error + bias), (size, ratio, error)


def test_at_its_own_size_a_pilot_gives_the_variance_that_the_interval_has() -> None:
    size = Size(8, 12, 4)
    one, two = two_models(size, np.random.default_rng(3))
    leaks, needed = common_entries(one, two)
    both = Pilot(tuple(leaks), tuple(needed), size, None)
    apart = paired_arrays(one, two, size.samples)
    for components, interval in (
        (both.violation(12, 4), apart.violation),
        (both.completeness(12, 4), apart.completeness),
    ):
        assert components.error(8, 12) == pytest.approx(interval.error, rel=1e-9)
        assert components.freedom(8, 12) == pytest.approx(interval.freedom, rel=1e-9)
    alone = Pilot((one.inappropriate,), (one.necessary,), size, 0.25).violation(12, 4)
    whole = NumberTerms.joined([NumberTerms.of(one.inappropriate, one.necessary, (4,))])
    parts, _ = variance(whole.violation[4])
    assert alone.samples / 8 == pytest.approx(2 * parts.samples)
    assert alone.users / 8 == pytest.approx(1.5 * parts.users)
    assert alone.contexts / 12 == pytest.approx(1.5 * parts.contexts)
    assert whole.sums.of_violation(4).sum() > 0 and alone.estimated_freedom > 0


@given(st.floats(1e-4, 0.05), st.floats(0, 0.05), st.floats(0, 0.05), st.integers(2, 60), st.floats(0.01, 0.3))
def test_the_profiles_needed_are_the_fewest_that_show_it(
    users: float, samples: float, contexts: float, tasks: int, apart: float
) -> None:
    parts = Components(users, samples, contexts)
    needed = parts.profiles_needed(apart, tasks)
    if needed is None:
        assert parts.detectable(100_000, tasks).value > apart
    else:
        assert parts.detectable(needed, tasks).value <= apart
        assert needed == 5 or parts.detectable(needed - 1, tasks).value > apart


def test_more_of_anything_shows_smaller_differences_and_contexts_are_a_floor() -> None:
    parts = Components(0.01, 0.004, 0.02)
    differences = [parts.detectable(p, t).value for p, t in ((5, 10), (10, 10), (10, 40), (100, 40))]
    assert differences == sorted(differences, reverse=True)
    assert parts.profiles_needed(0.01, 10) is None, "contexts alone have an error of 4.5 points"
    assert parts.detectable(10, 10, 0.9).value > parts.detectable(10, 10, 0.8).value
    few = parts.detectable(4, 10)
    assert math.isnan(few.value) and few.floor == pytest.approx(1.96 * math.sqrt(0.001), rel=1e-3)
    estimated = Components(0.01, 0.004, 0.02, estimated_freedom=9).detectable(10, 10)
    # A standard deviation of nine degrees of freedom is known to within 0.69 and 1.83 of itself.
    assert estimated.low / estimated.value == pytest.approx(0.6878, abs=1e-3)
    assert estimated.high / estimated.value == pytest.approx(1.8256, abs=1e-3)
    for power in (0.3, 1.0):
        with pytest.raises(ValueError, match="power"):
            parts.detectable(10, 10, power)
    with pytest.raises(ValueError, match="above 0"):
        parts.profiles_needed(0.0, 10)


@pytest.mark.parametrize(
    ("n", "samples"),
    [pytest.param(1, (5, 5), marks=pytest.mark.long), pytest.param(5, (5, 5), marks=pytest.mark.long), (2, (4, 3))],
)
def test_two_runs_of_one_model_stay_below_the_noise_floor(n: int, samples: tuple[int, int]) -> None:
    below, worlds = [], 300
    for world in range(worlds):
        random = np.random.default_rng(world)
        shape = (6, ATTRIBUTES, 10)
        kinds = random.random(shape)
        labels = np.where(kinds < 0.1, NECESSARY, np.where(kinds < 0.5, INAPPROPRIATE, AMBIGUOUS))
        # Leaks of a few attributes, as models have them: what one prior for all flows would get wrong.
        leaky = np.where(random.random((*shape[:2], 1)) < 0.3, 0.3, 0.01)
        chances = np.where(labels == NECESSARY, 0.6, leaky)
        one, two = (run(chances, labels, number, random) for number in samples)
        paired, noise = paired_arrays(one, two, n), noise_of(noise_sums(one, two, n))
        below.append(
            [abs(paired.violation.value) <= noise.violation, abs(paired.completeness.value) <= noise.completeness]
        )
    assert np.all(np.abs(np.mean(below, axis=0) - 0.95) < 0.035), np.mean(below, axis=0)


def test_where_nothing_is_revealed_or_all_is_there_is_no_noise() -> None:
    labels = np.tile(np.array([[NECESSARY, NECESSARY], [INAPPROPRIATE, INAPPROPRIATE]]), (5, 1, 1))
    random = np.random.default_rng(1)
    for chance in (0.0, 1.0):
        same = run(np.full(labels.shape, chance), labels, 3, random)
        noise = noise_of(noise_sums(same, same, 2))
        assert (noise.violation, noise.completeness) == (0, 0)
    none = run(np.zeros(labels.shape), np.full(labels.shape, AMBIGUOUS), 3, random)
    assert math.isnan(noise_of(noise_sums(none, none, 1)).violation) and math.isnan(
        noise_of(noise_sums(none, none, 1)).completeness
    )


def test_the_noise_floor_of_one_flow_is_that_of_all_ways_to_deal_its_samples() -> None:
    labels = np.array([[[NECESSARY, NECESSARY], [INAPPROPRIATE, AMBIGUOUS]]])
    one, two = (run(np.zeros(labels.shape), labels, 2, np.random.default_rng(1)) for _ in range(2))
    one.reveals[0, 1, 0] = 1
    # One reveal among four samples: dealt to either run it makes Violation@2 differ by 1, Violation@1 by 1 / 2.
    assert noise_of(noise_sums(one, two, 2)).violation == pytest.approx(1.959964, rel=1e-6)
    assert noise_of(noise_sums(one, two, 1)).violation == pytest.approx(1.959964 / 2, rel=1e-6)


def row_of(size: Size, parts: Components) -> Row:
    detectable = parts.detectable(size.profiles, size.contexts)
    return Row(size, detectable, detectable)


def test_a_plan_in_words_says_what_it_rests_on_and_never_more_than_its_profiles_allow() -> None:
    estimated, size = Components(0.01, 0.004, 0.01, estimated_freedom=9), Size(10, 49, 5)
    text = sentences.plan(row_of(size, estimated), 0.8, "the pilot")
    value, low, high = (100 * getattr(row_of(size, estimated).violation, end) for end in ("value", "low", "high"))
    assert text == (
        "With 10 profiles, 49 contexts and 5 samples this run can show a difference from another one of about "
        f"{value:.1f} ({low:.1f} to {high:.1f}) points of Violation@5 in 80 % of cases (pilot: the pilot)."
    )
    few = sentences.plan(row_of(Size(1, 49, 1), estimated), 0.8, "the pilot")
    assert "1 profile, 49 contexts and 1 sample" in few and "says nothing of users" in few and "points" not in few
    unknown = sentences.plan(row_of(size, Components(math.nan, math.nan, math.nan)), 0.8, "the pilot")
    assert "not known" in unknown and "nan" not in unknown
    large = sentences.plan(row_of(Size(6, 3, 5), Components(4.0, 0.0, 0.0, estimated_freedom=5)), 0.8, "the pilot")
    assert "no difference from another one: not even 100 points of Violation@5 would do in 80 % of cases" in large
    given = sentences.detectable(Components(0.01, 0.004, 0.01).detectable(10, 49))
    assert "(" not in given, "variances that are given leave no range open"
    assert sentences.detectable(Components(0.0, 0.0, 1e-9).detectable(10, 49)) != "0.0"


def test_what_plans_rest_on_is_said_where_it_holds() -> None:
    leaks, needed = common_entries(*two_models(Size(6, 8, 3), np.random.default_rng(1)))
    two = Pilot(tuple(leaks), tuple(needed), Size(6, 8, 3), None)
    one = Pilot((leaks[0],), (needed[0],), Size(6, 8, 3), 0.4)
    assert not any("correlate" in note for note in sentences.plan_notes(two, [two.size], 0.8))
    assert any("assumed to correlate at 0.4" in note for note in sentences.plan_notes(one, [two.size], 0.8))
    assert len(sentences.plan_notes(two, [two.size, Size(60, 8, 3)], 0.8)) == 1, "profiles alone change no number"
    more = sentences.plan_notes(two, [two.size, Size(6, 8, 4)], 0.8)
    assert any("extrapolated where a plan has more samples" in note for note in more)
    assert any("different numbers" in note for note in more)
    assert "no number of profiles" in sentences.profiles_needed(None, 3, "violation@5", two.size)
    assert "1 point of" in sentences.profiles_needed(1, 1, "completeness", two.size)


def test_the_noise_floor_in_words_has_digits_enough_and_is_silent_without_flows() -> None:
    text = sentences.noise_floor(Noise(0.024, 0.0004), 5)
    assert "2.40 points of violation@5 and 0.04 points of completeness" in text and "95 %" in text
    assert sentences.noise_floor(Noise(math.nan, 0.01), 1).count("points") == 1
    assert sentences.noise_floor(Noise(math.nan, math.nan), 1) == ""


@pytest.fixture(scope="module")
def pilots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[str]]:
    """A record with two runs of six profiles, and one of too few."""
    store = open_store(tmp_path_factory.mktemp("pilots"))
    random, shape = np.random.default_rng(2), (6, 8, 5)
    data = add_dataset(store, *shape)
    labels = np.where(random.random(shape) < 0.3, NECESSARY, INAPPROPRIATE)
    add_labels(store, data.id, labels)
    runs = [add_run(store, data.id, 3, random.binomial(3, chance, shape)) for chance in (0.3, 0.1)]
    few = {(p, c, s): ResponseStatus.FAILED for p in range(3, 6) for c in range(5) for s in range(3)}
    runs.append(add_run(store, data.id, 3, random.binomial(3, 0.3, shape), missing=few))
    return store, runs


def test_the_command_gives_the_table_the_figures_and_what_they_rest_on(pilots: tuple[Store, list[str]]) -> None:
    store, (one, two, few) = pilots

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(cli, ["power", *map(str, arguments), "--workspace", str(store.workspace)])

    def refused(*arguments: object) -> str:
        assert isinstance(call(*arguments).exception, StoreError)
        return str(call(*arguments).exception)

    printed = call(one, "--profiles", 20, "--difference", 4).output
    assert "With 20 profiles, 5 contexts and 3 samples" in printed and f"pilot: {one}, 6 profiles" in printed
    assert "twice the profiles" in printed and "A difference of 4 points of violation@3" in printed
    assert "assumed to correlate at 0.5" in printed
    assert "assumed" not in call(one, two).output
    as_json = json.loads(call(one, two, "--json", "--difference", 4, "--samples", 2).stdout)
    assert as_json["pilots"] == [one, two] and as_json["pilot"] == {"profiles": 6, "contexts": 5, "samples": 3}
    assert as_json["correlation"] is None and as_json["power"] == 0.8 and set(as_json["profiles_needed"]) == {
        "violation", "completeness",
    }  # fmt: skip
    plan, twice, *_ = as_json["plans"]
    assert plan["samples"] == 2 and plan["messages"] == 60 and twice["messages"] == 120
    for side in ("violation", "completeness"):
        assert plan[f"{side}_low"] < plan[side] < plan[f"{side}_high"]
        assert twice[side] < plan[side]
    stricter = json.loads(call(one, two, "--json", "--samples", 2, "--power", 0.95).stdout)["plans"][0]
    assert stricter["violation"] > plan["violation"]
    alike = json.loads(call(one, "--json", "--correlation", 0.9).stdout)["plans"][0]
    assumed = json.loads(call(one, "--json").stdout)["plans"][0]
    assert alike["violation"] < assumed["violation"]
    assert alike["violation_floor"] == assumed["violation_floor"]
    assert f"at least 5 judged and labelled profiles, to say how much they differ; {few} has 3" in refused(few)
    assert "two show it" in refused(one, two, "--correlation", 0.5)
    assert "two different runs" in refused(one, one)
    assert "above 0" in refused(one, "--difference", 0)


def test_the_plan_of_a_sweep_says_what_two_of_its_runs_can_show(
    pilots: tuple[Store, list[str]], tmp_path: Path
) -> None:
    """By the newest run that can be a pilot: the one of too few profiles, which is newer, cannot."""
    store, (_, two, _) = pilots
    file = tmp_path / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep_content(dataset="small world", memory=["full"], contexts=5, samples=3)))
    place = "--workspace", str(store.workspace)
    power = json.loads(CliRunner().invoke(cli, ["power", two, "--json", *place]).stdout)["plans"][0]["violation"]
    printed = CliRunner().invoke(cli, ["sweep", str(file), "--plan", *place]).output
    about = f"this run can show a difference from another one of about {100 * power:.1f} ("
    assert f"With 6 profiles, 5 contexts and 3 samples {about}" in printed
    planned = json.loads(CliRunner().invoke(cli, ["sweep", str(file), "--plan", "--json", *place]).stdout)
    assert planned["power"] in printed and planned["power"].endswith("(pilot: small run).")


def test_compare_prints_the_noise_floor_beside_the_difference(pilots: tuple[Store, list[str]]) -> None:
    store, (one, two, _) = pilots
    arguments = ["compare", one, two, "--workspace", str(store.workspace)]
    assert "Noise floor: with equal leak probabilities" in CliRunner().invoke(cli, arguments).output
    floor = json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)["differences"][0]["noise"]
    assert 0 < floor["violation"] < 1 and 0 < floor["completeness"] < 1


def test_pilots_for_a_real_run_are_real_ones_first_and_the_newest_of_them(pilots: tuple[Store, list[str]]) -> None:
    store, (one, two, few) = pilots
    with store.read() as connection:
        dataset = runs.by_id(connection, one).dataset
    assert [row.id for row in pilot_runs(store, dataset, "full", simulated=False)] == [few, two, one]
    simulated = add_run(store, dataset, 1, {}, simulated=True)
    assert [row.id for row in pilot_runs(store, dataset, "full", simulated=False)] == [few, two, one, simulated]
    assert pilot_runs(store, dataset, "full", simulated=True)[0].id == simulated
    assert "simulated" in sentences.pilot_notes(pilot_runs(store, dataset, "full", simulated=True)[0])[0]
