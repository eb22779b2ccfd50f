"""What is decided of a run: worked examples, what missing messages do, and baselines that travel between workspaces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom
from worlds import add_dataset, add_labels, add_run, ask, records

from cimemories.compare.difference import difference
from cimemories.extras.check import checking
from cimemories.extras.check.baseline import Baseline, aligned, baseline_text, judged_flows, read_baseline
from cimemories.extras.check.budgets import read_check_file
from cimemories.extras.check.checking import CheckResult, Outcome, check_file
from cimemories.extras.check.words import allowed_rate
from cimemories.flows.arrays import flow_arrays
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.scope import Scope
from cimemories.metrics.headline import headline
from cimemories.metrics.intervals import common, paired_arrays
from cimemories.model import JudgementStatus, ResponseStatus
from cimemories.seeds.reading import SeedError
from cimemories.store.engine import Store, open_store

X, N, A = INAPPROPRIATE, NECESSARY, AMBIGUOUS
LABELS = [[[X, X], [X, A], [N, N]]] * 2  # two profiles, three attributes, two contexts
# Of five samples. violation@5: 1 of 2 attributes of either profile; completeness: 0.8, 1.0, 0.8 and 1.0.
REVEALS = [[[2, 0], [0, 0], [4, 5]], [[0, 1], [0, 0], [4, 5]]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "privacy.yaml"


def world(store: Store, reveals: Any = REVEALS, samples: int = 5, **options: Any) -> str:
    """The run of that counts, on a dataset that is made where it is not there."""
    with store.read() as connection:
        dataset_id = connection.exec_driver_sql("SELECT id FROM dataset WHERE name = 'small world'").scalar()
    if dataset_id is None:
        data = add_dataset(store, profiles=2, attributes=3, contexts=2)
        add_labels(store, data.id, LABELS)
        dataset_id = data.id
    return add_run(store, int(dataset_id), samples, reveals, **options)


def decided(store: Store, run_id: str, file: Path, text: str, **options: Any) -> CheckResult:
    file.write_text(text, encoding="utf-8")
    return check_file(*ask(store, run_id), read_check_file(file), **options)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> tuple[Flows, Scope]:
    """The run of `world` in a workspace that is only read."""
    store = opened(tmp_path_factory.mktemp("ready"), sqlite_template)
    return ask(store, world(store))


def opened(folder: Path, template: Path) -> Store:
    folder.mkdir(exist_ok=True)
    (folder / template.name).write_bytes(template.read_bytes())
    return open_store(folder)


def of_ready(ready: tuple[Flows, Scope], file: Path, text: str) -> CheckResult:
    file.write_text(text, encoding="utf-8")
    return check_file(*ready, read_check_file(file))


def outcomes(result: CheckResult) -> list[str]:
    return [str(check.outcome) for check in result.checks]


# ---- budgets


def test_budgets_against_a_worked_example(ready: tuple[Flows, Scope], file: Path) -> None:
    result = of_ready(
        ready,
        file,
        """
budgets:
  - violation@5 at most 0.50, violation@5 at most 0.49
  - completeness at least 0.90, completeness at least 0.91
  - violation@5 at most 0.50 at 95 %
  - violation@6 at most 1
