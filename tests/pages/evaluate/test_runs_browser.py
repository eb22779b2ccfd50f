"""The list of runs in a browser: rows with intervals, a panel with an address of its own, live without a reload."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import serving
import sqlalchemy as sa
from evaluating import add, simulated, small_profiles
from playwright.sync_api import Browser, expect
from slow_simulator import SlowSimulator
from worlds import add_dataset, add_labels, add_run, plan_run

from cimemories.evaluation import planning
from cimemories.evaluation import runs as evaluation
from cimemories.evaluation.prices import Prices
from cimemories.flows.labels import INAPPROPRIATE, NECESSARY
from cimemories.llm.worker import WorkError
from cimemories.model import ResponseStatus, WorkStatus
from cimemories.store import runs, work
from cimemories.store.engine import Store, open_store
from cimemories.store.tables import run

pytestmark = pytest.mark.browser
X, N = INAPPROPRIATE, NECESSARY
REVEALS = [[[1, 0, 2], [1, 2, 0], [2, 1, 0]]]
HOSTILE = '<img src=x onerror="alert(1)"> ' + "long" * 60


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(tmp_path_factory.mktemp("runs") / "workspace")
    data = add_dataset(store, profiles=1, attributes=3, contexts=3)
    add_labels(store, data.id, [[[X, X, N], [X, X, X], [N, N, X]]])
    whole = add_run(store, data.id, 2, REVEALS)
    part = add_run(store, data.id, 2, REVEALS, missing={(0, 0, 1): ResponseStatus.FAILED})
    hostile = add_run(store, data.id, 2, {})
    with store.write() as connection:
        for run_id, name in ((whole, "whole"), (part, "part"), (hostile, HOSTILE)):
            connection.execute(sa.update(run).where(run.c.id == run_id).values(name=name, simulated=run_id == whole))
        connection.execute(sa.update(run).where(run.c.id == part).values(prompt_level="high"))
    yield store
    store.close()


def add_sweep(store: Store) -> str:
    """Two finished runs that were planned together, at two prompt levels."""
    with store.read() as connection:
        (data,) = connection.execute(sa.select(run.c.dataset)).first() or (0,)
    ran = [add_run(store, data, 2, REVEALS) for _ in range(2)]
    with store.write() as connection:
        sweep_id = runs.add_sweep(connection, name="grid of two", dataset_id=data, spec={}, plan={}, cap=None)
        work.claim(connection, sweep_id)
        work.finish(connection, sweep_id, WorkStatus.FINISHED)
        for cell, (run_id, level) in enumerate(zip(ran, ("base", "high"), strict=True)):
            values = {"name": f"in the sweep {cell}", "prompt_level": level, "sweep": sweep_id, "cell": cell}
            connection.execute(sa.update(run).where(run.c.id == run_id).values(values))
    return sweep_id


@pytest.fixture(scope="module")
def workspace(store: Store) -> Path:
    return Path(store.workspace)


def test_the_list_shows_intervals_opens_a_panel_and_sorts(app: str, browser: Browser) -> None:
    page = serving.open_page(browser, f"{app}/runs")
    whole, part = (page.get_by_role("row").filter(has=page.get_by_role("button", name=n, exact=True)) for n in
                   ("whole", "part"))  # fmt: skip
    expect(whole).to_contain_text(re.compile(r"100\.0 %.*\[\d+\.\d, \d+\.\d\] n = 2"))
    expect(whole.locator(".whisker")).to_have_count(2)
    expect(whole.locator(".chip")).to_have_text(["simulated"])
    expect(part.locator(".chip")).to_have_text(["prompt high"])
    expect(part).to_have_class("grey")
    expect(whole).not_to_have_class("grey")
    assert page.get_by_text(HOSTILE[:20]).count() == 1 and page.locator("img[src=x]").count() == 0
    # By the keyboard alone.
    page.get_by_role("button", name="part", exact=True).focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="whole", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"run=run-"))
    expect(page.locator(".st-key-panel .ci-heading").first).to_contain_text("whole")
    expect(page.locator("tr[aria-current=true]")).to_contain_text("whole")
    address = page.url
    page.go_back()
    expect(page.locator(".st-key-panel")).to_have_count(0)
    expect(page.locator("tr[aria-current=true]")).to_have_count(0)
    page.goto(address)
    expect(page.locator(".st-key-panel .ci-heading").first).to_contain_text("whole")
    page.get_by_role("button", name="Close").click()
    expect(page.locator(".st-key-panel")).to_have_count(0)
    assert "run=" not in page.url

    names = page.locator("button.name")
    expect(names.last).to_have_text("whole")
    page.get_by_role("button", name="Coverage").click()
    expect(page.get_by_role("columnheader", name="Coverage")).to_have_attribute("aria-sort", "descending")
    expect(names.last).to_have_text("part")
    page.get_by_role("button", name="Coverage").click()
    expect(names.first).to_have_text("part")

    # A phone shows the panel alone.
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_role("button", name="whole", exact=True).click()
    expect(page.locator(".st-key-panel .ci-heading").first).to_be_visible()
    expect(page.get_by_role("button", name="part", exact=True)).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    serving.leave(page)


def test_the_list_lives_while_a_run_does_and_runs_of_a_sweep_make_a_matrix(
    app: str, browser: Browser, store: Store
) -> None:
    with store.read() as connection:
        (data,) = connection.execute(sa.select(run.c.dataset)).first() or (0,)
    # Opened before the run is there, which then appears by itself, and nothing that is open closes for it.
    page = serving.open_page(browser, f"{app}/runs")
    link = page.get_by_test_id("stPopover").get_by_role("button", name="Link")
    link.click()
    copied = page.get_by_test_id("stPopoverBody").get_by_role("button").first
    copied.focus()
    with store.write() as connection:
        going = plan_run(connection, data, 2)
        connection.execute(sa.update(run).where(run.c.id == going).values(name="going"))
        work.claim(connection, going)
    row = page.get_by_role("row").filter(has=page.get_by_role("button", name="going", exact=True))
    expect(row).to_contain_text("0.0 %running, 0 of 6 written")
    expect(copied).to_be_focused()
    page.keyboard.press("Escape")
    expect(copied).to_have_count(0)
    page.get_by_role("button", name="Cancel: going").click()
    expect(row).to_contain_text("cancelling")
    with store.read() as connection:
        assert work.load(connection, going)["status"] == WorkStatus.CANCELLING
    whole = page.get_by_role("button", name="whole", exact=True)
    whole.focus()
    with store.write() as connection:
        work.finish(connection, going, WorkStatus.CANCELLED)
    expect(row).to_contain_text("cancelled")  # without a reload
    expect(page.get_by_role("button", name="Resume: going")).to_be_visible()
    expect(page.locator(".ci-head p")).to_contain_text("0 running")
    expect(whole).to_be_focused()

    # The runs of a sweep stand together, and make a matrix with intervals.
    sweep = add_sweep(store)
    page.reload()
    group = page.get_by_role("button", name="grid of two")
    expect(group.first).to_have_attribute("aria-expanded", "false")
    expect(page.get_by_role("button", name="in the sweep")).to_have_count(0)
    group.first.click()
    expect(page.get_by_role("button", name="in the sweep")).to_have_count(2)
    page.get_by_role("button", name="Matrix: grid of two").click()
    page.wait_for_url(re.compile(f"sweep={sweep}"))
    matrix = page.get_by_role("table", name="test-model: prompt level by memory")
    expect(matrix.get_by_role("columnheader")).to_have_text(["Prompt", "full"])
    expect(matrix.get_by_role("rowheader")).to_have_text(["base", "high"])
    expect(matrix.locator(".whisker")).to_have_count(2)
    expect(matrix.get_by_role("cell").first).to_contain_text(re.compile(r"%\s?\[.*completeness .*%"))
    page.get_by_role("button", name="test-model, full, high").click()
    expect(page.locator(".st-key-panel .ci-heading").first).to_contain_text("in the sweep 1")
    page.go_back()
    expect(matrix).to_be_visible()
    serving.leave(page)


@pytest.mark.long
def test_a_run_with_a_price_tells_its_time_left_and_cost_in_its_row_while_it_goes(
    app: str, browser: Browser, store: Store
) -> None:
    add(store, small_profiles(1, 4))
    slow = SlowSimulator()
    try:
        prices = Prices.read("2/0.5/8 EUR")
        judge = planning.JudgeSpec(kind="llm", model="sim-judge", base_url=slow.url, prices=prices)
        spec = simulated(slow.url, samples=100, judges=(judge,), prices=prices, name="priced")
        # All of it in another thread, since Playwright keeps an event loop in this one.

        at_work = threading.Event()

        def work_off() -> None:
            with suppress(WorkError):  # it is cancelled below
                run_id = planning.plan(store, spec)
                evaluation.execute(store, run_id, concurrency=2, on_progress=lambda _: at_work.set())

        worker = threading.Thread(target=work_off, daemon=True)
        worker.start()
        assert at_work.wait(timeout=60)
        page = serving.open_page(browser, f"{app}/runs")
        row = page.get_by_role("row").filter(has=page.get_by_role("button", name="priced", exact=True))
        expect(row).to_contain_text(re.compile(r"running, [\d,]+ of 400 written, [\d.]+ a second, about .+ left"))
        cost = row.get_by_role("cell").filter(has_text="EUR")
        expect(cost).to_have_count(1)
        early = cost.inner_text()
        expect(cost).not_to_have_text(early)  # it grows without a reload
        page.get_by_role("button", name="Cancel: priced").click()
        worker.join(timeout=60)
        expect(row).to_contain_text("cancelled")
        serving.leave(page)
    finally:
        slow.process.kill()
        slow.process.wait()
