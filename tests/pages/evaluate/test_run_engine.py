"""The choice between this machine and a Ray cluster: offered where it can work, passed on to the worker, and shown."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from evaluating import add, simulated, small_profiles
from hypothesis import given
from hypothesis import strategies as st
from paging import button, goes_on, labels, opened, page_html
from streamlit.testing.v1 import AppTest

from cimemories import launch
from cimemories.evaluation import planning, runs
from cimemories.extras.ray import engine as ray_engine
from cimemories.extras.ray.engine import Ray
from cimemories.llm import engines, worker
from cimemories.llm.engines import LOCAL, EngineError
from cimemories.llm.worker import WorkError
from cimemories.store import generations as store_generations
from cimemories.store import labellings as store_labellings
from cimemories.store import runs as store_runs
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, shared_store
from cimemories.ui import login

RUNS = "pages/evaluate/runs.py"
CLUSTER = "ray:address=10.0.0.5:6379,workers=2:6"


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty record on PostgreSQL that is the app's own, where Ray seems installed."""
    records, maintenance = request.getfixturevalue("empty_records"), request.getfixturevalue("maintenance")
    name = records.take()
    url = maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    monkeypatch.setenv(DATABASE_URL, url)
    monkeypatch.setenv(WORKSPACE, str(tmp_path / "workspace"))
    monkeypatch.setattr(ray_engine, "find_spec", lambda _name: object())
    store = shared_store()
    add(store, small_profiles(1, 2))
    yield store
    store.close()
    records.give_back(name)


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The workers' commands, none of which is run."""
    started: list[list[str]] = []
    fake = SimpleNamespace(**vars(subprocess) | {"Popen": lambda command, **_: started.append(command)})
    monkeypatch.setattr(launch, "subprocess", fake)
    return started


def last(store: Store, work_id: str) -> str | None:
    with store.read() as connection:
        return engines.last(connection, work_id)


def plan_page() -> object:
    app = opened(RUNS, tab="new")
    app.segmented_control(key="run_new.where").set_value("simulator").run()
    button(app, "To the experiment").click().run()
    button(app, "To the plan").click().run()
    return app


def test_without_a_shared_database_the_form_says_what_to_set(
    app_store: Store, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "find_spec", lambda _name: None)
    add(app_store, small_profiles(1, 2))
    app = plan_page()
    assert "set CIMEMORIES_DATABASE_URL to a PostgreSQL database; pip install" in page_html(app)
    assert "Engine" not in labels(app)
    button(app, "Start the run").click().run()
    assert not app.exception
    assert commands[0][-2:] == ["--engine", "local"]