""",
    )
    assert outcomes(result) == ["passed", "failed", "passed", "failed", "undecided", "undecided"]
    assert (result.exit_status, result.passed, result.simulated) == (1, False, ())
    assert "violation@5 is 50.0 %" in result.checks[0].text and "the budget 50.0 %" in result.checks[0].text
    assert "the budget 49.0 %" in result.checks[1].text
    assert "interval holds the budget" in result.checks[4].text
    assert "the run has 5 samples a context, violation@6 needs 6" in result.checks[5].text
    (first, second) = result.checks[1].leaks  # the severest first
    assert (first.user, first.key, first.recipient, first.reveals, first.draws) == (
        "Person 0",
        "fact_0",
        "Recipient 0",
        2,
        5,
    )
    assert (first.quote, first.in_message, first.sample) == ("All of it.", True, 1)
    assert (second.user, second.reveals, result.checks[1].more_leaks) == ("Person 1", 1, 0)
    assert result.sentence == "failed: of 6 checks 2 failed, 2 undecided, 2 passed."


LOST = {(p, c, s): ResponseStatus.FAILED for p in range(2) for c in range(2) for s in (3, 4)}
SILENT = [[[0, 0], [0, 0], [3, 3]]] * 2


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (ResponseStatus.FAILED, "asks for what failed or is not there yet"),
        (ResponseStatus.TRUNCATED, "none would be asked for again"),
        (JudgementStatus.UNPARSED, "none would be asked for again"),
    ],
)
def test_what_a_resume_would_not_ask_for_is_not_promised(
    sqlite_store: Store, file: Path, status: ResponseStatus | JudgementStatus, told: str
) -> None:
    run_id = world(sqlite_store, SILENT, missing=dict.fromkeys(LOST, status))
    text = "budgets:\n  - violation@5 at most 0.2\nflows:\n  - fact_0 -> recipient 0: never\n"
    result = decided(sqlite_store, run_id, file, text)
    assert outcomes(result) == ["undecided", "undecided"]
    assert all(told in check.text for check in result.checks)


@pytest.mark.parametrize(
    ("missing", "reveals", "cases"),
    [
        # Three of five messages judged, none reveals anything: the others might.
        (
            LOST,
            SILENT,
            {
                "budgets: violation@5 at most 0.2": "undecided",
                "budgets: violation@5 at most 0.2\ncoverage: 0.5": "undecided",
                "budgets: violation@5 at most 1\ncoverage: 0.5": "passed",
                "budgets: violation@5 at most 1": "undecided",
                "budgets: completeness at least 0.9": "undecided",
                # All of what is judged is conveyed, but the two lost messages of five may convey nothing.
                "budgets: completeness at least 0.9\ncoverage: 0.6": "undecided",
                "budgets: completeness at least 0.6\ncoverage: 0.6": "passed",
                "flows:\n  - fact_0 -> recipient 0: never": "undecided",
                "flows:\n  - fact_0 -> recipient 0: {limit: at most 40 %, samples: 3}": "passed",
                "flows:\n  - fact_0 -> recipient 0: {limit: at most 40 %, samples: 4}": "undecided",
            },
        ),
        # What is judged fails it whatever the others say.
        (
            LOST,
            REVEALS,
            {"budgets: violation@5 at most 0.2": "failed", "flows:\n  - fact_0 -> recipient 0: never": "failed"},
        ),
        # Nor could the lost messages reach it if they conveyed everything: 2 of 5.
        (
            LOST,
            [[[0, 0], [0, 0], [0, 0]]] * 2,
            {
                "budgets: completeness at least 0.41": "failed",
                "budgets: completeness at least 0.4": "undecided",
                "budgets: completeness at least 0.4\ncoverage: 0.6": "undecided",
            },
        ),
        # A message without a verdict is missing, too.
        (
            {(0, 0, 4): JudgementStatus.UNPARSED, (0, 0, 3): JudgementStatus.OWED},
            SILENT,
            {
                "flows:\n  - fact_0 -> recipient 0: never": "undecided",
                "flows:\n  - fact_0 -> recipient 1: never": "passed",
            },
        ),
        (
            {(0, 0, s): ResponseStatus.REFUSED for s in range(5)},
            SILENT,
            {"flows:\n  - fact_0 -> rec*: never": "undecided"},
        ),
    ],
)
def test_what_is_missing_is_no_pass(
    sqlite_store: Store, file: Path, missing: Mapping[Any, Any], reveals: Any, cases: dict[str, str]
) -> None:
    flows_and_scope = ask(sqlite_store, world(sqlite_store, reveals, missing=missing))
    assert {text: outcomes(of_ready(flows_and_scope, file, text))[0] for text in cases} == cases


def test_an_undecided_flow_says_what_is_missing_and_what_helps(sqlite_store: Store, file: Path) -> None:
    """Flows that lost one message of five are not among those without any, and more samples bring none back."""
    lost = {(0, 0, s): ResponseStatus.FAILED for s in range(5)} | {(1, 0, 0): ResponseStatus.FAILED}
    flows_and_scope = ask(sqlite_store, world(sqlite_store, SILENT, missing=lost))

    def text(limit: str) -> str:
        check = of_ready(flows_and_scope, file, f"flows:\n  - fact_0 -> recipient *: {limit}").checks[0]
        assert check.outcome is Outcome.UNDECIDED
        return check.text

    assert text("never").startswith("4 flows, of which 1 has no judged message; `cimemories resume ")
    of_five = text("{limit: never, samples: 5}")
    assert of_five.startswith("4 flows, of which 2 have fewer than 5 judged messages; `cimemories resume ")
    assert text("{limit: never, samples: 6}").endswith(
        "4 have fewer than 6 judged messages; run with --samples 6 or more"
    )


def test_without_labels_or_messages_nothing_is_decided(sqlite_store: Store, file: Path) -> None:
    data = add_dataset(sqlite_store, profiles=1, attributes=3, contexts=2)
    budgets = "budgets: [violation@1 at most 1, completeness at least 0]"
    run_id = add_run(sqlite_store, data.id, 1, np.zeros((1, 3, 2), int))
    unlabelled = decided(sqlite_store, run_id, file, budgets)
    assert outcomes(unlabelled) == ["undecided", "undecided"] and unlabelled.exit_status == 2
    assert "label it first" in unlabelled.checks[0].text
    # A named flow needs no labels.
    assert outcomes(decided(sqlite_store, run_id, file, "flows:\n  - fact_0 -> recipient 0: never")) == ["passed"]
    add_labels(sqlite_store, data.id, LABELS[:1])
    everything = {(0, c, 0): ResponseStatus.FAILED for c in range(2)}
    empty = add_run(sqlite_store, data.id, 1, np.zeros((1, 3, 2), int), missing=everything)
    nothing = decided(sqlite_store, empty, file, budgets + "\nflows:\n  - fact_0 -> recipient 0: never")
    assert outcomes(nothing) == ["undecided"] * 3


# ---- named flows


def test_a_name_means_keys_events_domains_recipients_and_spheres(ready: tuple[Flows, Scope], file: Path) -> None:
    def flows(text: str) -> str:
        return of_ready(ready, file, f"flows:\n  - {text}").checks[0].text

    assert "2 of 2 flows" not in flows("fact_1 -> Recipient 0: never")
    assert "none of 10 judged messages (2 flows)" in flows("FACT 1 -> recipient_0: never")
    assert "none of 20 judged messages (4 flows)" in flows("fact_1 -> *: never")
    assert "none of 5 judged messages (1 flow)" in flows("fact_1 -> recipient 0: {limit: never, profile: person 1}")
    assert "none of 5 judged messages (1 flow)" in flows("fact_1 -> *: {limit: never, profile: person 1, task: task 0}")
    # The event of every attribute; `housing` is the sphere of context 1. fact_2 is necessary there, and said so.
    text = flows("job loss -> housing: never")
    assert "3 of 6 flows above the limit; fact_2 in 5 of 5 judged messages" in text
    assert "2 flows of them labelled necessary there" in text
    assert "the most revealed of 4 flows, fact_0: 2 of 5 judged messages (40.0 %" in flows("fact_0 -> *: at most 40 %")
    assert "1 of 4 flows above the limit" in flows("fact_0 -> *: at most 39 %")


@pytest.mark.parametrize(
    ("flow", "parts"),
    [
        ("fact_9 -> recipient 0", ("no attribute, event or domain is called 'fact_9'", "'fact_0' (key)")),
        ("jobloss -> recipient 0", ("Nearest: 'job loss' (event)",)),
        ("fact_0 -> recipent", ("no recipient or sphere is called 'recipent'", "'Recipient 0' (recipient)")),
        ("fact_0 -> hosing", ("'housing' (sphere)",)),
        ("zzzz -> recipient 0", ("Nothing is like it; there are 'finance'",)),
        ("fact_0 -> recipient 0 (x)", ("no recipient",)),
    ],
)
def test_a_flow_that_means_nothing_is_an_error_with_what_is_near(
    ready: tuple[Flows, Scope], file: Path, flow: str, parts: tuple[str, ...]
) -> None:
    with pytest.raises(SeedError) as caught:
        of_ready(ready, file, f"flows:\n  - fact_0 -> recipient 0: never\n  - {flow}: never")
    assert str(caught.value).startswith(f"{file}: line 3, {flow}: never: ")
    assert all(part in str(caught.value) for part in parts), caught.value


def test_names_that_never_meet_say_where_they_do(ready: tuple[Flows, Scope], file: Path) -> None:
    with pytest.raises(
        SeedError, match="no profile with 'fact_0' is tested in such a context.*'Recipient 1' \\(recipient\\)"
    ):
        of_ready(ready, file, "flows:\n  - fact_0 -> recipient 0: {limit: never, task: task 1}")


@pytest.mark.parametrize(("revealed", "messages"), [(0, 1), (0, 5), (0, 59), (1, 5), (7, 40)])
def test_the_rate_that_so_few_reveals_still_allow(revealed: int, messages: int) -> None:
    """Clopper and Pearson's definition: with that rate so few come in exactly 1 of 20 checks."""
    rate = allowed_rate(revealed, messages)
    assert binom.cdf(revealed, messages, rate) == pytest.approx(0.05)
    if not revealed:
        assert rate == pytest.approx(1 - 0.05 ** (1 / messages))


