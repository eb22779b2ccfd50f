"""What was recalled and said: the worked example of docs/metrics.md, and loops over messages and samples."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from itertools import combinations, product
from statistics import fmean

import numpy as np
import pytest
import sqlalchemy as sa
from counted_worlds import COUNTED, DRAWS, LABELS, REVEALS, Arrays, N, X, close, exposures, kept_contexts, worlds
from hypothesis import given
from hypothesis import strategies as st
from judging_worlds import JudgedWorld, judged_world
from reports import Page
from typer.testing import CliRunner
from worlds import add_dataset, add_labels, add_run, ask, records

import cimemories
from cimemories.answers.metrics import metrics
from cimemories.cli import cli
from cimemories.flows import parts
from cimemories.flows.arrays import FlowArrays, Names, flow_arrays, retained
from cimemories.flows.flows import Flows
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.flows.recalled import RecalledArrays, count_recalled, recalled_blocks, recalls
from cimemories.flows.scope import Combine, resolve_scope
from cimemories.metrics.headline import headline
from cimemories.metrics.heatmap import grid
from cimemories.metrics.places import By
from cimemories.metrics.recalled.groups import recalled_by, recalled_grid
from cimemories.metrics.recalled.split import (
    OUTCOMES,
    completeness_split,
    outcome_counts,
    recalled_numbers,
    violation_split,
)
from cimemories.model import JudgementStatus, ResponseStatus
from cimemories.report.collect import collect
from cimemories.report.render import as_html
from cimemories.store import audits, datasets, work
from cimemories.store.audits import AuditVerdict, NewVerdict
from cimemories.store.engine import Store, StoreError
from cimemories.store.tables import memory, response


def arrays_of(world: Arrays, recalled: np.ndarray, said: np.ndarray) -> RecalledArrays:
    reveals, draws, labels, counted = world
    profiles, attributes, contexts = draws.shape
    names = Names.unnamed(profiles, attributes)
    data = FlowArrays(reveals, draws, labels, counted, tuple(range(profiles)), tuple(range(contexts)), names)
    return RecalledArrays(data, recalled, said)


def test_the_worked_example_by_hand() -> None:
    recalled = np.array([[[2, 0, 4], [0, 5, 4], [5, 4, 0]]])
    said = np.array([[[1, 0, 4], [0, 2, 4], [5, 3, 0]]])
    counts = arrays_of((REVEALS, DRAWS, LABELS, COUNTED), recalled, said)
    assert violation_split(counts, 1)[0] == pytest.approx([0.54, 0.06, 0.1, 0.3])
    assert violation_split(counts, 5)[0] == pytest.approx([1, 0, 0, 0])
    assert completeness_split(counts)[0] == pytest.approx([0.8, 0, 1 / 15, 2 / 15])


@st.composite
def recalled_worlds(draw: st.DrawFn) -> tuple[Arrays, dict[tuple[int, int, int], list[tuple[bool, bool]]]]:
    """A world of counts, and of each flow whether each sample recalls and says the attribute."""
    reveals, draws, labels, counted = draw(worlds(most=3))
    samples = {}
    for cell in np.ndindex(draws.shape):
        number, said = int(draws[cell]), int(reveals[cell])
        flags = draw(st.lists(st.booleans(), min_size=number, max_size=number))
        samples[cell] = [(flag, at < said) for at, flag in enumerate(flags)]
    return (reveals, draws, labels, counted), samples


def counted_arrays(world: Arrays, samples: dict[tuple[int, int, int], list[tuple[bool, bool]]]) -> RecalledArrays:
    recalled, said = np.zeros_like(world[1]), np.zeros_like(world[1])
    for cell, each in samples.items():
        recalled[cell] = sum(recall for recall, _ in each)
        said[cell] = sum(recall and say for recall, say in each)
    return arrays_of(world, recalled, said)


def mean_defined(values: list[float]) -> float:
    defined = [value for value in values if not math.isnan(value)]
    return fmean(defined) if defined else math.nan


@given(recalled_worlds(), st.integers(1, 4))
def test_the_parts_are_what_every_draw_of_samples_comes_to_and_add_up(
    drawn: tuple[Arrays, dict[tuple[int, int, int], list[tuple[bool, bool]]]], n: int
) -> None:
    world, samples = drawn
    counts = counted_arrays(world, samples)
    result, conveyed = violation_split(counts, n), completeness_split(counts)
    for p in range(world[1].shape[0]):
        shares: list[list[float]] = []
        for a in range(world[1].shape[1]):
            cells = [samples[p, a, c] for c, _ in exposures(p, a, world)]
            if not cells:
                continue
            # Every way of drawing n messages of each of its tasks: where was the attribute stopped?
            outcomes = []
            for draw in product(*(combinations(each, min(n, len(each))) for each in cells)):
                seen = [sample for chosen in draw for sample in chosen]
                if (True, True) in seen:
                    outcomes.append(0)
                elif (False, True) in seen:
                    outcomes.append(1)
                else:
                    outcomes.append(2 if (True, False) in seen else 3)
            shares.append([outcomes.count(k) / len(outcomes) for k in range(4)])
        expected = [fmean(column) for column in zip(*shares, strict=True)] if shares else [math.nan] * 4
        assert close(result[p], expected)
        needed = []
        for c in kept_contexts(world[2][p]):
            cells = [samples[p, a, c] for a in range(world[1].shape[1]) if world[2][p, a, c] == N and samples[p, a, c]]
            kinds = [(True, True), (False, True), (True, False), (False, False)]
            if cells:
                needed.append([fmean(each.count(kind) / len(each) for each in cells) for kind in kinds])
        wanted = [fmean(column) for column in zip(*needed, strict=True)] if needed else [math.nan] * 4
        assert close(conveyed[p], wanted)
    for parts_ in (result, conveyed):
        defined = parts_[~np.isnan(parts_[:, 0])]
        assert np.allclose(defined.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert (defined >= -1e-12).all()


# ---- from the record


def with_prompts(store: Store, world: JudgedWorld, seed: int = 3) -> dict[int, set[int]]:
    """Let random parts of each message's memory reach its prompt, of some all by a name and of some all without; what
    reached it, by response."""
    chance = np.random.default_rng(seed)
    prompts: dict[int, set[int]] = {}
    with store.write() as connection:
        of = dict(connection.execute(sa.select(response.c.id, response.c.profile)).all())
        for number, stored in world.held.items():
            kind = chance.random()
            prompts[number] = {a for a in stored if kind < 0.4 or chance.random() < 0.5}
            if kind < 0.2:
                continue
            named = datasets.keep_memories(connection, of[number], sorted(prompts[number], reverse=True))
            connection.execute(sa.update(response).where(response.c.id == number).values(shown=named))
    return prompts


def expected_outcomes(
    world: JudgedWorld, prompts: dict[int, set[int]], judges: list[int], need: int, grounded: bool
) -> np.ndarray:
    """[4, profile, attribute, context], message by message."""
    result = np.zeros((4, *world.labels.shape), int)
    for number, (p, c) in world.place.items():
        if any(judge not in world.claims[number] for judge in judges):
            continue
        for a, attribute in enumerate(world.attributes[p]):
            if attribute in world.held[number]:
                claims = [world.claims[number][judge].get(attribute) for judge in judges]
                said = sum(x is not None and x[0] == "full" and (x[1] or not grounded) for x in claims) >= need
                kind = {(True, True): 0, (False, True): 1, (True, False): 2, (False, False): 3}
                result[kind[attribute in prompts[number], said], p, a, c] += 1
    return result


@pytest.mark.parametrize(("way", "need"), [(None, 1), (Combine.ANY, 1), (Combine.MAJORITY, 2), (Combine.ALL, 3)])
def test_every_way_of_counting_is_what_a_loop_over_messages_counts(
    store: Store, way: Combine | None, need: int
) -> None:
    world = judged_world(store)
    prompts = with_prompts(store, world)
    flows = Flows(store)
    for grounded in (False, True):
        scope = resolve_scope(store, world.run_id, judge_id=way, grounded=grounded)
        judges = world.judges if way else world.judges[:1]
        expected = expected_outcomes(world, prompts, judges, need, grounded)
        (counts,) = recalled_blocks(flows, scope)
        assert outcome_counts(counts).tolist() == expected.tolist()
        assert need == 3 or (expected[1].sum() and expected[3].sum())  # some say what they were not shown
        numbers = recalled_numbers(flows, scope, 2)
        assert numbers is not None
        kept = retained(world.labels)[:, None, :]
        for label, name in ((X, "inappropriate"), (N, "necessary"), (AMBIGUOUS, "ambiguous")):
            mask = (world.labels == label) & kept
            of = numbers.by_label[name]
            assert [getattr(of, outcome) for outcome in OUTCOMES] == [int(part[mask].sum()) for part in expected]
        whole = headline(flows, scope)
        assert numbers.violation[2].said == pytest.approx(whole.violation[2], abs=1e-12)
        assert numbers.completeness.said == pytest.approx(whole.completeness, abs=1e-12)
        for split in (*numbers.violation.values(), numbers.completeness):
            assert sum(getattr(split, outcome) for outcome in OUTCOMES) == pytest.approx(1.0, abs=1e-12)


def test_intervals_hold_their_parts_and_those_of_the_whole_are_the_headlines(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store)
    with_prompts(sqlite_store, world)
    flows, scope = ask(sqlite_store, world.run_id)
    numbers = recalled_numbers(flows, scope, 2)
    assert numbers is not None
    for split in (numbers.violation[2], numbers.completeness):
        assert split.intervals is not None
        for outcome in OUTCOMES:
            interval = split.intervals[outcome]
            assert interval.value == pytest.approx(getattr(split, outcome), abs=1e-12)
            assert interval.low <= interval.value <= interval.high
    assert numbers.violation[1].intervals is None


def test_a_verdict_of_a_person_moves_the_outcome_of_the_message_that_it_is_on(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store)
    prompts = with_prompts(sqlite_store, world)
    judge = world.judges[0]
    number, wrong = next(
        (number, attribute)
        for number, claims in world.claims.items()
        for attribute, (strength, _) in claims.get(judge, {}).items()
        if strength == "full" and attribute in world.held[number] - prompts[number]
    )
    unaudited = resolve_scope(sqlite_store, world.run_id)
    (before,) = recalled_blocks(Flows(sqlite_store), unaudited)
    with sqlite_store.write() as connection:
        audits.add_all(connection, unaudited.run.dataset, "Ann", [NewVerdict(number, wrong, AuditVerdict.NONE)])
    scope = resolve_scope(sqlite_store, world.run_id, verdicts="people")
    (after,) = recalled_blocks(Flows(sqlite_store), scope)
    p, c = world.place[number]
    cell = p, world.attributes[p].index(wrong), c
    moved = outcome_counts(after) - outcome_counts(before)
    assert moved[(slice(None), *cell)].tolist() == [0, -1, 0, 1]
    assert np.abs(moved).sum() == 2


def test_where_nothing_chooses_all_that_is_stored_is_recalled_and_no_number_is_added(store: Store) -> None:
    """A run with the whole memory, and one whose memories leave attributes out."""
    world = judged_world(store)
    data = add_dataset(store, 1, 3, 3)
    add_labels(store, data.id, LABELS)
    for run_id in (world.run_id, add_run(store, data.id, 5, REVEALS)):
        flows, scope = ask(store, run_id)
        whole = flow_arrays(flows, scope)
        counts = count_recalled(store, scope, whole)
        assert counts.recalled.tolist() == whole.draws.tolist()
        assert counts.recalled_reveals.tolist() == whole.reveals.tolist()
        assert not recalls(flows, scope)
        assert recalled_numbers(flows, scope, 1) is None
        assert metrics(flows, scope).recalled is None
        leaks = violation_split(counts, 1)
        assert close(leaks[:, [1, 3]], np.where(np.isnan(leaks[:, [0]]), np.nan, 0.0))


def test_a_message_that_is_missing_is_in_no_outcome(sqlite_store: Store) -> None:
    data = add_dataset(sqlite_store, 1, 3, 3)
    add_labels(sqlite_store, data.id, LABELS)
    lost = {(0, 0, 0): ResponseStatus.FAILED, (0, 1, 1): JudgementStatus.UNPARSED, (0, 2, 4): ResponseStatus.EMPTY}
    run_id = add_run(sqlite_store, data.id, 5, np.minimum(REVEALS, 4), missing=lost)
    with sqlite_store.write() as connection:
        (profile,) = datasets.profile_ids(connection, data.id)
        nothing = datasets.keep_memories(connection, profile, [])
        connection.execute(sa.update(response).where(response.c.run == run_id).values(shown=nothing))
    flows, scope = ask(sqlite_store, run_id)
    (counts,) = recalled_blocks(flows, scope)
    outcomes = outcome_counts(counts)
    assert outcomes.sum(axis=0).tolist() == np.full((1, 3, 3), 4).tolist()
    assert not outcomes[0].any() and not outcomes[2].any()
    result = metrics(flows, scope).recalled
    assert result is not None
    assert result.splits.frame.set_index("measure").loc["completeness", "recalled_and_said"] == 0.0
    assert result.by_label.frame.set_index("label").loc["inappropriate", "exposure"] == 0.0


def test_a_prompt_that_the_workspace_lost_is_an_error_and_not_an_empty_one(sqlite_store: Store) -> None:
    world = judged_world(sqlite_store)
    with_prompts(sqlite_store, world)
    with sqlite_store.write() as connection:
        named = sa.select(response.c.shown).where(response.c.shown.is_not(None)).limit(1).scalar_subquery()
        connection.execute(sa.delete(memory).where(memory.c.hash == named))
    flows, scope = ask(sqlite_store, world.run_id)
    with pytest.raises(StoreError, match="not in the workspace"):
        list(recalled_blocks(flows, scope))


@pytest.mark.parametrize("large", [False, True], ids=["whole", "in blocks"])
def test_places_add_up_to_the_whole_and_cells_are_what_a_loop_counts(
    sqlite_store: Store, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = judged_world(sqlite_store)
    prompts = with_prompts(sqlite_store, world)
    if large:
        monkeypatch.setattr(parts, "LARGE_PAIRS", 1)
        monkeypatch.setattr(parts, "PROFILES_A_PART", 1)
    flows, scope = ask(sqlite_store, world.run_id)
    assert (len(flows.parts(scope)) > 1) == large
    numbers = recalled_numbers(flows, scope, 1)
    assert numbers is not None
    for by in (By.DOMAIN, By.CONTEXT, By.PROFILE, By.EVENT, By.SPHERE):
        frame = recalled_by(flows, scope, by)
        assert (frame["draws"] == frame[[*OUTCOMES]].sum(axis=1)).all()
        for label, rows in frame.groupby("label"):
            of = numbers.by_label[str(label)]
            assert [of.flows, *(getattr(of, name) for name in OUTCOMES)] == rows[["flows", *OUTCOMES]].sum().tolist()
    result = recalled_grid(flows, scope, By.PROFILE, By.CONTEXT, 1)
    outcomes = expected_outcomes(world, prompts, world.judges[:1], 1, False)
    draws, kept = outcomes.sum(axis=0), retained(world.labels)
    for p, c in np.ndindex(result.violation.shape):
        own = [a for a in range(5) if kept[p, c] and world.labels[p, a, c] == INAPPROPRIATE and draws[p, a, c]]
        exposed = [(outcomes[0] + outcomes[2])[p, a, c] / draws[p, a, c] for a in own]
        assert close(result.violation[p, c], fmean(exposed) if exposed else math.nan)
        needed = [a for a in range(5) if kept[p, c] and world.labels[p, a, c] == NECESSARY and draws[p, a, c]]
        share = sum((outcomes[0] + outcomes[2])[p, a, c] for a in needed) / max(sum(draws[p, a, c] for a in needed), 1)
        assert close(result.completeness[p, c], share if needed else math.nan)
    assert result.violation_pairs.tolist() == grid(flows, scope, By.PROFILE, By.CONTEXT, 1).violation_pairs.tolist()


# ---- where they are told


def test_the_command_the_api_and_the_report_tell_the_same_parts(sqlite_store: Store) -> None:
    """The worked example of docs/metrics.md, from the record on."""
    run_id = worked_example(sqlite_store)
    flows, scope = ask(sqlite_store, run_id)
    printed = CliRunner().invoke(cli, ["metrics", run_id, "--workspace", str(sqlite_store.workspace), "--json"])
    told = json.loads(printed.stdout)["recalled"]
    splits = {(row["measure"], row["n"]): [row[name] for name in OUTCOMES] for row in told["splits"]}
    assert splits["violation", 1] == pytest.approx([0.54, 0.06, 0.1, 0.3])
    assert splits["completeness", None] == pytest.approx([0.8, 0, 1 / 15, 2 / 15])
    assert told["by_label"][0] == {
        "label": "inappropriate", "flows": 5, "draws": 25, "recalled": 11, "exposure": 0.44, "recalled_and_said": 7,
        "said_not_recalled": 1, "recalled_not_said": 4, "not_recalled": 13,
    }  # fmt: skip
    assert {row["place"] for row in told["by_domain"]} == {"finance", "relationships", "employment"}
    lines = CliRunner().invoke(cli, ["metrics", run_id, "--workspace", str(sqlite_store.workspace)]).stdout
    (shown,) = (line for line in lines.splitlines() if line.startswith("Completeness") and "13.3 %" in line)
    assert re.findall(r"([0-9.]+ %)(?: \[|  |$)", shown) == ["80.0 %", "0.0 %", "6.7 %", "13.3 %"]
    with cimemories.open(sqlite_store.workspace) as workspace:
        run = workspace.runs[run_id]
        numbers = run.metrics(n=1).recalled
        assert numbers is not None and numbers.n == 1
        assert numbers.splits.frame["not_recalled"].iloc[0] == pytest.approx(0.3)
        frame = run.recalled("profile")
        assert frame.loc[frame["label"] == "inappropriate", "recalled"].tolist() == [11]
        with pytest.raises(StoreError, match="side of a heatmap"):
            run.recalled("nowhere")
    page = Page(as_html(collect(flows, [scope], now=datetime(2026, 1, 1, tzinfo=UTC))))
    rows = page.table("test-model: Stored, recalled, said")
    assert rows["Completeness"][0].startswith("80.0 % [") and rows["Completeness"][3].startswith("13.3 % [")
    plain = add_run(sqlite_store, scope.run.dataset, 5, REVEALS)
    report = collect(flows, [ask(sqlite_store, plain)[1]], now=datetime(2026, 1, 1, tzinfo=UTC))
    assert "recalled" not in {section.id for section in report.sections}


def worked_example(store: Store) -> str:
    """The run of the worked example, what reached each prompt as it is told there; returns its id."""
    data = add_dataset(store, 1, 3, 3)
    add_labels(store, data.id, LABELS)
    run_id = add_run(store, data.id, 5, REVEALS)
    # In how many samples each is recalled; what is revealed falls on the first ones.
    recalled = [[2, 0, 4], [0, 5, 4], [5, 4, 0]]
    (person,) = records(store, data.id)
    with store.write("admin") as connection:
        columns = response.c.id, response.c.context, response.c.sample
        for number, context, sample in connection.execute(sa.select(*columns).where(response.c.run == run_id)).all():
            at = person.context_ids.index(context)
            shown = [a for a, row in zip(person.attribute_ids, recalled, strict=True) if sample < row[at]]
            named = datasets.keep_memories(connection, person.id, shown)
            connection.execute(sa.update(response).where(response.c.id == number).values(shown=named))
        work.bump(connection, run_id)
    return run_id
