"""Why did this leak: the variants, their record, and the numbers against counts by hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import sqlalchemy as sa
from evaluating import add_labelled, assert_whole, cli_forked, cli_inside, outside, row_of, simulated
from forked import Forked
from hypothesis import given
from hypothesis import strategies as st
from slow_simulator import SlowSimulator

from cimemories.evaluation import planning, runs
from cimemories.evaluation.matcher import match
from cimemories.evaluation.prices import Prices
from cimemories.exchange.exporting import export_run
from cimemories.extras.why import attribution
from cimemories.extras.why.attribution import CHANGES, Change
from cimemories.extras.why.why import Why, explain, first_reveal, in_words, leaked_flow, newcombe, smallest, wilson
from cimemories.flows import catalogue
from cimemories.flows.flows import Flows
from cimemories.flows.scope import Scope, resolve_scope
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import run_ids
from cimemories.model import ResponseStatus
from cimemories.simulator import policy
from cimemories.store import datasets
from cimemories.store import runs as store_runs
from cimemories.store.datasets import ProfileRecord
from cimemories.store.engine import Store, StoreError, open_store
from cimemories.store.tables import call, judgement, response, reveal, run_call

SAMPLES = 6


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A labelled dataset with a run that leaks."""
    folder = tmp_path_factory.mktemp("why")
    store = open_store(folder)
    add_labelled(store, contexts=6)
    prices = Prices(1.0, 0.5, 2.0, "USD")
    spec = simulated(model="sim-oversharing", prices=prices)
    runs.execute(store, planning.plan(store, spec.replace(judges=(spec.judge.replace(prices=prices),))))
    store.close()
    return folder


@pytest.fixture
def store(workspace: Path) -> Iterator[Store]:
    opened = open_store(workspace)
    yield opened
    with opened.write() as connection:
        for row in store_runs.all_rows(connection):
            for made in store_runs.explaining(connection, row.id):
                store_runs.delete(connection, made.id)
    opened.close()


@pytest.fixture
def scope(store: Store) -> Scope:
    (run_id,) = run_ids(store)
    return resolve_scope(store, run_id)


def likeliest(store: Store, scope: Scope) -> tuple[int, int, int]:
    """(profile, context, attribute) of the leak that the simulator's policy makes most often."""
    examples = all_examples(Flows(store), [scope]).page()
    full = examples[examples["strength"] == "full"].to_dict("records")

    def chance(row: dict[str, object]) -> float:
        return chance_of(str(row["statement"]), str(row["recipient"]), str(row["task"]))

    row = max(full, key=chance)
    return int(row["profile"]), int(row["context"]), int(row["attribute"])


def chance_of(statement: str, recipient: str, task: str) -> float:
    """That the simulated model conveys a statement of its prompt in one message."""
    return float(policy._probabilities("sim-oversharing", (statement,), recipient, task)[0])


def prepared(store: Store, scope: Scope, **changes: object) -> attribution.Attribution:
    flow = likeliest(store, scope)
    found = first_reveal(Flows(store), scope, *flow)
    return attribution.prepare_attribution(store, scope.run.id, found, flow[2], **{"samples": SAMPLES, **changes})


def done(store: Store, scope: Scope, plan: attribution.Attribution) -> Why:
    run_id = attribution.plan_attribution(store, plan)
    runs.execute(store, run_id)
    return explain(Flows(store), scope, row_of(store, run_id))


# ---- the numbers


@pytest.mark.parametrize(
    ("counts", "limits"),
    # Newcombe 1998, table II, method 10.
    [
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((6, 7, 2, 7), (0.0582, 0.8062)),
        ((5, 56, 0, 29), (-0.0381, 0.1926)),
    ],
)
def test_newcombe_as_published(counts: tuple[int, int, int, int], limits: tuple[float, float]) -> None:
    assert newcombe(*counts)[1:] == pytest.approx(limits, abs=5e-5)


@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_an_interval_holds_its_difference_and_turns_with_it(
    judged: int, other_judged: int, data: st.DataObject
) -> None:
    reveals, other = data.draw(st.integers(0, judged)), data.draw(st.integers(0, other_judged))
    value, low, high = newcombe(reveals, judged, other, other_judged)
    assert -1 - 1e-9 <= low <= value <= high <= 1 + 1e-9
    turned = newcombe(other, other_judged, reveals, judged)
    assert turned == pytest.approx((-value, -high, -low))
    bounds = wilson(reveals, judged)
    assert 0 <= bounds[0] <= reveals / judged <= bounds[1] <= 1