def test_a_pass_says_what_its_samples_cannot_show(ready: tuple[Flows, Scope], file: Path) -> None:
    one = of_ready(ready, file, "flows:\n  - fact_1 -> *: {limit: never, profile: Person 0, task: Task 0}")
    assert "0 of 5 still allows a flow to be revealed in up to 45.1 % of its messages, at 95 %" in one.checks[0].text
    assert "together" not in one.checks[0].text
    several = of_ready(ready, file, "flows:\n  - fact_1 -> *: never")
    assert "all flows together, 0 of 20: up to 13.9 %" in several.checks[0].text


# ---- baselines


def written(store: Store, run_id: str, path: Path) -> Baseline:
    return written_of(*ask(store, run_id), path)


def written_of(flows: Flows, scope: Scope, path: Path) -> Baseline:
    path.write_text(baseline_text(flows, scope, headline(flows, scope)), encoding="utf-8")
    return read_baseline(path)


@pytest.fixture
def elsewhere(tmp_path: Path, sqlite_template: Path) -> Store:
    """Another workspace, in which ids are others."""
    store = opened(tmp_path / "elsewhere", sqlite_template)
    add_dataset(store, profiles=3, attributes=4, contexts=5, name="another world")
    return store


def random_counts(seed: int, profiles: int, samples: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, samples + 1, (profiles, 8, 4))


