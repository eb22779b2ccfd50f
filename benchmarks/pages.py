"""How long a person waits, and what it costs: first page, switches among all pages, a click on the heatmap, a slider.

    .venv/bin/python benchmarks/pages.py [ROUNDS] [--large FOLDER] [--workspace FOLDER]

Two workspaces after each other: the demo, its runs repeated from their recorded calls until there are nine; and 100
profiles x 8 runs of five samples, drawn at random at the sizes of the released profiles, which takes minutes to make
(--large names a folder that keeps it, and opens it where it is there). --workspace: one of one's own instead of both.
In each round all pages are visited in another order.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import serving
import worlds
from playwright.sync_api import Page

from cimemories import demo, seeds
from cimemories.curation.offline import generate_profiles
from cimemories.evaluation import planning, runs
from cimemories.flows.catalogue import all_runs
from cimemories.flows.labels import AMBIGUOUS, INAPPROPRIATE, NECESSARY
from cimemories.llm.endpoint import SIMULATOR
from cimemories.metrics.headline import warm as warm_up
from cimemories.model import WorkStatus
from cimemories.store import judgements, work
from cimemories.store import runs as store_runs
from cimemories.store.engine import Store, open_store

PAGES = ["Home", "Profiles", "Labels", "Review", "Consensus", "Runs", "Judge audit", "Heatmaps", "Leaks"]
PAGES += ["Accumulation", "Compare"]
CHARTS = ("Consensus", "Heatmaps", "Accumulation")
CHART, HEAD = ".js-plotly-plot .nsewdrag", ".ci-head"
RUNS = 9
LARGE = 100, 8  # profiles, runs
MODELS = "sim-careful", "sim-average", "sim-oversharing"
MOST_FIRST, MOST_SWITCH, MOST_CLICK, MOST_SLIDE = 2000, 400, 300, 400  # milliseconds


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


def fill(store: Store) -> None:
    """The demo, its simulated runs repeated until there are RUNS: nothing is asked, all of it is in the record."""
    demo.prepare(store, lambda text: None)
    ours = [row for row in all_runs(store) if row.simulated]
    for number in range(RUNS - len(all_runs(store))):
        spec = planning.spec_of(store, ours[number % len(ours)].id)
        runs.execute(store, planning.plan(store, spec.replace(name=f"{spec.name} {number}")))


def fill_large(store: Store) -> None:
    """LARGE profiles in all contexts, labelled, and runs of the simulator's models whose leaks are drawn at random,
    each of its own inclination an attribute. What a worker leaves behind for the pages is there too."""
    random = np.random.default_rng(1)
    data = worlds.add_profiles(store, list(generate_profiles(LARGE[0], contexts=seeds.load_contexts())), "large")
    people = worlds.records(store, data.id)
    shape = len(people), max(len(p.attribute_ids) for p in people), max(len(p.context_ids) for p in people)
    kind = random.random(shape)
    labels = np.where(kind < 0.08, NECESSARY, np.where(kind < 0.55, INAPPROPRIATE, AMBIGUOUS)).astype(np.int8)
    warm_up(store, worlds.add_labels(store, data.id, labels, simulated=True))
    for number in range(LARGE[1]):
        spec = planning.RunSpec(
            dataset="large", model=MODELS[number % len(MODELS)], base_url=SIMULATOR, name=f"Run {number + 1}"
        )
        run_id = planning.plan(store, spec)
        leaning = random.beta(0.6, 25, shape[:2])[:, :, None]
        chance = np.where(labels == NECESSARY, 0.5, leaning)
        with store.write() as connection:
            judge = judgements.of_run(connection, run_id)[0].id
            key = worlds.add_call(connection, f"answer of {run_id}")
            for p, person in enumerate(people):
                ids = np.array(person.attribute_ids)
                for group in store_runs.owed(connection, run_id, person.id):
                    likely = chance[p, : len(ids), person.context_ids.index(group.context)]
                    for response in group.samples.values():
                        revealed = ids[random.random(len(ids)) < likely].tolist()
                        worlds.settle_response(connection, response, key)
                        worlds.settle_judgement(connection, response, judge, key, revealed)
            work.finish(connection, run_id, WorkStatus.FINISHED)
            work.bump(connection, run_id)
        warm_up(store, run_id)


def percentile(values: list[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0]


def main(rounds: int, large: Path | None, given: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = large or Path(folder) / "large"
        cases = [
            ("the demo", Path(folder) / "demo", fill),
            (f"{LARGE[0]} profiles x {LARGE[1]} runs", kept, fill_large),
        ]
        for name, workspace, build in cases if given is None else [(str(given), given, None)]:
            there = workspace.exists()
            store = open_store(workspace)
            if build is not None and not there:
                build(store)
            held = len(all_runs(store))
            store.close()
            measure(f"{name}, {held} runs", workspace, rounds)


def measure(what: str, workspace: Path, rounds: int) -> None:
    """Visit the pages of a workspace and print how long that took."""
    load = os.getloadavg()[0]
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
                before = serving.used(server.pid, session)
                warm[name].append(switch(page, name))
                after = serving.used(server.pid, session)
                spent[name].append((after[0] - before[0], after[1] - before[1]))
        switch(page, "Profiles")
        switch(page, "Heatmaps")
        before = serving.used(server.pid, session)
        clicks = [click(page, 0.13 + 0.07 * turn % 0.8, 0.25 if turn % 2 else 0.55) for turn in range(rounds)]
        after = serving.used(server.pid, session)
        slides = [slide(page, "ArrowLeft" if turn % 4 < 2 else "ArrowRight") for turn in range(rounds)]
    print(f"\n{what}; {os.cpu_count()} cores, load {load:.1f} before and {os.getloadavg()[0]:.1f} after")
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
    each = [(end - start) / rounds for start, end in zip(before, after, strict=True)]
    print(f"{'a click':12} {'':40} {each[0]:7.0f} {each[1]:7.0f}")
    print(f"\n{'':34} {'median':>7} {'95th':>7} {'worst':>7}  95th of its limit")
    for what, waits, most in (
        ("first page, to its largest paint", [first], MOST_FIRST),
        ("all switches", [took for name in PAGES for took in warm[name]], MOST_SWITCH),
        ("heatmap click to the cell's flows", clicks, MOST_CLICK),
        ("slider to the headline", slides, MOST_SLIDE),
    ):
        high = percentile(waits)
        print(
            f"{what:34} {statistics.median(waits):7.0f} {high:7.0f} {max(waits):7.0f}  {high / most:.2f} of {most} ms"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=10)
    parser.add_argument("--large", type=Path, help="folder that keeps the large workspace")
    parser.add_argument("--workspace", type=Path)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.large, arguments.workspace)
