"""How long a person waits: first page, switches between pages, a click on the heatmap, with the demo data.

    .venv/bin/python benchmarks/pages.py [ROUNDS] [--workspace FOLDER]

FOLDER: a workspace of one's own, with as many runs as are wanted; left out, the demo is prepared. Prints a table of
medians, 95th percentiles and worst cases in milliseconds, and each switch as a ratio to Home of the same server, so
that the figures of a slower machine can be read too. The browser itself takes the times: from the press to the frame
that has the page's head and its main part; the first page from its request to its largest paint. What a driver of the
browser adds is thereby left out, and so is what is drawn further down after that frame.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving
from playwright.sync_api import Page

from cimemories import demo
from cimemories.store.engine import open_store

PAGES = ["Home", "Profiles", "Labels", "Survival", "Runs", "Heatmaps", "Leaks", "Accumulation", "Compare"]
MOST_SWITCH, MOST_CLICK, MOST_SLIDE = 500, 300, 400  # milliseconds
# What a page must have drawn before it counts as there.
DRAWN = {
    "Home": ".ci-head",
    "Profiles": ".ci-facts",
    "Labels": ".ci-facts",
    "Survival": ".js-plotly-plot .nsewdrag",
    "Runs": "[data-testid=stDataFrame]",
    "Heatmaps": ".js-plotly-plot .nsewdrag",
    "Leaks": ".ci-message",
    "Accumulation": ".js-plotly-plot .nsewdrag",
    "Compare": "table tbody tr",
}


# Resolves with the time when `ready` is met and painted, counted from the next press of the pointer.
WATCH = """([title, selector, address]) => {
  let start = null;
  addEventListener("pointerdown", event => { start = event.timeStamp; }, {capture: true, once: true});
  window.painted = new Promise(resolve => {
    const done = () => resolve(performance.now() - start);
    const ready = () => {
      if (start === null || (address && location.href === address)) return;
      if (title && ![...document.querySelectorAll(".ci-head h2")].some(e => e.textContent === title)) return;
      if (!document.querySelector(selector)) return;
      clearInterval(timer);
      watcher.disconnect();
      requestAnimationFrame(() => scheduler.postTask(done, {priority: "user-blocking"}));
    };
    const watcher = new MutationObserver(ready);
    const timer = setInterval(ready, 5);
    setTimeout(() => resolve(NaN), 60000);
    watcher.observe(document, {childList: true, subtree: true, characterData: true});
  });
}"""
PAINTS = """() => new Promise(resolve => {
  new PerformanceObserver(list => resolve(Math.max(...list.getEntries().map(entry => entry.startTime))))
    .observe({type: "largest-contentful-paint", buffered: true});
})"""


def switch(page: Page, name: str) -> float:
    title = "CIMemories Studio" if name == "Home" else name
    page.evaluate(WATCH, [title, DRAWN[name], None])
    page.get_by_test_id("stSidebarNav").get_by_text(name, exact=True).click()
    took = float(page.evaluate("window.painted"))
    serving.settled(page)
    return took


def click(page: Page, x: float, y: float) -> float:
    box = page.locator(".js-plotly-plot .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
    page.wait_for_timeout(200)
    page.evaluate(WATCH, [None, ".ci-heading", page.url])
    page.mouse.down()
    page.mouse.up()
    took = float(page.evaluate("window.painted"))
    serving.settled(page)
    return took


# Resolves with the time from the next key to the first frame in which the page's sentence is another one.
SLIDE = """() => {
  const said = () => document.querySelector(".ci-head p")?.textContent;
  const before = said();
  let start = null;
  addEventListener("keydown", event => { start = event.timeStamp; }, {capture: true, once: true});
  window.painted = new Promise(resolve => {
    const done = () => resolve(performance.now() - start);
    setTimeout(() => resolve(NaN), 60000);
    const timer = setInterval(() => {
      if (start === null || said() === before) return;
      clearInterval(timer);
      requestAnimationFrame(() => scheduler.postTask(done, {priority: "user-blocking"}));
    }, 5);
  });
}"""


def slide(page: Page, key: str) -> float:
    """One step of the slider for n, until the page's headline number is redrawn."""
    page.get_by_role("slider").first.focus()
    page.evaluate(SLIDE)
    page.keyboard.press(key)
    took = float(page.evaluate("window.painted"))
    serving.settled(page)
    return took


def percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def main(rounds: int, given: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = given or Path(folder) / "workspace"
        if given is None:
            store = open_store(workspace)
            demo.prepare(store, lambda text: None)
            store.close()
        with serving.running_app(workspace) as (address, _), serving.chromium() as browser:
            page = serving.open_page(browser, address)
            serving.settled(page)
            first = float(page.evaluate(PAINTS))
            cold = {name: switch(page, name) for name in [*PAGES[1:], "Home"]}
            warm: dict[str, list[float]] = {name: [] for name in PAGES}
            for _ in range(rounds):
                for name in [*PAGES[1:], "Home"]:
                    warm[name].append(switch(page, name))
            switch(page, "Heatmaps")
            clicks = [click(page, 0.13 + 0.07 * turn % 0.8, 0.25 if turn % 2 else 0.55) for turn in range(rounds)]
            slides = [slide(page, "ArrowLeft" if turn % 4 < 2 else "ArrowRight") for turn in range(rounds)]
    print(f"largest paint of the first page of a fresh server: {first:.0f} ms")
    print(f"{'page':12} {'first':>7} {'median':>7} {'95th':>7} {'worst':>7}  ratio to Home")
    home = statistics.median(warm["Home"])
    for name in PAGES:
        middle = statistics.median(warm[name])
        spread = f"{percentile(warm[name]):7.0f} {max(warm[name]):7.0f}"
        print(f"{name:12} {cold[name]:7.0f} {middle:7.0f} {spread}  {middle / home:.1f}")
    every = percentile([took for name in PAGES for took in warm[name]])
    print(f"all switches: 95th percentile {every:.0f} ms, at most {MOST_SWITCH} wanted")
    for what, found, most in (
        ("heatmap click to the cell's flows", clicks, MOST_CLICK),
        ("slider", slides, MOST_SLIDE),
    ):
        middle = statistics.median(found)
        print(f"{what}: median {middle:.0f}, 95th {percentile(found):.0f}, worst {max(found):.0f} ms; {most} wanted")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--workspace", type=Path)
    asked = parser.parse_args()
    main(asked.rounds, asked.workspace)