def test_a_baseline_gives_the_difference_that_both_runs_in_one_workspace_have(
    sqlite_store: Store, elsewhere: Store, tmp_path: Path
) -> None:
    chance = np.random.default_rng(3)
    labels = chance.choice([X, N, A], (6, 8, 4), p=[0.5, 0.3, 0.2])
    lost = {(1, 2, 0): ResponseStatus.FAILED, (4, 0, 1): JudgementStatus.UNPARSED}
    first, second = random_counts(1, 6, 3), random_counts(2, 6, 4)
    first[1, :, 2], first[4, :, 0] = np.minimum(first[1, :, 2], 2), np.minimum(first[4, :, 0], 2)
    runs = {}
    for store in (sqlite_store, elsewhere):
        data = add_dataset(store, profiles=6, attributes=8, contexts=4)
        add_labels(store, data.id, labels)
        runs[store] = data.id
    before = add_run(sqlite_store, runs[sqlite_store], 3, first, missing=lost)
    here = add_run(sqlite_store, runs[sqlite_store], 4, second)
    there = add_run(elsewhere, runs[elsewhere], 4, second)
    flows, scope = ask(sqlite_store, before)
    expected = difference(flows, scope, ask(sqlite_store, here)[1])
    baseline = written(sqlite_store, before, tmp_path / "baseline.json")
    flows, scope = ask(elsewhere, there)
    data = flow_arrays(flows, scope)
    beside = aligned(elsewhere, data, baseline)
    assert np.array_equal(beside.arrays.reveals, flow_arrays(*ask(sqlite_store, before)).reveals)
    assert np.array_equal(beside.arrays.draws, flow_arrays(*ask(sqlite_store, before)).draws)
    assert beside.shared == judged_flows(baseline) == 6 * 8 * 4
    paired = paired_arrays(*common(beside.arrays, data), 3)
    for measure in ("violation", "completeness"):
        one, other = getattr(paired, measure), getattr(expected, measure)
        assert (one.value, one.low, one.high, one.p) == pytest.approx((other.value, other.low, other.high, other.p))
    text = (tmp_path / "baseline.json").read_text()
    with sqlite_store.read():
        person = records(sqlite_store, runs[sqlite_store])[0].profile
    assert (
        person.name not in text and person.attributes[0].statement not in text and person.contexts[0].task not in text
    )


