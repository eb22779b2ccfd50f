"""A run that is started on the app's page and done by the workers of a Ray cluster (`make test-scale`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from evaluating import add_labelled, assert_whole, counts, row_of
from executing import eventually
from paging import button, opened, page_html
from slow_simulator import SlowSimulator

pytest.importorskip("ray", reason="Ray is not installed; `make test-scale` installs it")
from ray_clusters import cluster_of

from cimemories import launch
from cimemories.store import runs as store_runs
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, shared_store

pytestmark = pytest.mark.postgres
RUNS = "pages/evaluate/runs.py"
PROFILES, CONTEXTS, SAMPLES = 4, 30, 2  # more messages than two workers have in flight, 32 each


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    records, maintenance = request.getfixturevalue("empty_records"), request.getfixturevalue("maintenance")
    name = records.take()
    url = maintenance.engine.url.set(database=name).render_as_string(hide_password=False)
    monkeypatch.setenv(DATABASE_URL, url)
    monkeypatch.setenv(WORKSPACE, str(tmp_path / "workspace"))
    store = shared_store()
    yield store
    store.close()
    records.give_back(name)


def end_drivers() -> None:
    """Kill the workers' processes that the page has started and that still are at it."""
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "resume" in process.cmdline():
                process.kill()


def test_a_run_from_the_page_is_done_paused_and_resumed_by_the_cluster(shared: Store) -> None:
    add_labelled(shared, PROFILES, CONTEXTS)
    slow = SlowSimulator()
    with cluster_of(1, 1) as cluster:
        try:
            app = opened(RUNS, tab="new")
            app.text_input(key="run_new.base_url").set_value(slow.url).run()
            button(app, "Test the connection").click().run()
            app.selectbox(key="run_new.served").set_value("sim-average").run()
            button(app, "To the experiment").click().run()
            app.number_input(key="run_new.samples").set_value(SAMPLES).run()
            button(app, "To the plan").click().run()
            app.selectbox(key="run_new.engine").set_value("ray").run()
            app.text_input(key="run_new.engine.address").set_value(cluster.address).run()  # type: ignore[attr-defined]
            app.number_input(key="run_new.engine.most").set_value(2).run()
            button(app, "Start the run").click().run()
            assert not app.exception
            with shared.read() as connection:
                (row,) = store_runs.all_rows(connection)
            run_id = row.id
            assert f"Engine: Ray cluster ({cluster.address}), 1 to 2 workers." in page_html(app)  # type: ignore[attr-defined]
            eventually(lambda: counts(shared)["responses"] >= 2, 90)
            app.run()
            assert "2 workers" in page_html(app) and row_of(shared, run_id).status == "running"
            button(app, "Pause").click().run()
            eventually(lambda: row_of(shared, run_id).status == "paused", 60)
            before = counts(shared)
            assert 0 < before["responses"] < PROFILES * CONTEXTS * SAMPLES
            time.sleep(1.0)
            assert counts(shared) == before
            app.run()
            button(app, "Resume").click().run()
            eventually(lambda: row_of(shared, run_id).status == "finished", 120)
            assert_whole(shared, run_id, PROFILES * CONTEXTS * SAMPLES)
            assert "error" not in launch.log_tail(shared, run_id).lower()
        finally:
            slow.process.kill()
            end_drivers()
