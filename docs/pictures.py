"""Make the pictures of README and docs again, from the demo in a real browser:

    .venv/bin/python docs/pictures.py [--workspace FOLDER]

images/leak.gif leads from the heatmaps to a cell and on to the sentence that leaks; cell.png and leak.png are its last
two views, review.png and compare.png those pages, and presenter.png a slide of Accumulation. FOLDER: a workspace with
the demo; left out, it is prepared. Views are opened by their addresses, which outlast what stands where on a page.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import serving
from PIL import Image
from playwright.sync_api import Page

from cimemories import demo
from cimemories.flows.flows import Flows
from cimemories.flows.scope import resolve_scope
from cimemories.leaks.examples import examples as all_examples
from cimemories.leaks.gallery import run_ids
from cimemories.store.engine import open_store

IMAGES = Path(__file__).resolve().parent / "images"
RUN = "sim-average"
SIZE, SLIDE_SIZE = (1440, 1000), (1920, 1080)
GIF_WIDTH, COLOURS = 1080, 256
STAY_MS = (2500, 3500, 5000)  # of each view
TASKS = 13  # done on the slide


def views(workspace: Path) -> list[str]:
    """The addresses of the heatmaps, of the cell of the severest leak there, of that leak, of a slide, of the queue of
    Review and of the leaderboard."""
    store = open_store(workspace)
    scopes = (resolve_scope(store, run_id) for run_id in run_ids(store))
    scope = next(scope for scope in scopes if scope.run.model == RUN)
    leak = all_examples(Flows(store), [scope]).page().iloc[0]
    store.close()
    run, context = {"run": scope.run.id}, {"context": int(leak["context"])}
    flow = {"profile": int(leak["profile"]), **context, "attribute": int(leak["attribute"])}
    queries_by_page = {
        "heatmaps": [run, {**run, "domain": str(leak["domain"]), **context}],
        "leaks": [{**run, **flow}],
        "accumulation": [{**run, "present": TASKS}],
        "review": [{"dataset": scope.run.dataset}],
        "compare": [{}],
    }
    return [f"{page}?{urlencode(query)}" for page, queries in queries_by_page.items() for query in queries]


def shot(page: Page, address: str, ready: str, size: tuple[int, int] = SIZE) -> bytes:
    """A picture of a view as it stands once `ready`, a selector, is there and nothing more is drawn."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.goto(address)
    page.locator(ready).first.wait_for()
    serving.settled(page)
    page.mouse.move(0, 0)
    page.wait_for_timeout(1500)  # charts fade in
    return page.screenshot()


def save_gif(frames: list[bytes]) -> None:
    """The views one after the other, smaller, in 256 colours: by octree, since a median cut drops violet and blue."""
    first, *others = (
        image.resize((GIF_WIDTH, GIF_WIDTH * image.height // image.width), Image.Resampling.LANCZOS).quantize(
            COLOURS, Image.Quantize.FASTOCTREE
        )
        for image in (Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames)
    )
    first.save(IMAGES / "leak.gif", save_all=True, append_images=others, duration=list(STAY_MS), loop=0, optimize=True)


def save(name: str, picture: bytes) -> None:
    """A view as PNG, in 256 colours: a third of the bytes, and no difference to be seen."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, Image.Quantize.FASTOCTREE)
    image.save(IMAGES / f"{name}.png", optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspace", type=Path)
    given = parser.parse_args().workspace
    with tempfile.TemporaryDirectory() as folder:
        workspace = given or Path(folder) / "workspace"
        if given is None:
            store = open_store(workspace)
            demo.prepare(store, lambda text: None)
            store.close()
        heatmaps, cell, leak, slide, review, compare = views(workspace)
        with serving.running_app(workspace, "--no-demo") as (address, _), serving.chromium() as browser:
            page = serving.open_page(browser, address)
            frames = [
                shot(page, f"{address}/{heatmaps}", ".js-plotly-plot .nsewdrag"),
                shot(page, f"{address}/{cell}", "[data-testid=stDataFrame]"),
                shot(page, f"{address}/{leak}", ".ci-message"),
            ]
            save_gif(frames)
            save("cell", frames[1])
            save("leak", frames[2])
            save("compare", shot(page, f"{address}/{compare}", "text=constant strategy"))
            page.goto(f"{address}/{review}")
            page.get_by_label("Your name", exact=True).fill("Ada")
            page.get_by_role("button", name="Begin").click()
            page.locator(".bench .keys").wait_for()
            save("review", shot(page, page.url, ".bench .keys"))
            slide_at = shot(page, f"{address}/{slide}", "dialog[open] .group:not(.old) .quote", SLIDE_SIZE)
            (IMAGES / "presenter.png").write_bytes(slide_at)


if __name__ == "__main__":
    main()
