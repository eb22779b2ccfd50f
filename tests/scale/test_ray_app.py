"""A run that is started on the app's page and done by the workers of a Ray cluster (`make test-scale`)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import serving
from evaluating import add_labelled, assert_whole, counts, row_of, simulated
from executing import eventually
from paging import button, opened, page_html
from playwright.sync_api import Page, expect
from slow_simulator import SlowSimulator

pytest.importorskip("ray", reason="Ray is not installed; `make test-scale` installs it")
from ray_clusters import cluster_of

from cimemories import launch
from cimemories.evaluation import planning
from cimemories.evaluation.prices import Prices
from cimemories.llm.engines import ENGINE
from cimemories.store import runs as store_runs
from cimemories.store.engine import DATABASE_URL, WORKSPACE, Store, shared_store

pytestmark = pytest.mark.postgres
RUNS = "pages/evaluate/runs.py"
PROFILES, CONTEXTS, SAMPLES = 4, 30, 2  # more messages than two workers have in flight, 32 each
LONG_CONTEXTS = 48


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
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "resume" in process.cmdline():
                process.kill()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with cluster_of(1, 1) as started:
        yield started.address  # type: ignore[attr-defined]


@pytest.fixture
def slow() -> Iterator[SlowSimulator]:
    server = SlowSimulator(2.0)
    yield server
    server.process.kill()
    end_drivers()


def test_a_run_from_the_page_is_done_by_the_cluster_paused_and_resumed_without_it(
    shared: Store, cluster: str, slow: SlowSimulator
) -> None:
    add_labelled(shared, PROFILES, CONTEXTS)
    app = opened(RUNS, tab="new")
    app.text_input(key="run_new.base_url").set_value(slow.url).run()
    button(app, "Test the connection").click().run()
    app.selectbox(key="run_new.served").set_value("sim-average").run()
    button(app, "To the experiment").click().run()
    app.number_input(key="run_new.samples").set_value(SAMPLES).run()
    button(app, "To the plan").click().run()
    app.selectbox(key="run_new.engine").set_value("ray").run()
    app.text_input(key="run_new.engine.address").set_value(cluster).run()
    app.number_input(key="run_new.engine.most").set_value(2).run()
    button(app, "Start the run").click().run()
    assert not app.exception
    with shared.read() as connection:
        (row,) = store_runs.all_rows(connection)
    run_id = row.id
    assert f"Engine: Ray cluster ({cluster}), 1 to 2 workers." in page_html(app)
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
    slow.hurry()
    button(app, "On this machine").click().run()
    eventually(lambda: row_of(shared, run_id).status == "finished", 120)
    assert_whole(shared, run_id, PROFILES * CONTEXTS * SAMPLES)
    assert "error" not in launch.log_tail(shared, run_id).lower()


def test_in_a_browser_a_run_is_capped_resumed_and_cancelled_and_outlives_the_app(
    shared: Store, cluster: str, slow: SlowSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in the middle of the run, by its buttons; the page is reloaded, and the app restarted."""
    add_labelled(shared, PROFILES, LONG_CONTEXTS)
    prices = Prices.read("1000/1000/1000 EUR")
    judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=slow.url, prices=prices)
    changes = {"samples": SAMPLES, "seed": 0, "judges": (judge,), "prices": prices, "cap": 5.0}
    run_id, planned = planning.plan(shared, simulated(slow.url, **changes)), PROFILES * LONG_CONTEXTS * SAMPLES
    monkeypatch.setenv(ENGINE, f"ray:address={cluster},workers=2:2")

    def press(page: Page, name: str, status: str) -> None:
        page.get_by_role("button", name=name, exact=True).click()
        assert eventually(lambda: row_of(shared, run_id).status == status, 180), row_of(shared, run_id).status

    def under_way(least: int = 4) -> None:
        """Until workers of the cluster have recorded more, and not all."""
        before = counts(shared)["calls"]
        assert eventually(lambda: counts(shared)["calls"] >= before + least, 180)
        assert row_of(shared, run_id).status == "running"

    with serving.chromium() as browser:
        with serving.running_app(shared.workspace, "--no-demo") as (address, _):
            page = serving.open_page(browser, f"{address}/runs?run={run_id}")
            press(page, "On the Ray cluster", "interrupted")
            raising = page.get_by_role("button", name="Raise the cap and resume")
            expect(raising).to_be_visible()
            expect(page.get_by_role("button", name="On this machine")).to_be_visible()
            assert 0 < counts(shared)["responses"] < planned
            field = page.get_by_label("Raise the cap to (EUR)")
            field.fill("1000000")
            field.press("Tab")
            serving.settled(page)
            raising.click()
            under_way()
            page.reload()
            expect(page.locator(".st-key-panel")).to_contain_text("2 workers")
        # The app is gone; the work goes on, and whoever opens it again sees that.
        under_way(1)
        with serving.running_app(shared.workspace, "--no-demo") as (address, _):
            page = serving.open_page(browser, f"{address}/runs?run={run_id}")
            press(page, "Cancel", "cancelled")
            slow.hurry()
            press(page, "On this machine", "finished")
            expect(page.locator(".st-key-panel")).to_contain_text(f"{planned} of {planned}")
    assert_whole(shared, run_id, planned)
