"""The Runs page: a run asked for in three steps, judged again, repeated and compared; hostile names stay text."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from assistants import service
from evaluating import add, add_labelled, simulated, small_profiles
from hostile import hostile_server
from paging import button, goes_on, nodes, opened, page_html
from streamlit.testing.v1 import AppTest
from worlds import add_dataset, add_labels, add_run, plan_run

from cimemories import launch
from cimemories.charts import comparison
from cimemories.compare import leaderboard
from cimemories.compare import sweeps as compare_sweeps
from cimemories.compare.sweeps import plan_sentence
from cimemories.evaluation import planning, runs, sweeps
from cimemories.evaluation.estimates import estimate
from cimemories.evaluation.prices import Prices
from cimemories.evaluation.sweeps import check_sweep
from cimemories.flows.flows import Flows
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.flows.progress import CHECK, GATE, JUDGE, MESSAGES, run_progress
from cimemories.labels.whatif import effective_labels
from cimemories.llm.endpoint import DEFAULT_KEY_ENV
from cimemories.llm.engines import LOCAL
from cimemories.llm.worker import WorkError
from cimemories.memory import systems
from cimemories.memory.systems import MemorySystemError, read_system
from cimemories.metrics import headline
from cimemories.model import Label, ResponseStatus, WorkKind, WorkStatus
from cimemories.store import datasets, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store
from cimemories.store.tables import response
from cimemories.store.tables import run as run_rows

RUNS = "pages/evaluate/runs.py"
HOSTILE = '![x](http://evil.example/p.png)<img src=x onerror="alert(1)"> :red[boo]'
PLACES, SAMPLES = 2, 2


@pytest.fixture
def store(app_store: Store) -> Store:
    return app_store


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be started in a process of its own is done before the page goes on."""

    def launched(store: Store, work_id: str, engine: str | None = None) -> None:
        assert engine in (None, LOCAL)
        do = sweeps.execute if work.kind_of(work_id) is WorkKind.SWEEP else runs.execute
        do(store, work_id)

    monkeypatch.setattr(launch, "launch", launched)


def rows(store: Store) -> list[store_runs.RunRow]:
    with store.read() as connection:
        return store_runs.all_rows(connection)


def step_two(app: AppTest) -> AppTest:
    app.segmented_control(key="run_new.where").set_value("simulator").run()
    button(app, "To the experiment").click().run()
    app.number_input(key="run_new.samples").set_value(SAMPLES).run()
    return app


def test_without_a_ready_server_the_form_asks_for_one_and_not_for_an_address(store: Store) -> None:
    add(store, small_profiles(1, PLACES))
    app = opened(RUNS, tab="new")
    app.segmented_control(key="run_new.where").set_value("managed").run()
    assert "Start a server first, or choose Endpoint." in page_html(app) and "base URL" not in page_html(app)
    assert not goes_on(app, "To the experiment") and "Start a server first" in page_html(app)


