"""The matrix of a profile at the size of the released data (147 x 49): how long to compute, to draw, and to answer.

    .venv/bin/python benchmarks/matrix.py [ROUNDS]

A dataset of that size is made in a temporary workspace (10 draws of three personas). Printed are medians and worst
cases in milliseconds: the arrays in Python, cold and warm; in a real Chromium the time from the data's arrival to the
matrix drawn (first, and at each change), and from a click or a key press to the pair in the panel. The panel's time
also stands as a ratio to a rerun of Home on the same server, so that figures of a slower machine can be read too.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving
import worlds
from playwright.sync_api import Page

from cimemories.labels.matrix import matrix, view
from cimemories.model import Attribute, Context, Profile
from cimemories.store.engine import Store, open_store

ATTRIBUTES, CONTEXTS, DRAWS = 147, 49, 10
HEADING = ".st-key-pair h3"


def build(folder: Path) -> tuple[Store, str]:
    """One profile of that size, with labels of all kinds."""
    store = open_store(folder)
    domains = ("finance", "health", "legal", "housing", "education", "employment", "schedule", "relationships")
    attributes = tuple(
        Attribute(f"attribute_number_{i}", i, domains[i // 19], f"event {i // 5 % 3}", f"Statement {i} of this person.")
        for i in range(ATTRIBUTES)
    )
    contexts = tuple(Context(f"Task {j}", f"Recipient {j}", f"sphere {j // 5}") for j in range(CONTEXTS))
    data = worlds.add_profiles(store, [Profile("Ann Lee", "F", "1 Elm St", 42, attributes, contexts)])
    draw = random.Random(7)
    codes = [[draw.choices([0, 1, 2], [40, 6, 54])[0] for _ in range(CONTEXTS)] for _ in range(ATTRIBUTES)]
    return store, worlds.add_labels(store, data.id, [codes], draws=DRAWS)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def answered(page: Page, action: Callable[[], object]) -> float:
    """From the action to another statement in the panel."""
    before = page.locator(HEADING).first.inner_text()
    start = time.perf_counter()
    action()
    page.wait_for_function(
        f"before => document.querySelector('{HEADING}')?.innerText !== before", arg=before, polling="raf"
    )
    took = (time.perf_counter() - start) * 1000
    serving.settled(page)
    return took


def to_home(page: Page) -> None:
    page.get_by_test_id("stSidebarNav").get_by_text("Home", exact=True).click()
    page.locator(".ci-head h2", has_text="CIMemories Studio").wait_for()


def draw_times(page: Page) -> list[float]:
    durations: list[float] = page.evaluate("performance.getEntriesByName('matrix drawn').map(entry => entry.duration)")
    return durations


def line(name: str, figures: list[float], note: str = "") -> None:
    print(f"{name:42} {len(figures):4} {statistics.median(figures):8.1f} {max(figures):8.1f}  {note}")


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        store, labelling = build(workspace)
        (record,) = worlds.records(store, 1)
        cold = timed(lambda: view(matrix(store, labelling, record)))
        warm = [timed(lambda: view(matrix(store, labelling, record))) for _ in range(20)]
        store.close()
        first, redrawn, clicks, keys, switches = [], [], [], [], []
        with serving.running_app(workspace, "--no-demo") as (address, _), serving.chromium() as browser:
            for turn in range(rounds):
                page = serving.open_page(browser, f"{address}/labels")
                page.get_by_role("grid").wait_for()
                serving.settled(page)
                first += draw_times(page)[:1]
                if turn < rounds - 1:
                    page.context.close()
            box = page.get_by_role("grid").bounding_box()
            assert box is not None
            for turn in range(rounds):
                at = (box["x"] + box["width"] - 60, box["y"] + 260 + 22 * (turn % 10) + 90 * (turn % 2))
                clicks.append(answered(page, lambda at=at: page.mouse.click(*at)))
            for turn in range(rounds):
                key = "ArrowDown" if turn % 4 < 2 else "ArrowUp"
                keys.append(answered(page, lambda key=key: page.keyboard.press(key)))
            redrawn = draw_times(page)[1:]
            for _ in range(rounds):
                switches.append(timed(lambda: to_home(page)))
                serving.settled(page)
                page.get_by_test_id("stSidebarNav").get_by_text("Labels", exact=True).click()
                page.get_by_role("grid").wait_for()
                serving.settled(page)
    print(f"{ATTRIBUTES} x {CONTEXTS} pairs, {DRAWS} draws of 3 personas; milliseconds")
    print(f"{'':42} {'n':>4} {'median':>8} {'worst':>8}")
    line("arrays and view, cold", [cold])
    line("arrays and view, warm", warm, "aim: under 50")
    line("data arrived to drawn, first", first, "aim: under 200")
    line("data arrived to drawn, again", redrawn)
    home = statistics.median(switches)
    line("switch to Home on the same server", switches)
    line("click to the pair in the panel", clicks, f"{statistics.median(clicks) / home:.1f} x the switch to Home")
    line("key to the pair in the panel (120 rest)", keys, f"{statistics.median(keys) / home:.1f} x the switch to Home")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