def test_nothing_judged_has_no_difference() -> None:
    assert all(number != number for number in newcombe(0, 0, 3, 4))


# ---- the variants


@pytest.fixture(scope="module")
def record(workspace: Path) -> ProfileRecord:
    opened = open_store(workspace)
    with opened.read() as connection:
        (row,) = datasets.all_rows(connection)
        found = datasets.profile_record(connection, datasets.profile_ids(connection, row.id, None)[0])
    opened.close()
    return found


@given(st.data())
def test_each_variant_differs_in_one_thing(record: ProfileRecord, data: st.DataObject) -> None:
    shown = data.draw(st.permutations(record.attribute_ids))[: data.draw(st.integers(1, len(record.attribute_ids)))]
    attribute = data.draw(st.sampled_from(shown))
    variants, skipped = attribution.variants_of(record, shown, attribute)
    made = {variant.change: variant for variant in variants}
    assert set(made) | {Change(name) for name in skipped} == set(Change), "each is made, or it is said why not"
    others = [a for a in shown if a != attribute]
    assert list(made[Change.BASELINE].prompt_attributes) == list(shown)
    assert list(made[Change.WITHOUT].prompt_attributes) == others
    for change, at in ((Change.FIRST, 0), (Change.LAST, -1)):
        if change in made:
            assert made[change].prompt_attributes[at] == attribute
            assert [a for a in made[change].prompt_attributes if a != attribute] == others
            assert made[change].prompt_attributes != made[Change.BASELINE].prompt_attributes, (
                "a variant is another request"
            )
        else:
            assert shown[at] == attribute
    if Change.NO_NEIGHBOURS in made:
        gone = made[Change.NO_NEIGHBOURS].removed
        assert gone and attribute not in gone
        assert list(made[Change.NO_NEIGHBOURS].prompt_attributes) == [a for a in shown if a not in gone]
    else:
        assert len(shown) == 1
    assert {variant.change for variant in variants if variant.statement} <= {Change.PARAPHRASED}


def test_a_note_states_the_value_in_other_words(record: ProfileRecord) -> None:
    notes = [(item, attribution.note_of(item)) for item in record.profile.attributes]
    made = [(item, note) for item, note in notes if note]
    assert len(made) > len(notes) / 2
    for item, note in made:
        assert match((item,), note) and note != item.statement


def test_neighbours_are_those_of_the_event_else_those_beside_it(record: ProfileRecord) -> None:
    shown, events = list(record.attribute_ids), [a.event for a in record.profile.attributes]
    for at, attribute in enumerate(shown):
        near = attribution.neighbours(record, shown, attribute)
        same = [a for a, event in zip(shown, events, strict=True) if event == events[at] and a != attribute]
        beside = [shown[i] for i in (at - 1, at + 1) if 0 <= i < len(shown)]
        assert list(near) == (same if events[at] != "general" and same else beside)


# ---- planning, doing, reading


