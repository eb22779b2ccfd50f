"""How long an annotator waits for the next pair: from the press of a key to the next item, 200 presses 40 ms apart.

    .venv/bin/python benchmarks/review_keys.py

The browser takes the times, with the demo data (10 profiles, 73,010 pairs): until the next item stands in the page, and
until the frame after it is painted, which comes every 16.7 ms; then until all presses are confirmed by the record.
Beside them is the processor time of one press with all that follows from it, of the server's process and of the main
thread of the browser's page: on a machine that does other work, it says more than the times do.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving

from cimemories import demo
from cimemories.store import decisions
from cimemories.store.engine import open_store

PRESSES = 200
PAINTS = """() => {
  window.paints = [];
  addEventListener("keydown", event => {
    const start = event.timeStamp;
    requestAnimationFrame(() => setTimeout(() => paints.push(performance.now() - start)));
  }, true);
}"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "workspace")
        demo.prepare(store, lambda text: None)
        with serving.running_app(store.workspace) as (address, server), serving.chromium() as browser:
            page = serving.open_page(browser, address)
            page.add_init_script(f"({PAINTS})()")
            page.goto(f"{address}/review?batch=500")  # one batch, so that nothing comes between
            page.get_by_label("Your name").fill("Ada")
            page.get_by_role("button", name="Begin").click()
            page.locator(".bench .card .title").wait_for()
            serving.settled(page)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = serving.used(server.pid, session)
            for number in range(PRESSES):
                page.keyboard.press("niu"[number % 3])
                page.wait_for_timeout(40)
            pressed = time.perf_counter()
            page.locator(".bench .saved", has_text="all saved").wait_for()
            confirmed = time.perf_counter() - pressed
            spent = [
                (end - start) / PRESSES for start, end in zip(before, serving.used(server.pid, session), strict=True)
            ]
            there = page.evaluate("performance.getEntriesByName('desk key').map(entry => entry.duration)")
            painted = page.evaluate("paints")
        with store.read() as connection:
            kept = len(decisions.history(connection, 1))
        store.close()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} after")
    for what, times in (("next item in the page", there), ("next frame painted", painted)):
        cuts = statistics.quantiles(times, n=20)
        print(f"{what:24} median {statistics.median(times):6.1f} ms, p95 {cuts[18]:6.1f}, worst {max(times):6.1f}")
    print(f"processor time of a press: server {spent[0]:.1f} ms, browser {spent[1]:.1f} ms")
    print(f"{kept} of {PRESSES} presses in the record, all confirmed {confirmed:.2f} s after the last")


if __name__ == "__main__":
    main()
