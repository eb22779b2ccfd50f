"""How long a person waits: first page, switches between pages, a click on the heatmap, with the demo data.

    .venv/bin/python benchmarks/pages.py [ROUNDS]

Prints a table of medians and worst cases in milliseconds, and each switch as a ratio to an empty page of the same
server, so that the figures of a slower machine can be read too.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving
from playwright.sync_api import Page

from cimemories import demo
from cimemories.store.engine import open_store

PAGES = ["Home", "Profiles", "Labels", "Runs", "Heatmaps", "Leaks"]
# What a page must have drawn before it counts as there.
DRAWN = {
    "Home": ".ci-head",
    "Profiles": ".ci-facts",
    "Labels": ".ci-facts",
    "Runs": "[data-testid=stDataFrame]",
    "Heatmaps": ".js-plotly-plot .nsewdrag",
    "Leaks": ".ci-message",
}


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def switch(page: Page, name: str) -> None:
    page.get_by_test_id("stSidebarNav").get_by_text(name, exact=True).click()
    title = "CIMemories Studio" if name == "Home" else name
    page.locator(".ci-head h2", has_text=title).wait_for()
    page.locator(DRAWN[name]).first.wait_for()


def click(page: Page, x: float, y: float) -> None:
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert box is not None
    before = page.url
    at = (box["x"] + box["width"] * x, box["y"] + box["height"] * y)
    page.mouse.move(*at)
    page.wait_for_timeout(200)
    start = time.perf_counter()
    page.mouse.click(*at)
    page.wait_for_function("before => location.href !== before", arg=before)
    page.locator(".ci-heading").first.wait_for()
    clicks.append((time.perf_counter() - start) * 1000)


clicks: list[float] = []


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        store = open_store(workspace)
        demo.prepare(store, lambda text: None)
        store.close()
        with serving.running_app(workspace) as (address, _), serving.chromium() as browser:
            pages: list[Page] = []
            first = timed(lambda: pages.append(serving.open_page(browser, address)))
            page = pages[0]
            cold = {name: timed(lambda name=name: switch(page, name)) for name in [*PAGES[1:], "Home"]}
            warm: dict[str, list[float]] = {name: [] for name in PAGES}
            for _ in range(rounds):
                for name in [*PAGES[1:], "Home"]:
                    warm[name].append(timed(lambda name=name: switch(page, name)))
            switch(page, "Heatmaps")
            serving.settled(page)
            for turn in range(rounds):
                click(page, 0.13 + 0.07 * turn % 0.8, 0.25 if turn % 2 else 0.55)
                serving.settled(page)
    print(f"first page of a fresh server: {first:.0f} ms")
    print(f"{'page':10} {'first':>7} {'median':>7} {'worst':>7}  ratio to Home")
    home = statistics.median(warm["Home"])
    for name in PAGES:
        middle = statistics.median(warm[name])
        print(f"{name:10} {cold[name]:7.0f} {middle:7.0f} {max(warm[name]):7.0f}  {middle / home:.1f}")
    print(f"heatmap click to the cell's flows: median {statistics.median(clicks):.0f}, worst {max(clicks):.0f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