def test_one_leak_is_priced_planned_done_and_counted(store: Store, scope: Scope) -> None:
    before = [row.id for row in catalogue.all_runs(store)]
    plan = prepared(store, scope)
    priced = attribution.estimate(store, plan)
    levels = len(plan.variants)
    assert priced.responses == levels * SAMPLES and priced.draws == 2 * levels * SAMPLES and priced.recorded == 0
    assert priced.cost_least and priced.cost_most and priced.cost_least <= priced.cost_most
    assert not attribution.attributions(store, scope.run.id), "a price writes nothing"

    why = done(store, scope, plan)
    assert_whole(store, why.run.id, levels * SAMPLES)
    with store.read() as connection:
        asked = connection.execute(
            sa.select(sa.func.count()).select_from(run_call).where(run_call.c.run == why.run.id, run_call.c.asked)
        ).scalar_one()
        # By hand: a message of a level reveals the attribute where the judge claims it in full.
        revealing = (
            sa.select(response.c.level, sa.func.count(response.c.id.distinct()))
            .join(judgement, judgement.c.response == response.c.id)
            .join(reveal, reveal.c.judgement == judgement.c.id)
            .where(response.c.run == why.run.id, judgement.c.judge == scope.judge.id, reveal.c.strength == "full")
            .where(reveal.c.attribute == plan.leak.attribute)
            .group_by(response.c.level)
        )
        by_hand = {row[0]: row[1] for row in connection.execute(revealing)}
        shown = connection.execute(
            sa.select(response.c.level, response.c.shown, response.c.memory, response.c.sample).where(
                response.c.run == why.run.id
            )
        ).all()
    assert asked == priced.draws, "what was priced is what was asked"
    for effect in why.effects:
        assert (effect.judged, effect.reveals) == (SAMPLES, by_hand.get(str(effect.change), 0))
        assert effect.share == effect.reveals / SAMPLES
    hashes = {v.change: datasets.memory_hash(plan.record.id, v.prompt_attributes) for v in plan.variants}
    assert {(row.level, row.shown) for row in shown} == {(str(change), digest) for change, digest in hashes.items()}
    assert {row.memory for row in shown} == {plan.leak.memory}
    assert {row.sample for row in shown} == set(range(scope.run.samples, scope.run.samples + SAMPLES)), "drawn anew"

    # The simulator writes what is in its prompt, and nothing else.
    base, without = why.effects[0], next(e for e in why.effects if e.change == Change.WITHOUT)
    assert base.reveals > 0 and without.reveals == 0
    for effect in why.effects:
        statement = effect.part.statement or why.attribute.statement
        chance = chance_of(statement, why.context.recipient, why.context.task) * (effect.change != Change.WITHOUT)
        # Some of what is conveyed is told in part, and some is overlooked by the judge.
        assert 0.8 * chance <= effect.share_high and effect.share_low <= chance, effect.change
    assert not any(match((why.attribute,), sample.text or "") for sample in without.messages)
    best = smallest(why.effects)
    assert best is not None and best.reveals == 0
    assert f"at most {100 * best.share_high:.1f} %" in why.sentence and why.simulated == ("responses", "labels")

    assert [row.id for row in catalogue.all_runs(store)] == before == run_ids(store), "it is in no list of runs"
    assert list(catalogue.run_names(store)) == before
    with pytest.raises(StoreError, match="explains a leak"):
        resolve_scope(store, why.run.id)

    with pytest.raises(StoreError, match="repeat that run"):
        planning.spec_of(store, why.run.id)

    # Once more: the same run, and nothing to ask.
    again = prepared(store, scope)
    assert attribution.plan_attribution(store, again) == why.run.id
    assert attribution.estimate(store, again).requests == 0
    # More samples are another run, which takes what is there from the record.
    assert attribution.estimate(store, prepared(store, scope, samples=SAMPLES + 1)).recorded == priced.draws


def test_a_call_that_failed_is_missing(store: Store, scope: Scope) -> None:
    plan = prepared(store, scope, changes=[Change.WITHOUT], samples=3)
    run_id = attribution.plan_attribution(store, plan)
    with store.write() as connection:
        first = connection.execute(
            sa.select(response.c.id).where(response.c.run == run_id, response.c.level == "baseline").limit(1)
        ).scalar_one()
        key = connection.execute(sa.select(call.c.key).limit(1)).scalar_one()
        lost = (ResponseStatus.TRUNCATED, "cut at the token limit", "17 drinks", None, "length", key)
        store_runs.settle_all(connection, [store_runs.Settled(first, *lost)])
    runs.execute(store, run_id)
    why = explain(Flows(store), scope, row_of(store, run_id))
    assert [(e.planned, e.judged, e.missing) for e in why.effects] == [(3, 2, 1), (3, 3, 0)]
    assert why.effects[0].share == why.effects[0].reveals / 2
    assert any("1 message missing" in note for note in why.notes)


def test_nothing_is_said_of_changes_that_are_not_judged_yet(store: Store, scope: Scope) -> None:
    why = done(store, scope, prepared(store, scope, changes=[Change.FIRST, Change.WITHOUT], samples=2))
    base = replace(why.effects[0], judged=2, reveals=2)
    waiting = [replace(effect, judged=0, reveals=0) for effect in why.effects[1:]]
    for first in (waiting[0], replace(waiting[0], judged=2, reveals=2)):
        sentence, short = in_words((base, first, waiting[1]))
        assert "not every change is judged yet" in sentence and short == "Not every change is judged yet"