def test_every_form_offers_a_vllm_for_its_work(
    app_store: Store, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run, a sweep, a labelling and profiles; nothing is asked, and flags that name files are refused on the page."""
    add(app_store, small_profiles(1, 2))
    monkeypatch.setenv("CIMEMORIES_VLLM", "/nowhere")
    address = "local-vllm:maker/m --max-model-len 32768"

    def fill(app: AppTest, form: str, flags: str) -> None:
        app.text_input(key=f"{form}.own.model").set_value("maker/m")
        app.text_input(key=f"{form}.own.flags").set_value(flags).run()
        assert not app.exception

    app = opened(RUNS, tab="new")
    app.segmented_control(key="run_new.where").set_value("served").run()
    assert "CIMEMORIES_VLLM names /nowhere" in page_html(app)
    fill(app, "run_new", "--chat-template /etc/passwd")
    assert "only from the command line" in page_html(app) and not goes_on(app, "To the experiment")
    fill(app, "run_new", "--max-model-len 32768")
    assert "Test the connection" not in labels(app)
    button(app, "To the experiment").click().run()
    button(app, "To the plan").click().run()
    button(app, "Start the run").click().run()
    app = opened(RUNS, tab="sweeps")
    fill(app, "run_sweep", "--max-model-len 32768")
    app.button(key="run_sweep.serve").click().run()
    button(app, "Estimate").click().run()
    button(app, "Start the sweep").click().run()
    app = opened("pages/curate/labels.py")
    app.segmented_control(key="start.how").set_value("A model served for it").run()
    fill(app, "start", "--max-model-len 32768")
    button(app, "Start").click().run()
    app = opened("pages/curate/profiles.py", view="new")
    app.segmented_control(key="new.how").set_value("A model served for it").run()
    app.text_input(key="new.name").set_value("mine")
    fill(app, "new", "--max-model-len 32768")
    button(app, "Start writing").click().run()
    assert not app.exception and len(commands) == 4
    with app_store.read() as connection:
        made = [
            *store_runs.all_rows(connection),
            *store_labellings.all_rows(connection),
            *store_generations.all_rows(connection),
        ]
    assert [(row.model, row.endpoint) for row in made] == [("maker/m", address)] * 4


@pytest.mark.postgres
def test_a_cluster_that_is_chosen_gets_the_run_and_the_page_says_so(
    shared: Store, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = plan_page()
    app.selectbox(key="run_new.engine").set_value("ray").run()
    for text in ("ray://10.0.0.5:10001", "--x", "", "a b:1"):
        app.text_input(key="run_new.engine.address").set_value(text).run()
        assert "This engine cannot be used." in page_html(app)
        assert "Start the run" not in labels(app)
    app.text_input(key="run_new.engine.address").set_value("10.0.0.5:6379").run()
    app.number_input(key="run_new.engine.least").set_value(9).run()
    assert app.number_input(key="run_new.engine.most").value == 9  # not less than the least
    app.number_input(key="run_new.engine.least").set_value(2).run()
    app.number_input(key="run_new.engine.most").set_value(6).run()
    button(app, "Start the run").click().run()
    assert not app.exception
    assert commands[0][-2:] == ["--engine", CLUSTER]
    assert "Engine: Ray cluster (10.0.0.5:6379), 2 to 6 workers." in page_html(app)
    with shared.read() as connection:
        (row,) = store_runs.all_rows(connection)
    # As where its worker was refused: what was begun there goes on there, or here by a button of its own.
    with pytest.raises(WorkError, match="no cluster"):
        worker.refuse(shared, row.id, "no cluster", queued=True)
    app.run()
    button(app, "Resume").click().run()
    assert commands[1] == commands[0]
    with pytest.raises(WorkError, match="no cluster"):
        worker.refuse(shared, row.id, "no cluster", queued=True)
    app.run()
    button(app, "On this machine").click().run()
    assert commands[2][-2:] == ["--engine", "local"]
    assert last(shared, row.id) == LOCAL
    assert "Engine: Ray cluster" not in page_html(app)
    # And back, with the cluster and the workers that it had.
    with pytest.raises(WorkError, match="stopped"):
        worker.refuse(shared, row.id, "stopped", queued=True)
    app.run()
    button(app, "On the Ray cluster").click().run()
    assert commands[3] == commands[0]


@pytest.mark.postgres
def test_the_environment_gives_the_defaults_and_with_a_login_the_address(
    shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names a cluster has the database's password sent there: not everybody who logs in may."""
    monkeypatch.setenv(engines.ENGINE, "ray:address=head:6379,workers=3:5")
    app = plan_page()
    assert app.text_input(key="run_new.engine.address").value == "head:6379"
    assert [app.number_input(key=f"run_new.engine.{end}").value for end in ("least", "most")] == [3, 5]
    monkeypatch.setattr(login, "configured", lambda: True)
    app.run()
    assert "Cluster address" not in labels(app) and "Cluster: head:6379" in page_html(app)


def test_the_engine_is_logged_where_it_changes_and_only_there(sqlite_store: Store) -> None:
    add(sqlite_store, small_profiles(1, 2))
    run_id = planning.plan(sqlite_store, simulated())
    runs.execute(sqlite_store, run_id)
    assert last(sqlite_store, run_id) is None  # this machine, the usual case, needs no entry
    seen = []
    for engine in (CLUSTER, CLUSTER, LOCAL, LOCAL, CLUSTER):
        with sqlite_store.write() as connection:
            engines.record(connection, run_id, engine)
            seen.append(len(engines.log.entries(connection, action="run.engine", subject=run_id)))
        assert last(sqlite_store, run_id) == engine
    assert seen == [1, 1, 2, 2, 3]
    with sqlite_store.write() as connection:  # an entry of before
        engines.log.add(connection, "run.engine", run_id, engine="ray", address="auto", workers="1:4")
    assert last(sqlite_store, run_id) == Ray().text


hosts = st.from_regex(r"[a-z][a-z0-9.-]{0,20}:[0-9]{1,5}", fullmatch=True)
sizes = st.tuples(st.integers(1, 500), st.integers(0, 500)).map(lambda pair: f"{pair[0]}:{pair[0] + pair[1]}")


@given(st.one_of(st.sampled_from(["auto", "local"]), hosts), sizes)
def test_the_text_of_an_engine_is_read_as_the_same_engine(address: str, workers: str) -> None:
    engine = Ray(address, workers)
    assert engines.read_engine(engine.text) == engine


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slurm", "no engine 'slurm'. There are: local, ray"),
        ("ray:cores=2", "'cores' is no option of the engine ray: it has address, workers"),
        ("ray:address=--x", "HOST:PORT"),
        ("ray:workers=3:2", "MIN:MAX"),
    ],
)
def test_what_names_no_engine_is_refused(text: str, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        engines.read_engine(text)
    assert engines.described(text) == text
