"""How long a person waits, and what it costs: first page, switches among all pages, a click on the heatmap, a slider.

    .venv/bin/python benchmarks/pages.py [ROUNDS] [--workspace FOLDER]

FOLDER: a workspace of one's own, with as many profiles and runs as are wanted; left out, the demo is prepared and its
runs are repeated from their recorded calls until there are nine. In each round all pages are visited in another order.
Prints medians, 95th percentiles and worst cases in milliseconds, each median as a ratio to Home's, and each 95th
percentile as a share of its limit. The browser itself takes the times: from the press to the frame in which the
server's script has ended and the chart stands; the first page from its request to its largest paint. What a driver of
the browser adds is thereby left out.

Beside them is the processor time of one switch, all of the server's process and the main thread of the browser's page:
on a machine that does other work, these say more than the times do.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving
from playwright.sync_api import CDPSession, Page

from cimemories import demo
from cimemories.evaluation import planning, runs
from cimemories.flows.catalogue import all_runs
from cimemories.store.engine import Store, open_store

PAGES = ["Home", "Profiles", "Labels", "Review", "Consensus", "Runs", "Judge audit", "Heatmaps", "Leaks"]
PAGES += ["Accumulation", "Compare"]
CHARTS = ("Consensus", "Heatmaps", "Accumulation")
CHART, HEAD = ".js-plotly-plot .nsewdrag", ".ci-head"
RUNS = 9
MOST_FIRST, MOST_SWITCH, MOST_CLICK, MOST_SLIDE = 2000, 400, 300, 400  # milliseconds
TICKS = os.sysconf("SC_CLK_TCK") / 1000  # of the processor's clock, in a millisecond


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
      if (document.querySelector("[data-testid=stApp]").dataset.testScriptState !== "notRunning") return;
      clearInterval(timer);
      watcher.disconnect();
      requestAnimationFrame(() => scheduler.postTask(done, {priority: "user-blocking"}));
    };
    const watcher = new MutationObserver(ready);
    const timer = setInterval(ready, 5);
    setTimeout(() => resolve(NaN), 60000);
    watcher.observe(document, {attributes: true, childList: true, subtree: true, characterData: true});
  });
}"""
PAINTS = """() => new Promise(resolve => {
  new PerformanceObserver(list => resolve(Math.max(...list.getEntries().map(entry => entry.startTime))))
    .observe({type: "largest-contentful-paint", buffered: true});
})"""


def switch(page: Page, name: str) -> float:
    title = "CIMemories Studio" if name == "Home" else name
    page.evaluate(WATCH, [title, CHART if name in CHARTS else HEAD, None])
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


def used(server: int, session: CDPSession) -> tuple[float, float]:
    """Milliseconds of processor time so far, of the server and of the page's main thread."""
    fields = Path(f"/proc/{server}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    return (int(fields[11]) + int(fields[12])) / TICKS, metrics["TaskDuration"] * 1000


def fill(store: Store) -> None:
    """The demo, its simulated runs repeated until there are RUNS: nothing is asked, all of it is in the record."""
    demo.prepare(store, lambda text: None)
    ours = [row for row in all_runs(store) if row.simulated]
    for number in range(RUNS - len(all_runs(store))):
        spec = runs.spec_of(store, ours[number % len(ours)].id)
        runs.execute(store, planning.plan(store, replace(spec, name=f"{spec.name} {number}")))


def percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def main(rounds: int, given: Path | None) -> None:
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        workspace = given or Path(folder) / "workspace"
        store = open_store(workspace)
        if given is None:
            fill(store)
        held = len(all_runs(store))
        store.close()
        with serving.running_app(workspace) as (address, server), serving.chromium() as browser:
            page = serving.open_page(browser, address)
            serving.settled(page)
            first = float(page.evaluate(PAINTS))
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            cold = {name: switch(page, name) for name in [*PAGES[1:], "Home"]}
            warm: dict[str, list[float]] = {name: [] for name in PAGES}
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in PAGES}
            order, last = random.Random(1), "Home"
            for _ in range(rounds):
                # The page that is open stays out of the first place: pressing it again is no switch.
                others = [name for name in PAGES if name != last]
                order.shuffle(others)
                for name in [*others, last]:
                    before = used(server.pid, session)
                    warm[name].append(switch(page, name))
                    after = used(server.pid, session)
                    spent[name].append((after[0] - before[0], after[1] - before[1]))
            switch(page, "Profiles")
            switch(page, "Heatmaps")
            clicks = [click(page, 0.13 + 0.07 * turn % 0.8, 0.25 if turn % 2 else 0.55) for turn in range(rounds)]
            slides = [slide(page, "ArrowLeft" if turn % 4 < 2 else "ArrowRight") for turn in range(rounds)]
    print(f"{os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after; {held} runs")
    print(
        f"{'page':12} {'first':>7} {'median':>7} {'95th':>7} {'worst':>7} {'to Home':>8} {'server':>7} {'browser':>7}"
    )
    home = statistics.median(warm["Home"])
    for name in PAGES:
        middle = statistics.median(warm[name])
        server_ms, browser_ms = (statistics.median(part) for part in zip(*spent[name], strict=True))
        print(
            f"{name:12} {cold[name]:7.0f} {middle:7.0f} {percentile(warm[name]):7.0f} {max(warm[name]):7.0f} "
            f"{middle / home:8.1f} {server_ms:7.0f} {browser_ms:7.0f}"
        )
    print(f"\n{'':34} {'median':>7} {'95th':>7} {'worst':>7}  95th of its limit")
    for what, found, most in (
        ("first page, to its largest paint", [first], MOST_FIRST),
        ("all switches", [took for name in PAGES for took in warm[name]], MOST_SWITCH),
        ("heatmap click to the cell's flows", clicks, MOST_CLICK),
        ("slider to the headline", slides, MOST_SLIDE),
    ):
        high = percentile(found)
        print(
            f"{what:34} {statistics.median(found):7.0f} {high:7.0f} {max(found):7.0f}  {high / most:.2f} of {most} ms"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--workspace", type=Path)
    asked = parser.parse_args()
    main(asked.rounds, asked.workspace)