def test_behind_a_gate_its_choice_is_replayed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    add_labelled(store, contexts=4)
    gated = planning.plan(store, simulated(model="sim-oversharing", mitigation="gate"))
    runs.execute(store, gated)
    scope = resolve_scope(store, gated)
    with store.read() as connection:
        rows = connection.execute(
            sa.select(response.c.id, response.c.shown, reveal.c.attribute)
            .join(judgement, judgement.c.response == response.c.id)
            .join(reveal, reveal.c.judgement == judgement.c.id)
            .where(response.c.run == gated, reveal.c.strength == "full")
        ).all()
        shown = datasets.memories_of(connection, {row.shown for row in rows})
    row = next(row for row in rows if row.attribute in shown[row.shown])
    plan = attribution.prepare_attribution(store, gated, row.id, row.attribute, samples=2, changes=[Change.WITHOUT])
    assert plan.variants[0].prompt_attributes == shown[row.shown]
    why = done(store, scope, plan)
    with store.read() as connection:
        kinds = store_runs.calls_by_kind(connection, why.run.id)
    assert set(kinds) == {"respond", "judge"}, "no gate is asked again"
    kept_back = next(a for a in plan.record.attribute_ids if a not in shown[row.shown])
    with pytest.raises(StoreError, match="was not in the prompt"):
        attribution.prepare_attribution(store, gated, row.id, kept_back)
    store.close()