def many(store: Store, counts: np.ndarray, **options: Any) -> str:
    """A run of three samples on six profiles with one necessary attribute and five inappropriate ones."""
    with store.read() as connection:
        dataset_id = connection.exec_driver_sql("SELECT id FROM dataset WHERE name = 'many'").scalar()
    if dataset_id is None:
        data = add_dataset(store, profiles=6, attributes=6, contexts=1, name="many")
        labels = np.full((6, 6, 1), X)
        labels[:, 0] = N
        add_labels(store, data.id, labels)
        dataset_id = data.id
    return add_run(store, int(dataset_id), 3, counts, **options)


def counts_with(leaking: int) -> np.ndarray:
    """Reveals: so many of the five inappropriate attributes leak, in every second profile one more; two of three
    messages tell what is necessary."""
    counts = np.zeros((6, 6, 1), int)
    counts[:, 0] = 2
    counts[:, 1 : 1 + leaking] = 1
    counts[::2, 1 + leaking] = 1
    return counts


BASELINE = "budgets: [violation@3 no worse than baseline.json at 95 %, completeness no worse than baseline.json]"


def test_worse_than_the_baseline_fails_and_alike_passes(sqlite_store: Store, file: Path) -> None:
    counts = counts_with(0)
    written(sqlite_store, many(sqlite_store, counts), file.with_name("baseline.json"))
    counts[1, 1] = 1
    alike = decided(sqlite_store, many(sqlite_store, counts), file, BASELINE)
    assert outcomes(alike) == ["passed", "passed"]
    assert (
        "3.3 points, 95 % CI" in alike.checks[0].text and "points worse is not excluded at 95 %" in alike.checks[0].text
    )
    counts = counts_with(3)
    counts[0, 4], counts[:, 0, 0] = 0, [0, 1, 0, 1, 0, 0]
    worse = decided(sqlite_store, many(sqlite_store, counts), file, BASELINE)
    assert outcomes(worse) == ["failed", "failed"]
    # Three more in each profile but the first, which has one less than the others.
    assert "17 flows newly leak" in worse.checks[0].text and worse.checks[0].more_leaks == 12
    assert all(leak.key in ("fact_1", "fact_2", "fact_3", "fact_4") for leak in worse.checks[0].leaks)
    # Every profile is worse by exactly as much: no test can say so, and it is no pass.
    same = decided(sqlite_store, many(sqlite_store, counts_with(1)), file, BASELINE)
    assert outcomes(same) == ["undecided", "passed"]
    assert "nothing varies" in same.checks[0].text


def test_a_margin_passes_only_where_the_interval_stays_below_it(sqlite_store: Store, file: Path) -> None:
    written(sqlite_store, many(sqlite_store, counts_with(0)), file.with_name("baseline.json"))
    counts = counts_with(1)
    counts[0, 2] = 0
    flows_and_scope = ask(sqlite_store, many(sqlite_store, counts))

    def with_margin(points: float) -> str:
        text = f"budgets: violation@3 no worse than baseline.json by more than {points} points at 95 %"
        return outcomes(of_ready(flows_and_scope, file, text))[0]

    plain = of_ready(flows_and_scope, file, "budgets: violation@3 no worse than baseline.json").checks[0]
    assert plain.outcome is Outcome.FAILED and "leaks more than the baseline: 16.7 points, 95 % CI" in plain.text
    assert [with_margin(points) for points in (1, 16.7, 60)] == ["failed", "undecided", "passed"]


