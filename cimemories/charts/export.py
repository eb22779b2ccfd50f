"""Charts as files for paper: PNG and SVG, drawn by Chromium through kaleido, on white, with what they rest on inside.

A chart of the app has no background and no font colour of its own, since the theme of the page gives both; a printed
one needs them. Whatever it is called elsewhere, the image says it inside: title, subtitle, that it is simulated, and
its source (run, labels, judge). Nothing is fetched: plotly.js is the file of the installed package.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import html
import os
import re
import shutil
import textwrap
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from cimemories.text import Parts, simulated_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

Form = Literal["png", "svg"]
T = TypeVar("T")
WIDTH, HEIGHT, SCALE = 1200, 450, 2
INK, QUIET, RULE, VIOLET = "#16191C", "#4A555E", "#D9DEE2", "#7A47BD"
FONT = "Arial, Liberation Sans, DejaVu Sans, sans-serif"
TITLE_SIZE, SUBTITLE_SIZE, SOURCE_SIZE, TEXT_SIZE = 19, 14, 12, 13
TOP, LINE = 14, 1.3  # pixels above the title, and from line to line in multiples of the size
# How far an average character of FONT reaches, as a share of its size: what a line holds follows from it.
CHARACTER = 0.53
# The room that the app's own charts leave above the plot for a title and a subtitle.
APP_HEAD = 64
NO_BROWSER = (
    "PNG and SVG are drawn by Chromium or Chrome, and none was found. Install one (Debian and Ubuntu: apt-get install "
    "chromium; anywhere: the command kaleido_get_chrome beside this app's Python), or set BROWSER_PATH to where it is."
)
SECONDS = 90
IDLE_SECONDS = 300  # how long a browser of about 200 MB waits for the next image
CLOSE_SECONDS = 5
_one_at_a_time = threading.Lock()


class ImageError(Exception):
    """An image that could not be drawn: why, and what to do about it."""


def browser() -> str | None:
    """Return the program that draws images: what BROWSER_PATH names, else the first browser found; None without any."""
    # Asked for every chart of a page: what knows all the other places takes a third of a second to import.
    usual = os.environ.get("BROWSER_PATH") or shutil.which("chromium") or shutil.which("google-chrome")
    if usual is not None:
        # A BROWSER_PATH that names nothing is not passed over in favour of another browser: the error says what to set.
        return usual if Path(usual).is_file() else None
    from choreographer.browsers.chromium import Chromium

    path = Chromium.find_browser(skip_local=False)
    return path if path and Path(path).is_file() else None


def as_png(
    fig: go.Figure,
    *,
    simulated: Parts = False,
    source: str = "",
    width: int = WIDTH,
    height: int | None = None,
    scale: float = SCALE,
) -> bytes:
    """A chart as a PNG on white, `width` x its own height in pixels, times `scale`. Raises ImageError."""
    return as_images([on_paper(fig, simulated=simulated, source=source, width=width, height=height)], "png", scale)[0]


def as_svg(
    fig: go.Figure, *, simulated: Parts = False, source: str = "", width: int = WIDTH, height: int | None = None
) -> bytes:
    """A chart as an SVG on white. Raises ImageError."""
    return as_images([on_paper(fig, simulated=simulated, source=source, width=width, height=height)], "svg")[0]


def as_images(figs: Sequence[go.Figure], form: Form, scale: float = SCALE) -> list[bytes]:
    """Several charts, as `on_paper` made them. Raises ImageError where no browser is found, or it fails or takes longer
    than SECONDS for one."""
    if not figs:
        return []
    path = browser()
    if path is None:
        raise ImageError(NO_BROWSER)
    # One at a time: sessions share this process, and its one tab.
    with _one_at_a_time:
        try:
            return _renderer.draw(figs, form, scale, path)
        # kaleido, choreographer and asyncio each raise errors of their own, and all mean that there is no image.
        except Exception as problem:
            reason = str(problem) or type(problem).__name__
            raise ImageError(f"{path} could not draw the image: {reason}. Try again, or export the table.") from problem


def warm() -> None:
    """Start the browser in the background, for images that will be wanted soon. Nothing where it runs, or there is
    none: as_images says so."""

    def start() -> None:
        path = browser()
        with _one_at_a_time, contextlib.suppress(Exception):
            if path is not None:
                _renderer.draw([], "png", SCALE, path)

    threading.Thread(target=start, name="image-start", daemon=True).start()


class _Renderer:
    """One Chromium, kept open between images and closed after IDLE_SECONDS without one. Measured with two cores under
    a load of 14: 5.8 s to start it, 0.4 to 0.9 s an image."""

    def __init__(self) -> None:
        self._drawing: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: threading.Timer | None = None

    def draw(self, figs: Sequence[go.Figure], form: Form, scale: float, path: str) -> list[bytes]:
        """Return the images, in their order; of no figure none, but the browser is there. Only under _one_at_a_time."""
        if self._idle is not None:
            self._idle.cancel()
        if self._loop is None:
            # A loop and a thread of its own: the caller may have a loop running, and it must outlast the question.
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="image", daemon=True).start()
        reused = self._drawing is not None
        try:
            made = self._wait(self._draw(figs, form, scale, path))
        except Exception:
            self.close()
            # A browser that was kept may have died since. One that has just been started is not started again.
            if not reused:
                raise
            made = self._wait(self._draw(figs, form, scale, path))
        self._idle = threading.Timer(IDLE_SECONDS, self._close_idle)
        self._idle.daemon = True
        self._idle.start()
        return made

    def close(self) -> None:
        drawing, self._drawing = self._drawing, None
        if drawing is not None:
            with contextlib.suppress(Exception):
                self._wait(drawing.close(), CLOSE_SECONDS)

    def _close_idle(self) -> None:
        with _one_at_a_time:
            self.close()

    def _wait(self, doing: Coroutine[Any, Any, T], seconds: float | None = None) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(doing, self._loop).result(seconds)

    async def _draw(self, figs: Sequence[go.Figure], form: Form, scale: float, path: str) -> list[bytes]:
        import kaleido

        if self._drawing is None:
            # MathJax would come from the internet, and so might anything else: there is no way out but a port without
            # a server.
            options = {"n": 1, "timeout": SECONDS, "mathjax": False, "path": path, "proxy_server": "127.0.0.1:9"}
            drawing = kaleido.Kaleido(**options)
            await drawing.open()
            self._drawing = drawing
        opts = {"format": form, "scale": scale if form == "png" else 1}
        return [bytes(await self._drawing.calc_fig(fig.to_dict(), opts)) for fig in figs]


_renderer = _Renderer()
atexit.register(_renderer.close)


def source_line(about: Mapping[str, object]) -> str:
    """Return what a result rests on, in one line: 'run: run-3f9a · labels: consensus · judge: gpt-oss'. Empty values
    are left out."""
    return " · ".join(f"{name}: {value}" for name, value in about.items() if str(value if value is not None else ""))


def on_paper(
    fig: go.Figure, *, simulated: Parts = False, source: str = "", width: int = WIDTH, height: int | None = None
) -> go.Figure:
    """A copy of a chart for white paper: dark text on white in sizes that can be read in print, title and subtitle in
    as many lines as they need, and under them whether it is simulated and the source."""
    import plotly.graph_objects as go

    # A copy: the figure itself stays on the page.
    figure = go.Figure(fig)
    layout = figure.layout
    title = _wrapped(layout.title.text, width, TITLE_SIZE)
    subtitle = _wrapped(layout.title.subtitle.text, width, SUBTITLE_SIZE)
    last = [f'<span style="color:{VIOLET}"><b>{simulated_text(simulated).upper()}</b></span>'] if simulated else []
    if source:
        size = f"font-size:{SOURCE_SIZE}px;color:{QUIET}"
        last += [f'<span style="{size}">{line}</span>' for line in _wrapped(html.escape(source), width, SOURCE_SIZE)]
    below = [*subtitle, *last]
    head = TOP + TITLE_SIZE + max(0, len(title) - 1) * LINE * TITLE_SIZE + len(below) * LINE * SUBTITLE_SIZE + 30
    # What a figure keeps free beyond APP_HEAD holds names above its plot and stays as it is.
    own_top = layout.margin.t if layout.margin.t is not None else APP_HEAD
    above = head + max(0, own_top - APP_HEAD)
    tall = height or layout.height or HEIGHT
    figure.update_layout(
        template=_template(),
        title={
            "text": "<br>".join(title),
            "font": {"size": TITLE_SIZE, "color": INK},
            "subtitle": {"text": "<br>".join(below), "font": {"size": SUBTITLE_SIZE, "color": INK}},
            "x": 16 / width,
            "xanchor": "left",
            "y": 1 - (TOP + TITLE_SIZE) / (tall + above - own_top),  # where the first line stands
            "yanchor": "bottom",
            "yref": "container",
            "automargin": False,
        },
        margin={"t": above, "l": max(16, layout.margin.l or 80), "r": max(24, layout.margin.r or 40)},
        width=width,
        height=tall + above - own_top,
        paper_bgcolor="white",
        plot_bgcolor="white",
        font={"family": FONT, "size": TEXT_SIZE, "color": INK},
    )
    return figure


def _template() -> dict[str, Any]:
    axis = {"linecolor": QUIET, "gridcolor": RULE, "zerolinecolor": RULE, "automargin": True, "ticklabelstandoff": 6}
    return {"layout": {"xaxis": axis, "yaxis": axis, "colorway": ["#0072B2", "#D55E00", "#009E73", "#E69F00"]}}


def _wrapped(text: str | None, width: int, size: int) -> list[str]:
    """A title of escaped text in lines that fit beside each other in `width` pixels."""
    room = max(20, int((width - 40) / (size * CHARACTER)))
    parts = re.split(r"<br\s*/?>", text or "")
    # Unescaped first: an entity such as &amp; counts as one character and is not cut in two.
    lines = [line for part in parts for line in textwrap.wrap(html.unescape(part), room)]
    return [html.escape(line) for line in lines]