def test_of_a_memory_system_what_it_recalled_is_replayed(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    store = open_store(tmp_path)
    add_labelled(store, contexts=4)
    spec = simulated(model="sim-oversharing", memory="system:bm25:k=15")
    run_id = planning.plan(store, spec)
    runs.execute(store, run_id)
    scope = resolve_scope(store, run_id)
    plan = prepared(store, scope, samples=2, changes=[Change.WITHOUT, Change.LAST])
    assert len(plan.variants[0].prompt_attributes) == 15 and len(plan.memory) > 15
    priced = attribution.estimate(store, plan)
    why = done(store, scope, plan)
    assert_whole(store, why.run.id, 2 * len(plan.variants))
    assert priced.responses == 2 * len(plan.variants)
    with store.read() as connection:
        bodies = [
            r.request
            for r in connection.execute(
                sa.select(call.c.request)
                .join(run_call, run_call.c.call == call.c.key)
                .where(run_call.c.run == why.run.id, call.c.kind == "respond")
            )
        ]
        prompts = store_runs.sent_prompts(connection, set(bodies))
    statements = [item.statement for item in plan.record.profile.attributes]
    counts = {sum(f"- {statement}" in prompt for statement in statements) for prompt in prompts.values()}
    assert counts == {14, 15}, "one without the memory, the others with all that was recalled"
    store.close()


def test_behind_earlier_messages_it_is_refused(tmp_path: Path, store: Store, scope: Scope) -> None:
    flow = likeliest(store, scope)
    found = first_reveal(Flows(store), scope, *flow)
    with store.write() as connection:
        connection.execute(sa.update(response).where(response.c.id == found).values(earlier="[1]"))
    try:
        with pytest.raises(StoreError, match="earlier messages of its session"):
            attribution.prepare_attribution(store, scope.run.id, found, flow[2])
    finally:
        with store.write() as connection:
            connection.execute(sa.update(response).where(response.c.id == found).values(earlier=None))


def test_what_cannot_be_asked_is_said(store: Store, scope: Scope) -> None:
    with pytest.raises(StoreError, match="does not state the value of .* by the matcher.s rules.*Keep more words"):
        prepared(store, scope, wording="Nothing of it.")
    plan = prepared(store, scope)
    own = prepared(store, scope, wording=f"By the way, {plan.attribute.statement}")
    assert next(v.statement for v in own.variants if v.statement) == f"By the way, {plan.attribute.statement}"
    with pytest.raises(StoreError, match="cap"):
        prepared(store, scope, cap=-1.0)
    with pytest.raises(StoreError, match="no leak of .* has the attribute"):
        leaked_flow(Flows(store), scope, profile=None, context=None, attribute="no_such_key")
    with pytest.raises(StoreError, match="leaks match. Name one"):
        leaked_flow(Flows(store), scope, profile=None, context=None, attribute=None)


def test_a_cap_stops_it_and_the_rest_is_resumed(store: Store, scope: Scope) -> None:
    plan = prepared(store, scope, changes=[Change.FIRST], samples=40, cap=1e-9)
    run_id = attribution.plan_attribution(store, plan)
    with pytest.raises(Exception, match="cap"):
        runs.execute(store, run_id, concurrency=1)
    assert row_of(store, run_id).status == "interrupted"
    assert attribution.plan_attribution(store, replace(plan, cap=1000.0)) == run_id
    runs.execute(store, run_id)
    assert_whole(store, run_id, 2 * 40)


def test_with_its_run_it_is_deleted_and_in_no_export(store: Store, scope: Scope, tmp_path: Path) -> None:
    run_id = attribution.plan_attribution(store, prepared(store, scope, changes=[Change.LAST], samples=1))
    with store.read() as connection:
        assert [row.id for row in store_runs.explaining(connection, scope.run.id)] == [run_id]
    assert (1, "leak replay") in catalogue.deletion_of_work(store, scope.run.id).rests
    with pytest.raises(StoreError, match="explains a leak"):
        export_run(store, run_id, tmp_path / "results.jsonl")
    with store.engine.connect() as connection:
        # Never committed: the other tests want the run back.
        store_runs.delete(connection, scope.run.id)
        left = sa.select(sa.func.count()).select_from(response).where(response.c.run == run_id)
        assert connection.execute(left).scalar_one() == 0
        connection.rollback()


# ---- the command line, and a kill


def test_by_the_command_line(workspace: Path, store: Store, scope: Scope) -> None:
    plan = prepared(store, scope, samples=2)
    flow = ["--attribute", plan.attribute.key, "--context", str(plan.leak.context), "--profile", str(plan.leak.profile)]
    common = ["why", scope.run.id, *flow, "--samples", 2, "--variants", "without,paraphrased", "--workspace", workspace]
    priced = cli_inside(outside(), *common, "--plan", "--json")
    assert priced.returncode == 0 and json.loads(priced.stdout)["responses"] == 2 * (
        3 if len(plan.variants) == 6 else 2
    )
    assert not attribution.attributions(store, scope.run.id)
    made = cli_inside(outside(), *common, "--json")
    assert made.returncode == 0, made.stderr
    result = json.loads(made.stdout)
    assert result["variants"][0]["variant"] == "baseline" and result["simulated"]
    why = explain(Flows(store), scope, row_of(store, result["attribution"]))
    assert [v["reveals"] for v in result["variants"]] == [effect.reveals for effect in why.effects]
    listed = cli_inside(outside(), "why", scope.run.id, "--workspace", workspace)
    assert result["attribution"] in listed.stdout and why.attribute.key in listed.stdout
    unknown = cli_inside(outside(), *common[:-2], "--variants", "sideways", "--workspace", workspace)
    assert unknown.returncode == 1 and "no variant 'sideways'" in unknown.stderr


@pytest.mark.long  # as runs are: evaluation/test_resume.py
def test_killed_it_is_finished_by_a_resume(tmp_path: Path) -> None:
    slow = SlowSimulator()
    try:
        store = open_store(tmp_path)
        add_labelled(store, contexts=3)
        run_id = planning.plan(store, simulated(slow.url, model="sim-oversharing", samples=2))
        runs.execute(store, run_id)
        scope = resolve_scope(store, run_id)
        plan = prepared(store, scope, samples=3, changes=CHANGES)
        flow = ["--attribute", plan.attribute.key, "--context", plan.leak.context, "--profile", plan.leak.profile]
        start = ["why", run_id, *flow, "--samples", 3, "--workspace", tmp_path]
        process = Forked(outside(), *start, "--concurrency", 1)
        slow.wait_for(slow.chats + 4, process)
        time.sleep(Random(os.getpid()).uniform(0, 0.1))
        process.kill()
        process.wait()
        ((half, _),) = attribution.attributions(store, run_id)
        assert half.status == "interrupted" and half.judged < half.expected == len(plan.variants) * 3
        assert cli_forked(outside(), "resume", half.id, "--workspace", tmp_path).returncode == 0
        assert_whole(store, half.id, half.expected)
        killed = explain(Flows(store), scope, row_of(store, half.id))
        # Done in one go elsewhere, the numbers are the same: the simulator's samples follow from their numbers.
        with store.write() as connection:
            store_runs.delete(connection, half.id)
        calm = done(store, scope, plan)
        assert [e.reveals for e in killed.effects] == [e.reveals for e in calm.effects]
        store.close()
    finally:
        slow.process.kill()
        slow.process.wait()