def test_a_run_with_a_gate_two_judges_and_a_random_memory_in_three_steps(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    app = step_two(opened(RUNS, tab="new"))
    app.selectbox(key="run_new.memory").set_value("random").run()
    app.number_input(key="run_new.k").set_value(5).run()
    app.selectbox(key="run_new.mitigation").set_value("gate").run()
    button(app, "Add a judge").click().run()
    button(app, "To the plan").click().run()
    assert not app.exception
    assert "random-5" in page_html(app)
    assert 'gate</td><td class="ci-unbroken">sim-average</td>' in page_html(app)
    button(app, "Back").click().run()
    kept = {name: app.selectbox(key=f"run_new.{name}").value for name in ("memory", "mitigation", "judge.1.kind")}
    assert kept == {"memory": "random", "mitigation": "gate", "judge.1.kind": "matcher"}
    assert app.number_input(key="run_new.k").value == 5
    button(app, "To the plan").click().run()
    button(app, "Start the run").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert (row.composition, row.manifest.mitigation.kind, row.samples) == ("random-5", "gate", SAMPLES)
    now = run_progress(store, row.id)
    expected = PLACES * SAMPLES
    assert [(s.kind, s.name, s.done, s.expected, s.missing) for s in now.stages] == [
        (GATE, "", expected, expected, 0),
        (MESSAGES, "", expected, expected, 0),
        (JUDGE, "sim-judge", expected, expected, 0),
        (JUDGE, "matcher", expected, expected, 0),
        (CHECK, "rules", expected, expected, 0),
    ]
    shown = app.query_params
    assert shown["run"] == [row.id] or shown["run"] == row.id
    assert f"finished: {expected} of {expected} messages written" in page_html(app)


def test_a_memory_system_with_its_options_as_fields(
    store: Store, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, small_profiles(1, PLACES))
    app = step_two(opened(RUNS, tab="new"))
    app.selectbox(key="run_new.memory").set_value("system").run()
    # What is not installed is not offered: the form says how to get it.
    with monkeypatch.context() as other:
        other.setattr(systems, "find_spec", lambda module: None if module in ("bm25s", "mem0") else find_spec(module))
        app.run()
        shown = page_html(app)
        offered = app.selectbox(key="run_new.system").options
        assert offered[0].startswith("embedding") and not any(text.startswith(("bm25", "mem0")) for text in offered)
        assert "bm25 needs bm25s, which is not installed" in shown and "mem0 needs mem0ai" in shown
        for text in ("system:bm25:k=5", "system:mem0"):
            with pytest.raises(MemorySystemError, match="which is not installed: `pip install "):
                read_system(text)
    app.run()
    assert "bm25 needs bm25s" not in page_html(app)
    app.selectbox(key="run_new.system").set_value("embedding").run()
    app.number_input(key="run_new.system.embedding.k").set_value(3).run()
    app.selectbox(key="run_new.system.embedding.order").set_value("score").run()
    app.text_input(key="run_new.system.embedding.base_url").set_value("http://localhost:1/v1").run()
    assert "give model=NAME too" in page_html(app) and not goes_on(app, "To the plan")
    app.text_input(key="run_new.system.embedding.base_url").set_value("").run()
    app.selectbox(key="run_new.mitigation").set_value("gate").run()
    assert "A gate and a memory system both choose" in page_html(app) and not goes_on(app, "To the plan")
    app.selectbox(key="run_new.mitigation").set_value("none").run()
    button(app, "To the plan").click().run()
    button(app, "Start the run").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert (row.composition, row.responses) == ("system:embedding:k=3,order=score", {"ok": PLACES * SAMPLES})


def test_the_models_that_a_server_lists_are_offered_and_the_one_chosen_is_tested(store: Store) -> None:
    add(store, small_profiles(1, PLACES))
    with hostile_server(models=("small", HOSTILE, "large")) as server:
        app = opened(RUNS, tab="new")
        app.text_input(key="run_new.base_url").set_value(server.url).run()
        assert "Enter the model&#x27;s name, or test the connection." in page_html(app)
        button(app, "Test the connection").click().run()
        assert "It serves 3 models." in page_html(app) and "Choose one of the server&#x27;s models." in page_html(app)
        assert not goes_on(app, "To the experiment")
        offered = app.selectbox(key="run_new.served")
        assert len(offered.options) == 3 and {"small", "large"} < set(offered.options)
        offered.set_value("large").run()
        button(app, "Test the connection").click().run()
    assert "The server answers." in page_html(app)
    button(app, "To the experiment").click().run()
    button(app, "To the plan").click().run()
    assert not app.exception and f"large at {server.url}" in page_html(app)


def test_an_assistant_is_named_by_its_address_and_writes_the_messages(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    with service() as assistant:
        app = opened(RUNS, tab="new")
        app.segmented_control(key="run_new.where").set_value("assistant").run()
        app.text_input(key="run_new.assistant").set_value("command:python agent.py").run()
        assert not goes_on(app, "To the experiment") and "Enter the address of the assistant" in page_html(app)
        app.text_input(key="run_new.assistant").set_value(assistant.url).run()
        button(app, "Test the connection").click().run()
        assert "✓ tested 1 answers." in page_html(app)
        button(app, "To the experiment").click().run()
        assert "Mitigation" not in [field.label for field in app.selectbox], "it asks its model itself"
        app.number_input(key="run_new.samples").set_value(SAMPLES).run()
        button(app, "To the plan").click().run()
        assert not app.exception and "matcher, matcher on tool calls, matcher on memory writes" in page_html(app)
        button(app, "Start the run").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert (row.model, row.responses) == ("tested", {"ok": PLACES * SAMPLES})
    assert [(s.name, s.done) for s in run_progress(store, row.id).stages if s.kind == JUDGE] == [
        ("matcher", PLACES * SAMPLES),
        ("matcher on tool calls", PLACES * SAMPLES),
        ("matcher on memory writes", PLACES * SAMPLES),
    ]


def test_a_memory_by_labels_is_refused_where_nothing_is_labelled(store: Store) -> None:
    add(store, small_profiles(1, PLACES))
    app = step_two(opened(RUNS, tab="new"))
    app.selectbox(key="run_new.memory").set_value("necessary").run()
    assert "needs labels, and the dataset has none" in page_html(app)
    assert not goes_on(app, "To the plan")
    app.selectbox(key="run_new.memory").set_value("full").run()
    assert goes_on(app, "To the plan")


def test_judged_again_only_judges_and_a_repetition_is_the_same(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    run_id = planning.plan(store, simulated(samples=SAMPLES))
    runs.execute(store, run_id)
    before = run_progress(store, run_id)
    app = opened(RUNS, "runs.box.judge", "runs.box.repeat", run=run_id)
    button(app, "Judge").click().run()
    assert not app.exception
    after = run_progress(store, run_id)
    assert [s.name for s in after.stages if s.kind == JUDGE] == ["sim-judge", "matcher"]
    assert [(s.used.kind, s.used.calls) for s in after.cost.stages] == [
        (s.used.kind, s.used.calls) for s in before.cost.stages
    ]
    assert any("cimemories run --dataset" in code.value for code in app.code)
    button(app, "Judge").click().run()
    assert "judges run-" in page_html(app), "the same judge twice is refused in words"
    button(app, "Repeat this run").click().run()
    assert not app.exception
    one, two = rows(store)
    assert one.manifest.prompt == two.manifest.prompt
    assert two.responses == one.responses == {"ok": PLACES * SAMPLES}
    count, in_record = PLACES * SAMPLES, "of them were recorded before"
    assert f"{count} of {count} messages come from the simulator" in page_html(app) and in_record in page_html(app)
    app = opened(RUNS, "runs.box.repeat", run=run_id)
    app.toggle(key=f"runs.repeat.fresh.{run_id}").set_value(True).run()
    button(app, "Repeat this run").click().run()
    assert not app.exception
    assert "Recorded answers of other runs were ignored" in page_html(app) and in_record not in page_html(app)


def test_pause_and_cancel_reach_the_worker(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    with store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
        work.claim(connection, run_id)
    app = opened(RUNS, run=run_id)
    assert "Resume" not in [item.label for item in app.button]
    button(app, "Pause").click().run()
    assert rows(store)[0].status == "pausing"
    button(app, "Cancel").click().run()
    assert rows(store)[0].status == "cancelling"
    with store.write() as connection:
        sweep_id = store_runs.add_sweep(connection, name="grid", dataset_id=data.id, spec={}, plan={}, cap=None)
        connection.execute(sa.update(run_rows).values(sweep=sweep_id, cell=0))
        work.claim(connection, sweep_id)
    app = opened(RUNS, tab="sweeps", sweep=sweep_id)
    for label, status in (("Pause", "pausing"), ("Cancel", "cancelling")):
        button(app, label).click().run()
        with store.read() as connection:
            assert store_runs.sweep_by_id(connection, sweep_id).status == status
    assert button(app, "Cancel").disabled and "Cancelling: dropping calls in flight." in page_html(app)


def test_what_slows_a_run_down_is_on_its_page(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=2)
    with store.write() as connection:
        run_id = plan_run(connection, data.id, 2)
        work.claim(connection, run_id)
        work.slow_down(connection, run_id, "the server limits requests: about 60 a minute")
    app = opened(RUNS, run=run_id)
    assert "The server limits requests: about 60 a minute." in page_html(app)
    assert 'class="ci-error' not in page_html(app), "it is no error"
    with store.write() as connection:
        work.finish(connection, run_id, WorkStatus.INTERRUPTED, "the disk is full")
        work.slow_down(connection, run_id, "the server limits requests: about 60 a minute")
    assert rows(store)[0].error == "the disk is full", "a late heartbeat takes no reason away"


def test_a_cap_that_is_reached_is_raised_on_the_page(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, 4))
    spec = simulated(samples=SAMPLES, judges=(planning.JudgeSpec(),), prices=Prices.read("2/0.5/8 EUR"))
    whole = estimate(store, spec).cost_least
    assert whole is not None
    run_id = planning.plan(store, spec.replace(cap=whole / 2))
    with pytest.raises(WorkError, match="Raise it to continue"):
        runs.execute(store, run_id, concurrency=1)
    app = opened(RUNS, run=run_id)
    assert "Resume" not in [item.label for item in app.button], "it would stop at once"
    assert "Raise the cap to" in app.number_input(key=f"runs.cap.{run_id}").label
    app.number_input(key=f"runs.cap.{run_id}").set_value(whole / 4).run()
    button(app, "Raise the cap and resume").click().run()
    assert "has paid" in page_html(app) and rows(store)[0].status == "interrupted", "too little is refused in words"
    app.number_input(key=f"runs.cap.{run_id}").set_value(whole * 4).run()
    button(app, "Raise the cap and resume").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert (row.status, row.responses) == ("finished", {"ok": 4 * SAMPLES})


def test_the_cap_of_a_sweep_is_raised_on_its_page_and_holds_for_its_runs(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, 4))
    entry = {"model": "sim-average", "base_url": "simulator", "prices": "2/0.5/8 EUR"}
    content = {
        "name": "capped",
        "dataset": "small",
        "samples": SAMPLES,
        "models": [entry],
        "memory": ["full", "random-5"],
    }
    whole = sweeps.estimate_sweep(store, check_sweep(content, Path("sweep.yaml"))).total.cost_least
    assert whole is not None
    capped = check_sweep({**content, "cap": whole / 2}, Path("sweep.yaml"))
    sweep_id = sweeps.plan(store, capped)
    with pytest.raises(WorkError, match="Raise it to continue"):
        sweeps.execute(store, sweep_id, concurrency=1)
    owing = next(row for row in rows(store) if row.responses.get("owed"))
    with pytest.raises(WorkError, match=f"resume {sweep_id} --cap"):
        runs.execute(store, owing.id)
    app = opened(RUNS, run=owing.id)
    assert "Its sweep has reached its cost cap" in page_html(app)
    app = opened(RUNS, tab="sweeps", sweep=sweep_id)
    app.number_input(key=f"runs.cap.{sweep_id}").set_value(whole * 10).run()
    button(app, "Raise the cap and resume").click().run()
    assert not app.exception
    with store.read() as connection:
        assert store_runs.sweep_by_id(connection, sweep_id).status == "finished"
    assert all(row.responses == {"ok": 4 * SAMPLES} for row in rows(store))


def test_an_imported_run_says_so_and_is_not_resumed(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    run_id = add_run(store, data.id, 2, {}, missing={(0, 0, 1): ResponseStatus.FAILED})
    assert "Retry failed calls" in [item.label for item in opened(RUNS, run=run_id).button]
    with store.write() as connection:
        connection.execute(sa.update(run_rows).values(endpoint="imported"))
    app = opened(RUNS, "runs.box.repeat", run=run_id)
    labels = [item.label for item in app.button]
    assert "was imported from a file" in page_html(app)
    assert not {"Resume", "Retry failed calls", "Repeat this run"} & set(labels)


def test_tags_and_a_note_are_set_on_the_page_and_runs_are_grouped_by_them(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    one, two = add_run(store, data.id, 2, {}), add_run(store, data.id, 3, {})
    assert "runs.tag" not in {item.key for item in opened(RUNS).selectbox}, "nothing to choose from"
    app = opened(RUNS, "runs.box.describe", run=one)
    app.multiselect[0].set_value(["two words"]).run()
    button(app, "Save").click().run()
    assert "Write two-words." in page_html(app) and rows(store)[0].tags == ()
    app.multiselect[0].set_value(["pilot"])
    app.text_area[0].set_value(f"Mind the budget. {HOSTILE}").run()
    button(app, "Save").click().run()
    assert (rows(store)[0].tags, rows(store)[1].tags) == (("pilot",), ())
    assert "#pilot" in page_html(app) and "Mind the budget." in page_html(app) and "<img" not in page_html(app)

    def groups(**query: str) -> list[tuple[str, list[str]]]:
        sent = [node.proto.json for node in opened(RUNS, **query).get("bidi_component")]
        (data,) = [json.loads(text) for text in sent if '"groups"' in text]
        return [(group.get("title", ""), [row["id"] for row in group["rows"]]) for group in data["groups"]]

    assert groups() == [("", [two]), ("", [one])]
    assert groups(tag="#pilot") == [("", [one])]
    assert groups(tag="by") == [("no tag", [two]), ("#pilot", [one])]


def test_a_note_that_was_changed_elsewhere_meanwhile_takes_no_typed_one_away(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    one = add_run(store, data.id, 2, {})
    app = opened(RUNS, "runs.box.describe", run=one)

    def saved_elsewhere(note: str) -> None:
        with store.write() as connection:
            store_runs.describe(connection, one, ["pilot"], note)

    saved_elsewhere("First.")
    app.run()
    assert app.text_area[0].value == "First.", "nothing was typed"
    app.text_area[0].set_value("Mine.").run()
    saved_elsewhere("Theirs.")
    button(app, "Save").click().run()
    assert "were changed in another window" in page_html(app) and "Theirs." in page_html(app)
    assert (rows(store)[0].note, app.text_area[0].value) == ("Theirs.", "Mine.")
    button(app, "Save mine instead").click().run()
    assert (rows(store)[0].note, rows(store)[0].tags) == ("Mine.", ("pilot",))
    assert "were changed in another window" not in page_html(app) and button(app, "Save")


def test_runs_side_by_side_say_in_what_they_differ(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[INAPPROPRIATE, NECESSARY, NECESSARY]] * 3])
    one = add_run(store, data.id, 2, {})
    two = add_run(store, data.id, 3, {})
    app = opened(RUNS, run=one, beside=two)
    assert "The runs differ in the number of samples: 2 (" in page_html(app)
    assert page_html(app).count("Violation@n") == 1
    assert "<th>n</th><td>2</td><td>3</td>" in page_html(app)
    alone = opened(RUNS, run=one)
    assert "The runs differ" not in page_html(alone)


def test_the_table_is_read_from_memory_the_second_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    ids = [add_run(store, data.id, 2, {}) for _ in range(3)]
    computed: list[str] = []
    real = headline.headline

    def counted(flows: object, scope: object) -> object:
        computed.append(scope.run.id)  # type: ignore[attr-defined]
        return real(flows, scope)  # type: ignore[arg-type]

    monkeypatch.setattr(leaderboard, "headline", counted)
    opened(RUNS)
    assert sorted(computed) == sorted(ids)
    opened(RUNS)
    assert len(computed) == len(ids)
    with store.write() as connection:
        work.bump(connection, ids[1])
    opened(RUNS)
    assert computed[len(ids) :] == [ids[1]], "what has moved is counted anew, and nothing else"


def test_hostile_names_and_causes_stay_text(store: Store) -> None:
    data = add_dataset(store, profiles=1, attributes=3, contexts=3, name=HOSTILE)
    run_id = add_run(store, data.id, 2, {}, judge=HOSTILE, missing={(0, 0, 1): ResponseStatus.FAILED})
    other = add_run(store, data.id, 2, {})
    with store.write() as connection:
        connection.execute(sa.update(run_rows).values(name=HOSTILE, model=HOSTILE, error=HOSTILE))
    folds = ("runs.box.judge", "runs.box.export", "runs.box.repeat", "runs.box.manifest")
    for app in (opened(RUNS, *folds, run=run_id, beside=other), opened(RUNS, tab="new"), opened(RUNS, tab="sweeps")):
        assert "<img" not in page_html(app)
        markdown = [e.proto.body for e in app.get("markdown")] + [e.value for e in app.caption]
        labels = [str(getattr(getattr(n, "proto", None), "label", "")) for n in nodes(app.main)]
        assert not [text for text in (*markdown, *labels) if "evil.example" in text and "\\" not in text]


def test_a_sweep_from_its_form_to_its_table(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    app = opened(RUNS, tab="sweeps")
    app.multiselect(key="run_sweep.models").set_value([("sim-average", "simulator", DEFAULT_KEY_ENV)]).run()
    app.multiselect(key="run_sweep.memories").set_value(["full", "random-5"]).run()
    app.number_input(key="run_sweep.samples").set_value(1).run()
    assert "2 runs on small" in page_html(app)
    button(app, "Estimate").click().run()
    assert "No run of this dataset is judged yet that could be a pilot" in page_html(app)
    button(app, "Start the sweep").click().run()
    assert not app.exception
    with store.read() as connection:
        (row,) = store_runs.all_sweeps(connection)
    assert (row.status, row.cells) == ("finished", 2)
    assert "sim-average: prompt by memory, Violation@1 and completeness" in page_html(app)
    table = compare_sweeps.sweep_table(store, row.id)
    assert [cell.coverage for cell in table.cells] == [1, 1]
    (matrix,) = table.matrices().values()
    assert {level: list(cells) for level, cells in matrix.items()} == {"base": ["full", "random-5"]}
    assert all(cell.bounds is not None for cell in table.cells)


def test_a_second_sweep_is_started_and_folds_its_form_away(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    for already in (0, 1):
        app = opened(RUNS, *["run_sweeps.box.new"] * already, tab="sweeps")
        app.multiselect(key="run_sweep.models").set_value([("sim-average", "simulator", DEFAULT_KEY_ENV)]).run()
        app.number_input(key="run_sweep.samples").set_value(1 + already).run()
        button(app, "Estimate").click().run()
        button(app, "Start the sweep").click().run()
        assert not app.exception
    with store.read() as connection:
        assert len(store_runs.all_sweeps(connection)) == 2
    assert "Start the sweep" not in [item.label for item in app.button]


@pytest.mark.parametrize("ks", [(9, 3), (3,)], ids=["two", "one"])
def test_a_sweep_of_a_memory_system_shows_what_is_lost_over_k(store: Store, ks: tuple[int, ...]) -> None:
    add_labelled(store, 1, 4)
    content = {
        "name": "over k", "dataset": "small", "samples": 1, "judges": ["matcher"], "check": "none",
        "models": [{"model": "sim-average", "base_url": "simulator"}],
        "memory": ["full", *(f"system:embedding:k={k}" for k in ks)],
    }  # fmt: skip
    sweep_id = sweeps.plan(store, check_sweep(content, Path("sweep.yaml")))
    waiting = compare_sweeps.over_k(Flows(store), compare_sweeps.sweep_table(store, sweep_id))
    assert waiting is not None and not waiting.figure.series
    sweeps.execute(store, sweep_id)
    over = compare_sweeps.over_k(Flows(store), compare_sweeps.sweep_table(store, sweep_id))
    assert over is not None
    app = opened(RUNS, tab="sweeps", sweep=sweep_id)
    assert not app.exception and "Over k" in page_html(app)
    if len(ks) == 1:
        assert "Nothing to draw over k yet" in page_html(app) and not over.figure.series
        return
    assert "Nothing to draw over k yet" not in page_html(app)
    frame = over.table().frame.set_index("at")
    assert list(frame.index) == ["k=3", "k=9", "full"]
    assert set(over.retrieval_loss) == set(frame["run"][:2])  # nothing chooses in the run with everything
    with store.read() as connection:
        labels = effective_labels(store, store_runs.by_id(connection, frame["run"].iloc[0]).dataset)
        assert labels is not None
        for at, run_id in frame["run"][:2].items():
            rows = connection.execute(sa.select(response).where(response.c.run == run_id)).mappings().all()
            held = datasets.memories_of(connection, {row["shown"] for row in rows})
            by_context: dict[int, list[bool]] = {}
            for (attribute, context), label in labels.labels.items():
                shown = next(held[row["shown"]] for row in rows if row["context"] == context)
                own = by_context.setdefault(context, [])
                own += [attribute not in shown] if label == Label.NECESSARY else []
            wrong = {c for (_, c), label in labels.labels.items() if label != Label.NECESSARY}
            # Retained contexts have both kinds; the simulator says nothing that was not in its prompt.
            shares = [sum(own) / len(own) for c, own in by_context.items() if own and c in wrong]
            assert frame["lost"][at] == pytest.approx(sum(shares) / len(shares))
    assert frame["lost"]["k=3"] >= frame["lost"]["k=9"] > 0
    drawn = comparison.over_k(over)
    assert drawn is not None and list(drawn.fig.data[-1].y) == [frame["lost"][at] for at in ("k=3", "k=9")]


def test_the_form_of_a_sweep_offers_the_judge_of_a_new_run_and_says_at_the_field_what_is_wrong(store: Store) -> None:
    add(store, small_profiles(1, PLACES))
    app = opened(RUNS, tab="sweeps")
    real = ("m", "http://localhost:1/v1", DEFAULT_KEY_ENV)
    app.session_state["run_sweep.draft"]["extra"] = [real]
    app.run()
    app.multiselect(key="run_sweep.models").set_value([real]).run()
    assert not app.exception
    kinds = [app.selectbox(key=f"run_sweep.judge.{i}.kind").value for i in (0, 1)]
    assert kinds == ["itself", "matcher"], "as in a new run"
    assert "judged by m, the matcher" in page_html(app)
    app.text_input(key="run_sweep.price.m.0").set_value("cheap").run()
    assert "These prices cannot be read." in page_html(app) and "This sweep cannot be planned" not in page_html(app)
    app.text_input(key="run_sweep.add.url").set_value("http://user:secret@host/v1?key=1").run()
    assert "This address cannot be used." in page_html(app) and "secret" not in page_html(app)
    app.multiselect(key="run_sweep.models").set_value([("sim-average", "simulator", DEFAULT_KEY_ENV)]).run()
    assert app.selectbox(key="run_sweep.judge.0.kind").value == "simulated"


def test_the_plan_says_what_it_can_show_by_a_pilot_that_is_chosen(store: Store) -> None:
    shape = (6, 8, 5)
    data, random = add_dataset(store, *shape), np.random.default_rng(2)
    app = step_two(opened(RUNS, tab="new"))
    button(app, "To the plan").click().run()
    assert "No run of this dataset is judged yet" in page_html(app) and "can show a difference" not in page_html(app)
    add_labels(store, data.id, np.where(random.random(shape) < 0.3, NECESSARY, INAPPROPRIATE))
    older, newer = (add_run(store, data.id, 3, random.binomial(3, chance, shape)) for chance in (0.3, 0.1))
    lost = {(p, c, s): ResponseStatus.FAILED for p in range(2, 6) for c in range(5) for s in range(3)}
    few = add_run(store, data.id, 3, random.binomial(3, 0.2, shape), missing=lost)
    app = step_two(opened(RUNS, tab="new"))
    button(app, "To the plan").click().run()
    assert not app.exception
    pilot = app.selectbox(key="run_new.pilot")
    assert pilot.value == newer, "the newest has too few judged profiles"
    by_newer = page_html(app)
    assert "With 6 profiles, 5 contexts and 2 samples this run can show a difference" in by_newer
    assert "points of Violation@2 in 80 % of cases (pilot: " in by_newer and "An estimate from a pilot" in by_newer
    assert "twice the profiles (the dataset has 6)" in by_newer and "twice the samples" in by_newer
    # Of a sweep the same is said, on the page and by the command.
    assert plan_sentence(store, simulated(dataset=data.name, samples=2)) in by_newer
    assert "assumed to correlate" in by_newer and "more contexts or samples than the pilot (6 profiles" in by_newer
    pilot.set_value(older).run()
    assert "this run can show a difference" in page_html(app) and page_html(app) != by_newer
    app.selectbox(key="run_new.pilot").set_value(few).run()
    assert f"{few} has 2" in page_html(app) and "this run can show" not in page_html(app)
    assert button(app, "Start the run"), "without a pilot a run can be started all the same"


def test_more_of_a_plan_costs_as_much_as_nothing_recorded_would(store: Store) -> None:
    add(store, small_profiles(1, PLACES))
    spec = simulated(samples=SAMPLES, judges=(planning.JudgeSpec(),), prices=Prices.read("2/0.5/8 EUR"))
    before = estimate(store, spec)
    assert before.cost_most and before.cost_once_more == pytest.approx(before.cost_most)
    runs.execute(store, planning.plan(store, spec))
    assert estimate(store, spec).cost_once_more is None, "all is recorded: how long a call is nobody asks"
    half = estimate(store, spec.replace(samples=2 * SAMPLES))
    assert half.cost_most and half.cost_once_more == pytest.approx(2 * half.cost_most, rel=0.05)
    assert estimate(store, spec.replace(prices=None, samples=2 * SAMPLES)).cost_once_more is None


def test_the_papers_own_settings_are_those_of_the_command_line(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    app = step_two(opened(RUNS, tab="new"))
    # What was chosen before and contradicts them neither gets into the run nor is lost.
    app.selectbox(key="run_new.mitigation").set_value("gate").run()
    app.number_input(key="run_new.judge.0.split").set_value(3).run()
    app.toggle(key="run_new.reference").set_value(True).run()
    assert "memories as plain lines" in page_html(app)
    fixed = {item.label: item.value for item in app.text_input if item.disabled}
    assert fixed["Mitigation"] == "none" and fixed["Token limit per message"] == "the server's"
    assert fixed["Attribute format"] == "statement" and fixed["Attributes per call"] == "all at once"
    button(app, "To the plan").click().run()
    assert not app.exception and "the paper&#x27;s own, biography of seeds" in page_html(app)
    button(app, "Start the run").click().run()
    assert not app.exception
    (row,) = rows(store)
    judge = simulated().judge.replace(timeout=None)
    planned = planning.as_reference(simulated(samples=SAMPLES, judges=(judge,), seed=None))
    own = planning.plan(store, planned)
    by_command = next(run for run in rows(store) if run.id == own)
    for part in ("reference", "memory", "mitigation", "prompt", "parameters"):
        assert row.manifest.recorded[part] == by_command.manifest.recorded[part], part
    asked, other = (run.manifest.judge.recorded for run in (row, by_command))
    assert asked["reference"] == other["reference"] and asked["max_tokens"] is asked["split"] is None
    assert "reference settings" in page_html(app)
    app = opened(RUNS, tab="new")
    assert not app.exception


def test_a_sweep_by_the_papers_own_settings(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    app = opened(RUNS, tab="sweeps")
    app.multiselect(key="run_sweep.models").set_value([("sim-average", "simulator", DEFAULT_KEY_ENV)]).run()
    app.multiselect(key="run_sweep.mitigations").set_value(["none", "gate"]).run()
    app.number_input(key="run_sweep.samples").set_value(1).run()
    app.toggle(key="run_sweep.reference").set_value(True).run()
    assert "no token limit" in page_html(app) and not [w for w in app.multiselect if w.label == "Mitigations"]
    button(app, "Estimate").click().run()
    button(app, "Start the sweep").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert row.manifest.reference is not None and row.manifest.mitigation.kind == "none"
    assert row.manifest.request is not None and row.manifest.request.recorded["max_tokens"] is None


def test_a_run_with_sessions_from_the_form(store: Store, at_once: None) -> None:
    add(store, small_profiles(1, PLACES))
    app = step_two(opened(RUNS, tab="new"))
    app.selectbox(key="run_new.sessions").set_value("last").run()
    app.number_input(key="run_new.sessions_last").set_value(2).run()
    app.selectbox(key="run_new.session_order").set_value("shuffled").run()
    app.number_input(key="run_new.session_seed").set_value(7).run()
    button(app, "To the plan").click().run()
    assert "the last 2 earlier messages in memory, contexts shuffled by seed 7" in page_html(app)
    button(app, "Start the run").click().run()
    assert not app.exception
    (row,) = rows(store)
    assert row.manifest.sessions is not None
    own = row.manifest.sessions.recorded
    assert (own["kept"], own["order"], own["seed"]) == ("last-2", "shuffled", 7)
    assert "memory full, sessions last-2" in page_html(app)
    # The paper's own settings have none; what was chosen stays for when they are off again.
    app = step_two(opened(RUNS, tab="new"))
    app.selectbox(key="run_new.sessions").set_value("all").run()
    assert "Order of the tasks" in [item.label for item in app.selectbox]
    app.toggle(key="run_new.reference").set_value(True).run()
    assert not {"Sessions", "Order of the tasks"} & {item.label for item in app.selectbox}
    button(app, "To the plan").click().run()
    assert not app.exception and "earlier messages in memory" not in page_html(app)
