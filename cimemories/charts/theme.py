"""What all figures share: colours, axes of named rows, error bars, escaped text, and a layout for both themes.

A figure has no background and no font colour of its own: the page, the report or the image gives both. Plotly reads
some HTML in hover texts, tick labels and titles, so every text that is data goes through `html_escaped`.

Colours are those of Okabe and Ito, which colour-blind people tell apart; none stands without a glyph, a symbol or a
name.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cimemories.model import Label
from cimemories.text import html_escaped, isolated

NECESSARY = COMPLETENESS = "#009E73"
INAPPROPRIATE = VIOLATION = "#D55E00"
AMBIGUOUS = "#E69F00"
MODEL = RUN = "#0072B2"
SIMULATED = "#8E5BD0"
GREY = "#808890"
GRID = "rgba(128,128,128,.22)"
COLOURS = {Label.NECESSARY: NECESSARY, Label.INAPPROPRIATE: INAPPROPRIATE, Label.AMBIGUOUS: AMBIGUOUS}
GLYPHS = {Label.NECESSARY: "N", Label.INAPPROPRIATE: "I", Label.AMBIGUOUS: "U"}  # the keys that decide them
VOTES = str.maketrans("X?", "IU")  # from the letters of votes in files to those on screens
# A run is told apart by its colour, then by its dashes; at a mark by its symbol.
RUN_COLOURS = ("#0072B2", "#56B4E9", "#CC79A7", "#E69F00", "#009E73", "#D55E00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "star",
    "hexagon",
    "cross",
    "bowtie",
)

# As the `meta` of a layout: its margins are computed here and hold all labels, so Plotly need not measure them, which
# it does by drawing the figure once more. Under `xaxis` and `yaxis` are the whole names of ticks that may be cut.
MARGINS_FIT = {"margins": "fit"}
LONGEST_TICK = 34  # characters
CHARACTER_WIDTH = 6.2  # pixels of a tick label at Streamlit's size, on average
FINE = 0.05  # an axis that ends below it has whole percents that say the same at several ticks
HEAD = 66  # pixels above the plot, for title and subtitle
LEGEND_BELOW: Mapping[str, Any] = {
    "orientation": "h",
    "yref": "container",
    "y": 0,
    "yanchor": "bottom",
    "x": 0,
    "traceorder": "normal",
}


def layout(*, title: str = "", subtitle: str = "") -> dict[str, Any]:
    """Title, subtitle and margins, transparent. Given to go.Figure together with the data: a figure that grows by
    `update_layout` and `add_trace` takes three times as long, since Plotly validates it again each time."""
    shown, below = (isolated(html_escaped(text)) for text in (title, subtitle))
    return {
        "title": {"text": shown, "subtitle": {"text": below}, "x": 0, "xanchor": "left"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 8, "t": 64 if title and subtitle else 44 if title else 8, "b": 8},
        "hoverlabel": {"align": "left"},
    }


def scatter(
    x: Sequence[object], y: Sequence[object], mode: str, hover: Sequence[str] | None = None, **more: Any
) -> dict[str, Any]:
    """A trace of marks, lines or texts. hover: what the pointer reads at each; None: nothing. more: as in Plotly."""
    pointer: dict[str, Any] = {"hoverinfo": "skip"}
    if hover is not None:
        pointer = {"hovertext": list(hover), "hoverinfo": "text"}
    return {"type": "scatter", "mode": mode, "x": list(x), "y": list(y), **pointer, **more}


def row_bars(x: Sequence[object], hover: Sequence[str], **more: Any) -> dict[str, Any]:
    """A trace of horizontal bars, the first row at the top."""
    bars = {"type": "bar", "orientation": "h", "y": list(range(len(x))), "x": list(x)}
    return {**bars, "hovertext": list(hover), "hoverinfo": "text", **more}


def upright(x: float, colour: str, dash: str = "") -> dict[str, Any]:
    """A line through the plot from bottom to top, as a shape."""
    line = {"color": colour, "width": 1.5} | ({"dash": dash} if dash else {})
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def faint(colour: str, opacity: float) -> str:
    """Return a colour through which what lies behind it is seen."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def named_rows(names: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Return the y axis of named rows, the first on top, and the pixels that the names take to its left."""
    ticks = [html_escaped(name, LONGEST_TICK) for name in names]
    axis = {
        "tickmode": "array",
        "tickvals": list(range(len(names))),
        "ticktext": ticks,
        # From the last to the first: row 0 is on top.
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "ticks": "",
    }
    return axis, round(text_width(ticks)) + 14


def text_width(ticks: Sequence[str]) -> float:
    """Pixels of the longest of these escaped texts."""
    return max((len(html.unescape(text)) for text in ticks), default=0) * CHARACTER_WIDTH


def none_for_nan(values: Sequence[float]) -> list[float | None]:
    """Return the values with None for nan. Plotly leaves a gap at None; it would send nan as a word that JSON does not
    have."""
    return [None if math.isnan(value) else value for value in values]