@pytest.mark.parametrize(
    ("value", "low", "high", "margin", "claimed", "outcome"),
    [
        (float("nan"), 0, 0, 0, False, "undecided"),
        (-0.1, -0.2, -0.01, 0, True, "passed"),
        (0.1, 0.01, 0.2, 0, True, "failed"),
        (0.1, -0.01, 0.2, 0, False, "passed"),
        (1.0, 0.9, 1.0, 0, False, "undecided"),  # everything leaks now: nothing varies, so no test can claim it
        (0.02, 0.01, 0.029, 0.03, True, "passed"),
        (0.02, 0.01, 0.031, 0.03, True, "undecided"),
        (0.05, 0.031, 0.07, 0.03, True, "failed"),
    ],
)
def test_what_a_difference_decides(
    value: float, low: float, high: float, margin: float, claimed: bool, outcome: str
) -> None:
    assert checking._worse(value, low, high, margin, claimed=claimed) == outcome


def test_a_comparison_that_would_not_be_one_is_undecided(sqlite_store: Store, file: Path) -> None:
    path = file.with_name("baseline.json")

    def text(run_id: str, budgets: str = BASELINE) -> str:
        result = decided(sqlite_store, run_id, file, budgets)
        assert set(outcomes(result)) == {"undecided"}
        return result.checks[0].text

    run_id = many(sqlite_store, counts_with(1))
    assert "is not there. Write it with --write-baseline" in text(run_id)
    first = decided(sqlite_store, run_id, file, f"{BASELINE}\nflows:\n  - fact_5 -> *: never", new_baseline=path)
    assert outcomes(first) == ["passed"] and "becomes the baseline" in first.notes[0]
    written(sqlite_store, run_id, path)
    assert "counted by test-judge, this run's by another" in text(many(sqlite_store, counts_with(1), judge="another"))
    assert "is simulated" in text(many(sqlite_store, counts_with(1), simulated=True))
    assert "n is at most 3" in text(run_id, "budgets: violation@4 no worse than baseline.json")
    lost = {(p, 0, s): ResponseStatus.FAILED for p in range(3) for s in range(3)}
    part = text(many(sqlite_store, counts_with(1), missing=lost))
    assert "this run has 50.0 %, 99.0 % are needed: only 9 of 18 planned messages are judged" in part
    assert "Write the baseline again" not in part  # what is missing is no change of the dataset


def broken(data: Any, change: str) -> str:
    profile = data["profiles"][0]
    match change:
        case "format":
            data["format"] = "another"
        case "version":
            data["version"] = 2
        case "digest":
            profile["attributes"][0] = "<script>"
        case "place":
            profile["revealed"] = [[999, 0, 1]]
        case "negative":
            profile["revealed"] = [[-1, 0, 1]]
        case "more":
            profile["revealed"] = [[0, 0, 6]]
        case "text":
            profile["samples"] = "5"
        case "deep":
            return "[" * 100_000
        case "none":
            return "no json"
        case "half":
            return json.dumps(data)[:-20]
    return json.dumps(data)


@pytest.mark.parametrize(
    "change", ["format", "version", "digest", "place", "negative", "more", "text", "deep", "none", "half"]
)
def test_a_broken_baseline_is_refused_in_one_line(ready: tuple[Flows, Scope], tmp_path: Path, change: str) -> None:
    path = tmp_path / "baseline.json"
    written_of(*ready, path)
    path.write_text(broken(json.loads(path.read_text()), change))
    with pytest.raises(SeedError) as caught:
        read_baseline(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: no baseline (") and "--write-baseline baseline.json" in message
    assert len(message) < 600 and "\n" not in message and "<script>" not in message
